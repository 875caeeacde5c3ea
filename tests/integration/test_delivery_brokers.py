"""Sinks at real brokers: in order, at least once, in both modes; what is refused; what is hidden."""

import asyncio
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509

from kindcast import Client
from kindcast.server.connectors.broker_url import parse_url
from kindcast.server.connectors.nats import connect
from kindcast.server.delivery.broker_sinks import BROKER_PROTOCOLS, BrokerSender, check_settings, check_url
from kindcast.server.delivery.protocols import PROTOCOLS
from kindcast.server.delivery.webhook import Delivery, Outcome
from kindcast.server.security.egress import SinkRefused
from kindcast.server.settings import Settings
from tests.harness.brokers import (
    SAVED_SECONDS,
    Broker,
    Secured,
    running_kafka,
    running_mosquitto,
    running_nats,
    running_rabbitmq,
)
from tests.harness.certificates import Authority
from tests.harness.postgresql import PostgreSQL
from tests.harness.server_process import ServerProcess, running_server
from tests.harness.sink_reader import SinkReader
from tests.harness.waiting import until
from tests.integration.conftest import Kindcast, Ran

ENVIRONMENT = {
    "KINDCAST_BROKER_SINK_HOSTS": '["127.0.0.1"]',
    "KINDCAST_WEBHOOK_DELAYS_SECONDS": str([0.2, 0.2, 0.5, 0.5] + [1.0] * 60),  # brokers may start slowly
    "KINDCAST_WEBHOOK_TIMEOUT_SECONDS": "5",
}
TOPIC = "out"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("server"), ENVIRONMENT) as running:
        yield running


@contextmanager
def running(name: str, folder: Path, secured: Secured | None = None) -> Iterator[Any]:
    if name == "KAFKA":
        with running_kafka() as cluster:
            yield cluster
        return
    start: dict[str, Callable[..., Any]] = {
        "MQTT": running_mosquitto,
        "NATS": running_nats,
        "AMQP": running_rabbitmq,
    }
    with start[name](folder, secured) as broker:
        yield broker


def settings_for(name: str, mode: str) -> dict[str, Any]:
    return {BROKER_PROTOCOLS[name].place: TOPIC, "mode": mode}  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [("MQTT", "structured"), ("NATS", "binary"), ("AMQP", "binary"), ("KAFKA", "structured")]
)
def test_sink_gets_matches_in_order_also_when_the_broker_is_killed(
    server: ServerProcess, kindcast: Kindcast, tmp_path: Path, name: str, mode: str
) -> None:
    """Every match, in the order of publishing; what comes again is the same event under the same cursor. A test message
    is confirmed as well."""
    with running(name, tmp_path) as broker, Client(server.url) as client:
        if name == "KAFKA":
            broker.publish(TOPIC, (b'{"the topic": "is there"}', {}))
        reader = SinkReader(broker.url, TOPIC)
        made = client.subscribe(
            f'ce.type = "{name}"', sink=broker.url, protocol=name, protocolsettings=settings_for(name, mode)
        )
        events = [
            {
                "specversion": "1.0",
                "id": str(number),
                "source": f"/{name}",
                "type": name,
                "note": "für",
                "data": {"n": number},
            }
            for number in range(60)
        ]
        client.publish(events[:30])
        reader.read_until(lambda found: len(found) >= 30)
        if isinstance(broker, Broker):
            time.sleep(SAVED_SECONDS)
            broker.kill()
            client.publish(events[30:])
            time.sleep(0.5)
            broker.start()
        else:
            client.publish(events[30:])
        found = reader.read_until(lambda found: {int(each["id"]) for each in found} >= set(range(60)))
        reader.close()
        first = list(dict.fromkeys(int(each["id"]) for each in found))
        assert first == list(range(60))
        assert found[0] | {"kindcastcursor": ""} == events[0] | {
            "kindcastcursor": "",
            "kindcastsubscription": made["id"],
            **({"datacontenttype": "application/json"} if "datacontenttype" in found[0] else {}),
        }
        cursors: dict[str, set[str]] = {}
        for each in found:
            cursors.setdefault(each["id"], set()).add(each["kindcastcursor"])
        assert {len(each) for each in cursors.values()} == {1}
        shown = client.subscription(made["id"])
        assert (shown["protocol"], shown["status"]) == (name, "active")
        last = found[-1]["kindcastcursor"]
        until(
            lambda: client.trace(last)["deliveries"][0]["state"] == "delivered"
        )  # the broker has confirmed it by then
        [delivery] = client.trace(last)["deliveries"]
        assert delivery["by"] == "broker"
        tried = httpx.post(
            f"{server.url}/v1/subscriptions/{made['id']}/test", headers={"Kindcast-Ticket": made["ticket"]}
        )
        assert tried.json()["outcome"] == "delivered", tried.text
        said = kindcast("subscriptions", "test", made["id"], "--ticket", made["ticket"], "--server", server.url)
        assert said.out.startswith("delivered: the broker confirmed it after ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MQTT", "NATS", "AMQP"])
def test_source_and_sink_by_tls_and_password(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """By certificates of an authority that is named and by the host's name; without it, with another password, and
    without TLS nothing is sent, and no password is told."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue(tmp_path)
    secured = Secured(certificate, key, "ann", "hush hush")
    credential = {"credentialtype": "PLAIN", "identifier": "ann", "secret": "hush hush"}
    with running(name, tmp_path / "broker", secured) as broker, pytest.MonkeyPatch.context() as patch:
        sink, plain = broker.url, broker.url.replace("mqtts:", "mqtt:").replace("amqps:", "amqp:")
        plain = plain.replace("tls:", "nats:")

        def tried(url: str, credential: dict[str, str], **more: Any) -> Outcome:
            return send(name, url, sinkcredential=credential, allow_private=True, resolver=None, **more)

        told = "the certificate of the broker is not trusted: unable to get local issuer certificate"
        assert tried(sink, credential, timeout=20.0).detail == told, "the authority is not named"
        patch.setenv("SSL_CERT_FILE", str(authority.file))
        reader = SinkReader(sink.replace("://", "://ann:hush%20hush@"), TOPIC)
        for url in (sink, sink.replace("127.0.0.1", "localhost")):
            outcome = tried(url, credential)
            assert outcome.kind == "delivered", outcome.detail
        assert len(reader.read_until(lambda found: len(found) >= 2)) == 2
        reader.close()
        refused = "the broker refuses the connection, the credentials or the message"
        assert tried(sink, credential | {"secret": "hush!"}).detail == refused
        assert tried(sink, {}).kind == "failed"
        if name != "NATS":  # whose servers say in plain text that they want TLS
            assert tried(plain, credential).kind == "failed"
    assert "hush" not in caplog.text
    assert "eof_received" not in caplog.text


@pytest.mark.slow
def test_one_of_several_servers_delivers_and_another_goes_on_when_it_is_killed(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Both servers accept events, and one of them sends the matches. It is killed while the broker has not confirmed
    what it was sent. The other server then sends the rest. A server must connect before it sends, so the log of the
    broker shows that at each time only one of them could send."""
    settings = ENVIRONMENT | {"KINDCAST_DATABASE": postgresql.new_database(), "KINDCAST_LEASE_SECONDS": "2"}
    settings |= {"KINDCAST_WEBHOOK_TIMEOUT_SECONDS": "60"}
    with ExitStack() as stack:
        broker = stack.enter_context(running_mosquitto(tmp_path / "broker"))
        servers = {}
        for name in ("first", "second"):
            started = stack.enter_context(running_server(tmp_path / name, settings))
            servers[httpx.get(f"{started.url}/v1/status").json()["server"]] = started
        reader = SinkReader(broker.url, TOPIC)
        one, other = servers.values()
        with Client(one.url) as client:
            made = client.subscribe("n >= 0", sink=broker.url, protocol="MQTT", protocolsettings={"topicname": TOPIC})

        def publish(server: ServerProcess, *numbers: int) -> None:
            with Client(server.url) as client:
                client.publish([event(number) for number in numbers])

        for number in range(0, 40, 4):
            publish(one, number, number + 1)
            publish(other, number + 2, number + 3)
        reader.read_until(lambda found: len(found) >= 40)
        members = httpx.get(f"{one.url}/v1/status").json()["servers"]
        [owner] = [servers[each["id"]] for each in members if each["leases"]]
        left = other if owner is one else one
        broker.pause()
        publish(left, *range(40, 60))
        publish(owner, *range(60, 80))
        owner.kill()
        broker.go_on()
        publish(left, *range(80, 100))
        reader.read_until(lambda found: {int(each["id"]) for each in found} >= set(range(100)))
        owner.start()
        publish(owner, *range(100, 120))
        publish(left, *range(120, 140))
        found = reader.read_until(lambda found: {int(each["id"]) for each in found} >= set(range(140)))
        reader.close()
        assert set(counts := senders_at_once(broker)) == {1}
        assert len(counts) > 1
        page = httpx.get(f"{left.url}/v1/subscriptions/{made['id']}/events?limit=1000&after=0").json()["events"]
        assert {int(each["event"]["id"]) for each in page} == set(range(140))
        first = dict.fromkeys((int(each["kindcastcursor"]), each["id"]) for each in found)
        assert list(first) == [(int(each["cursor"]), each["event"]["id"]) for each in page]


def senders_at_once(broker: Broker) -> list[int]:
    """For each connection without a session, which only servers have: how many there were when it began. By the log of
    mosquitto."""
    there: set[str] = set()
    counts: list[int] = []
    for line in broker.log.read_text().splitlines():
        if (client := re.search(r"\bauto-[0-9A-F-]+", line)) is None:
            continue
        if "New client connected" in line:
            there.add(client[0])
            counts.append(len(there))
        else:
            there.discard(client[0])
    return counts


def event(number: int) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "data": {"n": number}}


@contextmanager
def saying(*lines: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A listener that says these lines to whoever connects; its port, and what it was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(1.0)
                    heard.append(b"")
                    try:
                        for line in lines:
                            connection.sendall(line)
                            heard[-1] += connection.recv(65_536)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_nats_list_of_other_servers_is_not_followed() -> None:
    """A server that names others and then ends the connection, before and after it was used."""
    with saying() as (other, heard):
        info = b'INFO {"server_id":"s","max_payload":1000,"headers":true,"connect_urls":["127.0.0.1:%d"]}\r\n' % other
        for lines in ((info,), (info, b"-ERR 'Authorization Violation'\r\n"), (info, b"PONG\r\n", b"-ERR 'x'\r\n")):
            with saying(*lines) as (port, heard_here):
                assert send("NATS", f"nats://127.0.0.1:{port}", allow_private=True).kind == "failed"
                assert len(heard_here) == 1
        assert heard == []


def test_nats_that_ends_while_a_message_waits_for_its_confirmation_is_noticed_at_once() -> None:
    """Not after the time of an attempt: the broker may be there again long before."""
    info = b'INFO {"server_id":"s","max_payload":1000,"headers":true}\r\n'
    with saying(info, b"PONG\r\n", *[b"PING\r\n"] * 3) as (port, heard):
        outcome = send("NATS", f"nats://127.0.0.1:{port}", allow_private=True)
    assert b"PUB out " in heard[0]
    assert (outcome.kind, outcome.detail) == ("failed", "no connection to the broker, or the connection broke")


def test_nats_password_is_not_sent_where_the_server_takes_tls_away() -> None:
    """`tls://`, and a server (or somebody between) that says it has none."""
    credential = {"credentialtype": "PLAIN", "identifier": "ann", "secret": "hush"}
    with saying(b'INFO {"server_id":"s","max_payload":1000}\r\n', b"PONG\r\n") as (port, heard):
        outcome = send("NATS", f"tls://127.0.0.1:{port}", allow_private=True, sinkcredential=credential)
        assert outcome.kind == "failed"
    assert heard == [b""]


@pytest.mark.slow
# aiormq leaves such a coroutine behind where a broker was killed while it connected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["MQTT", "NATS", "AMQP"])
def test_sender_goes_on_after_a_restart_of_the_broker_without_a_failed_attempt(tmp_path: Path, name: Any) -> None:
    """A connection that broke while nobody used it is replaced within the attempt; one that cannot be is told."""
    with running(name, tmp_path) as broker:
        reader = SinkReader(broker.url, TOPIC)

        async def ready() -> None:
            """It listens somewhat earlier than it takes messages."""
            other = BrokerSender(name, allow_private=True, allowed_hosts=(), timeout=20.0)
            settings = {BROKER_PROTOCOLS[name].place: TOPIC}
            probe = Delivery(sink=broker.url, secret="", message_id="p", body=b"{}", protocolsettings=settings)
            for _ in range(100):
                if (await other.send(probe)).kind == "delivered":
                    break
                await asyncio.sleep(0.2)
            await other.close()

        async def attempts() -> list[str]:
            sender = BrokerSender(name, allow_private=True, allowed_hosts=(), timeout=20.0)
            settings = {BROKER_PROTOCOLS[name].place: TOPIC}
            delivery = Delivery(
                sink=broker.url, secret="", message_id="m", body=b'{"id":"1"}', protocolsettings=settings
            )
            told: list[str] = []

            async def attempt() -> None:
                outcome = await sender.send(delivery)
                told.append(outcome.detail or outcome.kind)

            await attempt()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await ready()
            await attempt()
            await asyncio.to_thread(broker.kill)
            await attempt()
            await sender.close()
            return told

        told = asyncio.run(attempts())
        reader.close()
        # On a busy machine the client of NATS may notice only after the time for a confirmation.
        assert told[2] in ("no connection to the broker, or the connection broke", "no confirmation within 20 s")
        assert told[:2] == ["delivered"] * 2


def test_unexpected_error_is_logged_without_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The errors of the libraries hold URLs with passwords."""

    password = "hu" + "sh"

    async def fail(*_: Any, **__: Any) -> Any:
        raise KeyError(f"amqp://ann:{password}@host")

    monkeypatch.setattr("kindcast.server.connectors.amqp.connect", fail)
    outcome = send("AMQP", "amqp://127.0.0.1", allow_private=True)
    assert outcome.detail == "the attempt failed because of an error in the server: see the log of the server"
    assert "KeyError" in caplog.text
    assert password not in caplog.text + outcome.detail


@pytest.mark.slow
def test_message_that_the_broker_has_no_place_for_is_not_delivered(tmp_path: Path) -> None:
    """A queue, an exchange, a stream that do not exist; a message that is too large. The attempt says which."""
    with running("AMQP", tmp_path / "amqp") as rabbitmq, running("NATS", tmp_path / "nats") as nats:
        SinkReader(nats.url, TOPIC).close()
        asyncio.run(make_stream_of_short_messages(nats, "short"))
        for name, url, place, size, says in (
            ("AMQP", rabbitmq.url, "no-queue", 1, "no queue accepts a message for no-queue"),
            ("AMQP", rabbitmq.url, "amq.direct/key", 1, "no queue accepts a message for amq.direct/key"),
            ("AMQP", rabbitmq.url, "none/key", 1, "there is no exchange none"),
            ("AMQP", rabbitmq.url, "/key", 1, "the broker does not let this user send to /key"),
            ("NATS", nats.url, "no.stream", 1, "there is no stream of JetStream for no.stream"),
            ("NATS", nats.url, "short", 200, "the stream of JetStream for short does not take the message"),
            ("NATS", nats.url, TOPIC, 1_048_576, "1,048,576 bytes and the headers are more than the broker allows"),
        ):
            outcome = send(name, url, place=place, body=b"x" * size, allow_private=True, timeout=20.0)
            assert outcome.kind == "failed", place
            assert says in str(outcome.detail)


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_message_that_mosquitto_lets_nobody_send_is_not_delivered(tmp_path: Path, qos: int) -> None:
    """The broker answers with a reason also with QoS 2, where a second answer follows."""
    with running_mosquitto(tmp_path, rights="topic read #\ntopic write open\n") as broker:
        settings = {"qos": qos}
        assert send("MQTT", broker.url, place="open", settings=settings, allow_private=True).kind == "delivered"
        outcome = send("MQTT", broker.url, place="closed", settings=settings, allow_private=True)
        assert outcome.detail == "the broker refuses a message to closed: Not authorized"


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_message_that_is_too_large_for_mosquitto_is_told(tmp_path: Path, qos: int) -> None:
    """Its reason is not one of those for an answer to a message, and ends neither the connection nor its thread."""
    with running_mosquitto(tmp_path, settings="message_size_limit 100\n") as broker:
        settings = {"qos": qos}
        assert send("MQTT", broker.url, settings=settings, allow_private=True, timeout=20.0).kind == "delivered"
        outcome = send("MQTT", broker.url, settings=settings, body=b"x" * 101, allow_private=True, timeout=20.0)
        assert outcome.detail == f"the broker refuses a message to {TOPIC}: Packet too large"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MQTT", "NATS", "AMQP"])
def test_broker_that_listens_at_one_address_of_its_name_gets_messages(tmp_path: Path, name: Any) -> None:
    """The broker listens with IPv4 only, and the name has an address of IPv6 too, which comes first."""

    async def both(host: str, port: int) -> list[str]:
        return ["::1", "127.0.0.1"]

    with running(name, tmp_path) as broker:
        SinkReader(broker.url, TOPIC).close()
        sink = broker.url.replace("127.0.0.1", "broker.example")
        assert send(name, sink, allow_private=True, resolver=both, timeout=20.0).kind == "delivered"


RIGHTS = """
authorization { users = [
  {user: ann, password: hush, permissions: {publish: ["open", "$JS.API.>"], subscribe: ["_INBOX.>"]}}
  {user: all, password: hush}
  {user: bob, password: hush, permissions: {publish: [">"], subscribe: ["open"]}}
] }
"""


@pytest.mark.slow
def test_message_that_nats_does_not_let_a_user_send_is_not_delivered(tmp_path: Path) -> None:
    """The attempt says so at once, although NATS does not answer the message itself."""
    with running_nats(tmp_path, settings=RIGHTS) as broker:
        SinkReader(broker.url.replace("://", "://all:hush@"), "open").close()
        for user, place, says in (
            ("ann", "open", ""),
            ("ann", "closed", "the broker does not let this user send to closed, or read its answer"),
            ("bob", "open", "the broker does not let this user send to open, or read its answer"),
        ):
            credential = {"credentialtype": "PLAIN", "identifier": user, "secret": "hush"}
            outcome = send("NATS", broker.url, credential, place, allow_private=True, timeout=20.0)
            assert outcome.detail == says


@pytest.mark.slow
def test_nats_that_requires_tls_of_a_plain_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server connects to an address, and the certificate is for the name in the URL."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue(tmp_path, names=[x509.DNSName("localhost")])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    credential = {"credentialtype": "PLAIN", "identifier": "ann", "secret": "hush"}
    with running_nats(tmp_path / "broker", Secured(certificate, key, "ann", "hush")) as broker:
        SinkReader(broker.url.replace("://127.0.0.1", "://ann:hush@localhost"), TOPIC).close()
        sink = broker.url.replace("tls://127.0.0.1", "nats://localhost")
        assert send("NATS", sink, credential, allow_private=True, timeout=20.0).kind == "delivered"


async def make_stream_of_short_messages(nats: Broker, subject: str) -> None:
    client = await connect(parse_url(nats.url))
    await client.jetstream().add_stream(name=subject, subjects=[subject], max_msg_size=100)
    await client.close()


def send(
    name: Any,
    sink: str,
    sinkcredential: dict[str, str] | None = None,
    place: str = TOPIC,
    body: bytes = b'{"specversion":"1.0","id":"1","source":"s","type":"t"}',
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> Outcome:
    async def attempt() -> Outcome:
        async def resolve(host: str, port: int) -> list[str]:
            return ["10.0.0.1"] if host == "inside.example" else ["127.0.0.1"]

        sender = BrokerSender(
            name, **{"allow_private": False, "allowed_hosts": (), "timeout": 2.0, "resolver": resolve} | more
        )
        delivery = Delivery(
            sink=sink,
            secret="",
            message_id=secrets.token_hex(4),
            body=body,
            protocolsettings={BROKER_PROTOCOLS[name].place: place, **(settings or {})},
            sinkcredential=sinkcredential or {},
        )
        try:
            return await sender.send(delivery)
        finally:
            await sender.close()

    return asyncio.run(attempt())


@pytest.mark.parametrize(
    ("name", "sink"),
    [
        ("MQTT", "mqtt://inside.example"),
        ("NATS", "nats://inside.example"),
        ("AMQP", "amqp://inside.example"),
        ("MQTT", "mqtt://localhost"),
        ("NATS", "nats://10.0.0.1"),
        ("AMQP", "amqp://[::1]"),
        ("MQTT", "mqtt://example.org:22"),
        ("KAFKA", "kafka://example.org"),
    ],
)
def test_send_to_a_private_address_is_refused_before_a_byte_is_sent(name: str, sink: str) -> None:
    """By its text or by what its name resolves to, as with webhooks; Kafka wants an allowed host."""
    outcome = send(name, sink)
    assert outcome.kind == "failed"
    assert outcome.detail.startswith("not sent:")


def test_send_to_an_allowed_host_is_tried() -> None:
    """By host, or host and port; nobody listens there."""
    for allowed in ("inside.example", "inside.example:1"):
        outcome = send("MQTT", "mqtt://inside.example:1", allowed_hosts=(allowed,), resolver=_here)
        assert outcome.detail == "no connection to the broker, or the connection broke"


async def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("MQTT", "nats://example.org"),
        ("MQTT", "mqtt://ann:secret@example.org"),
        ("NATS", "nats://example.org/path"),
        ("MQTT", "mqtt://" + "a" * 3_000),
        ("AMQP", "http://example.org"),
    ],
)
def test_check_url_refuses(name: Any, url: str) -> None:
    """Another protocol, a password in the URL, a path that nothing reads, too long."""
    with pytest.raises(SinkRefused) as refused:
        check_url(name, url, allow_private=True, allowed_hosts=())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "url", "says"),
    [
        ("HTTP", "mqtts://example.org", "a sink that begins with mqtts:// needs the protocol MQTT"),
        ("HTTP", "redis://example.org", "http:// or https://"),
        ("MQTT", "https://example.org", "a sink of protocol MQTT begins with mqtt:// or mqtts://"),
        ("NATS", "mqtt://example.org", "a sink of protocol NATS begins with nats:// or tls://"),
    ],
)
def test_url_of_another_protocol_says_which(name: str, url: str, says: str) -> None:
    """The protocol of a subscription is HTTP unless it names one."""
    with pytest.raises(SinkRefused, match=says):
        PROTOCOLS[name].check_url(url, Settings())


@pytest.mark.parametrize(
    ("name", "settings", "credential"),
    [
        ("MQTT", {}, {}),
        ("MQTT", {"topicname": "a/#"}, {}),
        ("MQTT", {"topicname": "a", "qos": 0}, {}),
        ("MQTT", {"topicname": "a", "method": "PUT"}, {}),
        ("NATS", {"subject": "a b"}, {}),
        ("NATS", {"subject": "a.*"}, {}),
        ("NATS", {"subject": "a..b"}, {}),
        ("NATS", {"subject": "a."}, {}),
        ("NATS", {"subject": "$JS.API.STREAM.PURGE.orders"}, {}),
        ("NATS", {"subject": "_INBOX.a"}, {}),
        ("MQTT", {"topicname": "a\uffff"}, {}),
        ("NATS", {"subject": "a\x85"}, {}),
        ("AMQP", {"address": "ä" * 128}, {}),
        ("MQTT", {"topicname": "$SYS/broker"}, {}),
        ("AMQP", {"address": 7}, {}),
        ("KAFKA", {"topicname": "a", "mode": "batch"}, {}),
        ("KAFKA", {"topicname": "a"}, {"credentialtype": "ACCESSTOKEN", "accesstoken": "t"}),
    ],
)
def test_check_settings_refuses(name: Any, settings: dict[str, Any], credential: dict[str, Any]) -> None:
    """No place, wildcards, where brokers take commands, what confirms nothing, what is unknown."""
    with pytest.raises(SinkRefused):
        check_settings(name, settings, credential)


@pytest.mark.slow
def test_subscription_with_a_broker_hides_its_password_and_changes_protocol(server: ServerProcess) -> None:
    """The credential is shown by its type alone; a change to webhooks takes the broker's settings away."""
    with Client(server.url) as client:
        made = client.subscribe(
            "n = 7",
            sink="mqtt://127.0.0.1:1",
            protocol="MQTT",
            protocolsettings={"topicname": "a"},
            sinkcredential={"credentialtype": "PLAIN", "identifier": "ann", "secret": "hush"},
        )
        shown = [httpx.get(f"{server.url}/v1/subscriptions{path}").text for path in ("", f"/{made['id']}", "/export")]
        assert all(made["id"] in each and "hush" not in each for each in (str(made), *shown))
        address = f"{server.url}/v1/subscriptions/{made['id']}"
        ticket = {"Kindcast-Ticket": made["ticket"]}

        def change(**values: Any) -> httpx.Response:
            return httpx.patch(address, json=values, headers=ticket)

        assert change(protocolsettings={"topicname": "b", "qos": 2}).json()["protocolsettings"]["topicname"] == "b"
        assert change(protocolsettings={"topicname": "#"}).status_code == 422
        assert change(protocolsettings={}).status_code == 422
        assert change(sink="mqtt://10.0.0.1").status_code == 422
        assert change(sink="mqtt://127.0.0.1:2").status_code == 422  # the password is for the other server
        assert change(sink="mqtt://127.0.0.1:2", sinkcredential=None).json()["protocol"] == "MQTT"
        assert change(protocol="NATS").status_code == 422
        told = change(sink="https://example.org/hook").json()
        assert (told["protocol"], told["protocolsettings"], told["sinkcredential"]) == ("HTTP", None, None)
        for sink in ("mqtt://10.0.0.1", "kafka://example.org:9092"):
            protocol = sink.partition(":")[0].upper()
            body = {"expression": "n = 7", "sink": sink, "protocol": protocol, "protocolsettings": {"topicname": "a"}}
            refused = httpx.post(f"{server.url}/v1/subscriptions", json=body)
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/sink")


@pytest.mark.slow
def test_subscribe_command_says_how_to_reach_a_broker(
    server: ServerProcess, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol by the scheme of the sink, the topic as its protocol calls it, the password by a variable alone."""
    monkeypatch.setenv("KINDCAST_SERVER", server.url)

    def subscribe(*options: str) -> Ran:
        return kindcast("subscribe", "n = 8", *options, "--json")

    to = ("--sink", "amqp://127.0.0.1:1/shop", "--topic", "offers/cheap", "--setting", "mode=binary")
    assert "KINDCAST_SINK_PASSWORD" in subscribe(*to, "--sink-user", "ann").err
    monkeypatch.setenv("KINDCAST_SINK_PASSWORD", "hush")
    made = subscribe(*to, "--sink-user", "ann")
    assert "hush" not in made.out
    assert (made.json["protocol"], made.json["protocolsettings"], made.json["sinkcredential"]) == (
        "AMQP",
        {"address": "offers/cheap", "mode": "binary"},
        {"credentialtype": "PLAIN"},
    )
    mqtt = subscribe("--sink", "mqtt://127.0.0.1:1", "--topic", "a", "--setting", "qos=2", "--setting", "retain=true")
    assert mqtt.json["protocolsettings"] == {"topicname": "a", "qos": 2, "retain": True}
    for wrong in (("--topic", "a"), ("--sink", "https://example.org/a", "--topic", "a"), (*to, "--setting", "x")):
        assert subscribe(*wrong).status == 2
