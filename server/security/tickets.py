"""Tickets: secrets returned when a subscription is created, and required for every later change of it.

256 random bits, shown once; the store keeps their SHA-256. A fast hash is enough: there is nothing to guess in 256
bits.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from kindcast.server.errors import TicketMissing, TicketWrong

__all__ = ["TICKET_HEADER", "Claim", "Repeatable", "check_ticket", "hashed", "new_ticket"]

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
    if repeatable is None:
        return secrets.token_urlsafe(TICKET_BYTES)
    return base64.urlsafe_b64encode(repeatable.random("ticket", TICKET_BYTES)).rstrip(b"=").decode("ascii")


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
