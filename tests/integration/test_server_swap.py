"""Another vocabulary while the server runs: nothing is missed, nothing is half-done."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kindcast.server.broker import renewal
from kindcast.server.broker import vocabulary_commands as vocabularies
from kindcast.server.broker.broker import Broker
from kindcast.server.errors import OntologyInUse, StoreUnavailable
from tests.harness.broker import Breaking, event, matched, new, run, running

TURTLE = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Slate rdfs:label "slate" ; a rdfs:Class .
"""


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return Breaking(monkeypatch)


def held(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Lets whatever prepares a matcher wait before the swap. Returns what is set then, and what lets it go on."""
    begun, gate = threading.Event(), threading.Event()
    prepare = vocabularies.prepare

    def slowly(*arguments: Any, **more: Any) -> Any:
        prepared = prepare(*arguments, **more)
        begun.set()
        gate.wait()
        return prepared

    monkeypatch.setattr(vocabularies, "prepare", slowly)
    return begun, gate


def test_swap_takes_along_what_came_and_went_while_it_was_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions made, deleted, paused and resumed while the next vocabulary is compiled are as they should be after
    the swap, and publishing goes on meanwhile."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.put_ontology("x", TURTLE.encode(), format="turtle", activate=True)
            for name in ("stays", "deleted", "paused", "resumed"):
                await broker.create_subscription(new(name, "target isa Computer"))
            await broker.pause("resumed", "ticket")
            begun, gate = held(monkeypatch)
            more = TURTLE + ":Slate rdfs:subClassOf :Computer ."
            swap = asyncio.ensure_future(broker.put_ontology("x", more.encode(), format="turtle", activate=True))
            await asyncio.to_thread(begun.wait)
            await broker.delete_subscription("deleted", "ticket")
            await broker.pause("paused", "ticket")
            await broker.resume("resumed", "ticket")
            await broker.create_subscription(new("made", "target isa Computer"))
            assert await matched(broker, target="laptop") == 3
            assert await matched(broker, target="slate") == 0
            gate.set()
            report, _ = await swap
            assert report["subscriptions"]["recompiled"] == 3
            for target in ("laptop", "slate"):
                (found,) = await broker.match([event(target=target).event])
                assert {match.subscription for match in found.matches} == {"stays", "resumed", "made"}

    run(body)


def test_id_that_is_given_again_while_a_swap_is_prepared_is_another_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that was deleted and made again with its id, as an import does it, keeps its new expression: what
    was compiled is the old one. It may be paused before, after, or both."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.put_ontology("x", TURTLE.encode(), format="turtle", activate=True)
            names = {"active", "was-paused", "is-paused", "both"}
            for name in names:
                await broker.create_subscription(new(name, "a = 1"))
            for name in ("was-paused", "both"):
                await broker.pause(name, "ticket")
            begun, gate = held(monkeypatch)
            more = TURTLE + ":Slate rdfs:subClassOf :Computer ."
            swap = asyncio.ensure_future(broker.put_ontology("x", more.encode(), format="turtle", activate=True))
            await asyncio.to_thread(begun.wait)
            for name in names:
                await broker.delete_subscription(name, "ticket")
                await broker.create_subscription(new(name, "a = 2"))
            for name in ("is-paused", "both"):
                await broker.pause(name, "ticket")
            gate.set()
            await swap
            for name in ("is-paused", "both"):
                await broker.resume(name, "ticket")
            one, two = await broker.match([event(a=1).event, event(a=2).event])
            assert ({each.subscription for each in one.matches}, {each.subscription for each in two.matches}) == (
                set(),
                names,
            )

    run(body)


def test_ontology_is_in_use_by_a_subscription_that_was_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a concept of the ontology now; the one that had its id before named none."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.put_ontology("x", TURTLE.encode(), format="turtle", activate=True)
            await broker.create_subscription(new("s", "a = 1"))
            begun, gate = held(monkeypatch)
            removal = asyncio.ensure_future(broker.vocabulary_commands.delete_ontology("x"))
            await asyncio.to_thread(begun.wait)
            await broker.delete_subscription("s", "ticket")
            await broker.create_subscription(new("s", "target isa Laptop"))
            gate.set()
            with pytest.raises(OntologyInUse):
                await removal

    run(body)


@pytest.mark.parametrize("what", ["names", "texts"])
def test_names_that_no_subscription_uses_any_more_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A client that subscribes with ever new names or texts does not fill the memory. What came and went while the
    matcher was made again is as it should be, and the names in use stay."""
    monkeypatch.setattr(renewal, "FEWEST_NAMES", 100)
    begun, gate = held(monkeypatch)

    async def come_and_go(broker: Broker, number: int) -> None:
        texts = ", ".join(f'"x{number}_{each}"' for each in range(80))
        names = " and ".join(f"x{number}_{each} > 1" for each in range(20))
        await broker.create_subscription(new("short", names if what == "names" else f"c in ({texts})"))
        await broker.delete_subscription("short", "ticket")

    async def body() -> None:
        async with running(tmp_path) as broker:
            for name in ("stays", "deleted", "paused"):
                await broker.create_subscription(new(name, "a > 1"))
            before, number = broker.state.matcher, 0
            while number < 100 and not begun.is_set():
                await come_and_go(broker, number)
                number += 1
            assert begun.is_set(), before.names
            await broker.delete_subscription("deleted", "ticket")
            await broker.pause("paused", "ticket")
            await broker.create_subscription(new("made", "b > 1"))
            assert await matched(broker, a=2, b=2, n=1) == 2
            gate.set()
            async with asyncio.timeout(60):
                while broker.state.matcher is before:
                    await asyncio.sleep(0.01)
            assert broker.state.matcher.names < 10
            assert broker.vocabulary is before.vocabulary
            assert await matched(broker, a=2, b=2, n=2) == 2
            await broker.resume("paused", "ticket")
            assert await matched(broker, a=2, b=2, n=3) == 3
            for number in range(10):
                await come_and_go(broker, number)
            assert broker.state.matcher.names < 10 * 40
        async with running(tmp_path) as broker:
            assert await matched(broker, a=2, b=2, n=4) == 3

    run(body)


def test_swap_that_cannot_be_committed_leaves_the_old_vocabulary(tmp_path: Path, breaking: Breaking) -> None:
    """A lost commit takes the ontology back on disk and in memory: the same version, the same matches."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.put_ontology("x", TURTLE.encode(), format="turtle", activate=True)
            await broker.create_subscription(new("s", "target isa Computer"))
            version = broker.vocabulary.version
            breaking.times = 1
            more = TURTLE + ":Slate rdfs:subClassOf :Computer ."
            with pytest.raises(StoreUnavailable):
                await broker.put_ontology("x", more.encode(), format="turtle", activate=True)
            assert broker.vocabulary.version == version
            assert (await matched(broker, target="laptop"), await matched(broker, target="slate")) == (1, 0)
            report, new_version = await broker.put_ontology("x", more.encode(), format="turtle", activate=True)
            assert (report["version"], new_version) == (2, True)
            assert await matched(broker, target="slate", n=2) == 1

    run(body)


def test_declaration_that_cannot_be_committed_has_not_happened(tmp_path: Path, breaking: Breaking) -> None:
    """Neither on disk nor in memory, where the next change would build upon it; a commit that happened without an
    answer has."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", "value > 30 degC"))
            version = broker.vocabulary.version
            breaking.times = 1
            with pytest.raises(StoreUnavailable):
                await broker.declaration_commands.put("attribute", "value", {"unit": "degF"})
            assert (broker.vocabulary.version, bool(broker.state.declarations)) == (version, False)
            await broker.declaration_commands.put("synonyms", "mine", {"a": "b"})
            assert await matched(broker, value=87) == 0
            breaking.times, breaking.after = 1, True
            await broker.declaration_commands.put("attribute", "value", {"unit": "degF"})
            assert await matched(broker, value=87, n=1) == 1
            told, new_version = await broker.declaration_commands.put("attribute", "value", {"unit": "degF"})
            assert (told["version"], new_version) == (1, False)

    run(body)
