"""Parking against a model that fits on a page: operators that answer, fail, hang, go and come back, while events and
subscriptions come and go and the server starts anew.

A real broker over SQLite, a real parking service, a real HTTP service for the operators. The delays between tries are
longer than any test; time passes when the test says so, by making the next tries due in the store.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from kindcast.semantic.errors import SemanticError
from kindcast.server.broker import write_queue
from kindcast.server.broker.late_matches import retry_given_up
from kindcast.server.errors import ServerError
from kindcast.server.store.tables import subscriptions
from tests.harness.broker import Breaking
from tests.harness.operator_service import OperatorService, running_service
from tests.harness.parking import Seen, Server, all_due, differs
from tests.oracle.parked import EXPRESSIONS, FORESEEN, NAMES, Model, truth


def commands_over(expressions: list[str]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        st.tuples(st.just("publish"), st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))),
        st.tuples(st.just("publish"), st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))),
        st.tuples(st.just("subscribe"), st.sampled_from(expressions)),
        st.tuples(st.just("unsubscribe"), st.integers(0, 3)),
        st.tuples(st.just("operator"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["says", "error", "hang"]))),
        st.tuples(st.just("operator"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["says", "error", "hang"]))),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.just("due"), st.none()),
        st.tuples(st.just("due"), st.none()),
        st.tuples(st.just("again"), st.none()),
        st.tuples(st.just("restart"), st.sampled_from([None, *NAMES])),
    )


COMMANDS = commands_over(sorted(EXPRESSIONS))
"""`restart`: perhaps without an operator that was there before."""
MOST_SUBSCRIPTIONS = 4


async def drive(folder: Path, service: OperatorService, commands: list[tuple[str, Any]]) -> None:
    model, server = Model(), Server(folder, service)
    await server.start()
    try:
        for command, what in [*BEGINNING, *commands]:
            named = named_subscription(model, command, what)
            if named == SKIPPED:
                continue
            if model.possible(command, named):
                await server.perform(command, named, model)
                model.apply(command, named)
            else:
                with pytest.raises((ServerError, SemanticError)):
                    await server.perform(command, named, model)
            await server.until(partial(differs, model, server))
    finally:
        await server.stop()


SKIPPED = "skipped"
BEGINNING: list[tuple[str, Any]] = [("operator", (name, "says")) for name in NAMES]


def named_subscription(model: Model, command: str, what: Any) -> Any:
    """The argument of a command, with the name of a subscription that is there; `SKIPPED`: it is left out."""
    if command == "unsubscribe":
        return sorted(model.live)[what] if what < len(model.live) else SKIPPED
    if command == "subscribe" and len(model.live) == MOST_SUBSCRIPTIONS:
        return SKIPPED
    return what


@pytest.fixture(scope="module")
def service() -> Iterator[OperatorService]:
    with running_service() as started:
        yield started


@settings(max_examples=settings.default.max_examples // 5)
@given(commands=st.lists(commands_over(FORESEEN), max_size=14))
@example(
    commands=[
        ("subscribe", "count(?x) and ?x > 0 or left()"),
        ("operator", ("left", "hang")),
        ("operator", ("count", "error")),
        ("publish", (1, 1, 1)),
        ("due", None),
        ("operator", ("left", "says")),
        ("restart", None),
    ]
)
def test_parking_any_history_is_as_the_model_says(service: OperatorService, commands: list[tuple[str, Any]]) -> None:
    """After each command and what it sets off: who got what, late or in time, once; tries and next tries; what was
    given up, and that the subscription says so; the totals."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(drive(Path(folder), service, commands))


Trouble = Literal["none", "before", "after", "cancelled", "next before", "next after"]
"""What befalls a command: its commit fails, before or after it was written, or the next commit does, likely that of
what operators said; whoever asked has gone."""
TROUBLES = st.sampled_from(["none", "none", "none", "before", "after", "cancelled", "next before", "next after"])


class Log:
    """What was asked for: the data of each event, and for whom it could be when it was published."""

    def __init__(self) -> None:
        self.model = Model()  # its names and numbers; what becomes of them is not foreseen here
        self.published: dict[int, dict[str, str]] = {}
        self.acknowledged: set[int] = set()

    async def perform(self, server: Server, command: str, what: Any, trouble: Trouble) -> None:
        model, number = self.model, len(self.model.data)
        if command == "publish":
            self.published[number] = dict(model.live)
        asked = asyncio.create_task(server.perform(command, what, model))
        if trouble == "cancelled" and command == "publish":
            await asyncio.sleep(0)
            asked.cancel()
        with suppress(ServerError, SemanticError, asyncio.CancelledError):
            await asked
            if command == "publish":
                self.acknowledged.add(number)
        if command == "publish":
            model.data.append(what)
        if command == "subscribe":
            model.live[model.next_name] = what
            model.made += 1
        there = await server.broker.read(_names)
        model.live = {name: expression for name, expression in model.live.items() if name in there}


def _names(connection: Connection) -> set[str]:
    return set(connection.execute(select(subscriptions.c.id)).scalars())


async def hurry(
    folder: Path, service: OperatorService, breaking: Breaking, commands: list[tuple[tuple[str, Any], Trouble]]
) -> None:
    log, server = Log(), Server(folder, service)
    await server.start()
    try:
        for (command, what), trouble in [*((each, "none") for each in BEGINNING), *commands]:
            named = named_subscription(log.model, command, what)
            if named == SKIPPED:
                continue
            if command != "restart":
                breaking.times = int(trouble.endswith(("before", "after")))
                breaking.after, breaking.spare = trouble.endswith("after"), int(trouble.startswith("next"))
            await log.perform(server, command, named, trouble)
            if trouble.startswith("next"):
                await asyncio.sleep(0.02)
        breaking.times = breaking.spare = 0
        for name in NAMES:
            await server.register(name, "says")
        await server.perform("restart", None, log.model)
        await server.broker.execute(all_due)
        await server.broker.submit(retry_given_up)
        server.late_matching.announce()
        await server.until(lambda store: f"waiting: {store.waits}" if store.waits else "")
        await server.until(partial(complete, log))
    finally:
        await server.stop()


def complete(log: Log, store: Seen) -> str:
    """What is missing, or too much, now that all operators are well and nothing waits any more."""
    assert log.acknowledged <= store.events, "an event is lost that was acknowledged"
    assert store.totals["parked_given_up"] == 0
    expected = {
        (number, name)
        for number in store.events
        for name, expression in log.published[number].items()
        if name in log.model.live and truth(expression, log.model.data[number])
    }
    assert store.got.keys() == expected
    return ""


@settings(max_examples=settings.default.max_examples // 5)
@given(commands=st.lists(st.tuples(COMMANDS, TROUBLES), max_size=20))
def test_parking_in_a_hurry_and_in_trouble_loses_nothing_and_doubles_nothing(
    service: OperatorService, commands: list[tuple[tuple[str, Any], Trouble]]
) -> None:
    """Nobody waits for the operators, commits fail before and after they are written (those of parking too), callers
    leave: in the end each event that is there has gone once to each subscription that it is for, and to no other."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_queue, "RETRY_SECONDS", 0.01)
        asyncio.run(hurry(Path(folder), service, Breaking(patch), commands))
