"""Journeys through the console in a real browser."""
