"""Who may do what: keys, roles, limits, tickets; and outgoing connections to sinks."""
