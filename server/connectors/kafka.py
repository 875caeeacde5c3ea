"""Kafka with the client library confluent-kafka (librdkafka): a source that is a consumer group and commits its
offsets.

The library is blocking and reconnects by itself. Its calls run in a worker thread, one at a time.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place

from kindcast.server.connectors.bindings import KAFKA, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["KafkaSource", "client_settings", "headers_of", "producer_settings", "trouble"]

CALL_SECONDS = 10.0
QUEUED_KILOBYTES = 16_384
"""How much librdkafka prefetches from each partition."""

SESSION_MILLISECONDS = 10_000
"""After this time without a heartbeat, other consumers take over from a consumer that was killed."""

END_MILLISECONDS = 253_402_300_800_000
"""The year 10000. A producer may give any number as the time of a record, for example microseconds."""

LARGEST_MESSAGE_BYTES = 1_000_000_000
"""The largest value that librdkafka accepts."""

CONTENT_TYPE = "content-type"

_REFUSED = frozenset(
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.MSG_SIZE_TOO_LARGE,
    ]
)


def client_settings(url: BrokerUrl) -> dict[str, str | int | float | bool]:
    """Returns the settings for connecting to the cluster. User and password are SASL PLAIN."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": url.netloc,
        "client.id": "kindcast",
        "log_level": 0,
        "security.protocol": ("SASL_" if url.user is not None else "") + ("SSL" if url.tls else "PLAINTEXT"),
    }
    authorities = os.environ.get("SSL_CERT_FILE", "")  # librdkafka reads it only where the system has none
    if url.tls and os.path.isfile(authorities):  # a file that is missing is ignored, as by the other protocols
        settings["ssl.ca.location"] = authorities
    if url.user is not None:
        settings |= {
            "sasl.mechanism": "PLAIN",
            "sasl.username": url.user,
            "sasl.password": url.password or "",
        }
    return settings


def producer_settings(url: BrokerUrl) -> dict[str, str | int | float | bool]:
    """Returns the settings of a producer. The cluster decides how large a message may be, not the library."""
    return client_settings(url) | {"message.max.bytes": LARGEST_MESSAGE_BYTES}


class KafkaSource:
    """Reads topics as a member of the consumer group `group`. A new group starts at the oldest message."""

    binding = KAFKA
    dropped = 0

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], group: str) -> None:
        self._url, self._topics, self._group = url, topics, group
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._problem: KafkaError | None = None

    async def open(self) -> bool:
        settings: dict[str, Any] = client_settings(self._url) | {
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MILLISECONDS,
            "queued.max.messages.kbytes": QUEUED_KILOBYTES,
            "error_cb": self._note,
        }
        try:
            self._consumer = Consumer(settings)
        except KafkaException as error:  # for example because a file of certificates cannot be read
            raise BrokerRefused(f"the client of Kafka cannot start: {error.args[0].str()}") from error
        try:
            self._consumer.subscribe([topic.filter for topic in self._topics])
        except KafkaException as error:
            raise BrokerRefused(f"Kafka refuses these topics: {error.args[0].str()}") from error
        try:  # the library reports a cluster that cannot be reached only later, and not to this thread
            await asyncio.to_thread(self._consumer.list_topics, timeout=CALL_SECONDS)
        except KafkaException as error:
            await asyncio.to_thread(self._consumer.poll, 0)  # calls `_note`
            raise trouble(self._problem or error.args[0]) from error
        return True

    def _note(self, error: KafkaError) -> None:
        """Stores why a broker cannot be reached. The calls only say that it cannot."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._problem = error

    async def read(self, limit: int, seconds: float) -> list[Received]:
        assert self._consumer is not None
        try:
            messages = await asyncio.to_thread(self._consumer.consume, limit, seconds)
        except KafkaException as error:
            raise trouble(error.args[0]) from error
        found: list[Received] = []
        for message in messages:
            if (problem := message.error()) is None:
                found.append(_received(message))
            elif problem.fatal() or problem.code() in _REFUSED | {KafkaError._ALL_BROKERS_DOWN}:
                raise trouble(problem)
        return found

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        assert self._consumer is not None
        last: dict[tuple[str, int], int] = {}
        for message in messages:
            topic, partition, offset = message.handle
            last[topic, partition] = offset + 1
        places = [Place(topic, partition, offset) for (topic, partition), offset in last.items()]
        try:
            await asyncio.to_thread(self._consumer.commit, offsets=places, asynchronous=False)
        except KafkaException as error:
            raise trouble(error.args[0]) from error

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        if self._producer is None:
            self._producer = Producer(producer_settings(self._url))
        headers = {**message.content.headers, "kindcast-problem": reason, "kindcast-topic": message.topic}
        content = Content(message.content.body, message.content.content_type, headers)
        failed: list[KafkaError] = []
        self._producer.produce(
            topic,
            content.body,
            headers=headers_of(content),
            on_delivery=lambda error, _message: failed.append(error) if error is not None else None,
        )
        left = await asyncio.to_thread(self._producer.flush, CALL_SECONDS)
        if failed:
            raise trouble(failed[0])
        if left:
            raise BrokerLost("no answer")

    async def close(self) -> None:
        if self._consumer is not None:
            await asyncio.to_thread(self._consumer.close)


def headers_of(content: Content) -> list[tuple[str, str | bytes | None]]:
    """Returns content type and headers as headers of a record."""
    headers: Mapping[str, str] = content.headers
    if content.content_type is not None:
        headers = {CONTENT_TYPE: content.content_type, **headers}
    return [(name, value.encode()) for name, value in headers.items()]


def trouble(error: Any) -> BrokerLost | BrokerRefused:
    """Converts an error of librdkafka."""
    if error.code() in _REFUSED:
        return BrokerRefused(f"Kafka refuses: {error.str()}")
    return BrokerLost(error.str())


def _received(message: Message) -> Received:
    given: Any = message.headers() or ()  # pairs of text and bytes
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in given}
    content_type = headers.pop(CONTENT_TYPE, None)
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    kind, milliseconds = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE and milliseconds > 0
    at = None
    if known and milliseconds < END_MILLISECONDS:
        told = datetime.fromtimestamp(milliseconds / 1_000, UTC)
        at = told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    key = message.key()
    named = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    return Received(
        topic=topic,
        content=Content(message.value() or b"", content_type, headers),
        handle=(topic, partition, offset),
        identity=f"{partition}-{offset}-{milliseconds}" if known else f"{partition}-{offset}",
        time=at,
        more={} if not named else {"partitionkey": named},
    )
