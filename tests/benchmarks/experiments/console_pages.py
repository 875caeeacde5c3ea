"""What open pages of the console cost publishers: 1,000 events a second, with and without twenty pages."""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from kindcast.semantic.shipped_vocabularies import shipped
from tests.benchmarks.experiments.publish_rates import cpu_seconds
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "console_pages"
TITLE = "Publishing beside open pages of the console (1,000 events a second)"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("open pages", "p99 of publishing, over that without pages", bars=True)
SEED = 1

PAGES = ("live",) * 8 + ("source",) * 2 + ("health",) * 4 + ("deliveries",) * 4 + ("vocabulary", "subscribe")
"""Twenty: Live, Live of one source, Health, Deliveries of one subscription, Vocabulary, and an editor that tries an
expression on the events that come."""
SECONDS: dict[Scale, float] = {"quick": 1.0, "default": 3.0, "full": 20.0}
ROUNDS: dict[Scale, int] = {"quick": 1, "default": 14, "full": 20}
RATE = 1_000
"""Events a second, each in a request of its own."""
CONNECTIONS = 16
"""Of the publishers."""
SUBSCRIPTIONS = 1_000
TRIED = "target isa Computer and price <= 400 USD"


def tasks(scale: Scale) -> Sequence[Task]:
    """One point."""
    return [Task("kindcast", str(len(PAGES)), {"seconds": SECONDS[scale], "rounds": ROUNDS[scale]})]


def measure(*, seconds: float, rounds: int) -> dict[str, Any]:
    """`y` is the median p99 beside pages over the median p99 without. A round publishes for `seconds` without pages and
    then with them, or the other way round. A page is what it asks the server for, over connections as a browser has
    them; drawing it costs another machine. The pages are in a process of their own, and so is the server."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running_server(Path(folder) / "server", {"KINDCAST_PLUGINS": "false"}))
        id = _filled(server.url)
        bodies = _bodies()
        asyncio.run(_publish(server.port, bodies, 2.0))
        p99: dict[bool, list[float]] = {False: [], True: []}
        cpu: dict[bool, list[float]] = {False: [], True: []}
        seen = 0
        for number in range(rounds):
            for watched in (False, True) if number % 2 else (True, False):
                times, used, received = asyncio.run(
                    _round(server.port, server.number, bodies, id if watched else "", seconds)
                )
                p99[watched].append(times[int(len(times) * 0.99)])
                cpu[watched].append(used / len(times) * 1e6)
                seen += received
    ratios = [beside / without for beside, without in zip(p99[True], p99[False], strict=True)]
    return {
        "y": round(statistics.median(p99[True]) / statistics.median(p99[False]), 3),
        "p99_ms_without": round(statistics.median(p99[False]), 2),
        "p99_ms_beside": round(statistics.median(p99[True]), 2),
        "least_ratio": round(min(ratios), 3),
        "most_ratio": round(max(ratios), 3),
        "cpu_ms_without": round(statistics.median(cpu[False])),
        "cpu_ms_beside": round(statistics.median(cpu[True])),
        "messages_seen": seen,
    }


def _filled(url: str) -> str:
    """Loads a vocabulary and makes subscriptions; returns the id of one."""
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:
        turtle = {"Content-Type": "text/turtle"}
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes(), headers=turtle).raise_for_status()
        lines = [{"expression": f"target isa Computer and price <= {price} USD"} for price in range(SUBSCRIPTIONS)]
        body, kind = "\n".join(map(json.dumps, lines)), {"Content-Type": "application/x-ndjson"}
        client.post("/v1/subscriptions/import", content=body, headers=kind).raise_for_status()
        found = client.get("/v1/subscriptions?limit=1").raise_for_status().json()["subscriptions"]
        return str(found[0]["id"])


# ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _bodies() -> Iterator[bytes]:
    """Events without end. Each matches three subscriptions of a thousand."""
    for number in count():
        data = {"target": "Notebook", "price": f"{SUBSCRIPTIONS - 3 + number % 500 / 1_000} USD", "number": number}
        yield json.dumps(data).encode()


async def _round(port: int, process: int, bodies: Iterator[bytes], id: str, seconds: float) -> tuple[Any, float, int]:
    """The times of the requests in ms, sorted, the CPU seconds of the server, and how many messages the pages got.
    Without an id there are no pages."""
    async with _watched(port, id) as received:
        before = cpu_seconds(process)
        times = await _publish(port, bodies, seconds)
        used = cpu_seconds(process) - before
    return times, used, sum(received)


async def _publish(port: int, bodies: Iterator[bytes], seconds: float) -> list[float]:
    """The times of the requests in ms, sorted: from when one was due, whether the ones before have ended."""
    taken: list[float] = []
    due = iter([time.perf_counter() + 0.1 + number / RATE for number in range(int(seconds * RATE))])

    async def publisher() -> None:
        connection = await Connection.open(port)
        for moment in due:
            if (early := moment - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            await connection.ask("POST", "/v1/events?verbose=false", next(bodies))
            taken.append((time.perf_counter() - moment) * 1e3)
        connection.close()

    await asyncio.gather(*(publisher() for _ in range(CONNECTIONS)))
    return sorted(taken)


class Connection:
    """HTTP/1.1 as a browser speaks it, without what a client library costs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connects."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    async def ask(self, method: str, path: str, body: bytes = b"", kind: bytes = b"application/json") -> bytes:
        """The body of the answer."""
        await self.begin(method, path, body, kind)
        return await self.reader.readexactly(self._length)

    async def begin(self, method: str, path: str, body: bytes = b"", kind: bytes = b"application/json") -> None:
        """Sends a request and reads the head of its answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\nContent-Type: ".encode()
        self._writer.write(b"%b%b\r\n\r\n%b" % (head, kind, body))
        told = await self.reader.readuntil(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 20"), told
        self._length = int(told.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)

    def close(self) -> None:
        """Leaves."""
        self._writer.close()


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _watched(port: int, id: str) -> AsyncIterator[list[int]]:
    """With the pages open, unless there is no id. After the block the list says how many messages they got."""
    received: list[int] = []
    if not id:
        yield received
        return
    command = (sys.executable, "-m", __name__, str(port), id)
    pages = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert pages.stdout is not None
    assert (await pages.stdout.readline()) == b"open\n"
    yield received
    told, _ = await pages.communicate(b"stop\n")
    assert pages.returncode == 0, "a page failed"
    received.append(int(told))


async def _watch(port: int, id: str) -> None:
    """Says `open` when all pages are there, and how many messages they got when a line comes in. The process gives way
    to the others, as a browser on another machine does."""
    os.nice(5)
    messages: list[bytes] = []
    newest: dict[str, bytes] = {}
    opened = asyncio.Semaphore(0)

    async def follow(source: str = "") -> None:
        connection = await Connection.open(port)
        await connection.begin("GET", "/v1/events/stream" + (source and "?source=" + quote(source)))
        opened.release()
        while chunk := await connection.reader.readuntil(b"\n\n"):
            if b"event: events\n" in chunk:
                messages.append(b"")
                newest["told"] = chunk

    async def poll(seconds: float, late: float, *paths: str) -> None:
        opened.release()
        await asyncio.sleep(late * seconds)
        while True:
            await asyncio.gather(*map(look, paths))
            await asyncio.sleep(seconds)

    async def look(path: str) -> None:
        connection = await Connection.open(port)  # the server closes one that says nothing for some seconds
        await connection.ask("GET", path)
        connection.close()

    async def try_events() -> None:
        connection = await Connection.open(port)
        opened.release()
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            if "told" in newest:
                told = json.loads(newest.pop("told").partition(b"data:")[2].partition(b"\r\n")[0])
                asked = {"event": told["events"][-1]["event"], "subscription": TRIED}
                await connection.ask("POST", "/v1/explain?index=false&lang=en", json.dumps(asked).encode())

    of_subscription = (f"subscriptions/{id}", f"subscriptions/{id}/attempts?limit=50")
    asks = {
        "health": (15.0, "/v1/series?points=480", "/readyz", "/v1/operators"),
        "deliveries": (
            5.0,
            *(f"/v1/{each}" for each in of_subscription),
            f"/v1/dead-letters?subscription={id}&limit=50",
        ),
        "vocabulary": (5.0, "/v1/concepts?q=note&limit=20", "/v1/concepts/children?term=Computer&limit=500&lang=en"),
    }
    running = []
    for place, name in enumerate(PAGES):
        if name in asks:
            seconds, *paths = asks[name]
            running.append(poll(seconds, place / len(PAGES), *paths))
        elif name == "subscribe":
            running += [follow(), try_events()]
        else:
            running.append(follow("urn:kindcast:anonymous" if name == "source" else ""))
    pages = [asyncio.create_task(each) for each in running]
    for _ in pages:
        await opened.acquire()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    for each in pages:
        assert not each.done(), each.exception()
        each.cancel()
    sys.stdout.write(f"{len(messages)}\n")


PAUSE_SECONDS = 0.25

if __name__ == "__main__":
    asyncio.run(_watch(int(sys.argv[1]), sys.argv[2]))
