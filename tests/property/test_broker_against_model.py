"""The broker against a model that fits on a page, with commits that fail in between.

A command whose commit failed before it was written has not happened; one whose commit failed after it was written has,
though its caller was told otherwise. After each command the matcher must say what the model says, and after a restart
it must say so again, from the store alone.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.broker import Broker
from server.errors import ServerError, StoreUnavailable
from tests.harness.broker import Breaking, event, new, running

Failure = Literal["none", "before", "after"]

NAMES = ("a", "b", "c")
NUMBERS = range(4)
BOUNDS = {"n >= 0": 0, "n >= 1": 1, "n >= 3": 3}
"""Expressions, and the least number that satisfies them."""

COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(("subscribe", "pause", "resume", "delete", "publish")),
        st.sampled_from(NAMES),
        st.sampled_from(sorted(BOUNDS)),
        st.sampled_from(NUMBERS),
        st.sampled_from(("none", "none", "none", "before", "after")),
    ),
    max_size=12,
)


class Model:
    """What is true: name → (least number, whether it matches), and number → who got it when it was accepted."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, tuple[int, bool]] = {}
        self.accepted: dict[int, int] = {}

    def who(self, number: int) -> set[str]:
        return {name for name, (least, matching) in self.subscriptions.items() if matching and number >= least}

    def apply(self, command: str, name: str, expression: str, number: int) -> None:
        match command:
            case "subscribe":
                self.subscriptions[name] = (BOUNDS[expression], True)
            case "pause" | "resume":
                self.subscriptions[name] = (self.subscriptions[name][0], command == "resume")
            case "delete":
                del self.subscriptions[name]
            case "publish":
                self.accepted.setdefault(number, len(self.who(number)))

    def possible(self, command: str, name: str) -> bool:
        if command == "subscribe":
            return name not in self.subscriptions
        return command == "publish" or name in self.subscriptions


async def perform(broker: Broker, command: str, name: str, expression: str, number: int) -> Any:
    match command:
        case "subscribe":
            return await broker.create_subscription(new(name, expression))
        case "pause":
            return await broker.pause(name, "ticket")
        case "resume":
            return await broker.resume(name, "ticket")
        case "delete":
            return await broker.delete_subscription(name, "ticket")
        case _:
            return await broker.publish([event(n=number)])


async def agree(broker: Broker, model: Model) -> None:
    """The matcher says what the model says, and the store holds what was accepted, once each."""
    found = await broker.match([event(n=number).event for number in NUMBERS])
    assert [{match.subscription for match in each.matches} for each in found] == [model.who(n) for n in NUMBERS]
    outcomes = await broker.publish([event(n=number) for number in model.accepted])
    assert [(outcome.duplicate, outcome.matched) for outcome in outcomes] == [  # type: ignore[union-attr]
        (True, matched) for matched in model.accepted.values()
    ]


async def drive(folder: Path, breaking: Breaking, commands: list[tuple[str, str, str, int, Failure]]) -> None:
    model = Model()
    async with running(folder) as broker:
        await broker.execute(lambda connection: None)  # the sweep of the start is over
        for command, name, expression, number, failure in commands:
            breaking.times, breaking.after = int(failure != "none"), failure == "after"
            possible = model.possible(command, name)
            try:
                await perform(broker, command, name, expression, number)
                assert possible
            except StoreUnavailable:
                assert failure != "none"
            except (ServerError, Exception) as error:
                if possible:
                    raise AssertionError(f"{command} {name} failed") from error
            breaking.times = 0
            if possible and failure != "before":
                model.apply(command, name, expression, number)
            await agree(broker, model)
    async with running(folder) as broker:
        await agree(broker, model)


@settings(max_examples=25)
@given(COMMANDS)
def test_broker_any_commands_with_failing_commits_agree_with_the_model(
    commands: list[tuple[str, str, str, int, Failure]],
) -> None:
    """Whatever is asked and whenever the disk fails, memory and store agree with the model, before a restart and
    after it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(drive(Path(folder), Breaking(monkeypatch), commands))
