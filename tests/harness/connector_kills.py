"""Messages through a broker, a connector, a server, and back to the broker, while each of them is killed: what arrived,
and what must have.

    publisher ─▶ broker, TOPIC ─▶ relay ─▶ connector ─▶ server ─▶ relay ─▶ broker, OUT ─▶ reader

A round publishes messages with confirms, and kills something in the middle: the broker, the connector, the server, or
all connections of the relay. The publisher repeats what the broker did not confirm, under the same number; it may then
arrive twice. After the last round everything runs until the connector has read all there is, and the reader has all
that the server accepted.
"""

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kindcast import Client
from kindcast.server.connectors.bindings import Content
from kindcast.server.connectors.broker_url import parse_url
from kindcast.server.connectors.source import BrokerLost
from kindcast.server.delivery.broker_sinks import BROKER_PROTOCOLS
from tests.harness.brokers import SAVED_SECONDS, Broker, KafkaCluster
from tests.harness.connector_process import ConnectorProcess
from tests.harness.ports import free_port
from tests.harness.server_process import ServerProcess
from tests.harness.sink_reader import SinkReader

__all__ = ["ENVIRONMENT", "MOCK_ROOM", "Kills", "Relay"]

TOPIC = "readings"
OUT = "delivered"
ENVIRONMENT = {
    "KINDCAST_BROKER_SINK_HOSTS": '["127.0.0.1"]',
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": str([0.2] * 600),
    "KINDCAST_WEBHOOK_TIMEOUT_SECONDS": "5",
}
"""What the server needs to deliver to a broker on this machine, however often it is away."""
PATIENCE_SECONDS = 90.0
MOCK_ROOM = 20_000
"""Messages that the mock cluster of Kafka keeps: it drops the oldest beyond 5 MiB of a partition, some 30,000."""
TOGETHER = 100
"""Messages that are sent before the first is confirmed, where a broker saves all it has before it confirms."""


class Relay:
    """A TCP relay before a broker, in a thread of its own, whose connections can all be cut."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self.cuts = 0
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def cut(self) -> None:
        """Breaks every connection, without a goodbye."""
        self.cuts += 1
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve_on())

    async def _serve_on(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._closed = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._ready.set()
        await self._closed.wait()
        server.close()
        self._cut()
        await asyncio.sleep(0.1)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, other}
        await asyncio.gather(_pump(reader, other), _pump(other_reader, writer))
        self._writers -= {writer, other}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()


@dataclass(kw_only=True)
class Kills:
    """Every tenth message has the same content as others, so that only its id can tell it apart. `ids`: whether the
    messages are CloudEvents, with ids of the publisher. `data`: of a message, by its number. `sink`: whether all events
    are delivered to the broker as well; `delivered` is what the reader had then, in the order of arrival."""

    broker: Broker | KafkaCluster
    server: ServerProcess
    folder: Path
    seed: int
    each: int = 200
    ids: bool = False
    kinds: Sequence[str] = ("connector", "server", "connection", "broker")
    done: Counter[str] = field(default_factory=Counter)
    sent: list[int] = field(default_factory=list)
    repeated: set[int] = field(default_factory=set)
    data: Callable[[int], dict[str, Any]] = field(default_factory=lambda: _data)
    batch: int = 50
    sink: bool = True
    delivered: list[dict[str, Any]] = field(default_factory=list)
    _seen: list[dict[str, Any]] = field(default_factory=list)
    _last: int = 0

    def run(self, rounds: int) -> list[str]:
        """What is wrong; nothing if all is well."""
        chance = random.Random(self.seed)
        url = self.broker.url
        relay = Relay(self.broker.port) if isinstance(self.broker, Broker) else None
        if relay is not None:
            url = f"{url.rpartition(':')[0]}:{relay.port}"
        kinds = [kind for kind in self.kinds if relay is not None or kind in ("connector", "server")]
        options = ("--topic", TOPIC, "--source", "kills", "--create", "--batch", str(self.batch))
        connector = ConnectorProcess(self.folder, url, self.server.url, *options)
        reader = self._subscribe(url) if self.sink else None
        try:
            connector.start()
            self._first_read(connector)
            for number in range(rounds):
                self._round(chance, kinds[number % len(kinds)], connector, relay, reader)
            self._wait(connector)
            if reader is not None:
                self.delivered = self._read_all(reader)
            connector.stop()
        finally:
            connector.kill()
            if reader is not None:
                reader.close()
            if relay is not None:
                relay.close()
        return self.wrong()

    def _subscribe(self, url: str) -> SinkReader:
        """To all events, delivered to `OUT`."""
        if isinstance(self.broker, KafkaCluster):
            self.broker.publish(OUT, (b"{}", {}))  # makes the topic
        reader = SinkReader(self.broker.url, OUT)
        name = parse_url(url).protocol
        settings = {BROKER_PROTOCOLS[name].place: OUT, "mode": "binary"}
        with Client(self.server.url) as client:
            client.subscribe("", sink=url, protocol=name, protocolsettings=settings)
        return reader

    def _read_all(self, reader: SinkReader) -> list[dict[str, Any]]:
        """What was delivered, when all that the server has accepted so far is."""
        accepted = {_key(event) for event in self._found()}
        return reader.read_until(lambda found: {_key(event) for event in found} >= accepted)

    def _first_read(self, connector: ConnectorProcess) -> None:
        """The queue, stream or session is there when messages may be sent."""
        self._publish([-1])
        self.sent.append(-1)
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := self._found()) and time.monotonic() < until:
            if connector.returncode() is not None:
                connector.start()
            if not found:
                self._publish([-1])
                self.repeated.add(-1)
            time.sleep(0.2)

    def _round(
        self,
        chance: random.Random,
        kind: str,
        connector: ConnectorProcess,
        relay: Relay | None,
        reader: SinkReader | None,
    ) -> None:
        """Half of the messages, the kill, the other half."""
        if relay is None and len(self.sent) + self.each > MOCK_ROOM:
            self._arrive(self.sent)
        numbers = list(range(len(self.sent) - 1, len(self.sent) - 1 + self.each))
        self._publish(numbers[: self.each // 2])
        time.sleep(chance.uniform(0.0, 0.3))
        if kind == "connector":
            connector.kill()
            connector.start()
        elif kind == "server":
            self.server.kill()
            time.sleep(chance.uniform(0.0, 0.3))
            self.server.start()
        elif kind == "connection":
            assert relay is not None
            relay.cut()
        else:
            assert isinstance(self.broker, Broker)
            if reader is not None and self.broker.url.startswith("mqtt"):
                # mosquitto confirms what it saves later, and forgets it when it is killed before: it is killed when
                # everything has arrived
                self._arrive([*self.sent, *numbers[: self.each // 2]])
                self._read_all(reader)
            time.sleep(SAVED_SECONDS)
            self.broker.kill()
            self.broker.start()
        self.done[kind] += 1
        self._publish(numbers[self.each // 2 :])
        self.sent += numbers

    def _publish(self, numbers: Sequence[int]) -> None:
        """Returns when the broker has confirmed all; what it did not confirm is sent again."""
        left = list(numbers)
        until = time.monotonic() + PATIENCE_SECONDS
        while left:
            assert time.monotonic() < until, "the broker does not come back"
            confirmed: list[int] = []
            try:
                asyncio.run(self._send(left, confirmed))
            except (BrokerLost, OSError, TimeoutError, RuntimeError) as error:
                if not isinstance(error, BrokerLost | OSError | TimeoutError):
                    raise
                time.sleep(0.1)
            left = left[len(confirmed) :]
            self.repeated.update(left)

    async def _send(self, numbers: Sequence[int], confirmed: list[int]) -> None:
        bodies = [_body(number, self.data(number), ids=self.ids) for number in numbers]
        if isinstance(self.broker, KafkaCluster):
            self.broker.publish(TOPIC, *((body, {}) for body in bodies))
            confirmed += numbers
            return
        url = parse_url(self.broker.url)
        if url.protocol == "MQTT":
            from kindcast.server.connectors.mqtt import Connection

            connection = Connection(url, "kills-publisher", None)
            try:
                await connection.open(clean=True)
                for some in _parts(numbers, bodies):
                    await asyncio.gather(*(connection.publish(TOPIC, Content(body)) for body in some.values()))
                    confirmed += some
            finally:
                await connection.close()
        elif url.protocol == "NATS":
            from nats.errors import Error
            from nats.js.errors import NoStreamResponseError

            from kindcast.server.connectors.nats import connect as connect_nats

            client = await connect_nats(url)
            try:
                for number, body in zip(numbers, bodies, strict=True):
                    await client.jetstream(timeout=2.0).publish(TOPIC, body)
                    confirmed.append(number)
            except (NoStreamResponseError, Error) as error:
                raise BrokerLost(str(error)) from error
            finally:
                await client.close()
        elif url.protocol == "REDIS":
            from redis import Redis
            from redis.exceptions import RedisError

            try:
                with Redis(port=url.hosts[0][1], socket_timeout=5.0, retry=None) as opened_redis:
                    for number, body in zip(numbers, bodies, strict=True):
                        opened_redis.xadd(TOPIC, {"data": body})
                        confirmed.append(number)
            except RedisError as error:
                raise BrokerLost(str(error)) from error
        else:
            from aio_pika.exceptions import AMQPError, DeliveryError

            from kindcast.server.connectors.amqp import connect as connect_amqp
            from kindcast.server.connectors.amqp import message_of

            opened = await connect_amqp(url)
            try:
                channel = await opened.channel(publisher_confirms=True)
                publish = partial(channel.default_exchange.publish, routing_key=TOPIC, mandatory=True, timeout=5.0)
                for some in _parts(numbers, bodies):
                    await asyncio.gather(*(publish(message_of(Content(body), None)) for body in some.values()))
                    confirmed += some
            except (DeliveryError, AMQPError) as error:
                raise BrokerLost(str(error)) from error
            finally:
                await opened.close()

    def _arrive(self, numbers: Sequence[int]) -> None:
        """At the server."""
        wanted = {number for number in numbers if "number" in self.data(number)}
        until = time.monotonic() + PATIENCE_SECONDS
        while wanted - {_number(event) for event in self._seen_now()} and time.monotonic() < until:
            time.sleep(0.2)

    def _wait(self, connector: ConnectorProcess) -> None:
        """Until nothing new has come for some seconds, and no message misses; or nothing comes for long. Messages with
        equal content are counted: one may come alone and late, when Redis gave it to a connector that was killed."""
        wanted = self._wanted()
        until, last, quiet = time.monotonic() + PATIENCE_SECONDS, -1, 0.0
        while time.monotonic() < until:
            found = self._seen_now()
            if len(found) != last:
                until, quiet = time.monotonic() + PATIENCE_SECONDS, 0.0
            elif wanted <= Counter(_content(event) for event in found):
                quiet += 0.5
            if quiet >= 3.0:
                return
            last = len(found)
            time.sleep(0.5)

    def _found(self) -> list[dict[str, Any]]:
        """All that the server has."""
        self._seen, self._last = [], 0
        return self._seen_now()

    def _seen_now(self) -> list[dict[str, Any]]:
        """What was seen before, and what is new: to wait for something among many."""
        with Client(self.server.url) as client:
            while page := client.events(after=self._last, limit=1_000)["events"]:
                self._seen += [each["event"] for each in page if each["event"]["source"].startswith("kills")]
                self._last = page[-1]["sequence"]
        return self._seen

    def _wanted(self) -> Counter[str]:
        """The contents that were sent, each as often as it was sent under another number."""
        return Counter(msgspec.json.encode(self.data(number)).decode() for number in self.sent)

    def wrong(self) -> list[str]:
        """Lost, and accepted twice though the publisher sent it once. Equal messages are counted."""
        arrived = Counter(_content(event) for event in self._found())
        wanted = self._wanted()
        doubtful = set() if self.ids else {msgspec.json.encode(self.data(number)).decode() for number in self.repeated}
        told = [f"lost: {wanted[each] - arrived[each]} of {each}" for each in wanted if arrived[each] < wanted[each]]
        told += [
            f"twice: {arrived[each] - wanted[each]} of {each}"
            for each in arrived
            if arrived[each] > wanted[each] and each not in doubtful
        ]
        return told + (self._wrongly_delivered() if self.sink else [])

    def _wrongly_delivered(self) -> list[str]:
        """By what the server accepted: lost, never accepted, changed, one event under several cursors, out of order
        where it came first."""
        accepted = {_key(event): event for event in self._found()}
        cursors: dict[tuple[str, str], set[int]] = defaultdict(set)
        for event in self.delivered:
            cursors[_key(event)].add(int(event["kindcastcursor"]))
        told = [f"not delivered: {key}" for key in accepted.keys() - cursors.keys()]
        told += [f"delivered, never accepted: {key}" for key in cursors.keys() - accepted.keys()]
        told += [f"under the cursors {sorted(found)}: {key}" for key, found in cursors.items() if len(found) > 1]
        told += [
            f"changed: {event}" for event in self.delivered if event["data"] != accepted.get(_key(event), event)["data"]
        ]
        first = [next(iter(found)) for found in cursors.values()]
        if first != sorted(first):
            told.append("not in the order of the cursors")
        return told

    def counted(self) -> dict[str, int]:
        """What was done: kills by kind, messages, and what was delivered again."""
        once = len({_key(event) for event in self.delivered})
        more = {"messages": len(self.sent), "delivered": once, "delivered again": len(self.delivered) - once}
        return {**{f"{kind} killed": number for kind, number in self.done.items()}, **more}


def _data(number: int) -> dict[str, Any]:
    return {"value": 21.5} if number >= 0 and number % 10 == 0 else {"number": number}


def _body(number: int, data: dict[str, Any], *, ids: bool) -> bytes:
    if not ids:
        return msgspec.json.encode(data)
    event = {"specversion": "1.0", "id": str(number), "source": "kills", "type": "t", "data": data}
    return msgspec.json.encode(event)


def _parts(numbers: Sequence[int], bodies: Sequence[bytes]) -> Iterator[dict[int, bytes]]:
    """Number → body, so many together."""
    for first in range(0, len(numbers), TOGETHER):
        yield dict(zip(numbers[first : first + TOGETHER], bodies[first : first + TOGETHER], strict=True))


def _content(event: dict[str, Any]) -> str:
    return msgspec.json.encode(event["data"]).decode()


def _key(event: dict[str, Any]) -> tuple[str, str]:
    return event["source"], event["id"]


def _number(event: dict[str, Any]) -> int:
    number = event["data"].get("number")
    return -2 if number is None else int(number)
