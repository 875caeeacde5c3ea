"""A parser of server-sent events that does no I/O: bytes in, messages out, and when to reconnect.

`StreamReader` keeps what must survive a lost connection: the last cursor, the pause the server asked for, and how
often in a row nothing came. `Client.listen` and `AsyncClient.listen` feed it and sleep as it says, so the rules stand
here once. Follows the event-stream format of the HTML standard (section 9.2.6) as far as our server uses it: `id`,
`event`, `data`, `retry` and comments.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["StreamReader"]

FIRST_PAUSE_SECONDS = 1.0
"""Before the first reconnection, unless the server names its own with `retry:`."""

LONGEST_PAUSE_SECONDS = 30.0
"""A server that stays away is asked about twice a minute."""

MAX_DOUBLINGS = 16
"""Of the pause; far above the longest one, and no overflow after a year of trying."""


class StreamReader:
    """The state of one `listen` over any number of connections. One caller at a time."""

    def __init__(self, after: str | int | None) -> None:
        self.cursor = None if after is None else str(after)
        self.ended = False
        """Whether the server ended the stream for good: the subscription was deleted or expired."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._failures = 0
        self._rest = b""
        self._fields: dict[str, str] = {}

    def headers(self) -> dict[str, str]:
        """Of the next connection: where to go on."""
        start = {} if self.cursor is None else {"Last-Event-ID": self.cursor}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", **start}

    def connected(self) -> None:
        """A connection was accepted. What the last one left unfinished is dropped: it comes again."""
        self._rest, self._fields = b"", {}

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Takes the next bytes; yields the messages that they complete. `cursor` is that of the last one yielded.

        Only line feeds end a line: `str.splitlines` would also split at characters that JSON text may hold (U+2028).
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode()
            if text:
                self._take(text)
            elif (message := self._finished()) is not None:
                yield message

    def pause(self) -> float:
        """Seconds before the next connection: twice the last pause when no message came since, plus up to a quarter so
        that many listeners do not all come back at once."""
        seconds = min(self._pause_seconds * 2.0**self._failures, LONGEST_PAUSE_SECONDS)
        self._failures = min(self._failures + 1, MAX_DOUBLINGS)
        return seconds * random.uniform(1.0, 1.25)

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        if name == "retry" and value.isascii() and value.isdigit():
            self._pause_seconds = int(value) / 1_000
        self._fields[name] = value

    def _finished(self) -> dict[str, Any] | None:
        fields, self._fields = self._fields, {}
        if fields.get("event") == "match" and "data" in fields:
            message: dict[str, Any] = msgspec.json.decode(fields["data"])
            self.cursor = fields.get("id", self.cursor)
            self._failures = 0
            return message
        if fields.get("event") == "end" and "data" in fields:
            self.ended = msgspec.json.decode(fields["data"]).get("reason") != "shutdown"
        return None
