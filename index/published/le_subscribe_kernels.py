"""Figures 2, 4 and 5 of Le Subscribe as compiled kernels. One call matches many events.

The input is the satisfied predicates of each event: their numbers, and a value for each axis of bounds. Each predicate
is stored once, with its rows. Several values satisfy a predicate only once (erratum 22): the largest number is compared
for `AtLeast`, the smallest for `AtMost`, and the concepts above several values are united. `hitcount` starts at zero
for every event.

Clauses by their equality predicates: the clusters of Le Subscribe, section 3, in which `eqsubmatch` looks up rows.

    clause ─▶ schema: the axes of its equality predicates ─▶ cluster
    cluster, the numbers of its predicates ─▶ hash table ─▶ entry ─▶ run of rows

A test of a concept is an equality, too: a value is mapped to itself and all concepts above it. An axis that occurs
twice in a clause occurs twice in its schema. Empty entries are dropped when most entries are empty.

Sorted bounds of each axis with their rows, with single insertions and removals: a B+-tree with one level of blocks.

    axis ─▶ order[axis, : blocks[axis]]    its blocks, ascending
    block ─▶ bounds, rows[block, : size]  up to `BLOCK` pairs of a bound and a row, ascending by both

A value satisfies the bounds of the first or the last blocks, and of a part of one more block. These are contiguous runs
of rows (erratum 21: for `X <= c` the suffix c >= v, for `X >= c` the prefix). A full block is split in two; an empty
block is reused.

The elementary predicates of every row: the association table of Le Subscribe, indexed by row.

    row ─▶ begin, length        axis, operand [begin : begin + length]

An operand is the number of a predicate (keys, concepts, presence) or a bound. If a lower bound and the next upper bound
belong to one test, which a single value must satisfy, the axis of the lower bound is stored as `~axis`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled
from kindcast.index.published.shared import GrowingRuns

__all__ = [
    "AT_LEAST",
    "AT_MOST",
    "BLOCK",
    "EQUALITY",
    "PRESENT",
    "BoundBlocks",
    "EqualityClusters",
    "RowPredicates",
    "Satisfied",
    "Stored",
    "entry_of",
    "equality_preferred",
    "fair",
    "quarantining",
]


Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

FEWEST_SLOTS = 64


class Clusters(NamedTuple):
    """The arrays of `c` clusters. `schema` is `int32[c, axes]`, of which the first `width[c]` are used. `live` is the
    number of rows of each cluster, `mask` its bit set of axes modulo 64. Entry `e` has the predicates `keys[e]` (one
    per axis of its cluster) and the rows `rows[start[e] : start[e] + length[e]]`. `slots` is the hash table: entries or
    -1, with at least twice as many slots as entries."""

    schema: Rows
    width: Rows
    live: Rows
    mask: Words
    cluster: Rows
    keys: Rows
    slots: Rows
    start: Numbers
    length: Numbers
    rows: Rows


class EqualityClusters:
    """Rows by schema and predicates. Clauses without equality predicates are not stored here."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, ...], int] = {}
        self._schema = np.zeros((0, 1), dtype=np.int32)
        self._width, self._live = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        self._mask = np.zeros(0, dtype=np.uint64)
        self._cluster = np.zeros(0, dtype=np.int32)
        self._keys = np.zeros((0, 1), dtype=np.int32)
        self._slots = np.full(FEWEST_SLOTS, -1, dtype=np.int32)
        self._entries = 0
        self._rows = 0
        self._runs = GrowingRuns(np.int32)

    @property
    def clusters(self) -> Clusters:
        """Returns the arrays for kernels."""
        runs = self._runs
        return Clusters(
            self._schema, self._width, self._live, self._mask, self._cluster, self._keys, self._slots,
            runs.start, runs.length, runs.entries,  # type: ignore[arg-type]
        )  # fmt: skip

    def add(self, rows: Rows, row_of: Numbers, axis: Rows, predicate: Rows) -> None:
        """Adds rows. Row `rows[row_of[k]]` has the equality predicate `predicate[k]` on `axis[k]`; each row has at
        least one. Costs a look-up of the schema and a look-up in the hash table per row."""
        order = np.lexsort((predicate, axis, row_of))
        axis, predicate = axis[order], predicate[order]
        first = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows.size))]).astype(np.int64)
        cluster = np.empty(rows.size, dtype=np.int32)
        axes, ends = axis.tolist(), first.tolist()
        for i in range(rows.size):
            cluster[i] = self._cluster_of(tuple(axes[ends[i] : ends[i + 1]]))
        np.add.at(self._live, cluster, 1)
        self._make_room(rows.size)
        places = np.empty(rows.size, dtype=np.int64)
        self._entries = _enter(
            cluster, first, predicate, self._cluster, self._keys, self._width, self._slots, self._entries, places
        )
        self._runs.grow(self._cluster.size)
        self._runs.append(places, rows)
        self._rows += rows.size

    def remove(self, row: int, axis: Rows, predicate: Rows) -> None:
        """Removes a row that was added with these axes and predicates."""
        order = np.lexsort((predicate, axis))
        cluster, predicate = self._number[tuple(axis[order].tolist())], predicate[order]
        entry = entry_of(self._slots, self._cluster, self._keys, self._width, cluster, predicate)
        self._runs.remove(entry, row)
        self._live[cluster] -= 1
        self._rows -= 1
        if self._entries > FEWEST_SLOTS and self._entries > 4 * self._rows:
            self._drop_empty()

    def check_invariants(self) -> None:
        """Raises AssertionError if a look-up does not find an entry, or if counts are wrong."""
        for entry in range(self._entries):
            width = self._width[self._cluster[entry]]
            own = self._keys[entry, :width].copy()
            found = entry_of(self._slots, self._cluster, self._keys, self._width, int(self._cluster[entry]), own)
            assert found == entry, (entry, found)
        length = self._runs.length[: self._entries]
        live = np.bincount(self._cluster[: self._entries], weights=length, minlength=len(self._live))
        assert live.astype(int).tolist() == self._live.tolist()
        assert int(length.sum()) == self._rows
        self._runs.check_invariants()

    def _cluster_of(self, schema: tuple[int, ...]) -> int:
        found = self._number.get(schema)
        if found is None:
            found = self._number[schema] = len(self._number)
            if found == self._width.size:
                more = max(8, found)
                self._schema = np.concatenate([self._schema, np.zeros((more, self._schema.shape[1]), dtype=np.int32)])
                self._width = np.concatenate([self._width, np.zeros(more, dtype=np.int32)])
                self._live = np.concatenate([self._live, np.zeros(more, dtype=np.int32)])
                self._mask = np.concatenate([self._mask, np.zeros(more, dtype=np.uint64)])
            if len(schema) > self._schema.shape[1]:
                wider = len(schema) - self._schema.shape[1]
                self._schema = np.pad(self._schema, ((0, 0), (0, wider)))
                self._keys = np.pad(self._keys, ((0, 0), (0, wider)))
            self._schema[found, : len(schema)] = schema
            self._width[found] = len(schema)
            self._mask[found] = sum({1 << axis % 64 for axis in schema})
        return found

    def _make_room(self, coming: int) -> None:
        wanted = self._entries + coming
        if wanted > self._cluster.size:
            more = max(wanted, self._cluster.size * 3 // 2) - self._cluster.size
            self._cluster = np.concatenate([self._cluster, np.zeros(more, dtype=np.int32)])
            self._keys = np.concatenate([self._keys, np.zeros((more, self._keys.shape[1]), dtype=np.int32)])
        if 2 * wanted > self._slots.size:
            self._slots = np.full(1 << (2 * wanted).bit_length(), -1, dtype=np.int32)
            _lay_out(self._cluster, self._keys, self._width, self._entries, self._slots)

    def _drop_empty(self) -> None:
        """Rebuilds the table without empty entries. Linear."""
        kept = np.flatnonzero(self._runs.length[: self._entries])
        length = self._runs.length[kept]
        of_kept = np.repeat(np.arange(kept.size), length)
        at = np.repeat(self._runs.start[kept] - (np.cumsum(length) - length), length) + np.arange(of_kept.size)
        rows = self._runs.entries[at]
        self._cluster, self._keys, self._entries = self._cluster[kept], self._keys[kept], kept.size
        self._runs = GrowingRuns(np.int32)
        self._runs.grow(kept.size)
        self._runs.append(of_kept, rows)
        self._slots = np.full(max(FEWEST_SLOTS, 1 << (2 * kept.size).bit_length()), -1, dtype=np.int32)
        _lay_out(self._cluster, self._keys, self._width, self._entries, self._slots)


@compiled
def seed_of(cluster: int) -> np.uint64:
    """Returns the initial hash of the entries of a cluster."""
    return np.uint64(cluster) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(1)


@compiled
def hashed(before: np.uint64, predicate: int) -> np.uint64:
    """Returns the hash extended by one predicate."""
    value = (before ^ np.uint64(predicate)) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def entry_of(slots: Rows, cluster_of: Rows, keys: Rows, width: Rows, cluster: int, predicate: Rows) -> int:
    """Returns the entry of a cluster with these predicates, or -1."""
    value = seed_of(cluster)
    for k in range(width[cluster]):
        value = hashed(value, predicate[k])
    last = np.uint64(slots.size - 1)
    slot = value & last
    while slots[slot] != -1:
        entry = slots[slot]
        if cluster_of[entry] == cluster:
            same = True
            for k in range(width[cluster]):
                same &= keys[entry, k] == predicate[k]
            if same:
                return int(entry)
        slot = (slot + np.uint64(1)) & last
    return -1


@compiled
def _enter(
    cluster: Rows,
    first: Numbers,
    predicate: Rows,
    cluster_of: Rows,
    keys: Rows,
    width: Rows,
    slots: Rows,
    entries: int,
    places: Numbers,
) -> int:
    """Fills `places` with the entry of each row, and creates missing entries. Returns the new number of entries."""
    for i in range(cluster.size):
        own = predicate[first[i] : first[i + 1]]
        entry = entry_of(slots, cluster_of, keys, width, cluster[i], own)
        if entry < 0:
            entry = entries
            entries += 1
            cluster_of[entry] = cluster[i]
            keys[entry, : own.size] = own
            _put(cluster_of, keys, width, entry, slots)
        places[i] = entry
    return entries


@compiled
def _lay_out(cluster_of: Rows, keys: Rows, width: Rows, entries: int, slots: Rows) -> None:
    for entry in range(entries):
        _put(cluster_of, keys, width, entry, slots)


@compiled
def _put(cluster_of: Rows, keys: Rows, width: Rows, entry: int, slots: Rows) -> None:
    value = seed_of(cluster_of[entry])
    for k in range(width[cluster_of[entry]]):
        value = hashed(value, keys[entry, k])
    last = np.uint64(slots.size - 1)
    slot = value & last
    while slots[slot] != -1:
        slot = (slot + np.uint64(1)) & last
    slots[slot] = entry


Floats = npt.NDArray[np.float64]

BLOCK = 256
"""Maximum number of pairs in a block: few enough to shift for each insertion, enough for fast sequential reads."""


class Blocks(NamedTuple):
    """The arrays of the B+-tree. `order` is `int32[axes, room]`, `blocks` is `int32[axes]`, `bounds` and `rows` are
    `[pool, BLOCK]`, `size` is `int32[pool]`. The first `unused[0]` entries of `free` (`int32[pool]`) are free blocks of
    the pool."""

    order: Rows
    blocks: Rows
    bounds: Floats
    rows: Rows
    size: Rows
    free: Rows
    unused: Rows


class BoundBlocks:
    """Pairs (bound, row) by axis. Invariants: the pairs of an axis are ascending; no block of an axis is empty."""

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int32)
        wide = (0, BLOCK)
        self.blocks = Blocks(
            np.zeros((0, 4), dtype=np.int32), none, np.zeros(wide), np.zeros(wide, dtype=np.int32), none, none,
            np.zeros(1, dtype=np.int32),
        )  # fmt: skip

    def grow(self, axes: int) -> None:
        """Makes room for at least `axes` axes. New axes have no bounds."""
        known, room = self.blocks.order.shape
        if axes > known:
            more = max(axes, 2 * known) - known
            order = np.concatenate([self.blocks.order, np.zeros((more, room), dtype=np.int32)])
            self.blocks = self.blocks._replace(
                order=order, blocks=np.concatenate([self.blocks.blocks, np.zeros(more, dtype=np.int32)])
            )

    def insert(self, axis: Rows, bound: Floats, row: Rows) -> None:
        """Inserts `bound[i]` of `row[i]` on `axis[i]`. Each costs two searches and a shift of half a block."""
        done = 0
        while done < axis.size:
            done = _insert(self.blocks, axis, bound, row, done)
            if done < axis.size:
                self._enlarge(int(axis[done]))

    def remove(self, axis: Rows, bound: Floats, row: Rows) -> None:
        """Removes pairs, which must be stored."""
        _remove(self.blocks, axis, bound, row)

    def check_invariants(self) -> None:
        """Raises AssertionError if pairs are unsorted or a block is used twice."""
        blocks = self.blocks
        used: list[int] = []
        for axis in range(len(blocks.blocks)):
            own = blocks.order[axis, : blocks.blocks[axis]].tolist()
            used += own
            pairs: list[tuple[float, int]] = []
            for b in own:
                count = int(blocks.size[b])
                assert 0 < count <= BLOCK, (axis, b, count)
                pairs += zip(blocks.bounds[b, :count].tolist(), blocks.rows[b, :count].tolist(), strict=True)
            assert pairs == sorted(pairs), (axis, pairs)
        used += blocks.free[: blocks.unused[0]].tolist()
        assert sorted(used) == list(range(len(blocks.size))), used

    def _enlarge(self, axis: int) -> None:
        """Makes room for more blocks in the pool and on an axis."""
        blocks = self.blocks
        if blocks.blocks[axis] == blocks.order.shape[1]:
            blocks = blocks._replace(order=np.concatenate([blocks.order, np.zeros_like(blocks.order)], axis=1))
        if not blocks.unused[0]:
            known = len(blocks.size)
            more = max(4, known // 2)
            free = np.zeros(known + more, dtype=np.int32)
            free[:more] = np.arange(known + more - 1, known - 1, -1)
            blocks = blocks._replace(
                bounds=np.concatenate([blocks.bounds, np.zeros((more, BLOCK))]),
                rows=np.concatenate([blocks.rows, np.zeros((more, BLOCK), dtype=np.int32)]),
                size=np.concatenate([blocks.size, np.zeros(more, dtype=np.int32)]),
                free=free,
                unused=np.array([more], dtype=np.int32),
            )
        self.blocks = blocks


@compiled
def _insert(blocks: Blocks, axis: Rows, bound: Floats, row: Rows, done: int) -> int:
    """Inserts pairs from `done` on. Returns the number of inserted pairs, which is less than all if blocks are
    missing."""
    for i in range(done, axis.size):
        own = axis[i]
        place = _block_of(blocks, own, bound[i], row[i])
        if blocks.blocks[own] == 0 or blocks.size[blocks.order[own, place]] == BLOCK:
            if blocks.unused[0] == 0 or blocks.blocks[own] == blocks.order.shape[1]:
                return i
            blocks.unused[0] -= 1
            new = blocks.free[blocks.unused[0]]
            blocks.size[new] = 0
            if blocks.blocks[own] == 0:
                blocks.order[own, 0] = new
            else:
                old = blocks.order[own, place]
                half = BLOCK // 2
                blocks.bounds[new, :half] = blocks.bounds[old, half:]
                blocks.rows[new, :half] = blocks.rows[old, half:]
                blocks.size[old] = blocks.size[new] = half
                for k in range(blocks.blocks[own], place + 1, -1):
                    blocks.order[own, k] = blocks.order[own, k - 1]
                blocks.order[own, place + 1] = new
                if _before(blocks.bounds[new, 0], blocks.rows[new, 0], bound[i], row[i]):
                    place += 1
            blocks.blocks[own] += 1
        block = blocks.order[own, place]
        at = _place_of(blocks, block, bound[i], row[i])
        for k in range(blocks.size[block], at, -1):
            blocks.bounds[block, k] = blocks.bounds[block, k - 1]
            blocks.rows[block, k] = blocks.rows[block, k - 1]
        blocks.bounds[block, at], blocks.rows[block, at] = bound[i], row[i]
        blocks.size[block] += 1
    return axis.size


@compiled
def _remove(blocks: Blocks, axis: Rows, bound: Floats, row: Rows) -> None:
    for i in range(axis.size):
        own = axis[i]
        place = _block_of(blocks, own, bound[i], row[i])
        block = blocks.order[own, place]
        for k in range(_place_of(blocks, block, bound[i], row[i]), blocks.size[block] - 1):
            blocks.bounds[block, k] = blocks.bounds[block, k + 1]
            blocks.rows[block, k] = blocks.rows[block, k + 1]
        blocks.size[block] -= 1
        if blocks.size[block] == 0:
            blocks.blocks[own] -= 1
            for k in range(place, blocks.blocks[own]):
                blocks.order[own, k] = blocks.order[own, k + 1]
            blocks.free[blocks.unused[0]] = block
            blocks.unused[0] += 1


@compiled
def _before(bound: float, row: int, other: float, other_row: int) -> bool:
    return bound < other or (bound == other and row < other_row)


@compiled
def _block_of(blocks: Blocks, axis: int, bound: float, row: int) -> int:
    """Returns the last block of the axis whose first pair is not after the given pair, or else the first block."""
    low, high = 0, blocks.blocks[axis]
    while high - low > 1:
        middle = (low + high) // 2
        block = blocks.order[axis, middle]
        if _before(bound, row, blocks.bounds[block, 0], blocks.rows[block, 0]):
            high = middle
        else:
            low = middle
    return low


@compiled
def _place_of(blocks: Blocks, block: int, bound: float, row: int) -> int:
    """Returns the first index in the block whose pair is not before the given pair."""
    low, high = 0, blocks.size[block]
    while low < high:
        middle = (low + high) // 2
        if _before(blocks.bounds[block, middle], blocks.rows[block, middle], bound, row):
            low = middle + 1
        else:
            high = middle
    return low


class Predicates(NamedTuple):
    """The predicates by row. `begin` is `int64[rows]`, `length` is `int32[rows]` (0 for an absent row), `axis` is
    `int32`, `operand` is `float64`."""

    begin: Numbers
    length: Rows
    axis: Rows
    operand: Floats


class RowPredicates:
    """A mutable table of predicates by row. A removed row leaves a gap. The table is compacted when half of it is
    gaps."""

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int32)
        self.table = Predicates(np.zeros(0, dtype=np.int64), none, none, np.zeros(0))
        self._end = self._gaps = 0

    def add(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        """Adds rows. Row `rows[i]` has `axis` and `operand[first[i] : first[i + 1]]`. Amortised linear."""
        begin, length, known_axis, known_operand = self.table
        most = int(rows.max(initial=-1)) + 1
        if most > begin.size:
            more = max(most, begin.size * 3 // 2) - begin.size
            begin = np.concatenate([begin, np.zeros(more, dtype=np.int64)])
            length = np.concatenate([length, np.zeros(more, dtype=np.int32)])
        end = self._end + axis.size
        if end > known_axis.size:
            more = max(end, known_axis.size * 3 // 2) - known_axis.size
            known_axis = np.concatenate([known_axis, np.zeros(more, dtype=np.int32)])
            known_operand = np.concatenate([known_operand, np.zeros(more)])
        known_axis[self._end : end], known_operand[self._end : end] = axis, operand
        begin[rows], length[rows] = self._end + first[:-1], np.diff(first)
        self._end = end
        self.table = Predicates(begin, length, known_axis, known_operand)

    def of(self, row: int) -> tuple[Rows, Floats]:
        """Returns (axes, operands). The axis is `~axis` for a lower bound of one test with the next bound."""
        begin = int(self.table.begin[row])
        own = slice(begin, begin + int(self.table.length[row]))
        return self.table.axis[own], self.table.operand[own]

    def remove(self, row: int) -> None:
        """Removes a row."""
        self._gaps += int(self.table.length[row])
        self.table.length[row] = 0
        if self._gaps > 1024 and 2 * self._gaps > self._end:
            self._close_gaps()

    def _close_gaps(self) -> None:
        begin, length, axis, operand = self.table
        there = np.flatnonzero(length)
        lengths = length[there].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        at = np.repeat(begin[there] - starts, lengths) + np.arange(int(lengths.sum()))
        begin[there] = starts
        self.table = Predicates(begin, length, axis[at], operand[at])
        self._end, self._gaps = at.size, 0


EQUALITY, PRESENT, AT_LEAST, AT_MOST = range(4)
"""The kind of an axis: keys and concepts; presence of an attribute; lower bounds; upper bounds."""
SCANNED = 64
"""Number of rows whose counts are compared together before matching rows are written."""


class Satisfied(NamedTuple):
    """What `e` events satisfy on `a` axes. `firsts` (`int64[e * a + 1]`) are the offsets of each event and axis in
    `predicates`. `values` (`float64[e, a]`) are compared with bounds; NaN is no value."""

    firsts: Numbers
    predicates: Rows
    values: Floats


class Stored(NamedTuple):
    """The stored predicates. Predicate `p` has the rows `rows[start[p] : start[p] + length[p]]`; bounds are in
    `blocks`. `kind` (`int8[axes]`) is the kind of each axis."""

    kind: npt.NDArray[np.int8]
    start: Numbers
    length: Numbers
    rows: Rows
    blocks: Blocks


@compiled
def fair(satisfied: Satisfied, stored: Stored, needed: Rows) -> tuple[Numbers, Rows]:
    """Figure 2. Each satisfied predicate adds one to the count of every row that has it. The rows whose count is equal
    to `needed[row]` match. Returns offsets and rows, ascending. Costs about 1 ns per counted predicate of a row, and
    0.1 ns per row."""
    events = satisfied.values.shape[0]
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    counts = np.empty(needed.size, dtype=np.int32)
    total = 0
    for event in range(events):
        counts[:] = 0
        _count(satisfied, stored, event, counts)
        for block in range(0, needed.size, SCANNED):
            last = min(block + SCANNED, needed.size)
            some = 0
            for row in range(np.uint64(block), np.uint64(last)):
                some += counts[row] == needed[row]
            if some:
                found = _with_room(found, total, SCANNED)
                for row in range(np.uint64(block), np.uint64(last)):
                    found[total] = row
                    total += counts[row] == needed[row]
        offsets[event + 1] = total
    return offsets, found[:total].copy()


@compiled
def equality_preferred(
    satisfied: Satisfied, stored: Stored, clusters: Clusters, needed: Rows, without: Rows
) -> tuple[Numbers, Rows]:
    """Figure 4. Finds the rows whose equalities hold (line 3). Of these and the rows in `without` (rows without
    equalities; -1 for a free place), those match that have as many other satisfied predicates as `needed` says. Returns
    offsets and rows, unsorted."""
    events = satisfied.values.shape[0]
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    counts = np.empty(needed.size, dtype=np.int32)
    total = 0
    for event in range(events):
        counts[:] = 0
        _count(satisfied, stored, event, counts)
        found, stop = _equal(satisfied, clusters, event, found, total)
        for at in range(total, stop):
            found[total] = found[at]
            total += counts[found[at]] == needed[found[at]]
        found = _with_room(found, total, without.size)
        for at in range(without.size):
            if without[at] >= 0:
                found[total] = without[at]
                total += counts[without[at]] == needed[without[at]]
        offsets[event + 1] = total
    return offsets, found[:total].copy()


@compiled
def quarantining(
    satisfied: Satisfied, stored: Stored, clusters: Clusters, own: Predicates, needed: Rows, without: Rows
) -> tuple[Numbers, Rows]:
    """Figure 5. Finds the rows whose equalities hold, and checks the other predicates of each (lines 3 to 8). Only the
    predicates of the rows in `without` (rows without equalities) are stored by predicate and counted (lines 9 to 21),
    by place in `without`. `needed` is -1 for a free place."""
    events = satisfied.values.shape[0]
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    counts = np.empty(needed.size, dtype=np.int32)
    total = 0
    for event in range(events):
        found, stop = _equal(satisfied, clusters, event, found, total)
        for at in range(total, stop):
            found[total] = found[at]
            total += _holds(satisfied, stored, own, event, found[at])
        if without.size:
            counts[:] = 0
            _count(satisfied, stored, event, counts)
            found = _with_room(found, total, without.size)
            for at in range(without.size):
                found[total] = without[at]
                total += counts[at] == needed[at]
        offsets[event + 1] = total
    return offsets, found[:total].copy()


@compiled
def _count(satisfied: Satisfied, stored: Stored, event: int, counts: Rows) -> None:
    """`predmatch`, `lesspredmatch` and `greaterpredmatch`: counts the satisfied predicates of each row."""
    axes = satisfied.values.shape[1]
    for k in range(satisfied.firsts[event * axes], satisfied.firsts[(event + 1) * axes]):
        predicate = satisfied.predicates[k]
        first = stored.start[predicate]
        for at in range(np.uint64(first), np.uint64(first + stored.length[predicate])):
            counts[np.uint64(stored.rows[at])] += np.int32(1)
    blocks = stored.blocks
    for axis in range(axes):
        value = satisfied.values[event, axis]
        if value != value or stored.kind[axis] < AT_LEAST:
            continue
        number = blocks.blocks[axis]
        for k in range(number):
            at_least = stored.kind[axis] == AT_LEAST
            block = blocks.order[axis, k if at_least else number - 1 - k]
            first, last = 0, blocks.size[block]
            if at_least:
                if blocks.bounds[block, last - 1] > value:
                    while last > 0 and blocks.bounds[block, last - 1] > value:
                        last -= 1
                    number = 0
            elif blocks.bounds[block, 0] < value:
                while first < last and blocks.bounds[block, first] < value:
                    first += 1
                number = 0
            for at in range(np.uint64(first), np.uint64(last)):
                counts[np.uint64(blocks.rows[block, at])] += np.int32(1)
            if number == 0:
                break


@compiled
def _equal(satisfied: Satisfied, clusters: Clusters, event: int, found: Rows, total: int) -> tuple[Rows, int]:
    """`eqsubmatch`: appends the rows whose equality predicates all hold. Costs a look-up for each combination of
    predicates, in each cluster whose axes the event has."""
    axes = satisfied.values.shape[1]
    firsts = satisfied.firsts
    base = event * axes
    there = np.uint64(0)
    for axis in range(axes):
        if firsts[base + axis] < firsts[base + axis + 1]:
            there |= np.uint64(1) << np.uint64(axis % 64)
    last_slot = np.uint64(clusters.slots.size - 1)
    at = np.zeros(clusters.schema.shape[1], dtype=np.int64)
    for cluster in range(clusters.width.size):
        if clusters.live[cluster] == 0 or clusters.mask[cluster] & ~there:
            continue
        width = clusters.width[cluster]
        complete = True
        for k in range(width):
            axis = clusters.schema[cluster, k]
            at[k] = firsts[base + axis]
            complete &= firsts[base + axis] < firsts[base + axis + 1]
        while complete:
            value = seed_of(cluster)
            for k in range(width):
                value = hashed(value, satisfied.predicates[at[k]])
            slot = value & last_slot
            while clusters.slots[slot] != -1:
                entry = clusters.slots[slot]
                same = clusters.cluster[entry] == cluster
                for k in range(width):
                    same = same and clusters.keys[entry, k] == satisfied.predicates[at[k]]
                if same:
                    first, size = clusters.start[entry], clusters.length[entry]
                    found = _with_room(found, total, size)
                    for i in range(size):
                        found[total + i] = clusters.rows[first + i]
                    total += size
                    break
                slot = (slot + np.uint64(1)) & last_slot
            complete = False
            for k in range(width - 1, -1, -1):  # the next combination
                axis = clusters.schema[cluster, k]
                at[k] += 1
                if at[k] < firsts[base + axis + 1]:
                    complete = True
                    break
                at[k] = firsts[base + axis]
    return found, total


@compiled
def _holds(satisfied: Satisfied, stored: Stored, own: Predicates, event: int, row: int) -> bool:
    """`match`: whether all predicates of a row that are not equalities hold."""
    axes = satisfied.values.shape[1]
    for k in range(own.begin[row], own.begin[row] + own.length[row]):
        axis = own.axis[k] if own.axis[k] >= 0 else ~own.axis[k]
        kind = stored.kind[axis]
        if kind == AT_LEAST:
            if not satisfied.values[event, axis] >= own.operand[k]:
                return False
        elif kind == AT_MOST:
            if not satisfied.values[event, axis] <= own.operand[k]:
                return False
        elif kind == PRESENT and satisfied.firsts[event * axes + axis] == satisfied.firsts[event * axes + axis + 1]:
            return False
    return True


@compiled
def _with_room(found: Rows, used: int, coming: int) -> Rows:
    """Returns `found`, or a larger copy of it, with room for `coming` more rows."""
    if used + coming <= found.size:
        return found
    larger = np.empty(2 * (used + coming), dtype=np.int32)
    larger[:used] = found[:used]
    return larger
