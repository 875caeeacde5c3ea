"""What a new version of a vocabulary changes."""
