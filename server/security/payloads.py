"""Visibility of payloads: hidden attributes are removed from payloads, and matches that would reveal them are not
shown. docs/security.md has the rules, `kindcast.semantic.vocabulary.visibility` what follows from a declaration.

    Caller.roles, or those of who made a subscription ──▶ Reader ──vocabulary in force──▶ View (None: sees everything)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from kindcast.semantic import Vocabulary
from kindcast.semantic.changes import AttributePart, footprint
from kindcast.semantic.vocabulary import View
from kindcast.server.errors import HiddenAttribute
from kindcast.server.operators.registry import operators_of
from kindcast.server.store import subscriptions

__all__ = ["EVERYBODY", "Reader", "Roles", "RolesOf", "check_visible", "hidden_in"]

Roles = frozenset[str] | None
"""The roles of a reader; None for a reader who sees everything, as without keys."""
RolesOf = Callable[[str | None], Roles]
"""A function that returns the roles of the creator of a subscription, by its `created_by`."""


def EVERYBODY(owner: str | None) -> Roles:  # noqa: N802 - a constant that is called
    """Returns the roles of the caller of a server without keys."""
    return None


def hidden_in(view: View | None, tree: Any, *, explained: bool = False) -> list[str]:
    """Returns the attributes and operator calls in the tree of a subscription that a view hides. `explained`: also
    those that only may not be read. Cost: linear in the tree."""
    if view is None:
        return []
    attributes = [part.attribute for part in footprint(tree) if isinstance(part, AttributePart)]
    return view.hidden_in(dict.fromkeys(attributes), sorted(operators_of(tree)), explained=explained)


def check_visible(view: View | None, tree: Any, *, explained: bool = False) -> None:
    """Raises `HiddenAttribute` if a view hides a part of the tree."""
    if hidden := hidden_in(view, tree, explained=explained):
        raise HiddenAttribute(hidden)


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a tenant's data, under the active vocabulary."""

    roles: Roles
    vocabulary: Callable[[], Vocabulary]

    @property
    def view(self) -> View | None:
        return self.vocabulary().view_of_roles(self.roles)

    def shown(self, body: str) -> str:
        """Returns an event as this reader may see it."""
        view = self.view
        return body if view is None else view.readable(body)

    def check(self, connection: Connection, number: int) -> None:
        """Raises `HiddenAttribute` if the matches of a subscription would reveal hidden values."""
        view = self.view
        if view is not None:
            for row in subscriptions.trees(connection, live_only=False, numbers=[number]):
                check_visible(view, row.tree)

    def visible(self, connection: Connection, numbers: Iterable[int]) -> set[int]:
        """Returns the subscriptions whose matches reveal no hidden value."""
        view, numbers = self.view, list(numbers)
        if view is None:
            return set(numbers)
        rows = subscriptions.trees(connection, live_only=False, numbers=numbers)
        return {row.number for row in rows if not hidden_in(view, row.tree)}
