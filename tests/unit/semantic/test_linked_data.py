"""Documents that are graphs become trees: docs/matching-semantics.md, rules 20 and 21."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.changes.impact import Impact, impact_report
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.linked_data.reader import GraphReader, graph_of_expanded, unfolded
from kindcast.semantic.events.linked_data.reference import Expander
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Event, Node, Resource, TypedText

EX = "http://example.org/"
CONTEXT = {"ex": EX, "xsd": "http://www.w3.org/2001/XMLSchema#"}
PIECE = {
    "@context": CONTEXT,
    "@id": "ex:p1",
    "@type": "ex:Piece",
    "ex:weight": {"@type": "xsd:decimal", "@value": "12.50"},
    "ex:label": [{"@value": "Kiste", "@language": "de"}, "box"],
    "ex:made": {"@type": "xsd:date", "@value": "2026-01-31"},
    "ex:sealed": True,
    "ex:from": {"@id": "ex:vie", "ex:name": "Vienna"},
    "ex:next": {"@id": "ex:muc"},
    "ex:codes": {"@list": ["a", "b", "a"]},
}
TREE = {
    "@id": Resource(EX + "p1"),
    "@type": Resource(EX + "Piece"),
    f"<{EX}weight>": 12.5,
    f"<{EX}label>": ["Kiste", "box"],
    f"<{EX}label>.@language": "de",
    f"<{EX}made>": TypedText("2026-01-31", "http://www.w3.org/2001/XMLSchema#date"),
    f"<{EX}sealed>": True,
    f"<{EX}from>": {"@id": Resource(EX + "vie"), f"<{EX}name>": "Vienna"},
    f"<{EX}next>": Resource(EX + "muc"),
    f"<{EX}codes>": ["a", "b", "a"],
}
TURTLE = """
@prefix ex: <http://example.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ex:p1 a ex:Piece ; ex:weight 12.50 ; ex:label "Kiste"@de , "box" ; ex:made "2026-01-31"^^xsd:date ; ex:sealed true ;
  ex:from ex:vie ; ex:next ex:muc ; ex:codes ( "a" "b" "a" ) .
ex:vie ex:name "Vienna" .
"""


def tree(data: Any, media_type: str = "application/ld+json", contexts: Mapping[str, Any] | None = None) -> Node:
    reader = GraphReader(contexts or {}, EventLimits())
    event, _ = reader.read(Event(data, {"datacontenttype": media_type}))
    assert isinstance(event.data, Node)
    return event.data


def codes(data: Any, media_type: str = "application/ld+json", contexts: Mapping[str, Any] | None = None) -> list[str]:
    with pytest.raises(InvalidEvent) as caught:
        tree(data, media_type, contexts)
    return [problem.code for problem in caught.value.problems]


def test_one_graph_written_in_several_ways_is_one_tree() -> None:
    expanded = json.loads(json.dumps(PIECE).replace("ex:", EX).replace("xsd:", CONTEXT["xsd"]))
    del expanded["@context"]
    other = {
        "@context": ["http://example.org/ctx", {"weight": {"@id": "w:weight", "@type": CONTEXT["xsd"] + "decimal"}}]
    }
    by_url = {"http://example.org/ctx": {"@context": {"w": EX, "id": "@id", "from": "w:from", "name": "w:name"}}}
    written = {**other, **expanded, "weight": "12.50", "from": {"id": "w:vie", "name": "Vienna"}}
    del written[EX + "weight"], written[EX + "from"]
    trees = [tree(PIECE), tree([expanded]), tree(written, contexts=by_url), tree(TURTLE, "text/turtle")]
    for each in trees:
        assert dict(each) == TREE
        assert each.value == Resource(EX + "p1", (EX + "Piece",))


def test_texts_in_lists_have_languages_in_every_syntax() -> None:
    document = {
        "@id": EX + "p1",
        EX + "label": {
            "@list": [{"@value": "Kiste", "@language": "de"}, {"@list": [{"@value": "box", "@language": "en"}]}]
        },
    }
    turtle = f'<{EX}p1> <{EX}label> ( "Kiste"@de ( "box"@en ) ) .'
    found = tree(document)
    assert found[f"<{EX}label>.@language"] == ["de", "en"]
    assert dict(tree(turtle, "text/turtle")) == dict(found)


def test_pyld_is_imported_when_a_graph_comes() -> None:
    program = """
import sys
from kindcast import Matcher, Vocabulary
matcher = Matcher(Vocabulary())
matcher.add("a", "p = 1")
assert matcher.match({"p": 1}) and "pyld" not in sys.modules
assert matcher.match({"@context": {"p": "http://example.org/p"}, "p": 1}) and "pyld" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_plain_json_stays_as_it_is() -> None:
    event = Event({"@type": "Piece", "weight": 3}, {})
    assert GraphReader({}, EventLimits()).read(event) == (event, ())


def test_all_unknown_contexts_are_named_and_nothing_is_fetched() -> None:
    known = {"http://a.example/": {"@context": ["http://b.example/", {"x": "http://x.example/"}]}}
    document = {"@context": ["http://a.example/", "http://c.example/"], "x": {"@context": "file:///etc/passwd", "y": 1}}
    with pytest.raises(InvalidEvent) as caught:
        tree(document, contexts=known)
    (problem,) = caught.value.problems
    assert problem.code == "unknown-context"
    assert [each["url"] for each in problem.suggestions] == [
        "http://b.example/",
        "http://c.example/",
        "file:///etc/passwd",
    ]


def test_a_context_that_only_a_member_names_is_read_as_plain_json_with_a_note() -> None:
    event = Event({"@context": "http://c.example/", "price": 3}, {})
    read, notes = GraphReader({}, EventLimits()).read(event)
    assert read == event
    assert [note.code for note in notes] == ["unknown-context"]


@pytest.mark.parametrize(
    ("data", "media_type", "code"),
    [
        ({"@context": {"a": {"@id": "b:x"}, "b": {"@id": "a:x"}}, "a": 1}, "application/ld+json", "invalid-json-ld"),
        ({"@context": {"@value": "http://x.example/"}, "p": 1}, "application/ld+json", "invalid-json-ld"),
        ({"@context": {"p": "http://x.example/<b>"}, "p": 1}, "application/ld+json", "invalid-iri"),
        ([], "application/ld+json", "no-event"),
        ([{"@id": "x:a", "x:p": 1}, {"@id": "x:b", "x:p": 1}], "application/ld+json", "several-events"),
        ("<x:a> <x:p> <x:b> . <x:b> <x:p> <x:a> .", "text/turtle", "no-event"),
        ("<x:r> <x:p> 1 . <x:a> <x:p> <x:b> . <x:b> <x:p> <x:a> .", "text/turtle", "unreachable-nodes"),
        ("<x:a> <x:p> .", "application/n-triples", "malformed-rdf"),
        ("<x:a> <p> 1 .", "text/turtle", "malformed-rdf"),
    ],
    ids=["cycle of terms", "keyword", "property", "empty", "several", "no root", "lost nodes", "syntax", "relative"],
)  # fmt: skip
def test_what_gives_no_event_is_refused_with_a_code(data: Any, media_type: str, code: str) -> None:
    assert codes(data, media_type) == [code]


@pytest.mark.parametrize(
    "data",
    [
        {"@context": {"@vocab": EX + "a" * 2_000}, "p": 1, "q": 2},
        {"@context": {"@vocab": EX + "a" * 2_000}, "@type": ["T", "U"], "urn:p": 1},
        {"@context": {"x": EX + "a" * 2_000 + "/"}, "x:p": 1},
        {"@context": {"x": EX + "a" * 2_000 + "/"}, "@id": "urn:a", "urn:p": {"@id": "x:b"}},
        {"@context": {"x": EX + "a" * 2_000 + "/", "p": "x:p"}, "p": 1},
        {"@context": {"@base": EX + "a" * 2_000 + "/"}, "@id": "urn:a", "urn:p": [{"@id": "b"}, {"@id": "c"}]},
    ],
)
def test_prefix_vocabulary_or_base_of_many_characters_is_refused(data: Any) -> None:
    """Each name would have a copy of it: 200 KB took gigabytes of memory."""
    assert codes(data, "application/ld+json") == ["invalid-json-ld"]


def test_long_iri_that_is_written_out_is_read() -> None:
    """As `data:` of pictures."""
    picture = "data:image/png;base64," + "A" * 5_000
    read = tree({"@context": {"p": {"@id": EX + "p", "@type": "@id"}}, "@id": "urn:a", "p": picture})
    assert picture in str(read)


def test_a_mistake_in_rdf_is_told_with_its_place_once() -> None:
    with pytest.raises(InvalidEvent) as refused:
        tree("<x:a> <x:p>\n  .\n", "text/turtle")
    assert str(refused.value) == "line 2, column 3: . is not a valid RDF object"


@pytest.mark.parametrize("value", [5, True, {"@value": "a"}])
def test_a_map_of_types_that_leads_to_no_node_is_refused(value: Any) -> None:
    """JSON-LD's processor gives the literal a list of types, which is no literal."""
    context = {"a": {"@id": EX + "a", "@container": "@type"}}
    assert codes({"@context": context, "a": {EX + "T": value}}, "application/ld+json") == ["invalid-json-ld"]


@pytest.mark.parametrize("value", ["", 5, True])
def test_included_values_that_are_no_nodes_are_refused(value: Any) -> None:
    assert codes({"@context": [], "@type": "http://x/T", "@included": [{"@id": "urn:a"}, value]}) == ["invalid-json-ld"]


def test_a_node_within_itself_is_its_iri_and_blank_labels_are_no_values() -> None:
    found = tree(
        {
            "@id": "x:a",
            "x:knows": {"@id": "x:b", "x:knows": {"@id": "x:a"}},
            "x:has": {"@id": "_:c", "x:is": {"@id": "_:c"}},
        }
    )
    assert found["<x:knows>"] == {"@id": Resource("x:b"), "<x:knows>": Resource("x:a")}
    assert found["<x:has>"] == {}
    assert found["<x:has>"].value is None


def test_a_document_whose_nodes_unfold_without_bound_is_refused() -> None:
    pairs = "\n".join(f"<x:n{i}> <x:a> <x:n{i + 1}> ; <x:b> <x:n{i + 1}> ." for i in range(40))
    assert codes(pairs, "text/turtle") == ["too-many-values"]
    chain = "\n".join(f"<x:n{i}> <x:a> <x:n{i + 1}> ." for i in range(100)) + "<x:n100> <x:a> 1 ."
    assert codes(chain, "text/turtle") == ["too-deep"]
    deep: Any = 1
    for _ in range(5_000):
        deep = {"x:p": deep}
    assert codes(deep) == ["too-deep"]
    context: Any = {}
    for _ in range(400):
        context = {"x:p": {"@id": "x:p", "@context": context}}
    assert codes({"@context": context, "x:p": 1}) in (["too-deep"], ["invalid-json-ld"])


def test_expander_keeps_no_meaning_of_a_context_that_needs_unknown_ones() -> None:
    """What a context means is kept from one document to the next; one that could not be read whole is refused again."""
    known = {"https://example.com/known.jsonld": {"@context": {"a": "https://example.com/a"}}}
    expander = Expander(known)
    needing = {"a": {"@id": "https://example.com/a", "@context": "https://example.com/unknown.jsonld"}}
    for _ in range(2):
        for document in ({"@context": needing, "a": {"b": 1}}, {"@context": {"@import": "https://example.com/other"}}):
            with pytest.raises(InvalidEvent, match="unknown contexts"):
                expander.expanded(document)
        found = expander.expanded({"@context": "https://example.com/known.jsonld", "a": 1})
        assert found == [{"https://example.com/a": [{"@value": 1}]}]
    for number in range(200):
        found = expander.expanded({"@context": {"a": f"https://example.com/{number}"}, "a": number})
        assert found == [{f"https://example.com/{number}": [{"@value": number}]}]


@pytest.mark.parametrize("propagates", [False, True])
def test_a_context_by_its_url_says_whether_it_propagates(propagates: bool) -> None:
    """Like the same context in the document."""
    url, naming = "https://example.com/shop.jsonld", "https://example.com/naming.jsonld"
    shop = {"@propagate": propagates, "price": f"{EX}price", "part": f"{EX}part"}
    known = {url: {"@context": shop}, naming: {"@context": [url, {"name": f"{EX}name"}]}}
    data = {"price": 1, "name": "x", "part": {"price": 2, "name": "y"}}
    for context, alike in ((url, shop), ([url], shop), (naming, [shop, {"name": f"{EX}name"}])):
        found = Expander(known).expanded({"@context": context, **data})
        assert found == Expander(known).expanded({"@context": alike, **data})
        assert bool(found[0][f"{EX}part"][0]) is propagates


def test_an_import_of_a_context_changes_no_other_document() -> None:
    """Each document has its own terms and those that it imports, in every order."""
    url, importing, typed = (f"https://example.com/{each}.jsonld" for each in ("shop", "importing", "typed"))
    shop = {"price": f"{EX}price", "name": f"{EX}name"}
    known = {
        url: {"@context": shop},
        importing: {"@context": {"@import": url}},
        typed: {"@context": {"@propagate": False, **shop}},
    }

    def own(vocabulary: str, url: str = url) -> Any:
        return {"@import": url, "@vocab": vocabulary, "price": vocabulary + "price"}

    cases: list[tuple[Any, set[str]]] = [
        (url, {f"{EX}price", f"{EX}name"}),
        (importing, {f"{EX}price", f"{EX}name"}),
        (own("urn:a:"), {"urn:a:price", f"{EX}name", "urn:a:other"}),
        (own("urn:b:"), {"urn:b:price", f"{EX}name", "urn:b:other"}),
        (own("urn:b:", typed), {"urn:b:price", f"{EX}name", "urn:b:other"}),
        ([{"@context": own("urn:c:")}], {"urn:c:price", f"{EX}name", "urn:c:other"}),
    ]
    for order in (cases, cases[::-1], cases[2:] + cases + cases[::-1]):
        expander, reader = Expander(known), GraphReader(known, EventLimits())
        for context, names in order:
            document = {"@context": context, "price": 1, "name": "a", "other": 2}
            assert set(expander.expanded(document)[0]) == names
            data = reader.read(Event(document))[0].data
            assert isinstance(data, Node)
            assert {each.strip("<>") for each in data if each.startswith("<")} == names
    with pytest.raises(InvalidEvent, match="must not include @import"):
        Expander(known).expanded({"@context": {"@import": importing}, "price": 1})


CORE = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.8.jsonld"
NORMALIZED = {
    "temperature": {"type": "Property", "value": 21.5, "unitCode": "CEL", "observedAt": "2026-01-31T12:00:00Z"},
    "locatedIn": {"type": "Relationship", "object": "urn:x:house", "since": {"type": "Property", "value": 3}},
    "label": {"type": "LanguageProperty", "languageMap": {"de": "Küche", "en": "kitchen"}},
    "level": [
        {"type": "Property", "value": 1, "datasetId": "urn:x:a"},
        {"type": "Property", "value": 2, "datasetId": "urn:x:b", "previousValue": 5},
    ],
    "gone": {"type": "Property", "value": "urn:ngsi-ld:null"},
}


def test_ngsi_ld_members_are_the_values_that_they_stand_for() -> None:
    """Normalized and concise entities are one event; what is said of a value stands beneath its name."""
    entity = {"@context": CORE, "id": "urn:x:room", "type": "Room"}
    concise = {
        name: [{key: value for key, value in each.items() if key != "type"} for each in members]
        for name, members in ((name, each if isinstance(each, list) else [each]) for name, each in NORMALIZED.items())
    }
    concise["locatedIn"][0]["since"] = {"value": 3}
    contexts = Vocabulary().contexts
    found = tree({**entity, **NORMALIZED}, contexts=contexts)
    assert found == tree({**entity, **concise}, contexts=contexts)
    matcher = Matcher(Vocabulary())
    asked = [
        "temperature > 70 degF and temperature.value = 21.5 degC and temperature.unitCode = 'CEL'",
        "temperature.observedAt < 2026-02-01T00:00:00Z",
        'locatedIn = "urn:x:house" and locatedIn.since = 3',
        'label = "Küche" and label.@language = "en"',
        "level = 1 and level = 2 and level.previousValue = 5",
        "gone missing and level.@type missing",
        '`@id` = "urn:x:room"',
    ]
    for each in asked:
        matcher.add(each, each)
    matched = [match.subscription for match in matcher.match({**entity, **NORMALIZED})]
    assert matched == asked
    simple = {**entity, "temperature": 21.5, "locatedIn": "urn:x:house", "level": [1, 2]}
    assert '`@id` = "urn:x:room"' in [match.subscription for match in matcher.match(simple)]


def test_ngsi_ld_deleted_members_lists_and_inline_entities_are_read_in_every_form() -> None:
    """A deleted member is absent also where no other member is an object. Lists and entities within a member are read
    like the member itself."""
    matcher = Matcher(Vocabulary())
    asked = ["n exists", 'n = "urn:x:a" and n = "urn:x:b" and count(n) = 2', "n.entity.s = 3 and n.s = 3"]
    for each in asked:
        matcher.add(each, each)
    related = {"object": "urn:x:a", "entity": {"id": "urn:x:a", "type": "Room", "s": {"type": "Property", "value": 3}}}
    members: list[tuple[Any, list[str]]] = [
        ("urn:ngsi-ld:null", []),
        (["urn:ngsi-ld:null"], []),
        ({"type": "Property", "value": ["urn:ngsi-ld:null"]}, []),
        ({"type": "ListRelationship", "objectList": [{"object": "urn:x:a"}, {"object": "urn:x:b"}]}, asked[:2]),
        ({"objectList": [{"object": "urn:x:a"}, {"object": "urn:ngsi-ld:null"}]}, asked[:1]),
        ({"type": "Relationship", **related}, [asked[0], asked[2]]),
    ]
    for member, matched in members:
        event = {"@context": CORE, "id": "urn:x:room", "type": "Room", "n": member}
        assert [match.subscription for match in matcher.match(event)] == matched, member


def test_contexts_by_relative_addresses_are_unknown() -> None:
    """A published document has no address to which they could be relative: they are told with the others."""
    scoped = {"ex:b": {"@id": EX + "b", "@context": "b.jsonld"}}
    document = {"@context": ["a.jsonld", "http://a.example/x", scoped], "ex:b": {"c": 1}}
    with pytest.raises(InvalidEvent) as caught:
        tree(document)
    (problem,) = caught.value.problems
    assert problem.code == "unknown-context"
    assert {each["url"] for each in problem.suggestions} >= {"a.jsonld", "b.jsonld"}
    event, notes = GraphReader({}, EventLimits()).read(Event(document))
    assert event.data is document
    assert [note.code for note in notes] == ["unknown-context"]


def test_relative_iris_stay_as_published_without_a_base() -> None:
    """A published document has no address: no other base is put in its place, whichever way it is read."""
    document = {"@context": {"to": {"@id": EX + "to", "@type": "@id"}}, "@id": "box/1", "@type": "Box", "to": "#lid"}
    expected = {"@id": Resource("box/1"), "@type": Resource("Box"), f"<{EX}to>": Resource("#lid")}
    assert tree(document) == expected
    assert unfolded(graph_of_expanded(Expander({}).expanded(document)), "box/1", EventLimits()) == expected
    based = tree({**document, "@context": [document["@context"], {"@base": "http://a.example/b/"}]})
    assert based["@id"] == Resource("http://a.example/b/box/1")


@pytest.mark.parametrize("keyword", ["@vocab", "@language", "@direction"])
def test_context_may_remove_what_is_not_there(keyword: str) -> None:
    """With null, so that a context does not depend on those before it."""
    context = {keyword: None, "size": EX + "size"}
    assert tree({"@context": context, "@id": "urn:a", "size": "x"}) == {"@id": Resource("urn:a"), f"<{EX}size>": "x"}
    before = [{"@vocab": "urn:v:", "@language": "de"}, context]
    assert f"<{EX}size>" in tree({"@context": before, "@id": "urn:a", "size": "x"})


def test_the_keys_of_an_index_stand_under_its_property() -> None:
    """`@index` names a property as terms do, although the document has no base."""
    authors = {"@id": EX + "author", "@container": "@index", "@index": "role"}
    found = tree({"@context": {"@vocab": EX, "authors": authors}, "authors": {"guest": {"name": "Ann"}}})
    assert found[f"<{EX}author>"] == {f"<{EX}name>": "Ann", f"<{EX}role>": "guest"}


def test_roots_of_rdf_are_the_nodes_of_declared_event_types() -> None:
    """A declaration of something else makes no class the class of events."""
    kind = {"datacontenttype": "text/turtle"}
    derived = Matcher(Vocabulary(attributes={"twice": {"derived": "m * 2"}}))
    derived.add("s", "twice = 4 and of.n = 1")
    graph = f"<x:a> <{EX}of> <x:b> ; <{EX}m> 2 . <x:b> a <{EX}Class> ; <{EX}n> 1 ."
    assert [match.subscription for match in derived.match(Event(graph, kind))] == ["s"]
    typed = Matcher(Vocabulary(schemas={EX + "Class": {"type": "object"}}))
    two = "".join(f"<x:{name}> a <{EX}Class> ; <{EX}of> <x:c> . " for name in "ab") + f"<x:c> <{EX}of> <x:a> ."
    assert len(typed.events_of(Event(two, kind))) == 2
    with pytest.raises(InvalidEvent, match=r"nodes that belong to no event \(1\): x:a"):
        typed.events_of(Event(graph, kind))


def test_curie_of_an_attribute_is_spelt_by_ontologies_before_contexts(tmp_path: Path) -> None:
    """A prefix of an ontology hides that of a context; subscriptions come after events, and from a saved matcher."""
    turtle = b"@prefix s: <http://one.example/> . @prefix owl: <http://www.w3.org/2002/07/owl#> . s:A a owl:Class ."
    context = {
        "@context": {"s": "http://two.example/", "t": "http://two.example/", "u": {"@id": "http://two.example/"}}
    }
    vocabulary = Vocabulary.from_bytes(turtle, format="turtle", contexts={"http://e.example/c": context})
    matcher = Matcher(vocabulary)
    event = {
        "@context": {"a": "http://one.example/", "b": "http://two.example/"},
        "a:n": 1,
        "b:n": 2,
        "a:box": {"b:n": 3},
    }
    matcher.add("any", "n exists and some box (n = 3)")
    assert [match.subscription for match in matcher.match(event)] == ["any"]
    asked = {
        "one": "s:n = 1",
        "two": "t:n = 2",
        "none": "u:n exists",
        "in": "some s:box (t:n = 3)",
        "path": "box.t:n = 3",
    }
    for name, text in asked.items():
        matcher.add(name, text)
    expected = ["any", "in", "one", "path", "two"]
    assert sorted(match.subscription for match in matcher.match(event)) == expected
    assert [sorted(match.subscription for match in each) for each in matcher.match_batch([event])] == [expected]
    matcher.save(tmp_path)
    again = Vocabulary.from_bytes(turtle, format="turtle", contexts={"http://e.example/c": context})
    assert sorted(match.subscription for match in Matcher.open(tmp_path, again).match(event)) == expected
    later = turtle.replace(b"http://one", b"http://three")
    impact = Impact(vocabulary, Vocabulary.from_bytes(later, format="turtle", contexts={"http://e.example/c": context}))
    impact.add([("one", {"=": ["s:n", 1]}), ("two", {"=": ["t:n", 2]})])
    assert impact.changed == ["one"]
    assert "stands for another property" in impact_report(impact)["subscriptions"]["listed"][0]["changes"][0]


def test_keywords_beneath_a_name_are_not_taken_for_misspelt_ones() -> None:
    """The publisher of a graph is told of a misspelt property, and of nothing that JSON-LD adds."""
    turtle = f"""@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix : <{EX}> .
        :grossWeight a owl:ObjectProperty . :type a owl:ObjectProperty . :Shipment a owl:Class ."""
    matcher = Matcher(Vocabulary.from_bytes(turtle.encode(), format="turtle"))
    matcher.add("s", "ce.type isa Shipment")
    node = {"@id": f"{EX}1", "@type": "Value", "label": {"@value": "x", "@language": "de"}}
    event = {"@context": {"@vocab": EX}, "@type": "Shipment", "grossWeight": node, "grossWeigth": 5}
    noted = {note.attribute for note in matcher.notes(event) if note.code == "near-attribute"}
    assert noted == {"grossWeigth"}


def test_subscriber_to_a_name_of_several_properties_is_told() -> None:
    """Rule 21: they share the attribute, noted, and `<IRI>` asks for one. Two forms of one IRI are one property."""
    turtle = "@prefix owl: <http://www.w3.org/2002/07/owl#> . " + " ".join(
        f"<{iri}> a owl:DatatypeProperty ."
        for iri in ("http://a/#width", "http://b/#width", "http://a/#depth", "https://a/#depth")
    )
    aliases = {"forms": {"prefixes": {"https://a/": "http://a/"}}}
    matcher = Matcher(Vocabulary.from_bytes(turtle.encode(), format="turtle", aliases=aliases))

    def noted(expression: str) -> list[tuple[str, str]]:
        return [(note.code, note.attribute) for note in matcher.add(expression, expression).notes]

    assert noted("width > 5") == [("shared-name", "width")]
    assert noted("box.width > 5 or count(box.width) > 1") == [("shared-name", "box.width")]
    assert noted("<http://a/#width> > 5 and depth > 5") == []
    assert "(<http://a/#width>, <http://b/#width>)" in matcher["width > 5"].notes[0].detail


@pytest.mark.parametrize(
    ("data", "content", "code", "said"),
    [
        ('{"@context": {}, "p": 5}', "application/ld+json", "no-object", "must be an object or an array"),
        (None, "application/ld+json", "no-object", "must be an object or an array"),
        (None, "text/turtle", "malformed-rdf", "must be a text"),
        ("<urn:a> <urn:p> <urn:b> . <urn:b> <urn:p> <urn:a> .", "text/turtle", "no-event", "the value of another node"),
        ("", "text/turtle", "no-event", "no statement, so no node of it can be an event$"),
        ({"price": 5}, "application/ld+json", "no-event", "a name counts only if the @context gives it an IRI"),
        ({"resourceType": "Bundle", "type": "history", "entry": []}, "application/fhir+json", "no-event", "is empty"),
    ],
)
def test_documents_without_an_event_are_refused_with_the_reason(data: Any, content: str, code: str, said: str) -> None:
    with pytest.raises(InvalidEvent, match=said) as refused:
        Matcher(Vocabulary()).canonicalise(Event(data, {"datacontenttype": content}))
    assert [problem.code for problem in refused.value.problems] == [code]
