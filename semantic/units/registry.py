"""pint, behind one door: the exact atom of a name. pint is used here and nowhere else.

Of pint we use its definitions and its arithmetic of units, with fractions for every number. Its parser of expressions,
which evaluates arithmetic, never sees what a client wrote: whole names are looked up, prefixes and plurals are our own.
"""

import threading
from fractions import Fraction
from functools import cache
from typing import Any

from semantic.units.codes import NOT_UNITS
from semantic.units.scales import Atom

__all__ = ["atom_of", "known_names"]

BASE_NAMES = {
    "meter": "length",
    "gram": "mass",
    "second": "time",
    "ampere": "current",
    "kelvin": "temperature",
    "mole": "substance",
    "candela": "luminosity",
    "radian": "angle",
    "bit": "information",
}
"""pint's root units by what they measure; any other is a dimension under its own name."""
COUNTED = "count"
"""pint's unit of counting: things are counted in ones."""
GRAM, GRAMS = "gram", Fraction(1000)
"""pint's root of mass is the gram; our base unit is the kilogram, as in SI."""

_lock = threading.Lock()
"""pint fills caches of its own while it converts."""


@cache
def _registry() -> Any:
    """Built once, when the first quantity comes: about half a second."""
    import pint

    return pint.UnitRegistry(non_int_type=Fraction)


@cache
def known_names() -> frozenset[str]:
    """Every name, symbol and alias that is a unit, without prefixes and plurals."""
    registry = _registry()
    return frozenset(name for name in list(registry) if registry.get_name(name) not in NOT_UNITS)


def atom_of(name: str) -> Atom | None:
    """What `name`, of `known_names`, means: None if it is unknown, a logarithm, or no unit of ours (`NOT_UNITS`)."""
    if name not in known_names():
        return None
    with _lock:
        return _root(_registry().get_name(name))


@cache
def _root(unit: str) -> Atom | None:
    """pint's unit of this canonical name in base units."""
    registry = _registry()
    container = registry.UnitsContainer({unit: 1})
    try:
        zero, one, two = (registry.Quantity(Fraction(number), container).to_root_units() for number in range(3))
        factor, offset = Fraction(one.magnitude - zero.magnitude), Fraction(zero.magnitude)
        linear = two.magnitude - one.magnitude == factor
        exponents = {base: Fraction(power) for base, power in one.unit_items()}
    except (TypeError, ValueError):
        return None  # logarithms of fractions
    exact = all(isinstance(each.magnitude, Fraction | int) for each in (zero, one, two))
    if not linear or not exact or not factor or any(power.denominator != 1 for power in exponents.values()):
        return None  # the Gaussian units have roots of centimetres
    grams = GRAMS ** int(exponents.get(GRAM, 0))
    named = sorted((BASE_NAMES.get(base, base), int(power)) for base, power in exponents.items() if base != COUNTED)
    return Atom(tuple(named), factor / grams, offset / grams)
