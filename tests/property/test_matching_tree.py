"""The matching tree with successor nodes and switches: on equalities it visits every leaf that matches, once."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import AttributeId, Clause, ColumnId, KeyTest, LoweredEvent, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published import matching_tree
from kindcast.index.published import matching_tree as successors
from kindcast.index.published.matching_tree import MatchingTreeEngine, Node, annotate, plant

values = st.dictionaries(st.integers(0, 4), st.integers(0, 2), max_size=5)


def clause(asked: Mapping[int, int]) -> Clause:
    """`attribute = value` for each."""
    predicates = (
        Predicate(AttributeId(attribute), ((ColumnId(attribute), KeyTest(frozenset({value}))),))
        for attribute, value in asked.items()
    )
    return Clause(tuple(predicates), frozenset(map(AttributeId, asked)))


def event(published: Mapping[int, tuple[int, ...]]) -> LoweredEvent:
    present = frozenset(map(AttributeId, published))
    return LoweredEvent(present, {ColumnId(attribute): found for attribute, found in published.items()})


@pytest.mark.parametrize(("share", "copies"), [(0.0, 4.0), (0.0, 1e9), (0.6, 1e9), (2.0, 4.0)])
@given(asked=st.lists(values, max_size=30), published=st.lists(values, min_size=1, max_size=4))
def test_matching_tree_of_equalities_finds_exactly_what_matches(
    share: float, copies: float, asked: list[dict[int, int]], published: list[dict[int, int]]
) -> None:
    """Errata 24 and 25: with a switch over one axis, over all, over popular ones, and without; no row twice."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matching_tree, "INDEXED_SHARE", share)
        patched.setattr(matching_tree, "MOST_COPIES", copies)
        engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
        rows = engine.add_many(map(clause, asked))
        for each in published:
            expected = [
                row
                for row, wanted in zip(rows, asked, strict=True)
                if all(each.get(attribute) == value for attribute, value in wanted.items())
            ]
            assert engine.match(event({key: (value,) for key, value in each.items()})).tolist() == expected


def test_matching_tree_several_values_follow_several_edges_and_branches() -> None:
    """Erratum 25: a row that was copied into two branches is reported once."""
    engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
    rows = engine.add_many([*(clause({0: number % 3}) for number in range(60)), clause({1: 1})])
    found = engine.match(event({0: (0, 1), 1: (1,)})).tolist()
    assert found == sorted([*(row for row in rows[:60] if row % 3 in (0, 1)), rows[60]])


@given(
    asked=st.lists(values, max_size=20),
    published=st.lists(
        st.dictionaries(
            st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True), max_size=5
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_matching_tree_several_index_axes_and_several_values_find_each_row_once(
    asked: list[dict[int, int]], published: list[dict[int, list[int]]]
) -> None:
    """Erratum 25 over several axes: an event goes to every combination of its values, and to no branch twice."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matching_tree, "INDEXED_SHARE", 0.0)
        patched.setattr(matching_tree, "MOST_COPIES", 1e9)
        engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
        rows = engine.add_many(map(clause, asked))
        for each in published:
            expected = [
                row
                for row, wanted in zip(rows, asked, strict=True)
                if all(value in each.get(attribute, ()) for attribute, value in wanted.items())
            ]
            assert engine.match(event({key: tuple(found) for key, found in each.items()})).tolist() == expected
        assert engine.index_axes == len({attribute for wanted in asked for attribute in wanted})


def test_matching_tree_visits_are_edges_and_successors() -> None:
    """By hand: root ─b=1─▶ node ─a=1─▶ leaf 0, node ─*─▶ leaf 1. The last edge, that of no care, leads to the successor
    of both, the node and the first leaf."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matching_tree, "INDEXED_SHARE", 2.0)
        engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
        engine.add_many([clause({0: 1, 1: 1}), clause({1: 1})])
        assert engine.index_axes == 0
        both, one = event({0: (1,), 1: (1,)}), event({1: (1,)})
        assert engine.match_batch([both, one]).rows.tolist() == [0, 1, 1]
        assert engine.visits([both, one, event({})]).tolist() == [3, 2, 0]
        assert engine.space >= 3


def test_plant_collapses_chains_of_dont_care_edges() -> None:
    """No node has a don't-care edge alone, and axes ascend downwards."""
    root = plant([(0, ((3, "x"),)), (1, ((5, "y"),)), (2, ((3, "x"), (5, "z")))], [False] * 6)
    assert root.axis == 3
    assert root.star is not None
    assert root.star.axis == 5
    assert all(node.edges or not node.star for node in _nodes(root))


def test_annotate_successors_lead_on_from_a_blocked_node() -> None:
    """The example of the paper: after the run a, b the search goes on where a or b or both do not matter."""
    paths = [(0, "a"), (1, "b"), (2, "c")], [(1, "b"), (2, "d")], [(0, "a"), (2, "e")], [(2, "f")]
    root = plant([(row, tuple(path)) for row, path in enumerate(paths)], [False] * 3)
    assert annotate(root)
    blocked = root.edges["a"].edges["b"]
    assert blocked.axis == 2
    leads = {operand for node in blocked.successors for operand in node.edges}
    assert "d" in leads
    assert "e" in leads


def test_annotate_too_many_successors_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that would need more is searched along both edges instead, with the same result."""
    width = 6
    paths = [(row, tuple((axis, "x") for axis in range(width) if row >> axis & 1)) for row in range(1, 2**width)]
    assert annotate(plant(paths, [False] * width))
    monkeypatch.setattr(successors, "MOST_SUCCESSORS", 1)
    assert not annotate(plant(paths, [False] * width))
    engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
    rows = engine.add_many(clause({axis: 1 for axis, _ in path}) for _, path in paths)
    assert engine.match(event({axis: (1,) for axis in range(width)})).tolist() == rows


def _nodes(root: Node) -> list[Node]:
    found = [root]
    for node in found:
        found.extend(node.children())
    return found
