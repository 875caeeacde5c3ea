"""Sinks at message brokers: MQTT, NATS, AMQP and Kafka, by the protocol bindings of CloudEvents.

    courier --Delivery--> BrokerSender.send --guard--> link to the broker --confirmed--> Outcome --> courier

A message is delivered when the broker has confirmed it. The guard is the same as for webhooks: the host is resolved
once, every address must be public, and the connection uses the first of these addresses that answers. A link never
reconnects by itself and ignores lists of other servers. Kafka cannot be guarded in this way, because its clients
connect to any broker that the cluster names. So Kafka needs a host that the administrator has allowed.

The courier sends one message of a subscription at a time, while it holds the lease of the subscription.

The libraries are the extra `connect`. They are imported when a subscription first uses their protocol.
"""

import asyncio
import logging
import re
import ssl
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec

from kindcast.server.clock import CLOCK
from kindcast.server.connectors.bindings import AMQP, KAFKA, MQTT, NATS, NO_HEADER, STRUCTURED, Binding, Content
from kindcast.server.connectors.broker_url import SCHEMES, BrokerUrl, WrongUrl, parse_url
from kindcast.server.connectors.broker_url import Protocol as Name
from kindcast.server.connectors.source import MISSING, BrokerLost, BrokerRefused
from kindcast.server.delivery.message import EXPIRY_NOTICE
from kindcast.server.delivery.webhook import Delivery, Outcome, causes
from kindcast.server.security.egress import (
    ALLOWING,
    CONNECT_SECONDS_PER_ADDRESS,
    MAX_SINK_LENGTH,
    Resolver,
    SinkRefused,
    SystemResolver,
    is_public,
    refuse_local_name,
)

__all__ = ["BROKER_PROTOCOLS", "BrokerProtocol", "BrokerSender", "check_settings", "check_url"]

log = logging.getLogger(__name__)

MAX_LINKS = 256
"""The maximum number of open connections to brokers. Above it, the connection that was unused longest is closed."""

IDLE_SECONDS = 60.0
"""A link that was unused for this long is closed when another link is needed."""

MAX_NAME_LENGTH = 255
_NAME = re.compile(r"[^\x00-\x20\x7f]+")


@dataclass(frozen=True, slots=True)
class BrokerProtocol:
    """The rules of one protocol. `place` is the member of protocolsettings with the destination of messages.
    `forbidden` are the characters that a destination must not contain, and `reserved` the prefixes that it must not
    have, because the broker takes commands there. `settings` are the other members, and `library` is the module that is
    needed."""

    binding: Binding
    place: str
    forbidden: str
    library: str
    settings: frozenset[str] = frozenset()
    reserved: tuple[str, ...] = ()


BROKER_PROTOCOLS: Mapping[Name, BrokerProtocol] = {
    "MQTT": BrokerProtocol(MQTT, "topicname", "+#", "paho", frozenset({"qos", "retain"}), ("$",)),
    "NATS": BrokerProtocol(NATS, "subject", "*>", "nats", reserved=("$", "_INBOX.")),
    "AMQP": BrokerProtocol(AMQP, "address", "", "aio_pika"),
    "KAFKA": BrokerProtocol(KAFKA, "topicname", "/", "confluent_kafka"),
}

MODES = ("structured", "binary")


def check_settings(name: Name, protocolsettings: Mapping[str, Any], sinkcredential: Mapping[str, Any]) -> None:
    """Checks the delivery options of a subscription. Raises `SinkRefused`."""
    protocol = BROKER_PROTOCOLS[name]
    if find_spec(protocol.library) is None:
        raise SinkRefused(f"this server cannot deliver by {name}: {MISSING}")
    for each in protocolsettings:
        if each not in (EXPIRY_NOTICE, protocol.place, "mode", *protocol.settings):
            raise SinkRefused(f"protocolsettings.{each[:100]} is unknown for {name}")
    place = protocolsettings.get(protocol.place)
    if not isinstance(place, str) or len(place) > MAX_NAME_LENGTH or not _NAME.fullmatch(place):
        raise SinkRefused(
            f"{name} needs protocolsettings.{protocol.place}, a text of at most {MAX_NAME_LENGTH} characters"
        )
    if NO_HEADER.search(place):
        raise SinkRefused(f"protocolsettings.{protocol.place} must not have control characters or noncharacters")
    if set(place) & set(protocol.forbidden):
        raise SinkRefused(f"protocolsettings.{protocol.place} must not contain {' or '.join(protocol.forbidden)}")
    if place.startswith(protocol.reserved):
        raise SinkRefused(f"protocolsettings.{protocol.place} must not begin with {' or '.join(protocol.reserved)}")
    if name == "AMQP" and len(place.encode()) > MAX_NAME_LENGTH:
        raise SinkRefused(f"protocolsettings.address must have at most {MAX_NAME_LENGTH} bytes in UTF-8")
    if name == "NATS" and not all(place.split(".")):
        raise SinkRefused("protocolsettings.subject needs a name before, between and after its dots")
    if protocolsettings.get("mode", MODES[0]) not in MODES:
        raise SinkRefused(f"protocolsettings.mode must be {' or '.join(MODES)}")
    if protocolsettings.get("qos", 1) not in (1, 2) or isinstance(protocolsettings.get("qos"), bool):
        raise SinkRefused("protocolsettings.qos must be 1 or 2, because 0 confirms nothing")
    if not isinstance(protocolsettings.get("retain", False), bool):
        raise SinkRefused("protocolsettings.retain must be true or false")
    if sinkcredential:
        _login(name, sinkcredential)


def check_url(name: Name, url: str, *, allow_private: bool, allowed_hosts: Sequence[str]) -> tuple[BrokerUrl, bool]:
    """Checks the URL of a sink. Returns it, and whether its host is allowed with any address. Raises `SinkRefused`."""
    if len(url) > MAX_SINK_LENGTH:
        raise SinkRefused(f"the sink has {len(url)} characters; at most {MAX_SINK_LENGTH} are allowed")
    schemes = [f"{scheme}://" for scheme, known in SCHEMES.items() if known.protocol == name]
    if not url.lower().startswith(tuple(schemes)):
        raise SinkRefused(f"a sink of protocol {name} begins with {' or '.join(schemes)}")
    try:
        parsed = parse_url(url)
    except WrongUrl as error:
        raise SinkRefused(str(error)) from None
    if parsed.user is not None:
        raise SinkRefused("the sink has a user name or password: give them as sinkcredential instead")
    if parsed.path and name != "AMQP":
        raise SinkRefused(
            f"the sink must not have a path: say in protocolsettings.{BROKER_PROTOCOLS[name].place} where to send"
        )
    if allow_private or all(host in allowed_hosts or f"{host}:{port}" in allowed_hosts for host, port in parsed.hosts):
        return parsed, True
    if name == "KAFKA":
        raise SinkRefused(
            "a Kafka cluster names its brokers itself, so the server cannot check them: its hosts must be in the"
            " server's setting broker_sink_hosts"
        )
    [(host, port)] = parsed.hosts
    if port != SCHEMES[parsed.scheme].port:
        usual = SCHEMES[parsed.scheme].port
        raise SinkRefused(f"port {port} is not allowed: use {usual} for {parsed.scheme}; {ALLOWING}")
    refuse_local_name(host)
    return parsed, False


def _login(name: Name, credential: Mapping[str, Any]) -> tuple[str, str | None]:
    """Returns user and password."""
    match credential:
        case {"credentialtype": "PLAIN", "identifier": str(user), "secret": str(secret)}:
            return user, secret
        case {"credentialtype": "ACCESSTOKEN", "accesstoken": str(token)} if name == "NATS":
            return token, None
    raise SinkRefused("sinkcredential must hold credentialtype PLAIN with identifier and secret")


def _tls_words(error: BaseException) -> str | None:
    """Returns what is wrong with the certificate or the TLS of a broker, as webhooks do; None if it is something else.
    Other errors of the network are not told, because a subscriber could search a network by them."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of the broker is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"the TLS handshake failed: {cause.reason or 'unknown reason'}"
    return None


class MessageRefused(BrokerRefused):
    """The broker cannot take this message. The text names only what the subscriber asked for, so it may be shown."""


class Link(Protocol):
    """A connection to one broker. `send` may run any number of times concurrently."""

    async def send(self, place: str, content: Content, id: str, settings: Mapping[str, Any]) -> None:
        """Sends a message and returns when the broker has confirmed it. Raises `BrokerLost`, `BrokerRefused`."""

    async def close(self) -> None:
        """Closes the connection. Raises nothing."""


class OpenedLink(Link, Protocol):
    """A link that must connect before it sends."""

    async def open(self) -> None:
        """Connects to the broker. Raises `BrokerLost`, `BrokerRefused`."""


class BrokerSender:
    """The sender of one protocol. Runs on one event loop."""

    def __init__(
        self,
        name: Name,
        *,
        allow_private: bool,
        allowed_hosts: Sequence[str],
        timeout: float,
        resolver: Resolver | None = None,
    ) -> None:
        self._name, self._timeout = name, timeout
        self._allow_private, self._allowed_hosts = allow_private, tuple(allowed_hosts)
        self._resolver = resolver if resolver is not None else SystemResolver()
        self._links: OrderedDict[str, tuple[Link, float]] = OrderedDict()  # least recently used first
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    def ready_at(self, sink: str) -> float:
        """Returns 0: a message may always be sent now."""
        return 0.0

    async def send(self, delivery: Delivery) -> Outcome:
        """Makes one attempt. Ends within the timeout and raises nothing except cancellation."""
        try:
            async with asyncio.timeout(self._timeout):
                check_settings(self._name, delivery.protocolsettings, delivery.sinkcredential)
                await self._hand_over(delivery)
        except TimeoutError:
            detail = f"no confirmation within {self._timeout:g} s"
        except SinkRefused as error:
            detail = f"not sent: {error}"
        except MessageRefused as error:
            detail = str(error)
        except BrokerRefused:
            detail = "the broker refuses the connection, the credentials or the message"
        except BrokerLost as error:
            detail = _tls_words(error) or "no connection to the broker, or the connection broke"
        except Exception as error:
            # Error messages of the libraries contain URLs with passwords, so only the traceback is logged.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("an attempt at a broker failed unexpectedly: %s\n%s", type(error).__name__, places)
            detail = "the attempt failed because of an error in the server: see the log of the server"
        else:
            return Outcome(kind="delivered", at=CLOCK.now())
        return Outcome(kind="failed", at=CLOCK.now(), detail=detail)

    async def close(self) -> None:
        """Closes all links. No attempt may be running."""
        for key, (link, _) in list(self._links.items()):
            self._drop(key, link)
        if self._closing:
            await asyncio.wait(self._closing)
        if isinstance(self._resolver, SystemResolver):
            self._resolver.close()

    async def _hand_over(self, delivery: Delivery) -> None:
        """Sends over the open link. If that has broken since its last use, sends over a new one, so that an attempt
        does not fail because the broker closed an unused connection."""
        protocol, settings = BROKER_PROTOCOLS[self._name], delivery.protocolsettings
        if settings.get("mode") == "binary":
            content = protocol.binding.binary(delivery.body)
        else:
            content = Content(delivery.body, STRUCTURED)
        key = f"{delivery.sink} {msgspec.json.encode(delivery.sinkcredential, order='sorted').decode()}"
        while True:
            link, new = await self._link(key, delivery)
            try:
                return await link.send(str(settings[protocol.place]), content, delivery.message_id, settings)
            except BrokerRefused:
                raise  # only this message is refused
            except BrokerLost:
                self._drop(key, link)
                if new:
                    raise
            except BaseException:
                self._drop(key, link)
                raise

    async def _link(self, key: str, delivery: Delivery) -> tuple[Link, bool]:
        """Returns the link of a sink and credential, and whether it is new."""
        lock = self._opening.get(key)
        if lock is None:
            lock = self._opening[key] = asyncio.Lock()
        async with lock:
            found = self._links.pop(key, None)
            self._close_unused()
            link = found[0] if found is not None else await self._open(delivery)
            self._links[key] = link, time.monotonic()
            return link, found is None

    def _close_unused(self) -> None:
        for key, (link, used_at) in list(self._links.items()):
            if time.monotonic() - used_at < IDLE_SECONDS and len(self._links) < MAX_LINKS:
                return  # the others were used more recently
            self._drop(key, link)

    def _drop(self, key: str, link: Link) -> None:
        """Closes a link in a separate task, so that an attempt does not wait for that."""
        if self._links.get(key, (None,))[0] is link:
            del self._links[key]
            task = asyncio.get_running_loop().create_task(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _open(self, delivery: Delivery) -> Link:
        url, free = check_url(
            self._name, delivery.sink, allow_private=self._allow_private, allowed_hosts=self._allowed_hosts
        )
        if delivery.sinkcredential:
            user, password = _login(self._name, delivery.sinkcredential)
            url = replace(url, user=user, password=password)
        if self._name == "KAFKA":
            return _KafkaLink(url, self._timeout)  # only hosts that the administrator allowed
        host, port = url.hosts[0]
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise BrokerLost("the host name cannot be resolved") from error
        if not free and not all(map(is_public, addresses)):
            raise SinkRefused("the host of the sink is not a public address")
        return await self._first_open(url, addresses)

    async def _first_open(self, url: BrokerUrl, addresses: Sequence[str]) -> Link:
        """Returns a link to the first address that answers. The broker may listen at only some of them."""
        failure = BrokerLost("the host name has no address")
        for number, address in enumerate(addresses, 1):
            link: OpenedLink = _LINKS[self._name](url, address, self._timeout)
            try:
                async with asyncio.timeout(CONNECT_SECONDS_PER_ADDRESS if number < len(addresses) else None):
                    await link.open()
                return link
            except TimeoutError:
                await link.close()
                failure = BrokerLost("no answer")
            except BrokerLost as error:
                await link.close()
                failure = error
            except BaseException:
                await link.close()
                raise
        raise failure


class _MqttLink:
    def __init__(self, url: BrokerUrl, address: str, timeout: float) -> None:
        from kindcast.server.connectors.mqtt import Connection

        self._connection = Connection(url, "", None, address=address)

    async def open(self) -> None:
        await self._connection.open(clean=True)

    async def send(self, place: str, content: Content, id: str, settings: Mapping[str, Any]) -> None:
        if self._connection.lost.is_set():
            raise BrokerLost("the connection broke")
        qos, retain = int(settings.get("qos", 1)), bool(settings.get("retain", False))
        try:
            await self._connection.publish(place, content, qos=qos, retain=retain)
        except BrokerRefused as error:
            raise MessageRefused(str(error)) from error

    async def close(self) -> None:
        await self._connection.close()


class _NatsLink:
    """Publishes to JetStream streams, which confirm messages. `Nats-Msg-Id` is the same at every attempt."""

    def __init__(self, url: BrokerUrl, address: str, timeout: float) -> None:
        self._url, self._address, self._timeout = url, address, timeout
        self._client: Any = None

    async def open(self) -> None:
        from kindcast.server.connectors.nats import connect

        self._client = await connect(self._url, address=self._address)

    async def send(self, place: str, content: Content, id: str, settings: Mapping[str, Any]) -> None:
        from nats.errors import Error
        from nats.js.errors import APIError, NoStreamResponseError

        from kindcast.server.connectors.nats import is_too_large

        headers = {**content.headers, "Nats-Msg-Id": id}
        if content.content_type is not None:
            headers["Content-Type"] = content.content_type
        if is_too_large(self._client, content.body, headers):
            raise MessageRefused(f"{len(content.body):,} bytes and the headers are more than the broker allows")
        publish = self._client.jetstream().publish(place, content.body, timeout=self._timeout, headers=headers)
        try:
            await self._client.permitted(publish, place)
        except BrokerRefused as error:
            raise MessageRefused(f"the broker does not let this user send to {place}, or read its answer") from error
        except NoStreamResponseError as error:
            raise MessageRefused(f"there is no stream of JetStream for {place}") from error
        except APIError as error:  # for example because the stream is full
            raise MessageRefused(f"the stream of JetStream for {place} does not take the message") from error
        except (Error, OSError) as error:
            raise BrokerLost(str(error)) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class _AmqpLink:
    """Publishes persistent messages with publisher confirms. Each must reach a queue. An address is a queue, or
    `exchange/routing.key`."""

    def __init__(self, url: BrokerUrl, address: str, timeout: float) -> None:
        self._url, self._address, self._timeout = url, address, timeout
        self._connection: Any = None
        self._exchanges: dict[str, Any] = {}

    async def open(self) -> None:
        from kindcast.server.connectors.amqp import broken_is_lost, confirming_channel, connect

        self._connection = await connect(self._url, address=self._address)
        async with broken_is_lost():
            self._channel = await confirming_channel(self._connection)

    async def send(self, place: str, content: Content, id: str, settings: Mapping[str, Any]) -> None:
        from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
        from aiormq.exceptions import ChannelAccessRefused

        from kindcast.server.connectors.amqp import broken_is_lost, message_of

        name, slash, key = place.partition("/")
        async with broken_is_lost():
            try:
                if slash:
                    exchange = self._exchanges.get(name) or await self._channel.get_exchange(name)
                    self._exchanges[name] = exchange
                else:
                    exchange, key = self._channel.default_exchange, name
                await exchange.publish(message_of(content, id), key, mandatory=True, timeout=self._timeout)
            except DeliveryError as error:
                raise MessageRefused(f"no queue accepts a message for {place}") from error
            except ChannelNotFoundEntity as error:
                raise MessageRefused(f"there is no exchange {name}") from error
            except ChannelAccessRefused as error:
                raise MessageRefused(f"the broker does not let this user send to {place}") from error

    async def close(self) -> None:
        from kindcast.server.connectors.amqp import broken_is_lost

        if self._connection is not None:
            with suppress(BrokerLost):
                async with broken_is_lost():
                    await self._connection.close()


class _KafkaLink:
    """An idempotent producer. It connects when it sends. The key of a record is the event's `partitionkey`, else the
    subscription. Records with one key go to one partition, where they keep their order. A separate thread receives the
    confirmations."""

    def __init__(self, url: BrokerUrl, timeout: float) -> None:
        from confluent_kafka import Producer

        from kindcast.server.connectors.kafka import producer_settings

        milliseconds = max(int(timeout * 900), 100)  # the producer gives up before the attempt ends
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(
            producer_settings(url)
            | {
                "enable.idempotence": True,  # implies acks=all, and keeps the order when the producer retries
                "partitioner": "murmur2_random",  # as in Kafka's own clients
                "message.timeout.ms": milliseconds,
                "socket.timeout.ms": milliseconds,
                "linger.ms": 0,
            }
        )
        self._closed = threading.Event()
        self._ended = asyncio.Event()
        threading.Thread(target=self._poll, name="kafka-sink", daemon=True).start()

    async def send(self, place: str, content: Content, id: str, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import KafkaException

        from kindcast.server.connectors.kafka import headers_of, trouble

        confirmed: asyncio.Future[Any] = self._loop.create_future()

        def tell(error: Any) -> None:
            if not confirmed.done():
                confirmed.set_result(error)

        try:
            self._producer.produce(
                place,
                content.body,
                key=_key_of(content),
                headers=headers_of(content),
                on_delivery=lambda error, _record: self._call(tell, error),
            )
        except KafkaException as error:
            raise trouble(error.args[0]) from error
        except BufferError as error:
            raise BrokerLost(str(error)) from error
        if (problem := await confirmed) is not None:
            raise trouble(problem)

    async def close(self) -> None:
        self._closed.set()
        await self._ended.wait()

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(KAFKA_POLL_SECONDS)
        self._producer.purge()
        self._producer.poll(0)  # waiting senders are told that their messages are purged
        del self._producer  # ends its threads
        self._call(self._ended.set)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)


KAFKA_POLL_SECONDS = 0.2


def _key_of(content: Content) -> str | None:
    """Returns the key of a record. `kindcastsubscription` is in every message of a subscription except the server's
    own."""
    names = ("partitionkey", "kindcastsubscription")
    if content.content_type == STRUCTURED:
        event = msgspec.json.decode(content.body, type=dict[str, msgspec.Raw])
        found = [msgspec.json.decode(event[name]) for name in names if name in event]
    else:
        found = [content.headers.get(KAFKA.prefixes[0] + name) for name in names]
    return next((each for each in found if isinstance(each, str) and each), None)


_LINKS: Mapping[Name, Callable[[BrokerUrl, str, float], OpenedLink]] = {
    "MQTT": _MqttLink,
    "NATS": _NatsLink,
    "AMQP": _AmqpLink,
}
