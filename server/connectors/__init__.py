"""Connectors to message brokers: messages become events, and matches become messages. See README.md for the map."""
