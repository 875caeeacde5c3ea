"""What each shard of the subscriptions takes of an event, by the number of shards: reading it again, and matching it
against its part."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from kindcast import Matcher
from kindcast.index.compilation import warm_up
from kindcast.semantic.events import EventLimits
from kindcast.server.broker.shards import Shard
from kindcast.server.broker.state import LiveSubscriptions, State
from kindcast.server.cloudevents import EventReader
from kindcast.server.store.shards import Page, Place, StoredSubscription
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw

NAME = "shards"
TITLE = "An event in each shard"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("shards", "µs of processor time an event and shard", log_y=True, bars=True)
SEED = 1

WORK = "W3"
SIZES: dict[Scale, tuple[int, ...]] = {"quick": (3_000,), "default": (100_000, 400_000), "full": (100_000, 1_000_000)}
SHARDS = (1, 2, 4)
EVENTS = 1_000
"""Of a page."""
ROUNDS = 3
"""Of which the quickest counts: a neighbour takes from some."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A curve for each number of subscriptions."""
    return [
        Task(f"{n:,} subscriptions", str(shards), {"n": n, "shards": shards}) for n in SIZES[scale] for shards in SHARDS
    ]


def measure(*, n: int, shards: int) -> dict[str, Any]:
    """The first shard, as a server holds it, over pages of the log: processor time of its thread an event.
    `matches_an_event` are those of this shard."""
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
