"""The whole publish path on one page: which subscriptions does an event match?

    event ──canonicalise──▶ readings ──lower──▶ integers ──engine──▶ rows that may match ──verify──▶ matches

docs/matching-semantics.md says what a match is. The engine is exact for all that a column can decide; the few atoms
that none can (text tests, two attributes compared, one element of an array) are verified on the rows it returns.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from index.clause import ClauseRow
from index.engines import new_engine
from semantic.canonicalise import Canonicaliser, EventLimits
from semantic.compilation import Compiled, compile_expression, restore_expression
from semantic.errors import DuplicateSubscription, UnknownSubscription
from semantic.evaluation import AtomEvaluator
from semantic.lowering import Lowering
from semantic.model import CanonicalEvent, Event, Match, SubscriptionSlot
from semantic.table import TableLowering
from semantic.vocabulary import Vocabulary

__all__ = ["MatchTable", "Matcher", "Matches", "Statistics"]

BATCH = 1_000
"""Events lowered and matched in one call of the engine: enough to spread its overhead, few enough to stay in the
cache."""


@dataclass(slots=True)
class Statistics:
    """What a matcher has done: events seen, rows that its engine returned, matches after verification."""

    events: int = 0
    candidates: int = 0
    matches: int = 0


@dataclass(frozen=True, slots=True)
class MatchTable:
    """The matches of a table: event `i` matched `slots[offsets[i] : offsets[i + 1]]`, ascending.

    `offsets` is `int64[events + 1]`, `slots` is `int32[matches]`; `bindings` is None where no subscription has
    variables.
    """

    offsets: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    bindings: list[Any] | None
    _names: Mapping[int, str] = field(repr=False)

    def subscriptions(self, slots: Iterable[int]) -> list[str]:
        """The ids of subscriptions by their slots."""
        return [self._names[int(slot)] for slot in slots]


@dataclass(slots=True)
class _Stored:
    """A subscription in its slot, and where the engine keeps its clauses."""

    name: str
    compiled: Compiled
    rows: list[ClauseRow]


class Matcher:
    """Subscriptions under one vocabulary, and the events that match them.

    Exact by docs/matching-semantics.md. One thread at a time: a matcher has one owner. `add` costs the parsing of the
    expression and a few steps of the engine; `match` costs reading the event, one walk of the engine and the
    verification of what it returns.

    >>> from semantic import Matcher, Vocabulary
    >>> matcher = Matcher(Vocabulary.from_ontologies([]))
    >>> compiled = matcher.add("cheap", "price <= 400")
    >>> matcher.match({"price": 350})
    [Match(subscription='cheap', bindings=(), bindings_truncated=False)]
    """

    def __init__(self, vocabulary: Vocabulary, *, engine: str = "ctps", limits: EventLimits | None = None) -> None:
        """Raises `index.errors.UnknownEngine` for a name that `index.engines.ENGINES` does not have."""
        self.vocabulary = vocabulary
        self.engine_name = engine
        self.statistics = Statistics()
        self._limits = limits
        self._canonicaliser = Canonicaliser(vocabulary, limits=limits)
        self._lowering = Lowering(vocabulary)
        self._engine = new_engine(engine, vocabulary.graph)
        self._slots: dict[str, SubscriptionSlot] = {}
        self._stored: dict[SubscriptionSlot, _Stored] = {}
        self._free: list[SubscriptionSlot] = []
        self._slot_of_row: dict[int, SubscriptionSlot] = {}
        self._rest_of_row: dict[int, tuple[AtomEvaluator, ...]] = {}

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def __getitem__(self, name: str) -> Compiled:
        """What was compiled for the subscription `name`. Raises `UnknownSubscription`."""
        return self._stored[self._slot(name)].compiled

    def compile(self, expression: str | Mapping[str, Any]) -> Compiled:
        """Check and compile an expression without adding it. Raises `InvalidSubscription` with every problem."""
        return compile_expression(expression, self.vocabulary)

    def add(self, name: str, expression: str | Mapping[str, Any]) -> Compiled:
        """Add a subscription, text or tree; the next `match` sees it. Raises `InvalidSubscription` with every problem,
        `DuplicateSubscription` if `name` is taken."""
        return self.add_compiled(name, self.compile(expression))

    def add_many(self, subscriptions: Iterable[tuple[str, str | Mapping[str, Any]]]) -> list[Compiled]:
        """Add each (name, expression) in turn; stops at the first that is invalid, with those before it added."""
        return [self.add(name, expression) for name, expression in subscriptions]

    def restore(self, name: str, tree: Mapping[str, Any]) -> Compiled:
        """Add a subscription from its stored `Compiled.tree`. IRIs that are gone are flagged in `notes`, not
        refused."""
        return self.add_compiled(name, restore_expression(tree, self.vocabulary))

    def add_compiled(self, name: str, compiled: Compiled) -> Compiled:
        """Add what this matcher, or another under the same vocabulary, compiled."""
        if name in self._slots:
            raise DuplicateSubscription(name)
        slot = self._free.pop() if self._free else SubscriptionSlot(len(self._stored))
        rows: list[ClauseRow] = []
        for atoms in compiled.clauses:
            lowered = self._lowering.clause(atoms)
            if lowered is not None:
                row = self._engine.add(lowered.clause)
                rows.append(row)
                self._slot_of_row[row] = slot
                if lowered.rest:
                    self._rest_of_row[row] = lowered.rest
        self._slots[name] = slot
        self._stored[slot] = _Stored(name, compiled, rows)
        return compiled

    def remove(self, name: str) -> None:
        """Forget a subscription. Raises `UnknownSubscription`."""
        slot = self._slot(name)
        for row in self._stored.pop(slot).rows:
            self._engine.remove(row)
            del self._slot_of_row[row]
            self._rest_of_row.pop(row, None)
        del self._slots[name]
        self._free.append(slot)

    def rebuilt(self, vocabulary: Vocabulary) -> "Matcher":
        """A new matcher with the same subscriptions under another vocabulary (rule 14); this one stays as it is."""
        other = Matcher(vocabulary, engine=self.engine_name, limits=self._limits)
        other.statistics = self.statistics
        for name, slot in self._slots.items():
            other.restore(name, self._stored[slot].compiled.tree)
        return other

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of slots and rows disagree. Slow; for tests."""
        self._engine.check_invariants()
        rows = {row: slot for slot, stored in self._stored.items() for row in stored.rows}
        assert rows == self._slot_of_row, (rows, self._slot_of_row)
        assert len(self._engine) == len(rows), (len(self._engine), rows)
        assert self._rest_of_row.keys() <= rows.keys(), self._rest_of_row
        assert {stored.name: slot for slot, stored in self._stored.items()} == self._slots, self._slots

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def canonicalise(self, event: Mapping[str, Any] | Event) -> CanonicalEvent:
        """The event with every reading of every value, and notes for its publisher. Raises `InvalidEvent`."""
        return self._canonicaliser.canonicalise(event)

    def match(self, event: Mapping[str, Any] | Event | CanonicalEvent) -> list[Match]:
        """The subscriptions that `event` matches, in the order of their slots. A bare mapping is the event's data.
        Raises `InvalidEvent`."""
        canonical = event if isinstance(event, CanonicalEvent) else self.canonicalise(event)
        rows = self._engine.match(self._lowering.event(canonical))
        return [Match(self._stored[slot].name) for slot in self._verified(rows, canonical)]

    def match_batch(self, events: Iterable[Mapping[str, Any] | Event | CanonicalEvent]) -> "Matches":
        """`match` for each event, in order; `Match` objects are made when read. Raises `InvalidEvent`."""
        slots: list[list[SubscriptionSlot]] = []
        batch: list[CanonicalEvent] = []
        for event in events:
            batch.append(event if isinstance(event, CanonicalEvent) else self.canonicalise(event))
            if len(batch) == BATCH:
                slots += self._slots_of_batch(batch)
                batch = []
        slots += self._slots_of_batch(batch)
        return Matches(slots, self._names({slot for each in slots for slot in each}))

    def match_table(self, columns: Any) -> MatchTable:
        """The matches of a table of events: a `pyarrow.Table`, or a mapping from attribute to a numpy array or list.

        Null and NaN mean absent; a list is several values; a struct flattens with dots. Values are read once per
        distinct value, not per row. Raises `InvalidEvent`, `ValueError` for columns of different lengths.
        """
        table = TableLowering(columns, self._canonicaliser, self._lowering)
        slots: list[list[SubscriptionSlot]] = []
        for start in range(0, len(table), BATCH):
            found = self._engine.match_batch(table.events(start, min(start + BATCH, len(table))))
            for number in range(len(found.offsets) - 1):
                rows = found.rows[found.offsets[number] : found.offsets[number + 1]]
                slots.append(self._verified(rows, functools.partial(table.canonical, start + number)))
        offsets = np.zeros(len(slots) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in slots], out=offsets[1:])
        flat = np.fromiter((slot for each in slots for slot in each), dtype=np.int32, count=int(offsets[-1]))
        return MatchTable(offsets, flat, None, self._names(np.unique(flat).tolist()))

    # ── the last step ───────────────────────────────────────────────────────────────────────────────────────────

    def _slots_of_batch(self, batch: list[CanonicalEvent]) -> list[list[SubscriptionSlot]]:
        found = self._engine.match_batch([self._lowering.event(event) for event in batch])
        bounds = found.offsets.tolist()
        return [
            self._verified(found.rows[bounds[number] : bounds[number + 1]], event) for number, event in enumerate(batch)
        ]

    def _verified(
        self, rows: npt.NDArray[np.int32], event: CanonicalEvent | Callable[[], CanonicalEvent]
    ) -> list[SubscriptionSlot]:
        """The slots of `rows` whose remaining atoms hold too, each once, ascending. `event` is a canonical event, or a
        function that makes it when the first row needs it."""
        slots: set[SubscriptionSlot] = set()
        for row in rows.tolist():
            slot = self._slot_of_row[row]
            rest = self._rest_of_row.get(row)
            if rest is not None and slot not in slots:
                event = event if isinstance(event, CanonicalEvent) else event()
                if not all(atom.holds(event) for atom in rest):
                    continue
            slots.add(slot)
        self.statistics.events += 1
        self.statistics.candidates += len(rows)
        self.statistics.matches += len(slots)
        return sorted(slots)

    def _names(self, slots: Iterable[int]) -> dict[int, str]:
        """The names of `slots` as they are now: results stay right when a slot is used again later."""
        return {slot: self._stored[SubscriptionSlot(slot)].name for slot in slots}

    def _slot(self, name: str) -> SubscriptionSlot:
        try:
            return self._slots[name]
        except KeyError:
            raise UnknownSubscription(name) from None


class Matches(Sequence[list[Match]]):
    """The matches of a batch, event by event; `Match` objects are made when an item is read."""

    def __init__(self, slots: list[list[SubscriptionSlot]], names: Mapping[int, str]) -> None:
        self._slots = slots
        self._names = names

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, index: int) -> list[Match]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Match]]: ...
    def __getitem__(self, index: int | slice) -> list[Match] | list[list[Match]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return [Match(self._names[slot]) for slot in self._slots[index]]
