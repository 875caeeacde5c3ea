"""Many small tenants on one server: until a closed one answers, events a second over all of them, memory."""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import ServerProcess, running_server

NAME = "tenants"
TITLE = "Until a closed tenant answers"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("tenants", "ms", log_x=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {"quick": (20,), "default": (100, 1_000), "full": (100, 1_000, 10_000)}
SUBSCRIPTIONS = 10
"""Of each tenant."""
OPEN: dict[Scale, int] = {"quick": 8, "default": 64, "full": 256}
"""Tenants that may be open at one time."""
OPENINGS: dict[Scale, int] = {"quick": 5, "default": 50, "full": 200}
SECONDS: dict[Scale, float] = {"quick": 0.5, "default": 5.0, "full": 20.0}
"""Of publishing, to open tenants and to all."""


def tasks(scale: Scale) -> Sequence[Task]:
    """By the number of tenants."""
    settings = {"most": OPEN[scale], "openings": OPENINGS[scale], "seconds": SECONDS[scale]}
    return [Task(f"{OPEN[scale]} open at most", n, {"n": n, **settings}) for n in SIZES[scale]]


def measure(*, n: int, most: int, openings: int, seconds: float) -> dict[str, Any]:
    """One server, a process of its own, and `n` tenants of ten subscriptions, without an ontology. `y` is the
    median of the first request to a tenant that is closed, while as many are open as may be: it closes another one.
    Then one client publishes, an event a request, to tenants that are open, and to any tenant by chance."""
    chance = random.Random(SEED)
    names = [f"team-{number}" for number in range(n)]
    settings = {"KINDCAST_PLUGINS": "false", "KINDCAST_MAX_OPEN_TENANTS": str(most)}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), settings) as server,
        httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client,
    ):
        made = client.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()
        client.headers["Authorization"] = f"Bearer {made['key']}"
        before, began = server.resident_megabytes(), time.perf_counter()
        for name in names:
            _fill(client, name)
        making = time.perf_counter() - began
        opened = _opened(client)
        resident = server.resident_megabytes()
        times = []
        for name in chance.sample([each for each in names if each not in opened], min(openings, n - len(opened))):
            began = time.perf_counter()
            client.get("/v1/subscriptions?limit=1", headers=_in(name)).raise_for_status()
            times.append((time.perf_counter() - began) * 1e3)
        warm = _rate(client, chance, sorted(_opened(client)), seconds)
        cold = _rate(client, chance, names, seconds)
        return {
            "y": round(statistics.median(times), 1),
            "slowest_ms": round(max(times), 1),
            "making_ms": round(making / n * 1e3, 1),
            "open": len(opened),
            "megabytes": resident,
            "megabytes_an_open_tenant": round((resident - before) / len(opened), 2),
            "open_a_second": round(warm),
            "any_a_second": round(cold),
            "disk_kilobytes_a_tenant": _disk(server) // n // 1_024,
        }


def _fill(client: httpx.Client, name: str) -> None:
    client.post("/v1/tenants", json={"name": name}).raise_for_status()
    lines = "\n".join(f'{{"expression": "kind = \\"cat\\" and weight > {each}"}}' for each in range(SUBSCRIPTIONS))
    told = client.post("/v1/subscriptions/import", content=lines, headers=_in(name)).raise_for_status().json()
    assert len(told["created"]) == SUBSCRIPTIONS, told


def _opened(client: httpx.Client) -> set[str]:
    listed = client.get("/v1/tenants").raise_for_status().json()["tenants"]
    return {each["name"] for each in listed if each["open"] and each["name"] != "default"}


def _rate(client: httpx.Client, chance: random.Random, names: Sequence[str], seconds: float) -> float:
    """Events a second of one client that waits for each answer."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        event = {"kind": "cat", "weight": SUBSCRIPTIONS / 2}
        told = client.post("/v1/events", json=event, headers=_in(chance.choice(names))).raise_for_status().json()
        assert told["matched"] == SUBSCRIPTIONS // 2, told
        done += 1
    return done / (time.perf_counter() - began)


def _in(name: str) -> dict[str, str]:
    return {"Kindcast-Tenant": name}


def _disk(server: ServerProcess) -> int:
    return sum(each.stat().st_size for each in (server.data / "tenants").rglob("*") if each.is_file())
