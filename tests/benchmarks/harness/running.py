"""An experiment from its tasks to its results: points that are there already are not measured again."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.harness.experiment import Experiment, Scale, Task
from tests.benchmarks.harness.limits import SECONDS_AN_EVENT, BeyondLimit, measured_apart
from tests.benchmarks.harness.machine import machine, today
from tests.benchmarks.harness.results import Results

__all__ = ["missing", "run"]

SECONDS: dict[Scale, float] = {"quick": 30, "default": 240, "full": 1_800}
"""What one point may take, with drawing the workload and filling the engine. By default the longest, a matcher with a
million subscriptions, take some 100."""


Heard = Callable[[Task], None]


def missing(experiment: Experiment, scale: Scale, out: Path) -> list[Task]:
    """What `run` would measure, but for curves that stop before their end."""
    results = _begun(experiment, scale, _path(experiment, out))
    return [task for task in experiment.tasks(scale) if not results.has(task) and not results.ended(task)]


def run(
    experiment: Experiment,
    scale: Scale,
    out: Path,
    *,
    until: float = float("inf"),
    begun: Heard = lambda task: None,
    ended: Heard = lambda task: None,
) -> Results:
    """Measures what is missing in `out/results/NAME.json`, and writes it after every point; begins no point at or after
    `until`, by `time.monotonic`. Raises `RuntimeError` where a point fails, or series disagree about the matches."""
    path = _path(experiment, out)
    results = _begun(experiment, scale, path)
    for task in missing(experiment, scale, out):
        if time.monotonic() >= until:
            break
        begun(task)
        if not results.ended(task):
            _measure(experiment.NAME, task, SECONDS[scale], results)
            results.write(path)
        ended(task)
    if results.disagreements():
        raise RuntimeError(f"{experiment.NAME}: matches differ: {'; '.join(results.disagreements())}")
    return results


def _measure(name: str, task: Task, seconds: float, results: Results) -> None:
    """One point, or why its curve ends here."""
    began = time.monotonic()
    try:
        found = measured_apart(name, task.arguments, seconds=seconds)
    except BeyondLimit as limit:
        results.stop(task, str(limit))
        return
    results.keep(task, found | {"took_seconds": round(time.monotonic() - began, 1)})
    if found.get("seconds_an_event", 0.0) > SECONDS_AN_EVENT:
        results.stop(task, f"{SECONDS_AN_EVENT:.0f} s an event")


def _path(experiment: Experiment, out: Path) -> Path:
    return out / "results" / f"{experiment.NAME}.json"


def _begun(experiment: Experiment, scale: Scale, path: Path) -> Results:
    """What is there, if it was measured in the same way on the same kind of machine."""
    about = {
        "experiment": experiment.NAME,
        "title": experiment.TITLE,
        "paper": experiment.PAPER,
        "paper_shape": experiment.PAPER_SHAPE,
        "scale": scale,
        "seed": experiment.SEED,
        "command": f"python -m tests.benchmarks {experiment.NAME}" + ("" if scale == "default" else f" --{scale}"),
        "date": today(),
        "machine": machine(),
    }
    try:
        before = Results.read(path)
    except (FileNotFoundError, ValueError, KeyError):
        return Results(about)
    same = all(before.about.get(name) == about[name] for name in ("scale", "seed", "machine"))
    return before if same else Results(about)
