"""The two HTTP clients: `Client` blocks, `AsyncClient` awaits. The calls themselves are in `calls.py`.

Only what cannot be one is here twice: sending a request, and the loop that reads a stream. What a stream means, and
when to connect again, is in `stream.py`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from functools import cache
from ssl import SSLContext
from typing import Any, Self, TypeVar

import httpx

from kindcast.server.client.calls import TIMEOUT_SECONDS, Call, Calls, Json, path_of, problem, read_answer
from kindcast.server.client.stream import StreamReader

__all__ = ["AsyncClient", "Client"]

DEFAULT_SERVER = "http://127.0.0.1:8080"

STREAM_TIMEOUT_SECONDS = 45.0
"""Without a byte on a stream: three pings were missed, so the connection is lost."""

_PASSING = frozenset({408, 425, 429})

T = TypeVar("T")


class Client(Calls):
    """Sends calls and waits for the answers. May be shared between threads."""

    def __init__(self, server: str = DEFAULT_SERVER, *, http: httpx.Client | None = None) -> None:
        """`http`: an `httpx.Client` of your own (certificates, proxies); it is closed with this one."""
        self.tickets = {}
        self.server = server.rstrip("/")
        self._http = http or httpx.Client(**_connecting(server))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Sends a call. Raises `ProblemError`, and httpx's errors when there is no answer."""
        return read_answer(call, self._http.request(call.method, self.server + call.path, **call.arguments()))

    def listen(self, id: str, *, after: str | int | None = None) -> Generator[Json]:
        """Messages as they come, without end: a broken connection is opened again at the last cursor.

        Ends when the subscription is deleted or expires. Raises `ProblemError` when the server refuses for good.
        """
        reader = StreamReader(after)
        while not reader.ended:
            try:
                with self._http.stream("GET", self.server + _path(id), **_arguments(reader)) as answer:
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

    def __init__(self, server: str = DEFAULT_SERVER, *, http: httpx.AsyncClient | None = None) -> None:
        """`http`: an `httpx.AsyncClient` of your own; it is closed with this one."""
        self.tickets = {}
        self.server = server.rstrip("/")
        self._http = http or httpx.AsyncClient(**_connecting(server))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """As `Client.send`."""
        return read_answer(call, await self._http.request(call.method, self.server + call.path, **call.arguments()))

    async def listen(self, id: str, *, after: str | int | None = None) -> AsyncGenerator[Json]:
        """As `Client.listen`."""
        reader = StreamReader(after)
        while not reader.ended:
            try:
                async with self._http.stream("GET", self.server + _path(id), **_arguments(reader)) as answer:
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


def _is_here(server: str) -> bool:
    """Whether the server is on this machine's loopback: no proxy of the environment leads there."""
    host = httpx.URL(server).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _connecting(server: str) -> dict[str, Any]:
    """What an `httpx` client for the server is made with."""
    trust_env = not _is_here(server)
    return {"trust_env": trust_env, "verify": _authorities(trust_env)}


@cache
def _authorities(trust_env: bool) -> SSLContext:
    """Whom TLS connections trust. Loading them takes some 20 ms: once for all clients of a process."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _path(id: str) -> str:
    return path_of("subscriptions", id, "stream")


def _arguments(reader: StreamReader) -> dict[str, Any]:
    timeout = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS)
    return {"headers": reader.headers(), "timeout": timeout}


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
