"""Reading of events: published events → canonical events, and → columns of the index."""
