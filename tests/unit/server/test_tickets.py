"""Tickets."""

import pytest

from kindcast.server.errors import TicketMissing, TicketWrong
from kindcast.server.security.keys import check_ticket, hash_of, new_ticket


def test_ticket_that_was_given_out_is_accepted() -> None:
    """The ticket itself passes, and says nothing of its hash."""
    ticket = new_ticket()
    check_ticket(ticket, hash_of(ticket))
    assert ticket not in hash_of(ticket)


def test_tickets_have_256_random_bits() -> None:
    """43 characters of base64url, no two alike."""
    tickets = {new_ticket() for _ in range(100)}
    assert len(tickets) == 100
    assert {len(ticket) for ticket in tickets} == {43}


@pytest.mark.parametrize("ticket", [None, ""])
def test_ticket_that_is_absent_is_missing(ticket: str | None) -> None:
    """No ticket and an empty one are the same."""
    with pytest.raises(TicketMissing):
        check_ticket(ticket, hash_of("x"))


@pytest.mark.parametrize("ticket", ["wrong", "\ud800", "ü" * 100_000])
def test_ticket_of_another_is_wrong(ticket: str) -> None:
    """Whatever is sent instead, it is the wrong ticket and nothing else."""
    with pytest.raises(TicketWrong):
        check_ticket(ticket, hash_of(new_ticket()))
