"""Terms resolve by level, the first level with a hit decides: docs/matching-semantics.md, rule 12."""

import pytest

from kindcast.semantic.ontology.namespaces import local_name
from kindcast.semantic.vocabulary.labels import folded
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

PREFIXES = """
@prefix : <http://e/> .
@prefix e: <http://e/> .
@prefix f: <http://f#> .
@prefix obo: <http://purl.obolibrary.org/obo/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix dcterms: <http://purl.org/dc/terms/> .
"""


def loaded(turtle: str) -> Vocabulary:
    return Vocabulary.from_bytes((PREFIXES + turtle).encode(), format="turtle")


def resolved(vocabulary: Vocabulary, term: str, **how: bool) -> tuple[str | None, list[str]]:
    found = vocabulary.resolve(term, **how)  # type: ignore[arg-type]
    return found.level, [vocabulary.iri(each).removeprefix("http://e/") for each in found.candidates]


@pytest.mark.parametrize(
    ("term", "level", "expected"),
    [
        ("http://e/Laptop", "iri", ["Laptop"]),
        ("e:Laptop", "short", ["Laptop"]),
        (":Laptop", "short", ["Laptop"]),
        ("Laptop", "short", ["Laptop"]),
        ("obo:CL_0000084", "short", ["http://purl.obolibrary.org/obo/CL_0000084"]),
        ("CL_0000084", "short", ["http://purl.obolibrary.org/obo/CL_0000084"]),
        ("CL:0000084", "short", ["http://purl.obolibrary.org/obo/CL_0000084"]),
        ("Portable PC", "label", ["Laptop"]),
        ("Tragbarer Rechner", "label", ["Laptop"]),
        ("portable pc", "folded", ["Laptop"]),
        ("  PORTABLE\t PC ", "folded", ["Laptop"]),
        ("notebook", "synonym", ["Laptop"]),
        ("NoteBook", "synonym", ["Laptop"]),
        ("T-Zelle", "label", ["http://purl.obolibrary.org/obo/CL_0000084"]),
        ("labtop", None, []),
        ("x:Laptop", None, []),
        ("laptop", None, []),
        ("", None, []),
        (" ", None, []),
    ],
)
def test_resolve_finds_a_name_on_its_level(term: str, level: str | None, expected: list[str]) -> None:
    """IRI, CURIE, short form, label, folded label, synonym; no hidden label, no local name in other case."""
    vocabulary = loaded(
        """:Laptop a owl:Class ; rdfs:label "Portable PC"@en , "Tragbarer Rechner"@de ; skos:altLabel "Notebook" ;
        skos:hiddenLabel "labtop" . obo:CL_0000084 a owl:Class ; rdfs:label "T cell"@en , "T-Zelle"@de ."""
    )
    assert resolved(vocabulary, term) == (level, expected)


def test_resolve_takes_the_first_level_that_hits() -> None:
    """A local name before labels, exact case before folded, preferred before synonyms: no level adds to another."""
    vocabulary = loaded(
        """:Bank a owl:Class . :A a owl:Class ; rdfs:label "Bank" .
        :B a owl:Class ; rdfs:label "bench" ; skos:altLabel "SEAT" . :C a owl:Class ; rdfs:label "BENCH" .
        :D a owl:Class ; rdfs:label "seat" ."""
    )
    assert resolved(vocabulary, "Bank") == ("short", ["Bank"])
    assert resolved(vocabulary, "bank") == ("folded", ["A"])
    assert resolved(vocabulary, "bench") == ("label", ["B"])
    assert resolved(vocabulary, "Bench") == ("folded", ["B", "C"])
    assert resolved(vocabulary, "Seat") == ("folded", ["D"])


def test_resolve_of_an_iri_only_is_satisfied_by_iris() -> None:
    """What stands in `<…>` is never a label."""
    vocabulary = loaded(':Laptop a owl:Class ; rdfs:label "http://e/x" .')
    assert resolved(vocabulary, "Laptop", is_iri=True) == (None, [])
    assert resolved(vocabulary, "http://e/x", is_iri=True) == (None, [])
    assert resolved(vocabulary, "http://e/x") == ("label", ["Laptop"])


def test_resolve_of_a_local_name_that_two_concepts_have_falls_through() -> None:
    """Only a unique local name is a short form; labels may still decide. Equivalent names are one concept."""
    vocabulary = loaded(
        """:Point a owl:Class ; rdfs:label "Messpunkt" . f:Point a owl:Class ; rdfs:label "Point" .
        :Room a owl:Class ; owl:equivalentClass f:Room . :Zone a owl:Class . f:Zone a owl:Class ."""
    )
    assert resolved(vocabulary, "Point") == ("label", ["http://f#Point"])
    assert resolved(vocabulary, "f:Point") == ("short", ["http://f#Point"])
    assert resolved(vocabulary, "Room")[1] == ["Room"]
    assert resolved(vocabulary, "Zone") == (None, [])


def test_resolve_of_several_hits_is_ambiguous_unless_the_range_leaves_one() -> None:
    """`within` keeps what is at or beneath it, when that is exactly one."""
    vocabulary = loaded(
        """:Mercury1 rdfs:subClassOf :Planet ; rdfs:label "Mercury" .
        :Mercury2 rdfs:subClassOf :Metal ; rdfs:label "Mercury" .
        :Metal rdfs:subClassOf :Thing . :Planet rdfs:subClassOf :Thing . :Other a owl:Class ."""
    )
    concept = {name: vocabulary.concept(f"http://e/{name}") for name in ("Planet", "Metal", "Thing", "Other")}
    planet, metal, thing, other = (each for each in concept.values() if each is not None)
    both = vocabulary.resolve("mercury").candidates
    assert len(both) == 2
    assert vocabulary.resolve("mercury", within=[planet]).candidates == (vocabulary.concept("http://e/Mercury1"),)
    assert vocabulary.resolve("mercury", within=[other, metal]).candidates == (vocabulary.concept("http://e/Mercury2"),)
    assert vocabulary.resolve("mercury", within=[thing]).candidates == both
    assert vocabulary.resolve("mercury", within=[other]).candidates == both
    assert vocabulary.resolve("Planet", within=[other]).candidates == (planet,)


def test_resolve_of_a_deprecated_name_gives_its_replacement() -> None:
    """On every level, through chains, written as IRI or as short form; the reply says what was replaced."""
    vocabulary = loaded(
        """:Pda a owl:Class ; rdfs:label "handheld" ; owl:deprecated true ; dcterms:isReplacedBy :Palm .
        :Palm a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy "Smart_phone" . :Smart_phone a owl:Class ."""
    )
    phone = vocabulary.concept("http://e/Smart_phone")
    for term in ("http://e/Pda", "e:Pda", "handheld", "Handheld"):
        found = vocabulary.resolve(term)
        assert found.candidates == (phone,)
        assert found.replaced == (("http://e/Pda", "http://e/Smart_phone"),)
    assert vocabulary.replacement("http://e/Pda") == "http://e/Smart_phone"
    assert vocabulary.replacement("http://e/Smart_phone") is None


@pytest.mark.parametrize(
    ("turtle", "candidates", "replaced"),
    [
        (":A a owl:Class ; owl:deprecated true .", ["A"], []),
        (":A a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :Gone .", ["A"], []),
        (":A a owl:Class ; dcterms:isReplacedBy :B . :B a owl:Class .", ["A"], []),
        (":A a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :A .", ["A"], []),
        (
            ":A a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :B, :C . :B a owl:Class . :C a owl:Class .",
            ["B", "C"],
            ["B", "C"],
        ),
        (":A owl:deprecated true ; dcterms:isReplacedBy :B . :B a owl:Class .", ["B"], ["B"]),
        (
            ":A a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :B ; owl:equivalentClass :B . :B a :Class .",
            ["B"],
            ["B"],
        ),
    ],
)
def test_resolve_of_a_deprecated_name_in_odd_cases(turtle: str, candidates: list[str], replaced: list[str]) -> None:
    """No successor, an unknown one, itself, two, only an address left, an equivalent: never lost, never a circle."""
    vocabulary = loaded(turtle)
    found = vocabulary.resolve("http://e/A")
    assert [local_name(vocabulary.iri(each)) for each in found.candidates] == candidates
    assert [local_name(new) for _, new in found.replaced] == replaced
    expected = f"http://e/{replaced[0]}" if len(replaced) == 1 else None
    assert vocabulary.replacement("http://e/A") == expected


def test_resolve_of_successors_in_a_circle_stays() -> None:
    """Two names that each replace the other: neither is a replacement."""
    vocabulary = loaded(
        """:A a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :B .
        :B a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :A ."""
    )
    assert resolved(vocabulary, "http://e/A") == ("iri", ["A"])
    assert vocabulary.replacement("http://e/A") is None


@pytest.mark.parametrize(
    "term", ["\ud800", "a\x00b", "x" * 100_000, "<http://e/a>", "e:", ":", "::", "http://e/a b", "%00"]
)
def test_resolve_of_odd_strings_finds_nothing_and_does_not_fail(term: str) -> None:
    """Events carry anything: lone surrogates, NUL, whole texts."""
    vocabulary = loaded(":A a owl:Class .")
    assert vocabulary.resolve(term).candidates == ()
    assert vocabulary.readings(term) == ()
    assert isinstance(vocabulary.suggest(term), tuple)


def test_resolve_of_labels_in_other_normal_forms_is_the_same() -> None:
    """é as one character or as two, on either side."""
    vocabulary = loaded(':A a owl:Class ; rdfs:label "cafe\\u0301" . :B a owl:Class ; rdfs:label "na\\u00efve" .')
    assert resolved(vocabulary, "caf\u00e9") == ("label", ["A"])
    assert resolved(vocabulary, "nai\u0308ve") == ("label", ["B"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"),
        ("ﬁle", "FILE"),
        ("①", "1"),
        ("Kelvin", "\u212aelvin"),
        ("a\u00a0 b", "A B"),
        ("İ", "i\u0307"),
    ],
)
def test_folded_forgives_case_compatibility_and_white_space(one: str, other: str) -> None:
    """NFKC, case, white space: nothing else, and twice is once."""
    assert folded(one) == folded(other)
    assert folded(folded(one)) == folded(one)
    assert folded("résumé") != folded("resume")


@pytest.mark.parametrize(
    ("iri", "name"),
    [
        ("http://e/a/b#C", "C"),
        ("http://e/a/b", "b"),
        ("http://e/a/b/", "b"),
        ("http://e/a/b#", "b"),
        ("urn:isbn:12", "12"),
        ("http://e/a#b/c", "c"),
        ("", ""),
        ("/#", ""),
    ],
)
def test_local_name_is_what_follows_the_last_separator(iri: str, name: str) -> None:
    """Hash, slash, colon; closing ones do not count."""
    assert local_name(iri) == name
