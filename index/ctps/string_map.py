"""The equality index of one column: key → rows. CTPS §4.2 and §5.2, Algorithms 4 and 8.

The paper's second-level map of string constraints, here for keys of any kind: strings, and numbers, instants or
booleans that are compared by equality. Its *any entry* (every subscription that constrains the attribute; the key is
lost in print, erratum 8) is the set of constrained rows that `AttributeCopy` keeps, because one predicate may test
several columns.
"""

from collections.abc import Iterable

from bitarray import bitarray

from kindcast.index.clause import Key
from kindcast.index.ctps.row_bits import RowSet

__all__ = ["StringMap"]


class StringMap:
    """Rows by key. Every key has at least one row; a key that nobody asked for is the empty set. O(1) a key."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: dict[Key, RowSet] = {}

    def __len__(self) -> int:
        """How many keys somebody asked for."""
        return len(self._rows)

    def add(self, row: int, keys: Iterable[Key]) -> None:
        """Algorithm 4: put `row` under each of `keys`."""
        for key in keys:
            rows = self._rows.get(key)
            if rows is None:
                rows = self._rows[key] = RowSet(self._capacity)
            rows.add(row)

    def remove(self, row: int, keys: Iterable[Key]) -> None:
        """Undo `add(row, keys)`; a key without rows goes."""
        for key in keys:
            self._rows[key].discard(row)
            if not self._rows[key]:
                del self._rows[key]

    def union_into(self, matched: bitarray, key: Key) -> None:
        """Algorithm 8, line 3: set in `matched` every row that asked for `key`."""
        rows = self._rows.get(key)
        if rows is not None:
            rows.union_into(matched)

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`."""
        self._capacity = capacity
        for rows in self._rows.values():
            rows.grow(capacity)

    def contents(self) -> Iterable[tuple[Key, list[int]]]:
        """All (key, rows), for checks."""
        return ((key, rows.rows()) for key, rows in self._rows.items())

    def check_invariants(self) -> None:
        """Raise AssertionError if a key has no rows or its set is broken."""
        for key, rows in self._rows.items():
            assert rows, key
            rows.check_invariants()
