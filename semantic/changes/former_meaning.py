"""What the rules of meaning 2 change for subscriptions that were made by those of meaning 1: a dry run of new rules.

The documents and declarations in force are read by the former rules too, as far as they differ, and the two
vocabularies are compared as those of two versions of an ontology are (`kindcast.semantic.changes.impact`).
docs/matching-semantics.md:

    rule 9    the root word stood in place of the published text, and a term was read by its root word first; two
              attributes with quantities or date-times as texts were compared as texts
    rule 10   every `skos:exactMatch` merged two concepts
    rule 12   individuals that share a name with one class stayed candidates in events
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kindcast.index.clause import ConceptId
from kindcast.semantic.changes.impact import Impact
from kindcast.semantic.vocabulary.terms import Resolution
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["FORMER_MEANING", "FormerVocabulary", "impact_of_rules"]

FORMER_MEANING = 1


class FormerVocabulary(Vocabulary):
    """The same words by the rules of meaning 1, as far as an impact asks."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, declarations: Mapping[str, Any]) -> "FormerVocabulary":
        """That of the ontologies of `vocabulary` and the `declarations` that it was made with. Costs what building a
        vocabulary does."""
        merged = [
            replace(each, equivalences=(*each.equivalences, *each.matches), matches=())
            for each in vocabulary.ontologies
        ]
        return cls(merged, **declarations)

    @property
    def meaning(self) -> int:
        return FORMER_MEANING

    @property
    def version(self) -> str:
        return f"{super().version}, read by the rules of meaning {FORMER_MEANING}"

    def texts(self, text: str) -> tuple[str, ...]:
        return (self.root_word(text),)

    def resolve(self, term: str, *, is_iri: bool = False, within: Sequence[ConceptId] = ()) -> Resolution:
        found = super().resolve(self.root_word(term), is_iri=is_iri, within=within)
        return replace(found, candidates=tuple(sorted((*found.candidates, *found.set_aside))), set_aside=())


def impact_of_rules(
    vocabulary: Vocabulary, declarations: Mapping[str, Any], subscriptions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Impact:
    """What `vocabulary`, made with these `declarations`, means otherwise to `subscriptions`, (id, stored tree), than by
    the former rules."""
    impact = Impact(FormerVocabulary.of(vocabulary, declarations), vocabulary)
    impact.add(subscriptions)
    return impact
