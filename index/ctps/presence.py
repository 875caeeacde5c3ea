"""Which attributes a row wants present and which absent: the first filter of the `ctps` engine.

CTPS as printed starts from all bits and looks only at the pairs of the event, so deleted rows match (erratum 4), and
so do rows that constrain an attribute which the event lacks (erratum 5). Here matching starts from the live rows and
keeps those whose required attributes are all there and whose forbidden ones are not.

The straightforward form, `live &= ~required[a]` for every known attribute *a* that the event lacks, costs one
operation for each of perhaps thousands of attributes. Three things avoid that:

* the result depends only on which known attributes are present, and streams repeat that: it is remembered per such set
  until the next change;
* if few known attributes are absent, they are subtracted as above;
* else the *present* ones are counted for all rows at once, in bit planes (a row's count is spread over one bit of each
  plane, adding an attribute is a ripple of carries), and rows whose count equals what they need are kept:

      row            0 1 2 3
      count, bit 0   1 0 1 0        needed, bit 0   1 0 0 0       rows 0 and 1 have all they need,
      count, bit 1   0 1 1 0        needed, bit 1   0 1 1 1       rows 2 and 3 lack something
"""

from collections.abc import Iterable, Sequence

from bitarray import bitarray

from kindcast.index.clause import AttributeId
from kindcast.index.ctps.row_bits import RowSet, empty_bits

__all__ = ["Presence"]

REMEMBERED_BYTES = 1 << 24
"""Memory for remembered results: 16 MB are 1,000 sets of attributes at 10⁵ rows."""
COUNTING_COST = 6
"""Bit operations for counting one present attribute (two for each of about three planes); subtracting one costs one."""


class Presence:
    """The live rows, with the attributes that each requires and forbids.

    Invariants: `required[a]` and `forbidden[a]` are never empty and hold live rows only; bit *r* of plane *i* of
    `needed` is bit *i* of the number of attributes that row *r* requires; remembered results are what `_find` would
    make.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._live = empty_bits(capacity)
        self._required: dict[AttributeId, RowSet] = {}
        self._forbidden: dict[AttributeId, RowSet] = {}
        self._needed: list[bitarray] = []
        self._remembered: dict[frozenset[AttributeId], bitarray] = {}

    def add(self, row: int, required: frozenset[AttributeId], forbidden: frozenset[AttributeId]) -> None:
        """Make `row` live. It was not."""
        self._remembered.clear()
        self._live[row] = 1
        for attributes, sets in ((required, self._required), (forbidden, self._forbidden)):
            for attribute in attributes:
                if attribute not in sets:
                    sets[attribute] = RowSet(self._capacity)
                sets[attribute].add(row)
        self._write_need(row, len(required))

    def remove(self, row: int, required: frozenset[AttributeId], forbidden: frozenset[AttributeId]) -> None:
        """Undo `add` with the same arguments."""
        self._remembered.clear()
        self._live[row] = 0
        for attributes, sets in ((required, self._required), (forbidden, self._forbidden)):
            for attribute in attributes:
                sets[attribute].discard(row)
                if not sets[attribute]:
                    del sets[attribute]
        self._write_need(row, 0)

    def live(self, present: frozenset[AttributeId]) -> bitarray:
        """The rows that an event with the attributes `present` can still match, as bits of the caller's own."""
        required, forbidden = self._required, self._forbidden
        known = frozenset([a for a in present if a in required or a in forbidden])
        found = self._remembered.get(known)
        if found is None:
            found = self._find(known)
            if (len(self._remembered) + 1) * self._capacity > REMEMBERED_BYTES * 8:
                self._remembered.clear()
            self._remembered[known] = found
        return found.copy()

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`."""
        more = empty_bits(capacity - self._capacity)
        for bits in (self._live, *self._needed):
            bits.extend(more)
        for sets in (self._required, self._forbidden):
            for rows in sets.values():
                rows.grow(capacity)
        self._remembered.clear()
        self._capacity = capacity

    def check_invariants(self, expected: dict[int, tuple[frozenset[AttributeId], frozenset[AttributeId]]]) -> None:
        """Raise AssertionError if an invariant is broken; `expected` is row → (required, forbidden) of all live
        rows."""
        # Exactly the stored rows are live.
        assert list(self._live.search(1)) == sorted(expected), (self._live, expected)
        # Each attribute has exactly the rows that name it.
        for which, sets in enumerate((self._required, self._forbidden)):
            rows_of_attribute: dict[AttributeId, list[int]] = {}
            for row in sorted(expected):
                for attribute in expected[row][which]:
                    rows_of_attribute.setdefault(attribute, []).append(row)
            assert {a: rows.rows() for a, rows in sets.items()} == rows_of_attribute, (which, sets)
            for rows in sets.values():
                rows.check_invariants()
        # The planes spell the number of required attributes; rows without clause need none.
        for row in range(self._capacity):
            need = sum(plane[row] << place for place, plane in enumerate(self._needed))
            assert need == len(expected.get(row, ((),))[0]), (row, need)
        # Remembered results are right.
        for known, bits in self._remembered.items():
            assert bits == self._find(known), (known, bits)

    def _write_need(self, row: int, need: int) -> None:
        while need >> len(self._needed):
            self._needed.append(empty_bits(self._capacity))
        for place, plane in enumerate(self._needed):
            plane[row] = need >> place & 1

    def _find(self, present: frozenset[AttributeId]) -> bitarray:
        live = self._live.copy()
        wanted = [attribute for attribute in present if attribute in self._required]
        if len(self._required) - len(wanted) <= COUNTING_COST * len(wanted):
            for attribute, rows in self._required.items():
                if attribute not in present:
                    rows.subtract_from(live)
        else:
            self._keep_satisfied(live, [self._required[attribute] for attribute in wanted])
        for attribute in present:
            if attribute in self._forbidden:
                self._forbidden[attribute].subtract_from(live)
        return live

    def _keep_satisfied(self, live: bitarray, wanted: Sequence[RowSet]) -> None:
        """Keep in `live` the rows for which as many of `wanted` hold them as they need."""
        counts = _counted(wanted, self._capacity)
        for place, needed in enumerate(self._needed):
            same = needed ^ counts[place] if place < len(counts) else needed.copy()
            same.invert()
            live &= same


def _counted(sets: Iterable[RowSet], capacity: int) -> list[bitarray]:
    """How many of `sets` hold each row, as bit planes, the lowest bit first."""
    planes: list[bitarray] = []
    for each in sets:
        carry = empty_bits(capacity)
        each.union_into(carry)
        for plane in planes:
            overflow = plane & carry
            plane ^= carry
            carry = overflow
            if not carry.any():
                break
        else:
            planes.append(carry)
    return planes
