"""Relations of ontologies that people really use, against what rdflib finds by walking their triples one by one."""

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from rdflib import BNode, Graph, URIRef
from rdflib.collection import Collection
from rdflib.namespace import OWL, RDF, RDFS
from rdflib.term import Node

from kindcast import Matcher, Vocabulary, explain
from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology import read

OBO = "http://purl.obolibrary.org/obo/"
BRICK = "https://brickschema.org/schema/Brick#"
PART_OF, HAS_PART = URIRef(OBO + "BFO_0000050"), URIRef(OBO + "BFO_0000051")
Pairs = set[tuple[str, str]]


def upwards(graph: Graph, node: Node) -> Iterator[Node]:
    """What `node` is beneath by one axiom: named or not, the members of intersections one by one."""
    for predicate in (RDFS.subClassOf, OWL.equivalentClass):
        yield from graph.objects(node, predicate)
    yield from graph.subjects(OWL.equivalentClass, node)
    for head in graph.objects(node, OWL.intersectionOf):
        yield from Collection(graph, head)


def expressions(graph: Graph, start: Node) -> set[Node]:
    """The class expressions that `start` is beneath, itself included."""
    seen, waiting = {start}, [start]
    while waiting:
        for upper in upwards(graph, waiting.pop()):
            if isinstance(upper, BNode) and upper not in seen:
                seen.add(upper)
                waiting.append(upper)
    return seen


def named_above(graph: Graph, start: Node) -> set[str]:
    """The names directly above `start`, through expressions."""
    return {
        str(upper) for node in expressions(graph, start) for upper in upwards(graph, node) if isinstance(upper, URIRef)
    }


def edges_of(graph: Graph, relation: URIRef) -> Pairs:
    """A → B for A beneath (R some B), R or narrower; fillers that are expressions by their named conjuncts, and by a
    further restriction on R."""
    narrower = set(graph.transitive_subjects(RDFS.subPropertyOf, relation))

    def fillers(node: Node) -> Iterator[str]:
        for each in expressions(graph, node):
            if graph.value(each, OWL.onProperty) in narrower:
                filler = graph.value(each, OWL.someValuesFrom)
                if isinstance(filler, URIRef):
                    yield str(filler)
                elif filler is not None:
                    yield from named_above(graph, filler)
                    yield from fillers(filler)

    return {
        (str(name), end)
        for name in set(graph.subjects(RDF.type, OWL.Class))
        if isinstance(name, URIRef)
        for end in fillers(name)
    }


def reached(start: str, above: dict[str, set[str]], edges: dict[str, set[str]]) -> set[str]:
    """All to which a path of is-a and edges leads that has an edge in it."""
    seen = {(start, False)}
    waiting = [(start, False)]
    while waiting:
        here, taken = waiting.pop()
        further = {(upper, taken) for upper in above.get(here, ())} | {(end, True) for end in edges.get(here, ())}
        waiting.extend(further - seen)
        seen |= further
    return {here for here, taken in seen if taken}


def by_first(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        found[one].add(other)
    return dict(found)


def known(vocabulary: Vocabulary, iri: str) -> ConceptId:
    concept = vocabulary.concept(iri)
    assert concept is not None, iri
    return concept


# ── Cell Ontology ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cells(shared_data: Path) -> tuple[Vocabulary, Graph]:
    """The slim, read with part_of, by us and by rdflib."""
    data = gzip.decompress((shared_data / "ontologies/cl-blood-and-immune.owl.gz").read_bytes())
    vocabulary = Vocabulary.from_bytes(data, name="cl.owl", relations=["part_of"])
    return vocabulary, Graph().parse(data=data, format="xml")


def test_cell_ontology_has_the_edges_of_part_of(cells: tuple[Vocabulary, Graph]) -> None:
    """Restrictions, conjuncts of definitions, sub-properties: 280 pairs of names."""
    vocabulary, graph = cells
    [relation] = vocabulary.ontologies[0].relations
    assert relation.iri == str(PART_OF)
    assert set(relation.edges) == edges_of(graph, PART_OF)
    assert len(relation.edges) == 280
    assert str(HAS_PART) in relation.inverses


def test_cell_ontology_part_of_reaches_what_a_walk_reaches(cells: tuple[Vocabulary, Graph]) -> None:
    """Of every class: all that it is part of."""
    vocabulary, graph = cells
    names = sorted(str(name) for name in set(graph.subjects(RDF.type, OWL.Class)) if isinstance(name, URIRef))
    above = {name: named_above(graph, URIRef(name)) for name in names}
    edges = by_first(edges_of(graph, PART_OF))
    relations = vocabulary.relations
    shadows = {name: relations.shadow(str(PART_OF), known(vocabulary, name)) for name in names}
    found = 0
    for name in names:
        expected = reached(name, above, edges) & set(names)
        ancestors = set(relations.graph.ancestors(known(vocabulary, name)))
        assert {each for each, shadow in shadows.items() if shadow in ancestors} == expected, name
        found += len(expected)
    assert found == 4_601


def test_cell_ontology_is_found_by_what_cells_are_part_of(cells: tuple[Vocabulary, Graph]) -> None:
    """In a subscription, by the short name of the relation, explained step by step."""
    vocabulary, _ = cells
    matcher = Matcher(vocabulary)
    matcher.add("immune", 'cell part_of "immune system"')
    matcher.add("is immune", 'cell isa "immune system"')
    assert [match.subscription for match in matcher.match({"cell": "leukocyte"})] == ["immune"]
    summary = explain(vocabulary, 'cell part_of "immune system"', {"cell": "T cell"})["summary"]
    assert "(part of) immune system" in summary


# ── PATO ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pato_relations_are_its_relationship_lines(shared_data: Path) -> None:
    """Term by term, line by line: restrictions by has_part, plain triples by is_opposite_of."""
    data = (shared_data / "ontologies/pato.obo").read_bytes()
    expected: defaultdict[str, Pairs] = defaultdict(set)
    term = ""
    for line in data.decode().splitlines():
        if line.startswith("id: "):
            term = line.removeprefix("id: ")
        elif line.startswith("relationship: "):
            _, relation, end = line.split(" ")[:3]
            expected[relation].add((OBO + term.replace(":", "_"), OBO + end.replace(":", "_")))
    found = read(data, format="obo", relations=["has_part", "is_opposite_of"]).relations
    assert [set(each.edges) for each in found] == [expected["has_part"], expected["is_opposite_of"]]
    assert [len(each.edges) for each in found] == [9, 425]


# ── a building and its schema ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def building(shared_data: Path) -> tuple[Vocabulary, Graph]:
    """Soda Hall, which says brick:hasPoint, and Brick, which says that this is the inverse of brick:isPointOf."""
    folder = shared_data / "ontologies"
    vocabulary = Vocabulary.from_files(
        folder / "Brick-1.5.ttl",
        folder / "brick-example-soda-hall.ttl",
        relations=["brick:isPointOf", "brick:hasPoint", "brick:isPartOf", "brick:hasPart"],
    )
    graph = Graph()
    for name in ("Brick-1.5.ttl", "brick-example-soda-hall.ttl"):
        graph.parse(folder / name, format="turtle")
    return vocabulary, graph


def classes_beneath(graph: Graph, top: str) -> set[Node]:
    """A class and all beneath it, other names of them too."""
    seen: set[Node] = {URIRef(BRICK + top)}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        further = {*graph.subjects(RDFS.subClassOf, node), *graph.subjects(OWL.equivalentClass, node)}
        further |= set(graph.objects(node, OWL.equivalentClass))
        waiting.extend(further - seen)
        seen |= further
    return seen


@pytest.mark.parametrize("top", ["Equipment", "VAV", "AHU", "Chiller", "Location"])
def test_points_of_equipment_are_those_of_the_building(building: tuple[Vocabulary, Graph], top: str) -> None:
    """`p isPointOf VAV` for every p that a VAV hasPoint: the inverse is in the one file, the triples in the other."""
    vocabulary, graph = building
    things = {one for each in classes_beneath(graph, top) for one in graph.subjects(RDF.type, each)}
    expected = {str(point) for thing in things for point in graph.objects(thing, URIRef(BRICK + "hasPoint"))}
    points = {str(point) for point in graph.objects(None, URIRef(BRICK + "hasPoint"))}
    matcher = Matcher(vocabulary)
    matcher.add("asked", f"point brick:isPointOf brick:{top}")
    events = [{"point": point} for point in sorted(points)]
    found = {event["point"] for event, each in zip(events, matcher.match_batch(events), strict=True) if len(each)}
    assert found == expected
    assert expected or top in ("Chiller", "Location")


def test_building_has_the_edges_of_both_directions(building: tuple[Vocabulary, Graph]) -> None:
    """926 points; parts and wholes are said in either direction, 493 pairs in all."""
    vocabulary, graph = building
    has, within = (set(graph.subject_objects(URIRef(BRICK + name))) for name in ("hasPart", "isPartOf"))
    parts = has | {(whole, part) for part, whole in within}
    report = {each["iri"].removeprefix(BRICK): each["edges"] for each in vocabulary.report["relations"]}
    assert report == {"hasPart": len(parts), "isPartOf": len(parts), "hasPoint": 926, "isPointOf": 926}
    assert len(parts) == 493


def test_building_without_relations_is_the_same_building(building: tuple[Vocabulary, Graph], shared_data: Path) -> None:
    """No concept, no pair and no name more or less; only the relations."""
    related, _ = building
    files = [shared_data / "ontologies" / name for name in ("Brick-1.5.ttl", "brick-example-soda-hall.ttl")]
    plain = [read(file.read_bytes(), name=file.name) for file in files]
    for one, other in zip(plain, related.ontologies, strict=True):
        assert (one.edges, one.types, one.equivalences) == (other.edges, other.types, other.equivalences)
        assert {each.iri for each in one.concepts} <= {each.iri for each in other.concepts}
