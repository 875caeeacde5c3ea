"""Events that were matched before their group began, while another server held the lock: what was found counts only
where nothing has changed since."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kindcast.server.broker import writer_thread
from kindcast.server.broker.publishing import Ahead, Publication
from kindcast.server.broker.state import State
from tests.harness.application import publish, running_application, subscribe
from tests.harness.broker import event, new, run, running
from tests.harness.postgresql import PostgreSQL


def test_what_was_found_ahead_counts_until_the_matcher_changes(tmp_path: Path) -> None:
    """The matches of the same events, in the same order; none for others. After a change the matches count no more, and
    what was read counts until a subscription uses another attribute or another reading."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("one", "n >= 1"))
            published = [event(n=number) for number in range(3)]
            ahead = Ahead(broker.state, [Publication(published)])
            reads: list[Any] = [ahead.read(each) for each in published]
            assert None not in reads
            table = ahead.table(reads)
            assert table is not None
            assert np.diff(table.offsets).tolist() == [0, 1, 1]
            assert ahead.table(reads[1:]) is None
            assert ahead.read(event(n=0)) is None
            assert ahead.matches_hold(broker.state)
            await broker.create_subscription(new("two", "n >= 2"))
            assert ahead.reads_hold(broker.state)
            assert not ahead.matches_hold(broker.state)
            later = Ahead(broker.state, [Publication(published)])
            await broker.create_subscription(new("three", 'n = "1"'))
            assert not later.reads_hold(broker.state)

    run(body)


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
            def __init__(self, state: State, publications: Any) -> None:
                super().__init__(state, publications)
                if not told:
                    told.append(True)
                    path, headers = f"/v1/subscriptions/{gone['id']}", {"Kindcast-Ticket": gone["ticket"]}
                    assert first.delete(path, headers=headers).status_code == 200
                    for expression in asked:
                        subscribe(first, expression)

        monkeypatch.setattr(writer_thread, "Ahead", Slow)
        for _ in range(20):  # nothing is matched ahead where another command stands before the publication
            matched = publish(second, n=1, m=2, word="x")
            if told:
                break
        assert (matched, told) == (2, [True])
