"""Reports of a job: its progress and its result as JSON lines on standard output, and its errors.

{"stage": "match", "done": 3, "total": 40, …}      from time to time
{"note": "…"}                                      what a user should know before the end
{"result": {…}}   or   {"problem": "…"}            as the last line

JobFailed              the job cannot be completed
├── NoJava             there is no Java 17 or newer
├── NoArchive          there is nothing to read at the given place
├── UnusableSnapshot   the snapshot of a matcher is damaged, or of another version
└── UnusableOutput     the output folder holds something else, or cannot be written
"""

import json
import select
import sys
from collections.abc import Callable
from typing import Any

__all__ = [
    "JobFailed",
    "NoArchive",
    "NoJava",
    "Progress",
    "UnusableOutput",
    "UnusableSnapshot",
    "as_lines",
    "is_heard",
    "silent",
    "tell_note",
    "tell_problem",
    "tell_result",
]


Progress = Callable[[str, int, int | None], None]
"""A callback for a stage, the completed amount, and the total (None if unknown)."""


def silent(stage: str, done: int, total: int | None) -> None:
    """Reports nothing."""


def as_lines(stage: str, done: int, total: int | None) -> None:
    """Reports as a JSON line on standard output."""
    _tell({"stage": stage, "done": done, "total": total})


def tell_note(detail: str) -> None:
    """Reports what a user should know while the job goes on."""
    _tell({"note": detail})


def tell_result(result: dict[str, Any]) -> None:
    """Writes the last line of a job that succeeded."""
    _tell({"result": result})


def tell_problem(detail: str) -> None:
    """Writes the last line of a job that failed."""
    _tell({"problem": detail})


def is_heard() -> bool:
    """Whether somebody reads what is reported: no if standard output is a pipe whose reader has ended."""
    output = select.poll()
    output.register(1, 0)
    return not output.poll(0)


def _tell(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobFailed(Exception):
    """The job failed. The message says what to do instead."""


class NoJava(JobFailed):
    """Spark needs a Java runtime."""


class NoArchive(JobFailed):
    """There is nothing to read."""


class UnusableSnapshot(JobFailed):
    """The snapshot cannot be opened."""


class UnusableOutput(JobFailed):
    """The output folder cannot be used."""
