"""The live tail: one look into the store for all who follow, each of whom gets what it may see and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.app import create_app
from kindcast.server.delivery import tail
from kindcast.server.delivery.tail import PER_INTERVAL, WAITING, Filter, Follower, LiveTail, Look, Message
from kindcast.server.settings import Settings
from kindcast.server.store.events import find_matches
from kindcast.server.tenants import TenantServices
from tests.harness.server_thread import running_app

SUBSCRIBER = frozenset({"subscriber"})


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "INTERVAL_SECONDS", 0.01)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[list[str | None]]:
    """The looks into the store so far: the sources that each of them read."""
    made: list[list[str | None]] = []
    read = tail.newest_events

    class Counted(Look):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append([])

    def counted(*arguments: Any, source: str | None, **more: Any) -> Any:
        made[-1].append(source)
        return read(*arguments, source=source, **more)

    monkeypatch.setattr(tail, "Look", Counted)
    monkeypatch.setattr(tail, "newest_events", counted)
    return made


@asynccontextmanager
async def application(data: Path) -> AsyncIterator[tuple[TenantServices, httpx.AsyncClient]]:
    app = create_app(Settings(data=data))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        yield app.state.tenants.default, client


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def events_of(
    next_message: Callable[[], Coroutine[Any, Any, dict[str, Any]]], count: int
) -> list[dict[str, Any]]:
    """So many events, with nothing skipped: a request may be accepted in several commands, and so in several looks."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        told = await next_message()
        assert told["skipped"] == 0
        found += told["events"]
    return found


async def follow(live: LiveTail, wanted: Filter) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """Follows; each call of what is returned waits for the next message."""
    stream = live.watch(wanted, 3_600.0)
    assert (await anext(stream)).startswith(b"retry:")

    async def next_message() -> dict[str, Any]:
        name, data, *rest = (await anext(stream)).decode().split("\n")
        assert (name, rest) == ("event: events", ["", ""])
        told: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return told

    next_message.leave = stream.aclose  # type: ignore[attr-defined]
    return next_message


def cloudevent(id: int, source: str, **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(id), "source": source, "type": "t", "data": data}


async def publish(client: httpx.AsyncClient, *events: dict[str, Any]) -> None:
    """In one request."""
    body, kind = json.dumps(list(events)), {"Content-Type": "application/cloudevents-batch+json"}
    answer = await client.post("/v1/events", content=body, headers=kind)
    assert answer.status_code == 202, answer.text


async def subscribe(client: httpx.AsyncClient, expression: str) -> dict[str, Any]:
    made: dict[str, Any] = (await client.post("/v1/subscriptions", json={"expression": expression})).json()
    return made


def test_one_look_serves_followers_of_different_sources_and_roles(
    tmp_path: Path, looks: list[list[str | None]]
) -> None:
    """All events, one source, somebody from whom an attribute is hidden, and somebody who sees no payload."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):
            (await client.put("/v1/attributes/ssn", json={"readable_by": []})).raise_for_status()
            price, ssn = await subscribe(client, "price > 3"), await subscribe(client, "ssn exists")
            of_all = await follow(services.tail, Filter(None, True))
            again = await follow(services.tail, Filter(None, True))
            of_source = await follow(services.tail, Filter("urn:b", True))
            limited = await follow(services.tail, Filter(None, True, SUBSCRIBER))
            bare = await follow(services.tail, Filter(None, False, SUBSCRIBER))
            await publish(client, cloudevent(1, "urn:a", price=5, ssn="s-1"), cloudevent(2, "urn:b", price=1))

            first, second = await events_of(of_all, 2)
            assert (first["sequence"], first["matched"], first["source"]) == (1, 2, "urn:a")
            assert first["subscriptions"] == [price["id"], ssn["id"]]
            assert first["event"]["data"] == {"price": 5, "ssn": "s-1"}
            assert (second["matched"], second["subscriptions"]) == (0, [])
            assert await events_of(again, 2) == [first, second]
            assert await events_of(of_source, 1) == [second]

            first_limited, second_limited = await events_of(limited, 2)
            assert first_limited["event"]["data"] == {"price": 5}
            assert (first_limited["matched"], first_limited["subscriptions"]) == (None, [price["id"]])
            assert second_limited["event"]["data"] == {"price": 1}
            assert await events_of(bare, 2) == [first_limited | {"event": None}, second_limited | {"event": None}]

            assert {tuple(sorted(each, key=str)) for each in looks} == {(None, "urn:b")}  # once in each look

    run(scenario())


def test_a_sample_says_how_many_it_left_out(tmp_path: Path, looks: list[list[str | None]]) -> None:
    """Of each source by itself: a rare one is shown whole beside a busy one."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):
            of_all = await follow(services.tail, Filter(None, True))
            rare = await follow(services.tail, Filter("urn:rare", True))
            busy = [cloudevent(number, "urn:busy", number=number) for number in range(2, 102)]
            await publish(client, cloudevent(1, "urn:rare", number=1), *busy)
            count = newest = 0
            while newest < 101:  # one message, unless the events were accepted in several commits
                told = await of_all()
                shown = [each["sequence"] for each in told["events"]]
                assert len(shown) <= PER_INTERVAL
                assert shown == list(range(shown[0], shown[0] + len(shown)))
                newest, count = shown[-1], count + len(shown) + told["skipped"]
            assert (newest, count) == (101, 101)
            told = await rare()
            assert ([each["sequence"] for each in told["events"]], told["skipped"]) == ([1], 0)

    run(scenario())


def test_a_follower_that_does_not_read_is_bounded_and_told(tmp_path: Path) -> None:
    """What waits for it is dropped from the oldest on; the next message says how many events are missing. Who reads
    beside it gets everything."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):
            slow = await follow(services.tail, Filter(None, True))
            reads = await follow(services.tail, Filter(None, True))
            for number in range(1, WAITING + 6):
                await publish(client, cloudevent(number, "urn:a", number=number))
                told = await reads()
                assert ([each["sequence"] for each in told["events"]], told["skipped"]) == ([number], 0)
            messages = [await slow() for _ in range(WAITING)]
            assert [each["skipped"] for each in messages] == [5] + [0] * (WAITING - 1)
            assert [each["events"][0]["sequence"] for each in messages] == list(range(6, WAITING + 6))

    run(scenario())


def test_dropped_messages_count_what_their_sample_left_out() -> None:
    """Shown and skipped add up to all that came."""

    async def scenario() -> None:
        follower = Follower()
        for _ in range(WAITING + 3):
            follower.tell(Message(b"[1,2]", 2, 7))
        told = [json.loads((await follower.next() or b"").split(b"data: ")[1]) for _ in range(WAITING)]
        assert sum(len(each["events"]) + each["skipped"] for each in told) == 7 * (WAITING + 3)
        follower.tell(Message(b"[]", 0, 1))
        follower.close()
        assert await follower.next() is None

    run(scenario())


def test_leaving_frees_and_the_last_one_ends_the_reader(tmp_path: Path, looks: list[list[str | None]]) -> None:
    """Nobody reads the store for nobody, and who comes later begins with what comes then."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):

            def readers() -> list[asyncio.Task[Any]]:
                return [each for each in asyncio.all_tasks() if each.get_name() == "live tail"]

            one = await follow(services.tail, Filter(None, True))
            other = await follow(services.tail, Filter("urn:a", True))
            (reader,) = readers()
            await one.leave()  # type: ignore[attr-defined]
            await publish(client, cloudevent(1, "urn:a", number=1))
            assert (await other())["events"][0]["sequence"] == 1
            assert all(each == ["urn:a"] for each in looks)
            before = len(looks)
            await other.leave()  # type: ignore[attr-defined]
            await reader
            await publish(client, cloudevent(2, "urn:a", number=2))
            assert (readers(), len(looks)) == ([], before)
            later = await follow(services.tail, Filter(None, True))
            await publish(client, cloudevent(3, "urn:a", number=3))
            assert [each["sequence"] for each in (await later())["events"]] == [3]

    run(scenario())


def test_unexpected_error_ends_the_streams_so_that_followers_connect_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that stays open without a reader would be silent for ever."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):
            one = await follow(services.tail, Filter(None, True))
            with monkeypatch.context() as broken:
                broken.setattr(tail, "newest_events", lambda *arguments, **more: 1 // 0)
                await publish(client, cloudevent(1, "urn:a", number=1))
                with pytest.raises(StopAsyncIteration):
                    await asyncio.wait_for(one(), 30.0)
            again = await follow(services.tail, Filter(None, True))
            await publish(client, cloudevent(2, "urn:a", number=2))
            assert [each["sequence"] for each in (await again())["events"]] == [2]

    run(scenario())


def test_a_look_names_the_first_subscriptions_that_are_still_there(tmp_path: Path) -> None:
    """Some were deleted after they matched, and there are more than are named."""

    async def scenario() -> None:
        async with application(tmp_path) as (services, client):
            made = [await subscribe(client, f"price > {number}") for number in range(30)]
            await publish(client, cloudevent(1, "urn:a", price=100), cloudevent(2, "urn:a", price=3))
            for each in made[:4]:
                headers = {"Kindcast-Ticket": each["ticket"]}
                (await client.delete(f"/v1/subscriptions/{each['id']}", headers=headers)).raise_for_status()
            (first, second) = (await client.get("/v1/events/recent")).json()["events"][::-1]
            assert first["subscriptions"] == [each["id"] for each in made[4:24]]
            assert (first["matched"], second["matched"], second["subscriptions"]) == (30, 3, [])
            expected = await services.broker.read(lambda connection: find_matches(connection, 1, limit=20))
            assert [each.id for each in expected] == first["subscriptions"]

    run(scenario())


def test_streams_of_two_tenants_have_nothing_in_common(tmp_path: Path) -> None:
    """Each gets the events of its tenant, and what the role of its key may see."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, timeout=60.0) as client, ExitStack() as stack:
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}

        def key(tenant: str, role: str) -> dict[str, str]:
            made = client.post("/v1/keys", json={"role": role, "tenant": tenant}, headers=admin).raise_for_status()
            return {"Authorization": f"Bearer {made.json()['key']}"}

        def open_stream(headers: dict[str, str]) -> Any:
            answer = stack.enter_context(client.stream("GET", "/v1/events/stream", headers=headers))
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            return lines

        streams = {}
        for tenant in ("left", "right"):
            client.post("/v1/tenants", json={"name": tenant}, headers=admin).raise_for_status()
            streams[tenant] = open_stream(key(tenant, "admin"))
        auditor = open_stream(key("left", "auditor"))
        for tenant in ("right", "left"):
            client.post("/v1/events", json={"of": tenant}, headers=key(tenant, "publisher")).raise_for_status()
        for tenant, lines in streams.items():
            told = json.loads(next(line for line in lines if line.startswith("data:")).removeprefix("data:"))
            assert [each["event"]["data"] for each in told["events"]] == [{"of": tenant}]
        told = json.loads(next(line for line in auditor if line.startswith("data:")).removeprefix("data:"))
        assert [each["event"] for each in told["events"]] == [None]
