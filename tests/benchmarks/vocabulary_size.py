"""A hierarchy as large as asked for: what reading it and building a vocabulary of it take.

Concepts with two labels each, 12 % of them with two parents, depth 40, as Turtle, from a seed. Reading and building run
in a process each, as in a server, and each reports its own peak of memory.

    python -m tests.benchmarks.vocabulary_size [CONCEPTS]        JSON; a million by default, some two minutes
"""

import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kindcast import Vocabulary
from kindcast.semantic.ontology import read
from kindcast.semantic.ontology.records import decode, encode

__all__ = ["hierarchy", "main"]

DEPTH = 40
SEVERAL_PARENTS = 0.12
ASKED = 2_000


def hierarchy(concepts: int, seed: int = 1) -> bytes:
    """Turtle. The first concepts are one chain of `DEPTH` steps, so that the depth is reached at every size."""
    chance = random.Random(seed)
    depth = [0] * concepts
    lines = [
        "@prefix : <http://example.org/kinds/> .\n"
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
    ]
    for number in range(concepts):
        parents: list[int] = []
        if 0 < number <= DEPTH:
            parents = [number - 1]
        elif number:
            wanted = 2 if chance.random() < SEVERAL_PARENTS else 1
            while len(parents) < wanted:
                parent = chance.randrange(number)
                if depth[parent] < DEPTH and parent not in parents:
                    parents.append(parent)
        depth[number] = 1 + max((depth[parent] for parent in parents), default=-1)
        above = f" ; rdfs:subClassOf {', '.join(f':C{parent}' for parent in parents)}" if parents else ""
        labels = f'"kind number {number}"@en, "Art Nummer {number}"@de'
        lines.append(f":C{number} a owl:Class ; rdfs:label {labels}{above} .\n")
    return "".join(lines).encode()


def _reading(document: Path, records: Path) -> dict[str, Any]:
    began = time.perf_counter()
    ontology = read(document.read_bytes(), format="turtle")
    took = time.perf_counter() - began
    records.write_bytes(encode(ontology))
    return {"read_seconds": round(took, 1), "read_peak_mib": _peak()}


def _building(records: Path) -> dict[str, Any]:
    data = records.read_bytes()
    began = time.perf_counter()
    ontology = decode(data)
    decoded = time.perf_counter()
    vocabulary = Vocabulary.from_ontologies([ontology])
    built = time.perf_counter()
    vocabulary.index_labels()
    indexed = time.perf_counter()
    chance = random.Random(2)
    concepts = [
        vocabulary.concept(f"http://example.org/kinds/C{chance.randrange(len(vocabulary))}") for _ in range(ASKED)
    ]
    graph = vocabulary.graph
    graph.ancestors(next(each for each in concepts if each is not None))  # compiled
    asked = [each for each in dict.fromkeys(concepts) if each is not None]
    began_asking = time.perf_counter()
    above = [len(graph.ancestors(concept)) for concept in asked]
    first = (time.perf_counter() - began_asking) / len(asked)
    began_asking = time.perf_counter()
    for number in range(ASKED):
        vocabulary.resolve(f"kind number {number * 7}")
    resolving = (time.perf_counter() - began_asking) / ASKED
    return {
        "concepts": len(vocabulary),
        "max_depth": vocabulary.report["max_depth"],
        "multi_parent": vocabulary.report["multi_parent"],
        "decode_seconds": round(decoded - began, 1),
        "build_seconds": round(built - decoded, 1),
        "index_labels_seconds": round(indexed - built, 1),
        "build_peak_mib": _peak(),
        "ancestors_mean": round(sum(above) / len(above), 1),
        "ancestors_first_microseconds": round(1e6 * first, 1),
        "resolve_microseconds": round(1e6 * resolving, 1),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(arguments: list[str]) -> None:
    """Write the document, read it in one process, build in another; print what both took."""
    if arguments[:1] == ["reading"]:
        sys.stdout.write(json.dumps(_reading(Path(arguments[1]), Path(arguments[2]))))
        return
    if arguments[:1] == ["building"]:
        sys.stdout.write(json.dumps(_building(Path(arguments[1]))))
        return
    concepts = int(arguments[0]) if arguments else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        document, records = Path(folder, "kinds.ttl"), Path(folder, "records")
        document.write_bytes(hierarchy(concepts))
        measured: dict[str, Any] = {"python": platform.python_version(), "document_mib": document.stat().st_size >> 20}
        for step in (["reading", str(document), str(records)], ["building", str(records)]):
            command = [sys.executable, "-m", "tests.benchmarks.vocabulary_size", *step]
            measured |= json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
