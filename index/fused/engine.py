"""The `fused` engine: immutable segments matched by compiled kernels, a memtable of new rows, one file on disk.

    add ─▶ memtable (masks, programs) ─▶ sealed ─▶ merged with smaller segments ─▶ Segment: clusters, lists, masks
    remove ─▶ out of the memtable, or a tombstone; a segment of half tombstones is merged without them

    events ─▶ Columns.encode ─▶ search: match_segment for each segment, match_memtable ─▶ distinct_rows ─▶ rows

From the literature: clusters by attribute set and one access path per row (Fabret et al., "Le Subscribe":
schemas, equality-preferred), columns cut into cells with one AND per column (GEM, DEXIN), visits through the concepts
above a value (CTPS), and exact bounds last, for what bits cannot decide.

Exact for the whole clause language; `kindcast.index.fused.columns` says which predicates stand in records and masks,
and which are asked by programs of the rows that got so far. Clauses are not kept, only their compiled form.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.array_file import read_arrays, write_arrays
from kindcast.index.clause import AttributeId, Clause, ClauseRow, ColumnId, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import (
    ClauseColumns,
    ColumnBatch,
    ConceptOperands,
    Engine,
    IntervalOperands,
    KeyOperands,
    OperandColumn,
    RowTable,
    in_order,
)
from kindcast.index.errors import IndexFull, OtherGraph, UnknownRow
from kindcast.index.fused.arrays import (
    BLOCK_ROWS,
    CELLS,
    Bytes,
    Codes,
    Floats,
    GraphArrays,
    GraphShape,
    Ints,
    Packed,
    SegmentArrays,
    Words,
    graph_arrays,
    walk_up,
)
from kindcast.index.fused.columns import CONCEPT, KEY, ORDERED, ColumnLayout, Columns, EventBatch, decompose
from kindcast.index.fused.compaction import Builder, Compaction, in_thread
from kindcast.index.fused.kernels import match_segment, number_code
from kindcast.index.fused.layout import ClusterKey, Groups, Place, RowGroup, groups_of_places, merged, places_of
from kindcast.index.fused.memtable import FROZEN, IN_MEMTABLE, NEVER, NOWHERE, Memtable, RowLocations, match_memtable
from kindcast.index.fused.residuals import GrowingRest, ProgramArrays, Rest
from kindcast.index.fused.search import ResultMemory, Scratch, check_residuals, distinct_rows, in_memtables, search
from kindcast.index.fused.segment import Segment, SharedArrays
from kindcast.index.fused.small_clusters import Scattered, ScatteredArrays
from kindcast.index.jit import announce_compilation, compiled

__all__ = [
    "FILE",
    "FusedEngine",
    "Saved",
    "explained",
    "kind_of",
    "open_saved",
    "save",
]

# Clauses in columns → rows by cluster, column by column.
#
# ClauseColumns ─▶ how and where each test is read ─▶ ends float64[n, slots, 2] ─▶ RowGroup under its cluster


def possible(clauses: ClauseColumns) -> npt.NDArray[np.bool_]:
    """Returns `bool[n]`: the clauses that some event can match, which are all clauses without an empty interval."""
    if not clauses.required.isdisjoint(clauses.forbidden):
        return np.zeros(len(clauses), dtype=np.bool_)
    good = np.ones(len(clauses), dtype=np.bool_)
    for test in clauses.tests:
        if isinstance(test, IntervalOperands):
            good &= test.low <= test.high
    return good


def groups_of_columns(
    bulk: Iterable[tuple[ClauseColumns, npt.NDArray[np.int32]]], columns: Columns
) -> dict[ClusterKey, RowGroup]:
    """Groups the clauses of `bulk` by cluster. Each entry of `bulk` has the row of every clause, -1 if no event can
    match the clause. Costs a few ns per test, and some µs per entry."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for clauses, rows in bulk:
        kept = np.flatnonzero(rows >= 0)
        if not kept.size:
            continue
        placed = sorted(enumerate(clauses.tests), key=lambda each: (*_slot(each[1], columns), each[0]))
        ends = np.empty((kept.size, len(placed), 2))
        for at, (_, test) in enumerate(placed):
            _write(test, columns, kept, ends[:, at])
        slots = tuple(_slot(test, columns) for _, test in placed)
        key = (clauses.required, clauses.forbidden, slots, False)
        by_key.setdefault(key, []).append(RowGroup(rows[kept], ends))
    return {
        key: RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }


def _slot(test: OperandColumn, columns: Columns) -> tuple[int, int]:
    """Returns how and in which column the engine reads `test`, as for single tests
    (`kindcast.index.fused.columns`)."""
    if isinstance(test, IntervalOperands):
        how = ORDERED
    elif isinstance(test, KeyOperands) or test.exactly:
        how = KEY
    else:
        how = CONCEPT
    return how, columns.number(test.column, how)


def _write(test: OperandColumn, columns: Columns, kept: npt.NDArray[np.int64], ends: npt.NDArray[np.float64]) -> None:
    """Writes the two ends of `test` into `ends`, for the clauses `kept`."""
    match test:
        case IntervalOperands(low=low, high=high):
            ends[:, 0] = low[kept]
            ends[:, 1] = high[kept]
        case KeyOperands(column=column, keys=keys, places=places):
            number = columns.number(column, KEY)
            used, inverse = np.unique(places[kept], return_inverse=True)
            codes = np.array([columns.key(number, keys[place]) for place in used.tolist()], dtype=np.float64)
            ends[:] = codes[inverse, None]
        case ConceptOperands(column=column, concepts=concepts, exactly=exactly):
            found = concepts[kept]
            if exactly:
                number = columns.number(column, KEY)
                used, inverse = np.unique(found, return_inverse=True)
                codes = np.array([columns.key(number, each) for each in used.tolist()], dtype=np.float64)
                ends[:] = codes[inverse, None]
            else:
                ends[:] = found[:, None]


# The fast path for a single event, with one kernel call for each segment.
#
# A batch of one costs some 15 µs before anything is matched: arrays that are made for one event, and several calls of
# kernels, each of which unpacks what it is given. Here the values of an event go into one array, and one call answers
# with the rows of a segment in order. Rows of memtables are found as in a batch. If a segment has programs, small
# clusters or shared positions, or the event several values in a column, it takes the batch path.
#
#     LoweredEvent ─▶ Columns.values_of ─▶ match_single: match_segment ─▶ distinct_rows ─▶ rows


@compiled
def match_single(
    ends: Ints,
    codes: Codes,
    ints: Ints,
    floats: Floats,
    bytes: Bytes,
    words: Words,
    parent_from: Ints,
    parents: Codes,
    entry_from: Ints,
    entries: Codes,
    columns: Codes,
    values: Floats,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    passes: int,
    room: int,
    capacity: int,
) -> Codes:
    """The rows that match, ascending, each once, all below `capacity`. The first six arguments are a `Packed`, the next
    four a `GraphArrays`: a tuple of arrays costs the caller more than its arrays. `values` has the number or the code
    of each of `columns`; `room` is for so many rows at first. The rest is as in `match_segment`."""
    packed = Packed(ends, codes, ints, floats, bytes, words)
    graph = GraphArrays(parent_from, parents, entry_from, entries)
    own = np.full(values.size, -1, dtype=np.int32)
    for s in range(values.size):
        if 0.0 <= values[s] < 2147483648.0:
            own[s] = np.int32(values[s])
    kinds = np.zeros(1, dtype=np.int32)
    several_index = np.full(1, -1, dtype=np.int32)
    visits_from = np.zeros(2, dtype=np.int64)
    visits_from[1] = visits.size
    starts = np.empty(passes + 1, dtype=np.int64)
    buffer = match_segment(
        packed,
        graph,
        columns,
        own,
        values,
        kinds,
        several_index,
        np.zeros(1, dtype=np.int64),
        visits_from,
        visits,
        cells_of,
        marked,
        above,
        np.empty(0, dtype=np.int32),
        np.zeros(2, dtype=np.int64),
        np.empty(room, dtype=np.int32),
        starts,
    )
    offsets = np.zeros(2, dtype=np.int64)
    offsets[1] = starts[passes]
    return distinct_rows(offsets, buffer[: starts[passes]], capacity)[1]


NO_ROWS = np.empty(0, dtype=np.int32)
MEMTABLE_ROWS = 2048
"""Entries of a memtable: their masks take 256 bytes per column of an event, and the fewer merges the better."""
BULK_ROWS = 256
"""So many rows that come together get a segment of their own: to add each costs more than to lay them out."""

Run = Callable[[Callable[[], None]], None]


class FusedEngine(Engine):
    """Exact matching by frozen segments.

    `match` costs as much as a batch of one event; `match_batch` visits each block once for many events. Any number of
    threads may match at the same time while no thread changes the engine. Merges run in parallel to both; the next call
    takes over their results.
    """

    reads_columns = True

    def __init__(
        self,
        graph: ConceptGraph,
        *,
        budget: int | None = None,
        run: Run = in_thread,
        memtable_rows: int = MEMTABLE_ROWS,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        """`budget` is the maximum size of index and caches in bytes; the default is no limit. When the budget is used
        up, the engine drops its caches and then the masks, which makes matching slower. After that, adding raises
        `IndexFull`. A merge needs additional space for its result. `run` runs merges: `in_thread` in a background
        thread, `at_once` in the call that makes the merge due. `memtable_rows` and `block_rows` are for tests, which
        need every structure with few rows."""
        self._begin(graph, None, budget=budget, run=run, memtable_rows=memtable_rows, block_rows=block_rows)

    def _begin(
        self,
        graph: ConceptGraph,
        folder: Path | None,
        *,
        budget: int | None,
        run: Run,
        memtable_rows: int,
        block_rows: int,
    ) -> None:
        self._graph = graph_arrays(graph)
        self._builder = Builder(self._graph, np.zeros(len(graph), dtype=np.uint8), block_rows)
        self._memtable_rows = memtable_rows
        self._columns = Columns()
        self._locations = RowLocations()
        known = None if folder is None else open_saved(folder, self._graph)
        if known is not None:
            self._columns = known.columns
            self._locations = RowLocations(known.state)
            self._locations.repeating = known.repeating
            self._builder.shape = known.shape
        segments = () if known is None else known.segments
        self._compaction = Compaction(
            self._builder, self._columns, self._locations, segments, memtable_rows=memtable_rows, run=run, budget=budget
        )
        self._compaction.make_room(0)
        self._compaction.advance(begin=True)

    def __len__(self) -> int:
        return len(self._locations)

    @property
    def nbytes(self) -> int:
        """The bytes of stored data and caches, partly estimated."""
        return self._compaction.nbytes

    @property
    def keys(self) -> int:
        """The number of keys, each with its code, and of columns."""
        return self._columns.known

    @property
    def structure(self) -> Mapping[str, int]:
        return self._compaction.structure

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, clause: Clause) -> ClauseRow:
        """Adds a clause to the memtable, which is frozen when it is full. Takes some 50 µs, without the cost of merges.
        Raises `IndexFull`."""
        self._compaction.advance()
        self._compaction.make_room()
        row = self._locations.take()
        parts = decompose(clause)
        if parts is None:
            self._locations.put(row, NEVER)
        else:
            self._compaction.add(row, clause, parts)
        return ClauseRow(row)

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """Adds clauses: a few go into the memtable, many become a new segment. Raises `IndexFull`; then none is
        added."""
        clauses = list(clauses)
        if len(clauses) <= min(self._memtable_rows, BULK_ROWS):
            few: list[ClauseRow] = []
            try:
                few.extend(self.add(clause) for clause in clauses)
            except IndexFull:
                for row in few:
                    self.remove(row)
                raise
            return few
        rows = [ClauseRow(self._locations.take()) for _ in clauses]
        rest = GrowingRest()
        groups = groups_of_places(self._placed(zip(rows, clauses, strict=True), rest))
        self._freeze(rows, groups, rest.rest())
        return rows

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """Does the same as `add_many`, for clauses in columns. Costs some 10 ns per test, plus the layout."""
        if count <= min(self._memtable_rows, BULK_ROWS):
            return np.array(self.add_many(in_order(clauses, columns, count)), dtype=np.int32)
        rows = np.array([self._locations.take() for _ in range(count)], dtype=np.int32)
        rest = GrowingRest()
        by_one = groups_of_places(self._placed(((int(rows[place]), clause) for place, clause in clauses), rest))
        placed: list[tuple[ClauseColumns, npt.NDArray[np.int32]]] = []
        for each in columns:
            good = possible(each)
            own = rows[each.places]
            self._locations.put(own, np.where(good, FROZEN, NEVER))
            placed.append((each, np.where(good, own, np.int32(-1))))
        self._freeze(rows.tolist(), merged([by_one, groups_of_columns(placed, self._columns)]), rest.rest())
        return rows

    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`. Raises `UnknownRow`."""
        self._compaction.advance()
        where = self._locations.where(row)
        if where == NOWHERE:
            raise UnknownRow(row)
        self._locations.give_back(row)
        self._compaction.remove(row, where)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """Returns the rows whose clauses match `event`, in ascending order. Takes the fast path if all segments are
        plain, otherwise the batch path with a batch of one."""
        self._compaction.advance()
        values = self._columns.values_of(event)
        if values is None:
            return self.match_batch([event]).rows
        layout, codes = values
        segments, memtables = self._compaction.parts
        unfrozen = [memtable for memtable in memtables if memtable.places]
        if not all([segment.is_plain for segment in segments]):  # a generator takes longer
            return self._ordered(self._search(self._columns.batch_of(event.present, layout, codes))).rows
        scratch = self._scratch((len(layout.concepts) + 1) * len(self._builder.cells))
        if len(segments) == 1 and not unfrozen:
            rows = self._in_segment(segments[0], event.present, layout, codes, scratch)
        else:
            found = [self._in_segment(segment, event.present, layout, codes, scratch) for segment in segments]
            if unfrozen:
                announce_compilation(match_memtable)
                batch = self._columns.batch_of(event.present, layout, codes)
                found += in_memtables(unfrozen, batch, self._graph, scratch, len(self._columns))
            rows = np.concatenate([NO_ROWS, *found])
            rows.sort()
        scratch.rows_an_event = rows.size
        self._compaction.keep(scratch)
        return rows

    def _in_segment(
        self,
        segment: Segment,
        present: frozenset[AttributeId],
        layout: ColumnLayout,
        values: Floats,
        scratch: Scratch,
    ) -> Codes:
        """Returns the rows of a plain segment that match one event, in ascending order."""
        visits = segment.visits(present)
        if not visits.size:
            return NO_ROWS
        announce_compilation(match_single)
        rows: Codes = match_single(
            *segment.packed,
            *self._graph,
            layout.columns,
            values,
            visits,
            self._builder.cells,
            scratch.marked,
            scratch.above,
            segment.passes,
            scratch.room(1),
            self._locations.size,
        )
        return rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the matching rows of each event, in ascending order."""
        return self._ordered(self._search(self._columns.encode(events)))

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the matching rows of each event of a columnar batch, without duplicates, in no order. Other threads
        may match at the same time."""
        table = self._search(self._columns.encode_columns(batch))
        return self._ordered(table) if self._locations.repeating else table

    def _search(self, batch: EventBatch) -> RowTable:
        self._compaction.advance()
        segments, memtables = self._compaction.parts
        announce_compilation(match_memtable if len(memtables[-1]) else match_segment)
        cells = self._builder.cells
        scratch = self._scratch((len(batch.concept_places) + 1) * len(cells))
        table = search(segments, memtables, batch, self._graph, cells, scratch, len(self._columns))
        self._compaction.keep(scratch)
        return table

    def _scratch(self, size: int) -> Scratch:
        """Returns working memory for a search, with space for `size` marks. `Compaction.keep` takes it back."""
        try:
            scratch = self._compaction.scratches.pop()  # one step, since others may take from it
        except IndexError:
            return Scratch(size, self._compaction.results)
        return scratch if scratch.size >= size else Scratch(size, self._compaction.results)

    def _ordered(self, table: RowTable) -> RowTable:
        return RowTable(*distinct_rows(table.offsets, table.rows, self._locations.size))

    def explain(self, event: LoweredEvent) -> dict[str, Any]:
        """Returns the steps for `event`: the visited clusters, the order of the columns, and the numbers of rows left,
        checked and found; see `kindcast.index.fused.engine.explained`. Takes some ms."""
        self._compaction.advance()
        batch = self._columns.encode([event])
        return explained(*self._compaction.parts, batch, self._graph, self._builder.cells, self._columns.columns())

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path) -> bool:
        """Writes the engine atomically into one file in `folder`. The engine does not change. The cost is that of
        writing its bytes. Raises `OSError`."""
        state = self._locations.state().copy()
        state[state == IN_MEMTABLE] = FROZEN
        segments = self._compaction.frozen()
        save(folder, self._graph, Saved(state, self._locations.repeating, self._columns, self._builder.shape, segments))
        return True

    @classmethod
    def open(
        cls,
        folder: Path,
        graph: ConceptGraph,
        *,
        budget: int | None = None,
        run: Run = in_thread,
        memtable_rows: int = MEMTABLE_ROWS,
        block_rows: int = BLOCK_ROWS,
    ) -> "FusedEngine":
        """Opens the engine that was saved in `folder`, with the same rows. The file is mapped into memory and never
        changed. The cost is that of reading the file once. Raises `DamagedIndex`, `OtherLayout`, `OtherGraph`,
        `IndexFull`, `OSError`."""
        engine = cls.__new__(cls)
        engine._begin(graph, Path(folder), budget=budget, run=run, memtable_rows=memtable_rows, block_rows=block_rows)
        return engine

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def merge_now(self) -> None:
        """Merges all rows into one segment without tombstones, in this thread. Waits for a running merge. Raises the
        exception that a merge raised."""
        self._compaction.merge_now()

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is broken."""
        self._locations.check_invariants()
        self._compaction.check_invariants()

    def _placed(
        self, stored: Iterable[tuple[int, Clause]], rest: GrowingRest
    ) -> Iterable[tuple[int, tuple[Place, ...]]]:
        """Yields the places of frozen rows. Their residual predicates are added to `rest`."""
        for row, clause in stored:
            parts = decompose(clause)
            self._locations.put(row, NEVER if parts is None else FROZEN)
            if parts is not None:
                self._locations.repeating += len(parts.alternatives) > 1
                if parts.rest:
                    rest.add(row, parts.rest, self._columns)
                yield row, places_of(parts, self._columns)

    def _freeze(self, rows: Sequence[int], groups: Groups, rest: Rest | None) -> None:
        """Makes a segment of new rows. If it exceeds the budget, the rows are freed again."""
        try:
            self._compaction.freeze(groups, rest)
        except IndexFull:
            repeated = np.concatenate([group.rows for group in groups.values()])
            self._locations.repeating -= int((np.unique(repeated, return_counts=True)[1] > 1).sum())
            for row in rows:
                self._locations.give_back(row)
            self._locations.shrink()
            raise


# ── the engine on disk: one memory-mapped file of arrays ──────────────────────────────────────────────────────────────

#     segments as they are │ the memtables' programs and places │ states of rows │ columns and keys ◀──▶ fused.index
#
# What is mapped on opening is private to the process where it is changed: tombstones do not reach the file.


FILE = "fused.index"
"""The name of the file in the folder of the engine."""
LAYOUT = 1
"""The number of the layout. It grows when arrays of the same names get another meaning."""
SAVED_NAMES = {"tombstones": "dead"}
"""Arrays that have another name in files, which older versions wrote."""


class Saved(NamedTuple):
    """What is saved of an engine: row allocation and segments. `state` has one byte per row, `repeating` counts the
    rows with alternatives."""

    state: Bytes
    repeating: int
    columns: Columns
    shape: GraphShape | None
    segments: Sequence[Segment]


def save(folder: Path, graph: GraphArrays, engine: Saved) -> None:
    """Writes the file, whole or not at all. Makes the folder if it is absent. The cost is that of writing the bytes.
    Raises `OSError`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"state": engine.state}
    if engine.shape is not None:
        arrays |= {f"shape/{name}": array for name, array in engine.shape._asdict().items()}
    segments = []
    for number, segment in enumerate(engine.segments):
        arrays |= {f"{number}/{name}": array for name, array in _arrays_of(segment).items()}
        segments.append({"columns": segment.columns, "clusters": [_cluster_record(key) for key in segment.clusters]})
    facts = {"graph": _digest(graph), "repeating": engine.repeating, "segments": segments}
    facts["columns"] = engine.columns.as_records()
    shares = any(segment.shared is not None for segment in engine.segments)
    write_arrays(folder / FILE, kind_of(shares=shares), facts, arrays)


def open_saved(folder: Path, graph: GraphArrays) -> Saved:
    """Maps what `save` wrote. Costs one reading of the file. Raises `DamagedIndex`, `OtherLayout`, `OtherGraph`;
    `OSError` if there is no such file."""
    path = Path(folder) / FILE
    facts, arrays = read_arrays(path, kind_of(shares=False), kind_of(shares=True))
    if facts["graph"] != _digest(graph):
        raise OtherGraph(path)
    shape = None
    if "shape/cells" in arrays:
        shape = GraphShape(*(arrays[f"shape/{name}"] for name in GraphShape._fields))
    segments = [_segment(known, arrays, f"{number}/") for number, known in enumerate(facts["segments"])]
    return Saved(arrays["state"], facts["repeating"], Columns.from_records(facts["columns"]), shape, segments)


def kind_of(*, shares: bool) -> str:
    """Returns the format identifier of a file. It changes whenever an array is added, renamed or removed, and with
    `LAYOUT`. A file with shared positions has a different identifier, because readers must know about them."""
    arrays = (SegmentArrays, ScatteredArrays, ProgramArrays, GraphShape)
    fields = (tuple(SAVED_NAMES.get(name, name) for name in each._fields) for each in arrays)
    names = (*fields, CELLS, LAYOUT)
    digest = hashlib.blake2b(repr(names).encode(), digest_size=6).hexdigest()
    return f"kindcast fused {LAYOUT} {digest}" + f" {' '.join(SharedArrays._fields)}" * shares


def _digest(graph: GraphArrays) -> str:
    state = hashlib.blake2b(digest_size=16)
    for array in graph:
        state.update(array.size.to_bytes(8, "little"))
        state.update(array.tobytes())
    return state.hexdigest()


def _arrays_of(segment: Segment) -> dict[str, Codes]:
    arrays = {f"packed/{name}": array for name, array in segment.packed._asdict().items()}
    arrays |= {"rows": segment.rows, "by_row": segment.by_row, "program_of": segment.program_of}
    if segment.scattered is not None:
        arrays |= {f"scattered/{name}": array for name, array in segment.scattered.arrays._asdict().items()}
    if segment.shared is not None:
        arrays |= {f"shared/{name}": array for name, array in segment.shared.arrays._asdict().items()}
    if segment.rest is not None:
        arrays["rest/rows"] = segment.rest.rows
        arrays |= {f"rest/{name}": array for name, array in segment.rest.programs._asdict().items()}
    return arrays


def _segment(facts: Mapping[str, Any], arrays: Mapping[str, Codes], prefix: str) -> Segment:
    def many(kind: Any, folder: str) -> Any:
        return kind(*(arrays[f"{prefix}{folder}/{name}"] for name in kind._fields))

    rest = None
    if f"{prefix}rest/rows" in arrays:
        rest = Rest(arrays[f"{prefix}rest/rows"], many(ProgramArrays, "rest"))
    scattered = many(ScatteredArrays, "scattered") if f"{prefix}scattered/first" in arrays else None
    shared = many(SharedArrays, "shared") if f"{prefix}shared/begin" in arrays else None
    return Segment(
        many(Packed, "packed"),
        arrays[f"{prefix}rows"],
        arrays[f"{prefix}by_row"],
        arrays[f"{prefix}program_of"],
        facts["columns"],
        [_cluster(record) for record in facts["clusters"]],
        rest,
        scattered,
        shared,
    )


def _cluster_record(key: ClusterKey) -> list[Any]:
    required, forbidden, slots, asked = key
    return [sorted(required), sorted(forbidden), slots, asked]


def _cluster(record: list[Any]) -> ClusterKey:
    required, forbidden, slots, asked = record
    return frozenset(required), frozenset(forbidden), tuple((how, number) for how, number in slots), asked


# ── explanation of the index's steps for one event, with counts, by walking the arrays again ──────────────────────────

#     segment ─▶ clusters visited ─▶ lists, ranges, blocks looked at ─▶ rows left after each column ─▶ checked ─▶ found
#
# Slow, for people; tests compare what it finds with what the kernels find.


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
    """Returns the steps for the only event of `batch`. `columns` maps the engine's numbers of columns to columns.

    `{"segments": [{"rows", "dead", "clusters", "visited": [{"required", "forbidden", "columns": [{"column", "reads"}],
    "rows", "steps": [{"by", "column", "rows", "masks", "left": [{"column", "rows"}], "checked", "found"}],
    "programs"}], "scattered": None or {"rows", "attributes", "left", "checked", "programs", "found"}}],
    "memtable": {"rows", "asked", "found"}, "found"}`. A step is a list, a range or a block of rows that was read.
    `left` has the columns in the order in which their masks were joined, and the number of rows that were left after
    each. `checked` is the number of records that were read: none if all rows of a list or a range match. `found` is the
    number of rows that satisfy all columns; residual predicates were evaluated for `programs` of them. `scattered` are
    the small clusters, which are found together: `attributes` is the number of rows whose required and forbidden
    attributes fit the event.
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
        """Returns the explanation for the whole segment."""
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
        """Explains the search in the small clusters, which uses masks."""
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
        """Returns the lists, blocks and ranges of a cluster that are read: (kind, slot by which it is found, first
        position, end, masks)."""
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
        """Returns the counts of one step, and the positions that it finds."""
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
        """Returns which of the rows at `positions` satisfy all columns."""
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
        """Returns the number of rows at the positions, including rows that share one."""
        rows, shared = self._segment.rows[positions], self._segment.shared
        return int(np.count_nonzero(rows >= 0) + (0 if shared is None else shared.left[~rows[rows < 0]].sum()))

    def _settled(self, positions: Ints) -> int:
        """Returns the number of rows at `positions` whose residual programs hold."""
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
        """Returns an array with 1 for each concept that is one of `concepts` or an ancestor of one."""
        size = self._graph.parent_from.size - 1
        marked, above = np.zeros(size, dtype=np.uint8), np.empty(size + 1, dtype=np.int32)
        for concept in concepts.tolist():
            walk_up(self._graph, concept, marked, 0, above, 0)
        return marked


def _ones(words: Words) -> int:
    return int(np.unpackbits(words.view(np.uint8)).sum())
