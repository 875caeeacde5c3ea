"""A broker without HTTP, on an event loop of the test's own, and a way to make its commits fail."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from kindcast.server.broker import Broker
from kindcast.server.broker.group import Group
from kindcast.server.broker.publishing import Outcome
from kindcast.server.broker.subscription_commands import NewSubscription
from kindcast.server.cloudevents import DecodedEvent, EventReader
from kindcast.server.security.keys import hash_of
from kindcast.server.settings import Settings
from kindcast.server.store.events import list_events

__all__ = ["READER", "Breaking", "event", "matched", "new", "run", "running", "stored"]

READER = EventReader(max_events=100)


def run(body: Callable[[], Awaitable[None]]) -> None:
    """A test on an event loop of its own."""
    asyncio.run(body())  # type: ignore[arg-type]


@asynccontextmanager
async def running(data: Path, **settings: Any) -> AsyncIterator[Broker]:
    broker = Broker(Settings(data=data, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def event(**data: Any) -> DecodedEvent:
    return READER.from_object({"specversion": "1.0", "id": str(data), "source": "s", "type": "t", "data": data})


def new(id: str, expression: str = "") -> NewSubscription:
    return NewSubscription(
        id=id,
        asked={"expression": expression},
        parts=(expression,),
        ticket_hash=hash_of("ticket"),
        expires_at=time.time() + 600,
    )


async def matched(broker: Broker, **data: Any) -> int:
    """How many subscriptions get an event with these data."""
    (outcome,) = await broker.publish([event(**data)])
    assert isinstance(outcome, Outcome)
    return outcome.matched


async def stored(broker: Broker) -> list[int]:
    rows = await broker.read(lambda connection: list_events(connection, after=0, type=None, limit=100))
    return [row.sequence for row in rows]


class Breaking:
    """Makes `times` commits fail, after `spare` that do not: before anything is written, or after all of it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commit = Group.commit
        self.spare = 0
        self.times = 0
        self.after = False
        monkeypatch.setattr(Group, "commit", lambda group: self._commit(group))

    def _commit(self, group: Group) -> None:
        if self.times == 0 or self.spare > 0:
            self.spare -= 1
            self.commit(group)
            return
        self.times -= 1
        if self.after:
            self.commit(group)
            group.state.commits -= 1  # as if the answer of the disk had never come
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))
