"""The owner of a subscription is told a day before it ends: by a signed message to the sink, and in what readers get.

A real server; its subscriptions are made older, in its database, while it does not run.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook
from websockets.sync.client import connect

from kindcast.server.clock import instant
from tests.harness.application import problem_code, subscribe, ticket
from tests.harness.receiver import Receiver, running_receiver
from tests.harness.server_process import ServerProcess, running_server

DAY = 86_400.0
HOUR = 3_600.0
SETTINGS = {
    "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": "0.2,0.2",
    "KINDCAST_STREAM_PING_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@contextmanager
def server_with(data: Path) -> Iterator[ServerProcess]:
    with running_server(data, SETTINGS) as server:
        yield server


def http(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, trust_env=False, timeout=30)


def make_older(data: Path, ends_in: dict[str, float], made: float = 29 * DAY) -> dict[str, float]:
    """Sets when subscriptions were made and when they end, in seconds from now; returns the ends."""
    now = round(time.time())
    with closing(sqlite3.connect(data / "kindcast.db")) as database, database:
        for id, seconds in ends_in.items():
            values = now - made, now + seconds, id
            database.execute("UPDATE subscriptions SET created_at = ?, expires_at = ? WHERE id = ?", values)
    return {id: now + seconds for id, seconds in ends_in.items()}


def notices(receiver: Receiver, path: str) -> list[dict[str, Any]]:
    told = [json.loads(each.body) for each in receiver.requests(path)]
    return [each for each in told if "cursor" not in each and "kindcastcursor" not in each]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["message", "cloudevents"])
def test_sink_is_told_once_signed_and_without_a_cursor(tmp_path: Path, receiver: Receiver, format: str) -> None:
    """Also not again after a kill; again, by another id, when it was renewed and ends once more."""
    path = f"/{format}"
    with server_with(tmp_path) as server:
        with http(server) as client:
            made = subscribe(client, "n = 1", sink=receiver.url + path, protocolsettings={"format": format})
        server.stop()
        end = make_older(tmp_path, {made["id"]: 20 * HOUR})[made["id"]]
        server.start()
        receiver.wait_until(lambda: len(notices(receiver, path)) == 1, "the notice")
        (request,) = receiver.requests(path)
        Webhook(made["secret"]).verify(request.body, request.headers)
        event = request.message["event"] if format == "message" else request.message
        assert event["type"] == "io.kindcast.subscription.expiring"
        assert event["data"] == {"subscription": made["id"], "expires_at": instant(end)}
        assert request.headers["webhook-id"] == event["id"]
        with http(server) as client:
            shown = client.get(f"/v1/subscriptions/{made['id']}").json()
            assert (shown["times_sent"], shown["cursor"]) == (0, made["cursor"])
            client.post("/v1/events", json={"n": 1}).raise_for_status()
            receiver.wait_until(lambda: len(receiver.requests(path)) == 2, "the match, by the way of all matches")
        time.sleep(1)  # what was told is on disk: the notice was taken before the match was sent
        server.kill()
        server.start()
        time.sleep(2)
        assert len(notices(receiver, path)) == 1
        server.stop()
        with closing(sqlite3.connect(tmp_path / "kindcast.db")) as database, database:
            database.execute("UPDATE expiry_notices SET told_at = told_at - ?", (2 * DAY,))
        make_older(tmp_path, {made["id"]: 3 * HOUR})
        server.start()
        receiver.wait_until(lambda: len(notices(receiver, path)) == 2, "the notice of another end")
        assert len({each.headers["webhook-id"] for each in receiver.requests(path)}) == 3


@pytest.mark.slow
def test_who_does_not_want_it_and_who_need_not_know_is_not_told(tmp_path: Path, receiver: Receiver) -> None:
    """Those that said no, those that live for less than a day, those with more than a day left, paused ones; and one
    that is renewed again and again, only once a day."""
    with server_with(tmp_path) as server:
        with http(server) as client:
            wishes: dict[str, dict[str, Any]] = {
                "told": {},
                "unwanted": {"protocolsettings": {"expiry_notice": False}},
                "brief": {},
                "later": {},
                "paused": {},
            }
            made = {
                name: subscribe(client, "n = 1", sink=f"{receiver.url}/{name}", **more) for name, more in wishes.items()
            }
            client.post(f"/v1/subscriptions/{made['paused']['id']}/pause", headers=ticket(made["paused"]))
            wrong = {"expression": "n = 1", "sink": f"{receiver.url}/x", "protocolsettings": {"expiry_notice": "no"}}
            assert problem_code(client.post("/v1/subscriptions", json=wrong)) == "invalid-request"
        server.stop()
        ends = {"told": 5 * HOUR, "unwanted": 5 * HOUR, "later": 25 * HOUR, "paused": 5 * HOUR}
        make_older(tmp_path, {made[name]["id"]: seconds for name, seconds in ends.items()})
        make_older(tmp_path, {made["brief"]["id"]: HOUR}, made=HOUR)
        server.start()
        receiver.wait_until(lambda: len(notices(receiver, "/told")) == 1, "the notice")
        with http(server) as client:
            headers = ticket(made["told"])
            client.post(f"/v1/subscriptions/{made['told']['id']}/renew", json={"ttl_seconds": HOUR}, headers=headers)
        server.stop()
        server.start()
        time.sleep(2)
        assert len(notices(receiver, "/told")) == 1
        assert [name for name in wishes if receiver.requests(f"/{name}")] == ["told"]


@pytest.mark.slow
def test_refused_notice_comes_again_under_its_id_and_counts_for_nothing(tmp_path: Path, receiver: Receiver) -> None:
    """A sink that refuses is not failing because of it."""
    path = "/refusing"
    receiver.script(path, 500)
    with server_with(tmp_path) as server:
        with http(server) as client:
            made = subscribe(client, "n = 1", sink=receiver.url + path)
        server.stop()
        make_older(tmp_path, {made["id"]: 20 * HOUR})
        server.start()
        receiver.wait_for(path, 1)
        server.stop()
        server.start()
        first, second = receiver.wait_for(path, 2)
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        with http(server) as client:
            shown = client.get(f"/v1/subscriptions/{made['id']}").json()
        assert (shown["status"], shown["times_failed"], shown["last_error"]) == ("active", 0, None)


@pytest.mark.slow
def test_readers_see_the_end_in_what_they_read(tmp_path: Path) -> None:
    """Pull has a field, the stream an event, the WebSocket a frame; none where there is more than a day left."""
    with server_with(tmp_path) as server:
        with http(server) as client:
            made = subscribe(client, "n = 1")
            assert "expiring" not in client.get(f"/v1/subscriptions/{made['id']}/events").json()
        server.stop()
        end = instant(make_older(tmp_path, {made["id"]: 20 * HOUR})[made["id"]])
        server.start()
        with http(server) as client:
            assert client.get(f"/v1/subscriptions/{made['id']}/events").json()["expiring"] == end
            with client.stream("GET", f"/v1/subscriptions/{made['id']}/stream") as stream:
                lines: list[str] = []
                for line in stream.iter_lines():
                    lines.append(line)
                    if lines.count("") >= 4:  # retry, expiring, and two pings: it is told once
                        break
            at = lines.index("event: expiring")
            assert json.loads(lines[at + 1].removeprefix("data: ")) == {"expiring": end}
            assert lines.count("event: expiring") == 1
        with connect(f"ws://127.0.0.1:{server.port}/v1/subscriptions/{made['id']}/ws") as websocket:
            assert json.loads(websocket.recv(timeout=30)) == {"expiring": end}


@pytest.mark.slow
def test_many_dead_sinks_do_not_hold_up_the_others(tmp_path: Path, receiver: Receiver) -> None:
    """More than one look holds, all ending before the good one."""
    with server_with(tmp_path) as server:
        with http(server) as client:
            dead = {"expression": "n = 1", "sink": "http://127.0.0.1:9/"}
            lines = [json.dumps(dead)] * 250 + [json.dumps(dead | {"sink": f"{receiver.url}/good"})]
            told = client.post("/v1/subscriptions/import", content="\n".join(lines)).raise_for_status().json()
        server.stop()
        ids = [each["id"] for each in told["created"]]
        make_older(tmp_path, {id: (5 + number / 1_000) * HOUR for number, id in enumerate(ids)})
        server.start()
        receiver.wait_until(lambda: len(notices(receiver, "/good")) == 1, "the notice")
