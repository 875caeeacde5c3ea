"""Every change of the state in memory, each with the step that takes it back.

The store is changed beside it, by the commands, in the same group; the two can therefore only succeed or fail together.
"""

from semantic import Compiled, Matcher
from semantic.declarations import Declarations
from server.broker.group import Group
from server.broker.state import Live

__all__ = ["SILENT", "admit", "exclude", "forget", "introduce", "set_expiry", "set_status", "swap_matcher"]

SILENT = ("paused", "expired")
"""Statuses in which a subscription gets no matches."""


def introduce(group: Group, live: Live) -> None:
    """A new subscription; `admit` makes it match."""
    everyone = group.state.live
    everyone[live.id] = live
    group.on_undo(lambda: _drop(everyone, live.id))
    group.touched.add(live.number)


def admit(group: Group, live: Live, compiled: Compiled) -> None:
    """Put it into the matcher: the next event may match."""
    matcher = group.state.matcher
    matcher.add_compiled(live.id, compiled)
    live.matching = True

    def undo() -> None:
        matcher.remove(live.id)
        live.matching = False

    group.on_undo(undo)


def exclude(group: Group, live: Live) -> None:
    """Take it out of the matcher, if it is there."""
    if not live.matching:
        return
    matcher = group.state.matcher
    tree = matcher.tree(live.id)
    matcher.remove(live.id)
    live.matching = False

    def undo() -> None:
        matcher.restore(live.id, tree)
        live.matching = True

    group.on_undo(undo)


def set_status(group: Group, live: Live, status: str) -> None:
    """Note its status; out of the matcher with it where that is a silent one."""
    before = live.status
    if status in SILENT:
        exclude(group, live)
    live.status = status

    def undo() -> None:
        live.status = before

    group.on_undo(undo)
    group.touched.add(live.number)


def set_expiry(group: Group, live: Live, expires_at: float) -> None:
    """Note when it ends."""
    before = live.expires_at
    live.expires_at = expires_at

    def undo() -> None:
        live.expires_at = before

    group.on_undo(undo)


def forget(group: Group, live: Live) -> None:
    """It is deleted."""
    exclude(group, live)
    everyone = group.state.live
    del everyone[live.id]

    def undo() -> None:
        everyone[live.id] = live

    group.on_undo(undo)
    group.touched.add(live.number)


def swap_matcher(group: Group, matcher: Matcher, declarations: Declarations) -> None:
    """Another matcher, under another vocabulary, with the same subscriptions: `matching` follows what it holds.
    `declarations` are what that vocabulary was made of, beside its ontologies."""
    state, before, declared_before = group.state, group.state.matcher, group.state.declarations
    states_before = [(live, live.matching) for live in state.live.values()]
    state.matcher, state.declarations = matcher, declarations
    for live in state.live.values():
        live.matching = live.id in matcher

    def undo() -> None:
        state.matcher, state.declarations = before, declared_before
        for live, matching in states_before:
            live.matching = matching

    group.on_undo(undo)


def _drop(everyone: dict[str, Live], id: str) -> None:
    del everyone[id]
