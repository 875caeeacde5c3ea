"""What a document means beyond what it states. The ways in are modules: `rdfs`, `owl`."""
