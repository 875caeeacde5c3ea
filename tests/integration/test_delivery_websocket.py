"""Messages over a WebSocket, on a real socket, read by the library `websockets`."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kindcast.server.delivery.turns import Acknowledgements
from tests.harness.application import publish, subscribe, ticket
from tests.harness.server_thread import running_app

PATIENCE = 30.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("data")
    with running_app(folder) as address, httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client:
        yield client


def opened(client: httpx.Client, id: str, **more: Any) -> ClientConnection:
    return connect(address_of(client, id, more.pop("after", None)), open_timeout=PATIENCE, proxy=None, **more)


def address_of(client: httpx.Client, id: str, after: str | None = None) -> str:
    base = str(client.base_url).replace("http", "ws", 1).rstrip("/")
    return f"{base}/v1/subscriptions/{id}/ws" + ("" if after is None else f"?after={after}")


def received(connection: ClientConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(connection.recv(timeout=PATIENCE))
    return frame


def test_messages_and_acknowledgements_over_the_one_cursor(client: httpx.Client) -> None:
    made = subscribe(client, "n >= 1")
    for n in range(3):
        publish(client, n=n)
    with opened(client, made["id"], additional_headers=ticket(made)) as connection:
        first, second = received(connection), received(connection)
        assert [first["event"]["data"], second["event"]["data"]] == [{"n": 1}, {"n": 2}]
        pulled = client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"]
        assert [first, second] == pulled  # the same message, whichever way it is taken
        publish(client, n=7)
        third = received(connection)
        assert third["event"]["data"] == {"n": 7}
        connection.send(json.dumps({"ack": second["cursor"]}))
        assert received(connection) == {"acked": second["cursor"]}
    assert client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"] == [third]
    with opened(client, made["id"], after=first["cursor"]) as again:
        assert received(again) == second


def test_what_is_wrong_with_a_frame_is_told_and_the_connection_stays(client: httpx.Client) -> None:
    made = subscribe(client)
    with opened(client, made["id"]) as connection:
        codes = []
        for frame in ("no json", '{"ack": 5}', '{"ack": "0"}', '{"ticket": "x", "ack": "0"}', '{"what": 1}'):
            connection.send(frame)
            codes.append(received(connection)["problem"]["type"].rsplit("/", 1)[-1])
        assert codes == ["malformed-json", "invalid-request", "ticket-missing", "ticket-wrong", "invalid-request"]
        connection.send(json.dumps({"ticket": made["ticket"]}))
        connection.send(json.dumps({"ack": "9" * 17}))
        assert received(connection)["problem"]["type"].endswith("/invalid-cursor")
        publish(client, n=1)
        connection.send(json.dumps({"ack": received(connection)["cursor"]}))
        assert "acked" in received(connection)


def test_a_wrong_ticket_does_not_replace_the_right_one(client: httpx.Client) -> None:
    """Whether it comes alone or with an acknowledgement, it is refused at once, and the ticket of the handshake
    stays."""
    made = subscribe(client)
    publish(client, n=1)
    with opened(client, made["id"], additional_headers=ticket(made)) as connection:
        cursor = received(connection)["cursor"]
        for frame in ({"ticket": "x"}, {"ticket": "x", "ack": cursor}):
            connection.send(json.dumps(frame))
            assert received(connection)["problem"]["type"].endswith("/ticket-wrong")
        connection.send(json.dumps({"ack": cursor}))
        assert received(connection) == {"acked": cursor}


def test_events_as_they_are_for_who_asks_for_cloudevents(client: httpx.Client) -> None:
    made = subscribe(client)
    with opened(client, made["id"], subprotocols=["mqtt", "cloudevents.json"]) as connection:
        assert connection.subprotocol == "cloudevents.json"
        publish(client, n=1)
        event = received(connection)
        assert event["specversion"] == "1.0"
        assert event["data"] == {"n": 1}
        assert event["kindcastsubscription"] == made["id"]
        assert client.get(f"/v1/subscriptions/{made['id']}/events").json()["cursor"] == event["kindcastcursor"]


def test_a_deleted_subscription_ends_the_connection(client: httpx.Client) -> None:
    made = subscribe(client)
    with opened(client, made["id"]) as connection:
        client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made))
        assert received(connection) == {"end": "deleted"}
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1000, "deleted")


def test_an_acknowledgement_beside_the_end_of_the_connection_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is stored, but its answer can no longer be sent."""
    closes = asyncio.Event()
    close, acknowledge = WebSocket.close, Acknowledgements.acknowledge

    async def slow_close(self: WebSocket, *arguments: Any) -> None:
        await close(self, *arguments)
        closes.set()
        for _ in range(10):  # it still closes when the acknowledgement is stored
            await asyncio.sleep(0)

    async def late(*arguments: Any) -> int:
        place = await acknowledge(*arguments)
        await closes.wait()
        return place

    monkeypatch.setattr(WebSocket, "close", slow_close)
    monkeypatch.setattr(Acknowledgements, "acknowledge", late)
    with (
        running_app(tmp_path) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client,
    ):
        made = subscribe(client)
        with opened(client, made["id"], additional_headers=ticket(made)) as connection:
            publish(client, n=1)
            connection.send(json.dumps({"ack": received(connection)["cursor"]}))
            waits = time.monotonic() + PATIENCE
            while client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"] and time.monotonic() < waits:
                time.sleep(0.01)
            assert client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made)).status_code == 200
            assert received(connection) == {"end": "deleted"}
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
    assert "Exception in ASGI application" not in caplog.text


def test_refused_before_it_begins(client: httpx.Client) -> None:
    made = subscribe(client)
    for id, after, headers, status, code in (
        ("sub_none", None, {}, 404, "unknown-subscription"),
        (made["id"], "nothing", {}, 400, "invalid-cursor"),
        (made["id"], None, {"Origin": "https://elsewhere.example"}, 403, "wrong-origin"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            opened(client, id, after=after, additional_headers=headers)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["type"].endswith(f"/{code}")


def test_another_host_is_refused_and_an_own_page_is_not(client: httpx.Client) -> None:
    made = subscribe(client)
    with opened(client, made["id"], origin=str(client.base_url).rstrip("/")) as connection:
        publish(client, n=1)
        assert received(connection)["event"]["data"] == {"n": 1}
    assert b" 421 " in handshake(client, f"/v1/subscriptions/{made['id']}/ws", host="evil.example").split(b"\r\n")[0]


def test_elsewhere_a_request_to_upgrade_is_answered_as_it_is(client: httpx.Client) -> None:
    assert b" 200 " in handshake(client, "/healthz").split(b"\r\n")[0]
    assert b" 404 " in handshake(client, "/v1/subscriptions/x/wss").split(b"\r\n")[0]


def test_a_broken_handshake_is_answered_and_others_go_on(client: httpx.Client) -> None:
    path = "/v1/subscriptions/x/ws"
    for more in ("Sec-WebSocket-Key: short\r\n", "Sec-WebSocket-Version: 3\r\n", f"X-Long: {'x' * 20_000}\r\n"):
        first = handshake(client, path, more=more).split(b"\r\n")[0]
        assert b" 4" in first, first
    assert client.get("/healthz").status_code == 200


def test_at_the_limit_a_websocket_makes_room_and_one_who_takes_nothing_is_dropped(tmp_path: Path) -> None:
    with (
        running_app(tmp_path, max_connections_per_address=3, write_seconds=1.0, stream_ping_seconds=3_600.0) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client,
    ):
        made = subscribe(client)
        with (
            opened(client, made["id"]) as first,
            opened(client, made["id"]),
            opened(client, made["id"]),
            pytest.raises(ConnectionClosed) as closed,
        ):
            first.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        with socket.create_connection(_host(client)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(_handshake(f"/v1/subscriptions/{made['id']}/ws", client, "", None))
            for _ in range(24):
                publish(client, text="x" * 500_000)
            deaf.settimeout(PATIENCE)
            with pytest.raises(ConnectionResetError):
                ping_for_ever(deaf)


def test_too_many_fragments_and_too_large_a_frame_close_it(client: httpx.Client) -> None:
    made = subscribe(client)
    for frames in (["a"] * 100, ["x" * 100_000]):
        for _ in range(5):  # a client that is still sending may find the connection reset before it reads why
            with opened(client, made["id"]) as connection, pytest.raises(ConnectionClosed) as closed:
                send_and_receive(connection, frames)
            if closed.value.rcvd is not None:
                break
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_more_pings_than_anybody_needs_close_it(client: httpx.Client) -> None:
    """Whether the server has a message of the client to read or not."""
    made = subscribe(client)
    for first in (b"", b"\x81\x80\0\0\0\0"):
        with opened(client, made["id"]) as connection, pytest.raises(ConnectionClosed) as closed:
            send_and_listen(connection, first + 60 * (b"\x89\x80\0\0\0\0" + b"\x8a\x80\0\0\0\0"))
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "too many pings or pongs")


def test_frames_that_arrive_together_are_all_read(client: httpx.Client) -> None:
    """One read of the socket has thousands."""
    made = subscribe(client)
    for n in range(3):
        publish(client, n=n)
    last = client.get(f"/v1/subscriptions/{made['id']}/events").json()["cursor"]
    with opened(client, made["id"], additional_headers=ticket(made)) as connection:
        connection.socket.sendall(10_000 * _frame(b"{}") + _frame(json.dumps({"ack": last}).encode()))
        while "acked" not in received(connection):
            pass
    assert client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"] == []


@pytest.mark.parametrize("packets", [1, 2])
def test_frames_that_arrive_with_the_handshake_are_read(client: httpx.Client, packets: int) -> None:
    """Some clients do not wait for the answer."""
    made = subscribe(client)
    publish(client, n=1)
    last = client.get(f"/v1/subscriptions/{made['id']}/events").json()["cursor"]
    told = f"kindcast-ticket: {made['ticket']}\r\n"
    asked = _handshake(f"/v1/subscriptions/{made['id']}/ws", client, told, None)
    frame = _frame(json.dumps({"ack": last}).encode())
    with socket.create_connection(_host(client), timeout=PATIENCE) as raw:
        for packet in [asked + frame] if packets == 1 else [asked, frame]:
            raw.sendall(packet)
        answer = b""
        while b'"acked"' not in answer:
            piece = raw.recv(65_536)
            assert piece, answer
            answer += piece
    assert client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"] == []


def test_a_message_that_is_not_utf8_closes_it_and_is_no_error_of_the_server(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    made = subscribe(client)
    with opened(client, made["id"]) as connection:
        connection.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=PATIENCE)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


def _frame(text: bytes) -> bytes:
    """A short text frame of a client, with a mask that changes nothing."""
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


def ping_for_ever(deaf: socket.socket) -> None:
    """Asks for answers without taking any, until the other side has enough."""
    while True:
        deaf.sendall(1_000 * b"\x89\x80\0\0\0\0")


def send_and_listen(connection: ClientConnection, frames: bytes) -> None:
    connection.socket.sendall(frames)
    while True:
        received(connection)


def send_and_receive(connection: ClientConnection, fragments: list[str]) -> None:
    connection.send(iter(fragments))
    connection.recv(timeout=PATIENCE)


def handshake(client: httpx.Client, path: str, *, host: str | None = None, more: str = "") -> bytes:
    """The answer to a hand-written request to upgrade."""
    with socket.create_connection(_host(client), timeout=PATIENCE) as raw:
        raw.sendall(_handshake(path, client, more, host))
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = raw.recv(65_536)
            if not piece:
                break
            answer += piece
        return answer


def _host(client: httpx.Client) -> tuple[str, int]:
    assert client.base_url.port is not None
    return client.base_url.host, client.base_url.port


def _handshake(path: str, client: httpx.Client, more: str, host: str | None) -> bytes:
    key = "" if "Sec-WebSocket-Key" in more else "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    version = "" if "Sec-WebSocket-Version" in more else "Sec-WebSocket-Version: 13\r\n"
    host = host or f"127.0.0.1:{client.base_url.port}"
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}{version}{more}\r\n"
    ).encode()
