"""Laws of vocabularies over random graphs: syntax does not matter, `isa` is the closure, terms resolve by the book."""

import random
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st
from rdflib import BNode, Graph, Literal, URIRef
from rdflib.collection import Collection
from rdflib.namespace import OWL, RDF, RDFS, SKOS

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology import ConceptRecord, Ontology, read
from kindcast.semantic.vocabulary.vocabulary import Vocabulary
from tests.oracle import World

NAMES = [f"http://example.org/n{number}" for number in range(8)]
SYNTAXES = {"turtle": "turtle", "xml": "rdf-xml", "nt": "n-triples", "json-ld": "json-ld"}
HIERARCHICAL = [RDFS.subClassOf, SKOS.broader, SKOS.narrower, SKOS.broaderTransitive, SKOS.hasTopConcept]
SAME = [OWL.equivalentClass, OWL.sameAs, SKOS.exactMatch]
KINDS = [OWL.Class, RDFS.Class, SKOS.Concept, OWL.NamedIndividual]
LABELS = [RDFS.label, SKOS.prefLabel, SKOS.altLabel, SKOS.hiddenLabel]

names = st.sampled_from(NAMES).map(URIRef)
words = st.sampled_from(
    ["laptop", "Laptop", "LAP TOP", "lap  top", "Straße", "strasse", "ﬁle", "file", "вещь", "ноутбук"]
)
literals = st.builds(Literal, words, lang=st.sampled_from([None, "en", "de", "en-GB"]))


# ── the syntax does not matter ──────────────────────────────────────────────────────────────────────────────────────


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any mixture of hierarchy, equivalence, types, class expressions and labels over a few names."""
    graph = Graph()
    for triple in draw(
        st.lists(
            st.one_of(
                st.tuples(names, st.sampled_from(HIERARCHICAL + SAME), names),
                st.tuples(names, st.just(RDF.type), st.one_of(names, st.sampled_from(KINDS))),
                st.tuples(names, st.sampled_from(LABELS), literals),
                st.tuples(names, st.just(OWL.deprecated), st.just(Literal(True))),
            ),
            max_size=25,
        )
    ):
        graph.add(triple)
    for name, predicate, members in draw(
        st.lists(
            st.tuples(
                names, st.sampled_from([OWL.intersectionOf, OWL.unionOf]), st.lists(names, min_size=1, max_size=3)
            ),
            max_size=2,
        )
    ):
        expression, head = BNode(), BNode()
        Collection(graph, head, members)  # type: ignore[arg-type]
        graph.add((name, OWL.equivalentClass, expression))
        graph.add((expression, predicate, head))
    return graph


def meaning(ontology: Ontology) -> Ontology:
    """All of a document but its bytes and the prefixes of its syntax."""
    return replace(ontology, sha256="", format="", prefixes=())


@given(graphs())
def test_vocabulary_of_a_graph_is_the_same_in_every_syntax(graph: Graph) -> None:
    """Turtle, RDF/XML, N-Triples and JSON-LD, written by one library and read by another."""
    readings = []
    for written, syntax in SYNTAXES.items():
        ontology = read(graph.serialize(format=written, encoding="utf-8"), format=syntax)
        assert ontology.triples == len(graph)
        readings.append(ontology)
    assert [meaning(each) for each in readings] == [meaning(readings[0])] * len(readings)
    vocabularies = [Vocabulary.from_ontologies([each]) for each in readings]
    numbered = [[vocabulary.iris(ConceptId(c)) for c in range(len(vocabulary))] for vocabulary in vocabularies]
    assert numbered == [numbered[0]] * len(numbered)


# ── isa is the closure ──────────────────────────────────────────────────────────────────────────────────────────────

pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))


def closure(
    edges: list[tuple[str, str]], same: list[tuple[str, str]], types: list[tuple[str, str]]
) -> set[tuple[str, str]]:
    """(lower, upper) by reachability over the raw pairs; equivalence is a pair both ways; a type step only comes first.
    A name has the classes of every name that means the same."""
    upwards: nx.DiGraph[str] = nx.DiGraph()
    upwards.add_nodes_from(NAMES)
    upwards.add_edges_from(edges + same + [(other, one) for one, other in same])
    reach = {name: {name, *nx.descendants(upwards, name)} for name in NAMES}
    found = {(low, high) for low in NAMES for high in reach[low]}
    for low in NAMES:
        equals = [name for name in reach[low] if low in reach[name]]
        for individual, each_class in types:
            if individual in equals:
                found |= {(low, high) for high in reach[each_class]}
    return found


@given(st.lists(pairs, max_size=14), st.lists(pairs, max_size=3), st.lists(pairs, max_size=4))
def test_isa_is_the_closure_over_the_raw_pairs(
    edges: list[tuple[str, str]], same: list[tuple[str, str]], types: list[tuple[str, str]]
) -> None:
    """Diamonds, circles, equivalences and individuals in any mixture; so are descendants, and paths are real."""
    ontology = Ontology(
        name="random",
        concepts=tuple(ConceptRecord(iri=name) for name in NAMES),
        edges=tuple(edges),
        types=tuple(types),
        equivalences=tuple(same),
    )
    vocabulary = Vocabulary.from_ontologies([ontology])
    concepts = {name: vocabulary.concept(name) for name in NAMES}
    expected = closure(edges, same, types)
    for low, lower in concepts.items():
        for high, upper in concepts.items():
            assert lower is not None
            assert upper is not None
            assert vocabulary.isa(lower, upper) == ((low, high) in expected)
            assert (lower == upper) == (
                (low, high) in closure(edges, same, []) and (high, low) in closure(edges, same, [])
            )
            if lower != upper:
                assert (lower in vocabulary.descendants(upper)) == ((low, high) in expected)
            path = vocabulary.path(lower, upper)
            assert (path is not None) == ((low, high) in expected)
            if path:
                assert (path[0], path[-1]) == (lower, upper)
                for step, (one, other) in enumerate(pairwise(path)):
                    direct = vocabulary.graph.parents(one) + (vocabulary.graph.entries(one) if step == 0 else [])
                    assert other in direct


# ── exact matches ───────────────────────────────────────────────────────────────────────────────────────────────────

SPACES = ("http://a.org/", "http://b.org/x#", "http://c.org/", "urn:d:", "http://purl.obolibrary.org/obo/HP_")
MATCHED = [f"{space}{number}" for space in (*SPACES, "http://purl.obolibrary.org/obo/MP_") for number in (1, 2)]
matched = st.sampled_from(MATCHED)
matches = st.lists(st.tuples(matched, matched), max_size=8)


@st.composite
def matched_worlds(draw: st.DrawFn) -> World:
    """Few names of many namespaces, some of them known, in schemes or in none, equal, on circles, matched at will."""
    known = draw(st.lists(matched, unique=True, max_size=8))
    return World(
        names=tuple(known),
        narrower=tuple(draw(st.lists(st.tuples(matched, matched), max_size=4))),
        equivalent=tuple(draw(st.lists(st.tuples(matched, matched), max_size=2))),
        matches=tuple(draw(matches)),
        schemes=tuple(draw(st.lists(st.tuples(matched, st.sampled_from(["http://s/1", "http://s/2"])), max_size=6))),
    )


@given(matched_worlds(), st.randoms(use_true_random=False))
def test_exact_matches_merge_where_they_are_one_to_one(world: World, rolls: random.Random) -> None:
    """Which names are one concept is what rule 10 says, by brute force; whatever document says which part of it."""

    def parts(facts: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        first = [fact for fact in facts if rolls.random() < 0.5]
        return tuple(first), tuple(fact for fact in facts if fact not in first)

    split = [parts(each) for each in (world.narrower, world.equivalent, world.matches, world.schemes)]
    ontologies = [
        Ontology(
            name=f"o{number}",
            concepts=tuple(ConceptRecord(iri=name, schemes=_schemes(name, schemes)) for name in world.names),
            remarks=tuple(
                ConceptRecord(iri=name, schemes=_schemes(name, schemes)) for name in MATCHED if name not in world.names
            ),
            edges=edges,
            equivalences=same,
            matches=exact,
        )
        for number, (edges, same, exact, schemes) in enumerate(zip(*split, strict=True))
    ]
    vocabulary = Vocabulary.from_ontologies(ontologies)
    assert {name for name in MATCHED if vocabulary.concept(name) is not None} == world.concepts()
    for one, other in combinations(sorted(world.concepts()), 2):
        assert (vocabulary.concept(one) == vocabulary.concept(other)) == world.same(one, other)
    stated = nx.Graph([*world.equivalent, *world.matches])
    ends = {name for pair in world.matches for name in pair}
    undone = {one for one, other in world.matches if (one, other) not in world.merged}
    groups = [each & ends for each in nx.connected_components(stated) if each & undone and each & world.concepts()]
    assert sorted(vocabulary.report["unmerged"]) == sorted(map(sorted, groups))


def _schemes(name: str, schemes: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({scheme for each, scheme in schemes if each == name}))


# ── terms resolve by the book ───────────────────────────────────────────────────────────────────────────────────────

texts = st.sampled_from(
    [
        "Laptop",
        "laptop",
        "LAPTOP",
        " lap top",
        "Lap Top",
        "PC",
        "pc",
        "Pc",
        "n1",
        "N1",
        "n2",
        "straße",
        "STRASSE",
        "ß",
        "x:n1",
    ]
)
iris = st.sampled_from(["http://a/n1", "http://a/n2", "http://b/n1", "http://b/n2", "http://b/n3"])
labels = st.lists(st.tuples(texts, st.none()), max_size=2).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> ConceptRecord:
    return ConceptRecord(
        iri=draw(iris),
        preferred=draw(labels),
        synonyms=draw(labels),
        hidden=draw(labels),
        deprecated=draw(st.booleans()),
        replaced_by=tuple(sorted(draw(st.sets(iris, max_size=1)))),
    )


def fold(text: str) -> str:
    """Written down anew from the rule: compatibility form, no case, single blanks."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def by_the_book(
    term: str, known: dict[str, ConceptRecord], group: dict[str, int], prefixes: list[tuple[str, str]]
) -> tuple[str | None, set[int]]:
    """Rule 12, level by level, by looking at every record."""
    short = {
        iri for prefix, namespace in prefixes for iri in known if term == f"{prefix}:{iri.removeprefix(namespace)}"
    }
    local = {iri for iri in known if iri.rpartition("/")[2] == term}
    if not short and len({group[iri] for iri in local}) == 1:
        short = local
    levels: list[tuple[str, set[str]]] = [
        ("iri", {iri for iri in known if iri == term}),
        ("short", short),
        ("label", {iri for iri, each in known.items() if any(text == term for text, _ in each.preferred)}),
        ("folded", {iri for iri, each in known.items() if any(fold(text) == fold(term) for text, _ in each.preferred)}),
        ("synonym", {iri for iri, each in known.items() if any(fold(text) == fold(term) for text, _ in each.synonyms)}),
    ]
    for level, hits in levels:
        if hits:
            return level, {group[end] for iri in hits for end in successors(iri, known)}
    return None, set()


def successors(iri: str, known: dict[str, ConceptRecord]) -> set[str]:
    """Follow replacements until something is alive or has none; a circle leads nowhere, so the name itself stays."""
    met = [iri]
    while True:
        each = known[met[-1]]
        following = [name for name in each.replaced_by if name in known] if each.deprecated else []
        if not following:
            return {met[-1]}
        if following[0] in met:
            return {iri}
        met.append(following[0])


@given(
    st.lists(records(), max_size=5, unique_by=lambda record: record.iri),
    st.lists(st.tuples(iris, iris), max_size=1),
    st.lists(st.tuples(st.sampled_from(["x", ""]), st.sampled_from(["http://a/", "http://b/"])), max_size=2),
    st.one_of(texts, iris, st.sampled_from(["x:n1", "x:n2", ":n1", "x:n9", "n3"])),
)
def test_resolve_agrees_with_the_book(
    found: list[ConceptRecord], same: list[tuple[str, str]], prefixes: list[tuple[str, str]], term: str
) -> None:
    """Levels, ambiguity, folding, short forms, merged names and replacements, against plain reading of the rule."""
    known = {record.iri: record for record in found}
    same = [pair for pair in same if set(pair) <= set(known)]
    group: dict[str, int] = {iri: number for number, iri in enumerate(known)}
    for one, other in same:
        group[other] = group[one]
    ontology = Ontology(name="random", concepts=tuple(found), equivalences=tuple(same), prefixes=tuple(prefixes))
    vocabulary = Vocabulary.from_ontologies([ontology])
    members: defaultdict[Any, set[int]] = defaultdict(set)
    for iri, number in group.items():
        members[vocabulary.concept(iri)].add(number)
    assert all(len(numbers) == 1 for numbers in members.values())
    resolution = vocabulary.resolve(term)
    level, expected = by_the_book(term, known, group, prefixes)
    assert resolution.level == level
    assert {number for each in resolution.candidates for number in members[each]} == expected
    assert list(resolution.candidates) == sorted(set(resolution.candidates))
    assert vocabulary.readings(term) == resolution.candidates
