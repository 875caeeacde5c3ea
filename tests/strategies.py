"""Hypothesis strategies that more than one test uses. All shrink towards few concepts, few attributes and short lists.

* For the index: concept graphs, clauses and lowered events; each of `ATTRIBUTES` has a column of every kind.
"""

import math

from hypothesis import strategies as st

from index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from index.concept_graph import ConceptGraph

__all__ = ["ATTRIBUTES", "clauses", "concept_graphs", "lowered_events"]

# ── the index ───────────────────────────────────────────────────────────────────────────────────────────────────────

ATTRIBUTES = tuple(AttributeId(number) for number in range(4))
CONCEPTS = 7
"""Concepts of every graph: enough for diamonds and for individuals with two classes."""
KINDS = ("concept", "text", "number")

_texts = st.sampled_from(["a", "b", "c", ""])
_numbers = st.one_of(
    st.integers(-2, 10).map(float),
    st.floats(0, 10),
    st.sampled_from([-1e308, 1e308, 5e-324, 1e16, -0.0]),
)
_bounds = st.one_of(_numbers, st.sampled_from([-math.inf, math.inf]))
_concepts = st.integers(0, CONCEPTS - 1).map(ConceptId)


def column(attribute: AttributeId, kind: str) -> ColumnId:
    """The column in which `attribute` is read as `kind`."""
    return ColumnId(attribute * len(KINDS) + KINDS.index(kind))


@st.composite
def concept_graphs(draw: st.DrawFn) -> ConceptGraph:
    """DAGs with several parents, and individuals that enter them anywhere."""
    low_high = st.tuples(st.integers(0, CONCEPTS - 1), st.integers(0, CONCEPTS - 1))
    parents = [(max(pair), min(pair)) for pair in draw(st.lists(low_high, max_size=12))]
    entries = draw(st.lists(low_high, max_size=4))
    return ConceptGraph(CONCEPTS, parents, entries)


def _tests(kind: str) -> st.SearchStrategy[Test]:
    if kind == "concept":
        some = st.frozensets(_concepts, max_size=2)
        return st.builds(ConceptTest, some, some, some)
    if kind == "text":
        return st.builds(KeyTest, st.frozensets(_texts, max_size=2))
    ordered = st.tuples(_bounds, _bounds).map(sorted).map(lambda ends: IntervalTest(*ends))
    return st.one_of(
        ordered,
        st.builds(IntervalTest, _bounds, _bounds),
        _numbers.map(lambda point: IntervalTest(point, point)),
        st.builds(KeyTest, st.frozensets(_numbers, max_size=2)),
    )


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    """One predicate with up to three tests, on the same or on several columns of its attribute."""
    attribute = draw(st.sampled_from(ATTRIBUTES))
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    tests = tuple((column(attribute, kind), draw(_tests(kind))) for kind in kinds)
    return Predicate(attribute, tests, draw(st.sampled_from([False, False, True])))


@st.composite
def clauses(draw: st.DrawFn) -> Clause:
    """Conjunctions, also without predicates, with several on one attribute, and with attributes that must be absent."""
    asked = tuple(draw(st.lists(predicates(), max_size=4)))
    some = st.frozensets(st.sampled_from(ATTRIBUTES), max_size=1)
    return Clause(asked, frozenset(p.attribute for p in asked) | draw(some), draw(some))


@st.composite
def lowered_events(draw: st.DrawFn) -> LoweredEvent:
    """Events with absent attributes, with several values, and with attributes that no column reads."""
    present = draw(st.frozensets(st.sampled_from(ATTRIBUTES)))
    values = {
        column(attribute, kind): tuple(draw(st.lists(of_kind, min_size=1, max_size=3, unique=True)))
        for attribute in sorted(present)
        for kind, of_kind in (("concept", _concepts), ("text", _texts), ("number", _numbers))
        if draw(st.booleans())
    }
    return LoweredEvent(present, values)
