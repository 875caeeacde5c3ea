"""Sharded matching. Each shard reads the log, with events and changes of subscriptions in one order, and writes its own
matches.

    publishers ──▶ ledger, events ──┐                              ┌──▶ late matches, its place; one transaction,
    subscribers ─▶ rows, changes ───┴─▶ page ──apply, match, beside┘    checked against the fence of its lease

A subscription is in one shard, determined by its number. So its messages have the order of the events. The server that
holds the lease of a shard has its subscriptions in memory. The shards are distributed over the live servers: none holds
more than its part. When a server ends, the others take its shards, each from its stored place.

A shard matches each event under the vocabulary under which the event was accepted, with the subscriptions that had not
expired at that time.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from sqlalchemy import Connection, Row

from kindcast.semantic import Event, Matcher, Vocabulary
from kindcast.semantic.events import ReadEvent
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.broker import garbage_collection
from kindcast.server.broker.group import Group
from kindcast.server.broker.late_matches import LateMatches
from kindcast.server.broker.membership import Leases
from kindcast.server.broker.publishing import (
    ARRIVAL,
    MATCHES_AT_ONCE,
    MATCHES_TRIED,
    EventMatches,
    in_order,
    in_time,
    match_events,
)
from kindcast.server.broker.state import Live, LiveSubscriptions, State
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import EventReader, ReadGraph, arrived
from kindcast.server.errors import BrokerBusy, RecordDamaged, StoreUnavailable
from kindcast.server.store import pending as pending_store
from kindcast.server.store import shards as shard_store
from kindcast.server.store.pending import ParkedRow
from kindcast.server.store.postings import Numbers, pack_lists
from kindcast.server.store.servers import read_ledger
from kindcast.server.store.shards import PAGE, Page, Place, ShardChange, StoredSubscription, lease_of
from kindcast.server.worker_threads import short_turns

__all__ = ["Shards"]

T = TypeVar("T")

_log = logging.getLogger("kindcast.shards")

PAUSE_SECONDS = 0.5
"""The pause before a failed operation is tried again."""
GATHER_SECONDS = 0.02
"""The pause after a page that was not full, so that events that arrive meanwhile become one page. Each page is a
transaction, and transactions wait for each other."""
CHANGES_UNSTORED = 1_000
"""A shard stores its place after this many applied changes, even if no event came."""


class LeaseLost(Exception):
    """Another server holds the shard, or may hold it."""


class Moved(Exception):
    """The stored place of the shard differs from the place that this server expected."""


class BrokerAccess(Protocol):
    """The part of the broker's interface that shards use."""

    leases: Leases

    @property
    def state(self) -> State: ...

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def submit(self, work: Callable[[Group], T]) -> T: ...

    async def follow(self) -> None:
        """Applies the commits of other servers."""
        ...

    async def stored_ontology(self, name: str, version: int) -> Ontology:
        """Returns a stored version of an ontology."""
        ...


@dataclass(slots=True)
class Matches:
    """The matches of some events in a shard. An item of `lists` is (event, numbers, packed numbers, bindings). `parked`
    are the candidates that operators must decide."""

    lists: list[tuple[int, Numbers, bytes, Sequence[str | None] | None]] = field(default_factory=list)
    parked: list[ParkedRow] = field(default_factory=list)
    size: int = 0
    events: int = 0
    seconds: float = 0.0


class Shard:
    """The subscriptions of one shard at a place of the log. Only one thread at a time may use it, and it must hold
    `lock`."""

    def __init__(self, number: int, place: Place, state: State, version: str, reader: EventReader) -> None:
        """`state` has no subscriptions yet; `fill` adds them."""
        self.number = number
        self.place = place
        self.version = version
        """The version of the vocabulary of the events that the shard matches now."""
        self.stored = place
        """The place that is stored in the database."""
        self.state = state
        self.hurries = False
        """Whether more events are known to wait."""
        self.lock = threading.Lock()
        self._reader = reader

    def fill(self, found: Iterator[StoredSubscription]) -> None:
        """Adds the subscriptions that match at the shard's place. Call this once."""
        live = self.state.live_subscriptions

        def trees() -> Iterator[tuple[str, Any]]:
            for each in found:
                live.put_aside(Live(each.number, each.id, "active", each.ends_at, matching=False))
                yield each.id, each.tree

        with short_turns(), garbage_collection.paused():
            live.matcher.restore_many(trees())  # without a meaning it matches nothing and stays aside
            live.enter_found(list(live.aside))
        garbage_collection.collect_and_freeze(len(live.matcher))

    def follow_operators(self, state: State) -> None:
        """Declares the operators that the server knows."""
        if self.state.operators is not state.operators:
            self.state.operators = state.operators
            for operator in state.operators.known.values():
                self.state.matcher.declare(operator)

    def advance(self, page: Page) -> Matches:
        """Applies and matches a page, whose events must all have the shard's version of the vocabulary. If there are
        very many matches, only the first part of the page is done."""
        matches = Matches()
        with self.lock, short_turns():
            changes, start = list(page.changes), 0
            while start < len(page.events):
                first = page.events[start].sequence
                due = [each for each in changes if each[1].position < first]
                if due:
                    self._apply(due, page)
                    changes = changes[len(due) :]
                end = start + self._chunk()
                if changes:
                    limit = changes[0][1].position
                    end = min(end, start + sum(row.sequence <= limit for row in page.events[start:]))
                some = page.events[start : max(end, start + 1)]
                self._match(some, matches)
                start += len(some)
                self.place = self.place._replace(position=some[-1].sequence)
                if matches.size >= MATCHES_AT_ONCE:
                    return matches
            if changes and not page.events:
                self._apply(changes, page)
        return matches

    def match(self, events: Sequence[Event], graphs: Sequence[ReadGraph | None]) -> list[EventMatches]:
        """Returns what each event would match now in this shard. May run in any thread."""
        with self.lock:
            return match_events(self.state, CLOCK.now(), events, graphs)

    def _chunk(self) -> int:
        return max(1, MATCHES_TRIED // max(1, len(self.state.matcher)))

    def _apply(self, changes: Sequence[tuple[int, ShardChange]], page: Page) -> None:
        live = self.state.live_subscriptions
        latest = {change.id: change for _, change in changes}
        new: dict[str, Any] = {}
        for id, change in latest.items():
            known = live.find(id)
            if known is not None and known.number == change.subscription and known.matching and change.matching:
                live.set_end(id, change.ends_at)
                continue
            if known is not None and known.matching:
                live.leave(id)
                live.matcher.remove(id)
            live.aside.pop(id, None)
            if change.matching:
                live.put_aside(Live(change.subscription, id, "active", change.ends_at, matching=False))
                new[id] = page.trees[change.subscription]
        if new:
            live.matcher.restore_many(new.items())
            live.enter_found(list(new))
        self.place = self.place._replace(applied=changes[-1][0])

    def _match(self, rows: Sequence[Row[Any]], matches: Matches) -> None:
        began = time.perf_counter()
        matcher, read, those = self.state.matcher, list[ReadEvent](), list[Row[Any]]()
        asks = matcher.may_ask(ARRIVAL)
        for row in rows:
            try:
                event = self._reader.stored(row.body)
                read.append(matcher.read(arrived(event, row.accepted_at) if asks else event))
                those.append(row)
            except MemoryError:
                raise
            except Exception:  # after any error of its own: otherwise one event would stop the shard for ever
                _log.exception("shard %d: event %d cannot be read, and matches nothing", self.number, row.sequence)
        table = matcher.match_read(read)
        times = np.array([row.accepted_at for row in those], dtype=np.float64)
        found = in_order(self.state, table, np.repeat(times, np.diff(table.offsets)))
        matches.seconds += time.perf_counter() - began
        matches.events += len(rows)
        packs, ends = pack_lists(found.numbers, found.bounds), found.bounds.tolist()
        for number, row in enumerate(those):
            start, end = ends[number : number + 2]
            if end > start:
                bindings = None if found.bindings is None else found.bindings[start:end]
                matches.lists.append((row.sequence, found.numbers[start:end], packs[number], bindings))
                matches.size += end - start
            waiting = in_time(self.state, found.undecided.get(number, {}), row.accepted_at)
            matches.parked += [
                {
                    "event": row.sequence,
                    "subscription": subscription,
                    "vocabulary_version": row.vocabulary_version,
                    "reason": failure.reason,
                    "kind": failure.kind,
                    "tries": 0,
                    "parked_at": row.accepted_at,
                    "next_try_at": row.accepted_at,
                }
                for _, subscription, failure in waiting
            ]


class Shards:
    """The shards that this server holds, one task each. All run on one event loop."""

    def __init__(
        self,
        broker: BrokerAccess,
        count: int,
        *,
        max_events: int,
        look_seconds: float,
        observe: Callable[[float, int], None] = lambda seconds, events: None,
    ) -> None:
        """`look_seconds` is the pause between two checks of the leases. `observe(seconds, events)` is called with the
        time that reading and matching took."""
        self._observe = observe
        self.count = count
        self.held: dict[int, Shard] = {}
        """The shards that match at this server now, by number."""
        self._broker = broker
        self._reader = EventReader(max_events=max_events)
        self._look_seconds = look_seconds
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._look = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None
        self._stopped = False
        self._ending: set[int] = set()
        """The shards that this server is giving up."""
        self._vocabularies: dict[str, Vocabulary] = {}
        self._building = asyncio.Lock()

    def start(self) -> None:
        """Starts taking shards."""
        self._broker.leases.listeners.append(self._look.set)
        self._sharing = asyncio.create_task(self._share_out(), name="shards")

    async def stop(self) -> None:
        """Stops the shards, each at its stored place."""
        self._stopped = True
        self._look.set()
        if self._sharing is not None:
            await asyncio.gather(self._sharing, return_exceptions=True)
        for each in self._tasks.values():
            each.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def wake(self) -> None:
        """Called when the log has grown."""
        for each in self._wakes.values():
            each.set()

    async def match(
        self, events: Sequence[Event], graphs: Sequence[ReadGraph | None]
    ) -> tuple[list[list[EventMatches]], list[int]]:
        """Returns what each event would match in each shard of this server, and the numbers of these shards."""
        held = sorted(self.held.items())
        found = [await asyncio.to_thread(shard.match, events, graphs) for _, shard in held]
        return found, [number for number, _ in held]

    async def measured(self, of: Callable[[Matcher], T]) -> list[T]:
        """Returns the result of `of` for the matcher of each shard of this server."""

        def measure(shard: Shard) -> T:
            with shard.lock:
                return of(shard.state.matcher)

        return [await asyncio.to_thread(measure, each) for each in list(self.held.values())]

    # ── who holds what ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _share_out(self) -> None:
        while not self._stopped:
            self._look.clear()
            try:
                await self._take()
            except StoreUnavailable:
                pass  # the next check tries again
            except Exception:
                _log.exception("the shards could not be distributed; trying again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds):
                    await self._look.wait()

    async def _take(self) -> None:
        leases, keys = self._broker.leases, [lease_of(number) for number in range(self.count)]
        # What the database says counts. This server may have forgotten a lease, for example after a late heartbeat, and
        # the other servers cannot take it before it is released.
        shared_out = await leases.shared_out(keys)
        part = shared_out.part(self.count)
        mine = [number for number in range(self.count) if lease_of(number) in shared_out.mine]
        for number in mine[part:]:
            await self._end(number)
            await leases.release(lease_of(number))
        mine = mine[:part]
        more = [number for number in range(self.count) if lease_of(number) in shared_out.free]
        mine += more[: part - len(mine)]
        taken = await leases.take([lease_of(number) for number in mine]) if mine else []
        for number in mine:
            task = self._tasks.get(number)
            if lease_of(number) in taken and (task is None or task.done()):
                self._wakes[number] = asyncio.Event()
                self._tasks[number] = asyncio.create_task(self._serve(number), name=f"shard {number}")

    async def _end(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            self._ending.add(number)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._ending.discard(number)

    # ── one shard ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, number: int) -> None:
        wake, fence = self._wakes[number], self._broker.leases.fence(lease_of(number))
        shard: Shard | None = None
        try:
            while fence is not None and self._broker.leases.fence(lease_of(number)) == fence:
                try:
                    wake.clear()
                    if shard is None:
                        shard = self.held[number] = await self._load(number, None)
                    if await self._step(shard, fence):
                        await asyncio.sleep(0 if shard.hurries else GATHER_SECONDS)
                    else:
                        # `wait_for` of Python 3.11 ignores a cancellation that comes together with a wake.
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(self._look_seconds):
                                await wake.wait()
                except LeaseLost:
                    break
                except Exception as error:
                    shard = None
                    self.held.pop(number, None)
                    if not isinstance(error, StoreUnavailable | Moved):
                        _log.exception("shard %d could not go on; trying again from its stored place", number)
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.held.pop(number, None)
            _log.info("this server no longer matches shard %d", number)

    async def _load(self, number: int, before: Shard | None, version: str | None = None) -> Shard:
        """Loads a shard at its stored place, or at the place of `before`. It gets the given version of the vocabulary,
        or the active one."""
        while True:
            vocabulary = await self._vocabulary(version)
            state = self._broker.state
            matcher = state.empty_matcher(vocabulary)
            fresh = State(LiveSubscriptions(matcher), state.new_matcher, state.declarations, operators=state.operators)

            named = version or vocabulary.version

            def read(connection: Connection, fresh: State = fresh, named: str = named) -> tuple[Shard, int]:
                place = shard_store.find_place(connection, number) if before is None else before.place
                shard = Shard(number, place, fresh, named, self._reader)
                with contextlib.closing(shard_store.as_it_was(connection, number, self.count, place.applied)) as found:
                    shard.fill(self._wanted(number, found))
                return shard, read_ledger(connection).commits

            shard, commits = await self._read(read)
            if state.commits < commits:
                await self._broker.follow()
            if fresh.operators is state.operators:
                break  # the operators that the subscriptions call are known
        _log.info(
            "shard %d: %d subscriptions, from event %d on", number, len(shard.state.matcher), shard.place.position
        )
        return shard

    def _wanted(self, number: int, found: Iterator[StoredSubscription]) -> Iterator[StoredSubscription]:
        """Yields the subscriptions while this server wants the shard. Runs in a worker thread. Raises `LeaseLost`."""
        for each in found:
            if self._stopped or number in self._ending:
                raise LeaseLost
            yield each

    async def _read(self, work: Callable[[Connection], T]) -> T:
        """Like `read` of the broker. If it is cancelled, it ends after the worker thread has returned the
        connection."""
        reading = asyncio.ensure_future(self._broker.read(work))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.gather(reading, return_exceptions=True)
            raise

    async def _vocabulary(self, version: str | None) -> Vocabulary:
        """Returns the active vocabulary, or an earlier one under which events were accepted."""
        in_force = self._broker.state.vocabulary
        if version is None or version == in_force.version:
            return in_force
        async with self._building:
            if version not in self._vocabularies:
                row = await self._read(lambda connection: pending_store.vocabulary_parts(connection, version))
                if row is None:
                    raise RuntimeError(f"the vocabulary {version} of an accepted event is not in the store")
                read = [await self._broker.stored_ontology(name, number) for name, number in row.ontologies]
                declared = Declarations.from_json(row.declarations).arguments()
                built = await asyncio.to_thread(partial(Vocabulary.shared, read, **declared))
                self._vocabularies = {version: built}
            return self._vocabularies[version]

    async def _step(self, shard: Shard, fence: int) -> bool:
        """Reads the next page, matches it and stores the matches. Returns whether there was anything to do."""
        try:
            page = await self._read(lambda connection: shard_store.page_after(connection, shard.number, shard.place))
        except RecordDamaged as error:
            _log.error("shard %d: event %d is damaged, and matches nothing", shard.number, error.sequence)
            shard.place = shard.place._replace(position=error.sequence)
            await self._store(shard, Matches(), fence)
            return True
        if self._broker.state.commits < page.commits:
            await self._broker.follow()  # learns the operators that its subscriptions call
        shard.follow_operators(self._broker.state)
        version = page.events[0].vocabulary_version if page.events else None  # the one in force, also if it changes now
        if (version or self._broker.state.vocabulary.version) != shard.version:
            fresh = await self._load(shard.number, shard, version)
            shard.state, shard.version, shard.hurries = fresh.state, fresh.version, True
            return True
        shard.hurries = len(page.events) == PAGE or any(row.vocabulary_version != version for row in page.events)
        same = next((at for at, row in enumerate(page.events) if row.vocabulary_version != version), len(page.events))
        if same < len(page.events):
            changes = [each for each in page.changes if each[1].position < page.events[same - 1].sequence]
            page = page._replace(events=page.events[:same], changes=changes)
        if not page.events and not page.changes:
            return False
        matches = await asyncio.to_thread(shard.advance, page)
        self._observe(matches.seconds, matches.events)
        if page.events or shard.place.applied - shard.stored.applied >= CHANGES_UNSTORED:
            await self._store(shard, matches, fence)
        return True

    async def _store(self, shard: Shard, matches: Matches, fence: int) -> None:
        """Stores matches and place. Tries again until they are on disk or another server holds the shard. Raises
        `LeaseLost`, `Moved`."""
        before, after = shard.stored, shard.place
        work = partial(self._written, number=shard.number, fence=fence, before=before, after=after, matches=matches)
        while True:
            try:
                await self._broker.submit(work)
                shard.stored = after
                return
            except (StoreUnavailable, BrokerBusy):
                await asyncio.sleep(PAUSE_SECONDS)
                if self._broker.leases.fence(lease_of(shard.number)) != fence:
                    raise LeaseLost from None

    def _written(self, group: Group, *, number: int, fence: int, before: Place, after: Place, matches: Matches) -> None:
        connection = group.connection
        if not self._broker.leases.valid(connection, {(lease_of(number), fence)}):
            raise LeaseLost
        there = shard_store.find_place(connection, number)
        if there == after:
            return  # it was committed before, and the answer was lost
        if there != before:
            raise Moved
        gone = shard_store.deleted_after(connection, number, before.applied) | group.deleted  # they have no queue
        late = LateMatches(group)
        for event, numbers, packed, bindings in matches.lists:
            if gone and not gone.isdisjoint(numbers.tolist()):
                numbers, packed, bindings = _without(gone, numbers, bindings)
            if numbers.size:
                late.add_found(event, numbers, packed, bindings)
        late.store()
        parked = [each for each in matches.parked if each["subscription"] not in gone]
        if parked:
            pending_store.insert_parked(connection, parked)
            group.totals["parked"] += len(parked)
            group.parked = True
        shard_store.move(connection, number, after)


def _without(
    gone: set[int], numbers: Numbers, bindings: Sequence[str | None] | None
) -> tuple[Numbers, bytes, Sequence[str | None] | None]:
    """Returns the matches of the subscriptions that still exist."""
    kept = [at for at, number in enumerate(numbers.tolist()) if number not in gone]
    left = numbers[kept]
    (packed,) = pack_lists(left, np.array([0, left.size]))
    return left, packed, None if bindings is None else [bindings[at] for at in kept]
