"""Sets of rows as bits, and the conversion between bits and row numbers, for the `ctps` engine.

A set of rows is a bit array as long as the engine's capacity (a power of two, at least `FIRST_CAPACITY`): bit *r* says
whether row *r* belongs to it. That is how CTPS (Sci. Prog. 2022, §4.1) keeps every list of subscriptions. An engine has
very many sets that hold few rows (one for each string, cell and concept), so a `RowSet` stays a plain list of rows
until it is worth a bit array; its meaning is the same.

    bits   0 1 1 0 0 0 0 1 …   little-endian: byte b holds rows 8·b … 8·b + 7     ◀── union_into ── RowSet {1, 2, 7}
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt
from bitarray import bitarray

__all__ = ["FIRST_CAPACITY", "RowArray", "RowSet", "clear_rows", "empty_bits", "rows_of", "set_rows", "sparse_limit"]

RowArray = npt.NDArray[np.int32]

FIRST_CAPACITY = 64
"""Rows of a new engine: one machine word, so that a bit array can always be read as whole words."""
FEW_ROWS = 32
"""So many rows are cheaper to find one by one (45 ns each) than by numpy (12 µs at 10⁵ rows)."""
DENSE_WORDS = 4
"""From one word in four on, unpacking all bits is faster than unpacking the words that are not zero (measured at
10⁵)."""
MANY_ROWS = 1024
"""From so many rows on, packing a mask is faster than setting bit by bit (8 ns each)."""


def empty_bits(capacity: int) -> bitarray:
    """`capacity` bits, all zero."""
    return bitarray(capacity, endian="little")


def rows_of(bits: bitarray) -> RowArray:
    """The rows whose bit is set: `int32[count]`, ascending. `len(bits)` is a multiple of 64; `bits` is not changed.

    Costs 45 ns a row for few rows, else one pass over the words plus 10 to 20 ns a row.

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
    """Set the bits of `rows` in `bits`, in place. Costs 8 ns a row, or one pass over all rows when there are many."""
    if rows.size < MANY_ROWS:
        bits[rows.tolist()] = 1
    else:
        bits |= _packed(rows, len(bits))


def clear_rows(bits: bitarray, rows: RowArray) -> None:
    """Clear the bits of `rows` in `bits`, in place. Costs what `set_rows` costs."""
    if rows.size < MANY_ROWS:
        bits[rows.tolist()] = 0
    else:
        bits &= ~_packed(rows, len(bits))


def sparse_limit(capacity: int) -> int:
    """How many rows a `RowSet` holds before it becomes a bit array.

    Both forms then cost the same to unite (8 ns a row, 6 ps a bit), and a bit array takes at most 256 bytes for each
    row in it. Without this, 10⁵ clauses with different strings would take 10⁵ bit arrays: over a gigabyte.
    """
    return max(16, capacity >> 11)


class RowSet:
    """A mutable set of rows, a list while small and a bit array afterwards.

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
        """The set of `rows`, which are distinct."""
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
        """The rows of all `sets`."""
        bits = empty_bits(capacity)
        for each in sets:
            each.union_into(bits)
        return cls.of(rows_of(bits), capacity)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: int) -> bool:
        return row in self._sparse if self._dense is None else bool(self._dense[row])

    def add(self, row: int) -> None:
        """Put `row` in; nothing happens if it is there."""
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
        """Take `row` out; nothing happens if it is not there."""
        if row not in self:
            return
        self._count -= 1
        if self._dense is not None:
            self._dense[row] = 0
        else:
            self._sparse.remove(row)

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`; a set that has become small for it turns into a list again."""
        if self._dense is not None:
            if self._count <= sparse_limit(capacity) // 2:
                self._sparse = rows_of(self._dense).tolist()
                self._dense = None
            else:
                self._dense.extend(empty_bits(capacity - self._capacity))
        self._capacity = capacity

    def union_into(self, bits: bitarray) -> None:
        """`bits |= self`, in place. `len(bits)` is the capacity."""
        if self._dense is not None:
            bits |= self._dense
        elif self._sparse:
            bits[self._sparse] = 1

    def subtract_from(self, bits: bitarray) -> None:
        """`bits &= ~self`, in place."""
        if self._dense is not None:
            bits &= ~self._dense
        elif self._sparse:
            bits[self._sparse] = 0

    def keep_matched(self, live: bitarray, matched: bitarray) -> None:
        """`live &= ~self | matched`, in place: rows of this set stay only if they are matched, others are untouched.

        `matched` is a subset of this set and is used up as scratch space.
        """
        if self._dense is not None:
            matched ^= self._dense  # the rows that failed, as matched is a subset
            matched.invert()
            live &= matched
        else:
            live[[row for row in self._sparse if not matched[row]]] = 0

    def rows(self) -> list[int]:
        """All rows, ascending."""
        return sorted(self._sparse) if self._dense is None else [int(row) for row in rows_of(self._dense)]

    def check_invariants(self) -> None:
        """Raise AssertionError if one of the invariants is broken."""
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
    """One boolean per bit. As booleans, because counting non-zero bytes is five times slower."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)
