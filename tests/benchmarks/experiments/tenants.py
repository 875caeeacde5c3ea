"""Many small tenants on one server: until a closed one answers, events a second over all of them, memory, open files;
tenants that have one ontology and its declarations in common; and tenants in PostgreSQL, each in a schema of its
own."""

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import create_engine, text

from kindcast.server.settings import Settings
from kindcast.server.store.system import SystemStore
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.postgresql import driver_url, running_postgresql
from tests.harness.server_process import ServerProcess, running_server

NAME = "tenants"
TITLE = "Until a closed tenant answers"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("tenants", "ms", log_x=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {"quick": (20,), "default": (100, 1_000), "full": (1_000, 10_000)}
SUBSCRIPTIONS = 10
"""Of each tenant."""
OPEN: dict[Scale, int] = {"quick": 8, "default": 64, "full": 256}
"""Tenants that may be open at one time."""
OPENINGS: dict[Scale, int] = {"quick": 5, "default": 50, "full": 200}
IN_POSTGRESQL: dict[Scale, int] = {"quick": 20, "default": 100, "full": 1_000}
OPEN_IN_POSTGRESQL = 8
"""An open tenant needs connections, of which PostgreSQL has 100 by default."""
MADE = 100
"""So many are made by requests, which `making_ms` is of; the folders of further ones are copies of theirs, made while
the server is stopped. In PostgreSQL all are made by requests."""
WITH_ONTOLOGY = 16
CLASSES = 2_000
"""Tenants that have one and the same ontology, and its size."""
SECONDS: dict[Scale, float] = {"quick": 0.5, "default": 5.0, "full": 20.0}
"""Of publishing, to open tenants and to all."""


def tasks(scale: Scale) -> Sequence[Task]:
    """By the number of tenants."""
    settings = {"most": OPEN[scale], "openings": OPENINGS[scale], "seconds": SECONDS[scale]}
    plain = [Task(f"{OPEN[scale]} open at most", n, {"n": n, **settings}) for n in SIZES[scale]]
    few = {**settings, "n": WITH_ONTOLOGY, "most": WITH_ONTOLOGY // 2, "openings": WITH_ONTOLOGY // 2}
    stored = {**settings, "n": IN_POSTGRESQL[scale], "most": OPEN_IN_POSTGRESQL, "postgresql": True}
    return [
        *plain,
        Task("each with one ontology of 2,000 classes", WITH_ONTOLOGY, {**few, "classes": CLASSES}),
        Task(f"in PostgreSQL, {OPEN_IN_POSTGRESQL} open at most", IN_POSTGRESQL[scale], stored),
    ]


def measure(
    *, n: int, most: int, openings: int, seconds: float, classes: int = 0, postgresql: bool = False
) -> dict[str, Any]:
    """One server, a process of its own, and `n` tenants of ten subscriptions, all with one ontology of so many
    classes, or without; `megabytes_the_first` is what the first of them added. `y` is the
    median of the first request to a tenant that is closed, while as many are open as may be: it closes another one.
    Then one client publishes, an event a request, to tenants that are open, and to any tenant by chance."""
    chance = random.Random(SEED)
    names = [f"team-{number}" for number in range(n)]
    settings = {"KINDCAST_PLUGINS": "false", "KINDCAST_MAX_OPEN_TENANTS": str(most)}
    with (
        tempfile.TemporaryDirectory() as folder,
        _database(postgresql) as database,
        running_server(Path(folder), settings | ({"KINDCAST_DATABASE": database} if database else {})) as server,
        httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client,
    ):
        made = client.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()
        client.headers["Authorization"] = f"Bearer {made['key']}"
        _fill(client, "warm", 0)  # what a first request costs once
        before, began, first = server.resident_megabytes(), time.perf_counter(), 0
        made_by_requests = names if postgresql else names[:MADE]
        for name in made_by_requests:
            _fill(client, name, classes)
            first = first or server.resident_megabytes() - before
        making = time.perf_counter() - began
        ready = 0.0
        if n > len(made_by_requests):
            server.stop()
            _copy(server.data, names)
            began = time.perf_counter()
            server.start()
            ready = time.perf_counter() - began
            before = server.resident_megabytes()
            for name in names[: most - 1]:
                client.get("/v1/subscriptions?limit=1", headers=_in(name)).raise_for_status()
        opened = _opened(client)
        resident, files = server.resident_megabytes(), server.open_files()
        times = []
        closed = [each for each in names if each not in opened]
        for name in chance.sample(closed, min(openings, len(closed))):
            began = time.perf_counter()
            client.get("/v1/subscriptions?limit=1", headers=_in(name)).raise_for_status()
            times.append((time.perf_counter() - began) * 1e3)
        warm = _rate(client, chance, sorted(_opened(client)), seconds)
        cold = _rate(client, chance, names, seconds)
        return {
            "y": round(statistics.median(times), 1),
            "slowest_ms": round(max(times), 1),
            "making_ms": round(making / len(made_by_requests) * 1e3, 1),
            "ready_seconds": round(ready, 2),
            "open": len(opened),
            "megabytes": resident,
            "megabytes_the_first": first,
            "open_files": files,
            "megabytes_an_open_tenant": round((resident - before) / len(opened), 2),
            "open_a_second": round(warm),
            "any_a_second": round(cold),
            "disk_kilobytes_a_tenant": (_size(database) if database else _disk(server)) // n // 1_024,
        }


@contextmanager
def _database(postgresql: bool) -> Iterator[str | None]:
    """A context manager with the URL of a new database; None for SQLite."""
    if not postgresql:
        yield None
        return
    with running_postgresql() as cluster:
        yield cluster.new_database()


def _size(database: str) -> int:
    """The bytes of a database."""
    engine = create_engine(driver_url(database))
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    finally:
        engine.dispose()


def _fill(client: httpx.Client, name: str, classes: int) -> None:
    client.post("/v1/tenants", json={"name": name}).raise_for_status()
    if classes:
        lines = [f":K{each} rdfs:subClassOf :K{each // 2} ; rdfs:label 'kind {each}' ." for each in range(1, classes)]
        head = "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> ."
        turtle = _in(name) | {"Content-Type": "text/turtle"}
        client.put("/v1/ontologies/kinds", content="\n".join([head, *lines]), headers=turtle).raise_for_status()
    lines = "\n".join(f'{{"expression": "kind = \\"cat\\" and weight > {each}"}}' for each in range(SUBSCRIPTIONS))
    told = client.post("/v1/subscriptions/import", content=lines, headers=_in(name)).raise_for_status().json()
    assert len(told["created"]) == SUBSCRIPTIONS, told


def _copy(data: Path, names: Sequence[str]) -> None:
    """Further tenants, each with what one of the first has."""
    store = SystemStore(Settings(data=data))
    store.open()
    for number, name in enumerate(names[MADE:]):
        shutil.copytree(data / "tenants" / names[number % MADE], data / "tenants" / name)
        store.add_tenant(name, {}, time.time())
    store.close()


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
