"""The experiments, a module each; `harness.experiment` says what it has."""
