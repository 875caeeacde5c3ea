"""Tables of docs/benchmarks.md whose columns are what one point says, and the slopes of curves.

    <!-- records full_scan: scan_us = the scan, µs; y = times -->  …  <!-- end -->    a row a point
    <!-- slopes growth -->  …  <!-- end -->    a row a curve: how y grows with x, as a power

A row of records is named by its panel, if there are several, its series and its x.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.results import Results

__all__ = ["records", "slope"]

MARKED = re.compile(r"(<!-- records ([a-z0-9_]+): ([^>]*?) -->\n).*?(<!-- end -->)", re.S)
SLOPES = re.compile(r"(<!-- slopes ([a-z0-9_]+) -->\n).*?(<!-- end -->)", re.S)


def records(text: str, folder: Path) -> str:
    """`text` with these tables written anew from the results in `folder`; a table without results is empty."""

    def written(found: re.Match[str], rows: str) -> str:
        return f"{found[1]}{rows}{found[found.re.groups]}"

    def of_records(found: re.Match[str]) -> str:
        path = folder / f"{found[2]}.json"
        return written(found, _records(Results.read(path), found[3]) if path.exists() else "")

    def of_slopes(found: re.Match[str]) -> str:
        path = folder / f"{found[2]}.json"
        return written(found, _slopes(Results.read(path)) if path.exists() else "")

    return SLOPES.sub(of_slopes, MARKED.sub(of_records, text))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the logarithms, by least squares: 1 where y grows as x."""
    x, y = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def _records(results: Results, columns: str) -> str:
    names, heads = zip(*(column.strip().split(" = ") for column in columns.split(";")), strict=True)
    points = [point for point in results.points if any(name in point for name in names if name != "y")]
    several = len({point["panel"] for point in points}) > 1
    rows = []
    for point in points:
        cells = " | ".join(_cell(point.get(name)) for name in names)
        rows.append(f"| {_name(point, several)} | {cells} |\n")
    return f"| | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}\n{''.join(rows)}{_told(results)}"


def _slopes(results: Results) -> str:
    rows = []
    for panel in results.panels():
        for name, points in results.series(panel).items():
            curve = sorted((float(each["x"]), float(each["y"])) for each in points)
            if len(curve) > 1:
                ends = f"{int(curve[0][0]):,} to {int(curve[-1][0]):,}"
                rows.append(f"| {', '.join(filter(None, (panel, name)))} | {ends} | {slope(curve):.2f} |\n")
    return f"| | from, to | slope |\n|---|---:|---:|\n{''.join(rows)}{_told(results)}"


def _name(point: dict[str, Any], with_panel: bool) -> str:
    x = f"{point['x']:,}" if isinstance(point["x"], int) else str(point["x"])
    return ", ".join(filter(None, (point["panel"] if with_panel else "", point["series"], x)))


def _cell(value: float | None) -> str:
    """Four digits at most, without an exponent."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _told(results: Results) -> str:
    about = results.about
    on = f"{about['machine']['cores']} shared cores, {about['machine']['memory_gib']} GB"
    return f"\n*`{about['command']}`, {about['date']}, {on}.*\n"
