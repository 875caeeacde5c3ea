"""Bounds in order, with their rows, axis by axis, that come and go one by one: a B+-tree of one level of blocks.

    axis ─▶ order[axis, : blocks[axis]]    its blocks, ascending
    block ─▶ bounds, rows[block, : size]  up to `BLOCK` pairs of a bound and a row, ascending by both

What a value satisfies are the first blocks, or the last ones, and a part of one more: whole runs of rows (erratum 21:
`X <= c` for the suffix c >= v, `X >= c` for the prefix). A block that is full is split in two, one that is empty is
used again.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled

__all__ = ["BLOCK", "Blocks", "BoundBlocks"]

Rows = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

BLOCK = 256
"""Pairs of a block: few enough to move for each that comes, enough to walk without looking where the next block is."""


class Blocks(NamedTuple):
    """See above. `order` is `int32[axes, room]`, `blocks` `int32[axes]`, `bounds` and `rows` are `[pool, BLOCK]`,
    `size` is `int32[pool]`, `free` are blocks of the pool, `int32[pool]`, of which the first `unused[0]` are free."""

    order: Rows
    blocks: Rows
    bounds: Floats
    rows: Rows
    size: Rows
    free: Rows
    unused: Rows


class BoundBlocks:
    """Pairs of a bound and a row, by axis. Invariant: ascending within an axis; no block of an axis is empty."""

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int32)
        wide = (0, BLOCK)
        self.blocks = Blocks(
            np.zeros((0, 4), dtype=np.int32), none, np.zeros(wide), np.zeros(wide, dtype=np.int32), none, none,
            np.zeros(1, dtype=np.int32),
        )  # fmt: skip

    def grow(self, axes: int) -> None:
        """Let there be at least so many axes; the new ones have no bounds."""
        known, room = self.blocks.order.shape
        if axes > known:
            more = max(axes, 2 * known) - known
            order = np.concatenate([self.blocks.order, np.zeros((more, room), dtype=np.int32)])
            self.blocks = self.blocks._replace(
                order=order, blocks=np.concatenate([self.blocks.blocks, np.zeros(more, dtype=np.int32)])
            )

    def insert(self, axis: Rows, bound: Floats, row: Rows) -> None:
        """Put `bound[i]` of `row[i]` on `axis[i]`. Each costs two searches and half a block."""
        done = 0
        while done < axis.size:
            done = _insert(self.blocks, axis, bound, row, done)
            if done < axis.size:
                self._enlarge(int(axis[done]))

    def remove(self, axis: Rows, bound: Floats, row: Rows) -> None:
        """Take such pairs out again; they are there."""
        _remove(self.blocks, axis, bound, row)

    def check_invariants(self) -> None:
        """Raise AssertionError if pairs are out of order or blocks are in two places."""
        blocks = self.blocks
        used: list[int] = []
        for axis in range(len(blocks.blocks)):
            own = blocks.order[axis, : blocks.blocks[axis]].tolist()
            used += own
            pairs: list[tuple[float, int]] = []
            for b in own:
                count = int(blocks.size[b])
                assert 0 < count <= BLOCK, (axis, b, count)
                pairs += zip(blocks.bounds[b, :count].tolist(), blocks.rows[b, :count].tolist(), strict=True)
            assert pairs == sorted(pairs), (axis, pairs)
        used += blocks.free[: blocks.unused[0]].tolist()
        assert sorted(used) == list(range(len(blocks.size))), used

    def _enlarge(self, axis: int) -> None:
        """Room for more blocks, in the pool and on an axis."""
        blocks = self.blocks
        if blocks.blocks[axis] == blocks.order.shape[1]:
            blocks = blocks._replace(order=np.concatenate([blocks.order, np.zeros_like(blocks.order)], axis=1))
        if not blocks.unused[0]:
            known = len(blocks.size)
            more = max(4, known // 2)
            free = np.zeros(known + more, dtype=np.int32)
            free[:more] = np.arange(known + more - 1, known - 1, -1)
            blocks = blocks._replace(
                bounds=np.concatenate([blocks.bounds, np.zeros((more, BLOCK))]),
                rows=np.concatenate([blocks.rows, np.zeros((more, BLOCK), dtype=np.int32)]),
                size=np.concatenate([blocks.size, np.zeros(more, dtype=np.int32)]),
                free=free,
                unused=np.array([more], dtype=np.int32),
            )
        self.blocks = blocks


@compiled
def _insert(blocks: Blocks, axis: Rows, bound: Floats, row: Rows, done: int) -> int:
    """How many are done when there is no room for another block."""
    for i in range(done, axis.size):
        own = axis[i]
        place = _block_of(blocks, own, bound[i], row[i])
        if blocks.blocks[own] == 0 or blocks.size[blocks.order[own, place]] == BLOCK:
            if blocks.unused[0] == 0 or blocks.blocks[own] == blocks.order.shape[1]:
                return i
            blocks.unused[0] -= 1
            new = blocks.free[blocks.unused[0]]
            blocks.size[new] = 0
            if blocks.blocks[own] == 0:
                blocks.order[own, 0] = new
            else:
                old = blocks.order[own, place]
                half = BLOCK // 2
                blocks.bounds[new, :half] = blocks.bounds[old, half:]
                blocks.rows[new, :half] = blocks.rows[old, half:]
                blocks.size[old] = blocks.size[new] = half
                for k in range(blocks.blocks[own], place + 1, -1):
                    blocks.order[own, k] = blocks.order[own, k - 1]
                blocks.order[own, place + 1] = new
                if _before(blocks.bounds[new, 0], blocks.rows[new, 0], bound[i], row[i]):
                    place += 1
            blocks.blocks[own] += 1
        block = blocks.order[own, place]
        at = _place_of(blocks, block, bound[i], row[i])
        for k in range(blocks.size[block], at, -1):
            blocks.bounds[block, k] = blocks.bounds[block, k - 1]
            blocks.rows[block, k] = blocks.rows[block, k - 1]
        blocks.bounds[block, at], blocks.rows[block, at] = bound[i], row[i]
        blocks.size[block] += 1
    return axis.size


@compiled
def _remove(blocks: Blocks, axis: Rows, bound: Floats, row: Rows) -> None:
    for i in range(axis.size):
        own = axis[i]
        place = _block_of(blocks, own, bound[i], row[i])
        block = blocks.order[own, place]
        for k in range(_place_of(blocks, block, bound[i], row[i]), blocks.size[block] - 1):
            blocks.bounds[block, k] = blocks.bounds[block, k + 1]
            blocks.rows[block, k] = blocks.rows[block, k + 1]
        blocks.size[block] -= 1
        if blocks.size[block] == 0:
            blocks.blocks[own] -= 1
            for k in range(place, blocks.blocks[own]):
                blocks.order[own, k] = blocks.order[own, k + 1]
            blocks.free[blocks.unused[0]] = block
            blocks.unused[0] += 1


@compiled
def _before(bound: float, row: int, other: float, other_row: int) -> bool:
    return bound < other or (bound == other and row < other_row)


@compiled
def _block_of(blocks: Blocks, axis: int, bound: float, row: int) -> int:
    """The last block of the axis that does not begin behind the pair; the first one where all do."""
    low, high = 0, blocks.blocks[axis]
    while high - low > 1:
        middle = (low + high) // 2
        block = blocks.order[axis, middle]
        if _before(bound, row, blocks.bounds[block, 0], blocks.rows[block, 0]):
            high = middle
        else:
            low = middle
    return low


@compiled
def _place_of(blocks: Blocks, block: int, bound: float, row: int) -> int:
    """The first place of the block whose pair is not before this one."""
    low, high = 0, blocks.size[block]
    while low < high:
        middle = (low + high) // 2
        if _before(blocks.bounds[block, middle], blocks.rows[block, middle], bound, row):
            low = middle + 1
        else:
            high = middle
    return low
