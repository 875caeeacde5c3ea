"""What words mean: hierarchies, labels, terms, attributes, declarations, event types. See README.md."""
