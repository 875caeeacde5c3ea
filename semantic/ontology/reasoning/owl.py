"""`reason="owl"`: classification by a reasoner of OWL 2 DL, in a process of its own.

    records, axioms ──▶ child: HermiT ──▶ what is news ──▶ records with inferred pairs

News is what does not follow from the stated pairs by walking upwards. Classes that can have no member are listed and
stay where they are stated: that everything is above them helps nobody. An inconsistent document is refused.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from kindcast.semantic.errors import TooCostly
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology.encoding import decode, encode
from kindcast.semantic.ontology.isolation import Cost, Isolation, run_isolated
from kindcast.semantic.ontology.progress import Progress
from kindcast.semantic.ontology.reasoning.axioms import Axioms
from kindcast.semantic.ontology.reasoning.hermit import Findings, find_java, hermit_classpath, run_hermit
from kindcast.semantic.ontology.reasoning.known import Known
from kindcast.semantic.ontology.records import ConceptRecord, Ontology
from kindcast.semantic.ontology.subsumption import Pairs

__all__ = ["Reasoner", "available", "classified", "classified_encoded"]


# What a reasoner found, put into the records of a document: the news only, each marked as inferred.

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


# ── the reasoner's process ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoner:
    """Which Java, and what it may use: of the Java heap, and of time. Reasoning is the one step whose cost nobody can
    foresee from the size of a document."""

    java: str | None = None
    heap_bytes: int = 2 << 30
    seconds: float = 300.0

    def isolation(self, java: str) -> Isolation:
        """The fence: only Java may be started, files only in the scratch folder, no more than its heap and its code."""
        return Isolation(
            memory=self.heap_bytes + (3 << 30),  # of addresses: Java and its libraries take a gigabyte beside the heap
            cpu_seconds=2 * self.seconds,  # a JVM has a thread or two beside the one that reasons
            wall_seconds=self.seconds,
            open_files=256,
            file_bytes=1 << 30,
            programs=(java,),
            folder=True,
        )


def available(reasoner: Reasoner | None = None) -> None:
    """Raises ReasonerUnavailable where there is no Java or no HermiT."""
    find_java((reasoner or Reasoner()).java)
    hermit_classpath()


def classified(
    ontology: Ontology,
    axioms: Axioms,
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
) -> Ontology:
    """`ontology` with what a reasoner finds in its `axioms`. Blocks; any thread.

    Raises OntologyError where the document is inconsistent or no OWL 2 DL, TooCostly for a limit, ReasonerUnavailable.
    """
    return decode(
        classified_encoded(encode(ontology), axioms, reasoner=reasoner, progress=progress, cancelled=cancelled)
    )


def classified_encoded(
    encoded: bytes,
    axioms: Axioms,
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """The same from encoded records to encoded records."""
    reasoner = reasoner or Reasoner()
    java = find_java(reasoner.java)
    options = {"java": java, "classpath": hermit_classpath(), "heap": reasoner.heap_bytes}
    try:
        return run_isolated(
            f"{__name__}:{classify_task.__name__}",
            framing.joined(framing.packed(options), axioms.packed(), encoded),
            reasoner.isolation(java),
            progress=progress,
            cancelled=cancelled,
            account=account,
        )
    except TooCostly as error:
        if error.limit not in ("wall", "cpu"):
            raise
        raise TooCostly(
            f"to classify it takes longer than {reasoner.seconds:,.0f} seconds, and was stopped: raise the limit, or "
            "load it with reason=none or reason=rdfs",
            error.limit,
        ) from error


def classify_task(payload: bytes, progress: Progress) -> bytes:
    """In the child: options, axioms, encoded records → encoded records."""
    told, packed, encoded = framing.parted(payload)
    del payload
    axioms = Axioms.unpacked(packed)
    progress("reason", 0, None)
    findings = run_hermit(axioms, **framing.unpacked(told))
    progress("encode", 0, None)
    return encode(with_findings(decode(encoded), findings, axioms))
