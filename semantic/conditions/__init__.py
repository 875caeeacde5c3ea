"""What one predicate means: normal form, reading of values, evaluation, lowering to the index."""
