"""Measurements, never checks. `make bench` runs them; see README.md."""
