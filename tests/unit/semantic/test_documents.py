"""Documents of several events: which events they hold, what each is, and what it is called (rule 21)."""

import itertools
import json
from typing import Any

import pytest

from kindcast.semantic import Event, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.events import documents
from kindcast.semantic.events.documents import DocumentReader
from kindcast.semantic.events.linked_data.reader import GraphReader
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.vocabulary import SHIPPED_SPLITS, Declarations
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import Splits, split_of

EX = "http://example.org/"
CONTEXT = {"ex": EX}
EPCIS_URL = "https://ref.gs1.org/standards/epcis/epcis-context.jsonld"
EPCIS_CONTEXT = {"@context": {"@vocab": "https://ref.gs1.org/epcis/", "type": "@type", "eventID": "@id"}}


def matcher(**declared: Any) -> Matcher:
    contexts = {EPCIS_URL: EPCIS_CONTEXT, **declared.pop("contexts", {})}
    return Matcher(Vocabulary(contexts=contexts, **declared))


def events(data: Any, context: dict[str, Any] | None = None, **declared: Any) -> list[Event]:
    return matcher(**declared).events_of(Event(data, {"id": "7"} if context is None else context))


def told(data: Any, context: dict[str, Any] | None = None, **declared: Any) -> list[tuple[Any, Any]]:
    return [(each.context["id"], each.data) for each in events(data, context, **declared)]


def epcis(*listed: Any, **more: Any) -> dict[str, Any]:
    body = {"eventList": list(listed), **more.pop("body", {})}
    return {"@context": [EPCIS_URL], "type": "EPCISDocument", "schemaVersion": "2.0", "epcisBody": body, **more}


def code_of(data: Any, context: dict[str, Any] | None = None, **declared: Any) -> str:
    with pytest.raises(InvalidEvent) as caught:
        events(data, context, **declared)
    return caught.value.problems[0].code


def test_an_epcis_document_holds_its_events_under_the_contexts_around_them() -> None:
    first = {"type": "ObjectEvent", "eventID": "urn:e:1", "bizStep": "shipping"}
    second = {"@context": {"my": EX}, "type": "ObjectEvent", "eventID": "urn:e:1", "my:note": "x"}
    second["errorDeclaration"] = {"declarationTime": "2026-03-01T00:00:00Z"}
    third = {"type": "AggregationEvent", "bizStep": "packing"}
    document = epcis(first, second, third, body={"@context": {"own": EX + "own#"}})
    contexts: list[Any] = [EPCIS_URL, {"own": EX + "own#"}]
    assert told(document) == [
        ("7#urn:e:1", {"@context": contexts, **first}),
        ("7#urn:e:1#2026-03-01T00:00:00Z", {**second, "@context": [*contexts, {"my": EX}]}),
        ("7#2", {"@context": contexts, **third}),
    ]
    query = {
        "@context": EPCIS_URL,
        "type": "EPCISQueryDocument",
        "epcisBody": {"queryResults": {"resultsBody": {"eventList": [first, third]}}},
    }
    assert [data for _, data in told(query)] == [{"@context": EPCIS_URL, **each} for each in (first, third)]


def test_one_event_keeps_its_document_and_is_read_out_of_it() -> None:
    document = epcis({"type": "ObjectEvent", "eventID": "urn:e:1", "bizStep": "shipping"})
    whole = Event(document, {"id": "7"})
    asking = matcher()
    asking.add("s", 'bizStep = "shipping" and epcisBody.eventList.bizStep missing and `@id` = "urn:e:1"')
    assert asking.events_of(whole) == [whole]
    assert [each.subscription for each in asking.match(whole)] == ["s"]
    assert [each.subscription for each in asking.match(document)] == ["s"]


@pytest.mark.parametrize(
    ("data", "context", "expected"),
    [
        (
            {
                "resourceType": "Bundle",
                "entry": [{"resource": {"id": "1"}}, {"request": {}}, {"resource": {"id": "1"}}],
            },
            {"id": "7", "datacontenttype": "Application/FHIR+JSON; fhirVersion=4.0"},
            [("7#0", {"id": "1"}), ("7#1", {"id": "1"})],
        ),
        (
            {"type": "bundle", "id": "bundle--1", "objects": [{"id": "a--1", "modified": "2026"}, {"id": "a--1"}]},
            None,
            [("7#a--1#2026", {"id": "a--1", "modified": "2026"}), ("7#a--1", {"id": "a--1"})],
        ),
        (
            {"type": "bundle", "id": "bundle--1", "objects": [{"id": "a--1", "n": 1}, {"id": "a--1", "n": 2}]},
            {},
            [("{digest}#0", {"id": "a--1", "n": 1}), ("{digest}#1", {"id": "a--1", "n": 2})],
        ),
        (
            {"type": "bundle", "id": "bundle--1", "objects": [{"id": "a--1", "n": 1}, {"id": "a--1", "n": 2}]},
            None,
            [("7#a--1", {"id": "a--1", "n": 1}), ("7#a--1#1", {"id": "a--1", "n": 2})],
        ),
        (
            {
                "@context": "https://www.w3.org/ns/activitystreams",
                "type": "OrderedCollectionPage",
                "orderedItems": [{"id": "urn:a:1", "updated": "2026-01-01T00:00:00Z"}, {"type": "Note"}],
            },
            {},
            [
                (
                    "urn:a:1#2026-01-01T00:00:00Z",
                    {
                        "@context": "https://www.w3.org/ns/activitystreams",
                        "id": "urn:a:1",
                        "updated": "2026-01-01T00:00:00Z",
                    },
                ),
                ("{digest}#1", {"@context": "https://www.w3.org/ns/activitystreams", "type": "Note"}),
            ],
        ),
        (
            {
                "@context": {"tree": "https://w3id.org/tree#", "ex": EX},
                "tree:member": [{"@id": "ex:1", "ex:n": 0}, {"ex:n": 1}],
            },
            None,
            [
                (f"7#{EX}1", {"@context": {"tree": "https://w3id.org/tree#", "ex": EX}, "@id": "ex:1", "ex:n": 0}),
                ("7#1", {"@context": {"tree": "https://w3id.org/tree#", "ex": EX}, "ex:n": 1}),
            ],
        ),
    ],
    ids=["FHIR", "STIX", "no envelope", "no revision", "ActivityStreams", "LDES"],
)
def test_shipped_envelopes(data: Any, context: dict[str, Any] | None, expected: list[tuple[str, Any]]) -> None:
    found = told(data, context)
    digest = next((id.partition("#")[0] for id, _ in found if len(id.partition("#")[0]) == 32), "")
    assert found == [(id.format(digest=digest), body) for id, body in expected]


@pytest.mark.parametrize(
    "data",
    [
        {"type": "bundle", "id": "b-1", "objects": [{"n": 1}, {"n": 2}]},
        {"resourceType": "Bundle", "entry": [{"resource": {"n": 1}}, {"resource": {"n": 2}}]},
        {"@context": "https://www.w3.org/ns/activitystreams", "type": "Collection", "items": ["urn:a:1", "urn:a:2"]},
        {"resourceType": "Bundle", "type": "searchset", "total": 0},
    ],
    ids=["no STIX", "no FHIR", "references", "no entries"],
)
def test_what_only_looks_like_an_envelope_is_one_event(data: Any) -> None:
    assert told(data) == [("7", data)]


def test_documents_of_no_events_and_of_mixed_ones_are_refused() -> None:
    assert code_of(epcis()) == "no-event"
    assert code_of(epcis({"type": "ObjectEvent"}, "urn:e:2")) == "no-object"
    several = epcis({"type": "ObjectEvent"}, {"type": "ObjectEvent"})
    with pytest.raises(InvalidEvent) as caught:
        matcher().match(several)
    assert caught.value.problems[0].code == "several-events"


def test_declared_envelopes_and_what_events_inherit() -> None:
    data = {
        "shop": {"name": "s", "town": "Wien"},
        "order": [
            {"no": 1, "lines": [{"item": "a"}, {"item": "b", "order": {"no": 9}}]},
            {"no": 2, "lines": {"item": "c"}},
        ],
    }
    split = {"split": "order.lines", "inherit": ["shop.name", "order.no"], "where": {"shop.town": "Wi*"}, "id": "item"}
    expected = [
        ("7#a", {"item": "a", "shop": {"name": "s"}, "order": {"no": 1}}),
        ("7#b", {"item": "b", "shop": {"name": "s"}, "order": {"no": 9}}),
        ("7#c", {"item": "c", "shop": {"name": "s"}, "order": {"no": 2}}),
    ]
    assert told(data, splits={"orders": split}) == expected
    assert told({**data, "shop": {"town": "Graz"}}, splits={"orders": split})[0][0] == "7"
    typed = {"schemas": {"order": {"x-kindcast-split": split}}}
    assert told(data, {"id": "7", "type": "order"}, **typed) == expected
    assert told(data, {"id": "7", "type": "other"}, **typed) == [("7", data)]
    bundle = {"type": "bundle", "id": "bundle--1", "objects": [{"n": 1}, {"n": 2}]}
    assert len(events(bundle)) == 2
    assert len(events(bundle, splits={"stix": {"split": []}})) == 1


def test_envelopes_within_envelopes() -> None:
    inner = {"type": "bundle", "id": "bundle--2", "objects": [{"n": 2}, {"n": 3}]}
    graph = {"@context": CONTEXT, "@graph": [{"ex:n": 4}, {"@id": "ex:5", "ex:n": 5}]}
    data = {"type": "bundle", "id": "bundle--1", "objects": [{"n": 1}, inner, graph]}
    assert told(data) == [
        ("7#0", {"n": 1}),
        ("7#1", {"n": 2}),
        ("7#2", {"n": 3}),
        ("7#3", {"@context": CONTEXT, "ex:n": 4}),
        (f"7#{EX}5", {"@context": CONTEXT, "@id": "ex:5", "ex:n": 5}),
    ]


def test_nodes_of_a_graph_are_documents_of_their_own() -> None:
    first, second = {"@id": "ex:1", "ex:n": 1}, {"@id": "ex:2", "ex:next": {"@id": "ex:1"}}
    for data in (
        {"@context": CONTEXT, "@graph": [first, second]},
        [{"@context": CONTEXT, **first}, second | {"@context": CONTEXT}],
    ):
        context = {"id": "7", "datacontenttype": "application/ld+json"}
        assert told(data, context) == [
            (f"7#{EX}1", {"@context": CONTEXT, **first}),
            (f"7#{EX}2", {"@context": CONTEXT, **second}),
        ]


def test_nodes_that_share_a_description_keep_the_whole_document() -> None:
    """Alone, the second would not know the name of what it refers to."""
    shared = {"@id": "ex:s", "ex:name": "S"}
    data = {
        "@context": CONTEXT,
        "@graph": [{"@id": "ex:1", "ex:at": shared}, {"@id": "ex:2", "ex:at": {"@id": "ex:s"}}],
    }
    asking = matcher()
    asking.add("s", 'at.name = "S"')
    found = asking.events_of(Event(data, {"id": "7"}))
    assert [(each.context, each.data) for each in found] == [
        ({"graphroot": f"{EX}{n}", "id": f"7#{EX}{n}"}, data) for n in (1, 2)
    ]
    assert [len(asking.match(each)) for each in found] == [1, 1]
    # As earlier versions stored them.
    assert [len(asking.match(Event(data, {"id": "7", "graphroot": n}))) for n in ("0", "1")] == [1, 1]


TURTLE = f"""@prefix ex: <{EX}> .
ex:1 a ex:Piece ; ex:n 1 ; ex:at [ ex:name "S"@de, "T" ] ; ex:parts ( ex:a 2 ) .
ex:2 a ex:Piece ; ex:at ex:1 ; ex:weight 1.5 ."""


def test_rdf_nodes_are_documents_of_their_own_statements() -> None:
    context = {"id": "7", "datacontenttype": "text/turtle"}
    found = events(f"{TURTLE} ex:1 ex:back ex:2 .", context, schemas={"Piece": {}})
    assert [each.context["id"] for each in found] == [f"7#{EX}1", f"7#{EX}2"]
    assert found[1].data == (
        f"<{EX}2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{EX}Piece> .\n<{EX}2> <{EX}at> <{EX}1> .\n"
        f'<{EX}2> <{EX}weight> "1.5"^^<http://www.w3.org/2001/XMLSchema#decimal> .\n'
    )
    asking = matcher(schemas={"Piece": {}})
    asking.add(
        "one",
        'n = 1 and at.name = "S" and at.@language = "de" and parts = 2'.replace("at.@language", "at.name.@language"),
    )
    asking.add("two", f'weight = 1.5 and at = "{EX}1" and at.n missing')
    assert [[each.subscription for each in asking.match(event)] for event in found] == [["one"], ["two"]]
    assert [asking.events_of(each) for each in found] == [[each] for each in found]
    named = f"{TURTLE} GRAPH ex:g {{ ex:3 ex:n 3 }} ex:2 ex:of ex:g ."
    parts = events(named, {"id": "7", "datacontenttype": "application/trig"}, schemas={"Piece": {}})
    assert [(each.data, each.context["graphroot"]) for each in parts] == [(named, f"{EX}{n}") for n in (1, 2)]


def test_members_of_a_page_of_rdf_are_its_events() -> None:
    page = f"""@prefix tree: <https://w3id.org/tree#> . @prefix ex: <{EX}> .
    ex:stream tree:member ex:1, ex:2, [ ex:n 3 ] ; tree:view ex:page . ex:page tree:relation [ tree:node ex:next ] .
    ex:1 ex:n 1 ; ex:at ex:2 . ex:2 ex:n 2 ."""
    asking = matcher()
    for n in (1, 2, 3):
        asking.add(f"n{n}", f"n = {n}")
    found = asking.events_of(Event(page, {"id": "7", "datacontenttype": "text/turtle"}))
    assert [each.context["id"] for each in found] == [f"7#{EX}1", f"7#{EX}2", "7#2"]
    assert [[each.subscription for each in asking.match(event)] for event in found] == [["n1"], ["n2"], ["n3"]]
    json_ld = {
        "@context": {"part": {"@id": "https://w3id.org/tree#member"}, "ex": EX},
        "@id": "ex:stream",
        "part": [{"@id": "ex:1", "ex:n": 1, "ex:at": {"@id": "ex:2"}}, {"@id": "ex:2", "ex:n": 2}],
    }
    found = asking.events_of(Event(json_ld, {"id": "7"}))
    assert [[each.subscription for each in asking.match(event)] for event in found] == [["n1"], ["n2"]]


def test_long_and_odd_ids_give_way_to_positions() -> None:
    data = {"type": "bundle", "id": "bundle--1", "objects": [{"id": "x" * 5_000}, {"id": "a\nb"}, {"id": 3}]}
    assert [id for id, _ in told(data)] == ["7#0", "7#1", "7#3"]
    (first, *_) = told(data, {"id": "y" * 2_000})
    assert len(first[0]) < 100


SCHEMA = {
    "properties": {"cost": {"type": "number"}, "@type": {"type": "string"}},
    "required": ["cost"],
    "additionalProperties": False,
}


def test_published_json_of_a_graph_is_checked_against_its_event_type() -> None:
    """Names and values as they are in the document, whatever they expand to; the type by its IRI or its local name."""
    context = {"ex": EX, "cost": "ex:price"}
    for name in ("Piece", f"{EX}Piece"):
        asking = matcher(schemas={name: SCHEMA})
        asking.add("s", "price = 3")
        good = {"@context": context, "@id": "ex:1", "@type": "ex:Piece", "cost": 3}
        forms: list[Any] = [good, {"@context": context, "@graph": [{k: v for k, v in good.items() if k != "@context"}]}]
        for form in forms:
            assert [each.subscription for each in asking.match(form)] == ["s"]
        for bad in ({**good, "cost": "3"}, {**good, "ex:more": 1}, {"@context": context, "@type": "ex:Piece"}):
            with pytest.raises(InvalidEvent):
                asking.match(bad)
            with pytest.raises(InvalidEvent):
                asking.canonicalise(bad)
        turtle = f"<{EX}1> a <{EX}Piece> ; <{EX}more> 1 ."
        asking.match(Event(turtle, {"datacontenttype": "text/turtle"}))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"split": 5},
        {"split": "a..b"},
        {"split": "<urn:x"},
        {"split": "a", "more": 1},
        {"split": "a", "where": {"b": 5}},
        {"split": "a", "where": {"b": []}},
        {"split": "a", "where": []},
        {"split": "a", "id": "<urn:x>"},
        {"split": ["a"] * 17},
    ],
)
def test_wrong_declarations_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidDeclaration):
        Declarations().extended("split", "x", wrong)
    with pytest.raises(InvalidDeclaration):
        Vocabulary(schemas={"t": {"x-kindcast-split": wrong}})


def test_declarations_are_kept_and_count_in_the_version() -> None:
    declared = Declarations().extended("split", "x", {"split": "a.b"})
    assert Declarations.from_json(json.loads(json.dumps(declared.to_json()))) == Declarations.from_json(
        declared.to_json()
    )
    assert Vocabulary(**declared.arguments()).version != Vocabulary().version
    assert declared.without("split", "x") == Declarations()
    for name, body in SHIPPED_SPLITS.items():
        split = split_of(name, body)
        assert split_of(name, split.declaration) == split
    assert Splits(shipped=False).all == ()
    assert Vocabulary(reading={"linked_data": "plain"}).splits.all == ()


@pytest.mark.parametrize(
    "objects",
    [
        [{"id": "http://e/s#2"}, {"id": "http://e/s"}, {"id": "http://e/s"}],
        [{"id": "x"}, {"id": "x"}, {"id": "x", "modified": "1"}],
        [{"id": "x#1", "modified": "2"}, {"id": "x", "modified": "1#2"}],
    ],
)
def test_different_events_of_a_document_never_share_an_id(objects: list[dict[str, Any]]) -> None:
    """One of them would be taken for a repetition of the other, and be lost."""
    numbered = [each | {"n": number} for number, each in enumerate(objects)]
    found = events({"type": "bundle", "id": "bundle--1", "objects": numbered})
    assert len({each.context["id"] for each in found}) == len(objects)


def test_the_same_revision_twice_in_a_document_is_a_repetition() -> None:
    """It has one id, and is accepted once."""
    twice = [{"id": "x", "modified": "1"}, {"id": "x", "modified": "1"}]
    found = events({"type": "bundle", "id": "bundle--1", "objects": twice})
    assert len({each.context["id"] for each in found}) == 1


@pytest.mark.parametrize("taken", ["nodes", "elements", "RDF"])
def test_documents_whose_events_would_be_too_large_are_refused_before_these_are_read(
    monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """A context is repeated in each event: 100 kB of document would be 400 events of 5 kB."""
    monkeypatch.setattr(documents, "MOST_TOGETHER", 100_000)
    events_read, read = GraphReader._events, list[Any]()

    def counted(self: GraphReader, data: Any, *given: Any, **named: Any) -> Any:
        read.append(data)
        return events_read(self, data, *given, **named)

    monkeypatch.setattr(GraphReader, "_events", counted)
    context = {"tree": "https://w3id.org/tree#", **{f"term{number}": f"{EX}{number}" for number in range(150)}}
    nodes = [{"@id": f"{EX}n{number}", "term1": number} for number in range(400)]
    kind = {"id": "7", "datacontenttype": "application/ld+json"}
    if taken == "nodes":
        assert code_of({"@context": context, "@graph": nodes}, kind) == "too-many-values"
        assert len(read) <= 2
    elif taken == "elements":
        assert code_of({"@context": context, "tree:member": nodes}, kind) == "too-many-values"
        assert len(read) <= 100_000 // 5_000 + 1
    else:
        shared = "\n".join(f"_:s <{EX}p> {number} ." for number in range(100))
        turtle = shared + "\n".join(f"<{EX}n{number}> <{EX}q> _:s ." for number in range(400))
        assert code_of(turtle, {"id": "7", "datacontenttype": "text/turtle"}) == "too-many-values"
        assert len(read) <= 2


def test_a_document_that_takes_too_long_to_be_taken_apart_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processor time of the thread, at the next event."""
    reader = GraphReader({}, EventLimits())
    parts = DocumentReader(reader, Splits(), EventSchemas())
    bundle = Event(
        {"type": "bundle", "id": "bundle--1", "objects": [{"n": number} for number in range(9)]}, {"id": "7"}
    )
    assert len(parts.events_of(bundle)) == 9
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    with pytest.raises(InvalidEvent) as caught:
        parts.events_of(bundle, seconds=3.0)
    assert caught.value.problems[0].code == "reading-too-slow"
    assert next(clock) == 5.0
