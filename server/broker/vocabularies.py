"""Commands that change what words mean: every live subscription is compiled again, and all is swapped in one step.

    worker thread    trees in the store ──compile──▶ a matcher under the new vocabulary, while events go on
    broker's thread  what came or went meanwhile ──▶ that matcher ──▶ swapped with the row that says "active"

The trees in the store are what is compiled (they hold IRIs, no labels), the same as after a restart; so a server that
was restarted and one that was not mean the same. An event is matched either before the step or after it.

A subscription that loses its meaning, or a part of it, is kept: its notes say what is gone, and it is flagged until it
is back.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row

from semantic import InvalidSubscription, Matcher, Vocabulary
from semantic.compilation import restore_expression
from semantic.declarations import Declarations
from semantic.impact import Impact
from server.broker import heap
from server.broker.changes import SILENT, swap_matcher
from server.broker.group import Group
from server.broker.subscribing import NOT_COMPILABLE, as_records, is_flagged, notes_of
from server.errors import OntologyInUse, UnknownOntology
from server.store import ontologies, subscriptions
from server.store.parking import ontology_is_needed

__all__ = ["Noted", "Prepared", "Recompiled", "fill", "keep_notes", "prepare", "remove_ontology", "swap"]

LISTED = 20
"""Ids of subscriptions that an error or an answer names; the count is complete."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A subscription whose notes are not what they were."""

    number: int
    id: str
    notes: list[dict[str, str]]
    flagged: bool
    was_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A matcher that was filled under another vocabulary, which `declarations` are a part of; the status that each
    subscription had when it was looked at; whose notes changed; what the change does to all of them; and, where asked
    for, who names a concept that is gone."""

    matcher: Matcher
    declarations: Declarations
    seen: dict[str, str]
    noted: list[Noted]
    impact: Impact
    dependents: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled:
    """What a change did to the subscriptions: how many match under it, whose notes changed, and the trees of those that
    came while it was prepared."""

    version: int
    subscriptions: int
    noted: list[Noted]
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
    """Compile the stored trees in `rows` (of `subscriptions.trees`) under `vocabulary`, and tell them apart from what
    they mean `before`. Any thread."""
    impact = Impact(before, vocabulary)
    with heap.building():
        matcher = new_matcher(vocabulary)
        noted = list(fill(matcher, rows))
        vocabulary.index_labels()  # not on the time of the first subscriber who mistypes
        impact.add((row.id, row.tree) for row in rows)
    return Prepared(
        matcher=matcher,
        declarations=declarations,
        seen={row.id: row.status for row in rows},
        noted=noted,
        impact=impact,
        dependents=_dependents(before, vocabulary, rows) if with_dependents else [],
    )


def swap(group: Group, version: int, prepared: Prepared, mark_active: Callable[[Connection], None]) -> Recompiled:
    """Put the vocabulary of `prepared` in force, together with the row that says so (`mark_active` writes it)."""
    mark_active(group.connection)
    matcher, roll, seen = prepared.matcher, group.state.roll, prepared.seen
    for operator in group.state.operators.known.values():  # some may have come meanwhile
        matcher.declare(operator)
    for id in seen:
        if id in matcher and id not in roll.matcher and (id not in roll.aside or roll.aside[id].status in SILENT):
            matcher.remove(id)  # deleted, paused or expired while it was compiled
    late = [roll.number(id) for id in roll.matcher if seen.get(id, "expired") in SILENT]
    late += [
        each.number
        for each in roll.aside.values()
        if each.status != "expired" and (each.id not in seen or (seen[each.id] in SILENT and each.status not in SILENT))
    ]
    rows = list(subscriptions.trees(group.connection, live_only=True, numbers=late)) if late else []
    noted = [each for each in (*prepared.noted, *fill(matcher, rows)) if each.id in roll]
    keep_notes(group.connection, noted)
    swap_matcher(group, matcher, prepared.declarations)
    new = [(row.id, row.tree) for row in rows if row.id not in seen]
    return Recompiled(version=version, subscriptions=len(matcher), noted=noted, late=new)


def remove_ontology(group: Group, name: str, prepared: Prepared) -> Recompiled:
    """Forget every version of a name; the vocabulary of `prepared` is what is left.

    Raises `OntologyInUse` while a subscription names a concept that only this one has, `UnknownOntology`.
    """
    if not ontologies.list_versions(group.connection, name):
        raise UnknownOntology(f"there is no ontology {name!r}")
    waiting = ontology_is_needed(group.connection, name)
    if waiting:
        detail = f"{waiting} candidates of accepted events wait for an operator and are to be decided under {name!r}"
        raise OntologyInUse(name, waiting, [], detail)
    roll = group.state.roll
    late = [roll.number(id) for id in roll if id not in prepared.seen]
    rows = list(subscriptions.trees(group.connection, live_only=False, numbers=late)) if late else []
    came = _dependents(group.state.vocabulary, prepared.matcher.vocabulary, rows)
    lost = [id for id in (*prepared.dependents, *came) if id in roll]
    if lost:
        raise OntologyInUse(name, len(lost), lost[:LISTED])
    return swap(group, 0, prepared, lambda connection: ontologies.delete_ontology(connection, name))


def fill(matcher: Matcher, rows: Iterable[Row[Any]]) -> Iterator[Noted]:
    """Restore each row's tree into `matcher`, those of paused subscriptions only for their notes; yields those whose
    notes are not what the row says. A tree that has no meaning under the vocabulary (its unit no longer fits, say) is
    left out, so it matches nothing, and its note says so."""
    numbers: dict[str, int] = {}
    told: dict[str, tuple[list[dict[str, str]], bool]] = {}  # what the rows say, where they say something
    silent: list[Noted] = []

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
            yield Noted(numbers[id], id, notes, flagged, was_flagged)


def _noted_alone(matcher: Matcher, row: Row[Any]) -> Iterator[Noted]:
    """The same for one that is not to match."""
    try:
        notes = notes_of(restore_expression(row.tree, matcher.vocabulary, matcher.operators))
    except InvalidSubscription as error:
        notes = [{"code": NOT_COMPILABLE, "attribute": "", "detail": str(error)}]
    flagged = is_flagged(notes)
    if notes != row.notes or flagged != row.flagged:
        yield Noted(row.number, row.id, notes, flagged, row.flagged)


def keep_notes(connection: Connection, noted: Iterable[Noted]) -> None:
    """Write the notes down."""
    subscriptions.change_notes(connection, [(each.number, each.notes, each.flagged) for each in noted])


def _dependents(before: Vocabulary, after: Vocabulary, rows: Iterable[Row[Any]]) -> list[str]:
    """Subscriptions, paused and expired ones too, that name a concept or a relation which is known before and is not
    after."""
    known: dict[str, bool] = {}

    def lost(iri: str) -> bool:
        if iri not in known:
            concept = before.concept(iri) is not None and after.concept(iri) is None
            known[iri] = concept or (iri in before.relations and iri not in after.relations)
        return known[iri]

    return [row.id for row in rows if any(map(lost, _iris(row.tree)))]


def _iris(tree: Any) -> Iterator[str]:
    """Every IRI in a stored tree: {"iri": …}, wherever it stands, and the relations."""
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
