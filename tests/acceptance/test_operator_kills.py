"""Killed while operators decide: nothing that was accepted is lost, and nothing comes twice.

A real server and a real operator service. Events are published, the service is killed and started again, the server is
killed with SIGKILL in every phase (accepted, parked, asked, decided, delivered); in the end every event has exactly one
match for each subscription that it is for, and exactly one webhook-id.
"""

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.operator_service import running_service
from tests.harness.receiver import Answer, running_receiver
from tests.harness.server_process import ServerProcess, running_server

PATIENCE_SECONDS = 60.0
ROUNDS = 2
"""In the first the service dies as well while events come, in the second together with the server."""
ENVIRONMENT = {
    "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
    "KINDCAST_PLUGINS": "false",
    "KINDCAST_OPERATOR_DELAYS_SECONDS": str([0.2] * 1_000),
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": str([0.2] * 100),
}


def until(holds: Callable[[], bool], wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not in time: {wanted}")


@contextmanager
def calling(server: ServerProcess) -> Iterator["Caller"]:
    with httpx.Client(
        base_url=server.url, trust_env=False, timeout=30.0, transport=httpx.HTTPTransport(retries=3)
    ) as c:
        yield Caller(c)


class Caller:
    """Talks to a server that may be killed between two calls."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def publish(self, number: int, kind: str) -> None:
        self.post("/v1/events", {"n": number, "kind": kind}, **{"ce-id": str(number), "ce-source": "s"})

    def post(self, path: str, body: Any, **headers: str) -> Any:
        answer = self._client.post(path, json=body, headers={"Connection": "close", **headers})
        answer.raise_for_status()
        return answer.json()

    def put(self, path: str, body: Any) -> Any:
        answer = self._client.put(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self._client.get(path, headers={"Connection": "close"})
        answer.raise_for_status()
        return answer.json()

    def metric(self, name: str) -> float:
        for line in self._client.get("/metrics", headers={"Connection": "close"}).text.splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no metric {name}")


def messages(caller: Caller, id: str) -> list[dict[str, Any]]:
    page: list[dict[str, Any]] = caller.get(f"/v1/subscriptions/{id}/events?limit=10000")["events"]
    return page


@pytest.mark.slow
def test_operators_killed_servers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Server and service die again and again while candidates are parked, asked, decided and delivered."""
    chance = random.Random(7)
    with (
        running_service() as service,
        running_receiver() as receiver,
        running_server(tmp_path, ENVIRONMENT) as server,
        calling(server) as caller,
    ):
        for name in ("yes", "slow", "bindings"):
            caller.put(f"/v1/operators/{name}", {"url": f"{service.url}/{name}", "timeout_seconds": 2.0})
        pulled = caller.post("/v1/subscriptions", {"expression": 'kind = "a" and slow()'})["id"]
        pushed = caller.post("/v1/subscriptions", {"expression": "yes()", "sink": receiver.url + "/hook"})["id"]
        bound = caller.post("/v1/subscriptions", {"expression": 'kind = "b" or bindings(?x)'})["id"]
        cheap = caller.post("/v1/subscriptions", {"expression": 'kind in ("a", "b")'})["id"]
        promised: dict[int, str] = {}
        number = 0
        for round_number in range(ROUNDS):
            deadline = time.monotonic() + chance.uniform(0.1, 1.0)
            while time.monotonic() < deadline:
                batch = {number + each: chance.choice("ab") for each in range(3)}
                number += 3
                for each, kind in batch.items():
                    caller.publish(each, kind)
                    promised[each] = kind
                if round_number == 0 and chance.random() < 0.3:
                    service.kill()
                    service.start()
            server.kill()
            if round_number == 1:
                service.kill()
            server.start()
            if round_number == 1:
                time.sleep(0.5)
                service.start()
        until(lambda: caller.metric("kindcast_parked_waiting") == 0, "everything decided")
        until(lambda: len({each.headers["webhook-id"] for each in receiver.requests("/hook")}) == len(promised), "sent")
        by_id = {
            id: Counter(each["event"]["data"]["n"] for each in messages(caller, id)) for id in (pulled, bound, cheap)
        }
        assert by_id[cheap] == Counter(promised.keys())
        assert by_id[pulled] == Counter(each for each, kind in promised.items() if kind == "a")
        assert by_id[bound] == Counter(each for each, kind in promised.items() if kind == "b")
        arrived = {
            each.headers["webhook-id"]: each.message["event"]["data"]["n"] for each in receiver.requests("/hook")
        }
        assert sorted(arrived.values()) == sorted(promised)
        positions = [int(each["cursor"]) for each in messages(caller, pulled)]
        assert positions == sorted(set(positions))
        assert caller.get(f"/v1/subscriptions/{pushed}")["undecided"] == 0
        parked = caller.metric("kindcast_parked_total")
        decided = [f'kindcast_parked_decided_total{{result="{each}"}}' for each in ("matched", "unmatched")]
        assert parked == sum(map(caller.metric, decided))
        late = by_id[pulled].total() + by_id[bound].total()
        assert caller.metric("kindcast_matches_total") == 2 * len(promised) + late


YES = Answer(200, body=b'{"holds": true}')


@contextmanager
def nobody_writes(data: Path) -> Iterator[sqlite3.Connection]:
    """Another process holds the database: what the server would write waits, what it reads it may."""
    connection = sqlite3.connect(data / "kindcast.db", isolation_level=None, timeout=30.0)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.slow
def test_parking_killed_at_each_of_its_steps_delivers_each_event_once(tmp_path: Path) -> None:
    """Killed before a candidate is parked; after that, whether its publisher was told or not; while the operator is
    asked; when it has answered, before the match is written; when that is written, before it is delivered."""
    with (
        running_receiver() as service,
        running_receiver() as hooks,
        running_server(tmp_path, ENVIRONMENT | {"KINDCAST_BUSY_TIMEOUT_SECONDS": "60"}) as server,
        calling(server) as caller,
    ):
        service.script("/yes", *[YES] * 100)
        service.script("/held", *[YES] * 100)
        for path in ("/asked", "/held"):
            service.swallow(path)
        hooks.swallow("/hook")

        def answers_at(path: str) -> None:
            caller.put("/v1/operators/p", {"url": service.url + path, "timeout_seconds": 30.0})

        def arrived(count: int) -> None:
            until(lambda: len(messages(caller, pulled)) == count, f"{count} messages")
            assert [each["event"]["data"]["n"] for each in messages(caller, pulled)] == list(range(1, count + 1))
            assert caller.metric("kindcast_parked_waiting") == 0

        answers_at("/yes")
        pulled = caller.post("/v1/subscriptions", {"expression": "p()"})["id"]

        with nobody_writes(tmp_path) as database, background(lambda: caller.publish(1, "not parked yet")):
            time.sleep(0.3)
            server.kill()
            assert database.execute("SELECT count(*) FROM events").fetchone() == (0,)
        server.start()
        caller.publish(1, "not parked yet")  # it was not accepted, as its publisher can tell
        arrived(1)

        answers_at("/asked")
        with background(lambda: caller.publish(2, "parked, and perhaps told so")):
            service.wait_for("/asked", 1)
            server.kill()
        server.start()
        service.wait_for("/asked", 2)
        answers_at("/yes")
        server.kill()  # while the one before is still asked
        server.start()
        caller.publish(2, "parked, and perhaps told so")
        arrived(2)

        answers_at("/held")
        caller.publish(3, "answered, not written")
        service.wait_for("/held", 1)
        with nobody_writes(tmp_path) as database:
            service.release()
            until(lambda: caller.get("/v1/operators/p")["running"] == 0, "the answer has come")
            time.sleep(0.3)
            server.kill()
            assert database.execute("SELECT tries FROM parked").fetchall() == [(0,)]
        server.start()
        arrived(3)

        pushed = caller.post("/v1/subscriptions", {"expression": "p()", "sink": hooks.url + "/hook"})["id"]
        caller.publish(4, "written, not delivered")
        hooks.wait_for("/hook", 1)
        server.kill()
        hooks.release()
        server.start()
        hooks.wait_until(lambda: any(each.status == 200 for each in hooks.requests("/hook")), "the webhook")
        assert len({each.headers["webhook-id"] for each in hooks.requests("/hook")}) == 1
        arrived(4)
        assert caller.get(f"/v1/subscriptions/{pushed}")["undecided"] == 0


@contextmanager
def background(work: Callable[[], None]) -> Iterator[None]:
    """`work` beside the block, which may kill the server that it talks to."""

    def run() -> None:
        with suppress(httpx.HTTPError):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.slow
def test_operator_that_hangs_does_not_delay_another_subscription(tmp_path: Path) -> None:
    """Hundreds of events hang on a service that never answers; their other subscribers have them all meanwhile."""
    environment = ENVIRONMENT | {"KINDCAST_OPERATOR_DELAYS_SECONDS": "[600.0]"}
    with running_service() as service, running_server(tmp_path, environment) as server, calling(server) as caller:
        caller.put("/v1/operators/hang", {"url": f"{service.url}/hang", "timeout_seconds": 50.0, "concurrency": 4})
        caller.put("/v1/operators/yes", {"url": f"{service.url}/yes"})
        hangs = caller.post("/v1/subscriptions", {"expression": "hang()"})["id"]
        quick = caller.post("/v1/subscriptions", {"expression": "yes()"})["id"]
        cheap = caller.post("/v1/subscriptions", {"expression": ""})["id"]
        events = [
            {"specversion": "1.0", "id": str(n), "source": "s", "type": "t", "data": {"n": n}} for n in range(150)
        ]
        caller.post("/v1/events", events, **{"Content-Type": "application/cloudevents-batch+json"})
        assert len(messages(caller, cheap)) == 150
        until(lambda: len(messages(caller, quick)) == 150, "all of the other operator's")
        assert service.asked().get("/hang", 0) <= 8  # they hang, or have just been given to other calls
        assert messages(caller, hangs) == []
        assert caller.get(f"/v1/subscriptions/{hangs}")["waiting_for_operators"] == 150
        server.stop()  # in order, although calls hang
        server.start()
        assert caller.get(f"/v1/subscriptions/{hangs}")["waiting_for_operators"] == 150


def _gave_up(caller: Caller, id: str) -> bool:
    undecided: int = caller.get(f"/v1/subscriptions/{id}")["undecided"]
    return undecided == 1


PLUGIN = """
import os, time
from kindcast import operator

@operator("sleeps", timeout=0.5)
def sleeps(event):
    with open(os.path.join(os.path.dirname(__file__), "log"), "a") as log:
        log.write(f"{os.getpid()}\\\\n")
    time.sleep(600)

@operator("crashes")
def crashes(event):
    os._exit(3)

@operator("longer")
def longer(event, length: int):
    return any(len(each) > length for each in event["name"])

def everything():
    return [sleeps, crashes, longer]
"""


@pytest.mark.slow
def test_plugin_that_hangs_or_crashes_is_killed_and_harms_nobody(tmp_path: Path) -> None:
    """A package with operators: one works, one hangs and its process is really gone afterwards, one dies."""
    site = tmp_path / "site"
    info = site / "probing-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "probing.py").write_text(PLUGIN.replace("\\\\n", "\\n"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kindcast.operators]\nall = probing:everything\n")
    environment = ENVIRONMENT | {
        "KINDCAST_PLUGINS": "true",
        "KINDCAST_OPERATOR_DELAYS_SECONDS": "[0.1]",
        "PYTHONPATH": str(site),
    }
    with running_server(tmp_path / "data", environment) as server, calling(server) as caller:
        kinds = {each["name"]: each["kind"] for each in caller.get("/v1/operators")["operators"]}
        assert {kinds[name] for name in ("sleeps", "crashes", "longer")} == {"plugin"}
        made = {
            name: caller.post("/v1/subscriptions", {"expression": expression})["id"]
            for name, expression in (("longer", "longer(3)"), ("sleeps", "sleeps()"), ("crashes", "crashes()"))
        }
        caller.post("/v1/events", {"name": "kindcast"})
        until(lambda: len(messages(caller, made["longer"])) == 1, "the one that works")
        for name in ("sleeps", "crashes"):
            until(partial(_gave_up, caller, made[name]), name)
        pids = {int(line) for line in (site / "log").read_text().split()}
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "its processes are gone")
