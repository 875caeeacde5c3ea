"""The client against a real server: both senders, every call, problems, and streams that survive a restart."""

import asyncio
import copy
import inspect
import pickle
import pydoc
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from kindcast import (
    AsyncClient,
    Client,
    NoAnswerInTime,
    ProblemError,
    ServerUnreachable,
    UnexpectedAnswer,
    UnusableArgument,
)
from kindcast.server.answers import MessagePage
from kindcast.server.client.calls import Calls, described
from kindcast.server.client.clients import StreamReader
from tests.harness.certificates import Authority
from tests.harness.ports import free_port
from tests.harness.server_process import running_server
from tests.harness.server_thread import running_app

SHOP = b"""
@prefix : <http://example.org/shop#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Computer a owl:Class ; rdfs:label "computer"@en .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop"@en, "Klapprechner"@de .
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_app(tmp_path, stream_ping_seconds=0.1) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def test_client_whole_road(client: Client) -> None:
    """Ontology, concepts, subscription, event, delivery, acknowledgement and explanation, each call once."""
    client.ready()
    report = client.put_ontology("shop", SHOP, content_type="text/turtle")
    assert (report["name"], report["concepts"]) == ("shop", 2)
    assert client.ontologies()["ontologies"][0]["name"] == "shop"
    assert client.ontology("shop")["sha256"] == report["sha256"]
    assert "laptop" in str(client.concepts("lap"))
    assert "Laptop" in str(client.resolve("Klapprechner"))
    assert "Computer" in str(client.ancestors("laptop"))
    assert "Laptop" in str(client.descendants("computer"))
    assert "Laptop" in str(client.children("computer"))

    made = client.subscribe("target isa computer and price <= 400", metadata={"team": "blue"})
    assert client.tickets[made["id"]] == made["ticket"]
    assert [each["id"] for each in client.subscriptions()["subscriptions"]] == [made["id"]]
    assert client.subscription(made["id"])["metadata"] == {"team": "blue"}

    event = {"target": "Klapprechner", "price": 350}
    published = client.publish(event, type="shop.offer", source="urn:shop")
    assert (published["accepted"], published["matched"]) == (1, 1)
    sequence = published["events"][0]["sequence"]
    assert client.events(type="shop.offer")["events"][0]["event"]["data"] == event
    assert client.trace(sequence)["deliveries"][0]["subscription"] == made["id"]
    assert made["id"] in str(client.match(event))
    assert client.explain(event, made["id"])["matches"] is True

    [message] = client.pull(made["id"])["events"]
    assert message["event"]["source"] == "urn:shop"
    assert next(client.listen(made["id"])) == message
    assert client.ack(made["id"], message["cursor"]) == {"cursor": message["cursor"]}
    assert client.replay(made["id"], after=0)["cursor"] == made["cursor"]
    assert client.pause(made["id"])["status"] == "paused"
    assert client.resume(made["id"])["status"] == "active"
    assert client.renew(made["id"], ttl_seconds=60)["id"] == made["id"]
    assert client.change(made["id"], metadata={"team": "red"})["metadata"] == {"team": "red"}
    client.unsubscribe(made["id"])
    client.delete_ontology("shop")
    assert client.subscriptions()["subscriptions"] == []


def test_async_client_same_road(url: str) -> None:
    """The asynchronous sender does the same with the same calls."""

    async def road() -> tuple[dict[str, Any], dict[str, Any], int]:
        async with AsyncClient(url) as client:
            await client.put_ontology("shop", SHOP, content_type="text/turtle")
            made = await client.subscribe(where={"isa": ["target", "computer"]})
            published = await client.publish({"target": "laptop"})
            async with aclosing(client.listen(made["id"])) as messages:
                streamed = await anext(messages)
            [pulled] = (await client.pull(made["id"]))["events"]
            await client.ack(made["id"], pulled["cursor"])
            with pytest.raises(ProblemError) as problem:
                await client.subscription("nobody")
            await client.unsubscribe(made["id"])
            assert published["matched"] == 1
            return streamed, pulled, problem.value.status

    streamed, pulled, status = asyncio.run(road())
    assert streamed == pulled
    assert status == 404


def test_client_every_call_is_described_once_with_words() -> None:
    """Both clients have the same calls, all of them from one description, each with its docstring."""
    calls = {name: value for name, value in vars(Calls).items() if isinstance(value, described)}
    assert len(calls) >= 20
    for name in calls:
        assert getattr(Client, name) is getattr(AsyncClient, name)
        assert inspect.getdoc(calls[name])


def test_publish_each_form_is_understood(client: Client) -> None:
    """A CloudEvent, plain data, a mixture of both as lines, and attributes that need encoding in a header."""
    cloud = {"specversion": "1.0", "id": "1", "source": "urn:a", "type": "t", "data": {"n": 1}}
    assert client.publish(cloud)["events"][0]["id"] == "1"
    assert client.publish(cloud)["duplicates"] == 1
    assert client.publish({"n": 2}, subject="Köln – 50 %", source="urn:b")["accepted"] == 1
    assert client.publish([cloud | {"id": "2"}, {"n": 3}], source="urn:c")["accepted"] == 2
    at = datetime(2026, 1, 31, tzinfo=UTC)
    assert client.publish({"n": 4}, source="urn:d", id=5, urgent=True, time=at)["accepted"] == 1
    with pytest.raises(TypeError, match="source must be a text"):
        client.publish({"n": 4}, source=None)
    with pytest.raises(TypeError, match="put source into it"):
        client.publish(cloud, source="urn:e")
    found = [each["event"] for each in client.events()["events"]]
    assert [event["source"] for event in found] == ["urn:a", "urn:b", "urn:a", "urn:c", "urn:d"]
    assert {name: found[-1][name] for name in ("id", "urgent", "time")} == {
        "id": "5", "urgent": "true", "time": "2026-01-31T00:00:00+00:00"
    }  # fmt: skip
    assert found[1]["subject"] == "Köln – 50 %"


def test_publish_time_without_a_zone_is_local_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent with its offset; without one the server would read it as UTC."""
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    try:
        client.publish({"n": 1}, time=datetime(2026, 1, 31, 12))  # noqa: DTZ001 - the case that is tested
    finally:
        monkeypatch.undo()
        time.tzset()
    assert client.events()["events"][0]["event"]["time"] == "2026-01-31T12:00:00+05:30"


def test_problem_has_everything_the_server_said(client: Client) -> None:
    """Status, type, title, detail, and each single fault with its place; the text shows them all."""
    with pytest.raises(ProblemError) as raised:
        client.subscribe("price <")
    problem = raised.value
    assert (problem.status, problem.type) == (422, "https://kindcast.dev/problems/invalid-subscription")
    assert problem.errors[0]["line"] == 1
    assert problem.detail
    assert f"line 1, column {problem.errors[0]['column']}" in str(problem)


def test_problem_from_elsewhere_keeps_the_status() -> None:
    """An answer that is no problem document, as a proxy may give, is one all the same."""
    transport = httpx.MockTransport(lambda request: httpx.Response(502, text="<html>bad gateway</html>"))
    with Client("http://elsewhere", http=httpx.Client(transport=transport)) as client:
        with pytest.raises(ProblemError) as problem:
            client.ontologies()
        assert (problem.value.status, problem.value.type, problem.value.title) == (502, "about:blank", "Bad Gateway")
        assert "is there a proxy" in problem.value.detail


def test_client_nobody_there_raises_an_error_of_its_own() -> None:
    """Without an answer there is no problem document to show. It is also Python's and httpx's error of that kind."""
    for kind in (ServerUnreachable, ConnectionError, httpx.TransportError):
        with Client("http://127.0.0.1:9") as client, pytest.raises(kind, match="no server answers at http://127"):
            client.ontologies()
    silent = httpx.MockTransport(_silent)
    for slow in (NoAnswerInTime, TimeoutError, httpx.TimeoutException):
        with Client("http://elsewhere", http=httpx.Client(transport=silent)) as client, pytest.raises(slow):
            client.ontologies()
    with pytest.raises(httpx.UnsupportedProtocol):
        Client("nonsense")


def test_client_says_what_is_wrong_with_what_it_was_given(client: Client) -> None:
    """Before anything is sent, in words; an id that is no text is looked up as it is written."""
    with pytest.raises(httpx.UnsupportedProtocol, match="not 'localhost:8080'"):
        Client("localhost:8080")
    with pytest.raises(ValueError, match="a character that keys never have"):
        AsyncClient(key="kindcast_é")
    with pytest.raises(ValueError, match=r"seller\.ratings\.1 is NaN or infinite"):
        client.publish({"price": None, "seller": {"ratings": [1.0, float("nan")]}})
    assert client.publish({"price": None})["accepted"] == 1
    with pytest.raises(ProblemError, match="404"):
        client.subscription(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda client: client.unsubscribe(""), "the id or name is empty"),
        (lambda client: client.pull(".."), "'..' is neither an id nor a name"),
        (lambda client: client.delete_ontology("."), "'.' is neither an id nor a name"),
        (lambda client: client.renew("sub_1", ticket="é"), "header Kindcast-Ticket is not sendable"),
        (lambda client: client.pause("sub_1", ticket="a\nb"), "the header Kindcast-Ticket is not sendable"),
        (lambda client: next(client.listen("sub_1", after="ü")), "the header Last-Event-ID is not sendable"),
        (lambda client: client.publish({"n": 1}, **{"a b": "c"}), "'ce-a b' is not the name of a header"),
        (lambda client: client.subscribe("n = 1", ttl_seconds=float("nan")), "ttl_seconds is NaN"),
        (lambda client: client.match([{"n": float("inf")}]), "events.0.n is NaN or infinite"),
        (lambda client: client.publish({"n": np.array([1.0, np.nan])}), "n.1 is NaN or infinite"),
        (lambda client: client.publish({"n": Decimal("NaN")}), "n is NaN or infinite"),
    ],
)
def test_client_refuses_what_cannot_be_sent(call: Callable[[Client], object], said: str) -> None:
    """At once, and without a request to another address: nobody listens here."""
    with Client("http://127.0.0.1:9") as client, pytest.raises(UnusableArgument, match=re.escape(said)):
        call(client)


def test_client_refuses_half_of_an_emoji() -> None:
    """Such a text comes from one that was cut. Body, context attribute, path and query."""
    with Client("http://127.0.0.1:9") as client:
        for call in (
            lambda: client.publish({"n": "half: \ud83d"}),
            lambda: client.publish({"n": 1}, type="\ud83d"),
            lambda: client.subscription("\ud83d"),
            lambda: client.concepts("\ud83d"),
        ):
            with pytest.raises(UnusableArgument, match=r"'\\ud83d' is half of a surrogate pair"):
                call()


@pytest.mark.parametrize("events", [None, '{"n": 1}', b'{"n": 2}', 5])
def test_client_takes_events_and_not_their_text(events: Any) -> None:
    with Client("http://127.0.0.1:9") as client:
        for call in (client.publish, client.match):
            with pytest.raises(TypeError, match=f"not {type(events).__name__}"):
                call(events)


def test_client_says_who_it_is_also_with_a_key_from_a_file(client: Client, url: str) -> None:
    """Files end with a line feed."""
    key = client.create_key("admin")["key"]
    with Client(url, key=f"{key}\n") as known:
        assert known.who_am_i()["role"] == "admin"


def test_client_publishes_values_as_the_matcher_reads_them(client: Client) -> None:
    """Those of numpy, and decimals, which are numbers and not texts."""
    client.subscribe("price <= 400 and made < 2026-02-01")
    day = np.datetime64("2026-01-31")
    for price in (350, Decimal("350.5"), np.float32(350.5), np.int64(350), np.array([350, 900])):
        assert client.publish({"price": price, "made": day})["matched"] == 1, price
    with pytest.raises(TypeError, match="a object is not a JSON value"):
        client.publish({"price": object()})


def test_errors_of_the_client_can_be_sent_to_another_process(client: Client) -> None:
    """And copied: everything stays."""
    with pytest.raises(ProblemError) as raised:
        client.subscribe("price <")
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
        assert (str(again), vars(again)) == (str(raised.value), vars(raised.value))


def test_problem_is_told_once() -> None:
    """The detail of an answer often is its first fault. The same fault in another place is another one."""
    faults = [{"pointer": f"/{name}", "detail": "unknown member"} for name in "nm"] + [{"detail": "too long"}]
    told = ProblemError.of({"status": 422, "title": "Invalid", "detail": "/n: unknown member", "errors": faults})
    assert str(told) == "422 Invalid: /n: unknown member\n  /m: unknown member\n  too long"


def test_open_streams_leave_room_for_other_calls(url: str) -> None:
    """However many they are: each occupies a connection."""

    async def road() -> set[int]:
        async with AsyncClient(url) as client, asyncio.TaskGroup() as group:
            ids = [(await client.subscribe("n exists"))["id"] for _ in range(110)]
            begun = [asyncio.Event() for _ in ids]

            async def first(id: str, open: asyncio.Event) -> str:
                async with aclosing(client.listen(id, after="0")) as messages:
                    await anext(messages)
                    open.set()
                    return (await anext(messages))["cursor"]

            await client.publish({"n": 1})
            waiting = [group.create_task(first(*each)) for each in zip(ids, begun, strict=True)]
            for each in begun:
                await each.wait()
            await client.publish({"n": 2})
        return {int(each.result()) for each in waiting}

    assert asyncio.run(asyncio.wait_for(road(), 60)) == {2}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, html="<html>"),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(200, json={"hello": 1}),
    ],
    ids=["page", "redirect", "another API"],
)
def test_listen_to_another_program_ends(answer: httpx.Response) -> None:
    """It would be asked again for ever, and nothing would be heard of it."""
    http = httpx.Client(transport=httpx.MockTransport(lambda request: answer))
    with (
        Client("http://elsewhere.test", http=http) as client,
        pytest.raises(UnexpectedAnswer, match="instead of a stream"),
    ):
        next(client.listen("sub_1"))


def test_listen_to_a_server_that_is_not_trusted_ends(tmp_path: Path) -> None:
    """Another try would not trust it either."""
    certificate, key = Authority(tmp_path).issue(tmp_path)
    with (
        running_app(tmp_path / "data", tls_certificate=certificate, tls_key=key) as url,
        Client(url) as client,
        pytest.raises(ServerUnreachable, match="is not trusted"),
    ):
        next(client.listen("sub_1"))


@pytest.mark.parametrize("body", ["<html>", "", "{}", "[]", '{"status": "ok"}'])
def test_another_program_at_the_address_is_told(body: str) -> None:
    """It answers 200 with a page, with nothing, or with JSON of its own."""

    def page(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=body, headers={"content-type": "text/html"}, request=request)

    http = httpx.Client(transport=httpx.MockTransport(page))
    with (
        Client("http://elsewhere.test", http=http) as client,
        pytest.raises(UnexpectedAnswer, match="is there a"),
    ):
        client.subscriptions()


def test_subscriptions_are_carried_by_both_clients(client: Client, url: str) -> None:
    """What one downloads the other imports."""
    client.subscribe("n = 1")
    lines = b"".join(client.download("/v1/subscriptions/export"))

    async def road() -> tuple[dict[str, Any], bytes]:
        async with AsyncClient(url) as other:
            told = await other.import_subscriptions(lines)
            async with aclosing(other.download("/v1/subscriptions/export")) as parts:
                return told, b"".join([part async for part in parts])

    told, both = asyncio.run(road())
    assert (len(told["created"]), both.count(b"n = 1")) == (1, 2)


def test_stream_token_opens_one_stream(tmp_path: Path) -> None:
    """Without the key, and once: a second connection with it is refused."""
    with running_app(tmp_path) as url:
        with Client(url) as first:
            key = first.create_key("admin")["key"]
        with Client(url, key=key) as client:
            made = client.subscribe("n = 1")
            client.publish({"n": 1})
            asked = {"token": client.stream_token(made["id"])["token"], "after": "0"}
        address = f"{url}/v1/subscriptions/{made['id']}/stream"
        with httpx.stream("GET", address, params=asked, timeout=30.0) as stream:
            assert stream.status_code == 200
            assert any(line.startswith("data:") for line in stream.iter_lines())
        with httpx.stream("GET", address, params=asked, timeout=30.0) as stream:
            assert stream.status_code == 401


def test_client_signatures_are_those_that_are_called() -> None:
    """Without `self`, and with what is returned: as `help` and `inspect` show them."""
    with Client("http://elsewhere") as client:
        stated = inspect.signature(client.pull)
        assert list(stated.parameters) == ["id", "after", "limit", "wait"]
        assert stated.return_annotation is MessagePage
        assert inspect.signature(client.unsubscribe).return_annotation is None
        assert client.pull.__doc__
        assert "(id: str, *, after:" in pydoc.render_doc(client.pull)


def test_client_classes_show_signatures_and_their_methods_can_be_called(client: Client) -> None:
    """`help(Client)` and an editor see what an instance has."""
    for kind in (Client, AsyncClient):
        stated = inspect.signature(kind.subscribe)
        assert list(stated.parameters)[:3] == ["self", "expression", "where"]
        assert "subscribe(self, /, expression: str | None = None" in pydoc.render_doc(kind, renderer=pydoc.plaintext)
    made = Client.subscribe(client, "n = 1")
    assert client.subscription(made["id"])["status"] == "active"


class Unreliable:
    """A server that breaks off its first connections, or refuses their requests, and then answers."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[dict[str, str]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "Unreliable":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        for answer in [*self._answers, OK]:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
                lines = head.decode().splitlines()
                told = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                while len(body) < int(told.get("content-length", 0)):
                    body += connection.recv(65_536)
                self.heads.append({"": lines[0], "body": body.decode()} | told)
                connection.sendall(answer)


MEMBERS = ("id", "ticket", "accepted", "cursor", "subscriptions", "events", "notes", "vocabulary_version")
ANSWER = msgspec.json.encode(dict.fromkeys(MEMBERS, ""))
"""Has members of the answers to all calls below."""
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(ANSWER), ANSWER)
BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@pytest.mark.parametrize("answer", [b"", BUSY])
def test_client_sends_again_what_does_nothing_twice_with_the_same_ids(answer: bytes) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "urn:a", "type": "t"}
    calls: dict[str, Callable[[Client], object]] = {
        "subscribe": lambda client: client.subscribe("n = 1"),
        "one event": lambda client: client.publish({"n": 1}),
        "events with ids": lambda client: client.publish([event]),
        "events without ids": lambda client: client.publish([{"n": 1}, {"n": 2}]),
        "read": lambda client: client.subscriptions(),
        "pull": lambda client: client.pull("sub_1"),
        "match": lambda client: client.match({"n": 1}),
        "explain": lambda client: client.explain({"n": 1}, "n = 1"),
    }
    for name, call in calls.items():
        with Unreliable([answer, answer]) as server, Client(server.url) as client:
            call(client)
        first, *others = server.heads
        assert others == [first, first], name


def test_client_sends_once_what_might_be_done_twice() -> None:
    """A change: the error says that it is not known whether it was done."""
    with Unreliable([b""]) as server, Client(server.url) as client, pytest.raises(ServerUnreachable):
        client.replay("sub_1")
    assert len(server.heads) == 1


def test_client_sends_again_what_a_busy_server_did_not_do() -> None:
    """A 503 with `Retry-After` says so. Another one, from a proxy say, may have been done."""
    with Unreliable([BUSY]) as server, Client(server.url) as client:
        client.ack("sub_1", "1")
    assert len(server.heads) == 2
    unknown = BUSY.replace(b"retry-after: 0\r\n", b"")
    with Unreliable([unknown]) as server, Client(server.url) as client, pytest.raises(ProblemError, match="503"):
        client.ack("sub_1", "1")
    assert len(server.heads) == 1


def test_client_waits_for_a_server_that_is_not_there_yet_but_not_for_ever(tmp_path: Path) -> None:
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", retry_seconds=0.5) as client:
        began = time.monotonic()
        with pytest.raises(ServerUnreachable, match="no server answers"):
            client.replay("sub_1")
        assert time.monotonic() - began > 0.2

    async def later() -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", retry_seconds=10) as client:
            waiting = asyncio.create_task(client.publish([{"n": 1}, {"n": 2}]))
            await asyncio.sleep(0.5)
            server = socket.create_server(("127.0.0.1", port))
            server.settimeout(30)
            connection, _ = await asyncio.to_thread(server.accept)
            connection.settimeout(30)
            with server, connection:
                await asyncio.to_thread(connection.recv, 65_536)  # what the client sends from this loop
                connection.sendall(OK)
                await waiting

    asyncio.run(later())


def _silent(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("nothing", request=request)


def test_listen_unknown_subscription_raises(client: Client) -> None:
    """What can never succeed is not tried again."""
    with pytest.raises(ProblemError) as problem:
        next(client.listen("nobody"))
    assert problem.value.status == 404


def test_listen_server_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 while the server starts, and 429, count as a broken connection, not as a refusal."""
    answers = iter([503, 429, 204])
    transport = httpx.MockTransport(lambda request: httpx.Response(next(answers)))
    pauses: list[float] = []
    monkeypatch.setattr(StreamReader, "pause", lambda _: pauses.append(0.0) or pauses[-1])
    with Client("http://elsewhere", http=httpx.Client(transport=transport)) as client:
        assert list(client.listen("s")) == []
        assert len(pauses) == 2


@pytest.mark.parametrize("answers", [True, False])
def test_close_ends_listen_in_another_thread(*, answers: bool) -> None:
    """While a server sends nothing, and while the next attempt to reach a server waits."""
    ended: list[Exception | None] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Client("http://{}:{}".format(*server.getsockname()))

        def listen() -> None:
            try:
                ended.append(next(client.listen("s"), None))
            except Exception as error:
                ended.append(error)

        listening = threading.Thread(target=listen)
        listening.start()
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            connection.sendall(answer + (b": kindcast\n\n" if answers else b"retry: 600000\n\n"))
            if not answers:
                connection.shutdown(socket.SHUT_RDWR)
            time.sleep(0.3)  # what it waits for cannot be seen
            client.close()
            listening.join(60)
            assert not listening.is_alive()
    assert ended == [None]


@pytest.mark.parametrize("state", ["not answered", "open", "between two attempts"])
def test_close_ends_listen_in_another_task(state: str) -> None:
    """As for threads. A task whose server has not answered yet ends, too."""
    asked = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if state != "not answered":
            rest = b": kindcast\n\n" if state == "open" else b"retry: 600000\n\n"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + rest)
            await writer.drain()
        asked.set()
        if state != "between two attempts":
            await reader.read()  # until the client leaves
        writer.close()

    async def listened() -> Any:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            client = AsyncClient("http://{}:{}".format(*server.sockets[0].getsockname()))
            listening = asyncio.ensure_future(anext(client.listen("s"), None))
            await asyncio.to_thread(asked.wait, 60)
            await asyncio.sleep(0.3)  # what it waits for cannot be seen
            await client.close()
            return await asyncio.wait_for(listening, 60)

    assert asyncio.run(listened()) is None


def test_listen_killed_server_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    """The server is killed under an open stream and comes back: every message arrives once, in order."""
    with running_server(tmp_path) as server, Client(server.url) as client:
        id = client.subscribe("number exists")["id"]
        found: list[int] = []
        some = threading.Event()

        def listen() -> None:
            for message in client.listen(id):
                found.append(message["event"]["data"]["number"])
                some.set()
                if found[-1] == 5:
                    return

        listening = threading.Thread(target=listen)
        listening.start()
        client.publish([{"number": number} for number in (1, 2, 3)])
        assert some.wait(60)
        server.kill()
        server.start()
        client.publish([{"number": number} for number in (4, 5)])
        listening.join(60)
    assert found == [1, 2, 3, 4, 5]


def test_listen_stopped_server_goes_on_too(tmp_path: Path) -> None:
    """An orderly stop ends the stream with a word to come back, and `listen` does."""
    with running_server(tmp_path) as server, Client(server.url) as client:
        id = client.subscribe("number exists")["id"]
        client.publish({"number": 1})
        messages = client.listen(id)
        first = next(messages)
        server.stop()
        server.start()
        client.publish({"number": 2})
        second = next(messages)
    assert [message["event"]["data"]["number"] for message in (first, second)] == [1, 2]


def test_client_goes_to_this_machine_past_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is set for the world outside is not asked for the way to a server next door."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # the discard port: nobody answers
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with running_server(tmp_path / "data") as process, Client(process.url) as client:
        client.ready()


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "gopher://127.0.0.1:9"])
def test_client_says_that_it_cannot_use_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """Its library needs another one for SOCKS. The command line shows this error as a message."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    for client in (Client, AsyncClient):
        with pytest.raises(UnusableArgument, match="the proxy of the environment cannot be used"):
            client("http://kindcast.example")
