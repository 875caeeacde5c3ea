"""Matches that Spark found, in the queues of a server: each once, over kills of the server and of the stream."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.delivering_streams import DeliveringStreams
from tests.spark.test_stream_sources import IN_A_FILE, offer, put, wanted
from tests.unit.semantic.operators.builtin.test_pictures import png

PATIENCE_SECONDS = 120.0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[DeliveringStreams]:
    found = DeliveringStreams(tmp_path)
    found.subscribe(cheap="price < 10", computers="target isa Computer")
    try:
        yield found
    finally:
        found.server.kill()


def until(holds: Callable[[], Any], job: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def test_matches_of_a_stream_arrive_once_each_over_kills(shop: DeliveringStreams) -> None:
    """The server is killed while the stream goes on, then the stream with its outbox. The server never matched an
    event. Plain lines get a name by what they say, bindings come along, and what the server cannot take is set aside
    with the reason."""
    shop.subscribe(bright="brightness(@image, ?b) and ?b > 0.5")
    put(shop.folder, 0)
    job = shop.stream()
    try:
        until(lambda: len(shop.got("cheap")) >= IN_A_FILE // 2, job)
        shop.server.kill()
        for file in range(1, 4):
            put(shop.folder, file)
        outboxes = shop.folder / "out"
        until(lambda: any(outboxes.glob("batch=*/_outbox/*.ndjson")), job)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    shop.server.start()
    white = png(np.full((2, 2, 3), 255, dtype=np.uint8))
    lines = [{"target": "laptop", "price": 30}, {"image": white}, {**offer(4), "id": "long" * 1_000}]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (shop.folder / "in" / "lines.ndjson").write_text(text, encoding="utf-8")
    files = 6
    for file in range(4, files):
        put(shop.folder, file)
    status, told, errors = shop.once()
    assert status == 0, errors
    assert told["delivered"]["unmatched"] == 0
    assert told["delivered"]["refused"] == 1
    assert not list(outboxes.glob("batch=*/_outbox"))
    names = {each: [str(message["event"]["id"]) for message in shop.got(each)] for each in ("cheap", "computers")}
    for name, found in names.items():
        numbers = [int(each) for each in found if each.isdigit()]
        assert Counter(numbers) == Counter(each for each in range(files * IN_A_FILE) if name in wanted(each))
    (refused,) = (
        json.loads(line)
        for path in outboxes.glob("batch=*/_refused/*.ndjson")
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    assert refused["match"]["event"]["id"] == "long" * 1_000
    assert "id must have at most" in refused["reason"]
    (message,) = shop.got("bright")
    assert message["bindings"] == [{"b": 1.0}]
    assert message["event"]["id"].startswith("lines.ndjson:2:")
    (plain,) = (message for message in shop.got("computers") if message["event"]["id"].startswith("lines.ndjson:"))
    assert plain["event"]["data"] == lines[0]
    with shop.client() as client:
        assert client.publish(offer(0))["duplicates"] == 1
