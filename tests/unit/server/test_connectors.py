"""Messages and CloudEvents by the protocol bindings, topics, URLs, and the ids of messages that have none."""

import asyncio
import doctest
import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode

from kindcast.server.client import ProblemError, UnexpectedAnswer
from kindcast.server.client.calls import read_answer
from kindcast.server.connectors import bindings, broker_url
from kindcast.server.connectors.amqp import broken_is_lost, connect
from kindcast.server.connectors.bindings import (
    AMQP,
    KAFKA,
    MQTT,
    NATS,
    REDIS,
    STRUCTURED,
    BadMessage,
    Binding,
    Content,
    Plain,
)
from kindcast.server.connectors.broker_url import parse_topic, parse_url
from kindcast.server.connectors.source import (
    REDELIVERY_SECONDS,
    BrokerLost,
    Connector,
    Journal,
    Options,
    Received,
    Tally,
)
from tests.harness.ports import free_port

BINDINGS = [MQTT, NATS, AMQP, KAFKA]
PLAIN = Plain(id="7", source="mqtt://host/t", more={"topic": "t"})

texts = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20)
data = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, st.lists, max_leaves=5)


@pytest.mark.parametrize("module", [bindings, broker_url])
def test_examples_of_the_docstrings_hold(module: object) -> None:
    """As they stand."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("binding", BINDINGS)
@given(id=texts, note=texts, data=data)
def test_binary_mode_and_back_is_the_same_event(binding: Binding, id: str, note: str, data: object) -> None:
    """By each binding, with any text in the attributes."""
    event = {"specversion": "1.0", "id": id, "source": "/s", "type": "t", "note": note, "data": data}
    back = binding.event(binding.binary(msgspec.json.encode(event)), PLAIN)
    assert msgspec.json.decode(back) == event | {"datacontenttype": "application/json", "topic": "t"} or (
        msgspec.json.decode(back) == event | {"topic": "t"}
    )


@pytest.mark.parametrize("binding", BINDINGS)
def test_binary_mode_carries_text_and_bytes(binding: Binding) -> None:
    """Data that is no JSON: text as text, other bytes as base64."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "datacontenttype": "text/turtle"}
    for more in ({"data": "<a> <b> <c> ."}, {"data_base64": "/wA="}):
        back = binding.event(binding.binary(msgspec.json.encode(event | more)), Plain(id="7", source="s"))
        assert msgspec.json.decode(back) == event | more


@pytest.mark.parametrize("binding", BINDINGS)
def test_attributes_too_large_for_headers_are_sent_in_structured_mode(binding: Binding) -> None:
    """As of a retraction, which has the withdrawn event as an attribute: MQTT has properties of at most 65,535 bytes,
    and RabbitMQ headers of at most a frame. A message that no broker takes would stop its subscription."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}
    for size, mode in ((50_000, None), (70_000, STRUCTURED)):
        sent = binding.binary(msgspec.json.encode(event | {"kindcastretracted": "a" * size}))
        assert (sent.content_type == STRUCTURED) == (mode == STRUCTURED)
        assert (not sent.headers) == (mode == STRUCTURED)
        back = msgspec.json.decode(binding.event(sent, Plain(id="7", source="s")))
        assert back["kindcastretracted"] == "a" * size
        assert back["data"] == {"a": 1}


@pytest.mark.parametrize("end", ["\uffff", "\ufdd0", "\U0001fffe"])
def test_attributes_that_mosquitto_refuses_are_sent_in_structured_mode(end: str) -> None:
    """It closes the connection if a property has a noncharacter of Unicode, at each attempt."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": f"a{end}"}
    sent = MQTT.binary(msgspec.json.encode(event))
    assert (sent.content_type, sent.headers) == (STRUCTURED, {})
    assert not NATS.binary(msgspec.json.encode(event)).content_type  # its values are percent-encoded


@pytest.mark.parametrize("binding", BINDINGS)
def test_structured_mode_stays_as_it_came(binding: Binding) -> None:
    """Byte for byte, behind the attributes that it does not have."""
    body = b'{ "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "topic": "mine", "data": 1.50 }'
    assert bytes(binding.event(Content(body, f"{STRUCTURED}; charset=utf-8"), PLAIN)) == body
    more = Plain(id="7", source="s", more={"room": "bath"})
    assert bytes(binding.event(Content(body), more)) == b'{"room":"bath",' + body[1:]


def test_byte_order_mark_before_json_is_left_out() -> None:
    """As over HTTP. In other data it may be content."""
    mark = b"\xef\xbb\xbf"
    context = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    for content in (
        Content(mark + b'{"a": 1}'),
        Content(mark + b'{"a": 1}', "application/json", context),
        Content(mark + msgspec.json.encode(context | {"data": {"a": 1}}), STRUCTURED),
    ):
        assert msgspec.json.decode(MQTT.event(content, PLAIN))["data"] == {"a": 1}
    other = MQTT.event(Content(mark + b"\xff", "application/octet-stream", context), PLAIN)
    assert msgspec.json.decode(other)["data_base64"] == "77u//w=="


def test_content_type_that_is_empty_is_none() -> None:
    """Some publishers always send one. The body is JSON, as without it."""
    context = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    for headers in (context, {}):
        event = msgspec.json.decode(MQTT.event(Content(b'{"a": 1}', "", headers), PLAIN))
        assert event["data"] == {"a": 1}
        assert "datacontenttype" not in event


@pytest.mark.parametrize("binding", [MQTT, REDIS])
def test_properties_that_cannot_be_attributes_are_left_out(binding: Binding) -> None:
    """Publishers and gateways add properties of their own, which have no prefix that tells them from attributes."""
    context = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "note": "n"}
    content = Content(b'{"a": 1}', "", context | {"X-Trace-Id": "7", "retry_count": "2"})
    event = msgspec.json.decode(binding.event(content, Plain(id="7", source="s")))
    assert event == context | {"data": {"a": 1}}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (Content(b""), "empty"),
        (Content(b"21,5"), "not JSON"),
        (Content(b"\xff"), "not JSON"),
        (Content(b"[" * 100_000), "not JSON"),
        (Content(b"[]", STRUCTURED), "object"),
        (Content(b"[]", "application/cloudevents-batch+json"), "one event"),
        (Content(b"{", None, {"specversion": "1.0", "id": "1"}), "not JSON"),
    ],
)
def test_bad_message_says_why(content: Content, word: str) -> None:
    """In words of the message."""
    with pytest.raises(BadMessage, match=word):
        MQTT.event(content, PLAIN)


def test_headers_of_nats_may_be_quoted() -> None:
    """The binding of NATS decodes them as that of HTTP does, and refuses what is no UTF-8."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    event = NATS.event(Content(b"", headers=headers | {"ce-subject": '"Euro%20%E2%82%AC"'}), PLAIN)
    assert msgspec.json.decode(event)["subject"] == "Euro €"
    with pytest.raises(BadMessage, match="not percent-encoded UTF-8"):
        NATS.event(Content(b"", headers=headers | {"ce-subject": "%C3%28"}), PLAIN)


def test_url_hides_its_password() -> None:
    """Wherever it may be shown."""
    url = parse_url("amqps://ann:s%40cret@host/shop")
    assert (url.user, url.password, url.path, url.tls) == ("ann", "s@cret", "shop", True)
    assert "s@cret" not in repr(url) + url.shown
    assert parse_url("kafka://a,b:1,[::1]:2").hosts == (("a", 9092), ("b", 1), ("::1", 2))


@pytest.mark.parametrize(
    "url", ["mqtt://ann:12/34@host", "nats://s3c/ret@host", "amqp://ann:p#w@host", "redis://:1/2@h"]
)
def test_url_with_a_password_that_is_not_encoded_says_how(url: str) -> None:
    """The rest of the password is not taken for a path, which would be shown."""
    with pytest.raises(broker_url.WrongUrl, match="%2F for /"):
        parse_url(url)


def test_topic_names_levels() -> None:
    """Where the filter holds."""
    topic = parse_topic("home/{room}/#", "MQTT")
    assert topic.filter == "home/+/#"
    assert topic.holds("home/bath/a/b")
    assert not topic.holds("garden/bath/a")
    assert topic.attributes("home/bath/a/b") == {"room": "bath"}
    for wrong in ("home/{id}", "home/x{room}", "{a}/{a}", "{Room}"):
        with pytest.raises(broker_url.WrongUrl):
            parse_topic(wrong, "MQTT")


def test_topic_of_a_shared_subscription_names_levels() -> None:
    """The levels of the messages' own topics, which do not begin with `$share` and its name."""
    topic = parse_topic("$share/two/home/{room}/#", "MQTT")
    assert topic.filter == "$share/two/home/+/#"
    assert topic.holds("home/bath/a")
    assert not topic.holds("$share/two/home/bath/a")
    assert topic.attributes("home/bath/a") == {"room": "bath"}


@pytest.mark.parametrize(
    ("topic", "protocol"),
    [("", "MQTT"), ("", "KAFKA"), ("a/#/b", "MQTT"), ("a b", "NATS"), ("a..b", "NATS"), (".a", "NATS")],
)
def test_topic_that_its_broker_never_takes_is_refused(topic: str, protocol: broker_url.Protocol) -> None:
    with pytest.raises(broker_url.WrongUrl):
        parse_topic(topic, protocol)


def message(body: bytes, mark: str = "", identity: str | None = None) -> Received:
    return Received(topic="t", content=Content(body), handle=None, mark=mark, identity=identity)


def test_journal_gives_the_same_id_to_what_comes_again(tmp_path: Path) -> None:
    """Also to another process; equal messages have two ids, and get the same two; messages with an id keep it."""
    file = tmp_path / "state" / "journal.json"
    messages = [message(b"1"), message(b"1"), message(b"2", mark="5"), message(b"3", identity="own")]
    ids = Journal(file).give(messages)
    assert len(set(ids)) == 4
    assert ids[3] == "own"
    journal = Journal(file)
    journal.opened(resumed=True)
    assert journal.give(messages[:1]) == ids[:1]
    assert journal.give([message(b"2", mark="6")]) != ids[2:3]
    assert set(journal.give(messages)) == set(ids)


def test_journal_forgets_what_is_done_and_what_never_came_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An equal message that is new has an id of its own: after an acknowledgement, in a new session of the broker, and
    a minute after the connection was made."""
    file = tmp_path / "journal.json"
    journal = Journal(file)
    journal.opened(resumed=True)
    ids = journal.give([message(b"1")])
    journal.done([message(b"1")])
    assert Journal(file).give([message(b"1")]) != ids
    ids = journal.give([message(b"1")])
    journal.opened(resumed=False)
    assert journal.give([message(b"1")]) != ids
    ids = journal.give([message(b"1")])
    monkeypatch.setattr("kindcast.server.connectors.source.REDELIVERY_SECONDS", -REDELIVERY_SECONDS)
    assert journal.give([message(b"1")]) != ids


class Batch:
    """A source with one batch of messages, which remembers what was acknowledged and put aside."""

    binding = MQTT
    dropped = 0

    def __init__(self, *messages: Received) -> None:
        self._left: list[Received] = list(messages)
        self.acknowledged: list[bytes] = []
        self.aside: list[tuple[bytes, str]] = []

    async def open(self) -> bool:
        return True

    async def read(self, limit: int, seconds: float) -> Sequence[Received]:
        found, self._left = self._left, []
        return found

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        self.acknowledged += [each.content.body for each in messages]

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        self.aside.append((message.content.body, reason))

    async def close(self) -> None:
        return None


class Answering:
    """A client of a server that gives these answers, one for each request. Remembers the data of the events."""

    def __init__(self, *answers: dict[str, Any] | httpx.Response) -> None:
        self._answers = list(answers)
        self.sent: list[list[Any]] = []
        self.events: list[dict[str, Any]] = []

    async def send(self, call: Any) -> dict[str, Any]:
        events = msgspec.json.decode(call.content)
        self.events += events
        self.sent.append([each["data"] for each in events])
        answer = self._answers.pop(0)
        if isinstance(answer, dict):
            return answer
        answer.request = httpx.Request("POST", "http://server.test/v1/events")
        return read_answer(call, answer)


def connected(source: Batch, client: Answering, **options: Any) -> tuple[Tally, list[str]]:
    """Reads all messages of the source. Returns the counts and the reports."""
    told: list[str] = []

    async def run() -> Tally:
        wanted = Options(topics=[parse_topic("t", "MQTT")], source="s", idle_seconds=0.0, dead_letters="bad", **options)
        connector = Connector(lambda: source, client, wanted, Journal(None), tell=told.append)  # type: ignore[arg-type]
        await connector.run()
        return connector.tally

    return asyncio.run(run()), told


def test_events_that_the_server_could_not_store_are_published_again() -> None:
    """A server whose store fails in the middle of a request accepts the first events and rejects the others with 503.
    These are not bad messages: they are published again, and acknowledged only when the server has them."""
    failed = {"status": 503, "title": "The store is unavailable", "detail": "the disk is full"}
    wrong = {"status": 422, "title": "wrong", "detail": "no event"}
    rejected = [{"index": 1, "problem": wrong}, {"index": 2, "problem": failed}, {"index": 3, "problem": failed}]
    source = Batch(*(message(body, identity=body.decode()) for body in (b"0", b"1", b"2", b"3")))
    client = Answering(
        {"accepted": 1, "duplicates": 0, "rejected": rejected},
        {"accepted": 2, "duplicates": 0, "rejected": []},
    )
    tally, told = connected(source, client)
    assert client.sent == [[0, 1, 2, 3], [2, 3]]
    assert (tally.accepted, tally.bad, tally.acknowledged) == (3, 1, 4)
    assert source.aside == [(b"1", "no event")]
    assert "2 events (the disk is full); trying again" in told[0]


def test_reason_of_a_bad_message_can_be_a_header() -> None:
    """The server names the place, which the publisher chose. In MQTT a property has at most 65,535 bytes, and some
    characters end the connection. A message that cannot be put aside would end each connector that reads it."""
    wrong = {"status": 422, "title": "wrong", "detail": f"/{'n' * 100_000}\0\uffff: the number is too large"}
    source = Batch(message(b"1", identity="1"))
    _, told = connected(
        source, Answering({"accepted": 0, "duplicates": 0, "rejected": [{"index": 0, "problem": wrong}]})
    )
    ((_, reason),) = source.aside
    assert reason.startswith("/nnn")
    assert reason.endswith("nnn??: the number is too large")
    assert len(reason) < 2_000
    assert reason in told[0]


@pytest.mark.parametrize(("key", "known"), [("a", {"partitionkey": "a"}), ("\x00\x01", {}), ("a\uffff", {})])
def test_key_that_no_attribute_can_hold_is_left_out(key: str, known: dict[str, str]) -> None:
    """Keys of Kafka may be any bytes. The server refuses control characters in attributes."""
    source = Batch(replace(message(b"1", identity="1"), more={"partitionkey": key}))
    client = Answering({"accepted": 1, "duplicates": 0, "rejected": []})
    connected(source, client)
    (event,) = client.events
    assert {name: event[name] for name in event if name == "partitionkey"} == known


def test_large_batch_is_sent_in_several_requests() -> None:
    """Servers limit the size of requests. Each message is sent once, in order."""
    answer = {"accepted": 1, "duplicates": 0, "rejected": []}
    texts = ["a" * 3_000_000, "b", "c" * 3_000_000, "d" * 9_000_000, "e"]
    source = Batch(*(message(msgspec.json.encode(text), identity=text[0]) for text in texts))
    client = Answering(*[answer] * 4)
    tally, _ = connected(source, client)
    assert [[text[0] for text in request] for request in client.sent] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert tally.acknowledged == 5


def refusal(status: int, code: str) -> httpx.Response:
    """The answer of a server of kindcast."""
    return httpx.Response(status, json={"type": f"https://kindcast.dev/problems/{code}", "detail": code})


@pytest.mark.parametrize("answer", [refusal(422, "no-event-accepted"), refusal(400, "too-deep"), httpx.Response(413)])
def test_refusal_of_an_event_is_a_bad_message(answer: httpx.Response) -> None:
    """Also the 413 of a proxy in front of the server, whose limit is smaller."""
    source = Batch(message(b"1", identity="a"))
    tally, _ = connected(source, Answering(answer))
    assert (tally.bad, source.acknowledged) == (1, [b"1"])
    assert any(each in source.aside[0][1] for each in ("no-event-accepted", "too-deep", "413 Request Entity Too Large"))


@pytest.mark.parametrize(
    "answer",
    [
        refusal(421, "wrong-host"),
        refusal(415, "unsupported-media-type"),
        *(httpx.Response(status, text="<html>") for status in (400, 402, 407, 411, 422, 451)),
        httpx.Response(308, headers={"Location": "https://server.test/"}),
        httpx.Response(200, json={"ok": True}),
    ],
    ids=lambda answer: str(answer.status_code),
)
def test_refusal_of_all_requests_makes_no_message_bad(answer: httpx.Response) -> None:
    """A proxy answers, or the server does not know its name: the messages stay in the broker."""
    source = Batch(message(b"1", identity="a"), message(b"2", identity="b"))
    with pytest.raises((ProblemError, UnexpectedAnswer)):
        connected(source, Answering(answer))
    assert (source.aside, source.acknowledged) == ([], [])


def test_pause_of_a_busy_server_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `Retry-After` the next request comes when the server asks for it; a shorter one does not shorten the
    pause."""
    pauses: list[float] = []

    async def wait_for(awaited: Any, seconds: float) -> None:
        awaited.close()
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    busy = [httpx.Response(429, headers={"Retry-After": after}) for after in ("45", "0", "99999999")]
    tally, _ = connected(
        Batch(message(b"1", identity="a")), Answering(*busy, {"accepted": 1, "duplicates": 0, "rejected": []})
    )
    assert (pauses, tally.accepted) == ([45.0, 1.0, 3600.0], 1)


def test_id_member_of_a_message_that_is_nested_too_deeply() -> None:
    """It is a bad message like any other."""
    source = Batch(message(b"[" * 100_000, identity="a"), message(b'{"n": 1}', identity="b"))
    tally, _ = connected(source, Answering({"accepted": 1, "duplicates": 0, "rejected": []}), id_member="n")
    assert (tally.accepted, tally.bad, tally.acknowledged) == (1, 1, 2)


def test_amqp_properties_that_are_not_utf8_are_read() -> None:
    """As from a publisher with Latin-1. An error would break the connection, and each next one."""
    texts = {"schön": "größe", "n": "1"}
    fields = b"".join(
        bytes([len(name)]) + name.encode("latin-1") + b"S" + len(text).to_bytes(4) + text.encode("latin-1")
        for name, text in texts.items()
    )
    table = len(fields).to_bytes(4) + fields
    assert decode.by_type(b"\x03gr\xf6 and more", "shortstr") == (4, r"gr\xf6")
    assert decode.by_type(table + b" and more", "table") == (len(table), {r"sch\xf6n": b"gr\xf6\xdfe", "n": "1"})


@pytest.mark.parametrize(
    "error",
    [Exception(), ConnectionResetError(), RuntimeError("closed"), StopAsyncIteration(), asyncio.CancelledError()],
)
def test_amqp_call_that_a_broken_connection_ends_is_lost(error: BaseException) -> None:
    """Whatever the libraries make of it, also a cancellation that nobody asked for."""

    async def call() -> None:
        async with broken_is_lost():
            raise error

    with pytest.raises(BrokerLost):
        asyncio.run(call())


def test_amqp_connection_that_was_not_opened_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    """Its destructor warned if the collector of garbage ran it in a thread without an event loop."""

    async def fail() -> None:
        with pytest.raises(BrokerLost):
            await connect(parse_url(f"amqp://127.0.0.1:{free_port()}"))
        await asyncio.to_thread(gc.collect)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(fail())
    finally:
        gc.enable()
    assert [str(each.message) for each in recwarn] == []


def test_amqp_call_that_is_cancelled_stays_so() -> None:
    """By a timeout around it, say; and a mistake of our own stays what it is."""

    async def call() -> None:
        async with asyncio.timeout(0.01), broken_is_lost():
            await asyncio.sleep(5.0)

    async def mistaken() -> None:
        async with broken_is_lost():
            raise KeyError

    with pytest.raises(TimeoutError):
        asyncio.run(call())
    with pytest.raises(KeyError):
        asyncio.run(mistaken())
