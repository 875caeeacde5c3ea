"""Spark jobs that run the matcher over archives and streams. For users: docs/scale.md; for readers: the README here."""
