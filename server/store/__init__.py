"""The only rooms that speak SQL."""
