"""What open pages of the console cost publishers: 1,000 events a second, with and without twenty pages."""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from kindcast.semantic.shipped_vocabularies import shipped
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "console_pages"
TITLE = "Publishing beside open pages of the console (1,000 events a second)"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("open pages", "p99 of publishing, over that without pages", bars=True)
SEED = 1

PAGES = (5, 20)
SECONDS: dict[Scale, float] = {"quick": 1.0, "default": 10.0, "full": 30.0}
ROUNDS: dict[Scale, int] = {"quick": 1, "default": 5, "full": 7}
RATE = 1_000
"""Events a second."""
EVENTS = 20
"""In one request."""
SUBSCRIPTIONS = 1_000
POLL_SECONDS = 15.0
"""How often a page asks for the series of measurements, as the page Health does."""


def tasks(scale: Scale) -> Sequence[Task]:
    """By the number of pages."""
    return [
        Task("kindcast", str(pages), {"pages": pages, "seconds": SECONDS[scale], "rounds": ROUNDS[scale]})
        for pages in PAGES
    ]


def measure(*, pages: int, seconds: float, rounds: int) -> dict[str, Any]:
    """The median of the rounds' ratios; a round publishes for `seconds` without pages and then with them, or the other
    way round. A page is what the console holds of it: the stream of the live events, and a look at the measurements
    every 15 s. The pages are in a process of their own; drawing them costs another machine."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running_server(Path(folder) / "server"))
        with httpx.Client(base_url=server.url, timeout=60.0, trust_env=False) as client:
            headers = {"Content-Type": "text/turtle"}
            client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes(), headers=headers).raise_for_status()
            lines = [{"expression": f"target isa Computer and price <= {price} USD"} for price in range(SUBSCRIPTIONS)]
            body = "\n".join(map(json.dumps, lines))
            client.post(
                "/v1/subscriptions/import", content=body, headers={"Content-Type": "application/x-ndjson"}
            ).raise_for_status()
        asyncio.run(_publish(server.url, 1.0))
        ratios, without, beside, seen = [], [], [], 0
        for number in range(rounds):
            found = {}
            for watched in (False, True) if number % 2 else (True, False):
                found[watched], received = asyncio.run(_round(server.url, pages if watched else 0, seconds))
                seen += received
            without.append(found[False])
            beside.append(found[True])
            ratios.append(found[True] / found[False])
    return {
        "y": round(statistics.median(ratios), 3),
        "p99_ms_without": round(statistics.median(without), 2),
        "p99_ms_beside": round(statistics.median(beside), 2),
        "least_ratio": round(min(ratios), 3),
        "most_ratio": round(max(ratios), 3),
        "messages_seen": seen,
    }


async def _round(address: str, pages: int, seconds: float) -> tuple[float, int]:
    """The p99 in ms, and how many messages the pages got."""
    watching = None
    if pages:
        watching = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            address,
            str(pages),
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.PIPE,
        )
        assert watching.stdout is not None
        assert (await watching.stdout.readline()) == b"open\n"
    p99 = await _publish(address, seconds)
    if watching is None:
        return p99, 0
    told, _ = await watching.communicate(b"stop\n")
    return p99, int(told)


async def _publish(address: str, seconds: float) -> float:
    """The p99 of the requests' times in ms. Requests begin at fixed times, whether the ones before have ended."""
    taken: list[float] = []

    async def one(client: httpx.AsyncClient, due: float, number: int) -> None:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        body = "\n".join(
            json.dumps({"target": "Notebook", "price": f"{(number * EVENTS + each) % 997 + 3} USD"})
            for each in range(EVENTS)
        )
        headers = {"Content-Type": "application/x-ndjson"}
        (await client.post("/v1/events", content=body, headers=headers)).raise_for_status()
        taken.append((time.perf_counter() - due) * 1e3)

    async with httpx.AsyncClient(base_url=address, timeout=60.0, trust_env=False) as client:
        began = time.perf_counter() + 0.1
        step = EVENTS / RATE
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds / step)):
                group.create_task(one(client, began + number * step, number))
    taken.sort()
    return taken[int(len(taken) * 0.99)]


async def _watch(address: str, pages: int) -> None:
    """Prints `open` when all pages are there, and how many messages they got when a line comes in."""
    received = 0
    connected = asyncio.Semaphore(0)

    async def page(client: httpx.AsyncClient) -> None:
        nonlocal received
        async with client.stream("GET", "/v1/events/stream") as stream:
            connected.release()
            async for line in stream.aiter_lines():
                received += line.startswith("data:")

    async def look(client: httpx.AsyncClient) -> None:
        while True:
            await client.get("/v1/series?points=480")
            await asyncio.sleep(POLL_SECONDS)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=None, trust_env=False, limits=limits) as client:
        tasks = [asyncio.create_task(work(client)) for _ in range(pages) for work in (page, look)]
        for _ in range(pages):
            await connected.acquire()
        sys.stdout.write("open\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    sys.stdout.write(f"{received}\n")


if __name__ == "__main__":
    asyncio.run(_watch(sys.argv[1], int(sys.argv[2])))
