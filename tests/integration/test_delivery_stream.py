"""Server-sent events, over HTTP."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection
from sqlalchemy.event import listen

from kindcast import AsyncClient, Client, ProblemError
from kindcast.server.broker import Broker
from kindcast.server.broker.garbage_collection import paused
from kindcast.server.delivery import receiving
from kindcast.server.delivery.receiving import PAGE_BYTES, Found, find_start, follow
from kindcast.server.delivery.service import Wakeups
from kindcast.server.delivery.turns import Looks
from kindcast.server.errors import StoreUnavailable
from kindcast.server.security.permissions import Reader
from kindcast.server.store.deliveries import MatchReader, StoredMatch, Subscriber
from tests.harness.broker import READER, new, run, running
from tests.harness.server_process import running_server
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

SILENCE_SECONDS = 30.0
"""Longest silence that a test bears; only a failing one waits so long."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_app(tmp_path, stream_ping_seconds=0.1) as url, Client(url) as client:
        yield client


def publish(client: Client, *numbers: int) -> list[str]:
    """Publishes an event for each number; returns their cursors."""
    return [str(client.publish({"number": number})["events"][0]["sequence"]) for number in numbers]


@contextmanager
def stream(client: Client, id: str, **request: object) -> Iterator[httpx.Response]:
    """The raw answer."""
    url = f"{client.server}/v1/subscriptions/{id}/stream"
    with httpx.stream("GET", url, timeout=SILENCE_SECONDS, **request) as answer:  # type: ignore[arg-type]
        yield answer


def lines_until(lines: Iterator[str], wanted: str) -> list[str]:
    """The lines up to the first that begins so."""
    found = []
    for line in lines:
        found.append(line)
        if line.startswith(wanted):
            return found
    raise AssertionError(f"the stream ended without {wanted!r}: {found}")


def ids_in(lines: list[str]) -> list[str]:
    return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


def test_a_stream_waits_while_the_database_cannot_be_reached(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was, or ends after a while with a reason for which its reader connects again."""
    id = client.subscribe("number exists")["id"]
    first, *_ = publish(client, 1)
    away = threading.Event()
    looks = threading.Semaphore(0)
    read = Broker.read

    async def sometimes(broker: Broker, work: Callable[[Connection], object]) -> object:
        if away.is_set():
            looks.release()
            raise StoreUnavailable
        return await read(broker, work)

    monkeypatch.setattr(Broker, "read", sometimes)
    monkeypatch.setattr(receiving, "AWAY_PAUSE_SECONDS", 0.01)
    with stream(client, id) as answer:
        lines = answer.iter_lines()
        assert ids_in(lines_until(lines, "id: ")) == [first]
        away.set()
        for _ in range(3):
            assert looks.acquire(timeout=SILENCE_SECONDS)
        away.clear()
        second, *_ = publish(client, 2)
        assert ids_in(lines_until(lines, "id: ")) == [second]
        monkeypatch.setattr(receiving, "AWAY_SECONDS", 0.1)
        away.set()
        assert lines_until(lines, "data: ")[-1] == 'data: {"reason":"shutdown"}'


def test_stream_brings_what_waits_and_what_comes(client: Client) -> None:
    """First the messages that waited, then each new one; id is the cursor, data the message of a pull."""
    id = client.subscribe("number exists")["id"]
    waited = publish(client, 1, 2)
    with stream(client, id) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        begun = lines_until(lines, f"id: {waited[1]}")
        assert begun[0] == "retry: 1000"
        assert begun.count("event: match") == 2
        came = publish(client, 3)
        assert ids_in(lines_until(lines, f"id: {came[0]}")) == came
    assert [int(message["event"]["data"]["number"]) for message in client.pull(id)["events"]] == [1, 2, 3]


def test_stream_data_is_the_message_of_a_pull(client: Client) -> None:
    """One message, whichever way it is read."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1)
    assert next(client.listen(id)) == client.pull(id)["events"][0]


def test_stream_starts_after_what_was_acknowledged(client: Client) -> None:
    """Without a cursor the stream begins where a pull would."""
    id = client.subscribe("number exists")["id"]
    cursors = publish(client, 1, 2, 3)
    client.ack(id, cursors[1])
    with stream(client, id) as answer:
        assert ids_in(lines_until(answer.iter_lines(), "id: ")) == [cursors[2]]


def test_stream_goes_on_after_last_event_id(client: Client) -> None:
    """The header of a reconnecting browser wins over the query, which wins over the acknowledged cursor."""
    id = client.subscribe("number exists")["id"]
    cursors = publish(client, 1, 2, 3)
    with stream(client, id, headers={"Last-Event-ID": cursors[1]}, params={"after": "0"}) as answer:
        assert ids_in(lines_until(answer.iter_lines(), "id: ")) == [cursors[2]]
    with stream(client, id, params={"after": cursors[0]}) as answer:
        assert ids_in(lines_until(answer.iter_lines(), "id: ")) == [cursors[1]]


def test_stream_silence_is_filled_with_comments(client: Client) -> None:
    """Between matches a comment shows that the connection lives."""
    id = client.subscribe("number exists")["id"]
    with stream(client, id) as answer:
        lines = answer.iter_lines()
        lines_until(lines, ":")
        lines_until(lines, ":")


@pytest.mark.parametrize("cursor", ["x", "-1", "999999999"])
def test_stream_cursor_that_is_none_of_ours_is_refused(client: Client, cursor: str) -> None:
    """What cannot be a cursor is a problem, not an empty stream."""
    id = client.subscribe("number exists")["id"]
    with stream(client, id, headers={"Last-Event-ID": cursor}) as answer:
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"


def test_stream_too_many_readers_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and long polls have a bound together; a pull that does not wait is always served."""
    monkeypatch.setattr("kindcast.server.api.deliveries.MAX_WATCHING", 1)
    id = client.subscribe("number exists")["id"]
    with stream(client, id) as first:
        lines = first.iter_lines()
        lines_until(lines, ":")
        with stream(client, id) as second:
            assert second.status_code == 503
        with pytest.raises(ProblemError, match="503"):
            client.pull(id, wait=1)
        assert client.pull(id)["events"] == []
        lines_until(lines, ":")  # the first one goes on


def test_stream_of_nobody_is_not_found(client: Client) -> None:
    """An unknown subscription is a problem before the stream begins."""
    with stream(client, "nobody") as answer:
        assert answer.status_code == 404


def test_stream_ends_when_the_subscription_is_deleted(client: Client) -> None:
    """The last event says why, and `listen` of both clients raises."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1)
    messages = client.listen(id)
    next(messages)

    async def listen() -> None:
        async with AsyncClient(client.server) as other:
            async for _ in other.listen(id):
                client.unsubscribe(id)

    with stream(client, id) as answer:
        lines = answer.iter_lines()
        lines_until(lines, "id: ")
        with pytest.raises(ProblemError, match="was deleted"):
            asyncio.run(listen())
        assert 'data: {"reason":"deleted"}' in lines_until(lines, 'data: {"reason"')
        assert list(lines) == [""]
    with pytest.raises(ProblemError, match="was deleted") as told:
        next(messages)
    assert told.value.status == 404


def test_stream_ends_when_the_subscription_expires(client: Client) -> None:
    """A stream ends with its subscription's time; afterwards there is nothing to connect to, until it is renewed."""
    id = client.subscribe("number exists", ttl_seconds=1.0)["id"]
    publish(client, 1)
    messages = client.listen(id)
    first = next(messages)
    assert list(messages) == []
    with stream(client, id, params={"after": first["cursor"]}) as answer:
        assert answer.status_code == 204
    client.renew(id)
    [cursor] = publish(client, 2)
    with stream(client, id, params={"after": first["cursor"]}) as answer:
        assert ids_in(lines_until(answer.iter_lines(), "id: ")) == [cursor]


def test_stream_reader_that_does_not_read_holds_up_nobody(client: Client) -> None:
    """While one reader leaves megabytes unread, publishing, pulling and another stream go on."""
    id = client.subscribe("number exists")["id"]
    with stream(client, id) as unread:
        assert unread.status_code == 200
        for number in range(40):
            client.publish({"number": number, "filling": "x" * 500_000})
        messages = client.listen(id)
        assert [next(messages)["event"]["data"]["number"] for _ in range(40)] == list(range(40))
        assert len(client.pull(id, limit=10)["events"]) == 10
        assert len(ids_in(lines_until(unread.iter_lines(), f"id: {client.pull(id, limit=40)['cursor']}"))) > 10


def test_stream_holds_few_bytes_for_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """A page is bounded by bytes, also while it is read, and a message is forgotten when it is sent."""

    def most_events_of_a_query(connection: Connection) -> int:
        parameters: list[int] = []
        listen(connection, "before_cursor_execute", lambda *given: parameters.append(len(given[3])))
        assert len(MatchReader(connection).read(1, after=0, limit=256, byte_budget=PAGE_BYTES)) == 4
        return max(parameters)

    async def read() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", "n exists"))
            context = {"specversion": "1.0", "source": "s", "type": "t"}
            data = [{"n": n, "filling": "x" * (PAGE_BYTES // 4)} for n in range(30)]
            await broker.publish([READER.from_object({**context, "id": f"{each['n']}", "data": each}) for each in data])
            reader = Reader(None, lambda: broker.vocabulary)
            looks = Looks(broker)
            start = await find_start(looks, "s", None, reader)
            assert await broker.read(most_events_of_a_query) < 10
            sent = []
            async with aclosing(follow(looks, Wakeups(), start, 60.0, nullcontext, _body)) as steps:
                while len(sent) < 30:
                    step = await anext(steps)
                    if not isinstance(step, Found):
                        continue  # it ends soon
                    page = list(step.frames)
                    assert sum(map(len, page)) < 2 * PAGE_BYTES
                    sent += [json.loads(each)["data"]["n"] for each in page]
            assert sent == list(range(30))

    run(read)


def test_stream_lets_go_of_a_message_that_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the reader waits for the next one, and after it has left, without the help of the garbage collector."""

    made, gone, make = list[int](), list[int](), receiving._sse_event

    class Line(bytes):
        def __del__(self) -> None:
            gone.append(1)

    def counted(*arguments: Any, **more: Any) -> bytes:
        made.append(1)
        return Line(make(*arguments, **more))

    monkeypatch.setattr(receiving, "_sse_event", counted)
    with running_app(tmp_path, stream_ping_seconds=3_600.0) as url, Client(url) as client, paused():
        id = client.subscribe("number exists")["id"]
        client.publish({"number": 1})
        with stream(client, id) as waiting:
            lines = waiting.iter_lines()
            lines_until(lines, "data: {")
            until(lambda: len(gone) == 1)
            client.publish({"number": 2, "filling": "x" * 15_000_000})
            until(lambda: len(made) == 2)
        until(lambda: len(gone) == 2)


def _body(_: Subscriber, match: StoredMatch) -> str:
    return match.body


def test_stream_reader_behind_the_retention_is_told(tmp_path: Path) -> None:
    """The stream ends where messages are missing, and the next request says which."""
    settings = {"retention_seconds": 2.0, "sweep_seconds": 0.1, "stream_ping_seconds": 3_600.0}
    with running_app(tmp_path, **settings) as url, Client(url) as client:
        id = client.subscribe("number exists")["id"]
        with stream(client, id) as unread:
            for number in range(40):
                client.publish({"number": number, "filling": "x" * 500_000})
            while client.events()["events"]:
                time.sleep(0.05)
            lines = lines_until(unread.iter_lines(), 'data: {"reason"')
        read = ids_in(lines)
        assert len(read) < 40
        assert lines[-1] == 'data: {"reason":"gone"}'
        with pytest.raises(ProblemError) as problem:
            next(client.listen(id, after=read[-1] if read else 0))
        assert problem.value.status == 410


def test_stream_follows_a_change_of_its_attributes(client: Client) -> None:
    id = client.subscribe("number exists", attributes=["number"])["id"]
    messages = client.listen(id)
    client.publish({"number": 1, "price": 2})
    assert next(messages)["event"]["data"] == {"number": 1}
    client.change(id, attributes=["price"])
    client.publish({"number": 1, "price": 2})
    assert next(messages)["event"]["data"] == {"price": 2}


def test_stream_many_readers_get_everything(client: Client) -> None:
    """Several streams of one subscription while it is published to: each gets every match once, in order."""
    id = client.subscribe("number exists")["id"]
    found: list[list[int]] = [[] for _ in range(4)]

    def read(into: list[int]) -> None:
        for message in client.listen(id):
            into.append(message["event"]["data"]["number"])
            if len(into) == 60:
                return

    readers = [threading.Thread(target=read, args=(into,)) for into in found]
    for reader in readers:
        reader.start()
    publish(client, *range(30))
    client.publish([{"number": number} for number in range(30, 60)])
    for reader in readers:
        reader.join(60)
    assert found == [list(range(60))] * 4


def test_stream_ends_cleanly_when_the_server_stops(tmp_path: Path) -> None:
    """SIGTERM ends an open stream with the word to come back, at once and without complaint."""
    with running_server(tmp_path) as server, Client(server.url) as client:
        id = client.subscribe("number exists")["id"]
        publish(client, 1)
        with stream(client, id) as answer:
            lines = answer.iter_lines()
            lines_until(lines, "id: ")
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            assert 'data: {"reason":"shutdown"}' in lines_until(lines, 'data: {"reason"')
            assert list(lines) == [""]
            stopping.join()
        assert "Traceback" not in server.log.read_text()
        assert "Cancel" not in server.log.read_text()  # what the HTTP server says of answers it had to break off
