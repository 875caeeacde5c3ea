"""Classification by a reasoner for OWL 2 DL (`reason="owl"`), in a child process.

    records, axioms ──▶ child: hermit.classify_task ──▶ records with inferred pairs

The jar of the reasoner is part of the package owlready2. owlready2 itself is not used, because it starts the reasoner
without a time limit and keeps a second copy of the document. The task of the child has a module of its own, because it
needs a parser of RDF, which a server must not import at its start.
"""

import importlib.util
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kindcast.semantic.errors import ReasonerUnavailable, TooCostly
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology.isolation import Cost, Isolation, run_isolated
from kindcast.semantic.ontology.records import Ontology, Progress, decode, encode

if TYPE_CHECKING:
    from kindcast.semantic.ontology.reasoning.hermit import Axioms

__all__ = ["Reasoner", "available", "classified", "classified_encoded", "find_java", "hermit_classpath"]

TASK: Final = "kindcast.semantic.ontology.reasoning.hermit:classify_task"


def find_java(java: str | None = None) -> str:
    """Returns the full path of a Java runtime: `java` (a path, or a name on PATH) if given, else the one in JAVA_HOME,
    else `java` on PATH.

    Raises ReasonerUnavailable if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    wanted = [java] if java else [*([os.path.join(home, "bin", "java")] if home else []), "java"]
    for each in wanted:
        found = shutil.which(each)
        if found:
            return os.path.realpath(found)
    looked = f"at {java}" if java else "on PATH nor under JAVA_HOME"
    raise ReasonerUnavailable(
        f"reason=owl needs a Java runtime, version 8 or later, but there is none {looked}: install one (on Debian: "
        "apt-get install default-jre-headless) or set JAVA_HOME; reason=none and reason=rdfs need none"
    )


def hermit_classpath() -> str:
    """Returns the class path of HermiT in the folder of owlready2, without an import of owlready2. Raises
    ReasonerUnavailable."""
    found = importlib.util.find_spec("owlready2")
    folder = Path(found.origin).parent / "hermit" if found and found.origin else None
    if folder is None or not (folder / "HermiT.jar").is_file():
        raise ReasonerUnavailable("reason=owl needs HermiT, which is part of the package owlready2: install owlready2")
    return os.pathsep.join((str(folder), str(folder / "HermiT.jar")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoner:
    """The Java runtime of the reasoner, and its limits of Java heap and time. The cost of reasoning, unlike that of all
    other steps, cannot be predicted from the size of a document."""

    java: str | None = None
    heap_bytes: int = 2 << 30
    seconds: float = 300.0

    def isolation(self, java: str) -> Isolation:
        """Returns the isolation of the child: it may start only `java`, open files only in its folder, and use memory
        for the Java heap and the code of Java."""
        return Isolation(
            memory=self.heap_bytes + (3 << 30),  # address space; Java and its libraries take 1 GiB besides the heap
            cpu_seconds=2 * self.seconds,  # a JVM has one or two threads besides the one that reasons
            wall_seconds=self.seconds,
            open_files=256,
            file_bytes=1 << 30,
            programs=(java,),
            folder=True,
        )


def available(reasoner: Reasoner | None = None) -> None:
    """Raises ReasonerUnavailable if there is no Java or no HermiT."""
    find_java((reasoner or Reasoner()).java)
    hermit_classpath()


def classified(
    ontology: Ontology,
    axioms: "Axioms",
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
) -> Ontology:
    """Returns `ontology` with the findings of a reasoner about its `axioms`. Blocks. Any thread may call it.

    Raises OntologyError if the document is inconsistent or not OWL 2 DL; TooCostly for a limit; ReasonerUnavailable.
    """
    return decode(
        classified_encoded(encode(ontology), axioms, reasoner=reasoner, progress=progress, cancelled=cancelled)
    )


def classified_encoded(
    encoded: bytes,
    axioms: "Axioms",
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """Does the same as `classified`, from encoded records to encoded records. `account` gets the cost of the child."""
    reasoner = reasoner or Reasoner()
    java = find_java(reasoner.java)
    options = {"java": java, "classpath": hermit_classpath(), "heap": reasoner.heap_bytes}
    try:
        return run_isolated(
            TASK,
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
            f"classifying the ontology takes longer than {reasoner.seconds:,.0f} seconds and was stopped: raise the "
            "limit, or load the ontology with reason=none or reason=rdfs",
            error.limit,
        ) from error
