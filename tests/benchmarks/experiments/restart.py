"""How long until subscriptions match: added in bulk, opened from a folder, by a server that starts; and what memory."""

import asyncio
import gc
import http.client
import json
import multiprocessing
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kindcast import Event, Matcher, Vocabulary
from kindcast.index.compilation import warm_up
from kindcast.server.broker import Broker
from kindcast.server.settings import Settings
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw
from tests.harness.server_process import running_server

NAME = "restart"
TITLE = "From subscriptions to the first match"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "seconds", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000,),
    "default": (10_000, 100_000),
    "full": (10_000, 100_000, 1_000_000),
}
WORKLOADS: dict[Scale, tuple[str, ...]] = {"quick": ("W3",), "default": ("W3",), "full": ("W1", "W2", "W3")}
STEPS = {
    "add": "Matcher.add_many",
    "open": "Matcher.open and a match",
    "server, store": "server from the store, and a match",
    "server, snapshot": "server from the snapshot, and a match",
    "process": "kindcast serve from the snapshot, until its first event is accepted",
}
PRESENT = 1_780_000_000.0
"""When the subscriptions of the server were made; they end much later."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Step by step, small sizes first."""
    return [
        Task(STEPS[step], n, {"step": step, "workload": workload, "n": n}, panel=workload)
        for workload in WORKLOADS[scale]
        for step in STEPS
        for n in SIZES[scale]
    ]


def measure(*, step: str, workload: str, n: int) -> dict[str, Any]:
    """One step, of a process that has read nothing before, but compiled its kernels."""
    warm_up()
    folder = Path(tempfile.mkdtemp(prefix="kindcast-restart-"))
    try:
        if step == "add":
            return _added(workload, n)
        if step == "open":
            return _opened(workload, n, folder)
        if step == "process":
            return _process(workload, n, folder)
        return asyncio.run(_served(workload, n, folder, with_snapshot=step == "server, snapshot"))
    finally:
        shutil.rmtree(folder)


def _added(workload: str, n: int) -> dict[str, Any]:
    drawing = draw(workload, subscriptions=n, events=1, seed=SEED)
    lines = [json.dumps(drawing.tree(number)) for number in range(n)]
    matcher = Matcher(drawing.vocabulary())
    began = time.process_time()
    for line in lines:
        json.loads(line)
    parsing = time.process_time() - began
    wall, began = time.perf_counter(), time.process_time()
    matcher.add_many((f"s{number}", json.loads(line)) for number, line in enumerate(lines))
    seconds = time.process_time() - began
    return {
        "y": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(seconds, 3),
        "of_it_parsing_json": round(parsing, 3),
        "us_a_subscription": round(seconds / n * 1e6, 1),
        "matches": len(matcher),
    }


def _opened(workload: str, n: int, folder: Path) -> dict[str, Any]:
    builder = multiprocessing.get_context("spawn").Process(target=_save, args=(workload, n, folder))
    builder.start()
    builder.join()
    vocabulary = _vocabulary(workload)
    gc.collect()
    before, began = _resident(), time.perf_counter()
    matcher = Matcher.open(folder, vocabulary)
    matcher.match({"a0": 5, "a1": 7, "a3": "v3"})
    seconds = time.perf_counter() - began
    return {
        "y": round(seconds, 3),
        "bytes_a_subscription": round((_resident() - before) / n),
        "disk_bytes_a_subscription": round(sum(file.stat().st_size for file in folder.iterdir()) / n),
        "matches": len(matcher),
    }


def _save(workload: str, n: int, folder: Path) -> None:
    drawing = draw(workload, subscriptions=n, events=1, seed=SEED)
    matcher = Matcher(drawing.vocabulary())
    matcher.add_many((f"sub_{secrets.token_hex(16)}", drawing.tree(number)) for number in range(n))
    matcher.save(folder)


async def _served(workload: str, n: int, folder: Path, *, with_snapshot: bool) -> dict[str, Any]:
    """The second start; before it, a server uploads the vocabulary, and subscriptions are put into its store."""
    settings = Settings(data=folder, snapshot_changes=10_000 if with_snapshot else 0)
    await _prepare(workload, n, settings)
    gc.collect()
    before, began = _resident(), time.perf_counter()
    broker = Broker(settings)
    await broker.start()
    started = time.perf_counter() - began
    await broker.match([Event({"a0": 5, "a1": 7, "a3": "v3"})])
    seconds = time.perf_counter() - began
    resident = _resident() - before
    held = len(broker.state.matcher)
    await broker.stop()
    return {
        "y": round(seconds, 3),
        "of_it_start": round(started, 3),
        "bytes_a_subscription": round(resident / n),
        "matches": held,
    }


async def _prepare(workload: str, n: int, settings: Settings) -> None:
    """A data folder with the vocabulary, the subscriptions and, where the settings want it, a snapshot."""
    drawing = draw(workload, subscriptions=n, events=1, seed=SEED)
    document = _document(drawing)
    broker = Broker(settings)
    await broker.start()
    if document:
        await broker.put_ontology("tree", document, format="ntriples", activate=True)
    await broker.stop()
    _store(settings.data / "kindcast.db", drawing, n)
    if settings.snapshot_changes:
        writer = multiprocessing.get_context("spawn").Process(target=_start_and_stop, args=(settings.data,))
        writer.start()
        writer.join()


def _process(workload: str, n: int, folder: Path) -> dict[str, Any]:
    """A real process, from its beginning; the event is asked for again until somebody listens and takes it."""
    asyncio.run(_prepare(workload, n, Settings(data=folder)))
    began = time.perf_counter()
    with running_server(folder, start=False) as server:
        server.start(wait=False)
        event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a0":5,"a1":7,"a3":"v3"}}'
        headers = {"Content-Type": "application/cloudevents+json"}
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60.0)
            try:
                connection.request("POST", "/v1/events", event, headers)
                if connection.getresponse().status == http.HTTPStatus.ACCEPTED:
                    break
            except OSError:
                time.sleep(0.005)  # nobody listens yet
            finally:
                connection.close()
        seconds = time.perf_counter() - began
    return {"y": round(seconds, 3), "subscriptions": n}


def _start_and_stop(folder: Path) -> None:
    async def body() -> None:
        broker = Broker(Settings(data=folder))
        await broker.start()
        await broker.stop()

    asyncio.run(body())


def _store(path: Path, drawing: Drawing, n: int) -> None:
    """Rows as `kindcast.server.store.subscriptions` writes them, without the server."""
    columns = ("id", "expression", "tree", "canonical", "clauses", "cost", "notes", "flagged", "status", "ticket_hash")
    columns += ("created_at", "expires_at", "acked", "created_sequence", "times_sent", "times_failed")
    columns += ("consecutive_errors",)

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(n):
            tree = json.dumps(drawing.tree(number), separators=(",", ":"))
            id = f"sub_{secrets.token_hex(16)}"
            yield id, '{"where":{}}', tree, "", 1, 1.0, "[]", 0, "active", "", PRESENT, 4 * PRESENT, 0, 0, 0, 0, 0

    with sqlite3.connect(path) as connection:
        places = ",".join("?" * len(columns))
        connection.executemany(f"INSERT INTO subscriptions ({','.join(columns)}) VALUES ({places})", rows())
    connection.close()


def _vocabulary(workload: str) -> Vocabulary:
    return draw(workload, subscriptions=1, events=1, seed=SEED).vocabulary()


def _document(drawing: Drawing) -> bytes:
    found = drawing.vocabulary().ontologies
    if not found:
        return b""
    size = (1 << (drawing.height + 1)) - 1
    prefix, above = "http://example.org/tree#", "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
    return "".join(f"<{prefix}N{n}> {above} <{prefix}N{(n - 1) // 2}> .\n" for n in range(1, size)).encode()


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
