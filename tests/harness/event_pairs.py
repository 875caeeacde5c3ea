"""Events that are drawn by number, subscriptions whose meaning is a function, and the pairs that follow: what a server
finds by HTTP and through each broker, with a kill of each part, is held to them."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kindcast import Client
from tests.harness.brokers import running_kafka, running_mosquitto, running_nats, running_rabbitmq, running_redis
from tests.harness.connector_kills import MOCK_ROOM, Kills
from tests.harness.server_process import ServerProcess, running_server

__all__ = ["BROKERS", "DrawnEvents", "Found", "Pairs", "by_broker", "by_http", "matched", "subscribed", "wishes"]

BATCH = 500
COLOURS = ("red", "green", "blue", "grey")
BROKERS: dict[str, Callable[[Path], Any]] = {
    "kafka": lambda _: running_kafka(),
    "nats": running_nats,
    "mosquitto": running_mosquitto,
    "rabbitmq": running_rabbitmq,
    "redis": running_redis,
}
"""How each is started in a folder. Kafka's mock cluster lives in this process: it has no folder, and is not killed."""

Data = dict[str, Any]
Pairs = set[tuple[int, str]]
"""Number of an event, text of a subscription."""


def wishes() -> dict[str, Callable[[Data], bool]]:
    """Expressions, with what they mean."""
    made: dict[str, Callable[[Data], bool]] = {}
    for colour in COLOURS:
        for price in (50, 200, 600):
            made[f'colour = "{colour}" and price < {price}'] = lambda event, colour=colour, price=price: (
                event["colour"] == colour and event["price"] < price
            )
    for size in range(7):
        made[f"size = {size} or price >= 990"] = lambda event, size=size: event["size"] == size or event["price"] >= 990
        made[f"size != {size} and not price between [100, 950]"] = lambda event, size=size: (
            event["size"] != size and not 100 <= event["price"] <= 950
        )
    return made


@dataclass(frozen=True, slots=True)
class DrawnEvents:
    """So many, numbered from 0; each follows from `seed` and its number."""

    seed: int
    count: int

    def data(self, number: int) -> Data:
        chance = random.Random(self.seed * 1_000_003 + number)
        return {
            "number": number,
            "colour": chance.choice(COLOURS),
            "price": chance.randrange(1_000),
            "size": number % 7,
        }

    def event(self, number: int) -> dict[str, Any]:
        """As CloudEvent, like those of `Kills`."""
        return {"specversion": "1.0", "id": str(number), "source": "kills", "type": "t", "data": self.data(number)}

    def pairs(self) -> Pairs:
        """By the definition alone."""
        meant = wishes().items()
        drawn = ((number, self.data(number)) for number in range(self.count))
        return {(number, text) for number, data in drawn for text, holds in meant if holds(data)}


@dataclass(slots=True)
class Found:
    """What came of a way in: the pairs, what was killed how often, and what else was wrong."""

    pairs: Pairs
    killed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def subscribed(folder: Path) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """A server with all subscriptions; their expressions by their ids."""
    with running_server(folder) as server:
        with Client(server.url) as client:
            texts = {client.subscribe(text)["id"]: text for text in wishes()}
        yield server, texts


def matched(server: ServerProcess, texts: dict[str, str]) -> Pairs:
    """What waits for each subscription. Raises AssertionError where an event waits twice."""
    found: Pairs = set()
    with Client(server.url) as client:
        for id, text in texts.items():
            after = "0"
            while page := client.pull(id, after=after, limit=1_000)["events"]:
                pairs = {(int(each["event"]["id"]), text) for each in page}
                assert len(pairs) == len(page), "an event twice"
                assert not pairs & found, "an event twice"
                found |= pairs
                after = page[-1]["cursor"]
    return {(number, text) for number, text in found if number >= 0}  # the first message of `Kills` is -1


def by_http(folder: Path, events: DrawnEvents) -> Found:
    """In batches; the server is killed in the middle, and the batch whose answer is missing is sent again."""
    killed = Counter[str]()
    with subscribed(folder) as (server, texts), Client(server.url) as client:
        for first in range(0, events.count, BATCH):
            batch = [events.event(number) for number in range(first, min(first + BATCH, events.count))]
            if first // BATCH == events.count // BATCH // 2:
                with ThreadPoolExecutor(1) as pool:
                    answer = pool.submit(client.publish, batch)
                    server.kill()
                    server.start()
                    answer.exception()  # it may have been answered before, or after; what was accepted is accepted once
                killed["server"] += 1
            client.publish(batch)
        return Found(matched(server, texts), killed)


def by_broker(folder: Path, events: DrawnEvents, name: str) -> Found:
    """Through `kindcast connect`. Connector, server, connections and broker are killed, each once; at Kafka connector
    and server, in turn, since its mock cluster has room for a part of the events only."""
    kinds = ("connector", "server") if name == "kafka" else ("connector", "server", "connection", "broker")
    each = events.count // len(kinds)
    each = min(each, MOCK_ROOM // 2) if name == "kafka" else each
    assert events.count % each == 0
    with BROKERS[name](folder / "broker") as broker, subscribed(folder / "server") as (server, texts):
        kills = Kills(
            broker=broker,
            server=server,
            folder=folder / "connector",
            seed=events.seed,
            each=each,
            ids=True,
            data=events.data,
            kinds=kinds,
            batch=BATCH,
            sink=False,
        )
        wrong = kills.run(events.count // each)
        return Found(matched(server, texts), kills.done, wrong)
