"""Notes on how a term was read: for the subscriber who wrote it, or the publisher of the string.

docs/matching-semantics.md, rules 12 and 13. Notes never change what a term means.
"""

from collections.abc import Iterator

from kindcast.semantic.model import Note
from kindcast.semantic.vocabulary.terms import Resolution
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["notes_on_event_term", "notes_on_term"]

NAMED = 5
"""Concepts that one note names; it tells how many there are."""


def notes_on_term(attribute: str, term: str, found: Resolution, vocabulary: Vocabulary) -> Iterator[Note]:
    """The notes about `term` at `attribute`, which resolved to `found`: that names are deprecated, with their
    replacements, and that individuals of the same name were set aside."""
    for old, new in found.replaced:
        yield Note("deprecated-term", attribute, f"{old} is deprecated: {new} is used instead")
    for iri in found.iris:
        if considered := vocabulary.considered(iri):
            detail = f"{iri} is deprecated, nothing replaces it; consider {', '.join(considered)}"
            yield Note("deprecated-term", attribute, detail)
    if found.set_aside:
        others = _named([vocabulary.iri(concept) for concept in found.set_aside])
        detail = (
            f"{term!r} is read as the class {vocabulary.iri(found.candidates[0])}; individuals have that name: {others}"
        )
        yield Note("class-preferred", attribute, detail)


def notes_on_event_term(
    attribute: str, published: str, found: Resolution, vocabulary: Vocabulary, *, holds_concepts: bool
) -> Iterator[Note]:
    """The same for a published string, and that it may mean several concepts, or, where the attribute is declared to
    hold concepts, none."""
    if not found.candidates:
        if holds_concepts:
            yield Note("unknown-term", attribute, f"{published!r} is no concept we know: it stays a string")
        return
    if len(found.candidates) > 1:
        labels = _named([vocabulary.label(concept) for concept in found.candidates])
        yield Note("ambiguous-term", attribute, f"{published!r} may mean {labels}: all are counted")
    yield from notes_on_term(attribute, published, found, vocabulary)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
