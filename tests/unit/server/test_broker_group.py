"""A group of commands: what fails is undone alone, on disk and in memory alike."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, select, text

from kindcast import Matcher, Vocabulary
from kindcast.semantic.subscriptions.compilation import compile_expression
from kindcast.semantic.vocabulary.declarations import Declarations
from kindcast.server.broker import expiry
from kindcast.server.broker import group as changes
from kindcast.server.broker.group import Group
from kindcast.server.broker.state import Live, LiveSubscriptions, State
from kindcast.server.errors import StoreUnavailable
from kindcast.server.settings import Settings
from kindcast.server.store import ledger
from kindcast.server.store.database import Database
from kindcast.server.store.matches import insert_matches, packed
from kindcast.server.store.postings import unpack
from kindcast.server.store.tables import match_lists

EMPTY = Vocabulary.from_ontologies([])


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    database = Database(Settings(data=tmp_path))
    with database.open() as connection:
        with connection.begin():
            ledger.open_ledger(connection)
        yield connection
    database.close()


@pytest.fixture
def state() -> State:
    return State(LiveSubscriptions(Matcher(EMPTY)), Matcher)


def live(state: State, group: Group, name: str, expression: str) -> Live:
    """A new subscription that matches."""
    one = Live(len(state.live_subscriptions) + 1, name, "active", time.time() + 60, matching=False)
    return changes.admit(group, changes.introduce(group, one, has_sink=True), compile_expression(expression, EMPTY))


def store(group: Group, subscription: int, sequence: int) -> None:
    insert_matches(group.connection, [packed(sequence, None, {subscription: None})])


def stored(connection: Connection) -> set[tuple[int, int]]:
    with connection.begin():
        rows = connection.execute(select(match_lists))
        return {(int(number), row.position) for row in rows for number in unpack(row.subscriptions)}


def test_group_failing_command_leaves_the_others(connection: Connection, state: State) -> None:
    """A command that fails half-way is undone in the store and in the state; those around it stand."""
    group = Group(connection, state)

    def good(number: int) -> None:
        store(group, number, number)
        live(state, group, f"s{number}", "a = 1")
        group.totals["accepted"] += 1

    def bad() -> None:
        good(2)
        raise LookupError("half-way")

    group.run(lambda _: good(1))
    with pytest.raises(LookupError):
        group.run(lambda _: bad())
    group.run(lambda _: good(3))
    group.commit()
    assert stored(connection) == {(1, 1), (3, 3)}
    assert set(state.matcher) == set(state.live_subscriptions) == {"s1", "s3"}
    assert [match.subscription for match in state.matcher.match({"a": 1})] == ["s1", "s3"]
    assert group.totals["accepted"] == 2
    assert group.touched == {1, 2}, "numbers of s1 and s3: s2 was undone before s3 came"


def test_group_first_command_needs_no_savepoint(connection: Connection, state: State) -> None:
    """Failing, it takes its transaction with it, and nothing is left to commit; the next command begins another one."""
    said: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *given: said.append(given[2].split()[0]))
    event.listen(connection, "savepoint", lambda *given: said.append("SAVEPOINT"))
    group = Group(connection, state)

    def bad() -> None:
        store(group, 1, 1)
        raise LookupError("half-way")

    with pytest.raises(LookupError):
        group.run(lambda _: bad())
    assert not group.writes
    group.run(lambda _: store(group, 2, 2))
    assert "SAVEPOINT" not in said
    with pytest.raises(LookupError):
        group.run(lambda _: bad())
    assert "SAVEPOINT" in said
    group.commit()
    assert stored(connection) == {(2, 2)}
    assert state.commits == 1


def test_group_command_that_breaks_a_rule_of_the_store_is_undone(connection: Connection, state: State) -> None:
    """A key that is there already fails its command with the database's own error, and no other."""
    group = Group(connection, state)
    group.run(lambda _: store(group, 1, 1))
    with pytest.raises(Exception, match="UNIQUE"):
        group.run(lambda _: store(group, 1, 1))
    group.run(lambda _: store(group, 1, 2))
    group.commit()
    assert stored(connection) == {(1, 1), (1, 2)}


def test_group_statement_that_the_database_refuses_is_unavailable(connection: Connection, state: State) -> None:
    """What the database cannot do is no fault of the caller."""
    group = Group(connection, state)
    with pytest.raises(StoreUnavailable):
        group.run(lambda _: group.connection.execute(text("SELECT * FROM nowhere")))
    group.run(lambda _: store(group, 1, 1))
    group.commit()
    assert stored(connection) == {(1, 1)}


def test_group_undo_takes_back_every_kind_of_change(connection: Connection, state: State) -> None:
    """After `undo` the state is what it was: members, statuses, ends, the matcher itself."""
    first = Group(connection, state)
    one, two = live(state, first, "one", "a = 1"), live(state, first, "two", "a = 1")
    before, declared = state.matcher, state.declarations
    end = one.expires_at
    second = Group(connection, state)
    changes.set_expiry(second, changes.set_status(second, one, "paused"), end + 5)
    changes.forget(second, two)
    live(state, second, "three", "a = 1")
    changes.swap_matcher(second, Matcher(EMPTY), Declarations(synonyms={"PC": "computer"}))
    assert (state.live_subscriptions["one"].status, state.live_subscriptions["one"].expires_at) == ("paused", end + 5)
    assert not state.live_subscriptions["three"].matching
    assert "two" not in state.live_subscriptions
    second.undo()
    assert state.matcher is before
    assert state.declarations is declared
    assert set(state.live_subscriptions) == set(state.matcher) == {"one", "two"}
    assert (state.live_subscriptions["one"], state.live_subscriptions["two"]) == (one, two)
    assert not state.live_subscriptions.aside
    assert {match.subscription for match in state.matcher.match({"a": 1})} == {"one", "two"}


def test_ledger_counts_commits(connection: Connection, state: State) -> None:
    """Each committed group adds one, so that a commit of unknown end can be found out."""
    for expected in (1, 2):
        group = Group(connection, state)
        group.run(lambda _: None)
        group.commit()
        with connection.begin():
            assert ledger.position(connection)[0] == expected == state.commits


def test_delivery_is_told_of_new_subscriptions_with_a_sink(connection: Connection, state: State) -> None:
    """Of the others it need not know: nobody can wait for them yet."""
    group = Group(connection, state)
    for number, has_sink in ((1, True), (2, False)):
        one = Live(number, f"s{number}", "active", time.time() + 60, matching=False)
        changes.introduce(group, one, has_sink=has_sink)
    assert group.touched == {1}


def test_new_subscriptions_do_not_fill_the_memory_of_the_sweeper(
    connection: Connection, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper knows the ends of some subscriptions, not of all that are new, and expires them all."""
    monkeypatch.setattr(expiry, "LOOK_AHEAD", 10)
    group, sweeper, ended = Group(connection, state), expiry.Sweeper(Settings()), set[str]()
    sweeper.sweep(group)  # there is none, so all later ones are before the next
    for number in range(100):
        one = live(state, group, f"s{number}", "a = 1")
        sweeper.watch(changes.set_expiry(group, one, time.time() - 1 if number % 2 else time.time() + 60))
        assert len(sweeper._ends) <= 20, number
    for _ in range(20):
        sweeper.sweep(group)
        ended |= {id for id in state.live_subscriptions if state.live_subscriptions[id].status == "expired"}
    assert ended == {f"s{number}" for number in range(1, 100, 2)}
