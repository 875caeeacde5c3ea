"""Who may do what, and how much of it: tickets, limits, the way out to sinks."""
