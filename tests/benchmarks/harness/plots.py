"""Results as pictures, by matplotlib: a panel a plot, a curve a series, a cross where an engine stopped."""

from pathlib import Path
from typing import Any

from tests.benchmarks.harness.experiment import Axes
from tests.benchmarks.harness.results import Results

__all__ = ["draw"]

WIDTH, HEIGHT = 5.6, 4.2
"""Inches of one panel."""
COLUMNS = 2
"""Panels beside each other."""
COLOURS = {"fused": "#c2185b", "ctps": "#1565c0", "dexin": "#2e7d32", "naive": "#616161"}
"""The same engine has the same colour in every figure; others take the next of a cycle."""


def draw(results: Results, axes: Axes, path: Path) -> None:
    """Writes an SVG. Raises `ImportError` with what to install where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError as missing:
        raise ImportError("plots need matplotlib: pip install -e '.[bench]'") from missing
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = results.about["experiment"]  # the same picture from the same results
    from matplotlib import pyplot

    panels = results.panels() or [""]
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, places = pyplot.subplots(rows, columns, figsize=(WIDTH * columns, HEIGHT * rows), squeeze=False)
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    for place, panel in zip(places.flat, panels, strict=False):
        (_bars if axes.bars else _curves)(place, results, panel, axes)
        place.set_title(panel or results.about["title"], fontsize=10)
        place.set_ylabel(axes.y)
        if axes.log_y:
            place.set_yscale("log")
        place.grid(alpha=0.25, which="both" if axes.log_y else "major")
        place.legend(fontsize=7)
    if any(panels):
        figure.suptitle(results.about["title"])
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _curves(place: Any, results: Results, panel: str, axes: Axes) -> None:
    for name, points in results.series(panel).items():
        points = sorted(points, key=lambda each: each["x"])
        x, y = [each["x"] for each in points], [each["y"] for each in points]
        (line,) = place.plot(x, y, marker="o", markersize=3.5, linewidth=1.3, label=name, color=COLOURS.get(name))
        for each in results.stopped:
            if (each["panel"], each["series"]) == (panel, name):
                place.plot(x[-1:], y[-1:], marker="X", markersize=9, color=line.get_color(), linestyle="none")
                place.annotate(each["why"], (x[-1], y[-1]), fontsize=6, textcoords="offset points", xytext=(5, 5))
    place.set_xlabel(axes.x)
    if axes.log_x:
        place.set_xscale("log")


def _bars(place: Any, results: Results, panel: str, axes: Axes) -> None:
    series = results.series(panel)
    places = list(dict.fromkeys(each["x"] for points in series.values() for each in points))
    width = 0.8 / max(len(series), 1)
    for number, (name, points) in enumerate(series.items()):
        x = [places.index(each["x"]) + number * width for each in points]
        place.bar(x, [each["y"] for each in points], width, label=name, color=COLOURS.get(name))
    middle = 0.4 - width / 2
    place.set_xticks([number + middle for number in range(len(places))], places, rotation=20, fontsize=8)
    place.set_xlabel(axes.x)
