"""The concept DAG as flat integer arrays of direct parents.

Concepts are numbered. `kindcast.semantic.vocabulary.hierarchy` has already merged equivalent names and removed cycles.
There are two relations: *parents* (subclass of, broader, is-a) are followed any number of times; *entries* (the classes
of an individual) are followed at most once, as the first step.

    concept c        parents[parent_offsets[c] : parent_offsets[c+1]]     entries[entry_offsets[c] : entry_offsets[c+1]]
"""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import ConceptId
from kindcast.index.jit import compiled

__all__ = ["ConceptGraph"]

IntArray = npt.NDArray[np.int32]

FEW = 1024
"""Maximum number of ancestors that the kernel keeps sorted during a walk. Real concepts have some dozens."""


class ConceptGraph:
    """An immutable DAG of concepts `0 … n-1`. Thread-safe.

    Arrays: `int64[n+1]` offsets and `int32[edges]` targets for parents and for entries. The first call of `ancestors`
    for a concept costs one walk over the nodes above it, some µs; later calls cost a look-up (for at most `CACHED`
    concepts).

    >>> graph = ConceptGraph(3, [(1, 0), (2, 1)])       # 2 beneath 1 beneath 0
    >>> graph.ancestors(ConceptId(2))
    (0, 1, 2)
    """

    CACHED = 1 << 16
    """Maximum number of cached tuples of ancestors: some 20 MB at ten ancestors each, enough for all values of a
    stream."""

    def __init__(
        self,
        size: int,
        parents: Iterable[tuple[int, int]] = (),
        entries: Iterable[tuple[int, int]] = (),
    ) -> None:
        """`parents` are pairs (narrower, broader) and `entries` are pairs (individual, class) of ids below `size`.
        Duplicates and self-loops are ignored. Raises ValueError for an id out of range."""
        self._size = size
        self._parent_offsets, self._parents = _rows(size, parents)
        self._entry_offsets, self._entries = _rows(size, entries)
        self._ancestors: dict[int, tuple[ConceptId, ...]] = {}

    def __len__(self) -> int:
        return self._size

    def edges(self) -> tuple[npt.NDArray[np.int64], IntArray, npt.NDArray[np.int64], IntArray]:
        """Returns the arrays: offsets and targets of the parents, offsets and targets of the entries."""
        return self._parent_offsets, self._parents, self._entry_offsets, self._entries

    def parents(self, concept: ConceptId) -> list[ConceptId]:
        """Returns the direct parents of `concept`, ascending."""
        offsets = self._parent_offsets
        return cast(list[ConceptId], self._parents[offsets[concept] : offsets[concept + 1]].tolist())

    def entries(self, concept: ConceptId) -> list[ConceptId]:
        """Returns the classes of the individual `concept`, ascending."""
        offsets = self._entry_offsets
        return cast(list[ConceptId], self._entries[offsets[concept] : offsets[concept + 1]].tolist())

    def extended(self, more: int, parents: Iterable[tuple[int, int]]) -> "ConceptGraph":
        """Returns a new graph with `more` concepts after the concepts of this graph, and additional `parents`."""
        size = self._size + more
        graph = ConceptGraph(size, parents)
        graph._parent_offsets, graph._parents = _joined(
            (self._parent_offsets, self._parents), (graph._parent_offsets, graph._parents)
        )
        graph._entry_offsets = np.concatenate([self._entry_offsets, np.full(more, self._entry_offsets[-1])])
        graph._entry_offsets.setflags(write=False)
        graph._entries = self._entries
        return graph

    def with_instances(self, concepts: int) -> "ConceptGraph":
        """Returns a new graph with an additional node for each of the first `concepts` nodes: an instance of that
        class. The ancestors of an instance are its class and the ancestors of the class by `parents`, but not the
        classes of the class, because `entries` are followed only once. Linear; 20 bytes per instance.

        >>> graph = ConceptGraph(2, [(1, 0)]).with_instances(2)
        >>> graph.ancestors(ConceptId(3))
        (0, 1, 3)
        """
        graph = ConceptGraph(0)
        size = self._size + concepts
        graph._size = size
        steps = np.arange(1, concepts + 1, dtype=np.int64)
        graph._parent_offsets = np.concatenate([self._parent_offsets, self._parent_offsets[-1] + steps])
        graph._parents = np.concatenate([self._parents, np.arange(concepts, dtype=np.int32)])
        graph._entry_offsets = np.concatenate([self._entry_offsets, np.full(concepts, self._entry_offsets[-1])])
        graph._entries = self._entries
        for array in (graph._parent_offsets, graph._parents, graph._entry_offsets):
            array.setflags(write=False)
        return graph

    def ancestors(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns `concept` and all its ancestors, ascending, without duplicates."""
        found = self._ancestors.get(concept)
        if found is None:
            found = self._walk(concept)
            if len(self._ancestors) >= self.CACHED:
                self._ancestors.clear()
            self._ancestors[concept] = found
        return found

    def _walk(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        found = walk_up(concept, self._entry_offsets, self._entries, self._parent_offsets, self._parents)
        return cast(tuple[ConceptId, ...], tuple(found.tolist())) if found.size else self._walk_far(concept)

    def _walk_far(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns the ancestors if there are more than `FEW`. Linear, plus sorting."""
        seen = {concept, *self.entries(concept)}
        frontier = list(seen)
        while frontier:
            for parent in self.parents(frontier.pop()):
                if parent not in seen:
                    seen.add(parent)
                    frontier.append(parent)
        return tuple(sorted(seen))


@compiled
def walk_up(
    concept: int,
    entry_offsets: npt.NDArray[np.int64],
    entries: IntArray,
    parent_offsets: npt.NDArray[np.int64],
    parents: IntArray,
) -> npt.NDArray[np.int64]:
    """Returns `concept`, its classes, and all ancestors of these, ascending; returns nothing if they are more than
    `FEW`. Some 20 ns per step, and a shift of the greater ids for each new ancestor."""
    found = np.empty(FEW, dtype=np.int64)
    waiting = np.empty(FEW, dtype=np.int64)
    waiting[0] = found[0] = concept
    count = left = 1
    start, end = entry_offsets[concept], entry_offsets[concept + 1]
    nodes = entries
    while True:
        for edge in range(start, end):
            high = np.int64(nodes[edge])
            at = np.searchsorted(found[:count], high)
            if at == count or found[at] != high:
                if count == FEW:
                    return found[:0].copy()
                for place in range(count, at, -1):
                    found[place] = found[place - 1]
                found[at] = waiting[left] = high
                count += 1
                left += 1
        if left == 0:
            return found[:count].copy()
        left -= 1
        start, end = parent_offsets[waiting[left]], parent_offsets[waiting[left] + 1]
        nodes = parents


def _rows(size: int, pairs: Iterable[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], IntArray]:
    """Returns the compressed sparse rows of `pairs`: sorted, without duplicates and self-loops."""
    edges: Sequence[tuple[int, int]] = sorted({(low, high) for low, high in pairs if low != high})
    array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    if array.size and (array.min() < 0 or array.max() >= size):
        raise ValueError(f"a concept id outside 0 … {size - 1}")
    offsets = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(array[:, 0], minlength=size), out=offsets[1:])
    targets = array[:, 1].astype(np.int32)
    offsets.setflags(write=False)
    targets.setflags(write=False)
    return offsets, targets


def _joined(
    these: tuple[npt.NDArray[np.int64], IntArray], others: tuple[npt.NDArray[np.int64], IntArray]
) -> tuple[npt.NDArray[np.int64], IntArray]:
    """Returns the union of two sets of rows, sorted, without duplicates. The second has at least as many rows as the
    first."""
    size = len(others[0]) - 1
    keys = [np.repeat(np.arange(len(each) - 1), np.diff(each)) * size + targets for each, targets in (these, others)]
    rows, targets = np.divmod(np.unique(np.concatenate(keys)), max(size, 1))
    offsets = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=size), out=offsets[1:])
    narrow = targets.astype(np.int32)
    offsets.setflags(write=False)
    narrow.setflags(write=False)
    return offsets, narrow
