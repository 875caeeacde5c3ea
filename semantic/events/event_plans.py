"""The fast path from JSON events to lowered events, with one plan per shape, and the notes about them.

A stream repeats its shapes: the same names nested in the same way, with the same texts and units under them. So the
meaning of names is determined once for each shape, and the keys of a text are cached together with its name:

    {"price": 350.0, "kind": "laptop", "seller": {"rating": 4, "tags": ["a", "b"]}}
       │                └──────────── a text or boolean: its keys are cached under this name
       └───────────────────────────── a number: the key itself, in the columns that take it unchanged
    the names of an object, in order ─▶ a shape: its members, and the attributes that they make present

Only values that a subscription uses are read; the others are only checked. The fast path returns None for invalid
events and for events that cannot be read value by value (derived attributes that a subscription uses, types that JSON
does not have). Such an event goes through `Canonicaliser` and `Lowering`, the only place that defines meanings and
refuses events.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from math import isfinite
from typing import Any

from kindcast.index.clause import AttributeId, ColumnId, Key, LoweredEvent
from kindcast.semantic.conditions.lowering import Lowering
from kindcast.semantic.conditions.normal_form import elements_of
from kindcast.semantic.conditions.predicates import values_of, why_no_aggregate
from kindcast.semantic.errors import InvalidEvent, SemanticError
from kindcast.semantic.events.advice import CONTEXT, DATES, advice_on_name, advice_on_value, says_what_to_write
from kindcast.semantic.events.canonical_events import KINDS_IN_WORDS, OBJECTS, Canonicaliser, is_number_in_text
from kindcast.semantic.events.event_table import EXACT, TableReader, read_plain
from kindcast.semantic.flatten import UNIT_KEYS, QuantityObject, as_quantity, without_nulls
from kindcast.semantic.model import (
    CanonicalEvent,
    Event,
    Node,
    Note,
    Resource,
    TypedText,
    told_text,
)
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units.measure import not_a_quantity
from kindcast.semantic.vocabulary.event_types import may_state
from kindcast.semantic.vocabulary.labels import NearNames

__all__ = ["READ_TOGETHER", "EventPlans", "ReadEvent"]

REMEMBERED = 1 << 16
"""The maximum number of cached names, members of shapes and values together. When it is exceeded, the caches are
cleared. They take some 30 MB at most, whatever is published."""
PLAIN = 1 << 14
"""The maximum number of cached texts about which there are no notes. They have a cache of their own, so that texts that
never repeat do not displace the others."""
LONGEST = 200
"""The maximum length in characters of a cached name or text."""
LONGEST_OF_IRIS = 600
"""The maximum length in characters of a name that consists of IRIs of properties."""
MANY_NAMES = 200
"""An object with more names is large."""
MOST_TOGETHER = 200
"""Sets of attributes that are present together are cached if they have no more attributes, counted with what they are
made of. Larger ones would fill the memory, and making them takes a fraction of the time of reading their values."""
MOST_OF_LARGE = REMEMBERED // 4 * 3
"""The maximum number of cached names and members of large objects. Further large objects are not on the fast path, so
that a publisher of ever new ones does not displace the plans of all others again and again."""
LARGE_REFUSED = 100
"""After so many large objects were not on the fast path, the caches are cleared: the cached ones may no longer come."""
TYPE = "@type"
NAMES_ADVISED = 200
"""An event's names are compared with known names, object by object, until so many are compared. Each costs at
most some 1 ms."""
VALUES_ADVISED = 1_000
"""The number of values of one event, from the first, that are looked at for notes. Texts that are known to have none do
not count. A look costs 5 to 50 µs if the value is not cached, and publishers wait for each other."""
CONTEXT_DEPTH = -1
"""Used instead of a depth for the context of an event, which is not an object in its data."""
UNIQUE = ("ce.id", "ce.time")
"""Attributes with another value in each event. Reading each value for notes would take longer than matching the event.
So there are no notes about them, unless the attribute is declared or a subscription uses it."""

READ_TOGETHER = 128
"""How many events are best read in one call of `EventPlans.read_together`: so many that the work for their shape is
spread, and so few that each may have some new texts."""
NAMES_TOGETHER = 128
"""Events are read together only if each has at most so many names, in its objects together."""
LEVELS_COMPARED = 4
"""Events are divided by the types of their values in at most so many levels of objects."""
FEWEST_ALIKE = 3
"""Fewer events of one shape take less time if each is read alone."""
CALLS_ALONE = 16
"""If most events of some names could not be read together, as when their inner objects have ever other names, so many
calls do not try it again."""
TOGETHER_SECONDS = 0.02
"""Events are read together for so long. What is cached is read even later. The events that are left are read alone, so
that the caller can stop in between."""

ITEMS = frozenset((str, int, float))
"""The types of the usual items of an array."""
NUMBERS = frozenset((int, float))
SCALARS = frozenset((str, int, float, bool))
NULL = type(None)

Cell = Mapping[ColumnId, tuple[Key, ...]]
"""Column → the keys of one value in it."""
Present = frozenset[AttributeId]

NOTHING: Cell = {}
NONE: Present = frozenset()


class _Refused(Exception):
    """This event cannot be read on the fast path."""


class _Member:
    """The plan for one dotted name: the attributes used by subscriptions that a value makes present; the columns that
    take a number unchanged (None: not known yet, or numbers are converted); and the cells of cached values."""

    __slots__ = (
        "attributes", "cells", "elements", "is_measured", "is_plain", "lacks_unit", "names", "no_booleans", "noted",
        "numbers", "present", "raw", "shapes", "sibling", "states", "strange", "texts", "units", "unnoted",
    )  # fmt: skip

    def __init__(self, raw: str, names: tuple[str, ...], attributes: Mapping[str, AttributeId]) -> None:
        self.raw = raw
        self.names = names
        self.attributes = tuple(attributes)
        self.present: Present = frozenset(attributes.values())
        self.elements: Present = NONE
        """The attributes that an object in an array of this name makes present (for `some`)."""
        self.states = False
        """Whether an object under this name may state a quantity or a code (rule 22)."""
        self.is_measured = False
        """Whether a number without a unit may need a note, because the attribute has a declared unit, or is declared as
        a kind that a number may not be."""
        self.no_booleans = False
        """Whether a boolean needs a note, because of the declared kind."""
        self.is_plain = False
        """Whether the attribute is not declared, and no subscription compares it."""
        self.unnoted = False
        """Whether there are no notes about the values: see `UNIQUE`."""
        self.lacks_unit: bool | None = None
        """Whether subscriptions compare the attribute with quantities or date-times, but not with plain numbers, so
        that a plain number satisfies none of them. None: not determined yet."""
        self.sibling: str | None = None
        """The last segment of the name of the attribute that states the unit of the numbers."""
        self.numbers: tuple[ColumnId, ...] | None = None if attributes else ()
        self.units: dict[str, Measured | None] = {}
        """Unit from the sibling attribute, or the empty text for the declared unit → the columns of a number. None:
        each number is read by itself."""
        self.texts: dict[str, Cell] = {}
        self.cells: dict[tuple[type, Any, str | None], Cell] = {}
        self.noted: dict[Any, tuple[Note, ...]] = {}
        """A text, or the type, the value and the unit beside it → the notes about it."""
        self.strange: tuple[Note, ...] | None = None
        """The notes about the name itself. None: not determined yet."""
        self.shapes: dict[tuple[Any, ...], _Shape] = {}
        """The shapes of the objects under this name, by the names of their members."""


Measured = tuple[tuple[ColumnId, str | None], ...]
"""The columns of a number, each with the unit from which the number is converted; None if it is unchanged."""


class _Quantity:
    """The plan for the quantities of one shape in one unit. `measured` are the columns of the number (None: each number
    is read by itself), and `numbers` the same columns if all take the number unchanged. `fixed` are the keys that do
    not depend on the number. `cells` caches the numbers that were read by themselves."""

    __slots__ = ("cells", "fixed", "measured", "numbers")

    def __init__(self, measured: Measured | None, fixed: Cell) -> None:
        self.measured = measured
        self.numbers = _as_it_is(measured)
        self.fixed = fixed
        self.cells: dict[float, Cell] = {}


class _Shape:
    """The plan for objects with these names, in order. `owner` is the name that holds the object."""

    __slots__ = (
        "alone",
        "beside",
        "calls_alone",
        "gaps",
        "has_more",
        "may_state",
        "members",
        "names",
        "owner",
        "present",
        "quantities",
        "siblings",
        "strange",
        "unit",
        "whole",
    )

    def __init__(self, owner: _Member, names: tuple[str, ...], members: tuple[_Member, ...], nested: bool) -> None:
        self.owner = owner
        self.names = names
        self.members = members
        self.present = NONE.union(*(each.present for each in members))
        self.alone = len(self.present) == sum(len(each.present) for each in members)
        """Whether no two members mean the same attribute."""
        self.calls_alone = 0
        """The number of calls that do not try to read such events together."""
        self.gaps: dict[tuple[_Member, ...], Present] = {}
        """Members that have no scalar value → the attributes that the other members make present."""
        self.siblings: dict[str, tuple[str, ...]] = {}
        """Last segment of an attribute → the names in this shape that mean an attribute with that segment."""
        self.may_state = nested and may_state(names)
        """Whether a node of a graph with these names may state a quantity or a code (rule 22)."""
        self.unit: str | None = None
        """The name of the unit, if an object with these names may be a quantity (rule 15)."""
        self.has_more = False
        """Whether an object with these names may be a quantity if its other members are null."""
        if nested and "value" in names and not UNIT_KEYS.isdisjoint(names):
            self.has_more = len(names) > 2
            self.unit = None if self.has_more else names[names[0] == "value"]
        self.quantities: dict[str, _Quantity] = {}
        self.strange: tuple[Note, ...] | None = None
        """The notes about the names. None: not determined yet."""
        self.beside = self.present - owner.present
        self.whole = self.present | owner.present if self.unit is not None else NONE
        """The attributes that a quantity makes present."""

    def unit_beside(
        self, member: _Member, data: Mapping[str, Any], names: Callable[[str], tuple[str, ...]]
    ) -> str | None:
        """Returns the unit in `data` for a number of `member`: the first text, or IRI of a node, under a name that
        means the sibling attribute."""
        if member.sibling is None:
            return None
        keys = self.siblings.get(member.sibling)
        if keys is None:
            keys = tuple(each for each in self.names if names(each)[0].rpartition(".")[2] == member.sibling)
            self.siblings[member.sibling] = keys
        return next((text for each in keys if (text := told_text(data[each])) is not None), None)


_Group = tuple[_Shape, Mapping[str, Any], int, _Member | None, Sequence[Any]]
"""An object that is not a quantity: its shape, the object, and its depth. For an array also the name and the values of
the array."""


def _kinds(data: Mapping[str, Any], levels: int = LEVELS_COMPARED) -> tuple[Any, ...]:
    """Returns the types of the values of an object, followed by names and types of the objects in it."""
    kinds = tuple(map(type, data.values()))
    if dict not in kinds or not levels:
        return kinds
    inner = [each for each in data.values() if type(each) is dict]
    return (*kinds, *((tuple(each), _kinds(each, levels - 1)) for each in inner))


def _kind_of(column: Sequence[Any]) -> tuple[type, list[int] | None]:
    """Returns the type of the values; and the places of those that are not null, or None if all or none is null. Raises
    `_Refused` for several types. Numbers with and without a fraction are one type."""
    kinds = {*map(type, column)}
    places = None
    if len(kinds) > 1 and NULL in kinds:
        kinds.remove(NULL)
        places = [place for place, value in enumerate(column) if value is not None]
    if len(kinds) > 1 and kinds != NUMBERS:
        raise _Refused
    return kinds.pop(), places


class _Alike:
    """Events of one shape while they are read together, column by column. `cells` has the keys of each event, `seen`
    the attributes whose keys are in `cells`, and `presents` those that the objects of all events make present. `own`
    are those of single events, by their place. `noted` are the numbers of the events about which there are notes; None
    if notes are not wanted. `names` counts the names in the objects of an event."""

    __slots__ = ("cells", "names", "noted", "numbers", "own", "presents", "seen")

    def __init__(
        self, cells: list[dict[ColumnId, tuple[Key, ...]]], numbers: Sequence[int], noted: set[int] | None
    ) -> None:
        self.cells = cells
        self.numbers = numbers
        self.noted = noted
        self.presents: list[Present] = []
        self.own: dict[int, list[Present]] = {}
        self.seen: Present = NONE
        self.names = 0

    def enter(self, shape: _Shape) -> None:
        """Begins with the objects of a shape. Raises `_Refused` if their attributes have values in other objects."""
        self.names += len(shape.names)
        if self.names > NAMES_TOGETHER or not shape.alone or not self.seen.isdisjoint(shape.present):
            raise _Refused
        self.seen |= shape.present

    def some(self, places: Sequence[int]) -> "_Alike":
        """Returns some of the events, for reading scalars."""
        numbers = [self.numbers[place] for place in places]
        return _Alike([self.cells[place] for place in places], numbers, self.noted)


class ReadEvent:
    """An event whose values are read as far as subscriptions use them, in `lowered`. The canonical form and notes are
    computed when they are needed."""

    __slots__ = ("_canonical", "_has_no_notes", "_noted", "_plans", "_published", "lowered")

    def __init__(
        self,
        lowered: LoweredEvent,
        plans: "EventPlans",
        published: Any,
        canonical: CanonicalEvent | None = None,
        noted: Sequence[Note] = (),
        has_no_notes: bool = False,
    ) -> None:
        """`canonical` is given if no plan read the event. `noted` are the notes about its document and types.
        `has_no_notes`: it is known that there are none."""
        self.lowered = lowered
        self._plans = plans
        self._published = published
        self._canonical = canonical
        self._noted = noted
        self._has_no_notes = has_no_notes

    def canonical(self) -> CanonicalEvent:
        """Returns the event with every reading of every value."""
        if self._canonical is None:
            self._canonical = self._plans.canonicaliser.canonicalise(self._published)
        return self._canonical

    def notes(self, most: int) -> Sequence[Note]:
        """Returns at most `most` distinct notes for the publisher about all attributes of the event."""
        if self._has_no_notes:
            return ()
        if self._canonical is None and not self._plans.canonicaliser.typed.notes_values:
            with contextlib.suppress(_Refused):  # its plans were forgotten, and large objects fill their place
                return self._plans.notes(self._published, self._noted, most)
        canonical = self.canonical()
        found = dict.fromkeys(each for each in canonical.notes if not self._plans.has_no_notes(each.attribute))
        for note in self._plans.advice(canonical):
            if len(found) >= most:
                break
            found[note] = None
        return list(found)[:most]

    def copied(self) -> "ReadEvent":
        """Replaces the published event by a copy, for a caller that reuses its objects for the next event. Returns
        self."""
        if self._canonical is None:
            published = self._published
            if isinstance(published, Event) and type(published.data) is not Node:
                self._published = Event(_copy(published.data), dict(published.context))
            elif not isinstance(published, Event):
                self._published = _copy(published)
        return self


class EventPlans:
    """Reads events for one matcher. Not thread-safe."""

    def __init__(self, canonicaliser: Canonicaliser, lowering: Lowering, tables: TableReader) -> None:
        """`tables` determines the columns of numbers."""
        self.canonicaliser = canonicaliser
        self._tables = tables
        self._lowering = lowering
        self._limits = canonicaliser.limits
        self._units = canonicaliser.units
        self._is_typed = bool(canonicaliser.typed)
        self._asked = -1
        self._kept = 0
        self._kept_of_large = 0
        self._large_refused = 0
        self._left = 0
        self._until = 0.0
        self._names: dict[str, _Member] = {}
        self._unions: dict[tuple[Present, ...], Present] = {}
        self._types: dict[frozenset[str], tuple[frozenset[str], bool]] = {}
        self._plain: set[str] = set()
        """Texts about which there are no notes under a plain attribute: see `_is_plain`."""
        self._near: tuple[int, NearNames] | None = None
        self._root = _Member("", (), {})
        self._context = _Member(CONTEXT, (), {})

    def read(
        self, event: Mapping[str, Any] | Event | CanonicalEvent, graph: tuple[Event, tuple[Note, ...]] | None = None
    ) -> ReadEvent:
        """Reads `event` (its data, an event, or its canonical form) for an engine. Costs about 150 ns per value and 0.5
        µs per array or object, plus the reading of texts and quantities that are not cached. An event that no plan can
        read costs some 10 times as much. `graph` is the result of `Canonicaliser.graph_event` for the event, if it was
        called before. Raises `InvalidEvent`."""
        if isinstance(event, CanonicalEvent):
            return ReadEvent(self._lowering.event(event), self, event, event)
        noted: tuple[Note, ...] = ()
        if graph is None and self.canonicaliser.may_be_document(event):
            graph = self.canonicaliser.graph_event(event if isinstance(event, Event) else Event(event))
        if graph is not None:
            event, noted = graph
        read = self.planned(event, noted)
        if read is None:
            canonical = self.canonicaliser.canonicalise(event, graph)
            read = ReadEvent(self._lowering.event(canonical), self, event, canonical)
        return read

    def planned(self, event: Any, noted: tuple[Note, ...] = ()) -> ReadEvent | None:
        """Reads `event` by a plan, with the same result as `Lowering.event` of its canonical form. Returns None if that
        is not possible. The tree of a graph can be read, its document cannot. `noted` are the notes about the
        document."""
        if self._asked != self._lowering.asked:  # subscriptions use more attributes than when values were cached
            self._forget()
        data, context = (event.data, event.context) if type(event) is Event else (event, None)
        if type(data) is not dict and type(data) is not Node:
            return None
        if context is not None and self.canonicaliser.states(context):
            return None
        try:
            lowered = self._lowered(self._groups(data, context))
            noted = (*noted, *self._checked(data, context or {})) if self._is_typed else noted
            return ReadEvent(lowered, self, event, None, noted)
        except (_Refused, InvalidEvent):
            return None

    def read_each(
        self, events: Sequence[Mapping[str, Any] | Event | CanonicalEvent]
    ) -> Iterator[ReadEvent | InvalidEvent]:
        """Yields each event as it was read, in order, or the error of one that cannot be read. Events of one shape are
        read together."""
        for start in range(0, len(events), READ_TOGETHER):
            some = events[start : start + READ_TOGETHER]
            for event, found in zip(some, self.read_together(some), strict=True):
                try:
                    yield self.read(event) if found is None else found
                except InvalidEvent as error:
                    yield error.with_traceback(None)  # its frames would keep what was read in memory

    def read_together(
        self, events: Sequence[Mapping[str, Any] | Event | CanonicalEvent], *, noted: bool = False
    ) -> list[ReadEvent | None]:
        """Reads the events that consist of scalars, quantities, arrays of scalars, and objects of them, all events of
        one shape together, with the same result as `planned`. Returns None for the others, and where that would take
        long. With `noted`, the results know whether there are notes. Linear in the values, with less work for each
        than `planned`."""
        if self._asked != self._lowering.asked:
            self._forget()
        found: list[ReadEvent | None] = [None] * len(events)
        named: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for number, event in enumerate(events):
            data, context = (event.data, event.context) if type(event) is Event else (event, {})
            if type(data) is dict:
                named.setdefault((tuple(data), tuple(context)), []).append(number)
        self._until = time.perf_counter() + TOGETHER_SECONDS
        for names, numbers in named.items():
            known = self._root.shapes.get(names[0])
            if known is not None and known.calls_alone:
                known.calls_alone -= 1
                continue
            if self._read_alike(events, numbers, found, noted=noted):
                continue
            typed: dict[tuple[Any, ...], list[int]] = {}
            for number in numbers:
                told: Any = events[number]
                typed.setdefault(_kinds(told.data if type(told) is Event else told), []).append(number)
            if 1 < len(typed) <= len(numbers) // FEWEST_ALIKE:
                for some in typed.values():
                    self._read_alike(events, some, found, noted=noted)
            shape = self._root.shapes.get(names[0])
            if shape is not None and 2 * sum(found[number] is None for number in numbers) > len(numbers):
                shape.calls_alone = CALLS_ALONE
        return found

    def notes(self, event: Any, first: Sequence[Note], most: int) -> list[Note]:
        """Returns at most `most` notes about an event that was read by a plan, with `first` before the others."""
        found = dict.fromkeys(first)
        data, context = (event.data, event.context) if type(event) is Event else (event, None)
        groups = self._groups(data, context)
        for member, value, unit in islice(self._values(groups), VALUES_ADVISED):
            noted = self._noted(member, value, unit)
            if noted:
                found.update(dict.fromkeys(noted))
                if len(found) >= most:
                    return list(found)[:most]
        left = NAMES_ADVISED
        for shape, _, depth, array, _ in groups:
            if left <= 0:
                break
            if depth == CONTEXT_DEPTH or array is not None:
                continue
            left -= len(shape.members)
            found.update(dict.fromkeys(self._strange_names(shape)))
        return list(found)[:most]

    def has_no_notes(self, name: str) -> bool:
        """Whether there are no notes about the values of an attribute: see `UNIQUE`."""
        return name in UNIQUE and self.canonicaliser.declaration(name) is None and not self._lowering.may_ask(name)

    def advice(self, event: CanonicalEvent) -> Iterator[Note]:
        """Yields notes for the publisher of an event, in addition to the notes of its canonical form."""
        left = VALUES_ADVISED
        for number, (name, values) in enumerate(event.attributes.items()):
            in_context = name.startswith(f"{CONTEXT}.")
            if in_context and self.has_no_notes(name):
                continue
            if number < NAMES_ADVISED and not in_context and not self._lowering.may_ask(name):
                yield from advice_on_name(name, self._known_names())
            readings = self._lowering.readings(name)
            for value in values[:left]:
                yield from advice_on_value(name, value, self.canonicaliser.vocabulary, readings)
            left -= min(left, len(values))
        for aggregate, name in self._lowering.aggregated.items():
            if name in event.attributes and not values_of(event, aggregate):
                yield Note("no-aggregate", name, f"{why_no_aggregate(aggregate)}; subscriptions use it")

    def _strange_names(self, shape: _Shape) -> tuple[Note, ...]:
        """Returns the notes about the names of a shape."""
        if shape.strange is None:
            shape.strange = tuple(chain.from_iterable(map(self._strange, shape.members[:NAMES_ADVISED])))
        return shape.strange

    def _strange(self, member: _Member) -> tuple[Note, ...]:
        """Returns the notes about a name."""
        if member.strange is None:
            asked = member.attributes or any(map(self._lowering.may_ask, member.names))
            member.strange = () if asked else tuple(advice_on_name(member.names[0], self._known_names()))
        return member.strange

    def _lacks_unit(self, member: _Member) -> bool:
        if member.lacks_unit is None:
            readings = {each for name in member.attributes for each in self._lowering.readings(name)}
            otherwise = any(each in DATES or each.startswith("amount:") for each in readings)
            member.lacks_unit = otherwise and "number" not in readings
        return member.lacks_unit

    def _known_names(self) -> NearNames:
        """Returns the names in declarations, the vocabulary and subscriptions."""
        asked = self._lowering.asked
        if self._near is None or self._near[0] != asked:
            declared = self.canonicaliser.vocabulary.declared_names
            self._near = asked, NearNames((*declared, *self._lowering.numbered[0]))
        return self._near[1]

    def _groups(self, data: Mapping[str, Any], context: Mapping[str, Any] | None) -> list[_Group]:
        """Returns the objects at which the walk of an event begins: its data and its context. Raises `_Refused`."""
        groups: list[_Group] = [(self._shape(self._root, data), data, 0, None, ())]
        if context is not None:
            groups.append((self._shape(self._context, context), context, CONTEXT_DEPTH, None, ()))
        return groups

    # ── the walk ────────────────────────────────────────────────────────────────────────────────────────────────

    def _lowered(self, groups: list[_Group]) -> LoweredEvent:
        """Returns the lowered event of `groups`. The walk appends inner objects and arrays to `groups`. Raises
        `_Refused`."""
        values: dict[ColumnId, tuple[Key, ...]] = {}
        several: dict[ColumnId, dict[Key, None]] = {}
        presents: list[Present] = []
        seen: set[AttributeId] | Present = NONE  # the attributes whose keys are in `values`
        deepest = self._limits.depth
        self._left = self._limits.values
        for shape, data, depth, array, items in groups:
            if array is not None:
                self._array(shape, data, depth, array, items, groups, several, presents)
                continue
            if depth != CONTEXT_DEPTH:
                self._left -= len(data)
                if self._left < 0 or (depth >= deepest and data):
                    raise _Refused
            apart = shape.alone and (not seen or seen.isdisjoint(shape.present))
            if apart:
                if seen:
                    seen = set(seen) if type(seen) is frozenset else seen
                    seen |= shape.present
                else:
                    seen = shape.present
            gaps: list[_Member] = []
            for member, value in zip(shape.members, data.values(), strict=True):
                kind = type(value)
                if kind is float or kind is int:
                    columns = member.numbers
                    if kind is int:
                        if not -EXACT < value < EXACT:
                            raise _Refused
                        value = float(value)
                    elif value - value != 0.0:  # infinite or NaN
                        raise _Refused
                    if columns is None:
                        cell = self._number(member, value, shape, data)
                    elif apart:
                        for column in columns:
                            values[column] = (value,)
                        continue
                    else:
                        cell = dict.fromkeys(columns, (value,))
                elif kind is str:
                    if not member.attributes:
                        continue
                    known = member.texts.get(value)
                    cell = self._text(member, value) if known is None else known
                elif kind is bool or kind is Resource or kind is TypedText:
                    cell = self._cell(member, value, None)
                elif kind is list and len(value) == 1 and type(value[0]) in ITEMS and depth != CONTEXT_DEPTH:
                    self._enter(value, depth + 1)
                    cell = self._item(member, value[0], shape, data)
                else:
                    gaps.append(member)
                    if kind is Node:
                        groups.append((self._shape(member, value), value, depth + 1, None, ()))
                        self._node(member, value, several, presents)
                        presents.append(member.elements)
                    elif kind is dict:
                        inner = member.shapes.get(tuple(value)) or self._shape(member, value)
                        count = len(value)
                        if inner.has_more:
                            inner, value = self._with_values(member, inner, value)
                        quantity = None if inner.unit is None else self._quantity(inner, value)
                        if quantity is None:
                            groups.append((inner, value, depth + 1, None, ()))
                            continue
                        self._left -= count
                        if self._left < 0 or depth + 1 >= deepest:
                            raise _Refused
                        presents.append(inner.whole)
                        if apart and (not inner.beside or seen.isdisjoint(inner.beside)):
                            if inner.beside:
                                seen = {*seen, *inner.beside}
                            values.update(quantity)
                        else:
                            _merge(several, quantity)
                    elif kind is list or kind is tuple:
                        groups.append((shape, data, depth + 1, member, value))
                    elif value is not None:
                        raise _Refused
                    continue
                if apart:
                    values.update(cell)
                else:
                    _merge(several, cell)
            if gaps and depth == CONTEXT_DEPTH:  # attributes of the context are scalars
                raise _Refused
            presents.append(self._without(shape, tuple(gaps)) if gaps else shape.present)
        for column, keys in several.items() if several else ():
            before = values.get(column)
            values[column] = tuple(keys) if before is None else tuple({**dict.fromkeys(before), **keys})
        return LoweredEvent(self._union(presents), values)

    # ── events of one shape together ────────────────────────────────────────────────────────────────────────────

    def _read_alike(
        self, events: Sequence[Any], numbers: Sequence[int], found: list[ReadEvent | None], *, noted: bool
    ) -> bool:
        """Reads the events with these numbers, which have the same names, and puts them into `found`. Returns False if
        it may help to divide them by the types of their values. If they are too few, or may hold graphs, or no time is
        left, puts nothing there."""
        if len(numbers) < FEWEST_ALIKE or time.perf_counter() > self._until:
            return True
        some = [events[number] for number in numbers]
        told: list[Any] = [each.data if type(each) is Event else each for each in some]
        contexts: list[Mapping[str, Any]] = [each.context if type(each) is Event else {} for each in some]
        by_type = {str(each["datacontenttype"]): each for each in contexts if "datacontenttype" in each}
        for context in by_type.values() if by_type else contexts[:1]:
            if self.canonicaliser.may_hold_graph(Event(told[0], context)) or self.canonicaliser.states(context):
                return True
        noted = noted and not self.canonicaliser.typed.notes_values
        alike = _Alike([{} for _ in some], range(len(some)), set() if noted else None)
        self._left = self._limits.values
        try:
            self._objects(self._shape(self._root, told[0]), told, 0, alike)
            self._objects(self._shape(self._context, contexts[0]), contexts, CONTEXT_DEPTH, alike)
            said = [self._checked(*each) for each in zip(told, contexts, strict=True)] if self._is_typed else None
        except (_Refused, InvalidEvent):
            return False
        present, loud = self._union(alike.presents), alike.noted
        for place, number in enumerate(numbers):
            own = alike.own.get(place)
            lowered = LoweredEvent(self._union([present, *own]) if own else present, alike.cells[place])
            first = () if said is None else said[place]
            quiet = loud is not None and not first and place not in loud
            found[number] = ReadEvent(lowered, self, some[place], None, first, quiet)
        return True

    def _objects(self, shape: _Shape, objects: Sequence[Mapping[str, Any]], depth: int, alike: _Alike) -> None:
        """Reads one object of each event, which have the same shape."""
        alike.enter(shape)
        in_context = depth == CONTEXT_DEPTH
        if not in_context:
            self._enter(objects[0], depth)
            if alike.noted is not None:
                if shape.strange is None:
                    self._look()
                if self._strange_names(shape):
                    alike.noted.update(range(len(objects)))
        gaps: list[_Member] = []
        nulls: dict[int, list[_Member]] = {}
        columns = zip(*(each.values() for each in objects), strict=True)
        for member, column in zip(shape.members, columns, strict=True):
            kind, places = _kind_of(column)
            if kind in SCALARS and places is None:
                self._scalars(member, kind, column, shape, objects, alike)
                continue
            if in_context:
                raise _Refused
            if kind in SCALARS and places is not None:
                for place in {*range(len(column))}.difference(places):
                    nulls.setdefault(place, []).append(member)
                values, within = [column[place] for place in places], [objects[place] for place in places]
                self._scalars(member, kind, values, shape, within, alike.some(places))
                continue
            gaps.append(member)
            if kind is dict and places is None:
                self._inner(member, column, depth + 1, alike)
            elif kind is list and places is None:
                self._lists(member, column, shape, objects, depth + 1, alike)
            elif kind is not NULL:
                raise _Refused
        if not nulls:
            alike.presents.append(self._without(shape, tuple(gaps)) if gaps else shape.present)
            return
        for place in range(len(objects)):
            missing = (*gaps, *nulls.get(place, ()))
            alike.own.setdefault(place, []).append(self._without(shape, missing) if missing else shape.present)

    def _inner(self, member: _Member, objects: Sequence[dict[str, Any]], depth: int, alike: _Alike) -> None:
        """Reads the objects that the events have under one name."""
        shape = self._shape(member, objects[0])
        if any(tuple(each) != shape.names for each in objects) or (
            shape.has_more and any(None in each.values() for each in objects)
        ):
            raise _Refused
        if shape.unit is None:
            self._objects(shape, objects, depth, alike)
            return
        self._enter(objects[0], depth)
        if not alike.seen.isdisjoint(shape.beside):
            raise _Refused
        alike.seen |= shape.beside
        alike.presents.append(shape.whole)
        for number, (cells, each) in enumerate(zip(alike.cells, objects, strict=True)):
            self._look()
            quantity = self._quantity(shape, each)
            if quantity is None:
                raise _Refused
            cells.update(quantity)
            if alike.noted is not None:
                stated = as_quantity(each)
                if stated is None or any(self._noted(*told) for told in _values_of_quantity(member, shape, stated)):
                    alike.noted.add(number)

    def _scalars(
        self,
        member: _Member,
        kind: type,
        column: Sequence[Any],
        shape: _Shape,
        objects: Sequence[Mapping[str, Any]],
        alike: _Alike,
    ) -> None:
        """Reads the scalars of one type that the events have under one name."""
        if kind in NUMBERS and not (min(column) > -EXACT and max(column) < EXACT and isfinite(sum(column))):
            raise _Refused  # the sum finds a NaN, wherever it stands
        if alike.noted is not None:
            places = self._noted_among(member, kind, column, shape, objects)
            alike.noted.update(alike.numbers[place] for place in places)
        if not member.attributes:
            if kind is not str and member.raw == TYPE:
                raise _Refused
        elif kind is str:
            known = member.texts.get
            for cells, value in zip(alike.cells, column, strict=True):
                cell = known(value)
                if cell is None:
                    self._look(len(value))
                    cell = self._text(member, value)
                cells.update(cell)
        elif kind is bool:
            for cells, value in zip(alike.cells, column, strict=True):
                cells.update(self._cell(member, value, None))
        else:
            for cells, value, data in zip(alike.cells, map(float, column), objects, strict=True):
                if member.numbers is None:
                    self._look()
                    cells.update(self._number(member, value, shape, data))
                else:
                    for each in member.numbers:
                        cells[each] = (value,)

    def _lists(
        self,
        member: _Member,
        column: Sequence[Sequence[Any]],
        shape: _Shape,
        objects: Sequence[Mapping[str, Any]],
        depth: int,
        alike: _Alike,
    ) -> None:
        """Reads the arrays of texts and numbers that the events have under one name, all of them empty or none."""
        longest = max(column, key=len)
        self._enter(longest, depth)
        if not longest:
            return
        alike.presents.append(member.present)
        if len(longest) == 1 and all(column):
            only = [items[0] for items in column]
            kind, places = _kind_of(only)
            if kind not in ITEMS or places is not None:
                raise _Refused
            self._scalars(member, kind, only, shape, objects, alike)
            return
        for number, (cells, items, data) in enumerate(zip(alike.cells, column, objects, strict=True)):
            if not items or not ITEMS.issuperset(map(type, items)):
                raise _Refused
            several: dict[ColumnId, dict[Key, None]] = {}
            for item in items:
                if member.attributes and type(item) is str and item not in member.texts:
                    self._look(len(item))
                if (member.attributes or type(item) is not str) and (cell := self._item(member, item, shape, data)):
                    _merge(several, cell)
                if alike.noted is not None and self._noted_among(member, type(item), [item], shape, [data]):
                    alike.noted.add(number)
            if several:
                cells.update((each, tuple(keys)) for each, keys in several.items())

    def _noted_among(
        self, member: _Member, kind: type, values: Sequence[Any], shape: _Shape, objects: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Returns the indexes of scalars of one type about which there are notes."""
        looked_at: Iterable[int] = range(len(values))
        if member.sibling is None:
            if kind is str:
                known, plain = member.noted.get, self._plain if member.is_plain else ()
                looked_at = (each for each in looked_at if known(values[each]) != () and values[each] not in plain)
                is_noted = not member.unnoted
            elif kind is bool:
                is_noted = member.no_booleans
            else:
                is_noted = member.is_measured or self._lacks_unit(member)
            if not is_noted:
                return []
        noted: list[int] = []
        for each in looked_at:
            if kind is not str:
                self._look()
            elif values[each] not in member.noted:
                self._look(len(values[each]))
            unit = shape.unit_beside(member, objects[each], self.canonicaliser.names)
            if self._noted(member, values[each], unit):
                noted.append(each)
        return noted

    def _look(self, length: int = 0) -> None:
        """Must be called before a look at a value that is not cached. Raises `_Refused` for a long text, and if no time
        is left."""
        if length > LONGEST or time.perf_counter() > self._until:
            raise _Refused

    # ── arrays and nodes ────────────────────────────────────────────────────────────────────────────────────────

    def _array(
        self,
        shape: _Shape,
        data: Mapping[str, Any],
        depth: int,
        member: _Member,
        items: Sequence[Any],
        groups: list[_Group],
        several: dict[ColumnId, dict[Key, None]],
        presents: list[Present],
    ) -> None:
        """Reads the scalars of an array. Appends the attributes that the array makes present to `presents`."""
        self._enter(items, depth)
        scalars = objects = False
        for value in items:
            kind = type(value)
            if kind in ITEMS:
                cell = self._item(member, value, shape, data)
                scalars = True
            elif kind is Resource or kind is TypedText:
                cell = self._cell(member, value, None)
                scalars = True
            elif kind is Node:
                objects = True
                groups.append((self._shape(member, value), value, depth + 1, None, ()))
                self._node(member, value, several, presents)
                continue
            elif kind is dict:
                objects = True
                inner, some = self._shape(member, value), value
                if inner.has_more:
                    inner, some = self._with_values(member, inner, value)
                quantity = None if inner.unit is None else self._quantity(inner, some)
                if quantity is None:
                    groups.append((inner, some, depth + 1, None, ()))
                    continue
                self._enter(value, depth + 1)
                presents.append(inner.whole)
                cell = quantity
            elif kind is list or kind is tuple:
                groups.append((shape, data, depth + 1, member, value))
                continue
            elif kind is bool:
                cell = self._cell(member, value, None)
                scalars = True
            elif value is None:
                continue
            else:
                raise _Refused
            if cell:
                _merge(several, cell)
        if scalars:
            presents.append(member.present)
        if objects:
            presents.append(member.elements)

    def _item(self, member: _Member, value: Any, shape: _Shape, data: Mapping[str, Any]) -> Cell:
        """Returns the keys of a text or number in an array. The only item of an array is read as if it stood alone."""
        kind = type(value)
        if kind is str:
            known = member.texts.get(value)
            return self._text(member, value) if known is None else known
        if not -EXACT < value < EXACT and (kind is int or value - value != 0.0):
            raise _Refused
        number, columns = float(value), member.numbers
        if columns is None:
            return self._number(member, number, shape, data)
        return dict.fromkeys(columns, (number,)) if columns else NOTHING

    def _node(
        self, member: _Member, node: Node, several: dict[ColumnId, dict[Key, None]], presents: list[Present]
    ) -> None:
        """Reads the value that a node of a graph has under its own name."""
        shape = self._shape(member, node)
        stated = self.canonicaliser.stated_by(node) if shape.may_state else None
        if stated is not None:
            number = None if stated.number is None else shape.members[shape.names.index(stated.number)]
            if number is not None and number.attributes:
                raise _Refused  # its number is read with the unit
            presents.append(member.present)
            cell = self._read(member.attributes, stated.scalar, None) if member.attributes else NOTHING
        elif node.value is not None:
            presents.append(member.present)
            cell = self._cell(member, node.value, None)
        else:
            return
        if cell:
            _merge(several, cell)

    def _enter(self, container: Any, depth: int) -> None:
        """Raises `_Refused` if a container exceeds the maximum depth or the maximum number of values of an event."""
        self._left -= len(container)
        if self._left < 0 or (depth >= self._limits.depth and container):
            raise _Refused

    def _checked(self, data: Mapping[str, Any], context: Mapping[str, Any]) -> list[Note]:
        """Returns the notes about the types of an event. Raises `InvalidEvent` if the data does not fit the types, and
        `_Refused` if a subscription uses a derived attribute of such events."""
        said, own = [context.get("type")], data.get(TYPE)
        said += own if isinstance(own, list | tuple) else [own]
        typed = self.canonicaliser.typed
        said = [typed.type_name(each.iri or "") if type(each) is Resource else each for each in said]
        texts = frozenset(each for each in said if type(each) is str)
        known = self._types.get(texts)
        if known is None:
            types = typed.types_of(texts)
            derives = any(map(self._lowering.may_ask, typed.derived(types)))
            derives = derives or bool(typed.stated(types))
            known = types, derives
            if sum(map(len, texts)) <= LONGEST:
                self._count(1)
                self._types[texts] = known
        types, derives = known
        if derives or any(isinstance(each, list | tuple) for each in said):
            raise _Refused
        notes: list[Note] = []
        if type(data) is not Node:  # a graph was checked in the form in which it was published
            typed.check(types, data, notes)
        return notes

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _shape(self, owner: _Member, data: Mapping[Any, Any]) -> _Shape:
        """Returns the shape of an object under `owner`. Raises `_Refused`."""
        if owner.states:
            raise _Refused
        names = tuple(data)
        try:
            return owner.shapes[names]
        except KeyError:
            if len(names) > MANY_NAMES:
                self._enter_large(2 * len(names))
            members = tuple(self._member(owner, each) for each in names)
            shape = owner.shapes[names] = _Shape(owner, names, members, owner not in (self._root, self._context))
            self._count(len(names) + 1)
            return shape

    def _enter_large(self, more: int) -> None:
        """Counts what is about to be cached of a large object. Raises `_Refused` if that would be too much."""
        if self._kept_of_large + more > MOST_OF_LARGE:
            self._large_refused += 1
            if self._large_refused < LARGE_REFUSED or more > MOST_OF_LARGE:
                raise _Refused
            self._forget()
        if self._kept + more > REMEMBERED:  # now, and not between its names
            self._forget()
        self._kept_of_large += more

    def _with_values(self, owner: _Member, shape: _Shape, data: dict[Any, Any]) -> tuple[_Shape, dict[Any, Any]]:
        """Returns an object that may be a quantity, and its shape, without members that are null. Raises `_Refused`."""
        if any(value is None for value in data.values()):
            data = without_nulls(data)
            shape = self._shape(owner, data)
        return shape, data

    def _member(self, owner: _Member, name: Any) -> _Member:
        is_top = owner is self._root
        if type(name) is not str or (is_top and (name == CONTEXT or name.startswith(f"{CONTEXT}."))):
            raise _Refused
        raw = name if is_top else f"{owner.raw}.{name}"
        if len(raw) > (LONGEST if "<" not in raw else LONGEST_OF_IRIS) or raw.count(".") > self._limits.depth:
            raise _Refused
        member = self._names.get(raw)
        if member is None:
            names = self.canonicaliser.names(raw)
            if raw == TYPE:  # these texts are also types of the event (rule 1)
                names = tuple(dict.fromkeys((*names, *self.canonicaliser.names("ce.type"))))
            if self._lowering.aggregates(names):
                raise _Refused
            asked = {each: number for each in names if (number := self._lowering.known(each)) is not None}
            member = _Member(raw, names, asked)
            arrays = (self._lowering.known(elements_of(each)) for each in self.canonicaliser.names(raw))
            member.elements = frozenset(each for each in arrays if each is not None)
            declarations = [self.canonicaliser.declaration(each) for each in names]
            member.states = self.canonicaliser.is_stating(names[0])
            member.is_plain = declarations.count(None) == len(names) and not any(map(self._lowering.readings, names))
            member.unnoted = self.has_no_notes(raw)
            member.is_measured = any(
                each is not None and (each.unit is not None or each.kind in ("instant", "version", "ip"))
                for each in declarations
            )
            member.no_booleans = any(each is not None and each.kind in KINDS_IN_WORDS for each in declarations)
            declared = declarations[0]
            if declared is not None and declared.unit_from is not None:
                member.sibling = declared.unit_from.rpartition(".")[2]
            if raw == TYPE or (member.sibling is not None and member.attributes):
                member.numbers = None
            self._names[raw] = member
            self._count(1)
        return member

    def _without(self, shape: _Shape, gaps: tuple[_Member, ...]) -> Present:
        """Returns the attributes that `shape` makes present if the members `gaps` have no scalar value."""
        found = shape.gaps.get(gaps)
        if found is None:
            if shape.alone:
                found = shape.present.difference(*(each.present for each in gaps))
            else:
                missing = set(gaps)
                found = NONE.union(*(each.present for each in shape.members if each not in missing))
            size = len(gaps) + len(found)
            if size <= MOST_TOGETHER:
                self._count(1 + size // 4)
                shape.gaps[gaps] = found
        return found

    def _union(self, presents: list[Present]) -> Present:
        if len(presents) == 1:
            return presents[0]
        key = tuple(presents)
        found = self._unions.get(key)
        if found is None:
            found = NONE.union(*key)
            size = len(key) + sum(map(len, {*key})) + len(found)
            if size <= MOST_TOGETHER:
                self._count(1 + size // 4)
                self._unions[key] = found
        return found

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, member: _Member, value: float, shape: _Shape, data: Mapping[str, Any]) -> Cell:
        """Returns the keys of a number if the columns of its name do not, or may not, take it unchanged."""
        if member.raw == TYPE:
            raise _Refused
        if not member.attributes:
            return NOTHING
        unit = shape.unit_beside(member, data, self.canonicaliser.names)
        key = unit or ""
        try:
            measured = member.units[key]
        except KeyError:
            measured = self._tables.measured(member.raw, unit)
            if len(key) <= LONGEST:
                self._count(1)
                member.units[key] = measured
        if member.sibling is None:
            member.numbers = _as_it_is(measured)
        found = self._measure(measured, value)
        return self._cell(member, value, unit) if found is None else found

    def _measure(self, measured: Measured | None, value: float) -> Cell | None:
        """Returns the keys of a number in its columns; None if the number must be read by itself."""
        if measured is None:
            return None
        try:
            return {
                column: (value if unit is None else self._units.measure(value, unit).amount,)
                for column, unit in measured
            }
        except SemanticError:
            return None

    def _text(self, member: _Member, value: str) -> Cell:
        if not member.attributes:
            return NOTHING
        if member.sibling is not None and is_number_in_text(self.canonicaliser.declaration(member.names[0]), value):
            raise _Refused
        cell = self._read(member.attributes, value, None)
        if len(value) <= LONGEST:
            self._count(_places(cell))
            member.texts[value] = cell
        return cell

    def _cell(self, member: _Member, value: Any, unit: str | None) -> Cell:
        if member.raw == TYPE and type(value) is not Resource:
            raise _Refused
        if not member.attributes:
            return NOTHING
        key = type(value), value, unit
        cell = member.cells.get(key)
        if cell is None:
            cell = self._read(member.attributes, value, unit)
            if unit is None or len(unit) <= LONGEST:
                self._count(_places(cell))
                member.cells[key] = cell
        return cell

    def _quantity(self, shape: _Shape, data: Mapping[str, Any]) -> Cell | None:
        """Returns the keys of an object that is a quantity (rule 15); None if it is not one. Raises `_Refused`."""
        number, unit = data["value"], data[shape.unit or ""]
        kind = type(number)
        if type(unit) is not str or not (kind is float or kind is int):
            return None
        if not -EXACT < number < EXACT and (kind is int or number - number != 0.0):
            raise _Refused
        known = shape.quantities.get(unit) or self._known_quantity(shape, unit)
        value = float(number)
        if known.numbers is not None:
            cell: Cell | None = dict.fromkeys(known.numbers, (value,))
        else:
            cell = self._measure(known.measured, value)
        if cell is not None:
            return {**cell, **known.fixed} if known.fixed else cell
        found = known.cells.get(value)
        if found is None:
            found = self._read_quantity(shape, value, unit, known.fixed)
            self._count(1)
            known.cells[value] = found
        return found

    def _known_quantity(self, shape: _Shape, unit: str) -> _Quantity:
        if shape.owner.raw == TYPE:
            raise _Refused
        known = _Quantity((), NOTHING)
        if shape.whole:
            fixed = self._text(shape.members[shape.names.index(shape.unit or "")], unit)
            whole = self._tables.measured(shape.owner.raw, unit, quantities=True)
            value = self._tables.measured(f"{shape.owner.raw}.value", unit)
            measured = None if whole is None or value is None else (*whole, *value)
            columns = [*fixed, *(column for column, _ in measured or ())]
            known = _Quantity(measured if len(set(columns)) == len(columns) else None, fixed)
        if len(unit) <= LONGEST:
            self._count(1)
            shape.quantities[unit] = known
        return known

    def _read_quantity(self, shape: _Shape, number: float, unit: str, fixed: Cell) -> Cell:
        found: dict[ColumnId, dict[Key, None]] = {}
        whole = QuantityObject(number, unit, {"value": number, shape.unit or "": unit})
        _merge(found, self._read(shape.owner.attributes, whole, None))
        _merge(found, self._read(shape.members[shape.names.index("value")].attributes, number, unit))
        _merge(found, fixed)
        return {column: tuple(keys) for column, keys in found.items()}

    def _read(self, attributes: Iterable[str], value: Any, unit: str | None) -> Cell:
        return read_plain(self.canonicaliser, self._lowering, attributes, value, unit)

    # ── notes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _values(self, groups: list[_Group]) -> Iterator[tuple[_Member, Any, str | None]]:
        """Yields the values about which a note is possible, each with the unit from a sibling attribute: texts,
        booleans, quantities, and numbers that have or lack a unit. Texts without notes are left out if that is
        cached."""
        names, plain = self.canonicaliser.names, self._plain
        for shape, data, depth, array, items in groups:
            pairs = zip(shape.members, data.values(), strict=True) if array is None else zip(repeat(array), items)
            for member, value in pairs:
                kind = type(value)
                if kind is str:
                    unit = None if member.sibling is None else shape.unit_beside(member, data, names)
                    is_known = member.noted.get(value) == () or (member.is_plain and value in plain)
                    if unit or (not is_known and not member.unnoted):
                        yield member, value, unit
                elif kind is TypedText:
                    yield member, value.text, None
                elif kind is bool:
                    if member.no_booleans:
                        yield member, value, None
                elif kind is Node:
                    inner = self._shape(member, value)
                    groups.append((inner, value, depth + 1, None, ()))
                    stated = self.canonicaliser.stated_by(value) if inner.may_state else None
                    if stated is not None:
                        yield member, stated.scalar, None
                elif kind is int or kind is float:
                    unit = None if member.sibling is None else shape.unit_beside(member, data, names)
                    if unit or member.is_measured or self._lacks_unit(member):
                        yield member, value, unit
                elif kind is dict:
                    inner = self._shape(member, value)
                    if inner.has_more:
                        inner, value = self._with_values(member, inner, value)
                    quantity = None if inner.unit is None else as_quantity(value)
                    if quantity is None:
                        groups.append((inner, value, depth + 1, None, ()))
                    else:
                        yield from _values_of_quantity(member, inner, quantity)
                elif kind is list or kind is tuple:
                    groups.append((shape, data, depth + 1, member, value))

    def _noted(self, member: _Member, value: Any, unit: str | None) -> tuple[Note, ...]:
        """Returns the notes about one value."""
        kind = type(value)
        is_kept = kind not in OBJECTS  # these contain an object, which cannot be hashed
        key = value if unit is None and kind is str else (kind, value, unit)  # True equals 1
        if kind is QuantityObject:
            is_kept, key = len(value.unit) <= LONGEST, (kind, value.value, value.unit)
        known = member.noted.get(key) if is_kept else None
        if known is not None:
            return known
        if type(value) is str and member.is_plain and self._is_plain(value):
            return ()
        notes: list[Note] = []
        vocabulary, readings = self.canonicaliser.vocabulary, self._lowering.readings
        for name in member.names:
            read = self.canonicaliser.read(name, value, unit, notes)
            if name == member.names[0] or readings(name):
                notes.extend(advice_on_value(name, read, vocabulary, readings(name), unit))
        found = tuple(dict.fromkeys(notes))
        if is_kept and (type(key) is not str or len(key) <= LONGEST):
            self._count(1)
            member.noted[key] = found
        return found

    def _is_plain(self, published: str) -> bool:
        """Whether a text means no concept and does not look like a quantity. Under a plain attribute there are no notes
        about such a text. Takes a fraction of the time of reading it."""
        text, vocabulary = nfc(published), self.canonicaliser.vocabulary
        units = vocabulary.units
        if units.parse(published) is not None or (text != published and units.parse(text) is not None):
            return False
        if says_what_to_write(not_a_quantity(text, units.knows)) or vocabulary.resolve(text).candidates:
            return False
        if len(published) <= LONGEST:
            if len(self._plain) >= PLAIN:
                self._plain.clear()
            self._plain.add(published)
        return True

    # ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, more: int) -> None:
        self._kept += more
        if self._kept > REMEMBERED:
            self._forget()
            self._kept = more

    def _forget(self) -> None:
        self._asked = self._lowering.asked
        self._names.clear()
        self._unions.clear()
        self._types.clear()
        self._root.shapes.clear()
        self._context.shapes.clear()
        self._tables.renew()
        self._kept = self._kept_of_large = self._large_refused = 0


def _values_of_quantity(
    member: _Member, shape: _Shape, quantity: QuantityObject
) -> Iterator[tuple[_Member, Any, str | None]]:
    """Yields the values of an object that is a quantity, each with its unit: the object and its two members."""
    place = shape.names.index("value")
    yield member, quantity, None
    yield shape.members[place], quantity.value, quantity.unit
    yield shape.members[1 - place], quantity.unit, None


def _copy(value: Any) -> Any:
    """Returns `value` with copies of all objects and arrays. The recursion is bounded by the depth limit."""
    if isinstance(value, dict):
        return {key: _copy(each) if isinstance(each, dict | list) else each for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def _places(cell: Cell) -> int:
    """Returns how many cached values a cell counts as: several if an ambiguous text means very many concepts."""
    return 1 + sum(map(len, cell.values())) // 8


def _merge(several: dict[ColumnId, dict[Key, None]], cell: Cell) -> None:
    for column, keys in cell.items():
        several.setdefault(column, {}).update(dict.fromkeys(keys))


def _as_it_is(measured: Measured | None) -> tuple[ColumnId, ...] | None:
    """Returns the columns of a number if all of them take it unchanged; otherwise None."""
    if measured is None or any(unit is not None for _, unit in measured):
        return None
    return tuple(column for column, _ in measured)
