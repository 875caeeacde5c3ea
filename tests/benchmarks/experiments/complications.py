"""What the state of a real engine costs `fused`: each complication as a factor over the plain case, in one process."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, ColumnValues, RowTable
from kindcast.index.fused.engine import FusedEngine
from tests.benchmarks.harness.contestants import clause_columns
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import event_batches, filled, first_of, held_off, tree_of
from tests.benchmarks.workload_papers import CONCEPT, NUMBER, Drawing, draw

NAME = "complications"
TITLE = "fused: what complications cost"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("work", "times the plain case", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 3_000, "default": 100_000, "full": 1_000_000}
EVENTS = 8_000
REMOVED = {"10 % removed": 0.1, "45 % removed": 0.45}
"""At one half the engine makes a new segment."""
SEGMENTS = {"2 segments": 2, "4 segments": 4, "8 segments": 8}
NEWEST = "1,000 newest unmerged"
PARENTS = "several parents"
VALUES = "two values in an attribute"
SKEWED = "values by Zipf's law"
CASES = (*REMOVED, *SEGMENTS, NEWEST, PARENTS, VALUES, SKEWED)
SECOND_PARENT = 0.2
"""Share of the concepts that have one more parent, beside the one in the tree, on the level above."""

Match = Callable[[int], RowTable]
"""Matches the batch of this number."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar a case and work; concepts with several parents where there are concepts."""
    return [
        Task(case, work, {"work": work, "case": case, "n": SIZES[scale]})
        for case in CASES
        for work in ("W1", "W2", "W3")
        if case != PARENTS or work == "W3"
    ]


def measure(*, work: str, case: str, n: int) -> dict[str, Any]:
    """The same number of live subscriptions, plain (one segment, nothing removed) and complicated, asked the same
    batches of 1,000 events in turn; the engine alone, thread CPU time. Matches of an event are told where the case
    changes what matches."""
    drawing = draw(work, subscriptions=n + int(n * max(REMOVED.values()) * 2), events=EVENTS, seed=SEED)
    live = first_of(drawing, n)
    graph = tree_of(drawing)
    batches = event_batches(drawing)
    plain = filled(live, graph)
    number_of_batches = len(batches)
    engine, asked = _complicated(case, drawing, live, graph, batches)
    one: Match = lambda number: plain.match_columns(batches[number])  # noqa: E731 - beside its rival
    other: Match = lambda number: engine.match_columns(asked[number])  # noqa: E731
    seconds: tuple[list[float], list[float]] = ([], [])
    matches = [0, 0]
    for number in range(number_of_batches):
        for which, match in enumerate((one, other)):
            began = time.thread_time()
            found = match(number)
            took = time.thread_time() - began
            if number:
                seconds[which].append(took)
                matches[which] += found.rows.size
    events = sum(batch.events for batch in batches[1:])
    usual, more = (statistics.median(each) / batches[0].events * 1e6 for each in seconds)
    return {
        "y": round(more / usual, 2),
        "plain_us": round(usual, 3),
        "us": round(more, 3),
        "plain_matches": round(matches[0] / events, 2),
        "its_matches": round(matches[1] / events, 2),
    }


def _complicated(
    case: str, drawing: Drawing, live: Drawing, graph: ConceptGraph, batches: Sequence[ColumnBatch]
) -> tuple[FusedEngine, Sequence[ColumnBatch]]:
    """The engine in the state of `case`, and the events that it is asked."""
    n = len(live.asked)
    if case in SEGMENTS:
        return filled(live, graph, run=held_off, parts=SEGMENTS[case]), batches
    if case == VALUES:
        return filled(live, graph), [_with_two(batch) for batch in batches]
    if case == PARENTS:
        return filled(live, _tangled(drawing.height)), batches
    if case == SKEWED:
        skewed = _skewed(live)
        return filled(skewed, graph), event_batches(skewed)
    if case == NEWEST:
        engine = filled(first_of(live, n - 1_000), graph, run=held_off)
        for clause in drawn_clauses(first_of(live, n, n - 1_000), 1).clauses:
            engine.add(clause)
        return engine, batches
    stored = round(n / (1 - REMOVED[case]))
    engine = FusedEngine(graph, run=held_off)
    rows = engine.add_columns([], list(clause_columns(first_of(drawing, stored))), stored)
    for row in np.random.default_rng(SEED).choice(np.asarray(rows), stored - n, replace=False).tolist():
        engine.remove(row)
    return engine, batches


def _with_two(batch: ColumnBatch) -> ColumnBatch:
    """Each event with a value in the first column has that of the event after it, too."""
    first, *others = batch.columns
    numbers = np.column_stack([first.numbers, np.roll(first.numbers, -1)])
    places = np.column_stack([first.places, np.roll(first.places, -1)])
    if first.table is None:
        numbers[np.isnan(first.numbers), 1] = np.nan
    else:
        places[first.places < 0, 1] = -1
    offsets = np.arange(0, 2 * batch.events + 1, 2)
    both = ColumnValues(first.column, numbers.ravel(), first.table, places.ravel(), offsets)
    return ColumnBatch(batch.kinds, batch.presents, [both, *others])


def _tangled(height: int) -> ConceptGraph:
    """The binary tree, with a second parent for some concepts."""
    chance = np.random.default_rng(SEED)
    size = (1 << (height + 1)) - 1
    parents = [(node, (node - 1) // 2) for node in range(1, size)]
    for node in range(3, size):
        if chance.random() < SECOND_PARENT:
            level = (node + 1).bit_length() - 2  # of the parent
            parents.append((node, int(chance.integers((1 << level) - 1, (2 << level) - 1))))
    return ConceptGraph(size, parents)


def _skewed(drawing: Drawing) -> Drawing:
    """Values of events and ends of subscriptions crowd: value `k` with a chance that falls as 1/(k+1). Concepts do so
    in an order of their own at random."""
    low, high, values = drawing.low.copy(), drawing.high.copy(), drawing.values.copy()
    nodes, event_nodes = drawing.nodes, drawing.event_nodes
    for j, kind in enumerate(drawing.kinds):
        if kind == CONCEPT:
            continue
        most = int(max(values[:, j].max(), low[:, j].max())) + 1
        top = drawing.most if kind == NUMBER else most
        for column in (low, high, values):
            there = column[:, j] >= 0
            column[there, j] = np.exp(np.log(top + 1.0) * column[there, j] / top).astype(np.int32) - 1
    if CONCEPT in drawing.kinds:
        size = (1 << (drawing.height + 1)) - 1
        order = np.random.default_rng(SEED).permutation(size).astype(np.int32)
        law = (np.exp(np.log(size + 1.0) * np.arange(size) / size)).astype(np.int32) - 1
        nodes, event_nodes = order[law[nodes]], order[law[event_nodes]]
    return replace(drawing, low=low, high=high, values=values, nodes=nodes, event_nodes=event_nodes)
