"""The whole publish path on one page: which subscriptions does an event match?

    event ──canonicalise──▶ readings ──lower──▶ integers ──engine──▶ rows ──verify──▶ candidates ──operators──▶ matches

docs/matching-semantics.md says what a match is. The engine is exact for all that a column can decide; the few atoms
that none can (text tests, two attributes compared, one element of an array) are verified on the rows it returns, and
what needs an expensive operator is asked of those that are left.
"""

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, Clause, ClauseRow
from index.engine import ColumnEngine, RowTable
from index.engines import new_engine
from index.fused.runs import distinct_rows
from semantic.canonicalise import Canonicaliser, EventLimits
from semantic.compilation import Compiled, compile_expression, restore_expression
from semantic.errors import DuplicateSubscription, UnknownSubscription
from semantic.evaluation import AtomEvaluator
from semantic.lowering import LoweredClause, Lowering
from semantic.model import CanonicalEvent, Event, Match, SubscriptionSlot
from semantic.operators.clauses import ExpensiveClause, expensive_clause
from semantic.operators.declaration import Operator, operators_by_name
from semantic.operators.joining import reported
from semantic.operators.layer import OperatorLayer
from semantic.results import Bindings, Decided, Found, Matches, MatchTable, Statistics, TablePart, Undecided, table_of
from semantic.slot_names import SlotNames
from semantic.table import RowsNeeded, Table, TableReader
from semantic.vocabulary import Vocabulary

__all__ = ["MatchTable", "Matcher", "Matches", "Statistics"]

BATCH = 1_000
"""Events lowered and matched in one call of the engine: enough to spread its overhead, few enough to stay in the
cache."""


IMPOSSIBLE = Clause(required=frozenset([AttributeId(0)]), forbidden=frozenset([AttributeId(0)]))
"""Keeps a slot for a subscription that can never match."""


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
        engine: str = "fused",
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
        self._tables = TableReader(self._canonicaliser, self._lowering)
        self._slots: dict[str, SubscriptionSlot] = {}
        self._stored: dict[SubscriptionSlot, _Stored] = {}
        self._slot_names = SlotNames()
        self._slot_of_row = array("i")
        self._foreign = 0
        """Rows whose number is not the slot of their subscription: none, unless one has several clauses."""
        self._unsettled = bytearray()
        """By row: 1 where an atom or an operator remains to be asked."""
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
        """Add each (name, expression) in turn; stops at the first that is invalid, with those before it added. The
        engine gets all clauses in one step, which costs it less than one by one."""
        added: dict[str, Compiled] = {}
        try:
            for name, expression in subscriptions:
                if name in self._slots or name in added:
                    raise DuplicateSubscription(name)
                added[name] = self.compile(expression)
        finally:
            self._add_all(added)
        return list(added.values())

    def restore(self, name: str, tree: Mapping[str, Any]) -> Compiled:
        """Add a subscription from its stored `Compiled.tree`. IRIs that are gone are flagged in `notes`, not
        refused."""
        return self.add_compiled(name, restore_expression(tree, self.vocabulary, self.operators))

    def add_compiled(self, name: str, compiled: Compiled) -> Compiled:
        """Add what this matcher, or another under the same vocabulary, compiled."""
        if name in self._slots:
            raise DuplicateSubscription(name)
        self._add_all({name: compiled})
        return compiled

    def _add_all(self, added: Mapping[str, Compiled]) -> None:
        """Put all clauses into the engine, and the subscriptions into the books."""
        clauses: list[Clause] = []
        owned: list[tuple[str, list[tuple[LoweredClause | None, ExpensiveClause | None]]]] = []
        for name, compiled in added.items():
            parts: list[tuple[LoweredClause | None, ExpensiveClause | None]] = []
            for atoms in compiled.clauses:
                part = expensive_clause(atoms, self.operators, self.vocabulary)
                lowered = self._lowering.clause(atoms)
                if lowered is not None and (part is None or part.possible):
                    parts.append((lowered, part))
                    clauses.append(lowered.clause)
            if not parts:  # it can never match, and needs a slot all the same
                parts.append((None, None))
                clauses.append(IMPOSSIBLE)
            owned.append((name, parts))
        rows = iter(self._engine.add_many(clauses))
        for name, parts in owned:
            own: list[ClauseRow] = []
            for lowered, part in parts:
                row = next(rows)
                own.append(row)
                if lowered is not None and lowered.rest:
                    self._rest_of_row[row] = lowered.rest
                if part is not None:
                    self._layer.add(row, part)
            self._keep(name, added[name], own)

    def _keep(self, name: str, compiled: Compiled, rows: list[ClauseRow]) -> None:
        """Enter a subscription in the books. Its slot is its first row, so that slots need no search."""
        slot = SubscriptionSlot(rows[0])
        for row in rows:
            if row >= len(self._slot_of_row):
                more = row + 1 - len(self._slot_of_row)
                self._slot_of_row.extend([-1] * more)
                self._unsettled.extend(bytes(more))
            self._slot_of_row[row] = slot
            self._foreign += int(row) != slot
            self._unsettled[row] = row in self._rest_of_row or row in self._layer
        self._slots[name] = slot
        self._stored[slot] = _Stored(name, compiled, rows)
        self._slot_names.assign(slot, name)

    def remove(self, name: str) -> None:
        """Forget a subscription. Raises `UnknownSubscription`."""
        slot = self._slot(name)
        for row in self._stored.pop(slot).rows:
            self._engine.remove(row)
            self._slot_of_row[row] = -1
            self._foreign -= int(row) != slot
            self._rest_of_row.pop(row, None)
            if row in self._layer:
                self._layer.remove(row)
        del self._slots[name]

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
        known = {row: slot for row, slot in enumerate(self._slot_of_row) if slot >= 0}
        assert rows == known, (rows, known)
        assert self._foreign == sum(int(row) != slot for row, slot in rows.items()), (self._foreign, rows)
        unsettled = {row for row in rows if self._unsettled[row]}
        assert unsettled == {row for row in rows if row in self._rest_of_row or row in self._layer}, unsettled
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
        if not found.bindings:
            name_of = self._slot_names
            return Decided([Match(name_of[slot]) for slot in found.slots], undecided)
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
        return Matches(found, self._slot_names.view(), self.vocabulary.units)

    def match_table(self, columns: Any, *, threads: int = 1) -> MatchTable:
        """The matches of a table of events: a `pyarrow.Table`, or a mapping from attribute to a numpy array or list.

        Null and NaN mean absent; a list is several values; a struct flattens with dots. Values are read once per
        distinct value, not per row. With an engine that takes columns, the index works in so many `threads`; the
        result is the same. Raises `InvalidEvent`, `ValueError` for columns of different lengths.
        """
        table = self._tables.read(columns)
        parts: list[TablePart] | None = None
        if isinstance(self._engine, ColumnEngine):
            try:
                parts = self._parts_by_column(self._engine, table, threads)
            except RowsNeeded:
                parts = None
        if parts is None:
            spans = range(0, len(table), BATCH)
            found = (self._engine.match_batch(table.events(start, min(start + BATCH, len(table)))) for start in spans)
            parts = [self._part(rows, table, start) for rows, start in zip(found, spans, strict=True)]
        return table_of(parts, self._slot_names.view())

    def _parts_by_column(self, engine: ColumnEngine, table: Table, threads: int) -> list[TablePart]:
        """The matches of `table`, part by part. Only one thread reads the table; others search the index meanwhile."""
        step = min(BATCH, -(-len(table) // max(threads, 1))) or 1
        spans = [(start, min(start + step, len(table))) for start in range(0, len(table), step)]
        if threads <= 1:
            return [self._part(engine.match_columns(table.batch(*span)), table, span[0]) for span in spans]
        with ThreadPoolExecutor(threads, "kindcast-match") as pool:
            waiting = [(pool.submit(engine.match_columns, table.batch(*span)), span[0]) for span in spans]
            return [self._part(found.result(), table, start) for found, start in waiting]

    # ── the last step ───────────────────────────────────────────────────────────────────────────────────────────

    def _part(self, found: RowTable, table: Table, start: int) -> TablePart:
        """The slots of the rows found for the events from `start` on."""
        offsets, rows = found.offsets, found.rows
        settled = not (self._rest_of_row or len(self._layer))
        if settled or not np.frombuffer(self._unsettled, dtype=np.uint8)[rows].any():
            if self._foreign:
                slot_of_row = np.frombuffer(self._slot_of_row, dtype=np.int32)
                offsets, rows = distinct_rows(offsets, slot_of_row[rows], slot_of_row.size)
            self.statistics.events += offsets.size - 1
            self.statistics.candidates += found.rows.size
            self.statistics.matches += rows.size
            return TablePart(offsets, rows)
        bounds = offsets.tolist()
        verified = [
            self._verified(np.sort(rows[low:high]), functools.partial(table.canonical, start + number))
            for number, (low, high) in enumerate(pairwise(bounds))
        ]
        offsets = np.zeros(len(verified) + 1, dtype=np.int64)
        np.cumsum([len(each.slots) for each in verified], out=offsets[1:])
        slots = np.fromiter((slot for each in verified for slot in each.slots), np.int32, count=int(offsets[-1]))
        bindings: list[Any] | None = None
        if any(each.bindings for each in verified):
            units = self.vocabulary.units
            bindings = [reported(each.bindings.get(slot, ()), units)[0] for each in verified for slot in each.slots]
        return TablePart(offsets, slots, bindings)

    def _found_in_batch(self, batch: list[CanonicalEvent]) -> list[Found]:
        found = self._engine.match_batch([self._lowering.event(event) for event in batch])
        bounds = found.offsets.tolist()
        return [
            self._verified(found.rows[bounds[number] : bounds[number + 1]], event) for number, event in enumerate(batch)
        ]

    def _verified(self, rows: npt.NDArray[np.int32], event: CanonicalEvent | Callable[[], CanonicalEvent]) -> Found:
        """The slots of `rows` whose remaining atoms hold too, each once, ascending. `event` is a canonical event, or a
        function that makes it when the first row needs it."""
        if not self._rest_of_row and not len(self._layer):
            self.statistics.events += 1
            self.statistics.candidates += len(rows)
            numbers = rows.tolist()
            if self._foreign:
                numbers = sorted({self._slot_of_row[row] for row in numbers})
            self.statistics.matches += len(numbers)
            return Found(numbers)
        slots: set[SubscriptionSlot] = set()
        expensive: list[int] = []
        slot_of_row = self._slot_of_row
        for row in rows.tolist():
            slot = SubscriptionSlot(slot_of_row[row])
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
        slot_of = {row: SubscriptionSlot(self._slot_of_row[row]) for row in rows}
        with_variables = {slot_of[row] for row in rows if layer.has_variables(row)}
        needed = [row for row in rows if slot_of[row] not in slots - with_variables]
        decision = layer.decide(needed, event)
        self.statistics.evaluations.update(map(str, decision.asked))
        bindings: dict[SubscriptionSlot, list[dict[str, Any]]] = {}
        for row, joined in decision.matched.items():
            slots.add(slot_of[row])
            bindings.setdefault(slot_of[row], []).extend(joined)
        undecided = {slot_of[row]: why for row, why in decision.undecided.items()}
        return Found([], bindings, {slot: why for slot, why in undecided.items() if slot not in slots})

    def _match(self, slot: SubscriptionSlot, bindings: Bindings) -> Match:
        return Match(self._stored[slot].name, *reported(bindings.get(slot, ()), self.vocabulary.units))

    def _slot(self, name: str) -> SubscriptionSlot:
        try:
            return self._slots[name]
        except KeyError:
            raise UnknownSubscription(name) from None
