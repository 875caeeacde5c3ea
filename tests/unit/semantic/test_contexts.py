"""JSON-LD contexts: which others they need, what is refused and at what cost, the prefixes that they give."""

from typing import Any

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration, InvalidSubscription, UnknownContext
from kindcast.semantic.vocabulary.contexts import (
    check_contexts,
    compact_prefixes,
    context_terms,
    needed_contexts,
    shipped_contexts,
    unknown_contexts,
)
from kindcast.semantic.vocabulary.declarations import Declarations

HERE = "https://example.com/contexts/here.jsonld"
THERE = "https://example.com/contexts/there.jsonld"
ACTIVITIES = "https://www.w3.org/ns/activitystreams"


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def doubling(levels: int) -> dict[str, Any]:
    """Each context refers ten times to the one before: 10 ** levels times the terms of the first."""
    found: dict[str, Any] = {f"{HERE}0": {"@context": {f"t{number}": f"e:{number}" for number in range(100)}}}
    for level in range(1, levels):
        found[f"{HERE}{level}"] = {"@context": [f"{HERE}{level - 1}"] * 10}
    return found


def test_contexts_shipped_are_contexts() -> None:
    """Each passes the checks of an upload, and defines what its standard's documents use."""
    check_contexts(shipped_contexts())
    activities = dict(context_terms(shipped_contexts()[ACTIVITIES]["@context"]))
    assert activities["actor"] == "https://www.w3.org/ns/activitystreams#actor"
    core = shipped_contexts()["https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.8.jsonld"]["@context"]
    terms = dict(context_terms(core))
    assert terms["value"] == "https://uri.etsi.org/ngsi-ld/hasValue"
    assert terms["unitCode"] == "https://uri.etsi.org/ngsi-ld/unitCode"
    assert terms["Polygon"] == "https://purl.org/geojson/vocab#Polygon"


def test_contexts_needed_stand_wherever_a_context_may() -> None:
    """In lists, imports, contexts of terms; relative ones against the URL of the document; texts elsewhere are none."""
    context = [
        "../first.jsonld",
        {"@import": "second.jsonld", "@vocab": "https://e.com/vocab#", "x": "https://e.com/x"},
        {"y": {"@id": "e:y", "@context": ["third.jsonld", {"z": {"@id": "e:z", "@context": "first.jsonld"}}]}},
    ]
    base = "https://example.com/contexts/"
    expected = (
        "https://example.com/first.jsonld",
        f"{base}second.jsonld",
        f"{base}third.jsonld",
        f"{base}first.jsonld",
    )
    assert needed_contexts(context, HERE) == expected


def test_contexts_unknown_are_all_told_also_through_others() -> None:
    """One answer names every upload that is missing."""
    known = {THERE: {"@context": ["deep.jsonld", {"a": "https://e.com/a"}]}}
    found = unknown_contexts([THERE, "https://e.com/other"], known)
    assert set(found) == {"https://example.com/contexts/deep.jsonld", "https://e.com/other"}
    with pytest.raises(UnknownContext) as refused:
        check_contexts({HERE: {"@context": [THERE, ACTIVITIES, "https://e.com/other"]}})
    assert set(refused.value.urls) == {THERE, "https://e.com/other"}


@pytest.mark.parametrize("propagates", [False, True])
def test_contexts_may_say_whether_they_propagate(propagates: bool) -> None:
    """Itself, in a list, and through another context. Another value is a mistake."""
    context = {"@propagate": propagates, "a": "https://e.com/a"}
    for uploaded in (context, [context]):
        check_contexts({HERE: {"@context": uploaded}, THERE: {"@context": [HERE, {"b": "https://e.com/b"}]}})
    with pytest.raises(InvalidDeclaration, match="@propagate value must be a boolean"):
        check_contexts({HERE: {"@context": {"@propagate": "no"}}})


@pytest.mark.parametrize(
    ("uploads", "word"),
    [
        pytest.param({HERE: {"@context": HERE}}, "refers to itself", id="itself"),
        pytest.param(
            {HERE: {"@context": {"a": {"@id": "e:a", "@context": THERE}}}, THERE: {"@context": HERE}},
            "refers to itself",
            id="a circle of two",
        ),
        pytest.param({HERE: {"@context": {"@type": "https://e.com/type"}}}, "keyword redefinition", id="keyword"),
        pytest.param({HERE: {"@context": {"a": "b:c", "b": "a:d"}}}, "definitions of terms", id="a circle of terms"),
        pytest.param({HERE: {"@context": {"a": 3}}}, "invalid term definition", id="number for a term"),
        pytest.param(
            {HERE: {"@context": {"a": {"@id": "e:a", "@container": {}}}}}, "JSON-LD|container", id="container"
        ),
        pytest.param({HERE: {"@context": 3}}, "invalid local context", id="number"),
        pytest.param({HERE: {"context": {}}}, "member @context", id="no context"),
        pytest.param({HERE: {"@context": []}}, "defines nothing", id="an empty list"),
        pytest.param({"here.jsonld": {"@context": {}}}, "absolute URL", id="relative URL"),
        pytest.param({"https:///x": {"@context": {}}}, "no host", id="no host"),
        pytest.param({HERE: {"@context": nested(100)}}, "nested more than", id="depth"),
        pytest.param({HERE: {"@context": {"a": "x" * (3 << 20)}}}, "bytes", id="size"),
        pytest.param({HERE: {"@context": {"a" * 5_000: "https://e.com/a"}}}, "characters", id="long term"),
        pytest.param(doubling(7), "are allowed", id="contexts times contexts"),
        pytest.param(
            {HERE: {"@context": {f"t{n}": {"@id": f"e:{n}", "@context": {"x": "e:x"}} for n in range(5_000)}}},
            "nested contexts",
            id="contexts within terms",
        ),
        pytest.param(
            {f"{HERE}{n}": {"@context": f"{HERE}{n + 1}" if n < 20 else {"a": "https://e.com/a"}} for n in range(21)},
            "deep",
            id="a long chain",
        ),
    ],
)
def test_contexts_that_cannot_be_used_are_refused(uploads: dict[str, Any], word: str) -> None:
    """With a sentence that says what is wrong, and never by a crash."""
    with pytest.raises(InvalidDeclaration, match=word):
        check_contexts(uploads)


@pytest.mark.parametrize("reference", ["http://[::1", "//["])
def test_contexts_refer_to_nothing_known_by_what_is_no_url(reference: str) -> None:
    """It is told like every context that is missing."""
    for context in (reference, [{}, reference], {"@import": reference}, {"a": {"@id": "e:a", "@context": reference}}):
        with pytest.raises(UnknownContext) as refused:
            check_contexts({HERE: {"@context": context}})
        assert refused.value.urls == (reference,)


@pytest.mark.parametrize(
    "context",
    [
        {"@version": 1.1, "@import": "there.jsonld", "b": "http://e/b"},
        {"b": "http://e/b", "a": {"@id": "http://e/a", "@context": {"@import": "there.jsonld"}}},
    ],
    ids=["whole", "of a term"],
)
def test_contexts_are_imported_by_relative_addresses(context: dict[str, Any]) -> None:
    """Like all references in a context: against its own address, and not against that of the event, which has none."""
    imported = {"@context": {"a": "http://e/a", "x": "http://e/y"}}
    declared = Declarations().extended("context", THERE, imported).extended("context", HERE, {"@context": context})
    matcher = Matcher(Vocabulary.from_ontologies([], **declared.arguments()))
    matcher.add("s", "a.y = 1 and b = 2")
    assert matcher.match({"@context": HERE, "a": {"x": 1}, "b": 2})


def test_declarations_refuse_a_context_that_others_need_to_go() -> None:
    """In order of need, contexts come and go."""
    declared = Declarations().extended("context", THERE, {"@context": {"ex": "https://e.com/ns#"}})
    declared = declared.extended("context", HERE, {"@context": ["there.jsonld", {"a": "ex:a"}]})
    with pytest.raises(UnknownContext, match="there"):
        declared.without("context", THERE)
    assert not declared.without("context", HERE).without("context", THERE)
    vocabulary = Vocabulary(**declared.arguments())
    assert vocabulary.contexts[HERE] == {"@context": ["there.jsonld", {"a": "ex:a"}]}
    assert ACTIVITIES in vocabulary.contexts
    assert vocabulary.version != Vocabulary().version
    assert Vocabulary(contexts={}).version == Vocabulary().version


def test_prefixes_are_those_that_form_compact_iris() -> None:
    """A string that ends in a delimiter, or `@prefix`; a term that is neither, a keyword or a whole path is none."""
    context = {
        "ex": "https://e.com/ns#",
        "plain": "https://e.com/plain",
        "told": {"@id": "https://e.com/told", "@prefix": True},
        "untold": {"@id": "https://e.com/untold#"},
        "refused": {"@id": "https://e.com/refused#", "@prefix": False},
        "short": "ex:short/",
        "a/b": "https://e.com/path#",
        "type": "@type",
    }
    assert set(compact_prefixes([{"@context": context}])) == {
        ("ex", "https://e.com/ns#"),
        ("told", "https://e.com/told"),
        ("short", "https://e.com/ns#short/"),
    }


TURTLE = b"""@prefix : <https://e.com/cargo#> . @prefix o: <https://e.com/other#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Piece rdfs:subClassOf :Thing . o:Piece rdfs:subClassOf o:Thing ."""


def test_curies_of_subscriptions_use_prefixes_of_contexts_after_those_of_ontologies() -> None:
    """`o` is another namespace in the context, and stays the ontology's; texts of events know ontologies only."""
    contexts = {HERE: {"@context": {"c": "https://e.com/cargo#", "o": "https://e.com/cargo#", "no": "https://e.com/c"}}}
    vocabulary = Vocabulary.from_bytes(TURTLE, contexts=contexts)
    cargo, other = vocabulary.concept("https://e.com/cargo#Piece"), vocabulary.concept("https://e.com/other#Piece")
    assert vocabulary.resolve("c:Piece", asked=True).candidates == (cargo,)
    assert vocabulary.resolve("o:Piece", asked=True).candidates == (other,)
    assert vocabulary.spelt_out("c:none") == ("https://e.com/cargo#none",)
    assert vocabulary.spelt_out("no:none") == ()
    matcher = Matcher(vocabulary)
    matcher.add("s", "target isa c:Thing")
    assert [bool(matcher.match({"target": text})) for text in ("https://e.com/cargo#Piece", "c:Piece")] == [True, False]
    with pytest.raises(InvalidSubscription):
        matcher.add("t", "target isa no:argo#Thing")


def test_curie_of_the_empty_prefix_is_the_last_part_of_its_namespace() -> None:
    """`cargo:Piece` where the ontology says `@prefix : <…/cargo#>`; in subscriptions, and only where nothing else is
    called so."""
    vocabulary = Vocabulary.from_bytes(TURTLE)
    cargo = vocabulary.concept("https://e.com/cargo#Piece")
    assert vocabulary.resolve("cargo:Piece", asked=True).candidates == (cargo,)
    assert vocabulary.readings("cargo:Piece") == ()
    taken = Vocabulary.from_bytes(TURTLE + b" @prefix cargo: <https://e.com/other#> .")
    assert taken.iri(taken.resolve("cargo:Piece", asked=True).candidates[0]) == "https://e.com/other#Piece"
