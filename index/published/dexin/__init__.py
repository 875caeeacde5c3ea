"""The `dexin` engine: "DEXIN", dynamic exclusive and inclusive matching."""
