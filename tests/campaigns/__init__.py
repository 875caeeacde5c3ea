"""Long runs with seeds of their own, for `make campaign`; `make test` runs a sample of each."""
