"""Candidates one after another, compiled: where a strategy that walks over them goes on.

A walk stands at a place of an order of candidates and at a literal of the candidate there. It is asked for the next
predicate again and again, and goes only as far as that one, for the outcomes in between decide what is still needed.
"""

import numpy as np
import numpy.typing as npt

from index.compiling import compiled

__all__ = ["next_in_turn", "next_of_open", "sorted_from_top"]

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]


@compiled
def sorted_from_top(first: Ints, predicate: Ints, rank: Floats) -> Ints:
    """`predicate` with those of each candidate by ascending rank, ties by their number. Candidates are short: each is
    sorted by insertion."""
    found = predicate.copy()
    ranks = rank.copy()
    for candidate in range(len(first) - 1):
        for at in range(first[candidate] + 1, first[candidate + 1]):
            own, own_rank = found[at], ranks[at]
            to = at
            while to > first[candidate]:
                above, above_rank = found[to - 1], ranks[to - 1]
                if above_rank < own_rank or (above_rank == own_rank and above < own):
                    break
                found[to], ranks[to] = above, above_rank
                to -= 1
            found[to], ranks[to] = own, own_rank
    return found


@compiled
def next_of_open(
    order: Ints,
    place: int,
    step: int,
    to_the_end: bool,
    first: Ints,
    literal: Ints,
    outcome: Bytes,
    state: Bytes,
    waits: Ints,
    popularity: Ints,
) -> tuple[int, int, int]:
    """(place, step, predicate, or -1 at the end): the next predicate that an open candidate needs. A candidate that was
    begun is left as soon as it is decided, or, with `to_the_end`, when nobody needs any more of its predicates."""
    while place < len(order):
        candidate = order[place]
        while (to_the_end and step > 0) or (state[candidate] == 0 and waits[candidate] == 0):
            if step == first[candidate + 1] - first[candidate]:
                break
            asked = literal[first[candidate] + step]
            step += 1
            if outcome[asked] == -1 and (popularity[asked, 0] > 0 or popularity[asked, 1] > 0):
                return place, step, asked
        place += 1
        step = 0
    return place, 0, -1


@compiled
def next_in_turn(
    order: Ints,
    place: int,
    step: int,
    waiting: Ints,
    count: int,
    first: Ints,
    literal: Ints,
    wanted: Bytes,
    outcome: Bytes,
    state: Bytes,
    waits: Ints,
) -> tuple[int, int, int, int]:
    """(place, step, count, predicate, or -1 at the end): the next predicate that nobody knows of a candidate whose
    literals so far came out as wanted, or failed, unless it is given up (3) or not needed (4). Candidates that wait for
    one that is under way are added to `waiting[:count]`."""
    while place < len(order):
        candidate = order[place]
        while state[candidate] < 3 and step < first[candidate + 1] - first[candidate]:
            if waits[candidate] > 0:
                waiting[count] = candidate
                count += 1
                break
            at = first[candidate] + step
            known = outcome[literal[at]]
            if known == -1:
                return place, step, count, literal[at]
            if known == 1 - wanted[at]:
                break
            step += 1
        place += 1
        step = 0
    return place, 0, count, -1
