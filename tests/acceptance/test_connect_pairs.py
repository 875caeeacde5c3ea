"""The same events through HTTP and through each kind of broker give the same matches, with a kill of each part once.
`KINDCAST_PAIRS_EVENTS` makes it longer."""

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kindcast import Client
from tests.harness.brokers import running_kafka, running_mosquitto, running_nats, running_rabbitmq, running_redis
from tests.harness.connector_kills import Kills
from tests.harness.server_process import ServerProcess, running_server

EVENTS = int(os.environ.get("KINDCAST_PAIRS_EVENTS", "2000"))
BATCH = 500
SEED = 16
COLOURS = ("red", "green", "blue", "grey")

Data = dict[str, Any]
Pairs = set[tuple[int, str]]

pytestmark = [
    pytest.mark.slow,
    # aiormq forgets a coroutine where a connection breaks as it is made
    pytest.mark.filterwarnings("ignore:coroutine 'Connection.close' was never awaited:RuntimeWarning"),
]


def data(number: int) -> Data:
    """Of an event, by its number."""
    chance = random.Random(number)
    return {"number": number, "colour": chance.choice(COLOURS), "price": chance.randrange(1_000), "size": number % 7}


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


EXPECTED: Pairs = {
    (number, text) for number in range(EVENTS) for text, holds in wishes().items() if holds(data(number))
}


@contextmanager
def subscribed(folder: Path) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """A server with all subscriptions; their expressions by their ids."""
    with running_server(folder) as server:
        with Client(server.url) as client:
            texts = {client.subscribe(text)["id"]: text for text in wishes()}
        yield server, texts


def matched(server: ServerProcess, texts: dict[str, str]) -> Pairs:
    """What waits for each of them; no event twice."""
    found: Pairs = set()
    with Client(server.url) as client:
        for id, text in texts.items():
            after = "0"
            while page := client.pull(id, after=after, limit=1_000)["events"]:
                numbers = [int(each["event"]["id"]) for each in page]
                pairs = {(number, text) for number in numbers}
                assert len(pairs) == len(numbers), "an event twice"
                assert not pairs & found, "an event twice"
                found |= pairs
                after = page[-1]["cursor"]
    return {(number, text) for number, text in found if number >= 0}


def test_events_over_http_match_as_they_should(tmp_path: Path) -> None:
    """In batches; the server is killed in between, and the batch whose answer is missing is sent again."""
    with subscribed(tmp_path) as (server, texts), Client(server.url) as client:
        for first in range(0, EVENTS, BATCH):
            events = [
                {"specversion": "1.0", "id": str(number), "source": "kills", "type": "t", "data": data(number)}
                for number in range(first, min(first + BATCH, EVENTS))
            ]
            if first // BATCH == EVENTS // BATCH // 2:
                with ThreadPoolExecutor(1) as pool:
                    answer = pool.submit(client.publish, events)
                    server.kill()
                    server.start()
                    answer.exception()  # it may have been answered before, or after; what was accepted is accepted once
            client.publish(events)
        assert matched(server, texts) == EXPECTED


@pytest.mark.parametrize("name", ["mosquitto", "nats", "rabbitmq", "redis", "kafka"])
def test_events_through_a_broker_match_as_over_http(tmp_path: Path, name: str) -> None:
    """Connector, server, connections and broker are killed, each once; Kafka's mock cluster is not."""
    brokers: dict[str, Callable[[], Any]] = {
        "mosquitto": lambda: running_mosquitto(tmp_path / "broker"),
        "nats": lambda: running_nats(tmp_path / "broker"),
        "rabbitmq": lambda: running_rabbitmq(tmp_path / "broker"),
        "redis": lambda: running_redis(tmp_path / "broker"),
        "kafka": running_kafka,
    }
    kinds = ("connector", "server") if name == "kafka" else ("connector", "server", "connection", "broker")
    with brokers[name]() as broker, subscribed(tmp_path / "server") as (server, texts):
        kills = Kills(
            broker=broker,
            server=server,
            folder=tmp_path / "connector",
            seed=SEED,
            each=EVENTS // len(kinds),
            ids=True,
            data=data,
            kinds=kinds,
            batch=BATCH,
            sink=False,
        )
        assert kills.run(len(kinds)) == []
        assert matched(server, texts) == EXPECTED
