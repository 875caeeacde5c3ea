"""Explanation of the index's steps for one event, with counts, by walking the arrays again.

    segment ─▶ clusters visited ─▶ lists, ranges, blocks looked at ─▶ rows left after each column ─▶ checked ─▶ found

Slow, for people; tests compare what it finds with what the kernels find.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast.index.clause import AttributeId, ColumnId
from kindcast.index.fused.arrays import Bytes, Codes, Ints, Words
from kindcast.index.fused.columns import EventBatch
from kindcast.index.fused.conjuncts import CONCEPT, ORDERED
from kindcast.index.fused.graph_arrays import CELLS, GraphArrays, walk_up
from kindcast.index.fused.kernels import number_code
from kindcast.index.fused.memtable import Memtable
from kindcast.index.fused.search import ResultMemory, Scratch, check_residuals, search
from kindcast.index.fused.segment import Segment
from kindcast.index.fused.small_clusters import Scattered

__all__ = ["explained"]

READS = ("order", "key", "concept")
"""How a column is read, by its number."""


def explained(
    segments: Sequence[Segment],
    memtables: Sequence[Memtable],
    batch: EventBatch,
    graph: GraphArrays,
    cells: Bytes,
    columns: Sequence[ColumnId],
) -> dict[str, Any]:
    """The walk for the one event of `batch`; `columns`: for each of the engine's numbers the column.

    `{"segments": [{"rows", "dead", "clusters", "visited": [{"required", "forbidden", "columns": [{"column", "reads"}],
    "rows", "steps": [{"by", "column", "rows", "masks", "left": [{"column", "rows"}], "checked", "found"}],
    "programs"}], "scattered": None or {"rows", "attributes", "left", "checked", "programs", "found"}}],
    "memtable": {"rows", "asked", "found"}, "found"}`. A step is a list, a range or a block of rows that was looked at;
    `left` has the columns in the order in which their masks were joined, and how many rows were left after each;
    `checked` is how many records were read, none where all rows of a list or a range match; `found` rows satisfied all
    columns, of which `programs` were asked what no column can say. `scattered` are the small clusters, found together:
    `attributes` is how many rows are left by those that the event has and lacks.
    """
    walks = [_Walk(segment, batch, graph, cells, columns) for segment in segments]
    told = [walk.segment() for walk in walks]
    found = int(sum(walk.rows_found for walk in walks))
    scratch = Scratch((len(batch.concept_places) + 1) * len(cells), ResultMemory())
    (present,) = batch.presents
    of_memtables = 0
    asked = 0
    for memtable in memtables:
        of_memtables += search([], [memtable], batch, graph, cells, scratch, len(columns)).rows.size
        asked += memtable.fitting(present)
    rows = sum(map(len, memtables))
    return {
        "segments": told,
        "memtable": {"rows": rows, "asked": asked, "found": of_memtables},
        "found": found + of_memtables,
    }


class _Walk:
    """One event through one segment."""

    def __init__(
        self, segment: Segment, batch: EventBatch, graph: GraphArrays, cells: Bytes, columns: Sequence[ColumnId]
    ) -> None:
        self.rows_found = 0
        self._segment = segment
        self._arrays = segment.arrays
        self._batch = batch
        self._graph = graph
        self._cells = cells
        self._columns = columns
        width = batch.columns.size
        begins = np.arange(width + 1) if batch.several_from.size == 1 else batch.several_from
        self._codes: dict[int, Codes] = {}
        self._above: dict[int, Bytes] = {}
        for s, number in enumerate(batch.columns.tolist()):
            if number >= self._arrays.local.size or self._arrays.local[number] < 0:
                continue
            column = int(self._arrays.local[number])
            span = slice(int(begins[s]), int(begins[s + 1]))
            if self._arrays.column_how[column] == ORDERED:
                codes = np.array([self._number(column, value) for value in batch.numbers[span].tolist()])
            else:
                codes = batch.codes[span]
            self._codes[column] = codes[codes >= 0].astype(np.int64)
            if self._arrays.column_how[column] == CONCEPT:
                self._above[column] = self._all_above(self._codes[column])

    def segment(self) -> dict[str, Any]:
        """The whole walk."""
        segment = self._segment
        (present,) = self._batch.presents
        visited = [self._cluster(number) for number in segment.visits(present).tolist()]
        scattered = None if segment.scattered is None else self._scattered(segment.scattered, present)
        return {
            "rows": segment.stored,
            "dead": segment.stored - segment.live,
            "clusters": len(segment.clusters),
            "visited": visited,
            "scattered": scattered,
        }

    def _scattered(self, scattered: Scattered, present: frozenset[AttributeId]) -> dict[str, Any]:
        """The rows of small clusters, by their masks."""
        arrays, segment = scattered.arrays, self._segment
        words = (arrays.cluster.size + 63) // 64
        joined = scattered.left_by([present])[0].copy()
        attributes = _ones(joined)
        order = []
        for place, column in enumerate(arrays.columns.tolist()):
            if self._codes.get(column, np.empty(0)).size:
                cells = {self._cell(column, code) for code in self._codes[column].tolist()}
                masks = arrays.masks[place * CELLS * words : (place + 1) * CELLS * words].reshape(CELLS, words)
                joined &= np.bitwise_or.reduce(masks[list(cells)], axis=0)
                order.append({"column": self._columns[segment.columns[column]], "rows": _ones(joined)})
        left = np.unpackbits(joined.view(np.uint8), bitorder="little").astype(np.bool_)
        places = np.flatnonzero(left)
        kept: list[int] = []
        programs = 0
        for number in np.unique(arrays.cluster[places]).tolist():
            required, forbidden, _, asked = segment.clusters[number]
            slots = slice(self._arrays.slot_from[number], self._arrays.slot_from[number + 1])
            columns = self._arrays.slot_column[slots].tolist()
            if not required <= present or forbidden & present:
                continue
            if any(not self._codes.get(column, np.empty(0)).size for column in columns):
                continue
            positions = arrays.first[1] + places[arrays.cluster[places] == number]
            alive = self._arrays.tombstones[positions] == 0
            found = positions[self._satisfied(number, columns, positions) & alive]
            programs += found.size if asked else 0
            kept.append(self._settled(found) if asked else self._rows_at(found))
        self.rows_found += sum(kept)
        told = {"rows": arrays.cluster.size, "attributes": attributes, "left": order}
        return told | {"checked": int(places.size), "programs": int(programs), "found": sum(kept)}

    def _cluster(self, number: int) -> dict[str, Any]:
        arrays = self._arrays
        required, forbidden, slots, asked = self._segment.clusters[number]
        columns = arrays.slot_column[arrays.slot_from[number] : arrays.slot_from[number + 1]].tolist()
        told: dict[str, Any] = {
            "required": sorted(required),
            "forbidden": sorted(forbidden),
            "columns": [{"column": self._columns[number], "reads": READS[how]} for how, number in slots],
            "rows": int(arrays.cluster_from[number + 1] - arrays.cluster_from[number]),
            "steps": [],
            "programs": 0,
        }
        if any(not self._codes.get(column, np.empty(0)).size for column in columns):
            return told
        kept: list[Ints] = []
        for by, access, begin, end, mask in self._looked_at(number, columns):
            step, found = self._step(number, columns, access, begin, end, mask)
            named = {"by": by, "column": None if access < 0 else self._columns[slots[access][1]]}
            told["steps"].append(named | step)
            kept.append(found)
        found = np.concatenate([*kept, np.empty(0, dtype=np.int64)])
        if asked:
            told["programs"] = int(found.size)
        self.rows_found += self._settled(found) if asked else self._rows_at(found)
        return told

    def _looked_at(self, number: int, columns: list[int]) -> list[tuple[str, int, int, int, int]]:
        """What is looked at in a cluster: what it is, the slot it is found by, its positions, its masks."""
        arrays = self._arrays
        steps = []
        for j, column in enumerate(columns):
            slot = int(arrays.slot_from[number]) + j
            lists = arrays.lists.reshape(-1, 4)[arrays.list_from[slot] : arrays.list_from[slot + 1]]
            if column in self._above:
                lists = lists[self._above[column][lists[:, 0]] != 0]
            else:
                lists = lists[np.isin(lists[:, 0], self._codes[column])]
            steps += [("list", j, begin, end, mask) for _, begin, end, mask in lists.tolist()]
        for block in range(int(arrays.block_from[number]), int(arrays.block_from[number + 1])):
            begin, end = int(arrays.block_begin[block]), int(arrays.block_end[block])
            steps.append(("block", -1, begin, end, int(arrays.block_mask[block])))
        upper, lower = int(arrays.upper_from[number]), int(arrays.lower_from[number])
        last = int(arrays.cluster_from[number + 1])
        steps += [("range", 0, begin, end, -1) for begin, end in ((upper, lower), (lower, last)) if begin < end]
        return steps

    def _step(
        self, number: int, columns: list[int], access: int, begin: int, end: int, mask: int
    ) -> tuple[dict[str, Any], Ints]:
        """The counts, and the positions that are found."""
        words = (end - begin + 63) // 64
        left = np.ones(end - begin, dtype=np.bool_)
        order = []
        narrowing = 0
        for j, column in enumerate(columns):
            if mask < 0 or j == access:
                continue
            some = np.zeros(words, dtype=np.uint64)
            for cell in {self._cell(column, code) for code in self._codes[column].tolist()}:
                at = mask + (narrowing * CELLS + cell) * words
                some |= self._arrays.masks[at : at + words]
            narrowing += 1
            left &= np.unpackbits(some.view(np.uint8), bitorder="little")[: left.size].astype(np.bool_)
            order.append({"column": self._columns[self._segment.columns[column]], "rows": int(np.count_nonzero(left))})
        checked = begin + np.flatnonzero(left)
        found = checked[self._satisfied(number, columns, checked) & (self._arrays.tombstones[checked] == 0)]
        alone = len(columns) == (access >= 0)  # the way here has answered all there is to ask
        read = 0 if alone else checked.size
        step = {"rows": end - begin, "masks": mask >= 0, "left": order}
        return step | {"checked": int(read), "found": int(found.size)}, found

    def _satisfied(self, number: int, columns: list[int], positions: Ints) -> Bytes:
        """Which of the rows at `positions` all columns satisfy."""
        arrays = self._arrays
        ordered, plain = int(arrays.ordered[number]), int(arrays.plain[number])
        stride = len(columns) + ordered + 1
        at = arrays.record_from[number] + (positions - arrays.cluster_from[number]) * stride
        good = np.ones(positions.size, dtype=np.bool_)
        for j, column in enumerate(columns):
            codes = self._codes[column]
            if j < ordered:
                low, high = arrays.records[at + 2 * j, None], arrays.records[at + 2 * j + 1, None]
                good &= ((low <= codes) & (codes <= high)).any(axis=1)
            elif j < plain:
                good &= np.isin(arrays.records[at + ordered + j], codes)
            else:
                good &= self._above[column][arrays.records[at + ordered + j]] != 0
        return good

    def _rows_at(self, positions: Ints) -> int:
        """How many rows the positions stand for."""
        rows, shared = self._segment.rows[positions], self._segment.shared
        return int(np.count_nonzero(rows >= 0) + (0 if shared is None else shared.left[~rows[rows < 0]].sum()))

    def _settled(self, positions: Ints) -> int:
        """How many of the rows at `positions` their programs let through."""
        segment = self._segment
        assert segment.programs is not None, segment.clusters
        concepts = self._graph.parent_from.size - 1
        scratch = Scratch((len(self._batch.concept_places) + 1) * concepts, ResultMemory())
        arrays = scratch.batch_arrays(self._batch, concepts, len(self._columns))
        starts = np.array([0, positions.size], dtype=np.int64)
        check_residuals(
            (~positions).astype(np.int32),
            starts,
            segment.rows,
            segment.program_of,
            segment.programs,
            self._graph,
            arrays,
            scratch.marked,
            scratch.above,
        )
        return int(starts[1])

    def _number(self, column: int, value: float) -> int:
        arrays = self._arrays
        bounds = arrays.bounds[arrays.bound_from[column] : arrays.bound_from[column + 1]]
        table = arrays.bucket_table[arrays.bucket_from[column] : arrays.bucket_from[column + 1]]
        return number_code(value, bounds, table, *arrays.bucket_steps[3 * column : 3 * column + 3].tolist())

    def _cell(self, column: int, code: int) -> int:
        how = self._arrays.column_how[column]
        if how == ORDERED:
            return code * CELLS // int(self._arrays.column_codes[column])
        return int(self._cells[code]) if how == CONCEPT else code & (CELLS - 1)

    def _all_above(self, concepts: Codes) -> Bytes:
        """One for each concept that one of `concepts` is or is beneath."""
        size = self._graph.parent_from.size - 1
        marked, above = np.zeros(size, dtype=np.uint8), np.empty(size + 1, dtype=np.int32)
        for concept in concepts.tolist():
            walk_up(self._graph, concept, marked, 0, above, 0)
        return marked


def _ones(words: Words) -> int:
    return int(np.unpackbits(words.view(np.uint8)).sum())
