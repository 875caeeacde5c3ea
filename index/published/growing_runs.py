"""Runs of rows that grow and shrink, side by side in one array.

    run ─▶ start, length, room        entries[start : start + length]

An entry is a row, with something beside it in the upper half where entries have 64 bits. A run that is full moves to a
place with twice the room; when the array is full, all runs are laid out again, each with half as much room again as it
needs. Walking a run reads memory in order; the rows of a run are in no order.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled

__all__ = ["LOWER", "GrowingRuns"]

Entries = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]

LOWER = 0x7FFFFFFF
"""The part of an entry that is the row: all of it where entries have 32 bits."""
FIRST_ROOM = 4
"""Rows that a run has room for once it has one."""


class GrowingRuns:
    """Runs `0 … len(start)-1`. Invariant: a row stands at most once in a run; rooms do not overlap.

    `start` and `length` are `int64[runs]`, `entries` are `int32` or `int64`."""

    def __init__(self, dtype: type[np.int32] | type[np.int64]) -> None:
        self.start, self.length, self._room = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.entries: Entries = cast(Entries, np.zeros(0, dtype=dtype))
        self._used = 0

    def grow(self, runs: int) -> None:
        """Let there be at least `runs` runs; the new ones are empty."""
        if runs > self.start.size:
            more = np.zeros(max(runs, self.start.size * 3 // 2) - self.start.size, dtype=np.int64)
            self.start, self.length, self._room = (
                np.concatenate([each, more]) for each in (self.start, self.length, self._room)
            )

    def fill(self, runs: int, places: Numbers, entries: Entries) -> None:
        """Forget everything; `entries[i]` belongs to run `places[i]` of `runs`. Linear."""
        self.length = np.bincount(places, minlength=runs).astype(np.int64)
        self._room = self.length.copy()
        self.start = np.cumsum(self.length) - self.length
        self.entries = np.empty_like(entries)
        self._used = entries.size
        _scatter(self.start.copy(), places, entries, self.entries)

    def append(self, places: Numbers, entries: Entries) -> None:
        """Put `entries[i]` into run `places[i]`. Amortised constant for each."""
        done = 0
        while done < entries.size:
            done, self._used = _append(
                self.start, self.length, self._room, self.entries, self._used, places, entries, done
            )
            if done < entries.size:
                self._lay_out(entries.size - done)

    def remove(self, run: int, row: int) -> None:
        """Take `row` out of `run`: one look through the run."""
        _remove(self.start, self.length, self.entries, run, row)

    def check_invariants(self) -> None:
        """Raise AssertionError if rooms overlap or a run is longer than its room."""
        order = np.lexsort((self._room, self.start))
        ends = self.start + self._room
        assert np.all(self.length <= self._room), (self.length, self._room)
        assert np.all(ends[order][:-1] <= self.start[order][1:]), (self.start, self._room)
        assert int(ends.max(initial=0)) <= self._used <= self.entries.size

    def _lay_out(self, coming: int) -> None:
        room = self.length + (self.length >> 1)
        start = np.cumsum(room) - room
        size = int(room.sum()) * 3 // 2 + (FIRST_ROOM + 2) * coming + 1024
        entries = np.empty(size, dtype=self.entries.dtype)
        _move(self.start, self.length, self.entries, start, entries)
        self.start, self._room, self.entries, self._used = start, room, entries, int(room.sum())


@compiled
def _scatter(at: Numbers, places: Numbers, entries: Entries, out: Entries) -> None:
    for i in range(places.size):
        out[at[places[i]]] = entries[i]
        at[places[i]] += 1


@compiled
def _move(start: Numbers, length: Numbers, entries: Entries, new_start: Numbers, out: Entries) -> None:
    for run in range(start.size):
        for i in range(length[run]):
            out[new_start[run] + i] = entries[start[run] + i]


@compiled
def _append(
    start: Numbers,
    length: Numbers,
    room: Numbers,
    arena: Entries,
    used: int,
    places: Numbers,
    entries: Entries,
    done: int,
) -> tuple[int, int]:
    """How many are done when the array is full, and how much of it is used."""
    for i in range(done, entries.size):
        run = places[i]
        if length[run] == room[run]:
            wanted = max(FIRST_ROOM, 2 * room[run])
            if used + wanted > arena.size:
                return i, used
            for k in range(length[run]):
                arena[used + k] = arena[start[run] + k]
            start[run] = used
            room[run] = wanted
            used += wanted
        arena[start[run] + length[run]] = entries[i]
        length[run] += 1
    return entries.size, used


@compiled
def _remove(start: Numbers, length: Numbers, entries: Entries, run: int, row: int) -> None:
    first = start[run]
    last = first + length[run] - 1
    for at in range(first, last + 1):
        if entries[at] & LOWER == row:
            entries[at] = entries[last]
            length[run] -= 1
            return
