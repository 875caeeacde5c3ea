"""Connectors to message brokers: messages in, as events, and matches out, as messages. See README.md for the map."""
