"""SIGKILL while events and their error declarations are published: every retraction arrives once, and at nobody else.

KINDCAST_KILL_ROUNDS sets the number of kills (3 by default here), KINDCAST_KILL_SEED the choices.
"""

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client
from tests.harness.server_process import running_server

ROUNDS = int(os.environ.get("KINDCAST_KILL_ROUNDS", "3"))
SEED = int(os.environ.get("KINDCAST_KILL_SEED", "1"))
EVENTS = 400
STEPS = ("shipping", "receiving", "packing")
SCHEMA = {
    "x-kindcast-subject": "eventID",
    "x-kindcast-revision": "errorDeclaration.declarationTime",
    "x-kindcast-retracts": "errorDeclaration",
}


def observation(number: int, data: dict[str, Any]) -> dict[str, Any]:
    about = {"eventID": f"urn:uuid:{number}", **data}
    shared = {"specversion": "1.0", "source": "urn:warehouse", "type": "ObjectEvent"}
    return {**shared, "id": f"urn:uuid:{number}", "data": about}


@pytest.mark.slow
def test_retractions_reach_exactly_the_recipients_over_kills(tmp_path: Path) -> None:
    """A log of events and error declarations in any order, sent until each batch is answered, killed in between."""
    chance = random.Random(SEED)
    steps = [chance.choice(STEPS) for _ in range(EVENTS)]
    withdrawn = set(chance.sample(range(EVENTS), EVENTS // 2))
    error = {"errorDeclaration": {"declarationTime": "2026-03-01T00:00:00Z", "reason": "incorrect_data"}}
    log = [observation(number, {"bizStep": steps[number]}) for number in range(EVENTS)]
    log += [observation(number, error) for number in sorted(withdrawn)]
    chance.shuffle(log)
    batches = [document_of(log[start : start + 5], chance) for start in range(0, len(log), 5)]
    pauses = [chance.uniform(0.05, 0.6) for _ in range(ROUNDS)]
    with running_server(tmp_path / "data", {}, start=False) as server, Client(server.url) as client:
        server.start()
        client.declare_schema("ObjectEvent", SCHEMA)
        ids = {step: client.subscribe(f'bizStep = "{step}"')["id"] for step in STEPS[:2]}
        for pause in pauses:
            sender = threading.Thread(target=_send_until_killed, args=(server.url, batches))
            sender.start()
            time.sleep(pause)
            server.kill()
            sender.join()
            server.start()
        _send_until_killed(server.url, batches)
        for step, id in ids.items():
            messages = client.pull(id, limit=1_000)["events"]
            events = Counter(_about(each["event"]["id"]) for each in messages if "retracted" not in each)
            retracted = Counter(_about(each["retracted"]["id"]) for each in messages if "retracted" in each)
            mine = {number for number in range(EVENTS) if steps[number] == step}
            assert events == Counter(f"urn:uuid:{number}" for number in mine)
            assert retracted == Counter(f"urn:uuid:{number}" for number in mine & withdrawn)


def document_of(events: list[dict[str, Any]], chance: random.Random) -> dict[str, Any] | list[dict[str, Any]]:
    """The same events as a batch, or within an EPCIS document."""
    if chance.random() < 0.5:
        return events
    shared = {"specversion": "1.0", "source": "urn:warehouse", "type": "ObjectEvent", "id": f"d{chance.random()}"}
    body = {"type": "EPCISDocument", "epcisBody": {"eventList": [each["data"] for each in events]}}
    return {**shared, "data": body}


def _about(id: str) -> str:
    """The event that a message is about: events of documents have its id within theirs."""
    return "urn:uuid:" + id.partition("urn:uuid:")[2].partition("#")[0]


def _send_until_killed(url: str, batches: list[Any]) -> None:
    """Each batch; what was answered is taken out."""
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        while batches:
            try:
                mode = "cloudevents-batch" if isinstance(batches[0], list) else "cloudevents"
                headers = {"Content-Type": f"application/{mode}+json"}
                http.post("/v1/events", json=batches[0], headers=headers).raise_for_status()
            except httpx.TransportError:
                return
            batches.pop(0)
