"""Messages about texts that look like quantities but are read differently or not at all.

Nothing here changes what a text means (rule 15); it only says what it means, by the unit's name, and what to write
instead.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice, product

from kindcast.semantic.units.codes import AMBIGUOUS, CURRENCIES, CURRENCY_SIGNS

__all__ = ["in_words", "is_number", "meant_units", "not_a_quantity", "surprising_unit"]

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
"""Unit → its name, and what its writer more often means. A declaration that gives the attribute such a unit says that
it is meant."""

MEANT = {
    "dollar": ("USD", "CAD", "AUD"),
    "dollars": ("USD", "CAD", "AUD"),
    "bucks": ("USD",),
    "cents": ("USD",),
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
"""What is not a unit, in any case of letters → what is probably meant. No name here is a unit as it is written."""

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
"""Letters of a unit whose other cases are tried: 32 spellings."""

_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NUMBER = r"[+-]?[0-9][0-9.,]*"
_BEHIND = re.compile(rf"\s*({_NUMBER})(\s*)([^\W\d_][^\W\d]{{0,15}}|[%°$£¥€]\w?)\.?\s*")
_BEFORE = re.compile(rf"\s*([^\W\d_]{{2,7}}|[$£¥€₹₺₴₪₫₽])(\s*)({_NUMBER})\s*")
_DECIMAL = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*")
_LONGEST = 40


def in_words(dimension: str) -> str:
    """What a dimension measures, with its article.

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
    """The name of a unit that often stands where another is meant, and what to write for that.

    >>> surprising_unit("F")
    ('farad, a unit of capacitance', 'degF for degrees Fahrenheit')
    """
    return SURPRISING.get(unit.strip())


def meant_units(unit: str, knows: Callable[[str], bool]) -> tuple[str, ...]:
    """The units that `unit`, which is none, probably stands for: words for money and temperatures, codes of currencies
    and symbols in other cases. `knows` says what is a unit; it is asked of 32 spellings at most.

    >>> meant_units("Dollar", lambda unit: True), meant_units("usd", lambda unit: False)
    (('USD', 'CAD', 'AUD'), ('USD',))
    """
    name = unit.strip()
    said = MEANT.get(" ".join(name.casefold().split()))
    if said is not None:
        return said
    if name.upper() in CURRENCIES:
        return (name.upper(),)
    return tuple(islice(_other_cases(name, knows), 3))


def _other_cases(name: str, knows: Callable[[str], bool]) -> Iterator[str]:
    """Spellings of `name` in other cases that are units: small letters first, then those with few changes."""
    if not name.isalpha() or not name.isascii() or len(name) > MOST_CASES:
        return
    small = name.lower()
    cases = sorted(
        {"".join(letters) for letters in product(*((letter, letter.upper()) for letter in small))} - {name},
        key=lambda case: (case != small, case != name[0].lower() + name[1:], sum(map(str.isupper, case)), case),
    )
    yield from filter(knows, cases)


def not_a_quantity(text: str, knows: Callable[[str], bool]) -> str | None:
    """What to tell the writer of a text that looks like a number with a unit and is none; None where it does not look
    so. For texts that are no quantity. Costs 0.2 µs for a text that has no digit at either end.

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
    plain = _plain(number)
    if is_before and unit not in AMBIGUOUS and unit not in CURRENCY_SIGNS and unit.upper() not in CURRENCIES:
        return None  # `Room 5`, `A4`
    if plain is None:
        return None  # `1.2.3 beta`, `10.0.0.1 x`
    if knows(unit) and plain != number:
        reason = "numbers have no commas" if _GROUPED.fullmatch(number) else "the decimal separator is a point"
        return f"{reason}: write {plain} {unit}"
    if unit in AMBIGUOUS:
        choices = AMBIGUOUS[unit]
        return f"{unit} may be {', '.join(choices[:-1])} or {choices[-1]}: write {plain} {choices[0]}"
    meant = meant_units(unit, knows)
    if meant:
        return f"{unit!r} is not a unit: write {plain} {meant[0]}"
    return f"{unit!r} is not a unit" if space and not is_before else None


def is_number(text: str) -> bool:
    """Whether a text is a number without a unit."""
    return _DECIMAL.fullmatch(text) is not None


def _plain(number: str) -> str | None:
    """A number as it should be written; None for what is none in any way."""
    if _GROUPED.fullmatch(number):
        return number.replace(",", "")
    if _COMMA.fullmatch(number):
        return number.replace(",", ".")
    return number if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", number) else None
