"""The parts of the `fused` engine; see README.md."""
