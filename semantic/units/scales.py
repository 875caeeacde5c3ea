"""What units are worth, exactly: products of powers of atoms, as fractions.

An *atom* is what one name means; a *scale* is what a whole unit means, made ready for `measure`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Atom", "Scale", "product", "product_of", "scale_of"]


@dataclass(frozen=True, slots=True)
class Atom:
    """amount = number · `factor` + `offset`, in base units; `exponents` of the base dimensions, none zero, by name."""

    exponents: tuple[tuple[str, int], ...]
    factor: Fraction
    offset: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Scale:
    """amount = (number · `a` + `b`) / `c`, all whole numbers; `plain` when the amount is the number."""

    dimension: str
    a: int
    b: int
    c: int
    plain: bool


def product(atoms: Iterable[tuple[Atom, int]]) -> Atom:
    """Atoms to powers, multiplied. An offset stays only where its unit stands alone, numbers aside: a degree Celsius in
    `W/m2/degC` is a difference, that of `degC` and `millidegC` a temperature."""
    exponents: dict[str, int] = {}
    factor = Fraction(1)
    units: list[tuple[Atom, int]] = []
    for atom, power in atoms:
        factor *= atom.factor**power
        if atom.exponents:
            units.append((atom, power))
        for dimension, exponent in atom.exponents:
            exponents[dimension] = exponents.get(dimension, 0) + exponent * power
    alone = len(units) == 1 and units[0][1] == 1
    named = tuple(sorted((name, power) for name, power in exponents.items() if power))
    return Atom(named, factor, units[0][0].offset if alone else Fraction(0))


def scale_of(atom: Atom) -> Scale:
    """`atom` with whole numbers, for one division that rounds once."""
    factor, offset = atom.factor, atom.offset
    a = factor.numerator * offset.denominator
    b = offset.numerator * factor.denominator
    c = factor.denominator * offset.denominator
    return Scale(dimension_of(dict(atom.exponents)), a, b, c, a == c and b == 0)


def dimension_of(exponents: Mapping[str, int]) -> str:
    """`mass/length^3`, `1/time`, `dimensionless`."""
    above = "*".join(_power(name, power) for name, power in exponents.items() if power > 0)
    below = "".join("/" + _power(name, -power) for name, power in exponents.items() if power < 0)
    return f"{above or '1'}{below}" if above or below else "dimensionless"


def _power(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}^{exponent}"


# ── dimensions ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Dimensions multiplied and divided by name: `length/time` times `time` is `length`.
#
# `scales` names a dimension after the powers in it; here the name is taken apart again. For derived attributes.

NONE = "dimensionless"
Powers = dict[str, int]
"""Base dimension → exponent, none zero."""


def powers_of(dimension: str) -> Powers:
    """The powers in a dimension that `scales` named.

    >>> powers_of("mass/length^3")
    {'mass': 1, 'length': -3}
    """
    above, *below = dimension.split("/")
    powers: Powers = {}
    for sign, names in ((1, above.split("*")), (-1, below)):
        for each in names:
            name, _, exponent = each.partition("^")
            if name not in (NONE, "1"):
                powers[name] = sign * int(exponent or 1)
    return powers


def product_of(one: str, other: str, sign: int) -> str:
    """The dimension of a product (`sign` 1) or a quotient (-1).

    >>> product_of("length/time", "time", 1), product_of("mass", "mass", -1)
    ('length', 'dimensionless')
    """
    powers = powers_of(one)
    for name, exponent in powers_of(other).items():
        powers[name] = powers.get(name, 0) + sign * exponent
    return dimension_of({name: powers[name] for name in sorted(powers) if powers[name]})
