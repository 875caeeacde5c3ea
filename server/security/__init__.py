"""Access control: keys, roles, limits and tickets; and guarded outgoing connections to sinks."""
