"""Events as the axes of DEXIN see them: numbers, and the runs of rows behind their names.

LoweredEvent ─┐                      number of an axis ─▶ its column's values
ColumnBatch  ─┴─▶ Asked, by axis     names of an axis  ─▶ runs of the keys, of the concepts above them, of presence
"""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from index.clause import ColumnId, ConceptId, Key, LoweredEvent
from index.column_batch import ColumnBatch
from index.compiling import compiled
from index.concept_graph import ConceptGraph
from index.published.axes import Axes
from index.published.constraints import NameAxis
from index.published.stages import Asked

__all__ = ["asked_of_columns", "asked_of_events"]

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


def asked_of_events(axes: Axes, graph: ConceptGraph, events: Sequence[LoweredEvent]) -> Asked:
    """Some hundred ns for each axis of each event."""
    numbers: list[float] = []
    number_ends: list[int] = [0]
    names: list[int] = []
    name_ends: list[int] = [0]
    for event in events:
        values = event.values
        for each in axes.numbers:
            numbers.extend(cast(tuple[float, ...], values.get(ColumnId(each.column), ())))
            number_ends.append(len(numbers))
        for p, axis in enumerate(axes.names):
            if axis.kind == "present":
                names.extend(_runs(axes, p, (True,) if axis.place in event.present else ()))
            else:
                names.extend(_runs(axes, p, _keys(graph, axis, values.get(ColumnId(axis.place), ()))))
            name_ends.append(len(names))
    return Asked(
        np.array(number_ends, dtype=np.int64),
        np.array(numbers, dtype=np.float64),
        np.array(name_ends, dtype=np.int64),
        np.array(names, dtype=np.int32),
    )


def asked_of_columns(axes: Axes, graph: ConceptGraph, batch: ColumnBatch) -> Asked:
    """The same for a batch without events of several values. Some ns for each axis of each event, and a look-up for
    each distinct key."""
    events = batch.events
    by_column = {int(each.column): each for each in batch.columns}
    number_count = np.zeros((events, len(axes.numbers)), dtype=np.int64)
    numbers = np.zeros((events, len(axes.numbers)))
    for i, axis in enumerate(axes.numbers):
        if axis.column in by_column:
            numbers[:, i] = by_column[axis.column].floats()
            number_count[:, i] = ~np.isnan(numbers[:, i])
    firsts, runs, places = [], [], np.full((events, len(axes.names)), -1, dtype=np.int64)
    for p, each in enumerate(axes.names):
        listed: list[list[int]] = [[]]
        if each.kind == "present":
            listed = [_runs(axes, p, (True,) if each.place in present else ()) for present in batch.presents]
            places[:, p] = batch.kinds
        elif each.place in by_column:
            column = by_column[each.place]
            keys, places[:, p] = column.distinct()
            listed = [_runs(axes, p, _keys(graph, each, () if key is None else (key,))) for key in keys]
        firsts.append(np.concatenate([[0], np.cumsum([len(found) for found in listed])]).astype(np.int64))
        runs.append(np.array([run for found in listed for run in found], dtype=np.int32))
    name_count = np.zeros((events, len(axes.names)), dtype=np.int64)
    for p, first in enumerate(firsts):
        name_count[:, p] = np.where(places[:, p] >= 0, np.diff(first)[places[:, p]], 0)
    name_first = np.concatenate([[0], np.cumsum(name_count.ravel())]).astype(np.int64)
    names = np.empty(int(name_first[-1]), dtype=np.int32)
    for p, first in enumerate(firsts):
        _fill(places[:, p], first, runs[p], name_first, p, len(axes.names), names)
    number_first = np.concatenate([[0], np.cumsum(number_count.ravel())]).astype(np.int64)
    return Asked(number_first, numbers.ravel()[number_count.ravel() > 0], name_first, names)


def _keys(graph: ConceptGraph, axis: NameAxis, values: Iterable[Key]) -> Iterable[Key]:
    if axis.kind == "key":
        return values
    above = {upper for value in values for upper in graph.ancestors(cast(ConceptId, value))}
    return cast(Iterable[Key], above)


def _runs(axes: Axes, p: int, keys: Iterable[Key]) -> list[int]:
    found = (axes.operands.get((p, key)) for key in keys)
    return [run for run in found if run is not None]


@compiled
def _fill(places: Numbers, first: Numbers, runs: Rows, name_first: Numbers, p: int, axes: int, out: Rows) -> None:
    for event in range(places.size):
        place = places[event]
        if place >= 0:
            at = name_first[event * axes + p]
            for k in range(first[place], first[place + 1]):
                out[at + k - first[place]] = runs[k]
