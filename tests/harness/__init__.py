"""Real things that tests run against: a server process, a webhook receiver. No tests in here."""
