"""The one writer: a thread that owns the matcher and the write connection. `Broker` is its face to the event loop."""

from kindcast.server.broker.broker import Broker, RecentAttributes

__all__ = ["Broker", "RecentAttributes"]
