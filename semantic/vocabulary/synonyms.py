"""Synonym tables for words (CTPS, section 4), and aliases for IRIs.

A synonym table is JSON, `{"PC": "computer", "US": "United States"}`, or CSV with a word and its root word on each line:

    PC,computer
    "Hewlett-Packard",HP

Aliases (docs/matching-semantics.md, rule 24) declare which forms of an IRI name the same thing:

    {"iris": {"urn:oid:2.16.840.1.113883.6.1": "http://loinc.org"},
     "prefixes": {"http://schema.org/": "https://schema.org/"},
     "patterns": [{"match": "urn:shop:(.+)", "as": "https://example.org/shop#{1}"}, "gs1-digital-link"],
     "spellings": ["en"]}

Each entry leads from one form to another. The last form reached is the main form of a text; two texts with one main
form are aliases of each other. Every text has one main form, so this is an equivalence that costs a few look-ups.
`spellings` says that other spellings of labels mean their concepts (rule 12); they are not aliases.
"""

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kindcast.semantic.errors import InvalidDeclaration, Problem
from kindcast.semantic.model import Position
from kindcast.semantic.vocabulary.identifiers import (
    DIGITAL_LINK,
    DIGITAL_LINK_FORM,
    LONGEST_TEXT,
    IdentifierPattern,
    digital_link,
    named_pattern,
)

__all__ = [
    "Aliases",
    "joined_tables",
    "read_table",
    "root_words",
]

MOST_WORDS = 200_000
"""The maximum number of words in a table: it is kept in memory, and each new string of an event is looked up in it."""
LONGEST_WORD = 1_000
"""The maximum length of a word."""
MOST_BYTES = 16 << 20
"""The maximum size of a table document in bytes."""
MOST_PROBLEMS = 100
"""The maximum number of problems that are reported for one table."""
HEADINGS = (("word", "root"), ("synonym", "root"), ("word", "root word"), ("synonym", "root word"))
"""The header lines that a CSV table may have."""

_object = msgspec.json.Decoder(dict[str, Any])


def root_words(synonyms: Mapping[Any, Any]) -> dict[str, str]:
    """Returns the table in NFC with each chain followed to its end.

    Raises InvalidDeclaration for a word or root that is not a text, and for a cycle.

    >>> root_words({"PC": "computer", "computer": "machine"})
    {'PC': 'machine', 'computer': 'machine'}
    """
    table: dict[str, str] = {}
    for word, root in synonyms.items():
        if not (isinstance(word, str) and isinstance(root, str)):
            raise InvalidDeclaration(f"the synonym table must map texts to texts, but it has {word!r} → {root!r}")
        table[unicodedata.normalize("NFC", word)] = unicodedata.normalize("NFC", root)
    table = {word: root for word, root in table.items() if word != root}
    ends: dict[str, str] = {}
    for word in table:
        _follow(word, table, ends)
    return {word: ends[word] for word in table}


def read_table(data: bytes, content_type: str = "application/json") -> dict[str, str]:
    """Reads a table of synonyms from a document: `application/json` (one object) or `text/csv` (two columns, UTF-8,
    with or without a header). Words are in NFC.

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
    """Merges several tables by name. Raises `InvalidDeclaration`, with both names, for a word with two roots."""
    joined: dict[str, str] = {}
    owners: dict[str, str] = {}
    problems: list[Problem] = []
    for name, table in sorted(tables.items()):
        for word, root in table.items():
            if joined.setdefault(word, root) == root:
                owners.setdefault(word, name)
            else:
                detail = f"{word!r} is {joined[word]!r} in the table {owners[word]!r} and {root!r} in {name!r}"
                problems.append(Problem("synonym-conflict", f"{detail}: a word has only one root word"))
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


def _follow(word: str, table: Mapping[str, str], ends: dict[str, str]) -> None:
    """Adds the end of the chain of a word to `ends`, and of each word on it: so all chains together cost linear time.
    Raises InvalidDeclaration for a cycle."""
    chain: dict[str, None] = {}
    while word in table and word not in ends:
        chain[word] = None
        word = table[word]
        if word in chain:
            raise InvalidDeclaration(f"the synonym table has a cycle: it leads from {word!r} back to {word!r}")
    ends.update(dict.fromkeys(chain, ends.get(word, word)))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


KEYS: Final = frozenset({"iris", "prefixes", "patterns", "spellings"})
MOST_STEPS = 8
"""The maximum number of aliases that are applied one after the other."""
MOST_ENTRIES = 10_000
"""The maximum number of entries of all tables together."""
MOST_PATTERNS = 64
"""The maximum number of patterns of all tables together: each is tried on each new text."""
LONGEST = 2_000
"""The maximum length of an IRI in a table."""


class Aliases:
    """The aliases of one vocabulary. Immutable. False if there are none; `spelt` does not count.

    >>> aliases = Aliases({"web": {"prefixes": {"http://schema.org/": "https://schema.org/"}}})
    >>> aliases.main("http://schema.org/Car"), aliases.other("https://schema.org/Car")
    ('https://schema.org/Car', None)
    """

    def __init__(self, tables: Mapping[str, Any] | None = None) -> None:
        """`tables` by name; all are merged. Raises InvalidDeclaration."""
        self._iris: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self.spelt: bool = False
        """Whether other spellings of labels mean their concepts (rule 12)."""
        patterns: list[IdentifierPattern | str] = []
        for name, table in sorted((tables or {}).items()):
            what = f"aliases {name!r}"
            if not isinstance(table, Mapping) or not table or table.keys() - KEYS:
                raise InvalidDeclaration(f"{what}: an object with {', '.join(sorted(KEYS))} is expected")
            _add(what, "iris", table.get("iris", {}), self._iris)
            _add(what, "prefixes", table.get("prefixes", {}), self._prefixes)
            listed = table.get("patterns", [])
            listed = [listed] if isinstance(listed, Mapping | str) else listed
            if not isinstance(listed, list | tuple):
                raise InvalidDeclaration(f"{what}: patterns are a list")
            if table.get("spellings", ["en"]) != ["en"]:
                raise InvalidDeclaration(f'{what}: spellings are ["en"]: only the plurals of English are known')
            self.spelt |= "spellings" in table
            patterns += [named_pattern(what, "patterns", each, (DIGITAL_LINK_FORM,)) for each in listed]
        if len(self._iris) + len(self._prefixes) > MOST_ENTRIES or len(patterns) > MOST_PATTERNS:
            raise InvalidDeclaration(f"aliases have at most {MOST_ENTRIES:,} entries and {MOST_PATTERNS} patterns")
        self._patterns = tuple(patterns)
        self._beginnings = tuple(sorted(self._prefixes, key=len, reverse=True))
        self._check_ends()

    def __bool__(self) -> bool:
        return bool(self._iris or self._prefixes or self._patterns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Aliases):
            return NotImplemented
        own = (self._iris, self._prefixes, self._patterns, self.spelt)
        return own == (other._iris, other._prefixes, other._patterns, other.spelt)

    __hash__ = None  # type: ignore[assignment]

    def main(self, text: str) -> str:
        """Returns the main form of `text`, else `text` itself. Cost: a look-up, a test of prefixes, and all
        patterns."""
        for _ in range(MOST_STEPS):
            found = self._step(text)
            if found is None or found == text:
                break
            text = found
        return text

    def other(self, text: str) -> str | None:
        """Returns the main form of `text` if it is another text, else None."""
        found = self.main(text) if self else text
        return None if found == text else found

    def spellings(self, text: str) -> frozenset[str]:
        """Returns `text` and the texts that tables (not patterns) make aliases of it. For reports: linear in the
        tables."""
        main = self.main(text)
        found = {text, main, *(iri for iri in self._iris if self.main(iri) == main)}
        for each in tuple(found):
            for prefix in self._beginnings:
                end = self._prefixes[prefix]
                if each.startswith(end) and self.main(other := prefix + each[len(end) :]) == main:
                    found.add(other)
        return frozenset(found)

    @property
    def words(self) -> frozenset[str]:
        """Returns all texts in the tables, whole forms and prefixes."""
        return frozenset(
            {*self._iris, *self._iris.values(), *self._prefixes, *self._prefixes.values()},
        )

    @property
    def patterns(self) -> dict[str, str]:
        """Pattern that a text must match → the main form of the constant beginning of its result. For reports."""
        told = {}
        for each in self._patterns:
            form, match = (DIGITAL_LINK, each) if isinstance(each, str) else (each.form, each.match)
            told[match] = self.main(form.partition("{")[0])
        return told

    def _step(self, text: str) -> str | None:
        found = self._iris.get(text)
        if found is not None:
            return found
        if text.startswith(self._beginnings):
            prefix = next(each for each in self._beginnings if text.startswith(each))
            return self._prefixes[prefix] + text[len(prefix) :]
        if self._patterns and len(text) <= LONGEST_TEXT:
            for each in self._patterns:
                form = digital_link(text) if isinstance(each, str) else each.reading(text)
                if form is not None:
                    return form
        return None

    def _check_ends(self) -> None:
        """Checks that each entry leads to a main form."""
        for start in (*self._iris, *self._beginnings):
            text = start
            for _ in range(MOST_STEPS):
                found = self._step(text)
                if found is None or found == text:
                    break
                text = found
            else:
                raise InvalidDeclaration(f"aliases: {start!r} has no last form: map it directly to its last form")


def _add(what: str, key: str, given: Any, found: dict[str, str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidDeclaration(f"{what}: {key} is an object, one form → the other")
    for form, other in given.items():
        for each in (form, other):
            if not isinstance(each, str) or not 0 < len(each) <= LONGEST or any(sign <= " " for sign in each):
                raise InvalidDeclaration(f"{what}: {key} has {each!r}, which is not an IRI or the beginning of one")
        if form == other:
            raise InvalidDeclaration(f"{what}: {form!r} is mapped to itself")
        if found.setdefault(form, other) != other:
            raise InvalidDeclaration(f"{what}: {form!r} is mapped to {found[form]!r} already, not to {other!r}")


def main_forms(aliases: Aliases, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields (name, its main form) for those of `names` whose main form is another text."""
    return ((name, main) for name in names if (main := aliases.other(name)) is not None) if aliases else ()
