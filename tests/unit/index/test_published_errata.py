"""What the papers on Le Subscribe and the matching tree get wrong in print, one regression test each.

By the numbers of our list: 20, 21 and 22 are of Le Subscribe, 23, 24 and 25 of the matching tree; those of DEXIN are in
`test_dexin_errata.py`. Every engine that follows one of the papers is asked, with its structure built from the first
clause on. Where print says something that can be run, it is here as well, and shown to be wrong on the same case.
"""

import math
from collections import Counter
from functools import partial
from itertools import product

import pytest

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, KeyTest, LoweredEvent, Predicate, Test
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.published.matching_tree import MatchingTreeEngine, annotate, plant
from kindcast.index.registry import ENGINES
from tests.benchmarks.experiments.aguilera_bound import bound, visited

A, B = AttributeId(0), AttributeId(1)
NUMBER, TEXT, OTHER_TEXT = ColumnId(0), ColumnId(1), ColumnId(2)


@pytest.fixture(params=["counting", "dexin", "equality", "matching_tree", "quarantine"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An empty engine of a paper."""
    eager = {"dexin": {"slot_rows": 1}, "matching_tree": {"fewest_fresh": 0}}.get(request.param, {})
    found: Engine = partial(ENGINES[request.param], **eager)(ConceptGraph(0))
    return found


def asking(*tests: tuple[AttributeId, ColumnId, Test], negated: bool = False) -> Clause:
    """A clause with one predicate for each test."""
    predicates = tuple(Predicate(attribute, ((column, test),), negated) for attribute, column, test in tests)
    return Clause(predicates, frozenset(attribute for attribute, _, _ in tests))


def between(low: float, high: float, *, negated: bool = False) -> Clause:
    return asking((A, NUMBER, IntervalTest(low, high)), negated=negated)


def numbers(*values: float) -> LoweredEvent:
    return LoweredEvent(frozenset({A}), {NUMBER: values})


def matched(engine: Engine, event: LoweredEvent) -> list[int]:
    found: list[int] = engine.match(event).tolist()
    return found


def texts(**values: str) -> LoweredEvent:
    """An event with texts for `a` and `b`."""
    places = {"a": (A, TEXT), "b": (B, OTHER_TEXT)}
    present = frozenset(places[name][0] for name in values)
    return LoweredEvent(present, {places[name][1]: (value,) for name, value in values.items()})


def equal(**values: str) -> Clause:
    places = {"a": (A, TEXT), "b": (B, OTHER_TEXT)}
    return asking(*((*places[name], KeyTest(frozenset({value}))) for name, value in values.items()))


def test_optional_attribute_of_another_clause_is_not_asked_for(engine: Engine) -> None:
    """Erratum 20: an attribute that a clause does not mention may be absent, and may be there. Rule R2 as printed would
    ask every event for every attribute of the schema."""
    row = engine.add(equal(b="x"))
    engine.add(between(0.0, 1.0))
    event = texts(b="x")
    assert matched(engine, event) == [row]
    assert not event.present >= {A, B}  # what R2 as printed asks for
    both = LoweredEvent(frozenset({A, B}), {**event.values, NUMBER: (7.0,)})
    assert matched(engine, both) == [row]


def test_one_sided_bounds_hold_on_their_own_side(engine: Engine) -> None:
    """Erratum 21: `a <= c` holds for the suffix of all c not below the value, `a >= c` for the prefix of all c not
    above it; `lesspredmatch` as printed takes the other side. Strict bounds stop before the value."""
    at_most = [engine.add(between(-math.inf, float(bound))) for bound in (1, 2, 3)]
    at_least = [engine.add(between(float(bound), math.inf)) for bound in (1, 2, 3)]
    above = engine.add(between(math.nextafter(2.0, math.inf), math.inf))
    below = engine.add(between(-math.inf, math.nextafter(2.0, -math.inf)))
    assert matched(engine, numbers(2.0)) == [*at_most[1:], *at_least[:2]]
    assert matched(engine, numbers(2.5)) == [at_most[2], *at_least[:2], above]
    assert matched(engine, numbers(1.5)) == [*at_most[1:], at_least[0], below]
    printed = [row for row, bound in zip(at_most, (1, 2, 3), strict=True) if bound <= 2]
    assert printed != at_most[1:]


def test_counts_start_from_zero_and_two_values_count_once(engine: Engine) -> None:
    """Erratum 22: an event leaves nothing behind, and two values that satisfy one predicate do not stand for two. A
    count that goes on, or counts values, reaches two on events that satisfy one predicate of two."""
    both = engine.add(asking((A, NUMBER, IntervalTest(1.0, math.inf)), (B, TEXT, KeyTest(frozenset({"x"})))))
    printed: Counter[int] = Counter()
    for _ in range(3):
        assert matched(engine, numbers(5.0, 6.0)) == []
        printed[both] += sum(value >= 1.0 for value in (5.0, 6.0))
    assert printed[both] > 2
    event = LoweredEvent(frozenset({A, B}), {NUMBER: (5.0, 6.0), TEXT: ("x", "y")})
    assert [matched(engine, event) for _ in range(2)] == [[both], [both]]


def test_two_bounds_are_not_met_by_two_values(engine: Engine) -> None:
    """Rule 6: one and the same value lies between them."""
    engine.add(between(10.0, 20.0))
    assert matched(engine, numbers(5.0, 25.0)) == []


@pytest.mark.parametrize(("values", "attributes"), [(2, 3), (3, 3), (2, 5)])
def test_expected_visits_stay_below_the_bound_as_le_subscribe_quotes_it(values: int, attributes: int) -> None:
    """Erratum 23: the formula is lost in the paper's own text, so the bound is the quoted one, and nothing tighter is
    asked for. The tree of all subscriptions there can be is the worst one; the events are all there can be."""
    choices = product((None, *range(values)), repeat=attributes)
    paths = [tuple((axis, value) for axis, value in enumerate(each) if value is not None) for each in choices]
    root = plant(list(enumerate(paths)), [False] * attributes)
    events = list(product(range(values), repeat=attributes))
    mean = sum(visited(root, event) for event in events) / len(events)
    assert mean <= bound(values, attributes, len(paths))
    assert mean >= 2**attributes  # such a tree sends every event down both edges of each level


def test_blocked_search_goes_on_where_several_edges_are_replaced() -> None:
    """Erratum 24: behind the run a, b the only other path does not care about either. Replacing one edge finds nothing;
    and it can be reached by way of both, but its rows come once."""
    engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
    third = AttributeId(2), ColumnId(3)
    wanted = KeyTest(frozenset({"c"}))
    engine.add(Clause((*equal(a="a", b="b").predicates, asking((*third, KeyTest(frozenset({"z"})))).predicates[0])))
    neither = engine.add(asking((*third, wanted)))
    values = {**texts(a="a", b="b").values, third[1]: ("c",)}
    event = LoweredEvent(frozenset({A, B, third[0]}), values)
    assert matched(engine, event) == [neither]
    for clause in (equal(a="a"), equal(b="b")):
        engine.add(Clause((*clause.predicates, *asking((*third, wanted)).predicates)))
    assert matched(engine, event) == [neither, 2, 3]
    root = plant([(0, ((0, "a"), (1, "b"), (2, "z"))), (1, ((2, "c"),))], [False] * 3)
    assert annotate(root)
    blocked = root.edges["a"].edges["b"]
    assert [sorted(map(str, node.edges)) for node in blocked.successors] == [["c"]]


def test_several_values_follow_all_their_subtrees_and_removal_reaches_every_copy() -> None:
    """Erratum 25: behind an index attribute, what does not care about it stands in every subtree. It is found once, and
    once removed it is found in none."""
    engine = MatchingTreeEngine(ConceptGraph(0), fewest_fresh=0)
    switched = engine.add_many([equal(a=f"v{number % 3}") for number in range(60)])
    copied = engine.add(equal(b="x"))
    values = {TEXT: ("v0", "v1", "v2"), OTHER_TEXT: ("x",)}
    event = LoweredEvent(frozenset({A, B}), values)
    assert matched(engine, event) == [*switched, copied]
    engine.remove(copied)
    assert matched(engine, event) == switched
    for value in range(3):
        single = LoweredEvent(frozenset({A, B}), {TEXT: (f"v{value}",), OTHER_TEXT: ("x",)})
        assert matched(engine, single) == switched[value::3]
