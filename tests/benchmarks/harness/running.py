"""An experiment from its tasks to its results: points that are there already are not measured again."""

from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.harness.experiment import Experiment, Scale, Task
from tests.benchmarks.harness.limits import SECONDS_AN_EVENT, BeyondLimit, measured_apart
from tests.benchmarks.harness.machine import machine, today
from tests.benchmarks.harness.results import Results

__all__ = ["run"]

SECONDS: dict[Scale, float] = {"quick": 30, "default": 120, "full": 1_800}
"""What one point may take, with drawing the workload and filling the engine."""


Heard = Callable[[Task], None]


def run(
    experiment: Experiment,
    scale: Scale,
    out: Path,
    *,
    begun: Heard = lambda task: None,
    ended: Heard = lambda task: None,
) -> Results:
    """Measures what is missing in `out/results/NAME.json`, and writes it after every point. Raises `RuntimeError` where
    a point fails, or series disagree about the matches."""
    path = out / "results" / f"{experiment.NAME}.json"
    results = _begun(experiment, scale, path)
    for task in experiment.tasks(scale):
        begun(task)
        if not results.has(task) and not results.ended(task):
            _measure(experiment.NAME, task, SECONDS[scale], results)
            results.write(path)
        ended(task)
    if results.disagreements():
        raise RuntimeError(f"{experiment.NAME}: matches differ: {'; '.join(results.disagreements())}")
    return results


def _measure(name: str, task: Task, seconds: float, results: Results) -> None:
    """One point, or why its curve ends here."""
    try:
        found = measured_apart(name, task.arguments, seconds=seconds)
    except BeyondLimit as limit:
        results.stop(task, str(limit))
        return
    results.keep(task, found)
    if found.get("seconds_an_event", 0.0) > SECONDS_AN_EVENT:
        results.stop(task, f"{SECONDS_AN_EVENT:.0f} s an event")


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
