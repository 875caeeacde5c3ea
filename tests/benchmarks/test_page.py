"""docs/benchmarks.md says what the results beside it say, and a small experiment runs from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.harness.catalogue import names
from tests.benchmarks.harness.figures import figures
from tests.benchmarks.harness.records import MARKED as RECORDS
from tests.benchmarks.harness.records import SLOPES, records, slope
from tests.benchmarks.harness.results import Results
from tests.benchmarks.harness.tables import MARKED, cell_of, refreshed


@pytest.fixture(params=["benchmarks", "benchmarks-full"])
def page(request: pytest.FixtureRequest, repository: Path) -> Path:
    """The page of the default sizes, and that of the papers' own."""
    return repository / f"docs/{request.param}.md"


def test_the_page_names_only_experiments_that_there_are(page: Path) -> None:
    """A table whose experiment was renamed would stay as it is for ever."""
    named = {found[1] for found in MARKED.findall(page.read_text(encoding="utf-8"))}
    assert named, "the page has no tables"
    assert named <= set(names())


def test_every_number_of_the_page_is_in_the_results(page: Path) -> None:
    """No cell of a table is anything but a point that was measured; points that came later may be missing."""
    invented = []
    for found in MARKED.finditer(page.read_text(encoding="utf-8")):
        rows = [line.split("|")[2:-1] for line in found[0].splitlines() if line.startswith("|")][2:]
        cells = {cell.strip() for row in rows for cell in row} - {""}
        if cells:
            results = Results.read(page.with_suffix("") / "results" / f"{found[2]}.json")
            known = {cell_of(each["y"]) for each in results.points} | {f"({each['why']})" for each in results.stopped}
            invented += [f"{found[2]}: {cell}" for cell in sorted(cells - known)]
    assert invented == []


def test_a_number_changed_by_hand_is_put_right(tmp_path: Path) -> None:
    """Cells come from the results, and a figure is shown when it is drawn."""
    about = {"date": "2026-01-01", "machine": {"cores": 2, "memory_gib": 24}, "command": "none"}
    point = {"panel": "", "series": "fused", "x": 10, "y": 2.5}
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "some_name.json").write_text(
        json.dumps({"about": about, "points": [point], "stopped": []}), encoding="utf-8"
    )
    text = "<!-- table some_name -->\n| fused | 1.1 |\n<!-- end -->\n<!-- figure some_name: times -->\n<!-- end -->\n"
    told = refreshed(text, results)
    assert "| fused | 2.5 |" in told
    assert "1.1" not in told
    assert "svg" not in told
    (tmp_path / "benchmarks" / "some_name.svg").touch()
    assert "![times](benchmarks/some_name.svg)" in figures(told, tmp_path / "benchmarks")


def test_quick_run_leaves_results_and_a_figure(tmp_path: Path) -> None:
    """The command as a user gives it, a child process for each point."""
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-m", "tests.benchmarks", "aguilera_bound", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "results/aguilera_bound.json").read_text(encoding="utf-8"))
    assert kept["points"]
    assert kept["about"]["machine"].keys() >= {"cores", "memory_gib"}
    assert (tmp_path / "aguilera_bound.svg").stat().st_size > 1000


def test_every_number_of_records_and_slopes_follows_from_the_results(page: Path) -> None:
    """A row is one point, or the slope of one curve; rows that came later may be missing."""
    text = page.read_text(encoding="utf-8")
    anew = {line for line in records(text, page.with_suffix("") / "results").splitlines() if line.startswith("|")}
    shown = [found[0] for marked in (RECORDS, SLOPES) for found in marked.finditer(text)]
    assert [line for table in shown for line in table.splitlines() if line.startswith("|") and line not in anew] == []


def test_slope_of_a_power_is_its_exponent() -> None:
    """The line is through the logarithms."""
    assert slope([(10.0, 3.0), (100.0, 30.0), (1_000.0, 300.0)]) == pytest.approx(1.0)
    assert slope([(10.0, 5.0), (1_000.0, 50.0)]) == pytest.approx(0.5)
