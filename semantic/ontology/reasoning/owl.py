"""`reason="owl"`: classification by a reasoner of OWL 2 DL, in a process of its own.

    records, axioms ──▶ child: HermiT ──▶ what is news ──▶ records with inferred pairs

News is what does not follow from the stated pairs by walking upwards. Classes that can have no member are listed and
stay where they are stated: that everything is above them helps nobody. An inconsistent document is refused.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from semantic.errors import TooCostly
from semantic.ontology import framing
from semantic.ontology.encoding import decode, encode
from semantic.ontology.isolation import Cost, Isolation, run_isolated
from semantic.ontology.progress import Progress
from semantic.ontology.reasoning.axioms import Axioms
from semantic.ontology.reasoning.findings import with_findings
from semantic.ontology.reasoning.hermit import find_java, hermit_classpath, run_hermit
from semantic.ontology.records import Ontology

__all__ = ["Reasoner", "available", "classified", "classified_encoded", "classify_task"]


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
