"""The two methods of DEXIN, section 3.3: what one axis does to the rows that are left.

    exclude   `bits` of rows; the rows that fail are walked and cleared, or those that pass are walked and kept
    include   `rows` in a list; each is looked at, and stays or goes

Excluding walks whichever is fewer (erratum 13: start from the complement, which Algorithm 3 copies instead). Ends are
closed on both sides, open ones having been moved to the next double, so an end in the slot of the value is compared
once, and the slots before it, without the slot itself, are walked whole (errata 9 and 11).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled, lowest_bit
from kindcast.index.published.dexin.axes import View, place_of
from kindcast.index.published.growing_runs import LOWER

__all__ = ["Asked", "Stages", "exclude", "include", "listed", "rates"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]

WORDS_COST = 1 / 128
"""What it costs to go through the bits of all rows once, against looking at each."""


class Asked(NamedTuple):
    """Events by axis. Of event `e` of a view with `n` axes of numbers, axis `i` has `numbers[number_first[e * n + i] :
    number_first[e * n + i + 1]]`; the same with runs (1 …, without 0) for axes of names."""

    number_first: Numbers
    numbers: Floats
    name_first: Numbers
    names: Rows


class Stages(NamedTuple):
    """What each axis says about one event; the axes of names behind those of numbers. `failing` rows, `walked` rows to
    exclude them; places and extremes of the values; `several` numbers, so that the ends alone do not decide."""

    failing: Floats
    walked: Floats
    alpha: Numbers
    beta: Numbers
    least: Floats
    most: Floats
    several: npt.NDArray[np.bool_]


@compiled
def rates(view: View, asked: Asked, event: int, stages: Stages) -> None:
    """Formula (3), without counting a row twice (erratum 12): all slots beyond the value's own, of that a share."""
    axes = view.number_count.size
    words = WORDS_COST * 64 * view.alive.size
    for i in range(axes):
        first, last = asked.number_first[event * axes + i], asked.number_first[event * axes + i + 1]
        total = view.number_count[i]
        stages.several[i] = last - first > 1
        if first == last:
            stages.failing[i], stages.walked[i], stages.alpha[i], stages.beta[i] = total, min(total, words), 0, 0
            continue
        least = most = asked.numbers[first]
        for k in range(first + 1, last):
            least, most = min(least, asked.numbers[k]), max(most, asked.numbers[k])
        slotting = view.slotting
        alpha = place_of(slotting.edges[i, 0], slotting.edge_count[i, 0], most)
        beta = place_of(slotting.edges[i, 1], slotting.edge_count[i, 1], least)
        in_alpha = view.before[i, 0, alpha + 1] - view.before[i, 0, alpha]
        in_beta = view.before[i, 1, beta + 1] - view.before[i, 1, beta]
        above = total - view.before[i, 0, alpha + 1]
        above += in_alpha - _share(in_alpha, slotting.least[i, 0, alpha], slotting.most[i, 0, alpha], most, True)
        below = view.before[i, 1, beta]
        below += _share(in_beta, slotting.least[i, 1, beta], slotting.most[i, 1, beta], least, False)
        stages.failing[i] = min(float(total), above + below)
        stages.walked[i] = min(stages.failing[i], min(total - above, total - below) + words)
        stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i] = alpha, beta, least, most
    names = view.name_count.size
    for p in range(names):
        passing = 0
        for k in range(asked.name_first[event * names + p], asked.name_first[event * names + p + 1]):
            passing += view.name_length[asked.names[k]]
        stages.several[axes + p] = False
        stages.failing[axes + p] = view.name_count[p] - passing
        stages.walked[axes + p] = passing + words


@compiled
def _share(rows: int, least: float, most: float, value: float, closed: bool) -> float:
    """How many of `rows` ends between `least` and `most` are below `value`, or at it if `closed`: exact if the value
    lies outside, else as if they were spread evenly, and never none or all."""
    if rows == 0 or value < least or (value == least and not closed):
        return 0.0
    if value > most or (value == most and closed):
        return float(rows)
    spread = (value - least) / (most - least)
    share = rows * spread if spread == spread else 0.5 * rows
    return min(max(share, 0.5), rows - 0.5)


@compiled
def exclude(view: View, asked: Asked, event: int, stages: Stages, axis: int, bits: Bits, kept: Bits) -> None:
    """Algorithm 1: take the rows that fail on `axis` out of `bits`. `kept` is scratch of the same size."""
    axes = view.number_count.size
    if axis < axes and stages.alpha[axis] > 0 and stages.walked[axis] == stages.failing[axis]:
        _clear_failing(view, stages, axis, bits)
        return
    if axis < axes:
        kept[:] = ~view.number_asks[axis]
        if stages.alpha[axis] > 0:
            _keep_passing(view, stages, axis, kept)
    else:
        p, names = axis - axes, view.name_count.size
        kept[:] = ~view.name_asks[p]
        for k in range(asked.name_first[event * names + p], asked.name_first[event * names + p + 1]):
            run = asked.names[k]
            for at in range(view.name_start[run], view.name_start[run] + view.name_length[run]):
                row = view.name_rows[at]
                kept[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    bits &= kept


@compiled
def _clear_failing(view: View, stages: Stages, i: int, bits: Bits) -> None:
    slotting, entries = view.slotting, view.slot_entries
    alpha, beta, least, most = stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i]
    for place in range(alpha, slotting.edge_count[i, 0] + 2):
        run = slotting.base[i, 0] + place - 1
        for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
            row = entries[at] & LOWER
            fails = (place > alpha) or view.low[i, row] > most
            bits[row >> 6] &= ~(np.uint64(fails) << np.uint64(row & 63))
    for place in range(1, beta + 1):
        run = slotting.base[i, 1] + place - 1
        for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
            row = entries[at] & LOWER
            fails = (place < beta) or view.high[i, row] < least
            bits[row >> 6] &= ~(np.uint64(fails) << np.uint64(row & 63))


@compiled
def _keep_passing(view: View, stages: Stages, i: int, kept: Bits) -> None:
    """From the end of the range that has fewer rows: those whose one end passes, if their other end does as well."""
    slotting, entries = view.slotting, view.slot_entries
    alpha, beta, least, most = stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i]
    low, high = view.low[i], view.high[i]
    if view.before[i, 0, alpha + 1] <= view.number_count[i] - view.before[i, 1, beta]:
        for place in range(1, alpha + 1):
            run = slotting.base[i, 0] + place - 1
            for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
                row, upper = entries[at] & LOWER, entries[at] >> 32
                passes = upper > beta
                if (place == alpha) | (upper == beta):  # rare, so it is foreseen; what passes is not
                    passes = (low[row] <= most) & (high[row] >= least)
                kept[row >> 6] |= np.uint64(passes) << np.uint64(row & 63)
    else:
        for place in range(beta, slotting.edge_count[i, 1] + 2):
            run = slotting.base[i, 1] + place - 1
            for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
                row, lower = entries[at] & LOWER, entries[at] >> 32
                passes = lower < alpha
                if (place == beta) | (lower == alpha):
                    passes = (low[row] <= most) & (high[row] >= least)
                kept[row >> 6] |= np.uint64(passes) << np.uint64(row & 63)


@compiled
def listed(bits: Bits, rows: Rows) -> int:
    """The rows of `bits`, ascending, into `rows`; how many."""
    count = 0
    for word in range(bits.size):
        left = bits[word]
        while left:
            rows[count] = (word << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            count += 1
    return count


@compiled
def include(
    view: View,
    asked: Asked,
    event: int,
    stages: Stages,
    axis: int,
    rows: Rows,
    count: int,
    marked: npt.NDArray[np.bool_],
) -> int:
    """Algorithm 2: those of the first `count` of `rows` that do not fail on `axis`, in place; how many. `marked` is
    scratch, all False, one for each run of names."""
    axes = view.number_count.size
    if axis < axes:
        first, last = asked.number_first[event * axes + axis], asked.number_first[event * axes + axis + 1]
        if stages.alpha[axis] == 0:
            return _not_asking(view.place[axis], rows, count)
        if last - first == 1:
            return _around(view, axis, stages.alpha[axis], stages.beta[axis], asked.numbers[first], rows, count)
        return _around_any(view, axis, asked.numbers[first:last], rows, count)
    p, names = axis - axes, view.name_count.size
    first, last = asked.name_first[event * names + p], asked.name_first[event * names + p + 1]
    operand = view.operand[p]
    left = 0
    if last - first <= 1:
        only = asked.names[first] if last > first else 0
        for k in range(count):
            row = rows[k]
            rows[left] = row
            left += (operand[row] == 0) | (operand[row] == only)
        return left
    marked[0] = True
    for k in range(first, last):
        marked[asked.names[k]] = True
    for k in range(count):
        row = rows[k]
        rows[left] = row
        left += marked[operand[row]]
    marked[0] = False
    for k in range(first, last):
        marked[asked.names[k]] = False
    return left


@compiled
def _not_asking(place: npt.NDArray[np.uint16], rows: Rows, count: int) -> int:
    left = 0
    for k in range(count):
        row = rows[k]
        rows[left] = row
        left += place[row, 0] == 0
    return left


@compiled
def _around(view: View, i: int, alpha: int, beta: int, value: float, rows: Rows, count: int) -> int:
    """By place where that decides, by the ends themselves in the slots of the value."""
    place, low, high = view.place[i], view.low[i], view.high[i]
    left = 0
    for k in range(count):
        row = rows[k]
        lower, upper = place[row, 0], place[row, 1]
        rows[left] = row
        passes = (lower < alpha) & (upper > beta)
        if (lower == alpha) | (upper == beta):
            passes = (low[row] <= value) & (high[row] >= value)
        left += passes
    return left


@compiled
def _around_any(view: View, i: int, values: Floats, rows: Rows, count: int) -> int:
    place, low, high = view.place[i], view.low[i], view.high[i]
    left = 0
    for k in range(count):
        row = rows[k]
        passes = place[row, 0] == 0
        for value in values:
            passes = passes or low[row] <= value <= high[row]
        rows[left] = row
        left += passes
    return left
