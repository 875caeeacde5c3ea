"""The engines by name. All are exact engines (`kindcast.index.engine.Engine`); they differ in speed and memory only.

`warm_up` compiles every kernel of the default engine, or loads it from the cache, before the first event.
"""

from pathlib import Path

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.ctps.engine import CtpsEngine
from kindcast.index.engine import Engine, EngineFactory
from kindcast.index.errors import UnknownEngine
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine
from kindcast.index.published.dexin.engine import DexinEngine
from kindcast.index.published.le_subscribe import CountingEngine, EqualityEngine, QuarantineEngine
from kindcast.index.published.matching_tree import MatchingTreeEngine

__all__ = ["ENGINES", "new_engine", "open_engine", "warm_up"]


A, B, C = AttributeId(0), AttributeId(1), AttributeId(2)
NUMBER, KEY, CONCEPT = ColumnId(0), ColumnId(1), ColumnId(2)


def warm_up() -> None:
    """Match events with one value and with several, of every kind, in a memtable and in a segment. Half a minute after
    installation, some tenths of a second later."""
    graph = ConceptGraph(2, [(ConceptId(1), ConceptId(0))])
    graph.ancestors(ConceptId(1))
    tests = (
        (A, NUMBER, IntervalTest(0.0, 5.0)),
        (B, KEY, KeyTest(frozenset({"x"}))),
        (C, CONCEPT, ConceptTest(within=frozenset({ConceptId(0)}))),
    )
    predicates = [Predicate(attribute, ((column, test),)) for attribute, column, test in tests]
    negated = Predicate(A, ((NUMBER, IntervalTest(7.0, 8.0)),), negated=True)
    clauses = [
        *(Clause((each,), frozenset({each.attribute})) for each in (*predicates, negated)),
        Clause(tuple(predicates), frozenset({A, B, C})),
        Clause((predicates[0], negated), frozenset({A})),
    ]
    single = LoweredEvent(frozenset({A, B, C}), {NUMBER: (1.0,), KEY: ("x",), CONCEPT: (ConceptId(1),)})
    several = LoweredEvent(frozenset({A, B, C}), {NUMBER: (1.0, 9.0), KEY: ("x", "y"), CONCEPT: (ConceptId(1),)})
    for memtable_rows in (len(clauses), 0):
        engine = FusedEngine(graph, memtable_rows=memtable_rows)
        engine.add_many(clauses)
        engine.add(clauses[0])
        engine.match(single)
        engine.match_batch([single, several])
    alone = FusedEngine(graph, memtable_rows=0)
    alone.add_many([clauses[4]])
    alone.match(single)


ENGINES: dict[str, EngineFactory] = {
    "counting": CountingEngine,
    "ctps": CtpsEngine,
    "dexin": DexinEngine,
    "equality": EqualityEngine,
    "fused": FusedEngine,
    "matching_tree": MatchingTreeEngine,
    "naive": NaiveEngine,
    "quarantine": QuarantineEngine,
}
"""Name → what builds an empty engine over a concept graph."""


def new_engine(name: str, graph: ConceptGraph, *, budget: int | None = None) -> Engine:
    """An empty engine. `budget`: how many bytes it may have; of `fused` alone. Raises `UnknownEngine` with the known
    names, `ValueError` for a budget of another engine."""
    factory = ENGINES.get(name)
    if factory is None:
        raise UnknownEngine(name, sorted(ENGINES))
    if budget is None:
        return factory(graph)
    if name != "fused":
        raise ValueError(f"the engine {name!r} keeps no byte budget: only 'fused' does")
    return FusedEngine(graph, budget=budget)


def open_engine(name: str, folder: Path, graph: ConceptGraph, *, budget: int | None = None) -> Engine | None:
    """The engine that was saved in `folder`; None for one that has no files of its own. Raises `UnusableIndex`,
    `IndexFull`, `OSError`."""
    return FusedEngine.open(folder, graph, budget=budget) if name == "fused" else None
