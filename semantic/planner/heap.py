"""A heap of predicates by gain, compiled: the largest is taken first, whatever became of the gains meanwhile.

An entry remembers the gain that its predicate had when it was pushed. What comes up with another gain than it has now
is put back with its present one, so gains may shrink without anybody telling; where they grow, the predicate is pushed
once more.

    gain of p = sum over the wanted outcomes w of  miss[p, w] · work[p, w] + (1 - miss[p, w]) · popularity[p, w]
                over the cost of p
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled

__all__ = ["build_heap", "push_all", "take_best"]

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]

SAME = 1e-9
"""Relative difference of gains that is rounding."""


@compiled
def _gain(predicate: int, miss: Floats, cost: Floats, popularity: Ints, work: Ints) -> float:
    total = 0.0
    for wanted in range(2):
        chance = miss[predicate, wanted]
        total += chance * work[predicate, wanted] + (1.0 - chance) * popularity[predicate, wanted]
    return float(total / cost[predicate])


@compiled
def _before(gain: float, predicate: int, other_gain: float, other: int) -> bool:
    return gain > other_gain or (gain == other_gain and predicate < other)


@compiled
def _down(gains: Floats, predicates: Ints, size: int, at: int) -> None:
    gain, predicate = gains[at], predicates[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(gains[child + 1], predicates[child + 1], gains[child], predicates[child]):
            child += 1
        if not _before(gains[child], predicates[child], gain, predicate):
            break
        gains[at], predicates[at] = gains[child], predicates[child]
        at = child
    gains[at], predicates[at] = gain, predicate


@compiled
def build_heap(miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints) -> int:
    """Fill `gains` and `predicates` with all that settle something; answers how many. Linear."""
    size = 0
    for predicate in range(len(cost)):
        gain = _gain(predicate, miss, cost, popularity, work)
        if gain > 0.0:
            gains[size], predicates[size] = gain, predicate
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _down(gains, predicates, size, at)
    return size


@compiled
def push_all(
    new: Ints, miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints, size: int
) -> int:
    """Push the predicates `new` with their present gains; there is room. Answers the new size."""
    for number in range(len(new)):
        predicate = new[number]
        gain = _gain(predicate, miss, cost, popularity, work)
        if gain <= 0.0:
            continue
        at = size
        size += 1
        while at > 0:
            parent = (at - 1) // 2
            if not _before(gain, predicate, gains[parent], predicates[parent]):
                break
            gains[at], predicates[at] = gains[parent], predicates[parent]
            at = parent
        gains[at], predicates[at] = gain, predicate
    return size


@compiled
def take_best(
    outcome: Bytes, miss: Floats, cost: Floats, popularity: Ints, work: Ints, gains: Floats, predicates: Ints, size: int
) -> tuple[int, int]:
    """(the predicate with the largest gain, or -1; the size that is left). O(log size) for each entry looked at."""
    while size > 0:
        predicate = predicates[0]
        gain = 0.0
        if outcome[predicate] == -1:
            gain = _gain(predicate, miss, cost, popularity, work)
        if gain > 0.0 and abs(gain - gains[0]) > SAME * gains[0]:
            gains[0] = gain
            _down(gains, predicates, size, 0)
            continue
        size -= 1
        gains[0], predicates[0] = gains[size], predicates[size]
        _down(gains, predicates, size, 0)
        if gain > 0.0:
            return predicate, size
    return -1, 0
