"""The registry of engines by name. All are exact (`kindcast.index.engine.Engine`), with different speed and memory."""

from pathlib import Path

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine, EngineFactory
from kindcast.index.errors import UnknownEngine
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine
from kindcast.index.published.ctps import CtpsEngine
from kindcast.index.published.dexin import DexinEngine
from kindcast.index.published.le_subscribe import CountingEngine, EqualityEngine, QuarantineEngine
from kindcast.index.published.matching_tree import MatchingTreeEngine

__all__ = ["ENGINES", "new_engine", "open_engine"]


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
"""Map from names to functions that build an empty engine for a concept graph."""


def new_engine(name: str, graph: ConceptGraph, *, budget: int | None = None) -> Engine:
    """Returns an empty engine. `budget` is its maximum size in bytes; only `fused` supports it. Raises `UnknownEngine`
    with the known names, and `ValueError` for a budget with another engine."""
    factory = ENGINES.get(name)
    if factory is None:
        raise UnknownEngine(name, sorted(ENGINES))
    if budget is None:
        return factory(graph)
    if name != "fused":
        raise ValueError(f"the engine {name!r} has no byte limit: only 'fused' has one")
    return FusedEngine(graph, budget=budget)


def open_engine(name: str, folder: Path, graph: ConceptGraph, *, budget: int | None = None) -> Engine | None:
    """Opens the engine that was saved in `folder`; returns None for an engine without a file format. Raises
    `UnusableIndex`, `IndexFull`, `OSError`."""
    return FusedEngine.open(folder, graph, budget=budget) if name == "fused" else None
