"""Every engine is exact: on random hierarchies, clauses and events it finds what the plain twin finds."""

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kindcast.index.clause import Clause, ClauseRow, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.published.dexin import DexinEngine
from kindcast.index.registry import ENGINES, new_engine
from tests.strategies import clauses, concept_graphs, lowered_events

BUILT = ("matching_tree",)
"""Engines with a structure that is built again now and then; eager ones build it for a handful of clauses."""
FACTORIES: dict[str, Any] = {name: partial(new_engine, name) for name in ENGINES if name != "naive"}
FACTORIES |= {f"eager {name}": partial(ENGINES[name], fewest_fresh=2) for name in BUILT}
FACTORIES |= {f"dexin {plan}, slots": partial(DexinEngine, plan=plan, slot_rows=1) for plan in range(4)}
FAST = sorted(FACTORIES)


@given(
    graph=concept_graphs(),
    stored=st.lists(clauses(), max_size=80),
    events=st.lists(lowered_events(), min_size=1, max_size=5),
    name=st.sampled_from(FAST),
)
def test_engine_over_random_clauses_finds_what_naive_finds(
    graph: ConceptGraph, stored: list[Clause], events: list[LoweredEvent], name: str
) -> None:
    """Same rows for the same clauses, same matches for the same events, and sound internals."""
    engine, naive = FACTORIES[name](graph), new_engine("naive", graph)
    assert engine.add_many(stored) == naive.add_many(stored)
    for event in events:
        assert engine.match(event).tolist() == naive.match(event).tolist()
    engine.check_invariants()


class EnginesAgree(RuleBasedStateMachine):
    """All engines side by side through additions, removals and matches in any order."""

    rows: Bundle[ClauseRow] = Bundle("rows")

    @initialize(graph=concept_graphs())
    def begin(self, graph: ConceptGraph) -> None:
        """Empty engines over one graph."""
        self.naive: Engine = new_engine("naive", graph)
        self.fast: list[Engine] = [FACTORIES[name](graph) for name in FAST]

    @rule(target=rows, clause=clauses())
    def add(self, clause: Clause) -> ClauseRow:
        """Every engine gives the same row."""
        row = self.naive.add(clause)
        assert [engine.add(clause) for engine in self.fast] == [row] * len(self.fast)
        return row

    @rule(clause=clauses(), times=st.integers(1, 70))
    def add_and_remove_many(self, clause: Clause, times: int) -> None:
        """Growing and thinning out again leaves nothing behind."""
        for engine in (self.naive, *self.fast):
            for row in engine.add_many([clause] * times):
                engine.remove(row)

    @rule(row=consumes(rows))
    def remove(self, row: ClauseRow) -> None:
        """A row goes everywhere."""
        for engine in (self.naive, *self.fast):
            engine.remove(row)

    @rule(event=lowered_events())
    def match(self, event: LoweredEvent) -> None:
        """Same matches now, and again from what is remembered."""
        expected = self.naive.match(event).tolist()
        for engine in self.fast:
            assert [engine.match(event).tolist() for _ in range(2)] == [expected, expected]

    @rule(events=st.lists(lowered_events(), max_size=3))
    def match_batch(self, events: list[LoweredEvent]) -> None:
        """Same table of matches."""
        expected: Any = self.naive.match_batch(events)
        for engine in self.fast:
            table = engine.match_batch(events)
            assert table.offsets.tolist() == expected.offsets.tolist()
            assert table.rows.tolist() == expected.rows.tolist()

    @invariant()
    def internals_are_sound(self) -> None:
        """After every step."""
        for engine in (*self.fast, self.naive) if hasattr(self, "fast") else ():
            engine.check_invariants()
            assert len(engine) == len(self.naive)


TestEnginesAgree = EnginesAgree.TestCase
