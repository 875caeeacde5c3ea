"""The two HTTP clients: `Client` blocks, `AsyncClient` awaits. The calls themselves are in `calls.py`.

Two things exist twice, once for each client: sending a request, and the loop that reads a stream. `StreamReader` parses
the stream and decides when to connect again, for both.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from functools import cache
from ssl import SSLContext, create_default_context
from typing import Any, Self, TypeVar

import httpx
import msgspec

from kindcast.server import answers
from kindcast.server.client.calls import (
    RETRY_SECONDS,
    TIMEOUT_SECONDS,
    Attempts,
    Call,
    Calls,
    path_of,
    problem,
    reaching,
    read_answer,
)

__all__ = ["AsyncClient", "Client", "StreamReader"]


# A parser of server-sent events that does no I/O: bytes in, messages out, and when to reconnect.
#
# `StreamReader` keeps what must survive a lost connection: the last cursor, the pause that the server asked for, and
# the
# number of failures in a row. `Client.listen` and `AsyncClient.listen` feed it and sleep as it says. It follows the
# event-stream format of the HTML standard (section 9.2.6) as far as our server uses it: `id`,
# `event`, `data`, `retry` and comments.

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

    def feed(self, chunk: bytes) -> Iterator[answers.Message]:
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

    def _finished(self) -> answers.Message | None:
        fields, self._fields = self._fields, {}
        if fields.get("event") == "match" and "data" in fields:
            message: answers.Message = msgspec.json.decode(fields["data"])
            self.cursor = fields.get("id", self.cursor)
            self._failures = 0
            return message
        if fields.get("event") == "end" and "data" in fields:
            self.ended = msgspec.json.decode(fields["data"]).get("reason") != "shutdown"
        return None


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULT_SERVER = "http://127.0.0.1:8080"

STREAM_TIMEOUT_SECONDS = 45.0
"""Without a byte on a stream: three pings were missed, so the connection is lost."""

_PASSING = frozenset({408, 425, 429})

T = TypeVar("T")


class Client(Calls):
    """Sends calls and waits for the answers. May be shared between threads."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        key: str | None = None,
        tenant: str | None = None,
        ca: str | None = None,
        http: httpx.Client | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`key`: an API key, or a token of the server's identity provider; by default the variable KINDCAST_KEY.
        `tenant`: in which an administrator of all tenants acts. `ca`: a PEM file of the authorities whose certificates
        are trusted, in place of the system's; by default the variable KINDCAST_CA. `http`: an `httpx.Client` of your
        own (client certificates, proxies); it is closed with this one. `retry_seconds`: how long a call is sent again
        that found no server, was refused for the moment, or, if it does nothing twice, had no answer."""
        self.tickets = {}
        self._retry_seconds = retry_seconds
        self.server = _checked(server)
        self.headers = _credentials(key, tenant)
        self._http = http or httpx.Client(**_connecting(server, ca))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Sends a call. Raises `ProblemError`; `ServerUnreachable` and `NoAnswerInTime` when there is no answer."""
        attempts = Attempts(call, self._retry_seconds)
        while True:
            try:
                with reaching(self.server):
                    answer = self._http.request(call.method, self.server + call.path, **call.arguments(self.headers))
                pause = attempts.again_after(answer)
            except httpx.TransportError as error:
                if (pause := attempts.again_after(_cause(error))) is None:
                    raise
            else:
                if pause is None:
                    return read_answer(call, answer)
            time.sleep(pause)

    def download(self, path: str, *, method: str = "GET") -> Generator[bytes]:
        """What the server answers, as it comes: exports may be larger than the memory. Raises `ProblemError`;
        `ServerUnreachable` and `NoAnswerInTime` when there is no answer."""
        with (
            reaching(self.server),
            self._http.stream(method, self.server + path, headers=self.headers, timeout=TIMEOUT_SECONDS) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise problem(answer)
            yield from answer.iter_bytes()

    def listen(self, id: str, *, after: str | int | None = None) -> Generator[answers.Message]:
        """Messages as they come, without end: a broken connection is opened again at the last cursor.

        Ends when the subscription is deleted or expires. Raises `ProblemError` when the server refuses for good.
        """
        reader = StreamReader(after)
        while not reader.ended:
            try:
                with self._http.stream("GET", self.server + _path(id), **_arguments(reader, self.headers)) as answer:
                    if answer.is_error:
                        answer.read()
                    if _accepted(answer, reader):
                        for chunk in answer.iter_bytes():
                            yield from reader.feed(chunk)
            except httpx.TransportError:
                pass  # the server went away, or is not back yet
            if not reader.ended:
                time.sleep(reader.pause())


class AsyncClient(Calls):
    """Sends calls on an event loop; every method is a coroutine."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        key: str | None = None,
        tenant: str | None = None,
        ca: str | None = None,
        http: httpx.AsyncClient | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`key`: an API key, or a token of the server's identity provider; by default the variable KINDCAST_KEY.
        `tenant`: in which an administrator of all tenants acts. `ca` and `retry_seconds`: as of `Client`. `http`: an
        `httpx.AsyncClient` of your own; it is closed with this one."""
        self.tickets = {}
        self._retry_seconds = retry_seconds
        self.server = _checked(server)
        self.headers = _credentials(key, tenant)
        self._http = http or httpx.AsyncClient(**_connecting(server, ca))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """As `Client.send`."""
        attempts = Attempts(call, self._retry_seconds)
        while True:
            try:
                with reaching(self.server):
                    arguments = call.arguments(self.headers)
                    answer = await self._http.request(call.method, self.server + call.path, **arguments)
                pause = attempts.again_after(answer)
            except httpx.TransportError as error:
                if (pause := attempts.again_after(_cause(error))) is None:
                    raise
            else:
                if pause is None:
                    return read_answer(call, answer)
            await asyncio.sleep(pause)

    async def download(self, path: str, *, method: str = "GET") -> AsyncGenerator[bytes]:
        """As `Client.download`."""
        with reaching(self.server):
            async with self._http.stream(
                method, self.server + path, headers=self.headers, timeout=TIMEOUT_SECONDS
            ) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise problem(answer)
                async for chunk in answer.aiter_bytes():
                    yield chunk

    async def listen(self, id: str, *, after: str | int | None = None) -> AsyncGenerator[answers.Message]:
        """As `Client.listen`."""
        reader = StreamReader(after)
        while not reader.ended:
            try:
                async with self._http.stream(
                    "GET", self.server + _path(id), **_arguments(reader, self.headers)
                ) as answer:
                    if answer.is_error:
                        await answer.aread()
                    if _accepted(answer, reader):
                        async for chunk in answer.aiter_bytes():
                            for message in reader.feed(chunk):
                                yield message
            except httpx.TransportError:
                pass  # the server went away, or is not back yet
            if not reader.ended:
                await asyncio.sleep(reader.pause())


def _cause(error: httpx.TransportError) -> httpx.TransportError:
    """The error of httpx behind one of ours: it tells whether the request left."""
    return error.__cause__ if isinstance(error.__cause__, httpx.TransportError) else error


def _checked(server: str) -> str:
    """The address without a slash at its end. Raises `httpx.UnsupportedProtocol`."""
    if not server.startswith(("http://", "https://")):
        raise httpx.UnsupportedProtocol(f"the address of a server looks like http://127.0.0.1:8080, not {server!r}")
    return server.rstrip("/")


def _credentials(key: str | None, tenant: str | None) -> dict[str, str]:
    """The headers that say who sends a request. Raises ValueError."""
    key = key or os.environ.get("KINDCAST_KEY")
    if key and not (key.isascii() and key.isprintable()):
        raise ValueError("the key has a character that is not ASCII: copy the key again")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return headers | ({"Kindcast-Tenant": tenant} if tenant else {})


def _is_here(server: str) -> bool:
    """Whether the server is on this machine's loopback: no proxy of the environment leads there."""
    host = httpx.URL(server).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _connecting(server: str, ca: str | None) -> dict[str, Any]:
    """What an `httpx` client for the server is made with. Raises OSError where the authorities cannot be read."""
    trust_env = not _is_here(server)
    ca = ca or os.environ.get("KINDCAST_CA")
    return {"trust_env": trust_env, "verify": _authorities(trust_env) if ca is None else _authorities_of(ca)}


@cache
def _authorities(trust_env: bool) -> SSLContext:
    """Whom TLS connections trust. Loading them takes some 20 ms: once for all clients of a process."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _authorities_of(ca: str) -> SSLContext:
    try:
        return create_default_context(cafile=ca)
    except OSError as error:
        raise OSError(f"the certificates of authorities in {ca} cannot be read: {error.strerror or error}") from error


def _path(id: str) -> str:
    return path_of("subscriptions", id, "stream")


def _arguments(reader: StreamReader, headers: Mapping[str, str]) -> dict[str, Any]:
    timeout = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS)
    return {"headers": {**headers, **reader.headers()}, "timeout": timeout}


def _accepted(answer: httpx.Response, reader: StreamReader) -> bool:
    """Whether a stream follows. Raises `ProblemError` when asking again is no use; answers that pass (the server
    starts, or has too much to do) count as a broken connection."""
    if answer.status_code in _PASSING or answer.is_server_error:
        return False
    if answer.is_error:
        raise problem(answer)
    if answer.status_code == httpx.codes.NO_CONTENT:
        reader.ended = True
        return False
    reader.connected()
    return True
