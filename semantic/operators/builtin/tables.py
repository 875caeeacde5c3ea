"""Tables: look-ups of values in uploaded tables.

    inTable("blocked", @sender)                        whether some value is a key of the table
    lookUp("suppliers", @supplier, ?country, ?grade)   the other columns of its rows, one binding a row

A table is CSV with a header; its first column is the key, several rows may have the same. Cells that read as numbers
are numbers. Keys compare as `=` does: texts as written (NFC), numbers by value.
"""

import csv
import hashlib
import io
import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import Variable
from kindcast.semantic.operators.declaration import Operator

__all__ = ["MOST_CELLS", "Table", "tables"]

MOST_CELLS = 5_000_000
"""Cells of a table: some hundreds of megabytes at worst."""
LONGEST_CELL = 10_000
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,3})?")


class Table:
    """Rows by key. Immutable."""

    def __init__(self, name: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]], digest: str) -> None:
        self.name, self.columns, self.digest = name, columns, digest
        self._rows: dict[Any, list[tuple[Any, ...]]] = {}
        for row in rows:
            self._rows.setdefault(_key(row[0]), []).append(row[1:])

    @classmethod
    def from_csv(cls, name: str, document: bytes | str) -> "Table":
        """Raises `InvalidDeclaration` with the line that cannot be read."""
        data = document.encode() if isinstance(document, str) else document
        try:
            lines = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
            columns = tuple(next(lines, ()))
            rows: list[tuple[Any, ...]] = []
            for row in lines:
                if len(row) != len(columns):
                    raise ValueError(f"{len(row)} cells under {len(columns)} columns")
                if len(rows) * len(columns) > MOST_CELLS:
                    raise ValueError(f"more than {MOST_CELLS:,} cells")
                if any(len(cell) > LONGEST_CELL for cell in row):
                    raise ValueError(f"a cell of more than {LONGEST_CELL:,} characters")
                rows.append(tuple(map(_cell, row)))
        except UnicodeDecodeError as error:
            raise InvalidDeclaration(f"table {name!r} is not UTF-8: {error}") from error
        except (ValueError, csv.Error) as error:
            raise InvalidDeclaration(f"table {name!r}, line {lines.line_num}: {error}") from error
        if not columns or len(set(columns)) != len(columns):
            raise InvalidDeclaration(f"table {name!r}: the first line names the columns, each once")
        return cls(name, columns, rows, hashlib.sha256(data).hexdigest()[:12])

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def rows(self, value: Any) -> list[tuple[Any, ...]]:
        """The other cells of the rows whose key is `value`."""
        return self._rows.get(_key(value), []) if isinstance(value, str | int | float) else []


def tables(known: Iterable[Table] = ()) -> list[Operator]:
    """`inTable` and `lookUp` over these tables."""
    by_name = {table.name: table for table in known}
    version = hashlib.sha256("".join(f"{n}={t.digest};" for n, t in sorted(by_name.items())).encode()).hexdigest()[:12]

    def wrong(table: str, *given: object) -> str | None:
        if table not in by_name:
            return f"there is no table {table!r}; known are {', '.join(sorted(by_name)) or 'none'}"
        columns = by_name[table].columns[1:]
        bound = len({each.name for each in given if isinstance(each, Variable)})
        if bound in (0, len(columns)):
            return None
        return f"table {table!r} binds {len(columns)} variables ({', '.join(columns)}), or none; the call has {bound}"

    def in_table(event: Any, table: str, values: tuple[Any, ...]) -> bool:
        return any(by_name[table].rows(value) for value in values)

    def look_up(event: Any, table: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [row for value in values for row in by_name[table].rows(value)]

    said: dict[str, Any] = {"version": version, "cost": 5e-6, "check": wrong, "concurrency": 64}
    return [
        Operator(name="inTable", function=in_table, selectivity=0.1, binds=(), **said),
        Operator(name="lookUp", function=look_up, selectivity=0.5, **said),
    ]


def _cell(text: str) -> Any:
    if NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return int(text) if text.lstrip("-").isdigit() else number
    return unicodedata.normalize("NFC", text)


def _key(value: Any) -> Any:
    """Texts in NFC; true is not 1."""
    return (
        (bool, value)
        if isinstance(value, bool)
        else unicodedata.normalize("NFC", value)
        if isinstance(value, str)
        else value
    )
