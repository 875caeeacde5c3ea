"""Ontologies that all tenants share: the tenant `default` holds them, and every other tenant follows it.

    PUT ?shared=true ──▶ default: checked at all tenants ──commit──▶ each open tenant: what it lacks, in one step
                                                              └────▶ a closed tenant: the same, when it is next opened

Each tenant has copies of the documents in its own database, under the same version numbers. A tenant compares them with
those of `default`, so a server that was killed in between continues where it stopped. Only one change is made at a
time. Meanwhile no open tenant changes its own vocabulary, and no other tenant becomes usable.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from kindcast.semantic import Vocabulary
from kindcast.semantic.changes import Impact
from kindcast.semantic.errors import SemanticError
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.broker import Broker
from kindcast.server.broker.documents import decoded
from kindcast.server.broker.vocabulary_commands import SharedChange, active_declarations, dependents_of
from kindcast.server.errors import OntologyInUse, ServerError, SharingRefused, StoreUnavailable, StoreUnreadable
from kindcast.server.security.keys import DEFAULT_TENANT
from kindcast.server.store import ontologies, subscriptions
from kindcast.server.store.backup import MAIN, reading
from kindcast.server.store.pending import ontology_is_needed
from kindcast.server.worker_threads import short_turns

if TYPE_CHECKING:
    from kindcast.server.tenants import Tenants, TenantServices

__all__ = ["SharedOntologies"]

COUNTED = ("tenants", "subscriptions", "changed", "gain", "lose", "flagged", "unread")
_log = logging.getLogger("kindcast.tenants")


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

    def __init__(self, tenants: "Tenants") -> None:
        self._tenants = tenants
        self._lock = asyncio.Lock()
        """Held while a shared ontology is changed, and while a newly opened tenant follows."""
        self._behind: set[str] = set()
        """Open tenants that could not follow yet."""

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """A context manager: meanwhile no open tenant closes or changes its vocabulary, and no other tenant becomes
        usable."""
        async with self._lock, AsyncExitStack() as stack:
            held = self._tenants.others()
            for _, services in held:
                services.under_way += 1
                stack.callback(_leave, services)
            for _, services in held:
                await stack.enter_async_context(services.broker.vocabulary_commands.changing())
            yield

    async def agree(self, change: SharedChange) -> dict[str, int]:
        """Returns the effect of a change on the subscriptions of the other tenants, as counts. Nothing is changed.

        Raises `SharingRefused`, `OntologyInUse`.
        """
        counted: Counter[str] = Counter()
        for name in await self._tenants.names():
            if name != DEFAULT_TENANT:
                counted.update(await self._look(name, change))
                counted["tenants"] += 1
        if counted["own"]:
            raise SharingRefused(
                f"tenants that have an ontology {change.name!r} of their own: {counted['own']}. Choose another name",
                counted["own"],
            )
        if counted["refused"]:
            raise SharingRefused(
                f"tenants whose declarations do not fit to {change.name!r}: {counted['refused']}", counted["refused"]
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
        async with self._lock:
            async with broker.vocabulary_commands.changing():
                await self._bring(name, broker, must=True)
            yield

    async def look(self) -> None:
        """Tries the tenants that could not follow again."""
        for name, services in self._tenants.others():
            if name in self._behind:
                services.under_way += 1
                try:
                    async with self._lock, services.broker.vocabulary_commands.changing():
                        await self._bring(name, services.broker)
                finally:
                    services.under_way -= 1

    async def _bring(self, name: str, broker: Broker, *, must: bool = False) -> None:
        self._behind.discard(name)
        try:
            await broker.vocabulary_commands.follow_shared(self._tenants.default.broker)
        except (ServerError, SemanticError) as error:
            _log.error("tenant %s cannot follow the shared ontologies yet: %s", name, error)
            if must and not isinstance(error, OntologyInUse):  # waiting candidates are decided after it is open
                raise StoreUnavailable("this tenant cannot use the shared ontologies yet: try again later") from error
            self._behind.add(name)

    async def _look(self, name: str, change: SharedChange) -> Counter[str]:
        """Returns the effect of the change in one tenant, which need not be open."""

        def see(connection: Connection) -> _Seen:
            return _see(connection, change)

        services = dict(self._tenants.others()).get(name)
        try:
            if services is not None:
                seen = await services.broker.read(see)
            else:
                path = self._tenants.folder(name) / MAIN
                if not path.exists():
                    return Counter()
                seen = await anyio.to_thread.run_sync(_read_closed, path, change)
        except (ServerError, DBAPIError) as error:
            _log.warning("tenant %s cannot be looked into: %s", name, error)
            return Counter(unread=1)
        return await anyio.to_thread.run_sync(_judge, seen, change)


def _leave(services: "TenantServices") -> None:
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
        rows=list(subscriptions.trees(connection, live_only=not change.deletes)),
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
