"""Tables of docs/benchmarks.md that divide one series by another, point by point.

    <!-- factors operators_evaluations: naive / sequential; greedy / sub_order -->  …  <!-- end -->

A row is a panel and an x; a cell is empty where one of the two was not measured.
"""

import re
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.results import Results

__all__ = ["factors"]

MARKED = re.compile(r"(<!-- factors ([a-z0-9_]+): ([^>]*?) -->\n).*?(<!-- end -->)", re.S)


def factors(text: str, folder: Path) -> str:
    """`text` with these tables written anew from the results in `folder`; a table without results is empty."""

    def written(found: re.Match[str]) -> str:
        path = folder / f"{found[2]}.json"
        return f"{found[1]}{_table(Results.read(path), found[3]) if path.exists() else ''}{found[4]}"

    return MARKED.sub(written, text)


def _table(results: Results, asked: str) -> str:
    columns = [tuple(part.strip() for part in each.split("/")) for each in asked.split(";")]
    points: dict[tuple[str, Any], dict[str, float]] = {}
    for each in results.points:
        points.setdefault((each["panel"], each["x"]), {})[each["series"]] = each["y"]
    rows = []
    for (panel, x), y in points.items():
        cells = " | ".join(f"{y[over] / y[under]:.2f}" if {over, under} <= y.keys() else "" for over, under in columns)
        rows.append(f"| {panel}, {x:,} | {cells} |\n")
    heads = " | ".join(f"{over} / {under}" for over, under in columns)
    about = results.about
    told = f"{about['date']}, {about['machine']['cores']} shared cores, {about['machine']['memory_gib']} GB"
    return f"| | {heads} |\n|---|{'---:|' * len(columns)}\n{''.join(rows)}\n*`{about['command']}`, {told}.*\n"
