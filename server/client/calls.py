"""The HTTP API as calls, each described once; `call.py` says how they become methods of both clients."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from server.client.call import TIMEOUT_SECONDS, Call, Json, described, get, path_of, post, present
from server.client.meaning import MeaningCalls
from server.client.operators import OperatorCalls

__all__ = ["Calls"]


class Calls(MeaningCalls, OperatorCalls):
    """Answers are the server's JSON as dicts; failures raise `ProblemError`."""

    tickets: dict[str, str]

    # ── ontologies and concepts ──────────────────────────────────────────────────────────────────────────────────────

    @described
    def put_ontology(
        self,
        name: str,
        document: bytes,
        *,
        content_type: str | None = None,
        format: str | None = None,
        reason: str | None = None,
        relations: Iterable[str] = (),
        activate: bool = True,
    ) -> Call[Json]:
        """Uploads an ontology and returns its load report. Name its syntax by media type or by format; `reason` is
        `none`, `rdfs` or `owl`; `relations` may be asked for beside is-a; without `activate` it is only stored."""
        return _upload(name, document, content_type, format, reason, relations, activate)

    @described
    def start_ontology(
        self,
        name: str,
        document: bytes,
        *,
        content_type: str | None = None,
        format: str | None = None,
        reason: str | None = None,
        relations: Iterable[str] = (),
        activate: bool = True,
    ) -> Call[Json]:
        """Uploads an ontology without waiting for it to be read; returns the job, to be asked for with `job`."""
        call = _upload(name, document, content_type, format, reason, relations, activate)
        return replace(call, headers={**call.headers, "Prefer": "respond-async"})

    @described
    def job(self, id: str) -> Call[Json]:
        """How far a job is: its `status` (`running`, `done`, `failed`), `progress`, then `result` or `problem`."""
        return get(path_of("jobs", id))

    @described
    def ontologies(self) -> Call[Json]:
        """All loaded ontologies."""
        return get(path_of("ontologies"))

    @described
    def ontology(self, name: str) -> Call[Json]:
        """One ontology."""
        return get(path_of("ontologies", name))

    @described
    def delete_ontology(self, name: str) -> Call[None]:
        """Removes an ontology; refused while subscriptions depend on it."""
        return Call(method="DELETE", path=path_of("ontologies", name), read=_nothing)

    @described
    def concepts(self, q: str, *, lang: str | None = None, limit: int | None = None) -> Call[Json]:
        """Concepts whose labels or names hold `q`."""
        return get(path_of("concepts"), q=q, lang=lang, limit=limit)

    @described
    def resolve(self, term: str) -> Call[Json]:
        """What a label, short form, CURIE or IRI means."""
        return get(path_of("concepts", "resolve"), term=term)

    @described
    def ancestors(self, term: str) -> Call[Json]:
        """Everything broader than the concept."""
        return get(path_of("concepts", "ancestors"), term=term)

    @described
    def descendants(self, term: str) -> Call[Json]:
        """Everything beneath the concept."""
        return get(path_of("concepts", "descendants"), term=term)

    @described
    def children(self, term: str) -> Call[Json]:
        """What stands directly beneath the concept."""
        return get(path_of("concepts", "children"), term=term)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def subscribe(
        self,
        /,
        expression: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        sink: str | None = None,
        ttl_seconds: float | None = None,
        **more: Any,
    ) -> Call[Json]:
        """Subscribes by text or by tree (`where`), with further fields of the API as keywords. The answer holds the
        ticket and, for a webhook, the secret: neither is ever shown again."""
        body = present(expression=expression, where=where, sink=sink, ttl_seconds=ttl_seconds) | more
        return replace(post(path_of("subscriptions"), body), read=functools.partial(_remember, self.tickets))

    @described
    def subscriptions(self) -> Call[Json]:
        """All subscriptions."""
        return get(path_of("subscriptions"))

    @described
    def subscription(self, id: str) -> Call[Json]:
        """One subscription, with its status, counters and last failure."""
        return get(path_of("subscriptions", id))

    @described
    def renew(self, id: str, *, ttl_seconds: float | None = None, ticket: str | None = None) -> Call[Json]:
        """Lets a subscription live longer, also one that expired up to a week ago."""
        body = present(ttl_seconds=ttl_seconds)
        return post(path_of("subscriptions", id, "renew"), body, headers=self.ticket_header(id, ticket))

    @described
    def change(self, id: str, /, *, ticket: str | None = None, **fields: Any) -> Call[Json]:
        """Changes where and how a subscription is delivered, its metadata, or when it ends; None takes a value away."""
        call = post(path_of("subscriptions", id), fields, headers=self.ticket_header(id, ticket))
        return replace(call, method="PATCH")

    @described
    def pause(self, id: str, *, ticket: str | None = None) -> Call[Json]:
        """Stops matching until `resume`."""
        return post(path_of("subscriptions", id, "pause"), None, headers=self.ticket_header(id, ticket))

    @described
    def resume(self, id: str, *, ticket: str | None = None) -> Call[Json]:
        """Goes on after `pause`, or after a webhook was disabled by failures."""
        return post(path_of("subscriptions", id, "resume"), None, headers=self.ticket_header(id, ticket))

    @described
    def dead_letters(self, *, subscription: str | None = None, cursor: str | None = None) -> Call[Json]:
        """What webhooks did not take before they were disabled by failures."""
        return get(path_of("dead-letters"), subscription=subscription, cursor=cursor)

    @described
    def redrive(self, subscription: str, *, ticket: str | None = None) -> Call[Json]:
        """Sends the dead letters of a subscription after all."""
        headers = self.ticket_header(subscription, ticket)
        return post(path_of("dead-letters", "redrive"), {"subscription": subscription}, headers=headers)

    @described
    def unsubscribe(self, id: str, *, ticket: str | None = None) -> Call[None]:
        """Deletes a subscription and what waits for it."""
        headers = self.ticket_header(id, ticket)
        return Call(method="DELETE", path=path_of("subscriptions", id), read=_nothing, headers=headers)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def publish(self, /, events: Mapping[str, Any] | Iterable[Mapping[str, Any]], **context: str) -> Call[Json]:
        """Publishes one event, or several as NDJSON; they are on disk when this returns.

        An object with `specversion` is a CloudEvent as it stands. Any other is the data of one, whose `type`, `source`,
        `id` … may be given as keywords (for all of them, so no `id` with several).
        """
        if isinstance(events, Mapping):
            kind = "application/cloudevents+json" if "specversion" in events else "application/json"
            content = msgspec.json.encode(events)
        else:
            kind = "application/x-ndjson"
            content = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        headers = {"Content-Type": kind} | {f"ce-{name}": quote(value, safe=_PLAIN) for name, value in context.items()}
        return Call(method="POST", path=path_of("events"), read=dict, headers=headers, content=content)

    @described
    def events(
        self, *, after: str | int | None = None, type: str | None = None, limit: int | None = None
    ) -> Call[Json]:
        """Reads back what was accepted."""
        return get(path_of("events"), after=after, type=type, limit=limit)

    @described
    def trace(self, sequence: str | int, *, subscription: str | None = None) -> Call[Json]:
        """What became of an event: who got it, every delivery attempt; with a subscription, why it did or did not."""
        return get(path_of("events", str(sequence), "trace"), subscription=subscription)

    @described
    def match(self, events: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Call[Json]:
        """Who would match, with which bindings; nothing is stored."""
        one = isinstance(events, Mapping)
        return post(path_of("match"), {"event": events} if one else {"events": list(events)})

    @described
    def explain(self, event: Mapping[str, Any], subscription: str) -> Call[Json]:
        """Why the event does, or does not, match a subscription (its id, or an expression)."""
        return post(path_of("explain"), {"event": event, "subscription": subscription})

    # ── backtests ────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def start_backtest(self, asked: Mapping[str, Any], *, lang: str | None = None) -> Call[Json]:
        """Begins to match an expression against the stored events: `expression` or `where`, `since`, `until`,
        `ontologies` (versions by name). A job: see `backtest`."""
        return replace(post(path_of("backtests"), dict(asked)), params=present(lang=lang))

    @described
    def backtest(self, id: str) -> Call[Json]:
        """How far a backtest is; `result` once it is done."""
        return get(path_of("backtests", id))

    # ── delivery ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def pull(
        self, id: str, *, after: str | int | None = None, limit: int | None = None, wait: float | None = None
    ) -> Call[Json]:
        """Messages after a cursor, by default the acknowledged one. `wait`: seconds (at most 30) for the first."""
        return Call(
            method="GET",
            path=path_of("subscriptions", id, "events"),
            read=dict,
            params=present(after=after, limit=limit, wait=wait),
            timeout=TIMEOUT_SECONDS + (wait or 0.0),
        )

    @described
    def ack(self, id: str, cursor: str | int, *, ticket: str | None = None) -> Call[Json]:
        """Acknowledges everything up to the cursor."""
        headers = self.ticket_header(id, ticket)
        return post(path_of("subscriptions", id, "ack"), {"cursor": str(cursor)}, headers=headers)

    @described
    def ready(self) -> Call[None]:
        """Returns when the server takes requests; raises `ProblemError` (503) while it does not."""
        return Call(method="GET", path="/readyz", read=_nothing)

    def ticket_header(self, id: str, ticket: str | None) -> dict[str, str]:
        """The header that a change of this subscription needs, if the ticket is known."""
        known = ticket or self.tickets.get(id)
        return {} if known is None else {"Kindcast-Ticket": known}


_PLAIN = "!#$&'()*+,/:;=?@[]~"
"""What stands unencoded in a header of CloudEvents' binary mode, beside letters, digits and `_.-~`."""


def _upload(
    name: str,
    document: bytes,
    content_type: str | None,
    format: str | None,
    reason: str | None,
    relations: Iterable[str],
    activate: bool,
) -> Call[Json]:
    asked = present(
        format=format,
        reason=reason,
        relations=",".join(relations) or None,
        activate=None if activate else "false",
    )
    return Call(
        method="PUT",
        path=path_of("ontologies", name),
        read=dict,
        params=asked,
        headers={"Content-Type": content_type or "application/octet-stream"},
        content=document,
    )


def _remember(tickets: dict[str, str], created: Json) -> Json:
    tickets[created["id"]] = created["ticket"]
    return created


def _nothing(_: Any) -> None:
    return None
