"""Exchange rates that a user uploads → what each currency is worth in one of them.

    {"EUR": {"USD": "1.08", "GBP": "0.85"}}      one euro is 1.08 dollars, and 0.85 pounds

Rates are decimals, best written as strings; a JSON number is read as its shortest decimal. Currencies that rates
connect, directly or through others, convert into each other and share one dimension, named after the first of them by
the alphabet. No rate is ever assumed: currencies that nothing connects never compare.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from semantic.errors import InvalidDeclaration
from semantic.units.codes import CURRENCIES

__all__ = ["Rates", "check_rate", "read_rates"]

Rates = dict[str, tuple[str, Fraction]]
"""Currency → (the dimension it shares, its worth in that dimension's currency)."""

DECIMAL = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
"""No exponents: a rate is some digits."""


def read_rates(rates: Mapping[str, Mapping[str, Any]]) -> Rates:
    """The worth of every currency in `rates`. Linear in the rates.

    Raises `InvalidDeclaration` for an unknown currency, a rate that is no positive decimal, and rates that contradict
    each other (one euro in dollars and back must be one euro, exactly).
    """
    worth: dict[str, dict[str, Fraction]] = {}
    if not isinstance(rates, Mapping):
        raise InvalidDeclaration('rates look like {"EUR": {"USD": "1.08"}}')
    for base, others in rates.items():
        if not isinstance(others, Mapping):
            raise InvalidDeclaration(f'the rates of {base} look like {{"USD": "1.08"}}')
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
    """The number that one rate is. Raises `InvalidDeclaration`."""
    for code in (base, other):
        if code not in CURRENCIES:
            raise InvalidDeclaration(f"{code!r} is no currency of ISO 4217")
    text = str(rate) if isinstance(rate, int | float | Decimal) and not isinstance(rate, bool) else rate
    if not isinstance(text, str) or not DECIMAL.fullmatch(text) or not Fraction(text):
        detail = f'the rate of {base} in {other} must be a positive decimal such as "1.08", not {rate!r}'
        raise InvalidDeclaration(detail)
    return Fraction(text)


def _connect(worth: dict[str, dict[str, Fraction]], base: str, other: str, value: Fraction) -> None:
    """One `other` is `value` `base`."""
    known = worth.setdefault(base, {}).setdefault(other, value)
    if known != value:
        raise InvalidDeclaration(f"two different rates between {base} and {other}")


def _spread(first: str, worth: dict[str, dict[str, Fraction]], found: Rates) -> None:
    """Give every currency that `first` reaches its worth in `first`."""
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
