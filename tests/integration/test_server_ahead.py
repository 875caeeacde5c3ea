"""Events that were matched before their group began, while another server held the lock: what was found counts only
where nothing has changed since."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kindcast.server.broker import broker as broker_module
from kindcast.server.broker import writer_thread
from kindcast.server.broker.publishing import Ahead, Outcome
from kindcast.server.broker.state import State
from tests.harness.application import publish, running_application, subscribe
from tests.harness.broker import event, matched, new, run, running
from tests.harness.postgresql import PostgreSQL


def test_what_was_found_ahead_counts_until_the_matcher_changes(tmp_path: Path) -> None:
    """The matches of the same events, in the same order; none for others. After a change the matches count no more, and
    what was read counts until a subscription uses another attribute or another reading."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("one", "n >= 1"))
            published = [event(n=number) for number in range(3)]
            ahead = Ahead(broker.state)
            assert ahead.match(published, 60.0)
            reads: list[Any] = [ahead.read(each) for each in published]
            assert None not in reads
            table = ahead.table(reads)
            assert table is not None
            assert np.diff(table.offsets).tolist() == [0, 1, 1]
            some = ahead.table(reads[1:])  # the first is a duplicate, for example
            assert some is not None
            assert (some.offsets.tolist(), some.slots.tolist()) == ([0, 1, 2], table.slots.tolist())
            assert ahead.table([*reads, broker.state.matcher.read(event(n=1).event)]) is None
            assert ahead.read(event(n=0)) is None
            assert ahead.matches_hold(broker.state)
            await broker.create_subscription(new("two", "n >= 2"))
            assert ahead.reads_hold(broker.state)
            assert not ahead.matches_hold(broker.state)
            later = Ahead(broker.state)
            assert later.match(published, 60.0)
            await broker.create_subscription(new("three", 'n = "1"'))
            assert not later.reads_hold(broker.state)
            last = Ahead(broker.state)
            assert last.match(published, 60.0)
            assert last.reads_hold(broker.state)
            await broker.create_subscription(new("calls", 'n >= 1 and anyMatches("^1", @n)'))
            assert not last.reads_hold(broker.state)  # operators see the time of arrival

    run(body)


def test_others_are_served_while_a_large_document_is_matched(tmp_path: Path) -> None:
    """Its events are accepted together at the end. A subscription that was made meanwhile is told of all of them."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("costly", 'every a matches "b+c"'))
            events = [event(a="x" * 50 + "bc", weight="5 F", number=number) for number in range(4_000)]
            asked = asyncio.ensure_future(broker.publish_together(events))
            await asyncio.sleep(0)
            assert await matched(broker, a="bc") == 1
            assert not asked.done()
            await broker.create_subscription(new("later", "a exists"))
            assert not asked.done()
            assert await matched(broker, a="abc") == 2
            told = await asked
            assert {each.matched for each in told} == {2}
            assert {note.code for each in told for note in each.notes} == {"surprising-unit"}
            first, last = told[0].sequence, told[-1].sequence
            assert [each.sequence for each in told] == list(range(first, last + 1))

    run(body)


@pytest.mark.parametrize("expression", ["every made < ce.received", "not every made > ce.received"])
def test_each_value_is_compared_with_the_time_of_arrival(expression: str, tmp_path: Path) -> None:
    """Of single events, batches and documents."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", expression))
            events = [event(made=["2020-01-31", "2021-01-31"], number=number) for number in range(60)]
            told = [*await broker.publish(events[:1]), *await broker.publish(events[1:30])]
            told += await broker.publish_together(events[30:])
            assert [each.matched for each in told if isinstance(each, Outcome)] == [1] * 60

    run(body)


def test_a_document_is_accepted_though_subscriptions_keep_changing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matching begins again a few times; then its events are matched as they are accepted."""
    begun: list[Ahead] = []

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("one", "n >= 1"))

            class Outdated(Ahead):
                def __init__(self, state: State) -> None:
                    super().__init__(state)
                    begun.append(self)

                def matches_hold(self, state: State) -> bool:
                    return False

                def match(self, *given: Any, **named: Any) -> bool:
                    super().match(*given, **named)
                    return False

            monkeypatch.setattr(broker_module, "Ahead", Outdated)
            told = await broker.publish_together([event(n=number) for number in range(100)])
            assert [each.matched for each in told] == [0] + 99 * [1]

    run(body)
    assert 1 < len(begun) < 10


@pytest.mark.parametrize("asked", [("n >= 1", "n <= 1"), ("m = 2", 'n = 1 and word = "x"')])
def test_a_subscription_that_came_after_the_look_ahead_matches(
    asked: tuple[str, str], postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between matching ahead and the lock another server makes subscriptions, and deletes one. They use the same
    attribute as before, or others, which were not read."""
    database = postgresql.new_database()
    with (
        running_application(tmp_path / "first", database=database) as first,
        running_application(tmp_path / "second", database=database) as second,
    ):
        gone = subscribe(first, "n = 1")
        assert publish(second, n=1) == 1
        told: list[bool] = []

        class Slow(Ahead):
            def match(self, *given: Any, **named: Any) -> bool:
                done = super().match(*given, **named)
                if not told:
                    told.append(True)
                    path, headers = f"/v1/subscriptions/{gone['id']}", {"Kindcast-Ticket": gone["ticket"]}
                    assert first.delete(path, headers=headers).status_code == 200
                    for expression in asked:
                        subscribe(first, expression)
                return done

        monkeypatch.setattr(writer_thread, "Ahead", Slow)
        for _ in range(20):  # nothing is matched ahead where another command stands before the publication
            matched = publish(second, n=1, m=2, word="x")
            if told:
                break
        assert (matched, told) == (2, [True])
