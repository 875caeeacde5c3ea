"""What units are worth, exactly: products of powers of atoms, as fractions.

An *atom* is what one name means; a *scale* is what a whole unit means, made ready for `measure`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Atom", "Scale", "dimension_of", "product", "scale_of"]


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
