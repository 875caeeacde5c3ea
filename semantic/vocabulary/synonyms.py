"""Synonym tables of users: words → root words, for strings and names of attributes (CTPS, section 4).

A table is JSON, `{"PC": "computer", "US": "United States"}`, or CSV with a word and its root word on each line:

    PC,computer
    "Hewlett-Packard",HP
"""

import csv
import io
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.model import Position

__all__ = ["joined_tables", "read_table", "root_words"]

MOST_WORDS = 200_000
"""Words of one table: it is kept in memory, and looked into for each new string of an event."""
LONGEST_WORD = 1_000
"""Characters of a word."""
MOST_BYTES = 16 << 20
"""Bytes of a table as it is sent."""
MOST_PROBLEMS = 100
"""Problems reported of one table at most."""
HEADINGS = (("word", "root"), ("synonym", "root"), ("word", "root word"), ("synonym", "root word"))
"""First lines of a CSV that name the columns."""

_object = msgspec.json.Decoder(dict[str, Any])


def root_words(synonyms: Mapping[Any, Any]) -> dict[str, str]:
    """The table in NFC, chains followed to their end: `{"PC": "computer", "computer": "machine"}` makes both a machine.

    Raises InvalidDeclaration for what is no text, and for a circle.

    >>> root_words({"PC": "computer", "computer": "machine"})
    {'PC': 'machine', 'computer': 'machine'}
    """
    table: dict[str, str] = {}
    for word, root in synonyms.items():
        if not (isinstance(word, str) and isinstance(root, str)):
            raise InvalidDeclaration(f"the synonym table must map texts to texts; {word!r} → {root!r} does not")
        table[unicodedata.normalize("NFC", word)] = unicodedata.normalize("NFC", root)
    table = {word: root for word, root in table.items() if word != root}
    return {word: _end(word, table) for word in table}


def read_table(data: bytes, content_type: str = "application/json") -> dict[str, str]:
    """The table of synonyms in a document: `application/json` (one object) or `text/csv` (two columns, UTF-8, with or
    without a heading). Words are in NFC.

    Raises `InvalidDeclaration` with every bad line (`Position.line`, from 1) or member (JSON pointer): words that are
    empty or too long, and words with two different roots. Linear in `data`, at most `MOST_BYTES`.

    >>> read_table(b"PC,computer\\nUS,United States\\n", "text/csv")
    {'PC': 'computer', 'US': 'United States'}
    """
    if len(data) > MOST_BYTES:
        raise InvalidDeclaration(f"a table has at most {MOST_BYTES:,} bytes, this one has {len(data):,}: split it")
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/csv", "application/csv"):
        rows = _csv_rows(data)
    elif kind in ("application/json", "text/json") or kind.endswith("+json"):
        rows = _json_rows(data)
    else:
        raise InvalidDeclaration(f"a table is application/json or text/csv, not {content_type[:80]}")
    table: dict[str, str] = {}
    problems: list[Problem] = []
    for at, word, root in rows:
        detail = _row_problem(word, root) or _clash(word, root, table)
        if detail is None:
            table[unicodedata.normalize("NFC", word)] = unicodedata.normalize("NFC", root)
        elif len(problems) < MOST_PROBLEMS:
            problems.append(Problem("bad-synonym", detail, at))
    if len(table) > MOST_WORDS:
        problems.append(Problem("too-large", f"a table has at most {MOST_WORDS:,} words, this one has {len(table):,}"))
    if problems:
        raise InvalidDeclaration(problems)
    root_words(table)
    return table


def joined_tables(tables: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """One table of several by name. Raises `InvalidDeclaration`, with both names, for a word with two roots."""
    joined: dict[str, str] = {}
    owners: dict[str, str] = {}
    problems: list[Problem] = []
    for name, table in sorted(tables.items()):
        for word, root in table.items():
            if joined.setdefault(word, root) == root:
                owners.setdefault(word, name)
            else:
                detail = f"{word!r} is {joined[word]!r} in the table {owners[word]!r} and {root!r} in {name!r}"
                problems.append(Problem("synonym-conflict", f"{detail}: a word has one root"))
    if problems:
        raise InvalidDeclaration(problems[:MOST_PROBLEMS])
    return joined


_Rows = list[tuple[Position, Any, Any]]


def _json_rows(data: bytes) -> _Rows:
    try:
        found = _object.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidDeclaration(f'a table is one JSON object, {{"word": "root word"}}: {error}') from None
    except RecursionError:
        raise InvalidDeclaration('a table is one JSON object, {"word": "root word"}: this one is nested') from None
    return [(Position(pointer=f"/{_escaped(word)}"), word, root) for word, root in found.items()]


def _csv_rows(data: bytes) -> _Rows:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidDeclaration([Problem("bad-encoding", "the table is not UTF-8", Position(line=line))]) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: _Rows = []
    try:
        for cells in reader:
            at = Position(line=reader.line_num, column=1)
            words = [cell.strip() for cell in cells]
            if not any(words) or (not rows and tuple(map(str.lower, words)) in HEADINGS):
                continue
            rows.append((at, words[0], words[1]) if len(words) == 2 else (at, words, None))
            if len(rows) > MOST_WORDS:
                raise InvalidDeclaration(f"a table has at most {MOST_WORDS:,} words: split it")
    except csv.Error as error:
        at = Position(line=reader.line_num, column=1)
        raise InvalidDeclaration([Problem("bad-synonym", f"this is not CSV: {error}", at)]) from None
    return rows


def _row_problem(word: Any, root: Any) -> str | None:
    if isinstance(word, list):
        return f"a line has two cells, a word and its root word; this one has {len(word)}"
    if not isinstance(root, str):
        return f"the root word of {word[:40]!r} is a string"
    for each in (word, root):
        if not 0 < len(each) <= LONGEST_WORD:
            return f"a word has 1 to {LONGEST_WORD:,} characters, this one has {len(each):,}"
    return None


def _clash(word: str, root: str, table: Mapping[str, str]) -> str | None:
    known = table.get(unicodedata.normalize("NFC", word))
    if known is None or known == unicodedata.normalize("NFC", root):
        return None
    return f"{word[:40]!r} has two root words, {known[:40]!r} and {root[:40]!r}"


def _end(word: str, table: Mapping[str, str]) -> str:
    seen = {word}
    root = table[word]
    while root in table:
        if root in seen:
            raise InvalidDeclaration(f"the synonym table leads from {word!r} back to itself")
        seen.add(root)
        root = table[root]
    return root


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
