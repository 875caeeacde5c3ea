"""Relations in subscriptions: how they are named, refused, stored, explained; what brings them together."""

import itertools
import pickle
from pathlib import Path

import pytest

from kindcast import InvalidSubscription, Matcher, Vocabulary, explain
from kindcast.index.clause import ConceptId
from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.language import parse_text, parse_tree
from kindcast.semantic.ontology import ConceptRecord, Ontology, RelationRecord, read

BODY = b"""
@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:part_of a owl:ObjectProperty ; rdfs:label "part of"@en , "Teil von"@de ; owl:inverseOf :has_part .
:near a owl:ObjectProperty .
:Organ a owl:Class ; rdfs:label "organ"@en , "Organ"@de .
:Heart a owl:Class ; rdfs:label "heart"@en , "Herz"@de ; rdfs:subClassOf :Organ ; :near :Lung .
:Valve a owl:Class ; rdfs:label "valve"@en ; rdfs:subClassOf
  [ a owl:Restriction ; owl:onProperty :part_of ; owl:someValuesFrom :Heart ] .
:Mitral a owl:Class ; rdfs:subClassOf :Valve . :Lung a owl:Class ; rdfs:subClassOf :Organ .
"""
RESOLVED = "target <http://e/part_of> <http://e/Heart>"


def body(*relations: str) -> Vocabulary:
    return Vocabulary.from_bytes(BODY, format="turtle", relations=relations or ("part_of",))


@pytest.mark.parametrize(
    "text",
    ["target part_of heart", "target `part of` Heart", "target `Teil von` Herz", "target x:part_of Heart", RESOLVED],
)
def test_relation_is_named_by_iri_curie_local_name_or_label(text: str) -> None:
    """And stored by its IRI, in text and tree, which mean the same again."""
    document = b"@prefix x: <http://e/> ." + BODY
    matcher = Matcher(Vocabulary.from_bytes(document, format="turtle", relations=["part_of"]))
    compiled = matcher.add("asked", text)
    assert compiled.canonical == RESOLVED
    assert compiled.tree == {"relation": ["target", "http://e/part_of", {"iri": "http://e/Heart"}]}
    assert parse_text(compiled.canonical) == parse_tree(compiled.tree)
    matcher.restore("tree", compiled.tree)
    matcher.add("again", compiled.canonical)
    assert len(matcher.match({"target": "Mitral"})) == 3
    assert matcher.match({"target": "Lung"}) == []


@pytest.mark.parametrize(
    ("text", "code", "near"),
    [
        ("target part_off Heart", "unknown-relation", "part_of"),
        ("target near Heart", "unknown-relation", None),
        ("target isaa Heart", "unknown-relation", "isa"),
        ("target part_of Hart", "unknown-concept", "Heart"),
        ("target <http://e/has_part> Heart", "unknown-relation", None),
    ],
)
def test_relation_that_is_not_known_is_refused_with_what_is_near(text: str, code: str, near: str | None) -> None:
    """One that the document has and nobody asked for is not known either."""
    with pytest.raises(InvalidSubscription) as raised:
        Matcher(body()).compile(text)
    [problem] = raised.value.problems
    assert problem.code == code
    assert near is None or near.casefold() in {str(each["label"]).casefold() for each in problem.suggestions}
    if code == "unknown-relation":
        assert "known are isa, below, is and part of" in problem.detail


def test_ambiguous_relation_is_refused_with_the_candidates() -> None:
    """Two documents may call two relations the same."""
    other = BODY.replace(b"http://e/", b"http://other/")
    parts = [read(each, format="turtle", relations=["part_of"], name=str(each)) for each in (BODY, other)]
    with pytest.raises(InvalidSubscription) as raised:
        Matcher(Vocabulary(parts)).compile("target part_of <http://e/Heart>")
    [problem] = raised.value.problems
    assert problem.code == "ambiguous-relation"
    assert [each["iri"] for each in problem.suggestions] == ["http://e/part_of", "http://other/part_of"]


def test_range_of_the_attribute_says_nothing_of_where_a_relation_leads() -> None:
    """`room` holds rooms; "Mercury" may be a planet all the same where a relation leads to it."""
    document = BODY + b':heart2 a owl:Class ; rdfs:label "heart"@en ; rdfs:subClassOf :Valve .'
    words = Vocabulary.from_bytes(
        document,
        format="turtle",
        relations=["part_of"],
        attributes={"target": {"kind": "concept", "range": ["http://e/Valve"]}},
    )
    with pytest.raises(InvalidSubscription) as raised:
        Matcher(words).compile("target part_of heart")
    assert [problem.code for problem in raised.value.problems] == ["ambiguous-term"]


def test_explanation_names_the_steps_of_the_relation() -> None:
    """In the language that is asked for; and says when there is no path."""
    told = explain(body(), "target part_of Organ", {"target": "Mitral"})
    [predicate] = told["clauses"][0]["predicates"]
    assert predicate["values"][0]["path"] == ["Mitral", "valve", "(part of) heart", "organ"]
    assert predicate["text"] == "target part of organ"
    german = explain(body(), "target part_of Organ", {"target": "Mitral"}, language="de")
    assert german["clauses"][0]["predicates"][0]["values"][0]["path"] == ["Mitral", "valve", "(Teil von) Herz", "Organ"]
    failed = explain(body(), "target part_of Organ", {"target": ["Lung", "Mitral", "nothing"]})
    assert [each["path"] for each in failed["clauses"][0]["predicates"][0]["values"]][::2] == [[], []]
    assert failed["matches"]
    assert not explain(body(), "not target part_of Organ", {"target": ["Lung", "Mitral"]})["matches"]


def test_stored_relation_that_is_gone_is_flagged_and_false() -> None:
    """Also under `not`; it is back when it is asked for again (rule 14)."""
    matcher = Matcher(body("part_of", "near"))
    matcher.add("near", "target near Lung")
    matcher.add("not near", "not target near Lung")
    assert [match.subscription for match in matcher.match({"target": "Heart"})] == ["near"]
    assert [match.subscription for match in matcher.match({"target": "Lung"})] == ["not near"]
    later = matcher.rebuilt(body())
    assert [note.code for note in later["near"].notes] == ["gone-relation"]
    assert later.match({"target": "Heart"}) == later.match({"target": "Lung"}) == []
    assert len(later.rebuilt(body("near")).match({"target": "Heart"})) == 1


def test_term_of_a_relation_that_is_gone_is_false_and_one_that_nothing_leads_to_is_not() -> None:
    """The one is not a concept, the other only nobody's goal."""
    matcher = Matcher(body())
    matcher.add("lung", "not target part_of Lung")
    matcher.add("heart", "not target part_of Heart")
    assert len(matcher.match({"target": "Lung"})) == 2
    later = matcher.rebuilt(Vocabulary.from_bytes(BODY.replace(b":Heart", b":Herz"), relations=["part_of"]))
    assert [match.subscription for match in later.match({"target": "Lung"})] == ["lung"]


def test_relation_of_one_document_counts_edges_of_its_inverse_in_another() -> None:
    """A schema says what is the inverse of what, data uses either; restrictions are never turned round."""
    schema = b"""@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :has_part a owl:ObjectProperty .
    :part_of a owl:ObjectProperty ; owl:inverseOf :has_part . :has_wheel rdfs:subPropertyOf :has_part ."""
    data = b"""@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :has_part a owl:ObjectProperty .
    :car :has_part :door . :car :has_wheel :wheel . :door :part_of :house .
    :Car rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :has_part ; owl:someValuesFrom :Engine ] ."""
    words = Vocabulary(
        [
            read(schema, format="turtle", relations=["part_of", "has_part"], name="schema"),
            read(data, format="turtle", relations=["part_of", "has_part", "has_wheel"], name="data"),
        ]
    )
    held = {
        (words.label(one), iri.rpartition("/")[2], words.label(other))
        for one, other in itertools.product(map(ConceptId, range(len(words))), repeat=2)
        for iri in words.relations
        if words.relations.holds(one, iri, other)
    }
    assert held == {
        *(("car", "has_part", "door"), ("car", "has_part", "wheel"), ("house", "has_part", "door")),
        *(("door", "part_of", "car"), ("door", "part_of", "house"), ("wheel", "part_of", "car")),
        *(("car", "has_wheel", "wheel"), ("Car", "has_part", "Engine")),
    }


def test_files_may_share_the_relations_that_are_asked_for(tmp_path: Path) -> None:
    """One file is enough to know a name; none is an error."""
    one, other = tmp_path / "body.ttl", tmp_path / "other.ttl"
    one.write_bytes(BODY)
    other.write_bytes(b"<http://e/a> <http://e/feeds> <http://e/b> .")
    words = Vocabulary.from_files(one, other, relations=["part_of", "feeds"])
    assert [each["label"] for each in words.report["relations"]] == ["feeds", "part of"]
    with pytest.raises(
        UnknownRelation, match=r"no document has a relation with the name 'eats'; body\.ttl: .*other\.ttl: "
    ):
        Vocabulary.from_files(one, other, relations=["part_of", "eats"])


def test_version_of_a_vocabulary_depends_on_the_relations() -> None:
    """The same bytes mean something else with a relation."""
    assert len({body().version, body("near").version, body("near", "part_of").version, body().version}) == 3


def test_relations_survive_pickling() -> None:
    """A vocabulary is broadcast to other processes as it is."""
    copy = pickle.loads(pickle.dumps(body()))
    assert len(Matcher(copy).vocabulary.graph) == len(body().graph)
    mitral, organ = (copy.concept(f"http://e/{name}") for name in ("Mitral", "Organ"))
    assert mitral is not None
    assert organ is not None
    assert copy.relations.holds(mitral, "http://e/part_of", organ)


def test_long_chain_and_large_circle_of_a_relation_cost_no_recursion() -> None:
    """A circle is one shadow; a chain several times as long as the stack is walked."""
    names = [f"http://e/{number:05}" for number in range(5_000)]
    chain = tuple(itertools.pairwise(names))
    for edges, shadows in ((chain, len(names) - 1), ((*chain, (names[-1], names[0])), 1)):
        records = tuple(ConceptRecord(iri=name) for name in names)
        relation = RelationRecord(iri="http://e/R", edges=edges)
        words = Vocabulary([Ontology(name="x", concepts=records, relations=(relation,))])
        assert len(words.graph) - 2 * len(words) == shadows  # an instance of each concept stands after them
        first, last = ConceptId(0), ConceptId(len(names) - 1)
        assert words.relations.holds(first, "http://e/R", last)
        assert words.relations.holds(last, "http://e/R", first) is (shadows == 1)


def test_relations_that_lead_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadows are bounded, like concepts."""
    monkeypatch.setattr("kindcast.semantic.vocabulary.relations.MOST_SHADOWS", 1)
    with pytest.raises(OntologyError, match="more than 1 concepts in all"):
        body()
