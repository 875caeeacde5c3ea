"""The subscription table of a matcher: the slot, rows, tree and notes of each subscription.

    name ──▶ slot, its first row ──▶ its further rows, one after the other
             slot ──▶ its tree: an index into a `Part` of many trees of one shape, or JSON of its own; its notes
             row  ──▶ the slot it belongs to; whether it has residual predicates

The table consists of flat arrays and shared parts, so a subscription costs its name and a few bytes. A part is kept
while a tree uses it.

Trees of one shape are stored in columns, one narrow column for each constant, and are rebuilt from them:

    ConstantColumn   numbers as they were written (5 is not 5.0), or texts, each distinct one once
    Part             a skeleton {"all": [{"<=": ["price", {"slot": 0}]}]} and a column for each slot
"""

import json
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kindcast.semantic.errors import DuplicateSubscription, UnknownSubscription
from kindcast.semantic.language.tree import filled, filler
from kindcast.semantic.model import Match, Note, SubscriptionSlot

__all__ = [
    "LATER",
    "ConstantColumn",
    "NamesView",
    "NumberColumn",
    "OwnTrees",
    "Part",
    "SlotNames",
    "SubscriptionTable",
    "TextColumn",
    "joined",
    "narrowed",
    "number_column",
    "packed",
]


Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of n numbers. `values` are integers if all were written as integers, otherwise doubles. `whole`
    (`uint8[n]`, or empty if none) marks the doubles that were written as integers."""

    values: Array
    whole: Array

    def __getitem__(self, place: int) -> int | float:
        value: int | float = self.values[place].item()
        return int(value) if self.whole.size and self.whole[place] else value

    def listed(self) -> list[int | float]:
        """Returns all numbers."""
        values: list[int | float] = self.values.tolist()
        if self.whole.size:
            return [int(value) if whole else value for value, whole in zip(values, self.whole.tolist(), strict=True)]
        return values

    def taken(self, places: Array) -> "NumberColumn":
        """Returns the numbers at `places`."""
        return NumberColumn(self.values[places], self.whole[places] if self.whole.size else self.whole)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.whole.nbytes


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of n texts: `texts[places[i]]`. Columns may share their texts."""

    places: Array
    texts: Sequence[str]

    def __getitem__(self, place: int) -> str:
        return self.texts[int(self.places[place])]

    def listed(self) -> list[str]:
        """Returns all texts."""
        return [self.texts[place] for place in self.places.tolist()]

    def taken(self, places: Array) -> "TextColumn":
        """Returns the texts at `places`."""
        return TextColumn(self.places[places], self.texts)

    @property
    def nbytes(self) -> int:
        """The size in bytes, without the texts."""
        return self.places.nbytes


ConstantColumn = NumberColumn | TextColumn


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """n trees of one shape. Immutable."""

    skeleton: Any
    columns: tuple[ConstantColumn, ...]

    def tree(self, place: int) -> dict[str, Any]:
        """Returns tree number `place`. Takes some µs."""
        tree: dict[str, Any] = filled(self.skeleton, [column[place] for column in self.columns])
        return tree

    def taken(self, places: Array) -> "Part":
        """Returns the trees at `places`."""
        return Part(self.skeleton, tuple(column.taken(places) for column in self.columns))

    def trees(self) -> Iterator[dict[str, Any]]:
        """Yields all trees in order, without end if they have no constants."""
        rows = zip(*(column.listed() for column in self.columns), strict=True) if self.columns else repeat(())
        return map(filler(self.skeleton), rows)

    @property
    def nbytes(self) -> int:
        """The size of the columns in bytes."""
        return sum(column.nbytes for column in self.columns)


def number_column(written: Sequence[int | float], values: npt.NDArray[np.float64]) -> NumberColumn:
    """Returns the column of the numbers `written`; `values` are the same numbers as doubles, exactly."""
    none = np.zeros(0, dtype=np.uint8)
    types = set(map(type, written))
    if types == {int}:
        return NumberColumn(narrowed(values.astype(np.int64)), none)
    if types <= {float}:
        return NumberColumn(values, none)
    return NumberColumn(values, np.array([type(each) is int for each in written], dtype=np.uint8))


def joined(columns: Sequence[ConstantColumn]) -> ConstantColumn:
    """Concatenates columns of one slot. Columns of texts must share their texts."""
    if len(columns) == 1:
        return columns[0]
    first = columns[0]
    if isinstance(first, TextColumn):
        return TextColumn(narrowed(np.concatenate([each.places for each in _texts(columns)])), first.texts)
    numbers = [each for each in columns if isinstance(each, NumberColumn)]
    values = np.concatenate([each.values for each in numbers])
    if values.dtype.kind != "f":
        return NumberColumn(values, np.zeros(0, dtype=np.uint8))
    whole = np.concatenate([_whole(each) for each in numbers])
    return NumberColumn(values, whole if whole.any() else whole[:0])


def narrowed(whole: Array) -> Array:
    """Returns the same integers in the narrowest type that holds them."""
    if not whole.size:
        return whole.astype(np.uint8)
    low, high = int(whole.min()), int(whole.max())
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return whole.astype(dtype)
    return whole.astype(np.int64)


def _texts(columns: Iterable[ConstantColumn]) -> list[TextColumn]:
    return [each for each in columns if isinstance(each, TextColumn)]


def _whole(column: NumberColumn) -> Array:
    if column.values.dtype.kind != "f":
        return np.ones(column.values.size, dtype=np.uint8)
    return column.whole if column.whole.size else np.zeros(column.values.size, dtype=np.uint8)


# The names of subscriptions by slot, also for results that are read later.
#
# A result holds slots. When it is read, a slot may belong to another subscription. So results look up names in a
# `NamesView`. When a slot is reused, its old name is stored in the views; until then a view costs nothing.

KEPT = 1 << 20
"""The `Match` objects of the first `KEPT` slots are created in advance, because an event may match hundreds, and
looking one up costs a tenth of creating it. They take 48 bytes each, 50 MB at most."""


class NamesView(Mapping[int, str]):
    """Slot → name, as it was when this view was created."""

    __slots__ = ("__weakref__", "_now", "_owner", "past")
    __hash__ = object.__hash__

    def __init__(self, owner: "SlotNames", now: list[str | None]) -> None:
        self._owner = owner
        self._now = now
        self.past: dict[int, str] = {}

    def __getitem__(self, slot: int) -> str:
        name = self.past.get(slot) or (self._now[slot] if 0 <= slot < len(self._now) else None)
        if name is None:
            raise KeyError(slot)
        return name

    def __iter__(self) -> Iterator[int]:
        return (slot for slot, name in enumerate(self._now) if name is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def matches(self, slots: npt.NDArray[np.int32]) -> list[Match]:
        """Returns the same as `SlotNames.matches`, with the names of this view."""
        if not self.past:
            return self._owner.matches(slots)
        return [Match(self[slot]) for slot in slots.tolist()]


class SlotNames:
    """Slot → the name of its subscription, or of its last subscription if the slot is free."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._matches = np.empty(0, dtype=object)
        self._views: weakref.WeakSet[NamesView] = weakref.WeakSet()

    def __getitem__(self, slot: int) -> str:
        name = self._names[slot]
        if name is None:
            raise KeyError(slot)
        return name

    def matches(self, slots: npt.NDArray[np.int32]) -> list[Match]:
        """Returns a match without bindings for each of `slots`, which must be in use and in ascending order. Costs some
        15 ns per slot among the first `KEPT`, and 100 ns above."""
        kept = self._matches
        if not slots.size or slots[-1] < kept.size:
            return cast(list[Match], kept.take(slots).tolist())
        split = int(np.searchsorted(slots, kept.size))
        names = map(cast(list[str], self._names).__getitem__, slots[split:].tolist())
        return [*kept.take(slots[:split]).tolist(), *map(Match, names)]

    def assign(self, slot: int, name: str) -> None:
        """Assigns `slot` to `name`. If the slot had a name, each view in use is updated."""
        if slot >= len(self._names):
            self._names += [None] * (slot + 1 - len(self._names))
        before = self._names[slot]
        if before is not None and before != name:
            for view in list(self._views):
                view.past.setdefault(slot, before)
        self._names[slot] = name
        if slot < KEPT:
            self._keep(slot + 1)
            self._matches[slot] = Match(name)

    def assign_many(self, slots: Sequence[int], names: Sequence[str]) -> None:
        """Assigns many slots. Fast if they are consecutive new slots."""
        start = len(self._names)
        if slots and slots[0] == start and slots[-1] == start + len(slots) - 1:
            self._names += names
            self._keep(len(self._names))
            for slot in slots[: max(KEPT - start, 0)]:
                self._matches[slot] = Match(names[slot - start])
            return
        for slot, name in zip(slots, names, strict=True):
            self.assign(slot, name)

    def restore(self, count: int, slots: Sequence[int], names: Sequence[str]) -> None:
        """Adds `count` slots, some of which have names. Only for a table that is not in use yet."""
        self._names += [None] * count
        self._keep(count)
        for slot, name in zip(slots, names, strict=True):
            self._names[slot] = name
            if slot < KEPT:
                self._matches[slot] = Match(name)

    def view(self) -> NamesView:
        """Returns a view of the current names."""
        view = NamesView(self, self._names)
        self._views.add(view)
        return view

    def _keep(self, count: int) -> None:
        """Makes room for the matches of the first `count` slots, up to `KEPT`. The room is at least doubled."""
        count = min(count, KEPT)
        if count > self._matches.size:
            wider = np.empty(min(max(count, 2 * self._matches.size), KEPT), dtype=object)
            wider[: self._matches.size] = self._matches
            self._matches = wider


class OwnTrees:
    """Trees that are stored one by one as JSON. Number i is `text[ends[i - 1] : ends[i]]`."""

    def __init__(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends

    def packed(self, place: int) -> bytes:
        """Returns the JSON of one tree."""
        begin = int(self._ends[place - 1]) if place else 0
        return self._text[begin : int(self._ends[place])].tobytes()


LATER = 2
"""Mark in `unsettled` for rows of a loaded table. Their residual predicates are determined when the row is a candidate
for the first time."""

Tree = Part | OwnTrees | bytes | None
"""The storage of the tree of a slot; None if the slot is free."""


def packed(tree: dict[str, Any]) -> bytes:
    """Returns a stored tree as compact JSON."""
    return json.dumps(tree, separators=(",", ":")).encode()


class SubscriptionTable:
    """Has a single owner; not thread-safe. Invariant: a slot in use is the first row of its subscription, and
    `further[row]` leads from there through its other rows to -1."""

    def __init__(self) -> None:
        self.slots: dict[str, SubscriptionSlot] = {}
        self.names = SlotNames()
        self.slot_of_row = array("i")
        """-1 for a free row."""
        self.further = array("i")
        self.unsettled = bytearray()
        """1 if the row has residual predicates, `LATER` if that is not determined yet."""
        self.asking = 0
        """The number of rows with a mark in `unsettled`."""
        self.calling: set[int] = set()
        """The rows that may call operators, so that they may depend on attributes that they do not name."""
        self.changes = 0
        """The number of subscriptions that were added or removed so far."""
        self.foreign = 0
        """The number of rows that differ from the slot of their subscription. 0 if every subscription has one
        clause."""
        self.trees: list[Tree] = []
        self.places = array("i")
        """Slot → the place of its tree in the part."""
        self._notes: dict[int, tuple[Note, ...]] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def slot(self, name: str) -> SubscriptionSlot:
        """Returns the slot of a subscription. Raises `UnknownSubscription`."""
        try:
            return self.slots[name]
        except KeyError:
            raise UnknownSubscription(name) from None

    def tree(self, slot: SubscriptionSlot) -> dict[str, Any]:
        """Returns the stored tree of a slot in use. Takes some µs."""
        kept = self.trees[slot]
        if isinstance(kept, Part):
            return kept.tree(self.places[slot])
        tree: dict[str, Any] = json.loads(self.packed(slot))
        return tree

    def packed(self, slot: SubscriptionSlot) -> bytes:
        """Returns the tree of a slot as JSON, if it is stored by itself."""
        kept = self.trees[slot]
        assert isinstance(kept, bytes | OwnTrees), (slot, kept)
        return kept if isinstance(kept, bytes) else kept.packed(self.places[slot])

    def notes(self, slot: SubscriptionSlot) -> tuple[Note, ...]:
        """Returns the notes that a subscription had when it was added."""
        return self._notes.get(slot, ())

    def rows(self, slot: SubscriptionSlot) -> Iterator[int]:
        """Yields the rows of a slot in use."""
        row: int = slot
        while row >= 0:
            yield row
            row = self.further[row]

    def check_new(self, name: str) -> None:
        """Raises `DuplicateSubscription` if `name` is in use, and TypeError if it is no text."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a subscription must be a text, not {type(name).__name__}")
        if name in self.slots:
            raise DuplicateSubscription(name)

    def new(self, subscriptions: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yields each (name, …). Raises as `check_new` at the first name that is wrong or given twice."""
        seen: set[str] = set()
        for name, expression in subscriptions:
            self.check_new(name)
            if name in seen:
                raise DuplicateSubscription(name)
            seen.add(name)
            yield name, expression

    def enter(self, name: str, rows: Sequence[int], tree: bytes, notes: tuple[Note, ...]) -> SubscriptionSlot:
        """Adds a subscription. Its slot is its first row, so slots need no search."""
        self.changes += 1
        slot = SubscriptionSlot(rows[0])
        self._reserve(max(rows) + 1)
        for row, after in zip(rows, (*rows[1:], -1), strict=True):
            self.slot_of_row[row] = slot
            self.further[row] = after
            self.foreign += int(row) != slot
        self.slots[name] = slot
        self.names.assign(slot, name)
        self.keep_tree(slot, tree, notes)
        return slot

    def enter_many(
        self, names: Sequence[str], rows: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """Adds many subscriptions. Each of `names` gets as many of `rows` as `counts` says, at least one. Returns their
        slots, `int32[n]`. Store their trees with `keep_part` and `keep_tree`."""
        if not rows.size:
            return rows
        self.changes += len(names)
        first = np.cumsum(counts) - counts
        slots: npt.NDArray[np.int32] = rows[first]
        owner = np.repeat(slots, counts)
        after = np.append(rows[1:], np.int32(-1))
        after[first[1:] - 1] = -1
        self._reserve(int(rows.max()) + 1)
        np.frombuffer(self.slot_of_row, dtype=np.int32)[rows] = owner
        np.frombuffer(self.further, dtype=np.int32)[rows] = after
        self.foreign += int(np.count_nonzero(owner != rows))
        listed = slots.tolist()
        self.slots.update(zip(names, listed, strict=True))
        self.names.assign_many(listed, names)
        return slots

    def keep_part(self, slots: npt.NDArray[np.int32], part: Part) -> None:
        """Stores the trees of `part`, in order, for these slots."""
        np.frombuffer(self.places, dtype=np.int32)[slots] = np.arange(slots.size, dtype=np.int32)
        trees = self.trees
        for slot in slots.tolist():
            trees[slot] = part

    def keep_tree(self, slot: int, tree: bytes, notes: tuple[Note, ...]) -> None:
        """Stores the tree and the notes of one slot."""
        self.trees[slot] = tree
        self.keep_notes(slot, notes)

    def keep_notes(self, slot: int, notes: tuple[Note, ...]) -> None:
        """Stores the notes of one slot."""
        if notes:
            self._notes[slot] = notes

    def mark(self, row: int, *, asked: bool, calls: bool = False) -> None:
        """Records whether a row in use has residual predicates, and whether one of them calls an operator."""
        self.asking += asked - (self.unsettled[row] != 0)
        self.unsettled[row] = asked
        if calls:
            self.calling.add(row)
        else:
            self.calling.discard(row)

    def leave(self, name: str) -> list[int]:
        """Removes a subscription and returns its rows. Raises `UnknownSubscription`."""
        slot = self.slot(name)
        rows = list(self.rows(slot))
        self.changes += 1
        for row in rows:
            self.slot_of_row[row] = -1
            self.further[row] = -1
            self.mark(row, asked=False)
            self.foreign -= row != slot
        self.trees[slot] = None
        self._notes.pop(slot, None)
        del self.slots[name]
        return rows

    def check_invariants(self) -> None:
        """Raises AssertionError if the table is inconsistent. Slow; for tests."""
        rows = {row: slot for slot in self.slots.values() for row in self.rows(slot)}
        assert rows == {row: slot for row, slot in enumerate(self.slot_of_row) if slot >= 0}, (rows, self.slot_of_row)
        assert self.foreign == sum(row != slot for row, slot in rows.items()), (self.foreign, rows)
        assert all(slot == next(self.rows(slot)) for slot in self.slots.values()), self.slots
        taken = {slot for slot, tree in enumerate(self.trees) if tree is not None}
        assert taken == set(self.slots.values()), (taken, self.slots)
        assert self._notes.keys() <= taken, (self._notes, taken)
        assert {self.names[slot]: slot for slot in taken} == self.slots, self.slots
        asking = {row for row, mark in enumerate(self.unsettled) if mark}
        assert asking <= rows.keys(), (asking, rows)
        assert self.asking == len(asking), (self.asking, asking)
        assert self.calling <= asking, (self.calling, asking)

    def _reserve(self, rows: int) -> None:
        more = rows - len(self.slot_of_row)
        if more > 0:
            free = np.full(more, -1, dtype=np.int32).tobytes()
            self.slot_of_row.frombytes(free)
            self.further.frombytes(free)
            self.places.frombytes(bytes(4 * more))
            self.unsettled.extend(bytes(more))
            self.trees += [None] * more
