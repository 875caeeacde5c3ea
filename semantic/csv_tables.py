"""Tables in CSV, as users upload them: words with their root words, exchange rates."""

import csv
import io
from collections.abc import Collection

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.model import Position

__all__ = ["csv_rows"]


def csv_rows(
    data: bytes, headings: Collection[tuple[str, ...]], code: str, most: int
) -> list[tuple[Position, list[str]]]:
    """Returns the cells of each line of a table in UTF-8, without the white space around them. Blank lines are left
    out, and so is a first line that is one of the `headings`. If there are more than `most` lines, the result has one
    more and ends. Linear.

    Raises `InvalidDeclaration` with the line that is not UTF-8 (`bad-encoding`) or not CSV (`code`).

    >>> [cells for _, cells in csv_rows(b"Word,root\\n\\nPC, computer\\n", [("word", "root")], "bad-synonym", 9)]
    [['PC', 'computer']]
    """
    rows: list[tuple[Position, list[str]]] = []
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        for line in reader:
            cells = [cell.strip() for cell in line]
            if any(cells) and (rows or tuple(map(str.lower, cells)) not in headings):
                rows.append((Position(line=reader.line_num, column=1), cells))
            if len(rows) > most:
                break
    except UnicodeDecodeError as error:
        at = Position(line=data.count(b"\n", 0, error.start) + 1, column=1)
        raise InvalidDeclaration([Problem("bad-encoding", "the table is not UTF-8", at)]) from None
    except csv.Error as error:
        at = Position(line=reader.line_num, column=1)
        raise InvalidDeclaration([Problem(code, f"this is not CSV: {error}", at)]) from None
    return rows
