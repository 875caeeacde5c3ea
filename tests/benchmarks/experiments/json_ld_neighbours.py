"""Single events beside a client that publishes the largest linked data that is accepted, again and again."""

import itertools
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "json_ld_neighbours"
TITLE = "p99 of publishing single events beside large linked data"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("published beside", "ms, p99", bars=True)
SEED = 1

SECONDS: dict[Scale, float] = {"quick": 3.0, "default": 20.0, "full": 60.0}
VOCAB = {"@vocab": "http://example.org/"}
NODES = 3_300
"""In a document: an event has at most 10,000 values."""
TOGETHER = 30
"""Documents in a request."""
BESIDE = ("nothing", "large documents, compiled", "large documents, PyLD", "the same as plain JSON")


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar for what is published beside."""
    return [Task("kindcast", beside, {"beside": beside, "seconds": SECONDS[scale]}) for beside in BESIDE]


def measure(*, beside: str, seconds: float) -> dict[str, Any]:
    """One client publishes single plain events for so long, another one requests of large documents."""
    body = _request(beside)
    stop = threading.Event()
    sent = [0, 0]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), {"KINDCAST_PLUGINS": "false"}) as server,
        httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client,
    ):
        client.post("/v1/subscriptions", json={"expression": "price > 10"}).raise_for_status()

        def publish_large() -> None:
            with httpx.Client(base_url=server.url, timeout=600, trust_env=False) as other:
                while not stop.is_set():
                    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(uuid.uuid4())}
                    answer = other.post("/v1/events?verbose=false", content=body, headers=headers)
                    told = answer.json()
                    sent[0] += told.get("accepted", 0)
                    sent[1] += len(told.get("rejected", ()))

        thread = threading.Thread(target=publish_large)
        if body:
            thread.start()
        took = []
        until = time.monotonic() + seconds
        for number in itertools.count():
            began = time.perf_counter()
            client.post("/v1/events?verbose=false", json={"price": number}).raise_for_status()
            took.append(time.perf_counter() - began)
            if time.monotonic() > until:
                break
        stop.set()
        if body:
            thread.join()
        megabytes = server.resident_megabytes()
    took.sort()
    return {
        "y": round(took[int(len(took) * 0.99)] * 1e3, 1),
        "p50_ms": round(took[len(took) // 2] * 1e3, 1),
        "most_ms": round(took[-1] * 1e3, 1),
        "singles": len(took),
        "large_accepted": sent[0],
        "large_refused": sent[1],
        "megabytes": megabytes,
    }


def _request(beside: str) -> bytes:
    """A request of documents. Their ids come from the key of the request, so they are new each time."""
    document: dict[str, Any] = {"p": [{"q": each} for each in range(NODES)]}
    if beside == "nothing":
        return b""
    if "JSON" not in beside:
        document = {"@context": VOCAB, **document}
    if "PyLD" in beside:
        document["p"].append({"@id": "urn:x:a"})
        document["@included"] = {"@id": "urn:x:a", "q": 1}  # no compiled context reads that
    return b"\n".join([msgspec.json.encode(document)] * TOGETHER)
