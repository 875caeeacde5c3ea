"""Rounds of load on a real server process, each ended by SIGKILL at a random moment, and the reading back at the end.

A round: start (sometimes killed while it starts), send again what is in doubt, then publishers, a subscriber, a
consumer, a swapper of ontologies and a keeper of keys at full speed, then SIGKILL in the middle of whatever they do; in
every other round the server kills itself at a named point (`killed_server`), if it passes there before that. The data
folder and the webhook receiver live through all rounds. What is promised and what becomes of it is in `crash_history`.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from kindcast import Client, ProblemError
from tests.harness.crash_history import COMPUTERS, ONTOLOGY, OTHER_VERSION, History, Key, Made
from tests.harness.killed_server import POINTS, VARIABLE
from tests.harness.receiver import Receiver
from tests.harness.server_process import ServerProcess

__all__ = ["CrashRun"]

LOTS = 40
"""Events are spread over so many lots, and a subscription wants one of them: else every one would get everything."""

PUBLISHERS = 3
LONGEST_ROUND_SECONDS = 1.2
KILLED_WHILE_STARTING = 0.15
"""The share of starts that do not get to the end."""

LONGEST_START_SECONDS = 2.5
MOST_PASSES = 20
"""After which a named point kills, at most."""
KEYS_KEPT = 12
PAGE = 1_000
WEBHOOKS = 0.1
"""The share of subscriptions with a webhook. Few: each gets thousands of messages, one request each."""

IDLE_SECONDS = 10.0
"""Without a webhook arriving: nothing more will come."""

NO_ANSWER = (httpx.TransportError,)
"""The server was killed: what we asked is in doubt."""


@dataclass(slots=True)
class CrashRun:
    """One data folder, one receiver, one history. `chance` decides everything that is random but the threads' timing.
    The client is shared by all threads, and outlives the server."""

    server: ServerProcess
    client: Client
    receiver: Receiver
    chance: random.Random
    history: History = field(default_factory=History)
    _versions: dict[int, str] = field(default_factory=dict)  # of the ontology -> of the vocabulary
    _in_force: set[int] = field(default_factory=lambda: {2})  # the version that was answered last, or is in doubt
    _numbers: dict[str, int] = field(default_factory=dict)
    _last: dict[str, tuple[Key, dict[str, Any]]] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)  # id -> key, of those that must work
    _revoked: dict[str, str] = field(default_factory=dict)  # of those that must not

    def prepare(self) -> None:
        """The first start: the ontology, and for each kind of delivery one subscription that sees all rounds."""
        self.server.start()
        self.client.headers["Authorization"] = f"Bearer {self.client.create_key('admin')['key']}"
        for version, document in ((1, ONTOLOGY), (2, OTHER_VERSION)):
            told = self.client.put_ontology("crash", document, content_type="text/turtle")
            self._versions[version] = told["vocabulary_version"]
        for lot, webhook in ((0, False), (1, True)):
            self._subscribe(lot, webhook=webhook)
        self.server.kill()

    def round(self, number: int) -> None:
        """One round, from start to SIGKILL."""
        self.history.note("round", number=number)
        while self.chance.random() < KILLED_WHILE_STARTING:
            self.server.start(wait=False)
            time.sleep(self.chance.uniform(0.1, LONGEST_START_SECONDS))
            self.server.kill()
            self.history.note("killed while starting")
        try:
            self.server.start(**{VARIABLE: self._point()})
        except AssertionError:
            self.history.note("killed at a point while starting")
            self.server.start(**{VARIABLE: ""})
        with self._until_killed("checker"):
            self.check_acknowledged()
            self.check_keys()
            self.check_version()
            self.settle_doubts(self.chance.randrange(2) == 0)
        workers = [
            *(self._worker(self._publish, f"urn:publisher:{n}") for n in range(PUBLISHERS)),
            self._worker(self._make_subscriptions, "subscriber"),
            self._worker(self._consume, "consumer"),
            self._worker(self._swap, "swapper"),
            self._worker(self._keep_keys, "keeper of keys"),
        ]
        for worker in workers:
            worker.start()
        time.sleep(self.chance.uniform(0.0, LONGEST_ROUND_SECONDS))
        self.server.kill()
        self.history.note("killed")
        for worker in workers:
            worker.join()

    def settle_doubts(self, everything: bool = True) -> None:
        """Sends again what is in doubt (or half of it), and with it something that was answered, which must be called a
        duplicate."""
        doubts = [(key, dict(sent.data)) for key, sent in self.history.in_doubt().items()]
        doubts = doubts if everything else doubts[::2]
        answered = [(key, sent) for key, sent in self.history.sent.items() if sent.sequence is not None][-50:]
        for start in range(0, len(doubts), PAGE):
            self._send(doubts[start : start + PAGE])
        if answered:
            again = self.client.publish([_event(key, sent.data) for key, sent in answered])
            if again["accepted"] or again["duplicates"] != len(answered):
                self.history.fault(f"events that were answered are accepted again: {again}")
            self.history.promised(again)

    def check_acknowledged(self) -> None:
        """No cursor may have gone back behind what was acknowledged."""
        for id, acked in self.history.acked.items():
            cursor = int(self.client.pull(id, limit=1)["cursor"])
            if cursor < acked:
                self.history.fault(f"subscription {id} acknowledged {acked} and stands before {cursor}")

    def check_keys(self) -> None:
        """A key whose making was answered works; one whose end was answered does not."""
        for wanted, keys in ((httpx.codes.OK, self._keys), (httpx.codes.UNAUTHORIZED, self._revoked)):
            for id, key in list(keys.items())[-KEYS_KEPT:]:
                headers = {"Authorization": f"Bearer {key}"}
                told = httpx.get(f"{self.server.url}/v1/subscriptions", headers=headers, timeout=60.0)
                if told.status_code != wanted:
                    self.history.fault(f"key {id} is answered with {told.status_code}, not {wanted:d}")

    def check_version(self) -> None:
        """The version in force is the one whose activation was answered, or one that was under way."""
        active = self.client.ontology("crash")
        if active["version"] not in self._in_force:
            self.history.fault(f"version {active['version']} is in force, not one of {self._in_force}")
        self._in_force = {active["version"]}

    def stored(self) -> list[dict[str, Any]]:
        """All events, read back."""
        found = list(_pages(lambda after: self.client.events(after=after, limit=PAGE)["events"], "sequence"))
        strange = {each["vocabulary_version"] for each in found} - set(self._versions.values())
        if strange:
            self.history.fault(f"events were matched under vocabularies that never were in force: {strange}")
        return [{**each["event"], "sequence": each["sequence"]} for each in found]

    def pulled(self) -> dict[str, list[dict[str, Any]]]:
        """All messages of every subscription that is there, from its beginning."""
        found: dict[str, list[dict[str, Any]]] = {}
        for id in self.history.made:
            try:
                found[id] = list(_pages(partial(_messages, self.client, id), "cursor"))
            except ProblemError as problem:
                if problem.status != httpx.codes.NOT_FOUND:
                    raise
        return found

    def books(self) -> dict[str, int]:
        """The server's own totals, from its metrics, by their names without prefix and suffix."""
        text = httpx.get(f"{self.server.url}/metrics", headers=self.client.headers).text
        found = {}
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("kindcast_") and "{" not in name:
                found[name.removeprefix("kindcast_").removesuffix("_total")] = int(float(value))
        return found

    def wait_for_webhooks(self, pulled: dict[str, list[dict[str, Any]]]) -> None:
        """Waits until the last message of every subscription with a webhook has arrived there, as long as anything
        arrives at all; who waited in vain is for the checker to see."""
        last = {
            made.path: int(pulled[id][-1]["cursor"])
            for id, made in self.history.made.items()
            if made.path is not None and pulled.get(id)
        }
        arrived = -1
        while arrived != (arrived := len(self.receiver.requests())):
            if self.receiver.holds_within(
                IDLE_SECONDS, lambda: all(self.receiver.last_cursor(path) >= cursor for path, cursor in last.items())
            ):
                return
        for id, made in self.history.made.items():
            if made.path is not None and self.receiver.last_cursor(made.path) < last.get(made.path, 0):
                self.history.note("waited in vain", path=made.path, subscription=self.client.subscription(id))

    # ── what goes on in a round ─────────────────────────────────────────────────────────────────────────────────────

    def _worker(self, work: Callable[[str, random.Random], None], name: str) -> threading.Thread:
        """A thread that does its work again and again until the server is gone."""
        chance = random.Random(self.chance.random())

        def run() -> None:
            with self._until_killed(name):
                while True:
                    work(name, chance)

        return threading.Thread(target=run, name=name)

    @contextmanager
    def _until_killed(self, name: str) -> Iterator[None]:
        try:
            yield
        except NO_ANSWER as error:
            self.history.note("no answer", to=name, error=type(error).__name__)
        except Exception as error:
            self.history.fault(f"{name} failed: {error!r}")

    def _publish(self, source: str, chance: random.Random) -> None:
        """One event, or some as NDJSON; now and then the last one again."""
        batch = []
        for _ in range(chance.choice((1, 1, 5, 20))):
            number = self._numbers[source] = self._numbers.get(source, 0) + 1
            data = {"target": chance.choice((*COMPUTERS, "printer")), "lot": chance.randrange(LOTS), "number": number}
            batch.append(((source, f"{source[-1]}-{number}"), data))
        if source in self._last and chance.random() < 0.1:
            batch.append(self._last[source])
        self._last[source] = batch[0]
        self._send(batch)

    def _send(self, batch: list[tuple[Key, dict[str, Any]]]) -> None:
        self.history.begin(batch)
        events = [_event(key, data) for key, data in batch]
        answer = self.client.publish(events[0] if len(events) == 1 else events)
        if answer["rejected"] or len(answer["events"]) != len(batch):
            self.history.fault(f"of {len(batch)} events not all were accepted: {answer}")
        self.history.promised(answer)

    def _make_subscriptions(self, _: str, chance: random.Random) -> None:
        self._subscribe(chance.randrange(LOTS), webhook=chance.random() < WEBHOOKS)
        time.sleep(chance.uniform(0.0, 0.1))

    def _subscribe(self, lot: int, *, webhook: bool) -> None:
        number = self.history.note("subscribe", lot=lot)
        path = f"/hook/{number}" if webhook else None
        sink = None if path is None else self.receiver.url + path
        made = self.client.subscribe(f"target isa computer and lot = {lot}", sink=sink)
        ended = self.history.note("subscribed", id=made["id"], path=path)
        self.history.made[made["id"]] = Made(made["id"], made["ticket"], lot, path, ended)

    def _consume(self, _: str, chance: random.Random) -> None:
        """Pulls from the first subscription and acknowledges."""
        made = next(iter(self.history.made.values()))
        page = self.client.pull(made.id, limit=chance.randrange(1, 20), wait=0.2)
        if page["events"]:
            stands = int(self.client.ack(made.id, page["cursor"], ticket=made.ticket)["cursor"])
            self.history.note("acknowledged", id=made.id, cursor=stands)
            self.history.acked[made.id] = stands

    def _swap(self, _: str, chance: random.Random) -> None:
        """Activates the other version. While it is in doubt, either may be in force."""
        if len(self._in_force) > 1:  # the server was killed before the checker had asked
            self.check_version()
        (now,) = self._in_force
        version = 3 - now
        self._in_force |= {version}
        self.history.note("activate", version=version)
        self.client.activate_ontology("crash", version)
        self._in_force = {version}
        self.history.note("activated", version=version)
        time.sleep(chance.uniform(0.0, 0.2))

    def _keep_keys(self, _: str, chance: random.Random) -> None:
        """Makes a key, or ends one. While the end is in doubt, nothing is said of it."""
        if len(self._keys) < KEYS_KEPT or chance.random() < 0.5:
            made = self.client.create_key("subscriber")
            self._keys[made["id"]] = made["key"]
            self.history.note("made a key", id=made["id"])
        else:
            id = chance.choice(list(self._keys))
            key = self._keys.pop(id)
            self.history.note("end a key", id=id)
            self.client.revoke_key(id)
            self._revoked[id] = key
            self.history.note("ended a key", id=id)
        time.sleep(chance.uniform(0.0, 0.1))

    def _point(self) -> str:
        """Where the server is to kill itself, if anywhere."""
        if self.chance.random() < 0.5:
            return ""
        name, when = self.chance.choice(list(POINTS)), self.chance.choice(("before", "after"))
        point = f"{name} {self.chance.randint(1, MOST_PASSES)} {when}"
        self.history.note("to be killed", at=point)
        return point


def _event(key: Key, data: Any) -> dict[str, Any]:
    source, id = key
    return {"specversion": "1.0", "type": "crash.test", "source": source, "id": id, "data": data}


def _pages(read: Callable[[str], list[dict[str, Any]]], cursor: str) -> Iterator[dict[str, Any]]:
    """Page after page from the beginning."""
    after = "0"
    while page := read(after):
        yield from page
        after = str(page[-1][cursor])


def _messages(client: Client, id: str, after: str) -> list[dict[str, Any]]:
    page: list[dict[str, Any]] = client.pull(id, after=after, limit=PAGE)["events"]
    return page
