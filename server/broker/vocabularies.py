"""Commands on ontologies: another vocabulary, and every live subscription compiled again under it, in one step.

The trees in the store are what is compiled (they hold IRIs, no labels), the same as after a restart; so a server that
was restarted and one that was not mean the same. An event is matched either before the step or after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from semantic import InvalidSubscription, Matcher, Vocabulary
from server.broker.changes import swap_matcher
from server.broker.group import Group
from server.broker.subscribing import notes_of
from server.errors import OntologyInUse, UnknownOntology
from server.store import ontologies, subscriptions

__all__ = ["Recompiled", "activate_version", "add_version", "as_json", "fill", "remove_ontology"]

LISTED = 20
"""Ids of subscriptions that an error or an answer names; the count is complete."""


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


def add_version(group: Group, ontology: ontologies.StoredOntology, vocabulary: Vocabulary | None) -> Recompiled:
    """Store a version; with `vocabulary`, which holds it, activate it as well."""
    version = ontologies.add_version(group.connection, ontology, now=group.now)
    if vocabulary is None:
        return Recompiled(version=version, subscriptions=0, changed=0, examples=[])
    return activate_version(group, ontology.name, version, vocabulary)


def activate_version(group: Group, name: str, version: int, vocabulary: Vocabulary) -> Recompiled:
    """Make a stored version the active one; `vocabulary` is what all active versions together then are."""
    ontologies.activate(group.connection, name, version)
    return _swap(group, version, vocabulary)


def remove_ontology(group: Group, name: str, vocabulary: Vocabulary) -> Recompiled:
    """Forget every version of a name; `vocabulary` is what is left.

    Raises `OntologyInUse` while a subscription names a concept that only this one has, `UnknownOntology`.
    """
    if not ontologies.list_versions(group.connection, name):
        raise UnknownOntology(f"there is no ontology {name!r}")
    lost = _dependents(group, vocabulary)
    if lost:
        raise OntologyInUse(name, len(lost), lost[:LISTED])
    ontologies.delete_ontology(group.connection, name)
    return _swap(group, 0, vocabulary)


def fill(matcher: Matcher, rows: Any) -> Iterator[tuple[Any, list[dict[str, str]]]]:
    """Restore each row's tree into `matcher`; yields the row and its notes. A tree that has no meaning under the
    vocabulary (its unit no longer fits, say) is left out, so it matches nothing, and its note says so."""
    for row in rows:
        try:
            yield row, notes_of(matcher.restore(row.id, row.tree))
        except InvalidSubscription as error:
            yield row, [{"code": "not-compilable", "attribute": "", "detail": str(error)}]


def _swap(group: Group, version: int, vocabulary: Vocabulary) -> Recompiled:
    matcher = group.state.new_matcher(vocabulary)
    changed: list[str] = []
    for row, notes in fill(matcher, list(subscriptions.trees(group.connection, matching_only=True))):
        if notes != row.notes:
            changed.append(row.id)
            subscriptions.change(group.connection, row.number, notes=notes)
    swap_matcher(group, matcher)
    return Recompiled(version=version, subscriptions=len(matcher), changed=len(changed), examples=changed[:LISTED])


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
