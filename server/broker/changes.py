"""Every change of the state in memory, each with the step that takes it back.

The store is changed beside it, by the commands, in the same group; the two can therefore only succeed or fail together.
A `Live` is what was true when it was read: each change returns what is true after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from semantic import Compiled, Matcher
from semantic.declarations import Declarations
from server.broker.group import Group
from server.broker.roll import Live

__all__ = [
    "SILENT",
    "admit",
    "admit_many",
    "exclude",
    "forget",
    "introduce",
    "set_expiry",
    "set_status",
    "swap_matcher",
]

SILENT = ("paused", "expired")
"""Statuses in which a subscription gets no matches."""


def introduce(group: Group, live: Live) -> Live:
    """A new subscription; `admit` makes it match."""
    roll = group.state.roll
    live = roll.put_aside(live)
    group.on_undo(partial(roll.drop, live.id))
    group.note(live)
    return live


def admit(group: Group, live: Live, compiled: Compiled) -> Live:
    """Put it into the matcher: the next event may match."""
    roll = group.state.roll
    roll.matcher.add_compiled(live.id, compiled)
    live = roll.enter(live)

    def undo() -> None:
        roll.leave(live.id)
        roll.matcher.remove(live.id)

    group.on_undo(undo)
    return live


def admit_many(group: Group, lives: Sequence[Live], trees: Sequence[Mapping[str, Any]]) -> None:
    """`admit` each, with its stored tree, which the vocabulary in force compiled."""
    roll = group.state.roll
    restored = roll.matcher.restore_many((live.id, tree) for live, tree in zip(lives, trees, strict=True))

    def undo() -> None:
        for live in lives:
            if live.id in roll.matcher:
                roll.leave(live.id)
                roll.matcher.remove(live.id)

    group.on_undo(undo)
    for live in lives:
        if live.id in roll.matcher:
            roll.enter(live)
    for error in restored.refused.values():
        raise error


def exclude(group: Group, live: Live) -> Live:
    """Take it out of the matcher, if it is there."""
    if not live.matching:
        return live
    roll = group.state.roll
    tree = roll.matcher.tree(live.id)
    after = roll.leave(live.id)
    roll.matcher.remove(live.id)

    def undo() -> None:
        roll.matcher.restore(live.id, tree)
        roll.enter(live)

    group.on_undo(undo)
    return after


def set_status(group: Group, live: Live, status: str) -> Live:
    """Note its status; out of the matcher with it where that is a silent one."""
    roll = group.state.roll
    if status in SILENT:
        live = exclude(group, live)
    if not live.matching:
        group.on_undo(partial(roll.keep, live))
        live = roll.put_aside(replace(live, status=status))
    group.note(live)
    return live


def set_expiry(group: Group, live: Live, expires_at: float) -> Live:
    """Note when it ends."""
    roll = group.state.roll
    group.on_undo(partial(roll.set_end, live.id, live.expires_at))
    roll.set_end(live.id, expires_at)
    group.note(live, told=False)
    return replace(live, expires_at=expires_at)


def forget(group: Group, live: Live) -> None:
    """It is deleted."""
    live = exclude(group, live)
    roll = group.state.roll
    roll.drop(live.id)
    group.on_undo(partial(roll.keep, live))
    group.note(live)


def swap_matcher(group: Group, matcher: Matcher, declarations: Declarations) -> None:
    """Another matcher, under another vocabulary, with the same subscriptions: what it does not hold stands aside.
    `declarations` are what that vocabulary was made of, beside its ontologies."""
    state, before, declared_before = group.state, group.state.roll, group.state.declarations
    state.roll, state.declarations = before.under(matcher), declarations

    def undo() -> None:
        state.roll, state.declarations = before, declared_before

    group.on_undo(undo)
