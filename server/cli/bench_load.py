"""The load of `kindcast bench` and of the benchmarks in the repository: subscriptions, events, and clients that publish
them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from kindcast.server.cli.output import CommandFailed

__all__ = ["CONNECTIONS", "Load", "bodies", "lines", "load"]

CONNECTIONS = {1: 16, 100: 4}
"""The number of events in a request → the number of clients, each of which waits for its answer."""
SUBSCRIPTIONS_OF_AN_ARTICLE = 5
MAX_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class Load:
    """The accepted requests of a load. `waits` has the seconds of each until its answer."""

    seconds: float
    waits: list[float]

    @property
    def rate(self) -> float:
        """The number of requests a second."""
        return len(self.waits) / self.seconds


def lines(start: int, end: int) -> bytes:
    """Returns subscriptions as lines of JSON. Some of them are about one article, each with another greatest price."""
    return b"\n".join(msgspec.json.encode({"where": _tree(number)}) for number in range(start, end))


def _tree(number: int) -> dict[str, Any]:
    price = 100 * (number % SUBSCRIPTIONS_OF_AN_ARTICLE + 1)
    return {"all": [{"=": ["article", f"A{number // SUBSCRIPTIONS_OF_AN_ARTICLE}"]}, {"<=": ["price", price]}]}


def bodies(subscriptions: int, events: int) -> Iterator[bytes]:
    """Yields the bodies of requests without end, each with so many events as lines of JSON."""
    articles = max(1, subscriptions // SUBSCRIPTIONS_OF_AN_ARTICLE)
    number = 0
    while True:
        told = []
        for _ in range(events):
            number += 1
            article = number * 7_919 % articles
            facts = {"article": f"A{article}", "price": 50 + number % 500, "site": "hall 7", "note": f"order {number}"}
            told.append(msgspec.json.encode(facts))
        yield b"\n".join(told)


async def load(
    port: int, bodies: Iterator[bytes], events: int, connections: int, seconds: float, verbose: bool = False
) -> Load:
    """Publishes to a server on this machine for so many seconds: `connections` clients send `bodies` of so many events,
    and each waits for its answer. Raises CommandFailed if the server refuses a request, or does
    not answer.

    The clients write HTTP themselves, because a library takes longer for a request than the server.
    """
    kind = b"application/json" if events == 1 else b"application/x-ndjson"
    began = time.perf_counter()
    clients = (_client(port, bodies, kind, began + seconds, verbose) for _ in range(connections))
    try:
        waits = await asyncio.gather(*clients)
    except (OSError, EOFError) as error:
        raise CommandFailed("the server does not answer any more") from error
    return Load(time.perf_counter() - began, [each for some in waits for each in some])


async def _client(port: int, bodies: Iterator[bytes], kind: bytes, until: float, verbose: bool) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MAX_LINE)
    path = b"/v1/events" if verbose else b"/v1/events?verbose=false"
    head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " + kind
    waits: list[float] = []
    try:
        began = time.perf_counter()
        while began < until or not waits:
            body = next(bodies)
            writer.write(b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            content = await reader.readexactly(length)
            if not answer.startswith(b"HTTP/1.1 202"):
                raise CommandFailed(f"the server refused an event: {content.decode(errors='replace')[:500]}")
            ended = time.perf_counter()
            waits.append(ended - began)
            began = ended
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return waits
