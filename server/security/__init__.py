"""Authorisation and network guards: tickets, limits, and outgoing connections to sinks."""
