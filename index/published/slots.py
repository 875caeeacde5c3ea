"""Slots of DEXIN, section 3.3.1: the ends of the intervals of each axis, in up to 1,500 ranges.

    axis i ─┬─ edges[i, LOW]   ─▶ slot of a lower end ─▶ run of rows
            └─ edges[i, HIGH]  ─▶ slot of an upper end ─▶ run of rows

The paper's slots divide a known range evenly; here the edges are quantiles of the ends that are stored, so that skewed
ones fill the slots evenly as well, and are drawn again whenever an axis has doubled. Inside a slot rows are in no
order: the paper's own variant (linked lists instead of RB-trees); only in the slot of the value each is looked at.

A slot has a *place* from 1 on. Place 0 is the lower end, `BEYOND` the upper end of a row that does not ask.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from index.compiling import compiled

__all__ = ["BEYOND", "HIGH", "LOW", "MOST_SLOTS", "SLOT_ROWS", "Slotting", "drawn", "place_of", "rows_before"]

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint16]

LOW, HIGH = 0, 1

MOST_SLOTS = 1500
"""Slots of one array: τ of the paper's experiments."""
SLOT_ROWS = 32
"""Rows that a slot should at least have: fewer, and finding slots costs more than looking through one."""
BEYOND = 65535
"""The place of an upper end that is not there."""
SAMPLED = 1 << 16
"""Ends among which the quantiles are taken: 40 for each slot."""


class Slotting(NamedTuple):
    """Of `n` axes: `edges` are `float64[n, 2, MOST_SLOTS-1]`, of which `edge_count[n, 2]` are used; `base[n, 2]` is the
    run of place 1; `least` and `most` (`float64[n, 2, MOST_SLOTS+2]`) are the outermost ends in each place, or wider
    after removals."""

    edges: Floats
    edge_count: Numbers
    base: Numbers
    least: Floats
    most: Floats


@compiled
def place_of(edges: Floats, count: int, value: float) -> int:
    """1 + how many of the first `count` edges are not above `value`: eleven steps without a branch."""
    first, left = 0, count
    while left > 1:
        half = left >> 1
        first += half if edges[first + half - 1] <= value else 0
        left -= half
    return first + 1 + (1 if left == 1 and edges[first] <= value else 0)


@compiled
def rows_before(slotting: Slotting, lengths: Numbers, out: Numbers) -> None:
    """`out[i, side, place]`: rows of axis `i` in the places before `place`. Formula (3) asks for them."""
    for i in range(slotting.base.shape[0]):
        for side in range(2):
            total = 0
            for place in range(1, slotting.edge_count[i, side] + 2):
                out[i, side, place] = total
                total += lengths[slotting.base[i, side] + place - 1]
            out[i, side, slotting.edge_count[i, side] + 2] = total


def drawn(ends: Sequence[tuple[Floats, Floats]], slot_rows: int) -> Slotting:
    """Slots of `slot_rows` or more for the (lower, upper) ends of some axes, with nothing in them yet."""
    n = len(ends)
    chance = np.random.default_rng(n)
    edges = np.zeros((n, 2, MOST_SLOTS - 1))
    count = np.zeros((n, 2), dtype=np.int64)
    for i, pair in enumerate(ends):
        for side in (LOW, HIGH):
            found = _quantiles(pair[side], slot_rows, chance)
            edges[i, side, : found.size] = found
            count[i, side] = found.size
    base = np.concatenate([[0], np.cumsum(count.ravel() + 1)])[:-1].reshape(n, 2)
    wide = (n, 2, MOST_SLOTS + 2)
    return Slotting(edges, count, base, np.full(wide, np.inf), np.full(wide, -np.inf))


def _quantiles(ends: Floats, slot_rows: int, chance: np.random.Generator) -> Floats:
    """Edges that divide `ends` into slots of much the same size; ascending, none twice, none infinite."""
    slots = min(MOST_SLOTS, ends.size // slot_rows)
    if slots < 2:
        return np.zeros(0, dtype=np.float64)
    sample = np.sort(ends if ends.size <= SAMPLED else chance.choice(ends, SAMPLED))
    edges = np.unique(sample[np.arange(1, slots) * sample.size // slots])
    finite: Floats = edges[np.isfinite(edges)]
    return finite
