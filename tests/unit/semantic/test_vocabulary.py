"""The frozen bundle: made of files, bytes and records; versions; labels by language; browsing; search; the report."""

import json
import pickle
import tracemalloc
from pathlib import Path

import pytest

from kindcast import Matcher
from kindcast.index.clause import ConceptId
from kindcast.semantic.changes.impact import Impact, differing_values
from kindcast.semantic.errors import InvalidDeclaration, OntologyError
from kindcast.semantic.ontology import ConceptRecord, Ontology, read, read_several
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

PREFIXES = """
@prefix : <http://e/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix dcterms: <http://purl.org/dc/terms/> .
"""
SHOP = """
:Computer a owl:Class ; rdfs:label "computer"@en , "Rechner"@de .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop"@en , "Notebook"@de ; skos:altLabel "portable"@en ;
    skos:hiddenLabel "labtop" ; rdfs:comment "To carry."@en .
:Desktop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "desktop computer"@en .
:mine a :Laptop .
:price a owl:DatatypeProperty ; rdfs:label "Preis"@de .
"""


def source(turtle: str) -> bytes:
    return (PREFIXES + turtle).encode()


def loaded(turtle: str = SHOP) -> Vocabulary:
    return Vocabulary.from_bytes(source(turtle), format="turtle", name="shop")


def concept(vocabulary: Vocabulary, name: str) -> ConceptId:
    found = vocabulary.concept(f"http://e/{name}")
    assert found is not None
    return found


def named(vocabulary: Vocabulary, concepts: tuple[ConceptId, ...] | None) -> list[str]:
    return [vocabulary.iri(each).removeprefix("http://e/") for each in concepts or ()]


# ── where it comes from ─────────────────────────────────────────────────────────────────────────────────────────────


def test_vocabulary_of_files_is_the_union(tmp_path: Path) -> None:
    """Several files make one vocabulary; a mapping file merges what the others call by different names."""
    (tmp_path / "shop.ttl").write_bytes(source(":Laptop rdfs:subClassOf :Computer ."))
    (tmp_path / "other.nt").write_text(
        "<http://o/Ultrabook> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://o/PC> ."
    )
    (tmp_path / "mapping.ttl").write_bytes(source("<http://o/PC> skos:exactMatch :Computer ."))
    vocabulary = Vocabulary.from_files(*(tmp_path / name for name in ("shop.ttl", "other.nt", "mapping.ttl")))
    ultrabook = vocabulary.concept("http://o/Ultrabook")
    assert ultrabook is not None
    assert vocabulary.isa(ultrabook, concept(vocabulary, "Computer"))
    assert vocabulary.report["merged_across"] == [["http://e/Computer", "http://o/PC"]]
    assert [each.name for each in vocabulary.ontologies] == ["shop.ttl", "other.nt", "mapping.ttl"]


def test_vocabulary_of_nothing_is_legal() -> None:
    """A server starts before anything is uploaded."""
    vocabulary = Vocabulary.from_ontologies([])
    assert len(vocabulary) == 0
    assert vocabulary.readings("laptop") == ()
    assert vocabulary.suggest("laptop") == ()
    assert vocabulary.search("laptop") == []
    assert vocabulary.report["concepts"] == 0
    assert vocabulary.attributes.resolve("price") == "price"


def test_vocabulary_of_a_broken_document_raises() -> None:
    """With the line, as `read` does."""
    with pytest.raises(OntologyError, match="line 7"):
        Vocabulary.from_bytes(source("nonsense"), format="turtle")


def test_version_is_of_content_names_and_declarations() -> None:
    """The same input gives the same version, anything else another; the order of documents is no difference."""
    one, other = read(source(SHOP), name="one"), read(source(":a a :B ."), name="other")
    version = Vocabulary.from_ontologies([one, other]).version
    assert version == Vocabulary.from_ontologies([other, one]).version
    versions = {
        version,
        Vocabulary.from_ontologies([one]).version,
        Vocabulary.from_ontologies([]).version,
        Vocabulary.from_ontologies([one, other], attributes={"price": {"unit": "USD"}}).version,
        Vocabulary.from_ontologies([one, other], synonyms={"PC": "computer"}).version,
        Vocabulary.from_ontologies([read(source(SHOP), name="renamed"), other]).version,
        Vocabulary.from_ontologies([read(source(SHOP + " "), name="one"), other]).version,
        Vocabulary.from_ontologies([Ontology(name="x", edges=(("a", "b"),))]).version,
        Vocabulary.from_ontologies([Ontology(name="x")]).version,
    }
    assert len(versions) == 9
    assert all(int(each, 16) >= 0 for each in versions)


def test_vocabulary_survives_pickling() -> None:
    """It is broadcast to other processes as it is."""
    vocabulary = loaded()
    vocabulary.suggest("labtop")
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.version == vocabulary.version
    assert copy.readings("Notebook") == vocabulary.readings("Notebook")
    assert copy.suggest("labtop") == vocabulary.suggest("labtop")


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lang", "label"),
    [
        ("de", "de"),
        ("en-gb", "British"),
        ("en-GB", "British"),
        ("en", "American"),
        ("en-AU", "American"),
        ("fr", "none"),
    ],
)
def test_label_falls_back_by_language(lang: str, label: str) -> None:
    """The tag, its base, a variety of the base, no tag, any."""
    vocabulary = loaded(':A a owl:Class ; rdfs:label "de"@de, "British"@en-GB, "American"@en-US, "none", "ru"@ru .')
    expected = {"American": {"American", "British"}}.get(label, {label})
    assert vocabulary.label(concept(vocabulary, "A"), lang) in expected


def test_label_of_the_unlabelled_is_the_end_of_the_name() -> None:
    """Something must be shown; a label in a foreign language is better than none."""
    vocabulary = loaded(':Thing a owl:Class . :Ding a owl:Class ; rdfs:label "вещь"@ru .')
    assert vocabulary.label(concept(vocabulary, "Thing")) == "Thing"
    assert vocabulary.label(concept(vocabulary, "Ding"), "en") == "вещь"


def test_preferred_name_of_a_concept_is_alive_and_declared() -> None:
    """Of several equivalent names, the deprecated and the unknown come last."""
    vocabulary = loaded(
        """:A a owl:Class ; owl:deprecated true ; owl:equivalentClass :B . :B a owl:Class ; rdfs:label "b" .
        :B skos:exactMatch <http://a/unknown> ."""
    )
    found = concept(vocabulary, "A")
    assert vocabulary.iris(found) == ("http://e/B", "http://e/A", "http://a/unknown")
    assert vocabulary.concept("http://a/unknown") == found
    assert vocabulary.label(found) == "b"


def test_summary_shows_all_that_a_page_about_a_concept_needs() -> None:
    """JSON-able, with labels in every language and the number of children."""
    vocabulary = loaded()
    summary = vocabulary.summary(concept(vocabulary, "Laptop"), "de")
    assert json.loads(json.dumps(summary)) == {
        "iri": "http://e/Laptop",
        "iris": ["http://e/Laptop"],
        "label": "Notebook",
        "labels": [{"value": "Notebook", "lang": "de"}, {"value": "laptop", "lang": "en"}],
        "synonyms": [{"value": "portable", "lang": "en"}],
        "definition": "To carry.",
        "deprecated": False,
        "ontology": "shop",
        "parents": ["http://e/Computer"],
        "children_count": 1,
    }


def test_names_in_several_ontologies_have_the_labels_of_all() -> None:
    """A translation may be a file of its own, with nothing in it but labels; it declares nothing, here or elsewhere."""
    translation = read(
        source(
            """:Computer rdfs:label "ordinateur"@fr . :price skos:altLabel "prix"@fr . :Nothing rdfs:label "rien"@fr .
            :Laptop rdfs:subClassOf :Appareil . :X rdfs:subClassOf :Desktop . :mine owl:deprecated true ."""
        ),
        name="fr",
    )
    vocabulary = Vocabulary.from_ontologies([translation, read(source(SHOP), name="shop")])
    computer, mine = concept(vocabulary, "Computer"), concept(vocabulary, "mine")
    assert vocabulary.readings("ordinateur") == vocabulary.readings("Rechner") == (computer,)
    assert vocabulary.attributes.resolve("prix") == vocabulary.attributes.resolve("Preis") == "price"
    assert vocabulary.concept("http://e/Nothing") is None
    assert vocabulary.summary(concept(vocabulary, "Laptop"))["parents"] == ["http://e/Appareil", "http://e/Computer"]
    assert [vocabulary.summary(each)["ontology"] for each in (computer, concept(vocabulary, "Desktop"))] == ["shop"] * 2
    assert vocabulary.summary(mine)["deprecated"]
    assert vocabulary.report["languages"]["fr"] == 1


def test_readings_are_the_candidates_and_stay_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many different strings do not make the cache grow for ever."""
    monkeypatch.setattr("kindcast.semantic.vocabulary.vocabulary.READINGS", 10)
    vocabulary = loaded()
    for number in range(100):
        assert vocabulary.readings(f"nothing {number}") == ()
        assert vocabulary.readings("Notebook") == (concept(vocabulary, "Laptop"),)
    assert len(vocabulary._readings) <= 10


@pytest.mark.parametrize(
    ("text", "root"), [("PC", "machine"), ("computer", "machine"), ("pc", "pc"), ("e\u0301", "\u00e9"), ("x", "x")]
)
def test_root_word_follows_the_users_table(text: str, root: str) -> None:
    """Chains to their end, NFC on both sides, case counts."""
    vocabulary = Vocabulary.from_ontologies([], synonyms={"PC": "computer", "computer": "machine", "x": "x"})
    assert vocabulary.root_word(text) == root


def test_resolve_tries_the_root_word_of_what_means_nothing() -> None:
    """The user's table serves subscriptions as it serves events; it changes no term that means something already."""
    vocabulary = Vocabulary.from_bytes(source(SHOP), synonyms={"Schleppi": "Notebook", "desktop computer": "laptop"})
    assert vocabulary.readings("Schleppi") == (concept(vocabulary, "Laptop"),)
    assert vocabulary.readings("desktop computer") == (concept(vocabulary, "Desktop"),)
    assert vocabulary.resolve("Schleppi", is_iri=True).candidates == ()


@pytest.mark.parametrize("table", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}, {"a": 5}, {5: "a"}])
def test_synonym_table_that_is_wrong_is_refused(table: dict[object, object]) -> None:
    """Circles lead nowhere; words are strings."""
    with pytest.raises(InvalidDeclaration, match="synonym table"):
        Vocabulary.from_ontologies([], synonyms=table)


# ── browsing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_browsing_goes_up_and_down() -> None:
    """Ancestors and descendants leave the concept itself out; individuals are children of their class."""
    vocabulary = loaded()
    computer, laptop, mine = (concept(vocabulary, name) for name in ("Computer", "Laptop", "mine"))
    assert named(vocabulary, vocabulary.children(computer)) == ["Desktop", "Laptop"]
    assert named(vocabulary, vocabulary.children(laptop)) == ["mine"]
    assert named(vocabulary, vocabulary.ancestors(mine)) == ["Computer", "Laptop"]
    assert named(vocabulary, vocabulary.descendants(computer)) == ["Desktop", "Laptop", "mine"]
    assert named(vocabulary, vocabulary.path(mine, computer)) == ["mine", "Laptop", "Computer"]
    assert vocabulary.path(computer, mine) is None
    assert vocabulary.isa(mine, computer)
    assert vocabulary.isa(computer, computer)
    assert not vocabulary.isa(computer, laptop)


# ── looking for a name ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("term", "first"),
    [
        ("labtop", "http://e/Laptop"),
        ("Latpop", "http://e/Laptop"),
        ("dekstop", "http://e/Desktop"),
        ("e:Dekstop", "http://e/Desktop"),
        ("Desktop_Computer", "http://e/Desktop"),
        ("Rehcner", "http://e/Computer"),
    ],
)
def test_suggest_finds_the_nearest_name(term: str, first: str) -> None:
    """Letters swapped, left out, wrong language of mind; hidden labels lead here too."""
    assert loaded().suggest(term)[0]["iri"] == first


def test_suggest_names_each_concept_once_and_at_most_so_many() -> None:
    """The label that is nearest stands for the concept."""
    vocabulary = loaded()
    found = vocabulary.suggest("computer", limit=2)
    assert [each["iri"] for each in found] == ["http://e/Computer", "http://e/Desktop"]
    assert found[0] == {"label": "computer", "lang": "en", "iri": "http://e/Computer"}
    assert len(vocabulary.suggest("computer", limit=1)) == 1


@pytest.mark.parametrize("term", ["", " ", "xyzzy", "\ud800", "q" * 10_000, "計算機"])
def test_suggest_for_what_is_near_nothing_is_empty(term: str) -> None:
    """Better no help than misleading help."""
    assert loaded().suggest(term) == ()


def test_suggest_leads_from_a_deprecated_name_to_its_replacement() -> None:
    """Nobody should be advised to use what is gone."""
    vocabulary = loaded(
        ':Old a owl:Class ; rdfs:label "palmtop" ; owl:deprecated true ; dcterms:isReplacedBy :New . :New a owl:Class .'
    )
    assert [each["iri"] for each in vocabulary.suggest("palmtops")] == ["http://e/New"]


def test_search_ranks_whole_labels_then_beginnings_then_words() -> None:
    """As people expect while they type; by language when asked; the nearest when nothing contains the words."""
    vocabulary = loaded(
        """:A a owl:Class ; rdfs:label "air" . :B a owl:Class ; rdfs:label "airport"@en .
        :C a owl:Class ; rdfs:label "hot air"@en-GB .
        :D a owl:Class ; rdfs:label "stairs"@en , "Airbag"@de ."""
    )
    assert [each["iri"][-1] for each in vocabulary.search("AIR")] == ["A", "D", "B", "C"]
    assert [each["iri"][-1] for each in vocabulary.search("air", lang="en")] == ["A", "B", "C", "D"]
    assert [each["iri"][-1] for each in vocabulary.search("air", lang="en-GB")] == ["A", "B", "C", "D"]
    assert [each["iri"][-1] for each in vocabulary.search("air", lang="en-US")] == ["A", "B", "D"]
    assert [each["iri"][-1] for each in vocabulary.search("air", limit=1)] == ["A"]
    assert [each["label"] for each in vocabulary.search("arport")] == ["airport"]
    assert vocabulary.search("xyzzy") == []


# ── the report ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_report_counts_what_an_ontologist_checks_first() -> None:
    """Names and pairs as stated, roots and depth as merged."""
    vocabulary = loaded(
        """<http://e/> a owl:Ontology ; owl:imports <http://i/one#>, <http://i/two> .
        :A a owl:Class ; rdfs:label "a"@en ; skos:altLabel "aa"@en , "aaa"@de .
        :B a owl:Class ; rdfs:subClassOf :A, :C ; owl:equivalentClass :B2 . :B2 a owl:Class .
        :C a owl:Class ; rdfs:subClassOf :A . :D owl:equivalentClass [ owl:intersectionOf ( :B :C ) ] .
        :E rdfs:subClassOf :F . :F rdfs:subClassOf :E . :i a :D .
        :Old owl:deprecated true ; dcterms:isReplacedBy :A ."""
    )
    report = vocabulary.report
    expected = {
        "name": "shop",
        "concepts": 7,
        "individuals": 1,
        "retired": 1,
        "edges": 7,
        "derived_edges": 2,
        "roots": 2,
        "max_depth": 3,
        "multi_parent": 2,
        "synonyms": 2,
        "languages": {"de": 1, "en": 2},
        "merged": 2,
        "merged_across": [],
        "unmerged": [],
        "deprecated": 1,
        "unresolved_imports": ["http://i/one#", "http://i/two"],
    }
    assert {key: report[key] for key in expected} == expected
    assert len(vocabulary) == report["concepts"] + report["individuals"] + report["retired"] - report["merged"]
    assert any("http://e/E, http://e/F" in text for text in report["warnings"])
    assert json.loads(json.dumps(report)) == report


def test_two_versions_of_a_document_are_told_of() -> None:
    """Both count: most likely one was meant to take the place of the other. A document that builds on another is
    none."""
    shared = (
        "@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> . :A a owl:Class . :B a owl:Class . "
    )
    files = {
        "v1.ttl": shared,
        "v2.ttl": f"{shared} :C a owl:Class .",
        "more.ttl": ":D a owl:Class . :A a owl:Class .",
    }
    prefixes = shared[: shared.index(":A a")]
    documents = [(name, (prefixes + text.removeprefix(prefixes)).encode()) for name, text in files.items()]
    told = [text for text in Vocabulary(read_several(documents)).report["warnings"] if "both declare" in text]
    assert len(told) == 1
    assert told[0].startswith("v1.ttl and v2.ttl both declare 2 concepts, and both are used: if one is a newer version")


CODES = """
@prefix m: <http://cv.org/mediatopic/> . @prefix s: <http://cv.org/subject/> .
m:war skos:prefLabel "war"@en ; a skos:Concept ; skos:inScheme m: ; skos:exactMatch s:1 , s:2 .
m:crime a skos:Concept ; skos:inScheme m: ; skos:prefLabel "war crime"@en ; skos:exactMatch s:2 .
m:peace a skos:Concept ; skos:inScheme m: ; skos:prefLabel "peace"@en ; skos:exactMatch s:3 .
s:1 a skos:Concept ; skos:inScheme s: . s:2 a skos:Concept ; skos:inScheme s: . s:3 a skos:Concept ; skos:inScheme s: .
"""


def test_exact_matches_that_are_not_one_to_one_merge_nothing() -> None:
    """As with IPTC's retired codes: a war is no war crime. The report tells; what is one-to-one is merged."""
    vocabulary = loaded(CODES)
    war, crime, peace = (vocabulary.readings(text) for text in ("war", "war crime", "peace"))
    assert len({*war, *crime, *peace}) == 3
    assert vocabulary.iris(peace[0]) == ("http://cv.org/mediatopic/peace", "http://cv.org/subject/3")
    report = vocabulary.report
    names = ["mediatopic/crime", "mediatopic/war", "subject/1", "subject/2"]
    assert report["unmerged"] == [[f"http://cv.org/{name}" for name in names]]
    assert any("skos:exactMatch is not one-to-one in 1 groups" in text for text in report["warnings"])
    assert report["merged"] == 1


def test_exact_matches_of_two_documents_are_judged_together() -> None:
    """A second match, or a scheme that only another document tells, undoes a merge; differences tell of it."""
    shop = read(source(":A a owl:Class . :B a owl:Class ."), name="shop")
    one = read(source("<http://o/1> a owl:Class ; skos:exactMatch :A ."), name="one")
    two = read(source("<http://o/1> skos:exactMatch :B ."), name="two")
    schemes = read(source("<http://o/1> skos:inScheme :S . :A skos:inScheme :S ."), name="schemes")
    before = Vocabulary.from_ontologies([shop, one])
    assert concept(before, "A") == before.concept("http://o/1")
    for more in (two, schemes):
        after = Vocabulary.from_ontologies([shop, one, more])
        assert concept(after, "A") != after.concept("http://o/1")
        assert {"http://e/A", "http://o/1"} <= differing_values(before, after)
        impact = Impact(before, after)
        impact.add([("s", {"isa": ["t", {"iri": "http://e/A"}]})])
        assert [change.listed["loses"] for change in impact.changes.values()] == [["http://o/1"]]


def test_report_is_a_copy() -> None:
    """What a caller does to it is the caller's own business."""
    vocabulary = loaded()
    vocabulary.report["warnings"].append("x")
    assert "x" not in vocabulary.report["warnings"]


def test_report_resolves_imports_among_what_is_loaded() -> None:
    """An import is satisfied by an ontology of that name, with or without the last hash."""
    importing = read(source("<http://e/> a owl:Ontology ; owl:imports <http://i/one>, <http://i/two> ."), name="a")
    imported = read(source("<http://i/one#> a owl:Ontology ."), name="b")
    assert Vocabulary.from_ontologies([importing, imported]).report["unresolved_imports"] == ["http://i/two"]


@pytest.mark.parametrize("apart", [False, True])
def test_units_of_an_attribute_that_differ_are_left_out_with_a_warning(apart: bool) -> None:
    """In one document or in two. No unit is chosen by its name. Several names of one unit are one unit."""
    has = "<http://qudt.org/schema/qudt/hasUnit>"
    one = f":mass {has} <http://qudt.org/vocab/unit/KiloGM> . :load {has} <http://qudt.org/vocab/unit/KiloGM> ."
    other = f'<http://f/mass> {has} <http://qudt.org/vocab/unit/GM> . :load {has} "kg" .'
    texts = [one, other] if apart else [one + other]
    kinds = "".join(f"{each} a owl:DatatypeProperty . " for each in (":mass", ":load", "<http://f/mass>"))
    documents = [source(kinds + each) for each in texts]
    vocabulary = Vocabulary.from_ontologies([read(each, name=str(number)) for number, each in enumerate(documents)])
    unit = "http://qudt.org/vocab/unit/"
    warning = f"numbers of these attributes have no unit, because theirs differ: mass ({unit}GM, {unit}KiloGM)"
    assert warning in vocabulary.report["warnings"]
    matcher = Matcher(vocabulary)
    for text in ("mass > 1 g", "mass > 1", "load > 1000 g"):
        matcher.add(text, text)
    found = matcher.match({"mass": 2, "load": 2})
    assert [match.subscription for match in found] == ["mass > 1", "load > 1000 g"]


def test_unit_of_a_property_that_is_not_known_is_left_out_with_a_warning() -> None:
    """Its numbers are plain. Subscriptions to them are accepted, and say nothing of a unit."""
    unknown = "http://qudt.org/vocab/unit/NOPE"
    vocabulary = loaded(
        f""":dose a owl:DatatypeProperty ; <http://qudt.org/schema/qudt/hasUnit> <{unknown}> .
        :mass a owl:DatatypeProperty ; <http://qudt.org/schema/qudt/hasUnit> <http://qudt.org/vocab/unit/KiloGM> ."""
    )
    warning = f"numbers of these properties have no unit, because theirs is not known: http://e/dose ({unknown})"
    assert warning in vocabulary.report["warnings"]
    matcher = Matcher(vocabulary)
    for text in ("dose > 5", "some box (dose > 5)", "mass > 5000 g"):
        matcher.add(text, text)
    event = {"dose": 6, "box": [{"dose": 6}], "mass": 6}
    assert [match.subscription for match in matcher.match(event)] == [
        "dose > 5",
        "some box (dose > 5)",
        "mass > 5000 g",
    ]


def test_vocabulary_of_records_made_by_hand_works() -> None:
    """Whoever reads another syntax hands in records."""
    ontology = Ontology(
        name="mine",
        concepts=(
            ConceptRecord(iri="http://e/Laptop", preferred=(("Laptop", None),)),
            ConceptRecord(iri="http://e/Computer"),
        ),
        edges=(("http://e/Laptop", "http://e/Computer"),),
    )
    vocabulary = Vocabulary.from_ontologies([ontology])
    assert named(vocabulary, vocabulary.ancestors(vocabulary.readings("laptop")[0])) == ["Computer"]


def test_suggest_hidden_label_leads_to_a_name_that_resolves() -> None:
    """Who takes a suggestion as it stands must not be refused again: hidden labels find, they are not told."""
    document = b"""
    @prefix : <http://example.org/> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
    :Laptop a skos:Concept ; skos:prefLabel "portable computer"@en ; skos:hiddenLabel "labtop"@en .
    """
    vocabulary = Vocabulary.from_bytes(document, format="turtle")
    (told,) = vocabulary.suggest("Labtop")
    assert told["label"] == "portable computer"
    assert vocabulary.readings(told["label"])


def test_readings_of_long_texts_are_not_kept() -> None:
    """Whoever publishes long texts, each another, fills no memory with them."""
    words = Vocabulary.from_ontologies([])
    words.readings("x" * 50_000)
    tracemalloc.start()
    try:
        for number in range(200):
            assert words.readings(f"{number} " + "x" * 50_000) == ()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
