"""S1 to S5 of the paper on overlapping subscriptions, section 2.1, in our language, with every planner."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kindcast import Matcher, Operator, Vocabulary
from kindcast.semantic.model import Quantity
from kindcast.semantic.planner.strategies import PLANNERS

SUBSCRIPTIONS = {
    "S1": 'locIn("Bronx") and chasePattern("policeCar", "anyCar")',
    "S2": 'locIn("Bronx") and mobPattern(?people) and ?people > 50',
    "S3": 'locWithin("TimesSquare", 5000 m) and trafficPattern("congestion") and pedestrianCount(?ped) and ?ped > 250',
    "S4": 'locIn("Bronx") and trafficPattern("congestion") and trafficPattern("accident") and policeCarCount(?pol) '
    "and ?pol < 2",
    "S5": 'distanceFrom("StatueOfLiberty", ?x) and ?x < 1 km and tourBoatCount(?y) and coastGuardBoatCount(?z) '
    "and ?y > 2*?z",
}
CALLS: list[str] = []
RECOGNISERS = ("chasePattern", "mobPattern", "policeCarCount")  # they take longer than a look at the map


def demo(name: str, function: Callable[..., Any]) -> Operator:
    """An operator that notes each call."""

    def called(event: Any, *given: Any) -> Any:
        CALLS.append(name + str(given))
        if name in RECOGNISERS:
            time.sleep(0.02)  # far longer than a busy machine holds up the others
        return function(event, *given)

    return Operator(name=name, function=called)


OPERATORS = (
    demo("locIn", lambda event, region: region in event["area"]),
    demo("chasePattern", lambda event, who, whom: (who, whom) == ("policeCar", "anyCar") and True in event["chase"]),
    demo("mobPattern", lambda event: event["people"]),
    demo("locWithin", lambda event, place, distance: distance == Quantity(5000, "m") and place in event["near"]),
    demo("trafficPattern", lambda event, pattern: pattern in event["traffic"]),
    demo("pedestrianCount", lambda event: event["pedestrians"]),
    demo("policeCarCount", lambda event: event["police"]),
    demo("distanceFrom", lambda event, place: [Quantity(metres, "m") for metres in event["distance"]]),
    demo("tourBoatCount", lambda event: event["boats"]),
    demo("coastGuardBoatCount", lambda event: event["guards"]),
)
CITY = {
    "area": "Bronx",
    "people": [60, 40, 70],
    "near": "TimesSquare",
    "traffic": ["congestion", "accident"],
    "pedestrians": 300,
    "police": 1,
    "distance": [900, 1500],
    "boats": [5, 9],
    "guards": [2, 4],
}


@pytest.fixture(params=sorted(PLANNERS))
def matcher(request: pytest.FixtureRequest) -> Matcher:
    """The five subscriptions, under one planner."""
    found = Matcher(Vocabulary.from_ontologies([]), planner=request.param, operators=OPERATORS)
    for name, text in SUBSCRIPTIONS.items():
        found.add(name, text)
    CALLS.clear()
    return found


def test_paper_subscriptions_match_with_their_bindings(matcher: Matcher) -> None:
    """Bindings are joined, those that the value constraints refuse are gone, and units are understood."""
    found = {match.subscription: [dict(row) for row in match.bindings] for match in matcher.match(CITY)}
    near = Quantity(900, "m")
    assert found == {
        "S2": [{"people": 60}, {"people": 70}],
        "S3": [{"ped": 300}],
        "S4": [{"pol": 1}],
        "S5": [{"x": near, "y": 5, "z": 2}, {"x": near, "y": 9, "z": 2}, {"x": near, "y": 9, "z": 4}],
    }


def test_paper_subscriptions_share_calls(matcher: Matcher) -> None:
    """Each call is made at most once an event, whoever needs it; outside the Bronx nobody pays for what is in it."""
    matcher.match(CITY)
    assert len(CALLS) == len(set(CALLS))
    CALLS.clear()
    for _ in range(30):  # every planner but the baselines learns that locIn decides
        matcher.match({"area": "Queens"})
    CALLS.clear()
    assert matcher.match({"area": "Queens"}) == []
    assert len(CALLS) == len(set(CALLS))
    assert not any(each.startswith(RECOGNISERS) for each in CALLS) or (matcher.planner_name == "sequential")


def test_paper_subscriptions_removed_are_not_asked_about(matcher: Matcher) -> None:
    """What nobody subscribes to any more costs nothing."""
    for name in ("S1", "S2", "S4"):
        matcher.remove(name)
    matcher.match(CITY)
    assert not any(each.startswith("locIn(") for each in CALLS)
    matcher.check_invariants()
