"""Turns of readers: what streams, WebSockets and pulls share, and how many are at the store at one time."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from websockets.sync.client import connect

from kindcast.server.api import deliveries
from kindcast.server.broker import Broker
from kindcast.server.delivery import receiving, running_delivery, turns
from kindcast.server.delivery.message import CursorGone, InvalidCursor
from kindcast.server.delivery.receiving import MAX_PAGE_BYTES, SMALL_PAGE_BYTES, Found, Start, find_start, follow, pull
from kindcast.server.delivery.service import Wakeups
from kindcast.server.delivery.turns import Acknowledgements, Look, Looks
from kindcast.server.errors import TicketMissing, TicketWrong, UnknownSubscription
from kindcast.server.security.permissions import Reader
from kindcast.server.store import events
from kindcast.server.store.deliveries import StoredMatch, Subscriber
from kindcast.server.store.ledger import read_totals
from kindcast.server.worker_threads import Turns
from tests.harness.broker import event, new, run, running
from tests.harness.server_thread import running_app

PATIENCE = 30.0
STREAMS = 20


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The byte budgets of all reads of matches so far, one for each."""
    made: list[int] = []
    read = Look.read

    def counted(*arguments: Any, byte_budget: int, **more: Any) -> Any:
        made.append(byte_budget)
        return read(*arguments, byte_budget=byte_budget, **more)

    monkeypatch.setattr(Look, "read", counted)
    return made


def test_streams_and_websockets_at_the_same_cursor_share_a_look(tmp_path: Path, budgets: list[int]) -> None:
    """An event costs one look into the store, however many follow. One that is late makes another one."""
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client, ExitStack() as opened:
        id = client.post("/v1/subscriptions", json={"expression": "n exists"}).json()["id"]
        client.post("/v1/events", json={"n": 0}).raise_for_status()
        base = f"/v1/subscriptions/{id}"
        lines = [opened.enter_context(client.stream("GET", f"{base}/stream")).iter_lines() for _ in range(STREAMS)]
        address = url.replace("http", "ws", 1) + f"{base}/ws"
        sockets = [opened.enter_context(connect(address, proxy=None)) for _ in range(STREAMS)]

        def received() -> list[int]:
            texts = [next(line[6:] for line in each if line.startswith("data: ")) for each in lines]
            texts += [str(each.recv(PATIENCE)) for each in sockets]
            return [json.loads(text)["event"]["data"]["n"] for text in texts]

        assert received() == [0] * STREAMS * 2
        for n in range(1, 4):
            budgets.clear()
            client.post("/v1/events", json={"n": n}).raise_for_status()
            assert received() == [n] * STREAMS * 2
            assert 1 <= len(budgets) <= STREAMS // 2  # of 40 readers


def _body(_: Subscriber, match: StoredMatch) -> str:
    return match.body


def test_readers_with_other_roles_do_not_share(tmp_path: Path, budgets: list[int]) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", "n exists"))
            await broker.publish([event(n=1)])
            looks = Looks(broker)

            async def first(start: Start) -> Found:
                async with aclosing(follow(looks, Wakeups(), start, PATIENCE, nullcontext, _body)) as steps:
                    found = await anext(steps)
                assert isinstance(found, Found)
                return found

            async def both(*roles: str) -> list[Found]:
                readers = [Reader(frozenset({each}), lambda: broker.vocabulary) for each in roles]
                starts = await asyncio.gather(*(find_start(looks, "s", "0", each) for each in readers))
                return await asyncio.gather(*map(first, starts))

            same = await both("subscriber", "subscriber")
            assert len(budgets) == 1
            frames = [list(each.frames) for each in same]
            assert frames[0] == frames[1] != []  # each takes its own out
            budgets.clear()
            await both("subscriber", "ontologist")
            assert len(budgets) == 2

    run(scenario)


def test_looks_leave_connections_to_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reader_connections=4) as broker:
            looks, reading, most, go_on = Looks(broker), [0], [0], threading.Event()

            def work(_: Look) -> None:
                reading[0] += 1
                most[0] = max(most[0], reading[0])
                assert go_on.wait(PATIENCE)
                reading[0] -= 1

            many = asyncio.gather(*(looks.look(number, number, work) for number in range(3 * turns.MOST_TOGETHER)))
            await until(lambda: reading[0] == 2)
            async with asyncio.timeout(PATIENCE):
                assert await broker.read(lambda _: "another request") == "another request"
            go_on.set()
            await many
            assert most == [2]

    run(scenario)


def test_a_look_that_began_is_not_shared_and_nobody_looks_for_who_left(tmp_path: Path) -> None:
    """Who comes later was perhaps woken by a commit that the look does not see."""

    async def scenario() -> None:
        async with running(tmp_path, reader_connections=2) as broker:
            looks, seen, go_on = Looks(broker), list[str](), threading.Event()

            def work(name: str) -> Callable[[Look], str]:
                def look(_: Look) -> str:
                    seen.append(name)
                    assert go_on.wait(PATIENCE)
                    return name

                return look

            first = asyncio.create_task(looks.look("same", 1, work("first")))
            await until(lambda: seen == ["first"])
            later = [asyncio.create_task(looks.look("same", 1, work(name))) for name in ("second", "third")]
            gone = asyncio.create_task(looks.look("other", 2, work("gone")))
            await asyncio.sleep(0)
            gone.cancel()
            go_on.set()
            assert await first == "first"
            assert await asyncio.gather(*later) == ["second", "second"]
            assert await looks.look("last", 3, work("last")) == "last"
            assert seen == ["first", "second", "last"]

    run(scenario)


def test_an_error_of_a_look_is_told_to_all_who_share_it(tmp_path: Path) -> None:
    def fail(_: Look) -> None:
        raise LookupError

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            looks = Looks(broker)
            told = await asyncio.gather(*(looks.look("same", 1, fail) for _ in range(3)), return_exceptions=True)
            assert [type(each) for each in told] == [LookupError] * 3

    run(scenario)


def test_questions_that_wait_share_a_look_and_fail_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            looks, seen = Looks(broker), list[Look]()
            fails: dict[int, Exception] = {7: LookupError(), 9: CursorGone(1, 2)}

            def work(number: int) -> Callable[[Look], int]:
                def question(look: Look) -> int:
                    seen.append(look)
                    if number in fails:
                        raise fails[number]
                    return number

                return question

            async def all_asked() -> list[int | BaseException]:
                asked = (looks.look(number, number, work(number)) for number in range(20))
                return await asyncio.gather(*asked, return_exceptions=True)

            assert await all_asked() == [fails.get(number, number) for number in range(20)]
            assert len(set(seen[:8])) == 1
            assert len(set(seen[8:])) == 20  # since a question failed unexpectedly, each is asked alone
            del seen[:], fails[7]
            assert await all_asked() == [fails.get(number, number) for number in range(20)]
            assert len(set(seen)) == 1

    run(scenario)


def test_a_question_that_is_asked_as_the_last_look_ends_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, reader_connections=2) as broker, asyncio.timeout(PATIENCE):
            looks = Looks(broker)
            for number in range(20):
                assert await looks.look(number, number, lambda _, number=number: number) == number
                for _ in range(number % 4):  # the look that has told it ends in one of these steps
                    await asyncio.sleep(0)

    run(scenario)


def test_acknowledgements_that_wait_are_written_together_and_fail_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker, asyncio.timeout(PATIENCE):
            for name in ("a", "b"):
                await broker.create_subscription(new(name, "n exists"))
            await broker.publish([event(n=1), event(n=2), event(n=3)])
            acknowledgements, commits = Acknowledgements(broker), broker.state.commits
            asked = [("a", "2", "ticket"), ("b", "9", "ticket"), ("a", "1", "ticket"), ("b", "1", "wrong")]
            asked += [("b", "3", "ticket"), ("c", "1", "ticket"), ("b", "no", "ticket"), ("b", "2", "")]
            told = await asyncio.gather(
                *(acknowledgements.acknowledge(*each) for each in asked), return_exceptions=True
            )
            assert [each if isinstance(each, int) else type(each) for each in told] == [
                *(2, InvalidCursor, 2, TicketWrong),
                *(3, UnknownSubscription, InvalidCursor, TicketMissing),
            ]
            assert broker.state.commits == commits + 1
            assert (await broker.read(read_totals)).delivered == 5
            assert await acknowledgements.acknowledge("a", "3", "ticket") == 3

    run(scenario)


def test_a_look_ends_when_it_has_read_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FULL_BYTES", 6_000)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            for n in range(5):
                await broker.create_subscription(new(f"s{n}", f"n = {n}"))
                await broker.publish([event(n=n, filling="x" * 1_000)])
            looks, seen = Looks(broker), list[Look]()

            def page(number: int) -> Callable[[Look], str]:
                def question(look: Look) -> str:
                    seen.append(look)
                    return "".join(each.body for each in look.read(number, after=0, limit=9, byte_budget=9_000))

                return question

            told = await asyncio.gather(*(looks.look(number, number, page(number)) for number in range(1, 6)))
            assert [json.loads(each)["data"]["n"] for each in told] == [*range(5)]
            assert [seen.count(each) for each in dict.fromkeys(seen)] == [3, 1, 1]

    run(scenario)


def test_clients_take_turns_one_at_a_time() -> None:
    async def scenario() -> None:
        turns, order, inside = Turns(), list[str](), [0]

        async def work(client: str) -> None:
            async with turns.of(client):
                inside[0] += 1
                assert inside == [1]
                order.append(client)
                await asyncio.sleep(0)
                inside[0] -= 1

        await asyncio.gather(*(work(client) for client in "aaaabbc"))
        assert "".join(order) == "abcabaa"

    asyncio.run(scenario())


def at_once(monkeypatch: pytest.MonkeyPatch, owner: ModuleType | type, name: str, byte_budget: int | None) -> list[int]:
    """The largest number of calls of a function with this byte budget that ran at one time, so far."""
    reading, most, function, another = [0], [0], getattr(owner, name), threading.Event()

    def counted(*arguments: Any, **more: Any) -> Any:
        if more.get("byte_budget") != byte_budget:
            return function(*arguments, **more)
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        if reading[0] > 1:
            another.set()
        another.wait(0.1)  # so that one that need not wait would come
        found = function(*arguments, **more)
        reading[0] -= 1
        return found

    monkeypatch.setattr(owner, name, counted)
    return most


def test_large_pages_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of them takes the memory of one."""
    most = at_once(monkeypatch, Look, "read", MAX_PAGE_BYTES)
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        id = client.post("/v1/subscriptions", json={"expression": "n exists"}).json()["id"]
        for n in range(3):
            event = {"n": n, "filling": "x" * (SMALL_PAGE_BYTES // 2)}
            client.post("/v1/events", json=event).raise_for_status()

        def page(_: int) -> list[int]:
            answer = client.get(f"/v1/subscriptions/{id}/events").raise_for_status().json()
            return [each["event"]["data"]["n"] for each in answer["events"]]

        with ThreadPoolExecutor(8) as readers:
            assert list(readers.map(page, range(8))) == [[0, 1, 2]] * 8
        assert most == [1]


def test_large_messages_of_streams_are_made_one_at_a_time_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event of 15 MB for some hundred followers stopped the event loop for a minute."""
    ways, make, making = list[str](), receiving._sse_event, threading.Lock()

    def made(subscriber: Subscriber, match: StoredMatch, reader: Reader) -> bytes:
        if not making.acquire(blocking=False):
            ways.append("beside another")
            return make(subscriber, match, reader)
        time.sleep(0.05)  # so that another one that need not wait would come
        making.release()
        try:
            asyncio.get_running_loop()
            ways.append("on the event loop")
        except RuntimeError:
            ways.append("alone")
        return make(subscriber, match, reader)

    monkeypatch.setattr(receiving, "_sse_event", made)
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        id = client.post("/v1/subscriptions", json={"expression": "n exists"}).json()["id"]
        for filling in ("x", "x" * receiving.PAGE_BYTES):
            client.post("/v1/events", json={"n": 1, "filling": filling}).raise_for_status()

        def second(_: int) -> int:
            path = f"/v1/subscriptions/{id}/stream?after=0"
            with client.stream("GET", path) as answer:
                data = (each for each in answer.iter_lines() if each.startswith("data: {"))
                next(data)
                return len(next(data))

        with ThreadPoolExecutor(6) as readers:
            assert min(readers.map(second, range(6))) > receiving.PAGE_BYTES
    assert ways == ["alone"] * 12  # the small ones are in the same pages


def test_dead_letters_are_listed_one_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = at_once(monkeypatch, deliveries, "list_dead", deliveries.PAGE_BYTES)
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        with ThreadPoolExecutor(8) as readers:
            answers = list(readers.map(client.get, ["/v1/dead-letters"] * 8))
        assert [each.json()["dead_letters"] for each in answers] == [[]] * 8
        assert most == [1]


def test_events_are_listed_one_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = at_once(monkeypatch, events, "list_events", None)
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        with ThreadPoolExecutor(8) as readers:
            answers = list(readers.map(client.get, ["/v1/events?limit=1000"] * 8))
        assert [each.json()["events"] for each in answers] == [[]] * 8
        assert most == [1]


def test_events_are_traced_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces of large events stopped publishing for seconds."""
    most = at_once(monkeypatch, events, "find_event", None)
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        client.post("/v1/events", json={"n": 1}).raise_for_status()
        with ThreadPoolExecutor(8) as readers:
            answers = list(readers.map(client.get, ["/v1/events/1/trace"] * 8))
        assert [each.json()["event"]["data"] for each in answers] == [{"n": 1}] * 8
        assert most == [1]


def test_no_large_page_is_read_for_a_client_that_left(
    tmp_path: Path, budgets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "SMALL_PAGE_BYTES", small := 100)

    async def asked(broker: Broker, *, left: bool) -> bytes:
        @asynccontextmanager
        async def turn() -> AsyncIterator[None]:
            if left:
                raise ClientDisconnect
            yield

        async with running_delivery(broker, broker.settings, hears_signals=False) as delivery:
            reader = Reader(None, lambda: broker.vocabulary)
            return await pull(delivery, "s", reader, after="0", limit=5, wait=0, turn=turn)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", "n exists"))
            await broker.publish([event(n=1, filling="x" * small)])
            with pytest.raises(ClientDisconnect):
                await asked(broker, left=True)
            assert budgets == [small]
            assert len(json.loads(await asked(broker, left=False))["events"]) == 1
            assert budgets == [small, small, MAX_PAGE_BYTES]

    run(scenario)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.001)
