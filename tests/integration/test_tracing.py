"""The trace of an event, from its publisher to its sink: as a collector is told, over its real protocol.

The collector is a stand-in of this file, since none can be installed with pip; what it reads are the messages of
OpenTelemetry's own package.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kindcast.server import tracing
from kindcast.server.cloudevents import digest_of
from tests.harness.application import running_application
from tests.harness.ports import free_port
from tests.harness.postgresql import PostgreSQL
from tests.harness.receiver import running_receiver
from tests.harness.server_process import ServerProcess
from tests.integration.test_server_keys import until

PATIENCE_SECONDS = 30.0
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = {"traceparent": f"00-{TRACE}-{CALLER}-01"}


@dataclass
class Collector:
    url: str
    spans: list[Any] = field(default_factory=list)

    def named(self, name: str, count: int = 1) -> list[Any]:
        """The spans of this name, as soon as there are so many."""
        until = time.monotonic() + PATIENCE_SECONDS
        while len(found := [each for each in self.spans if each.name == name]) < count:
            assert time.monotonic() < until, [each.name for each in self.spans]
            time.sleep(0.05)
        return found


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                told = ExportTraceServiceRequest.FromString(body)
                collector.spans += [
                    span for each in told.resource_spans for some in each.scope_spans for span in some.spans
                ]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()


def traced(data: Path, collector: str) -> ServerProcess:
    return ServerProcess(
        data,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "KINDCAST_ALLOW_PRIVATE_SINKS": "true",
            "KINDCAST_WEBHOOK_DELAYS_SECONDS": "[0.2, 0.2, 0.2]",
        },
    )


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


class Sent(NamedTuple):
    destination: str
    span: Any


def deliveries(collector: Collector) -> list[Sent]:
    """In the order in which they began."""
    found = sorted(
        (each for each in collector.spans if each.name == "deliver"), key=lambda each: each.start_time_unix_nano
    )
    return [Sent(attributes(each)["messaging.destination.name"], each) for each in found]


def subscribe(url: str, sink: str, **more: Any) -> str:
    made = httpx.post(f"{url}/v1/subscriptions", json={"expression": "n exists", "sink": sink, **more})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_a_trace_goes_from_the_publisher_to_the_sink(tmp_path: Path) -> None:
    """One trace of the request, of matching, and of each attempt; the sink, and whoever reads the event, gets it on."""
    with collecting() as collector, running_receiver() as receiver:
        server = traced(tmp_path, collector.url)
        server.start()
        try:
            id = subscribe(server.url, receiver.script("/a", 500))
            httpx.post(f"{server.url}/v1/events", json={"n": 1}, headers=HEADER).raise_for_status()
            failed, delivered = collector.named("deliver", 2)
            (request,) = collector.named("POST /v1/events")
            (stored,) = collector.named("match and store")
        finally:
            server.stop()
        messages = receiver.requests("/a")
    spans = [request, stored, failed, delivered]
    assert {each.trace_id.hex() for each in spans} == {TRACE}
    assert request.parent_span_id.hex() == CALLER
    assert stored.parent_span_id == failed.parent_span_id == delivered.parent_span_id == request.span_id
    assert attributes(request)["http.route"] == "/v1/events"
    assert attributes(failed)["http.response.status_code"] == 500
    assert attributes(delivered)["messaging.destination.name"] == id
    assert failed.status.code != delivered.status.code
    assert [each.headers["traceparent"] for each in messages] == [
        f"00-{TRACE}-{each.span_id.hex()}-01" for each in (failed, delivered)
    ]
    assert messages[-1].message["event"]["traceparent"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    assert not [each for each in collector.spans if "readyz" in str(attributes(each))]


def test_a_trace_goes_on_in_the_process_that_delivers(tmp_path: Path) -> None:
    """After `kill -9` another process delivers; what an event brings of its own is kept, and nonsense harms nothing.
    Events that come in one request are linked."""
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    envelope = {"specversion": "1.0", "source": "/s", "type": "t", "data": {"n": 1}}
    events = [{**envelope, "id": "1", "traceparent": own}, {**envelope, "id": "2", "traceparent": "nonsense"}]
    batch = {"Content-Type": "application/cloudevents-batch+json", **HEADER}
    with collecting() as collector, running_receiver() as receiver:
        server = traced(tmp_path, collector.url)
        server.start()
        ids = [
            subscribe(server.url, receiver.swallow("/a")),
            subscribe(server.url, receiver.swallow("/b"), protocolsettings={"batch": 3}),
        ]
        httpx.post(f"{server.url}/v1/events", content=json.dumps(events), headers=batch).raise_for_status()
        httpx.post(f"{server.url}/v1/events", json={"n": 3}, headers=HEADER).raise_for_status()
        (request, _) = collector.named("POST /v1/events", 2)
        server.kill()
        receiver.release()
        del collector.spans[:]
        server.start()
        try:
            until(lambda: [each.destination for each in deliveries(collector)].count(ids[0]) == 3)
            until(lambda: ids[1] in [each.destination for each in deliveries(collector)])
        finally:
            server.stop()
    first, second, third = (each.span for each in deliveries(collector) if each.destination == ids[0])
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == ("a" * 32, "b" * 16)
    assert not second.parent_span_id
    assert third.trace_id.hex() == request.trace_id.hex() == TRACE
    linked = [
        link.trace_id.hex() for each in deliveries(collector) if each.destination == ids[1] for link in each.span.links
    ]
    assert sorted(linked) == sorted(["a" * 32, TRACE])


@pytest.mark.slow
def test_a_trace_goes_on_in_another_server(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """Of the same database: it delivers what the one that was killed had accepted."""
    database = {"KINDCAST_DATABASE": postgresql.new_database(), "KINDCAST_LEASE_SECONDS": "1"}
    with collecting() as collector, running_receiver() as receiver:
        first, second = (traced(tmp_path / name, collector.url) for name in ("first", "second"))
        first.start(**database)
        id = subscribe(first.url, receiver.swallow("/a"))
        httpx.post(f"{first.url}/v1/events", json={"n": 1}, headers=HEADER).raise_for_status()
        receiver.wait_for("/a", 1)
        collector.named("POST /v1/events")
        second.start(**database)
        first.kill()
        receiver.release()
        try:
            receiver.wait_for("/a", 2)
            (delivered,) = collector.named("deliver")
        finally:
            second.stop()
        assert delivered.trace_id.hex() == TRACE
        assert attributes(delivered)["messaging.destination.name"] == id
        assert receiver.requests("/a")[-1].headers["traceparent"] == f"00-{TRACE}-{delivered.span_id.hex()}-01"


def test_a_collector_that_is_not_there_harms_nobody(tmp_path: Path) -> None:
    """Events are taken whatever their request says of a trace, the server stops in order, and the log is not filled."""
    server = traced(tmp_path, f"http://127.0.0.1:{free_port()}")
    server.start(OTEL_EXPORTER_OTLP_TIMEOUT="1")
    for said in ("", f"00-{TRACE}-{CALLER}-00", "nonsense", "é", "0" * 5_000):
        headers = {"traceparent": said.encode()} if said else {}
        httpx.post(f"{server.url}/v1/events", json={"n": 1}, headers=headers).raise_for_status()
    events = httpx.get(f"{server.url}/v1/events").json()["events"]
    assert [TRACE in str(each["event"]) for each in events] == [False] * 5  # also where the caller does not record it
    server.stop()
    told = server.log.read_text()
    assert "stopped" in told
    assert "Failed to export" in told
    assert "Transient" not in told


def test_libraries_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only where traces are to be sent. That they are missing is pretended: the tests need them."""
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)
    assert not tracing.telemetry()["auto_configure"]
    assert caplog.text == ""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert not tracing.telemetry()["auto_configure"]
    assert "pip install 'kindcast[telemetry]'" in caplog.text


def test_an_event_sent_again_under_another_trace_is_the_same(tmp_path: Path) -> None:
    """Also one that was stored before its digest left its trace out."""
    event = {"specversion": "1.0", "source": "/s", "type": "t", "id": "1", "data": {"n": 1}}
    headers = {"Content-Type": "application/cloudevents+json"}
    with running_application(tmp_path) as client:
        for parent in ("a" * 16, "b" * 16):
            sent = event | {"traceparent": f"00-{TRACE}-{parent}-01", "tracestate": f"x={parent}"}
            told = client.post("/v1/events", content=json.dumps(sent), headers=headers).json()
        assert (told["duplicates"], told["events"][0].get("notes", [])) == (1, [])
        told = client.post("/v1/events", content=json.dumps(event | {"type": "u"}), headers=headers).json()
        assert [each["code"] for each in told["events"][0]["notes"]] == ["differs"]
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as connection, connection:
        body = connection.execute("SELECT body FROM events").fetchone()[0]
        older = digest_of(body, {"id", "source"})
        assert older != digest_of(body)
        connection.execute("UPDATE events SET digest = ?", (older,))
    with running_application(tmp_path) as client:
        assert len(client.get("/v1/events").json()["events"]) == 1
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as connection, connection:
        connection.execute("UPDATE events SET body = replace(body, '\"n\":1', '\"n\":2')")
    with running_application(tmp_path) as client:
        assert client.get("/v1/events").status_code != 200
