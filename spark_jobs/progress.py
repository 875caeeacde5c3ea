"""Progress reports: lines of JSON on standard output, for the process that started the job.

{"stage": "match", "done": 3, "total": 40, …}      now and then
{"result": {…}}   or   {"problem": "…"}            last
"""

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Progress", "as_lines", "silent", "tell_problem", "tell_result"]

Progress = Callable[[str, int, int | None], None]
"""Called with a stage, how much is done, and the total (None: unknown)."""


def silent(stage: str, done: int, total: int | None) -> None:
    """Reports nothing."""


def as_lines(stage: str, done: int, total: int | None) -> None:
    """Reports on standard output."""
    _tell({"stage": stage, "done": done, "total": total})


def tell_result(result: dict[str, Any]) -> None:
    """The last line of a job that succeeded."""
    _tell({"result": result})


def tell_problem(detail: str) -> None:
    """The last line of a job that failed."""
    _tell({"problem": detail})


def _tell(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
