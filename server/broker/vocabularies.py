"""Commands on ontologies: another vocabulary, and every live subscription compiled again under it, in one step.

    worker thread    trees in the store ──compile──▶ a matcher under the new vocabulary, while events go on
    broker's thread  what came or went meanwhile ──▶ that matcher ──▶ swapped with the row that says "active"

The trees in the store are what is compiled (they hold IRIs, no labels), the same as after a restart; so a server that
was restarted and one that was not mean the same. An event is matched either before the step or after it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from semantic import InvalidSubscription, Matcher, Vocabulary
from server.broker.changes import SILENT, swap_matcher
from server.broker.group import Group
from server.broker.subscribing import notes_of
from server.errors import OntologyInUse, UnknownOntology
from server.store import ontologies, subscriptions

__all__ = ["Prepared", "Recompiled", "activate_version", "add_version", "as_json", "fill", "prepare", "remove_ontology"]

LISTED = 20
"""Ids of subscriptions that an error or an answer names; the count is complete."""


Changed = tuple[int, str, list[dict[str, str]]]
"""Number, id and new notes of a subscription whose notes are not what they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A matcher that was filled under another vocabulary, the ids that were looked at, and whose notes changed."""

    matcher: Matcher
    compiled: set[str]
    changed: list[Changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled:
    """What a change of vocabulary did to the subscriptions: how many were compiled, how many have other notes than
    before (such as an IRI that is gone), and some of their ids."""

    version: int
    subscriptions: int
    changed: int
    examples: list[str]


def as_json(done: Recompiled) -> dict[str, Any]:
    """What to tell of it."""
    return {"recompiled": done.subscriptions, "changed": done.changed, "examples": done.examples}


def prepare(vocabulary: Vocabulary, new_matcher: Callable[[Vocabulary], Matcher], rows: Sequence[Row[Any]]) -> Prepared:
    """Compile the stored trees in `rows` (of `subscriptions.trees`) under `vocabulary`. Any thread."""
    matcher = new_matcher(vocabulary)
    return Prepared(matcher=matcher, compiled={row.id for row in rows}, changed=_changed(matcher, rows))


def add_version(group: Group, ontology: ontologies.StoredOntology, prepared: Prepared | None) -> Recompiled:
    """Store a version; with `prepared`, whose vocabulary holds it, activate it as well."""
    version = ontologies.add_version(group.connection, ontology, now=group.now)
    if prepared is None:
        return Recompiled(version=version, subscriptions=0, changed=0, examples=[])
    return activate_version(group, ontology.name, version, prepared)


def activate_version(group: Group, name: str, version: int, prepared: Prepared) -> Recompiled:
    """Make a stored version the active one; the vocabulary of `prepared` is what all active versions then are."""
    ontologies.activate(group.connection, name, version)
    return _swap(group, version, prepared)


def remove_ontology(group: Group, name: str, prepared: Prepared) -> Recompiled:
    """Forget every version of a name; the vocabulary of `prepared` is what is left.

    Raises `OntologyInUse` while a subscription names a concept that only this one has, `UnknownOntology`.
    """
    if not ontologies.list_versions(group.connection, name):
        raise UnknownOntology(f"there is no ontology {name!r}")
    lost = _dependents(group, prepared.matcher.vocabulary)
    if lost:
        raise OntologyInUse(name, len(lost), lost[:LISTED])
    ontologies.delete_ontology(group.connection, name)
    return _swap(group, 0, prepared)


def fill(matcher: Matcher, rows: Any) -> Iterator[tuple[Any, list[dict[str, str]]]]:
    """Restore each row's tree into `matcher`; yields the row and its notes. A tree that has no meaning under the
    vocabulary (its unit no longer fits, say) is left out, so it matches nothing, and its note says so."""
    for row in rows:
        try:
            yield row, notes_of(matcher.restore(row.id, row.tree))
        except InvalidSubscription as error:
            yield row, [{"code": "not-compilable", "attribute": "", "detail": str(error)}]


def _swap(group: Group, version: int, prepared: Prepared) -> Recompiled:
    """Bring the prepared matcher up to date, and put it in place of the old one."""
    matcher, live = prepared.matcher, group.state.live
    for id in prepared.compiled:
        if id in matcher and (id not in live or live[id].status in SILENT):
            matcher.remove(id)  # deleted, paused or expired while it was compiled
    late = [each.number for each in live.values() if each.status not in SILENT and each.id not in prepared.compiled]
    rows = list(subscriptions.trees(group.connection, matching_only=True, numbers=late)) if late else []
    changed = [*prepared.changed, *_changed(matcher, rows)]
    changed = [each for each in changed if each[1] in live]
    for number, _, notes in changed:
        subscriptions.change(group.connection, number, notes=notes)
    swap_matcher(group, matcher)
    examples = [id for _, id, _ in changed[:LISTED]]
    return Recompiled(version=version, subscriptions=len(matcher), changed=len(changed), examples=examples)


def _changed(matcher: Matcher, rows: Sequence[Row[Any]]) -> list[Changed]:
    """Fill `matcher`; which subscriptions have other notes than they had."""
    return [(row.number, row.id, notes) for row, notes in fill(matcher, rows) if notes != row.notes]


def _dependents(group: Group, rest: Vocabulary) -> list[str]:
    """Subscriptions, paused and expired ones too, that name an IRI which is known now and would not be any more."""
    now = group.state.vocabulary
    return [
        row.id
        for row in subscriptions.trees(group.connection, matching_only=False)
        if any(now.concept(iri) is not None and rest.concept(iri) is None for iri in _iris(row.tree))
    ]


def _iris(tree: Any) -> Iterator[str]:
    """Every IRI in a stored tree: {"iri": …}, wherever it stands."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("iri"), str):
                yield node["iri"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
