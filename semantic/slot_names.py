"""The names of subscriptions by slot, as results go on knowing them.

A result holds slots and is read later, when a slot may belong to another subscription. So results look names up in a
`NamesView`, which is told the old name when a slot that had one is used again; it costs nothing until then.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["NamesView", "SlotNames"]


class NamesView(Mapping[int, str]):
    """Slot → name, as it was when this view was made."""

    __slots__ = ("__weakref__", "_now", "past")
    __hash__ = object.__hash__

    def __init__(self, now: list[str | None]) -> None:
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


class SlotNames:
    """Slot → the name of the subscription that has it, or had it last."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._views: weakref.WeakSet[NamesView] = weakref.WeakSet()

    def __getitem__(self, slot: int) -> str:
        name = self._names[slot]
        if name is None:
            raise KeyError(slot)
        return name

    def assign(self, slot: int, name: str) -> None:
        """Give `slot` to `name`. Costs a step for each view that is still in use, where the slot had a name."""
        if slot >= len(self._names):
            self._names += [None] * (slot + 1 - len(self._names))
        before = self._names[slot]
        if before is not None and before != name:
            for view in list(self._views):
                view.past.setdefault(slot, before)
        self._names[slot] = name

    def assign_many(self, slots: Sequence[int], names: Sequence[str]) -> None:
        """`assign` each; quick where they are new slots in one row."""
        start = len(self._names)
        if slots and slots[0] == start and slots[-1] == start + len(slots) - 1:
            self._names += names
            return
        for slot, name in zip(slots, names, strict=True):
            self.assign(slot, name)

    def restore(self, count: int, slots: Sequence[int], names: Sequence[str]) -> None:
        """So many slots, of which these have names. For new ones, which nobody looks at yet."""
        self._names += [None] * count
        for slot, name in zip(slots, names, strict=True):
            self._names[slot] = name

    def view(self) -> NamesView:
        """The names as they are now."""
        view = NamesView(self._names)
        self._views.add(view)
        return view
