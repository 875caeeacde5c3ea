"""Reading and uploading of ontologies with a bar that moves: what takes long says how far it is.

check   file ──read_isolated──▶ ontology        the child process tells its stages
load    file ──PUT, respond-async──▶ job ──asked again and again──▶ load report
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.cli import output
from server.client import Client, ProblemError

if TYPE_CHECKING:
    from semantic.ontology import Ontology, Reason
    from semantic.ontology.progress import Progress

__all__ = ["read_with_progress", "upload_with_progress"]

OWN_FILES: dict[str, Any] = {"memory": 16 << 30, "cpu_seconds": 3_600, "wall_seconds": 3_600}
"""Of one's own files one may expect more patience than of a stranger's upload."""

FIRST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5

STAGES = {
    "wait": "waits for its turn",
    "unpack": "is unpacked",
    "parse": "triples read",
    "extract": "is made sense of",
    "reason": "is reasoned about",
    "encode": "is handed over",
    "decode": "is handed over",
    "build": "becomes part of the vocabulary",
    "compile": "subscriptions are compiled again",
}


def read_with_progress(path: Path, *, format: str | None, reason: "Reason", relations: Sequence[str]) -> "Ontology":
    """The records of a file, read in a child process. Raises what `read_isolated` raises."""
    from semantic.ontology import Isolation, read_isolated

    with _bar(path.name) as progress:
        return read_isolated(
            path.read_bytes(),
            format=format,
            name=path.stem,
            reason=reason,
            relations=relations,
            isolation=Isolation(**OWN_FILES),
            progress=progress,
        )


def upload_with_progress(client: Client, name: str, path: Path, **options: Any) -> dict[str, Any]:
    """The load report of an upload; `options` are those of `Client.start_ontology`. Raises ProblemError."""
    with _bar(path.name) as progress:
        job = client.start_ontology(name, path.read_bytes(), **options)
        pause = FIRST_WAIT_SECONDS
        while job["status"] == "running":
            told = job["progress"]
            progress(str(told["stage"]), int(told["done"]), told["total"])
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT_SECONDS)
            job = client.job(job["id"])
    if job["status"] == "failed":
        raise ProblemError.of(job["problem"])
    report: dict[str, Any] = job["result"]
    return report


@contextmanager
def _bar(name: str) -> Iterator["Progress"]:
    """A bar on the terminal, and how to move it."""
    with output.progress() as bar:
        task = bar.add_task(name, total=None)

        def move(stage: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{name}: {STAGES.get(stage, stage)}", completed=done, total=total)

        yield move
