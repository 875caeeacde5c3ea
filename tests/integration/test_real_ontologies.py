"""Ontologies that people really use come out with the numbers that are known of them.

The expected numbers are those of the data's own README, counted by other libraries; where ours differ, the test says
why. Brick comes with the PyPI package brickschema too, so that one ontology of size is loaded everywhere.
"""

import gzip
import importlib.resources
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import owlready2
import pytest
from rdflib import Graph, URIRef
from rdflib.namespace import OWL, RDF, RDFS, SKOS

from kindcast import InvalidSubscription, Matcher
from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology import Ontology, read, read_isolated
from kindcast.semantic.ontology.isolation import Cost
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

BRICK = "https://brickschema.org/schema/Brick#"
OBO = "http://purl.obolibrary.org/obo/"
Loaded = Callable[[str], Vocabulary]


@pytest.fixture(scope="module")
def loaded(shared_data: Path) -> Loaded:
    """Each file of the data, loaded once."""
    known: dict[str, Vocabulary] = {}

    def load(name: str) -> Vocabulary:
        if name not in known:
            known[name] = Vocabulary.from_files(shared_data / "ontologies" / name)
        return known[name]

    return load


def stated(ontology: Ontology) -> set[tuple[str, str]]:
    """The pairs that a triple states, as the README counts them."""
    return set(ontology.edges) - ontology.derived


def several_parents(edges: set[tuple[str, str]]) -> int:
    return sum(count > 1 for count in Counter(low for low, _ in edges).values())


def concept(vocabulary: Vocabulary, iri: str) -> ConceptId:
    found = vocabulary.concept(iri)
    assert found is not None, iri
    return found


def only(vocabulary: Vocabulary, term: str) -> str:
    """The IRI that `term` means, beyond doubt."""
    candidates = vocabulary.resolve(term).candidates
    assert len(candidates) == 1, (term, [vocabulary.iri(each) for each in candidates])
    return vocabulary.iri(candidates[0])


# ── the numbers of the README ───────────────────────────────────────────────────────────────────────────────────────

NUMBERS = {
    #                             concepts, stated edges, several parents, depth
    "pizza.owl": (99, 84, 1, 6),
    "cl-blood-and-immune.owl.gz": (1_079, 1_477, 343, 34),
    "unesco-thesaurus.ttl.gz": (4_408, 4_243, 226, 5),
    "qudt-quantitykind.ttl.gz": (656, 579, 2, 4),
    "hcrt.ttl": (26, 0, 0, 0),
}
SCHEMES = {"unesco-thesaurus.ttl.gz", "hcrt.ttl"}
"""The README counts concepts only. Here a scheme with top concepts stands above them as one more concept, so that one
can subscribe to all of a thesaurus: one concept and one level more."""
REFERRED = {"qudt-quantitykind.ttl.gz": 3}
"""Classes of individuals that the document names and does not declare: qudt:QuantityKind and two of vaem:."""


@pytest.mark.parametrize("name", NUMBERS)
def test_ontology_as_loaded_has_the_known_numbers(loaded: Loaded, name: str) -> None:
    """Concepts, pairs, concepts with several parents, depth."""
    vocabulary = loaded(name)
    report = vocabulary.report
    concepts, edges, multi, depth = NUMBERS[name]
    own = stated(vocabulary.ontologies[0])
    assert report["concepts"] == concepts + (name in SCHEMES) + REFERRED.get(name, 0)
    assert report["edges"] - report["derived_edges"] == len(own) == edges
    assert several_parents(own) == multi
    assert report["max_depth"] == depth + (name in SCHEMES)


@pytest.mark.parametrize(
    ("name", "triples", "derived", "merged", "individuals"),
    [
        ("pizza.owl", 2_332, 14, 0, 5),
        ("Brick-1.5.ttl", 62_083, 0, 108, 540),
        ("cl-blood-and-immune.owl.gz", 41_779, 172, 1, 0),
        ("unesco-thesaurus.ttl.gz", 75_202, 583, 0, 0),
        ("qudt-quantitykind.ttl.gz", 31_353, 0, 0, 588),
        ("hcrt.ttl", 320, 26, 0, 0),
        ("brick-example-soda-hall.ttl", 3_774, 0, 0, 1_695),
    ],
)
def test_ontology_as_loaded_has_our_numbers(
    loaded: Loaded, name: str, triples: int, derived: int, merged: int, individuals: int
) -> None:
    """What the README does not count: a change here is a change of meaning, and wants a word in the changelog."""
    report = loaded(name).report
    found = (report["triples"], report["derived_edges"], report["merged"], report["individuals"])
    assert found == (triples, derived, merged, individuals)


def test_unesco_as_loaded_has_its_labels(loaded: Loaded) -> None:
    """13,873 alternative labels as in the README; per language less by those of the 95 concept groups and the scheme.

    The README counts every label in the file (fr 8,856, es 8,854, en 7,355, ru 7,168). Concept groups gather concepts
    for display and are called like them, so they are no concepts here; the scheme itself is one.
    """
    report = loaded("unesco-thesaurus.ttl.gz").report
    assert report["synonyms"] == 13_873
    assert report["languages"] == {"en": 7_164, "es": 8_666, "fr": 8_666, "ru": 6_978}


def test_cl_as_loaded_derives_pairs_from_definitions(loaded: Loaded) -> None:
    """423 classes are defined by conjunctions; what is conjoined is above them. One named equivalence merges two
    names."""
    vocabulary = loaded("cl-blood-and-immune.owl.gz")
    ontology = vocabulary.ontologies[0]
    names = {record.iri for record in ontology.concepts}
    assert all(low in names and high in names for low, high in ontology.derived)
    assert len(ontology.equivalences) == 1


def test_qudt_as_loaded_counts_things_that_are_no_skos_concepts(loaded: Loaded) -> None:
    """`skos:broader` among things of another type; labels in many languages, en, en-US and untagged side by side."""
    vocabulary = loaded("qudt-quantitykind.ttl.gz")
    report = vocabulary.report
    assert {"en", "en-us", ""} <= set(report["languages"])
    assert vocabulary.ontologies[0].types[0][1] == "http://qudt.org/schema/qudt/QuantityKind"
    energy = concept(vocabulary, "http://qudt.org/vocab/quantitykind/Energy")
    assert vocabulary.isa(concept(vocabulary, "http://qudt.org/vocab/quantitykind/KineticEnergy"), energy)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("pizza.owl", "pizza.owl"),
        ("Brick 1.5", "Brick-1.5.ttl"),
        ("Cell Ontology, blood and immune slim", "cl-blood-and-immune.owl.gz"),
        ("UNESCO Thesaurus", "unesco-thesaurus.ttl.gz"),
        ("QUDT quantity kinds 3.2.1", "qudt-quantitykind.ttl.gz"),
    ],
)
def test_numbers_in_the_documentation_are_those_of_the_report(
    loaded: Loaded, repository: Path, row: str, name: str
) -> None:
    """The table of docs/ontologies.md, which people compare with their editor."""
    report = loaded(name).report
    page = (repository / "docs" / "ontologies.md").read_text(encoding="utf-8")
    cells = [report["concepts"], f"{report['edges']:,} ({report['derived_edges']})", report["multi_parent"]]
    numbers = " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in (*cells, report["max_depth"]))
    assert f"| {row} | {numbers} |" in page


# ── Brick ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CLOSURES = {
    "Point": 959,
    "Sensor": 308,
    "Temperature_Sensor": 90,
    "Setpoint": 272,
    "Humidity_Sensor": 10,
    "Air_Temperature_Sensor": 20,
    "Equipment": 362,
}
"""Classes in the closure by `rdfs:subClassOf` and named `owl:equivalentClass`, as rdflib found them."""


@pytest.mark.parametrize("name", CLOSURES)
def test_brick_closure_as_walked_has_the_known_size(loaded: Loaded, name: str) -> None:
    """Names beneath a class, itself and all names of merged classes included."""
    vocabulary = loaded("Brick-1.5.ttl")
    top = concept(vocabulary, BRICK + name)
    assert sum(len(vocabulary.iris(each)) for each in (top, *vocabulary.descendants(top))) == CLOSURES[name]


def test_brick_as_loaded_agrees_with_a_second_parser(shared_data: Path) -> None:
    """rdflib reads the same file; every set is counted from its triples, and compared with what we keep.

    The README's 2,103 pairs include 9 that end at words of RDF, RDFS and SKOS, which are nobody's ancestors here, and
    not the 170 `skos:broader` between substances and quantities.
    """
    path = shared_data / "ontologies" / "Brick-1.5.ttl"
    ontology = read(path.read_bytes(), name=path.name)
    graph = Graph().parse(path)
    words = tuple(str(each) for each in (OWL, RDF, RDFS, SKOS))

    def pairs(predicate: URIRef) -> set[tuple[str, str]]:
        found = graph.subject_objects(predicate)
        return {(str(low), str(high)) for low, high in found if isinstance(low, URIRef) and isinstance(high, URIRef)}

    sub_classes = pairs(RDFS.subClassOf)
    kept = {(low, high) for low, high in sub_classes if not low.startswith(words) and not high.startswith(words)}
    assert ontology.triples == len(graph)
    assert len(sub_classes) == 2_103
    assert several_parents(sub_classes) == 251
    assert set(ontology.edges) == kept | pairs(SKOS.broader)
    declared = {str(each) for kind in (OWL.Class, RDFS.Class) for each in graph.subjects(RDF.type, kind)}
    assert {record.iri for record in ontology.concepts if record.kind == "class" and record.declared} == {
        iri for iri in declared if graph.value(URIRef(iri), RDF.type) is not None
    }
    assert len(declared) == 1_740
    equivalent = {frozenset(pair) for pair in pairs(OWL.equivalentClass)}
    assert len(equivalent) == 107  # stated in both directions: the README's 214
    assert equivalent <= {frozenset(pair) for pair in ontology.equivalences}
    deprecated = {str(each) for each in graph.subjects(OWL.deprecated)}
    assert len(deprecated) == 250
    known = {record.iri for record in ontology.concepts if record.deprecated}
    replaced = {str(each) for each in graph.subjects(URIRef(BRICK + "isReplacedBy"))}
    assert len(replaced) == 243
    assert known <= deprecated
    assert len(known) == 245  # the other five are no class, no thing of any kind, and lead nowhere
    assert replaced <= known


def test_brick_as_loaded_fetches_no_import(loaded: Loaded) -> None:
    """Five imports are listed and left alone."""
    assert len(loaded("Brick-1.5.ttl").report["unresolved_imports"]) == 5


def test_brick_deprecated_names_lead_to_their_replacements(loaded: Loaded) -> None:
    """Every one of them whose replacement is in the file, and to something that is alive."""
    vocabulary = loaded("Brick-1.5.ttl")
    count = 0
    for record in vocabulary.ontologies[0].concepts:
        if record.deprecated and any(vocabulary.concept(each) is not None for each in record.replaced_by):
            count += 1
            end = vocabulary.replacement(record.iri)
            assert end is not None, record.iri
            assert not vocabulary.summary(concept(vocabulary, end))["deprecated"]
    assert count > 200


def test_brick_name_of_a_class_and_its_tag_is_the_class(loaded: Loaded) -> None:
    """Brick has a tag, an individual, of nearly every class's name; "Point" names classes of two vocabularies, too."""
    vocabulary = loaded("Brick-1.5.ttl")
    matcher = Matcher(vocabulary)
    compiled = matcher.add("s", "type isa Sensor")
    assert compiled.canonical == f"type isa <{BRICK}Sensor>"
    assert [note.code for note in compiled.notes] == ["class-preferred"]
    assert matcher.match({"type": "Zone Air Temperature Sensor"})
    with pytest.raises(InvalidSubscription, match="as brick:Point or tag:Point or rec:Point"):
        matcher.compile("type isa Point")
    assert matcher.compile("type isa brick:Point").canonical == f"type isa <{BRICK}Point>"
    labels = {text for record in vocabulary.ontologies[0].concepts for text, _ in record.preferred}
    unsettled = [found for found in map(vocabulary.resolve, labels) if len(found.candidates) > 1]
    settled = [found for found in map(vocabulary.resolve, labels) if found.set_aside]
    assert len(settled) > 10 * len(unsettled)


def test_brick_instances_are_beneath_the_classes_of_brick(loaded: Loaded, shared_data: Path) -> None:
    """A building described in one file, the classes in another: together every point is a Point."""
    folder = shared_data / "ontologies"
    vocabulary = Vocabulary.from_files(folder / "Brick-1.5.ttl", folder / "brick-example-soda-hall.ttl")
    things = [iri for iri, _ in vocabulary.ontologies[1].types]
    sensors = [iri for iri in things if vocabulary.isa(concept(vocabulary, iri), concept(vocabulary, BRICK + "Sensor"))]
    assert len(things) == 1_695
    assert 100 < len(sensors) < len(things)


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.3", "1.4", "1.5"])
def test_brick_of_the_package_loads_everywhere(version: str) -> None:
    """Without the data as well: every version that the PyPI package brings, with its names in every spelling."""
    resource = importlib.resources.files("brickschema") / "ontologies" / version / "Brick.ttl"
    vocabulary = Vocabulary.from_bytes(resource.read_bytes(), format="turtle", name="Brick.ttl")
    namespace = dict(vocabulary.ontologies[0].prefixes)["brick"]  # 1.1 has its version in it
    expected = namespace + "Temperature_Sensor"
    for term in (
        expected,
        "brick:Temperature_Sensor",
        "Temperature_Sensor",
        "Temperature Sensor",
        "temperature  SENSOR",
    ):
        assert only(vocabulary, term) == expected
    lower, upper = (concept(vocabulary, namespace + name) for name in ("Zone_Air_Temperature_Sensor", "Point"))
    assert vocabulary.isa(lower, upper)
    assert not vocabulary.isa(upper, lower)
    chain = vocabulary.path(lower, upper)
    assert chain is not None
    assert [vocabulary.iri(each) for each in chain][-2:] == [namespace + "Sensor", namespace + "Point"]
    assert vocabulary.suggest("Temprature Sensr")[0]["iri"] == expected
    assert vocabulary.resolve("no such thing").candidates == ()


# ── labels in every language ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("one", "other"), [("Equal opportunity", "Равные возможности"), ("Oceanic cultures", "Культуры народов Океании")]
)
def test_unesco_label_in_russian_is_the_concept_of_the_english_one(loaded: Loaded, one: str, other: str) -> None:
    """In either case of letters as well."""
    vocabulary = loaded("unesco-thesaurus.ttl.gz")
    assert only(vocabulary, one) == only(vocabulary, other) == only(vocabulary, other.upper())


def test_unesco_every_russian_label_resolves_to_its_concept(loaded: Loaded) -> None:
    """All 4,373; three dozen concepts have none."""
    vocabulary = loaded("unesco-thesaurus.ttl.gz")
    count = 0
    for record in vocabulary.ontologies[0].concepts:
        for text, tag in record.preferred:
            if tag == "ru" and record.kind == "concept":
                count += 1
                assert concept(vocabulary, record.iri) in vocabulary.readings(text)
    assert count == 4_373


def test_unesco_label_of_two_concepts_is_ambiguous(loaded: Loaded) -> None:
    """Several concepts share a word in some language: both are candidates, and nobody chooses for the user.

    The README's 172 ambiguous labels are shared with concept groups nearly all; among concepts there are five.
    """
    vocabulary = loaded("unesco-thesaurus.ttl.gz")
    texts = {text for record in vocabulary.ontologies[0].concepts for text, _ in record.preferred}
    ambiguous = {text for text in texts if len(vocabulary.resolve(text).candidates) > 1}
    assert len(ambiguous) == 5
    assert "Sol" in ambiguous  # the sun and the soil, in Spanish and French


@pytest.mark.parametrize(
    ("portuguese", "name"), [("CoberturaDeQueijo", "CheeseTopping"), ("PizzaVegetariana", "VegetarianPizza")]
)
def test_pizza_label_in_portuguese_is_the_class_of_the_english_name(loaded: Loaded, portuguese: str, name: str) -> None:
    """Labels are Portuguese, names English; both mean the class."""
    vocabulary = loaded("pizza.owl")
    assert only(vocabulary, portuguese) == only(vocabulary, name)
    assert only(vocabulary, name).endswith("#" + name)


@pytest.mark.parametrize("term", ["T cell", "CL:0000084", "CL_0000084", "T-lymphocyte", "t CELL", OBO + "CL_0000084"])
def test_cl_term_in_every_spelling_is_the_t_cell(loaded: Loaded, term: str) -> None:
    """Label, both short forms, exact synonym, folded, IRI."""
    assert only(loaded("cl-blood-and-immune.owl.gz"), term) == OBO + "CL_0000084"


def test_cl_broad_and_related_synonyms_only_suggest(loaded: Loaded) -> None:
    """As true synonyms they would match what nobody meant."""
    vocabulary = loaded("cl-blood-and-immune.owl.gz")
    ontology = vocabulary.ontologies[0]
    exact = {text for record in ontology.concepts for text, _ in (*record.preferred, *record.synonyms)}
    loose = [
        (text, record) for record in ontology.concepts for text, _ in record.hidden if not vocabulary.readings(text)
    ]
    assert len(loose) > 100
    text, record = next(pair for pair in loose if pair[0] not in exact and len(pair[0]) > 12)
    assert record.iri in {each["iri"] for each in vocabulary.suggest(text, limit=10)}


# ── second opinions ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_pizza_hierarchy_agrees_with_owlready2(shared_data: Path) -> None:
    """Another library, other code: the stated pairs and the conjuncts of definitions."""
    path = shared_data / "ontologies" / "pizza.owl"
    with path.open("rb") as file:
        pizza = owlready2.World().get_ontology("http://example.org/pizza.owl").load(fileobj=file)
    named = owlready2.ThingClass
    pairs = {
        (each.iri, upper.iri)
        for each in pizza.classes()
        for upper in each.is_a
        if isinstance(upper, named) and upper is not owlready2.Thing
    }
    conjuncts = {
        (each.iri, upper.iri)
        for each in pizza.classes()
        for expression in each.equivalent_to
        if isinstance(expression, owlready2.And)
        for upper in expression.Classes
        if isinstance(upper, named)
    }
    ontology = read(path.read_bytes(), name="pizza.owl")
    assert stated(ontology) == pairs
    assert set(ontology.edges) == pairs | conjuncts


@pytest.mark.parametrize(
    ("name", "format"), [("pizza.owl", "xml"), ("hcrt.ttl", "turtle"), ("brick-example-soda-hall.ttl", "turtle")]
)
def test_ontology_as_parsed_has_the_triples_of_a_second_parser(shared_data: Path, name: str, format: str) -> None:
    """rdflib as a witness: the same number of triples, and the same records when it writes them anew."""
    data = (shared_data / "ontologies" / name).read_bytes()
    graph = Graph().parse(data=data, format=format)
    ontology = read(data, name=name)
    again = read(graph.serialize(format="nt", encoding="utf-8"), format="n-triples")
    assert ontology.triples == len(graph)
    assert (ontology.concepts, ontology.edges, ontology.types, ontology.properties) == (
        again.concepts,
        again.edges,
        again.types,
        again.properties,
    )


def test_ontology_packed_is_the_ontology(shared_data: Path) -> None:
    """Gzip changes the digest and nothing else."""
    data = (shared_data / "ontologies" / "hcrt.ttl").read_bytes()
    plain, packed = read(data, name="hcrt.ttl"), read(gzip.compress(data), name="hcrt.ttl.gz")
    assert (plain.concepts, plain.edges, plain.languages) == (packed.concepts, packed.edges, packed.languages)


@pytest.mark.slow
def test_read_isolated_reads_the_real_ontologies(shared_data: Path) -> None:
    """Real documents reach corners of the parsers that small ones do not; nothing is missing there either."""
    paths = sorted(
        path
        for path in (shared_data / "ontologies").rglob("*")
        if path.name.removesuffix(".gz").rpartition(".")[2] in ("ttl", "owl", "obo", "rdf")
    )
    assert paths
    for path in paths:
        costs: list[Cost] = []
        found = read_isolated(path.read_bytes(), name=path.name, account=costs.append)
        assert found == read(path.read_bytes(), name=path.name), path.name
        assert costs[0].refused == (), path.name
