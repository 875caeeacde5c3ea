"""The engines of Fabret et al., "Le Subscribe", section 3: `counting`, `equality` and `quarantine`.

    clause ─parts_of─▶ elementary predicates ─▶ (axis, operand) ─▶ the data structure of the figure
    event  ─elementary─▶ satisfied predicates, values ─▶ the kernel of the figure ─▶ rows ─▶ verified if necessary

Rows are added and removed one by one. An axis is a column and a kind of predicate. A predicate on keys, concepts or
presence has a number, which is reused when no row has the predicate. A bound is stored as it is. Inexact rows are
verified by definition. Rows with two bounds of one test are verified only for events with several values in a column.

`counting` is the fair predicate algorithm, Figure 2. Every predicate is stored once. The satisfied predicates of an
event are found (lines 4 to 6), and each adds one to the count of every clause that has it (lines 8 to 12). A clause
matches if its count is the number of its predicates (lines 13 to 17). The counts of all clauses are computed for every
event: errata 20 to 22.

`equality` is the equality-preferred algorithm, Figure 4. Clauses are clustered by their equality predicates. One
look-up per cluster finds the clauses whose equalities hold (line 3, `eqsubmatch`). The other predicates are counted as
in `counting` (lines 4 to 11). Counts are compared only for the clauses that were found, and for clauses without
equalities (`neqsub`, lines 12 to 16).

`quarantine` is equality-preferred with nonequality quarantining, Figure 5. Clauses with an equality predicate are found
by `eqsubmatch`, and their other predicates, which are stored per clause, are then checked one by one (lines 3 to 8).
Only clauses without equalities are counted (lines 9 to 21): they are in quarantine.
"""

import heapq
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, ColumnId, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, Engine, RowTable
from kindcast.index.errors import UnknownRow
from kindcast.index.fused.search import distinct_rows
from kindcast.index.jit import announce_compilation
from kindcast.index.naive import clause_matches
from kindcast.index.published.le_subscribe_kernels import (
    AT_LEAST,
    AT_MOST,
    EQUALITY,
    PRESENT,
    BoundBlocks,
    EqualityClusters,
    RowPredicates,
    Satisfied,
    Stored,
    equality_preferred,
    fair,
    quarantining,
)
from kindcast.index.published.shared import (
    AtLeast,
    AtMost,
    Axis,
    Elementary,
    Equal,
    GrowingRuns,
    Parts,
    Present,
    Reader,
    Within,
    parts_of,
)

__all__ = ["CountingEngine", "EqualityEngine", "QuarantineEngine"]


Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FREE, EXACT, PAIRED, INEXACT, DEAD = range(5)
"""The states of a row. Paired: two of its bounds belong to one test. Dead: no event can match it."""
BULK = 1 << 14
"""Number of clauses that are stored in one step."""
KINDS: dict[type, int] = {Equal: EQUALITY, Within: EQUALITY, Present: PRESENT, AtLeast: AT_LEAST, AtMost: AT_MOST}


class StoredPredicates:
    """Predicates without duplicates, each with its rows. Counting reads these."""

    def __init__(self) -> None:
        self._runs = GrowingRuns(np.int32)
        self._bounds = BoundBlocks()

    def add(self, kind: npt.NDArray[np.int8], rows: Rows, axis: Rows, operand: Floats) -> None:
        """Adds predicates: `rows[i]` has `operand[i]` on `axis[i]`. `kind` are the kinds of all axes."""
        bound = kind[axis] >= AT_LEAST
        self._bounds.grow(kind.size)
        self._bounds.insert(axis[bound], operand[bound], rows[bound])
        named = operand[~bound].astype(np.int64)
        self._runs.grow(int(named.max(initial=-1)) + 1)
        self._runs.append(named, rows[~bound])

    def remove(self, kind: npt.NDArray[np.int8], row: int, axis: Rows, operand: Floats) -> None:
        """Removes the predicates of a row."""
        bound = kind[axis] >= AT_LEAST
        self._bounds.remove(axis[bound], operand[bound], np.full(int(bound.sum()), row, dtype=np.int32))
        for predicate in operand[~bound].astype(np.int64).tolist():
            self._runs.remove(predicate, row)

    def stored(self, kind: npt.NDArray[np.int8], predicates: int) -> Stored:
        """Returns the arrays for a kernel. `predicates` is the number of numbered predicates."""
        self._runs.grow(predicates)
        self._bounds.grow(kind.size)
        runs = self._runs
        return Stored(kind, runs.start, runs.length, runs.entries, self._bounds.blocks)  # type: ignore[arg-type]

    def check_invariants(self) -> None:
        """Raises AssertionError if runs overlap or bounds are unsorted."""
        self._runs.check_invariants()
        self._bounds.check_invariants()


class RowPlaces:
    """A subset of the rows, each at a fixed place, so that kernels visit only these. `rows` is `int32[places]`,
    `beside` has a number for each row. Both are -1 at a free place."""

    def __init__(self) -> None:
        self.rows, self.beside = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        self._place: dict[int, int] = {}
        self._free: list[int] = []

    def add(self, rows: Rows, beside: Rows) -> Rows:
        """Adds rows and returns the place of each. Amortised constant per row."""
        missing = rows.size - len(self._free)
        if missing > 0:
            known = self.rows.size
            more = np.full(max(missing, known // 2), -1, dtype=np.int32)
            self.rows, self.beside = np.concatenate([self.rows, more]), np.concatenate([self.beside, more])
            self._free += range(known + more.size - 1, known - 1, -1)
        places = np.array([self._free.pop() for _ in range(rows.size)], dtype=np.int32)
        self.rows[places], self.beside[places] = rows, beside
        self._place.update(zip(rows.tolist(), places.tolist(), strict=True))
        return places

    def remove(self, row: int) -> int:
        """Removes a row and returns its former place. Raises KeyError."""
        place = self._place.pop(row)
        self.rows[place] = self.beside[place] = -1
        self._free.append(place)
        return place

    def check_invariants(self) -> None:
        """Raises AssertionError if places and rows are inconsistent."""
        assert {int(self.rows[place]): place for place in np.flatnonzero(self.rows >= 0).tolist()} == self._place
        assert sorted(self._free) == np.flatnonzero(self.rows < 0).tolist()


def with_rows(numbers: Rows, rows: int, nothing: int) -> Rows:
    """Returns `numbers`, or a longer copy with room for `rows` rows. New entries are `nothing`."""
    if rows <= numbers.size:
        return numbers
    return np.concatenate([numbers, np.full(max(rows - numbers.size, numbers.size // 2), nothing, dtype=np.int32)])


class PredicateEngine(Engine):
    """Exact matching by elementary predicates. `add` and `remove` cost some steps per predicate.

    Invariant: `_inexact` are the clauses of the `INEXACT` rows. A `DEAD` row has no predicates and is not in the data
    structures of the subclass.
    """

    reads_columns = True

    def __init__(self, graph: ConceptGraph) -> None:
        self._graph = graph
        self._axes: list[Axis] = []
        self._number_of: dict[Axis, int] = {}
        self._kind = np.zeros(0, dtype=np.int8)
        self._numbers: list[dict[Hashable, int]] = []
        self._uses: list[int] = []
        self._key_of: list[tuple[int, Hashable]] = []
        self._free_numbers: list[int] = []
        self._reader = Reader(graph, self._axes, self._numbers)
        self._own = RowPredicates()
        self._state = bytearray()
        self._free: list[ClauseRow] = []
        self._count = 0
        self._inexact: dict[int, Clause] = {}

    # ── what an engine stores ───────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        """Stores row `rows[i]` with the predicates `first[i] : first[i + 1]`."""

    @abstractmethod
    def _leave(self, row: int, axis: Rows, operand: Floats) -> None:
        """Removes a row with its predicates."""

    @abstractmethod
    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        """Returns offsets and the rows of each event, unsorted, without duplicates."""

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

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
            self._store(taken, step)
            rows.extend(taken)
        return rows

    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`. Raises `UnknownRow`."""
        if not 0 <= row < len(self._state) or self._state[row] == FREE:
            raise UnknownRow(row)
        if self._state[row] != DEAD:
            axis, operand = self._own.of(row)
            plain = np.where(axis < 0, ~axis, axis)
            self._leave(row, plain, operand.copy())
            self._own.remove(row)
            for number in operand[self._kind[plain] < AT_LEAST].astype(np.int64).tolist():
                self._uses[number] -= 1
                if not self._uses[number]:
                    place, key = self._key_of[number]
                    del self._numbers[place][key]
                    self._free_numbers.append(number)
        self._inexact.pop(row, None)
        self._state[row] = FREE
        self._count -= 1
        heapq.heappush(self._free, row)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def match(self, event: LoweredEvent) -> Rows:
        """Returns the rows whose clauses match `event`, in ascending order."""
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the result of `match` for each event, in order."""
        found = distinct_rows(*self._find(Satisfied(*self._reader.of_events(events))), len(self._state))
        return self._verified(RowTable(*found), events)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the result of `match_batch` for `batch.lowered()`, with unsorted rows per event."""
        if not batch.is_flat:
            return self.match_batch(batch.lowered())
        found = RowTable(*self._find(Satisfied(*self._reader.of_columns(batch))))
        return self._verified(found, batch.lowered()) if self._inexact else found

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows and predicates are inconsistent."""
        free = [row for row, state in enumerate(self._state) if state == FREE]
        assert sorted(self._free) == free, (self._free, free)
        assert len(self._state) - len(free) == self._count, (self._state, self._count)
        assert sorted(self._inexact) == [row for row, state in enumerate(self._state) if state == INEXACT]
        uses = [0] * len(self._uses)
        for row, state in enumerate(self._state):
            if state not in (FREE, DEAD):
                axis, operand = self._own.of(row)
                named = operand[self._kind[np.where(axis < 0, ~axis, axis)] < AT_LEAST]
                for number in named.astype(np.int64).tolist():
                    uses[number] += 1
        assert uses == self._uses, (uses, self._uses)
        numbered = sorted(number for codes in self._numbers for number in codes.values())
        assert sorted([*numbered, *self._free_numbers]) == list(range(len(uses)))
        assert all(uses[number] for number in numbered)

    def _take_row(self) -> ClauseRow:
        self._count += 1
        if self._free:
            row = heapq.heappop(self._free)
            self._state[row] = DEAD
            return row
        self._state.append(DEAD)
        return ClauseRow(len(self._state) - 1)

    def _store(self, rows: Sequence[ClauseRow], clauses: Sequence[Clause]) -> None:
        kept: list[int] = []
        ends: list[int] = [0]
        axes: list[int] = []
        operands: list[float] = []
        together: list[int] = []
        for row, clause in zip(rows, clauses, strict=True):
            parts = parts_of(clause)
            if parts is None:
                continue
            self._state[row] = self._state_of(parts)
            if not parts.exact:
                self._inexact[row] = clause
            together += [len(axes) + at for at in parts.together]
            for each in parts.elementary:
                axis, operand = self._entry(each)
                axes.append(axis)
                operands.append(operand)
            kept.append(row)
            ends.append(len(axes))
        taken, first = np.array(kept, dtype=np.int32), np.array(ends, dtype=np.int64)
        axis_of, operand_of = np.array(axes, dtype=np.int32), np.array(operands, dtype=np.float64)
        self._enter(taken, first, axis_of, operand_of)
        marked = axis_of.copy()
        marked[together] = ~marked[together]
        self._own.add(taken, first, marked, operand_of)

    @staticmethod
    def _state_of(parts: Parts) -> int:
        return INEXACT if not parts.exact else PAIRED if parts.together else EXACT

    def _entry(self, predicate: Elementary) -> tuple[int, float]:
        """Returns the axis of a predicate, and its number or bound."""
        operand: Hashable
        match predicate:
            case AtLeast(column, bound) | AtMost(column, bound):
                return self._axis((type(predicate), column, 0)), bound
            case Equal(column, operand) | Within(column, operand):
                axis = self._axis((type(predicate), column, 0))
            case Present(attribute):
                axis, operand = self._axis((Present, attribute, 0)), True
        number = self._numbers[axis].get(operand)
        if number is None:
            if self._free_numbers:
                number = self._free_numbers.pop()
                self._key_of[number] = axis, operand
            else:
                number = len(self._uses)
                self._uses.append(0)
                self._key_of.append((axis, operand))
            self._numbers[axis][operand] = number
        self._uses[number] += 1
        return axis, float(number)

    def _axis(self, axis: Axis) -> int:
        found = self._number_of.get(axis)
        if found is None:
            found = self._number_of[axis] = len(self._axes)
            self._axes.append(axis)
            self._numbers.append({})
            self._kind = np.append(self._kind, np.int8(KINDS[axis[0]]))
        return found

    def _verified(self, found: RowTable, events: Sequence[LoweredEvent]) -> RowTable:
        """Removes the rows whose predicates hold but whose clauses do not match."""
        state = np.frombuffer(self._state, dtype=np.uint8)[found.rows]
        several = np.array([any(len(each) > 1 for each in event.values.values()) for event in events], dtype=np.bool_)
        event_of = np.repeat(np.arange(len(events)), np.diff(found.offsets))
        asked = np.flatnonzero((state == INEXACT) | ((state == PAIRED) & several[event_of]))
        if not asked.size:
            return found
        kept = np.ones(found.rows.size, dtype=np.bool_)
        for at in asked.tolist():
            row, event = int(found.rows[at]), events[event_of[at]]
            clause = self._inexact.get(row)
            kept[at] = self._between(row, event) if clause is None else clause_matches(self._graph, clause, event)
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])

    def _between(self, row: int, event: LoweredEvent) -> bool:
        """Whether a single value satisfies both bounds of each test that has two."""
        axis, operand = self._own.of(row)
        for at in np.flatnonzero(axis < 0).tolist():
            column = ColumnId(self._axes[~int(axis[at])][1])
            low, high = operand[at], operand[at + 1]
            if not any(low <= value <= high for value in event.values.get(column, ())):
                return False
        return True


class CountingEngine(PredicateEngine):
    """Exact matching by counting. `match` costs an addition per satisfied predicate of each clause, and a comparison
    per clause."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._stored = StoredPredicates()
        self._needed = np.zeros(0, dtype=np.int32)
        """Number of predicates of each row; -1 for an absent row and for a row that no event can match."""
        announce_compilation(fair)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: npt.NDArray[np.float64]) -> None:
        self._stored.add(self._kind, np.repeat(rows, np.diff(first)), axis, operand)
        self._needed = with_rows(self._needed, len(self._state), -1)
        self._needed[rows] = np.diff(first)

    def _leave(self, row: int, axis: Rows, operand: npt.NDArray[np.float64]) -> None:
        self._stored.remove(self._kind, row, axis, operand)
        self._needed[row] = -1

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._stored.stored(self._kind, len(self._uses))
        return fair(satisfied, stored, self._needed[: len(self._state)])

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows and predicates are inconsistent."""
        super().check_invariants()
        self._stored.check_invariants()


class EqualityEngine(PredicateEngine):
    """Exact matching, equalities first. `match` costs a look-up per cluster, an addition per other predicate that is
    satisfied, and a comparison per remaining clause."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._clusters = EqualityClusters()
        self._others = StoredPredicates()
        self._without = RowPlaces()
        self._needed = np.zeros(0, dtype=np.int32)
        announce_compilation(equality_preferred)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        row_of = np.repeat(np.arange(rows.size), np.diff(first))
        clustered = np.bincount(row_of[equal], minlength=rows.size) > 0
        number = np.cumsum(clustered) - 1
        self._clusters.add(rows[clustered], number[row_of[equal]], axis[equal], operand[equal].astype(np.int32))
        self._others.add(self._kind, rows[row_of[~equal]], axis[~equal], operand[~equal])
        self._needed = with_rows(self._needed, len(self._state), 0)
        self._needed[rows] = np.bincount(row_of[~equal], minlength=rows.size)
        self._without.add(rows[~clustered], self._needed[rows[~clustered]])

    def _leave(self, row: int, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        if equal.any():
            self._clusters.remove(row, axis[equal], operand[equal].astype(np.int32))
        else:
            self._without.remove(row)
        self._others.remove(self._kind, row, axis[~equal], operand[~equal])

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._others.stored(self._kind, len(self._uses))
        return equality_preferred(satisfied, stored, self._clusters.clusters, self._needed, self._without.rows)

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows, clusters and predicates are inconsistent."""
        super().check_invariants()
        self._clusters.check_invariants()
        self._others.check_invariants()
        self._without.check_invariants()


class QuarantineEngine(PredicateEngine):
    """Exact matching: equalities first, then checks of the other predicates. `match` costs a look-up per cluster, a
    check per clause that it finds, and counting for the clauses without equalities."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._clusters = EqualityClusters()
        self._quarantined = StoredPredicates()
        self._without = RowPlaces()
        announce_compilation(quarantining)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        row_of = np.repeat(np.arange(rows.size), np.diff(first))
        clustered = np.bincount(row_of[equal], minlength=rows.size) > 0
        number = np.cumsum(clustered) - 1
        self._clusters.add(rows[clustered], number[row_of[equal]], axis[equal], operand[equal].astype(np.int32))
        alone = ~clustered[row_of]
        place = np.zeros(rows.size, dtype=np.int32)
        place[~clustered] = self._without.add(rows[~clustered], np.diff(first)[~clustered].astype(np.int32))
        self._quarantined.add(self._kind, place[row_of[alone]], axis[alone], operand[alone])

    def _leave(self, row: int, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        if equal.any():
            self._clusters.remove(row, axis[equal], operand[equal].astype(np.int32))
        else:
            self._quarantined.remove(self._kind, self._without.remove(row), axis, operand)

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._quarantined.stored(self._kind, len(self._uses))
        clusters, own = self._clusters.clusters, self._own.table
        return quarantining(satisfied, stored, clusters, own, self._without.beside, self._without.rows)

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows, clusters and predicates are inconsistent."""
        super().check_invariants()
        self._clusters.check_invariants()
        self._quarantined.check_invariants()
        self._without.check_invariants()
