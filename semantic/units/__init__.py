"""Quantities: a number and the name of its unit → the number in the base unit of its dimension, and back.

docs/matching-semantics.md, rule 15. The whole package has two public names; README.md maps its files.
"""

from kindcast.semantic.units.measure import Measure, Units

__all__ = ["Measure", "Units"]
