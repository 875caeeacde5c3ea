"""The matcher: index, verification, operators, results."""
