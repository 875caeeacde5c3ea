"""The engines of the papers; see README.md."""
