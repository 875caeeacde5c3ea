"""`python -m tests.benchmarks.harness.tables`: writes the tables of docs/benchmarks.md from the results beside it.

    <!-- table dexin_widths -->  …  <!-- end -->            the one panel of an experiment
    <!-- table dexin_zipf: Figure 7 -->  …  <!-- end -->    the panel whose name begins so

A row is a series, a column a value of x. A cell is y with three digits; what stopped a curve stands where it stopped.
"""

import re
import sys
from pathlib import Path

from tests.benchmarks.harness.factors import factors
from tests.benchmarks.harness.fastest import fastest
from tests.benchmarks.harness.figures import figures
from tests.benchmarks.harness.records import records
from tests.benchmarks.harness.results import Results

__all__ = ["cell_of", "refreshed", "rewrite", "table"]

PAGE = Path("docs/benchmarks.md")
MARKED = re.compile(r"(<!-- table ([a-z0-9_]+)(?:: ([^>]*?))? -->\n).*?(<!-- end -->)", re.S)


def refreshed(text: str, results: Path) -> str:
    """`text` with every table written anew, and the figures that are there; a table without results is empty."""

    def written(found: re.Match[str]) -> str:
        path = results / f"{found[2]}.json"
        if not path.exists():
            return f"{found[1]}{found[4]}"
        return f"{found[1]}{table(Results.read(path), found[3] or '')}{found[4]}"

    return factors(records(fastest(figures(MARKED.sub(written, text), results.parent), results), results), results)


def table(results: Results, begins: str) -> str:
    """The first panel whose name begins with `begins`, in Markdown, and when and where it was measured."""
    panel = next((name for name in results.panels() if name.startswith(begins)), "")
    series = results.series(panel)
    columns = sorted(
        {each["x"] for points in series.values() for each in points}, key=lambda x: (isinstance(x, str), x)
    )
    head = f"| | {' | '.join(map(_x, columns))} |\n|---|{'---:|' * len(columns)}\n"
    rows = []
    for name, points in series.items():
        cells = {each["x"]: cell_of(each["y"]) for each in points}
        for each in results.stopped:
            if (each["panel"], each["series"]) == (panel, name) and each["x"] not in cells:
                cells[each["x"]] = f"({each['why']})"
        rows.append(f"| {name} | {' | '.join(cells.get(x, '') for x in columns)} |\n")
    about = results.about
    told = f"{about['date']}, {about['machine']['cores']} shared cores, {about['machine']['memory_gib']} GB"
    return f"{head}{''.join(rows)}\n*`{about['command']}`, {told}.*\n"


def _x(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell_of(value: float) -> str:
    """Three digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def rewrite(page: Path) -> None:
    """Writes the tables of `page` anew in one step, from the folder `results` beside it."""
    text = refreshed(page.read_text(encoding="utf-8"), page.with_suffix("") / "results")
    beside = page.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(page)


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE)
