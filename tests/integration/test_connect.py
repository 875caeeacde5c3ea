"""`kindcast connect` against real brokers: what it publishes, what it does with bad messages, how it ends."""

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiormq.channel import ChannelFrame
from nats.js.api import AckPolicy, ConsumerConfig
from pamqp import decode
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from kindcast import Client
from kindcast.server.connectors import amqp
from kindcast.server.connectors.bindings import STRUCTURED, Content
from kindcast.server.connectors.broker_url import parse_topic, parse_url
from kindcast.server.connectors.mqtt import Connection
from kindcast.server.connectors.source import open_source
from tests.harness.brokers import (
    Broker,
    KafkaCluster,
    Secured,
    running_kafka,
    running_mosquitto,
    running_nats,
    running_rabbitmq,
    running_redis,
)
from tests.harness.certificates import Authority
from tests.harness.connector_process import ConnectorProcess, running_connector
from tests.harness.server_process import ServerProcess, running_server
from tests.harness.waiting import until
from tests.integration.conftest import Kindcast

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 60.0

STRUCTURED_EVENT = b'{"specversion": "1.0", "id": "s1", "source": "/shop", "type": "offer", "data": {"price": 1.50}}'
BINARY_CONTEXT = {"specversion": "1.0", "id": "b1", "source": "/shop", "type": "offer", "note": "für Ann"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_nats(tmp_path_factory.mktemp("nats")) as broker:
        yield broker


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_redis(tmp_path_factory.mktemp("redis")) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with running_kafka() as cluster:
        yield cluster


def stored(server: ServerProcess, source: str) -> list[dict[str, Any]]:
    """Events of sources that begin so."""
    found: list[dict[str, Any]] = []
    with Client(server.url) as client:
        after = 0
        while page := client.events(after=after, limit=1_000)["events"]:
            found += [each["event"] for each in page]
            after = page[-1]["sequence"]
    return [event for event in found if event["source"].startswith(source)]


def eventually(holds: Callable[[], bool], what: str) -> None:
    until(holds, PATIENCE_SECONDS, lambda: what)


def mqtt_publish(broker: Broker, *messages: tuple[str, Content]) -> None:
    """Publishes with QoS 1 in one connection."""

    async def publish() -> None:
        connection = Connection(parse_url(broker.url), "publisher", None)
        await connection.open(clean=True)
        for topic, content in messages:
            await connection.publish(topic, content)
        await connection.close()

    asyncio.run(publish())


def nats_publish(broker: Broker, *messages: tuple[str, bytes, Mapping[str, str] | None]) -> None:
    """Publishes to streams."""
    import nats as library

    async def publish() -> None:
        client = await library.connect(broker.url)
        for subject, body, headers in messages:
            await client.jetstream().publish(subject, body, headers=dict(headers) if headers else None)
        await client.close()

    asyncio.run(publish())


def test_connect_mqtt_every_form_becomes_an_event(server: ServerProcess, mosquitto: Broker, tmp_path: Path) -> None:
    """Structured, binary and plain; levels of the topic are attributes; a bad message is told, set aside and does not
    stop the rest; SIGTERM ends with 0."""
    options = ("--topic", "home/{room}/+", "--dead-letters", "bad", "--group", "forms", "--source", "mqtt-forms")
    with (
        running_connector(tmp_path / "aside", mosquitto.url, server.url, "--topic", "bad", "--group", "aside") as aside,
        running_connector(tmp_path, mosquitto.url, server.url, *options) as connector,
    ):
        eventually(lambda: "reading" in connector.said() and "reading" in aside.said(), "no start")
        time.sleep(1.0)
        mqtt_publish(
            mosquitto,
            ("home/bath/temp", Content(b'{"value": 21.50}')),
            ("home/bath/temp", Content(b"not json")),
            ("home/hall/offer", Content(STRUCTURED_EVENT, STRUCTURED)),
            ("home/hall/offer", Content(b'{"price": 2}', "application/json", BINARY_CONTEXT)),
            ("home/hall/bad", Content(b'{"specversion": "1.0", "id": "x"}', STRUCTURED)),
        )
        eventually(lambda: len(stored(server, "mqtt-forms")) + len(stored(server, "/shop")) == 3, connector.said())
        eventually(lambda: connector.totals().get("acknowledged") == 5, connector.said())
        eventually(lambda: aside.totals().get("read") == 2, aside.said())
        assert connector.stop() == 0
    (plain,) = stored(server, "mqtt-forms")
    assert (plain["source"], plain["room"], plain["topic"]) == ("mqtt-forms/home/bath/temp", "bath", "home/bath/temp")
    assert plain["data"] == {"value": 21.5}
    structured, binary = sorted(stored(server, "/shop"), key=lambda event: str(event["id"]), reverse=True)
    assert (structured["id"], structured["room"], structured["data"]) == ("s1", "hall", {"price": 1.5})
    assert (binary["id"], binary["note"], binary["data"]) == ("b1", "für Ann", {"price": 2})
    assert connector.totals() | {"per_second": 0} == {
        "read": 5,
        "accepted": 3,
        "known": 0,
        "bad": 2,
        "acknowledged": 5,
        "connections": 1,
        "per_second": 0,
    }
    assert "not JSON" in connector.said()
    assert "has the attribute source" in connector.said()


def test_connect_mqtt_retained_message_is_read_once(server: ServerProcess, mosquitto: Broker, tmp_path: Path) -> None:
    """A broker sends retained messages at each subscribing if it is not told otherwise, and they have no ids."""

    async def publish() -> None:
        connection = Connection(parse_url(mosquitto.url), "publisher", None)
        await connection.open(clean=True)
        await connection.publish("kept/a", Content(b'{"n": 1}'), retain=True)
        await connection.close()

    asyncio.run(publish())
    options = ("--topic", "kept/#", "--group", "kept", "--source", "mqtt-kept", "--wait", "2")
    for _ in range(2):
        connector = ConnectorProcess(tmp_path, mosquitto.url, server.url, *options)
        connector.start()
        assert connector.wait() == 0, connector.said()
    assert len(stored(server, "mqtt-kept")) == 1


def test_connect_mqtt_messages_with_qos_0_do_not_pile_up(mosquitto: Broker) -> None:
    """The window of the protocol limits QoS 1 only. Beyond it, messages with QoS 0 are dropped and counted."""

    async def read() -> tuple[int, list[int]]:
        source = open_source(
            parse_url(mosquitto.url), [parse_topic("qos/0", "MQTT")], group="qos", batch=5, create=False
        )
        await source.open()
        publisher = Connection(parse_url(mosquitto.url), "publisher", None)
        await publisher.open(clean=True)
        for number in range(30):
            await publisher.publish("qos/0", Content(str(number).encode()), qos=0)
        while source.dropped < 20:
            await asyncio.sleep(0.01)
        await publisher.publish("qos/0", Content(b"30"), qos=1)
        found: list[int] = []
        while 30 not in found:
            found += [int(each.content.body) for each in await source.read(100, 0.5)]
        await publisher.close()
        await source.close()
        return source.dropped, found

    assert asyncio.run(asyncio.wait_for(read(), PATIENCE_SECONDS)) == (20, [*range(10), 30])


def test_connect_mqtt_another_connector_with_the_same_group(tmp_path: Path) -> None:
    """The broker closes the older connection and says why. Two connectors that both came back would do so without
    end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"mqtt://127.0.0.1:{listener.getsockname()[1]}"
        with running_connector(tmp_path, url, "http://127.0.0.1:1", "--topic", "a", "--group", "ours") as connector:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(4_096)
                accepted.sendall(bytes.fromhex("2003000000"))  # CONNACK
                number = accepted.recv(4_096)[2:4]  # of SUBSCRIBE
                accepted.sendall(bytes.fromhex("9004") + number + bytes.fromhex("0001"))  # SUBACK
                accepted.sendall(bytes.fromhex("e0028e00"))  # DISCONNECT: session taken over
                assert connector.wait() == 1
    assert "another connector reads with the group ours" in " ".join(connector.said().split())


def test_connect_mqtt_without_tls_at_a_port_with_tls(server: ServerProcess, tmp_path: Path) -> None:
    """mosquitto closes the connection without a reason."""
    certificate, key = Authority(tmp_path).issue(tmp_path)
    with running_mosquitto(tmp_path / "broker", Secured(certificate, key, "ann", "hush")) as broker:
        url = broker.url.replace("mqtts://", "mqtt://ann:hush@")
        connector = ConnectorProcess(tmp_path, url, server.url, "--topic", "a", "--wait", "1")
        connector.start()
        assert connector.wait() == 1
    assert "does this port need TLS (mqtts://)" in " ".join(connector.said().split())
    assert "hush" not in connector.said()


def test_connect_damaged_state_is_named(mosquitto: Broker, tmp_path: Path) -> None:
    """A sentence with the file in place of a traceback."""
    options = ("--topic", "damaged", "--group", "damaged", "--wait", "0.1")
    connector = ConnectorProcess(tmp_path, mosquitto.url, "http://127.0.0.1:1", *options)
    connector.start()
    assert connector.wait() == 0, connector.said()
    [lock] = (tmp_path / "state").glob("*.lock")
    lock.with_suffix(".json").write_bytes(b"")
    connector.start()
    assert connector.wait() == 1
    assert "is damaged" in " ".join(connector.said().split())
    assert "Traceback" not in connector.said()


def test_connect_nats_every_form_becomes_an_event_once(server: ServerProcess, nats: Broker, tmp_path: Path) -> None:
    """Structured, binary and plain, with the publisher's id or the stream's; read again by another group, all are known
    already."""
    options = ("--topic", "shop.{city}.offers", "--source", "nats-forms", "--create", "--wait", "2")
    first = ConnectorProcess(tmp_path / "first", nats.url, server.url, *options)
    first.start()
    assert first.wait() == 0, first.said()
    binary = {f"ce-{name}": value for name, value in BINARY_CONTEXT.items()} | {"ce-id": "n2", "ce-note": "f%C3%BCr"}
    nats_publish(
        nats,
        ("shop.ulm.offers", b'{"price": 1}', None),
        ("shop.ulm.offers", b'{"price": 1}', {"Nats-Msg-Id": "mine"}),
        ("shop.bonn.offers", STRUCTURED_EVENT.replace(b"s1", b"n1"), {"Content-Type": STRUCTURED}),
        ("shop.bonn.offers", b'{"price": 2}', binary),
        ("shop.bonn.offers", b"[", None),
    )
    first.start()
    assert first.wait() == 0, first.said()
    again = ConnectorProcess(tmp_path / "again", nats.url, server.url, *options, "--group", "again")
    again.start()
    assert again.wait() == 0, again.said()
    events = stored(server, "nats-forms")
    assert [event["source"] for event in events] == ["nats-forms/shop.ulm.offers"] * 2
    assert [event["city"] for event in events] == ["ulm"] * 2
    assert events[1]["id"] == "mine"
    assert re.fullmatch(r"kindcast-0-1-\d{16}", events[0]["id"])
    others = {event["id"]: event for event in stored(server, "/shop") if event["id"] in ("n1", "n2")}
    assert others["n2"]["note"] == "für"
    assert others["n1"]["topic"] == "shop.bonn.offers"
    assert (first.totals()["accepted"], first.totals()["bad"]) == (4, 1)
    assert (again.totals()["accepted"], again.totals()["known"], again.totals()["bad"]) == (0, 4, 1)


def test_connect_nats_reads_all_subjects_in_turns(server: ServerProcess, nats: Broker, tmp_path: Path) -> None:
    """A subject with many messages does not delay the others until all of them are read."""
    options = ("--create", "--group", "turns", "--source", "nats-turns", "--batch", "5", "--wait", "1")
    topics = ("--topic", "turns.many", "--topic", "turns.one")
    connector = ConnectorProcess(tmp_path, nats.url, server.url, *topics, *options)
    connector.start()
    assert connector.wait() == 0, connector.said()
    nats_publish(nats, *[("turns.many", b"1", None)] * 50, *[("turns.one", b"2", None)] * 2)
    connector.start()
    assert connector.wait() == 0, connector.said()
    read = [event["data"] for event in stored(server, "nats-turns")]
    assert len(read) == 52
    assert sum(read[:15]) > 15


def test_connect_nats_stream_that_is_deleted_is_made_again(server: ServerProcess, tmp_path: Path) -> None:
    """NATS answers no read of a consumer that is gone: the command waited without end."""

    async def delete(url: str) -> None:
        import nats as library

        connection = await library.connect(url)
        await connection.jetstream().delete_stream("deleted-0")
        await connection.close()

    with running_nats(tmp_path / "nats") as broker:
        options = ("--topic", "deleted", "--group", "deleted", "--source", "nats-deleted", "--create")
        first = ConnectorProcess(tmp_path / "first", broker.url, server.url, *options, "--wait", "0.1")
        first.start()
        assert first.wait() == 0
        nats_publish(broker, ("deleted", b'{"n": 1}', None))
        with running_connector(tmp_path / "connector", broker.url, server.url, *options) as connector:
            until(lambda: len(stored(server, "nats-deleted")) == 1)
            asyncio.run(delete(broker.url))
            until(lambda: "trying again" in connector.said())
            first.start()  # it ends when the stream is there
            assert first.wait() == 0
            nats_publish(broker, ("deleted", b'{"n": 2}', None))
            until(lambda: len(stored(server, "nats-deleted")) == 2)
            assert connector.stop() == 0


def test_connect_nats_that_is_stopped_is_told_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    """A read that waits then ends by itself; its error is nobody's."""
    with running_nats(tmp_path / "nats") as broker:
        options = ("--topic", "stopped", "--source", "nats-stopped", "--create")
        first = ConnectorProcess(tmp_path / "first", broker.url, server.url, *options, "--wait", "0.1")
        first.start()
        assert first.wait() == 0  # the stream is there
        nats_publish(broker, ("stopped", b'{"n": 1}', None))
        with running_connector(tmp_path / "connector", broker.url, server.url, *options) as connector:
            until(lambda: len(stored(server, "nats-stopped")) == 1)
            broker.stop()
            until(lambda: "trying again" in connector.said())
            assert connector.stop() == 0
        assert "Traceback" not in connector.said()


def test_connect_nats_bad_message_that_is_too_large_to_put_aside(
    server: ServerProcess, nats: Broker, tmp_path: Path
) -> None:
    """With the reason in its headers it is larger than NATS allows. The command says what to do."""
    options = ("--topic", "brim", "--create", "--group", "brim", "--dead-letters", "bad.brim")
    connector = ConnectorProcess(tmp_path, nats.url, server.url, *options, "--wait", "1")
    connector.start()
    assert connector.wait() == 0, connector.said()
    nats_publish(nats, ("brim", b"[" * 1_048_576, None))
    connector.start()
    assert connector.wait() == 1
    assert "leave --dead-letters out" in " ".join(connector.said().split())


def test_connect_nats_without_a_stream_for_bad_messages(server: ServerProcess, nats: Broker, tmp_path: Path) -> None:
    """The command names the subject. With a stream, bad messages arrive there."""
    options = ("--create", "--wait", "1", "--topic")
    connector = ConnectorProcess(
        tmp_path, nats.url, server.url, *options, "sour", "--group", "sour", "--dead-letters", "spoilt"
    )
    connector.start()
    assert connector.wait() == 0, connector.said()
    nats_publish(nats, ("sour", b"[", None))
    connector.start()
    assert connector.wait() == 1
    assert "no stream of NATS holds the subject spoilt" in " ".join(connector.said().split())
    aside = ConnectorProcess(tmp_path / "aside", nats.url, server.url, *options, "spoilt", "--group", "aside")
    aside.start()
    assert aside.wait() == 0, aside.said()
    nats_publish(nats, ("sour", b"{", None))
    connector.start()
    assert connector.wait() == 0, connector.said()
    aside.start()
    assert aside.wait() == 0, aside.said()
    assert aside.totals()["bad"] == 1


def test_connect_nats_without_a_stream_says_what_to_do(server: ServerProcess, nats: Broker, tmp_path: Path) -> None:
    """Core NATS keeps nothing, so nothing could be acknowledged: exit status 1 and a sentence."""
    connector = ConnectorProcess(tmp_path, nats.url, server.url, "--topic", "nowhere", "--wait", "1")
    connector.start()
    assert connector.wait() == 1
    assert "--create" in connector.said()


def test_connect_nats_group_with_another_subject_is_refused(
    server: ServerProcess, nats: Broker, tmp_path: Path
) -> None:
    """A durable consumer has one subject. A second connector with the same group would take the first one's away."""
    said = []
    options = ("--create", "--group", "taken", "--wait", "1")
    for topic, status in (("taken.*", 0), ("taken.b", 1), ("other.b", 1), ("taken.*", 0)):
        connector = ConnectorProcess(tmp_path / topic[:7], nats.url, server.url, "--topic", topic, *options)
        connector.start()
        assert connector.wait() == status, connector.said()
        said.append(" ".join(connector.said().split()))
    assert "reads taken.* of the stream taken-0" in said[1]
    assert "choose another --group" in said[1]
    assert "choose another --group" in said[2]


@pytest.mark.parametrize(
    ("group", "settings"),
    [
        ("pushed", {"deliver_subject": "elsewhere", "ack_policy": AckPolicy.EXPLICIT}),
        ("forgetful", {"ack_policy": AckPolicy.NONE}),
        ("impatient", {"ack_policy": AckPolicy.EXPLICIT, "max_deliver": 1}),
    ],
)
def test_connect_nats_consumer_of_another_kind_is_refused(
    server: ServerProcess, nats: Broker, tmp_path: Path, group: str, settings: dict[str, Any]
) -> None:
    """Nothing could be read from the first one, and the others lose messages that were read and not published."""
    import nats as library

    async def make() -> None:
        client = await library.connect(nats.url)
        await client.jetstream().add_stream(name=group, subjects=[group])
        config = ConsumerConfig(durable_name=group, filter_subject=group, **settings)
        await client.jetstream().add_consumer(group, config)
        await client.close()

    asyncio.run(make())
    connector = ConnectorProcess(
        tmp_path, nats.url, server.url, "--topic", group, "--group", group, "--source", "nats-kinds", "--wait", "1"
    )
    connector.start()
    assert connector.wait() == 1, connector.said()
    assert "this command cannot use the consumer" in " ".join(connector.said().split())


def test_connect_nats_certificate_that_is_not_trusted(server: ServerProcess, tmp_path: Path) -> None:
    """The command says so. The library would wait without end for the closing of such a connection."""
    certificate, key = Authority(tmp_path).issue(tmp_path)
    with running_nats(tmp_path / "broker", Secured(certificate, key, "ann", "hush")) as broker:
        url = broker.url.replace("://", "://ann:hush@")
        connector = ConnectorProcess(tmp_path, url, server.url, "--topic", "a", "--wait", "1")
        connector.start()
        assert connector.wait() == 1
    assert "certificate verify failed" in " ".join(connector.said().split())
    assert "hush" not in connector.said()


NATS_RIGHTS = """
authorization { users = [
  {user: all, password: hush}
  {user: none, password: hush, permissions: {publish: ["other"], subscribe: ["_INBOX.>"]}}
  {user: blind, password: hush, permissions: {
    publish: {allow: ["$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.>"], deny: ["$JS.API.CONSUMER.MSG.>"]}}}
  {user: sure, password: hush, permissions: {
    publish: ["$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.>"], subscribe: ["_INBOX.>"]}}
  {user: most, password: hush, permissions: {
    publish: ["$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.>", "$JS.ACK.>"], subscribe: ["_INBOX.>"]}}
] }
"""


def test_connect_nats_missing_permissions_are_named(server: ServerProcess, tmp_path: Path) -> None:
    """NATS does not answer such requests. The command names the permission and ends, and the user with the permissions
    in the documentation reads."""
    with running_nats(tmp_path / "broker", settings=NATS_RIGHTS) as broker:
        broker.url = broker.url.replace("://", "://all:hush@")

        def ran(user: str, *options: str) -> tuple[int, str]:
            url = broker.url.replace("://all:", f"://{user}:")
            more = ("--topic", "offers", "--source", "nats-rights", "--group", "g", "--wait", "1", *options)
            connector = ConnectorProcess(tmp_path / user, url, server.url, *more)
            connector.start()
            return connector.wait(), " ".join(connector.said().split())

        assert ran("all", "--create")[0] == 0
        for number, user, status, says in (
            (1, "none", 1, "NATS refuses: permissions violation for publish to"),
            (2, "blind", 1, "$js.api.consumer.msg.next."),
            (3, "sure", 1, "$js.ack."),
            (4, "most", 0, "reading offers"),
        ):
            nats_publish(broker, ("offers", b'{"n": %d}' % number, None))
            ended, said = ran(user)
            assert (ended, says in said) == (status, True), said
    assert [event["data"]["n"] for event in stored(server, "nats-rights")] == [1, 2, 3, 4]


def test_connect_redis_every_form_becomes_an_event_once(server: ServerProcess, redis: Broker, tmp_path: Path) -> None:
    """Structured, binary, plain, and mere fields; read again by another group, all are known already. Bad entries go to
    another stream with the reason; a consumer that has ended well leaves nothing behind."""
    from redis import Redis

    options = ("--topic", "offers", "--topic", "more", "--source", "redis-forms", "--create", "--wait", "2")
    first = ConnectorProcess(tmp_path / "first", redis.url, server.url, *options, "--dead-letters", "bad")
    first.start()
    assert first.wait() == 0, first.said()
    binary = {f"ce-{name}": value for name, value in BINARY_CONTEXT.items()} | {"ce-id": "r2", "data": b'{"price": 2}'}
    with Redis(port=redis.port) as client:
        ids = [
            client.xadd("offers", fields).decode()
            for fields in (
                {"data": b'{"price": 1}'},
                {"price": "350", "target": "laptop", "sold": "true", "article": "007", "name": '"x"'},
                {"data": STRUCTURED_EVENT.replace(b"s1", b"r1"), "content-type": STRUCTURED},
                binary,
                {"data": b"["},
            )
        ]
        client.xadd("offers", {"price": "1", "name": b"caf\xe9"})
        client.execute_command("XADD", "offers", "*", "price", "1", "price", "2")
        client.xadd("more", {"specversion": "1.0", "id": "r3", "source": "/shop", "type": "t"}, id="5-1")
        first.start()
        assert first.wait() == 0, first.said()
        again = ConnectorProcess(tmp_path / "again", redis.url, server.url, *options, "--group", "again")
        again.start()
        assert again.wait() == 0, again.said()
        (_, aside), (_, coded), (_, twice) = client.xrange("bad")
        assert (aside[b"data"], aside[b"kindcast-topic"]) == (b"[", b"offers")
        assert b"JSON" in aside[b"kindcast-problem"]
        assert (coded[b"name"], coded[b"kindcast-problem"]) == (b"caf\xe9", b"the field name is not UTF-8")
        assert twice[b"kindcast-problem"] == b"several fields have the name price"
        (group,) = (each for each in client.xinfo_groups("offers") if each["name"] == b"kindcast")
        assert (group["consumers"], group["pending"]) == (0, 0)
    plain, fields = stored(server, "redis-forms")
    assert (plain["source"], plain["id"], plain["topic"]) == ("redis-forms/offers", ids[0], "offers")
    assert plain["time"][:16] == fields["time"][:16]
    assert fields["data"] == {"price": 350, "target": "laptop", "sold": True, "article": "007", "name": '"x"'}
    others = {event["id"]: event for event in stored(server, "/shop") if event["id"] in ("r1", "r2", "r3")}
    assert others["r1"]["data"] == {"price": 1.5}
    assert others["r2"]["note"] == "für Ann"
    assert others["r3"]["topic"] == "more"
    assert (first.totals()["accepted"], first.totals()["bad"]) == (5, 3)
    assert (again.totals()["accepted"], again.totals()["known"], again.totals()["bad"]) == (0, 5, 3)


def test_connect_redis_reads_several_streams_in_order(server: ServerProcess, redis: Broker, tmp_path: Path) -> None:
    """Two streams with more entries than fit into a batch: each stream in its order, and no entry is left pending. A
    space in the name of a stream is encoded in `source`."""
    from redis import Redis

    with Redis(port=redis.port) as client:
        for number in range(100):
            for stream in ("left hand", "right hand"):
                client.xadd(stream, {"n": number})
        options = ("--topic", "left hand", "--topic", "right hand", "--source", "redis-hands", "--batch", "30")
        connector = ConnectorProcess(tmp_path, redis.url, server.url, *options, "--wait", "2")
        connector.start()
        assert connector.wait() == 0, connector.said()
        assert client.xpending("left hand", "kindcast")["pending"] == 0
        assert client.xpending("right hand", "kindcast")["pending"] == 0
    for stream in ("left hand", "right hand"):
        numbers = [event["data"]["n"] for event in stored(server, f"redis-hands/{stream.replace(' ', '%20')}")]
        assert numbers == list(range(100)), stream


def test_connect_redis_says_what_to_do(server: ServerProcess, redis: Broker, tmp_path: Path) -> None:
    """No stream, no stream of that kind, a wildcard, no database: a sentence each."""
    from redis import Redis

    with Redis(port=redis.port) as client:
        client.set("text", "x")
    for topic, url, status, says in (
        ("nowhere", redis.url, 1, "--create"),
        ("text", redis.url, 1, "WRONGTYPE"),
        ("shop.*", redis.url, 2, "without wildcards"),
        ("offers", f"{redis.url}/first", 2, "the number of a database"),
        ("offers", server.url.replace("http:", "redis:"), 1, "the broker cannot be reached: Protocol Error"),
    ):
        connector = ConnectorProcess(tmp_path, url, server.url, "--topic", topic, "--wait", "1")
        connector.start()
        assert connector.wait() == status
        assert says in " ".join(connector.said().split())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "9"), ("REPLICAOF", "NO", "ONE")),
    ],
)
def test_connect_redis_goes_on_after_it_took_no_writes(
    server: ServerProcess, redis: Broker, tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Its memory was full, or it was a replica during a failover. Acknowledgements are writes."""
    from redis import Redis

    source = f"redis-{before[0].lower()}"
    with Redis(port=redis.port) as client:
        client.xadd(source, {"data": b'{"number": 1}'})
        client.execute_command(*before)
        try:
            with running_connector(tmp_path, redis.url, server.url, "--topic", source, "--source", source) as connector:
                eventually(lambda: "trying again" in connector.said(), connector.said())
                client.execute_command(*after)
                eventually(lambda: len(stored(server, source)) == 1, connector.said())
                assert connector.stop() == 0
        finally:
            client.execute_command(*after)


def test_connect_redis_takes_over_what_another_left(server: ServerProcess, redis: Broker, tmp_path: Path) -> None:
    """An entry that a consumer has read and never acknowledged, as one that was killed; a stream that is deleted
    meanwhile begins again."""
    from redis import Redis

    with Redis(port=redis.port) as client:
        client.xgroup_create("left", "kindcast", id="0", mkstream=True)
        client.xadd("left", {"data": b'{"number": 1}'})
        ((_, ((id, _),)),) = client.xreadgroup("kindcast", "dead", {"left": ">"})
        client.xclaim("left", "kindcast", "dead", 0, [id], idle=60_000)
        with running_connector(
            tmp_path, redis.url, server.url, "--topic", "left", "--source", "redis-left", "--create"
        ) as connector:
            eventually(lambda: len(stored(server, "redis-left")) == 1, connector.said())
            client.delete("left")
            client.xadd("left", {"data": b'{"number": 2}'})
            eventually(lambda: len(stored(server, "redis-left")) == 2, connector.said())
            assert connector.stop() == 0
    assert [event["data"]["number"] for event in stored(server, "redis-left")] == [1, 2]


def test_connect_redis_by_tls_and_password(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the certificate of an authority that is named. Another password is refused for good; no password is told."""
    from redis import Redis

    authority = Authority(tmp_path)
    certificate, key = authority.issue(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with running_redis(tmp_path / "broker", Secured(certificate, key, "ann", "hush hush")) as broker:
        with Redis(
            port=broker.port, username="ann", password="hush hush", ssl=True, ssl_ca_certs=str(authority.file)
        ) as client:
            client.xadd("offers", {"data": b'{"number": 1}'})
        connectors = {}
        for password in ("hush%20hush", "hush!"):
            url = broker.url.replace("://", f"://ann:{password}@")
            place = tmp_path / password
            connectors[password] = ConnectorProcess(
                place, url, server.url, "--topic", "offers", "--source", "redis-tls", "--wait", "1"
            )
            connectors[password].start()
        assert connectors["hush%20hush"].wait() == 0, connectors["hush%20hush"].said()
        assert connectors["hush!"].wait() == 1
    assert "refuses the user or the password" in connectors["hush!"].said()
    assert not any("hush" in each.said() for each in connectors.values())
    assert len(stored(server, "redis-tls")) == 1


def amqp_publish(broker: Broker, queue: str, *messages: tuple[Content, str | None]) -> None:
    """Publishes to a queue, which must be there, in order."""

    async def publish() -> None:
        connection = await amqp.connect(parse_url(broker.url))
        channel = await (await connection.channel(publisher_confirms=False)).get_underlay_channel()
        for content, id in messages:  # the method of the library gives every message an id
            properties = amqp.message_of(content, id).properties
            frames = [Basic.Publish(routing_key=queue), ContentHeader(0, len(content.body), properties)]
            body = [ContentBody(content.body)]
            await channel.write_queue.put(ChannelFrame.marshall(channel.number, [*frames, *body]))
        await channel.basic_qos(prefetch_count=1)  # its answer shows that the broker has read everything
        await connection.close()

    asyncio.run(publish())


def test_connect_amqp_every_form_becomes_an_event(server: ServerProcess, rabbitmq: Broker, tmp_path: Path) -> None:
    """Structured, binary and plain, with and without a message id; bad messages go to another queue."""
    options = ("--topic", "offers", "--source", "amqp-forms", "--create", "--wait", "2", "--dead-letters", "bad")
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options)
    connector.start()
    assert connector.wait() == 0, connector.said()
    binary = {f"cloudEvents:{name}": value for name, value in BINARY_CONTEXT.items()} | {"cloudEvents:id": "a2"}
    amqp_publish(
        rabbitmq,
        "offers",
        (Content(b'{"price": 1}', "application/json"), "mine"),
        (Content(b'{"price": 2}'), None),
        (Content(b'{"price": 2}'), None),
        (Content(STRUCTURED_EVENT.replace(b"s1", b"a1"), STRUCTURED), None),
        (Content(b'{"price": 3}', "application/json", binary), None),
        (Content(b"{"), None),
    )
    connector.start()
    assert connector.wait() == 0, connector.said()
    plain = stored(server, "amqp-forms/offers")
    assert len({event["id"] for event in plain}) == len(plain) == 3
    assert "mine" in {event["id"] for event in plain}
    others = {event["id"]: event for event in stored(server, "/shop")}
    assert others["a2"]["note"] == "für Ann"
    assert others["a1"]["topic"] == "offers"
    assert connector.totals()["bad"] == 1
    aside = ConnectorProcess(tmp_path / "aside", rabbitmq.url, server.url, "--topic", "bad", "--wait", "1")
    aside.start()
    assert aside.wait() == 0, aside.said()
    assert aside.totals()["read"] == 1


def test_connect_amqp_queue_that_is_deleted_meanwhile(server: ServerProcess, rabbitmq: Broker, tmp_path: Path) -> None:
    """The connector says so and ends; it does not wait for messages that cannot come."""

    async def delete() -> None:
        connection = await amqp.connect(parse_url(rabbitmq.url))
        await (await connection.channel()).queue_delete("short")
        await connection.close()

    options = ("--topic", "short", "--source", "amqp-short")
    made = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options, "--create", "--wait", "0.1")
    made.start()
    assert made.wait() == 0, made.said()
    with running_connector(tmp_path, rabbitmq.url, server.url, *options) as connector:
        amqp_publish(rabbitmq, "short", (Content(b'{"n": 1}'), "1"))
        eventually(lambda: len(stored(server, "amqp-short")) == 1, connector.said())
        asyncio.run(delete())
        assert connector.wait() == 1, connector.said()
    assert "there is no queue short" in connector.said()


def test_connect_amqp_without_the_queue_for_bad_messages(
    server: ServerProcess, rabbitmq: Broker, tmp_path: Path
) -> None:
    """The command names the queue, and the bad message stays in its own queue."""
    options = ("--topic", "careful", "--wait", "1")
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options, "--create")
    connector.start()
    assert connector.wait() == 0, connector.said()
    amqp_publish(rabbitmq, "careful", (Content(b"["), "1"))
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options, "--dead-letters", "no such queue")
    connector.start()
    assert connector.wait() == 1
    assert "the queue no such queue" in " ".join(connector.said().split())
    amqp_publish(rabbitmq, "careful", (Content(b"["), "2"))
    left = ConnectorProcess(tmp_path / "left", rabbitmq.url, server.url, *options)
    left.start()
    assert left.wait() == 0, left.said()
    assert left.totals()["read"] == 2


def test_connect_amqp_queue_for_bad_messages_that_is_refused(
    server: ServerProcess, rabbitmq: Broker, tmp_path: Path
) -> None:
    """RabbitMQ keeps names that begin with `amq.` to itself. The command says so and ends, and does not read the bad
    message again and again."""
    options = ("--topic", "refused", "--create", "--wait", "1")
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options, "--dead-letters", "amq.bad")
    connector.start()
    assert connector.wait() == 0, connector.said()
    amqp_publish(rabbitmq, "refused", (Content(b"["), "1"))
    connector.start()
    assert connector.wait() == 1
    said = " ".join(connector.said().split())
    assert "a bad message cannot be put aside: the broker refuses: ACCESS_REFUSED" in said


def test_connect_amqp_headers_with_types(server: ServerProcess, rabbitmq: Broker, tmp_path: Path) -> None:
    """A Boolean and a time of AMQP are written as CloudEvents writes them."""
    options = ("--topic", "typed", "--create", "--wait", "1")
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options)
    connector.start()
    assert connector.wait() == 0, connector.said()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    context: dict[str, Any] = {**BINARY_CONTEXT, "source": "/typed", "time": at, "paid": True, "count": 7}
    headers = {f"cloudEvents:{name}": value for name, value in context.items()}
    amqp_publish(rabbitmq, "typed", (Content(b'{"n": 1}', None, headers), None))
    connector.start()
    assert connector.wait() == 0, connector.said()
    [event] = stored(server, "/typed")
    assert (event["time"], event["paid"], event["count"]) == ("2026-01-02T03:04:05Z", "true", "7")


def test_connect_amqp_times_that_are_none(server: ServerProcess, rabbitmq: Broker, tmp_path: Path) -> None:
    """Microseconds in place of seconds: a time of no calendar is left out, and the message is read like others."""

    class Microseconds(datetime):
        def timestamp(self) -> float:
            return 1e6 * super().timestamp()

    options = ("--topic", "odd", "--source", "amqp-odd", "--create", "--wait", "1")
    connector = ConnectorProcess(tmp_path, rabbitmq.url, server.url, *options)
    connector.start()
    assert connector.wait() == 0, connector.said()
    headers: dict[str, Any] = {"when": Microseconds(2026, 1, 2, tzinfo=UTC)}
    amqp_publish(rabbitmq, "odd", (Content(b'{"n": 1}', None, headers), None), (Content(b'{"n": 2}'), None))
    connector.start()
    assert connector.wait() == 0, connector.said()
    assert [event["data"]["n"] for event in stored(server, "amqp-odd/odd")] == [1, 2]
    assert decode.by_type(b"\x00\x06" + bytes(6), "timestamp") == (8, None)


def test_connect_amqp_two_connectors_keep_their_ids_apart(
    server: ServerProcess, rabbitmq: Broker, tmp_path: Path
) -> None:
    """Two connectors of one queue in one state folder, with messages that have no ids."""

    async def readers() -> int:
        connection = await amqp.connect(parse_url(rabbitmq.url))
        queue = await (await connection.channel()).declare_queue("shared", durable=True)
        await connection.close()
        return queue.declaration_result.consumer_count or 0

    options = ("--topic", "shared", "--source", "amqp-shared", "--create", "--batch", "1")
    state = ("--state", str(tmp_path / "state"))
    with (
        running_connector(tmp_path / "one", rabbitmq.url, server.url, *options, *state) as one,
        running_connector(tmp_path / "other", rabbitmq.url, server.url, *options, *state) as other,
    ):
        both = (one, other)
        eventually(lambda: asyncio.run(readers()) == 2, "two readers")
        amqp_publish(rabbitmq, "shared", *((Content(b'{"n": %d}' % number), None) for number in range(40)))
        eventually(lambda: len(stored(server, "amqp-shared")) >= 40, "all events")
        assert [connector.stop() for connector in both] == [0, 0]
    assert sorted(event["data"]["n"] for event in stored(server, "amqp-shared")) == list(range(40))
    assert all(connector.totals()["accepted"] > 0 for connector in both)
    assert len(list((tmp_path / "state").glob("*.json"))) == 2


def test_connect_amqp_without_the_queue_says_what_to_do(
    server: ServerProcess, rabbitmq: Broker, tmp_path: Path
) -> None:
    """Exit status 1 and a sentence; so with a wrong password."""
    connector = ConnectorProcess(tmp_path / "a", rabbitmq.url, server.url, "--topic", "nowhere", "--wait", "1")
    connector.start()
    assert connector.wait() == 1
    assert "--create" in connector.said()
    url = rabbitmq.url.replace("//", "//guest:wrong@")
    connector = ConnectorProcess(tmp_path / "b", url, server.url, "--topic", "nowhere", "--wait", "1")
    connector.start()
    assert connector.wait() == 1
    assert "password" in connector.said()
    assert "wrong" not in connector.said()


def test_connect_kafka_every_form_becomes_an_event_once(
    server: ServerProcess, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Structured, binary and plain by partition and offset; bad records go to another topic; read again by another
    group, all are known already; read on by the same group, nothing is read."""
    binary = {f"ce_{name}": value for name, value in BINARY_CONTEXT.items()} | {"ce_id": "k2"}
    kafka.publish(
        "offers",
        (b'{"price": 1}', {}),
        (STRUCTURED_EVENT.replace(b"s1", b"k1"), {"content-type": STRUCTURED}),
        (b'{"price": 2}', binary | {"content-type": "application/json"}),
        (b"[", {}),
        key="ulm",
    )
    options = ("--topic", "offers", "--source", "kafka-forms", "--wait", "5", "--dead-letters", "bad")
    first = ConnectorProcess(tmp_path / "first", kafka.url, server.url, *options)
    first.start()
    assert first.wait() == 0, first.said()
    assert (first.totals()["accepted"], first.totals()["bad"]) == (3, 1), first.said()
    (plain,) = stored(server, "kafka-forms/offers")
    assert re.fullmatch(r"\d+-0-\d{13}", plain["id"])
    assert (plain["partitionkey"], plain["data"]) == ("ulm", {"price": 1})
    others = {event["id"]: event for event in stored(server, "/shop")}
    assert others["k2"]["note"] == "für Ann"
    assert others["k1"]["topic"] == "offers"
    read = first.totals()["read"]
    first.start()
    again = ConnectorProcess(tmp_path / "again", kafka.url, server.url, *options, "--group", "again")
    again.start()
    assert again.wait() == 0, again.said()
    assert (again.totals()["accepted"], again.totals()["known"], again.totals()["bad"]) == (0, 3, 1)
    assert first.wait() == 0, first.said()
    assert first.totals()["read"] == 0 < read
    more = ("--topic", "bad", "--wait", "5", "--group", "aside")
    aside = ConnectorProcess(tmp_path / "aside", kafka.url, server.url, *more)
    aside.start()
    assert aside.wait() == 0, aside.said()
    assert aside.totals()["read"] == 2


def test_connect_kafka_record_with_an_impossible_time(
    server: ServerProcess, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Microseconds in place of milliseconds: the event has no time."""
    kafka.publish("times", (b'{"price": 1}', {}), time=1_700_000_000_000_000)
    kafka.publish("times", (b'{"price": 2}', {}), time=1_700_000_000_000)
    with running_connector(tmp_path, kafka.url, server.url, "--topic", "times", "--source", "kafka-times") as connector:
        eventually(lambda: len(stored(server, "kafka-times")) == 2, connector.said())
        assert connector.stop() == 0
    times = {event["data"]["price"]: event.get("time") for event in stored(server, "kafka-times")}
    assert times == {1: None, 2: "2023-11-14T22:13:20.000Z"}


def test_connect_kafka_large_bad_record_is_put_aside(
    server: ServerProcess, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Larger than the library's own limit for messages that it sends."""
    kafka.publish("large", (b"[" + b"x" * 2_000_000, {}))
    options = ("--topic", "large", "--dead-letters", "large-bad")
    with running_connector(tmp_path / "a", kafka.url, server.url, *options) as connector:
        eventually(lambda: connector.totals().get("acknowledged") == 1, connector.said())
        assert connector.stop() == 0
    with running_connector(tmp_path / "b", kafka.url, server.url, "--topic", "large-bad") as aside:
        eventually(lambda: aside.totals().get("bad") == 1, aside.said())


def test_connect_kafka_trusts_the_authorities_of_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the other protocols do. Without the variable the command says why it does not connect. What listens here is no
    Kafka: it ends each connection after the handshake."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path))
    trusted = threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                    if secured.recv(1):
                        trusted.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener], daemon=True)
        thread.start()
        url = f"kafkas://localhost:{listener.getsockname()[1]}"
        connector = ConnectorProcess(tmp_path, url, "http://127.0.0.1:1", "--topic", "a", "--wait", "1")
        connector.start()
        assert connector.wait() == 1
        assert "certificate verify failed" in " ".join(connector.said().split())
        assert not trusted.is_set()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        connector.start()
        assert trusted.wait(PATIENCE_SECONDS)
        assert connector.wait() == 1
        authority.file.write_text("no certificate")
        connector.start()
        assert connector.wait() == 1
        assert "the client of Kafka cannot start: " in " ".join(connector.said().split())
        assert "Traceback" not in connector.said()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_connect_without_the_libraries_names_the_extra(tmp_path: Path) -> None:
    """A message and exit status 1 in place of a traceback."""
    (tmp_path / "paho").mkdir()
    (tmp_path / "paho" / "__init__.py").write_text("raise ImportError('no paho here')\n")
    command = [sys.executable, "-m", "kindcast.server.cli", "connect", "mqtt://127.0.0.1:1", "--topic", "a"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == 1
    assert "kindcast[connect]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("scheme", ["mqtt", "nats", "amqp", "kafka", "redis"])
def test_connect_ends_with_a_failure_if_no_broker_is_there(scheme: str, tmp_path: Path) -> None:
    """With --wait, which is a success only if the broker was asked."""
    options = ("--topic", "a", "--wait", "1")
    connector = ConnectorProcess(tmp_path, f"{scheme}://127.0.0.1:1", "http://127.0.0.1:1", *options)
    connector.start()
    assert connector.wait() == 1, connector.said()
    assert "the broker cannot be reached" in " ".join(connector.said().split())
    assert "Traceback" not in connector.said()


def test_connect_says_which_names_cannot_be(
    server: ServerProcess, nats: Broker, mosquitto: Broker, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """A group or a pattern that the library refuses, a topic that feeds itself."""
    for url, options, status, says in (
        (nats.url, ("--topic", "names.a", "--create", "--group", "my group"), 1, "my group"),
        (kafka.url, ("--topic", "^("), 1, "Kafka refuses these topics"),
        (mosquitto.url, ("--topic", "names/#", "--dead-letters", "names/bad"), 2, "again and again"),
        (nats.url, ("--topic", "names.*", "--dead-letters", "names.bad"), 2, "again and again"),
        (kafka.url, ("--topic", "^names", "--dead-letters", "names-bad"), 2, "again and again"),
        (kafka.url, ("--topic", "^(", "--dead-letters", "names-bad"), 1, "Kafka refuses these topics"),
    ):
        connector = ConnectorProcess(tmp_path, url, server.url, *options, "--wait", "1")
        connector.start()
        assert connector.wait() == status, connector.said()
        assert says in " ".join(connector.said().split())
        assert "Traceback" not in connector.said()


@pytest.mark.parametrize("url", ["http://host", "mqtt://", "mqtt://a,b", "mqtt://a:b:c", "nats://h?x=1", "mqtt:host"])
def test_connect_wrong_url_is_wrong_use(url: str) -> None:
    """Exit status 2."""
    command = [sys.executable, "-m", "kindcast.server.cli", "connect", url, "--topic", "a"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_SECONDS).returncode == 2


def test_connect_without_the_name_of_a_group_is_wrong_use(kindcast: Kindcast) -> None:
    """A variable that is not set, for one: MQTT would forget the connector, and what comes while it does not run."""
    ran = kindcast("connect", "mqtt://127.0.0.1:9", "--topic", "a", "--group", "")
    assert ran.status == 2
    assert "must not be empty" in ran.err


@pytest.mark.parametrize(
    ("url", "topic", "says"),
    [
        ("mqtt://127.0.0.1:9", "bad/#", "wildcards"),
        ("mqtt://127.0.0.1:9", "", "must not be empty"),
        ("nats://127.0.0.1:9", "bad.*", "wildcards"),
        ("nats://127.0.0.1:9", "bad..letters", "separated by dots"),
        ("amqp://127.0.0.1:9", "", "must not be empty"),
    ],
)
def test_connect_topic_for_bad_messages_that_cannot_be_sent_to(
    kindcast: Kindcast, url: str, topic: str, says: str
) -> None:
    """It is refused at the start, not when the first bad message comes."""
    ran = kindcast("connect", url, "--topic", "a", "--dead-letters", topic, "--wait", "0")
    assert ran.status == 2
    assert says in ran.err


def test_connect_without_a_folder_for_ids_says_how_to_name_one(
    kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container whose user has no home, and below what is no folder."""
    (tmp_path / "file").touch()
    ran = kindcast("connect", "mqtt://127.0.0.1:9", "--topic", "a", "--state", str(tmp_path / "file" / "ids"))
    assert ran.status == 1
    assert "cannot be used: Not a directory" in ran.err
    assert "--state FOLDER" in ran.err

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    ran = kindcast("connect", "mqtt://127.0.0.1:9", "--topic", "a")
    assert ran.status == 1
    assert "the user has no home folder" in ran.err
    assert "--state FOLDER" in ran.err
