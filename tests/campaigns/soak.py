"""One server under load for hours: its books add up, every reader gets everything once, and its memory stays.

Publishers, readers that acknowledge, subscriptions that come and go, versions of an ontology that change under way,
all through the client. Every few seconds the books are read: accepted = published, matches = delivered + pending +
discarded.
Memory is compared between the first and the last quarter, since a server's caches fill at the beginning.
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from kindcast import Client
from kindcast.server.store.backup import MAIN, reading
from kindcast.server.store.ledger import uncounted
from tests.campaigns.campaign import Outcome, Told
from tests.harness.server_process import ServerProcess, running_server

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "a server under load for hours has totals that add up, messages in order, and memory that does not grow"
GROWN = 1.5
"""Times the memory of the first quarter, beyond which it is said to grow."""
BATCH = 50
LOOK_SECONDS = 2.0
PREFIXES = "@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
VERSIONS = tuple(
    PREFIXES + "".join(f':C{n} rdfs:subClassOf :C{n // 2} ; rdfs:label "kind {n}" .\n' for n in range(1, size))
    for size in (60, 90)
)
EXPRESSIONS = ("target isa <http://example.org/C1>", "target isa <http://example.org/C3> and price < 50", "price < 10")
SETTINGS = {"KINDCAST_RETENTION_SECONDS": "600", "KINDCAST_SWEEP_SECONDS": "5", "KINDCAST_PLUGINS": "false"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """How long."""
    parser.add_argument("--minutes", type=float, default=60.0)


def run(options: Any, told: Told) -> Outcome:
    """Load until the time is over, then one last look at the books."""
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder), SETTINGS) as server:
        soak = _Soak(server, options.seed)
        return soak.run(options.minutes * 60, told)


class _Soak:
    """The load, and what it knows that the server must know as well."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.stopping = threading.Event()
        self.failures: list[str] = []
        self.published = self.read = 0
        self.memory: list[int] = []

    def run(self, seconds: float, told: Told) -> Outcome:
        with Client(self.server.url) as client:
            client.put_ontology("soak", VERSIONS[0], content_type="text/turtle")
            lasting = [client.subscribe(expression) for expression in EXPRESSIONS]
            works: list[Callable[[Client, random.Random], None]] = [self.publish, self.come_and_go, self.change]
            works += [lambda client, _, each=each: self.follow(client, each) for each in lasting]  # type: ignore[misc]
            threads = [threading.Thread(target=self._again, args=(work, self.chance.random())) for work in works]
            for thread in threads:
                thread.start()
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0 and not self.failures:
                self.look()
                told(seconds - left, seconds, f"{self.published:,} events, {self.memory[-1]:,} MB")
                self.stopping.wait(min(left, LOOK_SECONDS))
            self.stopping.set()
            for thread in threads:
                thread.join()
            for each in lasting:
                while self.follow(client, each):
                    pass
            books = self.look()
        if books["events_accepted"] != self.published:
            self.failures.append(f"published {self.published:,}, accepted {books['events_accepted']:,}")
        quarter = max(1, len(self.memory) // 4)
        first, last = max(self.memory[:quarter]), max(self.memory[-quarter:])
        if len(self.memory) >= 40 and last > GROWN * first:
            self.failures.append(f"memory grew from {first:,} MB to {last:,} MB")
        told(seconds, seconds, f"{self.published:,} events, {last:,} MB")
        summary = f"{self.published:,} events, {self.read:,} messages read, {first:,} MB at first, {last:,} MB at last"
        return Outcome(f"{summary}: {len(self.failures)} failures", self.failures)

    # ── what goes on ────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, client: Client, chance: random.Random) -> None:
        """A batch; all of it is accepted."""
        events = [
            {
                "target": f"kind {chance.randrange(1, 60)}",
                "price": chance.randrange(100),
                "box": [{"n": chance.random()}],
            }
            for _ in range(BATCH)
        ]
        answer = client.publish(events)
        if answer["accepted"] != BATCH:
            self.failures.append(f"of {BATCH} events {answer['accepted']} were accepted")
        self.published += answer["accepted"]
        self.stopping.wait(0.05)

    def come_and_go(self, client: Client, chance: random.Random) -> None:
        """A subscription that does not last."""
        made = client.subscribe(chance.choice(EXPRESSIONS))
        self.stopping.wait(chance.random())
        client.unsubscribe(made["id"], ticket=made["ticket"])

    def change(self, client: Client, chance: random.Random) -> None:
        """Another version of the ontology."""
        client.put_ontology("soak", chance.choice(VERSIONS), content_type="text/turtle")
        self.stopping.wait(2.0)

    def follow(self, client: Client, made: dict[str, Any]) -> bool:
        """Reads a page and acknowledges it; messages come in order and once."""
        page = client.pull(made["id"], limit=1_000)
        cursors = [int(message["cursor"]) for message in page["events"]]
        if cursors != sorted(set(cursors)) or (cursors and cursors[0] <= made.get("read", 0)):
            self.failures.append(f"messages of {made['id']} came twice or out of order: {cursors[:5]} …")
        if cursors:
            made["read"] = cursors[-1]
            self.read += len(cursors)
            client.ack(made["id"], cursors[-1], ticket=made["ticket"])
        else:
            self.stopping.wait(0.1)
        return bool(cursors)

    def look(self) -> dict[str, int]:
        """The books and the memory."""
        books = {}
        for line in httpx.get(f"{self.server.url}/metrics", trust_env=False).text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("kindcast_") and "{" not in name:
                books[name.removeprefix("kindcast_").removesuffix("_total")] = int(float(value))
        with reading(self.server.data / MAIN) as connection:
            if missing := uncounted(connection):
                self.failures.append(f"the ledger does not add up, by {missing:,} matches")
        self.memory.append(self.server.resident_megabytes())
        return books

    def _again(self, work: Callable[[Client, random.Random], object], seed: float) -> None:
        chance = random.Random(seed)
        try:
            with Client(self.server.url) as client:
                while not self.stopping.is_set():
                    work(client, chance)
        except Exception as error:
            self.failures.append(f"{getattr(work, '__name__', 'follow')} failed: {error!r}")
            self.stopping.set()
