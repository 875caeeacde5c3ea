"""Operators on the server: built in, from plug-ins, and remote services, called outside the broker's thread."""
