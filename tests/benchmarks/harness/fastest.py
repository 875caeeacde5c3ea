"""The table of docs/benchmarks.md that holds `fused` against the fastest other engine, on each paper's own workload.

    <!-- fastest -->  …  <!-- end -->

Only engines count, not scans and baselines. A workload without results says so in its row.
"""

import re
from pathlib import Path

from kindcast.index.registry import ENGINES
from tests.benchmarks.harness.results import Results

__all__ = ["WORKLOADS", "fastest"]

WORKLOADS = (
    ("DEXIN, Figure 2", "dexin_subscriptions", "Figure 2", None),
    ("CTPS, Figure 8 (c)", "ctps_time", "height 5", 10_000),
    ("Le Subscribe, Figure 9", "le_subscribe", "Figure 9", None),
    ("Aguilera et al., section 5", "aguilera_expected_time", "", 25_000),
)
"""Paper, experiment, how the panel's name begins, subscriptions; None: the most that `fused` and another had."""
MARKED = re.compile(r"(<!-- fastest -->\n).*?(<!-- end -->)", re.S)
HEAD = (
    "| workload | subscriptions | `fused`, µs an event | the fastest other engine, µs an event | `fused` is |\n"
    "|---|---:|---:|---|---|\n"
)


def fastest(text: str, results: Path) -> str:
    """`text` with the table written anew from the files in `results`."""
    rows = "".join(_row(results, *workload) for workload in WORKLOADS)
    return MARKED.sub(lambda found: f"{found[1]}{HEAD}{rows}{found[2]}", text)


def _row(results: Path, paper: str, experiment: str, begins: str, size: int | None) -> str:
    missing = f"| {paper} | | | | not measured yet |\n"
    path = results / f"{experiment}.json"
    if not path.exists():
        return missing
    found = Results.read(path)
    panel = next((name for name in found.panels() if name.startswith(begins)), None)
    times: dict[str, dict[float, float]] = {
        name: {each["x"]: each["y"] for each in points}
        for name, points in found.series(panel or "").items()
        if name in ENGINES
    }
    own = times.pop("fused", {})
    shared = [x for x in own if any(x in points for points in times.values()) and size in (None, x)]
    if not shared:
        return missing
    at = max(shared)
    other, least = min(((name, points[at]) for name, points in times.items() if at in points), key=lambda one: one[1])
    ratio = least / own[at]
    told = f"{ratio:.2g} times faster" if ratio >= 1 else f"{1 / ratio:.2g} times slower"
    return f"| {paper} | {at:,} | {own[at]:.3g} | `{other}` {least:.3g} | {told} |\n"
