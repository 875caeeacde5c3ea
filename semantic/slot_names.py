"""The names of subscriptions by slot, as results go on knowing them.

A result holds slots and is read later, when a slot may belong to another subscription. So results look names up in a
`NamesView`, which is told the old name when a slot that had one is used again; it costs nothing until then.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from semantic.model import Match

__all__ = ["NamesView", "SlotNames"]

KEPT = 1 << 20
"""The first so many slots have their `Match` ready: events may match hundreds, and looking one up costs a tenth of
making it. 48 bytes each, 50 MB at most."""


class NamesView(Mapping[int, str]):
    """Slot → name, as it was when this view was made."""

    __slots__ = ("__weakref__", "_now", "_owner", "past")
    __hash__ = object.__hash__

    def __init__(self, owner: "SlotNames", now: list[str | None]) -> None:
        self._owner = owner
        self._now = now
        self.past: dict[int, str] = {}

    def __getitem__(self, slot: int) -> str:
        name = self.past.get(slot) or (self._now[slot] if 0 <= slot < len(self._now) else None)
        if name is None:
            raise KeyError(slot)
        return name

    def __iter__(self) -> Iterator[int]:
        return (slot for slot, name in enumerate(self._now) if name is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def matches(self, slots: npt.NDArray[np.int32]) -> list[Match]:
        """`SlotNames.matches`, with the names as they were."""
        if not self.past:
            return self._owner.matches(slots)
        return [Match(self[slot]) for slot in slots.tolist()]


class SlotNames:
    """Slot → the name of the subscription that has it, or had it last."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._matches = np.empty(0, dtype=object)
        self._views: weakref.WeakSet[NamesView] = weakref.WeakSet()

    def __getitem__(self, slot: int) -> str:
        name = self._names[slot]
        if name is None:
            raise KeyError(slot)
        return name

    def matches(self, slots: npt.NDArray[np.int32]) -> list[Match]:
        """A match without bindings for each of `slots`, which are taken and ascend. Some 15 ns each among the first
        `KEPT` slots, 100 ns elsewhere."""
        kept = self._matches
        if not slots.size or slots[-1] < kept.size:
            return cast(list[Match], kept.take(slots).tolist())
        split = int(np.searchsorted(slots, kept.size))
        names = map(cast(list[str], self._names).__getitem__, slots[split:].tolist())
        return [*kept.take(slots[:split]).tolist(), *map(Match, names)]

    def assign(self, slot: int, name: str) -> None:
        """Give `slot` to `name`. Costs a step for each view that is still in use, where the slot had a name."""
        if slot >= len(self._names):
            self._names += [None] * (slot + 1 - len(self._names))
        before = self._names[slot]
        if before is not None and before != name:
            for view in list(self._views):
                view.past.setdefault(slot, before)
        self._names[slot] = name
        if slot < KEPT:
            self._keep(slot + 1)
            self._matches[slot] = Match(name)

    def assign_many(self, slots: Sequence[int], names: Sequence[str]) -> None:
        """`assign` each; quick where they are new slots in one row."""
        start = len(self._names)
        if slots and slots[0] == start and slots[-1] == start + len(slots) - 1:
            self._names += names
            self._keep(len(self._names))
            for slot in slots[: max(KEPT - start, 0)]:
                self._matches[slot] = Match(names[slot - start])
            return
        for slot, name in zip(slots, names, strict=True):
            self.assign(slot, name)

    def restore(self, count: int, slots: Sequence[int], names: Sequence[str]) -> None:
        """So many slots, of which these have names. For new ones, which nobody looks at yet."""
        self._names += [None] * count
        self._keep(count)
        for slot, name in zip(slots, names, strict=True):
            self._names[slot] = name
            if slot < KEPT:
                self._matches[slot] = Match(name)

    def view(self) -> NamesView:
        """The names as they are now."""
        view = NamesView(self, self._names)
        self._views.add(view)
        return view

    def _keep(self, count: int) -> None:
        """Room for the matches of the first `count` slots, within the bound; it doubles."""
        count = min(count, KEPT)
        if count > self._matches.size:
            wider = np.empty(min(max(count, 2 * self._matches.size), KEPT), dtype=object)
            wider[: self._matches.size] = self._matches
            self._matches = wider
