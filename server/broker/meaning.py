"""Changes of what words mean, from request to swap: ontologies here, declarations in `declaring`.

    document ──child process──▶ records ──┐
    stored version ──decode──▶ records ───┴─worker threads─▶ vocabulary ──▶ subscriptions compiled again, impact
                                                                └──▶ broker's thread: swapped in one step

Reading a document holds nobody up. What follows, building and swapping, is done one change at a time, in the order in
which the changes arrive at it, each upon the one before; publishers go on meanwhile. A change that fails anywhere
leaves the vocabulary in force as it was.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Row

from semantic import Vocabulary
from semantic.declarations import Declarations
from semantic.difference import difference
from semantic.impact_report import impact_report
from semantic.ontology import Ontology, Reason
from semantic.ontology.progress import Progress, silent
from server.broker import heap, vocabularies
from server.broker.documents import DocumentReader, Read
from server.broker.group import Group
from server.broker.records import decoded
from server.broker.state import State
from server.broker.vocabularies import Prepared, Recompiled
from server.errors import NothingBefore, UnknownOntology, VersionChanged
from server.store import ontologies, subscriptions

__all__ = ["Meaning", "Upload"]

_log = logging.getLogger("kindcast.broker")

LOGGED = 5
"""Ids of flagged subscriptions in one line of the log."""

T = TypeVar("T")


class Door(Protocol):
    """The doors of the broker that a change goes through."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def submit(self, work: Callable[[Group], T]) -> T: ...

    @property
    def state(self) -> State: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A document, and how it is to be read."""

    name: str
    document: bytes
    format: str | None = None
    reason: Reason = "none"
    relations: tuple[str, ...] = ()
    replaces: str | None = None
    """The number of the version in force that it is meant to follow, `*` for any, "" where there must be none."""


class Meaning:
    """One a broker; its coroutines run on the broker's event loop."""

    def __init__(self, door: Door, documents: DocumentReader) -> None:
        self.door = door
        self.one_at_a_time = asyncio.Lock()
        """Held from building to swapping. Fair: first come, first served."""
        self._documents = documents

    @property
    def vocabulary(self) -> Vocabulary:
        return self.door.state.vocabulary

    # ── ontologies ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def put_ontology(
        self, upload: Upload, *, activate: bool, progress: Progress = silent
    ) -> tuple[dict[str, Any], bool]:
        """The load report with the impact, and whether this made another version: the same bytes, read in the same way,
        are the same version. `progress` may be called in any thread.

        Raises `OntologyError`, `UnsupportedFormat`, `BrokerBusy`, `StoreUnavailable`, `VersionChanged`.
        """
        upload = replace(upload, relations=tuple(sorted(set(upload.relations))))
        await self._check_follows(upload)
        sha256 = await asyncio.to_thread(lambda: hashlib.sha256(upload.document).hexdigest())
        known = await self._known(upload, sha256, activate)
        if known is not None:
            return known, False
        read = await self._documents.read(
            upload.document,
            name=upload.name,
            format=upload.format,
            reason=upload.reason,
            relations=upload.relations,
            progress=progress,
        )
        progress("build", 0, None)
        async with self.one_at_a_time:
            await self._check_follows(upload)
            known = await self._known(upload, sha256, activate, alone=True)
            if known is not None:  # it came twice, and the other was faster
                return known, False
            whole = await asyncio.to_thread(self._with, read.ontology)
            stored = await asyncio.to_thread(_stored, upload, sha256, read, whole)
            if not activate:
                version = await self.door.submit(
                    lambda group: ontologies.add_version(group.connection, stored, now=group.now)
                )
                return self._described(stored.report, upload.name, version, False), True
            progress("compile", 0, None)
            prepared = await self.prepared(whole)

            def work(group: Group) -> Recompiled:
                version = ontologies.add_version(group.connection, stored, now=group.now)
                return vocabularies.swap(group, version, prepared, partial(_mark, group, upload.name, version))

            done = await self.door.submit(work)
            told = await self.tell(prepared, done, f"{upload.name}, version {done.version}")
            return self._described(stored.report, upload.name, done.version, True) | told, True

    async def activate_ontology(self, name: str, version: int | None, *, dry_run: bool = False) -> dict[str, Any]:
        """Put a stored version in force, None for the one before the active one, and tell what it does to the
        subscriptions; `dry_run` only tells. Raises `UnknownOntology`, `NothingBefore`."""
        if dry_run:
            number = await self._number(name, version)
            prepared = await self.prepared(await self._whole(name, number))
            return {"version": number, **await self.tell(prepared)}
        async with self.one_at_a_time:
            number = await self._number(name, version)
            return {"version": number, **await self._activate(name, number)}

    async def delete_ontology(self, name: str) -> dict[str, Any]:
        """Forget every version of a name. Raises `UnknownOntology`, `OntologyInUse`."""
        async with self.one_at_a_time:
            others = [each for each in self.vocabulary.ontologies if each.name != name]
            rest = await asyncio.to_thread(self.build, others)
            prepared = await self.prepared(rest, live_only=False)
            done = await self.door.submit(lambda group: vocabularies.remove_ontology(group, name, prepared))
            return await self.tell(prepared, done, f"{name} deleted")

    async def ontology_difference(self, name: str, before: int, after: int, limit: int) -> dict[str, Any]:
        """What changed from one stored version to another. Raises `UnknownOntology`."""
        old, new = [await self.stored_ontology(name, version) for version in (before, after)]

        def compare() -> dict[str, Any]:
            found = difference(Vocabulary.from_ontologies([old]), Vocabulary.from_ontologies([new]))
            return found.as_json(limit=limit)

        return await asyncio.to_thread(compare)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def tell(self, prepared: Prepared, done: Recompiled | None = None, what: str = "") -> dict[str, Any]:
        """What a change does, or did, to the subscriptions; logged when it is done."""
        noted = prepared.noted if done is None else done.noted
        late = [] if done is None else done.late

        def report() -> dict[str, Any]:
            prepared.impact.add(late)
            return impact_report(prepared.impact)

        impact = await asyncio.to_thread(report)
        flagged = [each.id for each in noted if each.flagged and not each.was_flagged]
        back = [each.id for each in noted if each.was_flagged and not each.flagged]
        if done is not None:
            heap.settle(len(prepared.matcher.vocabulary) + done.subscriptions)
            _log.info("%s is in force: %d subscriptions mean something else", what, impact["subscriptions"]["changed"])
            if flagged:
                shown = ", ".join(flagged[:LOGGED])
                _log.warning("%d subscriptions need what is gone with %s: %s", len(flagged), what, shown)
        return {
            "subscriptions": {
                "recompiled": len(prepared.matcher) if done is None else done.subscriptions,
                "changed": impact["subscriptions"]["changed"],
                "flagged": _counted(flagged),
                "unflagged": _counted(back),
            },
            "impact": impact,
        }

    def build(self, read: Iterable[Ontology], declarations: Declarations | None = None) -> Vocabulary:
        """The vocabulary of these ontologies and declarations; None stands for those in force. Any thread."""
        declared = (self.door.state.declarations if declarations is None else declarations).arguments()
        with heap.building():
            return Vocabulary.from_ontologies(sorted(read, key=lambda each: each.name), **declared)

    async def prepared(
        self, vocabulary: Vocabulary, declarations: Declarations | None = None, *, live_only: bool = True
    ) -> Prepared:
        """The subscriptions compiled under another vocabulary, beside the running ones."""
        state = self.door.state
        rows = await self.door.read(lambda connection: list(subscriptions.trees(connection, live_only=live_only)))
        return await asyncio.to_thread(
            vocabularies.prepare,
            state.vocabulary,
            vocabulary,
            state.declarations if declarations is None else declarations,
            state.empty_matcher,
            rows,
            with_dependents=not live_only,
        )

    async def _activate(self, name: str, version: int) -> dict[str, Any]:
        prepared = await self.prepared(await self._whole(name, version))
        done = await self.door.submit(
            lambda group: vocabularies.swap(group, version, prepared, partial(_mark, group, name, version))
        )
        return await self.tell(prepared, done, f"{name}, version {version}")

    async def _check_follows(self, upload: Upload) -> None:
        """Raises `VersionChanged` when another version is in force than the one that the upload is to follow."""
        if upload.replaces is None:
            return
        rows = await self.door.read(lambda connection: ontologies.list_versions(connection, upload.name))
        now = str(next((row.version for row in rows if row.active), rows[0].version)) if rows else ""
        if upload.replaces != now and not (upload.replaces == "*" and now):
            there = f"version {now} of {upload.name!r} is in force" if now else f"there is no ontology {upload.name!r}"
            raise VersionChanged(f"{there}: look at it again before you replace it")

    async def _known(
        self, upload: Upload, sha256: str, activate: bool, *, alone: bool = False
    ) -> dict[str, Any] | None:
        """The answer for what is stored already, activated if that is wanted."""
        same = await self.door.read(
            lambda connection: ontologies.find_same(connection, upload.name, sha256, upload.reason, upload.relations)
        )
        if same is None:
            return None
        told: dict[str, Any] = {}
        if activate and not same.active:
            if alone:
                told = await self._activate(upload.name, same.version)
            else:
                told = await self.activate_ontology(upload.name, same.version)
        return self._described(same.report, upload.name, same.version, activate or same.active) | told

    async def _number(self, name: str, version: int | None) -> int:
        if version is not None:
            return version
        found = await self.door.read(lambda connection: ontologies.find_previous(connection, name))
        if found is None:
            raise NothingBefore(f"no other version of {name!r} was in force before")
        return found

    async def _whole(self, name: str, version: int) -> Vocabulary:
        """The vocabulary in force with a stored version in place of the one of its name."""
        return await asyncio.to_thread(self._with, await self.stored_ontology(name, version))

    async def stored_ontology(self, name: str, version: int) -> Ontology:
        """A stored version: its records, or, where they are of an older time, its document read again."""
        row = await self.door.read(lambda connection: ontologies.find_version(connection, name, version))
        if row is None:
            raise UnknownOntology(f"there is no ontology {name!r} with a version {version}")
        found = await asyncio.to_thread(decoded, row.records)
        return found if found is not None else await self._read_again(row)

    async def _read_again(self, row: Row[Any]) -> Ontology:
        document = await self.door.read(lambda connection: ontologies.find_document(connection, row.name, row.version))
        read = await self._documents.read(
            document, name=row.name, format=row.format, reason=row.reason, relations=row.relations
        )
        await self.door.submit(
            lambda group: ontologies.keep_records(group.connection, row.name, row.version, read.records)
        )
        return read.ontology

    async def with_versions(self, versions: Mapping[str, int]) -> list[Ontology]:
        """The ontologies in force, those that `versions` names in the version that it says. Raises
        `UnknownOntology`."""
        others = [each for each in self.vocabulary.ontologies if each.name not in versions]
        chosen = [await self.stored_ontology(name, version) for name, version in versions.items()]
        return sorted([*others, *chosen], key=lambda each: each.name)

    def _with(self, ontology: Ontology) -> Vocabulary:
        return self.build([*(each for each in self.vocabulary.ontologies if each.name != ontology.name), ontology])

    def _described(self, report: dict[str, Any], name: str, version: int, active: bool) -> dict[str, Any]:
        said = {"name": name, "version": version, "active": active, "vocabulary_version": self.vocabulary.version}
        return said | {key: value for key, value in report.items() if key not in said}


def _mark(group: Group, name: str, version: int, connection: Connection) -> None:
    ontologies.activate(connection, name, version, now=group.now)


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
    """The load report of one document; what it shares with the others, and which of its imports are there, is seen from
    the whole."""
    report = (whole if len(whole.ontologies) == 1 else Vocabulary.from_ontologies([ontology])).report
    together = whole.report
    unresolved = set(together["unresolved_imports"])
    return report | {
        "format": ontology.format,
        "merged_across": together["merged_across"],
        "unmerged": together["unmerged"],
        "unresolved_imports": [each for each in report["unresolved_imports"] if each in unresolved],
    }


def _counted(ids: Sequence[str]) -> dict[str, Any]:
    return {"count": len(ids), "listed": list(ids[: vocabularies.LISTED])}
