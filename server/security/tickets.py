"""Tickets: secrets returned when a subscription is created, and required for every later change of it.

256 random bits, shown once; the store keeps their SHA-256. A fast hash is enough: there is nothing to guess in 256
bits.
"""

import hashlib
import hmac
import secrets

from kindcast.server.errors import TicketMissing, TicketWrong

__all__ = ["TICKET_HEADER", "check_ticket", "hashed", "new_ticket"]

TICKET_HEADER = "Kindcast-Ticket"

TICKET_BYTES = 32


def new_ticket() -> str:
    """A ticket: 43 characters of base64url."""
    return secrets.token_urlsafe(TICKET_BYTES)


def hashed(ticket: str) -> str:
    """What is stored of a ticket: SHA-256, in hex."""
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()


def check_ticket(ticket: str | None, ticket_hash: str) -> None:
    """Raises `TicketMissing` without a ticket, `TicketWrong` for one that is not the subscription's."""
    if not ticket:
        raise TicketMissing
    if not hmac.compare_digest(hashed(ticket), ticket_hash):
        raise TicketWrong
