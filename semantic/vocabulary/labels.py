"""Names and labels over all documents, and which label to show in which language."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kindcast.semantic.ontology.namespaces import local_name
from kindcast.semantic.ontology.records import ConceptRecord, Label, Ontology

__all__ = ["Names", "all_labels", "best_label"]

_KINDS = ("class", "concept", "scheme", "individual", "retired")  # when documents disagree, the first of these wins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Names:
    """One record per name, and the ontology that declares it (or, failing that, refers to it). Immutable."""

    records: Mapping[str, ConceptRecord] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    _remarked: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The schemes of names that have no record: a mapping file may tell them of what it maps."""

    @classmethod
    def of(cls, ontologies: Iterable[Ontology]) -> "Names":
        """The union of what `ontologies` say: a name has the labels of all, and is deprecated if one says so."""
        records: dict[str, ConceptRecord] = {}
        origins: dict[str, str] = {}
        remarked: dict[str, tuple[str, ...]] = {}
        ontologies = sorted(ontologies, key=lambda each: (each.name, each.sha256))
        for ontology in ontologies:
            for record in ontology.concepts:
                known = records.get(record.iri)
                if known is None:
                    records[record.iri] = record
                    origins[record.iri] = ontology.name
                else:
                    if record.declared and not known.declared:
                        origins[record.iri] = ontology.name
                    records[record.iri] = _merged(known, record)
        for ontology in ontologies:
            for remark in ontology.remarks:
                if remark.iri in records:
                    records[remark.iri] = _merged(records[remark.iri], remark)
                elif remark.schemes:
                    remarked[remark.iri] = (*remarked.get(remark.iri, ()), *remark.schemes)
        return cls(records=records, origins=origins, _remarked=remarked)

    def schemes(self, iri: str) -> tuple[str, ...]:
        """Those that it is stated to be in."""
        record = self.records.get(iri)
        return self._remarked.get(iri, ()) if record is None else record.schemes

    def preference(self, iri: str) -> tuple[bool, bool, bool, bool]:
        """Sorts the names of one concept: known, not deprecated, declared, labelled ones first."""
        record = self.records.get(iri)
        if record is None:
            return (True, True, True, True)
        return (False, record.deprecated, not record.declared, not record.preferred)

    def places(self, iris: Iterable[str]) -> bool:
        """Whether one of these names has a place in a hierarchy, rather than only a class or a successor."""
        return any(iri in self.records and self.records[iri].kind not in ("individual", "retired") for iri in iris)


def best_label(records: Sequence[ConceptRecord], iri: str, language: str) -> str:
    """The label to show for `iri`, from the records of all its names: in `language`, in its base language (`en` for
    `en-GB`), in any variety of that, without a language, in any; else the short end of the IRI."""
    labels = [label for record in records for label in record.preferred]
    if not labels:
        return local_name(iri) or iri
    wanted = language.lower()
    base = wanted.partition("-")[0]
    tests: tuple[Callable[[str | None], bool], ...] = (
        lambda tag: tag == wanted,
        lambda tag: tag == base,
        lambda tag: tag is not None and tag.partition("-")[0] == base,
        lambda tag: tag is None,
    )
    for fits in tests:
        found = next((text for text, tag in labels if fits(tag)), None)
        if found is not None:
            return found
    return labels[0][0]


def all_labels(record: ConceptRecord) -> list[Label]:
    """Every label of `record`, the loose and hidden ones too, and the short end of its IRI, each spelling once."""
    labels: dict[str, Label] = {}
    for text, tag in (*record.preferred, *record.synonyms, *record.hidden, (local_name(record.iri), None)):
        labels.setdefault(" ".join(text.replace("_", " ").split()), (text, tag))
    return list(labels.values())


def _merged(one: ConceptRecord, other: ConceptRecord) -> ConceptRecord:
    return replace(
        one,
        kind=min(one.kind, other.kind, key=_KINDS.index),
        declared=one.declared or other.declared,
        preferred=_union(one.preferred, other.preferred),
        synonyms=_union(one.synonyms, other.synonyms),
        hidden=_union(one.hidden, other.hidden),
        deprecated=one.deprecated or other.deprecated,
        replaced_by=tuple(sorted({*one.replaced_by, *other.replaced_by})),
        consider=tuple(sorted({*one.consider, *other.consider})),
        definition=one.definition or other.definition,
        schemes=one.schemes if one.schemes == other.schemes else tuple(sorted({*one.schemes, *other.schemes})),
    )


def _union(one: tuple[Label, ...], other: tuple[Label, ...]) -> tuple[Label, ...]:
    return tuple(sorted({*one, *other}, key=lambda label: (label[1] or "", label[0])))
