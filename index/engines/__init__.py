"""The engines by name. Each is exact and follows `index.engine.Engine`; they differ in speed and memory only."""

from index.concept_graph import ConceptGraph
from index.engine import Engine, EngineFactory
from index.engines.ctps import CtpsEngine
from index.engines.naive import NaiveEngine
from index.errors import UnknownEngine

__all__ = ["ENGINES", "new_engine"]

ENGINES: dict[str, EngineFactory] = {"ctps": CtpsEngine, "naive": NaiveEngine}
"""Name → what builds an empty engine over a concept graph."""


def new_engine(name: str, graph: ConceptGraph) -> Engine:
    """An empty engine. Raises `UnknownEngine` with the known names."""
    factory = ENGINES.get(name)
    if factory is None:
        raise UnknownEngine(name, sorted(ENGINES))
    return factory(graph)
