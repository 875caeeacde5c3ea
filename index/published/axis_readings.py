"""What events say to the axes of matching trees: codes of operands, or the value that bounds are held to.

LoweredEvent ─┐   an axis of keys      ─▶ the codes of its column's values
ColumnBatch  ─┴─▶ an axis of concepts  ─▶ the codes of all concepts above them
                  an axis of bounds    ─▶ the largest value (`AtLeast`), the smallest (`AtMost`)
                  an axis of presence  ─▶ its one code, where the attribute is there
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, ColumnId, ConceptId, Key, LoweredEvent
from kindcast.index.columns import ColumnBatch
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.elementary import AtLeast, AtMost, Equal, Present, Within
from kindcast.index.published.matching_tree.search import Codes

__all__ = ["Axis", "AxisReadings", "Reader"]

Axis = tuple[type, int, int]
"""How it is asked (the kind of predicate), of which column or attribute, and the how-manieth time in the clause."""
AxisReadings = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float64]]
"""`firsts`, `codes` and `values` as in `matching_tree.search.Said`."""


class Reader:
    """Reads events for some axes; those that are added to its lists later count from then on."""

    def __init__(self, graph: ConceptGraph, axes: Sequence[Axis], codes: Codes) -> None:
        self._graph = graph
        self._axes = axes
        self._codes = codes

    def of_events(self, events: Sequence[LoweredEvent]) -> AxisReadings:
        """Some hundred ns for each axis of each event."""
        values = np.full((len(events), len(self._axes)), np.nan)
        ends: list[int] = [0]
        codes: list[int] = []
        for number, event in enumerate(events):
            for axis, (kind, place, _) in enumerate(self._axes):
                if kind is Present:
                    codes += self._known(axis, (True,) if AttributeId(place) in event.present else ())
                else:
                    found = event.values.get(ColumnId(place), ())
                    if kind is AtLeast or kind is AtMost:
                        if found:
                            values[number, axis] = max(found) if kind is AtLeast else min(found)
                    else:
                        codes += self._known(axis, self._operands(kind, found))
                ends.append(len(codes))
        return np.array(ends, dtype=np.int64), np.array(codes, dtype=np.int32), values

    def of_columns(self, batch: ColumnBatch) -> AxisReadings:
        """The same for a batch without events of several values. Some ns for each axis of each event, and a look-up for
        each distinct key."""
        events, axes = batch.events, len(self._axes)
        by_column = {int(each.column): each for each in batch.columns}
        values = np.full((events, axes), np.nan)
        counts = np.zeros((events, axes), dtype=np.int64)
        read: list[tuple[npt.NDArray[np.int64], list[int], npt.NDArray[np.int64]] | None] = []
        for axis, (kind, place, _) in enumerate(self._axes):
            listed: list[list[int]] = []
            places = np.full(events, -1, dtype=np.int64)
            if kind is Present:
                listed = [self._known(axis, (True,) if AttributeId(place) in each else ()) for each in batch.presents]
                places = batch.kinds.astype(np.int64)
            elif place in by_column:
                column = by_column[place]
                if kind is AtLeast or kind is AtMost:
                    values[:, axis] = column.floats()
                else:
                    keys, found = column.distinct()
                    places = found.astype(np.int64)
                    listed = [self._known(axis, self._operands(kind, () if key is None else (key,))) for key in keys]
            lengths = np.array([*(len(each) for each in listed), 0], dtype=np.int64)
            counts[:, axis] = lengths[places]
            read.append((lengths, [code for each in listed for code in each], places) if listed else None)
        firsts = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int64)
        codes = np.zeros(int(firsts[-1]), dtype=np.int32)
        for axis, each in enumerate(read):
            if each is not None:
                lengths, known, places = each
                _spread(codes, firsts[axis:-1:axes], counts[:, axis], lengths, np.array(known, dtype=np.int32), places)
        return firsts, codes, values

    def _operands(self, kind: type, values: Iterable[Key]) -> Iterable[Hashable]:
        if kind is Equal:
            return values
        assert kind is Within, kind
        return {upper for value in values for upper in self._graph.ancestors(cast(ConceptId, value))}

    def _known(self, axis: int, operands: Iterable[Hashable]) -> list[int]:
        codes = self._codes[axis]
        return [codes[operand] for operand in operands if operand in codes]


def _spread(
    codes: npt.NDArray[np.int32],
    firsts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    known: npt.NDArray[np.int32],
    places: npt.NDArray[np.int64],
) -> None:
    """Copy the codes of every event's key to where they belong."""
    starts = np.concatenate([[0], np.cumsum(lengths)])[places]
    total = int(counts.sum())
    step = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    codes[np.repeat(firsts, counts) + step] = known[np.repeat(starts, counts) + step]
