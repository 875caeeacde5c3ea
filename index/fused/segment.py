"""A segment: rows that never change again, but for the mark of those that were removed.

    rows and their parts ─▶ groups by cluster ─▶ lay_out ─▶ Segment          Segment ─▶ groups of its live rows ─▶ merge

Clusters hang under their rarest attribute, so that an event meets few that it cannot match.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, Predicate
from index.fused.arrays import BLOCK_ROWS, Codes, Ints, pack
from index.fused.columns import Columns
from index.fused.conjuncts import KEY, ORDERED, Parts
from index.fused.graph_arrays import GraphShape
from index.fused.layout import ClusterKey, RowGroup, lay_out
from index.fused.programs import ProgramArrays, Programs

__all__ = ["Groups", "Segment", "groups_of_parts", "merged"]

REMEMBERED = 4096
"""Attribute sets whose clusters are remembered; a stream has few, and each costs some hundred bytes."""

Groups = dict[ClusterKey, RowGroup]


def groups_of_parts(stored: Iterable[tuple[int, Parts]], columns: Columns) -> Groups:
    """New rows by cluster. Costs some µs a row."""
    growing: dict[ClusterKey, tuple[list[int], list[float]]] = {}
    for row, parts in stored:
        asked = bool(parts.rest)
        for alternative in parts.alternatives:
            slots = tuple(sorted((how, columns.number(column, how)) for how, column, _, _ in alternative))
            rows, ends = growing.setdefault((parts.required, parts.forbidden, slots, asked), ([], []))
            rows.append(row)
            placed = sorted(
                ((how, columns.number(column, how)), _ends(columns, how, column, low, high))
                for how, column, low, high in alternative
            )
            for _, pair in placed:
                ends += pair
    return {
        key: RowGroup(
            np.array(rows, dtype=np.int32), np.array(ends, dtype=np.float64).reshape(len(rows), len(key[2]), 2)
        )
        for key, (rows, ends) in growing.items()
    }


def merged(parts: Sequence[Groups]) -> Groups:
    """The rows of several groups in one."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for groups in parts:
        for key, group in groups.items():
            by_key.setdefault(key, []).append(group)
    return {
        key: found[0]
        if len(found) == 1
        else RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }


class Segment:
    """Immutable but for `arrays.dead` and what `visits` remembers.

    Invariant: `live` counts the positions that are not dead; lists, ranges and blocks cover every position once.
    """

    def __init__(
        self,
        groups: Groups,
        shape: GraphShape | None,
        columns: Columns,
        rest: Mapping[int, Sequence[Predicate]],
        *,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        """`rest`: the predicates of rows whose cluster asks programs. Costs about 1 µs a row and slot."""
        self.clusters: list[ClusterKey] = list(groups)
        layout = lay_out(groups, shape, block_rows)
        self.packed, self.arrays = pack(layout.arrays)
        self.rows: Codes = layout.rows
        self.columns = layout.columns
        self.live = self.rows.size
        self.passes = 1 + self.arrays.far.size
        self.program_of: Codes = np.zeros(0, dtype=np.int32)
        self.programs: ProgramArrays | None = None
        self._place_programs(columns, rest)
        self._by_row = np.argsort(self.rows, kind="stable").astype(np.int32)
        self._always: list[int] = []
        self._under: dict[AttributeId, list[int]] = {}
        self._hang()
        self._visits: dict[frozenset[AttributeId], Ints] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        parts = [*self.packed, self.rows, self._by_row, *(self.programs or ()), self.program_of]
        return sum(part.nbytes for part in parts)

    def visits(self, present: frozenset[AttributeId]) -> Ints:
        """The clusters that an event with just these attributes may match, ascending."""
        found = self._visits.get(present)
        if found is None:
            asked = [*self._always, *(each for attribute in present for each in self._under.get(attribute, ()))]
            fitting = [
                each
                for each in asked
                if self.clusters[each][0] <= present and self.clusters[each][1].isdisjoint(present)
            ]
            found = np.array(sorted(fitting), dtype=np.int64)
            if len(self._visits) >= REMEMBERED:
                self._visits.clear()
            self._visits[present] = found
        return found

    def kill(self, row: int) -> bool:
        """Mark every position of `row` dead; False if it does not live here."""
        row_at = self.rows.__getitem__
        first = bisect_left(self._by_row, row, key=row_at)  # numpy's own would copy the whole order
        last = bisect_right(self._by_row, row, lo=first, key=row_at)
        positions = self._by_row[first:last]
        positions = positions[self.arrays.dead[positions] == 0]
        if not positions.size:
            return False
        self.arrays.dead[positions] = 1
        self.arrays.sizes[3] += positions.size
        self.live -= positions.size
        return True

    def groups(self, live: npt.NDArray[np.bool_]) -> Groups:
        """The rows at the positions in `live`, as they were given."""
        arrays = self.arrays
        groups: Groups = {}
        for number, key in enumerate(self.clusters):
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            kept = live[begin:end]
            if not kept.any():
                continue
            slots = key[2]
            ordered = sum(how == ORDERED for how, _ in slots)
            at = int(arrays.record_from[number])
            records = arrays.records[at : at + (end - begin) * (len(slots) + ordered + 1)]
            records = records.reshape(end - begin, len(slots) + ordered + 1)[kept]
            ends = np.empty((len(records), len(slots), 2))
            for j, slot in enumerate(slots):
                if j < ordered:
                    first = int(arrays.bound_from[self.columns.index(slot[1])])
                    ends[:, j] = arrays.bounds[first + (records[:, 2 * j : 2 * j + 2] >> 1)]
                else:
                    ends[:, j] = records[:, ordered + j, None]
            groups[key] = RowGroup(self.rows[begin:end][kept], ends)
        return groups

    def alive(self) -> npt.NDArray[np.bool_]:
        """Which positions are not dead, as of now."""
        return cast(npt.NDArray[np.bool_], self.arrays.dead == 0)

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        arrays = self.arrays
        # The living are counted.
        assert self.live == np.count_nonzero(arrays.dead == 0), (self.live, arrays.dead)
        assert arrays.sizes[3] == np.count_nonzero(arrays.dead), (arrays.sizes, arrays.dead)
        # Lists, ranges and blocks cover every position exactly once.
        spans = [
            *map(tuple, arrays.lists.reshape(-1, 4)[:, 1:3].tolist()),
            *zip(arrays.block_begin.tolist(), arrays.block_end.tolist(), strict=True),
            *zip(arrays.upper_from.tolist(), arrays.lower_from.tolist(), strict=True),
            *zip(arrays.lower_from.tolist(), arrays.cluster_from[1:].tolist(), strict=True),
        ]
        spans = sorted(span for span in spans if span[0] < span[1])
        assert [begin for begin, _ in spans] == [0, *(end for _, end in spans)][: len(spans)], spans
        assert not spans or spans[-1][1] == self.rows.size, (spans, self.rows.size)
        # The lists of a slot ascend by code.
        for begin, end in zip(arrays.list_from[:-1].tolist(), arrays.list_from[1:].tolist(), strict=True):
            codes = arrays.lists[4 * begin : 4 * end : 4]
            assert (np.diff(codes) > 0).all(), codes
        # A position gives its row, or itself where a program is asked.
        for number, key in enumerate(self.clusters):
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            expected = ~np.arange(begin, end) if key[3] else self.rows[begin:end]
            assert (arrays.emit[begin:end] == expected).all(), (key, arrays.emit[begin:end])

    def _place_programs(self, columns: Columns, rest: Mapping[int, Sequence[Predicate]]) -> None:
        if not any(key[3] for key in self.clusters):
            return
        programs = Programs()
        self.program_of = np.full(self.rows.size, -1, dtype=np.int32)
        for number, key in enumerate(self.clusters):
            if key[3]:
                begin, end = self.arrays.cluster_from[number : number + 2].tolist()
                for position in range(begin, end):
                    self.program_of[position] = programs.add(rest[int(self.rows[position])], columns)
        self.programs = programs.arrays()

    def _hang(self) -> None:
        """Each cluster under the attribute that the fewest clusters require."""
        times: dict[AttributeId, int] = {}
        for required, _, _, _ in self.clusters:
            for attribute in required:
                times[attribute] = times.get(attribute, 0) + 1
        for number, (required, _, _, _) in enumerate(self.clusters):
            if required:
                rarest = min(required, key=lambda attribute: (times[attribute], attribute))
                self._under.setdefault(rarest, []).append(number)
            else:
                self._always.append(number)


def _ends(columns: Columns, how: int, column: object, low: object, high: object) -> tuple[float, float]:
    if how == KEY:
        code = columns.key(columns.number(cast(int, column), how), low)  # type: ignore[arg-type]
        return float(code), float(code)
    return float(cast(float, low)), float(cast(float, high))
