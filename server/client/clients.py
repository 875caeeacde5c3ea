"""The two HTTP clients: `Client` blocks, `AsyncClient` awaits. The calls themselves are in `calls.py`.

Two things exist once for each client: sending a request, and the loop that reads a stream. `StreamReader` parses the
stream and decides when to reconnect, for both.
"""

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    ServerUnreachable,
    check_download,
    check_stream,
    path_of,
    problem,
    reaching,
    read_answer,
    sendable,
)
from kindcast.server.client.problem_error import ProblemError, UnusableArgument

__all__ = ["AsyncClient", "Client", "StreamReader"]


# A parser of server-sent events without I/O: it converts bytes to messages and decides when to reconnect.
#
# `StreamReader` keeps what must survive a lost connection: the last cursor, the pause that the server asked for, and
# the number of failures in a row. `Client.listen` and `AsyncClient.listen` feed it and sleep as it says. It follows the
# event-stream format of the HTML standard (section 9.2.6) as far as our server uses it: `id`, `event`, `data`, `retry`
# and comments.

FIRST_PAUSE_SECONDS = 1.0
"""The pause before the first reconnection, unless the server sets one with `retry:`."""

LONGEST_PAUSE_SECONDS = 30.0
"""The longest pause. A server that does not return is tried about twice a minute."""

RECONNECT = ("shutdown", "gone")
"""If the stream ends for one of these reasons, it is opened again. After `gone` the server answers 410, with the oldest
cursor that it has."""

MAX_DOUBLINGS = 16
"""The maximum number of doublings of the pause: far more than the longest pause needs, and without overflow after a
year of tries."""


_REFUSALS: Mapping[str, Mapping[str, Any]] = {
    "deleted": {
        "type": "https://kindcast.dev/problems/unknown-subscription",
        "title": "Unknown subscription",
        "status": 404,
        "detail": "the stream ended because the subscription was deleted",
    },
    "damaged": {
        "type": "https://kindcast.dev/problems/record-damaged",
        "title": "Record damaged",
        "status": 503,
        "detail": "the next event of the stream is damaged: to skip it, acknowledge its cursor, or read after it",
    },
    "hidden": {
        "type": "https://kindcast.dev/problems/hidden-attribute",
        "title": "Hidden attribute",
        "status": 403,
        "detail": "the stream ended because the subscription uses an attribute that is hidden from the role now",
    },
}
"""The error that is raised if the stream ends for this reason. It is the error that the next request would get."""


class StreamReader:
    """The state of one `listen` over any number of connections. Only one caller at a time may use it."""

    def __init__(self, after: str | int | None) -> None:
        self.cursor = None if after is None else str(after)
        self.ended = False
        """Whether the server ended the stream for good."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._failures = 0
        self._rest = b""
        self._fields: dict[str, str] = {}

    def headers(self) -> dict[str, str]:
        """Returns the headers of the next connection, with the cursor at which to continue."""
        start = {} if self.cursor is None else {"Last-Event-ID": self.cursor}
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", **start}

    def connected(self) -> None:
        """Called when a connection was accepted. Unfinished data of the last connection is dropped, because it comes
        again."""
        self._rest, self._fields = b"", {}

    def feed(self, chunk: bytes) -> Iterator[answers.Message]:
        """Takes the next bytes, and yields the messages that they complete. `cursor` is that of the last yielded
        message. Raises `ProblemError` if the server ends the stream for another reason than expiry or a restart.

        Only line feeds end a line. `str.splitlines` would also split at characters that JSON text may contain (U+2028).
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode()
            if text:
                self._take(text)
            elif (message := self._finished()) is not None:
                yield message

    def pause(self) -> float:
        """Returns the seconds before the next connection: twice the last pause if no message came since, plus up to a
        quarter, so that many listeners do not all reconnect at once."""
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
            reason = msgspec.json.decode(fields["data"]).get("reason")
            self.ended = reason not in RECONNECT
            if reason in _REFUSALS:
                raise ProblemError.of(_REFUSALS[reason])
        return None


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULT_SERVER = "http://127.0.0.1:8080"

STREAM_TIMEOUT_SECONDS = 45.0
"""After this time without a byte on a stream, three pings are missing, so the connection is lost."""

_PASSING = frozenset({408, 425, 429})

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Each stream occupies a connection as long as it is open. With a limit, all other calls would wait for the streams."""

T = TypeVar("T")


class Client(Calls):
    """A client that sends calls and waits for the answers. May be shared between threads."""

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
        `tenant`: the tenant in which an administrator of all tenants acts. `ca`: a PEM file of trusted certificate
        authorities, instead of the system's; by default the variable KINDCAST_CA. `http`: your own `httpx.Client`
        (client certificates, proxies); it is closed with this client. `retry_seconds`: how long a call is repeated that
        found no server, was refused temporarily, or, if it is repeatable, had no answer."""
        self.tickets = {}
        self._retry_seconds = retry_seconds
        self.server = _checked(server)
        self.headers = _credentials(key, tenant)
        self._http = http or _made(httpx.Client, server, ca)
        self._closed = threading.Event()
        self._listening: set[httpx.Response] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Threads that `listen` end at once; if the server has not answered yet, they end
        when it answers, or after the timeout."""
        self._closed.set()
        for answer in tuple(self._listening):
            _wake_reader(answer)
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Sends a call. Raises `ProblemError`, and `ServerUnreachable` or `NoAnswerInTime` if there is no answer."""
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
        """Yields an answer in pieces as they arrive, because exports may be larger than the memory. Raises
        `ProblemError`, and `ServerUnreachable` or `NoAnswerInTime` if there is no answer."""
        with (
            reaching(self.server),
            self._http.stream(method, self.server + path, headers=self.headers, timeout=TIMEOUT_SECONDS) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise problem(answer)
            check_download(answer)
            yield from answer.iter_bytes()

    def listen(self, id: str, *, after: str | int | None = None) -> Generator[answers.Message]:
        """Yields messages as they arrive, without end. A broken connection is reopened at the last cursor.

        Ends when the subscription expires, and when another thread closes this client. Raises `ProblemError` if the
        subscription is deleted (404), if the server refuses permanently, and if the next event is damaged;
        `UnexpectedAnswer` if another program answers; and `ServerUnreachable` if the certificate of the server is not
        trusted.
        """
        reader = StreamReader(after)
        while not reader.ended:
            try:
                with self._http.stream("GET", self.server + _path(id), **_arguments(reader, self.headers)) as answer:
                    if answer.is_error:
                        answer.read()
                    if _accepted(answer, reader):
                        with self._ended_by_close(answer):
                            for chunk in answer.iter_bytes():
                                yield from reader.feed(chunk)
            except httpx.TransportError as error:
                if self._closed.is_set():
                    return
                _check_passing(error, self.server)
            if not reader.ended:
                self._closed.wait(reader.pause())
            if self._closed.is_set():
                return

    @contextmanager
    def _ended_by_close(self, answer: httpx.Response) -> Iterator[None]:
        """A context manager in which `close` ends the reading of a stream."""
        self._listening.add(answer)
        if self._closed.is_set():  # `close` may not have seen it
            _wake_reader(answer)
        try:
            yield
        finally:
            self._listening.discard(answer)


class AsyncClient(Calls):
    """A client that sends calls on an event loop. Every method is a coroutine."""

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
        `tenant`: the tenant in which an administrator of all tenants acts. `ca` and `retry_seconds`: see `Client`.
        `http`: your own `httpx.AsyncClient`; it is closed with this client."""
        self.tickets = {}
        self._retry_seconds = retry_seconds
        self.server = _checked(server)
        self.headers = _credentials(key, tenant)
        self._http = http or _made(httpx.AsyncClient, server, ca)
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections. Tasks that `listen` end."""
        self._closed.set()
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Like `Client.send`."""
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
        """Like `Client.download`."""
        with reaching(self.server):
            async with self._http.stream(
                method, self.server + path, headers=self.headers, timeout=TIMEOUT_SECONDS
            ) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise problem(answer)
                check_download(answer)
                async for chunk in answer.aiter_bytes():
                    yield chunk

    async def listen(self, id: str, *, after: str | int | None = None) -> AsyncGenerator[answers.Message]:
        """Like `Client.listen`. Also ends when another task closes this client."""
        reader = StreamReader(after)
        while not reader.ended:
            try:
                async with self._http.stream(
                    "GET", self.server + _path(id), **_arguments(reader, self.headers)
                ) as answer:
                    if answer.is_error:
                        await answer.aread()
                    if _accepted(answer, reader) and not self._closed.is_set():
                        async for chunk in answer.aiter_bytes():
                            for message in reader.feed(chunk):
                                yield message
            except httpx.TransportError as error:
                if self._closed.is_set():
                    return
                _check_passing(error, self.server)
            if not reader.ended:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), reader.pause())
            if self._closed.is_set():
                return


def _wake_reader(answer: httpx.Response) -> None:
    """Ends the connection of an answer that another thread is reading. Closing it would not end a read that waits."""
    stream = answer.extensions.get("network_stream")
    connection = None if stream is None else stream.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _cause(error: httpx.TransportError) -> httpx.TransportError:
    """Returns the httpx error behind one of ours. It shows whether the request was sent."""
    return error.__cause__ if isinstance(error.__cause__, httpx.TransportError) else error


def _checked(server: str) -> str:
    """Returns the address without a slash at its end. Raises `httpx.UnsupportedProtocol`."""
    if not server.startswith(("http://", "https://")):
        raise httpx.UnsupportedProtocol(f"the address of a server looks like http://127.0.0.1:8080, not {server!r}")
    return server.rstrip("/")


def _credentials(key: str | None, tenant: str | None) -> Mapping[str, str]:
    """Returns the headers that identify the sender. Raises `UnusableArgument`."""
    key = (key or os.environ.get("KINDCAST_KEY", "")).strip()  # files end with a line feed
    if not (key.isascii() and key.isprintable()):
        raise UnusableArgument("the key has a character that keys never have: copy the key again")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return sendable(headers | ({"Kindcast-Tenant": tenant} if tenant else {}))


def _is_here(server: str) -> bool:
    """Whether the server is on this machine's loopback, which no proxy of the environment serves."""
    host = httpx.URL(server).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _made(kind: Callable[..., T], server: str, ca: str | None) -> T:
    """Returns an `httpx` client of this kind for the server. Raises OSError if the authorities cannot be read, and
    `UnusableArgument` for a proxy that it cannot use."""
    trust_env = not _is_here(server)
    ca = ca or os.environ.get("KINDCAST_CA")
    verify = _authorities(trust_env) if ca is None else _authorities_of(ca)
    try:
        return kind(trust_env=trust_env, verify=verify, limits=LIMITS)
    except (ImportError, ValueError) as error:  # SOCKS needs another library
        raise UnusableArgument(f"the proxy of the environment cannot be used: {error}") from error


@cache
def _authorities(trust_env: bool) -> SSLContext:
    """Returns the trusted certificate authorities. Loading takes some 20 ms, once for all clients of a process."""
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
    return {"headers": sendable({**headers, **reader.headers()}), "timeout": timeout}


def _check_passing(error: httpx.TransportError, server: str) -> None:
    """Raises `ServerUnreachable` if connecting again is useless. Otherwise the server stopped, or is not back yet."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise ServerUnreachable(f"the certificate of {server} is not trusted: {error}") from error


def _accepted(answer: httpx.Response, reader: StreamReader) -> bool:
    """Whether a stream follows. Raises `ProblemError` or `UnexpectedAnswer` if asking again is useless. Temporary
    answers (the server is starting or overloaded) count as a broken connection."""
    if answer.status_code in _PASSING or answer.is_server_error:
        return False
    if answer.is_error:
        raise problem(answer)
    if answer.status_code == httpx.codes.NO_CONTENT:
        reader.ended = True
        return False
    check_stream(answer)
    reader.connected()
    return True
