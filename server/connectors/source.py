"""Sources, and the source of a URL: reads messages of a broker, publishes them, acknowledges them after the 202.

    broker ──read──▶ at most a batch ──bindings──▶ events ──POST /v1/events──▶ server
       ▲                 │ no event, or refused                                   │ 202: on disk
       ├──dead letter────┘                                                        │
       └──acknowledge─────────────────────────────────────────────────────────────┘

Only one batch is processed at a time, and the protocol's own window limits what the broker sends beyond it. So if the
server is slow or unreachable, the broker keeps its messages. Nothing is acknowledged before the server has it, so
nothing is lost. A message that is read twice has the same `source` and `id` again, and the server accepts it once.

Messages without an id (MQTT, AMQP) get a random one, which is written to a `Journal` before it is used. A message that
the broker sends again gets the id in the journal for the same content (with MQTT also the same packet identifier).
Messages that are equal in every part are interchangeable, because a batch is acknowledged only after the server has all
of it.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import time
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kindcast.server.client import AsyncClient, NoAnswerInTime, ProblemError, ServerUnreachable
from kindcast.server.client.calls import Call, path_of
from kindcast.server.connectors.bindings import DEFAULT_TYPE, NO_HEADER, BadMessage, Binding, Content, Plain
from kindcast.server.connectors.broker_url import BrokerUrl, Topic, in_source

__all__ = [
    "MISSING",
    "BrokerLost",
    "BrokerRefused",
    "Connector",
    "Journal",
    "JournalDamaged",
    "Options",
    "Received",
    "Source",
    "Tally",
    "open_source",
]

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""The first and the longest pause between attempts to reach a broker or a server. Each pause is twice the last."""
LONGEST_WISH_SECONDS = 3_600.0
"""The longest `Retry-After` of a server that is obeyed."""

LONGEST_READ_SECONDS = 0.5
"""A read without messages ends after this time, and the connector checks whether it must stop."""

REDELIVERY_SECONDS = 60.0
"""By then a broker has sent again everything that was not acknowledged on the last connection. It is sent before
anything new."""

REQUEST_BYTES = 4 * 1024 * 1024
"""The size from which a batch is sent in several requests, because servers limit the size of requests."""

PROBLEMS = "https://kindcast.dev/problems/"
"""The beginning of the types of a server's problems. An answer without it is not from a server, but from a proxy."""

TOLD_MESSAGES = 10
"""The maximum number of bad messages that are reported one by one between two lines of progress. The others are
counted."""


MOST_REASON = 1_000
"""The maximum number of characters of the reason why a message is bad."""


class BrokerLost(ConnectionError):
    """The connection to the broker is broken or cannot be made now. It will be tried again."""


class BrokerRefused(Exception):
    """The broker refuses, and trying again does not help. The text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message. `identity` is the id from the broker or the publisher, the same at every read; None if there is
    none. `mark` distinguishes it from messages with the same content until it is acknowledged. `again`: the broker may
    have sent it before. `handle` is what the source needs to acknowledge it."""

    topic: str
    content: Content
    handle: Any
    identity: str | None = None
    mark: str = ""
    time: str | None = None
    again: bool = True
    more: Mapping[str, str | int] = field(default_factory=dict)


class Source(Protocol):
    """A connection to a broker for one reader. Any method may raise `BrokerLost`; then the source is closed and another
    one is opened."""

    binding: Binding
    dropped: int
    """How many messages were dropped, because too many waited and the broker does not keep them."""

    async def open(self) -> bool:
        """Connects and begins to read. Returns whether the broker sends again what was not acknowledged on the last
        connection. May also raise `BrokerRefused`."""

    async def read(self, limit: int, seconds: float) -> Sequence[Received]:
        """Returns the next messages, at most `limit`, in order: those that have arrived, else those that arrive within
        the time."""

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        """Acknowledges messages. The broker has the acknowledgement when this returns."""

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        """Publishes a bad message to a topic of the broker. The broker has it when this returns."""

    async def close(self) -> None:
        """Closes the connection. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a connector. `source` precedes the topic in the `source` of events that are no CloudEvents.
    `id_member` is the member with the id in plain JSON. `idle_seconds`: the connector ends after this time without a
    message."""

    topics: Sequence[Topic]
    source: str
    type: str = DEFAULT_TYPE
    id_member: str | None = None
    batch: int = 500
    dead_letters: str | None = None
    idle_seconds: float | None = None
    progress_seconds: float = 2.0


@dataclass(slots=True)
class Tally:
    """The counts so far. `read` = `accepted` + `known` + `bad` + those in progress. A message that is read twice is
    counted twice."""

    read: int = 0
    accepted: int = 0
    known: int = 0
    bad: int = 0
    acknowledged: int = 0
    connections: int = 0

    def line(self, per_second: float) -> str:
        return (
            f"{self.read:,} read, {self.accepted:,} accepted, {self.known:,} already known, {self.bad:,} bad; "
            f"{per_second:,.0f}/s"
        )


class JournalDamaged(ValueError):
    """The file of a journal cannot be read. The text names it."""


class Journal:
    """The ids that were assigned to the messages of the current batch, by the digest of their content. With a file they
    survive the process."""

    def __init__(self, file: Path | None) -> None:
        """Raises OSError, and `JournalDamaged` if the file is no journal."""
        self._file = file
        self._opened_at = 0.0
        self._ids: dict[str, list[str]] = {}
        if file is not None and file.exists():
            try:
                self._ids = msgspec.json.decode(file.read_bytes(), type=dict[str, list[str]])
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise JournalDamaged(
                    f"{file} is damaged ({error}): delete it. "
                    "Messages that the broker sends again may then be published twice."
                ) from error

    def opened(self, *, resumed: bool) -> None:
        """Called when a connection begins. `resumed`: the broker sends again what was not acknowledged on the last
        connection."""
        self._opened_at = time.monotonic()
        if not resumed and self._ids:
            self._ids = {}
            self._write()

    def give(self, messages: Sequence[Received]) -> list[str]:
        """Returns an id for each message. The ids are on disk when this returns."""
        settled = time.monotonic() - self._opened_at > REDELIVERY_SECONDS
        left = {} if settled else {digest: list(ids) for digest, ids in self._ids.items()}
        given: list[str] = []
        kept: dict[str, list[str]] = defaultdict(list)
        fresh = False
        for message in messages:
            if message.identity is not None:
                given.append(message.identity)
                continue
            digest = _digest(message)
            waiting = left.get(digest)
            if message.again and waiting:
                id = waiting.pop(0)
            else:
                id, fresh = secrets.token_hex(12), True
            kept[digest].append(id)
            given.append(id)
        if fresh:
            for digest, ids in left.items():
                kept[digest] += ids
            self._ids = {digest: ids for digest, ids in kept.items() if ids}
            self._write()
        return given

    def done(self, messages: Sequence[Received]) -> None:
        """Called when these messages were acknowledged at the broker."""
        digests = {_digest(message) for message in messages if message.identity is None}
        if digests & self._ids.keys():
            self._ids = {digest: ids for digest, ids in self._ids.items() if digest not in digests}
            self._write()

    def _write(self) -> None:
        """Writes the file, so that a power failure leaves the old or the new one."""
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("wb") as opened:
            opened.write(msgspec.json.encode(self._ids))
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(self._file)


def _digest(message: Received) -> str:
    content = message.content
    seen = msgspec.json.encode([message.topic, message.mark, content.content_type, sorted(content.headers.items())])
    return hashlib.sha256(seen + b"\n" + content.body).hexdigest()[:32]


class Connector:
    """A connector from one broker to one server. `run` works until `stop`, which may be called from a signal handler of
    its event loop."""

    def __init__(
        self,
        new_source: Callable[[], Source],
        client: AsyncClient,
        options: Options,
        journal: Journal,
        *,
        tell: Callable[[str], None],
        progress: Callable[[Tally, float], None] = lambda tally, per_second: None,
    ) -> None:
        self.tally = Tally()
        self._new_source, self._client, self._options, self._journal = new_source, client, options, journal
        self._tell, self._progress = tell, progress
        self._stopped = asyncio.Event()
        self._told = 0
        self._shown_at, self._shown_read = time.monotonic(), 0
        self._heard_at = time.monotonic()

    def stop(self) -> None:
        """Makes `run` end after the current batch."""
        self._stopped.set()

    async def run(self) -> None:
        """Reads and publishes until `stop`, or until no message came for `idle_seconds`. Raises `BrokerRefused`,
        `BrokerLost` if the broker cannot be reached for `idle_seconds`, `ProblemError` if the server refuses every
        event permanently, and `UnexpectedAnswer` if another program answers."""
        failures = 0
        while not self._stopped.is_set():
            source = self._new_source()
            read = self.tally.read
            try:
                self._journal.opened(resumed=await _opened(source))
                self.tally.connections += 1
                await self._read_on(source)
            except BrokerLost as error:
                if self._is_idle():
                    raise
                failures = 0 if self.tally.read > read else failures
                self._tell(f"the broker cannot be reached ({error}); trying again")
                await self._pause(failures)
                failures += 1
            finally:
                await source.close()
        self._progress(self.tally, 0.0)

    async def _read_on(self, source: Source) -> None:
        self._heard_at = time.monotonic()
        while not self._stopped.is_set():
            messages = await source.read(self._options.batch, LONGEST_READ_SECONDS)
            if messages:
                await self._hand_over(source, messages)
                self._heard_at = time.monotonic()
            elif self._is_idle():
                self.stop()
            if source.dropped:
                self._tell(f"{source.dropped:,} messages with QoS 0 were dropped, because the server is too slow")
                source.dropped = 0
            self._show_progress()

    def _is_idle(self) -> bool:
        """Whether the broker has sent nothing for `idle_seconds`."""
        most = self._options.idle_seconds
        return most is not None and time.monotonic() - self._heard_at >= most

    async def _hand_over(self, source: Source, messages: Sequence[Received]) -> None:
        self.tally.read += len(messages)
        ids = await asyncio.to_thread(self._journal.give, messages)
        good: list[tuple[Received, msgspec.Raw]] = []
        bad: list[tuple[Received, str]] = []
        for message, id in zip(messages, ids, strict=True):
            try:
                good.append((message, source.binding.event(message.content, self._plain(message, id))))
            except BadMessage as error:
                bad.append((message, str(error)))
        refused: list[tuple[Received, str]] = []
        for part in _requests(good):
            found = await self._publish(part)
            if found is None:
                return  # stopped while the server was unreachable: nothing is acknowledged, so all comes again
            refused += found
        for message, reason in bad + refused:
            await self._put_aside(source, message, reason)
        await source.acknowledge(messages)
        self._journal.done(messages)
        self.tally.acknowledged += len(messages)

    def _plain(self, message: Received, id: str) -> Plain:
        options = self._options
        named: dict[str, str | int] = {"topic": message.topic}
        for topic in options.topics:
            if topic.names and topic.holds(message.topic):
                named |= topic.attributes(message.topic)
        named |= message.more
        if options.id_member is not None:
            id = _member(message.content.body, options.id_member) or id
        return Plain(
            id=id,
            source=f"{options.source}/{in_source(message.topic)}",
            type=options.type,
            time=message.time,
            more={name: value for name, value in named.items() if not NO_HEADER.search(str(value))},
        )

    async def _publish(self, events: Sequence[tuple[Received, msgspec.Raw]]) -> list[tuple[Received, str]] | None:
        """Publishes until the server has answered for every event. Returns the refused events with their reasons; None
        if the connector was stopped before. Raises `ProblemError` if the server refuses every event permanently, and
        `UnexpectedAnswer`."""
        refused: list[tuple[Received, str]] = []
        failures = 0
        while True:
            wish = 0.0
            try:
                answer = await self._client.send(_batch([event for _, event in events]))
            except (ServerUnreachable, NoAnswerInTime) as error:
                self._tell(f"{error}; trying again")
            except ProblemError as error:
                if _is_about_events(error):
                    halves = await self._publish_halves(events, error)
                    return None if halves is None else refused + halves
                if not _is_temporary(error.status):
                    raise
                wish = error.retry_after
                self._tell(f"the server answered {error.status} {error.title}; trying again")
            else:
                self.tally.accepted += int(answer["accepted"])
                self.tally.known += int(answer["duplicates"])
                rejected = [(events[each["index"]], each["problem"]) for each in answer["rejected"]]
                refused += [(each, _reason(why)) for (each, _), why in rejected if not _is_temporary(why["status"])]
                waiting = [(event, _reason(why)) for event, why in rejected if _is_temporary(why["status"])]
                if not waiting:
                    return refused
                events = [event for event, _ in waiting]
                self._tell(f"the server could not store {len(waiting):,} events ({waiting[0][1]}); trying again")
            if self._stopped.is_set():
                return None
            await self._pause(failures, wish)
            failures += 1

    async def _publish_halves(
        self, events: Sequence[tuple[Received, msgspec.Raw]], error: ProblemError
    ) -> list[tuple[Received, str]] | None:
        """Publishes the halves of a request that was refused as a whole, because it is too large or because of one
        event. An event that is refused alone is bad."""
        if len(events) == 1:
            return [(events[0][0], error.detail if error.type.startswith(PROBLEMS) else str(error))]
        half = len(events) // 2
        first = await self._publish(events[:half])
        second = None if first is None else await self._publish(events[half:])
        return None if first is None or second is None else first + second

    async def _put_aside(self, source: Source, message: Received, reason: str) -> None:
        reason = _as_header(reason)
        self.tally.bad += 1
        self._told += 1
        if self._told <= TOLD_MESSAGES:
            named = "" if message.identity is None else f" {message.identity}"
            self._tell(f"bad message{named} of {message.topic}: {reason}")
        if self._options.dead_letters is not None:
            await source.put_aside(message, self._options.dead_letters, reason)

    async def _pause(self, failures: int, wish: float = 0.0) -> None:
        planned = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 16), LONGEST_PAUSE_SECONDS)
        seconds = max(planned, min(wish, LONGEST_WISH_SECONDS))
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return

    def _show_progress(self) -> None:
        now = time.monotonic()
        if (passed := now - self._shown_at) < self._options.progress_seconds:
            return
        if self._told > TOLD_MESSAGES:
            self._tell(f"{self._told - TOLD_MESSAGES:,} more bad messages")
        if self.tally.read > self._shown_read:
            self._progress(self.tally, (self.tally.read - self._shown_read) / passed)
        self._told, self._shown_at, self._shown_read = 0, now, self.tally.read


async def _opened(source: Source) -> bool:
    """Opens a source. Raises `BrokerLost`, and `BrokerRefused` also if the library of the broker refuses a name."""
    try:
        return await source.open()
    except ValueError as error:
        raise BrokerRefused(f"a topic or the group cannot be used: {error}") from error


def _requests(
    events: Sequence[tuple[Received, msgspec.Raw]],
) -> Iterator[Sequence[tuple[Received, msgspec.Raw]]]:
    """Yields the events in parts of at most `REQUEST_BYTES`. A larger event is a part by itself."""
    begin = size = 0
    for number, (_, event) in enumerate(events):
        length = len(bytes(event))
        if size + length > REQUEST_BYTES and number > begin:
            yield events[begin:number]
            begin, size = number, 0
        size += length
    if begin < len(events):
        yield events[begin:]


def _batch(events: Sequence[msgspec.Raw]) -> Call[dict[str, Any]]:
    return Call(
        method="POST",
        path=path_of("events"),
        params={"verbose": "false"},
        headers={"Content-Type": "application/cloudevents-batch+json"},
        content=b"[" + b",".join(bytes(event) for event in events) + b"]",
        read=dict,
        members=frozenset({"accepted"}),
    )


def _is_about_events(error: ProblemError) -> bool:
    """Whether a request was refused because of its events. Otherwise no event can be published, for example because a
    proxy answers, or because the server does not know its name: then no message is bad."""
    return error.status == 413 or (error.status in (400, 422) and error.type.startswith(PROBLEMS))


def _is_temporary(status: int) -> bool:
    """Whether a request or an event that was refused with this status may be accepted later."""
    return status in (408, 425, 429) or status >= 500


def _reason(problem: Mapping[str, Any]) -> str:
    return str(problem.get("detail") or problem.get("title") or problem)


def _as_header(reason: str) -> str:
    """Returns a reason that every protocol can send as a header of a dead letter: only the beginning and the end of a
    long one, and "?" in place of some characters. Reasons repeat names that the publisher chose."""
    half = MOST_REASON // 2
    short = reason if len(reason) <= MOST_REASON else f"{reason[:half]} … {reason[-half:]}"
    return NO_HEADER.sub("?", short)


def _member(body: bytes, name: str) -> str | None:
    """Returns the id in a member of a plain JSON object; None if there is none."""
    try:
        found = msgspec.json.decode(body.removeprefix(BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


# The source of a URL. The libraries of the brokers are the extra `connect`, and imported here when they are needed.


MISSING = "the libraries of message brokers are not installed: pip install 'kindcast[connect]'"

WINDOW_BATCHES = 2
"""How many batches a broker may send without acknowledgement: the current batch and the next."""


def open_source(url: BrokerUrl, topics: Sequence[Topic], *, group: str, batch: int, create: bool) -> Source:
    """Returns a source that is not connected yet. Raises ImportError if its library is missing."""
    window = WINDOW_BATCHES * batch
    if url.protocol == "MQTT":
        from kindcast.server.connectors.mqtt import MqttSource

        return MqttSource(url, topics, group, window)
    if url.protocol == "NATS":
        from kindcast.server.connectors.nats import NatsSource

        return NatsSource(url, topics, group, window, create=create)
    if url.protocol == "AMQP":
        from kindcast.server.connectors.amqp import AmqpSource

        return AmqpSource(url, topics, window, create=create)
    if url.protocol == "REDIS":
        from kindcast.server.connectors.redis_streams import RedisSource

        return RedisSource(url, topics, group, create=create)
    from kindcast.server.connectors.kafka import KafkaSource

    return KafkaSource(url, topics, group)
