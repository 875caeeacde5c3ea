"""Routes of subscriptions: create, read, renew, pause, resume, change, delete, export and import."""

import base64
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import structs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, CursorResult, Row
from starlette.responses import StreamingResponse

from kindcast.semantic import Note, SemanticError, Vocabulary
from kindcast.semantic.subscriptions import BulkCompiler, advise, as_new, restore_expression
from kindcast.server.answers import Status
from kindcast.server.api.access import audit_detail
from kindcast.server.api.operators import AppLateMatching
from kindcast.server.api.problem_types import Problem, as_document, problem_of
from kindcast.server.api.requests import (
    CUT,
    MOST_ERRORS,
    PRINTABLE,
    SUBSCRIPTION_ID,
    AppBroker,
    AppCaller,
    AppEventReader,
    AppSettings,
    Cursor,
    Moment,
    Number,
    Ticket,
    answer,
    body_schema,
    check_encoding,
    json_object,
    moment,
    next_page,
    not_yet,
    page_cursor,
    parse_page_cursor,
    reader_of,
    server_of,
)
from kindcast.server.broker import Broker
from kindcast.server.broker.subscription_commands import NewSubscription, Written, as_records, entity_tag, same_server
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import EventReader, filters_to_tree
from kindcast.server.delivery.message import EXPIRY_NOTICE, parse_cursor
from kindcast.server.delivery.protocols import DEFAULT_PROTOCOL, PROTOCOLS
from kindcast.server.errors import HiddenAttribute, ServerError, UnknownSubscription
from kindcast.server.late_matching import subscription_plan
from kindcast.server.observation import recent_attributes
from kindcast.server.security.callers import ANYBODY, Caller
from kindcast.server.security.egress import SinkRefused
from kindcast.server.security.keys import Claim, Repeatable, hash_of, new_ticket, random_bytes
from kindcast.server.security.permissions import check_visible, hidden_in
from kindcast.server.settings import Settings
from kindcast.server.store import pending as pending_store
from kindcast.server.store import subscriptions
from kindcast.server.store.deliveries import count_undelivered, position_before, waits_since
from kindcast.server.strict_json import MalformedJson, decode, depth_within, numbered_lines
from kindcast.server.worker_threads import run_in_turn, run_to_the_end, short_turns

__all__ = [
    "MAX_PAGE",
    "Id",
    "IdempotencyKey",
    "IfMatch",
    "check_size",
    "credential_shown",
    "entity_tags",
    "read_body",
    "read_change",
    "read_key",
    "read_new",
    "read_page",
    "settings_shown",
    "sink_for",
]


# The validation of subscription requests: a request body → `NewSubscription`, or the columns that a change sets.

Model = TypeVar("Model", bound=BaseModel)

NOT_YET = frozenset({"config"})
"""Members of the CloudEvents subscription object that this version does not support."""

MAX_SEQUENCE = 1 << 53
"""The greatest integer that JSON holds exactly."""

STARTS = "give earliest, a time such as 2026-01-31T08:00:00Z, or the sequence of an event as a number"
"""What `start_at` may be."""

MOST_THROTTLING_SECONDS = 86_400.0

SECRET_BYTES = 32
"""The size of a webhook secret. Standard Webhooks requires 24 to 64 bytes."""

MOST_GROWTH = 8
"""A JSON text is at most so many times as long after it was parsed and serialised again (`1e15`)."""

MOST_HINTS = 3
"""The maximum number of unknown members of a body for which a known name is looked for, because that takes time."""

MAX_EXPRESSION = 65_536
"""The maximum number of characters of an expression as text."""

ID_BYTES = 8

KEY_CHARACTERS = (16, 255)
"""The shortest and longest length of an `Idempotency-Key`. It must be as hard to guess as the values derived from
it."""

Text = Annotated[str, Field(min_length=1, max_length=2_048)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Ending(_Strict):
    expires_at: Annotated[Moment | None, Field(description="RFC 3339; without an offset it is UTC.")] = None
    ttl_seconds: Annotated[Number | None, Field(gt=0, description="From now.")] = None


class SubscriptionChange(_Ending):
    """The members that PATCH may change: sink, delivery options, metadata, and end time."""

    sink: Annotated[str | None, Field(max_length=2_048, description="The address that receives the matches.")] = None
    protocol: Literal["HTTP", "MQTT", "NATS", "AMQP", "KAFKA"] | None = None
    protocolsettings: Annotated[
        dict[str, Any] | None,
        Field(
            description="HTTP: `method`, `headers`, `format` (message or cloudevents), `batch`. Brokers: "
            "`topicname` (MQTT, KAFKA), `subject` (NATS) or `address` (AMQP), and `mode` (structured or "
            "binary); `qos`, `retain` for MQTT. All: `expiry_notice`: false turns off the notice a day before the end."
        ),
    ] = None
    sinkcredential: Annotated[dict[str, Any] | None, Field(description="PLAIN or ACCESSTOKEN; write-only.")] = None
    metadata: Annotated[dict[str, Any] | None, Field(description="Data of your own; stored and shown.")] = None
    attributes: Annotated[
        list[Text] | None,
        Field(
            max_length=200,
            description="The members of the data that are delivered, as dotted names; without it, all members.",
        ),
    ] = None
    throttling: Annotated[
        Number | None,
        Field(
            gt=0,
            le=MOST_THROTTLING_SECONDS,
            description="The least number of seconds between two requests to the sink; other messages wait.",
        ),
    ] = None


def _is_start(given: object) -> object:
    """Refuses what is neither a text nor an integer, with one error instead of one for each type. `_start_of` reads the
    others."""
    if isinstance(given, bool) or not isinstance(given, str | int | None):
        raise ValueError(STARTS)
    return given


class _Asked(_Strict):
    """The expression of a subscription as the user wrote it."""

    expression: Annotated[str | None, Field(max_length=MAX_EXPRESSION)] = None
    where: dict[str, Any] | None = None
    filters: Annotated[list[Any] | None, Field(max_length=1_000)] = None
    types: Annotated[list[Text] | None, Field(min_length=1, max_length=1_000, description="CloudEvents types.")] = None
    source: Annotated[Text | None, Field(pattern=PRINTABLE, description="The source of the events.")] = None


class SubscriptionBody(SubscriptionChange, _Asked):
    """A new subscription. It has one of `expression` (text), `where` (tree) and `filters` (CloudEvents); `types` and
    `source` restrict it further. Without a `sink` it is read by pull or stream."""

    start_at: Annotated[
        str | int | None,
        BeforeValidator(_is_start),
        Field(
            description="Stored events are delivered as well: `earliest`, those accepted since a time (RFC 3339), or"
            " those from a sequence on."
        ),
    ] = None
    id: Annotated[str | None, Field(description="Ignored: the server chooses.")] = None


class RenewBody(_Ending):
    """The new end time of a subscription. Without either member it gets the default time to live."""


def read_body(model: type[Model], body: Mapping[str, Any]) -> Model:
    """Validates the body of a request. Raises `Problem` (501) for members of the contract that this version lacks, and
    `RequestValidationError` for other errors."""
    for name in NOT_YET & body.keys():
        if body[name]:
            raise not_yet(name)
        body = {other: value for other, value in body.items() if other != name}
    try:
        return model.model_validate(body)
    except ValidationError as error:
        listed = error.errors(include_url=False, include_input=False)[:MOST_ERRORS]
        raise RequestValidationError(
            [_placed(each, model, is_hinted=number < MOST_HINTS) for number, each in enumerate(listed)]
        ) from None


def _placed(found: Any, model: type[BaseModel], *, is_hinted: bool) -> dict[str, Any]:
    """Returns an error of the validation with its place in the body. `is_hinted`: for an unknown member it adds the
    most similar name."""
    told = {**found, "loc": ("body", *found["loc"])}
    if is_hinted and found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
        name, known = str(found["loc"][0])[:100], list(model.model_fields)
        near = get_close_matches(name, known, n=1) or [each for each in known if each.startswith(f"{name}_")]
        told["ctx"] = {"near": near[0]} if near else {}
    return told


def read_new(
    body: Mapping[str, Any], settings: Settings, caller: Caller = ANYBODY, repeatable: Repeatable | None = None
) -> tuple[NewSubscription, str]:
    """Returns a new subscription and its ticket, which is not stored anywhere. For a `repeatable` request both are
    always the same.

    Raises `Problem`, `RequestValidationError`, `InvalidSubscription` for bad filters, `SinkRefused`.
    """
    asked = read_body(SubscriptionBody, body)
    ways = _ways(asked)
    if not ways and asked.types is None and asked.source is None:
        raise _invalid("give expression, where or filters; an empty expression means every event", "")
    _check_sink(asked.sink, asked.protocol, asked.protocolsettings, asked.sinkcredential, asked.throttling, settings)
    ticket = new_ticket(repeatable, "" if repeatable is None else _terms(asked, body))
    new = NewSubscription(
        id=f"sub_{random_bytes('id', ID_BYTES, repeatable).hex()}",
        asked=ways,
        parts=_parts(asked),
        ticket_hash=hash_of(ticket),
        expires_at=ending(asked, settings),
        sink=asked.sink,
        protocol=None if asked.sink is None else asked.protocol or DEFAULT_PROTOCOL,
        protocolsettings=asked.protocolsettings,
        sinkcredential=asked.sinkcredential,
        secret=None if asked.sink is None else _new_secret(repeatable),
        types=None if asked.types is None else tuple(asked.types),
        source=asked.source,
        metadata=asked.metadata,
        created_by=caller.owner,
        roles=caller.lasting_roles,
        attributes=asked.attributes,
        throttling=asked.throttling,
        repeatable=repeatable is not None,
    )
    return new, ticket


def read_start(body: Mapping[str, Any]) -> Callable[[Connection], int] | None:
    """Returns a function that determines the sequence number after which stored events are wanted too; None if only new
    events are wanted. Raises `Problem` (422)."""
    start = _start_of(body)
    if start is None:
        return None
    return partial(position_before, moment=start) if isinstance(start, float) else lambda connection: start


def _start_of(body: Mapping[str, Any]) -> int | float | None:
    """Returns `start_at` as the sequence number before the first wanted event (int), or as a time in Unix seconds
    (float). Raises `Problem` (422)."""
    start = body.get("start_at")
    if start is None:
        return None
    if start == "earliest":
        return 0
    if isinstance(start, int) and not isinstance(start, bool) and 0 < start < MAX_SEQUENCE:
        return start - 1
    try:
        return _utc(datetime.fromisoformat(start)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise _invalid(STARTS, "/start_at") from None


def _terms(asked: _Ending, body: Mapping[str, Any]) -> str:
    """Returns the end and the start that a request asks for; an empty text without either. The row of the subscription
    does not show them: an end may be relative to the time of the request, or be changed by a renewal."""
    if asked.expires_at is None and asked.ttl_seconds is None and body.get("start_at") is None:
        return ""
    end = None if asked.expires_at is None else _utc(asked.expires_at).timestamp()
    said = {"expires_at": end, "ttl_seconds": asked.ttl_seconds, "start_at": _start_of(body)}
    return ", ".join(f"{name} {value!r}" for name, value in said.items() if value is not None)


def _utc(moment: datetime) -> datetime:
    """Adds UTC to a time without an offset."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_OF_ANY_SIZE = frozenset({"sink", "protocolsettings", "sinkcredential", "metadata", "attributes"})
"""The members that can be changed and have no small bound of their own."""


def read_change(body: Mapping[str, Any], settings: Settings, row: Row[Any] | None) -> dict[str, Any]:
    """Returns the columns that a PATCH sets. Null removes a value. A first sink gets a secret. `row` is the present
    subscription. Values that belong to another protocol than the new one are removed.

    Raises `Problem`, `RequestValidationError`, `SinkRefused`.
    """
    for name in body.keys() & (SubscriptionBody.model_fields.keys() - SubscriptionChange.model_fields.keys()):
        raise _invalid(f"{name} cannot be changed: create another subscription instead", f"/{name}")
    asked = read_body(SubscriptionChange, body)
    values = {name: getattr(asked, name) for name in asked.model_fields_set & set(SubscriptionChange.model_fields)}
    for name in ("expires_at", "ttl_seconds"):
        values.pop(name, None)
    if asked.protocol is None:
        values.pop("protocol", None)  # the protocol of a sink cannot be removed alone
    if asked.expires_at is not None or asked.ttl_seconds is not None:
        values["expires_at"] = ending(asked, settings)
    protocol = _change_protocol(values, asked, None if row is None else row.protocol, settings)
    if values.get("protocolsettings") and row is not None:
        values["protocolsettings"] = _unhidden(values["protocolsettings"], row, values.get("sink", row.sink))
    _check_settings(protocol, values.get("protocolsettings"))
    both = ("protocolsettings", "sinkcredential")
    if asked.sink is not None or values.keys() & set(both):
        given = (values[name] if name in values else getattr(row, name, None) for name in both)
        PROTOCOLS[protocol or DEFAULT_PROTOCOL].check(*(each or {} for each in given))
    if row is not None and values.keys() & _OF_ANY_SIZE:
        stored = {name: values.get(name, getattr(row, name)) for name in (*_OF_ANY_SIZE, "types", "source")}
        check_size({name: each for name, each in stored.items() if each is not None} | row.expression, settings)
    return values


def _change_protocol(
    values: dict[str, Any], asked: SubscriptionChange, present: str | None, settings: Settings
) -> str | None:
    """Adds to `values` what follows from a new sink, and removes the values of the `present` protocol if there is
    another. Returns the protocol after the change."""
    if asked.sink is None:
        protocol = present
        if "sink" not in values and asked.protocol not in (None, present or DEFAULT_PROTOCOL):
            raise _invalid("to change the protocol, change the sink as well", "/protocol")
    else:
        protocol = asked.protocol or _protocol_of(asked.sink, present)
        _check_url(asked.sink, protocol, settings)
        values["secret"] = _new_secret()
    if "sink" in values:
        values["protocol"] = asked.protocol if asked.sink is None else protocol
    if (protocol or DEFAULT_PROTOCOL) != (present or DEFAULT_PROTOCOL):
        for name in ("protocolsettings", "sinkcredential"):
            values.setdefault(name, None)
    return protocol


def _unhidden(settings: Mapping[str, Any], row: Row[Any], sink: str | None) -> dict[str, Any]:
    """Returns the settings with the stored values of headers that were sent as hidden. Raises `SinkRefused` if `sink`
    is at another server than these values were given for."""
    kept, headers = (row.protocolsettings or {}).get("headers") or {}, settings.get("headers")
    if not isinstance(headers, dict):
        return dict(settings)
    stored = {name: kept[name] for name, value in headers.items() if value == HIDDEN and name in kept}
    if not stored:
        return dict(settings)
    if sink is not None and not same_server(sink, row.sink):
        raise SinkRefused(
            "the new sink is at another server: give the values of the headers that are (hidden), or leave these "
            "headers out. The stored values are not sent to another server"
        )
    return {**settings, "headers": headers | stored}


def _protocol_of(sink: str, present: str | None) -> str:
    """Returns the protocol of a new sink without one: the present protocol if the URL allows it, else that of
    webhooks."""
    same = present is not None and (present == DEFAULT_PROTOCOL) == sink.lower().startswith(("http:", "https:"))
    return present if same and present is not None else DEFAULT_PROTOCOL


def ending(asked: _Ending, settings: Settings) -> float:
    """Returns the end time in Unix seconds. Raises `Problem` (422)."""
    now = CLOCK.now()
    if asked.expires_at is not None and asked.ttl_seconds is not None:
        raise _invalid("give expires_at or ttl_seconds, not both", "/expires_at", "/ttl_seconds")
    if asked.expires_at is None:
        end = now + (asked.ttl_seconds or settings.default_ttl_seconds)
    else:
        end = _utc(asked.expires_at).timestamp()
    name = "/expires_at" if asked.expires_at is not None else "/ttl_seconds"
    if end <= now:
        raise _invalid("this time is in the past", name)
    if end > now + settings.max_ttl_seconds + 1.0:
        raise _invalid(
            f"at most {settings.max_ttl_seconds / 86_400.0:g} days from now: choose an earlier time and renew the "
            f"subscription later",
            name,
        )
    return end


def _ways(asked: _Asked) -> dict[str, Any]:
    """Returns the expression as it was written, under the name of its member; empty if there is none. Raises `Problem`
    (422)."""
    given = ("expression", asked.expression), ("where", asked.where), ("filters", asked.filters)
    ways = {name: value for name, value in given if value is not None}
    if len(ways) > 1:
        raise _invalid(f"give one of {' and '.join(ways)}, not both", *(f"/{name}" for name in ways))
    return ways


def _parts(asked: _Asked) -> tuple[str | Mapping[str, Any], ...]:
    """Returns the parts, all of which must hold."""
    parts: list[str | Mapping[str, Any]] = []
    if asked.expression is not None:
        parts.append(asked.expression)
    elif asked.where is not None:
        parts.append(asked.where)
    elif asked.filters is not None:
        parts.append(filters_to_tree(asked.filters))
    if asked.types is not None:
        parts.append({"in": ["ce.type", list(dict.fromkeys(asked.types))]})
    if asked.source is not None:
        parts.append({"=": ["ce.source", {"value": asked.source}]})  # a text such as ?n is no variable
    return tuple(parts)


def _check_sink(
    sink: str | None,
    protocol: str | None,
    protocolsettings: Mapping[str, Any] | None,
    sinkcredential: Mapping[str, Any] | None,
    throttling: float | None,
    settings: Settings,
) -> None:
    if sink is None:
        for name, value in (
            ("protocol", protocol),
            ("protocolsettings", protocolsettings),
            ("sinkcredential", sinkcredential),
            ("throttling", throttling),
        ):
            if value is not None:
                raise _invalid(
                    f"{name} is only for subscriptions with a sink: give a sink, or leave it out", f"/{name}"
                )
        return
    _check_url(sink, protocol, settings)
    _check_settings(protocol, protocolsettings)
    PROTOCOLS[protocol or DEFAULT_PROTOCOL].check(protocolsettings or {}, sinkcredential or {})


def _check_url(sink: str, protocol: str | None, settings: Settings) -> None:
    try:
        PROTOCOLS[protocol or DEFAULT_PROTOCOL].check_url(sink, settings)
    except SinkRefused as error:
        detail = str(error)
        raise Problem("sink-refused", detail, errors=[{"pointer": "/sink", "detail": detail}]) from None


def _check_settings(protocol: str | None, protocolsettings: Mapping[str, Any] | None) -> None:
    if not isinstance((protocolsettings or {}).get(EXPIRY_NOTICE, True), bool):
        raise _invalid(f"{EXPIRY_NOTICE} must be true or false", f"/protocolsettings/{EXPIRY_NOTICE}")
    headers = (protocolsettings or {}).get("headers")
    seen: set[str] = set()
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if value == HIDDEN:
            detail = f"the value of the header {name[:100]!r} is hidden: give it, or leave the header out"
            raise _invalid(detail, f"/protocolsettings/headers/{name[:100]}")
        if name.lower() in seen:
            detail = f"the header {name[:100]!r} is given twice: case does not matter in names of headers"
            raise _invalid(detail, f"/protocolsettings/headers/{name[:100]}")
        seen.add(name.lower())
    known = PROTOCOLS[protocol or DEFAULT_PROTOCOL].settings | {EXPIRY_NOTICE}
    for name in protocolsettings or {}:
        if name not in known:
            detail = f"the protocol {protocol or DEFAULT_PROTOCOL} has no setting {name[:100]!r}; it has: "
            raise _invalid(detail + ", ".join(sorted(known)), f"/protocolsettings/{name[:100]}")


def _new_secret(repeatable: Repeatable | None = None) -> str:
    return "whsec_" + base64.b64encode(random_bytes("secret", SECRET_BYTES, repeatable)).decode("ascii")


def read_key(key: str | None, caller: Caller) -> Repeatable | None:
    """Reads the header `Idempotency-Key`. Raises `Problem` (422)."""
    if key is None:
        return None
    plain = key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
    if not KEY_CHARACTERS[0] <= len(plain) <= KEY_CHARACTERS[1]:
        least, most = KEY_CHARACTERS
        raise _invalid(
            f"an Idempotency-Key has {least} to {most} characters that nobody can guess, such as a new UUID",
            "",
        )
    return Repeatable.of(caller.owner, plain)


def _invalid(detail: str, *pointers: str) -> Problem:
    return Problem("invalid-request", detail, errors=[{"pointer": pointer, "detail": detail} for pointer in pointers])


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

MAX_PAGE = 1_000
LISTED_BYTES = 4 << 20
"""A page of a list ends after so many bytes: more than `MAX_PAGE` subscriptions of a usual size have."""
EXPORTED_BYTES = 1 << 20
"""A page of an export ends after so many bytes, because subscriptions may be large."""
HIDDEN = "(hidden)"
OVERLAP_SECONDS = 86_400.0
MAX_OVERLAP_SECONDS = 30 * 86_400.0
"""The longest time in which two secrets are valid."""
IMPORTED_TOGETHER = 1_000
"""The number of lines of an import in one command: enough that many have the same shape, and few enough that publishers
wait only some tens of ms."""
BYTES_TOGETHER = 1 << 18
"""Long lines have a command of their own after so many bytes, because a long text takes a second to compile."""

Id = Annotated[str, Path(max_length=100, description="The id of the subscription.")]
IfMatch = Annotated[
    str | None,
    Header(
        max_length=4_096,
        description="Change the subscription only if it still has this ETag; otherwise the answer is 412.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=4_096,
        description="A new UUID. If you repeat the request with the same UUID, no second subscription is made and the "
        "answer is the same. With another request the answer is 422. Keep it as secret as the ticket.",
    ),
]


@router.post("", summary="Subscribe", status_code=201, openapi_extra=body_schema(SubscriptionBody.model_json_schema()))
async def subscribe(
    request: Request,
    broker: AppBroker,
    settings: AppSettings,
    caller: AppCaller,
    reader: AppEventReader,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Creates a subscription. The answer has the `ticket` and, with a sink, the webhook `secret`. Neither is shown
    again. Every event that is accepted after this answer is matched against the subscription. `start_at` adds stored
    events, which are delivered first. `notes` also name possible mistakes: an attribute that no recent event has and
    whose name is similar to another's, or numbers compared with quantities. Send an `Idempotency-Key` so that you can
    repeat the request if its answer is lost."""
    repeatable = read_key(idempotency_key, caller)
    row, created = await _create(await json_object(request, settings), broker, settings, caller, reader, repeatable)
    return answer(created, 201, {"Location": f"/v1/subscriptions/{row.id}", **_etag(row)})


@router.get("", summary="List subscriptions")
async def list_all(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    status: Annotated[Status | None, Query(description="Only subscriptions with this status.")] = None,
    flagged: Annotated[
        bool | None,
        Query(
            description=(
                "true: only subscriptions that use something removed from the vocabulary; false: only the others."
            )
        ),
    ] = None,
    q: Annotated[
        str,
        Query(
            max_length=200,
            description="Only subscriptions with this text in their id, expression or metadata. Upper and lower case "
            "are the same; with SQLite, only for the letters of English.",
        ),
    ] = "",
    newest_first: Annotated[
        bool, Query(description="Newest first. Use a cursor with the order that it came from.")
    ] = False,
) -> Response:
    """Lists a page of subscriptions in the order of their creation, or newest first. The header Link has the next page.
    A page of large subscriptions has fewer than `limit`. An auditor sees only the server of a sink."""
    now, version = CLOCK.now(), broker.vocabulary.version
    wanted: tuple[str, ...] = () if status is None else (status,)
    if status in SHOWN_AS and reader_of(caller, broker).view is not None:
        wanted = SHOWN_AS[status]
    rows = partial(
        subscriptions.list_subscriptions, statuses=wanted, flagged=flagged, newest_first=newest_first, text=q, now=now
    )

    def shown(row: Row[Any]) -> dict[str, Any] | None:
        told = _shown(row, version, now) | sink_for(caller, row)
        told |= _kept_back(caller, broker, row, told)
        return told if status is None or told["status"] == status else None  # as it is shown: it may be hidden

    listed, following = await read_page(broker, rows, shown, cursor, limit)
    return answer({"subscriptions": listed, "cursor": following}, headers=next_page(request, following))


async def read_page(
    broker: Broker,
    rows: Callable[..., CursorResult[Any]],
    shown: Callable[[Row[Any]], dict[str, Any] | None],
    cursor: str | None,
    limit: int,
) -> tuple[list[msgspec.Raw], str | None]:
    """Returns a page of a list as JSON, and the cursor of the next page, if there may be one. `shown` returns None for
    a row that does not belong to the list. A page ends early after `LISTED_BYTES`."""
    found: list[tuple[int, bytes]] = []
    after: int | None = parse_page_cursor(cursor)
    while after is not None and len(found) <= limit and sum(len(each) for _, each in found) < LISTED_BYTES:
        some, after = await broker.read(partial(_read_rows, rows=rows, shown=shown, after=after, limit=limit + 1))
        found += some
    has_more = len(found) > limit or after is not None
    page = found[:limit]
    return [msgspec.Raw(each) for _, each in page], page_cursor(page[-1][0]) if has_more else None


def _read_rows(
    connection: Connection,
    rows: Callable[..., CursorResult[Any]],
    shown: Callable[[Row[Any]], dict[str, Any] | None],
    after: int,
    limit: int,
) -> tuple[list[tuple[int, bytes]], int | None]:
    """Returns the next subscriptions of a list, each with its number, and the number of the last one that was read;
    None if there is no other. Runs in a worker thread."""
    found: list[tuple[int, bytes]] = []
    size = count = 0
    with short_turns(), rows(connection, after=after, limit=limit) as result:
        for row in result:
            if size >= LISTED_BYTES:
                return found, after
            after, count = row.number, count + 1
            if (told := shown(row)) is not None:
                found.append((row.number, msgspec.json.encode(told)))
                size += len(found[-1][1])
    return found, after if count == limit else None


@router.get("/export", summary="Export subscriptions", response_class=StreamingResponse)
async def export(broker: AppBroker, caller: AppCaller) -> Response:
    """Returns NDJSON with one subscription per line, which can be imported. The expression has IRIs instead of labels,
    so that it means the same elsewhere, and it includes `types`, `source` and `filters`. If it is too long for a text,
    it is a tree (`where`). `asked` is the original form, which the import keeps if it has the same meaning. A line also
    has the sink, the end time, the metadata, and whether the subscription is paused. Secrets, credentials, values of
    headers, and expired subscriptions are left out."""
    return StreamingResponse(_exported(broker, caller), media_type="application/x-ndjson")


@router.post("/export", summary="Export subscriptions with their secrets", response_class=StreamingResponse)
async def export_with_secrets(request: Request, broker: AppBroker, caller: AppCaller) -> Response:
    """Like the export with GET, but with the webhook secrets, the credentials and headers for sinks, and the hashes of
    the tickets. If the subscriptions are imported elsewhere, ids and tickets stay valid, and receivers see no
    difference. For administrators."""
    audit_detail(request, "with secrets")
    return StreamingResponse(_exported(broker, caller, secrets=True), media_type="application/x-ndjson")


LINES = {
    "requestBody": {
        "required": False,  # without lines, nothing is imported
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("/import", summary="Import subscriptions", openapi_extra=LINES)
async def import_lines(
    request: Request,
    broker: AppBroker,
    settings: AppSettings,
    caller: AppCaller,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Imports NDJSON with one subscription per line in the form of the export. The `id` of a line, if any, is returned
    as `was`. It is kept if the line has a `ticket_hash`. A bad line does not stop the others. With an `Idempotency-Key`
    the same lines can be sent again: subscriptions that exist already are not created twice."""
    repeatable = read_key(idempotency_key, caller)
    check_encoding(request.headers.get("content-encoding"))
    body = await request.body()
    numbered = list(islice(numbered_lines(body), settings.max_events_per_request + 1))
    if len(numbered) > settings.max_events_per_request:
        raise Problem("too-many-lines", f"send at most {settings.max_events_per_request:,} lines at a time")
    created, rejected = [], []
    with broker.compilers.lent() as compiler:
        for some in _together(numbered):
            results = await _import(some, broker, settings, caller, repeatable, compiler)
            for (number, _), result in zip(some, results, strict=True):
                if isinstance(result, dict):
                    created.append({"line": number, **result})
                else:
                    rejected.append({"line": number, "problem": as_document(problem_of(result))})
    return answer({"created": created, "rejected": rejected})


@router.get("/{id}", summary="One subscription")
async def get_one(id: Id, broker: AppBroker, caller: AppCaller) -> Response:
    """Returns a subscription: its expression, status, counters and last failure, the number of waiting messages, since
    when they wait, and the number of messages that were deleted because of their age before they were delivered."""

    def read(connection: Connection) -> tuple[Row[Any], dict[str, Any]]:
        row = subscriptions.find_subscription(connection, id)
        if row is None:
            raise UnknownSubscription(id)
        waiting = subscriptions.count_pending(connection, row.number)
        return row, {
            "pending": waiting,
            "pending_since": moment(waits_since(connection, row.number) if waiting else None),
            "discarded": count_undelivered(connection, row.number),
            "waiting_for_operators": pending_store.count_waiting(connection, row.number),
        }

    row, counts = await broker.read(read)
    told = _shown(row, broker.vocabulary.version, CLOCK.now()) | sink_for(caller, row) | counts
    return answer(told | _kept_back(caller, broker, row, told), headers=_etag(row))


@router.get("/{id}/plan", summary="The expected cost of a subscription's operators")
async def plan(id: Id, broker: AppBroker, caller: AppCaller, late_matching: AppLateMatching) -> Response:
    """Returns the calls of each clause in the order that is cheapest for this subscription alone. Each call has its
    expected cost, the probability that it holds, and the number of clauses of all subscriptions that share it. If
    matching is sharded, the clauses are those of the shards at this server."""
    row = await broker.read(lambda connection: subscriptions.find_subscription(connection, id))
    if row is None:
        raise UnknownSubscription(id)
    check_visible(reader_of(caller, broker).view, row.tree)
    told = await subscription_plan(late_matching.late_matchers, row, broker.vocabulary)
    return answer({"subscription": row.id, **told})


@router.patch(
    "/{id}", summary="Change a subscription", openapi_extra=body_schema(SubscriptionChange.model_json_schema())
)
async def change(
    request: Request,
    id: Id,
    broker: AppBroker,
    settings: AppSettings,
    ticket: Ticket,
    if_match: IfMatch = None,
) -> Response:
    """Changes sink, delivery options, metadata or end time. The answer to the first sink has the webhook `secret`. With
    another sink, `protocolsettings` or `sinkcredential`, a failing or disabled webhook is active again and tried at
    once. The expression cannot be changed: create another subscription instead."""
    body = await json_object(request, settings)
    present = await broker.read(lambda connection: subscriptions.find_subscription(connection, id))
    values = read_change(body, settings, present)
    row = await broker.update_subscription(id, ticket, values, entity_tags(if_match))
    told = _told(row, broker, ticket)
    if row.secret is not None and row.secret == values.get("secret"):
        told["secret"] = row.secret
    return answer(told, headers=_etag(row))


@router.delete("/{id}", summary="Unsubscribe")
async def unsubscribe(id: Id, broker: AppBroker, ticket: Ticket, if_match: IfMatch = None) -> Response:
    """Deletes a subscription with its waiting messages, and returns the deleted subscription."""
    return _current(await broker.delete_subscription(id, ticket, entity_tags(if_match)), broker, ticket)


@router.post("/{id}/renew", summary="Renew", openapi_extra=body_schema(RenewBody.model_json_schema(), required=False))
async def renew(
    request: Request,
    id: Id,
    broker: AppBroker,
    settings: AppSettings,
    ticket: Ticket,
    if_match: IfMatch = None,
) -> Response:
    """Sets the end time. A subscription that expired in the last days matches again from now on, unless it was
    paused."""
    asked = read_body(RenewBody, await json_object(request, settings, optional=True))
    return _current(await broker.renew(id, ticket, ending(asked, settings), entity_tags(if_match)), broker, ticket)


@router.post("/{id}/pause", summary="Pause")
async def pause(id: Id, broker: AppBroker, ticket: Ticket, if_match: IfMatch = None) -> Response:
    """Stops matching. Events that are accepted during the pause do not match. Messages that wait already are kept."""
    return _current(await broker.pause(id, ticket, entity_tags(if_match)), broker, ticket)


@router.post("/{id}/resume", summary="Resume")
async def resume(id: Id, broker: AppBroker, ticket: Ticket, if_match: IfMatch = None) -> Response:
    """Resumes after a pause, or after the webhook was disabled. Waiting messages are sent at once."""
    return _current(await broker.resume(id, ticket, entity_tags(if_match)), broker, ticket)


class RotationBody(_Strict):
    """How long the present secret stays valid; one day by default."""

    overlap_seconds: Annotated[Number, Field(ge=0, le=MAX_OVERLAP_SECONDS)] = OVERLAP_SECONDS


@router.post(
    "/{id}/rotate-secret",
    summary="A new webhook secret",
    openapi_extra=body_schema(RotationBody.model_json_schema(), required=False),
)
async def rotate_secret(
    request: Request,
    id: Id,
    broker: AppBroker,
    settings: AppSettings,
    ticket: Ticket,
    if_match: IfMatch = None,
) -> Response:
    """Returns a new `secret`, which is not shown again. For `overlap_seconds`, each delivery is signed with both
    secrets, so that a receiver can switch without losing a message."""
    asked = read_body(RotationBody, await json_object(request, settings, optional=True))
    secret = _new_secret()
    row = await broker.rotate_secret(id, ticket, secret, asked.overlap_seconds, entity_tags(if_match))
    told = _told(row, broker, ticket) | {"secret": secret}
    return answer(told, headers=_etag(row))


class ReplayBody(_Strict):
    """The start of a replay: a cursor or a time. Without either, it starts at the first message that is kept."""

    after: Annotated[str | None, Field(max_length=20, description="A cursor: all later messages are replayed.")] = None
    since: Annotated[
        Moment | None, Field(description="RFC 3339: all events accepted at or after this time are replayed.")
    ] = None


@router.post(
    "/{id}/replay", summary="Deliver again", openapi_extra=body_schema(ReplayBody.model_json_schema(), required=False)
)
async def replay(
    request: Request,
    id: Id,
    broker: AppBroker,
    settings: AppSettings,
    ticket: Ticket,
    if_match: IfMatch = None,
) -> Response:
    """Moves the cursor back, to a cursor or a time. The stored messages after it are delivered again, to any reader or
    sink of the subscription. The cursor never moves forward. A webhook that failed is tried again at once. A message
    that is delivered again has the same cursor and the same `webhook-id`."""
    asked = read_body(ReplayBody, await json_object(request, settings, optional=True))
    if asked.after is not None and asked.since is not None:
        raise _invalid("give after or since, not both", "/after", "/since")

    def position(connection: Connection) -> int:
        if asked.since is not None:
            return position_before(connection, _utc(asked.since).timestamp())
        return 0 if asked.after is None else parse_cursor(connection, asked.after)

    return _current(await broker.replay(id, ticket, position, entity_tags(if_match)), broker, ticket)


# ── creation ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _create(
    body: dict[str, Any],
    broker: Broker,
    settings: Settings,
    caller: Caller,
    reader: EventReader,
    repeatable: Repeatable | None,
) -> tuple[Row[Any], dict[str, Any]]:
    check_size(body, settings)
    new, ticket = await run_to_the_end(partial(read_new, body, settings, caller, repeatable))
    created: dict[str, Any] = {"id": new.id, "ticket": ticket}
    if (after := read_start(body)) is None:
        row = await broker.create_subscription(new, caller.quota)
    else:
        row, past = await broker.create_with_past(new, after, caller.quota)
        if past is not None:
            created["backfill"] = {
                "events": past.read,
                "matched": len(past.matched),
                "undecided": len(past.undecided),
                "unreadable": past.unreadable,
            }
    if row.secret is not None:
        created["secret"] = row.secret
    shown = _shown(row, broker.vocabulary.version, CLOCK.now())
    seen = await recent_attributes(broker, reader, caller.roles)
    vocabulary, operators = broker.vocabulary, broker.state.operators

    def advised() -> tuple[Note, ...]:
        return advise(restore_expression(row.tree, vocabulary, operators.available), vocabulary, seen)

    said = await run_in_turn(advised, new.size, caller.owner)
    shown["notes"] = [*shown["notes"], *as_records(said)]
    return row, created | shown


def check_size(body: dict[str, Any], settings: Settings) -> None:
    """Checks the size of a subscription. Raises `Problem` (413)."""
    if not _fits(body, settings):
        raise Problem("body-too-large", f"a subscription has at most {settings.max_subscription_bytes:,} bytes")


def _fits(body: Mapping[str, Any], settings: Settings) -> bool:
    return len(msgspec.json.encode(body)) <= settings.max_subscription_bytes


def _together(lines: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yields the lines that are imported by one command."""
    some: list[tuple[int, bytes]] = []
    size = 0
    for number, line in lines:
        if len(some) == IMPORTED_TOGETHER or (some and size + len(line) > BYTES_TOGETHER):
            yield some
            some, size = [], 0
        some.append((number, line))
        size += len(line)
    if some:
        yield some


async def _import(
    lines: Sequence[tuple[int, bytes]],
    broker: Broker,
    settings: Settings,
    caller: Caller,
    repeatable: Repeatable | None,
    compiler: BulkCompiler,
) -> list[dict[str, Any] | Exception]:
    """Creates the subscriptions of numbered lines. Returns the result or the error of each line. An error may be
    `StoreUnavailable`, because other lines may be stored."""

    def read_all() -> list[tuple[NewSubscription, str | None, Any] | Exception]:
        parts = [None if repeatable is None else repeatable.of_part(number) for number, _ in lines]
        return [_read_line(line, settings, caller, part) for (_, line), part in zip(lines, parts, strict=True)]

    size = sum(len(line) for _, line in lines)
    read = await run_in_turn(read_all, size, caller.owner)
    asked = [each for each in read if not isinstance(each, Exception)]
    made: Sequence[Exception | None]
    try:
        wanted = [new for new, _, _ in asked]
        made = await broker.create_subscriptions(wanted, size, compiler, caller.quota) if wanted else []
    except ServerError as error:
        made = [error] * len(asked)
    outcomes = iter(made)
    results: list[dict[str, Any] | Exception] = []
    for each in read:
        if isinstance(each, Exception):
            results.append(each)
            continue
        new, ticket, was = each
        shown = {"was": was, "id": new.id} | ({} if ticket is None else {"ticket": ticket})
        if new.secret is not None:
            shown["secret"] = new.secret
        results.append(next(outcomes) or shown)
    return results


def _read_line(
    line: bytes, settings: Settings, caller: Caller, repeatable: Repeatable | None
) -> tuple[NewSubscription, str | None, Any] | Exception:
    """Returns the request in a line, its ticket if that is new, and its old id; or the error of the line."""
    try:
        body = decode(line)
        may_be_deep = line.count(b"{") + line.count(b"[") > settings.max_json_depth
        if not isinstance(body, dict):
            return Problem("invalid-request", "a line must be a JSON object")
        if may_be_deep and not depth_within(body, settings.max_json_depth):
            return Problem("too-deep", f"the JSON is nested deeper than {settings.max_json_depth} levels")
        if len(line) * MOST_GROWTH > settings.max_subscription_bytes:
            check_size({"asked": body.get("asked")}, settings)
            body = _shorter(body, settings)
            check_size(body | {"asked": None}, settings)
        if isinstance(body.get("sink"), str) and body["sink"].endswith(CUT):
            raise _invalid("the export left out the path of the sink: write the whole address", "/sink")
        if body.get("start_at") is not None:
            raise _invalid("an imported subscription gets only new events: leave start_at out", "/start_at")
        kept = {name: body.pop(name) for name in _KEPT if name in body}
        was = body.get("id")
        new, ticket = read_new(body, settings, caller, repeatable)
        return (*_restored(new, ticket, was, read_body(_Kept, kept)), was) if kept else (new, ticket, was)
    except (Problem, RequestValidationError, SemanticError, ServerError, SinkRefused, MalformedJson) as error:
        return error


def _shorter(body: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Returns a line with the expression as it was written, if the line is too long with the IRIs of its terms."""
    asked = body.get("asked")
    if not isinstance(asked, dict) or _fits(body | {"asked": None}, settings):
        return body
    return {name: value for name, value in body.items() if name not in ("expression", "where", "asked")} | asked


Secret = Annotated[str, Field(pattern=r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}$")]


class _Kept(_Strict):
    """Members of a line that only an export has: the state of the exported subscription."""

    status: Literal["active", "paused", "failing", "disabled_by_failures"] = "active"
    asked: _Asked | None = None
    secret: Secret | None = None
    old_secret: Secret | None = None
    old_secret_until: Moment | None = None
    ticket_hash: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None


_KEPT = tuple(_Kept.model_fields)


def _restored(new: NewSubscription, ticket: str, was: Any, kept: _Kept) -> tuple[NewSubscription, str | None]:
    """Adds the state of the exported subscription. A ticket that is still valid is not shown. Raises `Problem`
    (422)."""
    if kept.status == "paused":
        new = structs.replace(new, status="paused")
    if kept.asked is not None:
        types = None if kept.asked.types is None else tuple(kept.asked.types)
        parts = _parts(kept.asked)
        written = Written(asked=_ways(kept.asked), types=types, source=kept.asked.source, parts=parts)
        new = structs.replace(new, written=written)
    if kept.secret is not None:
        new = structs.replace(new, secret=kept.secret)
    if kept.old_secret is not None and kept.old_secret_until is not None:
        until = _utc(kept.old_secret_until).timestamp()
        new = structs.replace(new, old_secret=kept.old_secret, old_secret_until=until)
    if kept.ticket_hash is None:
        return new, ticket
    if not isinstance(was, str) or not SUBSCRIPTION_ID.fullmatch(was):
        raise _invalid("with ticket_hash goes the id of the subscription, as the export has it", "/id")
    return structs.replace(new, id=was, ticket_hash=kept.ticket_hash, repeatable=True), None


async def _exported(broker: Broker, caller: Caller, *, secrets: bool = False) -> AsyncIterator[bytes]:
    """Yields the lines of an export. The store is read page by page."""
    after: int | None = 0
    while after is not None:
        page = partial(_exported_page, vocabulary=broker.vocabulary, caller=caller, after=after, secrets=secrets)
        lines, after = await broker.read(page)
        if lines:
            yield lines


def _exported_page(
    connection: Connection, vocabulary: Vocabulary, caller: Caller, after: int, secrets: bool
) -> tuple[bytes, int | None]:
    """Returns the next lines of an export, and the number of the last subscription that was read (None at the
    end of the export)."""
    now, last, lines = CLOCK.now(), None, bytearray()
    with short_turns(), subscriptions.list_subscriptions(connection, after=after, limit=MAX_PAGE) as rows:
        for row in rows:
            last = row.number
            if row.expires_at > now:
                lines += msgspec.json.encode(_line(row, vocabulary, secrets=secrets) | sink_for(caller, row)) + b"\n"
            if len(lines) >= EXPORTED_BYTES:
                break
    return bytes(lines), last


def _line(row: Row[Any], vocabulary: Vocabulary, *, secrets: bool) -> dict[str, Any]:
    """Returns a subscription as a line of an export. The failures of a webhook are not part of it, because it starts
    anew elsewhere."""
    plain = {name: value for name, value in (row.protocolsettings or {}).items() if secrets or name != "headers"}
    asked = {**row.expression, "types": row.types, "source": row.source}
    asked = {name: value for name, value in asked.items() if value is not None}
    tree = as_new(row.tree, vocabulary)
    # With IRIs it may be longer than any text that can be read.
    is_text = tree is row.tree and len(row.canonical) <= MAX_EXPRESSION
    line = {
        "id": row.id,
        **({"expression": row.canonical} if is_text else {"where": tree}),
        "asked": None if asked == {"expression": row.canonical} else asked,
        "sink": row.sink,
        "protocol": row.protocol,
        "protocolsettings": plain or None,
        **{name: getattr(row, name) for name in ("metadata", "attributes")},
        "throttling": row.throttling,
        "expires_at": moment(row.expires_at),
        "status": "paused" if row.status == "paused" else None,
    }
    if secrets:
        line |= {name: getattr(row, name) for name in ("sinkcredential", "secret", "ticket_hash")}
        if row.old_secret is not None and row.old_secret_until > CLOCK.now():
            line |= {"old_secret": row.old_secret, "old_secret_until": moment(row.old_secret_until)}
    if row.sink is None:
        line |= dict.fromkeys(("protocol", "protocolsettings", "sinkcredential", "throttling"))
    return {name: value for name, value in line.items() if value is not None}


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _current(row: Row[Any], broker: Broker, claim: Claim) -> Response:
    return answer(_told(row, broker, claim), headers=_etag(row))


def _told(row: Row[Any], broker: Broker, caller: Caller | Claim) -> dict[str, Any]:
    """Returns a subscription as the user who changes it may see it."""
    told = _shown(row, broker.vocabulary.version, CLOCK.now())
    return told | _kept_back(caller, broker, row, told)


def _etag(row: Row[Any]) -> dict[str, str]:
    return {"ETag": f'"{entity_tag(row)}"'}


def entity_tags(if_match: str | None) -> list[str] | None:
    """Returns the tags of the header. Weak tags are ignored (RFC 9110, 13.1.1)."""
    if if_match is None:
        return None
    return [each.strip().strip('"') for each in if_match.split(",") if not each.strip().startswith("W/")]


def _shown(row: Row[Any], vocabulary_version: str, now: float) -> dict[str, Any]:
    """Returns a subscription as anybody may see it: without ticket, secret, credential, and values of extra headers."""
    over = row.expires_at <= now
    return {
        "id": row.id,
        "status": "expired" if over else row.status,
        "status_reason": subscriptions.NOT_RENEWED if over else row.status_reason,
        **row.expression,
        "types": row.types,
        "source": row.source,
        "canonical": row.canonical,
        "clauses": row.clauses,
        "cost": row.cost,
        "notes": row.notes,
        "flagged": row.flagged,
        "sink": row.sink,
        "protocol": row.protocol,
        "protocolsettings": settings_shown(row.protocolsettings),
        "sinkcredential": credential_shown(row.sinkcredential),
        "metadata": row.metadata,
        "attributes": row.attributes,
        "throttling": row.throttling,
        "created_at": moment(row.created_at),
        "expires_at": moment(row.expires_at),
        "vocabulary_version": vocabulary_version,
        "cursor": str(max(row.acked, row.created_sequence)),
        "times_sent": row.times_sent,
        "times_failed": row.times_failed,
        "last_success": moment(row.last_success),
        "last_failure": moment(row.last_failure),
        "last_error": row.last_error,
        "consecutive_errors": row.consecutive_errors,
        "next_attempt_at": moment(row.next_attempt_at),
        "undecided": row.undecided,
        "last_undecided": moment(row.last_undecided),
        "last_undecided_reason": row.last_undecided_reason,
        "last_undecided_kind": row.last_undecided_kind,
    }


def sink_for(caller: Caller, row: Row[Any]) -> dict[str, Any]:
    """Returns the sink as the caller may see it. A caller who may not see payloads sees only its server."""
    return {} if caller.sees_payloads or row.sink is None else {"sink": server_of(row.sink)}


COUNTERS = (
    *("times_sent", "times_failed", "consecutive_errors", "undecided"),
    *("pending", "discarded", "waiting_for_operators"),
)
OF_MATCHES = (
    *("last_success", "last_failure", "last_error", "next_attempt_at", "pending_since"),
    *("last_undecided", "last_undecided_reason", "last_undecided_kind"),
)


SHOWN_AS: Final = {"active": ("active", "failing", "disabled_by_failures")}
"""The statuses of subscriptions that are shown with another one, if their matches are hidden: see `_kept_back`."""


def _kept_back(caller: Caller | Claim, broker: Broker, row: Row[Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns replacements for members that would show matches by hidden attributes: as if nothing was sent and nothing
    waits."""
    hidden = hidden_in(reader_of(caller, broker).view, row.tree)
    if not hidden:
        return {}
    kept: dict[str, Any] = dict.fromkeys((each for each in COUNTERS if each in told), 0)
    kept |= dict.fromkeys(each for each in OF_MATCHES if each in told)
    silent = told["status"] in ("paused", "expired")
    status = {} if silent else {"status": "active", "status_reason": f"{HiddenAttribute(hidden)}"}
    return kept | status | {"cursor": str(row.created_sequence)}


def settings_shown(protocolsettings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns settings as anybody may see them. Headers may contain secrets, so their values are hidden."""
    if protocolsettings is None:
        return None
    headers = protocolsettings.get("headers")
    return {**protocolsettings, "headers": dict.fromkeys(headers, HIDDEN)} if headers else dict(protocolsettings)


def credential_shown(credential: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns only the type of a credential."""
    return None if credential is None else {"credentialtype": credential.get("credentialtype")}
