"""How many events a second the server accepts, beside a bare route that does nothing but store them durably."""

import asyncio
import multiprocessing
import os
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import msgspec
import uvicorn

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "publish_rates"
TITLE = "Accepted events a second, over that of a bare durable route"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("events a request", "times the bare route's rate", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 1_000, "default": 100_000, "full": 100_000}
CONNECTIONS = {1: 16, 100: 4}
"""Clients that each wait for their answer, by the events in a request."""
SECONDS: dict[Scale, float] = {"quick": 0.5, "default": 5.0, "full": 20.0}
"""Of each round."""
ROUNDS = 3
"""Of each side, in turns; the best of each counts, since neighbours only take."""
SUBSCRIPTIONS_OF_A_KEY = 5
MAX_LINE = 1 << 16


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
                rate = (
                    asyncio.run(load(port, bodies(n, events), events, CONNECTIONS[events], seconds, verbose)) * events
                )
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
            lines = b"\n".join(
                msgspec.json.encode({"where": _tree(each)}) for each in range(start, min(start + 1_000, n))
            )
            client.post("/v1/subscriptions/import", content=lines, headers=headers).raise_for_status()


def _tree(number: int) -> dict[str, Any]:
    """Some subscribe to the same article, each with another bound of its price."""
    price = 100 * (number % SUBSCRIPTIONS_OF_A_KEY + 1)
    return {"all": [{"=": ["article", f"A{number // SUBSCRIPTIONS_OF_A_KEY}"]}, {"<=": ["price", price]}]}


def bodies(n: int, events: int) -> Iterator[bytes]:
    """Requests without end: bodies of plain JSON, or of so many lines."""
    articles = max(1, n // SUBSCRIPTIONS_OF_A_KEY)
    number = 0
    while True:
        lines = []
        for _ in range(events):
            number += 1
            article = number * 7_919 % articles
            facts = {"article": f"A{article}", "price": 50 + number % 500, "site": "hall 7", "note": f"order {number}"}
            lines.append(msgspec.json.encode(facts))
        yield b"\n".join(lines)


def cpu_seconds(process: int) -> float:
    """What a process has used until now."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(
    port: int, bodies: Iterator[bytes], events: int, connections: int, seconds: float, verbose: bool = False
) -> float:
    """Requests of so many events a second that were answered 202."""
    kind = b"application/json" if events == 1 else b"application/x-ndjson"
    until = time.perf_counter() + seconds
    began = time.perf_counter()
    done = await asyncio.gather(*(_client(port, bodies, kind, until, verbose) for _ in range(connections)))
    return sum(done) / (time.perf_counter() - began)


async def _client(port: int, bodies: Iterator[bytes], kind: bytes, until: float, verbose: bool) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MAX_LINE)
    path = b"/v1/events" if verbose else b"/v1/events?verbose=false"
    head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " + kind
    done = 0
    while time.perf_counter() < until:
        body = next(bodies)
        writer.write(b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 202"), answer
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        done += 1
    writer.close()
    return done


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
