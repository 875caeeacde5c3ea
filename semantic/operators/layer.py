"""The operator layer: which of the candidates that the index left do match, with as few operator calls as possible.

candidates ─▶ Undecided ◀─▶ strategy: which call next ─▶ ask once ─▶ settle all that hang on it
satisfied  ─▶ bindings joined, constraints, negated groups ─▶ matched
a call that failed ─▶ the candidates that hang on it are undecided, the others are not touched
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from semantic.model import CanonicalEvent
from semantic.operators.calls import Answer, Call, OperatorFailed, ask
from semantic.operators.clauses import ExpensiveClause, GroupClause
from semantic.operators.declaration import Operator
from semantic.operators.joining import joined
from semantic.operators.readings import EventView
from semantic.planner.estimates import Estimates
from semantic.planner.learning import Experience
from semantic.planner.linked_chains import Node
from semantic.planner.problem import Literals, Undecided
from semantic.planner.strategies import new_strategy
from semantic.units import Units

__all__ = ["Decision", "OperatorLayer"]

T = TypeVar("T")

FIRST_ROOM = 64
"""Calls whose estimates fit at first; doubled as needed."""


@dataclass(slots=True)
class Decision:
    """What became of the candidates of one event: clause → its joined bindings; clause → why it is undecided; and the
    calls that were made, in order."""

    matched: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    undecided: dict[int, str] = field(default_factory=dict)
    asked: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class _Known:
    """A call that some clause holds: its number, and how many hold it."""

    number: int
    holders: int = 0


class OperatorLayer:
    """The expensive parts of all clauses, by clause number. One owner.

    `decide` costs one call for each predicate that the strategy has to ask, and some 30 µs for choosing it.
    """

    def __init__(self, operators: Mapping[str, Operator], planner: str, units: Units) -> None:
        """Raises `UnknownPlanner`."""
        self._operators = operators
        self._units = units
        self._strategy = new_strategy(planner)
        self.experience = Experience()
        self._clauses: dict[int, ExpensiveClause] = {}
        self._arrays: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]] = {}
        self._known: dict[Call, _Known] = {}
        self._call_of: list[Call | None] = []
        self._free: list[int] = []
        self._holds = np.zeros(FIRST_ROOM)
        self._cost = np.ones(FIRST_ROOM)

    def __len__(self) -> int:
        return len(self._clauses)

    def __contains__(self, clause: object) -> bool:
        return clause in self._clauses

    def has_variables(self, clause: int) -> bool:
        """Whether its matches carry bindings."""
        return self._clauses[clause].has_variables

    def add(self, clause: int, part: ExpensiveClause) -> None:
        """A clause came."""
        numbers = [self._hold(call) for call, _ in part.literals]
        wanted = [wanted for _, wanted in part.literals]
        self._clauses[clause] = part
        self._arrays[clause] = (np.array(numbers, dtype=np.int32), np.array(wanted, dtype=np.int8))
        self._strategy.add(clause, self._nodes(numbers, wanted))

    def remove(self, clause: int) -> None:
        """Raises KeyError for a clause that is not there."""
        part = self._clauses.pop(clause)
        del self._arrays[clause]
        self._strategy.remove(clause)
        for call, _ in part.literals:
            known = self._known[call]
            known.holders -= 1
            if not known.holders:
                del self._known[call]
                self._call_of[known.number] = None
                self._free.append(known.number)

    def decide(self, candidates: Sequence[int], event: CanonicalEvent) -> Decision:
        """Which of these clauses, whose cheap atoms hold already, `event` matches."""
        decision = Decision()
        arrays = [self._arrays[each] for each in candidates]
        numbers = np.concatenate([each for each, _ in arrays]) if arrays else np.zeros(0, dtype=np.int32)
        calls, local = np.unique(numbers, return_inverse=True)
        first = np.zeros(len(arrays) + 1, dtype=np.int32)
        np.cumsum([len(each) for each, _ in arrays], out=first[1:])
        wanted = np.concatenate([each for _, each in arrays]) if arrays else np.zeros(0, dtype=np.int8)
        undecided = Undecided(Literals(first, local.astype(np.int32), wanted), len(calls))
        asking = _Asking(self, event, decision)
        for chosen in self._strategy.plan(undecided, Estimates(self._holds[calls], self._cost[calls]), candidates):
            call = self._call_of[calls[chosen]]
            assert call is not None, "a clause holds a call that nobody knows"
            answer = asking.answer(call)
            undecided.settle(chosen, None if isinstance(answer, OperatorFailed) else answer.holds)
        for candidate in undecided.satisfied():
            self._finish(candidates[candidate], asking, decision)
        for candidate in undecided.undecidable():
            self._give_up(candidates[candidate], asking, decision)
        return decision

    # ── after the literals ──────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self, clause: int, asking: "_Asking", decision: Decision) -> None:
        part = self._clauses[clause]
        try:
            bindings = asking.bindings(part)
            if bindings and not asking.any_has_binding(part.groups):
                decision.matched[clause] = bindings if part.has_variables else []
        except OperatorFailed as failure:
            decision.undecided[clause] = str(failure)

    def _give_up(self, clause: int, asking: "_Asking", decision: Decision) -> None:
        """A clause that hangs on a call that failed, unless one of its negated groups decides it all the same."""
        part = self._clauses[clause]
        failed = (asking.answers.get(call) for call, _ in part.literals)
        reasons = [str(each) for each in failed if isinstance(each, OperatorFailed)]
        for group in part.groups:
            try:
                if asking.has_binding(group):
                    return
            except OperatorFailed as failure:
                reasons.append(str(failure))
        decision.undecided[clause] = "; ".join(dict.fromkeys(reasons))

    # ── what is known of calls ──────────────────────────────────────────────────────────────────────────────────────

    def ask(self, call: Call, event: EventView) -> Answer:
        """Ask, and learn from it. Raises `OperatorFailed`."""
        operator = self._operators[call.operator]
        began = time.perf_counter()
        try:
            answer = ask(call, operator, event, self._units)
        except OperatorFailed:
            self.experience.note_failure(call.operator, call)
            raise
        if all(name in event for name in call.attributes):  # else it was not called
            self.experience.note(call.operator, call, answer.holds, time.perf_counter() - began)
            known = self._known.get(call)
            if known is not None:
                self._estimate(call, known.number)
        return answer

    def joined(self, part: ExpensiveClause, answers: Mapping[Call, Answer]) -> list[dict[str, Any]]:
        sources = [(names, answers[call].bindings) for call, names in part.sources]
        return joined(sources, part.constraints, self._units)

    def _hold(self, call: Call) -> int:
        known = self._known.get(call)
        if known is None:
            if self._free:
                number = self._free.pop()
                self._call_of[number] = call
            else:
                number = len(self._call_of)
                self._call_of.append(call)
            known = self._known[call] = _Known(number)
            if number >= len(self._holds):
                self._holds = np.concatenate([self._holds, np.zeros(len(self._holds))])
                self._cost = np.concatenate([self._cost, np.ones(len(self._cost))])
            self._estimate(call, number)
        known.holders += 1
        return known.number

    def _estimate(self, call: Call, number: int) -> None:
        operator = self._operators[call.operator]
        self._holds[number], self._cost[number] = self.experience.expected(
            call.operator, call, operator.selectivity, operator.cost
        )

    def _nodes(self, numbers: Sequence[int], wanted: Sequence[bool]) -> list[Node]:
        return [
            Node(2 * number + (not want), float(self._holds[number] if want else 1 - self._holds[number]),
                 float(self._cost[number]))
            for number, want in zip(numbers, wanted, strict=True)
        ]  # fmt: skip


class _Asking:
    """The answers of one event: every call is made at most once."""

    def __init__(self, layer: OperatorLayer, event: CanonicalEvent, decision: Decision) -> None:
        self.answers: dict[Call, Answer | OperatorFailed] = {}
        self._layer = layer
        self._event = event
        self._view = EventView(event)
        self._decision = decision

    def answer(self, call: Call) -> Answer | OperatorFailed:
        found = self.answers.get(call)
        if found is None:
            self._decision.asked.append(call)
            try:
                found = self._layer.ask(call, self._view)
            except OperatorFailed as failure:
                found = failure
            self.answers[call] = found
        return found

    def bindings(self, part: ExpensiveClause) -> list[dict[str, Any]]:
        """The joined bindings of a clause whose literals hold; one empty one where it has no variables."""
        known: dict[Call, Answer] = {}
        for call, _ in part.sources:
            answer = self.answer(call)
            if isinstance(answer, OperatorFailed):
                raise answer
            known[call] = answer
        return self._layer.joined(part, known)

    def any_has_binding(self, groups: Sequence[Sequence[GroupClause]]) -> bool:
        """Whether some negated group holds by itself. Raises `OperatorFailed` where none is known to, and one hangs on
        a call that failed."""
        return _some(self.has_binding, groups)

    def has_binding(self, group: Sequence[GroupClause]) -> bool:
        """Whether some conjunction of a negated group holds by itself. Raises as `any_has_binding`."""
        return _some(self._clause_holds, group)

    def _clause_holds(self, clause: GroupClause) -> bool:
        return all(atom.holds(self._event) for atom in clause.cheap) and self._holds(clause.rest)

    def _holds(self, part: ExpensiveClause) -> bool:
        if any(name not in self._view for name in part.required):
            return False
        tests: list[Callable[[], bool]] = [partial(self._misses, call, wanted) for call, wanted in part.literals]
        tests += [partial(self.has_binding, group) for group in part.groups]
        return not _some(lambda test: test(), tests) and bool(self.bindings(part))

    def _misses(self, call: Call, wanted: bool) -> bool:
        answer = self.answer(call)
        if isinstance(answer, OperatorFailed):
            raise answer
        return answer.holds is not wanted


def _some(test: Callable[[T], bool], items: Iterable[T]) -> bool:
    """Whether `test` holds for one of `items`; a failure counts only where it holds for none."""
    failure: OperatorFailed | None = None
    for item in items:
        try:
            if test(item):
                return True
        except OperatorFailed as error:
            failure = error
    if failure is not None:
        raise failure
    return False
