"""Calls that answer when they like: one event, its candidates, and operators whose answers, failures and tries come in
any order, against the truth worked out in place.

The desk is real, with the planner of choice; only the ways to the operators are under the test's hand. Whatever happens
between, in the end the matches are those of the truth; and no call starts for a clause that waits for another, nor one
that nobody can need.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary
from kindcast.semantic.model import Event
from kindcast.semantic.operators.declaration import Operator, signature_of
from kindcast.semantic.operators.failures import FailureKind, OperatorFailed
from kindcast.semantic.planner.strategies import PLANNERS
from kindcast.server.late_matching import LateMatcher, Verdicts
from kindcast.server.operators.operator_clients import Answered, EventAnswers
from kindcast.server.operators.registry import Deferred

EMPTY = Vocabulary.from_ontologies([])
NAMES = ("p", "q", "r", "s")
Literal_ = tuple[str, bool]
Clause = tuple[Literal_, ...]
Expression = tuple[Clause, ...]

CLAUSES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=3, unique_by=lambda literal: literal[0]
).map(tuple)
EXPRESSIONS = st.lists(CLAUSES, min_size=1, max_size=2).map(tuple)
STEPS = st.lists(
    st.tuples(st.sampled_from(["answer", "answer", "answer", "fail", "for good", "busy"]), st.integers(0, 7)),
    max_size=12,
)


def text(expression: Expression) -> str:
    return " or ".join(
        "(" + " and ".join(f"{'' if wanted else 'not '}{name}()" for name, wanted in clause) + ")"
        for clause in expression
    )


@dataclass
class Way:
    """A caller whose calls are answered by hand; what it started is noted."""

    name: str
    order: list[str]
    """The calls that began, of all ways."""
    started: list["Future[Answered]"] = field(default_factory=list)

    def start(self, event: Any, arguments: tuple[Any, ...]) -> "Future[Answered]":
        self.order.append(self.name)
        self.started.append(Future())
        return self.started[-1]

    def status(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass

    __hash__ = object.__hash__

    @property
    def under_way(self) -> bool:
        return any(not each.done() for each in self.started)


class History:
    """One event in its tries: what is known of it, what is under way, what became of its candidates."""

    def __init__(self, planner: str, expressions: list[Expression], truth: dict[str, bool], costs: list[float]) -> None:
        self.truth, self.planner = truth, planner
        self.expressions = {f"s{number}": each for number, each in enumerate(expressions)}
        operators = [
            Operator(name=name, function=Deferred(name, signature_of(lambda event: None)), cost=cost)
            for name, cost in zip(NAMES, costs, strict=True)
        ]
        self.desk = LateMatcher(Matcher(EMPTY, planner=planner, operators=operators))
        for id, expression in self.expressions.items():
            self.desk.matcher.add(id, text(expression))
        self.canonical = self.desk.canonical(Event(data={"n": 1}))
        assert self.canonical is not None
        self.order: list[str] = []
        self.ways = {name: Way(name, self.order) for name in NAMES}
        self.known: dict[Any, object] = {}
        self.open = set(self.expressions)
        self.got: set[str] = set()
        self.answered: dict[str, bool] = {}
        self.failed: set[str] = set()

    def begin(self, *, patient: bool) -> None:
        """A try of all that is open."""
        asking = EventAnswers(self.ways, woken=lambda: None, answers=self.known)
        self.failed = set()
        assert self.canonical is not None
        self.case = self.desk.begin(self.canonical, sorted(self.open), asking, patient=patient)
        self.patient = patient
        self.look()

    def look(self) -> Verdicts:
        under_way = {name for name, way in self.ways.items() if way.under_way}
        open_before, begun = set(self.open), len(self.order)
        verdicts = self.case.advance()
        for id in self.open & verdicts.matched.keys():
            self.got.add(id)
        waiting = {id for id, failure in verdicts.undecided.items() if failure.kind == "waiting"}
        self.open -= verdicts.matched.keys() | set(verdicts.unmatched)
        self.check_calls(under_way, self.order[begun:], open_before)
        assert self.case.pending or not waiting
        return verdicts

    def check_calls(self, under_way: set[str], begun: list[str], open_before: set[str]) -> None:
        """Each call began for an undecided clause that needs it, and has no other call under way; none comes twice.
        The planner `naive` also asks what decided clauses hold."""
        for name in begun:
            assert name not in under_way, f"{name} began twice"
            assert name not in self.answered, f"{name} began although it has answered"
            clauses = [clause for id in open_before for clause in self.expressions[id]]
            assert self.planner == "naive" or any(
                self.needs(clause, name) and under_way.isdisjoint(each for each, _ in clause) for clause in clauses
            ), f"{name} began, and nobody needs it: {under_way}"
            under_way = {*under_way, name}

    def needs(self, clause: Clause, name: str) -> bool:
        held = dict(clause)
        false = any(other in self.answered and self.answered[other] is not wanted for other, wanted in clause)
        given_up = self.patient and bool(self.failed & held.keys())
        return name in held and not false and not given_up

    def step(self, what: str, which: int) -> None:
        hanging = [way for way in self.ways.values() if way.under_way]
        if not hanging:
            return
        way = hanging[which % len(hanging)]
        future = next(each for each in way.started if not each.done())
        if what == "answer":
            self.answered[way.name] = self.truth[way.name]
            future.set_result(Answered(self.truth[way.name], 0.01))
        else:
            if what != "for good":  # then the others may still tell that it does not match
                self.failed.add(way.name)
            kind: FailureKind = "busy" if what == "busy" else "timed_out"
            future.set_exception(OperatorFailed("does not answer", kind=kind, for_good=what == "for good"))
        self.look()

    def expected(self) -> set[str]:
        return {
            id
            for id, expression in self.expressions.items()
            if any(all(self.truth[name] is wanted for name, wanted in clause) for clause in expression)
        }


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@given(
    expressions=st.lists(EXPRESSIONS, min_size=1, max_size=4),
    truth=st.fixed_dictionaries(dict.fromkeys(NAMES, st.booleans())),
    costs=st.lists(st.sampled_from([0.001, 0.01, 0.1]), min_size=4, max_size=4),
    tries=st.lists(STEPS, max_size=3),
)
def test_waiting_calls_in_any_order_with_failures_and_tries_end_in_the_truth(
    planner: str, expressions: list[Expression], truth: dict[str, bool], costs: list[float], tries: list[Any]
) -> None:
    """Tries are broken off, fail and answer in any order; the last one is answered."""
    history = History(planner, expressions, truth, costs)
    for steps in tries:
        if history.open:
            for way in history.ways.values():  # the try before was broken off
                for each in way.started:
                    each.cancel()
            history.begin(patient=True)
            for what, which in steps:
                history.step(what, which)
    if history.open:
        for way in history.ways.values():
            for each in way.started:
                each.cancel()
        history.begin(patient=False)
        while history.case.pending:
            history.step("answer", 0)
    assert not history.open
    assert history.got == history.expected()


@given(
    expression=EXPRESSIONS,
    truth=st.fixed_dictionaries(dict.fromkeys(NAMES, st.booleans())),
    costs=st.lists(st.sampled_from([0.001, 0.01, 0.1]), min_size=4, max_size=4),
    planner=st.sampled_from(["greedy", "naive", "sequential"]),
)
def test_one_candidate_costs_the_calls_of_the_library(
    expression: Expression, truth: dict[str, bool], costs: list[float], planner: str
) -> None:
    """Where each answer is waited for, the same calls are made in the same order as where it is there at once.

    `sub_order` makes its order in the background, so it cannot be held to one."""
    history = History(planner, [expression], truth, costs)
    history.begin(patient=True)
    while history.case.pending:
        history.step("answer", 0)
    asked: list[str] = []

    def operator(name: str, cost: float) -> Operator:
        def function(event: Any) -> bool:
            asked.append(name)
            return truth[name]

        return Operator(name=name, function=function, cost=cost)

    matcher = Matcher(EMPTY, planner=planner, operators=map(operator, NAMES, costs))
    matcher.add("s0", text(expression))
    matcher.match({"n": 1})
    assert [str(each).removesuffix("()") for each in history.case.decision.asked] == asked
