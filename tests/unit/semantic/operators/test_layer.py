"""How many calls a matcher makes: shared, stopped, kept, asked together, run at once."""

import threading
import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import InvalidSubscription, Matcher, Operator, Vocabulary, operator
from kindcast.semantic.matching import operator_layer
from kindcast.semantic.matching.operator_layer import LiteralStore
from kindcast.semantic.operators.failures import NotAnswered, OperatorFailed
from kindcast.semantic.planner.learning import Experience
from kindcast.semantic.planner.strategies import PLANNERS

EMPTY = Vocabulary.from_ontologies([])
PATIENCE_SECONDS = 60.0
"""Of calls that wait for each other; only a failing test waits so long."""


class Counting:
    """An operator `p` that holds for the numbers of the event, and its calls, each of which goes on when as many as
    `together` says have begun."""

    def __init__(self, **said: Any) -> None:
        self.calls: list[Any] = []
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.together: threading.Barrier | None = None
        self.operator = Operator(name="p", function=self.called, **said)

    def called(self, event: Any, *given: Any) -> bool:
        with self.lock:
            self.calls.append(given[0])
            self.running += 1
            self.most = max(self.most, self.running)
        if self.together is not None:
            self.together.wait(PATIENCE_SECONDS)
        with self.lock:
            self.running -= 1
        return given[0] in event["holds"]


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_satisfied_clause_stops_the_other_clauses_of_its_subscription(planner: str) -> None:
    """Where no clause has variables, one that matches is enough; another subscription still gets its answer."""
    counting = Counting()
    matcher = Matcher(EMPTY, planner=planner, operators=[counting.operator])
    matcher.add("s", "p(1) or p(2) and p(3) or p(4) and p(5)")
    assert [match.subscription for match in matcher.match({"holds": [1, 2, 3, 4, 5]})] == ["s"]
    assert len(counting.calls) <= 3
    matcher.add("t", "p(4) and p(5)")
    counting.calls.clear()
    assert [match.subscription for match in matcher.match({"holds": [1, 2, 3, 4, 5]})] == ["s", "t"]
    assert {4, 5} <= set(counting.calls)


def test_satisfied_clause_with_variables_stops_nothing() -> None:
    """A match carries the bindings of all its clauses (rule 18)."""

    @operator("gives")
    def gives(event: Any, number: int) -> list[int]:
        return [number]

    matcher = Matcher(EMPTY, operators=[gives])
    matcher.add("s", "gives(1, ?n) or gives(2, ?n)")
    assert matcher.match({})[0].bindings == ((("n", 1),), (("n", 2),))


@operator("later", cost=1.0)
def later(event: Any) -> bool:
    """Has not answered yet."""
    raise NotAnswered("is at it", lambda: False, lambda: None)


@operator("broken")
def broken(event: Any) -> bool:
    raise RuntimeError


@operator("binds", binds=(int,))
def binds(event: Any) -> list[int]:
    return [1]


@pytest.mark.parametrize(
    "expression",
    ["later() or broken()", "broken() or later()", "later() and broken()", "not (later() or broken())",
     "not (broken() or later())", "binds(?n) or later()", "later() or binds(?n)", "binds(?n) or broken() or later()"],
)  # fmt: skip
@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_clause_that_waits_for_an_answer_leaves_its_subscription_undecided(planner: str, expression: str) -> None:
    """It says so, whatever failed beside it; a match that is to carry bindings is not told by halves."""
    matcher = Matcher(EMPTY, planner=planner, operators=[later, broken, binds])
    matcher.add("s", expression)
    decided = matcher.decide({})
    assert decided.matches == []
    assert [each.failure.kind for each in decided.undecided] == ["waiting"]


def test_clause_that_is_asked_first_matches_without_the_one_that_would_wait() -> None:
    """One clause is enough there; the plan begins with the cheap one."""
    for expression in ("later() or any()", "any() and not (broken() and not any()) or later()"):
        matcher = Matcher(EMPTY, operators=[later, broken, Operator(name="any", function=lambda event: True)])
        matcher.add("s", expression)
        assert [match.subscription for match in matcher.decide({}).matches] == ["s"]


def test_decide_among_some_subscriptions_calls_no_operator_of_others() -> None:
    counting, called = Counting(), Counting()
    others = Operator(name="q", function=called.called)
    matcher = Matcher(EMPTY, operators=[counting.operator, others])
    matcher.add("s", "p(1)")
    matcher.add("t", "q(1)")
    decided = matcher.decide({"holds": [1]}, among=["s", "unknown"])
    assert [match.subscription for match in decided.matches] == ["s"]
    assert (counting.calls, called.calls) == ([1], [])


def test_failed_clause_of_a_subscription_that_matches_leaves_nothing_undecided() -> None:
    """Whether another clause holds does not matter any more."""

    @operator("fails")
    def fails(event: Any) -> bool:
        raise RuntimeError

    counting = Counting()
    matcher = Matcher(EMPTY, planner="naive", operators=[fails, counting.operator])
    matcher.add("s", "fails() or p(1)")
    decided = matcher.decide({"holds": 1})
    assert ([match.subscription for match in decided.matches], decided.undecided) == (["s"], [])


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("low(?n) and ?n > 5 and fails(?m)", False),
        ("low(?n) and high(?n) and fails(?m)", False),
        ("low(?n) and fails(?m) and ?n > 5 and ?m > 5", False),
        ("low(?n) and ?n < 5 and fails(?m)", None),
        ("low(?n) and high(?m) and fails(?n)", None),
        ("not (low(?n) and ?n > 5 and fails(?m))", True),
        ("not (low(?n) and ?n < 5 and fails(?m))", None),
    ],
)
def test_bindings_that_join_to_nothing_decide_although_a_call_failed(
    expression: str, matches: bool | None, planner: str
) -> None:
    """Whatever the failed call would answer, the clause has no joined binding (rule 17)."""

    def fails(event: Any) -> Any:
        raise RuntimeError

    def bound(name: str, *numbers: int) -> Operator:
        return Operator(name=name, binds=(int,), function=lambda event: [(number,) for number in numbers])

    operators = [bound("low", 1, 2), bound("high", 8, 9), Operator(name="fails", binds=(int,), function=fails)]
    matcher = Matcher(EMPTY, planner=planner, operators=operators)
    matcher.add("s", expression)
    decided = matcher.decide({})
    assert (None if decided.undecided else bool(decided.matches)) is matches


def test_batch_operator_is_asked_once_for_all_events_of_a_batch() -> None:
    """One call of `batch` a round, whatever the number of events; each event counts its own question."""
    batches: list[int] = []

    def batch(asked: Sequence[tuple[Any, ...]]) -> list[bool]:
        batches.append(len(asked))
        return [number in event["holds"] for event, number in asked]

    matcher = Matcher(EMPTY, operators=[Operator(name="p", function=lambda event, number: None, batch=batch)])
    matcher.add("s", "p(1)")
    found = matcher.match_batch([{"holds": number % 2} for number in range(50)])
    assert [len(each) for each in found] == [number % 2 for number in range(50)]
    assert batches == [50]
    assert matcher.statistics.evaluations == {"p(1)": 50}
    table = matcher.match_table({"holds": [0, 1, 1]})
    assert table.offsets.tolist() == [0, 0, 1, 2]
    assert batches == [50, 3]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [([True], "answered 1 of 2 calls of a batch"), (RuntimeError("down"), "raised RuntimeError: down")],
)
def test_batch_that_fails_leaves_its_events_undecided(returned: Any, reason: str) -> None:
    """Nothing is taken for an answer that is none."""

    def batch(asked: Sequence[tuple[Any, ...]]) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    matcher = Matcher(EMPTY, operators=[Operator(name="p", function=lambda event: True, batch=batch)])
    matcher.add("s", "p()")
    found = matcher.match_batch([{}, {}])
    assert [reason in found.undecided(number)[0].reason for number in range(2)] == [True, True]


def test_threads_independent_calls_run_at_once_and_none_is_asked_for_nought() -> None:
    """Four calls of subscriptions that share nothing overlap in time; a shared one that settles all is asked alone."""
    counting = Counting(concurrency=4)
    counting.together = threading.Barrier(4)
    matcher = Matcher(EMPTY, operators=[counting.operator], operator_threads=4)
    for number in range(8):
        matcher.add(str(number), f"p({number})")
    assert len(matcher.match({"holds": list(range(4))})) == 4
    assert counting.most == 4
    assert sorted(counting.calls) == list(range(8))
    counting.calls.clear()
    counting.together = None
    shared = Matcher(EMPTY, operators=[counting.operator], operator_threads=4)
    for number in range(8):
        shared.add(str(number), f"p(99) and p({number})")
    assert shared.match({"holds": list(range(8))}) == []
    assert counting.calls == [99]


def test_threads_no_more_calls_at_once_than_the_operator_allows() -> None:
    """`concurrency` is the operator's word, whatever the matcher's threads."""
    counting = Counting(concurrency=2)
    counting.together = threading.Barrier(2)
    matcher = Matcher(EMPTY, operators=[counting.operator], operator_threads=8)
    for number in range(8):
        matcher.add(str(number), f"p({number})")
    matcher.match({"holds": 1})
    assert counting.most == 2


def test_cache_key_answers_serve_other_events_with_the_same_key() -> None:
    """What the answer depends on is asked once; other keys, other constants and failures are asked again."""
    counting = Counting(cache_key=lambda event, number: event["holds"])
    matcher = Matcher(EMPTY, operators=[counting.operator])
    matcher.add("s", "p(1)")
    for holds, expected in ((1, 1), (1, 1), (2, 0), (1, 1), (True, 0)):
        assert len(matcher.match({"holds": holds, "other": time.time()})) == expected or holds is True
    assert len(counting.calls) == 3
    assert sum(matcher.statistics.evaluations.values()) == 3


def test_cache_key_arguments_and_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """`"arguments"`: nothing of the event but what is given; after `cache_seconds` it is asked anew."""
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now, perf_counter=time.perf_counter)
    monkeypatch.setattr(operator_layer, "time", clock)
    seen: list[Any] = []
    kept = operator("p", cache_key="arguments", cache_seconds=5)(lambda event, image: bool(seen.append(image)))
    matcher = Matcher(EMPTY, operators=[kept])
    matcher.add("s", "p(@image)")
    for image in ("a", "a", "b" * 1000, "b" * 1000, "b" * 999 + "c"):
        matcher.match({"image": image, "n": len(seen)})
    assert len(seen) == 3
    now += 4.9
    matcher.match({"image": "a"})
    assert len(seen) == 3
    now += 0.2
    matcher.match({"image": "a"})
    assert len(seen) == 4


def test_cache_key_that_fails_or_cannot_be_hashed_is_none() -> None:
    """The operator is asked then, each time."""
    seen: list[int] = []

    def key(event: Any) -> Any:
        if event["how"] == ("raises",):
            raise RuntimeError
        return {} if event["how"] == ("dict",) else None

    matcher = Matcher(EMPTY, operators=[operator("p", cache_key=key)(lambda event: bool(seen.append(1)))])
    matcher.add("s", "p()")
    for how in ("raises", "dict", "none") * 2:
        matcher.match({"how": how})
    assert len(seen) == 6


def test_failures_are_not_kept() -> None:
    """A call that failed is asked again with the next event."""
    said: list[Any] = [OperatorFailed("down"), True]

    def p(event: Any) -> Any:
        answer = said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    matcher = Matcher(EMPTY, operators=[operator("p", cache_key="arguments")(p)])
    matcher.add("s", "p()")
    assert matcher.decide({}).undecided
    assert matcher.match({})
    assert matcher.match({})


def test_learned_statistics_are_used_at_once() -> None:
    """With records of an earlier life the first event is asked in the good order."""
    counting = Counting()
    for first in (1, 2):
        counting.calls.clear()
        known = Experience()
        for _ in range(20):
            known.note("p", f"p({first})", False, 0.001)
            known.note("p", f"p({3 - first})", True, 0.001)
        matcher = Matcher(EMPTY, operators=[counting.operator])
        matcher.add("s", "p(1) and p(2)")
        matcher._layer.learned(Experience.from_records(known.as_records()))
        matcher.match({"holds": []} | {"holds": 3 - first})
        assert counting.calls == [first]


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 50), max_size=4)), max_size=80))
def test_literal_store_is_a_dictionary(steps: list[tuple[int, list[int]]]) -> None:
    """Clauses come and go, gaps close; what is there is what was put there."""
    store = LiteralStore()
    kept: dict[int, list[int]] = {}
    for clause, numbers in steps:
        if clause in kept:
            store.remove(clause)
            del kept[clause]
        else:
            store.add(clause, numbers, [number % 2 == 0 for number in numbers])
            kept[clause] = numbers
        first, found, wanted = store.of(list(kept))
        assert found.tolist() == [number for numbers in kept.values() for number in numbers]
        assert wanted.tolist() == [number % 2 == 0 for number in found.tolist()]
        assert first.tolist()[1:] == [sum(map(len, list(kept.values())[: n + 1])) for n in range(len(kept))]


@pytest.mark.parametrize("speculate", [False, True])
def test_operator_that_speculates_is_asked_beside_a_call_that_waits(speculate: bool) -> None:
    """The other calls of the clause wait, unless their operator says that they need not."""
    asked: list[str] = []
    said: dict[str, bool] = {}

    def named(name: str) -> Any:
        def function(event: Any) -> bool:
            if name not in said:
                asked.append(name)
                raise NotAnswered("is at it", lambda: name in said, partial(asked.append, f"{name} dropped"))
            return said[name]

        return function

    first = Operator(name="first", function=named("first"), cost=0.001)
    second = Operator(name="second", function=named("second"), cost=0.1, speculate=speculate)
    matcher = Matcher(EMPTY, operators=[first, second])
    matcher.add("s", "first() and second()")
    decision = matcher.open_decision(matcher.canonicalise({}))
    decision.advance()
    assert asked == (["first", "second"] if speculate else ["first"])
    said["first"] = False
    assert not decision.advance().undecided
    assert asked == (["first", "second", "second dropped"] if speculate else ["first"])
    assert not decision.pending


def test_negated_comparison_of_a_bound_variable_is_refused_with_the_opposite_one() -> None:
    """`not ?n > 5` would be a group of its own, in which nothing binds ?n."""
    matcher = Matcher(Vocabulary(), operators=[binds])
    with pytest.raises(InvalidSubscription) as refused:
        matcher.add("s", "binds(?n) and not ?n > 5")
    (problem,) = refused.value.problems
    assert (problem.code, problem.detail) == ("variable-in-negation", "write <= in place of `not` and >")
    assert problem.at is not None
    assert (problem.at.line, problem.at.column) == (1, 22)
    with pytest.raises(InvalidSubscription, match="no operator call of this clause binds"):
        matcher.add("s", "later() and not ?n > 5")


def test_operator_in_some_is_refused_and_a_stored_one_is_told() -> None:
    """It would never be called: an operator reads the whole event. Old versions stored such subscriptions."""
    matcher = Matcher(EMPTY, operators=[Operator(name="p", function=lambda event: True)])
    for text in ("some items (p())", "not every items (not (p() and price < 5))", "some items (?n > 5)"):
        with pytest.raises(InvalidSubscription) as raised:
            matcher.add("new", text)
        assert [problem.code for problem in raised.value.problems] == ["operator-in-elements"]
    kept = matcher.restore("stored", {"some": ["items", {"op": ["p"]}]})
    assert [note.code for note in kept.notes] == ["operator-in-elements"]
    assert matcher.match({"items": [{"price": 4}]}) == []
