"""Typed events: checks against the declared types before an event is read, derived attributes afterwards.

`canonical_events` reads every event, and `vocabulary.event_schemas` knows types but no values. If no type and no
derived attribute is declared, this module is not used (open mode).
"""

import contextlib
import difflib
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from kindcast.semantic.conditions.predicates import values_of
from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.flatten import as_quantity, problem_at
from kindcast.semantic.model import CanonicalEvent, Note, Value
from kindcast.semantic.ontology.iris import local_name
from kindcast.semantic.units.instants import parse_instant
from kindcast.semantic.units.patterns import STEPS, compile_pattern
from kindcast.semantic.vocabulary.derivation import derive
from kindcast.semantic.vocabulary.event_types import EVENT_TYPES, Domain, Shape, View
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["JSON_NUMBER", "TYPES", "TypedEvents"]


# Does an event fit its types? The consistency rules of Le Subscribe, section 2.1, one problem an attribute.
#
#     R1   the event says which types it has: the context attribute `type`, and `@type` in the data
#     R2   a mandatory attribute is there; each value is of the attribute's domain; a unique attribute has one value
#     R3   where the type is closed (`additionalProperties: false`), there is nothing else
#
# (As printed, R2 makes optional attributes mandatory too; read literally, no optional attribute could be left out.)
#
# The verdict is that of JSON Schema on the same document, but for what makes an event an event of ours: names of
# attributes resolve first (rule 2), an attribute with a dot is a nested one (rule 1), null, [] and {} are no values
# (rule
# 1), words of an enumeration may be synonyms (rule 9), and `@type` is no attribute. The annotations only add: a
# concept must lie beneath the declared one, a text beside numbers must be a quantity.

MOST_PROBLEMS = 100
"""Problems told of one event; the walk ends there."""
SUGGESTED = 3
"""Problems of one event that come with near names: each costs a comparison with all names of its type."""

Path = tuple[Any, ...]
_Entry = tuple[str, Any, Path]
"""A member of an object: its name, its value, and where it stands."""


class Words(Protocol):
    """What must be known of words to check values."""

    def names(self, raw: str) -> tuple[str, ...]:
        """The attribute that a published name means, and every attribute above it (rule 2)."""

    def root_word(self, text: str) -> str:
        """The user's root word for a text."""

    def is_kind(self, text: str, concepts: tuple[str, ...]) -> bool | None:
        """Whether a text may mean one of the concepts, or one beneath; None where none of them is known."""

    def is_quantity(self, text: str) -> bool:
        """Whether a text is a number, alone or with a known unit."""

    def property_of(self, name: str) -> dict[str, Any] | None:
        """What is known of the property of an attribute."""


def check_event(view: View, data: Mapping[str, Any], words: Words) -> list[Problem]:
    """What in `data` does not fit the types of `view`, at most `MOST_PROBLEMS`, each with a JSON pointer; where an
    attribute is missing, to where it would stand. Linear in the data."""
    check = _Check(view, words)
    with contextlib.suppress(_Enough):
        check.object(view.shape, _entries(data, ()), (), "")
    return check.problems


class _Enough(Exception):
    """Problems reported of one event at most."""


class _Check:
    def __init__(self, view: View, words: Words) -> None:
        self._types = " and ".join(view.types)
        self._words = words
        self.problems: list[Problem] = []

    def object(self, shape: Shape, entries: Iterable[_Entry], path: Path, prefix: str) -> None:
        found: dict[str, list[_Entry]] = {}
        for key, value, place in entries:
            if _is_empty(value):
                continue
            members = self._members(shape, prefix, key)
            for head, rest in members.items():
                found.setdefault(head, []).append((rest, value, place))
            if not members and shape.closed and not (key == EVENT_TYPES and not prefix):
                self._stranger(shape, prefix + key, place)
        for name in sorted(shape.required - found.keys()):
            self.refuse((*path, name), "missing-attribute", f"{prefix + name} is mandatory for {self._types} (R2)")
        for name, sources in found.items():
            self._member(shape.members[name], sources, (*path, name), prefix + name)

    def _members(self, shape: Shape, prefix: str, key: str) -> dict[str, str]:
        """The members that a published name belongs to, each with what is left of a dotted name. Several where one
        attribute is above another (rule 2)."""
        found = {key: ""} if key in shape.members else {}
        for name in self._words.names(prefix + key):
            if name.startswith(prefix):
                head, _, rest = name[len(prefix) :].partition(".")
                if head in shape.members:
                    found.setdefault(head, rest)
        return found

    def _member(self, shape: Shape, sources: list[_Entry], path: Path, name: str) -> None:
        """The values of one member: usually one source; several where names mean the same."""
        whole = [(value, place) for rest, value, place in sources if not rest]
        inner = [(rest, value, (*place,)) for rest, value, place in sources if rest]
        if inner:
            if not shape.allows("object"):
                self.refuse(inner[0][2], "wrong-value", f"{name} is {_told(shape)}, no object (R2)")
                return
            inner += [each for value, place in whole if isinstance(value, Mapping) for each in _entries(value, place)]
            whole = [each for each in whole if not isinstance(each[0], Mapping)]
            self.object(shape, inner, path, f"{name}.")
        if len(whole) > 1 and not shape.allows("array"):
            detail = f"{name} is unique for {self._types} and has {len(whole)} values, under several names (R2)"
            self.refuse(whole[1][1], "several-values", detail)
        for value, place in whole:
            self.value(shape, value, place, name)

    def value(self, shape: Shape, value: Any, place: Path, name: str) -> None:
        kind = _json_type(value)
        if not _allowed(shape, kind, value):
            if kind == "array":
                detail = f"{name} is unique for {self._types}: one value, not a list (R2)"
                self.refuse(place, "several-values", detail)
            else:
                self.refuse(place, "wrong-value", f"{name} is {_told(shape)}, not {_shown(value)} (R2)")
            return
        if kind == "array":
            self._array(shape, value, place, name)
        elif kind == "object":
            if shape.domain.is_numeric and not shape.members and as_quantity(value) is None:
                self.refuse(place, "wrong-value", f'{name} is a quantity such as {{"value": 86, "unit": "degF"}} (R2)')
            self.object(shape, _entries(value, place), place, f"{name}.")
        else:
            why = self._outside(shape.domain, value)
            if why is not None:
                near = self._near(value, map(str, shape.domain.members or ()))
                self.refuse(place, "wrong-value", f"{name}: {_shown(value)} {why} (R2)", near)

    def _array(self, shape: Shape, value: Any, place: Path, name: str) -> None:
        if len(value) < shape.fewest or (shape.most is not None and len(value) > shape.most):
            bounds = f"{shape.fewest} to {'any number of' if shape.most is None else shape.most}"
            self.refuse(place, "wrong-value", f"{name} has {bounds} values, not {len(value)} (R2)")
        if shape.distinct and len({_identity(each) for each in value}) < len(value):
            self.refuse(place, "wrong-value", f"{name} has distinct values (R2)")
        if shape.items is not None:
            for index, each in enumerate(value):
                if each is not None:
                    self.value(shape.items, each, (*place, index), name)

    def _outside(self, domain: Domain, value: Any) -> str | None:
        """Why a scalar is not of the domain; None where it is."""
        if domain.members is not None and not self._is_member(value, domain.members):
            return f"is none of {', '.join(map(str, domain.members[:8]))}{' …' if len(domain.members) > 8 else ''}"
        if isinstance(value, bool):
            return None
        if isinstance(value, str):
            return self._outside_texts(domain, value)
        return _outside_numbers(domain, value)

    def _outside_texts(self, domain: Domain, text: str) -> str | None:
        if domain.shortest is not None and len(text) < domain.shortest:
            return f"has fewer than {domain.shortest} characters"
        if domain.longest is not None and len(text) > domain.longest:
            return f"has more than {domain.longest} characters"
        if domain.pattern is not None:
            pattern = compile_pattern(domain.pattern)
            # A text that would hold up publishing is not compared: this only tells its publisher what it looks like.
            if pattern.states * len(text) <= STEPS and not pattern.search(text):
                return f"does not match /{domain.pattern}/"
        if domain.date_time and parse_instant(text) is None:
            return "is not a date-time of RFC 3339"
        if domain.is_numeric and not self._words.is_quantity(text):
            return "is not a number with a unit"
        if domain.concepts and self._words.is_kind(text, domain.concepts) is False:
            return f"is not a concept at or beneath {' or '.join(domain.concepts)}"
        return None

    def _is_member(self, value: Any, members: tuple[Any, ...]) -> bool:
        if any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in members):
            return True
        root = self._words.root_word
        return isinstance(value, str) and root(value) in {root(each) for each in members if isinstance(each, str)}

    def _stranger(self, shape: Shape, name: str, place: Path) -> None:
        before, dot, last = name.rpartition(".")
        near = self._near(last, shape.members)
        for each in near:
            told = self._words.property_of(before + dot + each["label"])
            each.update({} if told is None else {"property": told})
        self.refuse(
            place, "unknown-attribute", f"{name} is not an attribute of {self._types}, which is closed (R3)", near
        )

    def _near(self, word: Any, names: Iterable[str]) -> tuple[dict[str, Any], ...]:
        if len(self.problems) >= SUGGESTED or not isinstance(word, str):
            return ()
        return tuple({"label": each} for each in difflib.get_close_matches(word[:100], names, 3))

    def refuse(self, place: Path, code: str, detail: str, near: tuple[dict[str, Any], ...] = ()) -> None:
        found = problem_at(place, code, detail)
        self.problems.append(Problem(found.code, found.detail, found.at, near))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _Enough


def _outside_numbers(domain: Domain, number: int | float) -> str | None:
    if domain.minimum is not None and number < domain.minimum:
        return f"is less than {domain.minimum}"
    if domain.maximum is not None and number > domain.maximum:
        return f"is more than {domain.maximum}"
    if domain.above is not None and number <= domain.above:
        return f"is not above {domain.above}"
    if domain.under is not None and number >= domain.under:
        return f"is not below {domain.under}"
    return None


def _entries(data: Mapping[str, Any], place: Path) -> Iterable[_Entry]:
    return ((key, value, (*place, key)) for key, value in data.items())


def _is_empty(value: Any) -> bool:
    """No value (rule 1): null, [] and {}, and what holds nothing else. Not recursive: data nests."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
        elif each is not None:
            return False
    return True


def _json_type(value: Any) -> str:
    match value:
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case bool():
            return "boolean"
        case str():
            return "string"
        case _:
            return "number"


def _allowed(shape: Shape, kind: str, value: Any) -> bool:
    if shape.allows(kind):
        return True
    return kind == "number" and shape.allows("integer") and value == int(value)


def _told(shape: Shape) -> str:
    return " or ".join(sorted(shape.types or ())) or "nothing"


def _shown(value: Any) -> str:
    kind = _json_type(value)
    return f"an {kind}" if kind in ("array", "object") else repr(value)[:60]


def _identity(value: Any) -> Any:
    """What makes two JSON values the same: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, Mapping):
        return ("object", frozenset((key, _identity(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return ("array", tuple(map(_identity, value)))
    return (_json_type(value), value)


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
        everywhere = list(vocabulary.derivations.applying(frozenset()))
        self._inputs = frozenset(name for each in everywhere for name in each.reads)
        self._elements = tuple(f"{name}." for each in everywhere for name in each.reads if name not in each.inputs)
        self._is_declared = bool(vocabulary.schemas or vocabulary.derivations or self._unique)

    def __bool__(self) -> bool:
        return self._is_declared

    def needs_row(self, attributes: Iterable[str]) -> bool:
        """Whether a value of these attributes can only be read with the event around it: it says the event's type, or
        others are derived from it."""
        if not self._is_declared:
            return False
        found = frozenset(attributes)
        if self._elements and any(name.startswith(self._elements) for name in found):
            return True  # an element of what an aggregate ranges over
        return bool(found & self._inputs) or (bool(self._vocabulary.schemas) and not TYPES.isdisjoint(found))

    @property
    def notes_values(self) -> bool:
        """Whether something may be noted of values together: of an attribute with several, or one that is derived."""
        return bool(self._unique or self._vocabulary.derivations)

    def derived(self, types: frozenset[str]) -> Iterator[str]:
        """The attributes that are derived in events of these types, and those above them."""
        for each in self._vocabulary.derivations.applying(types):
            yield from self.names(each.attribute)

    def type_name(self, iri: str) -> str:
        """The name by which the class of a graph is a type of events: its local name where that is declared and the IRI
        is not, else the IRI."""
        declared = self._vocabulary.schemas.types
        local = local_name(iri)
        return local if local in declared and iri not in declared else iri

    def is_declared(self, iri: str) -> bool:
        """Whether a declared type of events is the class of this IRI."""
        return not self._vocabulary.schemas.types.keys().isdisjoint(self.types_of([self.type_name(iri)]))

    def types_of(self, texts: Iterable[str]) -> frozenset[str]:
        """The types that an event names, in NFC, and their root words."""
        types = {unicodedata.normalize("NFC", text) for text in texts}
        return frozenset(types | {self.root_word(text) for text in types})

    def stated(self, types: frozenset[str]) -> frozenset[str]:
        """What every object of an event of these types may state: `quantities`, `codes` (rule 22)."""
        view = self._vocabulary.schemas.view(types) if self._vocabulary.schemas.states else None
        return frozenset() if view is None else view.stated

    def check(self, types: frozenset[str], data: Any, notes: list[Note]) -> None:
        """Raises `InvalidEvent` with everything in `data` that does not fit the declared ones of `types`."""
        schemas = self._vocabulary.schemas
        if sum(each in schemas.types for each in types) > MOST_TYPES:
            detail = f"an event has at most {MOST_TYPES} declared types"
            raise InvalidEvent([problem_at((EVENT_TYPES,), "too-many-types", detail)])
        view = schemas.view(types)
        if view is None:
            return
        problems = check_event(view, data if isinstance(data, Mapping) else {}, self)
        if problems:
            raise InvalidEvent(problems)
        unknown = sorted(each for each in types - set(view.types) if self.root_word(each) not in view.types)
        notes.extend(Note("undeclared-type", "ce.type", f"no event type {each!r} is declared") for each in unknown)

    def complete(self, event: CanonicalEvent, types: frozenset[str], notes: list[Note]) -> dict[str, tuple[Value, ...]]:
        """The attributes of `event` with the derived ones, each under every name above it too; what is there already
        stays."""
        attributes = event.attributes
        for name in self._unique & attributes.keys():
            if len(attributes[name]) > 1:
                notes.append(Note("several-values", name, f"{name} is declared unique and has several values"))
        if not self._vocabulary.derivations:
            return dict(attributes)
        sent = attributes.get("ce.time", ())
        now = next((value.instant for value in sent if value.instant is not None), None)
        now = time.time_ns() // 1_000 if now is None else now
        published = attributes.keys()
        found = dict(attributes)
        whole = replace(event, attributes=found)
        for each in self._vocabulary.derivations.applying(types):
            if each.attribute not in published:
                given = {name: values_of(whole, name) for name in each.inputs}
                values = derive(each, given, now, self._vocabulary.units, notes)
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

    def property_of(self, name: str) -> dict[str, Any] | None:
        """What is known of the property of an attribute."""
        return self._vocabulary.attributes.described(name)
