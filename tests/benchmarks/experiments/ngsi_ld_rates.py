"""How many entities a second the server takes in NGSI-LD notifications, beside the same facts as plain events."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "ngsi_ld_rates"
TITLE = "Entities a second in NGSI-LD notifications, over that of the same facts as plain events"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("entities a request", "times the rate of plain events", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 1_000, "default": 100_000, "full": 100_000}
SECONDS: dict[Scale, float] = {"quick": 1.0, "default": 10.0, "full": 30.0}
"""Of each side."""
ENTITIES = 1_000
"""In a request."""
PAGE = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """One size of requests."""
    return [Task("kindcast", str(ENTITIES), {"n": SIZES[scale], "entities": ENTITIES, "seconds": SECONDS[scale]})]


def measure(*, n: int, entities: int, seconds: float) -> dict[str, Any]:
    """The best rate of each side, whose requests take turns. A spot is asked about by one of `n` subscriptions."""
    best = {"notification": 0.0, "plain": 0.0}
    matched = {"notification": 0, "plain": 0}
    taken = {"notification": 0, "plain": 0}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"KINDCAST_PLUGINS": "false"}
        with (
            running_server(Path(folder), environment) as server,
            httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client,
        ):
            _subscribe(client, n)
            number = 0
            until = time.perf_counter() + 2 * seconds
            while time.perf_counter() < until:
                for side, request in (("notification", _notification), ("plain", _plain)):
                    path, kind, body = request(number, entities, n)
                    number += entities
                    began = time.perf_counter()
                    answer = client.post(path, content=body, headers={"Content-Type": kind})
                    took = time.perf_counter() - began
                    assert answer.status_code == 202, answer.text
                    told = answer.json()
                    assert told["accepted"] == entities, told
                    best[side] = max(best[side], entities / took)
                    matched[side] += told["matched"]
                    taken[side] += entities
    return {
        "y": round(best["notification"] / best["plain"], 3),
        "notification_a_second": round(best["notification"]),
        "plain_a_second": round(best["plain"]),
        "matches_an_entity": round(matched["notification"] / taken["notification"], 2),
        "matches_a_plain_event": round(matched["plain"] / taken["plain"], 2),
    }


def _subscribe(client: httpx.Client, n: int) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    for start in range(0, n, PAGE):
        trees = ({"all": [{"=": ["spot", f"S{each}"]}, {">=": ["free", 1]}]} for each in range(start, start + PAGE))
        lines = b"\n".join(msgspec.json.encode({"where": tree}) for tree in trees)
        client.post("/v1/subscriptions/import", content=lines, headers=headers).raise_for_status()


def _facts(number: int, n: int) -> tuple[str, int, str]:
    return f"S{number * 7_919 % n}", 1 + number % 50, f"row {number % 40}"


def _notification(first: int, entities: int, n: int) -> tuple[str, str, bytes]:
    data = []
    for number in range(first, first + entities):
        spot, free, row = _facts(number, n)
        data.append(
            {
                "id": f"urn:ngsi-ld:Spot:{number}",
                "type": "ParkingSpot",
                "spot": {"type": "Property", "value": spot},
                "free": {"type": "Property", "value": free, "observedAt": "2026-03-01T12:00:00Z"},
                "row": {"type": "Property", "value": row},
            }
        )
    body = {"id": f"urn:n:{first}", "type": "Notification", "subscriptionId": "urn:s:1", "data": data}
    return "/v1/ngsi-ld/notifications", "application/json", msgspec.json.encode(body)


def _plain(first: int, entities: int, n: int) -> tuple[str, str, bytes]:
    events = []
    for number in range(first, first + entities):
        spot, free, row = _facts(number, n)
        data = {"spot": spot, "free": free, "row": row}
        shared = {"specversion": "1.0", "id": f"e{number}", "source": "urn:plain", "type": "ParkingSpot"}
        events.append({**shared, "subject": f"urn:ngsi-ld:Spot:{number}", "data": data})
    return "/v1/events?verbose=false", "application/cloudevents-batch+json", msgspec.json.encode(events)
