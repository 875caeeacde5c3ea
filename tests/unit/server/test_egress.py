"""The guard between a subscriber's URL and our network."""

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.security.egress import GuardedBackend, SinkRefused, SystemResolver, check_sink, is_public

PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
NOT_PUBLIC = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # the metadata service of most clouds
    "100.64.0.1",  # carrier-grade NAT
    "100.100.100.200",  # a metadata service inside it
    "168.63.129.16",  # a cloud's host agent
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "198.18.0.1",
    "192.0.0.8",
    "192.0.0.192",  # a cloud's agent
    "192.88.99.1",
    "::",
    "::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff0e::1",
    "2001:db8::1",
    "3fff::1",
    "::ffff:127.0.0.1",  # mapped
    "::127.0.0.1",  # compatible
    "::ffff:0:127.0.0.1",  # translated
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b:1::808:808",  # NAT64 of one organisation
    "2002:7f00:1::1",  # 6to4
    "2001:0:808:808::80ff:fffe",  # Teredo of a public server, for the client 127.0.0.1
    "localhost",  # not numeric at all
]


@pytest.mark.parametrize("address", PUBLIC)
def test_is_public_global_address_accepts(address: str) -> None:
    """Addresses that anyone can reach are public, also when they are written as mapped or translated ones."""
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_is_public_special_address_refuses(address: str) -> None:
    """Private, local, reserved, multicast and documentation addresses are not public, in no disguise."""
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_is_public_disguised_ipv4_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    """An IPv4 address inside IPv6 is never more public than the address itself."""
    number = int(address)
    disguises = [
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address(0x64FF9B << 96 | number),
        ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1),
    ]
    assert [is_public(str(disguise)) for disguise in disguises] == [is_public(str(address))] * 3


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com/hook",
        "http:///hook",
        "http://user@example.com/",
        "https://user:secret@example.com/",
        "https://example.com/#part",
        "https://example.com:8443/",
        "http://example.com:443/",
        "http://example.com:0/",
        "http://example.com:25/",
        "http://exa mple.com/",
        "http://%6c%6f.example/",
        "http://example.com/\r\nX-Header: 1",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://printer.localhost/",
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "https://example.com/" + "a" * 3_000,
    ],
)
def test_check_sink_unsafe_url_refuses(url: str) -> None:
    """What is not plain http(s) on the usual port of a public host is refused when the subscription is created."""
    with pytest.raises(SinkRefused):
        check_sink(url, allow_private=False)


def test_check_sink_public_url_takes_it_apart() -> None:
    """A good URL keeps host, path and query; the host is in the form that is sent."""
    sink = check_sink("https://bücher.example/hook?x=1", allow_private=False)
    assert (sink.host, sink.port, sink.netloc) == ("xn--bcher-kva.example", 443, b"xn--bcher-kva.example")
    assert sink.target == b"/hook?x=1"
    assert sink.endpoint == "https://xn--bcher-kva.example:443"


def test_check_sink_private_allowed_takes_any_port() -> None:
    """Where the operator allows private sinks, local hosts and other ports are fine; credentials still are not."""
    assert check_sink("http://127.0.0.1:9000/", allow_private=True).port == 9_000
    with pytest.raises(SinkRefused):
        check_sink("http://user:secret@127.0.0.1:9000/", allow_private=True)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "017700000001"])
def test_backend_number_as_host_refuses(host: str) -> None:
    """Spellings of 127.0.0.1 that only the system's resolver knows are refused when it has resolved them."""

    async def connect() -> None:
        resolver = SystemResolver()
        try:
            await GuardedBackend(allow_private=False, resolver=resolver).connect_tcp(host, 80)
        finally:
            resolver.close()

    with pytest.raises(SinkRefused):
        asyncio.run(connect())


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["1.1.1.1", "::ffff:10.0.0.1"]])
def test_backend_one_private_answer_refuses_unconnected(addresses: list[str]) -> None:
    """One private address among the answers is enough; the error does not tell which address it was."""

    async def resolver(host: str, port: int) -> list[str]:
        return addresses

    async def connect() -> None:
        await GuardedBackend(allow_private=False, resolver=resolver).connect_tcp("sink.example", 80)

    with pytest.raises(SinkRefused) as refused:
        asyncio.run(connect())
    assert not any(address in str(refused.value) for address in addresses)


def test_backend_no_answer_fails_closed() -> None:
    """A name without addresses is a failed connection, never a connection to somewhere."""

    async def resolver(host: str, port: int) -> list[str]:
        return []

    async def connect() -> None:
        await GuardedBackend(allow_private=False, resolver=resolver).connect_tcp("sink.example", 80)

    with pytest.raises(httpcore.ConnectError):
        asyncio.run(connect())


def test_backend_connects_to_the_checked_address_resolving_once() -> None:
    """The connection goes to the address that was resolved, and the name is asked for once: nothing to rebind."""
    asked: list[str] = []

    async def scenario() -> bytes:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"here")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def resolver(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

        async with server:
            backend = GuardedBackend(allow_private=True, resolver=resolver)
            stream = await backend.connect_tcp("nowhere.invalid", port, timeout=5.0)
            greeting = await stream.read(16, timeout=5.0)
            await stream.aclose()
        return greeting

    assert asyncio.run(scenario()) == b"here"
    assert asked == ["nowhere.invalid"]


def test_names_without_an_answer_hold_up_no_name_that_had_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name servers that are silent held all threads, so a subscriber could stop the webhooks of all others. An address
    needs no thread."""
    answering = threading.Event()
    resolve = socket.getaddrinfo

    def look_up(host: str, *more: Any, **options: Any) -> Any:
        if host.endswith(".silent.example"):
            answering.wait()
        return resolve("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def scenario() -> None:
        resolver = SystemResolver()
        try:
            assert await resolver("good.example", 443) == ["127.0.0.1"]
            silent = [asyncio.create_task(resolver(f"{each % 50}.silent.example", 80)) for each in range(100)]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(20.0):
                found = await asyncio.gather(*(resolver(each, 443) for each in ("good.example",) * 20 + ("::1",)))
            assert found == [["127.0.0.1"]] * 20 + [["::1"]]
            answering.set()
            assert await asyncio.gather(*silent) == [["127.0.0.1"]] * 100
        finally:
            answering.set()
            resolver.close()

    asyncio.run(scenario())


def test_backend_local_socket_refuses() -> None:
    """A sink cannot name a socket of this machine."""

    async def resolver(host: str, port: int) -> list[str]:
        return ["1.1.1.1"]

    async def connect() -> None:
        await GuardedBackend(allow_private=True, resolver=resolver).connect_unix_socket("/run/some.sock")

    with pytest.raises(SinkRefused):
        asyncio.run(connect())


def test_https_on_another_port_where_it_is_allowed() -> None:
    """Only https, and only to public names."""
    assert check_sink("https://example.com:8443/", allow_private=False, any_https_port=True).port == 8_443
    for url in ("http://example.com:8080/", "https://localhost:8443/", "https://example.com:0/"):
        with pytest.raises(SinkRefused):
            check_sink(url, allow_private=False, any_https_port=True)


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_check_sink_ports_that_do_not_exist_are_refused(port: int) -> None:
    with pytest.raises(SinkRefused, match="ports are between"):
        check_sink(f"http://127.0.0.1:{port}/x", allow_private=True)
