"""The baselines find what the full scan finds; the workloads are what they say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.baselines.duckdb import DuckDb
from tests.benchmarks.baselines.full_scan import CompiledScan
from tests.benchmarks.baselines.ops_walk import OpsWalk
from tests.benchmarks.baselines.postgres import Postgres, PostgresServer, missing
from tests.benchmarks.baselines.rein import Rein
from tests.benchmarks.baselines.tama import Tama
from tests.benchmarks.workload_dexin import draw_dexin
from tests.benchmarks.workload_papers import Drawing, FullScan, draw

WORKS = ("W1", "W2", "W3")


def compare(drawing: Drawing, baseline: Any) -> None:
    """The same numbers for every event, and some."""
    scan = FullScan(drawing)
    expected = [scan.match(event).tolist() for event in drawing.values]
    assert any(expected)
    assert [baseline.match(event).tolist() for event in drawing.values] == expected


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("baseline", [CompiledScan, OpsWalk, Rein, Tama])
def test_baselines_find_what_the_full_scan_finds(work: str, baseline: Callable[[Drawing], Any]) -> None:
    """Over more subscriptions than a block, on numbers, on absent strings, and on concepts."""
    drawing = draw(work, subscriptions=5_000, events=20, seed=3)
    compare(drawing, baseline(drawing))


def test_tama_as_published_loses_nothing_and_finds_too_much() -> None:
    """It is approximate: an interval ends where its finest cell ends."""
    drawing = draw_dexin(subscriptions=3_000, events=50, attributes=2, seed=3)
    tama, scan = Tama(drawing), FullScan(drawing)
    extra = 0
    for event in drawing.values:
        found, expected = set(tama.candidates(event).tolist()), set(scan.match(event).tolist())
        assert expected <= found
        extra += len(found - expected)
    assert extra > 0


@pytest.mark.parametrize("work", WORKS)
def test_duckdb_finds_what_the_full_scan_finds(work: str) -> None:
    """By a query an event, and in one join."""
    pytest.importorskip("duckdb", reason="the extra `bench` is not installed")
    drawing = draw(work, subscriptions=2_000, events=20, seed=3)
    database, scan = DuckDb(drawing), FullScan(drawing)
    compare(drawing, database)
    assert database.join(drawing.values) == sum(len(scan.match(event)) for event in drawing.values)
    database.close()


@pytest.mark.slow
def test_postgres_finds_what_the_full_scan_finds() -> None:
    """By its indexes: B-trees over strings and concepts, ranges for numbers."""
    if missing():
        pytest.skip(missing())
    for work in WORKS:
        drawing = draw(work, subscriptions=2_000, events=20, seed=3)
        with PostgresServer() as server:
            database = Postgres(drawing, server)
            compare(drawing, database)
            database.close()
        assert not server.folder.exists()


@pytest.mark.parametrize("skewed", [False, True])
def test_dexin_workload_has_the_parameters_that_are_asked_for(skewed: bool) -> None:
    """Shares of points, widths, values; low values are crowded under Zipf's law; the same seed draws the same."""
    drawing = draw_dexin(subscriptions=4_000, events=50, attributes=3, width=0.5, points=0.3, skewed=skewed)
    width = drawing.high - drawing.low + 1
    assert abs(float((width == 1).mean()) - 0.3) < 0.02
    assert set(np.unique(width)) == {1, 5_000}
    assert drawing.low.min() >= 0
    assert drawing.high.max() < 10_000
    assert (float(np.median(drawing.low)) < 200) is skewed
    again = draw_dexin(subscriptions=4_000, events=50, attributes=3, width=0.5, points=0.3, skewed=skewed)
    assert np.array_equal(drawing.low, again.low)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.2])
def test_dexin_workload_matches_at_the_rate_that_is_asked_for(rate: float) -> None:
    """Each event is matched by the subscriptions that were made for it, and by no other."""
    drawing = draw_dexin(subscriptions=5_000, events=50, rate=rate)
    scan = FullScan(drawing)
    found = np.mean([len(scan.match(event)) for event in drawing.values]) / 5_000
    assert abs(float(found) - rate) < 0.2 * rate
