"""Validation of subscription requests: a request body → `NewSubscription`, or the columns that a change sets."""

import base64
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kindcast.server.api.error_responses import Problem
from kindcast.server.api.requests import not_yet
from kindcast.server.broker.subscription_commands import NewSubscription
from kindcast.server.delivery.webhook import check_protocol
from kindcast.server.filters import filters_to_tree
from kindcast.server.security.egress import SinkRefused, check_sink
from kindcast.server.security.tickets import hashed, new_ticket
from kindcast.server.settings import Settings

__all__ = ["RenewBody", "SubscriptionBody", "SubscriptionChange", "ending", "read_body", "read_change", "read_new"]

Model = TypeVar("Model", bound=BaseModel)

NOT_YET = {
    "start_at": "backfill (start_at)",
    "attributes": "choosing the payload (attributes)",
    "throttling": "throttling",
    "config": "config",
}
"""Members of the contract, or of the CloudEvents subscription object, that this version does not honour."""

SECRET_BYTES = 32
"""Of a webhook secret; Standard Webhooks wants 24 to 64."""

ID_BYTES = 8

Text = Annotated[str, Field(min_length=1, max_length=2_048)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Ending(_Strict):
    expires_at: Annotated[datetime | None, Field(description="RFC 3339; without an offset it is UTC.")] = None
    ttl_seconds: Annotated[float | None, Field(gt=0, description="From now.")] = None


class SubscriptionChange(_Ending):
    """What PATCH may change: where and how it is delivered, metadata, and when it ends."""

    sink: Annotated[str | None, Field(max_length=2_048, description="Where the webhook goes.")] = None
    protocol: Literal["HTTP"] | None = None
    protocolsettings: Annotated[dict[str, Any] | None, Field(description="`method` and `headers`.")] = None
    sinkcredential: Annotated[dict[str, Any] | None, Field(description="PLAIN or ACCESSTOKEN; write-only.")] = None
    metadata: Annotated[dict[str, Any] | None, Field(description="Yours; kept and shown.")] = None


class SubscriptionBody(SubscriptionChange):
    """One of `expression` (text), `where` (tree) and `filters` (CloudEvents); `types` and `source` narrow it further.
    Without a `sink` it is read by pull or stream."""

    expression: Annotated[str | None, Field(max_length=65_536)] = None
    where: dict[str, Any] | None = None
    filters: Annotated[list[Any] | None, Field(max_length=1_000)] = None
    types: Annotated[list[Text] | None, Field(min_length=1, max_length=1_000, description="CloudEvents types.")] = None
    source: Annotated[Text | None, Field(description="The source of its events.")] = None
    id: Annotated[str | None, Field(description="Ignored: the server chooses.")] = None


class RenewBody(_Ending):
    """When it ends from now on; the default time to live without either."""


def read_body(model: type[Model], body: Mapping[str, Any]) -> Model:
    """Raises `Problem` (501) for members of the contract that this version lacks, `RequestValidationError` for
    others."""
    for name, what in NOT_YET.items():
        if body.get(name):
            raise not_yet(what, f"/{name}")
    try:
        return model.model_validate({name: value for name, value in body.items() if name not in NOT_YET})
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
        raise RequestValidationError(found) from None


def read_new(body: Mapping[str, Any], settings: Settings) -> tuple[NewSubscription, str]:
    """A new subscription, and its ticket, which exists nowhere else.

    Raises `Problem`, `RequestValidationError`, `InvalidSubscription` for bad filters, `SinkRefused`.
    """
    asked = read_body(SubscriptionBody, body)
    ways = {name: value for name in ("expression", "where", "filters") if (value := body.get(name)) is not None}
    if len(ways) > 1:
        raise _invalid(f"give one of {' and '.join(ways)}, not both", *(f"/{name}" for name in ways))
    if not ways and asked.types is None and asked.source is None:
        raise _invalid("say what you want as expression, where or filters; an empty expression means every event", "")
    _check_sink(asked.sink, asked.protocol, asked.protocolsettings, asked.sinkcredential, settings)
    ticket = new_ticket()
    new = NewSubscription(
        id=f"sub_{secrets.token_hex(ID_BYTES)}",
        asked=ways,
        parts=_parts(asked),
        ticket_hash=hashed(ticket),
        expires_at=ending(asked, settings),
        sink=asked.sink,
        protocol=None if asked.sink is None else "HTTP",
        protocolsettings=asked.protocolsettings,
        sinkcredential=asked.sinkcredential,
        secret=None if asked.sink is None else _new_secret(),
        types=None if asked.types is None else tuple(asked.types),
        source=asked.source,
        metadata=asked.metadata,
    )
    return new, ticket


def read_change(body: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The columns that a PATCH sets; null takes a value away. A sink that was not there before gets a secret.

    Raises `Problem`, `RequestValidationError`, `SinkRefused`.
    """
    asked = read_body(SubscriptionChange, body)
    values = {name: getattr(asked, name) for name in asked.model_fields_set & set(SubscriptionChange.model_fields)}
    for name in ("expires_at", "ttl_seconds", "protocol"):
        values.pop(name, None)
    if asked.expires_at is not None or asked.ttl_seconds is not None:
        values["expires_at"] = ending(asked, settings)
    if asked.sink is not None:
        _check_url(asked.sink, settings)
    if "sink" in values:
        values |= {"protocol": "HTTP", "secret": _new_secret()} if asked.sink is not None else {"protocol": None}
    check_protocol(asked.protocolsettings or {}, asked.sinkcredential or {})
    _check_settings(asked.protocolsettings)
    return values


def ending(asked: _Ending, settings: Settings) -> float:
    """When it ends, in Unix seconds. Raises `Problem` (422)."""
    now = time.time()
    if asked.expires_at is not None and asked.ttl_seconds is not None:
        raise _invalid("give expires_at or ttl_seconds, not both", "/expires_at", "/ttl_seconds")
    if asked.expires_at is None:
        end = now + (asked.ttl_seconds or settings.default_ttl_seconds)
    else:
        end = (asked.expires_at if asked.expires_at.tzinfo else asked.expires_at.replace(tzinfo=UTC)).timestamp()
    name = "/expires_at" if asked.expires_at is not None else "/ttl_seconds"
    if end <= now:
        raise _invalid("it would have expired already", name)
    if end > now + settings.max_ttl_seconds + 1.0:
        raise _invalid(f"at most {settings.max_ttl_seconds / 86_400.0:g} days from now: renew it in time", name)
    return end


def _parts(asked: SubscriptionBody) -> tuple[str | Mapping[str, Any], ...]:
    """What must all hold."""
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
        parts.append({"=": ["ce.source", asked.source]})
    return tuple(parts)


def _check_sink(
    sink: str | None,
    protocol: str | None,
    protocolsettings: Mapping[str, Any] | None,
    sinkcredential: Mapping[str, Any] | None,
    settings: Settings,
) -> None:
    if sink is None:
        for name, value in (
            ("protocol", protocol),
            ("protocolsettings", protocolsettings),
            ("sinkcredential", sinkcredential),
        ):
            if value is not None:
                raise _invalid(f"{name} is for webhooks: give a sink as well, or leave it out", f"/{name}")
        return
    _check_url(sink, settings)
    _check_settings(protocolsettings)
    check_protocol(protocolsettings or {}, sinkcredential or {})


def _check_url(sink: str, settings: Settings) -> None:
    try:
        check_sink(sink, allow_private=settings.allow_private_sinks)
    except SinkRefused as error:
        detail = str(error)
        raise Problem(422, "sink-refused", detail, errors=[{"pointer": "/sink", "detail": detail}]) from None


def _check_settings(protocolsettings: Mapping[str, Any] | None) -> None:
    for name in protocolsettings or {}:
        if name not in ("method", "headers"):
            raise not_yet(f"protocolsettings.{name[:100]}", f"/protocolsettings/{name[:100]}")


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode("ascii")


def _invalid(detail: str, *pointers: str) -> Problem:
    return Problem(
        422, "invalid-request", detail, errors=[{"pointer": pointer, "detail": detail} for pointer in pointers]
    )
