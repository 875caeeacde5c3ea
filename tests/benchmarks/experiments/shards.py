"""What an event takes by the number of shards: in each of them, which reads it again and matches it against its part;
and in a server that has them all, from the request to the stored matches."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec

from kindcast import Matcher
from kindcast.index.compilation import warm_up
from kindcast.semantic.events import EventLimits
from kindcast.server.broker.shards import Shard
from kindcast.server.broker.state import LiveSubscriptions, State
from kindcast.server.cli.bench_load import bodies
from kindcast.server.cloudevents import EventReader
from kindcast.server.store.shards import Page, Place, StoredSubscription
from tests.benchmarks.baselines.postgres import missing
from tests.benchmarks.experiments import publish_rates
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw
from tests.harness.postgresql import running_postgresql
from tests.harness.server_process import running_server

NAME = "shards"
TITLE = "An event by the number of shards"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("shards", "µs of processor time an event", log_y=True, bars=True)
SEED = 1

WORK = "W3"
SIZES: dict[Scale, tuple[int, ...]] = {"quick": (3_000,), "default": (100_000, 400_000), "full": (100_000, 1_000_000)}
SHARDS = (1, 2, 4)
EVENTS = 1_000
"""Of a page."""
SERVED = 20_000
"""Subscriptions of the server, at most."""
SENT: dict[Scale, int] = {"quick": 200, "default": 3_000, "full": 20_000}
BATCH = 100
ROUNDS = 3
"""Of which the quickest counts: a neighbour takes from some."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A curve for each number of subscriptions, and one for the server, where there is PostgreSQL."""
    found = [
        Task(f"a shard of {n:,}", str(shards), {"n": n, "shards": shards}) for n in SIZES[scale] for shards in SHARDS
    ]
    if not missing():
        n = min(SERVED, SIZES[scale][0])
        found += [
            Task(
                f"server, {n:,}",
                "none" if shards == 0 else str(shards),
                {"n": n, "shards": shards, "served": SENT[scale]},
            )
            for shards in (0, *SHARDS)
        ]
    return found


def measure(*, n: int, shards: int, served: int = 0) -> dict[str, Any]:
    """The first shard, as a server holds it, over pages of the log: processor time of its thread an event.
    `matches_an_event` are those of this shard. If `served`, so many events through a server with all shards: processor
    time of its process an event, and events a second until they are matched, by the clock."""
    if served:
        return _served(n, shards, served)
    warm_up()
    drawing = draw(WORK, subscriptions=n, events=(ROUNDS + 1) * EVENTS, seed=SEED)
    vocabulary = drawing.vocabulary()

    def empty(vocabulary: Any) -> Matcher:
        return Matcher(vocabulary, planner="naive", limits=EventLimits())

    state = State(LiveSubscriptions(empty(vocabulary)), empty)
    shard = Shard(0, Place(0, 0), state, vocabulary.version, EventReader(max_events=EVENTS))
    shard.fill(
        StoredSubscription(number, f"sub_{number:032x}", 1e12, drawing.tree(number)) for number in range(0, n, shards)
    )
    spent, matches = [], 0
    for page in range(ROUNDS + 1):
        rows = _rows(drawing, page * EVENTS, vocabulary.version)
        began = time.thread_time()
        found = shard.advance(Page(rows, [], {}, 0))
        spent.append(time.thread_time() - began)
        assert shard.place.position == rows[-1].sequence
        matches = found.size
    return {
        "y": round(min(spent[1:]) / EVENTS * 1e6, 1),
        "held": len(state.matcher),
        "matches_an_event": round(matches / EVENTS, 1),
    }


def _served(n: int, shards: int, events: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database = stack.enter_context(running_postgresql()).new_database()
        environment = {"KINDCAST_DATABASE": database, "KINDCAST_PLUGINS": "false"}
        if shards:
            environment["KINDCAST_SHARDS"] = str(shards)
        server = stack.enter_context(running_server(Path(folder) / "server", environment))
        publish_rates.subscribe(server.url, n)
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=600, trust_env=False))
        given = bodies(n, BATCH)
        spent, rates = [], []
        for _ in range(ROUNDS + 1):  # the first warms up
            began, before = time.perf_counter(), publish_rates.cpu_seconds(server.number)
            for _ in range(events // BATCH):
                headers = {"Content-Type": "application/x-ndjson"}
                client.post("/v1/events?verbose=false", content=next(given), headers=headers).raise_for_status()
            while any(each["events"] for each in client.get("/v1/status").json()["shards"]):
                time.sleep(0.05)
            spent.append((publish_rates.cpu_seconds(server.number) - before) / events * 1e6)
            rates.append(events / (time.perf_counter() - began))
        ledger = client.get("/v1/status").json()["ledger"]
    return {
        "y": round(min(spent[1:]), 1),
        "matched_a_second": round(max(rates[1:])),
        "matches_an_event": round(ledger["matches"] / ledger["accepted"], 1),
    }


def _rows(drawing: Drawing, start: int, version: str) -> list[Any]:
    """A page of stored events."""
    columns = {name: cells.tolist() for name, cells in drawing.table(start, start + EVENTS).items()}
    rows = []
    for at in range(EVENTS):
        data = {name: cells[at] for name, cells in columns.items() if cells[at] is not None and cells[at] == cells[at]}
        event = {"specversion": "1.0", "id": str(start + at), "source": "s", "type": "t", "data": data}
        body = msgspec.json.encode(event).decode()
        rows.append(SimpleNamespace(sequence=start + at + 1, body=body, accepted_at=1.0, vocabulary_version=version))
    return rows
