"""Operators on the server: built in, from plug-ins, and remote services; asked beside the broker."""
