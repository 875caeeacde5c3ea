"""Declarations in addition to ontologies: attributes, synonyms, conversion rates, event types, JSON-LD contexts and
others, as one frozen version.

    attribute   {"kind": "number", "unit": "USD"}          by name
    synonyms    {"PC": "computer"}                         by the name of the table; all tables are joined
    rates       {"EUR": {"USD": "1.08"}}                   one table; its name has no meaning
    schema      a JSON Schema                              by event type
    context     {"@context": {…}}                          by the URL of a JSON-LD context
    code-system {"identifiers": ["http://loinc.org"]}      by the name of a system of codes
    aliases     {"prefixes": {"http://schema.org/": "https://schema.org/"}}   by the name of the table
    split       {"split": "entry.resource"}                by the name of an envelope of events
    relation    {"union": ["isPointOf", "hasLocation"]}    by the name of a union of relations
    reading     {"linked_data": "plain"}                   how events are read; set by the server, not declared

A declaration is checked before it is used, by itself and together with all others.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from kindcast.semantic.csv_tables import csv_rows
from kindcast.semantic.errors import InvalidDeclaration, Problem, SemanticError, UnknownContext
from kindcast.semantic.model import Position
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units import Units
from kindcast.semantic.vocabulary.attributes import AttributeScheme, check_sense
from kindcast.semantic.vocabulary.contexts import check_contexts, needed_contexts
from kindcast.semantic.vocabulary.derivation import Derivations
from kindcast.semantic.vocabulary.event_schemas import EventSchemas, extension_problems
from kindcast.semantic.vocabulary.event_types import Splits
from kindcast.semantic.vocabulary.identifiers import Aliases, CodeSystems
from kindcast.semantic.vocabulary.relations import union_parts

__all__ = ["DeclarationKind", "Declarations", "check_table", "joined_tables", "read_table", "root_words"]

DeclarationKind = Literal[
    "attribute", "synonyms", "rates", "schema", "context", "code-system", "aliases", "split", "relation"
]

MOST_ATTRIBUTES = 10_000
"""Maximum number of declared attributes of one vocabulary."""
MOST_BYTES = 16 << 20
"""Maximum bytes of all declarations as JSON: they are read again for every version of the vocabulary."""

PLAIN: Mapping[str, str] = {"linked_data": "plain"}
"""The `reading` under which JSON-LD is read as plain JSON."""

_FIELDS: Mapping[str, str] = {
    "attribute": "attributes",
    "synonyms": "synonyms",
    "rates": "rates",
    "schema": "schemas",
    "context": "contexts",
    "code-system": "code_systems",
    "aliases": "aliases",
    "split": "splits",
    "relation": "unions",
    "reading": "reading",
}
"""Kind of declaration → the field of `Declarations` that holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All declarations, by kind and name. `synonyms` and `aliases` hold tables by name."""

    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    synonyms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    code_systems: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reading: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in _FIELDS.values())

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of `Vocabulary(ontologies, **arguments)`. Raises `InvalidDeclaration` if two
        tables of synonyms contradict each other."""
        return {
            "attributes": self.attributes,
            "synonyms": joined_tables(self.synonyms),
            "rates": self.rates,
            "schemas": self.schemas,
            "contexts": self.contexts,
            "code_systems": self.code_systems,
            "aliases": self.aliases,
            "splits": self.splits,
            "unions": self.unions,
            "reading": self.reading,
        }

    def checked(self) -> "Declarations":
        """Returns these declarations if each is valid by itself and all are valid together.

        Raises `InvalidDeclaration` with every problem. Costs as much as building their part of a vocabulary.
        """
        problems: list[Problem] = []

        def attempt(check: Callable[[], Any]) -> Any:
            try:
                return check()
            except InvalidDeclaration as error:
                problems.extend(error.problems)
            except SemanticError as error:
                problems.append(Problem("invalid-declaration", str(error)))
            return None

        if len(self.attributes) > MOST_ATTRIBUTES:
            detail = f"at most {MOST_ATTRIBUTES:,} attributes can be declared, not {len(self.attributes):,}"
            raise InvalidDeclaration([Problem("too-large", detail)])
        parts = json.JSONEncoder(default=str).iterencode(self.to_json())  # in parts, so that other threads may run
        if sum(map(len, parts)) > MOST_BYTES:
            raise InvalidDeclaration([Problem("too-large", f"all declarations have at most {MOST_BYTES:,} bytes")])
        units = attempt(lambda: Units(self.rates)) or Units()
        roots = attempt(lambda: root_words(joined_tables(self.synonyms))) or {}
        schemas = attempt(lambda: EventSchemas(self.schemas)) or EventSchemas()
        for name, union in self.unions.items():
            attempt(lambda name=name, union=union: union_parts(name, union))  # type: ignore[misc]
        aliases = attempt(lambda: Aliases(self.aliases)) or Aliases()
        attempt(lambda: CodeSystems(self.code_systems, list, aliases.main))
        attempt(lambda: Splits(self.splits))
        for name, fields in self.attributes.items():
            attempt(lambda name=name, fields=fields: AttributeScheme.build((), {name: fields}, roots))  # type: ignore[misc]
        if not problems:
            scheme = attempt(lambda: AttributeScheme.build((), self.attributes, roots, schemas.owned_domains()))
            for name, declaration in (scheme.declarations if scheme else {}).items():
                if declaration.unit is not None:
                    unit = declaration.unit
                    attempt(lambda name=name, unit=unit: _check_unit(units, name, unit))  # type: ignore[misc]
            if scheme:
                attempt(lambda: Derivations.of(scheme, schemas, units))
        if problems:
            raise InvalidDeclaration(problems)
        return self

    def extended(self, kind: DeclarationKind, name: str, body: Any, *, replace_schema: bool = False) -> "Declarations":
        """Returns these declarations with one more, checked. It replaces a declaration of the same kind and name. An
        event type may only be extended (Le Subscribe, section 2.2), unless `replace_schema` is true.

        Raises `InvalidDeclaration` with every problem, or `UnknownContext` for a context that refers to unknown ones.
        """
        if kind not in get_args(DeclarationKind):
            raise InvalidDeclaration(f"there is no kind of declaration {kind!r}; known are {get_args(DeclarationKind)}")
        if not isinstance(body, Mapping):
            raise InvalidDeclaration(f"{kind} {name!r}: a JSON object is expected")
        if kind == "rates":
            return replace(self, rates=body).checked()
        field_name = _FIELDS[kind]
        extended = replace(self, **{field_name: {**getattr(self, field_name), name: body}})
        extended.checked()
        if kind == "attribute":  # only the new one: a stored declaration must not refuse all others
            check_sense(name, body)
        if kind == "context":
            check_contexts(extended.contexts)
        if kind == "schema" and name in self.schemas and not replace_schema:
            # Other types may refer to the domains of this type: they, too, may only be extended.
            before, after = EventSchemas(self.schemas).types, EventSchemas(extended.schemas).types
            problems = [each for other in before for each in extension_problems(before[other], after[other])]
            if problems:
                raise InvalidDeclaration(problems)
        return extended

    def without(self, kind: DeclarationKind, name: str) -> "Declarations":
        """Returns these declarations without one, checked, because others may depend on it. A missing declaration is
        not an error.

        Raises `InvalidDeclaration`, or `UnknownContext` if another context refers to it.
        """
        if kind == "rates":
            return replace(self, rates={})
        field_name = _FIELDS[kind]
        left = {key: body for key, body in getattr(self, field_name).items() if key != name}
        remaining = replace(self, **{field_name: left}).checked()
        if kind == "context":
            try:
                check_contexts(remaining.contexts)
            except UnknownContext as error:
                users = (url for url, body in left.items() if name in needed_contexts(body["@context"], url))
                raise UnknownContext(error.urls, tuple(users)) from None
        return remaining

    # ── storage ─────────────────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """Returns the declarations as JSON values, for `from_json`."""
        return {name: dict(getattr(self, name)) for name in _FIELDS.values()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Declarations":
        """Returns the declarations that `to_json` wrote. They are not checked again: they were checked when they were
        declared. Data without `reading` is from a version that read JSON-LD as plain JSON."""
        found = {name: stored.get(name) or {} for name in _FIELDS.values()}
        return cls(**found | {"reading": stored.get("reading", PLAIN)})

    @classmethod
    def of(cls, declared: Iterable[tuple[str, str, Any]]) -> "Declarations":
        """Returns the declarations from stored rows (kind, name, body). They are not checked again."""
        found: dict[str, dict[str, Any]] = {name: {} for name in _FIELDS.values()}
        for kind, name, body in declared:
            found[_FIELDS[kind]][name] = body
        single: dict[str, Any] = {name: next(iter(found[name].values()), {}) for name in ("rates", "reading")}
        return cls(**found | single)


def _check_unit(units: Units, attribute: str, unit: str) -> None:
    try:
        units.dimension(unit)
    except SemanticError as error:
        raise InvalidDeclaration(f"attribute {attribute!r}: {error}") from None


# ── synonym tables (CTPS, section 4) ──────────────────────────────────────────────────────────────────────────────────

# A table is JSON, `{"PC": "computer", "US": "United States"}`, or CSV with a word and its root word on each line:
#
#     PC,computer
#     "Hewlett-Packard",HP

MOST_WORDS = 200_000
"""The maximum number of words in a table: it is kept in memory, and each new string of an event is looked up in it."""
LONGEST_WORD = 1_000
"""The maximum length of a word."""
MOST_TABLE_BYTES = 16 << 20
"""The maximum size of a table document in bytes."""
MOST_PROBLEMS = 100
"""The maximum number of problems that are reported for one table."""
HEADINGS = (("word", "root"), ("synonym", "root"), ("word", "root word"), ("synonym", "root word"))
"""The header lines that a CSV table may have."""


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
        table[nfc(word)] = nfc(root)
    table = {word: root for word, root in table.items() if word != root}
    ends: dict[str, str] = {}
    for word in table:
        _follow(word, table, ends)
    return {word: ends[word] for word in table}


def read_table(data: bytes) -> dict[str, str]:
    """Reads a table of synonyms from a document in CSV (two columns, UTF-8, with or without a header). Words are in
    NFC.

    Raises `InvalidDeclaration` with every bad line (`Position.line`, from 1): words that are empty or too long, and
    words with two different roots. Linear in `data`, at most `MOST_TABLE_BYTES`.

    >>> read_table(b"PC,computer\\nUS,United States\\n")
    {'PC': 'computer', 'US': 'United States'}
    """
    if len(data) > MOST_TABLE_BYTES:
        raise InvalidDeclaration(
            f"a table has at most {MOST_TABLE_BYTES:,} bytes, this one has {len(data):,}: split it"
        )
    rows = csv_rows(data, HEADINGS, "bad-synonym", MOST_WORDS)
    return _checked([(at, cells[0], cells[1]) if len(cells) == 2 else (at, cells, None) for at, cells in rows])


def check_table(words: Mapping[str, Any]) -> dict[str, str]:
    """Returns a table of synonyms with its words in NFC. Linear. Raises `InvalidDeclaration` like `read_table`, with
    JSON pointers.

    >>> check_table({"PC": "computer"})
    {'PC': 'computer'}
    """
    return _checked([(Position(pointer=f"/{_escaped(word)}"), word, root) for word, root in words.items()])


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


def _checked(rows: _Rows) -> dict[str, str]:
    if len(rows) > MOST_WORDS:
        raise InvalidDeclaration(f"a table has at most {MOST_WORDS:,} words: split it")
    table: dict[str, str] = {}
    problems: list[Problem] = []
    for at, word, root in rows:
        detail = _row_problem(word, root) or _clash(word, root, table)
        if detail is None:
            table[nfc(word)] = nfc(root)
        elif len(problems) < MOST_PROBLEMS:
            problems.append(Problem("bad-synonym", detail, at))
    if problems:
        raise InvalidDeclaration(problems)
    root_words(table)
    return table


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
    known = table.get(nfc(word))
    if known is None or known == nfc(root):
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
