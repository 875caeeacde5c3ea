"""Good clients beside bad ones: what it costs those who publish and receive that others try to stop the server.

    publisher, sinks ──alone──▶ p99 of publishing and of delivery ──┐
                     ──beside bad clients──▶ the same, and memory ──┴──▶ ratios

The bad ones: patterns on long texts, requests that match thousands of events, many large events, silent connections,
heads and bodies that never end, readers that do not read, and sinks that hang, drip, or answer 1xx for ever. Real
processes and sockets; the bad clients have the lowest priority on this machine.
Nothing of the good ones may be lost; how long it takes is told, and bounded by `--ratio` only where that is given.
"""

import argparse
import multiprocessing
import os
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event as Stop
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.campaigns.campaign import Outcome, Told
from tests.harness.receiver import Receiver, running_receiver
from tests.harness.server_process import ServerProcess, fresh_servers, running_server

ABOUT = "good clients beside bad ones: p99 of publishing and of delivery with and without them, memory"

SINKS = 4
"""Good ones: each gets every good event."""
LARGE_CONNECTIONS = 20
"""Over which large events are published."""
BAD_SINKS = 30
"""Of each kind, each at an address of its own."""
WARM_SECONDS = 3.0
"""Not measured, alone and beside bad clients: the server loads modules and kernels when they are first used."""
PATIENCE_SECONDS = 60.0
ROOM_MEGABYTES = 600
"""By which the server may grow: it may hold 256 MiB of bodies, and what it makes of them."""
HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass(slots=True)
class Measured:
    """Seconds of each publish and each delivery of the good ones, and the server's largest memory in MB."""

    publishes: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    megabytes: int = 0
    missing: int = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this campaign may be told."""
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two parts")
    parser.add_argument("--each", action="store_true", help="every kind of bad client by itself, before all together")
    parser.add_argument("--ratio", type=float, default=None, help="fail where a p99 grows by more than this factor")


def run(options: Any, told: Told) -> Outcome:
    """Good clients alone, then beside bad ones, and how the two compare."""
    folder = Path(tempfile.mkdtemp(prefix="kindcast-neighbours-"))
    kinds = [*([each] for each in BAD if options.each), BAD]
    lines, failures = [], list[str]()
    try:
        for number, bad in enumerate(kinds):
            name = bad[0].__name__ if len(bad) == 1 else "all"
            told(number, len(kinds), f"{name}: good clients alone, then beside")
            with fresh_servers():
                alone = measured(folder / f"{name}-alone", options.seconds, [])
                beside = measured(folder / f"{name}-beside", options.seconds, bad)
            line, wrong = compared(alone, beside, options.ratio)
            lines.append(f"{name}: {line}")
            failures += [f"{name}: {each}" for each in wrong]
        told(len(kinds), len(kinds), "done")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome("; ".join(lines), failures)


def compared(alone: Measured, beside: Measured, ratio: float | None) -> tuple[str, list[str]]:
    """What changed, and what may not be."""
    publish = p99(beside.publishes) / p99(alone.publishes)
    deliver = p99(beside.deliveries) / p99(alone.deliveries)
    failures = faults(alone) + faults(beside)
    if beside.megabytes > alone.megabytes + ROOM_MEGABYTES:
        failures.append(f"{beside.megabytes} MB beside bad clients, {alone.megabytes} MB without")
    if ratio is not None and max(publish, deliver) > ratio:
        failures.append(f"p99 grew by {publish:.1f} (publish) and {deliver:.1f} (delivery)")
    summary = (
        f"publish p99 {p99(alone.publishes) * 1e3:.0f} → {p99(beside.publishes) * 1e3:.0f} ms, delivery p50"
        f" {median(alone.deliveries) * 1e3:.0f} → {median(beside.deliveries) * 1e3:.0f}, p99"
        f" {p99(alone.deliveries) * 1e3:.0f} → {p99(beside.deliveries) * 1e3:.0f} ms, {alone.megabytes} →"
        f" {beside.megabytes} MB, {len(alone.publishes):,} and {len(beside.publishes):,} events,"
        f" {alone.missing + beside.missing} missing"
    )
    return summary, failures


def faults(found: Measured) -> list[str]:
    """What may not be."""
    return [f"{found.missing} deliveries are missing"] if found.missing else []


def p99(seconds: list[float]) -> float:
    """The 99th percentile."""
    return sorted(seconds)[int(len(seconds) * 0.99)]


def measured(data: Path, seconds: float, bad: "list[Bad]") -> Measured:
    """Publish for so many seconds, after the warm ones, beside these bad clients, to good sinks; then wait for the last
    delivery."""
    found = Measured()
    environment = {
        "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
        "KINDCAST_HEADER_SECONDS": "2",
        "KINDCAST_BODY_SECONDS": "2",
    }
    with (
        running_server(data, environment) as server,
        running_receiver() as receiver,
        httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        for number in range(SINKS):
            asked = {"expression": "good >= 0", "sink": f"{receiver.url}/{number}"}
            assert client.post("/v1/subscriptions", json=asked).status_code == 201
        with being_bad(server.url, bad):
            _publish(client, server, receiver, found, seconds)
    return found


def _publish(client: httpx.Client, server: ServerProcess, receiver: Receiver, found: Measured, seconds: float) -> None:
    warm, number = time.monotonic() + WARM_SECONDS, 0
    while (began := time.monotonic()) < warm + seconds:
        answer = client.post("/v1/events", json={"good": number})
        assert answer.status_code == 202, answer.text
        published = time.monotonic() - began
        number += 1
        delivered = receiver.holds_within(PATIENCE_SECONDS, partial(_has, receiver, number * SINKS))
        if began >= warm or not delivered:
            found.publishes.append(published)
            found.deliveries.append(time.monotonic() - began)
        if not delivered:
            break
        found.megabytes = max(found.megabytes, server.resident_megabytes())
    got = {(request.path, request.message["event"]["data"]["good"]) for request in receiver.requests()}
    found.missing = number * SINKS - len(got)


def _has(receiver: Receiver, count: int) -> bool:
    return len(receiver.requests()) >= count


# ── bad clients ─────────────────────────────────────────────────────────────────────────────────────────────────────

Bad = Callable[[str, int, Stop], None]


def _asking(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=PATIENCE_SECONDS)


def patterns(url: str, port: int, stop: Stop) -> None:
    """A large pattern, and long texts again and again."""
    with _asking(url) as client, suppress(httpx.HTTPError):
        client.post("/v1/subscriptions", json={"expression": 'bad matches ".{0,900}z"'})
        while not stop.wait(0.2):
            client.post("/v1/events", json={"bad": "a" * 100_000})


def previews(url: str, port: int, stop: Stop) -> None:
    """Thousands of events that are only matched, by clients that do not wait for the answer."""
    with _asking(url) as client:
        client.timeout = httpx.Timeout(1.0)
        while not stop.wait(0.05):
            with suppress(httpx.HTTPError):
                client.post("/v1/match", json={"events": [{"good": 1, "bad": "a" * 100}] * 5_000})


def large_events(url: str, port: int, stop: Stop) -> None:
    """Events of thousands of values, over many connections, as fast as they are accepted."""
    event = {f"a{number}": number for number in range(9_000)}

    def publish() -> None:
        with _asking(url) as client, suppress(httpx.HTTPError):
            while not stop.is_set():
                client.post("/v1/events", json=event)

    publishing = [threading.Thread(target=publish, daemon=True) for _ in range(LARGE_CONNECTIONS)]
    for each in publishing:
        each.start()
    stop.wait()
    for each in publishing:
        each.join()


def unfinished(url: str, port: int, stop: Stop) -> None:
    """Silent connections, endless heads, bodies that drip, and bodies that stop before their end."""
    starts = (b"", b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000, HEAD + b"Content-Length: 9999\r\n\r\n ", _large_body())
    address = urlsplit(url)
    while not stop.is_set():
        with ExitStack() as opened:
            for number in range(80):
                with suppress(OSError):
                    client = opened.enter_context(socket.create_connection((address.hostname, address.port), 1.0))
                    client.sendall(starts[number % len(starts)])
            stop.wait(3.0)


def _large_body() -> bytes:
    return HEAD + b"Content-Length: 15000000\r\n\r\n" + b" " * 4_000_000


def idle_readers(url: str, port: int, stop: Stop) -> None:
    """Streams that nobody reads from."""
    address = urlsplit(url)
    with ExitStack() as opened, _asking(url) as client, suppress(httpx.HTTPError, OSError):
        id = client.post("/v1/subscriptions", json={"expression": "bad exists"}).json()["id"]
        for _ in range(50):
            reader = opened.enter_context(socket.create_connection((address.hostname, address.port), 1.0))
            reader.sendall(f"GET /v1/subscriptions/{id}/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        stop.wait()


def sinks(url: str, port: int, stop: Stop) -> None:
    """Sinks that never answer, that drip after their status, and that answer 1xx for ever."""
    with _asking(url) as client, suppress(httpx.HTTPError):
        for number in range(BAD_SINKS):
            for kind, name in enumerate(("hole", "drip", "interim")):
                sink = f"http://127.0.{kind + 1}.{number + 1}:{port}/{name}"
                client.post("/v1/subscriptions", json={"expression": "good >= 0", "sink": sink})
        stop.wait()


BAD: list[Bad] = [patterns, previews, large_events, unfinished, idle_readers, sinks]


@contextmanager
def being_bad(url: str, bad: list[Bad]) -> Iterator[None]:
    """Bad clients and sinks in a process of their own, while the block runs."""
    if not bad:
        yield
        return
    context = multiprocessing.get_context("spawn")
    stop, begun = context.Event(), context.Event()
    process = context.Process(target=_be_bad, args=(url, bad, begun, stop), daemon=True)
    process.start()
    try:
        assert begun.wait(PATIENCE_SECONDS), "the bad clients did not start"
        yield
    finally:
        stop.set()
        process.join(PATIENCE_SECONDS)
        process.kill()
        process.join()


def _be_bad(url: str, bad: list[Bad], begun: Stop, stop: Stop) -> None:
    os.nice(19)  # they would have machines of their own, and take no processor time from the server
    with bad_sinks() as port:
        threads = [threading.Thread(target=each, args=(url, port, stop), daemon=True) for each in bad]
        for thread in threads:
            thread.start()
        begun.set()
        stop.wait()


@contextmanager
def bad_sinks() -> Iterator[int]:
    """A port, on all addresses of this machine's loopback, where sinks misbehave by the name of their path."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                asked = self.request.recv(65_536)
                if b"/drip " in asked:
                    self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
                while not closing.wait(0.5):
                    if b"/drip " in asked:
                        self.request.sendall(b"x")
                    elif b"/interim " in asked:
                        self.request.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 256

    closing = threading.Event()
    with Server(("0.0.0.0", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            closing.set()
            server.shutdown()
            thread.join()
