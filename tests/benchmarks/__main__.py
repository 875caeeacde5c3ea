"""`python -m tests.benchmarks [NAME …] [--quick | --full]`: runs experiments, keeps results, draws figures."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmarks.harness.catalogue import experiment, names
from tests.benchmarks.harness.experiment import Scale
from tests.benchmarks.harness.plots import draw
from tests.benchmarks.harness.running import run
from tests.benchmarks.harness.tables import rewrite

FIGURES = Path("docs/benchmarks")
PAGE = FIGURES.with_suffix(".md")
"""Its tables are written anew after each experiment."""
TRIED = Path("build/benchmarks")
"""Where quick runs go: their figures are no results."""


def main() -> int:
    """Runs what is asked for; returns 1 where an experiment failed, after the others."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    options.add_argument("experiments", nargs="*", metavar="NAME", help="all, where none is named")
    options.add_argument("--quick", action="store_true", help=f"small sizes, into {TRIED}")
    options.add_argument("--full", action="store_true", help="the sizes of the papers; hours")
    options.add_argument("--out", type=Path, help=f"folder of results and figures (default {FIGURES})")
    options.add_argument("--fresh", action="store_true", help="measure again what is there")
    options.add_argument("--list", action="store_true", help="tell the names and end")
    given = options.parse_args()
    console = Console(stderr=True)
    if given.list:
        for name in names():
            console.print(f"{name:28} {experiment(name).TITLE}")
        return 0
    unknown = sorted(set(given.experiments) - set(names()))
    if unknown:
        options.error(f"no experiment {', '.join(unknown)}; there are {', '.join(names())}")
    scale: Scale = "quick" if given.quick else "full" if given.full else "default"
    out = given.out or (TRIED if scale == "quick" else FIGURES)
    failed = [name for name in given.experiments or names() if not _one(name, scale, out, given.fresh, console)]
    return 1 if failed else 0


def _one(name: str, scale: Scale, out: Path, fresh: bool, console: Console) -> bool:
    subject = experiment(name)
    if fresh:
        (out / "results" / f"{name}.json").unlink(missing_ok=True)
    columns = (
        TextColumn(f"{name:24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bar:
        shown = bar.add_task("", total=len(subject.tasks(scale)))
        try:
            results = run(
                subject,
                scale,
                out,
                begun=lambda task: bar.update(
                    shown, description=" ".join(filter(None, (task.panel, task.series, str(task.x))))
                ),
                ended=lambda task: bar.advance(shown),
            )
            draw(results, subject.AXES, out / f"{name}.svg")
            if out == FIGURES:
                rewrite(PAGE)
        except (RuntimeError, ImportError) as trouble:
            console.print(f"[red]{name}[/red]: {trouble}", highlight=False)
            return False
        bar.update(shown, description=str(out / f"{name}.svg"))
    return True


if __name__ == "__main__":
    sys.exit(main())
