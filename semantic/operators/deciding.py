"""One event on its way to a decision: its candidates, what is undecided, and the plan of a strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semantic.model import CanonicalEvent
from semantic.operators.asking import Asking
from semantic.operators.calls import Answer, Call, OperatorFailed
from semantic.operators.failures import NotYet
from semantic.planner.problem import WAIT, Undecided

if TYPE_CHECKING:
    from semantic.operators.layer import OperatorLayer

__all__ = ["Deciding", "Decision", "Step", "Waiting"]

NOBODY = -1
"""Stands for the subscription of a candidate that is not decided by another clause."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a plan, for explanations: what was expected of it, and what came of it."""

    call: Call
    chance: float
    """Expected probability that it holds."""
    seconds: float
    """Expected cost."""
    popularity: int
    """Open candidates that held it."""
    work: int
    """Literals that those had not evaluated yet: what it could settle at most."""
    outcome: bool | None
    settled: int
    """Candidates that its answer decided."""


@dataclass(slots=True)
class Decision:
    """What became of the candidates of one event: clause → its joined bindings; clause → why it is undecided; and the
    calls that were made, in order. `not_yet`: those of the undecided clauses that wait for an answer which is to come.
    `literals`: how many calls there would have been with nothing shared and nothing
    left out."""

    matched: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    undecided: dict[int, str] = field(default_factory=dict)
    not_yet: set[int] = field(default_factory=set)
    asked: list[Call] = field(default_factory=list)
    literals: int = 0
    steps: list[Step] | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The candidates of one event, and the subscription of each where one clause of it is enough."""

    candidates: Sequence[int]
    event: CanonicalEvent
    subscriptions: Sequence[int] | None = None


class Deciding:
    """The candidates of one event on their way to a decision."""

    def __init__(self, layer: "OperatorLayer", waiting: Waiting, steps: bool) -> None:
        self._layer = layer
        self._candidates = waiting.candidates
        literals, calls, self._estimates = layer.problem(waiting.candidates)
        self._calls = calls.tolist()
        self._undecided = Undecided(literals, len(self._calls))
        self._decision = Decision(literals=len(literals.predicate), steps=[] if steps else None)
        self._subscription = self._group(waiting.subscriptions)
        self.asking = Asking(layer, waiting.event)
        self._plan = layer.plan(self._undecided, self._estimates, waiting.candidates)
        self.done = False

    def _group(self, subscriptions: Sequence[int] | None) -> Mapping[int, int]:
        """Candidate → subscription, where one clause of it is enough; the planner knows then what is not needed."""
        if subscriptions is None:
            return {}
        members: dict[int, list[int]] = {}
        for candidate, subscription in enumerate(subscriptions):
            members.setdefault(subscription, []).append(candidate)
        found: dict[int, int] = {}
        for subscription, candidates in members.items():
            parts = [self._layer.part(self._candidates[each]) for each in candidates]
            if len(candidates) > 1 and not any(part.has_variables for part in parts):
                found.update(dict.fromkeys(candidates, subscription))
                certain = [each for each, part in zip(candidates, parts, strict=True) if not part.groups]
                self._undecided.group(candidates, certain)
        return found

    def run(self) -> None:
        """One call after another."""
        for chosen in self._plan:
            self.settle(chosen, self.asking.answer(self.call(chosen)))

    def choose(self, most: int) -> list[int]:
        """At most so many predicates that are needed whatever the others come to; they are under way then."""
        found: list[int] = []
        while len(found) < most:
            chosen = next(self._plan, None)
            if chosen is None:
                self.done = not found
                break
            if chosen == WAIT:
                break
            self._undecided.begin(chosen)
            found.append(chosen)
        return found

    def call(self, predicate: int) -> Call:
        return self._layer.call_of(self._calls[predicate])

    def settle(self, predicate: int, answer: Answer | OperatorFailed) -> None:
        outcome = None if isinstance(answer, OperatorFailed) else answer.holds
        if self._decision.steps is None:
            self._undecided.settle(predicate, outcome)
            return
        held, work = (int(each[predicate].sum()) for each in (self._undecided.popularity, self._undecided.work))
        chance, seconds = (float(each[predicate]) for each in (self._estimates.holds, self._estimates.cost))
        before = self._undecided.unsettled()
        self._undecided.settle(predicate, outcome)
        settled = before - self._undecided.unsettled()
        self._decision.steps.append(Step(self.call(predicate), chance, seconds, held, work, outcome, settled))

    def finished(self) -> Decision:
        """The decision, when nothing is left to ask for the literals."""
        self._decision.asked = self.asking.asked
        matched: set[int] = set()
        for candidate in self._undecided.satisfied():
            subscription = self._subscription.get(candidate, NOBODY)
            if subscription not in matched and self._finish(self._candidates[candidate]) and subscription != NOBODY:
                matched.add(subscription)
        for candidate in self._undecided.undecidable():
            if self._subscription.get(candidate, NOBODY) not in matched:
                self._give_up(self._candidates[candidate])
        for candidate, subscription in self._subscription.items() if self._decision.not_yet else ():
            if subscription in matched:
                self._decision.not_yet.discard(self._candidates[candidate])
        return self._decision

    def _finish(self, clause: int) -> bool:
        part = self._layer.part(clause)
        try:
            bindings = self.asking.bindings(part)
            if bindings and not self.asking.any_has_binding(part.groups):
                self._decision.matched[clause] = bindings if part.has_variables else []
                return True
        except OperatorFailed as failure:
            self._undecide(clause, [failure])
        return False

    def _give_up(self, clause: int) -> None:
        """A clause that hangs on a call that failed, unless one of its negated groups decides it all the same."""
        part = self._layer.part(clause)
        failed = (self.asking.answers.get(call) for call, _ in part.literals)
        failures = [each for each in failed if isinstance(each, OperatorFailed)]
        for group in part.groups:
            try:
                if self.asking.has_binding(group):
                    return
            except OperatorFailed as failure:
                failures.append(failure)
        self._undecide(clause, failures)

    def _undecide(self, clause: int, failures: Sequence[OperatorFailed]) -> None:
        self._decision.undecided[clause] = "; ".join(dict.fromkeys(map(str, failures)))
        if any(isinstance(each, NotYet) for each in failures):
            self._decision.not_yet.add(clause)
