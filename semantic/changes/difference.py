"""The differences between two versions of an ontology.

    two vocabularies ──▶ added, removed, moved, merged, split, deprecated, restored, relabelled

Names are compared as the documents state them, so the numbers agree with those of an ontology editor. Only `merged` and
`split` compare concepts. Each list is sorted alphabetically, so the same two versions always give the same result.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from kindcast.semantic.ontology import ConceptRecord
from kindcast.semantic.ontology.records import Label, sorted_labels
from kindcast.semantic.vocabulary.labels import best_label
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["Difference", "difference_between"]

LISTED = 100
"""The default number of entries per list."""

Groups = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Sorted tuples of IRIs. `moved` is IRI → (parents before, parents after). `merged` and `split` are groups of names
    that became one concept, or stopped being one. `deprecated` is IRI → its replacements, if any. `relabelled` is IRI →
    (removed labels, added labels), preferred labels and synonyms alike."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    merged: tuple[tuple[str, ...], ...]
    split: tuple[tuple[str, ...], ...]
    deprecated: Mapping[str, tuple[str, ...]]
    restored: tuple[str, ...]
    relabelled: Mapping[str, tuple[tuple[Label, ...], tuple[Label, ...]]]
    before: "_Names"
    after: "_Names"

    def __bool__(self) -> bool:
        """Returns whether anything changed."""
        parts = (self.added, self.removed, self.moved, self.merged, self.split)
        return any((*parts, self.deprecated, self.restored, self.relabelled))

    def as_json(self, *, limit: int = LISTED) -> dict[str, Any]:
        """Returns each list with its complete `count` and its first `limit` entries."""
        old, new = self.before, self.after

        def told(names: Iterable[str], within: "_Names", **more: Callable[[str], Any]) -> list[dict[str, Any]]:
            return [
                {"iri": iri, "label": within.label(iri)} | {key: tell(iri) for key, tell in more.items()}
                for iri in islice(names, limit)
            ]

        return {
            "added": _counted(self.added, told(self.added, new, parents=lambda iri: list(new.parents.get(iri, ())))),
            "removed": _counted(
                self.removed, told(self.removed, old, parents=lambda iri: list(old.parents.get(iri, ())))
            ),
            "moved": _counted(
                self.moved,
                told(
                    self.moved,
                    new,
                    parents_before=lambda iri: list(self.moved[iri][0]),
                    parents=lambda iri: list(self.moved[iri][1]),
                ),
            ),
            "merged": _counted(self.merged, [{"iris": list(each)} for each in self.merged[:limit]]),
            "split": _counted(self.split, [{"iris": list(each)} for each in self.split[:limit]]),
            "deprecated": _counted(
                self.deprecated, told(self.deprecated, new, replaced_by=lambda iri: list(self.deprecated[iri]))
            ),
            "restored": _counted(self.restored, told(self.restored, new)),
            "relabelled": _counted(
                self.relabelled,
                told(
                    self.relabelled,
                    new,
                    labels_gone=lambda iri: _labels(self.relabelled[iri][0]),
                    labels=lambda iri: _labels(self.relabelled[iri][1]),
                ),
            ),
        }


def difference_between(before: Vocabulary, after: Vocabulary) -> Difference:
    """Returns the differences of `after` from `before`, which may have one or several documents. Linear, except for
    sorting.

    >>> subclass = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
    >>> old = Vocabulary.from_bytes(f"<http://e/A> {subclass} <http://e/B> .".encode(), format="nt")
    >>> new = Vocabulary.from_bytes(f"<http://e/A> {subclass} <http://e/C> .".encode(), format="nt")
    >>> found = difference_between(old, new)
    >>> found.added, found.removed, found.moved
    (('http://e/C',), ('http://e/B',), {'http://e/A': (('http://e/B',), ('http://e/C',))})
    """
    old, new = _Names(before), _Names(after)
    both = sorted(old.records.keys() & new.records.keys())
    retired = {iri: new.records[iri] for iri in both if new.records[iri].deprecated}
    retired |= {iri: each for iri, each in new.records.items() if each.deprecated and iri not in old.records}
    return Difference(
        added=tuple(sorted(new.records.keys() - old.records.keys())),
        removed=tuple(sorted(old.records.keys() - new.records.keys())),
        moved={
            iri: (was, now) for iri in both if (was := old.parents.get(iri, ())) != (now := new.parents.get(iri, ()))
        },
        merged=_joined(old, new),
        split=_joined(new, old),
        deprecated={
            iri: each.replaced_by for iri, each in sorted(retired.items()) if not _same_fate(old.records.get(iri), each)
        },
        restored=tuple(iri for iri in both if old.records[iri].deprecated and not new.records[iri].deprecated),
        relabelled={iri: change for iri in both if any(change := _relabelling(old.records[iri], new.records[iri]))},
        before=old,
        after=new,
    )


class _Names:
    """The records and groups of one version, by name."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.records: dict[str, ConceptRecord] = {}
        above: defaultdict[str, set[str]] = defaultdict(set)
        for each in vocabulary.ontologies:
            for record in each.concepts:
                known = self.records.get(record.iri)
                self.records[record.iri] = record if known is None else _together(known, record)
            for low, high in chain(each.edges, each.types):
                above[low].add(high)
        self.parents = {low: tuple(sorted(highs)) for low, highs in above.items()}
        self.groups: Groups = {}
        for iri in self.records:
            concept = vocabulary.concept(iri)
            names = () if concept is None else vocabulary.iris(concept)
            if len(names) > 1 and iri not in self.groups:
                self.groups |= dict.fromkeys(names, frozenset(names))

    def label(self, iri: str) -> str:
        """Returns the label to show for a name."""
        record = self.records.get(iri)
        return best_label([record] if record is not None else [], iri, "en")


def _together(one: ConceptRecord, other: ConceptRecord) -> ConceptRecord:
    """Merges the records of two documents for one name."""
    return ConceptRecord(
        iri=one.iri,
        kind=one.kind,
        declared=one.declared or other.declared,
        preferred=tuple(dict.fromkeys((*one.preferred, *other.preferred))),
        synonyms=tuple(dict.fromkeys((*one.synonyms, *other.synonyms))),
        deprecated=one.deprecated or other.deprecated,
        replaced_by=tuple(sorted({*one.replaced_by, *other.replaced_by})),
    )


def _same_fate(was: ConceptRecord | None, now: ConceptRecord) -> bool:
    """Returns whether the name was deprecated before, with the same replacement."""
    return was is not None and was.deprecated and was.replaced_by == now.replaced_by


def _relabelling(was: ConceptRecord, now: ConceptRecord) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
    old, new = {*was.preferred, *was.synonyms}, {*now.preferred, *now.synonyms}
    return sorted_labels(old - new), sorted_labels(new - old)


def _joined(before: "_Names", after: "_Names") -> tuple[tuple[str, ...], ...]:
    """Returns the groups of `after` that contain names which were known, but not in one group, in `before`."""
    found = set()
    for group in after.groups.values():
        known = [name for name in group if name in before.records]
        if len({before.groups.get(name, frozenset((name,))) for name in known}) > 1:
            found.add(group)
    return tuple(sorted(tuple(sorted(group)) for group in found))


def _counted(all: Collection[Any], listed: list[dict[str, Any]]) -> dict[str, Any]:
    return {"count": len(all), "concepts": listed}


def _labels(labels: Iterable[Label]) -> list[dict[str, str | None]]:
    return [{"value": text, "lang": tag} for text, tag in labels]
