"""Names and pairs become a DAG: equivalences and circles merge, individuals take one step, numbers are stable."""

import networkx as nx
import pytest

from kindcast.semantic.vocabulary.relations import Hierarchy


def built(pairs: str = "", types: str = "", equal: str = "", names: str = "") -> Hierarchy:
    """`"a<b b<c"`: each letter is a name."""

    def split(text: str) -> list[tuple[str, str]]:
        return [(low, high) for low, _, high in (word.partition("<") for word in text.split())]

    found = {name for low, high in (*split(pairs), *split(types)) for name in (low, high)} | set(names.split())
    return Hierarchy.build(found, pairs=split(pairs), types=split(types), equivalences=split(equal))


def above(hierarchy: Hierarchy, name: str) -> str:
    ancestors = hierarchy.graph.ancestors(hierarchy.concept_of[name])
    return " ".join(sorted("".join(hierarchy.names[each]) for each in ancestors))


def beneath(hierarchy: Hierarchy, name: str) -> str:
    return " ".join(
        sorted("".join(hierarchy.names[each]) for each in hierarchy.descendants(hierarchy.concept_of[name]))
    )


def test_hierarchy_with_several_parents_has_all_ancestors_once() -> None:
    """A diamond is no trouble, and its top counts once."""
    hierarchy = built("a<b a<c b<d c<d")
    assert above(hierarchy, "a") == "a b c d"
    assert beneath(hierarchy, "d") == "a b c"
    assert hierarchy.depth == 2


def test_hierarchy_with_a_circle_makes_one_concept_of_it() -> None:
    """a is beneath b and b beneath a, so both are the same, and what is above one is above the other."""
    hierarchy = built("a<b b<c c<a c<d e<b")
    assert hierarchy.cycles == (("a", "b", "c"),)
    assert above(hierarchy, "e") == "abc d e"
    assert len(hierarchy) == 3
    assert hierarchy.depth == 2


def test_hierarchy_with_circles_that_only_equivalences_close_merges_them() -> None:
    """a < b and b = c and c < a: nobody states a circle, yet there is one."""
    hierarchy = built("a<b c<a", equal="b<c")
    assert hierarchy.names == (("a", "b", "c"),)


def test_hierarchy_with_equivalences_shares_ancestors_and_descendants() -> None:
    """Names of one concept share everything that is said of any of them; chains of equivalences hold."""
    hierarchy = built("a<b x<y", equal="b<m m<x", names="m")
    assert above(hierarchy, "a") == "a bmx y"
    assert beneath(hierarchy, "y") == "a bmx"


def test_hierarchy_with_equivalent_outsiders_knows_their_names() -> None:
    """A mapping to a name of elsewhere makes that name understood; a mapping among strangers makes no concept."""
    hierarchy = built("a<b", equal="b<elsewhere one<other")
    assert hierarchy.concept_of["elsewhere"] == hierarchy.concept_of["b"]
    assert "one" not in hierarchy.concept_of
    assert len(hierarchy) == 2


def test_hierarchy_of_individuals_takes_one_type_step_and_only_first() -> None:
    """i is an A, hence a B; A is itself of a metaclass M, but i is none, nor is what is narrower than A."""
    hierarchy = built("A<B C<A", types="i<A A<M B<N")
    assert above(hierarchy, "i") == "A B i"
    assert above(hierarchy, "A") == "A B M"
    assert above(hierarchy, "C") == "A B C"
    assert beneath(hierarchy, "M") == "A"
    assert beneath(hierarchy, "B") == "A C i"


def test_hierarchy_of_an_individual_beneath_an_individual_passes_no_type_on() -> None:
    """What is narrower than an individual is not of its class: the type step comes first or not at all."""
    hierarchy = built("j<i", types="i<A")
    assert above(hierarchy, "j") == "i j"
    assert above(hierarchy, "i") == "A i"
    assert beneath(hierarchy, "A") == "i"


def test_hierarchy_with_a_type_circle_does_not_run_around() -> None:
    """Punning both ways: each is an instance of the other, which makes them no equals."""
    hierarchy = built(types="a<b b<a")
    assert above(hierarchy, "a") == "a b"
    assert len(hierarchy) == 2


def test_hierarchy_descendants_are_the_inverse_of_ancestors() -> None:
    """On a graph with everything: diamonds, circles, equivalences, types."""
    hierarchy = built("a<b a<c b<d c<d d<e e<d f<g", types="i<a j<i a<M f<d", equal="g<b")
    for lower in range(len(hierarchy)):
        for upper in range(len(hierarchy)):
            is_above = upper in hierarchy.graph.ancestors(lower) and lower != upper  # type: ignore[arg-type]
            assert (lower in hierarchy.descendants(upper)) == is_above  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [("a", "a", "a"), ("a", "d", "a c d"), ("i", "d", "i b d"), ("d", "a", None), ("j", "b", None)],
)
def test_path_is_a_shortest_chain_or_nothing(start: str, end: str, expected: str | None) -> None:
    """Type steps only at the start; both ends included."""
    hierarchy = built("a<b b<x x<d a<c c<d b<d j<i", types="i<b")
    concept_of = hierarchy.concept_of
    path = hierarchy.path(concept_of[start], concept_of[end])
    found = None if path is None else " ".join(hierarchy.names[each][0] for each in path)
    if expected == "a c d":
        assert found in ("a c d", "a b d")
    else:
        assert found == expected


def test_names_of_a_concept_are_ordered_by_preference() -> None:
    """The caller says which name to show; ties go by the alphabet."""
    hierarchy = Hierarchy.build(
        ["b", "c", "a"], equivalences=[("a", "b"), ("b", "c")], preference=lambda name: name != "c"
    )
    assert hierarchy.names == (("c", "a", "b"),)


def test_numbers_do_not_depend_on_the_order_of_input() -> None:
    """A restart gives every concept the number that it had."""
    pairs = [("a", "b"), ("c", "b"), ("b", "d"), ("d", "b"), ("e", "a")]
    one = Hierarchy.build("abcdefg", pairs=pairs, equivalences=[("f", "g"), ("e", "f")], types=[("c", "e")])
    other = Hierarchy.build("gfedcba", pairs=pairs[::-1], equivalences=[("f", "e"), ("g", "f")], types=[("c", "e")])
    assert one.names == other.names
    assert [one.graph.ancestors(c) for c in range(len(one))] == [  # type: ignore[arg-type]
        other.graph.ancestors(c)  # type: ignore[arg-type]
        for c in range(len(other))
    ]


def test_hierarchy_deep_and_round_is_built_without_recursion() -> None:
    """Ten thousand in a chain, another ten thousand in a circle."""
    size = 10_000
    pairs = [(f"a{n}", f"a{n + 1}") for n in range(size)] + [(f"b{n}", f"b{(n + 1) % size}") for n in range(size)]
    hierarchy = Hierarchy.build({name for pair in pairs for name in pair}, pairs=pairs)
    assert hierarchy.depth == size
    assert len(hierarchy.cycles[0]) == size
    assert len(hierarchy.graph.ancestors(hierarchy.concept_of["a0"])) == size + 1


def test_hierarchy_components_agree_with_networkx_on_tangles() -> None:
    """Peeling off what is acyclic must not lose a circle: chains into, out of and between circles."""
    pairs = [(low, high) for low, high in zip("pqabbrcdeesxy", "qabarcdecstxx", strict=True)]
    hierarchy = Hierarchy.build({name for pair in pairs for name in pair}, pairs=pairs)
    expected = {frozenset(each) for each in nx.strongly_connected_components(nx.DiGraph(pairs)) if len(each) > 1}
    assert {frozenset(each) for each in hierarchy.cycles} == expected == {frozenset("ab"), frozenset("cde")}


def test_hierarchy_of_nothing_is_empty() -> None:
    """An empty vocabulary is legal."""
    assert (len(Hierarchy.build([])), Hierarchy.build([]).depth) == (0, 0)
