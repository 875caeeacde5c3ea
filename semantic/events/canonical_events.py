"""Canonical events: conversion of published JSON to attributes and values; validation against declared types.

docs/matching-semantics.md, rules 1 to 4, 13 and 15. Readings are added; nothing published is replaced. The string
"laptop" stays a string and may also be read as a concept. The meaning of an event does not depend on any subscription.

    JSON ──flatten──▶ (dotted name, scalar or quantity) ──name──▶ every name above it ──read──▶ Value
"""

import contextlib
import difflib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from kindcast.index.clause import ConceptId
from kindcast.semantic.conditions.predicates import values_of, why_no_aggregate
from kindcast.semantic.errors import InvalidEvent, InvalidQuantity, Problem, SemanticError
from kindcast.semantic.events.documents import MOST_SECONDS, DocumentReader, without_keywords
from kindcast.semantic.events.linked_data.reader import GraphReader, is_graph, may_be_graph
from kindcast.semantic.flatten import (
    Comparator,
    EventLimits,
    Found,
    QuantityObject,
    Stated,
    StatedCode,
    StatedIn,
    as_json,
    as_quantity,
    flatten,
    problem_at,
    stated_of,
)
from kindcast.semantic.model import (
    CanonicalEvent,
    Event,
    Node,
    Note,
    Resource,
    TypedText,
    Value,
    aggregate_of,
    told_text,
)
from kindcast.semantic.ontology.records import local_name
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units import Units
from kindcast.semantic.units.kinds import (
    instant_of_epoch,
    is_date_time,
    keys_of_address,
    parse_address,
    parse_dates,
    parse_duration,
    parse_instant,
    parse_version,
)
from kindcast.semantic.units.measure import is_exact, is_number
from kindcast.semantic.units.patterns import STEPS, compile_pattern
from kindcast.semantic.vocabulary.attributes import AttributeDeclaration
from kindcast.semantic.vocabulary.derivation import derive
from kindcast.semantic.vocabulary.event_types import (
    EVENT_TYPES,
    FHIR,
    STATED,
    CodeMembers,
    Domain,
    QuantityMembers,
    Shape,
    View,
    stated_value,
)
from kindcast.semantic.vocabulary.event_types import EVENT_TYPES as TYPE
from kindcast.semantic.vocabulary.identifiers import readings_of_identifier
from kindcast.semantic.vocabulary.vocabulary import Vocabulary, notes_on_event_term

__all__ = ["JSON_NUMBER", "OBJECTS", "TYPES", "Canonicaliser", "EventLimits", "TypedEvents", "range_of"]

# ── typed events: checks against the declared types before an event is read, derived attributes afterwards ────────────

# `vocabulary.event_schemas` knows types but no values, so values are checked here. If no type and no derived attribute
# is declared, this section is not used (open mode).


# Validation of an event against its types: the consistency rules of Le Subscribe, section 2.1, one problem per
# attribute.
#
#     R1   an event states its types: the context attribute `type`, and `@type` in the data
#     R2   a mandatory attribute is present; each value is in the attribute's domain; a unique attribute has one value
#     R3   an event of a closed type (`additionalProperties: false`) has no other attributes
#
# (As printed, R2 makes optional attributes mandatory too; read literally, no optional attribute could be left out.)
#
# The result is that of JSON Schema on the same document, with these differences: names of attributes are resolved first
# (rule 2); an attribute with a dot is a nested one (rule 1); null, [] and {} are no values (rule 1); words of an
# enumeration may be synonyms (rule 9); `@type` is no attribute. The annotations add conditions: a concept must be at or
# beneath the declared concept, and a text in a numeric domain must be a quantity.

MOST_PROBLEMS = 100
"""The maximum number of problems reported for one event, and for all events of a request. The validation stops
there."""
MOST_OF_ONE = 10
"""The maximum number of problems reported for one of several events."""
SUGGESTED = 3
"""The number of problems of one event that list similar names. Each list costs a comparison with all names of its
type."""

Path = tuple[Any, ...]
_Entry = tuple[str, Any, Path]
"""A member of an object: its name, its value, and its path."""


class Words(Protocol):
    """The vocabulary functions that the validation of values uses."""

    def names(self, raw: str) -> tuple[str, ...]:
        """Returns the attribute that a published name means, and every attribute above it (rule 2)."""

    def root_word(self, text: str) -> str:
        """Returns the root word of a text, from the user's synonyms."""

    def is_kind(self, text: str, concepts: tuple[str, ...]) -> bool | None:
        """Whether a text may mean one of the concepts or a concept beneath them; None if none of them is known."""

    def is_quantity(self, text: str) -> bool:
        """Whether a text is a number, alone or with a known unit."""

    def property_of(self, name: str) -> dict[str, Any] | None:
        """Returns a description of the property of an attribute, or None."""


def check_event(view: View, data: Mapping[str, Any], words: Words) -> list[Problem]:
    """Returns the problems of `data` under the types of `view`, at most `MOST_PROBLEMS`. Each has a JSON pointer; for a
    missing attribute, it points to where the attribute would be. Linear in the data."""
    check = _Check(view, words)
    with contextlib.suppress(_Enough):
        check.object(view.shape, _entries(data, ()), (), "")
    return check.problems


class _Enough(Exception):
    """Raised when `MOST_PROBLEMS` problems are reported."""


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
        """Returns the members that a published name belongs to, each with the rest of a dotted name. There are several
        if one attribute is above another (rule 2)."""
        found = {key: ""} if key in shape.members else {}
        for name in self._words.names(prefix + key):
            if name.startswith(prefix):
                head, _, rest = name[len(prefix) :].partition(".")
                if head in shape.members:
                    found.setdefault(head, rest)
        return found

    def _member(self, shape: Shape, sources: list[_Entry], path: Path, name: str) -> None:
        """Checks the values of one member. It usually has one source, but several if several published names mean
        it."""
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
        """Returns why a scalar is not in the domain; None if it is."""
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
            # A text that would delay publishing is not compared. This check only tells a publisher about a malformed
            # text.
            if pattern.states * len(text) <= STEPS and not pattern.found_in(text):
                return f"does not match /{domain.pattern}/"
        if domain.date_time and not is_date_time(text):
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
    """Whether a JSON value is no value (rule 1): null, [], {}, or a container that holds nothing else. Not recursive,
    because data may be deeply nested."""
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
    if kind == "boolean":
        return str(value).lower()
    return f"an {kind}" if kind in ("array", "object") else repr(value)[:60]


def _identity(value: Any) -> Any:
    """Returns a key that is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, Mapping):
        return ("object", frozenset((key, _identity(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return ("array", tuple(map(_identity, value)))
    return (_json_type(value), value)


TYPES = frozenset({EVENT_TYPES, "ce.type"})
"""The attributes that hold the types of an event."""
MOST_TYPES = 16
"""The maximum number of declared types of one event. For each new combination of types a view is built."""
# Possessive: a text of a million digits and a letter is read once, without going back digit by digit.
JSON_NUMBER = re.compile(r"\s*+-?(0|[1-9]\d*+)(\.\d++)?([eE][+-]?\d++)?\s*+")


def is_number_in_text(declaration: AttributeDeclaration | None, text: str) -> bool:
    """Whether a text is read as a number, because its attribute is declared to have numbers (rule 4)."""
    return declaration is not None and declaration.kind == "number" and JSON_NUMBER.fullmatch(text) is not None


class TypedEvents:
    """The event types and derived attributes of one vocabulary; false if it has none. `names` returns the attribute
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
        """Whether values of these attributes can be read only with their whole event, because they state its type, or
        other attributes are derived from them."""
        if not self._is_declared:
            return False
        found = frozenset(attributes)
        if self._elements and any(name.startswith(self._elements) for name in found):
            return True  # an attribute of the elements that an aggregate reads
        return bool(found & self._inputs) or (bool(self._vocabulary.schemas) and not TYPES.isdisjoint(found))

    @property
    def notes_values(self) -> bool:
        """Whether notes may depend on several values: those of a unique attribute, or those from which another is
        derived."""
        return bool(self._unique or self._vocabulary.derivations)

    def derived(self, types: frozenset[str]) -> Iterator[str]:
        """Yields the attributes that are derived in events of these types, and those above them."""
        for each in self._vocabulary.derivations.applying(types):
            yield from self.names(each.attribute)

    def type_name(self, iri: str) -> str:
        """Returns the name of the event type for a class of a graph: its local name if that is declared and the IRI is
        not, otherwise the IRI."""
        declared = self._vocabulary.schemas.types
        local = local_name(iri)
        return local if local in declared and iri not in declared else iri

    def is_declared(self, iri: str) -> bool:
        """Whether the class with this IRI is a declared event type."""
        return not self._vocabulary.schemas.types.keys().isdisjoint(self.types_of([self.type_name(iri)]))

    def types_of(self, texts: Iterable[str]) -> frozenset[str]:
        """Returns the types that an event names, in NFC, and their root words."""
        types = {nfc(text) for text in texts}
        return frozenset(types | {self.root_word(text) for text in types})

    def stated(self, types: frozenset[str]) -> frozenset[str]:
        """Returns what every object of an event of these types may state: `quantities`, `codes` (rule 22)."""
        view = self._vocabulary.schemas.view(types) if self._vocabulary.schemas.states else None
        return frozenset() if view is None else view.stated

    def check(self, types: frozenset[str], data: Any, notes: list[Note]) -> None:
        """Raises `InvalidEvent` with everything in `data` that does not fit the declared types among `types`."""
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
        """Returns the attributes of `event` together with the derived attributes. A derived value is also added under
        every name above its attribute. An attribute that the event has is not derived."""
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
                lacking = [
                    name for name in each.inputs if not given[name] and (aggregate_of(name) or ("", name))[1] in found
                ]
                notes.extend(each.undefined(why_no_aggregate(name)) for name in lacking)
                values = derive(each, given, now, self._vocabulary.units, notes)
                for name in self.names(each.attribute) if values else ():
                    found[name] = (*found.get(name, ()), *values)
        return found

    # ── what `check_event` calls (`Words`) ────────────────────────────────────────────────────────────────────────────

    def root_word(self, text: str) -> str:
        return self._vocabulary.root_word(text)

    def is_kind(self, text: str, concepts: tuple[str, ...]) -> bool | None:
        """Whether a text may mean one of `concepts` or a concept beneath them. None if the vocabulary has none of them,
        because their ontology may be uploaded later."""
        vocabulary = self._vocabulary
        known = [concept for iri in concepts if (concept := vocabulary.concept(iri)) is not None]
        if not known:
            return None
        candidates = vocabulary.readings(nfc(text))
        return any(vocabulary.isa(each, upper) for each in candidates for upper in known)

    def is_quantity(self, text: str) -> bool:
        return JSON_NUMBER.fullmatch(text) is not None or self._vocabulary.units.parse(text) is not None

    def property_of(self, name: str) -> dict[str, Any] | None:
        """Returns a description of the property of an attribute, or None."""
        return self._vocabulary.attributes.described(name)


CACHED_STRINGS = 1 << 16
"""The maximum number of strings whose readings are cached. Streams repeat names, rooms and classes, and a reading costs
several look-ups."""
KINDS_IN_WORDS = {
    "number": "a number",
    "instant": "a date-time, a date or a time since 1970",
    "version": "a version",
    "ip": "an IP address",
}
LONGEST_CACHED = 1_000
"""The maximum length in characters of a cached string or name, so that published texts cannot fill the memory."""

OF_CONTEXT = "ce."
"""The names of context attributes begin with it."""

YEAR = "http://www.w3.org/2001/XMLSchema#gYear"
"""The datatype of literals that are years."""
OBJECTS = (QuantityObject, StatedCode)
"""Objects that are read as one value."""
_StatedWithin = Callable[[str], StatedIn]
"""Whole name of an array (empty for the event itself) → function for what the objects in its elements state."""


class Canonicaliser:
    """Converts events to canonical form under one vocabulary. It has a bounded cache of readings, so only one thread at
    a time may use it.

    Costs about 1 µs for a number or a cached string, and some 10 to 20 µs for a new string.
    """

    def __init__(self, vocabulary: Vocabulary, limits: EventLimits | None = None) -> None:
        self._vocabulary = vocabulary
        self._units = vocabulary.units
        self._limits = limits or EventLimits()
        self._names: dict[tuple[str, str], tuple[str, ...]] = {}
        self._curies = 0
        self._declarations: dict[str, AttributeDeclaration | None] = {}
        self._strings: dict[tuple[str, str, str | None], tuple[Value, tuple[Note, ...]]] = {}
        self._typed = TypedEvents(vocabulary, self.names)
        self._graphs = GraphReader(
            vocabulary.contexts,
            self._limits,
            is_event_class=self._is_event_class,
            reads_json=vocabulary.reads_linked_data,
            plain_where_unknown=vocabulary.unknown_contexts == "plain",
            members=vocabulary.splits.properties,
        )
        self._documents = DocumentReader(self._graphs, vocabulary.splits, vocabulary.schemas)

    def _is_event_class(self, iri: str) -> bool:
        """Whether the class with this IRI is a declared event type (rule 21)."""
        return bool(self._typed) and self._typed.is_declared(iri)

    @property
    def limits(self) -> EventLimits:
        return self._limits

    @property
    def units(self) -> Units:
        return self._units

    @property
    def typed(self) -> TypedEvents:
        """The declared event types and derived attributes."""
        return self._typed

    def declaration(self, name: str) -> AttributeDeclaration | None:
        """Returns the declaration of an attribute, if there is one."""
        return self._declaration(name)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary under which events are read."""
        return self._vocabulary

    def canonicalise(
        self, event: Mapping[str, Any] | Event, graph: tuple[Event, tuple[Note, ...]] | None = None
    ) -> CanonicalEvent:
        """Returns the canonical form of `event`. A bare mapping is the data of an event. `graph` is the result of
        `graph_event` for this event, if it was called before.

        Raises `InvalidEvent` with a JSON pointer for each problem: the event is no mapping, a top-level key is `ce`,
        `flatten` refuses the data, or the data does not fit the declared types of the event.
        """
        event, said_of_graph = graph or self.graph_event(event if isinstance(event, Event) else Event(_mapping(event)))
        notes = list(said_of_graph)
        data, stated = event.data, None
        scalars = {f"ce.{name}": [Found(as_json(value))] for name, value in event.context.items()}
        elements: dict[str, list[Mapping[str, Any]]] = {}
        if isinstance(event.data, Mapping):
            _refuse_context_names(event.data)
            stated = self._stated(event)
            flat = flatten(event.data, self._limits, stated("") if stated is not None else None)
            types = [found for found in flat.scalars.get("@type", []) if isinstance(found.scalar, str | Resource)]
            if types:
                scalars["ce.type"] = [*scalars.get("ce.type", []), *types]
            scalars |= flat.scalars
            elements, data = flat.elements, flat.data
        elif event.data is not None:
            notes.append(Note("no-attributes", "", "data is not a JSON object: only context attributes can match"))
        declared: frozenset[str] = frozenset()
        if self._typed:
            said = (found.scalar for found in scalars.get("ce.type", ()))
            texts = (self._typed.type_name(each.iri or "") if isinstance(each, Resource) else each for each in said)
            declared = self._typed.types_of(each for each in texts if isinstance(each, str))
            if not isinstance(data, Node):  # a graph was checked in the form in which it was published
                self._typed.check(declared, data, notes)
        repeated: dict[str, tuple[int, ...]] = {}
        attributes = self._read(scalars, notes, repeated)
        found = self._elements(elements, "", {}, stated)
        if self._typed:
            whole = CanonicalEvent(attributes, found, (), repeated)
            attributes = self._typed.complete(whole, declared, notes)
        return CanonicalEvent(attributes, found, tuple(dict.fromkeys(notes)), repeated)

    def may_be_document(self, event: object) -> bool:
        """Whether `graph_event` must be called for an event, or for the data of one. False if it is certainly plain
        JSON."""
        return may_be_graph(event) or self._documents.may_split(event.data if type(event) is Event else event)

    def may_hold_graph(self, event: Event) -> bool:
        """Whether `holds_graph` must be called. Constant time; thread-safe."""
        return self.may_be_document(event) and (is_graph(event) or self._documents.may_split(event.data))

    def holds_graph(self, event: Event) -> bool:
        """Whether the data of `event`, or of the single event in its envelope, is read as a graph (rule 20). Linear for
        an envelope; thread-safe."""
        if is_graph(event):
            return True
        try:
            return is_graph(self._documents.single(event))
        except InvalidEvent:
            return False  # the error is reported when the event is read

    def graph_event(self, event: Event, *, quickly: bool = False) -> tuple[Event, tuple[Note, ...]]:
        """Returns `event` taken out of its envelope, if it has one (rule 21). If its data is a graph, the data is
        replaced by the tree of the graph (rule 20). Also returns the notes. Raises `InvalidEvent`, also if the
        published JSON of a graph does not fit the declared types of the event. With `quickly`, raises `TakesLong` for a
        graph that takes long."""
        event = self._documents.single(event)
        read, said = self._graphs.read(event, quickly=quickly)
        if self._typed and isinstance(read.data, Node) and not isinstance(event.data, Node):
            body = self._documents.published(event).data
            if isinstance(body, Mapping) and not isinstance(body, Node):
                notes = list(said)
                self._typed.check(self._typed.types_of(self._types_said(read)), without_keywords(body), notes)
                said = tuple(notes)
        return read, said

    def published(self, event: Event) -> Event:
        """Returns the event in its published form, taken out of its document. Raises `InvalidEvent`."""
        return self._documents.published(event)

    def events_of(self, event: Event, digest: str | None = None, *, seconds: float = MOST_SECONDS) -> list[Event]:
        """Returns the events of a document in order (rule 21), or `event` itself if it is a single event; see
        `DocumentReader`. Raises `InvalidEvent`."""
        return self._documents.events_of(event, digest, seconds=seconds)

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def names(self, raw: str, array: str = "") -> tuple[str, ...]:
        """Returns the attribute that a published name means, and every attribute above it (rule 2). Inside elements of
        `array`, the names are relative to the element. A name of the data never means a context attribute (rule 1)."""
        attributes = self._vocabulary.attributes
        if len(attributes.asked_curies) != self._curies:  # a new subscription uses a CURIE: cached names may change
            self._curies = len(attributes.asked_curies)
            self._names.clear()
        found = self._names.get((array, raw))
        if found is None:
            found = attributes.broader(attributes.resolve_within(raw, array))
            if not raw.startswith(OF_CONTEXT):
                found = tuple(each for each in found if not each.startswith(OF_CONTEXT)) or (raw,)
            if len(raw) + len(array) > LONGEST_CACHED:
                return found
            if len(self._names) >= CACHED_STRINGS:
                self._names.clear()
            self._names[array, raw] = found
        return found

    # ── elements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _elements(
        self,
        raw: Mapping[str, list[Mapping[str, Any]]],
        array: str,
        done: dict[tuple[str, int], CanonicalEvent],
        stated: _StatedWithin | None,
    ) -> dict[str, tuple[CanonicalEvent, ...]]:
        """Returns the elements of arrays of objects, each as an event of its own (for `some`). `array` is the array
        around them, as `array_within` returns it, if any. `done` caches the finished elements by their array. Without
        it the cost would be 2^depth, because an object is an element of every array around it. With the whole names of
        arrays it would be, too, because each segment may have several names."""
        named: dict[str, list[tuple[Mapping[str, Any], Stated | None]]] = {}
        states = None if stated is None else stated(array)
        for name, objects in raw.items():
            found = [(each, stated_of(name, each, states)) for each in objects]
            for each in self.names(name, array):
                named.setdefault(each, []).extend(found)
        within = {name: self._vocabulary.attributes.array_within(name, array) for name in named}
        return {
            name: tuple(self._element(each, whole, within[name], done, stated) for each, whole in found)
            for name, found in named.items()
        }

    def _element(
        self,
        data: Mapping[str, Any],
        whole: Stated | None,
        array: str,
        done: dict[tuple[str, int], CanonicalEvent],
        stated: _StatedWithin | None,
    ) -> CanonicalEvent:
        found = done.get((array, id(data)))
        if found is None:
            flat = flatten(data, self._limits, stated(array) if stated is not None else None, whole)
            inner = self._elements(flat.elements, array, done, stated)
            repeated: dict[str, tuple[int, ...]] = {}
            attributes = self._read(flat.scalars, [], repeated, array)
            found = done[array, id(data)] = CanonicalEvent(attributes, inner, (), repeated)
        return found

    # ── what objects state ──────────────────────────────────────────────────────────────────────────────────────

    def states(self, context: Mapping[str, Any]) -> bool:
        """Whether every object of an event with this context may state a quantity or a code, because of its content
        type."""
        content = context.get("datacontenttype")
        return isinstance(content, str) and content.partition(";")[0].strip().lower() == FHIR

    @property
    def some_state(self) -> bool:
        """Whether an attribute is declared to hold objects that state quantities or codes."""
        return self._vocabulary.attributes.states

    def stated_by(self, node: Node) -> Stated | None:
        """Returns what a node of a graph states, by the known shapes of quantities and codes (rule 22)."""
        return stated_value(node, QuantityMembers(), CodeMembers(), self._units.knows)

    def is_stating(self, name: str) -> bool:
        """Whether the objects under an attribute are declared to state a quantity or a code."""
        found = self._declaration(name)
        return found is not None and (found.quantity is not None or found.code is not None)

    def _stated(self, event: Event) -> _StatedWithin | None:
        """Returns a function from an array to the function that determines what the objects in its elements state (rule
        22). None if no object of `event` can state anything."""
        declared = self._vocabulary.attributes.states
        is_asked = self.states(event.context) or isinstance(event.data, Node)  # objects of graphs always may
        said = frozenset(STATED) if is_asked else frozenset[str]()
        if not said and self._vocabulary.schemas.states:
            said = self._typed.stated(self._typed.types_of(self._types_said(event)))
        if not declared and not said:
            return None
        quantities = QuantityMembers() if "quantities" in said else None
        codes = CodeMembers() if "codes" in said else None

        def within(array: str) -> StatedIn:
            def stated(raw: str, node: Mapping[str, Any]) -> Stated | None:
                name = self.names(raw, array)[0]
                found = self._declaration(self._vocabulary.attributes.declared_as(name, array))
                of_quantity = quantities if found is None or found.quantity is None else found.quantity
                of_code = codes if found is None or found.code is None else found.code
                if of_quantity is None and of_code is None:
                    return None
                return stated_value(node, of_quantity, of_code, self._units.knows)

            return stated

        return within

    def _types_said(self, event: Event) -> Iterable[str]:
        """Yields the types that an event states (rule 1)."""
        own = event.data.get(TYPE) if isinstance(event.data, Mapping) else None
        waiting = [event.context.get("type"), own]
        while waiting:
            each = waiting.pop()
            if isinstance(each, Resource):
                yield self._typed.type_name(each.iri or "")
            elif isinstance(each, str):
                yield each
            elif isinstance(each, list | tuple):
                waiting.extend(each)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(
        self,
        scalars: Mapping[str, Iterable[Found]],
        notes: list[Note],
        repeated: dict[str, tuple[int, ...]],
        array: str = "",
    ) -> dict[str, tuple[Value, ...]]:
        """Returns attribute → its distinct values. `repeated` receives the number of occurrences of each value for the
        attributes in which a value occurs more than once."""
        declared_as = self._vocabulary.attributes.declared_as
        attributes: dict[str, dict[Any, Value]] = {}
        again: dict[str, dict[Any, int]] = {}
        siblings: dict[tuple[int, str], str | None] = {}
        for raw, all_found in scalars.items():
            names = self.names(raw, array)
            for found in all_found:
                scalar = found.scalar
                unit = found.unit or self._sibling_unit(declared_as(names[0], array), found, siblings)
                key = id(scalar) if isinstance(scalar, OBJECTS) else (type(scalar), scalar, unit)
                for name in names:
                    values = attributes.setdefault(name, {})
                    if key not in values:
                        values[key] = self.read(declared_as(name, array), scalar, unit, notes)
                    else:
                        more = again.setdefault(name, {})
                        more[key] = more.get(key, 0) + 1
        for name, more in again.items():
            repeated[name] = tuple(1 + more.get(key, 0) for key in attributes[name])
        return {name: tuple(values.values()) for name, values in attributes.items()}

    def _sibling_unit(self, name: str, found: Found, known: dict[tuple[int, str], str | None]) -> str | None:
        """Returns the unit of a number, or of a text that is read as a number, from the sibling attribute that the
        declaration of `name` refers to. `known` caches it per surrounding object. Without the cache, an array of
        numbers in a large object would search that object once per number."""
        if found.around is None or isinstance(found.scalar, bool | QuantityObject | StatedCode):
            return None
        declaration = self._declaration(name)
        if declaration is None or declaration.unit_from is None:
            return None
        if isinstance(found.scalar, str) and not is_number_in_text(declaration, found.scalar):
            return None
        sibling = declaration.unit_from.rpartition(".")[2]
        key = (id(found.around), sibling)
        if key not in known:
            texts = ((raw, text) for raw, value in found.around.items() if (text := told_text(value)) is not None)
            units = (text for raw, text in texts if self.names(raw)[0].rpartition(".")[2] == sibling)
            known[key] = next(units, None)
        return known[key]

    def read(self, name: str, scalar: Any, unit: str | None, notes: list[Note]) -> Value:
        """Returns the value of one scalar under the attribute `name` with all its readings. Adds notes for the
        publisher to `notes`."""
        if isinstance(scalar, str):
            key = (name, scalar, unit)
            found = self._strings.get(key)
            if found is None:
                own: list[Note] = []
                found = (self._read_string(name, scalar, unit, own), tuple(own))
                if len(scalar) <= LONGEST_CACHED:
                    if len(self._strings) >= CACHED_STRINGS:
                        self._strings.clear()
                    self._strings[key] = found
            notes.extend(found[1])
            return found[0]
        if isinstance(scalar, bool):
            declaration = self._declaration(name)
            if declaration is not None and declaration.kind in KINDS_IN_WORDS:
                notes.append(_unread(name, scalar, declaration.kind))
            return Value(scalar, boolean=scalar)
        if isinstance(scalar, TypedText):
            return self._read_typed(name, scalar, notes)
        if isinstance(scalar, Resource):
            return self._read_resource(scalar)
        if (
            isinstance(scalar, OBJECTS) and scalar.node is not None
        ):  # one value, which also has the readings of the node
            of_node, whole = self._read_resource(scalar.node), self.read(name, replace(scalar, node=None), unit, notes)
            concepts = tuple(dict.fromkeys((*of_node.concepts, *whole.concepts)))
            return replace(
                of_node,
                concepts=concepts,
                amount=whole.amount,
                dimension=whole.dimension,
                amounts=whole.amounts,
            )
        if isinstance(scalar, QuantityObject):
            dimension, amount = self._measure(name, scalar.value, scalar.unit, notes)
            if scalar.comparator is None or amount is None:
                return Value(scalar.published, amount=amount, dimension=dimension)
            return self._read_interval(name, scalar, scalar.comparator, dimension, notes)
        if isinstance(scalar, StatedCode):
            return self._read_code(name, scalar, notes)
        return self._read_number(name, scalar, scalar, unit, notes)

    def _read_typed(self, name: str, scalar: TypedText, notes: list[Note]) -> Value:
        """Reads a literal of a graph as its text. A year that is typed as one is also read as a date (rule 26). If the
        datatype is a code system, the text is also read as a code (rule 22)."""
        value = self._read_string(name, scalar.text, None, notes)
        if scalar.datatype == YEAR and value.dates is None:
            value = replace(value, dates=parse_dates(scalar.text, year=True))
        coded = self._vocabulary.coded(scalar.datatype, scalar.text).candidates
        return replace(value, concepts=tuple(dict.fromkeys((*value.concepts, *coded)))) if coded else value

    def _read_resource(self, node: Resource) -> Value:
        """Reads a node of a graph: the concept with its IRI, if there is one, and the classes that the graph states for
        it."""
        vocabulary = self._vocabulary
        resolved = (vocabulary.resolve(each, is_iri=True).candidates for each in node.types)
        types = tuple(dict.fromkeys(vocabulary.instance_of(each) for found in resolved for each in found))
        if node.iri is None:
            return Value({"@type": list(node.types)}, types=types)
        text = nfc(node.iri)
        concepts = vocabulary.resolve(node.iri, is_iri=True).candidates
        own = vocabulary.root_word(node.iri)
        also = tuple(each for each in vocabulary.words(node.iri) if each != own)
        return Value(node.iri, text, own, concepts=concepts, types=types, also=also)

    def _read_number(
        self, name: str, published: Any, number: int | float, unit: str | None, notes: list[Note]
    ) -> Value:
        declaration = self._declaration(name)
        unit = unit or (declaration.unit if declaration else None)
        dimension, amount = self._measure(name, number, unit, notes) if unit else (None, None)
        instant = None
        if declaration is not None and declaration.kind in ("version", "ip"):
            notes.append(_unread(name, published, declaration.kind))
        elif declaration is not None and declaration.kind == "instant":
            instant = instant_of_epoch(number)
            if instant is None:
                notes.append(_unread(name, published, "instant"))
        return Value(published, number=float(number), instant=instant, amount=amount, dimension=dimension)

    def _read_code(self, name: str, scalar: StatedCode, notes: list[Note]) -> Value:
        """Reads an object as the concepts of its codes (rule 22). All of them are readings of one value."""
        concepts: dict[ConceptId, None] = {}
        for system, code in scalar.codes:
            concepts.update(dict.fromkeys(self._coded(name, system, code, notes)))
        return Value(scalar.published, concepts=tuple(concepts))

    def _coded(self, name: str, system: str, code: str, notes: list[Note]) -> tuple[ConceptId, ...]:
        """Returns the concepts that a code means."""
        found = self._vocabulary.coded(system, code)
        if found.candidates:
            notes.extend(notes_on_event_term(name, code, found, self._vocabulary, holds_concepts=False))
        elif self._vocabulary.code_systems.knows(system):
            notes.append(Note("unknown-code", name, f"{code!r} is not a code of {system}"))
        else:
            detail = f"{system} is neither a declared code system nor a scheme with notations"
            notes.append(Note("unknown-code-system", name, detail))
        return found.candidates

    def _read_interval(
        self, name: str, scalar: QuantityObject, comparator: Comparator, dimension: str | None, notes: list[Note]
    ) -> Value:
        """Reads a quantity with a comparator, of which only one end is known (rule 22)."""
        if not self._vocabulary.attributes.takes_comparators(name):
            detail = (
                f"{name} has a quantity with the comparator {comparator}: declare the attribute with quantity to "
                f"compare such values"
            )
            notes.append(Note("comparator-unread", name, detail))
            return Value(scalar.published)
        amount = self._units.measure(scalar.value, scalar.unit).amount
        match comparator:
            case "<":
                ends = -math.inf, math.nextafter(amount, -math.inf)
            case "<=":
                ends = -math.inf, amount
            case ">":
                ends = math.nextafter(amount, math.inf), math.inf
            case _:
                ends = amount, math.inf
        return Value(scalar.published, dimension=dimension, amounts=ends)

    def _read_string(self, name: str, published: str, unit: str | None, notes: list[Note]) -> Value:
        declaration = self._declaration(name)
        text, root = nfc(published), self._vocabulary.root_word(published)
        concepts, also = self._read_term(name, published, text, root, notes)
        if is_number_in_text(declaration, published):
            number = float(published)
            if math.isfinite(number) and is_exact(published, number):
                value = self._read_number(name, published, number, unit, notes)
                return replace(value, text=text, root_word=root, concepts=concepts, also=also)
        quantity = self._units.parse(published)
        dimension, amount = self._measure(name, quantity.value, quantity.unit, notes) if quantity else (None, None)
        seconds = parse_duration(published)
        if seconds is not None and quantity is None:
            dimension, amount = self._measure(name, seconds, "s", notes)
        kind = None if declaration is None else declaration.kind
        keys: tuple[tuple[str, str | float], ...] = ()
        if kind == "version" or kind == "ip":
            keys = _keys(kind, text)
            if not keys:
                notes.append(_unread(name, published, kind))
        holds_instants = kind == "instant"
        instant = parse_instant(published)
        dates = parse_dates(published, year=holds_instants) if instant is None else None
        if holds_instants and instant is None and dates is None:
            notes.append(_unread(name, published, "instant"))
        if kind == "number" and amount is None:
            if JSON_NUMBER.fullmatch(published):
                written = repr(published)[:60]
                detail = f"{name} is declared as a number, but no double is exactly {written}: it is compared as a text"
                notes.append(Note("not-of-kind", name, detail))
            elif not is_number(text):
                notes.append(_unread(name, published, "number"))
        return Value(
            published,
            text,
            root,
            instant=instant,
            dates=dates,
            amount=amount,
            dimension=dimension,
            concepts=concepts,
            keys=keys,
            also=also,
        )

    def _read_term(
        self, name: str, published: str, text: str, root: str, notes: list[Note]
    ) -> tuple[tuple[ConceptId, ...], tuple[str, ...]]:
        """Returns the concepts that a text may mean, and the root words of its other forms. `root` is its own."""
        vocabulary, declaration = self._vocabulary, self._declaration(name)
        scope = range_of(declaration, vocabulary)
        found = vocabulary.resolve(text, within=scope) if scope else vocabulary.reading(text)
        holds_concepts = declaration is not None and declaration.kind == "concept"
        of_term = notes_on_event_term(name, published, found, vocabulary, holds_concepts=holds_concepts)
        concepts = found.candidates
        system = None if declaration is None or declaration.code is None else declaration.code.within
        if system is not None:
            coded = self._coded(name, system, text, [] if concepts else notes)
            concepts = tuple(dict.fromkeys((*concepts, *coded)))
        also = tuple(each for each in vocabulary.words(text) if each != root)
        if vocabulary.aliases and concepts:
            concepts = tuple(dict.fromkeys((*concepts, *vocabulary.aliased(text).candidates)))
        if declaration is not None and declaration.reads:
            others = readings_of_identifier(declaration.reads, text)
            for other in others:
                meant = vocabulary.resolve(other, within=scope).candidates
                if system is not None:
                    meant += vocabulary.coded(system, other).candidates
                concepts = tuple(dict.fromkeys((*concepts, *meant)))
            also = tuple(dict.fromkeys((*also, *(vocabulary.root_word(other) for other in others))))
        # A text that was read by a code or a pattern is not an unknown term.
        notes.extend(note for note in of_term if note.code != "unknown-term" or not concepts)
        return concepts, also

    def _measure(self, name: str, number: int | float, unit: str, notes: list[Note]) -> tuple[str | None, float | None]:
        try:
            measure = self._units.measure(number, unit)
        except InvalidQuantity:
            detail = f"{number} {unit} is not read as a quantity, because its amount exceeds the range of a double"
            notes.append(Note("not-a-quantity", name, detail))
            return None, None
        except SemanticError as problem:
            notes.append(Note("unknown-unit", name, str(problem)))
            return None, None
        declaration = self._declaration(name)
        if declaration is not None and declaration.unit is not None and declaration.unit != unit:
            try:
                expected = self._units.dimension(declaration.unit)
            except SemanticError as problem:
                notes.append(Note("unknown-unit", name, str(problem)))
                return measure.dimension, measure.amount
            if expected != measure.dimension:
                detail = f"{unit!r} is not a unit of {name}, which has {declaration.unit}"
                notes.append(Note("wrong-dimension", name, detail))
        return measure.dimension, measure.amount

    def _declaration(self, name: str) -> AttributeDeclaration | None:
        if name not in self._declarations:
            if len(self._declarations) >= CACHED_STRINGS:
                self._declarations.clear()
            self._declarations[name] = self._vocabulary.attributes.declaration(name)
        return self._declarations[name]


def _keys(kind: str, text: str) -> tuple[tuple[str, str | float], ...]:
    """Returns the keys under which a version or an address is found; empty for any other text."""
    if kind == "version":
        version = parse_version(text)
        return () if version is None else (("version", version.number),)
    address = parse_address(text)
    return () if address is None else tuple(keys_of_address(address))


def _unread(name: str, published: Any, kind: str) -> Note:
    """Returns the note for a value that cannot be read as the declared kind of its attribute. It is never silently
    false."""
    if kind in ("version", "ip"):
        effect = "no comparison with it holds"
    elif isinstance(published, bool):
        effect = "it is compared as true or false"
    else:
        effect = f"it is compared as a {'text' if isinstance(published, str) else 'number'}"
    written = str(published).lower() if isinstance(published, bool) else repr(published)[:60]
    detail = f"{name} is declared as {KINDS_IN_WORDS[kind]}, but {written} is not one: {effect}"
    return Note("not-of-kind", name, detail)


def range_of(declaration: AttributeDeclaration | None, vocabulary: Vocabulary) -> tuple[ConceptId, ...]:
    """Returns the concepts of the declared range of an attribute; empty if no range is declared or known."""
    if declaration is None:
        return ()
    found = (vocabulary.concept(iri) for iri in declaration.range)
    return tuple(concept for concept in found if concept is not None)


def _mapping(data: object) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        detail = f"an event must be an object: a mapping or an Event, not {type(data).__name__}"
        raise InvalidEvent([problem_at((), "no-object", detail)])
    return data


def _refuse_context_names(data: Mapping[Any, Any]) -> None:
    taken = [key for key in data if isinstance(key, str) and (key == "ce" or key.startswith("ce."))]
    if taken:
        detail = "this name is reserved for context attributes such as ce.type: choose another name"
        raise InvalidEvent([problem_at((key,), "reserved-name", detail) for key in taken])
