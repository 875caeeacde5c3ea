"""Commands that change the vocabulary: ontologies and declarations.

    document ──child process──▶ records ──┐
    stored version ──decode──▶ records ───┴─worker threads─▶ vocabulary ──▶ subscriptions compiled again, impact
                                                                └──▶ broker's thread: swapped in one step

Documents are read concurrently. Vocabularies are then built and swapped one change at a time, in order of arrival. Each
vocabulary is based on the previous one. Events are published meanwhile. A change that fails does not change the active
vocabulary.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from sqlalchemy import Connection, Row

from kindcast.semantic import InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.changes import Impact, difference_between, impact_report
from kindcast.semantic.ontology import Ontology, Progress, Reason, decode, encode, refuse_empty, silent
from kindcast.semantic.subscriptions import restore_expression
from kindcast.semantic.vocabulary import DeclarationKind, Declarations, overlap
from kindcast.server.broker import garbage_collection
from kindcast.server.broker.documents import DocumentReader, Read, decoded
from kindcast.server.broker.group import SILENT, Group, swap_matcher
from kindcast.server.broker.publishing import first_unmatched_event
from kindcast.server.broker.state import LiveSubscriptions, State
from kindcast.server.broker.subscription_commands import (
    NOT_COMPILABLE,
    as_records,
    is_flagged,
    pause_hidden,
)
from kindcast.server.errors import (
    BrokerBusy,
    NothingBefore,
    OntologyInUse,
    OntologyShared,
    SharingRefused,
    UnknownDeclaration,
    UnknownOntology,
    VersionChanged,
)
from kindcast.server.security.permissions import RolesOf
from kindcast.server.store import declarations, ontologies, servers, subscriptions
from kindcast.server.store.declarations import StoredDeclaration
from kindcast.server.store.pending import ontology_is_needed
from kindcast.server.worker_threads import long_turns, run_to_the_end, short_turns

__all__ = [
    "DeclarationCommands",
    "SharedChange",
    "Sharing",
    "Upload",
    "Versions",
    "VocabularyCommands",
    "active_declarations",
    "dependents_of",
    "fill",
    "keep_notes",
    "unpacked",
]


# Commands that change the vocabulary. Every live subscription is compiled again, and everything is swapped in one step.
#
#     worker thread    trees in the store ──compile──▶ a matcher under the new vocabulary, while events go on
#     broker's thread  changes made meanwhile ──▶ that matcher ──▶ swapped with the "active" row
#
# The stored trees are compiled, as after a restart. They contain IRIs and no labels. So a subscription means the same
# at a server that was restarted and at one that was not. An event is matched either before the step or after it.
#
# A subscription that loses its meaning, or a part of it, is kept. Its notes say what is missing, and it is flagged
# until the missing part is back.

COMPILED_AT_ONCE = 10_000
"""The number of subscriptions that are compiled at one time if matching is sharded. They take some MB."""
PATIENCE_SECONDS = 10.0
PATIENCE_FACTOR = 3.0
"""A server that has prepared a vocabulary waits for the others: so many seconds, and the time that it took itself so
many times."""
OVERTAKEN = "another server has just activated another vocabulary: try again"
LISTED = 20
"""The maximum number of subscription ids in an error or an answer. The count in it is complete."""


@dataclass(frozen=True, slots=True)
class ChangedNotes:
    """A subscription whose notes have changed."""

    number: int
    id: str
    notes: list[dict[str, str]]
    flagged: bool
    was_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The subscriptions compiled under another vocabulary, before the swap. `matcher` is empty if matching is sharded.
    `compiled` is the number of compiled subscriptions. `declarations` are a part of the new vocabulary. `seen` has the
    status of each subscription when it was read, and `newest` is the greatest of their numbers. `noted` are the
    subscriptions whose notes changed. `impact` is the effect of the change on all subscriptions. `dependents` are the
    ids of the subscriptions that name a removed concept, if they were requested."""

    matcher: Matcher
    compiled: int
    declarations: Declarations
    seen: dict[str, str]
    newest: int
    noted: list[ChangedNotes]
    impact: Impact
    dependents: list[str]
    before: Vocabulary
    """The vocabulary that was active when the change was prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled:
    """The effect of a change on the subscriptions. `subscriptions` is the number of subscriptions that match under the
    new vocabulary. `noted` are those whose notes changed. `late` has the id and the tree of each subscription that was
    created while the change was prepared."""

    version: int
    subscriptions: int
    noted: list[ChangedNotes]
    late: list[tuple[str, Any]] = field(default_factory=list)


def prepare(
    before: Vocabulary,
    vocabulary: Vocabulary,
    declarations: Declarations,
    new_matcher: Callable[[Vocabulary], Matcher],
    rows: Sequence[Row[Any]],
    *,
    with_dependents: bool = False,
) -> Prepared:
    """Compiles the stored trees in `rows` (of `subscriptions.all_trees`) under `vocabulary`, and compares their meaning
    with their meaning under `before`. May run in any thread."""
    impact = Impact(before, vocabulary)
    with short_turns(), garbage_collection.paused():
        matcher = new_matcher(vocabulary)
        noted = list(fill(matcher, rows))
        vocabulary.index_labels()  # now, so that the first subscriber with a typing error need not wait for it
        impact.add((row.id, row.tree) for row in rows)
    return Prepared(
        matcher=matcher,
        compiled=len(matcher),
        declarations=declarations,
        seen={row.id: row.status for row in rows},
        newest=max((row.number for row in rows), default=0),
        noted=noted,
        impact=impact,
        before=before,
        dependents=dependents_of(before, vocabulary, rows) if with_dependents else [],
    )


def prepare_in_parts(
    connection: Connection,
    before: Vocabulary,
    vocabulary: Vocabulary,
    declarations: Declarations,
    new_matcher: Callable[[Vocabulary], Matcher],
    *,
    live_only: bool = True,
) -> Prepared:
    """`prepare` for sharded matching. The subscriptions are compiled in parts of `COMPILED_AT_ONCE`, and none is kept
    in memory. May run in any thread."""
    impact, compiled, newest = Impact(before, vocabulary), 0, 0
    seen: dict[str, str] = {}
    noted: list[ChangedNotes] = []
    dependents: list[str] = []
    with short_turns(), subscriptions.all_trees(connection, live_only=live_only) as rows:
        vocabulary.index_labels()
        for part in rows.partitions(COMPILED_AT_ONCE):
            matcher = new_matcher(vocabulary)
            noted.extend(fill(matcher, part))
            compiled += len(matcher)
            impact.add((row.id, row.tree) for row in part)
            seen.update((row.id, row.status) for row in part)
            newest = part[-1].number  # they come in the order of their numbers
            dependents += [] if live_only else dependents_of(before, vocabulary, part)
    return Prepared(
        matcher=new_matcher(vocabulary),
        compiled=compiled,
        declarations=declarations,
        seen=seen,
        newest=newest,
        noted=noted,
        impact=impact,
        before=before,
        dependents=dependents,
    )


def swap(group: Group, version: int, prepared: Prepared, mark_active: Callable[[Connection], None]) -> Recompiled:
    """Activates the vocabulary of `prepared`, together with the row that says so (`mark_active` writes it). Raises
    `BrokerBusy` if another server has activated another vocabulary meanwhile."""
    if prepared.before is not group.state.vocabulary:
        raise BrokerBusy(OVERTAKEN)
    mark_active(group.connection)
    group.others_read(servers.ACTIVATION)
    return _swapped(group, version, prepared)


def _swapped(group: Group, version: int, prepared: Prepared) -> Recompiled:
    if group.state.shards:
        return _swap_words(group, version, prepared)
    matcher, live_subscriptions = prepared.matcher, group.state.live_subscriptions
    made_again = _made_again(live_subscriptions, prepared)
    seen = {id: status for id, status in prepared.seen.items() if id not in made_again} if made_again else prepared.seen
    for id in made_again:
        if id in matcher:
            matcher.remove(id)
    for operator in group.state.operators.known.values():  # some may have been registered meanwhile
        matcher.declare(operator)
    for id in seen:
        if (
            id in matcher
            and id not in live_subscriptions.matcher
            and (id not in live_subscriptions.aside or live_subscriptions.aside[id].status in SILENT)
        ):
            matcher.remove(id)  # deleted, paused or expired while it was compiled
    late = [live_subscriptions.number(id) for id in live_subscriptions.matcher if seen.get(id, "expired") in SILENT]
    late += [
        each.number
        for each in live_subscriptions.aside.values()
        if each.status != "expired" and (each.id not in seen or (seen[each.id] in SILENT and each.status not in SILENT))
    ]
    rows = list(subscriptions.trees(group.connection, live_only=True, numbers=late)) if late else []
    noted = [each for each in (*prepared.noted, *fill(matcher, rows)) if each.id in live_subscriptions]
    keep_notes(group.connection, noted)
    swap_matcher(group, matcher, prepared.declarations)
    new = [(row.id, row.tree) for row in rows if row.id not in seen]
    return Recompiled(version=version, subscriptions=len(matcher), noted=noted, late=new)


def _made_again(live_subscriptions: LiveSubscriptions, prepared: Prepared) -> set[str]:
    """Returns the ids in `prepared` that belong to other subscriptions now: an import keeps the ids of deleted ones."""
    return prepared.seen.keys() & live_subscriptions.newer(prepared.newest)


def _renewed(group: Group, prepared: Prepared) -> None:
    """Replaces the matcher by that of `prepared`, under the same vocabulary. Raises `BrokerBusy` if another server has
    activated another one meanwhile."""
    if prepared.before is not group.state.vocabulary:
        raise BrokerBusy(OVERTAKEN)
    _swapped(group, 0, prepared)


def _swap_words(group: Group, version: int, prepared: Prepared) -> Recompiled:
    """`swap` for sharded matching. The notes of the subscriptions change here. Each shard compiles its own
    subscriptions again when it reaches the first event under the new vocabulary."""
    there = {row.number: row for row in subscriptions.renewable(group.connection)}
    late = [
        row.number
        for row in there.values()
        if row.status != "expired" and (row.id not in prepared.seen or row.number > prepared.newest)
    ]
    rows = list(subscriptions.trees(group.connection, live_only=True, numbers=late)) if late else []
    matcher = group.state.empty_matcher(prepared.matcher.vocabulary)
    noted = [each for each in (*prepared.noted, *fill(matcher, rows)) if each.number in there]
    keep_notes(group.connection, noted)
    swap_matcher(group, group.state.empty_matcher(prepared.matcher.vocabulary), prepared.declarations)
    new = [(row.id, row.tree) for row in rows]
    return Recompiled(version=version, subscriptions=prepared.compiled + len(matcher), noted=noted, late=new)


def remove_ontology(group: Group, name: str, prepared: Prepared) -> Recompiled:
    """Deletes every version of an ontology. `prepared` has the vocabulary without it.

    Raises `OntologyInUse` while a subscription names a concept that only this ontology has, and `UnknownOntology`.
    """
    live_subscriptions = group.state.live_subscriptions
    made_again = _made_again(live_subscriptions, prepared)
    late = [live_subscriptions.number(id) for id in live_subscriptions if id not in prepared.seen or id in made_again]
    rows = list(subscriptions.trees(group.connection, live_only=False, numbers=late)) if late else []
    came = dependents_of(group.state.vocabulary, prepared.matcher.vocabulary, rows)
    lost = [id for id in (*prepared.dependents, *came) if id in live_subscriptions]
    check_unused(group.connection, name, lost, unmatched=first_unmatched_event(group))
    return swap(group, 0, prepared, lambda connection: ontologies.delete_ontology(connection, name))


def check_unused(connection: Connection, name: str, dependents: Sequence[str], *, unmatched: int | None = None) -> None:
    """Raises `UnknownOntology` if there is no ontology `name`. Raises `OntologyInUse` if it is still needed: by the
    subscriptions `dependents`, by parked candidates, or by events from the sequence `unmatched` on."""
    if not ontologies.list_versions(connection, name):
        raise UnknownOntology(f"there is no ontology {name!r}")
    waiting = ontology_is_needed(connection, name, unmatched=unmatched)
    if waiting:
        of = "operators or shards" if unmatched is not None else "an operator"
        detail = f"{waiting} candidates of accepted events wait for {of} and still need {name!r}: try again later"
        raise OntologyInUse(name, waiting, [], detail)
    if dependents:
        raise OntologyInUse(name, len(dependents), list(dependents[:LISTED]))


def fill(matcher: Matcher, rows: Iterable[Row[Any]]) -> Iterator[ChangedNotes]:
    """Restores the tree of each row into `matcher`. The trees of paused and expired subscriptions are only compiled for
    their notes. Yields the subscriptions whose notes differ from those in the row. A tree without a meaning under the
    vocabulary, for example because its unit no longer fits, is left out. So it matches nothing, and its note says
    so."""
    numbers: dict[str, int] = {}
    told: dict[str, tuple[list[dict[str, str]], bool]] = {}  # the notes in the rows, if there are any
    silent: list[ChangedNotes] = []

    def matching() -> Iterator[tuple[str, Any]]:
        for row in rows:
            if row.status in SILENT:
                silent.extend(_noted_alone(matcher, row))
                continue
            numbers[row.id] = row.number
            if row.notes or row.flagged:
                told[row.id] = row.notes, row.flagged
            yield row.id, row.tree

    restored = matcher.restore_many(matching())
    yield from silent
    for id in {**told, **restored.notes, **restored.refused}:
        if id in restored.refused:
            notes = [{"code": NOT_COMPILABLE, "attribute": "", "detail": str(restored.refused[id])}]
        else:
            notes = as_records(restored.notes.get(id, ()))
        flagged = is_flagged(notes)
        before, was_flagged = told.get(id, ([], False))
        if notes != before or flagged != was_flagged:
            yield ChangedNotes(numbers[id], id, notes, flagged, was_flagged)


def _noted_alone(matcher: Matcher, row: Row[Any]) -> Iterator[ChangedNotes]:
    """`fill` for one subscription that must not match."""
    try:
        notes = as_records(restore_expression(row.tree, matcher.vocabulary, matcher.operators).notes)
    except InvalidSubscription as error:
        notes = [{"code": NOT_COMPILABLE, "attribute": "", "detail": str(error)}]
    flagged = is_flagged(notes)
    if notes != row.notes or flagged != row.flagged:
        yield ChangedNotes(row.number, row.id, notes, flagged, row.flagged)


def keep_notes(connection: Connection, noted: Iterable[ChangedNotes]) -> None:
    """Stores the notes."""
    subscriptions.change_notes(connection, [(each.number, each.notes, each.flagged) for each in noted])


def dependents_of(before: Vocabulary, after: Vocabulary, rows: Iterable[Row[Any]]) -> list[str]:
    """Returns the ids of the subscriptions in `rows`, also paused and expired ones, that name a concept or a relation
    that `before` has and `after` does not have."""
    known: dict[str, bool] = {}

    def lost(iri: str) -> bool:
        if iri not in known:
            concept = before.concept(iri) is not None and after.concept(iri) is None
            known[iri] = concept or (iri in before.relations and iri not in after.relations)
        return known[iri]

    return [row.id for row in rows if any(map(lost, _iris(row.tree)))]


def _iris(tree: Any) -> Iterator[str]:
    """Yields every IRI in a stored tree: the values of `{"iri": …}` at any depth, and the relations."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("iri"), str):
                yield node["iri"]
            if isinstance(node.get("relation"), list):
                yield node["relation"][1]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


# ── ontologies ────────────────────────────────────────────────────────────────────────────────────────────────────────

_log = logging.getLogger("kindcast.broker")

LOGGED = 5
"""The maximum number of ids of flagged subscriptions in one line of the server's log."""

T = TypeVar("T")


class BrokerAccess(Protocol):
    """The part of the broker's interface that a change of the vocabulary uses."""

    roles_of: RolesOf

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def submit(self, work: Callable[[Group], T]) -> T: ...

    def before_others(self) -> AbstractAsyncContextManager[None]: ...
    def sharing(self, *, alone: bool) -> AbstractAsyncContextManager[None]: ...

    async def announce(self, version: str, pack: Callable[[], bytes]) -> str | None: ...

    async def wait_for_others(self, token: str, seconds: float) -> None: ...

    @property
    def state(self) -> State: ...


Versions = Collection[str] | None
"""The numbers of the versions of which a change must find one active; `*` for any version, "" for no version. None
disables the check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An uploaded document, and how to read it."""

    name: str
    document: bytes
    format: str | None = None
    reason: Reason = "none"
    relations: tuple[str, ...] = ()
    replaces: Versions = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedChange:
    """A change of an ontology that all tenants share."""

    name: str
    ontology: Ontology | None = None
    """The ontology that is active afterwards; None if none is."""
    deletes: bool = False

    def applied(self, before: Iterable[Ontology]) -> list[Ontology]:
        """Returns the ontologies that are active after the change."""
        if self.ontology is None and not self.deletes:
            return list(before)
        kept = [each for each in before if each.name != self.name]
        return kept if self.ontology is None else [*kept, self.ontology]


class Sharing(Protocol):
    """The operations on the other tenants that a change of a shared ontology uses."""

    def holding(self) -> AbstractAsyncContextManager[None]: ...

    async def agree(self, change: SharedChange) -> dict[str, int]: ...

    async def follow(self) -> int: ...


class VocabularyCommands:
    """One per broker; its coroutines run on the broker's event loop."""

    def __init__(self, broker: BrokerAccess, documents: DocumentReader) -> None:
        self.broker = broker
        self._one_at_a_time = asyncio.Lock()
        """Held while a vocabulary is built and until it is swapped. The lock is fair: first come, first served."""
        self.trials = asyncio.Lock()
        """Held by a dry run: each computes as long as a change, and many at a time would stop all others."""
        self._base: Vocabulary | None = None
        """The vocabulary that was active when the current change began; None outside a change."""
        self._documents = documents

    @property
    def vocabulary(self) -> Vocabulary:
        return self.broker.state.vocabulary

    @asynccontextmanager
    async def changing(self, sharing: Sharing | None = None, *, follows: bool = False) -> AsyncIterator[None]:
        """A context manager around a change, from building a vocabulary to activating it. Only one change is in
        progress at a time: at all servers of a database and, with `sharing`, in all tenants. `follows`: this change
        follows one of a shared ontology."""
        unshared = nullcontext() if follows else self.broker.sharing(alone=False)
        others = nullcontext() if sharing is None else sharing.holding()
        async with unshared, self._one_at_a_time, self.broker.before_others(), others:
            self._base = self.vocabulary
            try:
                yield
                if self.vocabulary is not self._base:
                    await self.broker.submit(lambda group: pause_hidden(group, self.broker.roles_of))
            finally:
                self._base = None

    # ── ontologies ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def put_ontology(
        self,
        upload: Upload,
        *,
        activate: bool,
        dry_run: bool = False,
        progress: Progress = silent,
        sharing: Sharing | None = None,
    ) -> tuple[dict[str, Any], bool]:
        """Loads an ontology. Returns the load report with the impact, and whether a new version was made. The same
        bytes, read with the same options, are the same version. `dry_run` only reports what the document would do if it
        were active. `progress` may be called in any thread. With `sharing`, all tenants share the ontology.

        Raises `OntologyError`, `UnsupportedFormat`, `BrokerBusy`, `StoreUnavailable`, `VersionChanged`,
        `OntologyShared`, `SharingRefused`.
        """
        upload = replace(upload, relations=tuple(sorted(set(upload.relations))))
        await self._check_owner(upload.name, sharing)
        await self._check_follows(upload.name, upload.replaces)
        sha256 = await asyncio.to_thread(lambda: hashlib.sha256(upload.document).hexdigest())
        known = await self._known(upload, sha256, activate, dry_run=dry_run, sharing=sharing)
        if known is not None:
            return known, False
        refuse_empty(upload.document)
        read = await self._documents.read(
            upload.document,
            name=upload.name,
            format=upload.format,
            reason=upload.reason,
            relations=upload.relations,
            progress=progress,
        )
        progress("build", 0, None)
        if dry_run:
            async with self.trials:
                return await self._tried(upload, sha256, read, progress, sharing), False
        async with self.changing(sharing):
            await self._check_owner(upload.name, sharing)
            await self._check_follows(upload.name, upload.replaces)
            known = await self._known(upload, sha256, activate, alone=True, sharing=sharing)
            if known is not None:  # the same document was sent twice, and the other request was faster
                return known, False
            return await self._store(upload, sha256, read, activate, progress, sharing), True

    async def _store(
        self, upload: Upload, sha256: str, read: Read, activate: bool, progress: Progress, sharing: Sharing | None
    ) -> dict[str, Any]:
        """Stores what was read as a new version, and activates it if asked to. Returns the load report."""
        whole = await asyncio.to_thread(self._with, read.ontology)
        stored = await asyncio.to_thread(_stored, upload, sha256, read, whole)
        agreed = await _agreed(sharing, upload.name, read.ontology if activate else None)

        def add(group: Group) -> int:
            if sharing is not None:
                ontologies.mark_shared(group.connection, upload.name)
            return ontologies.add_version(group.connection, stored, now=group.now)

        if not activate:
            version = await self.broker.submit(add)
            told = await _followed(sharing, agreed)
            return self._described(stored.report, upload.name, version, False) | told
        progress("compile", 0, None)
        prepared = await self.prepared_everywhere(whole)

        def work(group: Group) -> Recompiled:
            version = add(group)
            return swap(group, version, prepared, partial(_mark, group, upload.name, version))

        done = await self.broker.submit(work)
        told = await _followed(sharing, agreed)
        told |= await self.change_report(prepared, done, f"{upload.name}, version {done.version}")
        return self._described(stored.report, upload.name, done.version, True) | told

    async def activate_ontology(
        self,
        name: str,
        version: int | None,
        *,
        replaces: Versions = None,
        dry_run: bool = False,
        sharing: Sharing | None = None,
    ) -> dict[str, Any]:
        """Activates a stored version; None activates the one before the active version. Returns the effect on the
        subscriptions. `dry_run` only reports it. Raises `UnknownOntology`, `NothingBefore`, `VersionChanged`,
        `OntologyShared`, `SharingRefused`."""
        if dry_run:
            await self._check_owner(name, sharing, there=True)
            await self._check_follows(name, replaces)
            number = await self._number(name, version)
            async with self.trials:
                ontology = await self.stored_ontology(name, number)
                prepared = await self.prepared(await asyncio.to_thread(self._with, ontology))
                agreed = await _agreed(sharing, name, ontology)
                return {"version": number, **agreed, **await self.change_report(prepared)}
        async with self.changing(sharing):
            await self._check_owner(name, sharing, there=True)
            await self._check_follows(name, replaces)
            number = await self._number(name, version)
            return {"version": number, **await self._activate(name, number, sharing)}

    async def delete_ontology(
        self, name: str, *, replaces: Versions = None, dry_run: bool = False, sharing: Sharing | None = None
    ) -> dict[str, Any]:
        """Deletes every version of an ontology. `dry_run` only reports the effect. Raises `UnknownOntology`,
        `OntologyInUse`, `VersionChanged`, `OntologyShared`."""
        if dry_run:
            await self._check_owner(name, sharing, there=True)
            await self._check_follows(name, replaces)
            async with self.trials:
                prepared = await self._without(name)
                await self.broker.read(lambda connection: check_unused(connection, name, prepared.dependents))
                agreed = await _agreed(sharing, name, None, deletes=True)
                return agreed | await self.change_report(prepared)
        async with self.changing(sharing):
            await self._check_owner(name, sharing, there=True)
            await self._check_follows(name, replaces)
            prepared = await self._without(name, everywhere=True)
            agreed = await _agreed(sharing, name, None, deletes=True)
            done = await self.broker.submit(lambda group: remove_ontology(group, name, prepared))
            told = await _followed(sharing, agreed)
            return told | await self.change_report(prepared, done, f"{name} deleted")

    async def follow_shared(self, source: BrokerAccess) -> None:
        """Makes the shared ontologies the same as those of `source`, in one step. Does nothing if they are the same
        already. Call this inside `changing`; `source` must not change meanwhile. Raises `OntologyInUse`,
        `StoreUnavailable`, `InvalidDeclaration`."""
        wanted = await source.read(ontologies.shared_versions)
        there = await self.broker.read(ontologies.shared_versions)
        own = await self.broker.read(ontologies.own_names)
        if clash := sorted({each.name for each in wanted} & own):
            _log.error("this tenant has ontologies of its own with names that are shared: %s", ", ".join(clash))
            wanted = [each for each in wanted if each.name not in own]
        if list(map(_state_of, wanted)) == list(map(_state_of, there)):
            return
        kept = set(map(_identity_of, wanted))
        gone = {each.name for each in there if _identity_of(each) not in kept}
        late = await self._copy_missing(source, wanted, there, gone)

        def match(connection: Connection) -> None:
            for name in gone:
                check_unused(connection, name, ())
                ontologies.delete_ontology(connection, name)
            for whole in late:
                ontologies.copy_version(connection, whole)
            ontologies.match_shared(connection, wanted)

        before = {_identity_of(each) for each in there if each.active}
        changed = {each.name for each in wanted if each.active and _identity_of(each) not in before}
        stay = [each for each in self.vocabulary.ontologies if each.name not in gone | changed]
        come = [each for each in source.state.vocabulary.ontologies if each.name in changed]
        vocabulary = await asyncio.to_thread(self.build, [*stay, *come])
        if vocabulary is self.vocabulary:
            await self.broker.submit(lambda group: match(group.connection))
            return
        prepared = await self.prepared(vocabulary)
        done = await self.broker.submit(lambda group: swap(group, 0, prepared, match))
        await self.change_report(prepared, done, "what all tenants share")

    async def _copy_missing(
        self, source: BrokerAccess, wanted: Sequence[Row[Any]], there: Sequence[Row[Any]], gone: set[str]
    ) -> list[dict[str, Any]]:
        """Copies the versions in `wanted` that are not `there`, one by one, without activating them. Returns the
        versions whose name still belongs to an ontology that is `gone`: they are copied when it is deleted."""
        known, late = set(map(_identity_of, there)), []
        for each in wanted:
            if _identity_of(each) in known and each.name not in gone:
                continue
            whole = await source.read(partial(ontologies.find_whole, name=each.name, version=each.version))
            if each.name in gone:
                late.append(whole)
            else:
                await self.broker.submit(partial(_copy, whole))
        return late

    async def ontology_difference(
        self, name: str, before: int, after: int, limit: int, client: Hashable
    ) -> dict[str, Any]:
        """Returns the difference between two stored versions. Clients take turns, because it takes time and memory.
        Raises `UnknownOntology`."""

        def compare() -> dict[str, Any]:
            found = difference_between(Vocabulary.from_ontologies([old]), Vocabulary.from_ontologies([new]))
            return found.as_json(limit=limit)

        async with long_turns().of(client):
            old, new = [await self.stored_ontology(name, version) for version in (before, after)]
            return await run_to_the_end(compare)

    async def renew(self) -> None:
        """Compiles all subscriptions again under the active vocabulary, and replaces the matcher. Other servers of the
        database are not told. Raises `BrokerBusy`, `StoreUnavailable`."""
        async with self.changing():
            prepared = await self.prepared(self.vocabulary)
            await self.broker.submit(lambda group: _renewed(group, prepared))

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def change_report(self, prepared: Prepared, done: Recompiled | None = None, what: str = "") -> dict[str, Any]:
        """Returns the effect of a change on the subscriptions. If the change is `done`, the effect is logged too."""
        noted = prepared.noted if done is None else done.noted
        late = [] if done is None else done.late

        def report() -> dict[str, Any]:
            prepared.impact.add(late)
            return impact_report(prepared.impact)

        impact = await asyncio.to_thread(report)
        flagged = [each.id for each in noted if each.flagged and not each.was_flagged]
        back = [each.id for each in noted if each.was_flagged and not each.flagged]
        if done is not None:
            garbage_collection.collect_and_freeze(len(prepared.matcher.vocabulary) + done.subscriptions)
            _log.info(
                "%s is in force: %d subscriptions changed their meaning", what, impact["subscriptions"]["changed"]
            )
            if flagged:
                shown = ", ".join(flagged[:LOGGED])
                _log.warning(
                    "%d subscriptions use something that %s removed or declares differently: %s",
                    len(flagged),
                    what,
                    shown,
                )
        return {
            "subscriptions": {
                "recompiled": prepared.compiled if done is None else done.subscriptions,
                "changed": impact["subscriptions"]["changed"],
                "flagged": _counted(flagged),
                "unflagged": _counted(back),
            },
            "impact": impact,
        }

    def build(self, read: Iterable[Ontology], declarations: Declarations | None = None) -> Vocabulary:
        """Builds the vocabulary of these ontologies and declarations. `declarations=None` stands for the active ones.
        May run in any thread."""
        declared = (self.broker.state.declarations if declarations is None else declarations).arguments()
        with short_turns(), garbage_collection.paused():
            return Vocabulary.shared(read, **declared)

    async def prepared(
        self, vocabulary: Vocabulary, declarations: Declarations | None = None, *, live_only: bool = True
    ) -> Prepared:
        """Compiles the subscriptions under another vocabulary, while the active one is still used. Raises `BrokerBusy`
        if the active vocabulary is no longer the one with which the change began."""
        state = self.broker.state
        if self._base is not None and self._base is not state.vocabulary:
            raise BrokerBusy(OVERTAKEN)
        declared = state.declarations if declarations is None else declarations
        if state.shards:
            made = partial(
                prepare_in_parts,
                before=state.vocabulary,
                vocabulary=vocabulary,
                declarations=declared,
                new_matcher=state.empty_matcher,
                live_only=live_only,
            )
            return await self.broker.read(made)
        rows = await self.broker.read(lambda connection: subscriptions.all_trees(connection, live_only=live_only).all())
        return await asyncio.to_thread(
            prepare,
            state.vocabulary,
            vocabulary,
            declared,
            state.empty_matcher,
            rows,
            with_dependents=not live_only,
        )

    async def prepared_everywhere(
        self, vocabulary: Vocabulary, declarations: Declarations | None = None, *, live_only: bool = True
    ) -> Prepared:
        """Like `prepared`, for a change that is about to be made. The other servers of the database are told of the
        vocabulary, and prepare it at the same time. Returns when all live servers have prepared it. A server that is
        much slower than this one is not waited for: it compiles the subscriptions after the change, and its publishers
        wait meanwhile."""
        state, began = self.broker.state, time.monotonic()
        declared = state.declarations if declarations is None else declarations
        pack = partial(_packed, state.vocabulary, vocabulary, declared)
        token = None if state.shards else await self.broker.announce(vocabulary.version, pack)
        prepared = await self.prepared(vocabulary, declarations, live_only=live_only)
        if token is not None:
            took = time.monotonic() - began
            await self.broker.wait_for_others(token, PATIENCE_SECONDS + PATIENCE_FACTOR * took)
        return prepared

    async def _tried(
        self, upload: Upload, sha256: str, read: Read, progress: Progress, sharing: Sharing | None
    ) -> dict[str, Any]:
        """Returns the load report of a document that is not stored, and the effect it would have."""
        whole = await asyncio.to_thread(self._with, read.ontology)
        stored = await asyncio.to_thread(_stored, upload, sha256, read, whole)
        progress("compile", 0, None)
        told = await _agreed(sharing, upload.name, read.ontology)
        told |= await self.change_report(await self.prepared(whole))
        return self._described(stored.report, upload.name, None, False) | {"dry_run": True} | told

    async def _without(self, name: str, *, everywhere: bool = False) -> Prepared:
        others = [each for each in self.vocabulary.ontologies if each.name != name]
        rest = await asyncio.to_thread(self.build, others)
        prepare = self.prepared_everywhere if everywhere else self.prepared
        return await prepare(rest, live_only=False)

    async def _activate(self, name: str, version: int, sharing: Sharing | None) -> dict[str, Any]:
        ontology = await self.stored_ontology(name, version)
        prepared = await self.prepared_everywhere(await asyncio.to_thread(self._with, ontology))
        agreed = await _agreed(sharing, name, ontology)
        done = await self.broker.submit(
            lambda group: swap(group, version, prepared, partial(_mark, group, name, version))
        )
        told = await _followed(sharing, agreed)
        return told | await self.change_report(prepared, done, f"{name}, version {version}")

    async def _check_owner(self, name: str, sharing: Sharing | None, *, there: bool = False) -> None:
        """Checks that a shared ontology is changed only with `sharing`, and a tenant's own ontology only without.
        `there`: the ontology must exist. Raises `OntologyShared`, `SharingRefused`, `UnknownOntology`."""
        shared = name in await self.broker.read(ontologies.shared_names)
        if sharing is None and shared:
            raise OntologyShared(name)
        if sharing is not None and not shared:
            if there:
                raise UnknownOntology(f"there is no shared ontology {name!r}")
            if name in await self.broker.read(ontologies.own_names):
                raise SharingRefused(f"the tenant default has an ontology {name!r} of its own: choose another name", 1)

    async def _check_follows(self, name: str, replaces: Versions) -> None:
        """Raises `VersionChanged` if the active version is none of those that a change must find."""
        if replaces is None:
            return
        rows = await self.broker.read(lambda connection: ontologies.list_versions(connection, name))
        now = str(next((row.version for row in rows if row.active), rows[0].version)) if rows else ""
        if now not in replaces and not ("*" in replaces and now):
            if not now:
                raise VersionChanged(f"there is no ontology {name!r}, so none of the versions in If-Match is in force")
            raise VersionChanged(f"version {now} of {name!r} is in force: read the active version, then send its ETag")

    async def _known(
        self,
        upload: Upload,
        sha256: str,
        activate: bool,
        *,
        alone: bool = False,
        dry_run: bool = False,
        sharing: Sharing | None = None,
    ) -> dict[str, Any] | None:
        """Returns the answer for a document that is stored already, or None if it is not stored. Activates the stored
        version if `activate` is set and this is no `dry_run`."""
        same = await self.broker.read(
            lambda connection: ontologies.find_same(connection, upload.name, sha256, upload.reason, upload.relations)
        )
        if same is None:
            return None
        told: dict[str, Any] = {}
        if dry_run:
            if not same.active:
                told = await self.activate_ontology(upload.name, same.version, dry_run=True, sharing=sharing)
            return self._described(same.report, upload.name, same.version, same.active) | {"dry_run": True} | told
        if activate and not same.active:
            if alone:
                told = await self._activate(upload.name, same.version, sharing)
            else:
                told = await self.activate_ontology(upload.name, same.version, sharing=sharing)
        return self._described(same.report, upload.name, same.version, activate or same.active) | told

    async def _number(self, name: str, version: int | None) -> int:
        if version is not None:
            return version
        found = await self.broker.read(lambda connection: ontologies.find_previous(connection, name))
        if found is None:
            raise NothingBefore(f"no other version of {name!r} was in force before")
        return found

    async def stored_ontology(self, name: str, version: int) -> Ontology:
        """Returns a stored version from its records. If the records are of an older format, its document is read
        again."""
        row = await self.broker.read(lambda connection: ontologies.find_version(connection, name, version))
        if row is None:
            raise UnknownOntology(f"there is no ontology {name!r} with a version {version}")
        found = await asyncio.to_thread(decoded, row.records)
        return found if found is not None else await self._read_again(row)

    async def _read_again(self, row: Row[Any]) -> Ontology:
        document = await self.broker.read(
            lambda connection: ontologies.find_document(connection, row.name, row.version)
        )
        read = await self._documents.read(
            document, name=row.name, format=row.format, reason=row.reason, relations=row.relations
        )
        await self.broker.submit(
            lambda group: ontologies.keep_records(group.connection, row.name, row.version, read.records)
        )
        return read.ontology

    async def with_versions(self, versions: Mapping[str, int]) -> list[Ontology]:
        """Returns the active ontologies. Those named in `versions` are replaced by the versions given there. Raises
        `UnknownOntology`."""
        others = [each for each in self.vocabulary.ontologies if each.name not in versions]
        chosen = [await self.stored_ontology(name, version) for name, version in versions.items()]
        return sorted([*others, *chosen], key=lambda each: each.name)

    def _with(self, ontology: Ontology) -> Vocabulary:
        return self.build([*(each for each in self.vocabulary.ontologies if each.name != ontology.name), ontology])

    def _described(self, report: dict[str, Any], name: str, version: int | None, active: bool) -> dict[str, Any]:
        number = {} if version is None else {"version": version}
        said = {"name": name, **number, "active": active, "vocabulary_version": self.vocabulary.version}
        return said | {key: value for key, value in report.items() if key not in said}


# ── what another server needs to build the same vocabulary ──


class _Difference(msgspec.Struct, frozen=True):
    """How a vocabulary differs from the one before: the encoded ontologies by name, None for those that stay, and all
    declarations as JSON."""

    ontologies: dict[str, bytes | None]
    declarations: bytes


def _packed(before: Vocabulary, after: Vocabulary, declarations: Declarations) -> bytes:
    """Returns in what `after` differs from `before`, for `unpacked`. `declarations` are those of `after`."""
    stays = set(map(id, before.ontologies))
    encoded = {each.name: None if id(each) in stays else encode(each) for each in after.ontologies}
    return msgspec.msgpack.encode(_Difference(encoded, msgspec.json.encode(declarations.to_json())))


def unpacked(before: Vocabulary, content: bytes) -> Vocabulary:
    """Builds the vocabulary that another server has packed. `before` is the active one. May run in any thread."""
    difference = msgspec.msgpack.decode(content, type=_Difference)
    there = {each.name: each for each in before.ontologies}
    declared = Declarations.from_json(msgspec.json.decode(difference.declarations))
    with short_turns(), garbage_collection.paused():
        ontologies = [
            there[name] if records is None else decode(records) for name, records in difference.ontologies.items()
        ]
        return Vocabulary.shared(ontologies, **declared.arguments())


def _mark(group: Group, name: str, version: int, connection: Connection) -> None:
    ontologies.activate(connection, name, version, now=group.now)


async def _agreed(
    sharing: Sharing | None, name: str, ontology: Ontology | None, *, deletes: bool = False
) -> dict[str, Any]:
    """Asks the other tenants whether they agree to a change. Returns their counts under `others`. Raises
    `SharingRefused`, `OntologyInUse`."""
    if sharing is None:
        return {}
    counted = await sharing.agree(SharedChange(name=name, ontology=ontology, deletes=deletes))
    return {"others": counted | {"behind": 0}}


async def _followed(sharing: Sharing | None, agreed: dict[str, Any]) -> dict[str, Any]:
    """Lets the open tenants follow the change. Returns the counts of `_agreed`, with the number of tenants that are
    behind."""
    return {} if sharing is None else {"others": agreed["others"] | {"behind": await sharing.follow()}}


def _copy(whole: dict[str, Any], group: Group) -> None:
    ontologies.copy_version(group.connection, whole)


def _identity_of(row: Row[Any]) -> tuple[Any, ...]:
    """Returns what identifies a version. The name and the number are not enough, because an ontology may be deleted and
    loaded again with other documents."""
    return row.name, row.version, row.sha256, row.created_at


def _state_of(row: Row[Any]) -> tuple[Any, ...]:
    return *_identity_of(row), row.active, row.activated_at


def _stored(upload: Upload, sha256: str, read: Read, whole: Vocabulary) -> ontologies.StoredOntology:
    return ontologies.StoredOntology(
        name=upload.name,
        sha256=sha256,
        format=read.ontology.format,
        document=upload.document,
        report=_report(read.ontology, whole),
        records=read.records,
        reason=upload.reason,
        relations=upload.relations,
    )


def _report(ontology: Ontology, whole: Vocabulary) -> dict[str, Any]:
    """Returns the load report of one document. The concepts that it shares with other ontologies and its unresolved
    imports are computed from the whole vocabulary."""
    report = (whole if len(whole.ontologies) == 1 else Vocabulary.from_ontologies([ontology])).report
    together = whole.report
    unresolved = set(together["unresolved_imports"])
    shared = {each.name: overlap(each, ontology) for each in whole.ontologies if each.name != ontology.name}
    beside = [
        f"{other} declares {count:,} of the same concepts, and stays in force beside {ontology.name}: to make this the "
        f"next version of {other}, delete {ontology.name} and upload the document as {other} (--name {other})"
        for other, count in shared.items()
        if count
    ]
    return report | {
        "warnings": [*beside, *report["warnings"]],
        "format": ontology.format,
        "merged_across": together["merged_across"],
        "unmerged": together["unmerged"],
        "unresolved_imports": [each for each in report["unresolved_imports"] if each in unresolved],
    }


def _counted(ids: Sequence[str]) -> dict[str, Any]:
    return {"count": len(ids), "listed": list(ids[:LISTED])}


# ── declarations ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Commands that change declarations: attributes, synonyms, rates and event types, versioned and swapped like ontologies.
#
#     body ──checked against all others──▶ declarations ──▶ vocabulary ──▶ subscriptions compiled again ──▶ swapped
#
# A version of a declaration has a kind, a name and a body. The same body again is the same version. The checks are
# those of `kindcast.semantic.vocabulary.declarations`: event types in use may only be extended.


class DeclarationCommands:
    """One per broker; its coroutines run on the broker's event loop."""

    def __init__(self, vocabularies: VocabularyCommands) -> None:
        self._vocabularies = vocabularies

    async def put(
        self, kind: DeclarationKind, name: str, body: Any, *, dry_run: bool = False, replace: bool = False
    ) -> tuple[dict[str, Any], bool]:
        """Stores and activates a declaration. Returns its effect on the subscriptions, and whether a new version was
        made. `replace` allows changes of an event type that are no extension. `dry_run` only reports the effect.

        Raises `InvalidDeclaration` with every problem.
        """
        declared = StoredDeclaration(kind=kind, name=name, body=body)
        if dry_run:
            async with self._vocabularies.trials:
                prepared = await self._prepared(kind, name, body, replace, everywhere=False)
                return self._described(kind, name, None) | await self._vocabularies.change_report(prepared), False
        broker = self._vocabularies.broker
        async with self._vocabularies.changing():
            same = await broker.read(lambda connection: declarations.find_same(connection, declared))
            if same is not None and same.active:
                return self._described(kind, name, same.version), False
            prepared = await self._prepared(kind, name, body, replace, everywhere=True)

            def work(group: Group) -> Recompiled:
                version = (
                    same.version
                    if same is not None
                    else declarations.add_version(group.connection, declared, now=group.now)
                )
                mark = partial(declarations.activate, kind=kind, name=name, version=version)
                return swap(group, version, prepared, mark)

            done = await broker.submit(work)
            told = await self._vocabularies.change_report(prepared, done, f"{kind} {name}, version {done.version}")
            return self._described(kind, name, done.version) | told, same is None

    async def delete(self, kind: DeclarationKind, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Deletes every version of a declaration. `dry_run` only reports the effect. Raises `UnknownDeclaration`, and
        `InvalidDeclaration` if another declaration depends on it."""
        broker = self._vocabularies.broker
        if dry_run:
            async with self._vocabularies.trials:
                prepared = await self._left(kind, name, everywhere=False)
                return self._described(kind, name, None) | await self._vocabularies.change_report(prepared)
        async with self._vocabularies.changing():
            prepared = await self._left(kind, name, everywhere=True)
            forget = partial(declarations.delete_declaration, kind=kind, name=name)
            done = await broker.submit(lambda group: swap(group, 0, prepared, forget))
            told = await self._vocabularies.change_report(prepared, done, f"{kind} {name} deleted")
            return self._described(kind, name, None) | told

    async def versions(self, kind: DeclarationKind, name: str) -> list[Row[Any]]:
        """Returns every version of a declaration, newest first. Raises `UnknownDeclaration`."""
        rows = await self._vocabularies.broker.read(
            lambda connection: declarations.list_versions(connection, kind, name)
        )
        if not rows:
            raise UnknownDeclaration(kind, name)
        return list(rows)

    async def _left(self, kind: DeclarationKind, name: str, *, everywhere: bool) -> Prepared:
        """Prepares a change that removes one declaration."""
        await self.versions(kind, name)
        left = await asyncio.to_thread(self._vocabularies.broker.state.declarations.without, kind, name)
        return await self._with(left, everywhere=everywhere)

    async def _prepared(
        self, kind: DeclarationKind, name: str, body: Any, replace: bool, *, everywhere: bool
    ) -> Prepared:
        """Prepares a change that adds or replaces one declaration."""
        in_force = self._vocabularies.broker.state.declarations
        extended = await asyncio.to_thread(in_force.extended, kind, name, body, replace_schema=replace)
        return await self._with(extended, everywhere=everywhere)

    async def _with(self, declared: Declarations, *, everywhere: bool) -> Prepared:
        commands = self._vocabularies
        vocabulary = await asyncio.to_thread(commands.build, commands.vocabulary.ontologies, declared)
        prepare = commands.prepared_everywhere if everywhere else commands.prepared
        return await prepare(vocabulary, declared)

    def _described(self, kind: str, name: str, version: int | None) -> dict[str, Any]:
        said: dict[str, Any] = {"kind": kind, "name": name}
        if version is not None:
            said |= {"version": version, "active": True}
        return said | {"vocabulary_version": self._vocabularies.vocabulary.version}


def active_declarations(connection: Connection) -> Declarations:
    """Returns the active declarations."""
    return Declarations.of((row.kind, row.name, row.body) for row in declarations.active(connection))
