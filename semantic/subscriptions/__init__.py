"""Compilation of subscriptions to clauses: resolution, single and bulk compilation, the subscription table."""
