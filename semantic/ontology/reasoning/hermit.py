"""HermiT, a reasoner for OWL 2 DL: running it, parsing its output, and adding its findings to the records.

All of this happens in a child process, which `owl` starts with `classify_task` as its task.

A finding is new if it does not follow from the stated pairs by walking upwards. A class that can have no member is
listed, and its stated position does not change. An inconsistent document is rejected. HermiT is sound and complete, and
slow in the worst case (Glimm, Horrocks, Motik, Stoilos, Wang: HermiT: An OWL 2 Reasoner, J. Autom. Reasoning 53, 2014).
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kindcast.semantic.errors import InconsistentOntology, OntologyError, ReasonerUnavailable, TooCostly
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology.extraction import Known, Pairs
from kindcast.semantic.ontology.reasoning.axioms import Axioms
from kindcast.semantic.ontology.records import ConceptRecord, Ontology, Progress, decode, encode

__all__ = ["classify_task", "run_hermit"]

THING: Final = "http://www.w3.org/2002/07/owl#Thing"
NOTHING: Final = "http://www.w3.org/2002/07/owl#Nothing"
ANSWER_BYTES = 1 << 29
"""The maximum size of HermiT's output, which has about a hundred bytes per pair."""

_ACTIONS = ("--classify", "--classifyIs", "--ignoreUnsupportedDatatypes")
_LINE = re.compile(r"^(SubClassOf|EquivalentClasses|Type)\( (.*) \)$")
_TERM = re.compile(r"<([^<>]*)>")
_JAVA_ERROR = re.compile(r"^(?:Exception in thread \"main\" )?(?:\w+\.)+(\w*(?:Exception|Error))(?::[ ]?(.*))?$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of HermiT, with the names of the document. `pairs` are the direct pairs (class, superclass), `types`
    the direct pairs (individual, class), `groups` the groups of equivalent classes, and `unsatisfiable` the classes
    that can have no member. `owl:Thing` does not occur. A class that is equivalent to it is above all others."""

    pairs: list[tuple[str, str]]
    types: list[tuple[str, str]]
    groups: list[tuple[str, ...]]
    unsatisfiable: list[str]


def run_hermit(axioms: Axioms, *, java: str, classpath: str, heap: int) -> Findings:
    """Runs HermiT on `axioms` with at most `heap` bytes of Java heap, and returns its findings. Blocks. The caller must
    limit the time.

    Raises OntologyError if the ontology is inconsistent or not OWL 2 DL; TooCostly if the heap is too small, the
    expressions are nested too deeply or the output is too large; ReasonerUnavailable if Java does not start.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        document, answer, complaint = (os.path.join(folder, name) for name in ("axioms.nt", "answer", "complaint"))
        Path(document).write_bytes(axioms.triples)
        command = [java, *_options(heap, folder), "-cp", classpath, "org.semanticweb.HermiT.cli.CommandLine"]
        command += [*_ACTIONS, f"file://{document}"]
        with open(answer, "wb") as out, open(complaint, "wb") as err:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
                close_fds=False,
                env=_environment(),
            ).returncode
        if status:
            with open(complaint, encoding="utf-8", errors="replace") as file:
                raise _error(status, axioms.spelt_out(file.read(1 << 16)), heap)
        if os.path.getsize(answer) > ANSWER_BYTES:
            raise TooCostly(f"the reasoner finds more than {ANSWER_BYTES >> 20} MiB of pairs", "memory")
        with open(answer, encoding="ascii", errors="replace") as lines:
            return _understood(lines, axioms)


def _options(heap: int, folder: str) -> Iterator[str]:
    yield f"-Xmx{heap >> 20}m"
    yield "-Xss16m"  # HermiT visits nested expressions by recursion
    yield "-XX:+UseSerialGC"  # one thread is enough; other collectors reserve memory for each core
    yield "-XX:MaxMetaspaceSize=128m"
    yield "-XX:CompressedClassSpaceSize=64m"
    yield "-XX:ReservedCodeCacheSize=64m"
    yield "-XX:-UsePerfData"  # no file outside the scratch folder
    yield "-XX:+ExitOnOutOfMemoryError"
    yield f"-XX:ErrorFile={folder}/crash"
    yield f"-Djava.io.tmpdir={folder}"
    yield "-Djava.awt.headless=true"
    yield "-Dfile.encoding=UTF-8"


def _environment() -> dict[str, str]:
    """Returns the environment of Java. It has no Java options. It has few malloc arenas, each of which reserves 64 MiB
    of address space."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"MALLOC_ARENA_MAX": "2"}


def _understood(lines: Iterable[str], axioms: Axioms) -> Findings:
    found = Findings(pairs=[], types=[], groups=[], unsatisfiable=[])
    everything: list[str] = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        kind, terms = match[1], _TERM.findall(match[2])
        names = [name for name in map(axioms.named, terms) if name is not None]
        if kind == "EquivalentClasses":
            if NOTHING in terms:
                found.unsatisfiable.extend(names)
            elif len(names) > 1:
                found.groups.append(tuple(names))
            if THING in terms:
                everything = names
        elif len(names) == 2:  # not owl:Thing, not an individual without a name
            (found.pairs if kind == "SubClassOf" else found.types).append((names[0], names[1]))
    if everything:  # HermiT does not report every class as a subclass of owl:Thing
        placed = {low for low, _ in found.pairs}.union(everything, found.unsatisfiable)
        found.pairs.extend((each, everything[0]) for each in axioms.names[: axioms.classes] if each not in placed)
    return found


def _error(status: int, said: str, heap: int) -> OntologyError:
    """Returns the error for a HermiT that failed, from its exit status and its standard error."""
    match = _JAVA_ERROR.search(said)
    kind, detail = (match[1], (match[2] or "").strip()) if match else ("", said.strip()[:500])
    if kind == "InconsistentOntologyException":
        return InconsistentOntology(
            "the ontology is inconsistent: its axioms contradict each other, for example by an individual in two "
            "disjoint classes"
        )
    if "OutOfMemoryError" in said or "OutOfMemoryError" in kind or status == 3:
        return TooCostly(
            f"classifying the ontology takes more than {heap >> 20:,} MiB of Java heap and was stopped", "memory"
        )
    if kind == "StackOverflowError":
        return TooCostly("its class expressions are nested too deeply to be classified", "crash")
    if "Could not reserve enough space" in said or "Could not create the Java Virtual Machine" in said:
        return ReasonerUnavailable(f"Java could not be started for reason=owl: {said.strip()[:500]}")
    told = f"{kind}: {detail}" if kind else detail or f"it ended with status {status}"
    return OntologyError(f"the ontology cannot be classified: HermiT reports {told}")


# Findings of a reasoner are added to the records of a document. Only new ones are added, and marked as inferred.

SHOWN = 3  # names that a warning shows; the records have all


def with_findings(ontology: Ontology, findings: Findings, axioms: Axioms) -> Ontology:
    """Returns `ontology` with the pairs of `findings` that do not follow from its own pairs, and with its unsatisfiable
    classes.

    The first of equivalent names in sorted order represents all of them, whichever name the reasoner uses. So the same
    axioms in another order give the same records. Cost: a walk upwards for each name that the reasoner puts below
    another name.
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
    """Returns the pairs of equivalent names that `known` does not imply."""
    news: Pairs = set()
    for group in findings.groups:
        first, *others = sorted(name for name in group if name not in hopeless)
        above = known.above(first)
        news.update((first, each) for each in others if each not in above or first not in known.above(each))
    return news


def _concepts(ontology: Ontology, pairs: Pairs, members: Pairs) -> tuple[ConceptRecord, ...]:
    """Returns the records of `ontology`, and one for each name that is a concept only by reasoning: a class that the
    document only uses in restrictions, or an individual without a stated class."""
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
        warnings.append(f"unsatisfiable classes, which can have no members: {', '.join(hopeless[:SHOWN])}{more}")
    if axioms.malformed:
        warnings.append(f"{axioms.malformed} values are invalid for their datatype and are left out of the reasoning")
    if axioms.unsupported:
        warnings.append(
            f"the reasoner does not support values of {', '.join(axioms.unsupported[:SHOWN])}; axioms with them are "
            f"left out"
        )
    return warnings


def classify_task(payload: bytes, progress: Progress) -> bytes:
    """The task of the child: from (options, axioms, encoded records) to encoded records with the findings."""
    told, packed, encoded = framing.parted(payload)
    del payload
    axioms = Axioms.unpacked(packed)
    progress("reason", 0, None)
    findings = run_hermit(axioms, **framing.unpacked(told))
    progress("encode", 0, None)
    return encode(with_findings(decode(encoded), findings, axioms))
