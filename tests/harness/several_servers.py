"""Several server processes on one PostgreSQL under load, while servers are killed or stopped for a while and the
database breaks off; and the reading back at the end.

In a round publishers, a subscriber, a swapper of ontologies and a consumer ask one server or another, at random. What
gets no answer is in doubt, and sent again to any server. What the servers answered, and when, is a `History`;
`violations` compares it with what the database holds and with what was pulled and delivered. It knows the promise and
nothing of how it is kept.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from sqlalchemy import Engine, create_engine, text

from kindcast.server.store.database import in_schema, normalised
from kindcast.server.store.system import schemas
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.receiver import Receiver
from tests.harness.server_process import ServerProcess

__all__ = ["Event", "History", "Made", "SeveralServers", "Stored", "violations"]

PREFIXES = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
FIRST = f'{PREFIXES} :Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Slate rdfs:label "slate" .'
SECOND = f"{FIRST} :Slate rdfs:subClassOf :Computer ."
"""Under this one a slate is a computer as well."""
TARGETS = ("laptop", "slate", "printer")
LOTS = 5
PUBLISHERS = 3
LEASE_SECONDS = 2.0
NEVER = float("inf")

ENVIRONMENT = {
    "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
    "KINDCAST_LEASE_SECONDS": str(LEASE_SECONDS),
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": "[0.2, 0.5, 1, 2, 5, 10, 20]",
    "KINDCAST_MAX_SUBSCRIPTIONS": "100000",
}


@dataclass(slots=True)
class Event:
    """Sent first at `began`; the first answer came at `ended`, with `sequence`."""

    id: str
    data: Mapping[str, Any]
    began: float
    ended: float = NEVER
    sequence: int | None = None


@dataclass(slots=True)
class Span:
    """A request: when it was sent, and when it was answered, if it was."""

    began: float
    ended: float = NEVER


@dataclass(slots=True)
class Made:
    """A subscription that was answered with 201. `silent`: pairs of requests that paused and resumed it."""

    id: str
    ticket: str
    lot: int
    path: str | None
    made: Span
    silent: list[tuple[Span, Span]] = field(default_factory=list)
    deleted: Span | None = None


@dataclass(slots=True)
class History:
    """Written by any number of threads."""

    events: dict[str, Event] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    activations: list[tuple[int, Span]] = field(default_factory=list)
    """Version of the ontology, in the order of the requests."""
    versions: dict[int, str] = field(default_factory=dict)
    """Version of the ontology, to that of the vocabulary."""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database holds in the end: events with sequence and vocabulary, and of each subscription the last
    sequence before it; `last`: the last position, and how many positions there are."""

    events: Mapping[str, list[tuple[int, str]]]
    created: Mapping[str, int]
    last: tuple[int, int]

    def sequence(self, event: "Event") -> int:
        """That of an event; 0 where it is not there."""
        found = self.events.get(event.id)
        return found[0][0] if found else 0


class SeveralServers:
    """`chance` decides what is random but the threads' timing."""

    def __init__(
        self,
        servers: Sequence[ServerProcess],
        cluster: PostgreSQL,
        database: str,
        receiver: Receiver,
        seed: int,
        shards: int | None = None,
        tenant: str | None = None,
    ) -> None:
        """`shards`: in so many parts the subscriptions are matched, if they are. `tenant`: the one in which everything
        happens, if it is not `default`."""
        self.servers = servers
        self._shards = shards
        self._tenant = tenant
        self._headers: dict[str, str] = {}
        self.history = History()
        self._cluster = cluster
        self._database = database
        self._receiver = receiver
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._count = 0
        self._lock = threading.Lock()
        self.done: dict[str, int] = defaultdict(int)

    def prepare(self) -> None:
        """All servers run, and the first version is in force."""
        sharded = {} if self._shards is None else {"KINDCAST_SHARDS": str(self._shards)}
        for server in self.servers:
            server.start(wait=True, **ENVIRONMENT, **sharded, KINDCAST_DATABASE=self._database)
        if self._tenant is not None:
            self._become(self._tenant)
        with self._client() as client:
            for version, document in ((1, FIRST), (2, SECOND), (1, None)):
                span = Span(time.monotonic())
                if document is None:
                    answer = client.post(f"{self.servers[0].url}/v1/ontologies/x/activate?version=1")
                else:
                    headers = {"Content-Type": "text/turtle"}
                    answer = client.put(f"{self.servers[0].url}/v1/ontologies/x", content=document, headers=headers)
                assert answer.is_success, answer.text
                span.ended = time.monotonic()
                self.history.activations.append((version, span))
                told = client.get(f"{self.servers[0].url}/v1/concepts/resolve?term=laptop").json()
                self.history.versions[version] = told["vocabulary_version"]

    def _become(self, tenant: str) -> None:
        """From here on all requests have a key of this tenant."""
        for of in ({}, {"tenant": tenant}):
            with self._client() as client:
                answer = client.post(f"{self.servers[0].url}/v1/keys", json={"role": "admin", **of})
                assert answer.is_success, answer.text
                self._headers = {"Authorization": f"Bearer {answer.json()['key']}"}

    def _tables(self) -> Engine:
        """The tables of the tenant."""
        url = normalised(driver_url(self._database))
        if self._tenant is not None:
            engine = create_engine(url)
            with engine.connect() as connection:
                [schema] = schemas(connection)
            engine.dispose()
            url = in_schema(url, schema)
        return create_engine(url)

    def round(self, seconds: float = 2.0) -> None:
        """Load, and in the middle of it one mishap."""
        self._over.clear()
        jobs: list[Callable[[httpx.Client, random.Random], None]] = [self._publish] * PUBLISHERS
        jobs += [self._subscribe, self._activate, self._consume]
        seeds = [self._chance.random() for _ in jobs]
        threads = [
            threading.Thread(target=self._repeat, args=(job, random.Random(seed)))
            for job, seed in zip(jobs, seeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds * self._chance.uniform(0.2, 0.6))
        self._mishap()
        time.sleep(seconds * 0.4)
        self._over.set()
        for thread in threads:
            thread.join()
        for server in self.servers:
            if not server.running:
                server.start()

    def settle(self) -> Stored:
        """Everything in doubt is asked again until it is answered, and all that is owed is delivered."""
        with self._client() as client:
            deadline = time.monotonic() + 120.0
            while doubtful := [each for each in self.history.events.values() if each.sequence is None]:
                assert time.monotonic() < deadline, f"{len(doubtful)} events are never accepted"
                self._send(client, self.servers[0], doubtful[:50])
            if self._shards is not None:
                self._wait_for_shards()
            for made in list(self.history.made.values()):
                if made.deleted is not None:
                    continue
                url, headers = f"{self.servers[0].url}/v1/subscriptions/{made.id}", {"Kindcast-Ticket": made.ticket}
                client.post(f"{url}/resume", headers=headers).raise_for_status()  # it may be paused still
                if made.path is None:
                    continue
                while client.get(url).json()["pending"]:
                    if time.monotonic() > deadline + 60.0:
                        self.history.faults.append(f"webhook {made.path}: its messages never arrive")
                        break
                    time.sleep(0.1)
        engine = self._tables()
        events: dict[str, list[tuple[int, str]]] = defaultdict(list)
        with engine.connect() as connection:
            for sequence, id, version in connection.execute(
                text("SELECT sequence, id, vocabulary_version FROM events ORDER BY sequence")
            ):
                events[id].append((sequence, version))
            rows = connection.execute(text("SELECT id, created_sequence FROM subscriptions"))
            created = {id: before for id, before in rows}
            last = connection.execute(text("SELECT sequence FROM ledger")).scalar_one()
            late = connection.execute(text("SELECT count(*) FROM late")).scalar_one()
        engine.dispose()
        return Stored(events, created, (last, late + sum(map(len, events.values()))))

    def _wait_for_shards(self) -> None:
        """Until each has matched every event. Fails when none has matched anything for two minutes."""
        engine = create_engine(driver_url(self._database))
        left = text("SELECT count(*) FROM shards, events WHERE sequence > position")
        before, deadline = None, 0.0
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                while waiting := connection.execute(left).scalar_one():
                    if waiting != before:
                        before, deadline = waiting, time.monotonic() + 120.0
                    assert time.monotonic() < deadline, f"the shards stand still, {waiting} events before the end"
                    time.sleep(0.1)
        finally:
            engine.dispose()

    def pulled(self) -> dict[str, list[tuple[int, str]]]:
        """Cursor and event of each message of each subscription that is there, from its beginning."""
        found: dict[str, list[tuple[int, str]]] = {}
        with self._client() as client:
            for number, made in enumerate(self.history.made.values()):
                if made.deleted is not None:
                    continue
                server, after = self.servers[number % len(self.servers)], "0"
                found[made.id] = []
                while True:
                    url = f"{server.url}/v1/subscriptions/{made.id}/events?limit=1000&after={after}"
                    page = client.get(url).json()
                    if not page["events"]:
                        break
                    found[made.id] += [(int(each["cursor"]), each["event"]["id"]) for each in page["events"]]
                    after = page["cursor"]
        return found

    def arrived(self) -> dict[str, list[tuple[str, int, str]]]:
        """(webhook-id, cursor, event) of each message by path, in order of arrival."""
        found: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        for each in self._receiver.requests():
            message = each.message
            found[each.path].append((each.headers["webhook-id"], int(message["cursor"]), message["event"]["id"]))
        return found

    # ── what threads do ─────────────────────────────────────────────────────────────────────────────────────────────

    def _mishap(self) -> None:
        what = self._chance.choice(("kill", "kill", "stop", "database", "pause"))
        server = self._chance.choice(self.servers)
        self.done[what] += 1
        if what == "kill":
            server.kill()
            time.sleep(self._chance.uniform(0.0, 1.5 * LEASE_SECONDS))
            server.start()
        elif what == "stop":
            server.stop()
            server.start()
        elif what == "database":
            self._cluster.restart()
            time.sleep(1.0)
        else:
            server.pause()
            time.sleep(self._chance.uniform(0.5, 2.0) * LEASE_SECONDS)
            server.go_on()

    def _repeat(self, job: Callable[[httpx.Client, random.Random], None], chance: random.Random) -> None:
        with self._client() as client:
            while not self._over.is_set():
                try:
                    job(client, chance)
                except httpx.TransportError:
                    time.sleep(0.05)
                except Exception as error:
                    self.history.faults.append(f"{job.__name__}: {error!r}")
                    return

    def _client(self) -> httpx.Client:
        return httpx.Client(timeout=20.0, headers=self._headers)

    def _publish(self, client: httpx.Client, chance: random.Random) -> None:
        if chance.random() < 0.2:
            doubtful = [each for each in list(self.history.events.values()) if each.sequence is None]
            if doubtful:
                self._send(client, chance.choice(self.servers), chance.sample(doubtful, min(3, len(doubtful))))
                return
        new: list[Event] = []
        for _ in range(chance.randint(1, 5)):
            with self._lock:
                self._count += 1
                id = str(self._count)
            data = {"target": chance.choice(TARGETS), "lot": chance.randrange(LOTS)}
            new.append(Event(id, data, time.monotonic()))
            self.history.events[id] = new[-1]
        self._send(client, chance.choice(self.servers), new)

    def _send(self, client: httpx.Client, server: ServerProcess, events: Sequence[Event]) -> None:
        said = {"specversion": "1.0", "source": "s", "type": "t"}
        batch = [{**said, "id": each.id, "data": each.data} for each in events]
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        answer = client.post(f"{server.url}/v1/events", json=batch, headers=headers)
        now = time.monotonic()
        if answer.status_code == 503:
            time.sleep(0.05)
            return
        assert answer.status_code == 202, answer.text
        for told in answer.json()["events"]:
            event = self.history.events[told["id"]]
            if event.sequence not in (None, told["sequence"]):
                self.history.faults.append(f"{event.id} was accepted as {event.sequence} and as {told['sequence']}")
            event.sequence, event.ended = told["sequence"], min(event.ended, now)
            self.done["events"] += 1

    def _subscribe(self, client: httpx.Client, chance: random.Random) -> None:
        time.sleep(0.02)
        those = [each for each in self.history.made.values() if each.deleted is None]
        what = chance.random()
        if len(those) < 4 or what < 0.4:
            self._create(client, chance)
            return
        made = chance.choice(those)
        url, headers = f"{chance.choice(self.servers).url}/v1/subscriptions/{made.id}", {"Kindcast-Ticket": made.ticket}
        if what < 0.6:
            made.deleted = Span(time.monotonic())  # in doubt until it is answered
            if client.delete(url, headers=headers).status_code == 200:
                made.deleted.ended = time.monotonic()
                self.done["deleted"] += 1
            return
        paused, resumed = Span(time.monotonic()), Span(NEVER)
        made.silent.append((paused, resumed))
        if not client.post(f"{url}/pause", headers=headers).is_success:
            return
        paused.ended = time.monotonic()
        self.done["paused"] += 1
        time.sleep(chance.uniform(0.0, 0.3))
        again = f"{chance.choice(self.servers).url}/v1/subscriptions/{made.id}/resume"
        resumed.began = time.monotonic()
        if client.post(again, headers=headers).is_success:
            resumed.ended = time.monotonic()

    def _create(self, client: httpx.Client, chance: random.Random) -> None:
        lot, path = chance.randrange(LOTS), None
        body: dict[str, Any] = {"expression": f"target isa Computer and lot = {lot}"}
        if chance.random() < 0.3:
            path = f"/{len(self.history.made)}-{chance.randrange(10**9)}"
            body["sink"] = self._receiver.url + path
        span = Span(time.monotonic())
        answer = client.post(f"{chance.choice(self.servers).url}/v1/subscriptions", json=body)
        if answer.status_code == 201:
            span.ended = time.monotonic()
            told = answer.json()
            self.history.made[told["id"]] = Made(told["id"], told["ticket"], lot, path, span)
            self.done["subscriptions"] += 1
        elif answer.status_code != 503:
            self.history.faults.append(f"subscribe: {answer.status_code} {answer.text}")

    def _activate(self, client: httpx.Client, chance: random.Random) -> None:
        time.sleep(chance.uniform(0.1, 0.5))
        version, span = chance.choice((1, 2)), Span(time.monotonic())
        self.history.activations.append((version, span))
        url = f"{chance.choice(self.servers).url}/v1/ontologies/x/activate?version={version}"
        if client.post(url).is_success:
            span.ended = time.monotonic()
            self.done["activations"] += 1

    def _consume(self, client: httpx.Client, chance: random.Random) -> None:
        time.sleep(0.05)
        those = [each for each in self.history.made.values() if each.deleted is None and each.path is None]
        if not those:
            return
        made = chance.choice(those)
        path = f"/v1/subscriptions/{made.id}"
        answer = client.get(f"{chance.choice(self.servers).url}{path}/events?limit=20&wait=0.2")
        if answer.status_code == 200 and answer.json()["events"]:
            body, headers = {"cursor": answer.json()["cursor"]}, {"Kindcast-Ticket": made.ticket}
            client.post(f"{chance.choice(self.servers).url}{path}/ack", json=body, headers=headers)


# ── the checker ───────────────────────────────────────────────────────────────────────────────────────────────────────


def violations(
    history: History,
    stored: Stored,
    pulled: Mapping[str, list[tuple[int, str]]],
    arrived: Mapping[str, list[tuple[str, int, str]]],
) -> list[str]:
    """Every promise that was broken, in words."""
    return [
        *history.faults,
        *_log(history, stored),
        *_vocabularies(history, stored),
        *_subscriptions(history, stored, pulled),
        *_webhooks(history, stored, arrived),
    ]


def _log(history: History, stored: Stored) -> Iterator[str]:
    """Each accepted event stands once, in an order that agrees with time; positions have no gaps."""
    for id, event in history.events.items():
        found = [sequence for sequence, _ in stored.events.get(id, [])]
        if found != [event.sequence]:
            yield f"event {id} was accepted as {event.sequence} and is stored as {found}"
    for id in stored.events.keys() - history.events.keys():
        yield f"event {id} was never sent"
    if stored.last[0] != stored.last[1]:
        yield f"the last position is {stored.last[0]}, and there are {stored.last[1]}"
    latest = 0.0
    for event in sorted(history.events.values(), key=lambda each: each.sequence or 0):
        if latest > event.ended:
            yield f"event {event.id} was answered before another one was sent, which stands before it"
        latest = max(latest, event.began)


def _vocabularies(history: History, stored: Stored) -> Iterator[str]:
    """Each event was read under a version that was in force while it was under way."""
    for event in history.events.values():
        allowed = {
            history.versions[version]
            for version, span in history.activations
            if span.began <= event.ended
            and not any(span.ended < later.began and later.ended < event.began for _, later in history.activations)
        }
        for _, version in stored.events.get(event.id, []):
            if version not in allowed:
                yield f"event {event.id} was matched under a vocabulary that was not in force"


def _fits(history: History, stored: Stored, event: Event, made: Made) -> bool:
    """Whether the event matches the subscription, under the vocabulary that it was read under."""
    if event.data["lot"] != made.lot:
        return False
    second = stored.events[event.id][0][1] == history.versions[2]
    return event.data["target"] == "laptop" or (event.data["target"] == "slate" and second)


def _owed(history: History, stored: Stored, made: Made) -> tuple[set[str], set[str]]:
    """The events that the subscription must have, and those that it may have."""
    must, may = set[str](), set[str]()
    for event in history.events.values():
        if not stored.sequence(event) or not _fits(history, stored, event, made):
            continue
        if made.id in stored.created and stored.sequence(event) <= stored.created[made.id]:
            continue
        off = any(paused.ended < event.began and event.ended < resumed.began for paused, resumed in made.silent)
        on = all(event.ended < paused.began or resumed.ended < event.began for paused, resumed in made.silent)
        if not off:
            may.add(event.id)
        if on:
            must.add(event.id)
    return must, may


def _subscriptions(history: History, stored: Stored, pulled: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    for made in history.made.values():
        if made.deleted is not None:
            if made.deleted.ended < NEVER and made.id in stored.created:
                yield f"subscription {made.id} was deleted and is there"
            continue
        if made.id not in stored.created:
            yield f"subscription {made.id} was made and is gone"
            continue
        since = stored.created[made.id]
        for event in history.events.values():
            sequence = stored.sequence(event)
            if made.made.ended < event.began and sequence <= since:
                yield f"subscription {made.id} was made before event {event.id} was sent, and stands after it"
            if event.ended < made.made.began and sequence > since:
                yield f"event {event.id} was accepted before subscription {made.id} was asked for, and stands after it"
        cursors, ids = [cursor for cursor, _ in pulled[made.id]], [id for _, id in pulled[made.id]]
        if cursors != sorted(set(cursors)) or len(set(ids)) < len(ids):
            yield f"subscription {made.id}: its messages are out of order, or twice"
        must, may = _owed(history, stored, made)
        for id in must - set(ids):
            yield f"subscription {made.id}: event {id} matches, and is not there"
        for id in set(ids) - may:
            yield f"subscription {made.id}: event {id} is there, and must not be"


def _webhooks(history: History, stored: Stored, arrived: Mapping[str, list[tuple[str, int, str]]]) -> Iterator[str]:
    for made in history.made.values():
        if made.path is None:
            continue
        messages: dict[str, set[str]] = defaultdict(set)
        firsts: list[int] = []
        for webhook_id, cursor, id in arrived.get(made.path, []):
            if id not in messages:
                firsts.append(cursor)
            messages[id].add(webhook_id)
        if firsts != sorted(firsts):
            yield f"webhook {made.path}: first arrivals are out of order"
        if any(len(each) > 1 for each in messages.values()):
            yield f"webhook {made.path}: a message came under two ids"
        must, may = _owed(history, stored, made)
        if made.deleted is None:
            for id in must - messages.keys():
                yield f"webhook {made.path}: event {id} never arrived"
        for id in messages.keys() - may:
            yield f"webhook {made.path}: event {id} arrived, and must not"
        for id in messages:
            if made.deleted is not None and made.deleted.ended < history.events[id].began:
                yield f"webhook {made.path}: event {id} arrived, sent after the subscription was deleted"
