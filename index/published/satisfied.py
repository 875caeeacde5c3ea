"""Which elementary predicates events satisfy: the first step of every algorithm of Le Subscribe, section 3.

Predicates are stored once, clustered by column and comparison; `pred_to_subs` of the paper are the rows beside them.

    Equal, Within, Present    a hash table: key, concept, attribute ─▶ rows
    AtLeast, AtMost           bounds in order, the rows of each behind it: what holds is one contiguous run of rows
                              (erratum 21: `X <= c` for the suffix c >= v, `X >= c` for the prefix)

Several values satisfy a predicate once (erratum 22): of several numbers only the largest counts for `AtLeast`, the
smallest for `AtMost`, and the concepts above several values are united. All rows stand in one array, so that what an
event satisfies are runs of it, and counting is one kernel for many events.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from index.clause import ColumnId, ConceptId, LoweredEvent
from index.compiling import compiled
from index.concept_graph import ConceptGraph
from index.published.elementary import AtLeast, AtMost, Elementary, Equal, Present, Within

__all__ = ["Runs", "SatisfiedPredicates", "counted"]

Rows = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

BLOCK = 64
"""Rows that are compared before any of them is looked at."""


@dataclass(frozen=True, slots=True)
class Runs:
    """What events satisfy: event `e` the rows `rows[starts[i] : stops[i]]` for `i` in `offsets[e] … offsets[e+1]-1`, a
    row as often as its predicates hold."""

    offsets: Places
    starts: Places
    stops: Places
    rows: Rows


class SatisfiedPredicates:
    """Elementary predicates with the rows that hold them. Immutable."""

    def __init__(self, graph: ConceptGraph, predicates: Iterable[tuple[Elementary, int]]) -> None:
        """`predicates` are (predicate, row) pairs. Cost: sorting them."""
        self._graph = graph
        tables: dict[Elementary, list[int]] = {}
        bounds: dict[tuple[bool, ColumnId], list[tuple[float, int]]] = {}
        for predicate, row in predicates:
            if isinstance(predicate, AtLeast | AtMost):
                bounds.setdefault((isinstance(predicate, AtLeast), predicate.column), []).append((predicate.bound, row))
            else:
                tables.setdefault(predicate, []).append(row)
        runs: list[list[int]] = []
        at = 0
        self._equal: dict[ColumnId, dict[Hashable, tuple[int, int]]] = {}
        self._within: dict[ColumnId, dict[ConceptId, tuple[int, int]]] = {}
        self._present: dict[Hashable, tuple[int, int]] = {}
        for each, rows in tables.items():
            run = at, at + len(rows)
            match each:
                case Equal(column, key):
                    self._equal.setdefault(column, {})[key] = run
                case Within(column, concept):
                    self._within.setdefault(column, {})[concept] = run
                case _:
                    self._present[cast(Present, each).attribute] = run
            runs.append(rows)
            at += len(rows)
        self._ordered: list[tuple[bool, ColumnId, npt.NDArray[np.float64], int]] = []
        for (is_least, column), pairs in bounds.items():
            pairs.sort()
            ordered = np.array([bound for bound, _ in pairs], dtype=np.float64)
            self._ordered.append((is_least, column, ordered, at))
            runs.append([row for _, row in pairs])
            at += len(pairs)
        self._rows = np.array([row for rows in runs for row in rows], dtype=np.int32)

    def runs(self, events: Sequence[LoweredEvent]) -> Runs:
        """What each event satisfies. A look-up for each of its values and concepts; bounds are searched for all events
        in one go."""
        found: list[list[tuple[int, int]]] = []
        present, equal, within = self._present, self._equal, self._within
        for event in events:
            own = [present[attribute] for attribute in event.present if attribute in present] if present else []
            for column, values in event.values.items():
                if column in equal:
                    table = equal[column]
                    own += [table[value] for value in values if value in table]
                if column in within:
                    concepts = within[column]
                    own += [concepts[upper] for upper in self._above(values) if upper in concepts]
            found.append(own)
        for is_least, column, bounds, base in self._ordered:
            those = [number for number, event in enumerate(events) if column in event.values]
            numbers = [cast(tuple[float, ...], events[number].values[column]) for number in those]
            if is_least:
                ends = np.searchsorted(bounds, [max(each) for each in numbers], side="right") + base
                for number, stop in zip(those, ends.tolist(), strict=True):
                    found[number].append((base, stop))
            else:
                ends = np.searchsorted(bounds, [min(each) for each in numbers], side="left") + base
                for number, start in zip(those, ends.tolist(), strict=True):
                    found[number].append((start, base + bounds.size))
        offsets = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum([len(own) for own in found], out=offsets[1:])
        flat = np.array([run for own in found for run in own], dtype=np.int64).reshape(-1, 2)
        return Runs(offsets, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1]), self._rows)

    def _above(self, values: tuple[Hashable, ...]) -> Collection[ConceptId]:
        if len(values) == 1:
            return self._graph.ancestors(cast(ConceptId, values[0]))
        return {upper for value in values for upper in self._graph.ancestors(cast(ConceptId, value))}


def counted(
    runs: Runs, needed: Rows, partial_offsets: Places | None = None, partial: Rows | None = None
) -> tuple[Places, Rows]:
    """The rows below `needed.size` that have satisfied so many predicates as `needed` says, for each event, ascending:
    `hitcount` of the paper, from zero for every event (erratum 22).

    Of an event's rows in `partial`, those that have satisfied `-needed - 1`, for a row that counting alone never finds.
    About a nanosecond a predicate, and a tenth of one for each row."""
    if partial_offsets is None or partial is None:
        partial_offsets, partial = np.zeros(runs.offsets.size, dtype=np.int64), np.zeros(0, dtype=np.int32)
    return _count(runs.offsets, runs.starts, runs.stops, runs.rows, needed, partial_offsets, partial)


@compiled
def _count(
    offsets: Places,
    starts: Places,
    stops: Places,
    rows: Rows,
    needed: Rows,
    partial_offsets: Places,
    partial: Rows,
) -> tuple[Places, Rows]:
    size = needed.size
    found = np.empty(1024, dtype=np.int32)
    found_offsets = np.zeros(offsets.size, dtype=np.int64)
    counts = np.empty(size, dtype=np.int32)
    count = 0
    for event in range(offsets.size - 1):
        counts[:] = 0
        for run in range(offsets[event], offsets[event + 1]):
            for at in range(np.uint64(starts[run]), np.uint64(stops[run])):
                counts[np.uint64(rows[at])] += np.int32(1)
        for at in range(partial_offsets[event], partial_offsets[event + 1]):
            row = np.uint64(partial[at])
            if counts[row] == -needed[row] - 1:
                counts[row] = needed[row]  # negative: no count is
        for block in range(0, size, BLOCK):
            last = min(block + BLOCK, size)
            some = 0
            for at in range(np.uint64(block), np.uint64(last)):
                some += counts[at] == needed[at]
            if some:
                if count + BLOCK >= found.size:
                    more = np.empty(2 * found.size, dtype=np.int32)
                    more[:count] = found[:count]
                    found = more
                for at in range(np.uint64(block), np.uint64(last)):
                    found[count] = at
                    count += counts[at] == needed[at]
        found_offsets[event + 1] = count
    return found_offsets, found[:count].copy()
