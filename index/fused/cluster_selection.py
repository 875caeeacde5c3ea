"""Cluster selection: the clusters whose required attributes an event has, and whose forbidden ones it lacks.

    present attributes ─▶ clusters hung under these, and those that require nothing ─▶ all required? none forbidden?

Each cluster is filed under its attribute that the fewest clusters require, so that an event visits few of thousands of
clusters in vain.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kindcast.index.clause import AttributeId
from kindcast.index.compiling import compiled
from kindcast.index.fused.arrays import Ints
from kindcast.index.fused.layout import ClusterKey

__all__ = ["Visiting"]

REMEMBERED = 4096
"""Attribute sets whose clusters are remembered; a stream has few, and each costs some hundred bytes."""


class Visiting:
    """The clusters of one segment. Never changes, but for what it remembers."""

    def __init__(self, clusters: Sequence[ClusterKey], breathe: Callable[[], None]) -> None:
        """Some µs per cluster."""
        times: dict[AttributeId, int] = {}
        for required, _, _, _ in clusters:
            breathe()
            for attribute in required:
                times[attribute] = times.get(attribute, 0) + 1
        under: dict[int, list[int]] = {}
        for number, (required, _, _, _) in enumerate(clusters):
            breathe()
            rarest = min(required, key=lambda attribute: (times[attribute], attribute), default=None)
            under.setdefault(0 if rarest is None else rarest + 1, []).append(number)
        self._under_from, self._under = _rows(under.get(place, ()) for place in range(max(under, default=0) + 1))
        self._required_from, self._required = _rows(required for required, _, _, _ in clusters)
        self._forbidden_from, self._forbidden = _rows(forbidden for _, forbidden, _, _ in clusters)
        self._most = 1 + int(max(self._required.max(initial=0), self._forbidden.max(initial=0)))
        self._known: dict[frozenset[AttributeId], Ints] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays and of what is remembered."""
        lists = (self._under_from, self._under, self._required_from, self._required, self._forbidden_from)
        known = sum(each.nbytes + 300 for each in list(self._known.values()))
        return sum(each.nbytes for each in lists) + self._forbidden.nbytes + known

    def clusters(self, present: frozenset[AttributeId]) -> Ints:
        """The clusters that an event with just these attributes may match, ascending. Some ns for each that hangs under
        one of them."""
        found = self._known.get(present)
        if found is None:
            found = _fitting(
                np.array(list(present), dtype=np.int64),
                self._most,
                self._under_from,
                self._under,
                self._required_from,
                self._required,
                self._forbidden_from,
                self._forbidden,
            )
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[present] = found
        return found

    def forget(self) -> None:
        """Give up what is remembered."""
        self._known.clear()


def _rows(parts: Iterable[Iterable[int]]) -> tuple[Ints, Ints]:
    lists = [list(part) for part in parts]
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in lists], out=starts[1:])
    return starts, np.array([each for part in lists for each in part], dtype=np.int64)


@compiled
def _fitting(
    present: Ints,
    most: int,
    under_from: Ints,
    under: Ints,
    required_from: Ints,
    required: Ints,
    forbidden_from: Ints,
    forbidden: Ints,
) -> Ints:
    """`under[under_from[a + 1] : …]` are the clusters under attribute a, the first of all those that require none."""
    has = np.zeros(most, dtype=np.uint8)
    room = under_from[1]
    for attribute in present:
        if attribute < most:
            has[attribute] = 1
        if attribute + 2 < under_from.size:
            room += under_from[attribute + 2] - under_from[attribute + 1]
    found = np.empty(room, dtype=np.int64)
    count = 0
    for i in range(-1, present.size):
        place = 0 if i < 0 else present[i] + 1
        if place + 1 >= under_from.size:
            continue
        for at in range(under_from[place], under_from[place + 1]):
            cluster = under[at]
            good = True
            for j in range(required_from[cluster], required_from[cluster + 1]):
                good &= has[required[j]] != 0
            for j in range(forbidden_from[cluster], forbidden_from[cluster + 1]):
                good &= has[forbidden[j]] == 0
            found[count] = cluster
            count += good
    return np.sort(found[:count])
