"""The concept DAG as flat arrays."""

import pytest

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph


def test_ancestors_of_a_diamond_are_listed_once() -> None:
    """Two ways up to the same concept give it once, ascending, with the concept itself."""
    graph = ConceptGraph(5, [(3, 1), (3, 2), (1, 0), (2, 0), (3, 1)])
    assert graph.ancestors(ConceptId(3)) == (0, 1, 2, 3)
    assert graph.ancestors(ConceptId(4)) == (4,)
    assert graph.parents(ConceptId(3)) == [1, 2]


def test_ancestors_of_an_individual_take_one_entry_then_parents() -> None:
    """The class of an individual and what is above it count; the class of a class on the way does not."""
    graph = ConceptGraph(5, parents=[(1, 2)], entries=[(0, 1), (1, 3), (2, 4)])
    assert graph.ancestors(ConceptId(0)) == (0, 1, 2)
    assert graph.ancestors(ConceptId(1)) == (1, 2, 3)


def test_ancestors_beyond_the_cache_are_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cache is emptied, never wrong."""
    monkeypatch.setattr(ConceptGraph, "CACHED", 2)
    graph = ConceptGraph(6, [(low, low - 1) for low in range(1, 6)])
    for _ in range(2):
        for concept in range(6):
            assert graph.ancestors(ConceptId(concept)) == tuple(range(concept + 1))


def test_extended_graph_has_the_old_steps_and_the_new_ones() -> None:
    """Concepts are added at the end; the graph itself, its caches included, stays as it is."""
    graph = ConceptGraph(3, [(1, 0)], [(2, 1)])
    assert graph.ancestors(ConceptId(1)) == (0, 1)
    more = graph.extended(2, [(1, 3), (3, 4), (1, 0), (2, 4)])
    assert (len(graph), len(more)) == (3, 5)
    assert [more.ancestors(ConceptId(concept)) for concept in range(5)] == [
        (0,),
        (0, 1, 3, 4),
        (0, 1, 2, 3, 4),
        (3, 4),
        (4,),
    ]
    assert more.parents(ConceptId(1)) == [0, 3]
    assert more.entries(ConceptId(2)) == [1]
    assert more.entries(ConceptId(4)) == []
    assert graph.ancestors(ConceptId(1)) == (0, 1)
    with pytest.raises(ValueError, match="outside"):
        graph.extended(1, [(0, 4)])


def test_graph_with_an_id_out_of_range_is_refused() -> None:
    """An edge to a concept that does not exist is a mistake of the caller."""
    with pytest.raises(ValueError, match="outside"):
        ConceptGraph(2, [(0, 2)])


def test_graph_with_loops_ignores_them() -> None:
    """A concept above itself says nothing."""
    graph = ConceptGraph(1, [(0, 0)], [(0, 0)])
    assert graph.parents(ConceptId(0)) == graph.entries(ConceptId(0)) == []


@pytest.mark.parametrize("length", [1, 1022, 1023, 1024, 1025, 5000])
def test_ancestors_of_a_long_chain_are_all_there(length: int) -> None:
    """However deep: with what the kernel keeps in order, and beyond it; individuals too."""
    chain = [(low, low + 1) for low in range(length)]
    graph = ConceptGraph(length + 2, chain, [(length + 1, 0)])
    assert graph.ancestors(ConceptId(0)) == tuple(range(length + 1))
    assert graph.ancestors(ConceptId(length + 1)) == tuple(range(length + 2))
