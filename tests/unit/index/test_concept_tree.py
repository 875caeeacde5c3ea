"""Rows by subscribed concept."""

from kindcast.index.clause import ConceptId, ConceptTest
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.ctps_rows import ConceptTree, empty_bits, rows_of

PRODUCT, COMPUTER, PORTABLE, LAPTOP, MINE = (ConceptId(number) for number in range(5))
GRAPH = ConceptGraph(
    5,
    parents=[(COMPUTER, PRODUCT), (PORTABLE, PRODUCT), (LAPTOP, COMPUTER), (LAPTOP, PORTABLE)],
    entries=[(MINE, LAPTOP)],
)


def rows_at(tree: ConceptTree, concept: ConceptId) -> list[int]:
    bits = empty_bits(64)
    tree.union_into(bits, concept)
    return rows_of(bits).tolist()


def test_tree_unites_the_rows_of_all_parents_of_a_value() -> None:
    """A value under two parents satisfies `isa` of either and of what is above them, but of nothing beneath."""
    tree = ConceptTree(GRAPH, 64)
    for row, concept in enumerate((PRODUCT, COMPUTER, PORTABLE, LAPTOP)):
        tree.add(row, ConceptTest(within=frozenset([concept])))
    assert rows_at(tree, LAPTOP) == [0, 1, 2, 3]
    assert rows_at(tree, COMPUTER) == [0, 1]
    assert rows_at(tree, MINE) == [0, 1, 2, 3]


def test_tree_below_and_exactly_part_at_the_concept_itself() -> None:
    """`below C` holds on proper descendants and individuals only, `is C` on C only."""
    tree = ConceptTree(GRAPH, 64)
    tree.add(0, ConceptTest(below=frozenset([LAPTOP])))
    tree.add(1, ConceptTest(exactly=frozenset([LAPTOP])))
    assert rows_at(tree, LAPTOP) == [1]
    assert rows_at(tree, MINE) == [0]
    assert rows_at(tree, PRODUCT) == []


def test_tree_after_removal_holds_nothing_of_the_row() -> None:
    """A node that loses its last row goes; others on it stay."""
    tree = ConceptTree(GRAPH, 64)
    everything = ConceptTest(frozenset([PRODUCT]), frozenset([COMPUTER]), frozenset([LAPTOP]))
    tree.add(0, everything)
    tree.add(1, ConceptTest(exactly=frozenset([LAPTOP])))
    tree.remove(0, everything)
    tree.check_invariants()
    assert list(tree.contents()) == [(LAPTOP, "exactly", [1])]
