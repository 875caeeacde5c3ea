"""The `ctps` engine: bit sets of rows. Zhang et al., "CTPS", 2022."""
