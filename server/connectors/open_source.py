"""The source of a URL. The libraries of the brokers are the extra `connect`, and imported here when they are needed."""

from collections.abc import Sequence

from kindcast.server.connectors.broker_url import BrokerUrl, Topic
from kindcast.server.connectors.source import Source

__all__ = ["MISSING", "open_source"]

MISSING = "the libraries of message brokers are not installed: pip install 'kindcast[connect]'"

WINDOW_BATCHES = 2
"""What a broker may send beyond what is acknowledged: the batch under way, and the next."""


def open_source(url: BrokerUrl, topics: Sequence[Topic], *, group: str, batch: int, create: bool) -> Source:
    """A source that is not connected yet. Raises ImportError where its library is missing."""
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
