"""Two server processes on one PostgreSQL, under load, killed, stopped and paused, and the database broken off: what one
has acknowledged holds at the other.

KINDCAST_SERVERS_ROUNDS sets the number of mishaps (by default 2, with shards or in a tenant 1), KINDCAST_SERVERS the
number of servers, KINDCAST_SERVERS_LATER how many of them are of a later version that has one more layout of the
tables, KINDCAST_SERVERS_SEED the choices of a run, KINDCAST_SERVERS_FOLDER where the servers keep their data and logs;
`make campaign servers` takes many.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text

from tests.harness.postgresql import driver_url, running_postgresql
from tests.harness.receiver import running_receiver
from tests.harness.server_process import PRODUCT, running_server
from tests.harness.several_servers import Event, History, Made, SeveralServers, Span, Stored, violations

NEXT = "tests.harness.next_version"
ROUNDS = os.environ.get("KINDCAST_SERVERS_ROUNDS")
SERVERS = int(os.environ.get("KINDCAST_SERVERS", "2"))
LATER = int(os.environ.get("KINDCAST_SERVERS_LATER", "0"))
SEED = int(os.environ.get("KINDCAST_SERVERS_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "tenant", "rounds"),
    [(None, None, 2), (4, None, 1), (None, "shop", 1)],
    ids=["None-None", "4-None", "None-shop"],  # as the campaign names them
)
def test_what_one_server_acknowledged_holds_at_the_others(
    tmp_path: Path, shards: int | None, tenant: str | None, rounds: int
) -> None:
    """Nothing is lost, nothing comes twice under two ids, and nothing is matched by subscriptions or words that the
    order of commits forbids; also where the subscriptions are matched in shards, which move between the servers, and in
    a tenant, which the servers open when it is used and when another one that had it open is gone."""
    with ExitStack() as stack:
        receiver = stack.enter_context(running_receiver())
        cluster = stack.enter_context(running_postgresql())
        folder = Path(os.environ.get("KINDCAST_SERVERS_FOLDER") or tmp_path)
        servers = [
            stack.enter_context(running_server(folder / f"server-{number}", start=False, module=module))
            for number, module in enumerate([PRODUCT] * (SERVERS - LATER) + [NEXT] * LATER)
        ]
        run = SeveralServers(servers, cluster, cluster.new_database(), receiver, SEED, shards, tenant)
        run.prepare()
        rounds = int(ROUNDS or rounds)
        for _ in range(rounds):
            run.round()
        stored, pulled = run.settle(), run.pulled()
        broken = violations(run.history, stored, pulled, run.arrived())
    run.done["pulled"] = sum(map(len, pulled.values()))
    sys.stdout.write(f"\ndone: {json.dumps(run.done)}\n")
    assert broken == []
    assert run.done["events"] > 20 * rounds
    assert run.done["pulled"] > 0


@pytest.fixture
def history() -> tuple[History, Stored, dict[str, list[tuple[int, str]]], dict[str, list[tuple[str, int, str]]]]:
    """A run in which nothing went wrong: a subscription, then two events, under the first version."""
    events = {
        "1": Event("1", {"target": "laptop", "lot": 0}, began=3.0, ended=4.0, sequence=1),
        "2": Event("2", {"target": "slate", "lot": 0}, began=5.0, ended=6.0, sequence=2),
    }
    made = {"a": Made("a", "", 0, "/a", Span(1.0, 2.0))}
    history = History(events, made, [(1, Span(0.0, 0.5))], {1: "v1", 2: "v2"})
    stored = Stored({"1": [(1, "v1")], "2": [(2, "v1")]}, {"a": 0}, (2, 2))
    return history, stored, {"a": [(1, "1")]}, {"/a": [("w1", 1, "1")]}


def test_the_checker_finds_nothing_where_nothing_is_wrong(
    history: tuple[History, Stored, dict[str, list[tuple[int, str]]], dict[str, list[tuple[str, int, str]]]],
) -> None:
    assert violations(*history) == []


def test_the_checker_finds_what_is_wrong(
    history: tuple[History, Stored, dict[str, list[tuple[int, str]]], dict[str, list[tuple[str, int, str]]]],
) -> None:
    """Each fault, put into a run that was right, is seen."""
    told, stored, pulled, arrived = history
    whole = dict(stored.events)

    def with_events(**events: list[tuple[int, str]]) -> Stored:
        return Stored({**whole, **events}, stored.created, stored.last)

    wrong: list[tuple[Stored, dict[str, list[tuple[int, str]]], dict[str, list[tuple[str, int, str]]]]] = [
        (stored, {"a": []}, arrived),  # lost
        (stored, {"a": [(1, "1"), (2, "2")]}, arrived),  # wrong: a slate is no computer under this version
        (stored, pulled, {}),  # never delivered
        (stored, pulled, {"/a": [("w1", 1, "1"), ("w2", 1, "1")]}),  # under two ids
        (with_events(**{"2": [(2, "v2")]}), pulled, arrived),  # under words that were not in force
        (with_events(**{"2": []}), pulled, arrived),  # accepted and not there
        (with_events(**{"1": [(2, "v1")], "2": [(1, "v1")]}), pulled, arrived),  # out of order
        (Stored(whole, {"a": 1}, stored.last), pulled, arrived),  # the subscription stands after what came later
        (Stored(whole, {}, stored.last), pulled, arrived),  # the subscription is gone
        (Stored(whole, stored.created, (3, 2)), pulled, arrived),  # a gap
    ]
    for each in wrong:
        assert violations(told, *each), each


@pytest.mark.slow
def test_a_server_that_slept_beyond_its_lease_writes_no_progress_and_sends_nothing_more(tmp_path: Path) -> None:
    """It is stopped while its attempt is under way; another server takes the lease and is answered 500 again and again.
    The first one goes on, and finds that its attempt was answered 200: that counts for nothing any more, and the next
    message is not sent before the server that delivers now has delivered this one."""
    with running_receiver() as receiver, running_postgresql() as cluster, ExitStack() as stack:
        url, database = receiver.swallow("/a"), cluster.new_database()
        settings = {
            "KINDCAST_DATABASE": database,
            "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
            "KINDCAST_LEASE_SECONDS": "1",
            "KINDCAST_WEBHOOK_TIMEOUT_SECONDS": "120",
            "KINDCAST_WEBHOOK_DELAYS_SECONDS": str([0.1] * 1_000),
        }
        sleeper, other = (
            stack.enter_context(running_server(tmp_path / name, start=False)) for name in ("sleeper", "other")
        )
        sleeper.start(**settings)
        made = httpx.post(f"{sleeper.url}/v1/subscriptions", json={"expression": "n >= 0", "sink": url}).json()
        for n in range(3):
            assert httpx.post(f"{sleeper.url}/v1/events", json={"n": n}).status_code == 202
        receiver.wait_for("/a", 1)
        other.start(**settings)
        receiver.script("/a", *[500] * 10_000)  # from the second attempt on; that of the first one is answered 200
        sleeper.pause()
        receiver.wait_for("/a", 2)
        receiver.release()
        receiver.wait_for("/a", 4)
        engine = create_engine(driver_url(database))

        def kept() -> tuple[int, str, str]:
            with engine.connect() as connection:
                row = connection.execute(
                    text("SELECT acked, status, server FROM subscriptions JOIN leases ON number = subscription")
                ).one()
                return row.acked, row.status, row.server

        before = kept()
        assert before[:2] == (0, "failing")
        sleeper.go_on()
        deadline = time.monotonic() + 20.0
        while httpx.get(f"{sleeper.url}/readyz", timeout=20.0).status_code != 200:
            assert time.monotonic() < deadline
        receiver.wait_for("/a", len(receiver.requests("/a")) + 20)  # for some seconds
        assert {int(each.message["cursor"]) for each in receiver.requests("/a")} == {1}
        assert kept() == before
        receiver.recover("/a")
        receiver.wait_until(lambda: receiver.last_cursor("/a") == 3, "the rest arrives")
        assert [int(each.message["cursor"]) for each in receiver.requests("/a") if each.status == 200] == [1, 2, 3]
        shown = f"{other.url}/v1/subscriptions/{made['id']}"
        while httpx.get(shown).json()["pending"]:
            assert time.monotonic() < deadline + 20.0
            time.sleep(0.05)
        assert kept()[2] == before[2]
        engine.dispose()
