"""`Units`: parses numbers with units and converts them to base units for comparison.

Both sides of a comparison are measured here, so `86 degF` in a subscription and `{"value": 303.15, "unit": "K"}` in an
event are the same number.

Exactness. Scales are fractions; a number is read as the shortest decimal that its double stands for (or as the decimal
that a string is), and the result is rounded once. Equal physical values are therefore equal amounts, and order is
kept. The exception is π, which pint has to 50 digits: degrees, turns and minutes of arc agree among each other exactly,
and with radians as far as a double reaches.

Dimensions are finer than a physicist's where nobody would compare: angle, information and each currency are dimensions
of their own, a level (`dB`, `pH`) compares with levels of the same reference, and `rpm` is an angle a time, not a `Hz`.
Percent, ppm and counts are all `dimensionless`. Temperatures in °C and °F have an offset where they stand alone
(`degC`), none inside another unit (`W/m2/degC`).

Scales are exact products of powers of atoms. An *atom* is the meaning of one name; a *scale* is the meaning of a whole
unit, prepared for `measure`.
"""

import contextlib
import math
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.semantic.errors import InvalidQuantity, UnknownUnit
from kindcast.semantic.model import Quantity
from kindcast.semantic.units.codes import (
    AMBIGUOUS,
    CODES_REC20,
    CURRENCIES,
    CURRENCY_SIGNS,
    LARGEST_EXPONENT,
    LEVELS,
    NOT_UNITS,
    QUDT_ATOMS,
    SYMBOLS,
    Factor,
    UnitSyntaxError,
    factors,
    local_name,
    nearest,
    spellings,
    tidy,
    variants,
    without_prefix,
)
from kindcast.semantic.units.mistakes import meant_units
from kindcast.semantic.units.rates import read_rates

__all__ = ["Measure", "Units", "known_names", "product_of"]


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


# Dimensions multiplied and divided by name: `length/time` times `time` is `length`.
#
# A dimension is named after its powers; for derived attributes the name is taken apart again.

NONE = "dimensionless"
Powers = dict[str, int]
"""Base dimension → exponent, none zero."""


def powers_of(dimension: str) -> Powers:
    """The powers in the name of a dimension.

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


# pint, behind one door: the exact atom of a name. pint is used here and nowhere else.
#
# Of pint we use its definitions and its arithmetic of units, with fractions for every number. Its parser of
# expressions,
# which evaluates arithmetic, never sees what a client wrote: whole names are looked up, prefixes and plurals are our
# own.

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


_building = threading.Lock()
"""The registry is built once, whoever asks first; the others wait."""


def _registry() -> Any:
    """Built when the first quantity comes: about half a second."""
    with _building:
        return _built()


@cache
def _built() -> Any:
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


LONGEST = 120
"""Characters of the name of a unit, an IRI included."""
CACHED = 4_096
"""Names of units kept with their scale, known or not; a stream uses a handful."""
MOST_WORDS = 4
"""Words that may be one name: `light year`, `tonne of oil equivalent`."""

CERTAIN_DIGITS = 15
"""Decimal digits that any double keeps."""
CERTAIN = 10.0**CERTAIN_DIGITS
EXACT = 2.0**53
"""Integers below are exact as doubles, and so are their sums."""

NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
DECIMAL = re.compile(NUMBER)
QUANTITY = re.compile(rf"\s*({NUMBER})\s*([^\s0-9.,:;+-].*)")
"""A unit never begins with a digit here, so that `12 59` is no parts per million (the UN/CEFACT code 59)."""
PRICE = re.compile(rf"\s*([A-Z]{{3}}|[^\w\s+.-])\s*({NUMBER})\s*")
"""Money is also written the other way round: `EUR 12.50`, `€12.50`."""


class Measure(NamedTuple):
    """A quantity as it is compared: `amount` in the base unit (SI, where there is one) of `dimension`."""

    dimension: str
    amount: float


class Units:
    """The units that a vocabulary knows: pint's, UCUM's, UN/CEFACT's, QUDT's, OM's, and currencies.

    `rates` lets currencies convert (see `kindcast.semantic.units.rates`): `{"EUR": {"USD": "1.08"}}` says that one euro
    is 1.08 dollars. Raises `InvalidDeclaration` for rates that make no sense.

    `measure` costs about 1 µs for a unit seen before and some 100 µs for a new one; the first quantity loads pint's
    registry, about half a second. Any number of threads may use one `Units`.

    >>> units = Units()
    >>> units.measure(86, "degF") == units.measure(30, "degC") == units.measure(303.15, "K")
    True
    """

    def __init__(self, rates: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._rates = read_rates(rates or {})
        self._scales: dict[str, Scale | None] = {}

    def parse(self, text: str) -> Quantity | None:
        """The quantity that a string such as `86 degF`, `12.5kg` or `EUR 400` is, None where it is not a number and a
        known unit. Only a currency may stand in front of its number.

        Costs about 0.1 µs for a string that neither begins nor ends with a number.
        """
        if not text or len(text) > LONGEST:
            return None
        if text[0] in "0123456789+-. \t" and (shape := QUANTITY.fullmatch(text)):
            digits, unit = shape[1], shape[2].rstrip()
        elif text[-1] in "0123456789. \t" and (shape := PRICE.fullmatch(text)):
            unit, digits = shape[1], shape[2]
            if CURRENCY_SIGNS.get(unit, unit) not in CURRENCIES:
                return None
        else:
            return None
        if self._scale(unit) is None:
            return None
        number = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
        return Quantity(number, unit) if math.isfinite(number) else None

    def measure(self, value: int | float | str, unit: str) -> Measure:
        """`value` of `unit` in the base unit; a string must be a decimal number.

        Raises `UnknownUnit`, and `InvalidQuantity` for what is no finite number or leaves the range of a double.
        """
        scale = self._scales.get(unit) or self._known(unit)
        try:
            if scale.plain and type(value) is float:
                amount = value + 0.0  # -0.0 becomes 0.0
                if math.isfinite(amount):
                    return Measure(scale.dimension, amount)
            numerator, denominator = _ratio(value)
            return Measure(scale.dimension, (numerator * scale.a + denominator * scale.b) / (denominator * scale.c))
        except (OverflowError, ValueError) as error:
            raise InvalidQuantity(f"{_shown(value)} {unit} is not a number within the range of a double") from error

    def amounts(self, values: npt.NDArray[np.float64], unit: str) -> npt.NDArray[np.float64]:
        """The amounts of `measure` for `float64[n]`, NaN for what it refuses. Some 60 ns a number of few digits, whose
        integers are exact as doubles, so that one division rounds once; 2 µs for another. Raises `UnknownUnit`."""
        scale = self._known(unit)
        if scale.plain:
            return np.where(np.isfinite(values), values + 0.0, np.nan)
        found = np.full(values.shape, np.nan)
        left = np.isfinite(values)
        for power in (1, 10, 100, 1_000, 10_000):
            with np.errstate(invalid="ignore", over="ignore"):
                whole = np.rint(values * power)
                above, below = whole * scale.a + float(power * scale.b), float(power * scale.c)
                short = left & (whole / power == values) & (np.abs(whole) < CERTAIN)
                exact = np.abs(whole) * abs(scale.a) + abs(power * scale.b) < EXACT
            if power * scale.c < EXACT:
                chosen = short & exact
                found[chosen] = above[chosen] / below
                left &= ~chosen
            if not left.any():
                return found
        for place in np.flatnonzero(left).tolist():
            with contextlib.suppress(InvalidQuantity):
                found[place] = self.measure(float(values[place]), unit).amount
        return found

    def knows(self, unit: str) -> bool:
        """Whether `unit` is known."""
        return self._scale(unit) is not None

    def dimension(self, unit: str) -> str:
        """What `unit` measures: `temperature`, `length/time`, `currency:USD`, `dimensionless`. Raises `UnknownUnit`."""
        return self._known(unit).dimension

    def bare(self, amount: float, unit: str) -> float:
        """The number in front of `unit` in a quantity of this `amount`, the roundest that measures the same.
        For messages. Raises `UnknownUnit`, `InvalidQuantity`.
        """
        scale = self._known(unit)
        try:
            numerator, denominator = _ratio(amount)
            number = (numerator * scale.c - denominator * scale.b) / (denominator * scale.a)
        except (OverflowError, ValueError) as error:
            raise InvalidQuantity(f"{_shown(amount)} is not an amount of {unit}") from error
        rounder = float(f"{number:.{CERTAIN_DIGITS}g}")
        return rounder if self.measure(rounder, unit).amount == amount else number

    # ── from names to scales ────────────────────────────────────────────────────────────────────────────────────

    def _known(self, unit: str) -> Scale:
        scale = self._scale(unit)
        if scale is None:
            choices = AMBIGUOUS.get(unit.strip())
            if choices:
                raise UnknownUnit(unit, "several units have this name", choices)
            meant = meant_units(unit, self.knows)
            raise UnknownUnit(unit, suggestions=meant or nearest(unit, _every_name()))
        return scale

    def _scale(self, unit: str) -> Scale | None:
        try:
            return self._scales[unit]
        except KeyError:
            scale = self._find(unit)
        if len(self._scales) >= CACHED:
            self._scales.clear()
        self._scales[unit] = scale
        return scale

    def _find(self, unit: str) -> Scale | None:
        """The scale of the first spelling that means something."""
        if len(unit) > LONGEST:
            return None
        name = unit.strip()
        level = LEVELS.get(local_name(name))
        if level is not None:
            dimension, factor = level
            return scale_of(Atom(((dimension, 1),), Fraction(factor)))
        if name in AMBIGUOUS:
            return None
        for expression in spellings(name, known_names()):
            try:
                found = factors(tidy(expression))
                if any(factor.words for factor in found):  # a mere number is not a unit
                    return scale_of(product(self._atoms(found)))
            except (UnitSyntaxError, _NoSuchName):
                continue
        return None

    def _atoms(self, found: tuple[Factor, ...]) -> list[tuple[Atom, int]]:
        atoms: list[tuple[Atom, int]] = []
        for factor in found:
            if not factor.words:
                atoms.append((Atom((), Fraction(factor.number)), factor.exponent))
            words, first = list(factor.words), factor.first
            while words:
                count, atom, power = self._longest(words, digits=not factor.written)
                if abs(factor.exponent * first * power) > LARGEST_EXPONENT:
                    raise UnitSyntaxError(f"an exponent is at most {LARGEST_EXPONENT}")
                atoms.append((atom, factor.exponent * first * power))
                del words[:count]
                first = 1
        return atoms

    def _longest(self, words: list[str], *, digits: bool) -> tuple[int, Atom, int]:
        """How many of `words` are one name, what it means, and the power that its last `digits` say."""
        for count in range(min(MOST_WORDS, len(words)), 0, -1):
            name = "_".join(words[:count])
            atom = self._atom(name)
            if atom is not None:
                return count, atom, 1
            stem = name.rstrip("0123456789")
            if digits and 1 <= len(name) - len(stem) <= 2:
                atom = self._atom(stem)
                if atom is not None:
                    return count, atom, int(name[len(stem) :])
        raise _NoSuchName(words[0])

    def _atom(self, name: str) -> Atom | None:
        """What one name means: itself, its singular, it with a small first letter, or with a prefix taken off."""
        for spelling in variants(name):
            atom = self._whole(spelling)
            if atom is not None:
                return atom
        for power, rest in without_prefix(name):
            for spelling in variants(rest):
                atom = self._whole(spelling)
                if atom is not None and atom.exponents and not atom.offset:
                    return Atom(atom.exponents, atom.factor * power)
        return None

    def _whole(self, name: str) -> Atom | None:
        code = CURRENCY_SIGNS.get(name, name)
        if code in CURRENCIES:
            dimension, factor = self._rates.get(code, (f"currency:{code}", Fraction(1)))
            return Atom(((dimension, 1),), factor)
        if name == "dimensionless":
            return Atom((), Fraction(1))
        definition = SYMBOLS.get(name, name)
        return atom_of(name) if definition == name else product(self._atoms(factors(definition)))


class _NoSuchName(Exception):
    """A part of the unit has no meaning."""


def _every_name() -> chain[str]:
    return chain(SYMBOLS, known_names(), CODES_REC20, QUDT_ATOMS, LEVELS, CURRENCIES)


def _ratio(value: int | float | str) -> tuple[int, int]:
    """`value` as numerator and denominator: an int itself, a float its shortest decimal, a string the decimal it is."""
    if isinstance(value, int):
        return value, 1
    if isinstance(value, float):
        return Decimal(float.__repr__(value)).as_integer_ratio()
    if not DECIMAL.fullmatch(value):
        raise ValueError(value)
    return Decimal(value).as_integer_ratio()


def _shown(value: int | float | str) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return str(value)[:80]
