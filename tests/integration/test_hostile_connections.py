"""What a client can do to the server by what it sends, or does not: on real sockets."""

import gc
import resource
import select
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from kindcast.server import cloudevents
from kindcast.server.api import health, problem_types, requests
from kindcast.server.api.problem_types import Problem
from tests.harness.application import problem_code
from tests.harness.server_process import ServerProcess
from tests.harness.server_thread import running_app

PATIENCE_SECONDS = 20.0
"""Only a failing test waits so long."""

HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def connection(url: str, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A bare socket to the server."""
    address = urlsplit(url)
    with socket.create_connection(
        (address.hostname, address.port), PATIENCE_SECONDS, source_address=(source, 0)
    ) as opened:
        yield opened


def answer_of(client: socket.socket) -> bytes:
    """All that the server says until it closes."""
    said = b""
    while True:
        try:
            piece = client.recv(65_536)
        except ConnectionError:
            return said
        if not piece:
            return said
        said += piece


def asked(url: str, sent: bytes) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    with connection(url) as client:
        with suppress(ConnectionError):  # it has heard enough
            client.sendall(sent)
        return answer_of(client)


def is_alive(url: str) -> bool:
    return httpx.get(f"{url}/healthz", timeout=PATIENCE_SECONDS).status_code == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with small limits, which this module's tests share."""
    limits: dict[str, Any] = {
        "max_header_bytes": 8_192,
        "max_headers": 20,
        "max_body_bytes": 100_000,
        "max_reading_bytes": 150_000,
        "trusted_proxies": ("127.0.0.9",),
        "open_behind_proxy": True,
        "max_connections_per_address": 4,
        "allowed_origins": ("https://SHOP.example:443",),
    }
    with running_app(tmp_path_factory.mktemp("data"), **limits) as url:
        yield url


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that gives its clients little time."""
    limits = {"header_seconds": 0.4, "body_seconds": 0.4, "write_seconds": 0.4}
    with running_app(tmp_path_factory.mktemp("data"), **limits) as url:
        yield url


def test_a_connection_without_further_requests_is_closed(server: str) -> None:
    """It may be used again before that."""
    with connection(server) as client:
        for _ in range(2):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        assert answer_of(client) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 9_000 + b"\r\n",
        b"X: 1\r\n" * 30,
        b"X: a\r\n" * 10 + b"Y: " + b"b" * 8_150 + b"\r\n",
    ],
    ids=["one long header", "many headers", "long together"],
)
def test_head_beyond_a_limit_is_refused(server: str, head: bytes) -> None:
    """In bytes and in number, whether it ends or not."""
    for end in (b"", b"\r\n"):
        said = asked(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + end)
        assert said.startswith(b"HTTP/1.1 431 "), said[:200]
    said = asked(server, b"GET /" + b"p" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 431 "), said[:200]
    assert is_alive(server)


@pytest.mark.parametrize(
    "sent",
    [
        b"FOO /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
    ids=["method", "version", "header", "chunk", "coding", "codings"],
)
def test_what_is_no_http_is_answered_with_a_problem(server: str, sent: bytes) -> None:
    """A problem document like any other, and the end of the connection."""
    head, _, body = asked(server, sent).rpartition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert msgspec.json.decode(body)["type"] == "https://kindcast.dev/problems/malformed-request"
    assert is_alive(server)


def test_endless_chunk_extension_is_refused(server: str) -> None:
    """What frames a chunk is neither head nor content, and bounded all the same."""
    said = asked(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 300_000)
    assert said.startswith(b"HTTP/1.1 431 "), said[:200]


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he"],
    ids=["silent", "half a head", "the second request"],
)
def test_client_that_never_finishes_its_head_is_closed(hasty: str, sent: bytes) -> None:
    """After the time that a head has."""
    assert b"HTTP/1.1 408 " in asked(hasty, sent)
    assert is_alive(hasty)


def test_time_in_which_the_server_stood_still_is_no_clients_fault(tmp_path: Path) -> None:
    """A client that was within its time before and after is answered."""
    server = ServerProcess(tmp_path)
    server.start(KINDCAST_HEADER_SECONDS="2")
    try:
        with connection(server.url) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\n")
            time.sleep(0.5)
            server.pause()
            time.sleep(4.0)
            server.go_on()
            time.sleep(0.5)  # it looks for those that take too long
            client.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
            assert answer_of(client).startswith(b"HTTP/1.1 200 ")
    finally:
        server.stop()


def test_client_that_drips_its_body_is_closed(hasty: str) -> None:
    """However steadily it drips: the time of a body is bounded by its size."""
    with connection(hasty) as client:
        client.sendall(HEAD + b"Content-Length: 50000\r\n\r\n")
        deadline = time.monotonic() + PATIENCE_SECONDS
        with suppress(ConnectionError):
            while time.monotonic() < deadline:
                client.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() < deadline
    assert is_alive(hasty)


def test_unfinished_bodies_hold_bounded_memory(server: str) -> None:
    """Above the limit of all bodies together the longest unfinished one is closed, and the newest goes on."""
    with connection(server) as first, connection(server) as second:
        for client in (first, second):
            client.sendall(HEAD + b"Content-Length: 90000\r\n\r\n" + b" " * 80_000)
        assert answer_of(first).startswith(b"HTTP/1.1 503 ")
        second.sendall(b" " * 9_998 + b"{}")
        assert second.recv(100).startswith(b"HTTP/1.1 202 ")


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_refused_bodies_leave_no_memory_in_use(tmp_path: Path) -> None:
    """Neither the body of a refused event nor what was read of it waits for the garbage collector."""
    body = b'{"text": "' + b"a" * 8_000_000 + b'", "price": 1e999}'
    with running_app(tmp_path) as url, httpx.Client(base_url=url) as client:
        send = partial(client.post, "/v1/events", content=body, headers={"Content-Type": "application/json"})
        assert problem_code(send()) == "malformed-json"
        before = resident_bytes()
        gc.disable()
        try:
            for _ in range(40):
                send()
            # The allocator keeps some bodies' worth for each thread.
            assert resident_bytes() - before < 20 * len(body)
        finally:
            gc.enable()


def test_integer_of_many_digits_is_refused_unread(server: str) -> None:
    """Python reads such an integer in quadratic time. Digits in texts, fractions and exponents are no integers."""
    digits = b"7" * 4_000
    said = [
        b'{"a": [' + b",".join([digits] * 20) + b"]}",
        b'{"text": "\\\\", "a": ' + digits * 17 + b"}",
        b'{"text": "\\" ' + digits * 17 + b'", "a": -' + digits + b"}",
    ]
    for body in said:
        refused = httpx.post(f"{server}/v1/events", content=body, headers={"Content-Type": "application/json"})
        assert problem_code(refused) == "malformed-json", refused.text
        assert "too large for a double (byte " in refused.json()["detail"]
    fine = b'{"text": "\\\\\\" ' + digits * 17 + b'", "b": 0.' + digits + b', "c": ' + digits + b"e-4000}"
    taken = httpx.post(f"{server}/v1/events", content=fine, headers={"Content-Type": "application/json"})
    assert taken.status_code == 202, taken.text


@pytest.mark.parametrize("path", ["/v1/events", "/v1/matches", "/v1/subscriptions/import"])
def test_lines_beyond_the_limit_are_not_taken_apart(tmp_path: Path, path: str) -> None:
    body = b"x\n" * 1_000_000
    with running_app(tmp_path) as url:
        tracemalloc.start()
        try:
            refused = httpx.post(url + path, content=body, headers={"Content-Type": "application/x-ndjson"})
            assert tracemalloc.get_traced_memory()[1] < 10 * len(body)
        finally:
            tracemalloc.stop()
    assert refused.status_code == 413
    assert "10,000" in refused.json()["detail"]


def test_large_object_is_read_beside_other_requests(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop answers others while a thread reads the body."""
    reading, served = threading.Event(), threading.Event()

    def decode(data: bytes) -> Any:
        reading.set()
        assert served.wait(PATIENCE_SECONDS)
        return msgspec.json.decode(data)

    monkeypatch.setattr(requests, "decode", decode)
    with ThreadPoolExecutor() as threads:
        checked = threads.submit(httpx.post, f"{server}/v1/check", json={"expression": "a = 1", "b": "x" * 70_000})
        assert reading.wait(PATIENCE_SECONDS)
        assert is_alive(server)
        served.set()
        assert checked.result(PATIENCE_SECONDS).status_code == 422


def test_many_lines_that_cannot_be_read_leave_time_for_others(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are read, and while the problem of each is described."""
    lines, described = 4_000, 0
    reading, describing, alive, asked, answered = (threading.Event() for _ in range(5))
    decode, document = cloudevents.decode, problem_types.as_document

    def slow_decode(data: bytes) -> Any:
        reading.set()
        assert alive.wait(PATIENCE_SECONDS)
        return decode(data)

    def slow_document(problem: Problem) -> dict[str, Any]:
        nonlocal described
        described += 1
        if described == 1:
            describing.set()
            assert asked.wait(PATIENCE_SECONDS)
        if described == lines:
            assert answered.wait(PATIENCE_SECONDS)
        return document(problem)

    monkeypatch.setattr(cloudevents, "decode", slow_decode)
    monkeypatch.setattr(problem_types, "as_document", slow_document)
    post = partial(httpx.post, f"{server}/v1/events", timeout=3 * PATIENCE_SECONDS)
    with ThreadPoolExecutor() as threads, connection(server) as other:
        refused = threads.submit(
            post, content=b"{}\n" + b"x\n" * lines, headers={"Content-Type": "application/x-ndjson"}
        )
        assert reading.wait(PATIENCE_SECONDS)
        assert is_alive(server)
        alive.set()
        assert describing.wait(PATIENCE_SECONDS)
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        asked.set()
        assert other.recv(15) == b"HTTP/1.1 200 OK"
        answered.set()
        told = refused.result(3 * PATIENCE_SECONDS).json()
    assert [each["line"] for each in told["rejected"]] == list(range(2, lines + 2))


@pytest.mark.parametrize("path", ["/v1/session", "/v1/keys", "/v1/tenants"])
def test_requests_about_keys_are_small(server: str, path: str) -> None:
    refused = httpx.post(server + path, json={"key": "x" * 70_000})
    assert problem_code(refused) == "body-too-large"


def test_refused_body_closes_the_connection_and_is_told(server: str) -> None:
    """A client that sends on sees the answer, and cannot send for ever."""
    for frame, size in ((b"Content-Length: 99999999\r\n\r\n", 3_000_000), (b"Transfer-Encoding: chunked\r\n\r\n", 0)):
        body = b" " * size or (b"2000\r\n" + b" " * 0x2000 + b"\r\n") * 40
        said = asked(server, HEAD + frame + body)
        for _ in range(20):  # bodies of the tests before may still be counted
            if not said.startswith(b"HTTP/1.1 503 "):
                break
            time.sleep(0.5)
            said = asked(server, HEAD + frame + body)
        assert said.startswith(b"HTTP/1.1 413 "), said[:200]
        assert b"connection: close" in said.lower()


def test_refused_body_is_read_while_the_client_sends_it(server: str) -> None:
    """A client that sends a large body at once can send the rest of it, and sees the answer."""
    with connection(server) as client:
        client.sendall(HEAD + b"Content-Length: 20000000\r\n\r\n")
        for _ in range(20):
            client.sendall(b" " * 1_000_000)
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_connection_goes_on_after_an_unexpected_error(
    server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is answered 500 and logged once, and the next request over the connection is answered too."""

    def fail(connection: object) -> None:
        raise RuntimeError("unexpected")

    with httpx.Client(base_url=server, timeout=PATIENCE_SECONDS) as client:
        monkeypatch.setattr(health, "count_flagged", fail)
        first = client.get("/metrics")
        port = first.extensions["network_stream"].get_extra_info("client_addr")
        monkeypatch.undo()
        second = client.get("/metrics")
        assert second.extensions["network_stream"].get_extra_info("client_addr") == port
    assert (first.status_code, second.status_code) == (500, 200)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == ["GET /metrics failed"]


def test_trailers_are_no_headers(server: str) -> None:
    """What follows the body cannot change the event: in binary mode its headers are attributes."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
    ce = b"ce-specversion: 1.0\r\nce-id: 7\r\nce-source: /s\r\nce-type: t\r\nContent-Type: application/json\r\n"
    for trailer in (b"", b"ce-extra: smuggled\r\n" * 30):
        said = asked(server, head + ce + b"\r\n2\r\n{}\r\n0\r\n" + trailer + b"\r\n")
        assert said.startswith(b"HTTP/1.1 202 "), said
        assert b"differs" not in said
    assert "smuggled" not in httpx.get(f"{server}/v1/events").text


@pytest.mark.parametrize("chunked", [False, True])
def test_request_that_asks_for_an_upgrade_has_its_body(server: str, chunked: bool) -> None:
    """As Java's HttpClient and `curl --http2` send each first request. The event was accepted without its data. The
    bytes behind the head were lost, or read as a request of their own."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    inner = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def request(body: bytes, more: bytes = b"") -> tuple[bytes, bytes]:
        if chunked:
            return HEAD + upgrade + more + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (
                len(body),
                body,
            )
        return HEAD + upgrade + more + b"Content-Length: %d\r\n\r\n" % len(body), body

    first, second = request(b'{"weight": 3}'), request(inner)
    third, last = request(b'{"weight": 4}'), request(b'{"weight": 5}', b"Connection: close\r\n")
    with connection(server) as client:
        for piece in (first[0], first[1] + second[0], second[1], b"".join(third + last)):
            client.sendall(piece)
            time.sleep(0.05)  # so that the server reads them one after the other
        said = answer_of(client)
    assert [each[:3] for each in said.split(b"HTTP/1.1 ")[1:]] == [b"202", b"400", b"202", b"202"]
    stored = httpx.get(f"{server}/v1/events", params={"limit": 1000}).json()["events"]
    assert [each["event"].get("data") for each in stored[-3:]] == [{"weight": 3}, {"weight": 4}, {"weight": 5}]


def test_requests_that_wait_for_each_other_are_bounded(server: str) -> None:
    """One connection cannot make the server hold thousands of requests."""
    said = asked(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
    assert said.count(b"200 OK") < 100
    assert is_alive(server)


def test_connection_with_too_many_requests_leaves_no_error_in_the_log(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends while one of them is running. Otherwise a stranger could fill the disk with tracebacks."""
    for _ in range(20):
        asked(server, b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
    assert is_alive(server)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


def test_stream_ends_with_its_connection_if_another_request_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server notices that the client has left, and that is no error."""
    with running_app(tmp_path, stream_ping_seconds=0.1) as url:
        admin = {"Authorization": f"Bearer {httpx.post(f'{url}/v1/keys', json={'role': 'admin'}).json()['key']}"}
        made = httpx.post(f"{url}/v1/subscriptions", json={"expression": "a = 1"}, headers=admin).json()
        asked_for = {"role": "subscriber", "limits": {"connections": 1}}
        key = httpx.post(f"{url}/v1/keys", json=asked_for, headers=admin).json()["key"]
        waiting = f"GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        with connection(url) as client:
            client.sendall(waiting.replace(b"subscriptions", f"subscriptions/{made['id']}/stream".encode()))
            assert b" 200 OK" in client.recv(1_000)
            client.sendall(waiting)
        deadline = time.monotonic() + PATIENCE_SECONDS
        own = {"Authorization": f"Bearer {key}"}
        while httpx.get(f"{url}/v1/subscriptions", headers=own).status_code == 429:
            assert time.monotonic() < deadline, "the stream still counts"
            time.sleep(0.05)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


def test_newest_connection_is_served_when_there_are_too_many(server: str) -> None:
    """The longest unfinished one goes; one that was given no request is closed without a word to spare."""
    with ExitStack() as all_of_them:
        first, *_, last = [all_of_them.enter_context(connection(server, "127.0.0.5")) for _ in range(5)]
        last.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer_of(last).startswith(b"HTTP/1.1 200 ")
        assert answer_of(first).startswith(b"HTTP/1.1 503 ")


def test_clients_behind_a_trusted_proxy_have_limits_of_their_own(server: str) -> None:
    """Many long polls of one client of the proxy: its oldest is closed, another client's is not; who is no proxy is
    not believed."""
    id = httpx.post(f"{server}/v1/subscriptions", json={"expression": "nothing = 1"}).json()["id"]
    poll = f"GET /v1/subscriptions/{id}/stream HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.9.9.9, ".encode()
    with ExitStack() as all_of_them:
        other, oldest, *more = [all_of_them.enter_context(connection(server, "127.0.0.9")) for _ in range(6)]
        other.sendall(poll + b"192.0.2.1\r\n\r\n")
        assert other.recv(15) == b"HTTP/1.1 200 OK"
        for client in (oldest, *more):
            client.sendall(poll + b"192.0.2.2, 127.0.0.9\r\n\r\n")
            assert client.recv(15) == b"HTTP/1.1 200 OK"
        assert answer_of(oldest).endswith(b"\n")  # it was closed
        other.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                assert other.recv(1_000), "another client's stream was closed"


def test_addresses_in_answers_have_the_path_of_a_trusted_proxy(server: str) -> None:
    """And no other text that somebody sends."""
    made: list[str] = []

    def addresses(source: str, prefix: str) -> tuple[str, str]:
        transport = httpx.HTTPTransport(local_address=source)
        with httpx.Client(base_url=server, transport=transport, headers={"X-Forwarded-Prefix": prefix}) as client:
            created = client.post("/v1/subscriptions", json={"expression": "a = 1"})
            made.append(created.json()["id"])
            return created.headers["location"], client.get("/v1/subscriptions?limit=1").links["next"]["url"]

    for _ in range(2):
        httpx.post(f"{server}/v1/subscriptions", json={"expression": "a = 1"}).raise_for_status()
    for source, prefix, expected in (
        ("127.0.0.9", "/bus", "/bus"),
        ("127.0.0.9", "/a/bus/", "/a/bus"),
        ("127.0.0.1", "/bus", ""),
        ("127.0.0.9", "//other.example", ""),
        ("127.0.0.9", "/a>; rel=x", ""),
    ):
        location, following = addresses(source, prefix)
        assert location == f"{expected}/v1/subscriptions/{made[-1]}"
        assert following.startswith(f"{expected}/v1/subscriptions?limit=1&cursor=")


@pytest.mark.parametrize("request_line", ["GET /healthz", "POST /v1/events"])
@pytest.mark.parametrize("host", ["[::1", "localhost:x@evil.com", "localhost:1:2", "local host", "[::1]evil", ""])
def test_host_that_is_no_host_is_refused(server: str, request_line: str, host: str) -> None:
    """Names are compared after a strict reading; nothing is cut off a text that is not a name."""
    for hosts in (f"Host: {host}\r\n", "Host: localhost\r\nHost: localhost\r\n", "Host: example.com\r\n"):
        said = asked(server, f"{request_line} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 421"), said[:100]


@pytest.mark.parametrize(("hosts", "told"), [(0, b"has no Host header"), (2, b"has several Host headers")])
def test_request_without_one_host_is_told_so(server: str, hosts: int, told: bytes) -> None:
    """Health checks often send no Host. They were told that theirs names another server."""
    said = asked(server, b"GET /healthz HTTP/1.0\r\n" + b"Host: localhost\r\n" * hosts + b"\r\n")
    assert said.startswith(b"HTTP/1.1 421 ")
    assert told in said


PUBLISHED = [
    (b"Content-Type: application/json\r\n", b'{"n": 1}'),
    (b"Content-Type: application/json\r\n", b'{"n": '),
    (b"Content-Type: application/json\r\n", b"[1]"),
    (b"Content-Type: application/x-ndjson\r\n", b'{"n": 1}\n{"n": \n{"n": 3}'),
    (b"Content-Type: image/png\r\n", b"1"),
    (b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n", b"{}"),
    (b"Content-Type: application/json\r\nIdempotency-Key: short\r\n", b"{}"),
    (b"Content-Type: text/plain\r\nce-specversion: 1.0\r\nce-id: 7\r\nce-source: /s%20t\r\nce-type: t\r\n", b"text"),
    (b"Content-Type: application/json\r\nce-id: 1\r\nce-datacontenttype: text/xml\r\n", b"{}"),
    (b"", b""),
]


@pytest.mark.parametrize(("headers", "body"), PUBLISHED)
def test_publishing_answers_alike_before_and_behind_the_framework(server: str, headers: bytes, body: bytes) -> None:
    """Requests of pages go through the framework, the others do not."""
    page = f"Origin: {server}\r\n".encode()
    authority = urlsplit(server).netloc.encode()
    told = []
    for more in (b"", page):
        head = b"POST /v1/events?verbose=false HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n" % authority
        frame = b"Content-Length: %d\r\n\r\n" % len(body)
        answered, _, content = asked(server, head + headers + more + frame + body).partition(b"\r\n\r\n")
        fields = answered.lower().split(b"\r\n")
        kind = next(each for each in fields if each.startswith(b"content-type"))
        told.append((fields[0], kind, content.replace(b'"accepted":0,"duplicates":1', b'"accepted":1,"duplicates":0')))
    assert told[0] == told[1]


def test_pages_of_the_server_and_of_listed_origins_only_change_things(server: str) -> None:
    """Another port of this machine is another site; a listed one is told so by CORS."""
    for origin, status in (
        (server, 202),
        ("http://localhost:3000", 403),
        (server.replace("http:", "https:"), 403),
        ("https://shop.example", 202),
        ("https://shop.example:444", 403),
        ("https://shop.example.evil", 403),
    ):
        answer = httpx.post(f"{server}/v1/events", json={}, headers={"Origin": origin})
        assert answer.status_code == status, origin
        if status == 403:
            assert problem_code(answer) == "wrong-origin"
            assert "access-control-allow-origin" not in answer.headers
    asked_before = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    allowed = httpx.options(f"{server}/v1/events", headers=asked_before).headers
    assert allowed["access-control-allow-origin"] == "https://shop.example"
    assert "HEAD" in allowed["access-control-allow-methods"]
    asked_before["Access-Control-Request-Method"] = "OPTIONS"  # a method of the CloudEvents Subscriptions API
    assert httpx.options(f"{server}/v1/cloudevents/subscriptions", headers=asked_before).status_code == 200
    read = httpx.get(f"{server}/v1/subscriptions", headers={"Origin": "https://shop.example"}).headers
    assert {"ETag", "Link", "RateLimit", "WWW-Authenticate"} <= set(read["access-control-expose-headers"].split(", "))
    foreign = httpx.options(f"{server}/v1/events", headers=asked_before | {"Origin": "https://evil.example"}).headers
    assert "access-control-allow-origin" not in foreign


def test_answers_that_nobody_reads_hold_bounded_memory(tmp_path: Path) -> None:
    """The oldest reader of the address with the most is disconnected; the others get all of their answers."""
    with running_app(tmp_path, max_writing_bytes=20_000_000) as url, ExitStack() as all_of_them:
        id = httpx.post(f"{url}/v1/subscriptions", json={"expression": ""}).json()["id"]
        for _ in range(12):
            httpx.post(f"{url}/v1/events", json={"a": "x" * 1_000_000}).raise_for_status()
        pull = f"GET /v1/subscriptions/{id}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        readers = []
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.3"):
            reader = all_of_them.enter_context(connection(url, source))
            reader.sendall(pull)
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
            readers.append(reader)
        other, oldest, newest = (len(answer_of(readers[number])) for number in (0, 1, 2))
    assert other == newest > 12_000_000
    assert oldest < other


def test_reader_that_takes_nothing_is_disconnected(hasty: str) -> None:
    """It would hold its connection, and the page that it is sent, for ever."""
    published = httpx.post(f"{hasty}/v1/events", json={"text": "x" * 12_000_000}, timeout=PATIENCE_SECONDS)
    assert published.status_code == 202
    address = urlsplit(hasty)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((address.hostname, address.port))
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        watched = select.poll()
        watched.register(client, select.POLLHUP | select.POLLERR)
        assert watched.poll(PATIENCE_SECONDS * 1_000), "it is still connected"
    assert is_alive(hasty)
