"""A broker with its parking, in one event loop; time passes when the test says so; what the store holds, for models.

The delays between tries are longer than any test: `all_due` makes the next tries due in the store.
"""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import retry_given_up
from kindcast.server.broker.operator_commands import register, unregister
from kindcast.server.cloudevents import DecodedEvent
from kindcast.server.late_matching import LateMatchingService, running_late_matching
from kindcast.server.operators.registry import Registration
from kindcast.server.settings import Settings
from kindcast.server.store import ledger
from kindcast.server.store.matches import recipients_of
from kindcast.server.store.tables import events, operators, parked, subscriptions
from tests.harness.broker import event, new, running
from tests.harness.operator_service import OperatorService
from tests.oracle.parked import NAMES, Data, Model

__all__ = ["TOTALS", "Seen", "Server", "all_due", "differs", "seen"]

PATIENCE_SECONDS = 30.0
FAR_SECONDS = 100_000.0
SETTINGS: dict[str, Any] = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": (FAR_SECONDS,)}
"""One delay: two tries."""
TOTALS = ("parked", "parked_matched", "parked_unmatched", "parked_given_up", "parked_withdrawn")


class Server:
    """A broker with its parking, started and stopped in one event loop."""

    def __init__(self, folder: Path, service: OperatorService) -> None:
        self.folder, self.service = folder, service
        self.broker: Broker
        self.late_matching: LateMatchingService
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self.broker = await self._stack.enter_async_context(running(self.folder, **SETTINGS))
        own = Settings(data=self.folder, **SETTINGS)
        self.late_matching = await self._stack.enter_async_context(running_late_matching(self.broker, own))

    async def stop(self) -> None:
        await self._stack.aclose()

    async def register(self, name: str, mode: str) -> None:
        path = mode if mode != "says" else "bindings" if name == "count" else f"says/{name}"
        told = Registration(url=f"{self.service.url}/{path}", timeout_seconds=60.0, concurrency=256, retries=0)
        await self.broker.submit(lambda group: register(group, name, told, limit=10))

    async def perform(self, command: str, what: Any, model: Model) -> None:
        match command:
            case "publish":
                await self.broker.publish([numbered(len(model.data), what)])
            case "subscribe":
                await self.broker.create_subscription(new(model.next_name, what))
            case "unsubscribe":
                await self.broker.delete_subscription(what, "ticket")
            case "operator":
                await self.register(*what)
            case "remove":
                await self.broker.submit(lambda group: unregister(group, what))
            case "due":
                await self.broker.execute(all_due)
                self.late_matching.announce()
            case "again":
                await self.broker.submit(retry_given_up)
            case "restart":
                if what is not None:
                    gone = delete(operators).where(operators.c.name == what)
                    await self.broker.execute(lambda connection: connection.execute(gone).close())
                await self.stop()
                await self.start()

    async def until(self, agrees: Callable[["Seen"], str]) -> None:
        """Waits till `agrees` has nothing to say against what is in the store, nor a moment later."""
        deadline, agreed = time.monotonic() + PATIENCE_SECONDS, 0
        while agreed < 2:
            told = agrees(await self.broker.read(seen))
            assert time.monotonic() < deadline, told
            agreed = 0 if told else agreed + 1
            await asyncio.sleep(0.005)
            await self.late_matching.late_matchers.run(lambda: None)  # what was begun before has been looked at
            await self.broker.execute(lambda connection: None)

    def running(self, name: str) -> int:
        way = self.late_matching.late_matchers.operator_clients.get(name)
        return 0 if way is None else int(way.status()["running"])


def numbered(number: int, data: Data) -> DecodedEvent:
    left, right, n = data
    return event(left=left, right=right, n=n, count=n, number=number)


def all_due(connection: Connection) -> None:
    """Time passes."""
    connection.execute(update(parked).where(parked.c.next_try_at.is_not(None)).values(next_try_at=time.time()))


@dataclass
class Seen:
    """What the store holds, in the words of the model."""

    waits: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)
    got: dict[tuple[int, str], tuple[bool, int | None]] = field(default_factory=dict)
    undecided: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)
    totals: dict[str, int] = field(default_factory=dict)


def seen(connection: Connection) -> Seen:
    """One snapshot. Fails where an event is there twice for a subscription."""
    found, now = Seen(), time.time()
    rows = connection.execute(select(events.c.sequence, events.c.body))
    numbers = {row.sequence: json.loads(row.body)["data"]["number"] for row in rows}
    found.events = set(numbers.values())
    names = {}
    for row in connection.execute(select(subscriptions)):
        names[row.number] = row.id
        found.undecided[row.id], found.reasons[row.id] = row.undecided, row.last_undecided_reason or ""
    for row in connection.execute(select(parked)):
        when = "never" if row.next_try_at is None else "later" if row.next_try_at > now + FAR_SECONDS / 2 else "now"
        found.waits[numbers[row.event], names[row.subscription]] = (row.tries, when)
    for sequence, number in numbers.items():
        for each in recipients_of(connection, sequence):
            if each.number not in names:
                continue
            pair = (number, names[each.number])
            assert pair not in found.got, f"twice: {pair}"
            bound = {binding["x"] for binding in json.loads(each.bindings or "[]")}
            found.got[pair] = (each.position != sequence, max(bound, default=None))
    assert not found.got.keys() & found.waits.keys()
    totals = ledger.read_totals(connection)
    assert ledger.uncounted(connection) == 0
    found.totals = {name: getattr(totals, name) for name in TOTALS}
    decided = sum(found.totals.values()) - totals.parked
    assert totals.parked == decided + totals.parked_waiting, totals
    return found


def differs(model: Model, server: Server, store: Seen) -> str:
    """What the model says otherwise; empty where all is as it says."""
    waits = {
        pair: (each.tries, "never" if each.given_up else "now" if each.held else "later")
        for pair, each in model.waits.items()
    }
    pairs: list[tuple[object, object]] = [
        (store.waits, waits),
        (store.got, model.got),
        (store.undecided, {name: model.undecided[name] for name in model.live}),
        (store.totals, {name: model.totals[name] for name in TOTALS}),
    ]
    told = [f"store {found}, model {expected}" for found, expected in pairs if found != expected]
    told += [f"{name} is not asked yet" for name in NAMES if server.running(name) < model.asked(name)]
    for name, reason in store.reasons.items():
        if store.undecided[name]:
            assert any(call in reason for call in NAMES), reason
    return "; ".join(told)
