"""Short histories of one engine, a great many of them: whatever came before, it finds what the plain twin finds.

The state machines beside this go deep, with some seconds a hundred examples; this goes wide. The README of this folder
has the count of the longest run.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import Clause, ClauseRow
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine
from kindcast.index.registry import ENGINES
from tests.strategies import clauses, concept_graphs, lowered_events

BUILT = ("matching_tree",)
SMALL: dict[str, Any] = {"run": at_once, "block_rows": 64}

FACTORIES: dict[str, Any] = {f"fused {rows}": (lambda graph, rows=rows: fused(graph, rows)) for rows in (0, 1, 3)}
FACTORIES |= {name: ENGINES[name] for name in ENGINES if name not in ("fused", "naive")}
FACTORIES |= {f"eager {name}": (lambda graph, name=name: eager(graph, name)) for name in BUILT}

few_clauses = st.lists(clauses(), min_size=1, max_size=3)
few_events = st.lists(lowered_events(), min_size=1, max_size=2)
steps = st.one_of(
    st.tuples(st.just("add"), few_clauses),
    st.tuples(st.just("add many"), few_clauses),
    st.tuples(st.just("remove"), st.integers(0, 7)),
    st.tuples(st.just("match"), few_events),
    st.tuples(st.just("batch"), few_events),
    st.tuples(st.sampled_from(["merge", "save and open"]), st.none()),
    st.tuples(st.just("swap"), concept_graphs()),
)


def fused(graph: ConceptGraph, memtable_rows: int) -> FusedEngine:
    return FusedEngine(graph, memtable_rows=memtable_rows, **SMALL)


def eager(graph: ConceptGraph, name: str) -> Any:
    engine: Any = ENGINES[name]
    return engine(graph, fewest_fresh=2)


@given(
    name=st.sampled_from(sorted(FACTORIES)),
    graph=concept_graphs(),
    stored=few_clauses,
    history=st.lists(steps, max_size=6),
    events=few_events,
)
def test_engine_after_a_short_history_finds_what_naive_finds(
    name: str, graph: ConceptGraph, stored: list[Clause], history: list[tuple[str, Any]], events: Any
) -> None:
    """Additions, removals, matches, batches, merges, restarts, and another concept graph under the same clauses."""
    engine, naive = FACTORIES[name](graph), NaiveEngine(graph)
    known: dict[ClauseRow, Clause] = {}
    for step, what in [("add", stored), *history, ("batch", events)]:
        if step == "add":
            for clause in what:
                row = naive.add(clause)
                assert engine.add(clause) == row
                known[row] = clause
        elif step == "add many":
            rows = naive.add_many(what)
            assert engine.add_many(what) == rows
            known.update(zip(rows, what, strict=True))
        elif step == "remove" and known:
            row = sorted(known)[what % len(known)]
            engine.remove(row)
            naive.remove(row)
            del known[row]
        elif step == "match":
            for event in what:
                assert engine.match(event).tolist() == naive.match(event).tolist()
        elif step == "batch":
            found, expected = engine.match_batch(what), naive.match_batch(what)
            assert (found.offsets.tolist(), found.rows.tolist()) == (expected.offsets.tolist(), expected.rows.tolist())
        elif step == "merge" and isinstance(engine, FusedEngine):
            engine.merge_now()
        elif step == "save and open" and isinstance(engine, FusedEngine):
            with tempfile.TemporaryDirectory() as folder:
                engine.save(Path(folder))
                engine = FusedEngine.open(Path(folder), graph, memtable_rows=1, **SMALL)
        elif step == "swap":
            graph = what
            engine, naive = FACTORIES[name](graph), NaiveEngine(graph)
            engine.add_many(known.values())
            known = dict(zip(naive.add_many(known.values()), known.values(), strict=True))
    engine.check_invariants()
    assert len(engine) == len(known)
