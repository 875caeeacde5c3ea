"""Exchange rates that a user uploads → what each currency is worth in one of them.

    {"EUR": {"USD": "1.08", "GBP": "0.85"}}      one euro is 1.08 dollars, and 0.85 pounds

Rates are decimals, best written as strings; a JSON number is read as its shortest decimal. Currencies that rates
connect, directly or through others, convert into each other and share one dimension, named after the first of them by
the alphabet. No rate is ever assumed: currencies that nothing connects never compare.
"""

import csv
import io
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.model import Position
from kindcast.semantic.units.codes import CURRENCIES

__all__ = ["read_rate_table", "read_rates"]


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
            raise InvalidDeclaration(f"{code!r} is not a currency of ISO 4217")
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


# Tables of exchange rates as documents: JSON, or CSV with a base, a currency and a rate a line.
#
# {"EUR": {"USD": "1.08", "GBP": "0.85"}}          EUR,USD,1.08
#                                                  EUR,GBP,0.85

MOST_BYTES = 1 << 20
"""Bytes of a table; there are some 180 currencies."""
MOST_RATES = 10_000
"""Rates of one table."""
MOST_PROBLEMS = 100
"""Problems told of one table."""
HEADINGS = (("base", "currency", "rate"), ("from", "to", "rate"), ("base", "other", "rate"))
"""First lines of a CSV that name the columns."""

_table = msgspec.json.Decoder(dict[str, dict[str, Any]], float_hook=str)  # a rate is the decimal that it is written as


def read_rate_table(data: bytes, content_type: str = "application/json") -> dict[str, dict[str, str]]:
    """The table in a document of `application/json` or `text/csv` (UTF-8, with or without a heading), rates as strings.

    Raises `InvalidDeclaration` with every bad line (`Position.line`, from 1) or member (JSON pointer), and for rates
    that contradict each other. Linear in `data`, at most `MOST_BYTES`.

    >>> read_rate_table(b"base,currency,rate\\nEUR,USD,1.08\\n", "text/csv")
    {'EUR': {'USD': '1.08'}}
    """
    if len(data) > MOST_BYTES:
        raise InvalidDeclaration(f"a table of rates has at most {MOST_BYTES:,} bytes, this one has {len(data):,}")
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/csv", "application/csv"):
        rows = _csv_rows(data)
    elif kind in ("application/json", "text/json") or kind.endswith("+json"):
        rows = _json_rows(data)
    else:
        raise InvalidDeclaration(f"a table of rates is application/json or text/csv, not {content_type[:80]}")
    if len(rows) > MOST_RATES:
        raise InvalidDeclaration(f"a table of rates has at most {MOST_RATES:,} rates, this one has {len(rows):,}")
    table: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    for at, cells in rows:
        detail = _cells_problem(cells)
        if detail is not None:
            problems.append(Problem("bad-rate", detail, at))
            continue
        base, other, rate = cells
        table.setdefault(base, {})[other] = str(rate)
    if problems:
        raise InvalidDeclaration(problems[:MOST_PROBLEMS])
    read_rates(table)
    return table


_Rows = list[tuple[Position, list[Any]]]


def _json_rows(data: bytes) -> _Rows:
    try:
        found = _table.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidDeclaration(f'rates look like {{"EUR": {{"USD": "1.08"}}}}: {error}') from None
    return [
        (Position(pointer=f"/{_escaped(base)}/{_escaped(other)}"), [base, other, rate])
        for base, others in found.items()
        for other, rate in others.items()
    ]


def _csv_rows(data: bytes) -> _Rows:
    rows: _Rows = []
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        for cells in reader:
            words = [cell.strip() for cell in cells]
            if any(words) and (rows or tuple(map(str.lower, words)) not in HEADINGS):
                rows.append((Position(line=reader.line_num, column=1), words))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidDeclaration([Problem("bad-encoding", "the table is not UTF-8", Position(line=line))]) from None
    except csv.Error as error:
        at = Position(line=reader.line_num, column=1)
        raise InvalidDeclaration([Problem("bad-rate", f"this is not CSV: {error}", at)]) from None
    return rows


def _cells_problem(cells: list[Any]) -> str | None:
    if len(cells) != 3:
        return f"a line has three cells, as in EUR,USD,1.08; this one has {len(cells)}"
    try:
        check_rate(*cells)
    except InvalidDeclaration as error:
        return str(error)
    return None


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
