"""Spark jobs in a child process: this module never imports `spark_jobs`, so it can report that Spark is missing. The
progress lines of the job become a progress bar.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from kindcast.server.cli import output
from kindcast.server.cli.problems import CommandFailed

__all__ = ["run_job"]

SHOWN = 2_000
"""Of the last words of a job that failed without saying why."""
WRONG_USE = 2

STAGES = {
    "compile": "compiling subscriptions",
    "start": "starting Spark",
    "number": "counting lines",
    "join": "joining shards",
    "terms": "adding up terms",
}


def run_job(arguments: Sequence[str]) -> dict[str, Any]:
    """The result of `python -m kindcast.spark_jobs …`. An interrupt is passed on, and waited for. Raises
    CommandFailed."""
    with tempfile.TemporaryFile() as errors:  # Java talks much; it is shown where the job says nothing itself
        child = subprocess.Popen(
            [sys.executable, "-m", "kindcast.spark_jobs", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        result, problem = _watched(child)
        status = child.wait()
        if result is None:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
            if status == WRONG_USE:
                sys.stderr.write(said)
                raise SystemExit(WRONG_USE)
            raise CommandFailed(
                problem or f"the job ended without a result or an error message. Its last output:\n{said[-SHOWN:]}"
            )
    return result


def _watched(child: "subprocess.Popen[str]") -> tuple[dict[str, Any] | None, str]:
    """The result that the job reports at its end; the bar moves until then."""
    result: dict[str, Any] | None = None
    problem = ""
    assert child.stdout is not None
    with output.progress() as bar, child.stdout as lines:
        task = bar.add_task("starting", total=None)
        while True:
            try:
                line = lines.readline()
            except KeyboardInterrupt:
                child.send_signal(signal.SIGINT)
                continue
            if not line:
                break
            said = json.loads(line)
            if "stage" in said:
                told = STAGES.get(said["stage"], said["stage"])
                bar.update(task, description=told, completed=said["done"], total=said["total"])
            result = said.get("result", result)
            problem = said.get("problem", problem)
    return result, problem
