"""`python -m tests.benchmarks [NAME …] [--quick | --full]`: runs experiments, keeps results, draws figures."""

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tests.benchmarks.harness.catalogue import experiment, names
from tests.benchmarks.harness.experiment import Scale
from tests.benchmarks.harness.plots import draw
from tests.benchmarks.harness.running import missing, run
from tests.benchmarks.harness.tables import rewrite

FIGURES = Path("docs/benchmarks")
"""The tables of the page of this name beside it are written anew after each experiment."""
AT_PAPER_SIZE = Path("docs/benchmarks-full")
"""The same for full runs."""
TRIED = Path("build/benchmarks")
"""Where quick runs go: their figures are no results."""
SPEED_OVER = 600.0
"""Seconds whose points say how long the others will take: they differ much."""


def main() -> int:
    """Runs what is asked for; returns 1 where an experiment failed, after the others."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    options.add_argument("experiments", nargs="*", metavar="NAME", help="all, where none is named")
    options.add_argument("--quick", action="store_true", help=f"small sizes, into {TRIED}")
    options.add_argument("--full", action="store_true", help=f"the sizes of the papers, into {AT_PAPER_SIZE}; hours")
    options.add_argument("--out", type=Path, help=f"folder of results and figures (default {FIGURES})")
    options.add_argument("--fresh", action="store_true", help="measure again what is there")
    options.add_argument("--minutes", type=float, help="begin no further point after so many; another run goes on")
    options.add_argument("--list", action="store_true", help="tell the names and end")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the point that runs ends as well
    console = Console(stderr=True)
    if given.list:
        for name in names():
            console.print(f"{name:28} {experiment(name).TITLE}")
        return 0
    unknown = sorted(set(given.experiments) - set(names()))
    if unknown:
        options.error(f"no experiment {', '.join(unknown)}; there are {', '.join(names())}")
    scale: Scale = "quick" if given.quick else "full" if given.full else "default"
    out = given.out or {"quick": TRIED, "default": FIGURES, "full": AT_PAPER_SIZE}[scale]
    until = float("inf") if given.minutes is None else time.monotonic() + 60 * given.minutes
    asked = given.experiments or names()
    if given.fresh:
        for name in asked:
            (out / "results" / f"{name}.json").unlink(missing_ok=True)
    left = {name: len(missing(experiment(name), scale, out)) for name in asked}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    failed = []
    with Progress(*columns, console=console, speed_estimate_period=SPEED_OVER) as bar:
        shown = bar.add_task("", total=sum(left.values()))
        for name in asked:
            began = time.monotonic()
            if not _one(name, scale, out, until, console, bar, shown):
                failed.append(name)
            if left[name]:
                console.print(f"{name}: {time.monotonic() - began:.0f} s, {out / name}.svg", highlight=False)
            if time.monotonic() >= until:
                break
    return 1 if failed else 0


def _one(name: str, scale: Scale, out: Path, until: float, console: Console, bar: Progress, shown: TaskID) -> bool:
    subject = experiment(name)
    try:
        results = run(
            subject,
            scale,
            out,
            until=until,
            begun=lambda task: bar.update(
                shown, description=" ".join(filter(None, (name, task.panel, task.series, str(task.x))))
            ),
            ended=lambda task: bar.advance(shown),
        )
        draw(results, subject.AXES, out / f"{name}.svg")
        if out in (FIGURES, AT_PAPER_SIZE):
            rewrite(out.with_suffix(".md"))
    except (RuntimeError, ImportError) as trouble:
        console.print(f"[red]{name}[/red]: {trouble}", highlight=False)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
