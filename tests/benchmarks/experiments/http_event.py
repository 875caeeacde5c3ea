"""Where the time of an event goes on its way through the server, from a client's request to its answer."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec

from kindcast import Matcher
from kindcast.semantic.events.event_plans import ReadEvent
from kindcast.server.broker import Broker, publishing
from kindcast.server.broker.group import Group
from kindcast.server.cloudevents import EventReader
from tests.benchmarks.experiments.nested_events import SHAPES, asking, facts_of
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw
from tests.harness.server_thread import running_app

NAME = "http_event"
TITLE = "an event through the server"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("events a request", "µs an event", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 300, "default": 2_000, "full": 10_000}
WORK = "W2"
ROUNDS = 3
"""Of which the quickest counts: a neighbour on one of two cores takes from some of them."""
REQUESTS = {1: 200, 100: 20}
"""Requests of a round, by the events in each."""
SHAPE = "and list, text, two more"
LINES = "application/x-ndjson"


def tasks(scale: Scale) -> Sequence[Task]:
    """Alone and in hundreds, with an answer that tells of every event, and with one that does not."""
    return [
        Task(series, str(events), {"n": SIZES[scale], "events": events, "verbose": verbose})
        for series, verbose in (("verbose", True), ("verbose=false", False))
        for events in REQUESTS
    ]


def measure(*, n: int, events: int, verbose: bool) -> dict[str, Any]:
    """One client that waits for each answer, a server in the same process, its database in a folder; by the clock on
    the wall, since most of it is waiting for others. Parts, in microseconds an event:

    `http` client, socket, routing, answer; `decode` JSON and context; `handover` the queue to the broker's thread, and
    back; `known` whether it was accepted before; `read`, also for whether there are notes if events are read together;
    `match`; `notes`; `rows` statements that store it with its matches; `commit` until it is on disk.
    """
    drawing = draw(WORK, subscriptions=n, events=(ROUNDS + 1) * events * REQUESTS[events], seed=SEED)
    bodies = _bodies(drawing, events)
    spent: Counter[str] = Counter()
    rounds: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_app(Path(folder)) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        _watched(spent),
    ):
        _subscribe(client, drawing, n)
        path, headers = f"/v1/events?verbose={str(verbose).lower()}", {"Content-Type": LINES}
        matched = 0
        for _ in range(ROUNDS + 1):  # the first warms up
            spent.clear()
            began = time.perf_counter()
            for _ in range(REQUESTS[events]):
                answer = client.post(path, content=next(bodies), headers=headers)
                assert answer.status_code == 202, answer.text
                matched += answer.json()["matched"]
            whole = time.perf_counter() - began
            rounds.append(_parts(whole, spent, events * REQUESTS[events]))
    best = min(rounds[1:], key=lambda each: each["y"])
    return {**best, "matches_an_event": round(matched / (ROUNDS + 1) / events / REQUESTS[events], 1)}


def _parts(whole: float, spent: Counter[str], events: int) -> dict[str, float]:
    inside = sum(spent[name] for name in ("known", "read", "match", "notes"))
    parts = {
        "y": whole,
        "http": whole - spent["decode"] - spent["publish"],
        "decode": spent["decode"],
        "handover": spent["publish"] - spent["run"] - spent["commit"],
        **{name: spent[name] for name in ("known", "read", "match", "notes")},
        "rows": spent["run"] - inside,
        "commit": spent["commit"],
    }
    return {name: round(seconds / events * 1e6, 1) for name, seconds in parts.items()}


@contextmanager
def _watched(spent: Counter[str]) -> Iterator[None]:
    """The seconds that some functions take, by name, added to `spent`."""

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent[name] += time.perf_counter() - began

        return call

    async def publish(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return await whole(*arguments, **named)
        finally:
            spent["publish"] += time.perf_counter() - began

    whole = Broker.publish
    watched: list[tuple[Any, str, str]] = [
        (EventReader, "read", "decode"),
        (publishing, "find_known", "known"),
        (Matcher, "read", "read"),
        (Matcher, "read_together", "read"),
        (Matcher, "match_read", "match"),
        (ReadEvent, "notes", "notes"),
        (Group, "run", "run"),
        (Group, "commit", "commit"),
    ]
    with ExitStack() as stack:
        for owner, attribute, name in watched:
            stack.enter_context(patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        stack.enter_context(patch.object(Broker, "publish", publish))
        yield


def _subscribe(client: httpx.Client, drawing: Drawing, n: int) -> None:
    """The subscriptions of the workload, whose attributes are those of `offer`."""
    for start in range(0, n, 1_000):
        trees = (asking(drawing.tree(number)) for number in range(start, min(start + 1_000, n)))
        lines = b"\n".join(msgspec.json.encode({"where": tree}) for tree in trees)
        answer = client.post("/v1/subscriptions/import", content=lines, headers={"Content-Type": LINES})
        assert answer.status_code == 200, answer.text


def _bodies(drawing: Drawing, events: int) -> Iterator[bytes]:
    """Bodies of so many lines, each an event."""
    for start in range(0, len(drawing.values), events):
        facts = facts_of(drawing, start, start + events)
        yield b"\n".join(msgspec.json.encode(SHAPES[SHAPE](each, start + row)) for row, each in enumerate(facts))
