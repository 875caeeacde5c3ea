"""`reason="owl"`: HermiT in a process of its own finds what a reasoner of OWL 2 DL must find, within its limits."""

import os
import threading
import time
from pathlib import Path

import pyoxigraph
import pytest

from kindcast import Vocabulary
from kindcast.semantic.errors import InconsistentOntology, OntologyError, ReasonerUnavailable, TooCostly
from kindcast.semantic.ontology import Ontology, read, reasoning
from kindcast.semantic.ontology.isolation import Cancelled, Cost
from kindcast.semantic.ontology.loader import read_isolated
from kindcast.semantic.ontology.reasoning import Reasoner
from tests.harness.hard_ontology import HARD

pytestmark = pytest.mark.slow

PREFIXES = """
@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""

# Reasoned by hand.
WINE_FINDS = """
    Wine < Described, Wine < MadeOfGrapes, Wine < Coloured, Coloured = Wine, Coloured < Described,
    DryWine = TableWine, Merlot < RedWine, Riesling < WhiteWine, Medoc < RedWine, Medoc < DryWine, Medoc < Bordeaux,
    Bordeaux < FrenchWine, DessertWine < NotDry, Port < OnlySweet, OnlySweet < NotDry, Veteran < Old,
    bottle1 < Medoc, bottle2 < WhiteWine, bottle2 < Old
"""
GALEN_FINDS = """
    Heart < BodyPart, HeartWall < CardiacPart, Endocardium < CardiacPart, CardiacPart < BodyPart, Stomach < BodyPart,
    GastricMucosa < BodyPart, System < BodyPart, Caused < Phenomenon, Inflammation < TissueMatter,
    Endocarditis < HeartDisease, HeartDisease < CardiovascularDisease, HeartDisease < ToTreat,
    Gastritis = StomachInflammation, Gastritis < DigestiveDisease,
    ViralEndocarditis < ViralHeartDisease, ViralHeartDisease < CausedDisease
"""
GALEN_NOT = (
    "Gastritis < HeartDisease, Endocarditis < CausedDisease, Endocardium < Heart, CardiovascularDisease < HeartDisease"
)

FOLDER = Path(__file__).parent.parent / "golden" / "ontologies"
WINE = (FOLDER / "wine.ttl").read_text(encoding="utf-8")
GALEN = (FOLDER / "galen.ttl").read_text(encoding="utf-8")


def turtle(text: str) -> bytes:
    return (PREFIXES + text).encode()


def reasoned(text: str, **reasoner: object) -> Ontology:
    return read(turtle(text), format="turtle", reason="owl", reasoner=Reasoner(**reasoner))  # type: ignore[arg-type]


def holds(words: Vocabulary, claim: str) -> bool:
    """Whether `A < B` or `A = B` holds."""
    low, relation, high = claim.split()
    one, other = words.concept(f"http://e/{low}"), words.concept(f"http://e/{high}")
    assert one is not None, low
    assert other is not None, high
    return one == other if relation == "=" else words.isa(one, other)


def claims(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


@pytest.fixture(scope="module")
def wine() -> Ontology:
    return reasoned(WINE)


@pytest.fixture(scope="module")
def galen() -> Ontology:
    return reasoned(GALEN)


# ── what it finds ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_wine_is_classified_as_a_description_logic_demands(wine: Ontology) -> None:
    """Values, functional and transitive properties, enumerations, complements, facets, cardinalities."""
    words = Vocabulary.from_ontologies([wine])
    assert [each for each in claims(WINE_FINDS) if not holds(words, each)] == []
    assert wine.unsatisfiable == ("http://e/Impossible", "http://e/Mixture")


def test_galen_is_classified_as_a_description_logic_demands(galen: Ontology) -> None:
    """Nested existentials, conjunctive definitions, a transitive property, a chain of properties, domains; no more."""
    words = Vocabulary.from_ontologies([galen])
    assert [each for each in claims(GALEN_FINDS) if not holds(words, each)] == []
    assert [each for each in claims(GALEN_NOT) if holds(words, each)] == []


@pytest.mark.parametrize(("text", "found"), [(WINE, WINE_FINDS), (GALEN, GALEN_FINDS)])
def test_structure_alone_finds_little_of_it(text: str, found: str) -> None:
    """What needs a reasoner is not guessed."""
    words = Vocabulary.from_bytes(turtle(text), format="turtle")
    assert [each for each in claims(found) if holds(words, each)] == []


def test_what_was_added_is_told_from_what_was_stated(wine: Ontology) -> None:
    """Pairs that walking upwards gives anyway are no news; what is new stands among the records, marked."""
    plain = read(turtle(WINE), format="turtle")
    assert set(plain.edges) <= set(wine.edges)
    assert set(plain.types) <= set(wine.types)
    added = (set(wine.edges) - set(plain.edges)) | (set(wine.types) - set(plain.types))
    assert wine.inferred == added | (set(wine.equivalences) - set(plain.equivalences))
    assert ("http://e/Merlot", "http://e/RedWine") in wine.inferred
    assert ("http://e/Port", "http://e/RedWine") not in wine.inferred
    assert ("http://e/Port", "http://e/Wine") not in wine.edges
    assert (wine.reason, plain.reason, plain.inferred, plain.unsatisfiable) == ("owl", "none", frozenset(), ())


def test_unsatisfiable_classes_are_reported_and_beneath_nothing_new(wine: Ontology) -> None:
    """Everything is above what cannot be; whoever subscribes to water still does not want to hear of red wine."""
    words = Vocabulary.from_ontologies([wine])
    assert holds(words, "Impossible < RedWine")
    assert not holds(words, "Impossible < Water")
    assert words.concept("http://e/Impossible") != words.concept("http://e/Mixture")
    assert words.report["unsatisfiable"] == ["http://e/Impossible", "http://e/Mixture"]
    assert words.report["inferred"] == len(wine.inferred)
    assert any(
        "which can have no members: http://e/Impossible, http://e/Mixture" in each for each in words.report["warnings"]
    )


def test_whole_process_isolated_gives_the_same(wine: Ontology) -> None:
    """Reading in one child and reasoning in another is what a server does; neither tries what is refused to it."""
    costs: list[Cost] = []
    assert read_isolated(turtle(WINE), format="turtle", reason="owl", account=costs.append) == wine
    assert [each.refused for each in costs] == [(), ()]


def test_same_axioms_in_another_order_give_the_same_records(wine: Ontology) -> None:
    """The reasoner is free in which of two equivalent names it names; we are not."""
    triples = sorted((q.triple for q in pyoxigraph.parse(turtle(WINE), pyoxigraph.RdfFormat.TURTLE)), key=str)
    for order in (triples, triples[::-1]):
        document = pyoxigraph.serialize(order, format=pyoxigraph.RdfFormat.N_TRIPLES)
        assert document is not None
        again = read(document, format="nt", reason="owl")
        assert (again.edges, again.types, again.equivalences) == (wine.edges, wine.types, wine.equivalences)
        assert again.inferred == wine.inferred


def test_pizza_gives_the_inferences_that_everybody_knows(shared_data: Path) -> None:
    """The tutorial's ontology: what is vegetarian, spicy, interesting, and the two classes that cannot be."""
    ontology = read((shared_data / "ontologies/pizza.owl").read_bytes(), name="pizza.owl", reason="owl")
    words = Vocabulary.from_ontologies([ontology])
    pizza = "http://www.co-ode.org/ontologies/pizza/pizza.owl#"

    def beneath(low: str, high: str) -> bool:
        one, other = words.concept(pizza + low), words.concept(pizza + high)
        assert one is not None
        assert other is not None
        return words.isa(one, other)

    for low, high in (
        ("Margherita", "VegetarianPizza"),
        ("Margherita", "CheeseyPizza"),
        ("American", "MeatyPizza"),
        ("AmericanHot", "SpicyPizza"),
        ("AmericanHot", "SpicyPizzaEquivalent"),
        ("Cajun", "NonVegetarianPizza"),
        ("FourSeasons", "InterestingPizza"),
        ("CajunSpiceTopping", "SpicyTopping"),
        ("CheeseTopping", "VegetarianTopping"),
    ):
        assert beneath(low, high), (low, high)
    assert not beneath("American", "VegetarianPizza")
    assert not beneath("Margherita", "MeatyPizza")
    assert ontology.unsatisfiable == (pizza + "CheeseyVegetableTopping", pizza + "IceCream")
    assert len(ontology.inferred) > 50


# ── what documents are like ─────────────────────────────────────────────────────────────────────────────────────────


FUNCTIONAL = """
Prefix(:=<http://e/>) Prefix(owl:=<http://www.w3.org/2002/07/owl#>)
Ontology(<http://e/>
Declaration(Class(:A)) Declaration(Class(:B)) Declaration(Class(:C)) Declaration(ObjectProperty(:p))
EquivalentClasses(:A ObjectSomeValuesFrom(:p :C))
SubClassOf(:B ObjectSomeValuesFrom(:p ObjectIntersectionOf(:C ObjectHasSelf(:p)))))
"""
OWL_XML = """<?xml version="1.0"?>
<Ontology xmlns="http://www.w3.org/2002/07/owl#" xml:base="http://e/" ontologyIRI="http://e/">
<Declaration><Class IRI="A"/></Declaration><Declaration><Class IRI="B"/></Declaration>
<Declaration><Class IRI="C"/></Declaration><Declaration><ObjectProperty IRI="p"/></Declaration>
<EquivalentClasses><Class IRI="A"/>
<ObjectSomeValuesFrom><ObjectProperty IRI="p"/><Class IRI="C"/></ObjectSomeValuesFrom></EquivalentClasses>
<SubClassOf><Class IRI="B"/>
<ObjectSomeValuesFrom><ObjectProperty IRI="p"/><Class IRI="C"/></ObjectSomeValuesFrom></SubClassOf>
</Ontology>
"""
OBO = """format-version: 1.4

[Term]
id: X:A
intersection_of: X:G
intersection_of: part_of X:C

[Term]
id: X:B
is_a: X:G
relationship: part_of X:D

[Term]
id: X:D
is_a: X:C

[Typedef]
id: part_of
"""


@pytest.mark.parametrize(("text", "syntax"), [(FUNCTIONAL, "ofn"), (OWL_XML, "owx"), (OBO, "obo")])
def test_every_syntax_of_axioms_reaches_the_reasoner(text: str, syntax: str) -> None:
    """Functional syntax, OWL/XML and OBO become the same triples as their twins in RDF."""
    ontology = read(text.encode(), format=syntax, reason="owl")
    assert [(low[-1], high[-1]) for low, high in ontology.inferred] == [("B", "A")]


def test_undeclared_names_are_declared_by_their_use() -> None:
    """An ontology whose imports are not there: what it says about properties that nobody declares still counts."""
    ontology = reasoned(
        """:A owl:equivalentClass [ owl:onProperty :p ; owl:someValuesFrom :B ] .
        :C rdfs:subClassOf [ owl:onProperty :p ; owl:someValuesFrom :D ] . :D rdfs:subClassOf :B .
        :Adult owl:equivalentClass [ owl:onProperty :age ; owl:someValuesFrom [ a rdfs:Datatype ;
            owl:onDatatype xsd:integer ; owl:withRestrictions ( [ xsd:minInclusive 18 ] ) ] ] .
        :x :age 30 . :x :p [ a :D ] . :y a :Person ; :age 7 .
        :z a [ owl:intersectionOf ( :C [ owl:onProperty :age ; owl:hasValue 99 ] ) ] .
        :q rdfs:domain [ owl:unionOf ( :E :F ) ] . :E rdfs:subClassOf :G . :F rdfs:subClassOf :G .
        :w :q :x . :r owl:propertyChainAxiom ( :s :t ) ; rdfs:domain :H . :u :s :v . :v :t :x ."""
    )
    short = {" ".join(name.removeprefix("http://e/") for name in pair) for pair in ontology.inferred}
    assert short == {"C A", "x Adult", "x A", "z Adult", "w G", "u H"}
    kinds = {each.iri.removeprefix("http://e/"): (each.kind, each.declared) for each in ontology.concepts}
    assert kinds["x"] == ("individual", False)


def test_class_that_is_everything_is_above_every_class() -> None:
    """`owl:Thing` is not a concept, but a name for it is one."""
    ontology = reasoned(
        """:Any a owl:Class ; owl:equivalentClass owl:Thing . :A a owl:Class . :B a owl:Class ; rdfs:subClassOf :A .
        :Either a owl:Class ; owl:equivalentClass [ owl:unionOf ( :A [ owl:complementOf :A ] ) ] .
        :x a owl:NamedIndividual . :No a owl:Class ; rdfs:subClassOf owl:Nothing ."""
    )
    words = Vocabulary.from_ontologies([ontology])
    assert all(holds(words, each) for each in claims("A < Any, B < Any, Any = Either, x < Any"))
    assert not holds(words, "No < Any")


def test_plain_rdf_schema_can_be_classified() -> None:
    """Classes of RDFS and plain properties are told to be what OWL calls them."""
    ontology = reasoned(
        """:A a rdfs:Class ; owl:equivalentClass [ a owl:Restriction ; owl:onProperty :p ; owl:someValuesFrom :B ] .
        :B a rdfs:Class . :p a rdf:Property ; rdfs:domain :D . :q a rdf:Property ; rdfs:subPropertyOf :p .
        :C a rdfs:Class ; rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :q ; owl:someValuesFrom :B ] ."""
    )
    assert ("http://e/C", "http://e/A") in ontology.inferred
    assert ("http://e/A", "http://e/D") in ontology.inferred


def test_names_and_texts_of_every_kind_come_back_as_they_went() -> None:
    """Letters of all scripts, brackets and spaces in texts, long names, words of other people's annotations."""
    strange = "http://e/größe/漢字?x=(1)&y='2';z#é𐐀"
    ontology = reasoned(
        f"""<{strange}> a owl:Class ; rdfs:label "« > ) \\" \\\\ « 𐐀"@de-AT ; owl:equivalentClass
            [ a owl:Restriction ; owl:onProperty :name ; owl:hasValue "a\\"b\\\\ü𐐀\\n> )" ] .
        :name a owl:DatatypeProperty . :note a owl:AnnotationProperty ; rdfs:domain :A . :A a owl:Class ; :note "x" .
        :x :name "a\\"b\\\\ü𐐀\\n> )" . :y :name "a" . [] a owl:Axiom ; owl:annotatedSource :A ; :note "y" ."""
    )
    assert ontology.inferred == {("http://e/x", strange)}


def test_values_that_a_reasoner_does_not_know_are_left_out_with_a_warning() -> None:
    """xsd:date is no datatype of OWL 2: two dates must not become one."""
    ontology = reasoned(
        """:p a owl:DatatypeProperty . :x :p "2020-01-01"^^xsd:date .
        :A a owl:Class ; owl:equivalentClass
            [ a owl:Restriction ; owl:onProperty :p ; owl:hasValue "2020-01-01"^^xsd:date ] .
        :B a owl:Class ; owl:equivalentClass
            [ a owl:Restriction ; owl:onProperty :p ; owl:hasValue "2021-01-01"^^xsd:date ] ."""
    )
    assert ontology.inferred == frozenset()
    assert any("does not support values of http://www.w3.org/2001/XMLSchema#date" in each for each in ontology.warnings)


def test_skos_and_owl_live_in_one_document() -> None:
    """What is SKOS stays as it is; what is OWL is classified."""
    ontology = reasoned(
        """:C1 a skos:Concept ; skos:prefLabel "one" ; skos:broader :C2 . :S skos:hasTopConcept :C2 .
        :A a owl:Class ; owl:equivalentClass [ a owl:Restriction ; owl:onProperty :p ; owl:someValuesFrom owl:Thing ] .
        :B a owl:Class ; rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :p ; owl:someValuesFrom :A ] ."""
    )
    assert ontology.inferred == {("http://e/B", "http://e/A")}
    assert ("http://e/C1", "http://e/C2") in ontology.edges


# ── what it refuses ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_inconsistent_ontology_is_refused() -> None:
    """Everything follows from a contradiction; without a reasoner nobody notices, and the document loads."""
    text = ":A a owl:Class ; owl:disjointWith :B . :B a owl:Class . :x a :A , :B ."
    assert len(read(turtle(text), format="turtle", reason="rdfs").types) == 2
    with pytest.raises(InconsistentOntology, match="axioms contradict each other"):
        reasoned(text)


def test_ontology_beyond_owl_dl_is_refused_with_its_own_names() -> None:
    """OWL 2 DL counts no transitive properties; the error says which property, by its name in the document."""
    with pytest.raises(OntologyError, match=r"HermiT reports .*http://e/near"):
        reasoned(
            """:near a owl:ObjectProperty , owl:TransitiveProperty . :A a owl:Class ; rdfs:subClassOf
            [ a owl:Restriction ; owl:onProperty :near ; owl:maxCardinality "1"^^xsd:nonNegativeInteger ] ."""
        )


def test_missing_java_is_said_and_hinders_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the highest level needs it; the error says what to install."""
    with pytest.raises(ReasonerUnavailable, match=r"needs a Java runtime.*at /no/such/java.*apt-get install"):
        reasoned(WINE, java="/no/such/java")
    monkeypatch.setenv("PATH", "/no/such/folder")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ReasonerUnavailable, match="none on PATH nor under JAVA_HOME"):
        reasoned(WINE)
    assert read(turtle(WINE), format="turtle", reason="rdfs").reason == "rdfs"


def test_too_many_axioms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Java is started."""
    monkeypatch.setattr(reasoning, "MOST", 20)
    with pytest.raises(OntologyError, match="more than 20 triples for the reasoner"):
        reasoned(WINE)


def test_reasoning_without_end_is_stopped_with_all_that_it_started() -> None:
    """The wall clock ends it; Java is gone as well, and so is the scratch folder."""
    with pytest.raises(TooCostly, match="longer than 3 seconds") as caught:
        reasoned(HARD, seconds=3.0, heap_bytes=331 << 20)
    assert caught.value.limit == "wall"
    assert processes_that_reason(heap=331) == []


def test_reasoning_that_nobody_wants_any_more_is_stopped() -> None:
    """A server that stops takes its reasoners with it."""
    told: list[str] = []
    enough = threading.Event()

    def progress(stage: str, done: int, total: int | None) -> None:
        told.append(stage)
        if told.count("encode") == 1 and stage == "reason":  # the first child is done, the second has begun
            enough.set()

    with pytest.raises(Cancelled):
        read_isolated(
            turtle(HARD),
            format="turtle",
            reason="owl",
            reasoner=Reasoner(heap_bytes=332 << 20),
            progress=progress,
            cancelled=enough,
        )
    assert processes_that_reason(heap=332) == []


def test_reasoning_without_room_is_stopped() -> None:
    """The heap of Java is bounded, and the error says so."""
    with pytest.raises(TooCostly, match="more than 24 MiB of Java heap") as caught:
        reasoned(HARD, heap_bytes=24 << 20, seconds=120.0)
    assert caught.value.limit == "memory"
    assert processes_that_reason(heap=24) == []


def processes_that_reason(heap: int) -> list[str]:
    """Command lines of HermiT with so many MiB of heap, by which each test knows its own, once those that end have
    ended."""
    deadline = time.monotonic() + 10
    while True:
        found = [
            line for line in map(command_line, os.listdir("/proc")) if "HermiT.cli" in line and f"-Xmx{heap}m" in line
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def command_line(process: str) -> str:
    try:
        return Path("/proc", process, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
