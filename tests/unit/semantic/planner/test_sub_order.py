"""Sub-Order in the product: the order of all chains is made beside the events, is used, and follows what is learned."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.planner.problem import Estimates, Literals, Undecided
from kindcast.semantic.planner.strategies import PLACED_SINGLY, Chains, Node, SubOrder, at_once, in_thread, order_chains
from tests.unit.semantic.planner.instances import evaluated

PREDICATES = 6
Literal = tuple[int, bool]


def filled(chains: dict[int, list[Literal]], holds: list[float], cost: list[float], **options: Any) -> SubOrder:
    """A strategy that knows these chains and estimates."""
    strategy = SubOrder(**options)
    for predicate, pair in enumerate(zip(holds, cost, strict=True)):
        strategy.learned(predicate, *pair)
    for chain, literals in chains.items():
        strategy.add(chain, *zip(*literals, strict=True))
    return strategy


def published(chains: dict[int, list[Literal]], holds: list[float], cost: list[float]) -> list[int]:
    """The names in the order of section 4.2.5 over all pairs, with these estimates."""
    nodes = [
        [Node(2 * p + (not want), holds[p] if want else 1 - holds[p], cost[p]) for p, want in literals]
        for literals in chains.values()
    ]
    names = list(chains)
    return [names[number] for number in order_chains(Chains.of(nodes)).tolist()]


def order(strategy: SubOrder, chains: dict[int, list[Literal]]) -> list[int]:
    """The names as the strategy evaluates them."""
    return sorted(chains, key=lambda name: strategy._linked.positions([name])[0])


def asked(strategy: SubOrder, chains: dict[int, list[Literal]], holds: list[float], cost: list[float]) -> list[int]:
    """The predicates asked for an event for which none holds as wanted but by chance of their number."""
    undecided = Undecided(Literals.of(list(chains.values())), PREDICATES)
    plan = strategy.plan(undecided, Estimates(np.array(holds), np.array(cost)), list(chains))
    return evaluated(plan, undecided, [number % 2 == 0 for number in range(PREDICATES)])


CHAINS: dict[int, list[Literal]] = {
    3: [(0, True), (2, True)],
    4: [(2, True), (4, True)],
    8: [(0, True), (4, False)],
    9: [(1, True), (2, True), (5, True)],
}
EVEN, DEAR = [0.5] * PREDICATES, [1.0, 2.0, 0.5, 4.0, 1.0, 3.0]


def test_sub_order_first_event_uses_the_published_order_of_all() -> None:
    """Not that of one insertion after the other."""
    strategy = filled(CHAINS, EVEN, DEAR, run=at_once)
    asked(strategy, CHAINS, EVEN, DEAR)
    assert strategy.orders == 1
    assert order(strategy, CHAINS) == published(CHAINS, EVEN, DEAR)
    strategy.check_invariants()


def test_sub_order_statistics_drift_orders_all_chains_anew() -> None:
    """Chains and their order are those of what is expected now; small changes leave them."""
    strategy = filled(CHAINS, EVEN, DEAR, run=at_once)
    asked(strategy, CHAINS, EVEN, DEAR)
    strategy._not_before = 0.0
    for predicate in range(PREDICATES):
        strategy.learned(predicate, 0.55, DEAR[predicate] * 1.2)
    asked(strategy, CHAINS, EVEN, DEAR)
    assert strategy.orders == 1
    holds, cost = [0.9, 0.02, 0.05, 0.5, 0.97, 0.3], [0.1, 5.0, 30.0, 1.0, 2.0, 0.01]
    for predicate in range(PREDICATES):
        strategy.learned(predicate, holds[predicate], cost[predicate])
    asked(strategy, CHAINS, holds, cost)
    assert strategy.orders == 2
    assert order(strategy, CHAINS) == published(CHAINS, holds, cost)
    assert order(strategy, CHAINS) != published(CHAINS, EVEN, DEAR)


def test_sub_order_waits_between_orders_as_long_as_they_take() -> None:
    """Whatever drifts, a core spends a twentieth on orders."""
    strategy = filled(CHAINS, EVEN, DEAR, run=at_once)
    asked(strategy, CHAINS, EVEN, DEAR)
    strategy._not_before = float("inf")
    for predicate in range(PREDICATES):
        strategy.learned(predicate, 0.01, 100.0)
    asked(strategy, CHAINS, EVEN, DEAR)
    assert strategy.orders == 1


def test_sub_order_background_order_is_used_when_it_is_there() -> None:
    """The thread's order is taken over by an event, with what changed meanwhile."""
    began, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def run(make: Callable[[], None]) -> None:
        def late() -> None:
            began.set()
            assert go_on.wait(30)
            make()

        in_thread(late)
        threads.extend(each for each in threading.enumerate() if each.name == "kindcast-order")

    strategy = filled(CHAINS, EVEN, DEAR, run=run)
    asked(strategy, CHAINS, EVEN, DEAR)
    assert began.wait(30)
    assert strategy.orders == 0
    strategy.remove(4)
    strategy.add(4, [5], [True])
    strategy.remove(8)
    go_on.set()
    for each in threads:
        each.join(30)
    now = {name: literals for name, literals in CHAINS.items() if name != 8} | {4: [(5, True)]}
    asked(strategy, now, EVEN, DEAR)
    assert strategy.orders == 1
    strategy.check_invariants()
    kept = [name for name in published(CHAINS, EVEN, DEAR) if name in (3, 9)]
    assert [name for name in order(strategy, now) if name in (3, 9)] == kept


def test_sub_order_order_that_fails_leaves_the_one_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told in the log, and events go on."""
    strategy = filled(CHAINS, EVEN, DEAR, run=at_once)
    monkeypatch.setattr("kindcast.semantic.planner.strategies.order_chains", lambda *_, **__: 1 / 0)
    assert set(asked(strategy, CHAINS, EVEN, DEAR)) <= set(range(PREDICATES))
    assert strategy.orders == 0
    assert "could not be computed" in caplog.text
    strategy.check_invariants()


def test_sub_order_many_new_chains_stand_last_until_they_are_ordered() -> None:
    """They are not put beside neighbours one by one, and are decided all the same."""
    jobs: list[Callable[[], None]] = []
    strategy = filled(CHAINS, EVEN, DEAR, run=jobs.append)
    many = {100 + number: [(number % PREDICATES, True)] for number in range(PLACED_SINGLY)}
    for chain, literals in many.items():
        strategy.add(chain, *zip(*literals, strict=True))
    everything = CHAINS | many
    assert asked(strategy, everything, EVEN, DEAR)
    assert np.isinf(strategy._linked.positions(list(everything))).all()
    jobs.pop()()
    asked(strategy, everything, EVEN, DEAR)
    assert order(strategy, everything) == published(everything, EVEN, DEAR)


def test_matcher_of_sub_order_asks_what_the_strategy_asks() -> None:
    """What benchmarks measure is the object that a matcher has: the same calls in the same order."""
    asked_of_matcher: list[int] = []

    @operator("holds", cost=1.0, selectivity=0.5)
    def holds(event: Any, number: int) -> bool:
        asked_of_matcher.append(number)
        return number % 2 == 0

    matcher = Matcher(Vocabulary.from_ontologies([]), planner="sub_order", operators=[holds])
    calls = {True: "holds({})", False: "not holds({})"}
    for name, literals in CHAINS.items():
        matcher.add(str(name), " and ".join(calls[wanted].format(number) for number, wanted in literals))
    strategy = matcher.layer._strategy
    assert isinstance(strategy, SubOrder)
    strategy.order_now()
    alone = filled(CHAINS, EVEN, [1.0] * PREDICATES, run=at_once)
    matcher.match({"a": 1})
    numbered = [int(str(call).removeprefix("holds(").removesuffix(")")) for call in matcher.layer._call_of if call]
    again = {
        chain: [(numbered[node >> 1], node & 1 == 0) for node in nodes] for chain, nodes in strategy._chains.items()
    }
    assert list(again.values()) == list(CHAINS.values())
    assert len(asked_of_matcher) == len(asked(alone, CHAINS, EVEN, [1.0] * PREDICATES))
    assert strategy.orders == 1


literals = st.lists(
    st.tuples(st.integers(0, PREDICATES - 1), st.booleans()), min_size=1, max_size=4, unique_by=lambda pair: pair[0]
)
steps = st.one_of(
    st.tuples(st.just("add"), literals),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("learned"), st.tuples(st.integers(0, PREDICATES - 1), st.floats(0, 1), st.floats(1e-4, 10))),
    st.tuples(st.just("match"), st.lists(st.sampled_from([True, False, None]), min_size=6, max_size=6)),
    st.tuples(st.sampled_from(["swap", "later"]), st.none()),
)


@settings(deadline=None)
@given(st.lists(steps, min_size=1, max_size=25))
def test_sub_order_whatever_changes_while_orders_are_made_decides_every_candidate(history: list[Any]) -> None:
    """Chains come and go, statistics drift, and the order of all is made and taken over at any moment."""
    jobs: list[Callable[[], None]] = []
    strategy = SubOrder(run=jobs.append)
    holds, cost = np.full(PREDICATES, 0.5), np.ones(PREDICATES)
    for predicate in range(PREDICATES):
        strategy.learned(predicate, 0.5, 1.0)
    known: dict[int, list[Literal]] = {}
    for step, what in [*history, ("match", [True, False, True, None, True, False])]:
        strategy._not_before = 0.0
        if step == "add":
            chain = next(number for number in range(len(known) + 1) if number not in known)
            known[chain] = what
            strategy.add(chain, *zip(*what, strict=True))
        elif step == "remove" and known:
            chain = sorted(known)[what % len(known)]
            del known[chain]
            strategy.remove(chain)
        elif step == "learned":
            predicate, holds[predicate], cost[predicate] = what
            strategy.learned(*what)
        elif step == "swap" and jobs:
            jobs.pop(0)()
        elif step == "later":
            strategy.order_now()
        elif step == "match":
            candidates = list(known)
            undecided = Undecided(Literals.of([known[chain] for chain in candidates]), PREDICATES)
            evaluated(strategy.plan(undecided, Estimates(holds, cost), candidates), undecided, what)
            assert not undecided.unsettled()
            expected = [
                number
                for number, chain in enumerate(candidates)
                if all(what[p] is wanted for p, wanted in known[chain])
            ]
            assert undecided.satisfied() == expected
        strategy.check_invariants()
