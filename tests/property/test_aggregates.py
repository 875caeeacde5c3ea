"""Aggregates of attributes of every declared kind compare as the oracle says (rule 26): exhaustively, not by chance."""

from typing import Any

import pytest

from kindcast import Event, InvalidSubscription, Matcher
from kindcast.semantic.language import parse_text
from tests.oracle import World, holds
from tests.oracle.world import Declaration
from tests.strategies import vocabulary_of

DECLARED = {
    "free": None,
    "instants": Declaration(kind="instant"),
    "masses": Declaration(kind="number", unit="kg"),
    "versions": Declaration(kind="version"),
    "addresses": Declaration(kind="ip"),
    "texts": Declaration(kind="text"),
}
VALUES: list[Any] = [
    [5, 10], [1e16], 1347840002, [1347840002, 1347840001000], ["5 kg", "10 kg"], ["5", "10"],
    ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"], "2026-01-01", ["1.2.3", "1.10"], [True, False], "2026",
    ["PT2H", "PT3H"], ["10.0.0.1"],
]  # fmt: skip
CONSTANTS = [
    "10", "15", "5 kg", "2026-01-15T00:00:00Z", "2026-01", '"5"', '"1.3"', "1347840001500", "PT1H", '"2026"', "x",
    "sum(x)", "max(y)",
]  # fmt: skip
BESIDE = {"x": [7, 3], "y": 1347840002}


@pytest.mark.parametrize("kind", DECLARED)
def test_aggregates_of_any_kind_compare_as_the_oracle_says(kind: str) -> None:
    declared = DECLARED[kind]
    world = World(declarations={"y": Declaration(kind="instant")} | ({} if declared is None else {"a": declared}))
    matcher = Matcher(vocabulary_of(world))
    asked = {}
    for function in ("sum", "min", "max", "count"):
        for constant in CONSTANTS:
            for order in ("<", ">=", "="):
                for text in (f"{function}(a) {order} {constant}", f"not {function}(a) {order} {constant}"):
                    try:
                        matcher.add(text, text)
                    except InvalidSubscription:
                        continue
                    asked[text] = parse_text(text)
    assert len(asked) > 150
    for value in VALUES:
        event = Event({"a": value, **BESIDE})
        expected = {text for text, expression in asked.items() if holds(expression, event, world)}
        assert {each.subscription for each in matcher.match(event)} == expected
