"""What the broker promises when things go wrong: a commit that fails, a server that is there twice, a damaged store."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import OperationalError

from kindcast import Matcher
from kindcast.semantic import Event, InvalidEvent
from kindcast.semantic.events import ReadEvent
from kindcast.semantic.matching import MatchTable
from kindcast.server.broker import Broker, publishing
from kindcast.server.broker.broker import SHARE_BYTES
from kindcast.server.broker.publishing import Outcome
from kindcast.server.broker.writer_thread import BrokerThread
from kindcast.server.cloudevents import DecodedEvent
from kindcast.server.errors import StoreInDoubt, StoreInUse, StoreUnavailable, StoreUnreadable, UnknownSubscription
from kindcast.server.settings import Settings
from kindcast.server.store import matches
from kindcast.server.store.database import Database
from kindcast.server.store.events import EventRow, insert_events, list_events
from kindcast.server.store.ledger import read_totals
from kindcast.server.store.tables import posting_pages
from tests.harness.broker import Breaking, event, matched, new, run, running, stored


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return Breaking(monkeypatch)


def test_commit_that_fails_acknowledges_nothing_and_leaves_no_trace(tmp_path: Path, breaking: Breaking) -> None:
    """Everyone in the group is refused; neither store nor matcher knows of it; the next group works."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("old", "n exists"))
            breaking.spare, breaking.times = 1, 1
            begun, gate = threading.Event(), threading.Event()
            first = asyncio.ensure_future(broker.execute(lambda connection: begun.set() or gate.wait()))
            await asyncio.to_thread(begun.wait)  # a group of its own; the others gather behind it
            commands = (
                broker.publish([event(n=1)]),
                broker.create_subscription(new("lost", "n exists")),
                broker.pause("old", "ticket"),
            )
            together = [asyncio.ensure_future(command) for command in commands]
            while broker.waiting < 4:
                await asyncio.sleep(0.01)
            gate.set()
            await first
            outcomes = await asyncio.gather(*together, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
            assert await stored(broker) == []
            assert await matched(broker, n=2) == 1, "old still matches, lost never did"
            assert await stored(broker) == [1]
            with pytest.raises(UnknownSubscription):
                await broker.delete_subscription("lost", "ticket")

    run(body)


def test_commit_that_happened_after_all_stands(tmp_path: Path, breaking: Breaking) -> None:
    """Where the disk has the group though the commit failed, memory keeps it too, and the publisher is told so: it was
    told that nothing was changed, and published an event without an id twice."""

    async def body() -> None:
        told: list[int] = []
        async with running(tmp_path) as broker:
            broker.listeners.append(told.extend)
            await broker.create_subscription(new("old", "n exists"))
            breaking.times, breaking.after = 1, True
            assert await matched(broker, n=1) == 1
            assert told[-1:] == [1], "the match is on disk: whoever waits for it must look"
            assert broker.trouble is None
            (again,) = await broker.publish([event(n=1)])
            assert isinstance(again, Outcome)
            assert (again.duplicate, again.sequence, again.matched) == (True, 1, 1)
            assert await matched(broker, n=2) == 1
            assert await stored(broker) == [1, 2]

    run(body)


def test_commit_is_in_doubt_while_the_store_cannot_be_asked(
    tmp_path: Path, breaking: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its publisher is told that it is unknown whether something was changed, and nobody else is."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.execute(lambda connection: None)  # the sweep of the start is over
            connect = Database.connect

            def failing(database: Database) -> Connection:
                raise OperationalError("connect", {}, Exception("unable to open database file"))

            monkeypatch.setattr(Database, "connect", failing)
            breaking.times, breaking.after = 1, True
            refused = [await asyncio.gather(broker.publish([event(n=n)]), return_exceptions=True) for n in (1, 2)]
            assert [type(error) for (error,) in refused] == [StoreInDoubt, StoreUnavailable]
            assert all("The reason: the database cannot be used" in str(error) for (error,) in refused)
            monkeypatch.setattr(Database, "connect", connect)
            (again,) = await broker.publish([event(n=1)])
            assert isinstance(again, Outcome)
            assert again.duplicate
            assert await stored(broker) == [1]

    run(body)


def test_answers_are_prepared_before_the_commit_and_given_after_it(tmp_path: Path, breaking: Breaking) -> None:
    """What was prepared for a commit that failed is given to nobody; what is given is what was prepared; of a request
    that takes several commands the first part is prepared."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("old", "n exists"))
            prepared: list[publishing.Results] = []
            told: list[bool] = []

            async def publish(*events: DecodedEvent) -> publishing.Results:
                def prepare(results: publishing.Results) -> None:
                    prepared.append(results)
                    told.append(answer.done())

                answer = asyncio.ensure_future(broker.publish(events, prepare=prepare))
                return await answer

            breaking.times = 1
            with pytest.raises(StoreUnavailable):
                await publish(event(n=1))
            assert len(prepared) == 1
            assert await stored(broker) == []
            results = await publish(event(n=2))
            assert results == prepared[1]
            assert told == [False, False]
            results = await publish(*(event(n=number) for number in range(3_000)))
            assert len(results) == 3_000
            assert results[: len(prepared[2])] == prepared[2]
            assert len(prepared) == 3, "only the first part"

    run(body)


def test_store_that_stays_broken_refuses_until_it_is_back(tmp_path: Path, breaking: Breaking) -> None:
    """One failure after another: each is refused, the trouble is shown, and then all is well again."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s"))
            breaking.times = 3
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await broker.publish([event(n=1)])
                assert broker.trouble is not None
            assert await matched(broker, n=1) == 1
            assert broker.trouble is None
            assert await stored(broker) == [1]

    run(body)


def test_store_that_cannot_be_opened_again_refuses_until_it_can(
    tmp_path: Path, breaking: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost commit the store is opened anew; while that fails nothing is taken, and nothing is forgotten."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s"))
            failures = [OperationalError("connect", {}, Exception("unable to open database file")) for _ in range(2)]
            connect = Database.connect

            def failing(database: Database) -> Connection:
                if failures:
                    raise failures.pop()
                return connect(database)

            monkeypatch.setattr(Database, "connect", failing)
            breaking.times = 1
            for number in (1, 2):
                with pytest.raises(StoreUnavailable):
                    await broker.publish([event(n=number)])
            assert not failures
            assert await matched(broker, n=3) == 1
            assert await stored(broker) == [1]

    run(body)


def test_large_requests_of_one_client_wait_for_each_other(tmp_path: Path) -> None:
    """Those of others come in between, and small ones pass. One that leaves while it waits is not published."""

    async def body() -> None:
        async with running(tmp_path) as broker:

            def publish(client: str, size: int, n: int) -> "asyncio.Future[Sequence[Outcome | Exception]]":
                return asyncio.ensure_future(broker.publish([event(n=n)], client=client, size=size))

            begun, gate = threading.Event(), threading.Event()
            first = asyncio.ensure_future(broker.execute(lambda connection: begun.set() or gate.wait()))
            await asyncio.to_thread(begun.wait)
            large = [publish("a", SHARE_BYTES, n) for n in range(4)]
            small = [publish("a", 10, 10), publish("b", SHARE_BYTES, 11), *(publish("b", 5_000, n) for n in (12, 13))]
            while broker.waiting < 9:
                await asyncio.sleep(0.01)
            large[2].cancel()
            gate.set()
            await first
            await asyncio.gather(*small, *large, return_exceptions=True)
            assert large[2].cancelled()
            rows = await broker.read(lambda connection: list_events(connection, after=0, type=None, limit=10))
            assert [msgspec.json.decode(row.body)["data"]["n"] for row in rows] == [0, 10, 11, 1, 12, 13, 3]

    run(body)


def test_listener_that_fails_harms_nobody(tmp_path: Path) -> None:
    """What is called after a commit cannot undo it, nor keep others from being told."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            told: list[int] = []

            def broken(numbers: object) -> None:
                raise LookupError("listener")

            broker.listeners += [broken, told.extend]
            await broker.create_subscription(new("s"))
            assert await matched(broker, n=1) == 1
            assert told == [1]

    run(body)


def test_disk_that_is_full_refuses_whole_groups(tmp_path: Path) -> None:
    """SQLite's own "disk is full": refused, nothing half-written, and accepted again when there is room."""

    async def body() -> None:
        async with running(tmp_path) as broker:

            def fill(connection: Connection) -> None:
                pages = connection.execute(text("PRAGMA page_count")).scalar_one()
                connection.execute(text(f"PRAGMA max_page_count={pages}"))

            await broker.create_subscription(new("s", "n exists"))
            await broker.execute(fill)
            many = [event(n=number, text="x" * 1_000) for number in range(100)]
            with pytest.raises(StoreUnavailable):
                await broker.publish(many)
            assert await stored(broker) == []
            # The limit belonged to a connection; if it was given up with the group, there is room again.
            await broker.execute(lambda connection: connection.execute(text("PRAGMA max_page_count=1000000")).close())
            outcomes = await broker.publish(many)
            assert [outcome.sequence for outcome in outcomes if isinstance(outcome, Outcome)] == list(range(1, 101))
            totals = await broker.read(read_totals)
            assert (totals.accepted, totals.matches, totals.pending) == (100, 100, 100)

    run(body)


def test_execute_what_fails_is_undone_alone(tmp_path: Path) -> None:
    """Work of the delivery that raises leaves nothing, and gets its own exception back."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            told: list[int] = []
            broker.listeners.append(told.extend)
            await broker.create_subscription(new("s"))
            told.clear()

            def work(connection: Connection) -> None:
                connection.execute(text("UPDATE subscriptions SET times_sent = 7"))
                raise LookupError("half-way")

            results = await asyncio.gather(broker.execute(work), broker.publish([event(n=1)]), return_exceptions=True)
            assert isinstance(results[0], LookupError)
            sent = await broker.read(
                lambda connection: connection.execute(text("SELECT times_sent FROM subscriptions")).scalar_one()
            )
            assert sent == 0
            assert await broker.execute(lambda connection: 5, lambda result: {result, 9}) == 5
            assert set(told) == {1, 5, 9}

    run(body)


def test_read_connection_cannot_write(tmp_path: Path) -> None:
    """The one writer is the broker's thread."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            with pytest.raises(OperationalError, match="readonly"):
                await broker.read(lambda connection: connection.execute(text("DELETE FROM events")))

    run(body)


def test_events_of_many_requests_are_committed_together(tmp_path: Path) -> None:
    """While one commit is on its way others gather: far fewer commits than requests, one sequence each."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await asyncio.gather(*(broker.publish([event(n=number)]) for number in range(200)))
            assert await stored(broker) == list(range(1, 101))
            commits = await broker.read(
                lambda connection: connection.execute(text("SELECT commits FROM ledger")).scalar_one()
            )
            assert commits < 100

    run(body)


def test_requests_of_one_turn_of_the_event_loop_reach_the_writer_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer does not wake for the first of them. Those that were made when the broker stops are carried out."""
    together: list[int] = []
    hand_over = BrokerThread._hand_over

    def counted(thread: BrokerThread) -> None:
        if found := sum(each.publication is not None for each in thread._arrived):
            together.append(found)
        hand_over(thread)

    monkeypatch.setattr(BrokerThread, "_hand_over", counted)

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.publish([event(n=0)])
            for start in range(1, 601, 30):
                await asyncio.gather(*(broker.publish([event(n=number)]) for number in range(start, start + 30)))
            assert together == [1] + [30] * 20
            late = [asyncio.ensure_future(broker.publish([event(n=number)])) for number in range(5)]
            await asyncio.sleep(0)
        assert all(isinstance(each, Outcome) for results in await asyncio.gather(*late) for each in results)

    run(body)


@pytest.mark.parametrize("broken", [False, True])
def test_requests_that_come_together_answer_each_for_its_own(
    broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are published as one: an event that two of them hold is accepted once, and one that cannot be read is
    refused alone. If that fails, each is tried by itself, and only the one that fails alone is refused."""
    sizes: list[int] = []

    def insert(connection: Connection, rows: Sequence[EventRow]) -> None:
        sizes.append(len(rows))
        if broken and any(row.body.endswith('{"n":3}}') for row in rows):
            raise OperationalError("INSERT", {}, Exception("this row is refused"))
        insert_events(connection, rows)

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("all", "n exists"))
            monkeypatch.setattr(publishing, "insert_events", insert)
            begun, gate = threading.Event(), threading.Event()
            first = asyncio.ensure_future(broker.execute(lambda connection: begun.set() or gate.wait()))
            await asyncio.to_thread(begun.wait)  # a group of its own; the others gather behind it
            other = replace(event(n=1), digest="another")
            unreadable = replace(event(n=5), event=Event({"": {"@type": 1}, "n": [[0] * 100_000]}))
            batches = [[event(n=1), event(n=2)], [other], [event(n=3)], [unreadable], [event(n=4)]]
            together = [asyncio.ensure_future(broker.publish(each)) for each in batches]
            while broker.waiting < 7:
                await asyncio.sleep(0.01)
            gate.set()
            await first
            told = await asyncio.gather(*together, return_exceptions=True)
            assert not isinstance(told[1], BaseException)
            (again,) = told[1]
            assert isinstance(again, Outcome)
            assert (again.duplicate, again.sequence, [note.code for note in again.notes]) == (True, 1, ["differs"])
            assert isinstance(told[2], StoreUnavailable) is broken
            assert not isinstance(told[3], BaseException)
            assert isinstance(told[3][0], InvalidEvent)
            kept = [1, 2, 3] if broken else [1, 2, 3, 4]
            assert await stored(broker) == kept
            rows = await broker.read(lambda connection: list_events(connection, after=0, type=None, limit=100))
            assert [row.matched for row in rows] == [1] * len(kept)
            assert sizes[0] == 4, "all of them went in together"

    run(body)


def test_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    """Two writers would break every promise; the lock ends with its process, so a crash leaves none behind."""

    async def body() -> None:
        async with running(tmp_path):
            with pytest.raises(StoreInUse, match="another server"):
                await Broker(Settings(data=tmp_path)).start()
        async with running(tmp_path):
            pass

    run(body)


def test_store_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """The database and its companions hold webhook secrets."""

    async def body() -> None:
        async with running(tmp_path / "data") as broker:
            await broker.publish([event(n=1)])
            files = list((tmp_path / "data").iterdir())
            assert {file.name for file in files} >= {"kindcast.db", "kindcast.db-wal"}
            assert [file.name for file in files if file.stat().st_mode & 0o077] == []

    run(body)


def test_store_of_another_layout_is_refused(tmp_path: Path) -> None:
    """A server does not guess what another version meant."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.execute(
                lambda connection: connection.execute(text("UPDATE ledger SET layout = 99, readable_from = 99")).close()
            )
        with pytest.raises(StoreUnreadable, match="99"):
            await Broker(Settings(data=tmp_path)).start()

    run(body)


def test_store_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Damage is told at the start, never served around."""
    (tmp_path / "kindcast.db").write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StoreUnreadable, match="cannot be opened"):
        asyncio.run(Broker(Settings(data=tmp_path)).start())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y"])
def test_database_that_could_not_keep_the_promise_is_refused(tmp_path: Path, url: str) -> None:
    """Memory keeps nothing, and other databases were never tried."""
    with pytest.raises(StoreUnreadable):
        Broker(Settings(data=tmp_path, database=url))


def test_stop_finishes_what_is_queued(tmp_path: Path) -> None:
    """Whoever was let in gets an answer; whoever comes later is refused."""

    async def body() -> None:
        broker = Broker(Settings(data=tmp_path))
        await broker.start()
        pending = [asyncio.ensure_future(broker.publish([event(n=number)])) for number in range(50)]
        await asyncio.sleep(0)
        await broker.stop()
        results = await asyncio.gather(*pending)
        assert [result[0].sequence for result in results if isinstance(result[0], Outcome)] == list(range(1, 51))
        with pytest.raises(StoreUnavailable):
            await broker.publish([event(n=0)])

    run(body)


def test_matches_are_folded_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are made and merged beside the events, also after a restart; who reads and acknowledges sees the same."""
    monkeypatch.setattr(matches, "FOLD_POSITIONS", 4)
    monkeypatch.setattr(matches, "BLOCK_POSITIONS", 4)
    monkeypatch.setattr(matches, "BLOCKS_MERGED", 2)

    def levels(connection: Connection) -> set[int]:
        return set(connection.execute(select(posting_pages.c.level)).scalars())

    def positions(connection: Connection) -> list[int]:
        return matches.find_positions(connection, 1, after=0, limit=100)

    async def body() -> None:
        for start in (0, 20):
            async with running(tmp_path) as broker:
                if not start:
                    await broker.create_subscription(new("all"))
                for number in range(start, start + 20):
                    await broker.publish([event(n=number)])
                deadline = time.monotonic() + 30
                while max(await broker.read(levels), default=0) < 2:
                    assert time.monotonic() < deadline, "nothing was merged twice"
                    await asyncio.sleep(0.02)
                assert await broker.read(positions) == list(range(1, start + 21))
                totals = await broker.read(read_totals)
                assert (totals.matches, totals.pending) == (start + 20, start + 20)

    run(body)


def test_events_that_match_very_many_are_published_in_several_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in between; each event gets its own result, in order, duplicates too."""
    monkeypatch.setattr(publishing, "MATCHES_TRIED", 6)
    monkeypatch.setattr(publishing.publish, "__kwdefaults__", {"at_most": 5, "ahead": None})

    async def body() -> None:
        async with running(tmp_path) as broker:
            for number in range(3):
                await broker.create_subscription(new(f"s{number}", "n >= 0"))
            before = broker.state.commits
            commits: list[int] = []
            broker.listeners.append(lambda numbers: commits.append(len(numbers)))
            events = [event(n=number) for number in range(10)]
            outcomes = await broker.publish([*events, events[0], event(n=-1)])
            assert [each.matched for each in outcomes if isinstance(each, Outcome)] == [3] * 11 + [0]
            assert [each.sequence for each in outcomes if isinstance(each, Outcome)] == [*range(1, 11), 1, 11]
            assert broker.state.commits - before == 6, (
                "two events a command, and the last one for those without matches"
            )
            assert commits == [3] * 5
            totals = await broker.read(read_totals)
            assert (totals.accepted, totals.matches, totals.pending, totals.duplicates) == (11, 30, 30, 1)
            together = await broker.publish_together([event(n=number) for number in range(20, 25)])
            assert len(together) == 5

    run(body)


def test_a_request_of_large_events_is_read_in_several_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served in between, also those in the same command; each event gets its own result, in order."""
    monkeypatch.setattr(publishing, "READING_SECONDS", 1e-9)

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("all", "n >= 0"))
            before = broker.state.commits
            events = [event(n=number) for number in range(5)]
            large = asyncio.create_task(broker.publish([*events, events[0]]))
            single = asyncio.create_task(broker.publish([event(n=9)]))
            outcomes = [each for each in await large if isinstance(each, Outcome)]
            assert [(each.matched, each.duplicate) for each in outcomes] == [(1, False)] * 5 + [(1, True)]
            assert outcomes[5].sequence == outcomes[0].sequence
            assert [each.sequence for each in outcomes[:5]] == sorted(each.sequence for each in outcomes[:5])
            (alone,) = await single
            assert isinstance(alone, Outcome)
            assert alone.sequence == 2, "it was not behind all of the large request"
            assert broker.state.commits - before >= 5
            together = await broker.publish_together([event(n=number) for number in range(20, 25)])
            assert len(together) == 5

    run(body)


def test_events_of_one_document_that_match_very_many_are_matched_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one command: nobody sees a part of them, and where one cannot be read none is accepted."""
    monkeypatch.setattr(publishing, "MATCHES_TRIED", 6)
    monkeypatch.setattr("kindcast.server.broker.group.MATCHES_KEPT", 4)
    match_read, sizes = Matcher.match_read, list[int]()

    def seen(matcher: Matcher, read: Sequence[ReadEvent]) -> MatchTable:
        sizes.append(len(read))
        return match_read(matcher, read)

    monkeypatch.setattr(Matcher, "match_read", seen)

    async def body() -> None:
        async with running(tmp_path) as broker:
            for number in range(3):
                await broker.create_subscription(new(f"s{number}", "n >= 0"))
            told: list[set[int]] = []
            broker.listeners.append(lambda numbers: told.append(set(numbers)))
            before = broker.state.commits
            events = [event(n=number) for number in range(7)]
            outcomes = await broker.publish_together([*events, events[0]])
            assert [(each.sequence, each.matched) for each in outcomes] == [(n, 3) for n in (*range(1, 8), 1)]
            assert [each.duplicate for each in outcomes] == [False] * 7 + [True]
            assert max(sizes) == 2
            assert broker.state.commits - before == 1
            assert told == [{1, 2, 3}]
            with pytest.raises(InvalidEvent, match="event 5"):
                await broker.publish_together([*(event(n=number) for number in range(10, 15)), event(ce=1)])
            assert await stored(broker) == list(range(1, 8))
            totals = await broker.read(read_totals)
            assert (totals.accepted, totals.matches, totals.pending) == (7, 21, 21)

    run(body)
