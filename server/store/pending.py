"""Pending candidates: stored with their event until their operators have decided them.

    publish ──insert_parked──▶ parked ──due──▶ late matching ─┬─ decided: row deleted, match added, one transaction
                                 ▲                            └─ failed: postponed, or given up (next try NULL)
                                 └───────── retry_given_up

A row and a match of the same event and subscription never coexist. The transaction that writes the match deletes the
row, and writes the match only if there was a row.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypedDict

from sqlalchemy import Column, Connection, Row, bindparam, delete, func, insert, select, update

from kindcast.semantic.operators import FailureKind
from kindcast.server.store.tables import events, insert_rows, late, parked, subscriptions, vocabularies

__all__ = [
    "ParkedRow",
    "Retry",
    "count_waiting",
    "due",
    "insert_parked",
    "keep_vocabulary",
    "matched_before",
    "next_due",
    "note_late",
    "of_event",
    "ontology_is_needed",
    "postpone",
    "retry_given_up",
    "take",
    "vocabulary_parts",
    "waited_for",
    "withdraw_before",
    "withdraw_subscription",
]

NUMBERS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""


class ParkedRow(TypedDict):
    """A row of `parked`."""

    event: int
    subscription: int
    vocabulary_version: str
    reason: str
    kind: FailureKind
    tries: int
    parked_at: float
    next_try_at: float | None


class Retry(TypedDict):
    """The new values after a failed try. `of_next_try_at` is None if the candidate is given up."""

    of_event: int
    of_subscription: int
    of_reason: str
    of_kind: FailureKind
    of_tries: int
    of_next_try_at: float | None


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_INSERT = insert(parked)
_RETRY = (
    update(parked)
    .where(parked.c.event == bindparam("of_event"), parked.c.subscription == bindparam("of_subscription"))
    .values(
        reason=bindparam("of_reason"),
        kind=bindparam("of_kind"),
        tries=bindparam("of_tries"),
        next_try_at=bindparam("of_next_try_at"),
    )
)
_UNDECIDED = (
    update(subscriptions)
    .where(subscriptions.c.number == bindparam("of_subscription"))
    .values(
        undecided=subscriptions.c.undecided + 1,
        last_undecided=bindparam("of_now"),
        last_undecided_reason=bindparam("of_reason"),
        last_undecided_kind=bindparam("of_kind"),
    )
)


def insert_parked(connection: Connection, rows: Sequence[ParkedRow]) -> None:
    """Stores candidates of events in the same transaction."""
    if rows:
        connection.execute(_INSERT, rows)


def take(connection: Connection, event: int, numbers: Collection[int]) -> set[int]:
    """Deletes the rows of these subscriptions and returns those that existed. Only those may get a match now."""
    found: set[int] = set()
    for some in _portions(sorted(numbers)):
        those = (parked.c.event == event) & parked.c.subscription.in_(some)
        found |= set(connection.execute(delete(parked).where(those).returning(parked.c.subscription)).scalars())
    return found


def postpone(connection: Connection, retries: Sequence[Retry], now: float) -> int:
    """Stores failed tries of rows that still exist. For candidates that are given up, stores the reason in the
    subscription. Returns how many were given up."""
    there: set[tuple[int, int]] = set()
    for event in {each["of_event"] for each in retries}:
        of_event = select(parked.c.subscription).where(parked.c.event == event, parked.c.next_try_at.is_not(None))
        there |= {(event, number) for number in connection.execute(of_event).scalars()}
    left = [each for each in retries if (each["of_event"], each["of_subscription"]) in there]
    if left:
        connection.execute(_RETRY, left)
    over = [each for each in left if each["of_next_try_at"] is None]
    if over:
        told = [
            {
                "of_subscription": each["of_subscription"],
                "of_now": now,
                "of_reason": each["of_reason"],
                "of_kind": each["of_kind"],
            }
            for each in over
        ]
        connection.execute(_UNDECIDED, told)
    return len(over)


_INSERT_LATE = (
    "INSERT INTO late (decided_at, position, event) SELECT %s, position, event"
    " FROM unnest(%s::bigint[], %s::bigint[]) AS these (position, event)"
)
_MORE_MATCHED = (
    "UPDATE events SET matched = matched + more.count FROM unnest(%s::bigint[], %s::int[]) AS more (event, count)"
    " WHERE events.sequence = more.event AND events.sequence = ANY(%s) RETURNING events.sequence, events.matched"
)
"""The second condition says the same as the first one. Without it, PostgreSQL reads all partitions for many events."""


def note_late(connection: Connection, places: Sequence[tuple[int, int, int]], now: float) -> int:
    """Stores the positions of late matches, each (position, event, number of matches). Returns how many of the events
    had no match before."""
    if not places:
        return 0
    more: Counter[int] = Counter()
    for _, event, count in places:
        more[event] += count
    if connection.dialect.name == "postgresql":  # two statements for all: other servers wait for them
        positions, of_events, _ = zip(*places, strict=True)
        connection.exec_driver_sql(_INSERT_LATE, (now, list(positions), list(of_events)))
        left = connection.exec_driver_sql(_MORE_MATCHED, (list(more), list(more.values()), list(more)))
        return sum(matched == more[event] for event, matched in left)
    before = matched_before(connection, list(more))
    insert_rows(connection, late.name, ("position", "event", "decided_at"), [(*each[:2], now) for each in places])
    matched = events.c.matched + bindparam("of_matched")
    each_more = update(events).where(events.c.sequence == bindparam("of_event")).values(matched=matched)
    connection.execute(each_more, [{"of_event": event, "of_matched": count} for event, count in more.items()])
    return sum(not count for count in before.values())


def waited_for(connection: Connection, sequences: Sequence[int]) -> set[int]:
    """Returns the events that have candidates."""
    found: set[int] = set()
    for some in _portions(sequences):
        query = select(parked.c.event).where(parked.c.event.in_(some)).distinct()
        found.update(connection.execute(query).scalars())
    return found


def matched_before(connection: Connection, sequences: Sequence[int]) -> dict[int, int]:
    """Returns how many subscriptions got each of these events. Deleted events are left out."""
    found: dict[int, int] = {}
    for some in _portions(sequences):
        query = select(events.c.sequence, events.c.matched).where(events.c.sequence.in_(some))
        found.update((sequence, matched) for sequence, matched in connection.execute(query))
    return found


def retry_given_up(connection: Connection, now: float) -> int:
    """Makes all given-up candidates due again and resets their tries. Returns how many there are."""
    result = connection.execute(update(parked).where(parked.c.next_try_at.is_(None)).values(next_try_at=now, tries=0))
    return result.rowcount


def withdraw_subscription(connection: Connection, number: int) -> int:
    """Deletes the candidates of a subscription. Returns how many were waiting."""
    return _withdraw(connection, parked.c.subscription == number)


def withdraw_before(connection: Connection, sequence: int) -> int:
    """Deletes the candidates of older events. Returns how many were waiting."""
    return _withdraw(connection, parked.c.event < sequence)


def keep_vocabulary(
    connection: Connection,
    version: str,
    ontologies: list[list[Any]],
    declarations: dict[str, Any],
    *,
    unmatched: int | None = None,
) -> None:
    """Stores the ontologies and declarations of a version of the vocabulary, for later decisions under it. Deletes the
    versions that no candidate needs, and no event from `unmatched` on, which shards have not matched yet."""
    known = connection.execute(select(vocabularies.c.version)).scalars().all()
    old = [each for each in known if each != version and not _is_needed(connection, each, unmatched)]
    if old:
        connection.execute(delete(vocabularies).where(vocabularies.c.version.in_(old)))
    if version not in known:
        row = {"version": version, "ontologies": ontologies, "declarations": declarations}
        connection.execute(insert(vocabularies).values(row))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def due(connection: Connection, now: float, *, limit: int) -> list[Row[Any]]:
    """Returns (event, subscription, id, vocabulary_version, tries) of at most `limit` due candidates. If more are due,
    half of these are the ones that wait longest, and half are of the newest events, by turns: a new event does not wait
    until a long backlog has been tried."""
    columns: tuple[Column[Any], ...] = (
        parked.c.event,
        parked.c.subscription,
        subscriptions.c.id,
        parked.c.vocabulary_version,
        parked.c.tries,
    )
    query = (
        select(*columns)
        .join_from(parked, subscriptions, subscriptions.c.number == parked.c.subscription)
        .where(parked.c.next_try_at <= now)
    )
    found = list(connection.execute(query.order_by(parked.c.next_try_at).limit(limit)).all())
    if len(found) < limit:
        return found
    newest = connection.execute(query.order_by(parked.c.event.desc()).limit(limit // 2)).all()
    by_turns = chain.from_iterable(zip(found, newest, strict=False))
    return list({(row.event, row.subscription): row for row in by_turns}.values())


def next_due(connection: Connection, *, after: float) -> float | None:
    """Returns the time of the next try after `after`; None if there is none."""
    upcoming = select(func.min(parked.c.next_try_at)).where(parked.c.next_try_at > after)
    found: float | None = connection.execute(upcoming).scalar_one()
    return found


def of_event(connection: Connection, sequence: int, *, limit: int) -> list[Row[Any]]:
    """Returns the candidates of an event, each (id, reason, kind, tries, parked_at, next_try_at), oldest subscription
    first."""
    columns: tuple[Column[Any], ...] = (
        subscriptions.c.id,
        parked.c.reason,
        parked.c.kind,
        parked.c.tries,
        parked.c.parked_at,
        parked.c.next_try_at,
    )
    query = (
        select(*columns)
        .join_from(parked, subscriptions, subscriptions.c.number == parked.c.subscription)
        .where(parked.c.event == sequence)
        .order_by(parked.c.subscription)
        .limit(limit)
    )
    return list(connection.execute(query).all())


def find_candidate(connection: Connection, sequence: int, subscription: int) -> Row[Any] | None:
    """Returns the reason and the time of the next try (None: given up) of a candidate; None if there is none."""
    columns: tuple[Column[Any], ...] = (parked.c.reason, parked.c.next_try_at)
    mine = (parked.c.event == sequence) & (parked.c.subscription == subscription)
    return connection.execute(select(*columns).where(mine)).one_or_none()


def count_waiting(connection: Connection, subscription: int) -> int:
    """Returns how many candidates of a subscription wait for an operator."""
    mine = (parked.c.subscription == subscription) & parked.c.next_try_at.is_not(None)
    return connection.execute(select(func.count()).where(mine)).scalar_one()


def vocabulary_parts(connection: Connection, version: str) -> Row[Any] | None:
    """Returns (ontologies, declarations) of a version, as `keep_vocabulary` stored them; None if it is not stored."""
    return connection.execute(select(vocabularies).where(vocabularies.c.version == version)).one_or_none()


def ontology_is_needed(connection: Connection, name: str, *, unmatched: int | None = None) -> int:
    """Returns how many candidates wait for a decision under a vocabulary with this ontology, plus the events from
    `unmatched` on that shards must match under one."""
    rows = connection.execute(select(vocabularies.c.version, vocabularies.c.ontologies))
    versions = [row.version for row in rows if any(part[0] == name for part in row.ontologies)]
    waiting = parked.c.vocabulary_version.in_(versions) & parked.c.next_try_at.is_not(None)
    count: int = connection.execute(select(func.count()).where(waiting)).scalar_one()
    if unmatched is not None:
        under = (events.c.sequence >= unmatched) & events.c.vocabulary_version.in_(versions)
        count += connection.execute(select(func.count()).select_from(events).where(under)).scalar_one()
    return count


def _is_needed(connection: Connection, version: str, unmatched: int | None) -> bool:
    this = select(parked.c.event).where(parked.c.vocabulary_version == version).limit(1)
    if connection.execute(this).first() is not None:
        return True
    if unmatched is None:
        return False
    under = (events.c.sequence >= unmatched) & (events.c.vocabulary_version == version)
    return connection.execute(select(events.c.sequence).where(under).limit(1)).first() is not None


def _withdraw(connection: Connection, those: Any) -> int:
    waiting = select(func.count()).where(those, parked.c.next_try_at.is_not(None))
    found: int = connection.execute(waiting).scalar_one()
    connection.execute(delete(parked).where(those))
    return found


def _portions(numbers: Sequence[int]) -> Iterator[Iterable[int]]:
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        yield numbers[start : start + NUMBERS_PER_QUERY]
