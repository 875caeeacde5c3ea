"""What the declared types of an event demand and add: checks before it is read, derived attributes after.

Between `canonicalise`, which reads every event, and `semantic.schemas`, which knows types but no vocabulary. Where no
type and no derived attribute is declared, nobody comes here (open mode).
"""

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from semantic.errors import InvalidEvent
from semantic.flatten import problem_at
from semantic.model import Note, Value
from semantic.schemas.derivation import derive
from semantic.schemas.event_checks import check_event
from semantic.schemas.records import EVENT_TYPES
from semantic.vocabulary import Vocabulary

__all__ = ["JSON_NUMBER", "TYPES", "TypedEvents"]

TYPES = frozenset({EVENT_TYPES, "ce.type"})
"""The attributes that say of what types an event is."""
MOST_TYPES = 16
"""Declared types of one event: each new combination of types is put together to a view."""
JSON_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*")


class TypedEvents:
    """The event types and derived attributes of one vocabulary; false where there are none. `names` gives the attribute
    that a published name means, and those above it."""

    def __init__(self, vocabulary: Vocabulary, names: Callable[[str], tuple[str, ...]]) -> None:
        self._vocabulary = vocabulary
        self.names = names
        unique = vocabulary.attributes.declarations.items()
        self._unique = frozenset(name for name, declaration in unique if declaration.multiple is False)
        everywhere = vocabulary.derivations.applying(frozenset())
        self._inputs = frozenset(name for each in everywhere for name in each.inputs)
        self._is_declared = bool(vocabulary.schemas or vocabulary.derivations or self._unique)

    def __bool__(self) -> bool:
        return self._is_declared

    def needs_row(self, attributes: Iterable[str]) -> bool:
        """Whether a value of these attributes can only be read with the event around it: it says the event's type, or
        others are derived from it."""
        if not self._is_declared:
            return False
        found = frozenset(attributes)
        return bool(found & self._inputs) or (bool(self._vocabulary.schemas) and not TYPES.isdisjoint(found))

    @property
    def notes_values(self) -> bool:
        """Whether something may be noted of values together: of an attribute with several, or one that is derived."""
        return bool(self._unique or self._vocabulary.derivations)

    def derived(self, types: frozenset[str]) -> Iterator[str]:
        """The attributes that are derived in events of these types, and those above them."""
        for each in self._vocabulary.derivations.applying(types):
            yield from self.names(each.attribute)

    def types_of(self, texts: Iterable[str]) -> frozenset[str]:
        """The types that an event names, in NFC, and their root words."""
        types = {unicodedata.normalize("NFC", text) for text in texts}
        return frozenset(types | {self.root_word(text) for text in types})

    def check(self, types: frozenset[str], data: Any, notes: list[Note]) -> None:
        """Raises `InvalidEvent` with everything in `data` that does not fit the declared ones of `types`."""
        schemas = self._vocabulary.schemas
        if sum(each in schemas.types for each in types) > MOST_TYPES:
            detail = f"an event is of at most {MOST_TYPES} declared types"
            raise InvalidEvent([problem_at((EVENT_TYPES,), "too-many-types", detail)])
        view = schemas.view(types)
        if view is None:
            return
        problems = check_event(view, data if isinstance(data, Mapping) else {}, self)
        if problems:
            raise InvalidEvent(problems)
        unknown = sorted(each for each in types - set(view.types) if self.root_word(each) not in view.types)
        notes.extend(Note("undeclared-type", "ce.type", f"no event type {each!r} is declared") for each in unknown)

    def complete(
        self, attributes: dict[str, tuple[Value, ...]], types: frozenset[str], notes: list[Note]
    ) -> dict[str, tuple[Value, ...]]:
        """`attributes` with the derived ones, each under every name above it too; what is there already stays."""
        for name in self._unique & attributes.keys():
            if len(attributes[name]) > 1:
                notes.append(Note("several-values", name, f"{name} is declared unique and has several values"))
        if not self._vocabulary.derivations:
            return attributes
        sent = attributes.get("ce.time", ())
        now = next((value.instant for value in sent if value.instant is not None), None)
        now = time.time_ns() // 1_000 if now is None else now
        published = attributes.keys()
        found = dict(attributes)
        for each in self._vocabulary.derivations.applying(types):
            if each.attribute not in published:
                values = derive(each, found, now, self._vocabulary.units, notes)
                for name in self.names(each.attribute) if values else ():
                    found[name] = (*found.get(name, ()), *values)
        return found

    # ── what `check_event` asks ─────────────────────────────────────────────────────────────────────────────────────

    def root_word(self, text: str) -> str:
        return self._vocabulary.root_word(text)

    def is_kind(self, text: str, concepts: tuple[str, ...]) -> bool | None:
        """None where the vocabulary knows none of `concepts` (its ontology may come later)."""
        vocabulary = self._vocabulary
        known = [concept for iri in concepts if (concept := vocabulary.concept(iri)) is not None]
        if not known:
            return None
        candidates = vocabulary.readings(unicodedata.normalize("NFC", text))
        return any(vocabulary.isa(each, upper) for each in candidates for upper in known)

    def is_quantity(self, text: str) -> bool:
        return JSON_NUMBER.fullmatch(text) is not None or self._vocabulary.units.parse(text) is not None
