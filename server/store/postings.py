"""Encodings of lists of subscription numbers and of postings, that is, pairs of subscription and position. No SQL.

match list    the subscriptions of one position, sorted        pack_lists ◀──▶ unpack
postings      pairs (subscription, position), sorted by both   Postings.encoded ◀──▶ decoded
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["DamagedBytes", "Numbers", "Postings", "joined", "pack_lists", "unpack"]

Numbers = npt.NDArray[np.int64]

COMPRESSED_FROM = 64
"""A list with at least this many numbers is stored as compressed differences."""
LEVEL = 1
"""The level of the compression. Higher levels take several times as long and save a few per cent."""
PAIRS_A_PAGE = 32_768
"""The number of pairs in a page. A subscription with more pairs is still in one page."""

_UNCHECKED, _UNCHECKED_WIDE, _DIFFERENCES, _PLAIN, _WIDE = b"\0", b"\1", b"\2", b"\3", b"\4"
"""The first byte of a list. Lists with the unchecked bytes come from earlier versions, which stored short lists without
a checksum."""
_CHECKSUM = 4
"""The size of the checksum at the end of a short list, in bytes."""
_WIDTHS = (np.dtype("<u1"), np.dtype("<u2"), np.dtype("<u4"), np.dtype("<u8"))


class DamagedBytes(ValueError):
    """Stored matches cannot be read, because their bytes have changed."""


# ── one list ────────────────────────────────────────────────────────────────────────────────────────────────────────


def pack_lists(numbers: Numbers, bounds: Numbers) -> list[bytes]:
    """Encodes lists of ascending distinct numbers. List `i` is `numbers[bounds[i] : bounds[i + 1]]`. A short list takes
    four bytes per number (eight if a number needs more than 32 bits) and four for its checksum. A long list is stored
    as compressed differences, which takes some bits per number if it is dense."""
    wide = numbers.size > 0 and int(numbers.max()) >= 1 << 32
    mark, size, raw = (_WIDE, 8, numbers.astype("<i8")) if wide else (_PLAIN, 4, numbers.astype("<u4"))
    data, ends = raw.tobytes(), bounds.tolist()
    return [
        mark + (each := data[size * start : size * end]) + zlib.crc32(each).to_bytes(_CHECKSUM, "little")
        if end - start < COMPRESSED_FROM
        else _DIFFERENCES + _compressed(numbers[start:end])
        for start, end in pairwise(ends)
    ]


def unpack(data: bytes) -> Numbers:
    """Decodes a list that `pack_lists` encoded. Raises `DamagedBytes`."""
    try:
        match data[:1]:
            case b"\3":
                return np.frombuffer(_checked(data), dtype="<u4").astype(np.int64)
            case b"\4":
                return np.frombuffer(_checked(data), dtype="<i8").astype(np.int64)
            case b"\2":
                return _read_column(zlib.decompress(data[1:]), 0)[0].cumsum()
            case b"\0":
                return np.frombuffer(data, dtype="<u4", offset=1).astype(np.int64)
            case b"\1":
                return np.frombuffer(data, dtype="<i8", offset=1).astype(np.int64)
    except (ValueError, IndexError, zlib.error) as error:
        raise DamagedBytes("a list of matches is damaged") from error
    raise DamagedBytes("a list of matches is damaged")


def _checked(data: bytes) -> bytes:
    """Returns the bytes of the numbers of a short list. Raises `DamagedBytes`."""
    numbers = data[1:-_CHECKSUM]
    if zlib.crc32(numbers).to_bytes(_CHECKSUM, "little") != data[-_CHECKSUM:]:
        raise DamagedBytes("a list of matches is damaged")
    return numbers


def _compressed(numbers: Numbers) -> bytes:
    differences = np.diff(numbers, prepend=0)
    return zlib.compress(_column(differences), LEVEL)


def _column(values: Numbers) -> bytes:
    """Encodes values that are not negative: their count, the width of the others and the first value, and then the
    others."""
    rest = values[1:]
    width = sum(int(rest.max(initial=0)) >= 1 << bits for bits in (8, 16, 32))
    head = np.array([values.size, width, values[0] if values.size else 0], dtype="<i8").tobytes()
    return head + rest.astype(_WIDTHS[width]).tobytes()


def _read_column(data: bytes, at: int) -> tuple[Numbers, int]:
    """Returns the values of a column, and the offset of the next column."""
    size, width, first = np.frombuffer(data, dtype="<i8", count=3, offset=at).tolist()
    values = np.empty(size, dtype=np.int64)
    at += 24
    if size:
        kind = _WIDTHS[width]
        values[0] = first
        values[1:] = np.frombuffer(data, dtype=kind, count=size - 1, offset=at)
        at += kind.itemsize * (size - 1)
    return values, at


# ── postings ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Pairs of subscription and position, sorted by both: two arrays `int64[pairs]`. The pairs cover the positions from
    `first` to `last`."""

    subscriptions: Numbers
    positions: Numbers
    first: int
    last: int

    @classmethod
    def of_lists(cls, lists: Sequence[tuple[int, bytes]], first: int, last: int) -> "Postings":
        """Makes postings from (position, packed list) in the order of positions. Cost: 1 µs per list and 50 ns per
        pair."""
        if all(data[:1] == _PLAIN for _, data in lists):
            numbers = [_checked(data) for _, data in lists]
            sizes = [len(each) >> 2 for each in numbers]
            subscriptions = np.frombuffer(b"".join(numbers), dtype="<u4").astype(np.int64)
        else:
            unpacked = [unpack(data) for _, data in lists]
            sizes = [each.size for each in unpacked]
            subscriptions = np.concatenate(unpacked)
        positions = np.repeat(np.array([position for position, _ in lists], dtype=np.int64), sizes)
        order = np.argsort(subscriptions, kind="stable")
        return cls(subscriptions[order], positions[order], first, last)

    def __len__(self) -> int:
        return self.positions.size

    @property
    def nbytes(self) -> int:
        """The memory of the arrays in bytes."""
        return self.subscriptions.nbytes + self.positions.nbytes

    def of(self, subscription: int, after: int) -> Numbers:
        """Returns the positions of one subscription after a position, ascending. Cost: two binary searches."""
        start, end = np.searchsorted(self.subscriptions, (subscription, subscription + 1))
        mine = self.positions[start:end]
        return mine[np.searchsorted(mine, after, side="right") :]

    def behind(self, position: int) -> "Postings":
        """Returns the pairs after a position."""
        if position < self.first:
            return self
        chosen = self.positions > position
        return Postings(self.subscriptions[chosen], self.positions[chosen], position + 1, self.last)

    def count_after(self, subscriptions: Numbers, after: Numbers) -> Numbers:
        """Returns how many positions each subscription has after its own bound. Cost: a binary search per subscription,
        and some ns per pair. `subscriptions` need not be sorted."""
        starts = np.searchsorted(self.subscriptions, subscriptions)
        ends = np.searchsorted(self.subscriptions, subscriptions, side="right")
        counts = ends - starts
        some = np.flatnonzero(counts)
        if not some.size:
            return counts
        low, high = after[some] < self.positions[starts[some]], after[some] >= self.positions[ends[some] - 1]
        counts[some[high]] = 0
        for each in some[~low & ~high].tolist():  # the bound is between their first and last position
            mine = self.positions[starts[each] : ends[each]]
            counts[each] = mine.size - int(np.searchsorted(mine, after[each], side="right"))
        return counts

    def last_of(self, subscriptions: Numbers) -> Numbers:
        """Returns the last position of each subscription; 0 if it has none."""
        if not len(self):
            return np.zeros(subscriptions.size, dtype=np.int64)
        ends = np.searchsorted(self.subscriptions, subscriptions, side="right") - 1
        there = (ends >= 0) & (self.subscriptions[ends] == subscriptions)
        return np.where(there, self.positions[ends], 0)

    def pages(self) -> Iterator["Postings"]:
        """Yields the same pairs in parts of about `PAIRS_A_PAGE`. Each subscription is in one part only."""
        start, size = 0, len(self)
        while start < size:
            end = min(start + PAIRS_A_PAGE, size)
            end = int(np.searchsorted(self.subscriptions, self.subscriptions[end - 1], side="right"))
            yield Postings(self.subscriptions[start:end], self.positions[start:end], self.first, self.last)
            start = end

    def encoded(self) -> bytes:
        """Encodes the pairs: each subscription once, with the number of its positions; a position takes one or two
        bytes, compressed. There must be at least one pair."""
        starts = np.flatnonzero(np.diff(self.subscriptions, prepend=-1))
        counts = np.diff(starts, append=len(self))
        columns = (np.diff(self.subscriptions[starts], prepend=0), counts, self.positions - self.first)
        return zlib.compress(b"".join(_column(each) for each in columns), LEVEL)

    @classmethod
    def decoded(cls, data: bytes, first: int, last: int) -> "Postings":
        """Decodes what `encoded` returned. Raises `DamagedBytes`."""
        try:
            raw = zlib.decompress(data)
            differences, at = _read_column(raw, 0)
            counts, at = _read_column(raw, at)
            positions, _ = _read_column(raw, at)
        except (ValueError, IndexError, zlib.error) as error:
            raise DamagedBytes("a page of matches is damaged") from error
        return cls(np.repeat(differences.cumsum(), counts), positions + first, first, last)


def joined(parts: Sequence[Postings]) -> Postings:
    """Merges postings of consecutive ranges of positions."""
    if len(parts) == 1:
        return parts[0]
    subscriptions = np.concatenate([each.subscriptions for each in parts])
    positions = np.concatenate([each.positions for each in parts])
    order = np.argsort(subscriptions, kind="stable")
    return Postings(subscriptions[order], positions[order], parts[0].first, parts[-1].last)
