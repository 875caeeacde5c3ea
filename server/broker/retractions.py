"""Retractions: subscribers who got a withdrawn event get one message about that, no matter which of the two events came
first.

    an event that withdraws ──▶ events about its subject ──┐
    an event about a subject that was withdrawn before ────┴──▶ for each a message to all who have it
    a late match of an event that is withdrawn ───────────────▶ the same, to those who have it now

The message has its own position. Its event is the withdrawing one, and it names the withdrawn one.
"""

from collections.abc import Collection, Sequence

from kindcast.semantic.events import Correction, is_newer
from kindcast.server.broker.group import Group
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import (
    add_correction,
    add_retraction,
    find_about,
    find_recipients,
    find_withdrawing,
    mark_withdrawn,
    withdrawn_among,
)
from kindcast.server.store.matches import insert_matches, packed

__all__ = ["retract_late", "tell_corrections"]


def tell_corrections(group: Group, told: Sequence[tuple[int, str, Correction]]) -> None:
    """Handles events that were stored in this command, each (sequence number, source, correction), in order: stores the
    correction, and sends the retractions. Cost: a few statements per event."""
    connection = group.connection
    for sequence, source, said in told:
        withdrawn: set[int] = set()
        for subject in said.withdraws:
            for about in find_about(connection, source, subject):
                if about.event not in withdrawn and not is_newer(about.revision, said.revision):
                    withdrawn.add(about.event)
                    _retract(group, about.event, by=sequence)
            add_correction(connection, source, subject, sequence, said.revision, withdraws=True)
        if said.subject in said.withdraws:
            continue  # its subject is what it withdraws, so it is no event about it
        before = find_withdrawing(connection, source, said.subject)
        add_correction(connection, source, said.subject, sequence, said.revision, withdraws=False)
        by = next((each.event for each in before if not is_newer(said.revision, each.revision)), None)
        if by is not None:
            _retract(group, sequence, by=by)


def retract_late(group: Group, matched: dict[int, list[int]]) -> None:
    """Sends retractions at once for late matches of this command whose event is already withdrawn. `matched` maps
    sequence numbers to subscriptions."""
    for withdrawn, by in withdrawn_among(group.connection, matched).items():
        _send(group, withdrawn, by, matched[withdrawn])


def _retract(group: Group, withdrawn: int, *, by: int) -> None:
    mark_withdrawn(group.connection, withdrawn, by)
    _send(group, withdrawn, by, find_recipients(group.connection, withdrawn, group.now))


def _send(group: Group, withdrawn: int, by: int, recipients: Collection[int]) -> None:
    """Sends one message to each recipient."""
    if not recipients:
        return
    connection, state = group.connection, group.state
    before = state.sequence

    def undo() -> None:
        state.sequence = before

    group.on_undo(undo)
    state.sequence += 1
    first = pending_store.note_late(connection, [(state.sequence, by, len(recipients))], state.last_accepted_at)
    add_retraction(connection, state.sequence, withdrawn)
    insert_matches(connection, [packed(state.sequence, by, dict.fromkeys(recipients))])
    group.totals.update(matches=len(recipients), matched=first)
    group.touched.update(recipients)
