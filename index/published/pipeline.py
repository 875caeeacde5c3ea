"""Algorithm 3 of DEXIN: events through the axes of a view, one after the other.

    event ─▶ rates of the axes ─▶ plan ─▶ bits, narrowed where axes exclude ─▶ list, narrowed where they include

Everything is in one kernel: many events, one call.
"""

import numpy as np
import numpy.typing as npt

from index.compiling import compiled
from index.published.axes import View
from index.published.plans import EXCLUSIVE, INCLUSIVE, MOST_SUBSETS, OPTIMAL, first_fit, optimal
from index.published.stages import Asked, Stages, exclude, include, listed, rates

__all__ = ["failing_shares", "match_events"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@compiled
def match_events(view: View, asked: Asked, events: int, clauses: int, plan: int) -> tuple[Numbers, Rows]:
    """Offsets `int64[events + 1]` and rows, ascending for each event. `clauses` are the rows that are alive."""
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    axes = view.number_count.size + view.name_count.size
    stages = _stages(axes)
    order = np.empty(axes, dtype=np.int64)
    excludes = np.empty(axes, dtype=np.bool_)
    bits, kept = np.empty_like(view.alive), np.empty_like(view.alive)
    marked = np.zeros(max(1, view.name_length.size), dtype=np.bool_)
    rows = np.empty(1024, dtype=np.int32)
    total = 0
    for event in range(events):
        rates(view, asked, event, stages)
        used = _ordered(stages, order)
        _plan(stages, order[:used], clauses, plan, excludes)
        bits[:] = view.alive
        for k in range(used):
            if excludes[k]:
                exclude(view, asked, event, stages, order[k], bits, kept)
        count = _ones(bits)
        if count > rows.size:
            rows = np.empty(2 * count, dtype=np.int32)
        listed(bits, rows)
        for k in range(used):
            if not excludes[k] and count > 0:
                count = include(view, asked, event, stages, order[k], rows, count, marked)
        if total + count > found.size:
            larger = np.empty(2 * (total + count), dtype=np.int32)
            larger[:total] = found[:total]
            found = larger
        found[total : total + count] = rows[:count]
        total += count
        offsets[event + 1] = total
    return offsets, found[:total]


@compiled
def failing_shares(view: View, asked: Asked, clauses: int) -> Floats:
    """δ of every axis for the first event: the axes of names behind those of numbers."""
    stages = _stages(view.number_count.size + view.name_count.size)
    rates(view, asked, 0, stages)
    return stages.failing / max(1, clauses)


@compiled
def _stages(axes: int) -> Stages:
    floats, numbers = np.zeros((4, axes)), np.zeros((2, axes), dtype=np.int64)
    several = np.zeros(axes, dtype=np.bool_)
    return Stages(floats[0], floats[1], numbers[0], numbers[1], floats[2], floats[3], several)


@compiled
def _ordered(stages: Stages, order: Numbers) -> int:
    """The axes on which some row fails or may fail, lowest matching rate first, into `order`; how many. They are few:
    inserted in turn."""
    used = 0
    for axis in range(stages.failing.size):
        if stages.failing[axis] <= 0 and not stages.several[axis]:
            continue
        at = used
        while at > 0 and stages.failing[order[at - 1]] < stages.failing[axis]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = axis
        used += 1
    return used


@compiled
def _plan(stages: Stages, order: Numbers, clauses: int, plan: int, excludes: npt.NDArray[np.bool_]) -> None:
    """An axis with several numbers includes, whatever the plan: its ends alone do not decide."""
    used = order.size
    if plan in (EXCLUSIVE, INCLUSIVE):
        excludes[:used] = plan == EXCLUSIVE
    else:
        share = 1.0 / max(1, clauses)
        failing, cost = np.empty(used), np.empty(used)
        for k in range(used):
            failing[k], cost[k] = stages.failing[order[k]] * share, stages.walked[order[k]] * share
        if plan == OPTIMAL and used <= MOST_SUBSETS:
            optimal(failing, cost, excludes[:used])
        else:
            first_fit(failing, cost, excludes[:used])
    for k in range(used):
        excludes[k] = excludes[k] and not stages.several[order[k]]


@compiled
def _ones(bits: npt.NDArray[np.uint64]) -> int:
    """How many bits are set."""
    count = 0
    for each in bits:
        word = each - ((each >> np.uint64(1)) & np.uint64(0x5555555555555555))
        word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
        word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        count += (word * np.uint64(0x0101010101010101)) >> np.uint64(56)
    return count
