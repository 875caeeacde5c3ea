"""The broker's asynchronous interface: coroutines for the API and the delivery, and the queue to the writer thread.

API, delivery ──command──▶ queue ──group──▶ BrokerThread (matcher + one transaction) ──commit──▶ answers, listeners
         └──────read────▶ worker threads, each on a connection of its own that cannot write
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from kindcast.semantic import Event, Matcher, Vocabulary
from kindcast.semantic.errors import IndexFull
from kindcast.semantic.matching import Link
from kindcast.semantic.ontology import Ontology, Progress, Reason, silent
from kindcast.semantic.subscriptions import BulkCompiler, SeenAttributes
from kindcast.server import tracing
from kindcast.server.broker import garbage_collection
from kindcast.server.broker import subscription_commands as commands
from kindcast.server.broker.compaction import Compaction
from kindcast.server.broker.documents import DocumentReader
from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.graph_reading import GraphReading
from kindcast.server.broker.group import Group, Touched
from kindcast.server.broker.late_matches import (
    BACKFILL_PAGE,
    Accepted,
    Backfill,
    Outdated,
    Wanted,
    accept_matches,
    create_with,
)
from kindcast.server.broker.membership import BEATS_PER_LEASE, Leases, Membership, Preparation
from kindcast.server.broker.publishing import (
    Ahead,
    EventMatches,
    Outcome,
    Publication,
    Results,
    match_events,
    publish,
    publish_together,
    together,
)
from kindcast.server.broker.renewal import Renewal
from kindcast.server.broker.shards import Shards
from kindcast.server.broker.startup import Snapshots, restore
from kindcast.server.broker.state import State
from kindcast.server.broker.subscription_commands import NewSubscription, Refusal, Tags
from kindcast.server.broker.vocabulary_commands import (
    DeclarationCommands,
    Sharing,
    Upload,
    Versions,
    VocabularyCommands,
)
from kindcast.server.broker.writer_thread import BrokerThread, Command
from kindcast.server.cloudevents import DecodedEvent, ReadGraph, ReadingBudget
from kindcast.server.errors import (
    BrokerBusy,
    NotWithShards,
    RecordDamaged,
    StoreInUse,
    StoreUnavailable,
    StoreUnreadable,
)
from kindcast.server.metrics import Metrics
from kindcast.server.security.keys import Claim
from kindcast.server.security.limits import NO_QUOTA, Quota
from kindcast.server.security.permissions import EVERYBODY, Roles, RolesOf
from kindcast.server.settings import Settings
from kindcast.server.store import ledger
from kindcast.server.store.database import UNREACHABLE, Database, enter_schema
from kindcast.server.store.events import list_whole_events
from kindcast.server.store.integrity import Damage, check_everything
from kindcast.server.store.matches import MatchCache
from kindcast.server.store.servers import (
    EXCHANGE_FORMAT,
    SNAPSHOT,
    Upcoming,
    behind,
    forget_upcoming,
    living,
    read_ledger,
    store_upcoming,
    unprepared,
)
from kindcast.server.store.subscriptions import numbers_of
from kindcast.server.worker_threads import LONG, Shares, run_in_turn, run_to_the_end, short_turns

__all__ = ["Broker"]

T = TypeVar("T")

_log = logging.getLogger("kindcast.broker")

SILENT_TOO_LONG = "this server did not reach the database in time"
"""Why a server refuses requests, if other servers may have gone on without it."""
SHARE_BYTES = 1 << 17
"""The bytes of published requests that one client may have in the queue of the writer. Requests shorter than `LONG` do
not count."""
MATCHED_OUTSIDE = 200
"""The maximum number of events in one command of `accept_matches`. One command takes some hundredths of a second."""

SLICE_SECONDS = 0.003
"""The approximate time for which `match` may occupy the broker's thread in one command."""
SAME = " of the database, "
"""Separates, in the description of a server, its version and layout from what must be the same at all servers of a
database."""
SPREAD_SECONDS = 0.02
"""The pause between two checks of what other servers have applied."""
LONGEST_LOOK_SECONDS = 0.5
"""The longest pause between two checks of which servers have prepared a vocabulary."""
FEW_EVENTS = 16
"""Documents with so many events are matched and accepted in one command."""
AHEAD_TRIES = 5
"""How often the matching of a document begins, if subscriptions change meanwhile."""
MAX_SLICE_EVENTS = 1_000
"""The maximum number of events that `match` matches in one command."""
MAX_BACKFILLS = 8
"""The maximum number of new subscriptions that read past events or wait to read them."""
BACKFILL_TRIES = 5
"""How often the past events are read for a new subscription, if the vocabulary changes meanwhile."""


@dataclass(frozen=True, slots=True)
class RecentAttributes:
    """The attributes of the events up to a sequence number, read under one version of the vocabulary."""

    seen: SeenAttributes
    sequence: int
    version: str
    made_at: float
    """The time by `time.monotonic`."""


class Broker:
    """The broker of one process and database. Its coroutines run on one event loop. Each change is on disk when its
    coroutine returns.

    Every change raises `StoreUnavailable` if it could not be committed. Then nothing was changed.
    """

    _database: Database

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics | None = None,
        *,
        first: "Broker | None" = None,
        roles_of: RolesOf = EVERYBODY,
    ) -> None:
        """`first` is the first broker of this process, that of the tenant `default`; None if this is it. `roles_of`
        returns the roles of the user who created a subscription."""
        self.settings = settings
        self.roles_of = roles_of
        self.metrics = metrics or Metrics()
        self.listeners: list[Callable[[Touched], None]] = []
        """Called on the event loop after each commit, before its commands are answered. The argument has the numbers of
        the subscriptions that got a match or were created, changed or deleted by the commit. They are not called if
        there are none. A listener must return at once and must not raise."""
        self.pending_listeners: list[Callable[[], None]] = []
        """Called in the same way after each commit that parked candidates or that wants parked candidates to be tried
        again."""
        self._log_listeners: list[Callable[[], None]] = []
        """Called in the same way after each commit that shards must follow."""
        self.shards: Shards | None = None
        """The shards of this server; None if matching is not sharded."""
        self._is_first = first is None
        self._name = secrets.token_hex(8)
        self._database = Database(settings, sets_clock=self._is_first, first=None if first is None else first._database)
        self._sweeper = Sweeper(settings)
        self._snapshots = Snapshots(settings)
        self._thread: BrokerThread | None = None
        self._state: State | None = None
        self._compaction: Compaction | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._renewal: Renewal | None = None
        self._waiting = 0
        self._shares = Shares(SHARE_BYTES)
        self._since: dict[asyncio.Future[Any], float] = {}
        self._readers = anyio.CapacityLimiter(settings.reader_connections)
        self._shared_readers = self._readers if first is None or self._database.is_sqlite else first._readers
        """Tenants on PostgreSQL share the connections of readers. One of them gets at most `reader_connections` of its
        own settings."""
        self._graphs = GraphReading(settings)
        self.compilers = commands.BulkCompilers()
        """The compilers for imports of subscriptions."""
        self._backfilling = asyncio.Lock()
        self._backfills_waiting = 0
        self.leases = Leases(self)
        """The leases of this server: the subscriptions for which it delivers, if several servers share the database."""
        self._woken = False
        self._spread_to = 0
        self._activating: Connection | None = None
        """The connection that has the right to activate a vocabulary; None at other times."""
        self._preparation: Preparation | None = None
        self._following: asyncio.Task[None] | None = None
        self.recent_attributes: dict[Roles, RecentAttributes] = {}  # by the roles that see them; None: everything
        """The attributes of recent events when they were last read. Advice to subscribers uses them."""
        self.documents: DocumentReader = DocumentReader(settings, None if first is None else first.documents)
        """The reader of uploaded documents."""
        self.vocabulary_commands = VocabularyCommands(self, self.documents)
        """Commands that change ontologies."""
        self.declaration_commands = DeclarationCommands(self.vocabulary_commands)
        """Commands that change declarations."""

    async def start(self) -> None:
        """Opens the store, restores the state and starts the thread.

        Raises `StoreInUse`, `StoreUnreadable`, `StoreUnavailable`, and `kindcast.index.errors.UnknownEngine` for a
        wrong setting. Then nothing is left open.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        connection, state = await asyncio.to_thread(self._open)
        self._state = state
        if self._is_first:
            garbage_collection.collect_and_freeze(len(state.vocabulary) + len(state.matcher))
        self._thread = BrokerThread(
            self._database,
            connection,
            state,
            listeners=self.listeners,
            pending_listeners=self.pending_listeners,
            log_listeners=self._log_listeners,
            snapshots=self._snapshots,
            sweeper=self._sweeper,
            read_all=None if self._database.is_sqlite else self._read_all,
            server=self._name,
            max_group_events=self.settings.max_group_events,
            observe_commit=self.metrics.observe_commit,
            observe_matching=self.metrics.observe_matching,
        )
        self._thread.start()
        if not self._database.is_sqlite:
            await self._join(state)
        if self.settings.shards is not None:
            self.shards = Shards(
                self,
                self.settings.shards,
                max_events=self.settings.max_events_per_request,
                look_seconds=self.settings.lease_seconds / BEATS_PER_LEASE,
                observe=self.metrics.observe_matching,
            )
            self._log_listeners.append(self.shards.wake)
            self.shards.start()
        else:
            self._renewal = Renewal(state, self.vocabulary_commands.renew)
            self.listeners.append(self._renewal.announce)
        self._compaction = Compaction(self.read, self.submit, self._database.matches)
        self.listeners.append(self._compaction.announce)
        self._compacting = asyncio.create_task(self._compaction.run(), name="compaction")
        checking = check_everything(self.read, self.damage, self.settings.check_after_seconds)
        self._checking = asyncio.create_task(checking, name="check of what is stored")

    async def stop(self) -> None:
        """Executes the queued commands, ends the thread and closes the store. May be called more than once."""
        self.documents.stop()
        self.compilers.forget()
        if self.shards is not None:
            await self.shards.stop()
        if self._renewal is not None:
            await self._renewal.stop()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        if self._compaction is not None and self._compacting is not None:
            self._compaction.stop()
            await self._compacting
        if self.leases.membership is not None:
            await self.leases.membership.stop()
        if self._preparation is not None:
            await self._preparation.stop()
        if self._thread is not None:
            await self._thread.stop()
        await asyncio.to_thread(self._database.close)

    @property
    def damage(self) -> Damage:
        """The damage that was found in the store."""
        return self._database.damage

    @property
    def vocabulary(self) -> Vocabulary:
        """The active vocabulary, a frozen object. May be read in any thread."""
        return self.state.vocabulary

    @property
    def state(self) -> State:
        """The state that the writer's thread works on. Other threads may only read the vocabulary and create matchers
        of their own."""
        assert self._state is not None, "the broker was not started"
        return self._state

    @property
    def waiting(self) -> int:
        """The number of events and other commands that wait for the thread or are executed by it."""
        return self._waiting

    @property
    def name(self) -> str:
        """The name of this server among the servers of its database. It changes with each start."""
        return self._name

    @property
    def database(self) -> str:
        """The kind of database: `sqlite` or `postgresql`."""
        return "sqlite" if self._database.is_sqlite else "postgresql"

    @property
    def is_in_place(self) -> bool:
        """Whether the file of a SQLite database is still the one that was opened."""
        return self._database.is_in_place

    @property
    def oldest_wait(self) -> float:
        """How many seconds the oldest command has waited for its answer. Only for the event loop."""
        oldest = next(iter(self._since.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    @property
    def trouble(self) -> str | None:
        """Why changes are refused at present; None if they are accepted."""
        if self._thread is None or not self._thread.alive:
            return "the broker is not running"
        if self.damage.of_file is not None:
            return self.damage.of_file
        if self._waiting >= self.settings.max_queue_events:
            return "too many events are waiting"
        return self._thread.trouble or (None if self.is_current else SILENT_TOO_LONG)

    @property
    def is_current(self) -> bool:
        """Whether the state in memory has all that other servers of the database have acknowledged; True if there can
        be no others."""
        return self.leases.membership is None or self.leases.membership.is_current

    def check_current(self) -> None:
        """Raises `StoreUnavailable` unless `is_current`."""
        if not self.is_current:
            raise StoreUnavailable(f"{SILENT_TOO_LONG}: try again")

    @property
    def _is_member(self) -> bool:
        """Whether the other servers of the database count this one as live; True if there can be no others."""
        return self.leases.membership is None or self.leases.membership.lives

    # ── reading and writing ─────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a worker thread, on a connection that can only read. It sees one snapshot of the last
        commit."""
        if self._shared_readers is self._readers:
            return await anyio.to_thread.run_sync(self._database.read, work, limiter=self._readers)
        async with self._readers:
            return await anyio.to_thread.run_sync(self._database.read, work, limiter=self._shared_readers)

    async def read_tenant(self, schema: str, work: Callable[[Connection], T]) -> T:
        """Runs `work` as `read` does, on the tables of another tenant on the same PostgreSQL."""

        def run(connection: Connection) -> T:
            enter_schema(connection, schema)
            connection.execution_options(matches=MatchCache())
            return work(connection)

        return await self.read(run)

    async def execute(
        self, work: Callable[[Connection], T], announce: Callable[[T], Collection[int]] | None = None
    ) -> T:
        """Runs `work` in the broker's thread, inside the transaction of a group, with its own savepoint. If it raises,
        its changes are undone and the exception is raised here. Returns after the commit.

        `announce(result)` returns the numbers of the subscriptions that the listeners are told of. `work` must not
        change what the matcher depends on: which subscriptions exist, whether they are paused or expired, and
        ontologies.
        """

        def run(group: Group) -> T:
            result = work(group.connection)
            if announce is not None:
                group.touched.update(announce(result))
            return result

        return await self._submit(run)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        events: Sequence[DecodedEvent],
        *,
        verbose: bool = True,
        max_matches: int | None = None,
        client: Hashable = None,
        size: int = 0,
        prepare: Callable[[Results], None] | None = None,
    ) -> Results:
        """Accepts events, in order. Returns one result per event: an outcome, or an error if the event cannot be read
        or matches more subscriptions than `max_matches` or the settings allow. Without `verbose` no notes are made.
        Raises `BrokerBusy`. `size` is the number of bytes that `client` sent: large requests of one client wait for
        each other, so that those of other clients do not wait for all of them. `prepare` is called with the first
        results, all or some, before they are on disk: it may prepare an answer, which must not be used unless this
        function returns the same results.

        Events that match very many subscriptions are accepted in several commands, and other commands are executed in
        between. If a later command cannot be committed, its events and all later ones have that error as result; the
        earlier ones are on disk. Raises `StoreUnavailable` if no event was accepted before.
        """
        if not events:
            return []
        self._refuse_limit(max_matches)
        events = await self._graphs.read(tracing.carrying(events), self.vocabulary)
        if self._waiting + len(events) > max(self.settings.max_queue_events, len(events)):
            raise BrokerBusy
        if size < LONG:
            return await self._publish(events, verbose, max_matches, prepare)
        self._waiting += len(events)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._shares.of(client, size))
            finally:
                self._waiting -= len(events)
            return await self._publish(events, verbose, max_matches, prepare)

    async def _publish(
        self,
        events: Sequence[DecodedEvent],
        verbose: bool,
        max_matches: int | None,
        prepare: Callable[[Results], None] | None,
    ) -> Results:
        observe = self.metrics.observe_matching
        results: Results = []
        while len(results) < len(events):
            rest = events[len(results) :] if results else events
            publication = Publication(rest, verbose, self._most(max_matches))
            work = partial(_publish_one, publication=publication, observe=observe)
            try:
                with tracing.storing(len(rest)):
                    more: Results = await self._submit(
                        work, weight=len(rest), publication=publication, prepare=None if results else prepare
                    )
                results += more
            except StoreUnavailable as error:
                if not any(isinstance(each, Outcome) for each in results):
                    raise
                results += [error] * len(rest)
        return results

    def reading_budget(self) -> ReadingBudget:
        """Returns the budget for reading the linked data of one request."""
        return self._graphs.budget()

    def _refuse_limit(self, max_matches: int | None) -> None:
        """Raises `NotWithShards` if there is a limit of matches and matching is sharded: the number of matches is not
        known when the event is accepted."""
        if self.settings.shards is not None and max_matches is not None:
            raise NotWithShards("this key has a limit of matches per event: it cannot publish to a server with shards")

    def _most(self, asked: int | None) -> int | None:
        """Returns how many subscriptions an event may match: the lower of `asked` and the limit of the server; None if
        there is no limit."""
        of_server = self.settings.max_matches_per_event
        if asked is None or of_server is None:
            return of_server if asked is None else asked
        return min(asked, of_server)

    async def publish_together(
        self,
        events: Sequence[DecodedEvent],
        *,
        verbose: bool = True,
        max_matches: int | None = None,
        budget: ReadingBudget | None = None,
    ) -> list[Outcome]:
        """Accepts the events of one document, in order, all or none. Linked data is read within `budget`, by default
        the budget of one request. Raises `InvalidEvent` with the problems of the events that cannot be read,
        `TooManyMatches`, `BrokerBusy`."""
        if not events:
            return []
        self._refuse_limit(max_matches)
        events = await self._graphs.read(tracing.carrying(events), self.vocabulary, budget)
        if self._waiting + len(events) > max(self.settings.max_queue_events, len(events)):
            raise BrokerBusy
        observe = self.metrics.observe_matching
        publication = Publication(events, verbose, self._most(max_matches))
        with tracing.storing(len(events)):
            ahead = await self._matched_ahead(publication)
            work = partial(publish_together, publication=publication, observe=observe, ahead=ahead)
            return await self._submit(work, weight=len(events))

    async def _matched_ahead(self, publication: Publication) -> Ahead | None:
        """Reads and matches the events of a document before they are accepted together, in slices, so that other
        commands are executed in between. None if there are few, or if subscriptions change again and again."""
        if len(publication.events) <= FEW_EVENTS:
            return None
        ahead: Ahead | None = None
        begun = 0

        def work(group: Group) -> bool:
            nonlocal ahead, begun
            if ahead is None or not ahead.matches_hold(group.state):
                ahead, begun = Ahead(group.state), begun + 1
            return begun > AHEAD_TRIES or ahead.match(publication.events, SLICE_SECONDS, notes=publication.verbose)

        while not await self._submit(work, weight=0, reads_only=True, patient=True):
            pass
        return ahead

    async def accept_matches(
        self, events: Sequence[DecodedEvent], wanted: Sequence[Wanted], *, max_matches: int | None = None
    ) -> Accepted:
        """Stores matches that were found elsewhere. `wanted` has the matches of each event. The events are stored in
        several transactions, and other commands are executed in between. Raises `BrokerBusy` and `StoreUnavailable`:
        the request can then be sent again, and what is stored already counts once. Raises `NotWithShards`."""
        if self.settings.shards is not None:
            raise NotWithShards("a server with shards matches every event itself: it takes no matches from elsewhere")
        events = await self._graphs.read(tracing.carrying(events), self.vocabulary) if events else []
        if self._waiting + len(events) > max(self.settings.max_queue_events, len(events)):
            raise BrokerBusy
        told = Accepted([], 0, 0, {})
        for start in range(0, len(events), MATCHED_OUTSIDE):
            some = slice(start, start + MATCHED_OUTSIDE)
            publication = Publication(events[some], False, self._most(max_matches))
            with tracing.storing(len(publication.events)):
                told += await self._submit(
                    partial(accept_matches, publication=publication, wanted=wanted[some]),
                    weight=len(publication.events),
                )
        return told

    async def match(self, events: Sequence[Event]) -> list[EventMatches]:
        """Returns what each event would match now, all under one vocabulary. Nothing is stored. The events are matched
        in slices, and all other commands that wait are executed in between. A cancelled call stops after the current
        slice."""

        def work(
            group: Group, some: Sequence[Event], read: Sequence[ReadGraph | None]
        ) -> tuple[list[EventMatches], float, str]:
            began = time.perf_counter()
            found = match_events(group.state, group.now, some, read)
            return found, time.perf_counter() - began, group.state.vocabulary.version

        found: list[EventMatches] = []
        version, size = self.vocabulary.version, 1
        graphs = await self._graphs.read_events(events, self.vocabulary)
        while len(found) < len(events):
            now = slice(len(found), len(found) + size)
            some = events[now]
            matched, seconds, under = await self._submit(
                partial(work, some=some, read=graphs[now]), weight=len(some), reads_only=True, patient=True
            )
            if under != version:
                found, version = [], under  # the vocabulary has changed: begin again with the first event
                graphs = await self._graphs.read_events(events, self.vocabulary)
                continue
            found += await self._with_shards(matched, some, graphs[now])
            size = max(1, min(4 * size, MAX_SLICE_EVENTS, int(size * SLICE_SECONDS / max(seconds, 1e-6))))
        return found

    async def _with_shards(
        self, matched: list[EventMatches], events: Sequence[Event], graphs: Sequence[ReadGraph | None]
    ) -> list[EventMatches]:
        """Adds the matches of the shards of this server, each at its place of the log."""
        if self.shards is None:
            return matched
        found, held = await self.shards.match(events, graphs)
        return [together(each, held) for each in zip(matched, *found, strict=True)]

    async def numbers_of(self, ids: Sequence[str]) -> dict[int, str]:
        """Returns the subscriptions among `ids` that exist: number → id."""
        if self.settings.shards is not None:
            return await self.read(lambda connection: numbers_of(connection, ids))
        live = self.state.live_subscriptions
        return {known.number: id for id in ids if (known := live.find(id)) is not None}

    async def explain_index(self, event: Event) -> dict[str, Any]:
        """Explains the search of `event` in the index of this server, without its shards. Raises `InvalidEvent`."""
        return await self._submit(lambda group: group.state.matcher.explain_index(event), reads_only=True)

    async def index_bytes(self) -> int | None:
        """Returns the memory of index and caches in bytes; None for an engine that does not measure it. Raises
        `StoreUnavailable`."""
        own = await self._submit(lambda group: group.state.matcher.index_bytes, reads_only=True)
        if self.shards is None or own is None:
            return own
        return own + sum(each or 0 for each in await self.shards.measured(lambda matcher: matcher.index_bytes))

    async def index_structure(self) -> Mapping[str, int]:
        """Returns the number of parts of the index by kind. Raises `StoreUnavailable`."""
        own = await self._submit(lambda group: group.state.matcher.index_structure, reads_only=True)
        if self.shards is None:
            return own
        total = Counter(own)
        for each in await self.shards.measured(lambda matcher: matcher.index_structure):
            total.update(each)
        return total

    async def holders(self, links: Sequence[Link]) -> list[int]:
        """Returns, for each operator call, how many clauses of all subscriptions of this server contain it. Raises
        `StoreUnavailable`."""

        def count(matcher: Matcher) -> list[int]:
            return [matcher.layer.holders(each.call) for each in links]

        if self.shards is None:
            return await self._submit(lambda group: count(group.state.matcher), reads_only=True)
        counts = await self.shards.measured(count)
        return [sum(each[place] for each in counts) for place in range(len(links))]

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    async def create_subscription(self, new: NewSubscription, quota: Quota = NO_QUOTA) -> Row[Any]:
        """Creates a subscription. Returns its row once it matches. Raises `InvalidSubscription`,
        `TooManySubscriptions`, `LimitReached`."""
        return await self._submit(await self._creation(new, quota))

    async def create_with_past(
        self, new: NewSubscription, after: Callable[[Connection], int], quota: Quota = NO_QUOTA
    ) -> tuple[Row[Any], Backfill | None]:
        """Like `create_subscription`, but also matches the stored events after the sequence number that `after`
        returns. Only one call at a time runs; others wait. Returns also the past matches, or None if the same request
        was sent before. Raises also `BackfillTooLarge`, `BrokerBusy`, and the errors of `after`."""
        if self._backfills_waiting >= MAX_BACKFILLS:
            raise BrokerBusy("too many new subscriptions wait for past events: try again later")
        self._backfills_waiting += 1
        try:
            async with self._backfilling:
                for _ in range(BACKFILL_TRIES):
                    with contextlib.suppress(Outdated):
                        return await self._with_past(new, after, quota)
            raise BrokerBusy("the vocabulary changes too often, or too many events arrive: try again later")
        finally:
            self._backfills_waiting -= 1

    async def _with_past(
        self, new: NewSubscription, after: Callable[[Connection], int], quota: Quota
    ) -> tuple[Row[Any], Backfill | None]:
        if (before := await self.read(lambda connection: commands.made_before(connection, new))) is not None:
            return before, None
        vocabulary, operators = self.vocabulary, self.state.operators
        create = await self._creation(new, quota)
        start = await self.read(after)

        def begin() -> Backfill:
            compiled = commands.compile_new(new, vocabulary, operators.available)
            matcher = self.state.empty_matcher(vocabulary)
            return Backfill(matcher, compiled, vocabulary, operators, self.settings, after=start)

        def work(connection: Connection) -> bool:
            page = list_whole_events(connection, after=backfill.through, limit=BACKFILL_PAGE)
            for sequence in page.damaged:
                self.damage.note(RecordDamaged(sequence).record)
            with short_turns():
                backfill.feed(page)
            return bool(page.rows or page.damaged)

        backfill = await run_in_turn(begin, new.size, new.created_by)
        while await self.read(work):
            pass
        return await self._submit(lambda group: create_with(group, backfill, create)), backfill

    async def _creation(self, new: NewSubscription, quota: Quota) -> Callable[[Group], Row[Any]]:
        vocabulary, operators = self.vocabulary, self.state.operators
        compiled = await run_in_turn(
            lambda: commands.compile_new(new, vocabulary, operators.available), new.size, new.created_by
        )
        limit = self.settings.max_subscriptions
        return lambda group: commands.create(
            group, new, compiled, vocabulary, operators, self._sweeper, limit=limit, quota=quota
        )

    async def create_subscriptions(
        self, new: Sequence[NewSubscription], size: int, compiler: BulkCompiler, quota: Quota = NO_QUOTA
    ) -> list[Refusal | IndexFull | None]:
        """Creates many subscriptions at once, from requests of `size` bytes. Returns None for each subscription that
        matches now, and the error for each of the others. `compiler` was lent by `compilers`."""
        vocabulary, operators = self.vocabulary, self.state.operators
        limit = self.settings.max_subscriptions

        async def create(some: Sequence[NewSubscription], size: int) -> list[Refusal | None]:
            described = await run_in_turn(
                lambda: commands.describe(some, vocabulary, operators, compiler),
                size,
                next((each.created_by for each in some), None),
            )
            asked = some, described, vocabulary, operators, self._sweeper, compiler
            return await self._submit(lambda group: commands.create_many(group, *asked, limit=limit, quota=quota))

        try:
            return [*await create(new, size)]
        except IndexFull:  # there may be room for some of them
            results: list[Refusal | IndexFull | None] = []
            for each in new:
                try:
                    results += await create([each], each.size)
                except IndexFull as error:
                    results.append(error)
            return results

    async def renew(self, id: str, ticket: Claim | str | None, expires_at: float, tags: Tags = None) -> Row[Any]:
        """Sets the end time of a subscription. Returns its row. Raises `UnknownSubscription`, `TicketMissing`,
        `TicketWrong`, `SubscriptionGone`, and `HiddenAttribute` if it has expired and may not match any more."""
        grace, roles_of = self.settings.grace_seconds, self.roles_of
        return await self._submit(
            lambda group: commands.renew(
                group, id, ticket, expires_at, self._sweeper, grace=grace, tags=tags, roles_of=roles_of
            )
        )

    async def pause(self, id: str, ticket: Claim | str | None, tags: Tags = None) -> Row[Any]:
        """Stops matching a subscription. Returns its row. Raises the errors of `renew`."""
        return await self._submit(lambda group: commands.pause(group, id, ticket, tags))

    async def resume(self, id: str, ticket: Claim | str | None, tags: Tags = None) -> Row[Any]:
        """Matches or delivers a paused or disabled subscription again. Returns its row. Raises the errors of `renew`,
        and `HiddenAttribute`."""
        return await self._submit(lambda group: commands.resume(group, id, ticket, tags, self.roles_of))

    async def redrive(self, id: str, ticket: Claim | str | None) -> tuple[Row[Any], int]:
        """Sends the dead letters of a subscription again. Returns its row and the number of dead letters. Raises the
        errors of `renew`."""
        return await self._submit(lambda group: commands.redrive(group, id, ticket))

    async def update_subscription(
        self, id: str, ticket: Claim | str | None, values: Mapping[str, Any], tags: Tags = None
    ) -> Row[Any]:
        """Sets some columns of a subscription. Returns its row. Raises the errors of `renew`."""
        return await self._submit(lambda group: commands.update(group, id, ticket, values, self._sweeper, tags))

    async def rotate_secret(
        self, id: str, ticket: Claim | str | None, secret: str, overlap: float, tags: Tags = None
    ) -> Row[Any]:
        """Sets a new webhook secret. Returns the row with this secret. Raises the errors of `renew`, and
        `SinkMissing`."""
        return await self._submit(lambda group: commands.rotate_secret(group, id, ticket, secret, overlap, tags))

    async def replay(
        self, id: str, ticket: Claim | str | None, position: Callable[[Connection], int], tags: Tags = None
    ) -> Row[Any]:
        """Moves the cursor of a subscription back to a position. Returns its row. Raises the errors of `renew` and
        those of `position`."""
        return await self._submit(lambda group: commands.replay(group, id, ticket, position, tags))

    async def delete_subscription(self, id: str, ticket: Claim | str | None, tags: Tags = None) -> Row[Any]:
        """Deletes a subscription. Returns its last row. Raises `UnknownSubscription`, `TicketMissing`,
        `TicketWrong`."""
        return await self._submit(lambda group: commands.delete(group, id, ticket, self._sweeper, tags))

    # ── ontologies ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def put_ontology(
        self,
        name: str,
        document: bytes,
        *,
        format: str | None,
        activate: bool,
        reason: Reason = "none",
        relations: Sequence[str] = (),
        replaces: Versions = None,
        dry_run: bool = False,
        progress: Progress = silent,
        sharing: Sharing | None = None,
    ) -> tuple[dict[str, Any], bool]:
        """Loads an ontology. Returns the load report, and whether a new version was made. `dry_run` only reports the
        effect. With `sharing`, all tenants share the ontology. Raises `OntologyError`, `UnsupportedFormat`,
        `BrokerBusy`, `VersionChanged`, `OntologyShared`, `SharingRefused`.

        The document is read in a child process. The vocabulary is built, and the subscriptions are compiled again, in
        worker threads. Events are published meanwhile.
        """
        upload = Upload(
            name=name,
            document=document,
            format=format,
            reason=reason,
            relations=tuple(relations),
            replaces=replaces,
        )
        return await self.vocabulary_commands.put_ontology(
            upload, activate=activate, dry_run=dry_run, progress=progress, sharing=sharing
        )

    # ── other servers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _read_all(self, connection: Connection) -> State:
        return restore(connection, self.settings, None, alone=False)

    async def _join(self, state: State) -> None:
        assert self._thread is not None, "the thread was started before"
        self._preparation = Preparation(self, self._thread.keep_prepared)
        membership = Membership(
            self._database,
            self._name,
            _program(state),
            self.settings.lease_seconds,
            lambda: state.commits,
            self._wake,
            self.leases.changed,
            self._preparation.upcoming,
        )
        try:
            await asyncio.to_thread(membership.start)
        except Exception as error:  # an error of the driver, which is installed only for PostgreSQL
            _log.error("the database cannot be reached: %s", error)
            raise StoreUnavailable("the database cannot be reached: try again") from error
        self.leases.membership = membership
        self.leases.listeners.append(self._wake_pending)
        await self._submit(lambda _: None, weight=0, reads_only=True)  # applies earlier commits

    def _wake(self) -> None:
        """Called when another server has committed something. Applies it, unless that is about to happen anyway."""
        self._woken = True
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="commits of other servers")

    async def _follow(self) -> None:
        while self._woken:
            self._woken = False
            with contextlib.suppress(StoreUnavailable):  # the next heartbeat wakes again
                await self.follow()

    async def follow(self) -> None:
        """Applies the commits of other servers. Raises `StoreUnavailable`."""
        await self._submit(lambda _: None, weight=0, reads_only=True)

    async def stored_ontology(self, name: str, version: int) -> Ontology:
        """Returns a stored version of an ontology. Raises `UnknownOntology`."""
        return await self.vocabulary_commands.stored_ontology(name, version)

    async def _spread(self) -> None:
        """Waits until every other live server has applied the vocabulary or the operators that this server has
        activated. No server matches an event before that, but it may still answer with the previous state."""
        member, commit = self.leases.membership, self.state.put_in_force
        while member is not None and commit > self._spread_to:
            if await self.read(partial(behind, commits=commit, but=member.id)):
                await asyncio.sleep(SPREAD_SECONDS)
            else:
                self._spread_to = commit

    @asynccontextmanager
    async def before_others(self) -> AsyncIterator[None]:
        """A context manager for a change of the vocabulary. No other server changes the vocabulary meanwhile, and all
        earlier changes of other servers are applied here. Raises `StoreUnavailable`. If the lock is lost meanwhile, for
        example because the database stops, the change itself fails."""
        if self._database.is_sqlite:
            yield
            return
        connection = await asyncio.to_thread(self._database.begin_activation)
        try:
            while not await asyncio.to_thread(self._database.may_activate, connection):
                await asyncio.sleep(SPREAD_SECONDS)
            await self._submit(lambda _: None, weight=0, reads_only=True)
            self._activating = connection
            yield
        finally:
            self._activating = None
            await asyncio.to_thread(_leave_activation, connection, self._database.channel)

    @asynccontextmanager
    async def sharing(self, *, alone: bool) -> AsyncIterator[None]:
        """A context manager: meanwhile no other server changes an ontology that all tenants share and, with `alone`,
        no tenant but `default` changes its vocabulary. Without `alone` it is for those tenants only. This lock is taken
        before that of a tenant's own changes. Does nothing with SQLite. Raises `StoreUnavailable`."""
        if self._database.is_sqlite or (self._database.schema is None and not alone):
            yield
            return
        connection = await asyncio.to_thread(self._database.begin_activation)
        try:
            while not await asyncio.to_thread(partial(self._database.may_share, connection, alone=alone)):
                await asyncio.sleep(SPREAD_SECONDS)
            yield
        finally:
            await asyncio.to_thread(connection.close)

    async def announce(self, version: str, pack: Callable[[], bytes]) -> str | None:
        """Tells the other servers which vocabulary this server is about to activate, inside `before_others`. `pack`
        returns in what it differs from the active one; it runs in a worker thread. Returns the token of the
        announcement. Returns None if there are no other servers, or if they cannot be told: then they read the
        vocabulary after its activation."""
        connection, base = self._activating, self.vocabulary.version
        if connection is None or version == base or len(await self.read(living)) < 2:
            return None
        token = secrets.token_hex(8)

        def work() -> None:
            announced = Upcoming(token, self._name, version, base, pack())
            with connection.begin():
                store_upcoming(connection, self._database.channel, announced)

        try:
            await run_to_the_end(work)
        except Exception as error:
            _log.warning("the other servers cannot prepare vocabulary %s: %s", version, error)
            return None
        return token

    async def wait_for_others(self, token: str, seconds: float) -> None:
        """Waits until every other live server has prepared the vocabulary that was announced, but at most so long.
        Raises `StoreUnavailable`."""
        until, pause = time.monotonic() + seconds, SPREAD_SECONDS
        while left := await self.read(partial(unprepared, token=token, but=self._name)):
            if time.monotonic() > until:
                _log.warning(
                    "%d servers have not prepared the vocabulary within %.0f s: they read it after its activation",
                    left,
                    seconds,
                )
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    def _wake_pending(self) -> None:
        for listener in self.pending_listeners:
            listener()

    # ── the queue ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, work: Callable[[Group], T]) -> T:
        """Executes a command in the writer's thread. A command must register how to undo its changes of the state. If
        it activates a vocabulary or operators, they are active at all servers of the database when this returns."""
        result = await self._submit(work)
        await self._spread()
        return result

    async def _submit(
        self,
        work: Callable[[Group], T],
        *,
        weight: int = 1,
        reads_only: bool = False,
        patient: bool = False,
        publication: Publication | None = None,
        prepare: Callable[[T], None] | None = None,
    ) -> T:
        if self._thread is None:
            raise StoreUnavailable("the broker is not running")
        if not reads_only and not self._is_member:
            raise StoreUnavailable(f"{SILENT_TOO_LONG}: try again")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting += weight
        self._since[answer] = time.monotonic()
        try:
            command = Command(
                work=work,
                answer=answer,
                weight=weight,
                reads_only=reads_only,
                patient=patient,
                publication=publication,
                prepare=prepare,
            )
            self._thread.submit(command)
            return await answer
        finally:
            self._waiting -= weight
            del self._since[answer]

    def _open(self) -> tuple[Connection, State]:
        """Opens the store and restores the state from it. Runs in a worker thread."""
        connection = self._database.open()
        alone = self._database.alone
        try:
            if not alone:
                ledger.migrate_beside_others(connection)
            with connection.begin():
                if not alone:
                    connection.exec_driver_sql(SNAPSHOT)
                    ledger.check_readable(read_ledger(connection).readable_from)
                state = restore(connection, self.settings, self._snapshots, alone=alone)
                if not alone:
                    _check_programs(connection, _program(state))
            self._database.share(connection)
            return connection, state
        except DBAPIError as error:
            connection.close()
            if self._database.schema is not None and isinstance(error, OperationalError):
                _log.error("the database cannot be reached: %s", error.orig)
                raise StoreUnavailable(UNREACHABLE) from error
            self.damage.translated(error)
            raise StoreUnreadable(self.damage.of_file or f"the database cannot be read: {error.orig}") from error
        except BaseException:
            connection.close()
            raise


def _program(state: State) -> str:
    """Returns the version of this server, its layout and, after `SAME`, what must be the same at all servers of a
    database. Servers whose versions differ may run beside each other."""
    return (
        f"kindcast {version('kindcast')} with layout {ledger.LAYOUT}{SAME}format {EXCHANGE_FORMAT} of changes and"
        f" number {state.vocabulary.meaning} of the rules of matching"
    )


def _leave_activation(connection: Connection, channel: str) -> None:
    """Ends the right of this server to activate a vocabulary. What it announced is forgotten."""
    try:
        with contextlib.suppress(SQLAlchemyError), connection.begin():  # the next activation forgets it too
            forget_upcoming(connection, channel)
    finally:
        connection.close()


def _check_programs(connection: Connection, mine: str) -> None:
    for _, program in living(connection):
        if program.partition(SAME)[2] != mine.partition(SAME)[2]:
            raise StoreInUse(f"{program} serves the database, but this is {mine}: stop the other servers first")


def _publish_one(group: Group, publication: Publication, observe: Callable[[float, int], None]) -> Results:
    return publish(group, [publication], observe)[0]
