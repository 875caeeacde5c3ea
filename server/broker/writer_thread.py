"""The writer thread: takes the queued commands, runs them as one group, commits once and answers.

    queue ──▶ commands ──▶ Group ──commit──▶ the event loop, once a group: listeners, then answers
                              └─fails─▶ every command of the group gets StoreUnavailable; nothing was changed

After a failed commit the connection is never used again. The ledger is read on a new connection: it says whether the
group is on disk. If it is not, the group's changes of the state are undone. If it is, its commands are answered as if
nothing had failed. Until this is known, every command is refused; those of the group get StoreInDoubt. If the
connection had ended before the group began, the group is executed once more on the new one.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, takewhile
from typing import Any

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import ConnectionLost, Group, GroupBroken, StateOutdated, Touched
from kindcast.server.broker.membership import Applied, OtherServers, PreparedVocabulary
from kindcast.server.broker.publishing import READING_SECONDS, Ahead, Publication, publish
from kindcast.server.broker.startup import Snapshots
from kindcast.server.broker.state import State
from kindcast.server.clock import CLOCK
from kindcast.server.errors import ServerError, StoreInDoubt, StoreUnavailable
from kindcast.server.store import ledger, servers, subscriptions
from kindcast.server.store.database import Database, reason_of

__all__ = ["MOVED", "BrokerThread", "Command"]

_log = logging.getLogger("kindcast.broker")

GATHERING_SECONDS = 0.002
"""The longest time for which a group waits for more commands, about as long as a commit takes."""
PAUSE_SECONDS = 0.0004
"""A group waits no longer when none has come for this time."""
GATHERED_FROM = 3
"""After a smaller group none are waited for, because that would save little."""
MOVED = "the file of the database was deleted or moved away: stop the server, and restore a backup"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Work for the thread, and the future for its result. `weight` is its size in events. Work with `reads_only` must
    not use `Group.connection`. Consecutive commands with a `publication` are executed as one. `patient` work waits
    until everything else is answered, and then one such command is executed at a time. `prepare` is called on the event
    loop with the result, while the group is being committed: the loop has nothing else to do if all clients wait for
    the commit. What it prepares must not be given to anybody before the future has the result."""

    work: Callable[[Group], Any]
    answer: "asyncio.Future[Any]"
    weight: int = 1
    reads_only: bool = False
    patient: bool = False
    publication: Publication | None = None
    prepare: Callable[[Any], None] | None = None


Answer = tuple[Command, Any, BaseException | None]
"""A command with its result or its error."""


class BrokerThread:
    """The thread that owns the matcher and the writing connection."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        state: State,
        *,
        listeners: Sequence[Callable[[Touched], None]],
        pending_listeners: Sequence[Callable[[], None]] = (),
        log_listeners: Sequence[Callable[[], None]] = (),
        snapshots: Snapshots | None = None,
        sweeper: Sweeper,
        read_all: Callable[[Connection], State] | None = None,
        server: str = "",
        max_group_events: int,
        observe_commit: Callable[[float], None] = lambda seconds: None,
        observe_matching: Callable[[float, int], None] = lambda seconds, events: None,
    ) -> None:
        """Must be called on the event loop that gets the answers. `listeners` may grow later. `read_all` restores a
        state from the store, if there may be other servers. `server` is the name of this server among them."""
        self._database = database
        self._connection = connection
        self._state = state
        self._listeners = listeners
        self._parking_listeners = pending_listeners
        self._log_listeners = log_listeners
        self._snapshots = snapshots
        self._sweeper = sweeper
        self._max_group_events = max_group_events
        self._observe_commit = observe_commit
        self._observe_matching = observe_matching
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._arrived: list[Command] = []
        """Commands of the event loop that are not in the queue yet."""
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._last_size = 0
        self._patient: deque[Command] = deque()
        self._door = threading.Lock()
        self._closed = False
        self._doubtful: Group | None = None
        self._told_gone = False
        self._others = (
            None
            if read_all is None
            else OtherServers(server, database.channel, state, sweeper, read_all, self._tell_applied)
        )
        self._thread = threading.Thread(target=self._run, name="kindcast-broker", daemon=True)
        self.trouble: str | None = None
        """Why the last group was lost; None after the next commit."""

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Raises `StoreUnavailable` if the machine allows no further thread."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._connection.close()
            raise StoreUnavailable("no further thread can be started now: try again") from error

    def submit(self, command: Command) -> None:
        """Appends a command to the queue. May be called in any thread. Raises `StoreUnavailable` if the thread has
        ended.

        Commands that the event loop makes in one turn get there together. Otherwise the thread would wake for the first
        one, and take time from the loop while it makes the others."""
        with self._door:
            if self._closed:
                raise StoreUnavailable("the server is stopping")
            if threading.get_ident() != self._home:
                self._queue.put(command)
                return
            if not self._arrived:
                self._loop.call_soon(self._hand_over)
            self._arrived.append(command)

    def _hand_over(self) -> None:
        """Appends the commands of the event loop to the queue."""
        with self._door:
            arrived, self._arrived = self._arrived, []
            if not self._closed:
                for command in arrived:
                    self._queue.put(command)
                return
        self._refuse(arrived)

    def keep_prepared(self, prepared: PreparedVocabulary | None) -> None:
        """Keeps the vocabulary that another server is about to activate, in place of the one before. May be called in
        any thread."""
        if self._others is not None:
            self._others.prepared = prepared

    async def stop(self) -> None:
        """Executes the queued commands, then ends the thread."""
        if self.alive:
            self._hand_over()
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            stopping = False
            while not stopping:
                commands, stopping = self._take()
                if commands or not self._patient:
                    self._serve_or_refuse(commands)
                if self._patient and not stopping:
                    self._serve_or_refuse([self._patient.popleft()])
                elif not commands or stopping:
                    self._keep(stopping)
        except BaseException:
            _log.exception("the broker stopped because of an error: restart the server")
            self.trouble = "the broker's thread stopped unexpectedly"
        finally:
            self._refuse_rest()
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()

    def _take(self) -> tuple[list[Command], bool]:
        """Takes the waiting commands, up to the size of a group, and moves patient ones to their own queue. If nothing
        waits, waits for the first command or the next sweep. Returns also whether the thread must stop."""
        commands: list[Command] = []
        weight = 0
        patience = 0.0 if self._patient else max(0.0, self._sweeper.due_at() - CLOCK.now())
        try:
            command = self._queue.get(timeout=patience)
            self._wait_for_others()
            while command is not None:
                if command.patient:
                    self._patient.append(command)
                else:
                    commands.append(command)
                    weight += command.weight
                if weight >= self._max_group_events:
                    return commands, False
                command = self._queue.get_nowait()
        except queue.Empty:
            return commands, False
        finally:
            self._last_size = len(commands)
        return commands, True

    def _wait_for_others(self) -> None:
        """Waits a moment until as many commands are there as the last group had. Clients that were answered together
        send their next requests together. Without this, the first of them would be a group of its own, and the others
        would wait for its commit."""
        if self._last_size < GATHERED_FROM:
            return
        until, there = time.monotonic() + GATHERING_SECONDS, -1
        while there < (now := self._queue.qsize()) < self._last_size - 1 and time.monotonic() < until:
            there = now
            time.sleep(PAUSE_SECONDS)  # a thread that wakes for each command takes turns from the event loop

    def _serve_or_refuse(self, commands: list[Command]) -> None:
        """Executes commands as one group. After an error that ends the thread they are refused."""
        try:
            self._serve(commands)
        except BaseException:
            self._refuse(commands)
            raise

    def _keep(self, stopping: bool) -> None:
        """Called when the queue is empty: updates the witness and writes a snapshot if one is due."""
        if self._doubtful is not None:
            return
        if self._database.witness is not None:
            self._database.witness.saw(self._state.commits, now=stopping)
        if self._snapshots is None:
            return
        if stopping:
            self._refuse_rest()  # nothing may change any more
            token = self._snapshots.write(self._state)
        else:
            token = self._snapshots.write_if_due(self._state)
        if token is not None and self._name(token):
            self._snapshots.keep_newest()

    def _name(self, token: str) -> bool:
        """Stores the name of the snapshot that was just written. Returns whether this is certain; if not, the previous
        snapshot is still valid."""
        named, commits = False, self._state.commits

        def work(group: Group) -> None:
            nonlocal named
            with contextlib.suppress(StoreUnavailable):  # it is logged
                named = group.run(partial(_name_snapshot, token=token, commits=commits))

        return self._carry_out(work) and named

    def _serve(self, commands: list[Command]) -> None:
        if self._doubtful is not None and self._settle() is None:
            self._sweeper.postpone()
            self._refuse(commands)
            return
        if self._others is not None and commands and all(each.reads_only for each in commands):
            self._follow(self._others)
        answers: list[Answer] = []
        ahead = None if self._others is None else _match_ahead(self._state, commands)

        def work(group: Group) -> None:
            answers.clear()  # of an attempt with an outdated state
            self._sweeper.sweep(group)
            for publications, some in groupby(commands, lambda each: each.publication is not None):
                if publications:
                    answers.extend(self._publish_waiting(group, list(some), ahead))
                else:
                    answers.extend(_one_by_one(group, list(some)))

        if not self._carry_out(work, len(commands), answers):
            in_doubt = self._doubtful is not None and self._doubtful.was_sent
            self._refuse(commands, StoreInDoubt if in_doubt else StoreUnavailable)
        elif self._sweeper.drops:
            self._carry_out(self._sweeper.drop)

    def _publish_waiting(self, group: Group, commands: Sequence[Command], ahead: Ahead | None) -> list[Answer]:
        """Executes waiting publications as one, in one savepoint and with one statement of each kind. If that fails,
        executes them one by one, so that each gets its own error."""
        waiting = [each for each in commands if not each.answer.cancelled()]
        if len(waiting) < 2 and (not waiting or ahead is None):
            return _one_by_one(group, waiting)
        publications = [each.publication for each in waiting if each.publication is not None]
        try:
            results = group.run(lambda group: publish(group, publications, self._observe_matching, ahead=ahead))
        except GroupBroken:
            raise
        except Exception:
            return _one_by_one(group, waiting)
        return [(command, result, None) for command, result in zip(waiting, results, strict=True)]

    def _carry_out(
        self, work: Callable[[Group], None], commands: int = 0, answers: Sequence[Answer] = (), *, again: bool = True
    ) -> bool:
        """Executes one group, commits it if it wrote anything, and sends the `answers` that `work` made. Returns
        whether the group is on disk or had nothing to write. `again`: if the connection had ended while it was idle,
        executes the group on a new one."""
        group = self._new_group()
        try:
            while True:
                try:
                    work(group)
                    break
                except StateOutdated:
                    self._begin_again(group)
                    group = self._new_group()
            if group.writes and not self._database.is_in_place:
                group.undo()
                self._connection.rollback()
                if self.trouble != MOVED:
                    _log.error("%s", MOVED)
                self.trouble = MOVED
                return False
            if group.writes:
                started = time.perf_counter()
                self._prepare(answers)
                group.commit()
                self._observe_commit(time.perf_counter() - started)
                self.trouble = None
                if self._database.witness is not None:
                    self._database.witness.saw(self._state.commits)
        except (SQLAlchemyError, GroupBroken) as error:
            self._database.damage.translated(error)
            self.trouble = f"the database refused the last change: {reason_of(_cause(error))}"
            self._doubtful = group
            is_there = self._settle(answers)
            if is_there is False and again and isinstance(error, ConnectionLost):
                self.trouble = None
                return self._carry_out(work, commands, answers, again=False)
            if not is_there:
                in_doubt = is_there is None and group.was_sent
                what = "it is not known whether a transaction was committed" if in_doubt else "nothing was committed"
                self._report(f"{what}; {commands} commands are refused", error)
            return is_there is True
        self._tell(group, answers)
        return True

    def _new_group(self) -> Group:
        return Group(self._connection, self._state, self._others)

    def _begin_again(self, group: Group) -> None:
        """Undoes the changes of the group and reads the outdated state again."""
        assert self._others is not None
        group.undo()
        self._connection.rollback()
        self._others.read_again(self._connection)

    def _follow(self, others: OtherServers, *, again: bool = True) -> None:
        """Applies commits of other servers. If they cannot be read now, the next group reads them. `again`: tries once
        more on a new connection."""
        try:
            try:
                others.follow(self._connection)
            except StateOutdated:
                others.read_again(self._connection)
        except (SQLAlchemyError, ServerError) as error:
            self._doubtful = self._new_group()  # only the connection is in doubt
            if self._settle() is False and again:
                self._follow(others, again=False)
            else:
                self._report("commits of other servers could not be read; trying again", error)

    def _settle(self, answers: Sequence[Answer] = ()) -> bool | None:
        """Determines, on a new connection, whether the doubtful group is on disk, and makes the state agree. If it is,
        sends its `answers`. Returns whether it is; None if the database cannot be reached."""
        group = self._doubtful
        assert group is not None
        try:
            if not self._connection.closed:
                self._connection.invalidate()
                self._connection.close()
            self._connection = self._database.connect()
            with self._connection.begin():
                if self._others is not None:
                    next_one = self._state.commits + 1
                    is_there = servers.commit_is_there(self._connection, self._others.id, next_one)
                    commits = next_one if is_there else self._state.commits
                else:
                    commits, _, _ = ledger.position(self._connection)
        except (SQLAlchemyError, ServerError) as error:
            self._report("the database cannot be reached", error)
            self.trouble = f"the database cannot be used: {reason_of(error)}"
            return None
        is_there = commits == self._state.commits + 1
        if is_there:
            _log.info("it was committed after all: only the answer of the database was lost")
            group.committed()
            self.trouble = None
            self._tell(group, answers)
        elif commits == self._state.commits:
            group.undo()
        else:
            raise RuntimeError(
                f"the ledger has {commits} commits, but this server made {self._state.commits}: another program may "
                f"write to the database"
            )
        self._doubtful = None
        return is_there

    def _report(self, what: str, error: Exception) -> None:
        """Logs an error of the database. One says, once, that another server has deleted the tenant: nothing is wrong
        then, and this server closes the tenant soon."""
        if self._database.is_gone(error) or self._database.is_gone(error.__cause__):
            if not self._told_gone:
                _log.info("the tables of %s are gone: another server has deleted this tenant", self._database.schema)
            self._told_gone = True
            return
        cause = _cause(error)
        _log.error("%s: %s", what, getattr(cause, "orig", None) or cause)

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, group: Group, answers: Sequence[Answer] = ()) -> None:
        """Wakes the event loop once, to notify the listeners and to send the answers."""
        calls: list[Callable[[], None]] = []
        if touched := group.all_touched():
            calls += [partial(each, touched) for each in self._listeners]
        if group.parked:
            calls += self._parking_listeners
        if group.lengthens_log:
            calls += self._log_listeners
        damage = self._database.damage
        answers = [
            (command, result, damage.translated(error) if isinstance(error, Exception) else error)
            for command, result, error in answers
        ]
        if (calls or answers) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_told, calls, answers)

    def _prepare(self, answers: Sequence[Answer]) -> None:
        """Wakes the event loop to prepare the answers."""
        calls = [
            partial(command.prepare, result)
            for command, result, error in answers
            if command.prepare is not None and error is None
        ]
        if calls and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_told, calls, ())

    def _tell_applied(self, applied: Applied) -> None:
        """Wakes the event loop to notify the listeners of commits of other servers."""
        calls: list[Callable[[], None]] = []
        if applied.touched:
            calls += [partial(each, applied.touched) for each in self._listeners]
        if applied.parked:
            calls += self._parking_listeners
        calls += self._log_listeners
        if calls and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_told, calls, ())

    def _answer(self, answers: Sequence[Answer]) -> None:
        if answers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle_futures, answers)

    def _refuse(self, commands: list[Command], kind: type[StoreUnavailable] = StoreUnavailable) -> None:
        """Refuses commands, of which nothing was done unless `kind` says otherwise."""
        self._answer([(command, None, kind.because(self.trouble)) for command in commands])

    def _refuse_rest(self) -> None:
        """Refuses the waiting commands after the thread has ended."""
        with self._door:
            self._closed = True
        waiting = list(self._patient)
        self._patient.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.extend(each for each in (self._queue.get_nowait(),) if each is not None)
        self._answer([(command, None, StoreUnavailable("the server is stopping")) for command in waiting])


def _cause(error: Exception) -> BaseException:
    """Returns why a group is lost."""
    return (isinstance(error, GroupBroken) and error.__cause__) or error


def _match_ahead(state: State, commands: Sequence[Command]) -> Ahead | None:
    """Matches the publications at the head of the queue with the present state."""
    first = takewhile(lambda each: each.publication is not None, commands)
    publications = [each.publication for each in first if each.publication is not None and not each.answer.cancelled()]
    if not publications:
        return None
    ahead = Ahead(state)
    try:
        ahead.match([event for each in publications for event in each.events], READING_SECONDS)
    except Exception:  # the event that causes it is answered when the group executes it
        return None
    return ahead


def _name_snapshot(group: Group, *, token: str, commits: int) -> bool:
    """Stores the name of the snapshot that was just written after `commits` commits. From now on, changes are recorded.
    Returns False if another server has changed meanwhile what a snapshot contains."""
    connection, state = group.connection, group.state
    if state.commits != commits and not servers.only_events_since(connection, commits, state.commits):
        return False
    before = state.snapshot, state.changes_since_snapshot

    def undo() -> None:
        state.snapshot, state.changes_since_snapshot = before

    group.on_undo(undo)
    subscriptions.begin_snapshot(connection, token)
    state.snapshot, state.changes_since_snapshot = token, 0
    return True


def _one_by_one(group: Group, commands: Sequence[Command]) -> list[Answer]:
    return [_run_one(group, each) for each in commands]


def _run_one(group: Group, command: Command) -> Answer:
    if command.answer.cancelled():
        return command, None, None  # its caller no longer waits, and was promised nothing
    try:
        if command.reads_only:
            return command, command.work(group), None
        return command, group.run(command.work), None
    except GroupBroken:
        raise
    except Exception as error:
        return command, None, error


def _told(calls: Sequence[Callable[[], None]], answers: Sequence[Answer]) -> None:
    """Calls the listeners, then answers. Runs on the event loop. An exception in a listener is logged and does not stop
    the others."""
    for call in calls:
        try:
            call()
        except Exception:
            _log.exception("a listener failed")
    _settle_futures(answers)


def _settle_futures(answers: Sequence[Answer]) -> None:
    for command, result, error in answers:
        if command.answer.done():
            continue
        if error is None:
            command.answer.set_result(result)
        else:
            command.answer.set_exception(error)
