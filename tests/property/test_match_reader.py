"""`MatchReader`: questions about several subscriptions in one transaction, against what was stored."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, event, insert, update

from kindcast.server.cloudevents import digest_of
from kindcast.server.errors import RecordDamaged
from kindcast.server.settings import Settings
from kindcast.server.store import deliveries, ledger, tables
from kindcast.server.store.database import Database
from kindcast.server.store.deliveries import MatchReader
from kindcast.server.store.matches import insert_matches, packed

SUBSCRIPTIONS = range(1, 5)


@dataclass(frozen=True)
class Listed:
    """An event at a position, and who got it with which bindings."""

    event: int
    body: str
    is_damaged: bool
    bindings: dict[int, str | None]


@st.composite
def stored(draw: st.DrawFn) -> list[Listed]:
    """What is at the positions from 1 on. Later positions may have an earlier event again."""
    lists: list[Listed] = []
    who = st.dictionaries(st.sampled_from(SUBSCRIPTIONS), st.sampled_from([None, None, '{"x":1}', '{"x":2}']))
    for position in range(1, draw(st.integers(1, 25)) + 1):
        event = draw(st.integers(1, position)) if draw(st.booleans()) else position
        first = lists[event - 1] if event < position else None
        if first is None or first.event != event:
            event, size = position, draw(st.sampled_from([1, 50, 400]))
            body = json.dumps({"id": str(event), "source": "s", "data": "x" * size})
            lists.append(Listed(event, body, draw(st.integers(0, 9)) == 0, draw(who)))
        else:
            lists.append(Listed(event, first.body, first.is_damaged, draw(who)))
    return lists


questions = st.lists(
    st.tuples(
        st.sampled_from(SUBSCRIPTIONS),
        st.integers(0, 25),
        st.sampled_from([1, 2, 10, 100]),
        st.sampled_from([1, 300, 10_000]),
    ),
    max_size=12,
)


@given(lists=stored(), asked=questions, shared=st.sampled_from([0, 600, 1 << 20]))
def test_questions_of_one_transaction_are_answered_as_each_alone(
    lists: list[Listed], asked: list[tuple[int, int, int, int]], shared: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(deliveries, "SHARED_BYTES", shared)
        database = Database(Settings(data=Path(folder)))
        with database.open() as connection:
            with connection.begin():
                ledger.open_ledger(connection)
                _store(connection, lists)
            with connection.begin():
                reader = MatchReader(connection)
                for question in asked:
                    assert _answer(reader, *question) == _expected(lists, *question), question
        database.close()


def _store(connection: Connection, lists: list[Listed]) -> None:
    for position, each in enumerate(lists, 1):
        if each.event == position:
            row = {"sequence": position, "source": "s", "id": str(position), "type": "t", "body": each.body}
            row |= {"digest": "other" if each.is_damaged else digest_of(each.body), "accepted_at": 1.0}
            connection.execute(insert(tables.events), row | {"vocabulary_version": "v", "matched": len(each.bindings)})
        late = None if each.event == position else each.event
        if each.bindings:
            insert_matches(connection, [packed(position, late, each.bindings)])
    connection.execute(update(tables.ledger).values(sequence=len(lists)))


Answer = list[tuple[int, int, str, str | None]] | str


def _answer(reader: MatchReader, number: int, after: int, limit: int, budget: int) -> Answer:
    try:
        found = reader.read(number, after=after, limit=limit, byte_budget=budget)
    except RecordDamaged as error:
        return f"damaged at {error.position}"
    assert reader.has_more(number, after) == bool(found)
    return [(each.position, each.sequence, each.body, each.bindings) for each in found]


def _expected(lists: list[Listed], number: int, after: int, limit: int, budget: int) -> Answer:
    found: list[tuple[int, int, str, str | None]] = []
    for position, each in enumerate(lists, 1):
        if position <= after or number not in each.bindings or len(found) == limit:
            continue
        if each.is_damaged:
            return found or f"damaged at {position}"
        found.append((position, each.event, each.body, each.bindings[number]))
        budget -= len(each.body)
        if budget <= 0:
            break
    return found


@pytest.mark.parametrize(("shared", "reads"), [(1 << 20, 1), (0, 3)])
def test_an_event_is_read_once_for_all_as_far_as_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: int, reads: int
) -> None:
    monkeypatch.setattr(deliveries, "SHARED_BYTES", shared)
    database, statements = Database(Settings(data=tmp_path)), list[str]()
    with database.open() as connection:
        with connection.begin():
            ledger.open_ledger(connection)
            bodies = [json.dumps({"id": f"{n}", "source": "s", "data": n}) for n in (1, 2)]
            _store(
                connection, [Listed(n, body, False, {1: None, 2: None, 3: None}) for n, body in enumerate(bodies, 1)]
            )
        event.listen(connection, "before_cursor_execute", lambda *given: statements.append(given[2]))
        with connection.begin():
            reader = MatchReader(connection)
            for number in (1, 2, 3):
                assert len(reader.read(number, after=0, limit=9, byte_budget=1 << 20)) == 2
    database.close()
    assert sum("JOIN events" in each for each in statements) == reads
