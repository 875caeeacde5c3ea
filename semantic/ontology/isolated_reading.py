"""Reading of ontology documents in a child process. A hostile document can cause no more than an error.

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
    """Reads the document `data` in a child process within `isolation`, and returns the same records as `read`.

    Blocks. Any number of threads may call it at the same time. Cost: the reading, and the start of a child (tenths of
    a second).

    Raises the errors of `read`; TooCostly for a limit of `isolation` or a crash; Cancelled; RuntimeError if no child
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
    """Does the same as `read_isolated`, but returns the records encoded for `decode`, the form in which they are
    stored."""
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
    """The task of the child: from (options, document) to encoded records. With `reason="owl"` the result also has the
    axioms for a reasoner, which runs in another child. This child may not start Java, and the other one does not get
    the document."""
    told, document = framing.parted(payload)
    options = framing.unpacked(told)
    options["limits"] = Limits(**options["limits"])
    del payload
    ontology, axioms = read_with_axioms(document, progress=progress, **options)
    progress("encode", 0, None)
    encoded = encode(ontology)
    return encoded if axioms is None else framing.joined(encoded, axioms.packed())
