"""Tickets: secrets returned when a subscription is created, and required for every later change of it.

A ticket has 256 random bits and is shown once. The store keeps its SHA-256. A fast hash is enough, because 256 bits
cannot be guessed.
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
    """A request that its client may repeat, with the header `Idempotency-Key`. The random values of its subscription
    are derived from the key. So the subscription is created once, and the same answer can be given again although no
    secret is stored. Anybody with the key can get the ticket by repeating the request, so the key must be kept as
    secret."""

    owner: str | None
    """The caller, as in `created_by`. Equal keys of different callers are different."""
    key: str
    part: int = 0
    """The index within a request that creates several subscriptions."""

    def random(self, what: str, size: int) -> bytes:
        """Returns at most 32 pseudo-random bytes, always the same for `what`."""
        told = f"{self.owner or ''}\n{self.part}\n{what}".encode("utf-8", "surrogatepass")
        return hmac.new(self.key.encode("utf-8", "surrogatepass"), told, "sha256").digest()[:size]


def new_ticket(repeatable: Repeatable | None = None, terms: str = "") -> str:
    """Returns a ticket: 43 characters of base64url. The ticket of a `repeatable` request also depends on its `terms`,
    the parts of the request that are not stored. So if they differ in a later request, its ticket is not the stored
    one."""
    drawn = random_bytes(f"ticket\n{terms}" if terms else "ticket", TICKET_BYTES, repeatable)
    return base64.urlsafe_b64encode(drawn).rstrip(b"=").decode("ascii")


def random_bytes(what: str, size: int, repeatable: Repeatable | None = None) -> bytes:
    """Returns bytes that nobody can guess. For a `repeatable` request they are always the same for `what`."""
    return _POOL.draw(size) if repeatable is None else repeatable.random(what, size)


class _Pool:
    """Random bytes of the operating system, fetched many at a time, because a system call for each takes longer than
    the rest of an imported line. None is returned twice. May be used in any thread."""

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
        """Drops the buffer in a forked process, because its parent has the same bytes."""
        self._door, self._bytes = threading.Lock(), b""


_POOL = _Pool()
os.register_at_fork(after_in_child=_POOL.forget)


def hashed(ticket: str) -> str:
    """Returns the stored hash of a ticket: SHA-256, in hex."""
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Claim:
    """What allows a client to change a subscription: the ticket, or the key of the request."""

    ticket: str | None = None
    owner: str | None = None
    """The caller, as in `created_by` of its subscriptions; None without keys."""
    is_admin: bool = False
    roles: frozenset[str] | None = None
    """The roles that decide what it may see of the subscription; None: everything."""


def check_ticket(claim: Claim | str | None, ticket_hash: str, created_by: str | None = None) -> None:
    """Raises `TicketMissing` without a ticket, and `TicketWrong` for the ticket of another subscription. An
    administrator and the key that created the subscription need no ticket."""
    if not isinstance(claim, Claim):
        claim = Claim(claim)
    if claim.is_admin or (claim.owner is not None and claim.owner == created_by):
        return
    if not claim.ticket:
        raise TicketMissing
    if not hmac.compare_digest(hashed(claim.ticket), ticket_hash):
        raise TicketWrong
