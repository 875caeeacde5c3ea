"""Traces with OpenTelemetry, if the environment has its variables (`OTEL_…`). A trace follows an event from its request
to each delivery attempt, which another process may make days later.

    request ──span──▶ match and store ──▶ the event, stored with `traceparent` ──▶ attempt ──span──▶ sink
                                                                                      └─ header `traceparent` ─┘

FastAPI makes the spans of requests and configures the exporter. `traceparent` is the attribute of CloudEvents for this.
An event that has one keeps it.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

    from kindcast.server.cloudevents import DecodedEvent
    from kindcast.server.delivery.webhook import Outcome

__all__ = ["Attempt", "attempt", "carrying", "is_wanted", "storing", "telemetry"]

_log = logging.getLogger("kindcast.server")

TRACEPARENT = "traceparent"
_ENDPOINTS = frozenset({"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"})
_TRACER = trace.get_tracer("kindcast")
_NOTHING = nullcontext()
_PROPAGATOR = TraceContextTextMapPropagator()
_STREAMS = re.compile(r"/(stream|ws|healthz|readyz|metrics)$")


class _Carried(msgspec.Struct):
    """The trace in a stored event. All other members are skipped."""

    traceparent: str | None = None


@cache
def is_wanted() -> bool:
    """Whether the environment requests OpenTelemetry. If not, nothing here has a cost."""
    return any(name.startswith("OTEL_") for name in os.environ)


def telemetry() -> "TelemetryConfig":
    """Returns the configuration for FastAPI: spans of requests, sent to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    Its records of errors are switched off, because they contain data of clients, and its durations, because `/metrics`
    has them."""
    wanted = is_wanted()
    if wanted:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # attempts to reach a collector are not logged
    can_send = find_spec("opentelemetry.sdk") is not None
    if not can_send and not _ENDPOINTS.isdisjoint(os.environ):
        _log.warning("no traces are sent, because the libraries are not installed: pip install 'kindcast[telemetry]'")
    return {
        "tracing": wanted,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": wanted and can_send,
        "exclude": _is_left_out,
    }


def _is_left_out(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request has no span: streams last for days and may have a token in their URL, and probes are
    frequent."""
    return _STREAMS.search(scope["path"]) is not None


def carrying(events: "Sequence[DecodedEvent]") -> "Sequence[DecodedEvent]":
    """Returns the events, with the trace of the current request if they have no trace. Matching and the detection of
    duplicates do not change."""
    if not is_wanted():
        return events
    span = trace.get_current_span().get_span_context()
    if not span.is_valid or not span.trace_flags.sampled:
        return events
    member = f'{{"{TRACEPARENT}":"00-{span.trace_id:032x}-{span.span_id:016x}-01",'
    return [
        each
        if TRACEPARENT in each.event.context
        else msgspec.structs.replace(each, body=member + each.body.removeprefix("{"))
        for each in events
    ]


def storing(events: int) -> AbstractContextManager[Any]:
    """Returns a context manager with a span for matching and storing events, including the time in which they wait."""
    if not is_wanted():
        return _NOTHING
    return _TRACER.start_as_current_span("match and store", attributes={"messaging.batch.message_count": events})


class Attempt:
    """A delivery attempt and its span, if there is one."""

    def __init__(self, span: trace.Span | None = None) -> None:
        self._span = span
        self.traceparent: str | None = None
        """The header for the sink."""
        if span is not None:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
            self.traceparent = carrier.get(TRACEPARENT)

    def ended(self, outcome: "Outcome") -> None:
        """Records the outcome in the span."""
        if self._span is None:
            return
        if outcome.status_code is not None:
            self._span.set_attribute("http.response.status_code", outcome.status_code)
        if outcome.kind != "delivered":
            self._span.set_attribute("error.type", str(outcome.status_code or outcome.kind))
            self._span.set_status(StatusCode.ERROR, outcome.detail)


_UNTRACED = Attempt()


@contextmanager
def attempt(subscription: str, message: str, bodies: Sequence[str]) -> Iterator[Attempt]:
    """A context manager with the attempt to deliver these stored events to a subscription. Its span belongs to the
    trace of the event. If there are several events, they are linked."""
    if not is_wanted():
        yield _UNTRACED
        return
    parents = [_parent(each) for each in bodies]
    attributes: Mapping[str, str | int] = {
        "messaging.system": "kindcast",
        "messaging.operation.type": "send",
        "messaging.operation.name": "deliver",
        "messaging.destination.name": subscription,
        "messaging.message.id": message,
        "messaging.batch.message_count": len(bodies),
    }
    carried = [trace.get_current_span(each).get_span_context() for each in parents]
    links = [trace.Link(each) for each in carried if each.is_valid] if len(parents) > 1 else ()
    parent = parents[0] if len(parents) == 1 else Context()
    with _TRACER.start_as_current_span(
        "deliver", parent, kind=SpanKind.PRODUCER, attributes=attributes, links=links
    ) as span:
        yield Attempt(span)


def _parent(body: str) -> Context:
    """Returns the trace in an event; an empty one if its value is no valid text."""
    try:
        carried = msgspec.json.decode(body, type=_Carried).traceparent
    except msgspec.ValidationError:
        carried = None
    return _PROPAGATOR.extract({TRACEPARENT: carried} if carried else {}, context=Context())
