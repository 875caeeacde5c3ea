"""The broker: what the API and the delivery ask for, as coroutines; a queue; and the thread that answers.

    API, delivery ──command──▶ queue ──group──▶ BrokerThread (matcher + one transaction) ──commit──▶ answers, listeners

SKELETON - signatures are fixed, bodies follow.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from sqlalchemy import Connection

from semantic import Vocabulary
from server.settings import Settings

__all__ = ["Broker"]

T = TypeVar("T")


class Broker:
    """One a process and data folder. Its coroutines run on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.listeners: list[Callable[[Collection[int]], None]] = []
        """Called in the broker's thread after each commit with the numbers of the subscriptions that got a match or were
        created, changed or deleted in it (only when there are any). Must return at once and not raise."""

    async def start(self) -> None:
        """Open the store, restore everything, start the thread. Raises what makes that impossible."""

    async def stop(self) -> None:
        """Answer what is queued, then end the thread and close the store."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary in force. Any thread."""
        raise AssertionError

    async def read(self, work: Callable[[Connection], T]) -> T:
        """`work` in a worker thread, on a connection that can only read: one snapshot of the last commit."""
        raise AssertionError

    async def execute(self, work: Callable[[Connection], T], announce: Callable[[T], Collection[int]] | None = None) -> T:
        """`work` in the broker's thread, inside the transaction of a group, with a savepoint of its own: if it raises,
        its changes are undone and the exception is raised here. Returns after the commit.

        `announce(result)` gives the subscription numbers to tell the listeners of. It must not change what the matcher
        depends on: which subscriptions exist, whether they are paused or expired, ontologies.

        Raises `StoreUnavailable` when the commit failed: then nothing has happened.
        """
        raise AssertionError

    async def resume(self, id: str, ticket: str) -> dict[str, Any]:
        """Go on after `pause`, or after disabled_by_failures."""
        raise AssertionError
