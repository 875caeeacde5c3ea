"""Commands on subscriptions. Each validates first, then writes the row and changes the matcher in one group.

    create ──▶ active ◀──▶ paused          pause, resume
                 │ ▲
                 ▼ │ renew, within the grace period
               expired ──▶ purged

The delivery sets `failing` and `disabled_by_failures`. Such subscriptions still match, so that nothing is lost.
"""

import asyncio
import dataclasses
import hmac
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import structs
from sqlalchemy import Connection, Row

from kindcast.semantic import Compiled, InvalidSubscription, Position, Vocabulary
from kindcast.semantic.model import Note
from kindcast.semantic.operators import Operator
from kindcast.semantic.subscriptions import (
    BulkCompiler,
    Described,
    DescribedMany,
    compile_expression,
    restore_expression,
)
from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import (
    Admitted,
    Group,
    admit,
    admit_many,
    introduce,
    introduce_many,
    set_expiry,
    set_status,
)
from kindcast.server.broker.state import Live
from kindcast.server.errors import (
    HiddenAttribute,
    IdempotencyKeyReused,
    ServerError,
    SinkMissing,
    SubscriptionChanged,
    SubscriptionGone,
    TooManySubscriptions,
    UnknownSubscription,
)
from kindcast.server.operators.registry import Registry, operators_of
from kindcast.server.security.egress import SinkRefused
from kindcast.server.security.keys import Claim, check_ticket
from kindcast.server.security.limits import NO_QUOTA, Quota
from kindcast.server.security.permissions import EVERYBODY, Roles, RolesOf, check_visible, hidden_in
from kindcast.server.store import deliveries, subscriptions
from kindcast.server.store.declarations import note_uses
from kindcast.server.store.deliveries import DISABLED

__all__ = [
    "NOT_COMPILABLE",
    "NewSubscription",
    "Refusal",
    "Tags",
    "Written",
    "as_records",
    "entity_tag",
    "is_flagged",
    "same_server",
]

Tags = Collection[str] | None
"""The entity tags of a conditional change: the subscription must have one of them. None is unconditional."""


NOT_COMPILABLE = "not-compilable"
FLAGS = frozenset(
    {
        NOT_COMPILABLE,
        "gone-concept",
        "gone-relation",
        "operator-gone",
        "unknown-attribute",
        "wrong-dimension",
        "no-order",
        "not-in-enumeration",
        "not-in-domain",
        "unreadable-constant",
        "operator-in-elements",
    }
)
"""The codes of notes that say that a part of a subscription uses something that was removed, or that is declared
differently now, or that only an old version accepted. Most such parts can never hold; one with a unit of another
dimension holds for events that publish such a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The original form of an exported subscription, and the `parts` that it must compile to."""

    asked: Mapping[str, Any]
    types: tuple[str, ...] | None
    source: str | None
    parts: tuple[str | Mapping[str, Any], ...]


class NewSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for a subscription. `asked` is the original expression under the name of its member. `parts`
    are the expressions to compile, all of which must hold: the original expression, and what `types` and `source`
    add."""

    id: str
    asked: Mapping[str, Any]
    parts: tuple[str | Mapping[str, Any], ...]
    ticket_hash: str
    expires_at: float
    sink: str | None = None
    protocol: str | None = None
    protocolsettings: Mapping[str, Any] | None = None
    sinkcredential: Mapping[str, Any] | None = None
    secret: str | None = None
    old_secret: str | None = None
    old_secret_until: float | None = None
    types: tuple[str, ...] | None = None
    source: str | None = None
    metadata: Mapping[str, Any] | None = None
    created_by: str | None = None
    """The name of the key that created it; None if there are no keys."""
    roles: Roles = None
    """The roles that decide which attributes the subscription may use."""
    attributes: Sequence[str] | None = None
    throttling: float | None = None
    """Seconds between two requests to the sink."""
    written: Written | None = None
    """Stored and shown instead of `asked`, `types` and `source` if it has the same meaning here."""
    repeatable: bool = False
    """Whether id, ticket and secret are derived from the `Idempotency-Key` of the request or come from an export. Then
    a stored subscription with this id means that the request was sent before."""
    status: Literal["active", "paused"] = "active"

    @property
    def size(self) -> int:
        """The bytes of the expressions to compile."""
        return sum(len(each) if isinstance(each, str) else len(msgspec.json.encode(each)) for each in self.parts)

    def placed(self, error: InvalidSubscription) -> InvalidSubscription:
        """Returns an error of a part with its places in the request."""
        if "filters" in self.asked:  # the part is a translation of them
            at = Position(pointer="/filters")
            return InvalidSubscription([dataclasses.replace(each, at=at) for each in error.problems])
        return error.below("/where" if "where" in self.asked else "")


def compile_new(new: NewSubscription, vocabulary: Vocabulary, operators: Mapping[str, Operator]) -> Compiled:
    """Compiles each part alone, so that errors have positions in the original text, and then all parts together.

    Raises `InvalidSubscription`.
    """
    try:
        compiled = [compile_expression(part, vocabulary, operators) for part in new.parts]
    except InvalidSubscription as error:
        raise new.placed(error) from None
    if len(compiled) == 1:
        return compiled[0]
    whole = restore_expression({"all": [each.tree for each in compiled]}, vocabulary, operators)
    notes = tuple(dict.fromkeys(note for each in (*compiled, whole) for note in each.notes))
    return whole.with_notes(notes)


def create(
    group: Group,
    new: NewSubscription,
    compiled: Compiled,
    vocabulary: Vocabulary,
    operators: Registry,
    sweeper: Sweeper,
    *,
    limit: int,
    quota: Quota = NO_QUOTA,
) -> Row[Any]:
    """Stores a subscription and adds it to the matcher. Returns its row.

    `compiled` was made outside the writer's thread. If the vocabulary or the operators have changed since, the
    subscription is compiled again. A repeated request stores nothing and returns the row of the first request. Raises
    `InvalidSubscription`, `TooManySubscriptions`, `IdempotencyKeyReused`, `HiddenAttribute`.
    """
    if (before := made_before(group.connection, new)) is not None:
        return before
    state = group.state
    if len(state.live_subscriptions) >= limit:
        raise TooManySubscriptions(f"this server takes at most {limit:,} subscriptions")
    if (reached := quota.reached(len(state.live_subscriptions), _owned_by(group, new.created_by, quota))) is not None:
        raise reached
    if vocabulary is not state.vocabulary or operators is not state.operators:
        compiled = compile_new(new, state.vocabulary, state.operators.available)
    check_visible(state.vocabulary.view_of_roles(new.roles), compiled.tree)
    number = subscriptions.insert_subscription(group.connection, new_row(group, new, Described.of(compiled)))
    note_uses(group.connection, number, operators_of(compiled.tree))
    live = Live(number, new.id, "active", new.expires_at, matching=False)
    sweeper.watch(admit(group, introduce(group, live, has_sink=new.sink is not None), compiled))
    return _row(group, new.id)


_FORM = (("expression", "asked"), ("types", "types"), ("source", "source"))
"""Column → member of `NewSubscription` and `Written`."""
_REST = (
    *((name, name) for name in ("ticket_hash", "sink", "protocol", "protocolsettings", "sinkcredential", "secret")),
    *((name, name) for name in ("metadata", "attributes", "throttling")),
)
"""Column → member of `NewSubscription`. These and `_FORM` must be equal in a repeated request."""


def made_before(connection: Connection, new: NewSubscription) -> Row[Any] | None:
    """Returns the row that the same request made earlier; None if there is none. Raises `IdempotencyKeyReused` if the
    key was used for another request, or if the subscription was changed since."""
    row = subscriptions.find_subscription(connection, new.id) if new.repeatable else None
    if row is not None and (refusal := _reuse(row, new)) is not None:
        raise refusal
    return row


def _reuse(row: Row[Any], new: NewSubscription) -> IdempotencyKeyReused | None:
    """Returns the error if the stored subscription is not the one that this request made."""

    def same(given: NewSubscription | Written, members: Iterable[tuple[str, str]]) -> bool:
        return all(getattr(row, column) == _as_stored(getattr(given, member)) for column, member in members)

    is_form = same(new, _FORM)
    if not is_form and new.written is not None:
        is_form = same(new.written, _FORM) and new.parts in ((row.canonical,), (row.tree,))
    if is_form and same(new, _REST):
        return None
    return IdempotencyKeyReused(
        "another request made a subscription with this id or Idempotency-Key, or that subscription was changed "
        "since: send a new key with a new request. To import an exported line under a new id, leave out its "
        "ticket_hash"
    )


def _as_stored(value: Any) -> Any:
    """Returns a value in the form in which a JSON column stores it. Texts do not change."""
    return json.loads(json.dumps(value))


def new_row(group: Group, new: NewSubscription, became: Described) -> dict[str, Any]:
    """Returns the row of a new subscription."""
    notes = as_records(became.notes)
    return {
        "id": new.id,
        "expression": dict(new.asked),
        "tree": became.tree,
        "canonical": became.canonical,
        "clauses": became.clause_count,
        "cost": became.cost,
        "notes": notes,
        "flagged": is_flagged(notes),
        "status": new.status,
        "ticket_hash": new.ticket_hash,
        "sink": new.sink,
        "protocol": new.protocol,
        "protocolsettings": new.protocolsettings,
        "sinkcredential": new.sinkcredential,
        "secret": new.secret,
        "old_secret": new.old_secret,
        "old_secret_until": new.old_secret_until,
        "types": new.types,
        "source": new.source,
        "metadata": new.metadata,
        "created_by": new.created_by,
        "attributes": new.attributes,
        "throttling": new.throttling,
        "created_at": group.now,
        "expires_at": new.expires_at,
        "acked": group.state.sequence,
        "created_sequence": group.state.sequence,
    }


def renew(
    group: Group,
    id: str,
    ticket: Claim | str | None,
    expires_at: float,
    sweeper: Sweeper,
    *,
    grace: float,
    tags: Tags = None,
    roles_of: RolesOf = EVERYBODY,
) -> Row[Any]:
    """Sets the end time. An expired subscription becomes active again, or paused if it was paused.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `SubscriptionGone`, and `HiddenAttribute` if an
    expired subscription may not match any more.
    """
    row, live = _owned(group, id, ticket, tags)
    if live.expires_at <= group.now - grace:
        raise SubscriptionGone
    values: dict[str, Any] = {"expires_at": expires_at}
    over = live.status == "expired" or live.expires_at <= group.now
    if over:
        _check_creator(group, row, roles_of)
    live = _move_end(group, live, expires_at, sweeper, watch=over)
    if row.status == "expired" and row.status_reason != subscriptions.NOT_RENEWED:
        set_status(group, live, "paused")
        values |= {"status": "paused"}
    elif over and row.status != "paused":
        values |= {"status": "active", "status_reason": None, **_revive(group, live, row)}
    subscriptions.change(group.connection, live.number, **values)
    group.touched.add(live.number)
    return _row(group, id)


def pause(group: Group, id: str, ticket: Claim | str | None, tags: Tags = None) -> Row[Any]:
    """Stops matching. A subscription that is paused already keeps the reason. Raises `UnknownSubscription`,
    `TicketMissing`, `TicketWrong`, and `SubscriptionGone` if it has expired."""
    row, live = _owned(group, id, ticket, tags)
    _refuse_expired(group, live)
    if row.status == "paused":
        return row
    set_status(group, live, "paused")
    is_foreign = isinstance(ticket, Claim) and ticket.is_admin and ticket.owner != row.created_by
    reason = f"paused by {'an administrator' if is_foreign else 'its owner'}"
    subscriptions.change(group.connection, live.number, status="paused", status_reason=reason)
    return _row(group, id)


def resume(
    group: Group, id: str, ticket: Claim | str | None, tags: Tags = None, roles_of: RolesOf = EVERYBODY
) -> Row[Any]:
    """Matches again after `pause`, or delivers again after the webhook was disabled. Waiting messages are sent at once.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `HiddenAttribute`, and `SubscriptionGone` if it has
    expired.
    """
    row, live = _owned(group, id, ticket, tags)
    _refuse_expired(group, live)
    _check_creator(group, row, roles_of)
    noted = _revive(group, live, row)
    again = {"status": "active", "status_reason": None, "consecutive_errors": 0, "next_attempt_at": None}
    subscriptions.change(group.connection, live.number, **again, **noted)
    return _row(group, id)


CREATOR = "the role of the key that made the subscription (a revoked key has none)"


def _check_creator(group: Group, row: Row[Any], roles_of: RolesOf) -> None:
    """Raises `HiddenAttribute` if the creator of a subscription may not match any more, whoever asks."""
    if hidden := hidden_in(group.state.vocabulary.view_of_roles(roles_of(row.created_by)), row.tree):
        raise HiddenAttribute(hidden, CREATOR)


def redrive(group: Group, id: str, ticket: Claim | str | None) -> tuple[Row[Any], int]:
    """Calls `resume` if the webhook was disabled by failures. Returns the row and how many messages are tried again.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `SubscriptionGone` when expired.
    """
    row, live = _owned(group, id, ticket)
    _refuse_expired(group, live)
    if row.status != DISABLED:
        return row, 0
    return resume(group, id, ticket), subscriptions.count_pending(group.connection, live.number)


_WHERE = ("sink", "protocol", "protocolsettings", "sinkcredential")
"""The columns that say where messages are sent and how."""


def update(
    group: Group, id: str, ticket: Claim | str | None, values: Mapping[str, Any], sweeper: Sweeper, tags: Tags = None
) -> Row[Any]:
    """Changes sink, delivery options, metadata or end time. (Use `renew` for the end time of an expired subscription.)
    If the sink, its settings or its credential change, failures are forgotten, and a disabled webhook is tried again. A
    `secret` among the values is used only if the subscription has none and gets a sink; an existing secret stays.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `SinkMissing`, `SinkRefused`, and `SubscriptionGone`
    if it has expired.
    """
    row, live = _owned(group, id, ticket, tags)
    _refuse_expired(group, live)
    values = dict(values)
    _check_secrets(row, values)
    of_sinks = ("protocol", "protocolsettings", "sinkcredential", "throttling")
    if values.get("sink", row.sink) is None and any(values.get(name) for name in of_sinks):
        raise SinkMissing
    if "sink" in values and values["sink"] is None:
        values |= dict.fromkeys(of_sinks)
    if row.secret is not None or values.get("sink") is None:
        values.pop("secret", None)  # it has a secret, or needs none
    if any(values.get(name, getattr(row, name)) != getattr(row, name) for name in _WHERE):
        values |= {"consecutive_errors": 0, "next_attempt_at": None}  # the failures were those of the old sink
        if row.status in ("failing", DISABLED):
            values |= {"status": "active", "status_reason": None}
    if "expires_at" in values:
        _move_end(group, live, values["expires_at"], sweeper)
    if values:
        subscriptions.change(group.connection, live.number, **values)
        group.touched.add(live.number)
    return _row(group, id)


def _check_secrets(row: Row[Any], values: Mapping[str, Any]) -> None:
    """A credential and headers were given for one server. Nobody may send them to another one by changing the sink.
    Raises `SinkRefused`."""
    sink = values.get("sink")
    if sink is None or row.sink is None or same_server(sink, row.sink):
        return
    secret = {"sinkcredential": row.sinkcredential, "protocolsettings": (row.protocolsettings or {}).get("headers")}
    if kept := [name for name, value in secret.items() if value and name not in values]:
        raise SinkRefused(
            f"the new sink is at another server: give {' and '.join(kept)} too, or null. What was given for the "
            "present server is not sent to another one"
        )


def same_server(one: str, other: str) -> bool:
    """Whether two sinks have the same scheme, host and port. A sink at Kafka may name several hosts."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.netloc.lower()) == (second.scheme, second.netloc.lower())


def delete(group: Group, id: str, ticket: Claim | str | None, sweeper: Sweeper, tags: Tags = None) -> Row[Any]:
    """Deletes a subscription with its waiting messages. Returns its last row. Later sweeps erase many matches in steps.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`.
    """
    row, live = _owned(group, id, ticket, tags)
    sweeper.erase(group, live)
    return row


def rotate_secret(
    group: Group, id: str, ticket: Claim | str | None, secret: str, overlap: float, tags: Tags = None
) -> Row[Any]:
    """Sets a new secret for the webhook. For `overlap` seconds, messages are signed with the old secret as well.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `SinkMissing`, `SubscriptionChanged`.
    """
    row, live = _owned(group, id, ticket, tags)
    if row.sink is None:
        raise SinkMissing("the subscription has no sink, so it has no secret")
    old = {"old_secret": row.secret, "old_secret_until": group.now + overlap} if overlap > 0 else {"old_secret": None}
    subscriptions.change(group.connection, live.number, secret=secret, **old)
    group.touched.add(live.number)
    return _row(group, id)


def replay(
    group: Group, id: str, ticket: Claim | str | None, position: Callable[[Connection], int], tags: Tags = None
) -> Row[Any]:
    """Moves the cursor back, never forward. Stored messages after the position are delivered again. A webhook gets them
    with the same `webhook-id`s.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `SubscriptionChanged`, and the errors of `position`.
    """
    _, live = _owned(group, id, ticket, tags)
    deliveries.replay(group.connection, live.number, position(group.connection))
    group.touched.add(live.number)
    return _row(group, id)


def pause_hidden(group: Group, roles_of: RolesOf) -> int:
    """Pauses the subscriptions with attributes that their creators may no longer use, and stores the reason. Returns
    how many were paused. Reads every tree once if any attribute is hidden from anybody."""
    vocabulary, found = group.state.vocabulary, 0
    if not vocabulary.attributes.hides:
        return 0
    with subscriptions.all_trees(group.connection, live_only=True) as rows:
        stored = rows.all()
    for row in stored:
        if row.status == "paused" or row.created_by is None:
            continue
        view = vocabulary.view_of_roles(roles_of(row.created_by))
        if hidden := hidden_in(view, row.tree):
            set_status(group, group.state.live_subscriptions[row.id], "paused")
            reason = f"paused by a declaration: {HiddenAttribute(hidden, CREATOR)}"
            subscriptions.change(group.connection, row.number, status="paused", status_reason=reason)
            group.touched.add(row.number)
            found += 1
    return found


def as_records(notes: Iterable[Note]) -> list[dict[str, str]]:
    """Returns notes as JSON values."""
    return [{"code": note.code, "attribute": note.attribute, "detail": note.detail} for note in notes]


def is_flagged(notes: list[dict[str, str]]) -> bool:
    """Whether a note says that something the subscription uses was removed."""
    return any(note["code"] in FLAGS for note in notes)


def entity_tag(row: Row[Any]) -> str:
    """Returns the entity tag of a subscription. It changes with every value that a request can change, and not with
    counters and cursor. Secrets are hashed with the ticket's hash as key, so that nobody can guess them from the
    tag."""
    paused = row.status == "paused"
    said = [getattr(row, name) for name in _TAGGED]
    told = json.dumps([paused, *said], sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(row.ticket_hash.encode(), told, "sha256").hexdigest()[:32]


_TAGGED = (
    "attributes",
    "throttling",
    "sink",
    "protocol",
    "protocolsettings",
    "sinkcredential",
    "secret",
    "metadata",
    "expires_at",
)


def _owned(group: Group, id: str, ticket: Claim | str | None, tags: Tags = None) -> tuple[Row[Any], Live]:
    row = _row(group, id)
    check_ticket(ticket, row.ticket_hash, row.created_by)
    if tags is not None and "*" not in tags and entity_tag(row) not in tags:
        raise SubscriptionChanged
    return row, group.state.live_subscriptions[id]


def _owned_by(group: Group, created_by: str | None, quota: Quota) -> int:
    """Returns how many subscriptions a key has made; 0 if there is no quota per key."""
    if quota.of_key is None or created_by is None:
        return 0
    return subscriptions.count_created_by(group.connection, created_by)


def _row(group: Group, id: str) -> Row[Any]:
    row = subscriptions.find_subscription(group.connection, id)
    if row is None:
        raise UnknownSubscription(id)
    return row


def _refuse_expired(group: Group, live: Live) -> None:
    if live.expires_at <= group.now:
        raise SubscriptionGone("the subscription has expired: renew it first")


def _move_end(group: Group, live: Live, expires_at: float, sweeper: Sweeper, *, watch: bool = False) -> Live:
    """Sets the end time. The sweeper finds later end times by itself."""
    watch = watch or expires_at < live.expires_at
    live = set_expiry(group, live, expires_at)
    if watch:
        sweeper.watch(live)
    return live


def _revive(group: Group, live: Live, row: Row[Any]) -> dict[str, Any]:
    """Makes the subscription active and adds it to the matcher, unless it has no meaning under the active vocabulary.
    Returns the new values of its notes in the row."""
    live = set_status(group, live, "active")
    if live.matching:
        return {}
    try:
        compiled = restore_expression(row.tree, group.state.vocabulary, group.state.operators.known)
    except InvalidSubscription as error:
        return {"notes": [{"code": NOT_COMPILABLE, "attribute": "", "detail": str(error)}], "flagged": True}
    admit(group, live, compiled)
    notes = as_records(compiled.notes)
    return {"notes": notes, "flagged": is_flagged(notes)}


# ── many at once ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Many new subscriptions in one command: compiled together outside the thread, stored by one statement, added in bulk.
#
#     checked requests ──describe, any thread──▶ what to store ──create_many, one group──▶ rows, state, matcher
#
# The result is the same as if each had been created alone. A refused subscription does not stop the others.

COMPILER_SECONDS = 60.0
"""The time for which the shapes of an import are cached for the next one."""

Refusal = InvalidSubscription | ServerError
"""The error of one subscription in a bulk creation."""


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The compiled forms of new subscriptions, or their errors. `places` maps the index of a subscription to its index
    in `together`, if it was compiled together with others."""

    results: Sequence[Described | InvalidSubscription]
    together: DescribedMany
    places: Mapping[int, int]
    as_written: frozenset[int] = frozenset()
    """The indexes of the subscriptions whose `written` has the same meaning."""


class BulkCompilers:
    """Lends a compiler to each import, with the cache of the import before. Belongs to one event loop."""

    def __init__(self) -> None:
        self._free: BulkCompiler | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    @contextmanager
    def lent(self) -> Iterator[BulkCompiler]:
        """Gives the caller a compiler that nobody else uses. It is kept for `COMPILER_SECONDS` for the next caller. If
        the caller is cancelled or fails, a thread may still use the compiler, so it is not kept."""
        compiler, self._free = self._free or BulkCompiler(), None
        yield compiler
        compiler.trim()
        self.forget()
        self._free = compiler
        self._forgetting = asyncio.get_running_loop().call_later(COMPILER_SECONDS, self.forget)

    def forget(self) -> None:
        """Releases the compiler that waits for the next caller."""
        self._free = None
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None


def describe(
    new: Sequence[NewSubscription], vocabulary: Vocabulary, operators: Registry, compiler: BulkCompiler
) -> Descriptions:
    """Compiles new subscriptions under the vocabulary. May run in any thread. Cost: some 10 µs each if shapes
    repeat."""
    numbers = [number for number, each in enumerate(new) if len(each.parts) == 1]
    places = {number: place for place, number in enumerate(numbers)}
    together = compiler.compile([new[number].parts[0] for number in numbers], vocabulary, operators.available)
    results = [
        together.results[places[number]] if number in places else _alone(each, vocabulary, operators)
        for number, each in enumerate(new)
    ]
    written = {number: each.written for number, each in enumerate(new) if each.written is not None}
    if not written:
        return Descriptions(results, together, places)
    meant = [structs.replace(new[number], parts=each.parts, written=None) for number, each in written.items()]
    became = zip(written, describe(meant, vocabulary, operators, compiler).results, strict=True)
    same = (number for number, other in became if _means(other) == _means(results[number]) is not None)
    return Descriptions(results, together, places, frozenset(same))


def _means(became: Described | InvalidSubscription) -> str | None:
    return became.canonical if isinstance(became, Described) else None


def create_many(
    group: Group,
    new: Sequence[NewSubscription],
    described: Descriptions,
    vocabulary: Vocabulary,
    operators: Registry,
    sweeper: Sweeper,
    compiler: BulkCompiler,
    *,
    limit: int,
    quota: Quota = NO_QUOTA,
) -> list[Refusal | None]:
    """Stores the valid subscriptions and adds them to the matcher. Returns, in the order of `new`, None for each
    subscription that was created, now or by the same request before, and the error for each of the others.

    If the vocabulary or the operators have changed since `describe`, the subscriptions are compiled again. Raises
    `kindcast.index.errors.IndexFull`; then none is created. Cost: some 20 µs each.
    """
    state = group.state
    if vocabulary is not state.vocabulary or operators is not state.operators:
        described = describe(new, state.vocabulary, state.operators, compiler)
    results, valid = _sorted_out(group, new, described, limit, quota)
    rows = [new_row(group, each, became) for each, became, _ in valid]
    numbers = subscriptions.insert_subscriptions(group.connection, rows)
    for number, (_, became, _) in zip(numbers, valid, strict=True):
        if became.may_call:
            note_uses(group.connection, number, operators_of(became.tree))
    lives = [
        Live(number, each.id, each.status, each.expires_at, matching=False)
        for number, (each, _, _) in zip(numbers, valid, strict=True)
    ]
    introduce_many(group, lives, {number for number, (each, _, _) in zip(numbers, valid, strict=True) if each.sink})
    admitted = [
        Admitted(live, became.tree, place)
        for live, (_, became, place) in zip(lives, valid, strict=True)
        if live.status == "active"
    ]
    admit_many(group, admitted, described.together)
    for live in lives:
        sweeper.watch(live)
    return results


def _sorted_out(
    group: Group, new: Sequence[NewSubscription], described: Descriptions, limit: int, quota: Quota
) -> tuple[list[Refusal | None], list[tuple[NewSubscription, Described, int | None]]]:
    """Returns the result of each request, and what is to be stored: the valid ones, each with its index in
    `described.together`."""
    results: list[Refusal | None] = []
    valid: list[tuple[NewSubscription, Described, int | None]] = []
    ids: set[str] = set()
    views = {each.roles: group.state.vocabulary.view_of_roles(each.roles) for each in new}
    owned = _owned_by(group, new[0].created_by, quota) if new else 0  # one request has one owner
    there = len(group.state.live_subscriptions)
    stored = subscriptions.find_subscriptions(group.connection, [each.id for each in new if each.repeatable])
    for number, (each, became) in enumerate(zip(new, described.results, strict=True)):
        if (before := stored.get(each.id)) is not None:
            results.append(_reuse(before, each))
        elif each.id in ids:
            results.append(IdempotencyKeyReused("another line of the request has the same id"))
        elif isinstance(became, InvalidSubscription):
            results.append(each.placed(became) if number in described.places else became)
        elif there + len(valid) >= limit:
            results.append(TooManySubscriptions(f"this server takes at most {limit:,} subscriptions"))
        elif (reached := quota.reached(there + len(valid), owned + len(valid))) is not None:
            results.append(reached)
        elif hidden := hidden_in(views[each.roles], became.tree):
            results.append(HiddenAttribute(hidden))
        else:
            results.append(None)
            if number in described.as_written and (written := each.written) is not None:
                each = structs.replace(each, asked=written.asked, types=written.types, source=written.source)
            valid.append((each, became, described.places.get(number)))
            ids.add(each.id)
    return results, valid


def _alone(new: NewSubscription, vocabulary: Vocabulary, operators: Registry) -> Described | InvalidSubscription:
    try:
        return Described.of(compile_new(new, vocabulary, operators.available))
    except InvalidSubscription as error:
        return error
