"""The `dexin` engine: Algorithms 1 to 4 of "DEXIN", dynamic exclusive and inclusive matching, section 3.

An event goes through a pipeline with one stage for each *axis* that some clause constrains; what is left of the
clauses after the last stage has matched (Algorithm 3, `published.pipeline`). A stage works in one of two ways
(`published.stages`):

    exclusive (Algorithm 1)   walk the rows whose constraint fails, and take them out; costs the share δ that fails
    inclusive (Algorithm 2)   walk the rows that are left, and check each; costs what is left

Before each event the matching rate ρ = 1 - δ of every axis is found, and Algorithm 4, low-matching-rate-first-fit, puts
the lowest first: exclusive as long as the rates so far leave more than the stage would walk, inclusive afterwards
(`published.plans`). The rows of an axis stand in slots by both ends of their intervals (`published.slots`), so a clause
is added and removed by itself.

Corrected (errata 9 to 13): bounds are closed on both sides, an open one having been moved to the next double, so the
rules for boundary types fall away; `!=` and other negations are verified on what is left; rows before and behind a
value are counted once each, so ρ lies in [0, 1]; the test is `ε > δ`; no copy of all rows is thinned out where
fewer pass.

The paper has numbers only. A key, a concept and the presence of an attribute are axes as well, where the rows that fail
are those that ask for something else; an axis that the event lacks fails for all rows that constrain it.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, LoweredEvent
from index.clause_columns import ClauseColumns
from index.column_batch import ColumnBatch
from index.compiling import announce_compilation
from index.concept_graph import ConceptGraph
from index.definition import clause_matches
from index.engine import RowTable
from index.errors import UnknownRow
from index.published.axes import Axes
from index.published.constraints import Constraints, constraints_of
from index.published.events_by_axis import asked_of_columns, asked_of_events
from index.published.insertion import of_clauses, of_columns
from index.published.pipeline import failing_shares, match_events
from index.published.plans import FIRST_FIT
from index.published.slots import SLOT_ROWS
from index.published.stages import Asked

__all__ = ["DexinEngine"]

Rows = npt.NDArray[np.int32]

FREE, EXACT, INEXACT, DEAD = range(4)
"""What a row can be."""
BULK = 1 << 14
"""Clauses that are put on their axes in one step: enough to be cheap, few enough to need little memory."""


class DexinEngine:
    """Exact matching by a pipeline of axes. `match` costs two searches for each axis, then what the stages walk; `add`
    and `remove` a look through two slots for each axis.

    Invariant: `_inexact` are the clauses of which their axes do not say all; a row that is `DEAD`, since no event
    matches it, stands on none."""

    def __init__(self, graph: ConceptGraph, *, plan: int = FIRST_FIT, slot_rows: int = SLOT_ROWS) -> None:
        """`plan` as in `index.published.plans`: others than Algorithm 4 are for comparison. A slot gets `slot_rows`
        rows or more."""
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
        """Store `clause` at the lowest free row."""
        return self.add_many([clause])[0]

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` each in turn, in steps of many."""
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
        """`add` the `count` clauses of a bulk, some by themselves and most in columns; the row of each place."""
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
        """Forget the clause at `row`. Raises `UnknownRow`."""
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
        """The rows whose clauses match `event`, ascending."""
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""
        found = self._matched(asked_of_events(self._axes, self._graph, events), len(events))
        return self._verified(found, events) if self._inexact else found

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """What `match_batch` gives for `batch.lowered()`."""
        if not batch.is_flat:
            return self.match_batch(batch.lowered())
        found = self._matched(asked_of_columns(self._axes, self._graph, batch), batch.events)
        return self._verified(found, batch.lowered()) if self._inexact else found

    def failing_rates(self, event: LoweredEvent) -> npt.NDArray[np.float64]:
        """δ of every axis, `float64[axes]`: what plans are made of."""
        asked = asked_of_events(self._axes, self._graph, [event])
        return failing_shares(self._axes.view(), asked, self._alive)

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows disagree, or a row stands in a wrong place."""
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
        """Without the inexact candidates that do not match, asked by definition."""
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
