"""Results of matching: matches of one event, of a batch or of a table; undecided candidates; counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from kindcast.semantic.model import Match, SubscriptionSlot
from kindcast.semantic.operators.bindings import reported
from kindcast.semantic.operators.failures import Failure
from kindcast.semantic.subscriptions.subscription_table import NamesView, SlotNames
from kindcast.semantic.units import Units

__all__ = [
    "Bindings",
    "Decided",
    "Found",
    "MatchTable",
    "Matches",
    "Statistics",
    "TablePart",
    "Undecided",
    "ascending",
    "matches_of",
    "part_of",
    "table_of",
    "undecided_of",
]


@dataclass(slots=True)
class Statistics:
    """What a matcher has done: events seen, rows that its engine returned, matches after verification, clauses that no
    one could decide because an operator failed; and, by operator predicate, how often it was asked."""

    events: int = 0
    candidates: int = 0
    matches: int = 0
    undecided: int = 0
    evaluations: Counter[str] = field(default_factory=Counter)


Failures = Mapping[SubscriptionSlot, Failure]
"""Undecided slots, with the reason for each."""


@dataclass(frozen=True, slots=True)
class MatchTable:
    """The matches of events: event `i` matched `slots[offsets[i] : offsets[i + 1]]`, each once, in no order.

    `offsets` is `int64[events + 1]`, `slots` is `int32[matches]`; `bindings` is None where no match has any, else those
    of each match, and `truncated` are the matches that had more. `undecided` tells of events, by their number, which
    slots may match: they hang on operators that failed or were not asked.
    """

    offsets: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    bindings: list[Any] | None
    _names: Mapping[int, str] = field(repr=False)
    truncated: frozenset[int] = frozenset()
    undecided: Mapping[int, Failures] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def names(self) -> Mapping[int, str]:
        """Slot → id, of every subscription."""
        return self._names

    def subscriptions(self, slots: Iterable[int]) -> list[str]:
        """The ids of subscriptions by their slots."""
        return [self._names[int(slot)] for slot in slots]


@dataclass(frozen=True, slots=True)
class TablePart:
    """The matches of some events, one after the other, as `MatchTable` has them."""

    offsets: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    bindings: list[Any] | None = None
    truncated: frozenset[int] = frozenset()
    undecided: Mapping[int, Failures] = field(default_factory=dict)


def part_of(found: Sequence["Found"], units: Units) -> TablePart:
    """What was found for one event after the other."""
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([len(each.slots) for each in found], out=offsets[1:])
    slots = np.concatenate([np.zeros(0, dtype=np.int32), *(each.slots for each in found)])
    undecided = {number: each.undecided for number, each in enumerate(found) if each.undecided}
    if not any(each.bindings for each in found):
        return TablePart(offsets, slots, undecided=undecided)
    told = [reported(each.bindings.get(slot, ()), units) for each in found for slot in each.slots.tolist()]
    truncated = frozenset(number for number, (_, more) in enumerate(told) if more)
    return TablePart(offsets, slots, [bindings for bindings, _ in told], truncated, undecided)


def table_of(parts: Iterable[TablePart], events: int, names: Mapping[int, str]) -> MatchTable:
    """The parts of a table of so many events, in one. Each is let go when it is copied: its memory then serves the
    next."""
    offsets = np.zeros(events + 1, dtype=np.int64)
    slots = np.zeros(0, dtype=np.int32)
    bindings: list[Any] | None = None
    truncated: set[int] = set()
    undecided: dict[int, Failures] = {}
    at, used = 0, 0
    for part in parts:
        count = part.offsets.size - 1
        offsets[at + 1 : at + count + 1] = part.offsets[1:] + used
        if part.bindings is not None and bindings is None:
            bindings = [()] * used
        if bindings is not None:
            bindings += part.bindings or [()] * part.slots.size
        truncated.update(number + used for number in part.truncated)
        undecided.update((number + at, reasons) for number, reasons in part.undecided.items())
        if at == 0 and count == events:
            slots = part.slots
        else:
            if used + part.slots.size > slots.size:  # as many for the events to come as so far, and an eighth
                expected = (used + part.slots.size) * events // max(at + count, 1)
                larger = np.empty(expected + expected // 8, dtype=np.int32)
                larger[:used] = slots[:used]
                slots = larger
            slots[used : used + part.slots.size] = part.slots
        at, used = at + count, used + part.slots.size
    return MatchTable(offsets, slots[:used], bindings, names, frozenset(truncated), undecided)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A subscription that may match: it hangs on an operator that has no answer."""

    subscription: str
    failure: Failure

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.failure.reason


@dataclass(frozen=True, slots=True)
class Decided:
    """The result for one event: who gets it, and which subscriptions are undecided."""

    matches: list[Match]
    undecided: list[Undecided]


Bindings = Mapping[SubscriptionSlot, list[dict[str, Any]]]
"""The joined bindings of subscriptions with variables."""


@dataclass(slots=True)
class Found:
    """The slots that one event matches, ascending: `int32[matches]`."""

    slots: npt.NDArray[np.int32]
    bindings: Bindings = field(default_factory=dict)
    undecided: dict[SubscriptionSlot, Failure] = field(default_factory=dict)


def ascending(slots: Iterable[SubscriptionSlot]) -> npt.NDArray[np.int32]:
    """Slots as `Found` has them."""
    return np.array(sorted(slots), dtype=np.int32)


def matches_of(found: Found, names: SlotNames | NamesView, units: Units) -> list[Match]:
    """The matches of one event."""
    if not found.bindings:
        return names.matches(found.slots)
    bindings = found.bindings
    slots: list[SubscriptionSlot] = found.slots.tolist()
    return [Match(names[slot], *reported(bindings.get(slot, ()), units)) for slot in slots]


def undecided_of(failures: Failures, names: SlotNames | NamesView) -> list[Undecided]:
    """What no one could decide of one event, in the order of the slots."""
    return [Undecided(names[slot], failures[slot]) for slot in sorted(failures)]


class Matches(Sequence[list[Match]]):
    """The matches of a batch, event by event; lists and `Match` objects are made when an item is read."""

    def __init__(self, table: MatchTable, names: NamesView) -> None:
        """`names` are those of the table; the slots of each of its events ascend."""
        self.table = table
        self._names = names

    def __len__(self) -> int:
        return len(self.table)

    def undecided(self, index: int) -> list[Undecided]:
        """What no one could decide of the event at `index`, because an operator failed or was not asked."""
        return undecided_of(self.table.undecided.get(range(len(self))[index], {}), self._names)

    @overload
    def __getitem__(self, index: int) -> list[Match]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Match]]: ...
    def __getitem__(self, index: int | slice) -> list[Match] | list[list[Match]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        table, number = self.table, range(len(self))[index]
        low, high = table.offsets[number : number + 2].tolist()
        if table.bindings is None:
            return self._names.matches(table.slots[low:high])
        return [
            Match(self._names[slot], table.bindings[at], at in table.truncated)
            for at, slot in enumerate(table.slots[low:high].tolist(), low)
        ]
