"""Tickets: secrets returned when a subscription is created, and required for every later change of it.

256 random bits, shown once; the store keeps their SHA-256. A fast hash is enough: there is nothing to guess in 256
bits.
"""

import base64
import hashlib
import hmac
import os
import secrets
import threading
from dataclasses import dataclass

from kindcast.server.errors import TicketMissing, TicketWrong

__all__ = ["TICKET_HEADER", "Claim", "Repeatable", "check_ticket", "hashed", "new_ticket", "random_bytes"]

TICKET_HEADER = "Kindcast-Ticket"

TICKET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that its client may send again, by the header `Idempotency-Key`: what else is random about its
    subscription is derived from the key, so that it is made once, and the same answer can be given again without any
    secret being stored. Who has the key can get the ticket by sending the request again; so it is as secret."""

    owner: str | None
    """Who asks, as `created_by`: keys of others are others."""
    key: str
    part: int = 0
    """Of a request that makes several: which of them."""

    def random(self, what: str, size: int) -> bytes:
        """At most 32 bytes that look random, always the same ones for `what`."""
        told = f"{self.owner or ''}\n{self.part}\n{what}".encode("utf-8", "surrogatepass")
        return hmac.new(self.key.encode("utf-8", "surrogatepass"), told, "sha256").digest()[:size]


def new_ticket(repeatable: Repeatable | None = None) -> str:
    """A ticket: 43 characters of base64url."""
    drawn = random_bytes("ticket", TICKET_BYTES, repeatable)
    return base64.urlsafe_b64encode(drawn).rstrip(b"=").decode("ascii")


def random_bytes(what: str, size: int, repeatable: Repeatable | None = None) -> bytes:
    """Bytes that nobody can guess; of a `repeatable` request always the same ones for `what`."""
    return _POOL.draw(size) if repeatable is None else repeatable.random(what, size)


class _Pool:
    """Random bytes of the operating system, fetched many at a time: a call for each takes longer than the rest of a
    line of an import. None is given twice. Any thread."""

    SIZE = 4_096

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._bytes = b""

    def draw(self, size: int) -> bytes:
        with self._door:
            if len(self._bytes) < size:
                self._bytes = secrets.token_bytes(max(self.SIZE, size))
            drawn, self._bytes = self._bytes[:size], self._bytes[size:]
            return drawn

    def forget(self) -> None:
        """In a forked process, whose parent has the same bytes."""
        self._door, self._bytes = threading.Lock(), b""


_POOL = _Pool()
os.register_at_fork(after_in_child=_POOL.forget)


def hashed(ticket: str) -> str:
    """What is stored of a ticket: SHA-256, in hex."""
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Claim:
    """By what a client may change a subscription: its ticket, or the key that it came with."""

    ticket: str | None = None
    owner: str | None = None
    """Who asks, as `created_by` of the subscriptions that it made; None without keys."""
    is_admin: bool = False
    roles: frozenset[str] | None = None
    """What it is told of the subscription depends on them; None: everything."""


def check_ticket(claim: Claim | str | None, ticket_hash: str, created_by: str | None = None) -> None:
    """Raises `TicketMissing` without a ticket, `TicketWrong` for one that is not the subscription's; an administrator,
    and the key that made the subscription, need none."""
    if not isinstance(claim, Claim):
        claim = Claim(claim)
    if claim.is_admin or (claim.owner is not None and claim.owner == created_by):
        return
    if not claim.ticket:
        raise TicketMissing
    if not hmac.compare_digest(hashed(claim.ticket), ticket_hash):
        raise TicketWrong
