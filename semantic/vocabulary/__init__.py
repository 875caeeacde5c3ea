"""The vocabulary: hierarchies, labels, terms, attributes, declarations, event types. See README.md."""
