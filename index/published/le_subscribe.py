"""Figures 2, 4 and 5 of Le Subscribe, compiled: many events, one call.

What events satisfy is read first (`axis_readings`): numbers of predicates, each stored once with its rows, and a value
for each axis of bounds. Several values satisfy a predicate once (erratum 22): of several numbers the largest counts for
`AtLeast`, the smallest for `AtMost`, and the concepts above several values are united. `hitcount` begins from zero for
every event.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled
from kindcast.index.published.bound_blocks import Blocks
from kindcast.index.published.equality_clusters import Clusters, hashed, seed_of
from kindcast.index.published.row_predicates import Predicates

__all__ = [
    "AT_LEAST",
    "AT_MOST",
    "EQUALITY",
    "PRESENT",
    "Satisfied",
    "Stored",
    "equality_preferred",
    "fair",
    "quarantining",
]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EQUALITY, PRESENT, AT_LEAST, AT_MOST = range(4)
"""How an axis is asked: keys and concepts; presence of an attribute; bounds."""
SCANNED = 64
"""Rows whose counts are compared before any of them is looked at."""


class Satisfied(NamedTuple):
    """What `e` events say to `a` axes: `firsts` (`int64[e * a + 1]`), where the predicates of each event and axis begin
    in `predicates`; `values` (`float64[e, a]`), what bounds are held to, NaN for nothing."""

    firsts: Numbers
    predicates: Rows
    values: Floats


class Stored(NamedTuple):
    """Predicates with their rows: those of predicate `p` are `rows[start[p] : start[p] + length[p]]`; bounds are in
    `blocks`. `kind` (`int8[axes]`) is how each axis is asked."""

    kind: npt.NDArray[np.int8]
    start: Numbers
    length: Numbers
    rows: Rows
    blocks: Blocks


@compiled
def fair(satisfied: Satisfied, stored: Stored, needed: Rows) -> tuple[Numbers, Rows]:
    """Figure 2: every satisfied predicate adds one to the count of every row that has it; those of `needed.size` rows
    whose count is `needed` have matched, ascending. About a nanosecond a predicate of a row, and a tenth a row."""
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
    """Figure 4: the rows whose equalities hold (line 3), of those and of the rows `without` any (-1: a free place), the
    ones that have satisfied so many other predicates as `needed` says. In no order."""
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
    """Figure 5: the rows whose equalities hold, each with its other predicates checked (lines 3 to 8); only those of
    the rows `without` equality are stored by predicate and counted (lines 9 to 21), by their place in `without`;
    `needed` is -1 at a free place."""
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
    """`predmatch`, `lesspredmatch`, `greaterpredmatch`, and the counting of what they find."""
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
    """`eqsubmatch`: append the rows whose equality predicates all hold. For each cluster whose schema the event has, a
    look-up for each combination of its predicates."""
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
    """`match`: whether the predicates of a row that are no equalities hold."""
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
    """`found`, or a larger copy, with room for `coming` more."""
    if used + coming <= found.size:
        return found
    larger = np.empty(2 * (used + coming), dtype=np.int32)
    larger[:used] = found[:used]
    return larger
