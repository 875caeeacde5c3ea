"""The broker against a model that fits on a page, with commits that fail in between.

A command whose commit failed before it was written has not happened; one whose commit failed after it was written has,
though its caller was told otherwise. After each command the matcher must say what the model says, and after a restart
it must say so again, from the store alone.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.broker import Broker
from kindcast.server.cloudevents import DecodedEvent
from kindcast.server.errors import ServerError, StoreUnavailable
from tests.harness.broker import Breaking, event, new, running

Failure = Literal["none", "before", "after"]

NAMES = ("a", "b", "c")
NUMBERS = range(4)
SMALL, LARGE, EVEN = "n >= 1", "n >= 3", "kind isa <http://e/Even>"
EXPRESSIONS = (SMALL, LARGE, EVEN)

KINDS = (
    "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :Two rdfs:subClassOf :Number . "
)
VERSIONS = {
    1: KINDS + ":Zero rdfs:subClassOf :Even .",
    2: KINDS + ":Zero rdfs:subClassOf :Even . :Two rdfs:subClassOf :Even .",
}
"""Of the ontology: in the first one two is not even yet."""
WORDS = ("Zero", "One", "Two", "Three")

COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(("subscribe", "pause", "resume", "delete", "publish", "publish", "activate")),
        st.sampled_from(NAMES),
        st.sampled_from(EXPRESSIONS),
        st.sampled_from(NUMBERS),
        st.sampled_from(("none", "none", "none", "before", "after")),
    ),
    max_size=12,
)


class Model:
    """What is true: name → (expression, whether it matches), number → who got it when it was accepted, and the version
    in force."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, tuple[str, bool]] = {}
        self.accepted: dict[int, int] = {}
        self.version = 1

    def who(self, number: int) -> set[str]:
        return {name for name, (what, matching) in self.subscriptions.items() if matching and self.holds(what, number)}

    def holds(self, expression: str, number: int) -> bool:
        match expression:
            case "n >= 1":
                return number >= 1
            case "n >= 3":
                return number >= 3
            case _:
                return number == 0 or (number == 2 and self.version == 2)

    def apply(self, command: str, name: str, expression: str, number: int) -> None:
        match command:
            case "subscribe":
                self.subscriptions[name] = (expression, True)
            case "pause" | "resume":
                self.subscriptions[name] = (self.subscriptions[name][0], command == "resume")
            case "delete":
                del self.subscriptions[name]
            case "publish":
                self.accepted.setdefault(number, len(self.who(number)))
            case "activate":
                self.version = version_of(number)

    def possible(self, command: str, name: str) -> bool:
        if command == "subscribe":
            return name not in self.subscriptions
        return command in ("publish", "activate") or name in self.subscriptions


def version_of(number: int) -> int:
    return 1 + number % 2


def numbered(number: int) -> DecodedEvent:
    return event(n=number, kind=f"http://e/{WORDS[number]}")


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
        case "activate":
            return await broker.vocabulary_commands.activate_ontology("kinds", version_of(number))
        case _:
            return await broker.publish([numbered(number)])


async def agree(broker: Broker, model: Model) -> None:
    """The matcher says what the model says, and the store holds what was accepted, once each."""
    found = await broker.match([numbered(number).event for number in NUMBERS])
    assert [{match.subscription for match in each.matches} for each in found] == [model.who(n) for n in NUMBERS]
    outcomes = await broker.publish([numbered(number) for number in model.accepted])
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


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with both versions of the ontology, the first one in force."""
    folder = tmp_path_factory.mktemp("kinds")

    async def prepare() -> None:
        async with running(folder) as broker:
            for version, document in VERSIONS.items():
                await broker.put_ontology("kinds", document.encode(), format="turtle", activate=version == 1)

    asyncio.run(prepare())
    return folder


@given(COMMANDS)
def test_broker_any_commands_with_failing_commits_agree_with_the_model(
    begun: Path, commands: list[tuple[str, str, str, int, Failure]]
) -> None:
    """Whatever is asked and whenever the disk fails, memory and store agree with the model, before a restart and
    after it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        shutil.copytree(begun, folder, dirs_exist_ok=True)
        asyncio.run(drive(Path(folder), Breaking(monkeypatch), commands))
