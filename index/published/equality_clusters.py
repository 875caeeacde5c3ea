"""Clauses by their equality predicates: the clusters of Le Subscribe, section 3, and what `eqsubmatch` looks up.

    clause ─▶ schema: the axes of its equality predicates ─▶ cluster
    cluster, the numbers of its predicates ─▶ hash table ─▶ entry ─▶ run of rows

A concept asked for is an equality as well: a value stands for itself and everything above it. An axis that stands twice
in a clause stands twice in its schema. Entries that are empty are dropped when they are most of all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled
from kindcast.index.published.growing_runs import GrowingRuns

__all__ = ["Clusters", "EqualityClusters", "entry_of", "hashed", "seed_of"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

FEWEST_SLOTS = 64


class Clusters(NamedTuple):
    """Of `c` clusters: `schema` (`int32[c, axes]`, the first `width[c]` of it), `live` rows of each, `mask` of the axes
    modulo 64. Entry `e` has the predicates `keys[e]` (as many as its cluster is wide) and the rows
    `rows[start[e] : start[e] + length[e]]`; `slots` are entries by hash, -1 for none, twice as many or more."""

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
    """Rows by schema and predicates. A clause without equality predicates is in none."""

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
        """What kernels look up in."""
        runs = self._runs
        return Clusters(
            self._schema, self._width, self._live, self._mask, self._cluster, self._keys, self._slots,
            runs.start, runs.length, runs.entries,  # type: ignore[arg-type]
        )  # fmt: skip

    def add(self, rows: Rows, row_of: Numbers, axis: Rows, predicate: Rows) -> None:
        """Row `rows[row_of[k]]` has the equality predicate `predicate[k]` on `axis[k]`; each row has one or more. A
        look-up of the schema, and one in the hash table."""
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
        """Take a row out again, of these axes and predicates."""
        order = np.lexsort((predicate, axis))
        cluster, predicate = self._number[tuple(axis[order].tolist())], predicate[order]
        entry = entry_of(self._slots, self._cluster, self._keys, self._width, cluster, predicate)
        self._runs.remove(entry, row)
        self._live[cluster] -= 1
        self._rows -= 1
        if self._entries > FEWEST_SLOTS and self._entries > 4 * self._rows:
            self._drop_empty()

    def check_invariants(self) -> None:
        """Raise AssertionError if an entry is not where it is looked for, or counts are wrong."""
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
        """Lay the table out again without the entries that have no rows. Linear."""
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
    """Where the hash of an entry of this cluster begins."""
    return np.uint64(cluster) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(1)


@compiled
def hashed(before: np.uint64, predicate: int) -> np.uint64:
    """The hash with one predicate more."""
    value = (before ^ np.uint64(predicate)) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def entry_of(slots: Rows, cluster_of: Rows, keys: Rows, width: Rows, cluster: int, predicate: Rows) -> int:
    """The entry of a cluster with these predicates, or -1."""
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
    """Fill `places` with the entry of each row, new ones where there are none; answers how many there are now."""
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
