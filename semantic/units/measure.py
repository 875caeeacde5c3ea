"""Conversion of quantities to base units (`Units`), exchange rates, and notes on units that are probably mistakes.

Both operands of a comparison are converted here. So `86 degF` in a subscription and `{"value": 303.15, "unit": "K"}` in
an event are the same number.

Exactness: scales are fractions. A number is read as the shortest decimal of its double (a string as the decimal that it
is), and the result is rounded once. So equal physical values are equal amounts, and the order is kept. The exception is
π, which pint has to 50 digits: degrees, turns and minutes of arc compare exactly with each other, and with radians to
the precision of a double.

Dimensions are finer than in physics where a comparison would make no sense. Angle, information and each currency are
dimensions of their own. A level (`dB`, `pH`) compares only with levels of the same reference, and `rpm` is angle per
time, not `Hz`. Percent, ppm and counts are all `dimensionless`. Temperatures in °C and °F have an offset if the unit
stands alone (`degC`), and no offset as a part of another unit (`W/m2/degC`).

Scales are exact products of powers of atoms. An *atom* is the meaning of one name. A *scale* is the meaning of a whole
unit, in the form that `measure` uses.
"""

import contextlib
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.semantic.csv_tables import csv_rows
from kindcast.semantic.errors import InvalidDeclaration, InvalidQuantity, Problem, UnknownUnit
from kindcast.semantic.model import Quantity
from kindcast.semantic.units.codes import (
    AMBIGUOUS,
    CODES_REC20,
    CURRENCIES,
    CURRENCY_SIGNS,
    LARGEST_EXPONENT,
    LEVELS,
    NOT_UNITS,
    PREFIXES,
    QUDT_ATOMS,
    SYMBOLS,
    WORD_PREFIXES,
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

__all__ = [
    "Measure",
    "Units",
    "in_words",
    "is_exact",
    "is_number",
    "known_names",
    "meant_units",
    "not_a_quantity",
    "product_of",
    "read_rate_table",
    "read_rates",
    "surprising_unit",
]

# ── exchange rates: from uploaded tables to the value of each currency in one currency ──────────────────────────────

#     {"EUR": {"USD": "1.08", "GBP": "0.85"}}      one euro is 1.08 dollars, and 0.85 pounds
#
# Rates are decimals, best written as strings; a JSON number is read as its shortest decimal. Currencies that are
# connected by rates, directly or through others, convert into each other. They share one dimension, named after the
# alphabetically first of them. No rate is assumed: currencies without a connection are never comparable.


Rates = dict[str, tuple[str, Fraction]]
"""Currency → (its dimension, its value in the currency of that dimension)."""

RATE = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
"""The syntax of a rate: digits, with no exponent."""


def read_rates(rates: Mapping[str, Mapping[str, Any]]) -> Rates:
    """Returns the value of each currency in `rates`. Linear in the number of rates.

    Raises `InvalidDeclaration` for an unknown currency, a rate that is not a positive decimal, and contradictory rates
    (one euro converted to dollars and back must be exactly one euro).
    """
    worth: dict[str, dict[str, Fraction]] = {}
    if not isinstance(rates, Mapping):
        raise InvalidDeclaration('rates look like {"EUR": {"USD": "1.08"}}')
    for base, others in rates.items():
        if not isinstance(others, Mapping):
            raise InvalidDeclaration(f'{base!r}: the rates of a currency are an object like {{"USD": "1.08"}}')
        for other, rate in others.items():
            number = check_rate(base, other, rate)
            _connect(worth, base, other, 1 / number)
            _connect(worth, other, base, number)
    found: Rates = {}
    for first in sorted(worth):
        if first not in found:
            _spread(first, worth, found)
    return found


def check_rate(base: str, other: str, rate: Any) -> Fraction:
    """Returns one rate as a fraction. Raises `InvalidDeclaration` if the rate or a currency is invalid."""
    for code in (base, other):
        if code not in CURRENCIES:
            raise InvalidDeclaration(f"{code!r} is not a currency of ISO 4217")
    text = str(rate) if isinstance(rate, int | float | Decimal) and not isinstance(rate, bool) else rate
    if not isinstance(text, str) or not RATE.fullmatch(text) or not Fraction(text):
        detail = f'the rate of {base} in {other} must be a positive decimal such as "1.08", not {rate!r}'
        raise InvalidDeclaration(detail)
    return Fraction(text)


def _connect(worth: dict[str, dict[str, Fraction]], base: str, other: str, value: Fraction) -> None:
    """Records that one `other` is worth `value` `base`. Raises `InvalidDeclaration` if a different rate is known."""
    known = worth.setdefault(base, {}).setdefault(other, value)
    if known != value:
        raise InvalidDeclaration(f"two different rates between {base} and {other}")


def _spread(first: str, worth: dict[str, dict[str, Fraction]], found: Rates) -> None:
    """Computes the value in `first` of each currency that is connected with `first`."""
    dimension = f"currency:{first}"
    found[first] = dimension, Fraction(1)
    waiting = [first]
    while waiting:
        base = waiting.pop()
        for other, value in worth[base].items():
            value_in_first = value * found[base][1]
            if other not in found:
                found[other] = dimension, value_in_first
                waiting.append(other)
            elif found[other][1] != value_in_first:
                raise InvalidDeclaration(f"the rates contradict each other about {other} in {first}")


# Exchange rate tables as documents in CSV, with a base, a currency and a rate per line: EUR,USD,1.08

MOST_BYTES = 1 << 20
"""The size limit of a table in bytes. There are about 180 currencies."""
MOST_RATES = 10_000
"""The maximum number of rates in a table."""
MOST_PROBLEMS = 100
"""The maximum number of problems reported for a table."""
HEADINGS = (("base", "currency", "rate"), ("from", "to", "rate"), ("base", "other", "rate"))
"""The header lines that a CSV table may have."""


def read_rate_table(data: bytes) -> dict[str, dict[str, str]]:
    """Reads a table from a document in CSV (UTF-8, with or without a header). Rates stay as they are written.

    Raises `InvalidDeclaration` with each bad line (`Position.line`, from 1), and for contradictory rates. Linear in
    `data`, which has at most `MOST_BYTES`.

    >>> read_rate_table(b"base,currency,rate\\nEUR,USD,1.08\\n")
    {'EUR': {'USD': '1.08'}}
    """
    if len(data) > MOST_BYTES:
        raise InvalidDeclaration(f"a table of rates has at most {MOST_BYTES:,} bytes, this one has {len(data):,}")
    rows = csv_rows(data, HEADINGS, "bad-rate", MOST_RATES)
    if len(rows) > MOST_RATES:
        raise InvalidDeclaration(f"a table of rates has at most {MOST_RATES:,} rates")
    table: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    for at, cells in rows:
        detail = _cells_problem(cells)
        if detail is not None:
            problems.append(Problem("bad-rate", detail, at))
            continue
        base, other, rate = cells
        table.setdefault(base, {})[other] = rate
    if problems:
        raise InvalidDeclaration(problems[:MOST_PROBLEMS])
    read_rates(table)
    return table


def _cells_problem(cells: list[str]) -> str | None:
    if len(cells) != 3:
        return f"a line has three cells, as in EUR,USD,1.08; this one has {len(cells)}"
    try:
        check_rate(*cells)
    except InvalidDeclaration as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Atom:
    """The meaning of one name: amount = number · `factor` + `offset`, in base units. `exponents` has the base
    dimensions with nonzero exponents, sorted by name."""

    exponents: tuple[tuple[str, int], ...]
    factor: Fraction
    offset: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear function in integers: amount = (number · `a` + `b`) / `c`. `plain` means that the amount is the
    number."""

    dimension: str
    a: int
    b: int
    c: int
    plain: bool


def product(atoms: Iterable[tuple[Atom, int]]) -> Atom:
    """Returns the product of powers of atoms. An offset is kept only if its unit is the only one, apart from numbers:
    in `W/m2/degC` a degree Celsius is a difference, in `degC` and `millidegC` it is a temperature."""
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
    """Returns the scale of `atom` with integer coefficients, so that `measure` divides, and rounds, once."""
    factor, offset = atom.factor, atom.offset
    a = factor.numerator * offset.denominator
    b = offset.numerator * factor.denominator
    c = factor.denominator * offset.denominator
    return Scale(dimension_of(dict(atom.exponents)), a, b, c, a == c and b == 0)


def dimension_of(exponents: Mapping[str, int]) -> str:
    """Returns the name of a dimension: `mass/length^3`, `1/time`, `dimensionless`."""
    above = "*".join(_power(name, power) for name, power in exponents.items() if power > 0)
    below = "".join("/" + _power(name, -power) for name, power in exponents.items() if power < 0)
    return f"{above or '1'}{below}" if above or below else "dimensionless"


def _power(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}^{exponent}"


# Products and quotients of dimensions by name: `length/time` times `time` is `length`.
#
# The name of a dimension consists of its powers. For derived attributes the name is parsed again.

NONE = "dimensionless"
Powers = dict[str, int]
"""Base dimension → exponent, never zero."""


def powers_of(dimension: str) -> Powers:
    """Parses the name of a dimension into powers.

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
    """Returns the dimension of a product (`sign` 1) or a quotient (-1).

    >>> product_of("length/time", "time", 1), product_of("mass", "mass", -1)
    ('length', 'dimensionless')
    """
    powers = powers_of(one)
    for name, exponent in powers_of(other).items():
        powers[name] = powers.get(name, 0) + sign * exponent
    return dimension_of({name: powers[name] for name in sorted(powers) if powers[name]})


# The interface to pint: the exact atom of a name. pint is used here and nowhere else.
#
# We use pint's definitions and its arithmetic of units, with fractions for all numbers. We do not use its parser, which
# evaluates arithmetic expressions, on text from clients: whole names are looked up, and prefixes and plurals are
# handled by our own code.

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
"""pint's root units → their dimension. Any other root unit is a dimension under its own name."""
COUNTED = "count"
"""pint's unit of counting. Its base unit is one."""
GRAM, GRAMS = "gram", Fraction(1000)
"""pint's root unit of mass is the gram; our base unit is the kilogram, as in SI."""

_lock = threading.Lock()
"""Guards conversions, because pint fills caches of its own while it converts."""


_building = threading.Lock()
"""Makes sure that only one thread builds the registry; the others wait for it."""


def _registry() -> Any:
    """Returns pint's registry. The first call builds it, in about half a second."""
    with _building:
        return _built()


@cache
def _built() -> Any:
    import pint

    return pint.UnitRegistry(non_int_type=Fraction)


@cache
def known_names() -> frozenset[str]:
    """Returns all names, symbols and aliases of units, without prefixes and plurals."""
    registry = _registry()
    return frozenset(name for name in list(registry) if registry.get_name(name) not in NOT_UNITS)


def atom_of(name: str) -> Atom | None:
    """Returns the atom of `name`. None if it is unknown, logarithmic, or not a unit for us (`NOT_UNITS`)."""
    if name not in known_names():
        return None
    with _lock:
        return _root(_registry().get_name(name))


@cache
def _root(unit: str) -> Atom | None:
    """Converts pint's unit with this canonical name to base units."""
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
        return None  # the roots of Gaussian units have fractional exponents
    grams = GRAMS ** int(exponents.get(GRAM, 0))
    named = sorted((BASE_NAMES.get(base, base), int(power)) for base, power in exponents.items() if base != COUNTED)
    return Atom(tuple(named), factor / grams, offset / grams)


LONGEST = 120
"""The maximum length of a unit in characters, also if it is an IRI."""
CACHED = 4_096
"""The number of unit names in the cache, known or unknown. A stream uses few."""
MOST_WORDS = 4
"""The maximum number of words in one name: `light year`, `tonne of oil equivalent`."""

CERTAIN_DIGITS = 15
"""The number of decimal digits that a double always keeps."""
CERTAIN = 10.0**CERTAIN_DIGITS
EXACT = 2.0**53
"""Integers below this are exact as doubles, and so are their sums."""

NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
DECIMAL = re.compile(NUMBER)
QUANTITY = re.compile(rf"\s*({NUMBER})(?:\s*(?=[^\s0-9.,:;+-])|\s+(?=10[*^]))(.+)")
"""A number, then a unit. Here a unit cannot begin with a digit, so that `12 59` is not 12 ppm (59 is a UN/CEFACT
code), but it may begin with a power of ten, as in `5 10*9/L`."""
PRICE = re.compile(rf"\s*([A-Z]{{3}}|[^\w\s+.-])\s*({NUMBER})\s*")
"""A currency may also come before the number: `EUR 12.50`, `€12.50`."""


class Measure(NamedTuple):
    """A quantity in the form that is compared: `amount` in the base unit (SI if possible) of `dimension`."""

    dimension: str
    amount: float


class Units:
    """The units that a vocabulary knows: those of pint, UCUM, UN/CEFACT, QUDT and OM, and currencies.

    `rates` makes currencies convertible (see `read_rate_table`): `{"EUR": {"USD": "1.08"}}` states that one euro is
    1.08 dollars. Raises `InvalidDeclaration` for invalid rates.

    `measure` takes about 1 µs for a unit in the cache and about 100 µs for a new one. The first quantity loads pint's
    registry, in about half a second. A `Units` can be shared by threads.

    >>> units = Units()
    >>> units.measure(86, "degF") == units.measure(30, "degC") == units.measure(303.15, "K")
    True
    """

    def __init__(self, rates: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._rates = read_rates(rates or {})
        self._scales: dict[str, Scale | None] = {}

    @property
    def rates(self) -> Rates:
        """The value of each currency that has a rate."""
        return self._rates

    def parse(self, text: str) -> Quantity | None:
        """Parses a string such as `86 degF`, `12.5kg` or `EUR 400`. Returns None if it is not a number and a known
        unit. Only a currency may come before its number.

        Takes about 0.1 µs for a string that neither begins nor ends with a number.
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
        """Converts `value` in `unit` to the base unit. A string must be a decimal number.

        Raises `UnknownUnit`, and `InvalidQuantity` if the value is not a finite number or the amount exceeds a double.
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
        """Returns the amounts of `measure` for a whole array, `float64[n]`; NaN where `measure` would raise
        `InvalidQuantity`. Takes about 60 ns per number with few digits, whose integers are exact as doubles, so that
        one division rounds once; 2 µs for other numbers. Raises `UnknownUnit`."""
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
        """Returns whether `unit` is known."""
        return self._scale(unit) is not None

    def dimension(self, unit: str, *, suggest: bool = True) -> str:
        """Returns the dimension of `unit`: `temperature`, `length/time`, `currency:USD`, `dimensionless`. Raises
        `UnknownUnit`, which has no similar names without `suggest`, because their search takes long."""
        return self._known(unit, suggest=suggest).dimension

    def bare(self, amount: float, unit: str) -> float:
        """Converts `amount` in base units back to a number of `unit`: the roundest number that has this amount. Used in
        messages. Raises `UnknownUnit` and `InvalidQuantity`.
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

    def _known(self, unit: str, *, suggest: bool = True) -> Scale:
        scale = self._scale(unit)
        if scale is None:
            choices = AMBIGUOUS.get(unit.strip())
            if choices:
                raise UnknownUnit(unit, "several units have this name", choices)
            if not suggest:
                raise UnknownUnit(unit)
            meant = meant_units(unit, self.knows)
            raise UnknownUnit(unit, suggestions=meant or _nearest(local_name(unit)[:LONGEST]))
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
        """Returns the scale of the first spelling that has a meaning."""
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
                if any(factor.words for factor in found):  # a number alone is not a unit
                    return scale_of(product(self._atoms(found)))
            except (UnitSyntaxError, _NoSuchName):
                continue
        return None

    def _atoms(self, found: tuple[Factor, ...]) -> list[tuple[Atom, int]]:
        atoms: list[tuple[Atom, int]] = []
        for factor in found:
            if not factor.words:
                if not (number := Fraction(factor.number)):
                    raise UnitSyntaxError("no unit is a multiple of 0, nor divided by it")
                atoms.append((Atom((), number), factor.exponent))
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
        """Returns how many of `words` form the longest name, the atom of the name, and the power in its last
        `digits`."""
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
        """Returns the atom of one name: as written, in the singular, with a lower-case first letter, or without a
        prefix."""
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
    """Raised if a part of the unit has no meaning."""


@cache
def _every_name() -> Mapping[str, frozenset[str]]:
    """Returns all names of units by their first letter, in either case."""
    names: dict[str, set[str]] = {}
    for each in chain(SYMBOLS, known_names(), CODES_REC20, QUDT_ATOMS, LEVELS, CURRENCIES):
        names.setdefault(each[0].casefold(), set()).add(each)
    return {letter: frozenset(some) for letter, some in names.items()}


@lru_cache(CACHED)
def _nearest(name: str) -> tuple[str, ...]:
    """Returns the names of units that `name` may be a misspelling of. Cached, because an event with an unknown unit is
    read for several attributes, and publishers wait for each other."""
    return nearest(name, _every_name().get(name[:1].casefold(), ()))


def _ratio(value: int | float | str) -> tuple[int, int]:
    """Returns `value` as numerator and denominator. A float is read as its shortest decimal, a string as its
    decimal."""
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


# ── messages about texts that look like quantities, but are read differently or not at all ────────────────────────────

# These functions do not change the meaning of a text (rule 15). They tell the meaning, with the name of the unit, and
# what to write instead.


SURPRISING = {
    "F": ("farad, a unit of capacitance", "degF for degrees Fahrenheit"),
    "C": ("coulomb, a unit of electric charge", "degC for degrees Celsius"),
    "pct": ("picocarat, a unit of mass", "percent or %"),
    "S": ("siemens, a unit of conductance", "s for seconds"),
    "T": ("tesla, a unit of magnetic flux density", "t for tonnes"),
    "G": ("gauss, a unit of magnetic flux density", "g for grams"),
    "b": ("barn, a unit of area", "bit or B for bits or bytes"),
    "pc": ("parsec, a unit of length", "pcs for pieces"),
    "u": ("unified atomic mass unit", "pcs for pieces"),
    "MM": ("megamolar, a unit of concentration", "mm for millimetres"),
    "Mm": ("megametre, a thousand kilometres", "mm for millimetres"),
    "mb": ("millibar, a unit of pressure", "MB for megabytes"),
    "ton": ("the short ton of 907 kg", "t for tonnes of 1000 kg"),
    "tons": ("the short ton of 907 kg", "t for tonnes of 1000 kg"),
}
"""Unit → its name, and the unit that writers more often mean. If a declaration gives an attribute such a unit, it is
intended."""

MEANT = {
    "dollar": ("USD", "CAD", "AUD"),
    "dollars": ("USD", "CAD", "AUD"),
    "bucks": ("USD",),
    "euro": ("EUR",),
    "euros": ("EUR",),
    "yen": ("JPY",),
    "yuan": ("CNY",),
    "renminbi": ("CNY",),
    "rmb": ("CNY",),
    "quid": ("GBP",),
    "sterling": ("GBP",),
    "franc": ("CHF",),
    "francs": ("CHF",),
    "rupee": ("INR",),
    "rupees": ("INR",),
    "rouble": ("RUB",),
    "roubles": ("RUB",),
    "ruble": ("RUB",),
    "rubles": ("RUB",),
    "won": ("KRW",),
    "real": ("BRL",),
    "zloty": ("PLN",),
    "kmh": ("km/h",),
    "gb": ("GB",),
    "tb": ("TB",),
    "c": ("degC",),
    "f": ("degF",),
    "deg c": ("degC",),
    "deg f": ("degF",),
    "degree c": ("degC",),
    "degrees c": ("degC",),
    "degrees f": ("degF",),
    "per cent": ("percent",),
    "prozent": ("percent",),
    "stunden": ("h",),
    "tage": ("d",),
}
"""Words that are not units, in any case of letters → the units that are probably meant. No word here is a known
unit."""

KINDS = {
    "dimensionless": "number",
    "length": "length",
    "mass": "mass",
    "time": "time",
    "temperature": "temperature",
    "angle": "angle",
    "information": "amount of data",
    "length^2": "area",
    "length^3": "volume",
    "length/time": "speed",
    "mass/length/time^2": "pressure",
    "length*mass/time^2": "force",
    "length^2*mass/time^2": "energy",
    "length^2*mass/time^3": "power",
    "1/time": "frequency",
    "current": "electric current",
    "substance": "amount of substance",
    "current*time": "electric charge",
    "current^2*time^4/length^2/mass": "capacitance",
    "length^2*mass/current/time^3": "voltage",
}
"""Dimensions that have a common name."""

MOST_CASES = 5
"""The maximum length of a unit whose other cases of letters are tried: 32 spellings."""

_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NUMBER = r"[+-]?[0-9][0-9.,]*"
_BEHIND = re.compile(rf"\s*({_NUMBER})(\s*)([^\W\d_][^\W\d]{{0,15}}|[%°$£¥€]\w?)\.?\s*")
_BEFORE = re.compile(rf"\s*([^\W\d_]{{2,7}}|[$£¥€₹₺₴₪₫₽])(\s*)({_NUMBER})\s*")
_DECIMAL = re.compile(r"\s*+[+-]?[0-9]++(\.[0-9]++)?([eE][+-]?[0-9]++)?\s*+")
_LONGEST = 40


def in_words(dimension: str) -> str:
    """Returns what a dimension measures, with its article.

    >>> in_words("temperature"), in_words("currency:USD"), in_words("mass/time")
    ('a temperature', 'an amount of USD', 'a quantity of mass/time')
    """
    if dimension.startswith("currency:"):
        return f"an amount of {dimension.removeprefix('currency:')}"
    name = KINDS.get(dimension)
    if name is None:
        return f"a quantity of {dimension}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def surprising_unit(unit: str) -> tuple[str, str] | None:
    """Returns the name of a unit that is often written by mistake, and what to write for the unit that is usually
    meant. None for other units.

    >>> surprising_unit("F")
    ('farad, a unit of capacitance', 'degF for degrees Fahrenheit')
    """
    return SURPRISING.get(unit.strip())


def meant_units(unit: str, knows: Callable[[str], bool]) -> tuple[str, ...]:
    """Returns the units that the unknown unit `unit` probably stands for. It knows words for money and temperatures,
    codes of currencies, and symbols in other cases of letters. `knows` tells whether a name is a unit; it is called at
    most 32 times.

    >>> meant_units("Dollar", lambda unit: True), meant_units("usd", lambda unit: False)
    (('USD', 'CAD', 'AUD'), ('USD',))
    """
    name = unit.strip()
    if name == "KB":  # `kb` is a unit too, but bits are seldom meant
        return ("kB",)
    said = MEANT.get(" ".join(name.casefold().split()))
    if said is not None:
        return said
    if name.upper() in CURRENCIES:
        return (name.upper(),)
    return tuple(islice(_other_cases(name, knows), 3))


def _other_cases(name: str, knows: Callable[[str], bool]) -> Iterator[str]:
    """Yields the spellings of `name` in other cases of letters that are units: lower case first, then by the number of
    changes."""
    if not name.isalpha() or not name.isascii() or len(name) > MOST_CASES:
        return
    small = name.lower()
    if not _may_be_a_unit(small):  # nearly all words; trying 32 spellings takes a millisecond
        return
    cases = sorted(
        {"".join(letters) for letters in itertools.product(*((letter, letter.upper()) for letter in small))} - {name},
        key=lambda case: (case != small, case != name[0].lower() + name[1:], sum(map(str.isupper, case)), case),
    )
    yield from filter(knows, cases)


def _may_be_a_unit(small: str) -> bool:
    """Whether a word in small letters has the letters of a unit, perhaps with a prefix or as a plural."""
    names, prefixes = _in_small_letters()
    rests = [small, *(small[length:] for length in range(1, len(small)) if small[:length] in prefixes)]
    return any(rest in names or rest.removesuffix("s") in names for rest in rests)


@cache
def _in_small_letters() -> tuple[frozenset[str], frozenset[str]]:
    """Returns all names of units, and all prefixes, in small letters."""
    names = chain.from_iterable(_every_name().values())
    return frozenset(map(str.lower, names)), frozenset(map(str.lower, chain(PREFIXES, WORD_PREFIXES)))


def not_a_quantity(text: str, knows: Callable[[str], bool]) -> str | None:
    """Returns a message about a text that looks like a number with a unit but is no quantity. None if the text does not
    look like that. Takes 0.2 µs for a text without a digit at either end.

    >>> known = {"USD", "m", "kg"}.__contains__
    >>> not_a_quantity("5 bananas", known)
    "'bananas' is not a unit"
    >>> not_a_quantity("1,000 m", known)
    'numbers have no commas: write 1000 m'
    >>> not_a_quantity("$5", known)
    '$ may be USD, CAD or AUD: write 5 USD'
    >>> not_a_quantity("5 usd", known)
    "'usd' is not a unit: write 5 USD"
    >>> not_a_quantity("12 Main Street", known), not_a_quantity("about 5", known), not_a_quantity("7up", known)
    (None, None, None)
    """
    text = text.strip()
    if not text or len(text) > _LONGEST or not (text[0] in "+-0123456789$£¥€₹₺₴₪₫₽" or text[-1] in "0123456789"):
        return None
    if found := _BEHIND.fullmatch(text):
        number, space, unit = found[1], found[2], found[3]
    elif found := _BEFORE.fullmatch(text):
        number, space, unit = found[3], found[2], found[1]
    else:
        return None
    is_before = found.re is _BEFORE
    is_sign = unit in AMBIGUOUS or unit in CURRENCY_SIGNS
    if is_before and not is_sign and (unit.upper() not in CURRENCIES or unit.istitle()):
        return None  # `Room 5`, `A4`, `Top 10`
    plain = _plain(number)
    if plain is None:
        return None  # `1.2.3 beta`, `10.0.0.1 x`
    if knows(unit) and plain != number:
        reason = "numbers have no commas" if _GROUPED.fullmatch(number) else "the decimal separator is a point"
        return f"{reason}: write {plain} {unit}"
    if knows(unit) and text.endswith("."):
        return f"a quantity ends with its unit: write {plain} {unit}"
    if unit in AMBIGUOUS:
        choices = AMBIGUOUS[unit]
        return f"{unit} may be {', '.join(choices[:-1])} or {choices[-1]}: write {plain} {choices[0]}"
    meant = meant_units(unit, knows)
    if meant:
        return f"{unit!r} is not a unit: write {plain} {meant[0]}"
    return f"{unit!r} is not a unit" if space and not is_before else None


def is_number(text: str) -> bool:
    """Returns whether a text is a number without a unit."""
    return _DECIMAL.fullmatch(text) is not None


def is_exact(text: str, number: float) -> bool:
    """Returns whether `number`, the finite double nearest to a numeric text, is the integer in the text. True for texts
    with a fraction or an exponent (rule 4)."""
    digits = text.strip()
    return abs(number) < 2**53 or not digits.lstrip("-").isdigit() or int(digits) == number


def _plain(number: str) -> str | None:
    """Returns a number in the syntax that kindcast reads; None if `number` is not a number in any notation."""
    if _GROUPED.fullmatch(number):
        return number.replace(",", "")
    if _COMMA.fullmatch(number):
        return number.replace(",", ".")
    return number if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", number) else None
