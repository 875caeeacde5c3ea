"""Relations as shadows of concepts say what walking the edges one by one says, and nothing else notices them."""

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology import RelationRecord
from kindcast.semantic.vocabulary.vocabulary import Vocabulary
from tests.harness.vocabularies import declared_in
from tests.oracle import World
from tests.strategies import RELATIONS, vocabulary_of, worlds

many_edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=9)


@st.composite
def related_worlds(draw: st.DrawFn) -> World:
    """Worlds with more edges than usual, so that circles of both kinds of steps are common."""
    world = draw(worlds())
    pairs = tuple((world.names[low], world.names[high]) for low, high in draw(many_edges))
    return replace(world, relations={**world.relations, RELATIONS[0]: pairs})


def known(vocabulary: Vocabulary, iri: str) -> ConceptId:
    concept = vocabulary.concept(iri)
    assert concept is not None, iri
    return concept


@given(related_worlds())
def test_relation_holds_exactly_where_a_walk_over_the_edges_leads(world: World) -> None:
    """Of every two names, in every relation; and a path is given where it holds, made of true steps."""
    vocabulary = vocabulary_of(world)
    relations = vocabulary.relations
    for relation, low, high in product(world.relations, world.names, world.names):
        one, other = known(vocabulary, low), known(vocabulary, high)
        expected = world.related(world.kinds(low), relation, high)
        assert relations.holds(one, relation, other) is expected, (relation, low, high)
        path = relations.path(one, relation, other)
        assert (path is not None) is expected, (relation, low, high)
        if path is not None:
            assert path[-1][0] == other
            assert any(taken for _, taken in path)
            here = one
            for concept, taken in path:
                names = [(left, right) for left in vocabulary.iris(here) for right in vocabulary.iris(concept)]
                stated = world.relations[relation] if taken else ()
                assert any(pair in stated or (not taken and world.isa(*pair)) for pair in names), path
                here = concept


@given(related_worlds())
def test_relations_leave_everything_else_as_it_is(world: World) -> None:
    """Concepts, their numbers, names, ancestors, descendants, readings and searches are those without relations."""
    plain, related = vocabulary_of(replace(world, relations={})), vocabulary_of(world)
    assert len(related) == len(plain)
    assert len(related.graph) >= len(plain.graph) == 2 * len(plain)  # each concept, and an instance of each
    for number in range(len(plain)):
        concept = ConceptId(number)
        assert related.iris(concept) == plain.iris(concept)
        assert related.ancestors(concept) == plain.ancestors(concept)
        assert related.descendants(concept) == plain.descendants(concept)
        assert related.summary(concept) == plain.summary(concept)
        above = [each for each in related.graph.ancestors(concept) if each < len(plain)]
        assert tuple(above) == plain.graph.ancestors(concept)
    for text in ("Laptop", "laptop", "C1", "Old", "ex:C2"):
        assert related.readings(text) == plain.readings(text)
        assert related.search(text) == plain.search(text)
    assert {**related.report, "relations": []} == plain.report


@given(related_worlds())
def test_relations_of_several_documents_are_one(world: World) -> None:
    """Edges of one relation may stand in any documents: what counts is all of them together."""
    whole = vocabulary_of(world)
    [ontology] = whole.ontologies
    edges = world.relations[RELATIONS[0]]
    parts = [
        replace(ontology, name=name, relations=(RelationRecord(iri=RELATIONS[0], edges=some),))
        for name, some in (("one", edges[::2]), ("other", edges[1::2]))
    ]
    united = Vocabulary(parts, **declared_in(world))
    for low, high in product(world.names, world.names):
        one, other = known(united, low), known(united, high)
        assert united.relations.holds(one, RELATIONS[0], other) is world.related(world.kinds(low), RELATIONS[0], high)
