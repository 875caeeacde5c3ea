"""Clauses as conjunctions of elementary predicates, which the papers match, and the readings of events on their axes.

| elementary predicate | holds when |
|---|---|
| `Equal(column, key)` | some value is the key |
| `AtLeast(column, bound)`, `AtMost(column, bound)` | some value is not below, not above the bound |
| `Within(column, concept)` | some value is the concept or beneath it |
| `Present(attribute)` | the attribute has a value |

The papers have no negation, alternatives, `below` and forbidden attributes. Such a clause is replaced by the predicates
that it implies and is *inexact*: its candidates are verified. So are the candidates of an event with several values in
a column, where two different values may satisfy a lower and an upper bound.

An event is read for each axis: as codes of operands, or as the value that is compared with bounds.

LoweredEvent ─┐   an axis of keys      ─▶ the codes of its column's values
ColumnBatch  ─┴─▶ an axis of concepts  ─▶ the codes of all concepts above them
                  an axis of bounds    ─▶ the largest value (`AtLeast`), the smallest (`AtMost`)
                  an axis of presence  ─▶ its one code, where the attribute is there
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from kindcast.index.columns import ColumnBatch
from kindcast.index.concept_graph import ConceptGraph

__all__ = [
    "AtLeast",
    "AtMost",
    "Axis",
    "AxisReadings",
    "Elementary",
    "Equal",
    "OperandCodes",
    "Parts",
    "Present",
    "Reader",
    "Within",
    "parts_of",
]


@dataclass(frozen=True, slots=True)
class Equal:
    column: ColumnId
    key: Key


@dataclass(frozen=True, slots=True)
class AtLeast:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class AtMost:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class Within:
    column: ColumnId
    concept: ConceptId


@dataclass(frozen=True, slots=True)
class Present:
    attribute: AttributeId


Elementary = Equal | AtLeast | AtMost | Within | Present


@dataclass(frozen=True, slots=True)
class Parts:
    """Distinct elementary predicates of a clause, all of which every match satisfies; `exact` if, for an event with one
    value a column, they are all that is asked. `together`: the places of lower bounds that are of one test with the
    upper bound behind them; for several values they are all that is asked where one value satisfies both."""

    elementary: tuple[Elementary, ...]
    exact: bool
    together: tuple[int, ...] = ()


def parts_of(clause: Clause) -> Parts | None:
    """`clause` taken apart, or None if no event can match it. Linear."""
    if not clause.required.isdisjoint(clause.forbidden):
        return None
    found: dict[Elementary, None] = {}
    together: list[int] = []
    exact = not clause.forbidden
    bare = set(clause.required)
    for predicate in clause.predicates:
        elementary = _elementary(predicate)
        if elementary == []:
            return None
        if elementary is None:
            exact = False
            bare.add(predicate.attribute)
        else:
            bare.discard(predicate.attribute)
            if len(elementary) == 2:
                exact &= found.keys().isdisjoint(elementary)  # else they do not stand together
                together.append(len(found))
            found.update(dict.fromkeys(elementary))
    found.update((Present(attribute), None) for attribute in sorted(bare))
    return Parts(tuple(found), exact, tuple(together) if exact else ())


def _elementary(predicate: Predicate) -> list[Elementary] | None:
    """None for what no conjunction of elementary predicates says; empty for what never holds."""
    if predicate.negated:
        return None
    tests = [(column, test) for column, test in predicate.tests if _can_hold(test)]
    if not tests:
        return []
    if len(tests) > 1:
        return None
    [(column, test)] = tests
    match test:
        case IntervalTest(low, high) if low == high:
            return [Equal(column, low)]
        case IntervalTest(low, high):
            bounds: list[Elementary] = [AtMost(column, high)] if high < math.inf else []
            return [AtLeast(column, low), *bounds] if low > -math.inf or not bounds else bounds
        case KeyTest(keys) if len(keys) == 1:
            return [Equal(column, key) for key in keys]
        case ConceptTest(within, below, exactly) if not below and len(within) + len(exactly) == 1:
            return [*(Within(column, each) for each in within), *(Equal(column, cast(Key, each)) for each in exactly)]
        case _:
            return None


def _can_hold(test: Test) -> bool:
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    return bool(test.keys) if isinstance(test, KeyTest) else bool(test.within or test.below or test.exactly)


Axis = tuple[type, int, int]
"""How it is asked (the kind of predicate), of which column or attribute, and the how-manieth time in the clause."""
AxisReadings = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float64]]
"""`firsts`, `codes` and `values` as in `matching_tree.search.Said`."""

OperandCodes = Sequence[Mapping[Hashable, int]]
"""By axis: operand → code."""


class Reader:
    """Reads events for some axes; those that are added to its lists later count from then on."""

    def __init__(self, graph: ConceptGraph, axes: Sequence[Axis], codes: OperandCodes) -> None:
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
