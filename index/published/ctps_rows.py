"""Bit sets of rows, and the row indexes of a column by concept, by key and by interval (CTPS).

`ConceptTree`: the rows of each concept. CTPS §4.1 and §5.1, Algorithms 1, 3 and 7.

The paper stores a list of subscriptions at every node of a tree. For a value it unites the lists of the node and of the
nodes above it. Here concepts form a DAG, which an individual enters by one `rdf:type` step. So the walk is
`ConceptGraph.ancestors`: upwards with a set of visited nodes (erratum 8). There is one index for each (attribute,
copy, column), and none is shared by several attributes (erratum 1). Only concepts with subscriptions have a node.
Algorithm 1, which builds nodes for the whole tree, is replaced by the graph itself.

    value ──ancestors──▶ node(Laptop)  node(Computer)  node(Product)        node: within   rows with `isa` this concept
                             exactly       below           below                  below    rows with `below` it
                             within        within          within                 exactly  rows with `is` it

`StringMap`, for equality: key → rows. CTPS §4.2 and §5.2, Algorithms 4 and 8.

This is the paper's second-level map of string constraints. Here it has keys of all types: strings, and numbers,
instants or booleans that are compared by equality. The paper's *any entry* (all subscriptions that constrain the
attribute; its key is missing in the printed text, erratum 8) is the set of constrained rows in `AttributeCopy`, because
one predicate may test several columns.

`GemIndex`, for intervals: T x T cells over (upper, lower). CTPS §4.2 and §5.3, Algorithms 5 and 9; GEM [7, 8].

An interval `[lower, upper]` is in the cell `(slot(upper), slot(lower))`. For a value in slot *r*, the cells form six
regions. Bounds must be compared only in the regions with a bound in slot *r*:

      y = slot(upper)                                        region                       its intervals
      T-1 │ F F F D B B        value in slot r = 3           A  y < r                     end before the value: no
       4  │ F F F D B                                        B  x > r                     begin after it: no
       r  │ C C C E                                          C  y = r, x < r              match if upper >= value
       2  │ A A A                                            D  x = r, y > r              match if lower <= value
       0  │ A                                                E  x = y = r                 match if both hold
          └────────────── x = slot(lower)                    F  x < r < y                 match always

The paper subtracts A, B and the failing rows of C, D and E from the candidates. We collect F and the matching rows of
C, D and E. The result is the same, but several values of an event and several intervals of a row need only a union, and
F has fewer cells.

* **Slots** (erratum 6). `slot(v) = min(T-1, max(0, floor((v - low) / (high - low) · T)))` for bounds and values
  alike. It is monotonic in v, so `slot(upper) > slot(v)` implies `upper > v`, also outside the range. Infinite bounds
  are in the end slots. For a value in an end slot, region F is empty, so bounds in these slots are always compared.
* **Range**. Intervals are added one at a time, and the paper's `Rm` is unknown. The range is computed from the stored
  bounds: the 2 % and 98 % quantiles of the finite ones. It is computed again after as many insertions as there were
  intervals the last time (at least `FIRST_SPREAD`), and then all intervals are assigned to cells again. So an insertion
  costs O(1) amortised, a single outlier does not widen the slots, and the range follows bounds that drift. The range
  affects only speed.
* **Cell order** (erratum 7) is `cell[upper][lower]` everywhere. The bounds are stored (erratum 6), both ends closed.
* **Regions are cached**: the union F and the union of C, D and E of a slot are computed for the first value in the
  slot, and updated by later insertions and removals. Matching then costs two unions instead of T²/4.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from bitarray import bitarray

from kindcast.index.clause import ConceptId, ConceptTest, Key
from kindcast.index.concept_graph import ConceptGraph

__all__ = [
    "FIRST_CAPACITY",
    "Bounds",
    "ConceptTree",
    "GemIndex",
    "RowArray",
    "RowSet",
    "StringMap",
    "clear_rows",
    "empty_bits",
    "rows_of",
    "set_rows",
    "sparse_limit",
]

# ── sets of rows as bits, and the conversion between bits and row numbers, for the `ctps` engine ──────────────────────

# A set of rows is a bit array with one bit per row of the engine's capacity (a power of two, at least
# `FIRST_CAPACITY`). Bit *r* is set if row *r* is in the set. CTPS (Sci. Prog. 2022, §4.1) stores every list of
# subscriptions in this way. An engine has very many sets with few rows (one for each string, cell and concept), so a
# `RowSet` is a plain list of rows until a bit array is smaller or faster.
#
#     bits   0 1 1 0 0 0 0 1 …   little-endian: byte b holds rows 8·b … 8·b + 7     ◀── union_into ── RowSet {1, 2, 7}


RowArray = npt.NDArray[np.int32]

FIRST_CAPACITY = 64
"""Capacity of a new engine in rows: one machine word, so that a bit array always consists of whole words."""
FEW_ROWS = 32
"""Up to this number of rows, finding them one by one (45 ns each) is faster than numpy (12 µs at 10⁵ rows)."""
DENSE_WORDS = 4
"""If at least one word in four is nonzero, unpacking all bits is faster than unpacking the nonzero words (measured at
10⁵ rows)."""
MANY_ROWS = 1024
"""From this number of rows on, packing a mask is faster than setting single bits (8 ns each)."""


def empty_bits(capacity: int) -> bitarray:
    """Returns a bit array of `capacity` zeros."""
    return bitarray(capacity, endian="little")


def rows_of(bits: bitarray) -> RowArray:
    """Returns the rows whose bits are set: `int32[count]`, ascending. `len(bits)` is a multiple of 64; `bits` is not
    changed. Costs 45 ns per row for a few rows, otherwise one pass over the words plus 10 to 20 ns per row.

    >>> bits = empty_bits(64)
    >>> bits[3] = bits[40] = 1
    >>> rows_of(bits).tolist()
    [3, 40]
    """
    first = list(islice(bits.search(1), FEW_ROWS + 1))
    if len(first) <= FEW_ROWS:
        return np.array(first, dtype=np.int32)
    words = np.frombuffer(memoryview(bits), dtype=np.uint64)
    filled = np.flatnonzero(words)
    if filled.size * DENSE_WORDS > words.size:
        return np.flatnonzero(_unpacked(words)).astype(np.int32)
    found = np.flatnonzero(_unpacked(words[filled]))
    rows: RowArray = ((filled << 6)[found >> 6] + (found & 63)).astype(np.int32)
    return rows


def set_rows(bits: bitarray, rows: RowArray) -> None:
    """Sets the bits of `rows` in `bits`, in place. Costs 8 ns per row, or one pass over all bits for many rows."""
    if rows.size < MANY_ROWS:
        bits[rows.tolist()] = 1
    else:
        bits |= _packed(rows, len(bits))


def clear_rows(bits: bitarray, rows: RowArray) -> None:
    """Clears the bits of `rows` in `bits`, in place. Costs as much as `set_rows`."""
    if rows.size < MANY_ROWS:
        bits[rows.tolist()] = 0
    else:
        bits &= ~_packed(rows, len(bits))


def sparse_limit(capacity: int) -> int:
    """Returns the maximum number of rows of a `RowSet` that is a list.

    At this size, a union costs the same for both forms (8 ns per row, 6 ps per bit), and a bit array takes at most 256
    bytes per row in it. Without lists, 10⁵ clauses with different strings would need 10⁵ bit arrays: over a gigabyte.
    """
    return max(16, capacity >> 11)


class RowSet:
    """A mutable set of rows: a list while it is small, then a bit array.

    Invariants: exactly one form is in use; the list has no duplicates; a bit array has `capacity` bits and
    `len(self)` ones. `add` costs a scan of the list (below `sparse_limit`) or O(1).
    """

    __slots__ = ("_capacity", "_count", "_dense", "_sparse")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0
        self._sparse: list[int] = []
        self._dense: bitarray | None = None

    @classmethod
    def of(cls, rows: RowArray, capacity: int) -> "RowSet":
        """Returns the set of `rows`, which must be distinct."""
        made = cls(capacity)
        made._count = rows.size
        if made._count <= sparse_limit(capacity):
            made._sparse = rows.tolist()
        else:
            made._dense = empty_bits(capacity)
            set_rows(made._dense, rows)
        return made

    @classmethod
    def union(cls, sets: Iterable["RowSet"], capacity: int) -> "RowSet":
        """Returns the union of all `sets`."""
        bits = empty_bits(capacity)
        for each in sets:
            each.union_into(bits)
        return cls.of(rows_of(bits), capacity)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: int) -> bool:
        return row in self._sparse if self._dense is None else bool(self._dense[row])

    def add(self, row: int) -> None:
        """Adds `row`. Does nothing if it is in the set."""
        if row in self:
            return
        self._count += 1
        if self._dense is not None:
            self._dense[row] = 1
            return
        self._sparse.append(row)
        if self._count > sparse_limit(self._capacity):
            self._dense = empty_bits(self._capacity)
            self._dense[self._sparse] = 1
            self._sparse = []

    def discard(self, row: int) -> None:
        """Removes `row`. Does nothing if it is not in the set."""
        if row not in self:
            return
        self._count -= 1
        if self._dense is not None:
            self._dense[row] = 0
        else:
            self._sparse.remove(row)

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`. A set that is small for the new capacity becomes a list again."""
        if self._dense is not None:
            if self._count <= sparse_limit(capacity) // 2:
                self._sparse = rows_of(self._dense).tolist()
                self._dense = None
            else:
                self._dense.extend(empty_bits(capacity - self._capacity))
        self._capacity = capacity

    def union_into(self, bits: bitarray) -> None:
        """Computes `bits |= self` in place. `len(bits)` is the capacity."""
        if self._dense is not None:
            bits |= self._dense
        elif self._sparse:
            bits[self._sparse] = 1

    def subtract_from(self, bits: bitarray) -> None:
        """Computes `bits &= ~self` in place."""
        if self._dense is not None:
            bits &= ~self._dense
        elif self._sparse:
            bits[self._sparse] = 0

    def keep_matched(self, live: bitarray, matched: bitarray) -> None:
        """Computes `live &= ~self | matched` in place: removes the rows of this set that are not matched.

        `matched` is a subset of this set. Its content is overwritten.
        """
        if self._dense is not None:
            matched ^= self._dense  # the rows that failed, because matched is a subset
            matched.invert()
            live &= matched
        else:
            live[[row for row in self._sparse if not matched[row]]] = 0

    def rows(self) -> list[int]:
        """Returns all rows in ascending order."""
        return sorted(self._sparse) if self._dense is None else [int(row) for row in rows_of(self._dense)]

    def check_invariants(self) -> None:
        """Raises AssertionError if one of the invariants is violated."""
        # One form at a time, and the count is right.
        assert self._dense is None or not self._sparse, self._sparse
        assert len(self.rows()) == self._count, (self.rows(), self._count)
        # A list has no duplicates, and every row fits.
        assert len(set(self._sparse)) == len(self._sparse), self._sparse
        assert all(0 <= row < self._capacity for row in self.rows()), (self.rows(), self._capacity)
        assert self._dense is None or len(self._dense) == self._capacity, len(self._dense or ())


def _packed(rows: RowArray, capacity: int) -> bitarray:
    mask = np.zeros(capacity, dtype=np.bool_)
    mask[rows] = True
    return bitarray(buffer=np.packbits(mask, bitorder="little"), endian="little")


def _unpacked(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Returns one boolean per bit. Counting nonzero bytes instead of booleans would be five times slower."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


class StringMap:
    """Rows by key. Every stored key has at least one row; other keys have the empty set. O(1) per key."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: dict[Key, RowSet] = {}

    def __len__(self) -> int:
        """The number of keys that have rows."""
        return len(self._rows)

    def add(self, row: int, keys: Iterable[Key]) -> None:
        """Algorithm 4: adds `row` to the set of each of `keys`."""
        for key in keys:
            rows = self._rows.get(key)
            if rows is None:
                rows = self._rows[key] = RowSet(self._capacity)
            rows.add(row)

    def remove(self, row: int, keys: Iterable[Key]) -> None:
        """Reverts `add(row, keys)`. A key without rows is removed."""
        for key in keys:
            self._rows[key].discard(row)
            if not self._rows[key]:
                del self._rows[key]

    def union_into(self, matched: bitarray, key: Key) -> None:
        """Algorithm 8, line 3: sets in `matched` every row that has `key`."""
        rows = self._rows.get(key)
        if rows is not None:
            rows.union_into(matched)

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`."""
        self._capacity = capacity
        for rows in self._rows.values():
            rows.grow(capacity)

    def contents(self) -> Iterable[tuple[Key, list[int]]]:
        """Yields all pairs (key, rows), for checks."""
        return ((key, rows.rows()) for key, rows in self._rows.items())

    def check_invariants(self) -> None:
        """Raises AssertionError if a key has no rows or its set is inconsistent."""
        for key, rows in self._rows.items():
            assert rows, key
            rows.check_invariants()


# The lower and upper bounds of intervals by row, compared for many rows at once. Algorithm 9 of CTPS reads them as
# `cell.list`; Algorithm 5 does not store them (erratum 6).
#
# A few intervals are stored in a dict. Many are stored in two arrays indexed by row (`float64[capacity]` each, NaN if a
# row has no interval), because a comparison then costs a few nanoseconds per row.

ARRAY_SHARE = 5
"""Arrays are used if more than 1/2⁵ of all rows have an interval. So they take at most 512 bytes per interval."""
FEW_INTERVALS = 64
"""Up to this number, intervals stay in the dict, because numpy's overhead would cost more than the comparisons."""
QUANTILES = (0.02, 0.98)
"""The range excludes a fiftieth of the bounds at each side, so that a few outliers do not widen the slots."""
LARGEST = 1e300
"""Range ends are clipped to this value, so that differences and their products with the slot count stay finite."""
NARROWEST = 1e-300
"""The minimum width of a range, so that its inverse stays finite."""

Floats = npt.NDArray[np.float64]


class Bounds:
    """Map from rows to intervals (low, high). Invariants: one form is in use; the arrays hold `len(self)` intervals."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._few: dict[int, tuple[float, float]] = {}
        self._arrays: tuple[Floats, Floats] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: int) -> bool:
        return row in self._few if self._arrays is None else not np.isnan(self._arrays[0][row])

    def put(self, row: int, low: float, high: float) -> None:
        """Stores the interval of `row`, which must have none yet."""
        self._count += 1
        if self._arrays is not None:
            self._arrays[0][row], self._arrays[1][row] = low, high
            return
        self._few[row] = (low, high)
        if self._count > _array_limit(self._capacity):
            rows, lows, highs = self._columns()
            self._arrays = _blank(self._capacity), _blank(self._capacity)
            self._arrays[0][rows], self._arrays[1][rows] = lows, highs
            self._few = {}

    def drop(self, row: int) -> tuple[float, float]:
        """Removes the interval of `row` and returns it."""
        self._count -= 1
        if self._arrays is None:
            return self._few.pop(row)
        lows, highs = self._arrays
        found = float(lows[row]), float(highs[row])
        lows[row] = highs[row] = np.nan
        return found

    def holding(self, rows: RowArray, value: float) -> npt.NDArray[np.bool_]:
        """Returns for each of `rows` whether it has an interval with `low <= value <= high`. Costs 10 to 20 ns per row
        in arrays, some 150 ns in the dict."""
        if self._arrays is not None:
            lows, highs = self._arrays
            return (lows[rows] <= value) & (highs[rows] >= value)
        few = self._few
        return np.array([row in few and few[row][0] <= value <= few[row][1] for row in rows.tolist()], dtype=np.bool_)

    def range(self) -> tuple[float, float]:
        """Returns (low, width) of the range of most finite bounds, or `(0, 1)` without any. The width is positive."""
        _, lows, highs = self._columns()
        both = np.concatenate([lows, highs])
        finite = both[np.isfinite(both)]
        if not finite.size:
            return 0.0, 1.0
        ends = np.quantile(np.clip(finite, -LARGEST, LARGEST), QUANTILES)
        low, high = float(ends[0]), float(ends[1])
        return low, max(high - low, NARROWEST)

    def by_cell(self, low: float, per_unit: float, slots: int) -> Iterator[tuple[tuple[int, int], RowArray]]:
        """Yields each cell (upper slot, lower slot) with its rows. The slots are equal to those of `GemIndex.slot`."""
        rows, lows, highs = self._columns()
        codes = _slots(highs, low, per_unit, slots) * slots + _slots(lows, low, per_unit, slots)
        order = np.argsort(codes, kind="stable")
        rows, codes = rows[order], codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.size], strict=True):
            code = int(codes[start])
            yield (code // slots, code % slots), rows[start:end]

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`. If there are too few intervals for arrays, they become a dict again."""
        if self._arrays is not None:
            if self._count <= _array_limit(capacity) // 2:
                self._few = {row: (low, high) for row, low, high in self.contents()}
                self._arrays = None
            else:
                more = capacity - self._capacity
                lows, highs = (np.concatenate([each, _blank(more)]) for each in self._arrays)
                self._arrays = lows, highs
        self._capacity = capacity

    def contents(self) -> list[tuple[int, float, float]]:
        """Returns all triples (row, low, high), sorted by row."""
        rows, lows, highs = self._columns()
        return sorted(zip(rows.tolist(), lows.tolist(), highs.tolist(), strict=True))

    def _columns(self) -> tuple[RowArray, Floats, Floats]:
        """Returns rows, lower bounds and upper bounds as parallel arrays."""
        if self._arrays is not None:
            lows, highs = self._arrays
            rows = np.flatnonzero(~np.isnan(lows)).astype(np.int32)
            return rows, lows[rows], highs[rows]
        pairs = np.array(list(self._few.values()), dtype=np.float64).reshape(-1, 2)
        return np.array(list(self._few), dtype=np.int32), pairs[:, 0], pairs[:, 1]


def _array_limit(capacity: int) -> int:
    return max(FEW_INTERVALS, capacity >> ARRAY_SHARE)


def _blank(size: int) -> Floats:
    return np.full(size, np.nan)


def _slots(values: Floats, low: float, per_unit: float, slots: int) -> npt.NDArray[np.int64]:
    """Returns `GemIndex.slot` for each of `values`, computed by the same operations in the same order."""
    with np.errstate(over="ignore"):
        places = (values - low) * per_unit
    return np.clip(places, 0, slots - 1).astype(np.int64)


Region = TypeVar("Region")

SLOTS = 16
"""The paper's T. Its table of values is missing in our copy of the text. About 2/T of the intervals have a bound in the
slot of a value and must be compared; there are T²/2 cells. Measured at 10⁵ rows with cached regions and removals, 16
was fastest."""
FIRST_SPREAD = 16
"""Insertions before the range is first computed. With fewer intervals, every range is good enough."""


class GemIndex:
    """Rows by interval, with at most one interval per row.

    Invariants: each row is in the cell of its bounds, in no other cell, and in `bounds`; no cell is empty; every cached
    region is the union of its cells. Costs: `add` and `remove` O(T); `union_into` two unions, plus 10 to 20 ns for each
    live row whose bounds are compared.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._bounds = Bounds(capacity)
        self._cells: dict[tuple[int, int], RowSet] = {}
        self._regions: dict[int, tuple[RowSet, RowSet]] = {}
        self._low = 0.0
        self._per_unit = 1.0
        self._insertions_left = FIRST_SPREAD

    def __len__(self) -> int:
        """The number of stored intervals."""
        return len(self._bounds)

    def __contains__(self, row: int) -> bool:
        return row in self._bounds

    def add(self, row: int, low: float, high: float) -> None:
        """Algorithm 5: stores the interval `[low, high]` of `row`, which must have none yet. `low <= high`."""
        self._bounds.put(row, low, high)
        self._insertions_left -= 1
        if self._insertions_left <= 0:
            self._spread()
            return
        cell = (self.slot(high), self.slot(low))
        rows = self._cells.get(cell)
        if rows is None:
            rows = self._cells[cell] = RowSet(self._capacity)
        rows.add(row)
        for slot, (surely, perhaps) in self._regions.items():
            region = _region(cell, slot, surely, perhaps)
            if region is not None:
                region.add(row)

    def remove(self, row: int) -> None:
        """Removes the interval of `row`."""
        low, high = self._bounds.drop(row)
        cell = (self.slot(high), self.slot(low))
        self._cells[cell].discard(row)
        if not self._cells[cell]:
            del self._cells[cell]
        for slot, (surely, perhaps) in self._regions.items():
            region = _region(cell, slot, surely, perhaps)
            if region is not None:
                region.discard(row)

    def slot(self, value: float) -> int:
        """Returns the slot of a bound or a value: 0 … SLOTS - 1, monotonic in `value`. NaN is in slot 0, where the
        exact comparison rejects it."""
        place = (value - self._low) * self._per_unit
        if place >= SLOTS:
            return SLOTS - 1
        return int(place) if place > 0 else 0

    def union_into(self, surely: bitarray, perhaps: bitarray, value: float) -> None:
        """Algorithm 9, by regions. Sets in `surely` the rows of F, whose intervals contain `value`, and in `perhaps`
        the rows of C, D and E, for which `holding` must decide. The rows of A and B, whose intervals do not contain
        `value`, are not set."""
        certain, partial = self._at(self.slot(value))
        certain.union_into(surely)
        partial.union_into(perhaps)

    def holding(self, rows: RowArray, value: float) -> npt.NDArray[np.bool_]:
        """Returns for each of `rows` whether it has an interval here that contains `value`."""
        return self._bounds.holding(rows, value)

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`."""
        self._capacity = capacity
        self._bounds.grow(capacity)
        for rows in self._cells.values():
            rows.grow(capacity)
        for regions in self._regions.values():
            for rows in regions:
                rows.grow(capacity)

    def contents(self) -> list[tuple[int, float, float]]:
        """Returns all triples (row, low, high), sorted by row, for checks."""
        return self._bounds.contents()

    def check_invariants(self) -> None:
        """Raises AssertionError if one of the invariants is violated."""
        # Each row is in exactly the cell of its bounds.
        expected: dict[tuple[int, int], list[int]] = {}
        for row, low, high in self.contents():
            expected.setdefault((self.slot(high), self.slot(low)), []).append(row)
        assert {cell: rows.rows() for cell, rows in self._cells.items()} == expected, (expected, self._cells)
        # The lower slot is never above the upper slot, and the sets are consistent.
        for (upper, lower), rows in self._cells.items():
            assert lower <= upper, (upper, lower)
            rows.check_invariants()
        # Cached regions are the unions of their cells.
        for slot, remembered in self._regions.items():
            for rows, made in zip(remembered, self._united(slot), strict=True):
                rows.check_invariants()
                assert rows.rows() == made.rows(), (slot, rows.rows(), made.rows())

    def _at(self, slot: int) -> tuple[RowSet, RowSet]:
        """Returns region F, and the union of regions C, D and E, for a value in `slot`."""
        regions = self._regions.get(slot)
        if regions is None:
            regions = self._regions[slot] = self._united(slot)
        return regions

    def _united(self, slot: int) -> tuple[RowSet, RowSet]:
        surely: list[RowSet] = []
        perhaps: list[RowSet] = []
        for cell, rows in self._cells.items():
            region = _region(cell, slot, surely, perhaps)
            if region is not None:
                region.append(rows)
        return RowSet.union(surely, self._capacity), RowSet.union(perhaps, self._capacity)

    def _spread(self) -> None:
        """Computes the range again and assigns every interval to its new cell."""
        self._low, width = self._bounds.range()
        self._per_unit = SLOTS / width
        self._insertions_left = max(FIRST_SPREAD, len(self._bounds))
        self._regions.clear()
        self._cells = {
            cell: RowSet.of(rows, self._capacity)
            for cell, rows in self._bounds.by_cell(self._low, self._per_unit, SLOTS)
        }


def _region(cell: tuple[int, int], slot: int, surely: Region, perhaps: Region) -> Region | None:
    """Returns the region of a cell `(upper, lower)` for values in `slot`: `surely` for F, `perhaps` for C, D and E,
    None for A and B."""
    upper, lower = cell
    if lower < slot < upper:
        return surely
    return perhaps if slot in cell else None


class _Node:
    """The rows with tests of one concept, by type of test."""

    __slots__ = ("below", "exactly", "within")

    def __init__(self, capacity: int) -> None:
        self.within = RowSet(capacity)
        self.below = RowSet(capacity)
        self.exactly = RowSet(capacity)

    def sets(self) -> tuple[RowSet, RowSet, RowSet]:
        return self.within, self.below, self.exactly


class ConceptTree:
    """Rows by concept. Every node has at least one row.

    Matching costs one look-up for each ancestor of the value, and one or two unions for each ancestor that has a node.
    """

    def __init__(self, graph: ConceptGraph, capacity: int) -> None:
        self._graph = graph
        self._capacity = capacity
        self._nodes: dict[ConceptId, _Node] = {}

    def __len__(self) -> int:
        """The number of concepts that have rows."""
        return len(self._nodes)

    def add(self, row: int, test: ConceptTest) -> None:
        """Algorithm 3: adds `row` to the node of every concept of `test`."""
        for concept in test.within:
            self._node(concept).within.add(row)
        for concept in test.below:
            self._node(concept).below.add(row)
        for concept in test.exactly:
            self._node(concept).exactly.add(row)

    def remove(self, row: int, test: ConceptTest) -> None:
        """Reverts `add(row, test)`. A node without rows is removed."""
        for concept in test.within | test.below | test.exactly:
            node = self._nodes[concept]
            for rows in node.sets():
                rows.discard(row)
            if not any(node.sets()):
                del self._nodes[concept]

    def union_into(self, matched: bitarray, concept: ConceptId) -> None:
        """Algorithm 7, lines 1 to 6: sets in `matched` every row whose test the value `concept` satisfies."""
        nodes = self._nodes
        for ancestor in self._graph.ancestors(concept):
            node = nodes.get(ancestor)
            if node is not None:
                node.within.union_into(matched)
                (node.exactly if ancestor == concept else node.below).union_into(matched)

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`."""
        self._capacity = capacity
        for node in self._nodes.values():
            for rows in node.sets():
                rows.grow(capacity)

    def contents(self) -> Iterable[tuple[ConceptId, str, list[int]]]:
        """Yields all nonempty triples (concept, kind, rows), for checks."""
        for concept, node in self._nodes.items():
            for kind, rows in zip(("within", "below", "exactly"), node.sets(), strict=True):
                if rows:
                    yield concept, kind, rows.rows()

    def check_invariants(self) -> None:
        """Raises AssertionError if a node is empty or one of its sets is inconsistent."""
        for concept, node in self._nodes.items():
            assert any(node.sets()), concept
            for rows in node.sets():
                rows.check_invariants()

    def _node(self, concept: ConceptId) -> _Node:
        node = self._nodes.get(concept)
        if node is None:
            node = self._nodes[concept] = _Node(self._capacity)
        return node
