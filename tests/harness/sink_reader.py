"""Reads what a server delivers to a broker, by the source of the same protocol, whatever happens to the broker."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kindcast.server.connectors.bindings import Plain
from kindcast.server.connectors.broker_url import parse_topic, parse_url
from kindcast.server.connectors.source import BrokerLost, Source, open_source

__all__ = ["SinkReader"]

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.1


class SinkReader:
    """A thread of its own, from now until `close`. When it is made the queue, stream or session is there."""

    def __init__(self, url: str, topic: str) -> None:
        self._url, self._topic = parse_url(url), topic
        self._events: list[dict[str, Any]] = []
        self._ready, self._ended = threading.Event(), threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS), "the broker cannot be reached"
        self._check()

    def events(self) -> list[dict[str, Any]]:
        """All CloudEvents so far, in the order of arrival; other messages are left out."""
        self._check()
        return list(self._events)

    def read_until(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The events as soon as they are enough, or when none has come for long."""
        count, until = -1, 0.0
        while not enough(found := self.events()):
            if len(found) > count:
                count, until = len(found), time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > until:
                break
            time.sleep(PAUSE_SECONDS)
        return found

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._read_on())
        except Exception as error:
            self._failure = error
            self._ready.set()

    async def _read_on(self) -> None:
        topics = [parse_topic(self._topic, self._url.protocol)]
        while not self._ended.is_set():
            source = open_source(self._url, topics, group="reader", batch=500, create=True)
            try:
                await source.open()
                self._ready.set()
                await self._read(source)
            except BrokerLost:
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                await source.close()

    async def _read(self, source: Source) -> None:
        plain = Plain(id="", source="")
        while not self._ended.is_set():
            if found := await source.read(500, PAUSE_SECONDS):
                events = [msgspec.json.decode(source.binding.event(each.content, plain)) for each in found]
                self._events += [each for each in events if each.get("id")]
                await source.acknowledge(found)  # last: it may arrive although its answer does not
