"""Verification, the last step of matching: converts rows that an engine found to results, for one event, a batch or a
table.

    rows ─▶ any residual predicates? ─no─▶ slots
              └─yes─▶ atoms that no column decides ─▶ operators, for all events together ─▶ slots, bindings, undecided

Only rows that were found are verified. So the residual predicates of a subscription cost nothing for events that do not
reach it. A *screened* event has passed the index and the cheap predicates; its candidates wait for operators.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from kindcast.index.engine import Engine, RowTable
from kindcast.index.fused.search import distinct_rows
from kindcast.semantic.conditions.predicates import AtomEvaluator
from kindcast.semantic.events.event_table import Table
from kindcast.semantic.matching.operator_layer import Deciding, Decision, OperatorLayer, Waiting
from kindcast.semantic.model import CanonicalEvent, Match, SubscriptionSlot
from kindcast.semantic.operators.calls import reported
from kindcast.semantic.operators.failures import Failure
from kindcast.semantic.subscriptions.bulk_compilation import ClauseParts, is_asked
from kindcast.semantic.subscriptions.subscription_table import LATER, NamesView, SlotNames, SubscriptionTable
from kindcast.semantic.units import Units
from kindcast.semantic.units.patterns import SearchBudget, TooCostlyNow, searching_within

__all__ = [
    "NOT_SEARCHED",
    "SEARCH_SECONDS",
    "Bindings",
    "CostlyTest",
    "Decided",
    "Found",
    "MatchTable",
    "Matches",
    "OpenDecision",
    "Readable",
    "Statistics",
    "TablePart",
    "Undecided",
    "Verification",
    "ascending",
    "matches_of",
    "part_of",
    "parts_of",
    "table_of",
    "undecided_of",
]

# ── results of matching: matches of one event, of a batch or of a table; undecided candidates; counts ─────────────────


@dataclass(slots=True)
class Statistics:
    """Counters of a matcher: events; rows that its engine returned; matches after verification; clauses left undecided
    because an operator failed; and, by operator predicate, the number of its evaluations."""

    events: int = 0
    candidates: int = 0
    matches: int = 0
    undecided: int = 0
    evaluations: Counter[str] = field(default_factory=Counter)


Failures = Mapping[SubscriptionSlot, Failure]
"""Undecided slots, each with the reason."""


@dataclass(frozen=True, slots=True)
class MatchTable:
    """The matches of events. Event `i` matched `slots[offsets[i] : offsets[i + 1]]`, each slot once, in no particular
    order.

    `offsets` is `int64[events + 1]`, `slots` is `int32[matches]`. `bindings` is None if no match has bindings;
    otherwise it has the bindings of each match, and `truncated` are the matches that had more. `undecided` maps the
    number of an event to the slots that may match it, because operators failed or were not called.
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
        """Slot → id, for every subscription."""
        return self._names

    def subscriptions(self, slots: Iterable[int]) -> list[str]:
        """Returns the ids of subscriptions by their slots."""
        return [self._names[int(slot)] for slot in slots]

    def rows(self, chosen: Sequence[int]) -> "MatchTable":
        """Returns the matches of the events with these numbers, ascending. Linear in them and their matches."""
        if len(chosen) == len(self):
            return self
        ends = self.offsets[1:]
        at = [np.arange(self.offsets[row], ends[row]) for row in chosen]
        places = np.concatenate([np.zeros(0, dtype=np.int64), *at])
        offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum([each.size for each in at], out=offsets[1:])
        new = {old: place for place, old in enumerate(places.tolist())} if self.truncated else {}
        return MatchTable(
            offsets,
            self.slots[places],
            None if self.bindings is None else [self.bindings[place] for place in places.tolist()],
            self._names,
            frozenset(new[old] for old in self.truncated if old in new),
            {place: self.undecided[row] for place, row in enumerate(chosen) if row in self.undecided},
        )

    @staticmethod
    def joined(tables: Sequence["MatchTable"]) -> "MatchTable":
        """Returns the matches of the events of some tables of one matcher, in order. Linear in events and matches."""
        if len(tables) == 1:
            return tables[0]
        events = np.cumsum([0, *(len(each) for each in tables)]).tolist()
        matches = np.cumsum([0, *(each.slots.size for each in tables)]).tolist()
        begins = list(zip(tables, events, matches, strict=False))
        bindings: list[Any] | None = None
        if any(each.bindings is not None for each in tables):
            bindings = []
            for each in tables:
                bindings += [()] * each.slots.size if each.bindings is None else each.bindings
        return MatchTable(
            np.concatenate([np.zeros(1, dtype=np.int64), *(each.offsets[1:] + match for each, _, match in begins)]),
            np.concatenate([each.slots for each in tables]),
            bindings,
            tables[-1].names,
            frozenset(place + match for each, _, match in begins for place in each.truncated),
            {row + event: found for each, event, _ in begins for row, found in each.undecided.items()},
        )


@dataclass(frozen=True, slots=True)
class TablePart:
    """The matches of some consecutive events, in the same form as in `MatchTable`."""

    offsets: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    bindings: list[Any] | None = None
    truncated: frozenset[int] = frozenset()
    undecided: Mapping[int, Failures] = field(default_factory=dict)


def part_of(found: Sequence["Found"], units: Units) -> TablePart:
    """Returns the results of consecutive events as one part."""
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
    """Joins the parts of a table of `events` events. Each part is released when it is copied, so that its memory can be
    used for the next one."""
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
            if used + part.slots.size > slots.size:  # sized for the remaining events at the rate so far, plus an eighth
                expected = (used + part.slots.size) * events // max(at + count, 1)
                larger = np.empty(expected + expected // 8, dtype=np.int32)
                larger[:used] = slots[:used]
                slots = larger
            slots[used : used + part.slots.size] = part.slots
        at, used = at + count, used + part.slots.size
    return MatchTable(offsets, slots[:used], bindings, names, frozenset(truncated), undecided)


@dataclass(frozen=True, slots=True)
class Undecided:
    """A subscription that may match: it depends on an operator that has no answer."""

    subscription: str
    failure: Failure

    @property
    def reason(self) -> str:
        """The reason in words."""
        return self.failure.reason


@dataclass(frozen=True, slots=True)
class Decided:
    """The result for one event: its matches, and the undecided subscriptions."""

    matches: list[Match]
    undecided: list[Undecided]


Bindings = Mapping[SubscriptionSlot, list[dict[str, Any]]]
"""Slot → joined bindings, for subscriptions with variables."""


@dataclass(slots=True)
class Found:
    """The slots that one event matches, in ascending order: `int32[matches]`."""

    slots: npt.NDArray[np.int32]
    bindings: Bindings = field(default_factory=dict)
    undecided: dict[SubscriptionSlot, Failure] = field(default_factory=dict)


def ascending(slots: Iterable[SubscriptionSlot]) -> npt.NDArray[np.int32]:
    """Returns slots in the form that `Found` has."""
    return np.array(sorted(slots), dtype=np.int32)


def matches_of(found: Found, names: SlotNames | NamesView, units: Units) -> list[Match]:
    """Returns the matches of one event."""
    if not found.bindings:
        return names.matches(found.slots)
    bindings = found.bindings
    slots: list[SubscriptionSlot] = found.slots.tolist()
    return [Match(names[slot], *reported(bindings.get(slot, ()), units)) for slot in slots]


def undecided_of(failures: Failures, names: SlotNames | NamesView) -> list[Undecided]:
    """Returns the undecided subscriptions of one event, in the order of their slots."""
    return [Undecided(names[slot], failures[slot]) for slot in sorted(failures)]


class Matches(Sequence[list[Match]]):
    """The matches of a batch, by event. Lists and `Match` objects are created when an item is read."""

    def __init__(self, table: MatchTable, names: NamesView) -> None:
        """`names` are those of the table. The slots of each event must be in ascending order."""
        self.table = table
        self._names = names

    def __len__(self) -> int:
        return len(self.table)

    def undecided(self, index: int) -> list[Undecided]:
        """Returns the undecided subscriptions of the event at `index`, because an operator failed or was not called."""
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


@dataclass(slots=True)
class Screened:
    """One event after the index and the cheap predicates: the slots that match already, and the rows that depend on
    operators with their slots. `event` is set if there are such rows. `costly` are the rows whose text predicates were
    too costly to evaluate at once, with their tests; `rows` includes them."""

    slots: set[SubscriptionSlot]
    rows: dict[int, SubscriptionSlot]
    event: CanonicalEvent | None
    costly: "dict[int, CostlyTest]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CostlyTest:
    """The residual predicates of one clause for one event. `steps` is the cost of the costliest, as in `TooCostlyNow`.
    Thread-safe."""

    atoms: tuple[AtomEvaluator, ...]
    event: CanonicalEvent
    steps: int

    def holds(self) -> bool:
        """Whether all of them hold, at any cost."""
        with searching_within(None):
            return all(atom.holds(self.event) for atom in self.atoms)


def decide_screened(
    layer: OperatorLayer, screened: Sequence[Screened], evaluations: Counter[str], deferred: Failure | None
) -> list[Found]:
    """Returns the matching slots of each event, in ascending order. Operators are called for all events together. With
    `deferred` they are not called, and candidates that depend on them are undecided for that reason. If no clause of a
    subscription has variables, one matching clause is enough."""
    needed = [_needed(layer, each) for each in screened]
    if deferred is not None:
        return [_deferred(each, rows, deferred) for each, rows in zip(screened, needed, strict=True)]
    asked = [number for number, rows in enumerate(needed) if rows]
    waiting = [_waiting(screened[number], needed[number]) for number in asked]
    decisions = dict(zip(asked, layer.decide_several(waiting) if waiting else (), strict=True))
    found = []
    for number, each in enumerate(screened):
        decision = decisions.get(number, Decision())
        evaluations.update(map(str, decision.asked))
        found.append(_decided(each, needed[number], decision))
    return found


class OpenDecision:
    """The matching of one event for a caller that does not wait for operators. `advance` makes the calls that are
    possible now; call it again when an answer arrives. Not thread-safe. See `Deciding` for the flags."""

    def __init__(
        self,
        layer: OperatorLayer,
        screened: Screened,
        *,
        steps: bool = False,
        patient: bool = False,
        learns: bool = True,
    ) -> None:
        self._layer = layer
        self._screened = screened
        self._opened = partial(layer.open, steps=steps, patient=patient, learns=learns)
        self._rows: dict[int, SubscriptionSlot] = {}
        self._deciding: Deciding | None = None
        self.decision = Decision()
        """The state of the calls."""
        if not screened.costly:
            self.settle({})

    @property
    def costly(self) -> dict[int, CostlyTest]:
        """Text predicates by row, to be evaluated elsewhere. `settle` takes their results."""
        return self._screened.costly

    def settle(self, verdicts: Mapping[int, bool]) -> None:
        """Takes the results of the costly tests, before any operator is called. Tests without a result leave their
        candidates undecided."""
        screened = self._screened
        for row, holds in verdicts.items():
            slot = screened.rows[row]
            del screened.costly[row]
            if not holds or row not in self._layer:
                del screened.rows[row]
            if holds and row not in self._layer:
                screened.slots.add(slot)
        self._rows = _needed(self._layer, screened)
        if asked := {row: slot for row, slot in self._rows.items() if row not in screened.costly}:
            self._deciding = self._opened(_waiting(screened, asked))

    def take_known(self, knows: Callable[[str, tuple[object, ...]], bool]) -> None:
        """Uses answers from an earlier attempt first, where `knows(operator, arguments)` is true."""
        if self._deciding is not None:
            self._deciding.take_known(knows)

    @property
    def candidates(self) -> int:
        """The number of clauses that depend on operators."""
        return len(self._rows)

    @property
    def pending(self) -> bool:
        """Whether an answer is still pending."""
        return self._deciding is not None and self._deciding.pending

    def advance(self) -> Found:
        """Returns the current result. A candidate that waits for an answer is undecided, with a failure of the kind
        `waiting`."""
        if self._deciding is not None:
            self._deciding.run()
            self.decision = self._deciding.decision()
        left = {row: NOT_SEARCHED for row in self._rows.keys() & self._screened.costly.keys()}
        decision = replace(self.decision, undecided=self.decision.undecided | left) if left else self.decision
        return _decided(self._screened, self._rows, decision)


def _needed(layer: OperatorLayer, screened: Screened) -> dict[int, SubscriptionSlot]:
    """Returns the rows that must be decided. Rows of slots that match already are decided only if their matches have
    bindings."""
    carrying = {slot for row, slot in screened.rows.items() if row in layer and layer.has_variables(row)}
    return {row: slot for row, slot in screened.rows.items() if slot not in screened.slots - carrying}


def _waiting(screened: Screened, rows: dict[int, SubscriptionSlot]) -> Waiting:
    assert screened.event is not None, "operators are called without an event"
    return Waiting(list(rows), screened.event, list(rows.values()))


def _deferred(screened: Screened, rows: dict[int, SubscriptionSlot], why: Failure) -> Found:
    """Returns the result without calling operators. A slot with open rows is undecided even if it matches, because its
    match must have the bindings of all its clauses."""
    waiting = {slot: NOT_SEARCHED if row in screened.costly else why for row, slot in rows.items()}
    return Found(ascending(screened.slots - waiting.keys()), undecided=waiting)


def _decided(screened: Screened, rows: dict[int, SubscriptionSlot], decision: Decision) -> Found:
    bindings: dict[SubscriptionSlot, list[dict[str, Any]]] = {}
    for row, joined in decision.matched.items():
        bindings.setdefault(rows[row], []).extend(joined)
    slots = (screened.slots | bindings.keys()) - {
        rows[row] for row, why in decision.undecided.items() if why.is_to_come
    }
    failures: dict[SubscriptionSlot, list[Failure]] = {}
    for row, why in decision.undecided.items():
        if rows[row] not in slots:
            failures.setdefault(rows[row], []).append(why)
    undecided = {slot: Failure.of_subscription(whys) for slot, whys in failures.items()}
    return Found(ascending(slots), {slot: bindings[slot] for slot in bindings.keys() & slots}, undecided)


# Matching of a table in parts: the rows of one part are converted to slots while the engine searches the next part.
#
# Table ─batch─▶ engine.match_columns (both in several threads) ─▶ RowTable ─▶ TablePart (the caller's thread)


def parts_of(
    engine: Engine, table: Table, part: Callable[[RowTable, Table, int], TablePart], *, size: int, threads: int
) -> Iterator[TablePart]:
    """Yields the matches of `table` in parts of at most `size` events. `part` converts the rows that were found, from a
    first event on, in this thread. With several threads, each thread reads some rows and then searches the index for
    them, while another thread reads."""
    threads = max(threads, 1)
    rounds = -(-len(table) // (size * threads))
    step = -(-len(table) // max(rounds * threads, 1)) or 1  # the same for each thread, so that none ends later
    spans = [(start, min(start + step, len(table))) for start in range(0, len(table), step)]

    def search(span: tuple[int, int]) -> RowTable:
        return engine.match_columns(table.batch(*span))

    if threads <= 1 or not engine.reads_columns:
        for span in spans:
            yield part(search(span), table, span[0])
        return
    waiting: deque[tuple[Future[RowTable], int]] = deque()
    with ThreadPoolExecutor(threads, "kindcast-match") as pool:
        for span in spans:
            waiting.append((pool.submit(search, span), span[0]))
            if len(waiting) > 2 * threads:  # limits the number of results that wait for this thread
                found, start = waiting.popleft()
                yield part(found.result(), table, start)
                del found
        for found, start in waiting:
            yield part(found.result(), table, start)


DEFERRED = Failure("waiting", "its operators were not called yet")
"""The reason for an undecided candidate if operators are called elsewhere."""

NOT_SEARCHED = Failure("waiting", "a predicate about long texts or many values takes too long to be evaluated at once")
"""The reason for an undecided candidate with long texts or large patterns."""

SEARCH_SECONDS = 0.05
"""The time limit in seconds for all text predicates of one event, if costly ones are evaluated elsewhere."""

Readable = Callable[[], CanonicalEvent]
"""Reads the whole event; called when the first row needs it."""

Rows = npt.NDArray[np.int32]


class Verification:
    """The residual predicates by row, and their evaluation. Owned by the matcher of this subscription table."""

    def __init__(
        self,
        subscription_table: SubscriptionTable,
        layer: OperatorLayer,
        units: Units,
        parts_of: Callable[[SubscriptionSlot], ClauseParts],
    ) -> None:
        """`parts_of` compiles and lowers a stored subscription again. The residual predicates of a loaded subscription
        are determined when one of its rows is a candidate for the first time."""
        self.subscriptions = subscription_table
        self.layer = layer
        self.statistics = Statistics()
        self.defers = False
        """Whether operators and costly text predicates are evaluated elsewhere. Then their candidates are undecided,
        and nothing waits here."""
        self._units = units
        self._parts_of = parts_of
        self._rest_of_row: dict[int, tuple[AtomEvaluator, ...]] = {}

    # ── residual predicates ─────────────────────────────────────────────────────────────────────────────────────

    def remain(self, rows: Sequence[int], parts: ClauseParts) -> None:
        """Stores the residual predicates of the candidates in `rows`."""
        for row, (_, lowered, expensive) in zip(rows, parts, strict=True):
            if lowered is not None and lowered.rest:
                self._rest_of_row[row] = lowered.rest
            if expensive is not None:
                self.layer.add(row, expensive)
            self.subscriptions.mark(row, asked=is_asked(lowered, expensive), calls=expensive is not None)

    def forget(self, row: int) -> None:
        """Drops the residual predicates of `row`, which was freed."""
        self._rest_of_row.pop(row, None)
        if row in self.layer:
            self.layer.remove(row)

    def check_invariants(self, rows: set[int]) -> None:
        """Raises AssertionError if this disagrees with the subscription table. `rows` are all rows in use."""
        unsettled = {row for row in rows if self.subscriptions.unsettled[row] not in (0, LATER)}
        assert unsettled == {row for row in rows if row in self._rest_of_row or row in self.layer}, unsettled
        assert self._rest_of_row.keys() <= rows, self._rest_of_row

    # ── candidates ──────────────────────────────────────────────────────────────────────────────────────────────

    def of_event(self, rows: Rows, event: Readable) -> Found:
        """Returns the result for one event, for which the engine found `rows`, in ascending order."""
        if self._asks(rows):
            return self._asked([(rows, event)])[0]
        slots = rows
        if self.subscriptions.foreign:
            slots = np.unique(np.frombuffer(self.subscriptions.slot_of_row, dtype=np.int32)[rows])
        self._count(1, rows.size, slots.size)
        return Found(slots)

    def of_events(self, found: RowTable, event: Callable[[int], CanonicalEvent]) -> TablePart:
        """Returns the results for several events; `event` returns an event by its number. Operators are called for all
        of them together. Slots are in ascending order if the engine's rows are."""
        if self._asks(found.rows):
            bounds = enumerate(pairwise(found.offsets.tolist()))
            each = ((np.sort(found.rows[low:high]), partial(event, number)) for number, (low, high) in bounds)
            return part_of(self._asked(each), self._units)
        offsets, rows = found.offsets, found.rows
        if self.subscriptions.foreign:
            slot_of_row = np.frombuffer(self.subscriptions.slot_of_row, dtype=np.int32)
            offsets, rows = distinct_rows(offsets, slot_of_row[rows], slot_of_row.size)
        self._count(offsets.size - 1, found.rows.size, rows.size)
        return TablePart(offsets, rows)

    def _asks(self, rows: Rows) -> bool:
        """Whether any of `rows` has residual predicates."""
        return self.subscriptions.asking > 0 and bool(
            np.frombuffer(self.subscriptions.unsettled, dtype=np.uint8)[rows].any()
        )

    def _count(self, events: int, candidates: int, matches: int) -> None:
        self.statistics.events += events
        self.statistics.candidates += candidates
        self.statistics.matches += matches

    def _asked(self, events: Iterable[tuple[Rows, Readable]]) -> list[Found]:
        """Returns the results for several events after evaluating residual predicates."""
        found_by_engine = list(events)
        screened = [self.screened(rows, event) for rows, event in found_by_engine]
        deferred = DEFERRED if self.defers else None
        found = decide_screened(self.layer, screened, self.statistics.evaluations, deferred)
        candidates = sum(len(rows) for rows, _ in found_by_engine)
        self._count(len(screened), candidates, sum(len(each.slots) for each in found))
        self.statistics.undecided += sum(len(each.undecided) for each in found)
        return found

    def screened(self, rows: Rows, event: Readable, *, within: SearchBudget | None = None) -> Screened:
        """Returns the slots that match without operators and costly text predicates, and the rows that depend on these.
        Without a budget, all text predicates are evaluated here."""
        if self.defers:
            within = SearchBudget(SEARCH_SECONDS)
        costly: dict[int, CostlyTest] = {}
        slot_of_row = self.subscriptions.slot_of_row
        slots: set[SubscriptionSlot] = set()
        expensive: dict[int, SubscriptionSlot] = {}
        known: CanonicalEvent | None = None
        for row in rows.tolist():
            slot = SubscriptionSlot(slot_of_row[row])
            if self.subscriptions.unsettled[row] == LATER:
                self.remain(list(self.subscriptions.rows(slot)), self._parts_of(slot))
            rest = self._rest_of_row.get(row)
            if rest is not None and slot not in slots:
                known = known or event()
                steps = _asked_within(rest, known, within)
                if steps is None:
                    continue
                if steps:
                    costly[row] = CostlyTest(rest, known, steps)
            if row in self.layer or row in costly:
                expensive[row] = slot
            else:
                slots.add(slot)
        return Screened(slots, expensive, (known or event()) if expensive else None, costly)


def _asked_within(atoms: Iterable[AtomEvaluator], event: CanonicalEvent, budget: SearchBudget | None) -> int | None:
    """Returns 0 if all atoms hold and None if one does not, whatever the others are. Otherwise returns the cost of the
    costliest atom that exceeds the budget."""
    steps = 0
    with searching_within(budget):
        for atom in atoms:
            try:
                if not atom.holds(event):
                    return None
            except TooCostlyNow as error:
                steps = max(steps, error.steps, 1)
    return steps
