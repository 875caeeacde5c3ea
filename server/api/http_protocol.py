"""HTTP connections with limits, used by uvicorn, and the TLS certificate. No client can exhaust the server's memory or
file descriptors with requests that it never finishes.

    bytes ──▶ HttpConnection ──head, body, answer──▶ ConnectionLimits: how many, whose, since when, how many bytes
                   │                                     │ every moment: too slow ──▶ 408, closed
                   └── a whole head ──▶ the application  └ at a limit ──▶ the longest unfinished one is closed

Time in which the server itself stood still, for example on a paused machine, does not count against a client.

At a limit, a new connection is not refused while another one can be closed instead. A connection whose request is
complete and being executed is never closed, because its client could not know the result. The bytes of a body count
from their arrival until the answer is complete, because the application holds them until then.

With a certificate, `TlsHandshake` precedes `HttpConnection`, within the same limits. The certificate is read from its
files again whenever they change:

    tls_certificate, tls_key ──▶ ServerCertificate.context() ──▶ the next handshake

A WebSocket counts like the connection over which it was opened, and has the same limits.
"""

import asyncio
import ipaddress
import logging
import os
import re
import resource
import socket
import ssl
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import msgspec
import uvicorn
from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.requests import HTTPConnection
from starlette.routing import compile_path
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from kindcast.server.api.problem_types import PROBLEM_TYPES, TYPES, Problem, respond, title_of
from kindcast.server.errors import CertificateUnusable
from kindcast.server.settings import Settings

__all__ = [
    "WEBSOCKET_PATH",
    "ConnectionLimits",
    "HttpConnection",
    "ServerCertificate",
    "WebSocketConnection",
    "uvicorn_config",
]

WEBSOCKET_PATH = "/v1/subscriptions/{id}/ws"
"""The only path where a connection becomes a WebSocket. Elsewhere the request to upgrade is ignored."""

STOPPED = "the server stops before this request is complete: it is unknown whether a part of it was carried out"
"""The answer to requests that still run when the server does not wait any more."""

MAX_FRAME_BYTES = 64 << 10
"""The maximum size of a message from a WebSocket client. Acknowledgements are short."""

MAX_FRAGMENTS = 64
"""The maximum number of fragments of such a message."""

MAX_CONTROL_FRAMES = 100
"""The maximum number of pings and pongs of a WebSocket client between two looks at the connections, which is at most a
second. Beyond it the client is disconnected. Clients send one every few seconds."""

PIECE_BYTES = 2_048
"""The frames of a WebSocket client are read in pieces of this size. One read of the socket may have tens of thousands
of small frames."""

MAX_PIPELINED = 16
"""The maximum number of pipelined requests of one connection."""

LINGER_SECONDS = 2.0
"""How long the rest of a refused body is read and ignored. If the connection were closed at once, the client would see
a broken connection instead of the answer."""

SPARE_DESCRIPTORS = 256
"""The file descriptors reserved for the database, webhooks and child processes."""

IDLE_SECONDS = 1.0
"""A connection that was idle for less than this is closed last, because its next request may be on its way."""

HTTP_11 = b"HTTP/1.1 "
PREFIX = "kindcast.prefix"
"""The name in the scope of a request for the path below which a trusted proxy shows this server."""
_PREFIX = re.compile(rb"(/[A-Za-z0-9._~-]+)+/?")
_REASONS = {
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    431: b"431 Request Header Fields Too Large",
    503: b"503 Service Unavailable",
}
_log = logging.getLogger("kindcast.http")
_uvicorn_log = logging.getLogger("uvicorn.error.connections")
_uvicorn_log.setLevel(logging.ERROR)  # faults of requests are answered and must not fill the log

Phase = Literal["idle", "head", "body", "work", "stream"]
"""The phases of a connection: between requests; reading a head; reading a body; the request is complete and executed;
and its answer has begun, or the request only reads and may be repeated."""


def uvicorn_config(app: Any, settings: Settings, **more: Any) -> uvicorn.Config:
    """Returns the configuration of uvicorn for the application. Raises `CertificateUnusable`."""
    limits = ConnectionLimits(settings)
    begin: Callable[..., asyncio.Protocol] = partial(HttpConnection, limits=limits)
    if settings.tls_certificate is not None:
        certificate = ServerCertificate(settings.tls_certificate, settings.tls_key)
        begin = partial(TlsHandshake, limits=limits, certificate=certificate)
    return uvicorn.Config(
        app,
        http=begin,  # type: ignore[arg-type]  # any callable that makes a protocol
        ws=WebSocketConnection,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=settings.stream_ping_seconds,
        ws_ping_timeout=settings.websocket_pong_seconds,
        ws_per_message_deflate=False,  # costs some 100 KB per connection
        proxy_headers=False,  # `HttpConnection` reads them, from trusted proxies only
        log_level="warning",
        access_log=False,
        server_header=False,
        **more,
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    detail: str

    def as_bytes(self) -> bytes:
        status = PROBLEM_TYPES[self.code].status
        body = msgspec.json.encode(
            {"type": TYPES + self.code, "title": title_of(self.code), "status": status, "detail": self.detail}
        )
        head = (
            b"\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
            + (b"Retry-After: 1\r\n" if status == 503 else b"")
            + b"Content-Length: %d\r\n\r\n" % len(body)
        )
        return HTTP_11 + _REASONS[status] + head + body


class ConnectionLimits:
    """All connections of one server, and their limits. Runs on one event loop. A request costs a few dict operations
    here."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.header_bytes = settings.max_header_bytes
        self.headers = settings.max_headers
        self._connections: set[Connection] = set()
        self._by_address: defaultdict[str, set[Connection]] = defaultdict(set)
        self._trusted = tuple(ipaddress.ip_network(each) for each in settings.trusted_proxies)
        self._at_most = min(settings.max_connections, _descriptors() - SPARE_DESCRIPTORS)
        self._tick = max(0.05, min(1.0, settings.header_seconds / 4, settings.body_seconds / 4))
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._stalled = 0.0
        self.held_bytes = 0
        """The bytes of all bodies that are being read or executed."""
        self._unread: dict[HttpConnection | WebSocketConnection, tuple[float, int]] = {}
        """The connections whose clients do not read: since when, and the bytes that waited for them then."""
        self.unread_bytes = 0
        """The bytes that wait for all these clients."""

    def __len__(self) -> int:
        return len(self._connections)

    def now(self) -> float:
        """Returns monotonic seconds, without the time in which this server stood still, which is no fault of
        clients."""
        return time.monotonic() - self._stalled

    def enter(self, connection: "Connection") -> None:
        """Adds a connection. At a limit, another connection is closed."""
        self._connections.add(connection)
        self._by_address[connection.address].add(connection)
        if len(self._connections) > self._at_most:
            crowded = max(self._by_address.values(), key=len)
            self._make_room(crowded, connection, "there are too many connections")
        self._limit_address(connection)
        if self._timer is None:
            self._look_later(connection.loop)

    def leave(self, connection: "Connection") -> None:
        """Removes a closed connection."""
        self._connections.discard(connection)
        self._drop(connection)

    def replace(self, old: "HttpConnection", new: "WebSocketConnection") -> None:
        """Replaces a connection by the WebSocket that it became."""
        self.leave(old)
        self._connections.add(new)
        self._by_address[new.address].add(new)

    def belongs_to(self, connection: "HttpConnection", address: str) -> None:
        """Sets the address of the client, which the head of a request shows."""
        if address != connection.address:
            self._drop(connection)
            connection.address = address
            self._by_address[address].add(connection)
            self._limit_address(connection)

    def hold(self, connection: "HttpConnection", size: int) -> None:
        """Counts received bytes of a body. Above the limit, the longest unfinished body of the address with the most
        bytes is refused."""
        connection.held += size
        self.held_bytes += size
        while self.held_bytes > self.settings.max_reading_bytes:
            unfinished = [each for each in self._connections if each.phase == "body" and each.held]
            if not unfinished:
                return  # all are complete and being executed
            held: defaultdict[str, int] = defaultdict(int)
            for each in unfinished:
                held[each.address] += each.held
            most = max(held.values())
            mine = (each for each in unfinished if held[each.address] == most)
            min(mine, key=_since).refuse(
                _Refusal("busy", "too many large bodies are being sent: send the request again")
            )

    def release(self, connection: "HttpConnection") -> None:
        """Called when the application no longer needs the body."""
        self.held_bytes -= connection.held
        connection.held = 0

    def pause(self, connection: "HttpConnection | WebSocketConnection") -> None:
        """Called when a client does not read its answer. Above the limit, the client of the address with the most bytes
        is disconnected that has not read for the longest time."""
        self.resume(connection)
        self._wait(connection, connection.transport.get_write_buffer_size())
        while self.unread_bytes > self.settings.max_writing_bytes:
            waiting: defaultdict[str, int] = defaultdict(int)
            for each, (_, size) in self._unread.items():
                waiting[each.address] += size
            most = max(waiting.values())
            mine = (each for each in self._unread if waiting[each.address] == most)
            self._disconnect(min(mine, key=lambda each: self._unread[each][0]))

    def resume(self, connection: "HttpConnection | WebSocketConnection") -> None:
        """Called when a client reads again, or has left."""
        if connection in self._unread:
            self.unread_bytes -= self._unread.pop(connection)[1]

    def _wait(self, connection: "HttpConnection | WebSocketConnection", size: int) -> None:
        self._unread[connection] = self.now(), size
        self.unread_bytes += size

    def _check_unread(self, now: float) -> None:
        """Disconnects clients that have read nothing for a while, also while their connection is being closed, which
        waits until they have read the rest."""
        for each, (since, size) in list(self._unread.items()):
            left = each.transport.get_write_buffer_size()
            if left < size:
                self.resume(each)
                self._wait(each, left)
            elif now - since > self.settings.write_seconds:
                self._disconnect(each)

    def _disconnect(self, connection: "HttpConnection | WebSocketConnection") -> None:
        self.resume(connection)
        sock = connection.transport.get_extra_info("socket")  # otherwise the system would keep the unread data
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.loop.call_soon(connection.transport.abort)

    def is_trusted(self, address: str) -> bool:
        """Whether the address is that of a trusted proxy."""
        if not self._trusted:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._trusted)

    def client_of(self, peer: str, forwarded: Iterable[str]) -> str:
        """Returns the client of a request that `peer` forwarded: the last address in X-Forwarded-For that is no trusted
        proxy."""
        for text in reversed([each.strip() for line in forwarded for each in line.split(",")]):
            bare = text.strip("[]") if text.count(":") != 1 else text.partition(":")[0]
            bare = bare.partition("]")[0]
            try:
                address = _plain(bare)
            except ValueError:
                return peer
            if not self.is_trusted(address):
                return address
            peer = address
        return peer

    def _limit_address(self, connection: "Connection") -> None:
        mine = self._by_address[connection.address]
        if len(mine) > self.settings.max_connections_per_address and not self.is_trusted(connection.address):
            self._make_room(mine, connection, "there are too many connections from this address")

    def _make_room(self, among: "set[Connection]", new: "Connection", why: str) -> None:
        """Closes the longest unfinished connection, or the new one if all others are being executed."""
        refusal = _Refusal("busy", why)
        now = self.now()
        for wanted in (
            lambda each: each.phase in ("head", "body"),
            lambda each: each.phase == "idle" and now - each.since > IDLE_SECONDS,
            lambda each: each.phase == "stream",
            lambda each: each.phase == "idle",
        ):
            found = [each for each in among if each is not new and wanted(each)]
            if found:
                min(found, key=_since).refuse(refusal)
                return
        new.refuse(refusal)

    def _drop(self, connection: "Connection") -> None:
        mine = self._by_address.get(connection.address)
        if mine is not None:
            mine.discard(connection)
            if not mine:
                del self._by_address[connection.address]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections that are too slow."""
        late = time.monotonic() - self._looked_at - self._tick
        if late > self._tick:  # the process or its loop stood still
            self._stalled += late
        self._timer = None
        if self._connections:
            self._look_later(loop)
        now = self.now()
        for each in list(self._connections):
            each.check(now)
        self._check_unread(now)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looked_at = time.monotonic()
        self._timer = loop.call_later(self._tick, self._look, loop)


LOOK_SECONDS = 1.0
"""The shortest interval between two checks of the files of the certificate, which are made when a connection begins."""

_tls_log = logging.getLogger("kindcast.tls")


class ServerCertificate:
    """The certificate of the server. For one event loop. Existing connections keep the certificate with which they
    began."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """`certificate` is a PEM file with the server's certificate first and then the intermediate certificates. `key`
        is a PEM file without a passphrase; None if it is in the same file. Raises `CertificateUnusable`."""
        self._certificate = certificate
        self._key = key
        self._seen = self._state()
        self._context = self._load()
        self._looked_at = time.monotonic()

    def context(self) -> ssl.SSLContext:
        """Returns the context for the next handshake. If changed files cannot be used, this is logged once and the
        previous certificate is kept."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            state = self._state()
            if state != self._seen:
                self._seen = state
                try:
                    self._context = self._load()
                    _tls_log.info("the certificate %s was loaded again", self._certificate)
                except CertificateUnusable as error:
                    _tls_log.error("the old certificate stays in use: %s", error)
        return self._context

    def _files(self) -> list[Path]:
        return [self._certificate, *([] if self._key is None else [self._key])]

    def _state(self) -> list[tuple[int, int, int] | None]:
        """Returns a value that changes with the content, the owner or the permissions of a file. After a change of
        permissions the server may be able to read it."""
        found: list[tuple[int, int, int] | None] = []
        for each in self._files():
            try:
                status = os.stat(each)
                found.append((status.st_ino, status.st_size, status.st_ctime_ns))
            except OSError:
                found.append(None)
        return found

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 or newer
        context.set_alpn_protocols(["http/1.1"])
        for each in self._files():
            try:
                each.read_bytes()
            except OSError as error:
                raise CertificateUnusable(f"{each} cannot be read: {error.strerror or error}") from error
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except ssl.SSLError as error:
            key = self._key or self._certificate
            if error.reason == "KEY_VALUES_MISMATCH":
                detail = f"the key in {key} does not belong to the first certificate in {self._certificate}"
            elif self._key is None:
                detail = (
                    f"{key} must contain a certificate and its key, as PEM; or name the file of the key (--tls-key)"
                )
            else:
                detail = f"{self._certificate} and {key} must contain a certificate and its key, as PEM"
            raise CertificateUnusable(detail) from error
        except _Encrypted as error:
            detail = f"the key in {self._key or self._certificate} has a passphrase: store the key without one"
            raise CertificateUnusable(detail) from error
        return context


class _Encrypted(Exception):
    """The key needs a passphrase."""


def _no_passphrase() -> NoReturn:
    raise _Encrypted


class TlsHandshake(asyncio.Protocol):
    """A connection until its TLS handshake is done; then it becomes an `HttpConnection`. It counts from its beginning,
    unlike uvicorn's own, so that nobody can hold connections with unfinished handshakes."""

    def __init__(self, *, limits: ConnectionLimits, certificate: ServerCertificate, **more: Any) -> None:
        self._begin = partial(HttpConnection, limits=limits, **more)
        self._limits = limits
        self._certificate = certificate
        self._others: set[Any] = more["server_state"].connections
        self._early: list[bytes] = []
        self.loop: asyncio.AbstractEventLoop = more.get("_loop") or asyncio.get_running_loop()
        self.address = ""
        self.phase: Phase = "head"
        self.since = self._limits.now()
        self.held = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.pause_reading()  # until the handshake takes over
        client = _remote(transport)
        self.address = client[0] if client else ""
        self._others.add(self)
        self._limits.enter(self)
        self._shaking = self.loop.create_task(self._shake())

    def data_received(self, data: bytes) -> None:
        """Keeps data that arrived before the handshake took over (uvloop reads on while reading is paused), or together
        with its end."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    async def _shake(self) -> None:
        handshake = self.loop.create_task(
            self.loop.start_tls(
                self.transport,
                self,
                self._certificate.context(),
                server_side=True,
                ssl_handshake_timeout=self._limits.settings.header_seconds,
                ssl_shutdown_timeout=LINGER_SECONDS,
            )
        )
        await asyncio.sleep(0)  # the handshake has taken over the transport
        early, self._early = b"".join(self._early), []
        self.loop.call_soon(self._hand_over, early)
        try:
            secure = await handshake
        except OSError:  # no TLS, certificate not trusted, too slow, or client left
            secure = None
        left = self not in self._others
        self._leave()
        if secure is None or left or secure.is_closing():
            self.transport.abort()
            return
        connection = self._begin()
        secure.set_protocol(connection)
        connection.connection_made(secure)
        for data in self._early:
            connection.data_received(data)

    def _hand_over(self, data: bytes) -> None:
        """Passes the handshake the data that was read before it."""
        while data and not self.transport.is_closing():
            protocol = cast("asyncio.BufferedProtocol", self.transport.get_protocol())
            buffer = memoryview(protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            protocol.buffer_updated(size)
            data = data[size:]

    def check(self, now: float) -> None:
        """Does nothing: the handshake has its own time limit."""

    def refuse(self, refusal: _Refusal) -> None:
        """Closes the connection to make room for others."""
        self.shutdown()

    def shutdown(self) -> None:
        """Called when the server stops."""
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        self._others.discard(self)
        self._limits.leave(self)


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection. Like uvicorn's own, but with limits on each part of a request, without trailers, and with
    the client's address from a trusted proxy."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.logger = _uvicorn_log
        self.app = self._answered
        self._application = self.config.loaded_app
        self._limits = limits
        self._peer = ""
        self._piece = b""  # the bytes that are being parsed
        self._without_upgrade = False  # whether the head is parsed again, without `Upgrade`
        self._unread = 0  # bytes of the head, or of the framing of a body
        self._heads = 0
        self._head_bytes = 0
        self._begun = False  # whether a part of the next head has arrived
        self._closing = False
        self._running: RequestResponseCycle | None = None  # with pipelined requests, an earlier one than `current`
        self.address = ""
        """The address of the client."""
        self.phase: Phase = "head"
        self.since = 0.0
        """The beginning of the phase, by `ConnectionLimits.now`."""
        self.received = 0
        """The received bytes of the current body."""
        self.held = 0
        """The bytes of bodies that the application may still hold."""

    @property
    def current(self) -> RequestResponseCycle | None:
        """The last request with a complete head."""
        return self.cycle

    # ── from the network ────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Lingering(transport, self._close))  # type: ignore[arg-type]
        self.client = _remote(transport)
        self._peer = self.client[0] if self.client else ""
        self.address = self._peer
        self._enter("head")
        self._limits.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._end_running()
        self._limits.release(self)
        self._limits.resume(self)
        self._limits.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return  # the rest of a refused request
        if self.phase == "idle":
            self._enter("head")
        self._unread += len(data)
        self._piece = data
        super().data_received(data)
        self._piece = b""
        if self._unread > self._limits.header_bytes and not self._closing:
            self._refuse_head("the head of a request has")

    def pause_writing(self) -> None:
        self._limits.pause(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._limits.resume(self)
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        """Turns the connection into a WebSocket, which also gets what arrived behind the handshake."""
        rest = self._behind_head()
        self._closing = True
        self._limits.release(self)
        self.connections.discard(self)
        transport = self.transport._transport if isinstance(self.transport, _Lingering) else self.transport
        client, scheme = self.scope["client"], self.scope["scheme"]
        protocol = WebSocketConnection(self.config, self.server_state, self.app_state)
        protocol.take_over(self._limits, self.address, client, "wss" if scheme == "https" else "ws")
        self._limits.replace(self, protocol)
        protocol.connection_made(transport)
        lines = [b"GET " + self.url + b" HTTP/1.1", *(name + b": " + value for name, value in self.headers), b"", rest]
        protocol.data_received(b"\r\n".join(lines))
        transport.set_protocol(protocol)

    def _should_upgrade(self) -> bool:
        """Whether the path serves a WebSocket and no other answer of this connection is in progress."""
        busy = self.current is not None and not self.current.response_complete
        return (
            not busy
            and self.parser.get_method() == b"GET"
            and _WEBSOCKET.match(self.url.partition(b"?")[0].decode("latin-1")) is not None
            and super()._should_upgrade()
        )

    # ── from the parser ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._heads, self._head_bytes, self._begun = 0, 0, True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heads < 0:
            return  # trailers are ignored
        self._heads += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._heads > self._limits.headers or len(name) + len(value) > self._limits.header_bytes:
            self._refuse_head("a request has")
            raise ValueError
        if name.lower() == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ValueError("only the transfer coding chunked is read")  # the parser takes others for chunked alone
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and not self._should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("this server is no proxy")
            self._without_upgrade = True
            return
        if self._closing or len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at the same time")
        if self._head_bytes + len(self.url) > self._limits.header_bytes:
            self._refuse_head("the head of a request has")
            raise ValueError
        self._heads, self._begun = -1, False
        self._unread = 0
        if self._limits.is_trusted(self._peer):
            self._read_forwarded()
        self.received = 0
        if self.phase in ("idle", "head"):
            self._enter("body")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = max(0, self._unread - 2 * len(body) - 16)  # allows for the framing of a chunk
        self.received += len(body)
        if self.current is not None and not self.current.response_complete and not self._closing:
            self._limits.hold(self, len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._without_upgrade:
            return
        super().on_message_complete()
        self._unread = 0
        if self.phase == "body":
            begun = self.current is not None and self.current.response_started
            self._enter("stream" if begun or self.scope["method"] in ("GET", "HEAD") else "work")

    def on_response_complete(self) -> None:
        self._limits.release(self)
        self._enter("head" if self._begun else "idle")
        unread = self.current is not None and self.current.more_body and not self.pipeline
        if unread and not self._closing:  # a second `close` would end the reading of the rest of the body
            self.transport.close()
        self._begin_next()
        if self.current is not None and not self.current.response_complete:  # a pipelined request is next
            self._enter("body" if self.current.more_body else "work")

    def _begin_next(self) -> None:
        """Like uvicorn's own `on_response_complete`, without a timer for each request: `check` closes idle
        connections."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def _unsupported_upgrade_warning(self) -> None:
        """Parses the request again without `Upgrade`, because the parser takes what follows such a head for another
        protocol: the body would be lost, or read as a request. Logs nothing, since a client must not fill the log."""
        rest = self._behind_head()
        line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self._without_upgrade, self._unread = False, 0
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(b"\r\n".join((line, *kept, b"", rest)))

    def _behind_head(self) -> bytes:
        """Returns the bytes that arrived behind a head with `Upgrade`, at which the parser has stopped."""
        stopped = sys.exception()
        assert isinstance(stopped, HttpParserUpgrade)
        return self._piece[stopped.args[0] :]

    def send_400_response(self, msg: str) -> None:
        if self._closing:
            return
        if self.current is None or self.current.response_complete or self.phase == "body":
            self.refuse(
                _Refusal(
                    "malformed-request",
                    "this is not a request of HTTP/1.1: the method is unknown, or the first line, a header or a chunk "
                    "of the body is wrong",
                )
            )
        else:  # this answer would be sent in the middle of another
            self._closing = True
            self._end_running()
            self.transport.close()

    # ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, now: float) -> None:
        """Closes the connection if its client is too slow, or sends nothing more."""
        settings = self._limits.settings
        spent = now - self.since
        if self.phase == "idle" and spent > self.timeout_keep_alive:
            self.timeout_keep_alive_handler()
        if self.phase == "head" and spent > settings.header_seconds:
            self.refuse(_Refusal("too-slow", f"no request within {settings.header_seconds:g} s"))
        allowed = settings.body_seconds + self.received / settings.min_body_bytes_per_second
        if self.phase == "body" and not self.flow.read_paused and spent > allowed:
            self.refuse(_Refusal("too-slow", "the body arrives too slowly"))

    def refuse(self, refusal: _Refusal) -> None:
        """Sends the reason, if no answer has begun, and closes the connection."""
        if self._closing:
            return
        self._closing = True
        self._limits.release(self)
        running = self._running
        begun = running is not None and running.response_started and not running.response_complete
        if not begun and self.phase != "idle":
            self.transport.write(refusal.as_bytes())
        self._end_running()
        self.flow.resume_writing()
        _close_soon(self.loop, self.transport)
        self._limits.leave(self)

    def _end_running(self) -> None:
        """Tells the application that the client has left. Its answer is not sent, and pipelined requests do not run."""
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse_head(self, what: str) -> None:
        most = f"{self._limits.header_bytes:,} bytes and {self._limits.headers} headers"
        self.refuse(_Refusal("head-too-large", f"{what} at most {most}"))

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._limits.now()

    def _read_forwarded(self) -> None:
        forwarded = [value.decode("latin-1") for name, value in self.headers if name == b"x-forwarded-for"]
        address = self._limits.client_of(self._peer, forwarded)
        self._limits.belongs_to(self, address)
        self.scope["client"] = (address, 0) if address != self._peer else self.client
        for name, value in self.headers:
            if name == b"x-forwarded-proto" and value in (b"http", b"https"):
                self.scope["scheme"] = value.decode()
            if name == b"x-forwarded-prefix" and _PREFIX.fullmatch(value):
                self.scope[PREFIX] = value.rstrip(b"/")  # type: ignore[literal-required]

    async def _answered(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs the application. Adds `Connection: close` to answers to requests whose body was not read."""
        cycle = send.__self__
        status = 0
        transport = cast("_Lingering", self.transport)

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                transport.hold(self.loop)
                if self.cycle is cycle and self.phase == "work":
                    self._enter("stream")
                if cycle.more_body:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
                if PREFIX in scope:
                    message = {**message, "headers": _below(scope[PREFIX], message.get("headers", ()))}
                await send(message)
            else:
                await send(message)
                transport.flush()

        try:
            await self._application(scope, receive, sent)
        except asyncio.CancelledError:  # the server stops, and does not wait for this request any more
            if cycle.response_started:
                transport.close()
            else:
                await (await respond(HTTPConnection(scope), Problem("not-ready", STOPPED)))(scope, receive, sent)
        except Exception:
            # Starlette raises an error again that `problem_types.respond` has logged and answered. Uvicorn would log it
            # a second time, and close a connection that the client believes to be open.
            if not (cycle.response_complete and status == HTTPStatus.INTERNAL_SERVER_ERROR):
                raise

    def _close(self, close: Callable[[], None], transport: asyncio.Transport) -> None:
        """Closes the connection. If a body is still arriving, only writing is closed at once, and the rest a little
        later."""
        if self.current is not None and self.current.more_body and not self._closing:
            self._closing = True
            _close_soon(self.loop, transport)
        else:
            close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A connection after its upgrade. Like uvicorn's own, within the limits of all connections. At a limit it may be
    closed like any stream."""

    def take_over(self, limits: ConnectionLimits, address: str, client: Any, scheme: Literal["ws", "wss"]) -> None:
        """Takes over the state of the HTTP connection, including the client's address behind a proxy."""
        self._limits = limits
        self._known = client, scheme
        self.address = address
        self._pieces: deque[bytes] = deque()
        self._control_frames = 0
        self.phase: Phase = "stream"
        self.since = self._limits.now()
        self.received = 0
        self.held = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client, self.scheme = self._known
        self.logger = _uvicorn_log

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.resume(self)
        self._limits.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._pieces.extend(data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
        self._take_pieces()
        if self.conn.handshake_exc is not None and not self.handshake_complete and not self.handshake_initiated:
            self._turn_away(_Refusal("malformed-request", "this is not the handshake of a WebSocket"))

    def _take_pieces(self) -> None:
        """Reads the frames that have arrived, until the application has a message to receive."""
        while self._pieces and not self.read_paused and not self.transport.is_closing():
            super().data_received(self._pieces.popleft())

    async def receive(self) -> Any:
        await asyncio.sleep(0)  # messages that are there already would leave no time for other connections
        message = await super().receive()
        self._take_pieces()
        return message

    def pause_writing(self) -> None:
        self._limits.pause(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._limits.resume(self)
        super().resume_writing()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # with a refusal, which is no error of the application

    def handle_ping(self) -> None:
        if self._count_control_frame():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._count_control_frame():
            super().handle_pong(event)

    def _count_control_frame(self) -> bool:
        """Returns whether the frame is one to handle. Closes the connection if there are too many."""
        self._control_frames += 1
        if self._control_frames <= MAX_CONTROL_FRAMES:
            return True
        if not self.transport.is_closing():
            self._fail(1008, "too many pings or pongs")
        return False

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.transport.is_closing():
            self._fail(1009, "a message has too many fragments")

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            if not self.transport.is_closing():
                self._fail(1007, "a message is not in UTF-8")  # uvicorn would log a traceback
        else:
            super().send_receive_event_to_app()

    def check(self, now: float) -> None:
        """Begins to count control frames anew."""
        self._control_frames = 0

    def refuse(self, refusal: _Refusal) -> None:
        """Closes the connection to make room for others."""
        if not self.transport.is_closing():
            if self.handshake_complete:
                self._fail(1013, refusal.detail)
            else:
                self._turn_away(refusal)
        self._limits.leave(self)

    def _turn_away(self, refusal: _Refusal) -> None:
        """Refuses the handshake."""
        self.transport.write(refusal.as_bytes())
        self.handshake_complete = True
        self._end()

    def _fail(self, code: int, reason: str) -> None:
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self._end()

    def _end(self) -> None:
        """Closes the connection after what was written, or soon if the client does not read that."""
        self.close_sent = True
        self.transport.close()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


Connection = TlsHandshake | HttpConnection | WebSocketConnection
_WEBSOCKET = compile_path(WEBSOCKET_PATH)[0]


class _Lingering:
    """A transport with another `close`. It can also delay writes for a moment, so that the head of an answer and the
    first part of its body are sent in one packet. Each packet wakes the client."""

    def __init__(self, transport: asyncio.Transport, close: Callable[..., None]) -> None:
        self._transport = transport
        self._closed_by = close
        self._held: list[bytes] | None = None

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Delays writes until `flush`, which is called at the latest when the event loop continues with other work."""
        if self._held is None:
            self._held = []
            loop.call_soon(self.flush)

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def flush(self) -> None:
        """Writes the delayed data."""
        held, self._held = self._held, None
        if held:
            self._transport.write(b"".join(held))

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._closed_by(self._transport.close, self._transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _close_soon(loop: asyncio.AbstractEventLoop, transport: Any) -> None:
    """Closes a transport for writing. Incoming data is read and ignored for a moment, then the transport is closed."""
    inner = transport
    if isinstance(transport, _Lingering):
        transport.flush()
        inner = transport._transport
    if inner.is_closing():
        return
    inner.resume_reading()
    if inner.can_write_eof():
        inner.write_eof()
    loop.call_later(LINGER_SECONDS, inner.abort)


def _remote(transport: asyncio.Transport) -> tuple[str, int] | None:
    """Returns the address and port of the other end of a connection; None if it has none, as after its end."""
    client = get_remote_addr(transport)
    return client and (_plain(client[0]), client[1])


def _plain(address: str) -> str:
    """Returns an address in its usual form. If a server or a proxy listens on `::`, the system writes IPv4 addresses of
    clients as IPv6 addresses. Raises ValueError if it is no address.

    >>> _plain("::ffff:192.0.2.7"), _plain("2001:DB8:0::1")
    ('192.0.2.7', '2001:db8::1')
    """
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _below(prefix: bytes, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers of an answer with the addresses that a client of the proxy needs."""
    begins = {b"location": b"/", b"link": b"</"}
    return [
        (name, begin[:-1] + prefix + value[len(begin) - 1 :])
        if (begin := begins.get(name)) is not None and value.startswith(begin)
        else (name, value)
        for name, value in headers
    ]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _since(connection: Connection) -> float:
    return connection.since


def _descriptors() -> int:
    """Returns how many files and sockets this process may have, after raising the limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            _log.warning(
                "at most %d files and connections at one time: raise the limit of open files (ulimit -n) for more", soft
            )
    return max(soft, 2 * SPARE_DESCRIPTORS)
