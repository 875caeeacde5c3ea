"""How long until one event has reached many webhooks, or many streams, each of a subscription of its own."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.experiments.publish_rates import cpu_seconds
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import ServerProcess, running_server

NAME = "many_receivers"
TITLE = "One event for many receivers"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("receivers", "messages a second", log_x=True)
SEED = 1

RECEIVERS: dict[Scale, tuple[int, ...]] = {"quick": (20,), "default": (100, 1_000), "full": (100, 1_000, 10_000)}
MOST_STREAMS = 1_000
EVENTS: dict[Scale, int] = {"quick": 2, "default": 9, "full": 9}
HOSTS = 50
"""The receivers are at so many addresses, because one address gets few requests at a time."""
IMPORTED = 1_000
PATIENCE_SECONDS = 300.0


def tasks(scale: Scale) -> Sequence[Task]:
    """Webhooks and streams, few ones first."""
    return [
        Task(way, n, {"way": way, "n": n, "events": EVENTS[scale]})
        for way in ("webhooks", "streams")
        for n in RECEIVERS[scale]
        if way == "webhooks" or n <= MOST_STREAMS
    ]


def measure(*, way: str, n: int, events: int) -> dict[str, Any]:
    """The median of events, one after the other. The first one is not counted, because connections are made then. The
    receivers are in this process, and read as little as they can."""
    environment = {
        "KINDCAST_PLUGINS": "false",
        "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
        "KINDCAST_MAX_CONNECTIONS_PER_ADDRESS": str(2 * n + 100),
        "KINDCAST_MAX_CONNECTIONS": str(2 * n + 100),
    }
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "data", environment) as server:
        receiving = _webhooks if way == "webhooks" else _streams
        return asyncio.run(_measured(server, receiving, n, events))


async def _measured(server: ServerProcess, receiving: Any, n: int, events: int) -> dict[str, Any]:
    seconds, busy = [], []
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
        receiving(server, client, n) as received,
    ):
        for number in range(events + 1):
            wanted, began, cpu = received() + n, time.perf_counter(), cpu_seconds(server.number)
            (await client.post("/v1/events", json={"reading": number})).raise_for_status()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while received() < wanted:
                    await asyncio.sleep(0.002)
            seconds.append(time.perf_counter() - began)
            busy.append(cpu_seconds(server.number) - cpu)
    return {
        "y": round(n / statistics.median(seconds[1:])),
        "seconds": round(statistics.median(seconds[1:]), 2),
        "server_us": round(statistics.median(busy[1:]) / n * 1e6),
    }


async def _subscribed(client: httpx.AsyncClient, lines: Sequence[dict[str, Any]]) -> list[str]:
    ids = []
    for begin in range(0, len(lines), IMPORTED):
        body = "\n".join(map(json.dumps, lines[begin : begin + IMPORTED]))
        answer = await client.post(
            "/v1/subscriptions/import", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        ids += [each["id"] for each in answer.raise_for_status().json()["created"]]
    return ids


@asynccontextmanager
async def _webhooks(server: ServerProcess, client: httpx.AsyncClient, n: int) -> AsyncIterator[Callable[[], int]]:
    count = [0]

    class Receiver(asyncio.Protocol):
        """Answers each request with 204. A request is a head and a body of the length that the head says."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport, self._left = transport, b""

        def data_received(self, data: bytes) -> None:
            self._left += data
            head, end, body = self._left.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if end and len(body) >= length:
                self._left = body[length:]
                count[0] += 1
                assert isinstance(self._transport, asyncio.WriteTransport)
                self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    listening = await asyncio.get_running_loop().create_server(Receiver, "0.0.0.0", 0, backlog=1_024)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        sinks = [f"http://127.0.1.{1 + number % HOSTS}:{port}/{number}" for number in range(n)]
        await _subscribed(client, [{"expression": "reading >= 0", "sink": sink} for sink in sinks])
        yield lambda: count[0]


@asynccontextmanager
async def _streams(server: ServerProcess, client: httpx.AsyncClient, n: int) -> AsyncIterator[Callable[[], int]]:
    count = [0]

    async def follow(id: str, begun: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET /v1/subscriptions/{id}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while line := await reader.readline():
            begun.set()
            count[0] += line.startswith(b"data: {") and b'"reading"' in line

    async with asyncio.TaskGroup() as group:
        following = []
        for id in await _subscribed(client, [{"expression": "reading >= 0"}] * n):
            begun = asyncio.Event()
            following.append(group.create_task(follow(id, begun)))
            await begun.wait()
        yield lambda: count[0]
        for each in following:
            each.cancel()
