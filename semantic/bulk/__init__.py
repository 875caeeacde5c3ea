"""Many subscriptions at once: trees of one shape are compiled once, and their constants lowered as columns."""
