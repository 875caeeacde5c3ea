"""`read`, in a child process: the same records from the same document, and nothing worse than an error from any other.

read_isolated ──options, document──▶ child: read → encode ──bytes──▶ decode ──▶ Ontology
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology.isolation import Cost, Isolation, run_isolated
from kindcast.semantic.ontology.loader import read_with_axioms
from kindcast.semantic.ontology.reasoning.axioms import Axioms
from kindcast.semantic.ontology.reasoning.owl import Reasoner, available, classified_encoded
from kindcast.semantic.ontology.records import Limits, Ontology, Progress, Reason, decode, encode

__all__ = ["read_encoded", "read_isolated", "read_task"]


def read_isolated(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    reasoner: Reasoner | None = None,
    isolation: Isolation | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> Ontology:
    """The records of the document `data`, as `read` gives them, read in a child process within `isolation`.

    Blocks; any thread, several at a time. Costs the start of a child (tenths of a second) beside the reading.

    Raises what `read` raises; TooCostly for a limit of `isolation` or a crash; Cancelled; RuntimeError where no child
    can be started.
    """
    encoded = read_encoded(
        data,
        format=format,
        name=name,
        limits=limits,
        reason=reason,
        relations=relations,
        reasoner=reasoner,
        isolation=isolation,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )
    return decode(encoded)


def read_encoded(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    reasoner: Reasoner | None = None,
    isolation: Isolation | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """The same as bytes for `decode`, which is how they are stored."""
    options: dict[str, Any] = {"format": format, "name": name, "limits": asdict(limits or Limits())}
    options |= {"reason": reason} if reason != "none" else {}
    options |= {"relations": list(relations)} if relations else {}
    if reason == "owl":
        available(reasoner)  # before anything is read
    answer = run_isolated(
        f"{__name__}:{read_task.__name__}",
        framing.joined(framing.packed(options), data),
        isolation,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )
    if reason != "owl":
        return answer
    encoded, axioms = framing.parted(answer)
    return classified_encoded(
        encoded,
        Axioms.unpacked(axioms),
        reasoner=reasoner,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )


def read_task(payload: bytes, progress: Progress) -> bytes:
    """In the child: options and document → encoded records; with `reason="owl"` also the axioms that are left to a
    reasoner, for which there is another child: this one may not start Java, that one sees nothing of the document."""
    told, document = framing.parted(payload)
    options = framing.unpacked(told)
    options["limits"] = Limits(**options["limits"])
    del payload
    ontology, axioms = read_with_axioms(document, progress=progress, **options)
    progress("encode", 0, None)
    encoded = encode(ontology)
    return encoded if axioms is None else framing.joined(encoded, axioms.packed())
