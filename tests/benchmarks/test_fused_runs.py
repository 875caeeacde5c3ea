"""What is measured of `fused` in awkward states is what it says: so many segments, and the same matches."""

import pytest

from tests.benchmarks.experiments.complications import NEWEST, SEGMENTS, measure
from tests.benchmarks.experiments.growth import EQUALITIES
from tests.benchmarks.experiments.growth import measure as growth
from tests.benchmarks.harness.fused_runs import event_batches, filled, held_off, tree_of
from tests.benchmarks.workload_papers import draw


@pytest.mark.parametrize("case", [*SEGMENTS, NEWEST])
def test_complications_that_change_no_match_find_as_many(case: str) -> None:
    """A state that lost rows would look fast."""
    found = measure(work="W3", case=case, n=1_500)
    assert found["its_matches"] == found["plain_matches"] > 0


def test_filled_in_parts_has_so_many_segments_where_merges_are_held_off() -> None:
    """Were they merged, the cost of several segments would be measured as none."""
    drawing = draw("W3", subscriptions=2_000, events=10)
    engine = filled(drawing, tree_of(drawing), run=held_off, parts=4)
    event = event_batches(drawing)[0].lowered()[0]
    assert len(engine.explain(event)["segments"]) == 4
    assert len(engine) == 2_000


def test_growth_holds_the_number_of_matches() -> None:
    """A slope means nothing where more subscriptions match more."""
    few, many = (growth(kind=EQUALITIES, n=n)["matches_an_event"] for n in (1_000, 10_000))
    assert 0.8 < few / many < 1.25
