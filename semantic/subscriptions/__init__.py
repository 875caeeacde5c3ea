"""Subscriptions as written to clauses: resolution, compilation, bulk compilation, and the table of them."""
