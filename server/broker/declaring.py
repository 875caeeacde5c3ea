"""Declarations as commands: attributes, synonyms, rates and event types, versioned and swapped like ontologies.

    body ──checked against all others──▶ declarations ──▶ vocabulary ──▶ subscriptions compiled again ──▶ swapped

A declaration is one version of one name of one kind; the same body again is the same version. The checks are those of
`semantic.declarations`: event types in use may only be extended.
"""

import asyncio
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from semantic.declarations import DeclarationKind, Declarations
from server.broker import vocabularies
from server.broker.group import Group
from server.broker.meaning import Meaning
from server.broker.vocabularies import Prepared, Recompiled
from server.errors import UnknownDeclaration
from server.store import declarations
from server.store.declarations import StoredDeclaration

__all__ = ["Declaring", "active_declarations"]


class Declaring:
    """One a broker; its coroutines run on the broker's event loop."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning

    async def put(
        self, kind: DeclarationKind, name: str, body: Any, *, dry_run: bool = False, replace: bool = False
    ) -> tuple[dict[str, Any], bool]:
        """What it does to the subscriptions, and whether this made another version. `replace` lets an event type
        change in ways that are no extension; `dry_run` only tells.

        Raises `InvalidDeclaration` with every problem.
        """
        declared = StoredDeclaration(kind=kind, name=name, body=body)
        if dry_run:
            prepared = await self._prepared(kind, name, body, replace)
            return self._described(kind, name, None) | await self._meaning.tell(prepared), False
        door = self._meaning.door
        async with self._meaning.one_at_a_time:
            same = await door.read(lambda connection: declarations.find_same(connection, declared))
            if same is not None and same.active:
                return self._described(kind, name, same.version), False
            prepared = await self._prepared(kind, name, body, replace)

            def work(group: Group) -> Recompiled:
                version = (
                    same.version
                    if same is not None
                    else declarations.add_version(group.connection, declared, now=group.now)
                )
                mark = partial(declarations.activate, kind=kind, name=name, version=version)
                return vocabularies.swap(group, version, prepared, mark)

            done = await door.submit(work)
            told = await self._meaning.tell(prepared, done, f"{kind} {name}, version {done.version}")
            return self._described(kind, name, done.version) | told, same is None

    async def delete(self, kind: DeclarationKind, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Forget every version of it; `dry_run` only tells. Raises `UnknownDeclaration`, and `InvalidDeclaration` where
        another one rests on it."""
        door = self._meaning.door
        if dry_run:
            prepared = await self._left(kind, name)
            return self._described(kind, name, None) | await self._meaning.tell(prepared)
        async with self._meaning.one_at_a_time:
            prepared = await self._left(kind, name)
            forget = partial(declarations.delete_declaration, kind=kind, name=name)
            done = await door.submit(lambda group: vocabularies.swap(group, 0, prepared, forget))
            told = await self._meaning.tell(prepared, done, f"{kind} {name} deleted")
            return self._described(kind, name, None) | told

    async def versions(self, kind: DeclarationKind, name: str) -> list[Row[Any]]:
        """Every version, newest first. Raises `UnknownDeclaration`."""
        rows = await self._meaning.door.read(lambda connection: declarations.list_versions(connection, kind, name))
        if not rows:
            raise UnknownDeclaration(kind, name)
        return list(rows)

    async def _left(self, kind: DeclarationKind, name: str) -> Prepared:
        """Prepared without one."""
        await self.versions(kind, name)
        left = await asyncio.to_thread(self._meaning.door.state.declarations.without, kind, name)
        return await self._with(left)

    async def _prepared(self, kind: DeclarationKind, name: str, body: Any, replace: bool) -> Prepared:
        """Prepared with one more."""
        in_force = self._meaning.door.state.declarations
        extended = await asyncio.to_thread(in_force.extended, kind, name, body, replace_schema=replace)
        return await self._with(extended)

    async def _with(self, declared: Declarations) -> Prepared:
        ontologies = self._meaning.vocabulary.ontologies
        vocabulary = await asyncio.to_thread(self._meaning.build, ontologies, declared)
        return await self._meaning.prepared(vocabulary, declared)

    def _described(self, kind: str, name: str, version: int | None) -> dict[str, Any]:
        said: dict[str, Any] = {"kind": kind, "name": name}
        if version is not None:
            said |= {"version": version, "active": True}
        return said | {"vocabulary_version": self._meaning.vocabulary.version}


def active_declarations(connection: Connection) -> Declarations:
    """All that is in force."""
    found: dict[str, dict[str, Any]] = {"attribute": {}, "synonyms": {}, "rates": {}, "schema": {}}
    for row in declarations.active(connection):
        found[row.kind][row.name] = row.body
    rates: dict[str, Any] = next(iter(found["rates"].values()), {})
    stored = {"attributes": found["attribute"], "synonyms": found["synonyms"], "rates": rates}
    return Declarations.from_json(stored | {"schemas": found["schema"]})
