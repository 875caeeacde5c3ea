"""Events as published to canonical events and to columns of the index."""
