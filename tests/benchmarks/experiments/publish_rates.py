"""How many events a second the server accepts, beside a bare route that does nothing but store them durably."""

import asyncio
import multiprocessing
import os
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import msgspec
import uvicorn

from kindcast.server.cli.bench_load import CONNECTIONS, bodies, lines, load
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "publish_rates"
TITLE = "Accepted events a second, over that of a bare durable route"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("events a request", "times the bare route's rate", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 1_000, "default": 100_000, "full": 100_000}
SECONDS: dict[Scale, float] = {"quick": 0.5, "default": 5.0, "full": 20.0}
"""Of each round."""
ROUNDS = 3
"""Of each side, in turns; the best of each counts, since neighbours only take."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Singles, and batches of a hundred; with short answers, and with the notes that publishers get by default."""
    return [
        Task(
            "with notes" if verbose else "kindcast",
            str(events),
            {"n": SIZES[scale], "events": events, "seconds": SECONDS[scale], "verbose": verbose},
        )
        for verbose in (False, True)
        for events in CONNECTIONS
    ]


def measure(*, n: int, events: int, seconds: float, verbose: bool) -> dict[str, Any]:
    """Rates of accepted events, and the CPU microseconds that the server's process takes for each. A server and a bare
    route, each a process of its own with its database on disk, get the same requests from the same clients, in turns.
    Every event matches `matches_an_event` of the `n` subscriptions."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running_server(Path(folder) / "server", {"KINDCAST_PLUGINS": "false"}))
        bare = stack.enter_context(_bare_route(Path(folder) / "bare.db"))
        subscribe(server.url, n)
        rates: dict[str, list[float]] = {"kindcast": [], "bare": []}
        costs: dict[str, list[float]] = {"kindcast": [], "bare": []}
        for _ in range(ROUNDS):
            for side, port, process in (("kindcast", server.port, server.number), ("bare", *bare)):
                before = cpu_seconds(process)
                given = bodies(n, events), events, CONNECTIONS[events], seconds, verbose
                rate = asyncio.run(load(port, *given)).rate * events
                rates[side].append(rate)
                costs[side].append((cpu_seconds(process) - before) / (rate * seconds) * 1e6)
        text = httpx.get(f"{server.url}/metrics", trust_env=False).text
        totals = dict(
            line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("kindcast_") and "{" not in line
        )
    best = {side: max(found) for side, found in rates.items()}
    return {
        "y": round(best["kindcast"] / best["bare"], 3),
        "kindcast_a_second": round(best["kindcast"]),
        "bare_a_second": round(best["bare"]),
        "kindcast_cpu_us": round(min(costs["kindcast"]), 1),
        "bare_cpu_us": round(min(costs["bare"]), 1),
        "matches_an_event": round(
            float(totals["kindcast_matches_total"]) / float(totals["kindcast_events_accepted_total"]), 2
        ),
    }


def subscribe(url: str, n: int) -> None:
    """Makes the subscriptions."""
    headers = {"Content-Type": "application/x-ndjson"}
    with httpx.Client(base_url=url, timeout=600, trust_env=False) as client:
        for start in range(0, n, 1_000):
            client.post(
                "/v1/subscriptions/import", content=lines(start, min(start + 1_000, n)), headers=headers
            ).raise_for_status()


def cpu_seconds(process: int) -> float:
    """What a process has used until now."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ── the bare route ──────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _bare_route(path: Path) -> Iterator[tuple[int, int]]:
    """Its port and the number of its process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(path, theirs), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield ours.recv(), process.pid
    finally:
        process.kill()
        process.join()


def _serve(path: Path, told: Any) -> None:
    """uvicorn with a route of its own: decodes the events and commits them, many requests in one commit."""
    listener = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio asks for no delay by this
    listener.bind(("127.0.0.1", 0))
    listener.listen(1_024)
    waiting: SimpleQueue[tuple[list[bytes], asyncio.AbstractEventLoop, asyncio.Future[None]]] = SimpleQueue()
    threading.Thread(target=_commit, args=(path, waiting), daemon=True).start()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        lines = body.split(b"\n")
        for line in lines:
            msgspec.json.decode(line)
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        waiting.put((lines, loop, stored))
        await stored
        answer = b'{"accepted":%d}' % len(lines)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    told.send(listener.getsockname()[1])
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    asyncio.run(uvicorn.Server(config).serve([listener]))


def _commit(path: Path, waiting: Any) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE events (sequence INTEGER PRIMARY KEY, body BLOB)")
    while True:
        group = [waiting.get()]
        while not waiting.empty():
            group.append(waiting.get())
        database.execute("BEGIN")
        database.executemany(
            "INSERT INTO events (body) VALUES (?)", [(line,) for lines, _, _ in group for line in lines]
        )
        database.execute("COMMIT")
        group[0][1].call_soon_threadsafe(_stored, [stored for _, _, stored in group])


def _stored(futures: list[Any]) -> None:
    for each in futures:
        each.set_result(None)
