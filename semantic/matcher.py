"""The whole publish path on one page: which subscriptions does an event match?

    event ──canonicalise──▶ readings ──lower──▶ integers ──engine──▶ rows ──verify──▶ candidates ──operators──▶ matches

docs/matching-semantics.md says what a match is. The engine is exact for all that a column can decide; the few atoms
that none can (text tests, two attributes compared, one element of an array) are verified on the rows it returns, and
what needs an expensive operator is asked of those that are left.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
from semantic.operators.clauses import expensive_clause
from semantic.operators.declaration import Operator, operators_by_name
from semantic.operators.joining import reported
from semantic.operators.layer import OperatorLayer
from semantic.results import Bindings, Decided, Found, Matches, MatchTable, Statistics, Undecided
from semantic.table import TableLowering
from semantic.vocabulary import Vocabulary

__all__ = ["MatchTable", "Matcher", "Matches", "Statistics"]

BATCH = 1_000
"""Events lowered and matched in one call of the engine: enough to spread its overhead, few enough to stay in the
cache."""


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

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        engine: str = "ctps",
        planner: str = "greedy",
        operators: Iterable[Operator] = (),
        limits: EventLimits | None = None,
    ) -> None:
        """Raises `index.errors.UnknownEngine` for a name that `index.engines.ENGINES` does not have, `UnknownPlanner`
        for one that `semantic.planner.PLANNERS` does not have, `InvalidDeclaration` for two operators of one name."""
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
        self.operators = operators_by_name(operators)
        self.planner_name = planner
        self._layer = OperatorLayer(self.operators, planner, vocabulary.units)

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
        return compile_expression(expression, self.vocabulary, self.operators)

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
        return self.add_compiled(name, restore_expression(tree, self.vocabulary, self.operators))

    def add_compiled(self, name: str, compiled: Compiled) -> Compiled:
        """Add what this matcher, or another under the same vocabulary, compiled."""
        if name in self._slots:
            raise DuplicateSubscription(name)
        slot = self._free.pop() if self._free else SubscriptionSlot(len(self._stored))
        rows: list[ClauseRow] = []
        for atoms in compiled.clauses:
            part = expensive_clause(atoms, self.operators, self.vocabulary)
            lowered = self._lowering.clause(atoms)
            if lowered is not None and (part is None or part.possible):
                row = self._engine.add(lowered.clause)
                rows.append(row)
                self._slot_of_row[row] = slot
                if lowered.rest:
                    self._rest_of_row[row] = lowered.rest
                if part is not None:
                    self._layer.add(row, part)
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
            if row in self._layer:
                self._layer.remove(row)
        del self._slots[name]
        self._free.append(slot)

    def rebuilt(self, vocabulary: Vocabulary) -> "Matcher":
        """A new matcher with the same subscriptions under another vocabulary (rule 14); this one stays as it is."""
        other = Matcher(
            vocabulary,
            engine=self.engine_name,
            planner=self.planner_name,
            operators=self.operators.values(),
            limits=self._limits,
        )
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
        Those that hang on an operator that failed are left out; `decide` tells them. Raises `InvalidEvent`."""
        return self.decide(event).matches

    def decide(self, event: Mapping[str, Any] | Event | CanonicalEvent) -> Decided:
        """`match`, and what no one could decide because an operator failed. Raises `InvalidEvent`."""
        canonical = event if isinstance(event, CanonicalEvent) else self.canonicalise(event)
        found = self._verified(self._engine.match(self._lowering.event(canonical)), canonical)
        undecided = [Undecided(self._stored[slot].name, why) for slot, why in sorted(found.undecided.items())]
        return Decided([self._match(slot, found.bindings) for slot in found.slots], undecided)

    def match_batch(self, events: Iterable[Mapping[str, Any] | Event | CanonicalEvent]) -> "Matches":
        """`match` for each event, in order; `Match` objects are made when read. Raises `InvalidEvent`."""
        found: list[Found] = []
        batch: list[CanonicalEvent] = []
        for event in events:
            batch.append(event if isinstance(event, CanonicalEvent) else self.canonicalise(event))
            if len(batch) == BATCH:
                found += self._found_in_batch(batch)
                batch = []
        found += self._found_in_batch(batch)
        return Matches(found, self._names({slot for each in found for slot in each.slots}), self.vocabulary.units)

    def match_table(self, columns: Any) -> MatchTable:
        """The matches of a table of events: a `pyarrow.Table`, or a mapping from attribute to a numpy array or list.

        Null and NaN mean absent; a list is several values; a struct flattens with dots. Values are read once per
        distinct value, not per row. Raises `InvalidEvent`, `ValueError` for columns of different lengths.
        """
        table = TableLowering(columns, self._canonicaliser, self._lowering)
        verified: list[Found] = []
        for start in range(0, len(table), BATCH):
            found = self._engine.match_batch(table.events(start, min(start + BATCH, len(table))))
            for number in range(len(found.offsets) - 1):
                rows = found.rows[found.offsets[number] : found.offsets[number + 1]]
                verified.append(self._verified(rows, functools.partial(table.canonical, start + number)))
        offsets = np.zeros(len(verified) + 1, dtype=np.int64)
        np.cumsum([len(each.slots) for each in verified], out=offsets[1:])
        flat = np.fromiter((slot for each in verified for slot in each.slots), np.int32, count=int(offsets[-1]))
        bindings: list[Any] | None = None
        if any(each.bindings for each in verified):
            units = self.vocabulary.units
            bindings = [reported(each.bindings.get(slot, ()), units)[0] for each in verified for slot in each.slots]
        return MatchTable(offsets, flat, bindings, self._names(np.unique(flat).tolist()))

    # ── the last step ───────────────────────────────────────────────────────────────────────────────────────────

    def _found_in_batch(self, batch: list[CanonicalEvent]) -> list[Found]:
        found = self._engine.match_batch([self._lowering.event(event) for event in batch])
        bounds = found.offsets.tolist()
        return [
            self._verified(found.rows[bounds[number] : bounds[number + 1]], event) for number, event in enumerate(batch)
        ]

    def _verified(self, rows: npt.NDArray[np.int32], event: CanonicalEvent | Callable[[], CanonicalEvent]) -> Found:
        """The slots of `rows` whose remaining atoms hold too, each once, ascending. `event` is a canonical event, or a
        function that makes it when the first row needs it."""
        slots: set[SubscriptionSlot] = set()
        expensive: list[int] = []
        for row in rows.tolist():
            slot = self._slot_of_row[row]
            rest = self._rest_of_row.get(row)
            if rest is not None and slot not in slots:
                event = event if isinstance(event, CanonicalEvent) else event()
                if not all(atom.holds(event) for atom in rest):
                    continue
            if row in self._layer:
                expensive.append(row)
            else:
                slots.add(slot)
        found = Found([])
        if expensive:
            found = self._decided(expensive, slots, event if isinstance(event, CanonicalEvent) else event())
        found.slots = sorted(slots)
        self.statistics.events += 1
        self.statistics.candidates += len(rows)
        self.statistics.matches += len(slots)
        self.statistics.undecided += len(found.undecided)
        return found

    def _decided(self, rows: list[int], slots: set[SubscriptionSlot], event: CanonicalEvent) -> Found:
        """Ask operators about `rows`; adds what matches to `slots`. Where no clause of a subscription has variables,
        one clause that matches is enough."""
        layer = self._layer
        with_variables = {self._slot_of_row[row] for row in rows if layer.has_variables(row)}
        needed = [row for row in rows if self._slot_of_row[row] not in slots - with_variables]
        decision = layer.decide(needed, event)
        self.statistics.evaluations.update(map(str, decision.asked))
        bindings: dict[SubscriptionSlot, list[dict[str, Any]]] = {}
        for row, joined in decision.matched.items():
            slots.add(self._slot_of_row[row])
            bindings.setdefault(self._slot_of_row[row], []).extend(joined)
        undecided = {self._slot_of_row[row]: why for row, why in decision.undecided.items()}
        return Found([], bindings, {slot: why for slot, why in undecided.items() if slot not in slots})

    def _match(self, slot: SubscriptionSlot, bindings: Bindings) -> Match:
        return Match(self._stored[slot].name, *reported(bindings.get(slot, ()), self.vocabulary.units))

    def _names(self, slots: Iterable[int]) -> dict[int, str]:
        """The names of `slots` as they are now: results stay right when a slot is used again later."""
        return {slot: self._stored[SubscriptionSlot(slot)].name for slot in slots}

    def _slot(self, name: str) -> SubscriptionSlot:
        try:
            return self._slots[name]
        except KeyError:
            raise UnknownSubscription(name) from None
