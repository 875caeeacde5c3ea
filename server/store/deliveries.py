"""What waits for a subscriber, and what became of it: the matches after a cursor, acknowledgements, webhook attempts.

Every function takes a connection and runs in the transaction of its caller: reading ones on any reader's connection,
writing ones (`acknowledge`, `record_progress`) only on the writer's, that is, inside `Broker.execute`.

    matches (subscription, sequence) --after acked--> read_matches --> pull, stream, webhook --> acknowledge/record_progress
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from server.store.tables import attempts, events, matches, subscriptions

__all__ = [
    "Attempt",
    "Progress",
    "Receiver",
    "StoredMatch",
    "acknowledge",
    "deliverable",
    "end_of_log",
    "find_receiver",
    "read_matches",
    "record_progress",
]

NUMBERS_PER_QUERY = 500
"""Subscription numbers in one IN list: SQLite takes at most 32,766 parameters, and plans short lists faster."""


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """One match with its event: `body` is the CloudEvent as JSON text, `bindings` JSON text or None."""

    sequence: int
    body: str
    bindings: str | None
    vocabulary_version: str | None


@dataclass(frozen=True, slots=True)
class Receiver:
    """A subscription, as far as delivery needs it."""

    number: int
    id: str
    status: str
    expires_at: float
    acked: int
    ticket_hash: str
    sink: str | None
    secret: str | None
    protocolsettings: dict[str, Any]
    sinkcredential: dict[str, Any]
    consecutive_errors: int
    next_attempt_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One webhook attempt, as it is kept for traces."""

    sequence: int
    attempt: int
    at: float
    outcome: str
    status_code: int | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one attempt changes: the attempt itself and, when it failed, the next status and the next time."""

    number: int
    attempt: Attempt
    delivered: bool
    status: str
    status_reason: str | None = None
    next_attempt_at: float | None = None
