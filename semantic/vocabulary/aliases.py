"""Aliases: which forms of an IRI name the same (docs/matching-semantics.md, rule 24).

    {"iris": {"urn:oid:2.16.840.1.113883.6.1": "http://loinc.org"},
     "prefixes": {"http://schema.org/": "https://schema.org/"},
     "patterns": [{"match": "urn:shop:(.+)", "as": "https://example.org/shop#{1}"}, "gs1-digital-link"],
     "spellings": ["en"]}

Each leads from one form to another. What is reached in the end is the main form of a text; two texts with one main form
are aliases of each other. Because every text has one main form, this is an equivalence, and costs a few look-ups.
`spellings` says that other spellings of labels mean their concepts (rule 12); they are no aliases.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.vocabulary.identifier_patterns import (
    DIGITAL_LINK,
    DIGITAL_LINK_FORM,
    LONGEST_TEXT,
    IdentifierPattern,
    digital_link,
    named_pattern,
)

__all__ = ["Aliases"]

KEYS: Final = frozenset({"iris", "prefixes", "patterns", "spellings"})
MOST_STEPS = 8
"""Aliases that are applied one after the other."""
MOST_ENTRIES = 10_000
"""Entries of all tables together."""
MOST_PATTERNS = 64
"""Patterns of all tables together: each is tried on each new text."""
LONGEST = 2_000
"""Characters of an IRI in a table."""


class Aliases:
    """The aliases of one vocabulary. Immutable; false where there are none, whatever is said of spellings.

    >>> aliases = Aliases({"web": {"prefixes": {"http://schema.org/": "https://schema.org/"}}})
    >>> aliases.main("http://schema.org/Car"), aliases.other("https://schema.org/Car")
    ('https://schema.org/Car', None)
    """

    def __init__(self, tables: Mapping[str, Any] | None = None) -> None:
        """`tables` by name; all count together. Raises InvalidDeclaration."""
        self._iris: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self.spelt: bool = False
        """Whether other spellings of labels mean their concepts."""
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
        """The main form of `text`, itself where nothing fits. Costs a look-up, a test of prefixes, and the patterns."""
        for _ in range(MOST_STEPS):
            found = self._step(text)
            if found is None or found == text:
                break
            text = found
        return text

    def other(self, text: str) -> str | None:
        """The main form of `text` where it is another text."""
        found = self.main(text) if self else text
        return None if found == text else found

    def spellings(self, text: str) -> frozenset[str]:
        """The texts that tables, not patterns, make aliases of `text`, and `text` itself. For reports: linear in the
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
        """Everything that the tables name, whole or as a prefix."""
        return frozenset(
            {*self._iris, *self._iris.values(), *self._prefixes, *self._prefixes.values()},
        )

    @property
    def patterns(self) -> dict[str, str]:
        """What a text must be for each pattern, and how all forms begin that it stands for. For reports."""
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
        """Each entry must lead to an end."""
        for start in (*self._iris, *self._beginnings):
            text = start
            for _ in range(MOST_STEPS):
                found = self._step(text)
                if found is None or found == text:
                    break
                text = found
            else:
                raise InvalidDeclaration(f"aliases: from {start!r} they lead on and on: write the last form")


def _add(what: str, key: str, given: Any, found: dict[str, str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidDeclaration(f"{what}: {key} is an object, one form → the other")
    for form, other in given.items():
        for each in (form, other):
            if not isinstance(each, str) or not 0 < len(each) <= LONGEST or any(sign <= " " for sign in each):
                raise InvalidDeclaration(f"{what}: {key} has {each!r}, which is not an IRI or the beginning of one")
        if form == other:
            raise InvalidDeclaration(f"{what}: {form!r} stands for itself")
        if found.setdefault(form, other) != other:
            raise InvalidDeclaration(f"{what}: {form!r} stands for {found[form]!r} already, and cannot for {other!r}")


def main_forms(aliases: Aliases, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(name, its main form) for those of `names` that have another one."""
    return ((name, main) for name in names if (main := aliases.other(name)) is not None) if aliases else ()
