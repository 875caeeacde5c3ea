"""Two server processes on one PostgreSQL, under load, killed, stopped and paused, and the database broken off: what one
has acknowledged holds at the other.

KINDCAST_SERVERS_ROUNDS sets the number of mishaps (4 by default), KINDCAST_SERVERS the number of servers,
KINDCAST_SERVERS_SEED the choices of a run, KINDCAST_SERVERS_FOLDER where the servers keep their data and logs;
`make campaign servers` takes many.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.postgresql import running_postgresql
from tests.harness.receiver import running_receiver
from tests.harness.server_process import running_server
from tests.harness.several_servers import Event, History, Made, SeveralServers, Span, Stored, violations

ROUNDS = int(os.environ.get("KINDCAST_SERVERS_ROUNDS", "4"))
SERVERS = int(os.environ.get("KINDCAST_SERVERS", "2"))
SEED = int(os.environ.get("KINDCAST_SERVERS_SEED", "1"))


@pytest.mark.slow
def test_what_one_server_acknowledged_holds_at_the_others(tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice under two ids, and nothing is matched by subscriptions or words that the
    order of commits forbids."""
    with ExitStack() as stack:
        receiver = stack.enter_context(running_receiver())
        cluster = stack.enter_context(running_postgresql())
        folder = Path(os.environ.get("KINDCAST_SERVERS_FOLDER") or tmp_path)
        servers = [
            stack.enter_context(running_server(folder / f"server-{number}", start=False)) for number in range(SERVERS)
        ]
        run = SeveralServers(servers, cluster, cluster.new_database(), receiver, SEED)
        run.prepare()
        for _ in range(ROUNDS):
            run.round()
        stored, pulled = run.settle(), run.pulled()
        broken = violations(run.history, stored, pulled, run.arrived())
    run.done["pulled"] = sum(map(len, pulled.values()))
    sys.stdout.write(f"\ndone: {json.dumps(run.done)}\n")
    assert broken == []
    assert run.done["events"] > 20 * ROUNDS
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
