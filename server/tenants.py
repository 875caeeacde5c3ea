"""Tenants: each has its own broker and its own database, so that no tenant can reach another; and the ontologies that
all of them share.

    request ──Caller.tenant──▶ Tenants.enter ──▶ TenantServices: broker, delivery, late matching, jobs, backtests
                                   │
                                   └── opened on first use; closed when long idle and nothing is due

The tenant `default` is the database of the server and always open. The others are in `tenants/NAME/` of the data
folder or, on PostgreSQL, in a schema each. A tenant with due work (webhooks, candidates of operators) stays open, and
the next start opens it again. If another tenant needs its place, and its next attempt is not soon, it is closed until
then. If several servers share a PostgreSQL, each opens a tenant on its first use there; a tenant with due work that no
server has open any more, because its server ended, is opened by another one.
"""

import asyncio
import contextlib
import logging
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from kindcast.semantic import Vocabulary
from kindcast.semantic.changes import Impact
from kindcast.semantic.errors import SemanticError
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.api.jobs import Jobs
from kindcast.server.backtests import Backtests
from kindcast.server.broker import Broker
from kindcast.server.broker.documents import decoded
from kindcast.server.broker.vocabulary_commands import SharedChange, active_declarations, dependents_of
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import EventReader
from kindcast.server.delivery import DeliveryService, running_delivery
from kindcast.server.delivery.tail import LiveTail
from kindcast.server.errors import (
    BrokerBusy,
    OntologyInUse,
    ServerError,
    SharingRefused,
    StoreUnavailable,
    StoreUnreadable,
    TenantInUse,
    UnknownTenant,
)
from kindcast.server.late_matching import LateMatchingService, running_late_matching
from kindcast.server.metrics import History, running_history
from kindcast.server.security.keys import DEFAULT_TENANT
from kindcast.server.security.permissions import EVERYBODY, RolesOf
from kindcast.server.settings import SNAPSHOT, Settings
from kindcast.server.store import ontologies, pending, subscriptions
from kindcast.server.store.backup import MAIN, reading
from kindcast.server.store.database import in_schema, max_connections, normalised
from kindcast.server.store.deliveries import awaiting_webhooks, next_attempt
from kindcast.server.store.pending import ontology_is_needed
from kindcast.server.store.servers import members
from kindcast.server.store.system import DELETED, SystemStore, Tenant
from kindcast.server.worker_threads import short_turns

__all__ = ["SharedOntologies", "TenantServices", "Tenants", "running_services", "running_tenants"]

LOOK_SECONDS = 5.0
"""The interval of the checks for idle tenants."""
SHARED_LOOK_SECONDS = 1.0
"""The same interval on PostgreSQL, where other servers may have changed or deleted a tenant, or may have ended."""
CONNECTIONS_PER_TENANT = 8
"""By default, the number of a PostgreSQL's connections for each tenant that a server may have open. An open one needs
two, and for a short time a third. The rest is for other servers."""
CONNECTIONS_OF_OPEN_TENANT = 2
LEAST_OPEN = 4
SOON_SECONDS = 30.0
"""A tenant whose next attempt is due within this time is not closed for another one."""
UNREADABLE_SECONDS = 60.0
"""How long a tenant with due work whose data could not be read waits for another attempt, unless a request opens it."""
PATIENCE_SECONDS = 5.0
"""How long running requests of a tenant that is being deleted may take."""
CLOSED_TOGETHER = 8
"""Tenants that are closed at the same time when the server stops. Each mostly waits for the disk or the database."""
POLL_SECONDS = 0.02
DELETED_POLL_SECONDS = 0.2
"""How often a server checks whether the others have closed a deleted tenant. Each check reads all tenants."""

_log = logging.getLogger("kindcast.tenants")


@dataclass(slots=True)
class TenantServices:
    """The services of one tenant that the routes use."""

    broker: Broker
    jobs: Jobs
    backtests: Backtests
    delivery: DeliveryService
    late_matching: LateMatchingService
    tail: LiveTail
    history: History
    reader: EventReader
    """The reader of its requests. Ids that it generates say nothing about other tenants."""
    under_way: int = 0
    """The number of requests that use it."""
    used_at: float = field(default_factory=time.monotonic)


@asynccontextmanager
async def running_services(
    settings: Settings, roles_of: RolesOf, *, first: Broker | None = None
) -> AsyncIterator[TenantServices]:
    """A context manager that runs all services over one database. `first` is the broker of the tenant `default`; None
    if this is it. Raises the errors of `Broker.start`."""
    broker = Broker(settings, first=first, roles_of=roles_of)
    reader = EventReader(max_events=settings.max_events_per_request)
    backtests = Backtests(broker, settings, reader)
    await broker.start()
    await anyio.to_thread.run_sync(backtests.remove_left_behind)
    jobs = Jobs(broker, kept=settings.max_jobs, seconds=settings.job_seconds)
    try:
        async with (
            running_delivery(broker, settings, hears_signals=first is None) as delivery,
            running_late_matching(broker, settings) as late_matching,
            running_history(broker, late_matching) as history,
        ):
            tail = LiveTail(broker, delivery.wakeups)
            yield TenantServices(broker, jobs, backtests, delivery, late_matching, tail, history, reader)
    finally:
        broker.documents.stop()  # reading ends at once; storing is finished
        backtests.stop()
        await jobs.stop()
        await broker.stop()


class _Open(NamedTuple):
    """An open tenant, what ends its services, and its row when it was opened."""

    services: TenantServices
    stack: AsyncExitStack
    tenant: Tenant


class Tenants:
    """The open tenants of one server. For one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: SystemStore,
        default: TenantServices,
        roles_of: RolesOf = EVERYBODY,
        known: Callable[[str], Tenant | None] = lambda _: None,
    ) -> None:
        """`known` returns the row of a tenant, as requests know it."""
        self.default = default
        self._known = known
        self._roles_of = roles_of
        self._settings = settings
        self._store = store
        self.on_postgresql = default.broker.database == "postgresql"
        """Whether tenants are schemas of one PostgreSQL, which other servers may use too."""
        self._max_open = settings.max_open_tenants
        self._cleaned: int | None = None
        """On PostgreSQL: up to which change of keys and tenants no data of a deleted tenant is left."""
        self._open: dict[str, _Open] = {}
        self._opening: dict[str, asyncio.Task[TenantServices]] = {}
        self._beginning: set[str] = set()
        """The tenants that are being opened. They count as open ones."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._closed_until: dict[str, float] = {}
        """The tenants with due work that were closed for others, and when their next attempts are due."""
        self._unreadable: dict[str, float] = {}
        """The tenants with due work whose data could not be read, and when `wake` tries them again."""
        self.shared = SharedOntologies(self)
        """Distributes changes of shared ontologies to the other tenants."""
        default.delivery.wakeups.also_closes(self._close_streams)

    def __len__(self) -> int:
        return 1 + len(self._open)

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[TenantServices]:
        """A context manager with the services of a tenant, which stays open while the block runs. Raises `BrokerBusy`
        if too many tenants are open, `StoreUnavailable` if its files cannot be opened, and the errors of
        `Broker.start`."""
        services = await self._find(name)
        services.under_way += 1
        try:
            yield services
        finally:
            services.under_way -= 1
            services.used_at = time.monotonic()

    async def _find(self, name: str) -> TenantServices:
        if name == DEFAULT_TENANT:
            return self.default
        if name in self._open and self._is_current(name):
            return self._open[name].services
        opening = self._opening.get(name)
        if opening is None:
            # A separate task, so that a request that is cancelled meanwhile leaves no half-opened tenant.
            opening = self._opening[name] = asyncio.create_task(self._make_open(name), name=f"opening {name}")
            opening.add_done_callback(partial(self._opened, name))
        return await asyncio.shield(opening)

    async def _make_open(self, name: str) -> TenantServices:
        async with self._locks.setdefault(name, asyncio.Lock()):
            if not self._is_current(name):
                await self._close_deleted(name)
            if name not in self._open:
                self._beginning.add(name)
                try:
                    await self._make_room(name, until_due=True)
                    await self._begin(name)
                finally:
                    self._beginning.discard(name)
            return self._open[name].services

    def _is_current(self, name: str) -> bool:
        """Returns False if another server deleted an open tenant, and a later one has its name."""
        known, opened = self._known(name), self._open.get(name)
        return known is None or opened is None or known.created_at <= opened.tenant.created_at

    def _opened(self, name: str, opening: "asyncio.Task[TenantServices]") -> None:
        del self._opening[name]
        error = None if opening.cancelled() else opening.exception()  # retrieved, also if nobody waits any more
        if error is not None and not isinstance(error, BrokerBusy | UnknownTenant):
            _log.error("tenant %s cannot be opened: %s", name, error)

    def is_open(self, name: str) -> bool:
        """Whether the matcher of a tenant is in memory."""
        return name == DEFAULT_TENANT or name in self._open

    def others(self) -> list[tuple[str, TenantServices]]:
        """Returns the open tenants except `default`, by name."""
        return [(name, each.services) for name, each in sorted(self._open.items())]

    async def created(self) -> list[Tenant]:
        """Returns all created tenants except `default`, open or not."""
        everyone = await anyio.to_thread.run_sync(self._store.tenants)
        return [each for each in everyone if each.name != DEFAULT_TENANT]

    async def with_tables(self) -> set[str]:
        """Returns the schemas of all tenants that were ever opened, at any server of this PostgreSQL."""
        return await anyio.to_thread.run_sync(self._store.with_tables)

    def folder(self, name: str) -> Path:
        """Returns the folder with the data of a tenant. On PostgreSQL a schema stands for `name`, and the folder has
        only the snapshot of this server. So a later tenant of the same name has another folder."""
        return self._settings.data / "tenants" / name

    async def subscriptions(self, name: str) -> int | None:
        """Returns the number of subscriptions of a tenant; None if it is not open, or cannot be read now."""
        if not self.is_open(name):
            return None
        broker = (self.default if name == DEFAULT_TENANT else self._open[name].services).broker
        if broker.settings.shards is None:
            return len(broker.state.live_subscriptions)
        try:
            return (await broker.read(subscriptions.numbers_of_all))[0]
        except ServerError:
            return None

    async def subscriptions_by_creator(self, name: str) -> dict[str, int] | None:
        """Returns the number of subscriptions of a tenant by the owner who created them; None if it is not open, or
        cannot be read now. Cost: a scan of its subscriptions."""
        if not self.is_open(name):
            return None
        try:
            async with self.enter(name) as services:
                return await services.broker.read(subscriptions.count_by_creator)
        except ServerError:
            return None

    async def delete(self, name: str) -> None:
        """Closes a tenant and deletes all its data. Running requests get `PATIENCE_SECONDS` to end. On PostgreSQL the
        data is deleted when the other servers have closed it as well. They get the same time. What they accept until
        then is lost, even if there is a new tenant of the same name. Raises `UnknownTenant`, `TenantInUse`."""
        if name == DEFAULT_TENANT:
            raise TenantInUse("the tenant 'default' is always there and cannot be deleted")
        async with self._locks.setdefault(name, asyncio.Lock()):
            await anyio.to_thread.run_sync(self._store.check_unused, name)
            await self._close_deleted(name)
            deleted = await anyio.to_thread.run_sync(self._store.delete_tenant, name, self._set_aside)
            await anyio.to_thread.run_sync(partial(shutil.rmtree, self._aside(deleted), ignore_errors=True))
        if self.on_postgresql:
            deadline = time.monotonic() + PATIENCE_SECONDS
            with contextlib.suppress(StoreUnavailable):  # `look` tries again, at this server or another one
                while (await anyio.to_thread.run_sync(self._store.drop_deleted))[1] and time.monotonic() < deadline:
                    await asyncio.sleep(DELETED_POLL_SECONDS)

    async def _close_deleted(self, name: str) -> None:
        """Closes a tenant that is being deleted. The caller holds its lock."""
        if name not in self._open:
            return
        services = self._open[name].services
        services.delivery.wakeups.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while services.under_way and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
        closed = self._open.pop(name)
        await closed.stack.aclose()
        if self.on_postgresql:
            gone = self.folder(closed.tenant.schema)
            await anyio.to_thread.run_sync(partial(shutil.rmtree, gone, ignore_errors=True))

    def _remove_snapshots(self) -> None:
        """Removes the snapshots of tenants that were deleted while this server was stopped or had them closed.
        PostgreSQL only. Raises `StoreUnavailable`."""
        there = list(self.folder("").glob(f"*/{SNAPSHOT}"))
        kept = {each.schema for each in self._store.tenants()}  # later: a tenant has its row before its folder
        for each in there:
            if each.parent.name not in kept:
                shutil.rmtree(each, ignore_errors=True)
                with contextlib.suppress(OSError):  # a SQLite database of a tenant, from before PostgreSQL, stays
                    each.parent.rmdir()

    def _aside(self, tenant: Tenant) -> Path:
        return self.folder(tenant.aside)

    def _set_aside(self, tenant: Tenant) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.folder(tenant.name).rename(self._aside(tenant))

    def _put_back(self, tenant: Tenant) -> None:
        """Gives a tenant whose deletion was not committed its folder again."""
        if self._aside(tenant).exists() and not self.folder(tenant.name).exists():
            self._aside(tenant).rename(self.folder(tenant.name))

    def put_back(self) -> None:
        """Gives all tenants their files again whose deletion a killed process did not commit. SQLite only. Raises
        `StoreUnavailable`, OSError."""
        for each in self._store.tenants():
            self._put_back(each)

    def _remove_deleted(self) -> None:
        """Removes the files of deleted tenants that a killed process left."""
        there = list(self.folder("").glob(f"*{DELETED}*"))
        kept = {self._aside(each) for each in self._store.tenants()}  # later: these were not deleted
        for each in there:
            if each not in kept:
                shutil.rmtree(each, ignore_errors=True)

    async def _begin(self, name: str) -> None:
        tenant = await anyio.to_thread.run_sync(self._store.wake, name)
        stack = AsyncExitStack()
        try:
            await anyio.to_thread.run_sync(self._put_back, tenant)
            services = await stack.enter_async_context(
                running_services(self._settings_of(tenant), self._roles_of, first=self.default.broker)
            )
        except OSError as error:  # the disk is full, or this process has too many open files
            raise StoreUnavailable(f"the files of this tenant cannot be opened now: {error.strerror}") from error
        _log.info("opened tenant %s; %d are open", name, len(self) + 1)
        try:
            async with self.shared.opening(name, services.broker):
                self._open[name] = _Open(services, stack, tenant)
        except BaseException:
            await stack.aclose()
            raise

    def _settings_of(self, tenant: Tenant) -> Settings:
        """Returns the settings of the services of a tenant."""
        folder = self.folder(tenant.schema if self.on_postgresql else tenant.name)
        own: dict[str, Any] = {"data": folder, "database": None, "snapshot": None}
        if self.on_postgresql:
            folder.mkdir(parents=True, exist_ok=True)
            url = in_schema(normalised(self._settings.database_url), tenant.schema)
            own["database"] = url.render_as_string(hide_password=False)
            own["shards"] = None
            own["reader_connections"] = -(-self._settings.reader_connections // 2)
        return self._settings.model_copy(update=own)

    async def _make_room(self, name: str, *, until_due: bool) -> None:
        """Makes room for a tenant: closes the least recently used idle one, if more than `max_open_tenants` would be
        open or being opened. With `until_due`, this may be one whose next attempt is not soon. Raises `BrokerBusy` if
        none can be closed."""
        if len(self) + len((self._beginning | {name}) - self._open.keys()) <= self._max_open:
            return
        for other, each in sorted(self._open.items(), key=lambda item: item[1].services.used_at):
            if await self._close_if_quiet(other, each.services, until_due=until_due):
                return
        raise BrokerBusy("too many tenants are in use at the same time: try again in a moment")

    async def look(self) -> None:
        """Closes idle tenants without due work and, on PostgreSQL, those that another server deleted."""
        before = time.monotonic() - self._settings.tenant_idle_seconds
        for name, each in list(self._open.items()):
            if each.services.used_at < before:
                await self._close_if_quiet(name, each.services)
        if not self.on_postgresql:
            return
        opened = {name: each.tenant for name, each in self._open.items()}
        if opened:
            existing = await anyio.to_thread.run_sync(self._store.existing, list(opened.values()))
            for name, tenant in opened.items():
                if tenant.schema not in existing:
                    async with self._locks[name]:
                        if name in self._open and self._open[name].tenant.schema == tenant.schema:
                            await self._close_deleted(name)
        changes = await anyio.to_thread.run_sync(self._store.changes)
        if changes != self._cleaned:
            await anyio.to_thread.run_sync(self._remove_snapshots)
            dropped, left = await anyio.to_thread.run_sync(self._store.drop_deleted)
            if dropped:
                _log.info("deleted the data of deleted tenants: %s", ", ".join(dropped))
            if not left:
                self._cleaned = changes

    async def _close_if_quiet(self, name: str, services: TenantServices, *, until_due: bool = False) -> bool:
        """Closes a tenant that nobody uses and that has no due work or, with `until_due`, none soon. `wake` opens it in
        time. Returns whether it was closed."""
        if services.under_way or services.broker.waiting or services.jobs.running:
            return False
        async with self._locks[name]:
            due_at = await _next_due(services)
            waits = due_at is not None and until_due and due_at > CLOCK.now() + SOON_SECONDS
            if name not in self._open or not (due_at is None or waits) or services.under_way:
                return False
            closed = self._open.pop(name)
            await closed.stack.aclose()
            if due_at is None:
                await anyio.to_thread.run_sync(self._store.rest, closed.tenant)
            else:
                self._closed_until[name] = due_at
            return True

    async def wake(self) -> bool:
        """Opens the tenants that had due work when their last server ended, and those whose next attempt is due.
        Returns False if some must wait because too many are open, or because the database or their files cannot be used
        now."""
        are_open, now = True, time.monotonic()
        self._unreadable = {name: again for name, again in self._unreadable.items() if again > now}
        due = {name for name, at in self._closed_until.items() if at <= CLOCK.now()}
        self._closed_until = {
            name: at for name, at in self._closed_until.items() if name not in due and not self.is_open(name)
        }
        awake = await anyio.to_thread.run_sync(self._store.awake)
        closed = self._closed_until.keys() | self._unreadable.keys()
        waiting = [each for each in awake if not self.is_open(each.name) and each.name not in closed]
        if self.on_postgresql and waiting:
            served = await anyio.to_thread.run_sync(self._store.served, waiting)
            waiting = [each for each in waiting if each.name not in served]
        for each in sorted(waiting, key=lambda each: each.name not in due):
            try:
                if self.on_postgresql and each.name not in due:
                    # Perhaps another server closed it until it is due: no other one is closed for it in turn.
                    await self._make_room(each.name, until_due=False)
                await self._find(each.name)
            except BrokerBusy:
                return False
            except StoreUnavailable:
                are_open = False
            except Exception:  # `_opened` has logged it; the others must be opened
                self._unreadable[each.name] = time.monotonic() + UNREADABLE_SECONDS
        return are_open

    async def run(self) -> None:
        """Closes idle tenants and opens waiting ones, until it is cancelled."""
        with contextlib.suppress(StoreUnavailable):  # the next start removes them
            await anyio.to_thread.run_sync(self._remove_deleted)
        pause = min(SHARED_LOOK_SECONDS if self.on_postgresql else LOOK_SECONDS, self._settings.tenant_idle_seconds)
        is_compared, are_awake = not self.on_postgresql, False
        while True:
            try:
                is_compared = is_compared or await self._compare_with_connections()
                is_done = are_awake and not self.on_postgresql and not self._closed_until
                are_awake = is_done or await self.wake()
                await self.look()
                await self.shared.look()
            except ServerError as error:
                _log.error("idle and waiting tenants cannot be checked now; trying again: %s", error)
            except Exception:
                _log.exception("idle tenants could not be closed, or waiting tenants could not be opened")
            await asyncio.sleep(pause)

    async def _compare_with_connections(self) -> bool:
        """Lowers the default number of open tenants to what PostgreSQL has connections for. Logs a warning if the
        running servers may need more connections than it has. Returns False if PostgreSQL cannot be asked now."""
        try:
            allowed = await self.default.broker.read(max_connections)
            servers = max(1, len(await self.default.broker.read(members)))
        except (ServerError, DBAPIError):
            return False
        if "max_open_tenants" not in self._settings.model_fields_set:
            self._max_open = min(self._max_open, max(LEAST_OPEN, allowed // CONNECTIONS_PER_TENANT))
        if (needed := servers * self._max_open * CONNECTIONS_OF_OPEN_TENANT) > allowed:
            _log.warning(
                "%d servers with %d open tenants each need %s connections, but PostgreSQL has %d (max_connections): "
                "lower max_open_tenants or raise max_connections",
                *(servers, self._max_open, f"{needed:,}", allowed),
            )
        return True

    async def stop(self) -> None:
        """Closes all tenants, also those that are being opened."""
        if self._opening:
            await asyncio.wait(self._opening.values())
        left = list(self._open.values())
        self._open.clear()

        async def close_the_next() -> None:
            while left:
                await self._close_open(left.pop())

        done = await asyncio.gather(*(close_the_next() for _ in range(CLOSED_TOGETHER)), return_exceptions=True)
        for each in done:
            if each is not None:
                raise each

    async def _close_open(self, closed: _Open) -> None:
        """Closes a tenant when the server stops. It is opened again by the next server if it has due work."""
        due_at = await _next_due(closed.services)
        await closed.stack.aclose()
        if due_at is None:
            with contextlib.suppress(ServerError):
                await anyio.to_thread.run_sync(self._store.rest, closed.tenant)

    def _close_streams(self) -> None:
        """Called when the process must stop."""
        for each in list(self._open.values()):
            each.services.delivery.wakeups.close()


async def _next_due(services: TenantServices) -> float | None:
    """Returns when due work of a tenant is to be tried next: 0.0 if this may be now, or if the tenant cannot be read,
    which must not keep other tenants from being closed or opened; None if there is none."""
    try:
        return await services.broker.read(_due_at)
    except ServerError:
        return 0.0


def _due_at(connection: Connection) -> float | None:
    """Returns when a webhook has messages to deliver, or an operator candidates to decide: 0.0 for a webhook that may
    have some soon; None if nothing waits."""
    decided = pending.next_due(connection, after=0.0)
    if not awaiting_webhooks(connection):
        return decided
    soon = CLOCK.now() + SOON_SECONDS
    tried = next_attempt(connection, after=soon)
    if tried is None or awaiting_webhooks(connection, due_at=soon):
        return 0.0
    return tried if decided is None else min(tried, decided)


@asynccontextmanager
async def running_tenants(
    settings: Settings,
    store: SystemStore,
    roles_of: RolesOf = EVERYBODY,
    known: Callable[[str], Tenant | None] = lambda _: None,
) -> AsyncIterator[Tenants]:
    """A context manager that runs the tenant `default`, and the others when they are used. `known` returns the row of a
    tenant, as requests know it."""
    async with running_services(settings, roles_of) as default:
        tenants = Tenants(settings, store, default, roles_of, known)
        if not tenants.on_postgresql:
            await anyio.to_thread.run_sync(tenants.put_back)
        running = asyncio.create_task(tenants.run(), name="tenants")
        try:
            yield tenants
        finally:
            running.cancel()
            await asyncio.wait([running])
            await tenants.stop()


# ── shared ontologies: the tenant `default` holds them, and every other tenant follows it ─────────────────────────────
#
#     PUT ?shared=true ──▶ default: checked at all tenants ──commit──▶ each open tenant: what it lacks, in one step
#                                                               └────▶ a closed tenant: the same, when it is next opened
#
# Each tenant has copies of the documents in its own database, under the same version numbers. A tenant compares them
# with those of `default`, so a server that was killed in between continues where it stopped. Only one change is made at
# a time. Meanwhile no open tenant changes its own vocabulary, and no other tenant becomes usable.

COUNTED = ("tenants", "subscriptions", "changed", "gain", "lose", "flagged", "unread")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The state of one tenant on which a change depends."""

    ontologies: Sequence[Ontology]
    declarations: Declarations
    rows: list[Row[Any]]
    """The rows of its subscriptions."""
    has_own: bool
    """Whether the tenant has its own ontology with this name."""
    candidates: int
    """The number of candidates that wait for a decision under the ontology."""


class SharedOntologies:
    """The operations on the other tenants that changes of shared ontologies need. One per server, on its event loop."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._lock = asyncio.Lock()
        """Held while a shared ontology is changed, and while a newly opened tenant follows."""
        self._behind: set[str] = set()
        """Open tenants that could not follow yet."""
        self._followed: list[tuple[Any, ...]] | None = None
        """On PostgreSQL: what was shared when the open tenants last followed, perhaps changed by another server."""

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """A context manager: meanwhile no open tenant closes or changes its vocabulary, and no other tenant becomes
        usable."""
        alone = self._tenants.default.broker.sharing(alone=True)
        async with self._lock, alone, AsyncExitStack() as stack:
            held = self._tenants.others()
            for _, services in held:
                services.under_way += 1
                stack.callback(_leave, services)
            for _, services in held:
                await stack.enter_async_context(services.broker.vocabulary_commands.changing(follows=True))
            yield

    async def agree(self, change: SharedChange) -> dict[str, int]:
        """Returns the effect of a change on the subscriptions of the other tenants, as counts. Nothing is changed.

        Raises `SharingRefused`, `OntologyInUse`.
        """
        counted: Counter[str] = Counter()
        with_tables = await self._tenants.with_tables() if self._tenants.on_postgresql else set()
        for each in await self._tenants.created():
            counted.update(await self._look(each, change, with_tables))
            counted["tenants"] += 1
        if counted["own"]:
            raise SharingRefused(
                f"tenants ({counted['own']}) already have an ontology {change.name!r}: choose another name",
                counted["own"],
            )
        if counted["refused"]:
            raise SharingRefused(
                f"tenants ({counted['refused']}) have declarations that do not fit {change.name!r}", counted["refused"]
            )
        if needed := counted["needed"]:
            detail = f"{needed} subscriptions or waiting candidates of other tenants depend on {change.name!r}"
            raise OntologyInUse(change.name, needed, [], detail)
        return {name: counted[name] for name in COUNTED}

    async def follow(self) -> int:
        """Makes every open tenant follow `default`. Call this inside `holding`. Returns how many could not follow; they
        are tried again."""
        for name, services in self._tenants.others():
            await self._bring(name, services.broker)
        return len(self._behind)

    @asynccontextmanager
    async def opening(self, name: str, broker: Broker) -> AsyncIterator[None]:
        """A context manager that makes a newly opened tenant follow `default` before the block makes it usable. Raises
        `StoreUnavailable` if that is not possible."""
        async with self._lock, broker.sharing(alone=False):
            async with broker.vocabulary_commands.changing(follows=True):
                await self._bring(name, broker, must=True)
            yield

    async def look(self) -> None:
        """Tries the tenants that could not follow again and, on PostgreSQL, makes all open ones follow what another
        server has changed."""
        waiting, now = set(self._behind), self._followed
        if self._tenants.on_postgresql:
            rows = await self._tenants.default.broker.read(ontologies.shared_versions)
            if (now := [tuple(each) for each in rows]) != self._followed:
                waiting.update(name for name, _ in self._tenants.others())
        for name, services in self._tenants.others():
            if name in waiting:
                services.under_way += 1
                try:
                    following = services.broker.vocabulary_commands.changing(follows=True)
                    async with self._lock, services.broker.sharing(alone=False), following:
                        await self._bring(name, services.broker)
                finally:
                    services.under_way -= 1
        self._followed = now

    async def _bring(self, name: str, broker: Broker, *, must: bool = False) -> None:
        self._behind.discard(name)
        try:
            if self._tenants.on_postgresql:
                await self._tenants.default.broker.follow()
            await broker.vocabulary_commands.follow_shared(self._tenants.default.broker)
        except (ServerError, SemanticError) as error:
            _log.error("tenant %s cannot follow the shared ontologies yet: %s", name, error)
            if must and not isinstance(error, OntologyInUse):  # waiting candidates are decided after it is open
                raise StoreUnavailable("this tenant cannot use the shared ontologies yet: try again later") from error
            self._behind.add(name)

    async def _look(self, tenant: Tenant, change: SharedChange, with_tables: Set[str]) -> Counter[str]:
        """Returns the effect of the change in one tenant, which need not be open. `with_tables` are the schemas of
        PostgreSQL."""

        def see(connection: Connection) -> _Seen:
            return _see(connection, change)

        services = dict(self._tenants.others()).get(tenant.name)
        try:
            if services is not None:
                seen = await services.broker.read(see)
            elif self._tenants.on_postgresql:
                if tenant.schema not in with_tables:
                    return Counter()
                seen = await self._tenants.default.broker.read_tenant(tenant.schema, see)
            else:
                path = self._tenants.folder(tenant.name) / MAIN
                if not path.exists():
                    return Counter()
                seen = await anyio.to_thread.run_sync(_read_closed, path, change)
        except (ServerError, DBAPIError) as error:
            _log.warning("tenant %s cannot be read: %s", tenant.name, error)
            return Counter(unread=1)
        return await anyio.to_thread.run_sync(_judge, seen, change)


def _leave(services: TenantServices) -> None:
    services.under_way -= 1


def _read_closed(path: Path, change: SharedChange) -> _Seen:
    with reading(path) as connection:
        return _see(connection, change)


def _see(connection: Connection, change: SharedChange) -> _Seen:
    """Reads the state of a tenant. Raises `StoreUnreadable` if an ontology would have to be read from its document
    again."""
    stored = []
    for row in ontologies.active_records(connection):
        found = decoded(row.records)
        if found is None:
            raise StoreUnreadable(f"the records of {row.name!r} have an older form")
        stored.append(found)
    return _Seen(
        ontologies=stored,
        declarations=active_declarations(connection),
        rows=list(subscriptions.all_trees(connection, live_only=not change.deletes)),
        has_own=change.name in ontologies.own_names(connection),
        candidates=ontology_is_needed(connection, change.name) if change.deletes else 0,
    )


def _judge(seen: _Seen, change: SharedChange) -> Counter[str]:
    """Returns the counts of one tenant. May run in any thread."""
    if seen.has_own:
        return Counter(own=1)
    declared = seen.declarations.arguments()
    with short_turns():
        before = Vocabulary.shared(seen.ontologies, **declared)
        try:
            after = Vocabulary.shared(change.applied(seen.ontologies), **declared)
        except SemanticError:
            return Counter(refused=1)
        impact = Impact(before, after)
        impact.add((row.id, row.tree) for row in seen.rows if row.status != "expired")
        counted = Counter(subscriptions=impact.live, changed=len(impact.changed))
        for id in impact.changed:
            counted.update(_direction(impact, id))
        if change.deletes:
            counted["needed"] = seen.candidates + len(dependents_of(before, after, seen.rows))
    return counted


def _direction(impact: Impact, id: str) -> set[str]:
    """Returns whether a subscription gains or loses matches, or uses something that was removed."""
    changes = [impact.changes[part] for part in impact.parts_of(id)]
    said = set()
    if any(each.counts["gains"] or each.counts["gains_words"] or "back" in each.details for each in changes):
        said.add("gain")
    if any(each.counts["loses"] or each.counts["loses_words"] or "gone" in each.details for each in changes):
        said.add("lose")
    if any("gone" in each.details for each in changes):
        said.add("flagged")
    return said
