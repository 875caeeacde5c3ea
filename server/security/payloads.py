"""What a caller may see of events: hidden attributes are left out of payloads, and matches that tell of them are not
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
"""None: whoever reads sees everything, as where there are no keys."""
RolesOf = Callable[[str | None], Roles]
"""The roles of whoever made a subscription, by its `created_by`."""


def EVERYBODY(owner: str | None) -> Roles:  # noqa: N802 - a constant that is called
    """The caller of a server without keys."""
    return None


def hidden_in(view: View | None, tree: Any, *, explained: bool = False) -> list[str]:
    """What a view hides of that on which the tree of a subscription rests: attributes and calls of operators.
    `explained`: also what may only not be read. Linear in the tree."""
    if view is None:
        return []
    attributes = [part.attribute for part in footprint(tree) if isinstance(part, AttributePart)]
    return view.hidden_in(dict.fromkeys(attributes), sorted(operators_of(tree)), explained=explained)


def check_visible(view: View | None, tree: Any, *, explained: bool = False) -> None:
    """Raises `HiddenAttribute`."""
    if hidden := hidden_in(view, tree, explained=explained):
        raise HiddenAttribute(hidden)


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who reads what a tenant has, under the vocabulary in force."""

    roles: Roles
    vocabulary: Callable[[], Vocabulary]

    @property
    def view(self) -> View | None:
        return self.vocabulary().view_of_roles(self.roles)

    def shown(self, body: str) -> str:
        """An event as it may be read."""
        view = self.view
        return body if view is None else view.readable(body)

    def check(self, connection: Connection, number: int) -> None:
        """Raises `HiddenAttribute` if the matches of a subscription would reveal hidden values."""
        view = self.view
        if view is not None:
            for row in subscriptions.trees(connection, live_only=False, numbers=[number]):
                check_visible(view, row.tree)

    def visible(self, connection: Connection, numbers: Iterable[int]) -> set[int]:
        """The subscriptions whose matches reveal no hidden value."""
        view, numbers = self.view, list(numbers)
        if view is None:
            return set(numbers)
        rows = subscriptions.trees(connection, live_only=False, numbers=numbers)
        return {row.number for row in rows if not hidden_in(view, row.tree)}
