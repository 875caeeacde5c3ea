"""MQTT 5 with the client library paho: a source with explicit acknowledgements.

paho runs the connection in a separate thread. Messages are passed to the event loop with `call_soon_threadsafe`. MQTT's
receive maximum, which the broker respects, limits the number of unacknowledged messages.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from kindcast.server.connectors.bindings import MQTT, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic, tls_for
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["MqttSource", "content_properties"]

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 20
SESSION_SECONDS = 0xFFFFFFFF
"""How long the broker keeps the session of a disconnected connector: as long as the broker allows."""

NO_TOPIC = "kindcast/acknowledged"
"""A topic that is not read here."""

MAX_WINDOW = 65_535

THREADS = 16
"""The threads for connecting and closing, which block in paho. They are a separate pool, so that brokers that do not
answer delay no other work."""
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mqtt")

TAKEN_OVER = "Session taken over"
"""The reason for which a broker closes a connection if another client connects with the same name."""

FIRST_FAILURE = 0x80
"""Reason codes of MQTT from this one on are failures."""

_REFUSED = frozenset(["Bad user name or password", "Not authorized", "Unsupported protocol version", "Banned"])


def content_properties(content: Content) -> Properties:
    """Returns content type and headers as properties of a PUBLISH."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if content.content_type is not None:
        properties.ContentType = content.content_type
    if content.headers:
        properties.UserProperty = list(content.headers.items())
    return properties


class _Client(paho.Client):
    """Says when the broker refuses a message. The library ignores the reason in the first answer of the broker with
    QoS 2 (PUBREC), and the second answer (PUBCOMP) confirms a message that the broker never took. If a reason is not
    one of those for this answer, as the "Packet too large" of mosquitto, the library breaks the connection, or waits
    without end."""

    def _handle_pubrec(self) -> MQTTErrorCode:
        return super()._handle_pubrec() if (reason := self._refusal()) is None else self._refused(reason)

    def _handle_pubackcomp(self, cmd: Literal["PUBACK", "PUBCOMP"]) -> MQTTErrorCode:
        return super()._handle_pubackcomp(cmd) if (reason := self._refusal()) is None else self._refused(reason)

    def _refusal(self) -> int | None:
        packet = self._in_packet["packet"]
        return packet[2] if len(packet) > 2 and packet[2] >= FIRST_FAILURE else None

    def _refused(self, reason: int) -> MQTTErrorCode:
        mid = int.from_bytes(bytes(self._in_packet["packet"][:2]))
        with self._out_message_mutex:
            if mid not in self._out_messages:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            return self._do_on_publish(mid, _named(reason), Properties(PacketTypes.PUBREC))  # type: ignore[no-untyped-call]


def _named(reason: int) -> ReasonCode:
    """Returns the reason with this number: one of an answer to a message or, if there is none, of the end of a
    connection."""
    for packet in (PacketTypes.PUBREC, PacketTypes.DISCONNECT):
        with suppress(KeyError, ValueError):
            return ReasonCode(packet, identifier=reason)
    return ReasonCode(PacketTypes.PUBREC, identifier=FIRST_FAILURE)


class Connection:
    """One connection. Callbacks run in paho's thread and pass their data to the event loop that created this."""

    def __init__(
        self,
        url: BrokerUrl,
        client_id: str,
        on_message: Callable[[paho.MQTTMessage], None] | None,
        *,
        address: str | None = None,
    ) -> None:
        """`address` is where to connect, if the host was resolved already."""
        self._url, self._client_id, self._address = url, client_id, address
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[Any] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._early: dict[int, Any] = {}
        self.lost = asyncio.Event()
        self.failure: BrokerLost | BrokerRefused = BrokerLost("the connection broke")
        self.client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if url.user is not None:
            self.client.username_pw_set(url.user, url.password)
        if url.tls:
            self.client.tls_set_context(tls_for(url.hosts[0][0]))
        self.client.connect_timeout = CONNECT_SECONDS
        self.client.on_connect = lambda _client, _data, flags, reason, _properties: self._call(
            self._set, self._connected, (reason, flags.session_present)
        )
        self.client.on_disconnect = lambda _client, _data, _flags, reason, _properties: self._call(
            self._on_lost, str(reason)
        )
        self.client.on_subscribe = lambda _client, _data, mid, reasons, _properties: self._call(
            self._answer, mid, reasons
        )
        self.client.on_publish = lambda _client, _data, mid, reason, _properties: self._call(self._answer, mid, reason)
        self.client.on_unsubscribe = lambda _client, _data, mid, reasons, _properties: self._call(
            self._answer, mid, reasons
        )
        if on_message is not None:
            self.client.on_message = lambda _client, _data, message: self._call(on_message, message)

    async def open(self, *, clean: bool, session_seconds: int = 0, window: int = MAX_WINDOW) -> bool:
        """Connects. Returns whether the broker had a session of this client. Raises `BrokerLost`, `BrokerRefused`."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = session_seconds
        properties.ReceiveMaximum = min(window, MAX_WINDOW)
        host, port = self._url.hosts[0]
        try:
            await self._loop.run_in_executor(
                _threads,
                partial(
                    self.client.connect,
                    self._address or host,
                    port,
                    KEEPALIVE_SECONDS,
                    clean_start=clean,
                    properties=properties,
                ),
            )
            self.client.loop_start()
            reason, present = await asyncio.wait_for(self._connected, CONNECT_SECONDS)
        except (OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
            raise BrokerLost(str(error) or "no answer") from error
        _check(reason)
        return bool(present)

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribes to filters. Raises `BrokerRefused` if the broker refuses one of them. The broker sends retained
        messages only if the session did not have the filter before, because they have no ids and were read then."""
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        reasons = await self._answered(*self.client.subscribe([(each, options) for each in filters]))
        for filter, reason in zip(filters, reasons, strict=False):
            if reason.is_failure:
                raise BrokerRefused(f"the broker refuses to send {filter}: {reason}")

    async def settle(self) -> None:
        """Returns when the broker has read everything that was sent so far. Acknowledgements have no answer, but the
        answer to a later packet shows that they arrived."""
        await self._answered(*self.client.unsubscribe(NO_TOPIC))

    async def publish(self, topic: str, content: Content, *, qos: int = 1, retain: bool = False) -> None:
        """Publishes a message. The broker has it when this returns. Raises `BrokerLost`, `BrokerRefused`."""
        sent = self.client.publish(topic, content.body, qos, retain, content_properties(content))
        reason = await self._answered(sent.rc, sent.mid)
        if reason.is_failure:
            raise BrokerRefused(f"the broker refuses a message to {topic}: {reason}")

    async def _answered(self, result: MQTTErrorCode, mid: int | None) -> Any:
        if self.lost.is_set():
            raise self.failure
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise BrokerLost(paho.error_string(result))
        if mid in self._early:
            return self._early.pop(mid)
        self._answers[mid] = self._loop.create_future()
        try:
            return await asyncio.wait_for(self._answers[mid], CONNECT_SECONDS)
        except TimeoutError:
            raise BrokerLost("no answer") from None
        finally:
            self._answers.pop(mid, None)

    async def close(self) -> None:
        """Closes the connection. The session stays at the broker."""
        self.client.on_message = None
        await self._loop.run_in_executor(_threads, self._close)

    def _close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _answer(self, mid: int, answer: Any) -> None:
        future = self._answers.get(mid)
        if future is None:
            self._early[mid] = answer
        else:
            self._set(future, answer)

    def _on_lost(self, reason: str) -> None:
        if reason == TAKEN_OVER:
            self.failure = BrokerRefused(
                f"another connector reads with the group {self._client_id}, and MQTT allows only one: "
                "give each its own --group"
            )
        elif not self._connected.done():
            self.failure = BrokerLost(
                "the broker closed the connection without an answer: "
                "does this port need TLS (mqtts://), or the broker a client certificate?"
            )
        self.lost.set()
        for future in [self._connected, *self._answers.values()]:
            if not future.done():
                future.set_exception(self.failure)
                future.exception()  # the waiting task may have ended

    @staticmethod
    def _set(future: "asyncio.Future[Any]", value: Any) -> None:
        if not future.done():
            future.set_result(value)


def _check(reason: ReasonCode) -> None:
    if reason.is_failure:
        told = f"the broker refuses the connection: {reason}"
        raise BrokerRefused(told) if str(reason) in _REFUSED else BrokerLost(told)


class MqttSource:
    """Reads topics in a session that the broker keeps under the name `group`, with at-least-once delivery (QoS 1)."""

    binding = MQTT

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], group: str, window: int) -> None:
        self._url, self._topics, self._group, self._window = url, topics, group, window
        self.dropped = 0
        self._connection: Connection | None = None
        self._waiting: deque[paho.MQTTMessage] = deque()
        self._some = asyncio.Event()

    async def open(self) -> bool:
        self._connection = Connection(self._url, self._group, self._take)
        resumed = await self._connection.open(clean=False, session_seconds=SESSION_SECONDS, window=self._window)
        await self._connection.subscribe([topic.filter for topic in self._topics])
        return resumed

    async def read(self, limit: int, seconds: float) -> list[Received]:
        assert self._connection is not None
        if not self._waiting:
            self._some.clear()
            some, lost = asyncio.ensure_future(self._some.wait()), asyncio.ensure_future(self._connection.lost.wait())
            await asyncio.wait((some, lost), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            some.cancel()
            lost.cancel()
        if self._connection.lost.is_set():
            raise self._connection.failure
        return [_received(self._waiting.popleft()) for _ in range(min(limit, len(self._waiting)))]

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        assert self._connection is not None
        if self._connection.lost.is_set():
            raise self._connection.failure
        for message in messages:
            mid, qos = message.handle
            if qos and self._connection.client.ack(mid, qos) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise self._connection.failure
        await self._connection.settle()

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        assert self._connection is not None
        content = message.content
        headers = {**content.headers, "kindcastproblem": reason, "kindcasttopic": message.topic}
        await self._connection.publish(topic, Content(content.body, content.content_type, headers))

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _take(self, message: paho.MQTTMessage) -> None:
        """The receive maximum does not limit messages with QoS 0, so they are dropped if too many wait."""
        if message.qos == 0 and len(self._waiting) >= self._window:
            self.dropped += 1
            return
        self._waiting.append(message)
        self._some.set()


def _received(message: paho.MQTTMessage) -> Received:
    properties = message.properties
    return Received(
        topic=message.topic,
        content=Content(
            bytes(message.payload),
            getattr(properties, "ContentType", None),
            dict(getattr(properties, "UserProperty", ())),
        ),
        handle=(message.mid, message.qos),
        mark=str(message.mid),
        again=message.qos > 0,
    )
