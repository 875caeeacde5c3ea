"""What a reasoner found, put into the records of a document: the news only, each marked as inferred."""

from dataclasses import replace

from semantic.ontology.reasoning.axioms import Axioms
from semantic.ontology.reasoning.hermit import Findings
from semantic.ontology.reasoning.known import Known
from semantic.ontology.records import ConceptRecord, Ontology
from semantic.ontology.subsumption import Pairs

__all__ = ["with_findings"]

SHOWN = 3  # names in a warning; the records have all


def with_findings(ontology: Ontology, findings: Findings, axioms: Axioms) -> Ontology:
    """`ontology` with the pairs of `findings` that do not follow from its own, and its unsatisfiable classes.

    Of equivalent names the first in order stands for all, whichever the reasoner names, so that the same axioms in
    another order give the same records. Cost: a walk upwards for each name that the reasoner puts beneath another.
    """
    hopeless = set(findings.unsatisfiable)
    first = {name: min(group) for group in findings.groups for name in group}
    same = _same(Known(ontology.edges, ontology.equivalences), findings, hopeless)
    equivalences = tuple(sorted({*ontology.equivalences, *same}))
    pairs = {
        (first.get(low, low), first.get(high, high)) for low, high in findings.pairs if hopeless.isdisjoint((low, high))
    }
    beneath = Known(ontology.edges, equivalences).news(pairs)
    edges = tuple(sorted({*ontology.edges, *beneath}))
    members = Known(edges, equivalences).memberships(
        ontology.types, {(one, first.get(each, each)) for one, each in findings.types if each not in hopeless}
    )
    return replace(
        ontology,
        concepts=_concepts(ontology, beneath | same, members),
        edges=edges,
        types=tuple(sorted({*ontology.types, *members})),
        equivalences=equivalences,
        inferred=ontology.inferred | beneath | same | members,
        unsatisfiable=tuple(sorted(hopeless)),
        warnings=(*ontology.warnings, *_warnings(sorted(hopeless), axioms)),
    )


def _same(known: Known, findings: Findings, hopeless: set[str]) -> Pairs:
    """Pairs of equivalent names that were not known to be."""
    news: Pairs = set()
    for group in findings.groups:
        first, *others = sorted(name for name in group if name not in hopeless)
        above = known.above(first)
        news.update((first, each) for each in others if each not in above or first not in known.above(each))
    return news


def _concepts(ontology: Ontology, pairs: Pairs, members: Pairs) -> tuple[ConceptRecord, ...]:
    """The records, with one for each name that only reasoning made a concept: a class of which the document says
    nothing but that something has some of it, an individual of which it says no class."""
    missing = {name: "class" for pair in pairs for name in pair} | {name: "class" for _, name in members}
    missing = {one: "individual" for one, _ in members} | missing
    for record in ontology.concepts:
        missing.pop(record.iri, None)
    if not missing:
        return tuple(ontology.concepts)
    told = {remark.iri: remark for remark in ontology.remarks}
    found = (
        replace(
            told.get(iri, ConceptRecord(iri=iri)), kind="class" if kind == "class" else "individual", declared=False
        )
        for iri, kind in missing.items()
    )
    return tuple(sorted((*ontology.concepts, *found), key=lambda record: record.iri))


def _warnings(hopeless: list[str], axioms: Axioms) -> list[str]:
    warnings = []
    if hopeless:
        more = f" and {len(hopeless) - SHOWN} more" if len(hopeless) > SHOWN else ""
        warnings.append(f"unsatisfiable, nothing can be one: {', '.join(hopeless[:SHOWN])}{more}")
    if axioms.malformed:
        warnings.append(f"{axioms.malformed} values are none of their datatype, and are left out of the reasoning")
    if axioms.unsupported:
        warnings.append(
            f"the reasoner knows no values of {', '.join(axioms.unsupported[:SHOWN])}; what is said by them is left out"
        )
    return warnings
