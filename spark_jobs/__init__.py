"""The same matcher over archives and streams, on Spark. For users: docs/scale.md; for readers: the README here."""
