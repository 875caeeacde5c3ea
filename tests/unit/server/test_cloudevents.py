"""Requests in every mode become events."""

import asyncio
import base64
import itertools
import json
import threading
from typing import Any

import pytest

from kindcast import InvalidEvent, Vocabulary
from kindcast.server.cloudevents import (
    DEFAULTS,
    BadRequestMode,
    Decoded,
    DecodedEvent,
    EventReader,
    ReadingBudget,
    TooManyEvents,
    UnknownContent,
)

EVENT = {"specversion": "1.0", "id": "1", "source": "urn:shop", "type": "offer", "data": {"price": 350}}
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
LINES = "application/x-ndjson"


ENVELOPE = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}


def read(content_type: str | None, body: bytes | str | Any, **headers: str) -> list[DecodedEvent | InvalidEvent]:
    """The events of one request; `ce_id="1"` stands for the header ce-id."""
    if not isinstance(body, bytes | str):
        body = json.dumps(body)
    data = body.encode() if isinstance(body, str) else body
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return EventReader(max_events=100).read(content_type, named, data).events


def one(content_type: str | None, body: Any, **headers: str) -> DecodedEvent:
    """The one event of a request, which must be readable."""
    (event,) = read(content_type, body, **headers)
    assert isinstance(event, DecodedEvent), event
    return event


def problems(content_type: str | None, body: Any, **headers: str) -> set[tuple[str, str | None]]:
    """Code and pointer of everything that is wrong with the one event of a request."""
    (event,) = read(content_type, body, **headers)
    assert isinstance(event, InvalidEvent), event
    return {(each.code, each.at.pointer if each.at else None) for each in event.problems}


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_structured_event_is_kept_whole() -> None:
    """The stored body has every attribute and the data; the matcher gets the attributes without their prefix."""
    event = one(STRUCTURED, EVENT | {"subject": "s", "priority": 5, "nothing": None})
    assert json.loads(event.body) == EVENT | {"subject": "s", "priority": 5}
    assert (event.source, event.id, event.type, event.id_is_ours) == ("urn:shop", "1", "offer", False)
    assert event.event.data == {"price": 350}
    assert event.event.context["priority"] == 5
    assert "nothing" not in event.event.context


def test_binary_event_equals_its_structured_twin() -> None:
    """The same event in both modes has the same body and digest, so that one is a duplicate of the other."""
    binary = one(
        "application/json", {"price": 350}, ce_specversion="1.0", ce_id="1", ce_source="urn:shop", ce_type="offer"
    )
    structured = one(STRUCTURED, EVENT | {"datacontenttype": "application/json"})
    assert json.loads(binary.body) == json.loads(structured.body)
    assert binary.digest == structured.digest


def test_binary_header_values_are_percent_decoded() -> None:
    """Header values carry other characters percent-encoded."""
    event = one("application/json", {}, ce_specversion="1.0", ce_id="1", ce_source="urn:a%20b", ce_type="%E6%96%B0")
    assert (event.source, event.type) == ("urn:a b", "新")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ('"Euro%20%E2%82%AC"', "Euro €"),
        (r'"say \"hi\" \\ bye"', 'say "hi" \\ bye'),
        ('""', None),
        ('"open', '"open'),
        ("café €".encode().decode("latin-1"), "café €"),
        ("caf\xe9", "café"),
    ],
)
def test_binary_header_values_may_be_quoted_or_raw(header: str, text: str | None) -> None:
    """Receivers must accept what senders of older versions of CloudEvents quote (section 3.1.3.2 of the HTTP binding).
    Libraries that do not encode send UTF-8, or ISO 8859-1 as HTTP once did."""
    (event,) = read("application/json", {}, ce_id="1", ce_subject=header)
    assert (event.event.context["subject"] if isinstance(event, DecodedEvent) else None) == text


def test_binary_headers_that_cannot_be_read_are_refused() -> None:
    """Encoded bytes that are no UTF-8, and a header that occurs twice: no value is guessed."""
    with pytest.raises(BadRequestMode, match="ce-subject is not percent-encoded UTF-8"):
        read("application/json", {}, ce_subject="%C3%28")
    twice = [("ce-id", "1"), ("ce-subject", "a"), ("ce-subject", "b")]
    with pytest.raises(BadRequestMode, match="ce-subject occurs twice"):
        EventReader(max_events=1).read("application/json", twice, b"{}")


def test_null_as_data_base64_is_no_data() -> None:
    """Some libraries write every member that an event could have."""
    event = one(STRUCTURED, EVENT | {"data_base64": None})
    assert json.loads(event.body) == EVENT


def test_binary_text_and_bytes_are_kept_as_they_are() -> None:
    """Text stays text, other content becomes base64. Neither has attributes. The matcher, which gets the text, says so
    for text, and the reader for base64."""
    text = one("text/plain", "grün", ce_id="1")
    assert json.loads(text.body)["data"] == "grün"
    assert text.event.data == "grün"
    raw = one("application/octet-stream", b"\x00\xff", ce_id="1")
    assert base64.b64decode(json.loads(raw.body)["data_base64"]) == b"\x00\xff"
    assert raw.event.data is None
    assert (text.notes, [note.code for note in raw.notes]) == ((), ["no-attributes"])


def test_object_of_another_media_type_has_its_attributes() -> None:
    """They are matched, so no note says that only context attributes can match."""
    said = one(STRUCTURED, EVENT | {"datacontenttype": "text/plain", "data": {"a": 1}})
    assert (said.event.data, said.notes) == ({"a": 1}, ())


def test_binary_without_body_has_no_data() -> None:
    """An event may be only its attributes."""
    event = one(None, b"", ce_specversion="1.0", ce_id="1", ce_source="s", ce_type="t")
    assert "data" not in json.loads(event.body)


def test_plain_object_is_data_with_defaults() -> None:
    """A plain object becomes an event with an id of ours, the default source and type."""
    event = one("application/json", {"price": 350})
    assert json.loads(event.body) == {"specversion": "1.0", **DEFAULTS, "id": event.id, "data": {"price": 350}}
    assert event.id_is_ours


def test_plain_object_with_some_headers_keeps_them() -> None:
    """Without ce-specversion the headers say what they say, and the rest is filled in."""
    event = one("application/json", {"price": 350}, ce_type="offer")
    assert (event.type, event.source, event.id_is_ours) == ("offer", DEFAULTS["source"], True)


def test_plain_object_that_looks_like_an_event_is_told_so() -> None:
    """Data with `specversion` is probably an event in the wrong mode: it is taken as data, with a note."""
    assert [note.code for note in one("application/json", EVENT).notes] == ["looks-like-cloudevent"]


def test_ids_of_ours_never_repeat() -> None:
    """Ids of ours are unique within a process and, by their prefix, between two."""
    lines = b"\n".join([b"{}"] * 100)
    ids = [each.id for _ in range(2) for each in read(LINES, lines) if isinstance(each, DecodedEvent)]
    assert len(set(ids)) == 200


@pytest.mark.parametrize("given", [{}, {"ce_source": "/B%C3%BCro", "ce_site": 'a "b"', "ce_type": "reading"}])
def test_mere_data_is_stored_as_the_event_around_it(given: dict[str, str]) -> None:
    """What is written for data without an id is what the whole event would be stored as: body and digest alike."""
    data = [{"b": [1.5, {"z": None, "a": "ü\n"}], "a": True}, {}, {"specversion2": "1.0", "id": 7}]
    for each, value in zip(read(LINES, "\n".join(map(json.dumps, data)), **given), data, strict=True):
        assert isinstance(each, DecodedEvent)
        whole = json.loads(each.body)
        assert whole == {**each.event.context, "data": value}
        assert list(whole)[-2:] == ["id", "data"]
        twin = one(STRUCTURED, each.body)
        assert (each.digest, each.source, each.id, each.type) == (twin.digest, twin.source, twin.id, twin.type)
        assert (each.id_is_ours, each.enveloped, twin.id_is_ours, twin.enveloped) == (True, False, False, True)


def test_lines_are_events_or_data_and_a_bad_one_stands_alone() -> None:
    """A line with `specversion` is an event, any other the data of one; a bad line does not stop the rest."""
    body = "\n".join([json.dumps(EVENT), "", '{"price": 1}\r', "nope", "[1]", '{"specversion": "1.0"}'])
    decoded = EventReader(max_events=100).read(LINES, [("ce-type", "reading")], body.encode())
    assert decoded.lines == [1, 3, 4, 5, 6]
    assert not decoded.single
    kinds = [each.type if isinstance(each, DecodedEvent) else each.problems[0].code for each in decoded.events]
    assert kinds == ["offer", "reading", "malformed-json", "no-object", "missing-attribute"]


def test_batch_items_are_judged_one_by_one() -> None:
    """A batch is an array of events; an item that is none stands in its place as a problem."""
    first, second, third = read(BATCH, [EVENT, 7, EVENT | {"id": "2"}])
    assert isinstance(first, DecodedEvent)
    assert isinstance(second, InvalidEvent)
    assert isinstance(third, DecodedEvent)
    assert read(BATCH, []) == []


def test_batch_with_a_number_beyond_a_double_loses_only_this_event() -> None:
    """As a line does. It is told with its place in the event."""
    text = json.dumps([EVENT | {"id": str(number), "data": {"x": [number]}} for number in range(3)])
    first, second, third = read(BATCH, text.replace('"x": [1]', '"x": [1, 1e400]'))
    assert isinstance(first, DecodedEvent)
    assert isinstance(second, InvalidEvent)
    assert isinstance(third, DecodedEvent)
    assert [(each.code, each.at and each.at.pointer) for each in second.problems] == [("malformed-json", "/data/x/1")]
    with pytest.raises(BadRequestMode, match="a number is too large for a double"):
        read(BATCH, '{"x": 1e400}')
    with pytest.raises(BadRequestMode):
        read(BATCH, text.replace("[1]", "[1e400]") + "]")


def test_base64_json_is_read_as_data() -> None:
    """JSON inside data_base64 is data like any other."""
    encoded = base64.b64encode(b'{"price": 350}').decode()
    given = {name: value for name, value in EVENT.items() if name != "data"}
    event = one(STRUCTURED, given | {"datacontenttype": "application/json", "data_base64": encoded})
    assert event.event.data == {"price": 350}


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", {"n": 1, "more": [{"a": None}]}),
        ("application/json", {}),
        ("application/cloudevents+json", {**ENVELOPE, "data": {"n": 1}, "time": "2026-01-01T00:00:00Z", "x": None}),
        ("application/cloudevents+json", ENVELOPE),
        ("application/cloudevents+json", {**ENVELOPE, "datacontenttype": "text/turtle", "data": "<a> <b> <c> ."}),
        ("application/cloudevents+json", {**ENVELOPE, "data_base64": base64.b64encode(b'{"n": 1}').decode()}),
    ],
)
def test_stored_event_is_what_was_published(content_type: str, body: dict[str, Any]) -> None:
    """Without the checks that it has passed."""
    published = one(content_type, body)
    reader = EventReader(max_events=1)
    assert reader.stored(published.body) == published.event == reader.from_object(json.loads(published.body)).event


def test_event_every_problem_is_named_at_once() -> None:
    """All that is wrong with the attributes is told together, each with its pointer."""
    wrong = {"specversion": "0.3", "id": "", "type": 7, "Upper": "x", "big": 2**31, "list": [1], "time": "yesterday"}
    assert problems(STRUCTURED, wrong) == {
        ("bad-attribute", "/specversion"),
        ("bad-attribute", "/id"),
        ("bad-attribute", "/type"),
        ("bad-attribute", "/Upper"),
        ("bad-attribute", "/big"),
        ("bad-attribute", "/list"),
        ("bad-attribute", "/time"),
        ("missing-attribute", "/source"),
    }


@pytest.mark.parametrize("name", ["subject", "datacontenttype", "dataschema", "note"])
@pytest.mark.parametrize("value", ["a\nb", "a\x85b"])
def test_event_attribute_with_a_control_character_is_refused(name: str, value: str) -> None:
    """CloudEvents allows none in texts. In the header of a binary event, the character is percent-encoded."""
    event = {"specversion": "1.0", "id": "1", "source": "urn:a", "type": "t", name: value}
    assert problems(STRUCTURED, event) == {("bad-attribute", f"/{name}")}


@pytest.mark.parametrize("name", ["id", "source", "type"])
@pytest.mark.parametrize("value", ["x" * 2_049, "a\x00b", "a\nb"])
def test_event_key_attribute_that_no_index_should_hold_is_refused(name: str, value: str) -> None:
    """Endless or unprintable ids, sources and types are refused."""
    assert problems(STRUCTURED, EVENT | {name: value}) == {("bad-attribute", f"/{name}")}


def test_binary_event_that_claims_to_be_one_must_be_complete() -> None:
    """With ce-specversion nothing is filled in."""
    assert problems("application/json", {}, ce_specversion="1.0", ce_id="1") == {
        ("missing-attribute", "/source"),
        ("missing-attribute", "/type"),
    }


def test_event_with_data_twice_is_refused() -> None:
    """data and data_base64 exclude each other; what is no base64 is refused."""
    assert problems(STRUCTURED, EVENT | {"data_base64": "AA=="}) == {("two-data", "/data_base64")}
    assert problems(STRUCTURED, EVENT | {"data": None, "data_base64": "%%%"}) == {("bad-base64", "/data_base64")}


def test_plain_value_that_is_no_object_is_refused() -> None:
    """Only an object has members that can be attributes."""
    assert problems("application/json", [1, 2]) == {("no-object", None)}
    (several,) = read("application/json", [EVENT, EVENT])
    assert isinstance(several, InvalidEvent)
    assert "Send several events as application/x-ndjson" in several.problems[0].detail


@pytest.mark.parametrize(
    "content_type", ["text/csv", "application/x-www-form-urlencoded", "application/cloudevents+avro"]
)
def test_request_of_unknown_content_is_refused(content_type: str) -> None:
    """What cannot be read is named with what can, when there are no ce-* headers."""
    with pytest.raises(UnknownContent, match="application/"):
        read(content_type, b"x")


def test_request_without_content_type_is_json() -> None:
    """CloudEvents says: without a content type, data is JSON."""
    assert one(None, {"price": 1}).event.data == {"price": 1}


@pytest.mark.parametrize(
    ("content_type", "body", "headers"),
    [
        ("application/json", "{}", {"ce_datacontenttype": "application/json"}),
        (LINES, "{}", {"ce_id": "1"}),
        (BATCH, "{}", {}),
        (BATCH, "[", {}),
        ("application/json", "{}", {"ce_source": "%ff"}),
    ],
)
def test_request_that_contradicts_itself_is_refused(content_type: str, body: str, headers: dict[str, str]) -> None:
    """Headers and bodies that cannot both be meant are refused as a whole."""
    with pytest.raises(BadRequestMode):
        read(content_type, body, **headers)


@pytest.mark.parametrize(("content_type", "body"), [(LINES, "{}\n" * 101), (BATCH, "[" + "{}," * 100 + "{}]")])
def test_request_with_too_many_events_is_refused(content_type: str, body: str) -> None:
    """The bound on events is checked before any is read."""
    with pytest.raises(TooManyEvents, match="more than 100 events"):
        read(content_type, body)


def test_digest_same_event_differently_written_is_equal() -> None:
    """The order of names does not count; a changed value, attribute or absence does."""
    again = dict(reversed(EVENT.items()))
    assert one(STRUCTURED, EVENT).digest == one(STRUCTURED, again).digest
    others = [EVENT | {"data": {"price": 351}}, EVENT | {"subject": "x"}, EVENT | {"data": None}]
    assert len({one(STRUCTURED, each).digest for each in (EVENT, *others)}) == 4


# ── the other side ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["to_binary_event", "to_structured_event"])
def test_event_of_the_official_sdk_is_understood(mode: str) -> None:
    """What the CloudEvents project's own library sends arrives with every attribute, in both modes."""
    http = pytest.importorskip("cloudevents.core.bindings.http", reason="the CloudEvents SDK is not installed")
    sdk = pytest.importorskip("cloudevents.core.v1.event")
    sent = sdk.CloudEvent(
        attributes={
            "id": "a 1",
            "source": "urn:shop:ü",
            "type": "offer",
            "subject": '100 % "new"',
            "datacontenttype": "application/json",
            "priority": "high",
        },
        data={"target": "笔记本电脑", "price": 350},
    )
    message = getattr(http, mode)(sent)
    headers = [(name.lower(), value) for name, value in message.headers.items()]
    (event,) = EventReader(max_events=1).read(dict(headers)["content-type"], headers, message.body).events
    assert isinstance(event, DecodedEvent), event
    body = json.loads(event.body)
    assert (body["id"], body["source"], body["type"]) == ("a 1", "urn:shop:ü", "offer")
    assert (body["subject"], body["priority"]) == ('100 % "new"', "high")
    assert body["data"] == {"target": "笔记本电脑", "price": 350}


def test_fhir_keeps_its_content_type() -> None:
    """Sent as plain JSON it is one event that says how it is read (rule 22); other JSON says nothing."""
    reader = EventReader(max_events=10)
    for content_type, kept in (("application/fhir+json; fhirVersion=4.0", True), ("application/json", False)):
        (found,) = reader.read(content_type, (), b'{"resourceType": "Observation"}').events
        assert isinstance(found, DecodedEvent)
        assert found.event.context.get("datacontenttype") == (content_type if kept else None)


@pytest.mark.parametrize("content_type", [BATCH, LINES])
def test_events_that_cannot_be_read_have_few_problems(content_type: str) -> None:
    """At most ten each, a hundred together and one each after that. They do not keep what was read in memory."""
    wrong = {"specversion": "1.0", **{f"A{number}": 1 for number in range(100)}}
    body = json.dumps([wrong] * 50) if content_type == BATCH else "\n".join([json.dumps(wrong)] * 50)
    found = [each for each in read(content_type, body) if isinstance(each, InvalidEvent)]
    assert [len(each.problems) for each in found] == [10] * 10 + [1] * 40
    assert all(each.is_cut and each.__traceback__ is None for each in found)
    (alone,) = read(STRUCTURED, wrong)
    assert isinstance(alone, InvalidEvent)
    assert len(alone.problems) == 100


def test_large_requests_are_read_one_at_a_time() -> None:
    """Otherwise each would have a thread that computes, and others' requests would wait."""
    reader = EventReader(max_events=10)
    begun, may_end, calls = threading.Event(), threading.Event(), list[bytes]()

    def waits(content_type: str | None, headers: object, body: bytes, *_: object) -> Decoded:
        calls.append(body)
        begun.set()
        assert may_end.wait(60)
        return Decoded(events=[], single=False)

    async def body() -> None:
        waiting = [asyncio.create_task(reader.read_large(BATCH, (), b"%d" % number)) for number in range(20)]
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            assert calls == [b"0"]
        finally:
            may_end.set()
        await asyncio.gather(*waiting)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "read", waits)
        asyncio.run(body())
    assert len(calls) == 20


def test_documents_are_taken_apart_one_at_a_time_and_leave_threads_for_others() -> None:
    """However many wait, and whether their clients are still there."""
    reader = EventReader(max_events=10)
    begun, may_end, calls = threading.Event(), threading.Event(), list[str]()

    def waits(document: DecodedEvent, *_: object) -> list[DecodedEvent]:
        calls.append(document.id)
        begun.set()
        assert may_end.wait(60)
        return [document]

    async def body() -> None:
        document = reader.from_object({"n": 1})
        budget = ReadingBudget(values=10, seconds=1.0)
        waiting = [asyncio.create_task(reader.take_apart(document, Vocabulary(), budget)) for _ in range(50)]
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            waiting[0].cancel()
            assert await asyncio.to_thread(len, calls) == 1
        finally:
            may_end.set()
        taken = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(taken[0], asyncio.CancelledError)
        assert taken[1:] == [[document]] * 49

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "parts_of", waits)
        asyncio.run(body())


def test_the_documents_of_a_request_are_taken_apart_within_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has used the next ones lack; with none left a document is refused unread."""
    reader, vocabulary = EventReader(max_events=10), Vocabulary()
    document = reader.from_object({"type": "bundle", "id": "bundle--1", "objects": [{"n": 1}, {"n": 2}]})
    budget = ReadingBudget(values=10, seconds=1.0)
    assert len(reader.parts_of(document, vocabulary, budget)) == 2
    assert 0 < budget.seconds < 1
    clock = itertools.count(0.0, 0.6)
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    for _ in range(2):
        with pytest.raises(InvalidEvent) as caught:
            reader.parts_of(document, vocabulary, budget)
        assert caught.value.problems[0].code == "reading-too-slow"
    assert next(clock) == pytest.approx(3.0), "the second one was not begun"
