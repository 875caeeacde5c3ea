"""The calls that change what words mean: versions of ontologies, and declarations beside them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from server.client.call import Call, Json, described, get, path_of, present

__all__ = ["MeaningCalls"]


class MeaningCalls:
    """Each change answers what it does to the subscriptions; with `dry_run` it is only told, and nothing changes."""

    # ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def ontology_versions(self, name: str) -> Call[Json]:
        """Every version of an ontology, newest first."""
        return get(path_of("ontologies", name, "versions"))

    @described
    def ontology_diff(
        self, name: str, *, before: int | None = None, to: int | None = None, limit: int | None = None
    ) -> Call[Json]:
        """What changed from one version to another; by default from the active to the newest one."""
        return get(path_of("ontologies", name, "diff"), **{"from": before}, to=to, limit=limit)

    @described
    def activate_ontology(self, name: str, version: int, *, dry_run: bool = False) -> Call[Json]:
        """Puts a version in force, also an earlier one."""
        return _changing("POST", path_of("ontologies", name, "activate"), dry_run, version=version)

    @described
    def rollback_ontology(self, name: str, *, dry_run: bool = False) -> Call[Json]:
        """Puts the version in force that was in force before the active one."""
        return _changing("POST", path_of("ontologies", name, "rollback"), dry_run)

    @described
    def rules(self) -> Call[Json]:
        """The number of the rules of matching, and what they changed here when they came into force."""
        return get(path_of("rules"))

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────

    @described
    def declare_attribute(self, name: str, declaration: Mapping[str, Any], *, dry_run: bool = False) -> Call[Json]:
        """Says what an attribute holds: `kind`, `range`, `unit`, `unit_from`."""
        return _changing("PUT", path_of("attributes", name), dry_run, declaration)

    @described
    def declare_synonyms(self, name: str, table: Mapping[str, str] | bytes, *, dry_run: bool = False) -> Call[Json]:
        """Uploads a table of word → root word, or the bytes of a CSV file of two columns."""
        return _changing("PUT", path_of("synonyms", name), dry_run, table)

    @described
    def declare_rates(self, rates: Mapping[str, Mapping[str, Any]], *, dry_run: bool = False) -> Call[Json]:
        """Uploads the exchange rates, in place of those before."""
        return _changing("PUT", path_of("rates"), dry_run, rates)

    @described
    def declare_schema(
        self, type: str, schema: Mapping[str, Any], *, dry_run: bool = False, replace: bool = False
    ) -> Call[Json]:
        """Declares an event type by a JSON Schema, or extends it; `replace` lets it change in any way."""
        return _changing("PUT", path_of("schemas", type), dry_run, schema, **({"replace": "true"} if replace else {}))

    @described
    def declarations(self, kind: str) -> Call[Json]:
        """All declarations of a kind: `attributes`, `synonyms` or `schemas`."""
        return get(path_of(kind))

    @described
    def declaration(self, kind: str, name: str = "") -> Call[Json]:
        """One declaration, with its versions. The kind `rates` has no names."""
        return get(path_of(kind, name) if name else path_of(kind))

    @described
    def delete_declaration(self, kind: str, name: str = "", *, dry_run: bool = False) -> Call[Json]:
        """Takes a declaration back."""
        return _changing("DELETE", path_of(kind, name) if name else path_of(kind), dry_run)


def _changing(method: str, path: str, dry_run: bool, body: Any = None, **params: Any) -> Call[Json]:
    """A call that changes the vocabulary, or only tells what it would do."""
    kind, content = None, None
    if isinstance(body, bytes):
        kind, content = "text/csv", body
    elif body is not None:
        kind, content = "application/json", msgspec.json.encode(body)
    return Call(
        method=method,
        path=path,
        read=dict,
        params=params | ({"dry_run": "true"} if dry_run else {}),
        headers=present(**{"Content-Type": kind}),
        content=content,
    )
