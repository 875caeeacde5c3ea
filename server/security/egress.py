"""The egress guard: which addresses the server may connect to on behalf of subscribers.

The server connects to sink URLs that strangers choose. They must not become a way into its own network (server-side
request forgery). There are two checks, both before the first byte is sent:

    subscription created    check_sink(url)      scheme, port, no credentials, no literal private address
    every connection        GuardedBackend       resolve once -> every address public -> connect to that very address

The name is resolved exactly once, and the connection is made to the checked address. So a name server that answers
differently the second time gains nothing. The original host stays in the Host header and in the TLS handshake.
Redirects are never followed. `delivery.webhook` posts through a pool whose network is `GuardedBackend`.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from ssl import SSLContext
from typing import Any
from weakref import WeakValueDictionary

import httpcore
import httpx

__all__ = [
    "Connections",
    "EarlyAnswer",
    "EndlessAnswer",
    "GuardedBackend",
    "Resolver",
    "Sink",
    "SinkRefused",
    "SystemResolver",
    "check_sink",
    "is_public",
    "refuse_local_name",
]


MAX_SINK_LENGTH = 2_048
"""The maximum length of a sink URL, well below what proxies and web servers accept in a request line."""

PUBLIC_PORTS = {"http": 80, "https": 443}
"""The only port of each scheme that a public sink may use. Any other would turn the server into a port scanner."""

MAX_ANSWER_BYTES = 1 << 18
"""The maximum size of the answer to one request: headers, interim answers, and the body that is read."""
MAX_INTERIM = 16
"""The maximum number of interim answers (1xx) to one request. Reading one takes longer than any other data of the same
size."""
BODILESS = (204, 304)
"""The statuses whose answers have no body."""
_INTERIM = re.compile(rb"HTTP/1\.[01] 1")
MIN_READ_BYTES = 64
"""The minimum number of bytes for which each piece that is read is counted."""

RESOLVER_THREADS = 8
"""The number of threads that look up known names. As many other threads look up all other names. So a silent name
server blocks neither readers of the store nor lookups of names that were resolved before."""

QUICK_SECONDS = 1.0
"""A name is known if its last lookup took less than this."""
MAX_KNOWN_NAMES = 100_000
"""The maximum number of known names. When there are more, the list is cleared."""

CONNECT_SECONDS_PER_ADDRESS = 5.0
"""The time limit for connecting to one address, so that time is left for the next one within the deadline of the
attempt."""

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Host name and port → numeric addresses, in order of preference. Raises OSError if there is no such name."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
"""A name in ASCII (with IDNA applied), or an address without brackets, zones and percent signs."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE = ipaddress.IPv6Network("::/96")
_V4_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")

_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # the host agent of one large cloud: a public address that answers only inside it
        "192.0.0.0/24",  # assignments of protocols, and the agent of another large cloud; newer Pythons know most of it
        "192.88.99.0/24",  # 6to4 relays: the nearest relay decides where packets go
        "64:ff9b:1::/48",  # NAT64 within one organisation
        "3fff::/20",  # documentation; not known to this Python
        "5f00::/16",  # segment routing identifiers
    )
)
"""Addresses that `ipaddress.is_global` accepts but that cannot host a webhook."""


class SinkRefused(ValueError):
    """This sink is not allowed. The text may be shown to the subscriber: it names no resolved address."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink URL whose text was checked, parsed with the same parser that is used to connect."""

    scheme: str
    host: str
    port: int
    netloc: bytes
    target: bytes

    @property
    def endpoint(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.host}:{self.port}"


ALLOWING = "the server's setting allow_private_sinks allows it"
CREDENTIALS = {"sink": "sinkcredential", "url": "one of the headers"}
"""Where credentials belong instead of into the URL, by the member that holds the URL."""


@lru_cache(maxsize=4_096)  # few sinks, one call per message
def check_sink(url: str, *, allow_private: bool, any_https_port: bool = False, what: str = "sink") -> Sink:
    """Checks the text of a URL that the server will call, without resolving or connecting. `any_https_port`: whether
    https may use other ports than 443. `what` is one of `CREDENTIALS`, for messages. Raises `SinkRefused`."""
    if len(url) > MAX_SINK_LENGTH:
        raise SinkRefused(f"the {what} has {len(url)} characters; at most {MAX_SINK_LENGTH} are allowed")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SinkRefused(f"the {what} is not a URL: {error}") from None
    if parsed.scheme not in PUBLIC_PORTS:
        raise SinkRefused(f"the {what} must be an absolute http:// or https:// URL")
    host = parsed.raw_host.decode("ascii")
    if not host:
        raise SinkRefused(f"the {what} has no host")
    if not _HOST.fullmatch(host):
        raise SinkRefused(f"the host of the {what} has characters that are not allowed in a host name")
    if parsed.userinfo:
        raise SinkRefused(f"the {what} has a user name or password: give them as {CREDENTIALS[what]} instead")
    if parsed.fragment:
        raise SinkRefused(f"the {what} has a fragment (#…), which is never sent: leave it out")
    port = PUBLIC_PORTS[parsed.scheme] if parsed.port is None else parsed.port
    if not 0 < port < 1 << 16:
        raise SinkRefused(f"the {what} has the port {port}; ports are between 1 and 65,535")
    if not allow_private:
        if port != PUBLIC_PORTS[parsed.scheme] and not (any_https_port and parsed.scheme == "https"):
            usual = PUBLIC_PORTS[parsed.scheme]
            raise SinkRefused(f"port {port} is not allowed: use {usual} for {parsed.scheme}; {ALLOWING}")
        refuse_local_name(host, what)
    return Sink(parsed.scheme, host, port, parsed.netloc, parsed.raw_path)


def is_public(address: str) -> bool:
    """Whether a numeric address can be reached from the whole internet. IPv4 addresses inside IPv6 addresses (mapped,
    NAT64, 6to4, Teredo, translated, compatible) are checked as IPv4 addresses.

    >>> is_public("1.1.1.1"), is_public("10.0.0.1"), is_public("::ffff:10.0.0.1"), is_public("64:ff9b::7f00:1")
    (True, False, False, False)
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return all(_is_public(each) for each in _unwrapped(parsed))


class SystemResolver:
    """Resolves names with the operating system, in a few threads, one lookup of a name at a time. For one event loop.
    `close` does not wait for threads that still wait."""

    def __init__(self) -> None:
        self._for_known = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")
        self._for_others = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver-of-others")
        self._known: set[str] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __call__(self, host: str, port: int) -> list[str]:
        with suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        turn = self._turns.setdefault(host, asyncio.Lock())
        async with turn:
            threads = self._for_known if host in self._known else self._for_others
            return await asyncio.get_running_loop().run_in_executor(threads, self._look_up, host, port)

    def close(self) -> None:
        for threads in (self._for_known, self._for_others):
            threads.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, host: str, port: int) -> list[str]:
        self._known.discard(host)
        began = time.monotonic()
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        if time.monotonic() - began < QUICK_SECONDS:
            if len(self._known) >= MAX_KNOWN_NAMES:
                self._known.clear()
            self._known.add(host)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """A network for httpcore that connects only to checked addresses. For one event loop at a time."""

    def __init__(self, *, allow_private: bool, resolver: Resolver) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolves the name once, checks every address, and connects to the first that answers.

        Raises `SinkRefused` if any address is not public, because it is not known in advance which one is used. Raises
        `ConnectError` and `ConnectTimeout` of httpcore.
        """
        addresses = await self._addresses(host, port)
        seconds = min(CONNECT_SECONDS_PER_ADDRESS, timeout) if timeout is not None else CONNECT_SECONDS_PER_ADDRESS
        failure: Exception = httpcore.ConnectError("the host name has no address")
        for address in addresses:
            try:
                stream = await self._network.connect_tcp(address, port, seconds, local_address, socket_options)
                return _BoundedStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise SinkRefused("a sink is never a local socket")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: empty or overlong labels
            raise httpcore.ConnectError("the host name cannot be resolved") from error
        if not self._allow_private and not all(map(is_public, addresses)):
            raise SinkRefused("the host of the sink is not a public address")
        return addresses


class EarlyAnswer(httpcore.RemoteProtocolError):
    """Raised if the answer to a request was there before the request: the server answered an earlier request of the
    same connection twice. The connection is closed, because each of its answers would be that to another request."""


class EndlessAnswer(httpcore.ReadError):
    """Raised if an answer, with its interim answers, is too long."""


class _BoundedStream(httpcore.AsyncNetworkStream):
    """A connection that limits the size of the answer to one request, including interim answers (1xx), of which HTTP
    allows any number."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._read = 0
        self._interim = 0
        self._last = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._read > MAX_ANSWER_BYTES:
            raise EndlessAnswer("the answer is too long")
        found = await self._stream.read(max_bytes, timeout)
        self._read += max(len(found), MIN_READ_BYTES)
        self._interim += len(_INTERIM.findall(found))
        if self._interim > MAX_INTERIM:
            raise EndlessAnswer("there are too many interim answers (1xx)")
        self._last = found
        return found

    @property
    def ends_with_head(self) -> bool:
        """Whether nothing was read after the head of an answer."""
        return self._last.endswith(b"\r\n\r\n")

    @property
    def has_read(self) -> bool:
        """Whether anything was read since the last request was sent."""
        return self._read > 0

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._read = self._interim = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def refuse_local_name(host: str, what: str = "sink") -> None:
    """Refuses names of this machine and addresses that are not public. Raises `SinkRefused`."""
    bare = host.rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        raise SinkRefused(f"the {what} is this machine itself, which is not a public address; {ALLOWING}")
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return  # a name: its addresses are checked at each connection
    if not is_public(bare):
        raise SinkRefused(f"the host of the {what} is not a public address; {ALLOWING}")


def _unwrapped(address: _Address) -> tuple[_Address, ...]:
    """Returns the addresses that a packet to this one may reach: itself, or the IPv4 addresses inside it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if any(address in network for network in (_NAT64, _V4_COMPATIBLE, _V4_TRANSLATED)):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    return (address,)


def _is_public(address: _Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False  # fec0::/10 is deprecated but in use, and `is_global` accepts it
    return not any(address in network for network in _REFUSED_NETWORKS)


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Connection pools of the webhooks: one small pool per endpoint, over the guarded network.
#
# There is one pool per endpoint, because a pool of httpcore checks all its connections for every request. Idle
# connections are closed soon, so that a name whose address changes is resolved and checked again.

KEEPALIVE_SECONDS = 15.0
"""A connection or pool that was unused for this long is closed."""

MAX_POOLS = 1_024
"""The maximum number of endpoints with open connections. Above it, the least recently used ones are closed at once."""


@dataclass(slots=True)
class _Pool:
    connections: httpcore.AsyncConnectionPool
    users: int = 0
    used_at: float = 0.0


class Connections:
    """Connection pools by endpoint, on one event loop. `to` may be used concurrently. There is no limit here; the
    caller sets it."""

    def __init__(self, *, allow_private: bool) -> None:
        self._resolver = SystemResolver()
        self._network = GuardedBackend(allow_private=allow_private, resolver=self._resolver)
        self._tls = _authorities()
        self._pools: OrderedDict[str, _Pool] = OrderedDict()  # least recently used first

    @asynccontextmanager
    async def to(self, endpoint: str) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        """A context manager with the pool of an endpoint, for one request. It also closes unused pools."""
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = _Pool(self._new_pool())
        pool.users += 1
        self._pools.move_to_end(endpoint)
        try:
            await self._close_unused()
            yield pool.connections
        finally:
            pool.users -= 1
            pool.used_at = time.monotonic()
            self._pools.move_to_end(endpoint)

    @asynccontextmanager
    async def request(
        self, sink: Sink, method: str, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> AsyncIterator[httpcore.Response]:
        """A context manager that sends a request and yields its answer. Raises the errors of httpcore, `EarlyAnswer`
        and `EndlessAnswer`."""
        url = httpcore.URL(scheme=sink.scheme, host=sink.host, port=sink.port, target=sink.target)
        async with (
            self.to(sink.endpoint) as pool,
            pool.stream(method, url, headers=headers, content=body) as answer,
        ):
            stream = answer.extensions["network_stream"]
            assert isinstance(stream, _BoundedStream)
            if not stream.has_read:
                raise EarlyAnswer("the answer was sent before the request")
            yield answer
            if answer.status in BODILESS and not (stream.ends_with_head and _has_no_body(answer)):
                await stream.aclose()  # the next answer would begin with a body that HTTP does not allow

    async def close(self) -> None:
        """Closes all pools. No request may be running."""
        for pool in self._pools.values():
            await pool.connections.aclose()
        self._resolver.close()

    async def _close_unused(self) -> None:
        """Closes unused pools. Cost: one step for each pool in use and for each closed pool."""
        for endpoint, pool in list(self._pools.items()):
            if pool.users or self._pools.get(endpoint) is not pool:  # another request has closed it meanwhile
                continue
            if time.monotonic() - pool.used_at < KEEPALIVE_SECONDS and len(self._pools) <= MAX_POOLS:
                return  # all others were used more recently
            del self._pools[endpoint]
            await pool.connections.aclose()

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=None,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=self._network,
        )


def _has_no_body(answer: httpcore.Response) -> bool:
    """Whether the headers of an answer announce no body."""
    told = {name.lower(): value for name, value in answer.headers}
    return b"transfer-encoding" not in told and told.get(b"content-length", b"0").strip() == b"0"


@cache
def _authorities() -> SSLContext:
    """Returns the trusted certificate authorities. Loading takes some 40 ms, once for webhooks and operators."""
    return httpcore.default_ssl_context()
