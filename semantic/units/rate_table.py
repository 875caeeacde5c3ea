"""Tables of exchange rates as documents: JSON, or CSV with a base, a currency and a rate a line.

{"EUR": {"USD": "1.08", "GBP": "0.85"}}          EUR,USD,1.08
                                                 EUR,GBP,0.85
"""

import csv
import io
from typing import Any

import msgspec

from semantic.errors import InvalidDeclaration, Problem
from semantic.model import Position
from semantic.units.rates import check_rate, read_rates

__all__ = ["read_rate_table"]

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
        raise InvalidDeclaration([Problem("bad-rate", f"this is no CSV: {error}", at)]) from None
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
