"""The `dexin` engine: Algorithms 1 to 4 of "DEXIN", dynamic exclusive and inclusive matching, section 3.

An event passes a pipeline with one stage for each *axis* that some clause constrains. The clauses that remain after
the last stage match (Algorithm 3). A stage uses one of two methods (`kindcast.index.published.dexin_axes`):

    exclusive (Algorithm 1)   visits the rows whose constraint fails, and removes them; costs the share δ that fails
    inclusive (Algorithm 2)   visits the remaining rows, and checks each; costs the share of the remaining rows

For each event, the matching rate ρ = 1 - δ of every axis is estimated. Algorithm 4, low-matching-rate-first-fit, puts
the lowest rate first. Stages are exclusive while more rows remain than the stage would visit, and inclusive afterwards
(`first_fit`). The rows of an axis are in slots by both ends of their intervals, so a clause can be added and removed
without a rebuild.

Corrections (errata 9 to 13): bounds are closed on both sides, because open bounds were moved to the next double, so no
rules for boundary types are needed; `!=` and other negations are verified on the remaining rows; rows before and after
a value are counted once each, so ρ is in [0, 1]; the test is `ε > δ`; if fewer rows pass than fail, the passing rows
are collected instead of clearing bits in a copy of all rows.

The paper has numbers only. Here a key, a concept and the presence of an attribute are axes, too. On these, the rows
that require another operand fail. If the event has no value on an axis, all rows that constrain the axis fail.

A plan is the order of the axes and the method of each: Algorithm 4, and the plans that sections 4.3 and 4.4 compare:

    rates of the axes ─▶ order: lowest matching rate first ─▶ some axes exclude, the others include

| plan | |
|---|---|
| `FIRST_FIT` | Algorithm 4: exclude while more rows remain than the stage visits |
| `OPTIMAL` | the cheapest set of axes that exclude, by formula (6) and observations 1 to 3; exponential |
| `EXCLUSIVE`, `INCLUSIVE` | one method for all axes |

Rates and costs are shares of all rows. Excluding costs the visited rows: δ as in the paper, or less if the complement
is smaller.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, ColumnId, ConceptId, Key, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import (
    ClauseColumns,
    ColumnBatch,
    ConceptOperands,
    Engine,
    IntervalOperands,
    KeyOperands,
    RowTable,
)
from kindcast.index.errors import UnknownRow
from kindcast.index.jit import announce_compilation, compiled
from kindcast.index.naive import clause_matches
from kindcast.index.published.dexin_axes import (
    SLOT_ROWS,
    Asked,
    Axes,
    Constraints,
    Intervals,
    NameAxis,
    NumberAxis,
    Points,
    Stages,
    View,
    constraints_of,
    exclude,
    free_copy,
    include,
    listed,
    rates,
)

__all__ = ["EXCLUSIVE", "FIRST_FIT", "INCLUSIVE", "OPTIMAL", "DexinEngine", "cost_of", "first_fit", "optimal"]


Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]

FIRST_FIT, OPTIMAL, EXCLUSIVE, INCLUSIVE = range(4)

MOST_SUBSETS = 24
"""Maximum number of axes of which `OPTIMAL` tries all subsets: 16 million subsets take a second. With more axes,
`OPTIMAL` is `FIRST_FIT`."""


@compiled
def first_fit(failing: Floats, cost: Floats, excludes: Chosen) -> None:
    """Algorithm 4 for axes sorted by descending failing rate δ. Fills `excludes`."""
    left = 1.0
    fits = True
    for k in range(failing.size):
        fits = fits and (k == 0 or left > cost[k])
        excludes[k] = fits
        left *= 1.0 - failing[k]


@compiled
def cost_of(failing: Floats, cost: Floats, excludes: Chosen) -> float:
    """Formula (6) for axes sorted by descending failing rate. Axes that exclude come before axes that include."""
    total, left = 0.0, 1.0
    for k in range(failing.size):
        if excludes[k]:
            total += cost[k]
            left *= 1.0 - failing[k]
    for k in range(failing.size):
        if not excludes[k]:
            total += left
            left *= 1.0 - failing[k]
    return total


@compiled
def optimal(failing: Floats, cost: Floats, excludes: Chosen) -> None:
    """Finds the subset with the least `cost_of`. Fills `excludes`. Costs 2^axes times axes."""
    size = failing.size
    best, best_cost = 0, np.inf
    for subset in range(1, 1 << size):
        total, left = 0.0, 1.0
        for k in range(size):
            if subset >> k & 1:
                total += cost[k]
                left *= 1.0 - failing[k]
        for k in range(size):
            if not subset >> k & 1:
                total += left
                left *= 1.0 - failing[k]
        if total < best_cost:
            best, best_cost = subset, total
    for k in range(size):
        excludes[k] = best >> k & 1 == 1


# Conversion of clauses to arrays of constraints on the axes of DEXIN.
#
# rows and clauses ───────▶ constraints_of each ─┐
# rows and ClauseColumns ─▶ a column at a time ──┴─▶ rows that can match, Intervals, Points

Rows = npt.NDArray[np.int32]


def of_clauses(axes: Axes, clauses: Sequence[tuple[int, Constraints]]) -> tuple[Rows, Intervals, Points]:
    """Returns the arrays for pairs (row, constraints). Some µs per clause."""
    axis, row, low, high = [], [], [], []
    name_axis, name_row, run = [], [], []
    for number, found in clauses:
        for place, least, most in found.intervals:
            axis.append(axes.number_axis(place))
            row.append(number)
            low.append(least)
            high.append(most)
        for name, key in found.points:
            p = axes.name_axis(name)
            name_axis.append(p)
            name_row.append(number)
            run.append(axes.run_of(p, key))
    rows = np.array([number for number, _ in clauses], dtype=np.int32)
    return (
        rows,
        Intervals(np.array(axis, np.int64), np.array(row, np.int32), np.array(low, float), np.array(high, float)),
        Points(np.array(name_axis, np.int64), np.array(name_row, np.int32), np.array(run, np.int64)),
    )


def of_columns(axes: Axes, columns: ClauseColumns, rows: Rows) -> tuple[Rows, Intervals, Points]:
    """Returns the arrays for `columns`, whose clause `i` has the row `rows[i]`, without the rows that no event can
    match. Some ns per test."""
    alive = np.full(rows.size, columns.required.isdisjoint(columns.forbidden))
    for test in columns.tests:
        if isinstance(test, IntervalOperands):
            alive &= test.low <= test.high
    kept = rows[alive]
    used: set[NumberAxis | NameAxis] = set()
    intervals, points = [_NO_INTERVALS], [_NO_POINTS]
    for test in columns.tests:
        if isinstance(test, IntervalOperands):
            i = axes.number_axis(free_copy(NumberAxis(test.column), used))
            intervals.append(Intervals(np.full(kept.size, i), kept, test.low[alive], test.high[alive]))
            continue
        is_within = isinstance(test, ConceptOperands) and not test.exactly
        p = axes.name_axis(free_copy(NameAxis("concept" if is_within else "key", test.column), used))
        if isinstance(test, KeyOperands):
            places, keys = test.places[alive], test.keys
            distinct, at = np.unique(places, return_inverse=True)
            runs = [axes.run_of(p, keys[place]) for place in distinct.tolist()]
        else:
            distinct, at = np.unique(test.concepts[alive], return_inverse=True)
            runs = [axes.run_of(p, concept) for concept in distinct.tolist()]
        points.append(Points(np.full(kept.size, p), kept, np.array(runs, dtype=np.int64)[at]))
    for attribute in sorted(columns.required - {test.attribute for test in columns.tests}):
        p = axes.name_axis(NameAxis("present", attribute))
        points.append(Points(np.full(kept.size, p), kept, np.full(kept.size, axes.run_of(p, True))))
    return (
        kept,
        Intervals(*(np.concatenate(each) for each in zip(*intervals, strict=True))),
        Points(*(np.concatenate(each) for each in zip(*points, strict=True))),
    )


_NO_ROWS = np.zeros(0, dtype=np.int32)
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_NO_INTERVALS = Intervals(_NO_NUMBERS, _NO_ROWS, np.zeros(0), np.zeros(0))
_NO_POINTS = Points(_NO_NUMBERS, _NO_ROWS, _NO_NUMBERS)


# Algorithm 3 of DEXIN: matches events against the axes of a view, one axis after the other.
#
#     event ─▶ rates of the axes ─▶ plan ─▶ bits, narrowed where axes exclude ─▶ list, narrowed where they include
#
# One call of the kernel matches many events.

Numbers = npt.NDArray[np.int64]


@compiled
def match_events(view: View, asked: Asked, events: int, clauses: int, plan: int) -> tuple[Numbers, Rows]:
    """Returns offsets `int64[events + 1]` and the rows of each event, ascending. `clauses` is the number of live
    rows."""
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    axes = view.number_count.size + view.name_count.size
    stages = _stages(axes)
    order = np.empty(axes, dtype=np.int64)
    excludes = np.empty(axes, dtype=np.bool_)
    bits, kept = np.empty_like(view.alive), np.empty_like(view.alive)
    marked = np.zeros(max(1, view.name_length.size), dtype=np.bool_)
    rows = np.empty(1024, dtype=np.int32)
    total = 0
    for event in range(events):
        rates(view, asked, event, stages)
        used = _ordered(stages, order)
        _plan(stages, order[:used], clauses, plan, excludes)
        bits[:] = view.alive
        for k in range(used):
            if excludes[k]:
                exclude(view, asked, event, stages, order[k], bits, kept)
        count = _ones(bits)
        if count > rows.size:
            rows = np.empty(2 * count, dtype=np.int32)
        listed(bits, rows)
        for k in range(used):
            if not excludes[k] and count > 0:
                count = include(view, asked, event, stages, order[k], rows, count, marked)
        if total + count > found.size:
            larger = np.empty(2 * (total + count), dtype=np.int32)
            larger[:total] = found[:total]
            found = larger
        found[total : total + count] = rows[:count]
        total += count
        offsets[event + 1] = total
    return offsets, found[:total]


@compiled
def failing_shares(view: View, asked: Asked, clauses: int) -> Floats:
    """Returns δ of every axis for the first event. Axes of names follow the axes of numbers."""
    stages = _stages(view.number_count.size + view.name_count.size)
    rates(view, asked, 0, stages)
    return stages.failing / max(1, clauses)


@compiled
def _stages(axes: int) -> Stages:
    floats, numbers = np.zeros((4, axes)), np.zeros((2, axes), dtype=np.int64)
    several = np.zeros(axes, dtype=np.bool_)
    return Stages(floats[0], floats[1], numbers[0], numbers[1], floats[2], floats[3], several)


@compiled
def _ordered(stages: Stages, order: Numbers) -> int:
    """Writes the axes on which a row may fail to `order`, lowest matching rate first, and returns their number. They
    are few, so insertion sort is used."""
    used = 0
    for axis in range(stages.failing.size):
        if stages.failing[axis] <= 0 and not stages.several[axis]:
            continue
        at = used
        while at > 0 and stages.failing[order[at - 1]] < stages.failing[axis]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = axis
        used += 1
    return used


@compiled
def _plan(stages: Stages, order: Numbers, clauses: int, plan: int, excludes: npt.NDArray[np.bool_]) -> None:
    """Fills `excludes` by the plan. An axis with several numbers always includes, because its ends alone do not
    decide."""
    used = order.size
    if plan in (EXCLUSIVE, INCLUSIVE):
        excludes[:used] = plan == EXCLUSIVE
    else:
        share = 1.0 / max(1, clauses)
        failing, cost = np.empty(used), np.empty(used)
        for k in range(used):
            failing[k], cost[k] = stages.failing[order[k]] * share, stages.walked[order[k]] * share
        if plan == OPTIMAL and used <= MOST_SUBSETS:
            optimal(failing, cost, excludes[:used])
        else:
            first_fit(failing, cost, excludes[:used])
    for k in range(used):
        excludes[k] = excludes[k] and not stages.several[order[k]]


@compiled
def _ones(bits: npt.NDArray[np.uint64]) -> int:
    """Returns the number of set bits."""
    count = 0
    for each in bits:
        word = each - ((each >> np.uint64(1)) & np.uint64(0x5555555555555555))
        word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
        word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        count += int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))
    return count


# Conversion of events to values by axis: numbers, and the runs of rows for their names.
#
# LoweredEvent ─┐                      number of an axis ─▶ its column's values
# ColumnBatch  ─┴─▶ Asked, by axis     names of an axis  ─▶ runs of the keys, of the concepts above them, of presence


def asked_of_events(axes: Axes, graph: ConceptGraph, events: Sequence[LoweredEvent]) -> Asked:
    """Converts events. Some hundred ns for each axis of each event."""
    numbers: list[float] = []
    number_ends: list[int] = [0]
    names: list[int] = []
    name_ends: list[int] = [0]
    for event in events:
        values = event.values
        for each in axes.numbers:
            numbers.extend(cast(tuple[float, ...], values.get(ColumnId(each.column), ())))
            number_ends.append(len(numbers))
        for p, axis in enumerate(axes.names):
            if axis.kind == "present":
                names.extend(_runs(axes, p, (True,) if axis.place in event.present else ()))
            else:
                names.extend(_runs(axes, p, _keys(graph, axis, values.get(ColumnId(axis.place), ()))))
            name_ends.append(len(names))
    return Asked(
        np.array(number_ends, dtype=np.int64),
        np.array(numbers, dtype=np.float64),
        np.array(name_ends, dtype=np.int64),
        np.array(names, dtype=np.int32),
    )


def asked_of_columns(axes: Axes, graph: ConceptGraph, batch: ColumnBatch) -> Asked:
    """Converts a batch whose events have at most one value per column. Some ns for each axis of each event, and a
    look-up for each distinct key."""
    events = batch.events
    by_column = {int(each.column): each for each in batch.columns}
    number_count = np.zeros((events, len(axes.numbers)), dtype=np.int64)
    numbers = np.zeros((events, len(axes.numbers)))
    for i, axis in enumerate(axes.numbers):
        if axis.column in by_column:
            numbers[:, i] = by_column[axis.column].floats()
            number_count[:, i] = ~np.isnan(numbers[:, i])
    firsts, runs, places = [], [], np.full((events, len(axes.names)), -1, dtype=np.int64)
    for p, each in enumerate(axes.names):
        listed: list[list[int]] = [[]]
        if each.kind == "present":
            listed = [_runs(axes, p, (True,) if each.place in present else ()) for present in batch.presents]
            places[:, p] = batch.kinds
        elif each.place in by_column:
            column = by_column[each.place]
            keys, places[:, p] = column.distinct()
            listed = [_runs(axes, p, _keys(graph, each, () if key is None else (key,))) for key in keys]
        firsts.append(np.concatenate([[0], np.cumsum([len(found) for found in listed])]).astype(np.int64))
        runs.append(np.array([run for found in listed for run in found], dtype=np.int32))
    name_count = np.zeros((events, len(axes.names)), dtype=np.int64)
    for p, first in enumerate(firsts):
        name_count[:, p] = np.where(places[:, p] >= 0, np.diff(first)[places[:, p]], 0)
    name_first = np.concatenate([[0], np.cumsum(name_count.ravel())]).astype(np.int64)
    names = np.empty(int(name_first[-1]), dtype=np.int32)
    for p, first in enumerate(firsts):
        _fill(places[:, p], first, runs[p], name_first, p, len(axes.names), names)
    number_first = np.concatenate([[0], np.cumsum(number_count.ravel())]).astype(np.int64)
    return Asked(number_first, numbers.ravel()[number_count.ravel() > 0], name_first, names)


def _keys(graph: ConceptGraph, axis: NameAxis, values: Iterable[Key]) -> Iterable[Key]:
    if axis.kind == "key":
        return values
    above = {upper for value in values for upper in graph.ancestors(cast(ConceptId, value))}
    return cast(Iterable[Key], above)


def _runs(axes: Axes, p: int, keys: Iterable[Key]) -> list[int]:
    found = (axes.operands.get((p, key)) for key in keys)
    return [run for run in found if run is not None]


@compiled
def _fill(places: Numbers, first: Numbers, runs: Rows, name_first: Numbers, p: int, axes: int, out: Rows) -> None:
    for event in range(places.size):
        place = places[event]
        if place >= 0:
            at = name_first[event * axes + p]
            for k in range(first[place], first[place + 1]):
                out[at + k - first[place]] = runs[k]


FREE, EXACT, INEXACT, DEAD = range(4)
"""The states of a row."""
BULK = 1 << 14
"""Number of clauses that are inserted in one step: enough to be fast, few enough to need little memory."""


class DexinEngine(Engine):
    """Exact matching by a pipeline of axes. `match` costs two searches per axis and the rows that the stages visit;
    `add` and `remove` cost a scan of two slots per axis.

    Invariant: `_inexact` are the clauses whose axes do not express all of their predicates. A row that no event can
    match is `DEAD` and is on no axis."""

    reads_columns = True

    def __init__(self, graph: ConceptGraph, *, plan: int = FIRST_FIT, slot_rows: int = SLOT_ROWS) -> None:
        """`plan` is one of the plans above; plans other than Algorithm 4 are for comparison. A slot is for at least
        `slot_rows` rows."""
        self._graph = graph
        self._plan = plan
        self._axes = Axes(slot_rows)
        self._count = self._alive = 0
        self._free: list[ClauseRow] = []
        self._state = bytearray()
        self._inexact: dict[int, Clause] = {}
        announce_compilation(match_events)

    def __len__(self) -> int:
        return self._count

    def add(self, clause: Clause) -> ClauseRow:
        """Stores `clause` at the lowest free row."""
        return self.add_many([clause])[0]

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """Adds all clauses in order, many in one step."""
        rows: list[ClauseRow] = []
        remaining = iter(clauses)
        while step := list(islice(remaining, BULK)):
            taken = [self._take_row() for _ in step]
            self._insert(list(zip(taken, step, strict=True)))
            rows.extend(taken)
        return rows

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """Adds `count` clauses, some separately and most in columns. Returns the row of each clause."""
        rows = np.array([self._take_row() for _ in range(count)], dtype=np.int32)
        self._insert([(ClauseRow(int(rows[place])), clause) for place, clause in clauses])
        for each in columns:
            own = rows[each.places]
            found = of_columns(self._axes, each, own)
            self._axes.insert(*found)
            self._alive += found[0].size
            for row in np.setdiff1d(own, found[0]).tolist():
                self._state[row] = DEAD
            if each.forbidden:
                for row, clause in zip(own.tolist(), each.clauses(), strict=True):
                    if self._state[row] != DEAD:
                        self._state[row] = INEXACT
                        self._inexact[row] = clause
        return rows

    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`. Raises `UnknownRow`."""
        if not 0 <= row < len(self._state) or self._state[row] == FREE:
            raise UnknownRow(row)
        if self._state[row] != DEAD:
            self._axes.remove(row)
            self._alive -= 1
        self._inexact.pop(row, None)
        self._state[row] = FREE
        self._count -= 1
        heapq.heappush(self._free, row)

    def match(self, event: LoweredEvent) -> Rows:
        """Returns the rows whose clauses match `event`, in ascending order."""
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the result of `match` for each event, in order."""
        found = self._matched(asked_of_events(self._axes, self._graph, events), len(events))
        return self._verified(found, events) if self._inexact else found

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the result of `match_batch` for `batch.lowered()`."""
        if not batch.is_flat:
            return self.match_batch(batch.lowered())
        found = self._matched(asked_of_columns(self._axes, self._graph, batch), batch.events)
        return self._verified(found, batch.lowered()) if self._inexact else found

    def failing_rates(self, event: LoweredEvent) -> npt.NDArray[np.float64]:
        """Returns δ of every axis, `float64[axes]`, from which plans are made."""
        asked = asked_of_events(self._axes, self._graph, [event])
        return failing_shares(self._axes.view(), asked, self._alive)

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows are inconsistent, or if a row is at a wrong place."""
        free = [row for row, state in enumerate(self._state) if state == FREE]
        assert sorted(self._free) == free, (self._free, free)
        assert len(self._state) - len(free) == self._count, (self._state, self._count)
        assert self._count - self._state.count(DEAD) == self._alive, (self._state, self._alive)
        assert sorted(self._inexact) == [row for row, state in enumerate(self._state) if state == INEXACT]
        self._axes.check_invariants()

    def _take_row(self) -> ClauseRow:
        if self._free:
            row = heapq.heappop(self._free)
            self._state[row] = EXACT
        else:
            row = ClauseRow(len(self._state))
            self._state.append(EXACT)
        self._count += 1
        return row

    def _insert(self, clauses: Sequence[tuple[ClauseRow, Clause]]) -> None:
        constrained: list[tuple[int, Constraints]] = []
        for row, clause in clauses:
            found = constraints_of(clause)
            if found is None:
                self._state[row] = DEAD
                continue
            if not found.exact:
                self._state[row] = INEXACT
                self._inexact[row] = clause
            constrained.append((row, found))
        self._axes.insert(*of_clauses(self._axes, constrained))
        self._alive += len(constrained)

    def _matched(self, asked: Asked, events: int) -> RowTable:
        return RowTable(*match_events(self._axes.view(), asked, events, self._alive, self._plan))

    def _verified(self, found: RowTable, events: Sequence[LoweredEvent]) -> RowTable:
        """Removes the inexact candidates that do not match by definition."""
        asked = np.flatnonzero(np.frombuffer(self._state, dtype=np.uint8)[found.rows] == INEXACT)
        if not asked.size:
            return found
        kept = np.ones(found.rows.size, dtype=np.bool_)
        event_of = np.searchsorted(found.offsets, asked, side="right") - 1
        for at, event in zip(asked.tolist(), event_of.tolist(), strict=True):
            clause = self._inexact[int(found.rows[at])]
            kept[at] = clause_matches(self._graph, clause, events[event])
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])
