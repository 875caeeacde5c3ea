"""Stored matches against a model that fits on a page: whatever is folded, merged, moved, too old or taken back.

The model is a set of (subscription, position, event, bindings). After each step every question that the store answers
is asked: what a subscription gets, what waits for it, who got an event.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, inspect, select, update

from kindcast.server.cloudevents import digest_of
from kindcast.server.settings import Settings
from kindcast.server.store import deliveries, ledger, matches, older_matches, postings
from kindcast.server.store.database import Database
from kindcast.server.store.events import EventRow, insert_events
from kindcast.server.store.tables import late, match_lists, subscriptions
from kindcast.server.store.tables import ledger as ledger_table

NUMBERS = (1, 2, 3, 70, 200, 5_000_000_000)
"""Subscriptions; the last one does not fit into 32 bits."""
STEPS = 30


@dataclass
class Model:
    """What is true: position → (event, bindings by subscription), and each subscription's cursor."""

    got: dict[int, tuple[int, dict[int, str | None]]] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0))
    lost: dict[int, int] = field(default_factory=dict)
    undelivered: Counter[int] = field(default_factory=Counter)
    sequence: int = 0

    def positions(self, number: int, after: int = 0) -> list[int]:
        return [at for at, (_, to) in sorted(self.got.items()) if number in to and at > after]

    def copy(self) -> "Model":
        return Model(dict(self.got), dict(self.acked), dict(self.lost), Counter(self.undelivered), self.sequence)


class Store:
    """A database, its model, and a random choice of what happens next."""

    def __init__(self, database: Database, writer: Connection, chosen: random.Random) -> None:
        self.database, self.writer, self.chosen = database, writer, chosen
        self.model = Model()

    def publish(self, connection: Connection, model: Model) -> None:
        lists, rows = [], []
        for _ in range(self.chosen.randint(1, 4)):
            model.sequence += 1
            to = self.some_matches()
            rows.append(event_row(model.sequence))
            lists.append(matches.packed(model.sequence, None, to))
            model.got[model.sequence] = (model.sequence, to)
        insert_events(connection, rows)
        matches.insert_matches(connection, lists)

    def decide_late(self, connection: Connection, model: Model) -> None:
        events = sorted({event for event, _ in model.got.values()})
        if not events:
            return
        event = self.chosen.choice(events)
        had = {number for of, to in model.got.values() if of == event for number in to}
        to = {number: told for number, told in self.some_matches().items() if number not in had}
        if not to:
            return
        model.sequence += 1
        connection.execute(insert(late).values(position=model.sequence, event=event, decided_at=0.0))
        matches.insert_matches(connection, [matches.packed(model.sequence, event, to)])
        model.got[model.sequence] = (event, to)

    def acknowledge(self, connection: Connection, model: Model) -> None:
        number = self.chosen.choice(sorted(model.acked))
        subscriber = deliveries.find_subscriber(connection, number)
        assert subscriber is not None
        through = self.chosen.randint(0, model.sequence)
        model.acked[number] = max(through, model.acked[number])
        assert deliveries.acknowledge(connection, [(subscriber, through)]) == [model.acked[number]]

    def delete(self, connection: Connection, model: Model) -> None:
        if len(model.acked) > 2 and self.chosen.random() < 0.3:
            number = self.chosen.choice(sorted(model.acked))
            connection.execute(subscriptions.delete().where(subscriptions.c.number == number))
            del model.acked[number]

    def grow_old(self, connection: Connection, model: Model) -> None:
        before = self.chosen.randint(0, max(0, model.sequence - 2))
        number = matches.end_of_discard(connection, before, at_most=self.chosen.choice((1, 5, 100)))
        if number is None:  # all of them are gone, or the first ones are still to be moved
            waits_from = connection.execute(select(ledger_table.c.older_from)).scalar_one() or before
            assert not any(at < min(before, waits_from) for at in model.got)
            return
        gone = {at: to for at, (_, to) in model.got.items() if at < number}
        pending = sum(at > model.acked[one] for at, to in gone.items() for one in to if one in model.acked)
        assert deliveries.discard_matches(connection, number) == pending
        for at in sorted(gone):
            model.lost |= {one: at for one in gone[at] if one in model.acked}
            model.undelivered.update(one for one in gone[at] if one in model.acked and at > model.acked[one])
            del model.got[at]

    def some_matches(self) -> dict[int, str | None]:
        numbers = self.chosen.sample(NUMBERS, self.chosen.randint(0, len(NUMBERS)))
        bound = self.chosen.random() < 0.3
        return {number: f'[{{"x":{number}}}]' if bound and number % 2 else None for number in numbers}

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def command(self, *changes: Callable[[Connection, Model], None]) -> None:
        """Changes in one transaction, which may be taken back."""
        model = self.model.copy()
        with self.writer.begin() as transaction:
            for change in changes:
                change(self.writer, model)
                agree(self.writer, model)  # who writes sees what it wrote
            if self.chosen.random() < 0.2:
                transaction.rollback()
                self.database.matches.forget()
                return
            self.writer.execute(update(ledger_table).values(sequence=model.sequence))
        self.model = model

    def compact(self) -> None:
        """What the broker does in the background; the writer may take it back."""
        with self.writer.begin() as transaction:
            for move in self.database.read(matches.find_moves)[: self.chosen.randint(0, 3)]:
                assert matches.store_move(self.writer, move)
            matches.erase_moved(self.writer)
            if (block := self.database.read(matches.find_fold)) is not None:
                assert matches.store_fold(self.writer, block)
                assert not matches.store_fold(self.writer, block), "once"
            agree(self.writer, self.model)
            if self.chosen.random() < 0.2:
                transaction.rollback()
                self.database.matches.forget()
        if (block := self.database.read(matches.find_merge)) is not None:
            with self.writer.begin():
                assert matches.store_merge(self.writer, block)

    def step(self) -> None:
        match self.chosen.randint(0, 5):
            case 0 | 1:
                self.command(self.publish, self.acknowledge)
            case 2:
                self.command(self.decide_late, self.publish)
            case 3:
                self.command(self.grow_old, self.delete)
            case _:
                self.compact()
        self.database.read(lambda connection: agree(connection, self.model))


def agree(connection: Connection, model: Model) -> None:
    """The store says what the model says."""
    waiting = {number: len(model.positions(number, acked)) for number, acked in model.acked.items()}
    assert matches.count_waiting(connection, model.acked) == {
        number: count for number, count in waiting.items() if count
    }
    assert matches.matched_after(connection, model.acked) == {number for number, count in waiting.items() if count}
    for number in model.acked:
        middle = model.sequence // 2
        mine = model.positions(number)
        assert matches.find_positions(connection, number, after=0, limit=1_000) == mine
        assert matches.find_positions(connection, number, after=middle, limit=2) == model.positions(number, middle)[:2]
        assert matches.count_matches(connection, number, after=1, through=middle) == sum(
            1 < at <= middle for at in mine
        )
        read = deliveries.MatchReader(connection).read(number, after=0, limit=1_000, byte_budget=1 << 20)
        assert [(each.position, each.sequence, each.bindings) for each in read] == [
            (at, model.got[at][0], model.got[at][1][number]) for at in mine
        ]
    events = {event for event, _ in model.got.values()}
    everybody = matches.numbers_of_recipients(connection, events)
    for event in events:
        who = [
            (number, at, told)
            for at, (of, to) in model.got.items()
            for number, told in to.items()
            if of == event and number in model.acked
        ]
        found = [each for each in matches.recipients_of(connection, event) if each.number in model.acked]
        assert found == sorted(who), event
        numbers = {each.number for each in matches.recipients_of(connection, event, retractions_too=True)}
        assert [*everybody.get(event, ())] == sorted(numbers), event
    lost = {row.subscription: row.through for row in connection.execute(select(deliveries.discarded))}
    assert lost == model.lost
    undelivered = connection.execute(select(deliveries.undelivered)).all()
    assert {row.subscription: row.matches for row in undelivered} == model.undelivered


def event_row(sequence: int) -> EventRow:
    body = f'{{"id":"{sequence}"}}'
    return EventRow(sequence, "s", str(sequence), "t", digest_of(body) or "", body, 0.0, "v", 0, None)


@contextmanager
def opened(folder: Path, chosen: random.Random, *, older: bool) -> Iterator[Store]:
    """A store with subscriptions; `older`: with rows of layout 5, which it has to move."""
    database = Database(Settings(data=folder))
    with database.open() as writer:
        store = Store(database, writer, chosen)
        with writer.begin():
            ledger.open_ledger(writer)
            for number in NUMBERS:
                writer.execute(insert(subscriptions).values(subscription_row(number)))
            if older:
                store.publish(writer, store.model)
                store.publish(writer, store.model)
                store.decide_late(writer, store.model)
                as_layout_5(writer, store.model)
        yield store
    database.close()


def as_layout_5(connection: Connection, model: Model) -> None:
    """The matches as they were before they were packed, and the step of the start."""
    connection.execute(match_lists.delete())
    older_matches.matches.create(connection)
    rows = [
        {"subscription": number, "position": at, "bindings": told, "event": None if of == at else of}
        for at, (of, to) in model.got.items()
        for number, told in to.items()
    ]
    if rows:
        connection.execute(insert(older_matches.matches), rows)
    connection.execute(update(ledger_table).values(sequence=model.sequence))
    older_matches.begin(connection, model.sequence)


def subscription_row(number: int) -> dict[str, object]:
    texts = dict.fromkeys(("id", "canonical", "ticket_hash"), str(number))
    zeros = dict.fromkeys(("clauses", "cost", "created_at", "expires_at", "created_sequence"), 0)
    return {
        **texts,
        **zeros,
        "number": number,
        "expression": {},
        "tree": {},
        "notes": [],
        "status": "active",
        "acked": 0,
    }


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(0, 1 << 32), st.booleans())
def test_stored_matches_agree_with_the_model(seed: int, older: bool) -> None:
    """Random steps, each of them followed by every question, to who writes and to who reads."""
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as folder:
        for name, value in {
            "FOLD_POSITIONS": 3,
            "FOLD_MATCHES": 12,
            "BLOCK_POSITIONS": 6,
            "BLOCK_MATCHES": 15,
            "BLOCKS_MERGED": 2,
            "MERGED_MATCHES": 60,
            "MOVED_POSITIONS": 2,
            "MOVED_MATCHES": 4,
            "CACHED_BYTES": 400,
        }.items():
            small.setattr(matches, name, value)
        small.setattr(postings, "PAIRS_A_PAGE", 4)
        small.setattr(postings, "COMPRESSED_FROM", 3)
        small.setattr(older_matches, "MATCHES_A_PASS", 6)
        small.setattr(older_matches, "ERASED_AT_ONCE", 5)
        with opened(Path(folder), random.Random(seed), older=older) as store:
            store.database.read(lambda connection: agree(connection, store.model))
            for _ in range(STEPS):
                store.step()
            while store.database.read(matches.has_older):
                store.compact()
            store.database.read(lambda connection: agree(connection, store.model))
            assert not inspect(store.writer).has_table("matches")
            store.writer.rollback()


def test_reader_of_a_snapshot_from_before_a_discard_sees_all_that_was_there(tmp_path: Path) -> None:
    """Where pages are was read by somebody else, after the discard."""
    with pytest.MonkeyPatch.context() as small, opened(tmp_path, random.Random(1), older=False) as store:
        small.setattr(matches, "FOLD_POSITIONS", 2)
        small.setattr(matches, "BLOCK_POSITIONS", 2)
        with store.writer.begin():
            insert_events(store.writer, [event_row(number) for number in range(1, 5)])
            matches.insert_matches(store.writer, [matches.packed(number, None, {1: None}) for number in range(1, 5)])
            store.writer.execute(update(ledger_table).values(sequence=4))
        while (block := store.database.read(matches.find_fold)) is not None:
            with store.writer.begin():
                assert matches.store_fold(store.writer, block)

        def positions(connection: Connection) -> list[int]:
            return matches.find_positions(connection, 1, after=0, limit=10)

        def before_and_after(connection: Connection) -> tuple[list[int], list[int], list[int]]:
            first = positions(connection)
            store.database.matches.forget()
            with store.writer.begin():
                assert matches.end_of_discard(store.writer, 3, at_most=100) == 3
                deliveries.discard_matches(store.writer, 3)
            return first, store.database.read(positions), positions(connection)

        assert store.database.read(before_and_after) == ([1, 2, 3, 4], [3, 4], [1, 2, 3, 4])
