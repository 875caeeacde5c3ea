"""What is told of plans and chains."""

import pytest

from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.explanations import explain_chains, explain_plan
from kindcast.semantic.planner.strategies import PLANNERS


@operator("locIn", cost=0.01, selectivity=0.1)
def loc_in(event: object, region: str) -> bool:
    """Where it is."""
    return region in event["area"]  # type: ignore[index]


@operator("mob", cost=0.5, selectivity=0.5, binds=(int,))
def mob(event: object) -> object:
    """How many people."""
    return event["people"]  # type: ignore[index]


@pytest.fixture(params=sorted(PLANNERS))
def matcher(request: pytest.FixtureRequest) -> Matcher:
    """Three subscriptions, two of which share a call."""
    found = Matcher(Vocabulary.from_ontologies([]), planner=request.param, operators=[loc_in, mob])
    found.add("crowd", 'mob(?n) and ?n > 5 and locIn("Bronx")')
    found.add("bronx", 'locIn("Bronx") and not mob()')
    found.add("cheap", "price < 5")
    return found


def test_explain_plan_tells_calls_order_reason_and_what_was_saved(matcher: Matcher) -> None:
    """Outside the Bronx one call settles both subscriptions; they would have asked three or four."""
    told = explain_plan(matcher, {"area": "Queens", "people": 7, "price": 1})
    assert (told["planner"], told["candidates"], told["alone"]) == (matcher.planner_name, 2, 4)
    assert told["saved"] == told["alone"] - told["evaluations"]
    assert told["evaluations"] == len(told["asked"])
    last = told["asked"][-1]
    assert sum(each["settled"] for each in told["asked"]) == 2
    assert "undecided" in last["why"] or "clause" in last["why"]
    if matcher.planner_name in ("greedy", "sub_order"):
        (only,) = told["asked"]
        assert (only["call"], only["holds"], only["popularity"], only["work"]) == ("locIn('Bronx')", False, 2, 4)
        assert told["expected_seconds"] == pytest.approx(0.01)
        assert told["saved"] == 3


def test_explain_chains_tells_calls_from_the_top_their_sharing_and_cost(matcher: Matcher) -> None:
    """In the order of the planner: the cheap call that seldom holds stands above, and one time in ten the other is
    asked; those that weigh nothing go by what was written."""
    (chain,) = explain_chains(matcher, "crowd")
    weighs = matcher.planner_name in ("greedy", "sub_order")
    order = ["locIn('Bronx')", "mob(?1)"] if weighs else ["mob(?1)", "locIn('Bronx')"]
    assert [each["call"] for each in chain["calls"]] == order
    assert [each["shared_with"] for each in chain["calls"]] == ([1, 0] if weighs else [0, 1])
    assert chain["expected_seconds"] == pytest.approx(0.01 + 0.1 * 0.5 if weighs else 0.5 + 0.5 * 0.01)
    assert chain["chance"] == pytest.approx(0.05)
    (other,) = explain_chains(matcher, "bronx")
    assert [each["wanted"] for each in other["calls"]] == [True, False]
    assert explain_chains(matcher, "cheap") == []
