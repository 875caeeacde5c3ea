"""The egress guard: which addresses the server may connect to on behalf of subscribers.

A sink is a URL that a stranger chose and that we connect to, so it must not become a way into the network we stand in
(server-side request forgery). Two checks, both before the first byte is sent:

    subscription created    check_sink(url)      scheme, port, no credentials, no literal private address
    every connection        GuardedBackend       resolve once -> every address public -> connect to that very address

The name is resolved exactly once and the connection is made to the checked address, so a name server that answers
differently the second time gains nothing; the original host stays in the Host header and in the TLS handshake. Nobody
above follows redirects. Flow: `delivery.webhook` posts through a pool whose network is `GuardedBackend`.
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
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

__all__ = [
    "Connections",
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
"""Characters of a sink URL: what proxies and web servers still accept in a request line, with room to spare."""

PUBLIC_PORTS = {"http": 80, "https": 443}
"""The only port of each scheme that a public sink may use: any other turns us into a port scanner."""

MAX_ANSWER_BYTES = 1 << 18
"""All that a server may send as the answer to one request: headers, interim answers, and the body that is read."""
MAX_INTERIM = 16
"""Interim answers (1xx) to one request: reading one takes longer than any other part of so many bytes."""
_INTERIM = re.compile(rb"HTTP/1\.[01] 1")
MIN_READ_BYTES = 64
"""What a piece counts at least, however short it is."""

RESOLVER_THREADS = 8
"""Threads that wait for name servers. A pool of their own: a silent name server must not hold the store's readers."""

CONNECT_SECONDS_PER_ADDRESS = 5.0
"""A silent first address leaves time for the next one within the deadline of the attempt."""

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Host name and port → numeric addresses, in order of preference. Raises OSError when there is no such name."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
"""A name in ASCII (IDNA already applied), or an address without brackets; no zones, no percent signs."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE = ipaddress.IPv6Network("::/96")
_V4_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")

_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # the host agent of one large cloud: a public number that answers only from the inside
        "192.88.99.0/24",  # 6to4 relays: leads to whatever the nearest relay likes
        "64:ff9b:1::/48",  # NAT64 within one organisation
        "3fff::/20",  # documentation; this Python does not know it yet
        "5f00::/16",  # segment routing identifiers
    )
)
"""Addresses that `ipaddress.is_global` admits but that cannot host a webhook."""


class SinkRefused(ValueError):
    """This sink is not allowed. The text may be shown to the subscriber: it names no resolved address."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink URL that passed the checks of its text, taken apart by the one parser that is also used to connect."""

    scheme: str
    host: str
    port: int
    netloc: bytes
    target: bytes

    @property
    def endpoint(self) -> str:
        """What shares one queue and one fate: scheme, host and port."""
        return f"{self.scheme}://{self.host}:{self.port}"


@lru_cache(maxsize=4_096)  # the same few sinks come again with every message
def check_sink(url: str, *, allow_private: bool, any_https_port: bool = False) -> Sink:
    """Checks the text of a sink URL; nothing is resolved and nothing is connected. `any_https_port`: whether https may
    go to other ports than 443. Raises `SinkRefused`."""
    if len(url) > MAX_SINK_LENGTH:
        raise SinkRefused(f"the sink has {len(url)} characters; at most {MAX_SINK_LENGTH} are allowed")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SinkRefused(f"the sink is not a URL: {error}") from None
    if parsed.scheme not in PUBLIC_PORTS:
        raise SinkRefused("the sink must be an absolute http:// or https:// URL")
    host = parsed.raw_host.decode("ascii")
    if not host:
        raise SinkRefused("the sink has no host")
    if not _HOST.fullmatch(host):
        raise SinkRefused("the host of the sink has characters that are not allowed in a host name")
    if parsed.userinfo:
        raise SinkRefused("the sink has a user name or password: give them as sinkcredential instead")
    if parsed.fragment:
        raise SinkRefused("the sink has a fragment (#…), which is never sent: leave it out")
    port = PUBLIC_PORTS[parsed.scheme] if parsed.port is None else parsed.port
    if not allow_private:
        if port != PUBLIC_PORTS[parsed.scheme] and not (any_https_port and parsed.scheme == "https" and port > 0):
            raise SinkRefused(f"port {port} is not allowed: use {PUBLIC_PORTS[parsed.scheme]} for {parsed.scheme}")
        refuse_local_name(host)
    return Sink(parsed.scheme, host, port, parsed.netloc, parsed.raw_path)


def is_public(address: str) -> bool:
    """Whether a numeric address is one that anyone on the internet could reach: IPv4 addresses that hide in IPv6 ones
    (mapped, NAT64, 6to4, Teredo, translated, compatible) are judged as the IPv4 address they lead to.

    >>> is_public("1.1.1.1"), is_public("10.0.0.1"), is_public("::ffff:10.0.0.1"), is_public("64:ff9b::7f00:1")
    (True, False, False, False)
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return all(_is_public(each) for each in _unwrapped(parsed))


class SystemResolver:
    """Resolves names with the operating system, in a few threads. After `close`, threads that still wait are left
    alone."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(answers))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """A network for httpcore that connects only to checked addresses. One event loop at a time."""

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
        """Resolves once, checks every address, connects to the first that answers.

        Raises `SinkRefused` when one address is not public (all of them count: which one is used must not be left to
        luck), and httpcore's `ConnectError`/`ConnectTimeout` as usual.
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


class _BoundedStream(httpcore.AsyncNetworkStream):
    """A connection on which one request has an answer of bounded size, whatever it consists of: also of interim answers
    (1xx), of which HTTP allows any number."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._read = 0
        self._interim = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._read > MAX_ANSWER_BYTES:
            raise httpcore.ReadError("the answer is too long")
        found = await self._stream.read(max_bytes, timeout)
        self._read += max(len(found), MIN_READ_BYTES)
        self._interim += len(_INTERIM.findall(found))
        if self._interim > MAX_INTERIM:
            raise httpcore.ReadError("there are too many interim answers")
        return found

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


def refuse_local_name(host: str) -> None:
    """Refuses names of this machine, and addresses that are not public. Raises `SinkRefused`."""
    bare = host.rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        raise SinkRefused("the sink is this machine itself, which is not a public address")
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return  # a name: it is judged by its addresses, whenever we connect
    if not is_public(bare):
        raise SinkRefused("the host of the sink is not a public address")


def _unwrapped(address: _Address) -> tuple[_Address, ...]:
    """The addresses that a packet to this one may reach: itself, or the IPv4 ones inside it."""
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
        return False  # fec0::/10 is deprecated, not gone, and `is_global` says yes
    return not any(address in network for network in _REFUSED_NETWORKS)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in found]


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Connection pools of the webhooks: one small pool per endpoint, over the guarded network.
#
# One pool per endpoint, because a pool of httpcore checks all its connections for every request. Idle connections are
# closed soon, so that a name that changes its address is resolved and checked again.

KEEPALIVE_SECONDS = 15.0
"""A connection or pool that was unused for this long is closed."""

MAX_POOLS = 1_024
"""Endpoints with open connections; above it the longest unused ones are closed at once."""


@dataclass(slots=True)
class _Pool:
    connections: httpcore.AsyncConnectionPool
    users: int = 0
    used_at: float = 0.0


class Connections:
    """One event loop; any number of `to` at a time. It sets no limits; its caller does."""

    def __init__(self, *, allow_private: bool, resolver: Resolver | None = None) -> None:
        self._resolver = resolver if resolver is not None else SystemResolver()
        self._network = GuardedBackend(allow_private=allow_private, resolver=self._resolver)
        self._tls = _authorities()
        self._pools: OrderedDict[str, _Pool] = OrderedDict()  # the longest unused first

    @asynccontextmanager
    async def to(self, endpoint: str) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        """The pool of an endpoint, for one request. Pools that are no longer used are closed on the way."""
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

    async def close(self) -> None:
        """Closes all; nothing may be under way."""
        for pool in self._pools.values():
            await pool.connections.aclose()
        if isinstance(self._resolver, SystemResolver):
            self._resolver.close()

    async def _close_unused(self) -> None:
        """Cost: one step for each pool that is in use, and for each that is closed."""
        for endpoint, pool in list(self._pools.items()):
            if pool.users:
                continue
            if time.monotonic() - pool.used_at < KEEPALIVE_SECONDS and len(self._pools) <= MAX_POOLS:
                return  # all others were used later
            del self._pools[endpoint]
            await pool.connections.aclose()

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=None,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=self._network,
        )


@cache
def _authorities() -> SSLContext:
    """Whom TLS connections trust. Loading them takes some 40 ms: once for webhooks and operators."""
    return httpcore.default_ssl_context()
