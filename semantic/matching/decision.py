"""The decision about one event: its candidates, what is undecided, and the calls that a strategy plans."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kindcast.semantic.conditions.operator_clauses import ExpensiveClause, GroupClause
from kindcast.semantic.model import CanonicalEvent
from kindcast.semantic.operators.calls import Answer, Call, EventView, OperatorFailed
from kindcast.semantic.operators.failures import Failure, NotAnswered
from kindcast.semantic.planner.problem import OPEN, UNKNOWN, WAIT, Undecided

__all__ = ["Asking", "Deciding", "Decision", "Step", "Waiting"]


# The answers of one event: every call is made at most once; bindings and negated groups are worked out here too.

if TYPE_CHECKING:
    from kindcast.semantic.matching.operator_layer import OperatorLayer


T = TypeVar("T")


class Asking:
    """The answers of one event: every call is made at most once. Without `learns` nothing is learned from them."""

    def __init__(self, layer: "OperatorLayer", event: CanonicalEvent, *, learns: bool = True) -> None:
        self.answers: dict[Call, Answer | OperatorFailed] = {}
        self._layer = layer
        self._event = event
        self._learns = learns
        self.view = EventView(event)
        self.asked: list[Call] = []

    def answer(self, call: Call) -> Answer | OperatorFailed:
        """The answer to a call; the operator is asked the first time only, and again after `NotAnswered`."""
        found = self.kept(call)
        return self.note(call, *self._layer.ask(call, self.view)) if found is None else found

    def kept(self, call: Call) -> Answer | OperatorFailed | None:
        """An answer that is there already: of this event, or of another one with the same key."""
        found: Answer | OperatorFailed | None = self.answers.get(call)
        if found is None:
            operator = self._layer.operator(call)
            found = self._layer.answers.get(self._layer.answers.key(call, operator, self.view))
            if found is not None:
                self.answers[call] = found
        return found

    def note(self, call: Call, answer: Answer | OperatorFailed, seconds: float) -> Answer | OperatorFailed:
        """An operator was asked, and this is what it said."""
        if isinstance(answer, NotAnswered):
            return answer
        self.answers[call] = answer
        self.asked.append(call)
        if all(name in self.view for name in call.attributes):  # else it was not called
            if self._learns:
                self._layer.learn(call, answer, seconds)
            if isinstance(answer, Answer):
                operator = self._layer.operator(call)
                self._layer.answers.keep(self._layer.answers.key(call, operator, self.view), answer, operator)
        return answer

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
        a call that failed; `NotAnswered` as soon as a call has no answer yet: the others wait for it."""
        return _some(self.has_binding, groups)

    def has_binding(self, group: Sequence[GroupClause]) -> bool:
        """Whether some conjunction of a negated group holds by itself. Raises as `any_has_binding`."""
        return _some(self._clause_holds, group)

    def _clause_holds(self, clause: GroupClause) -> bool:
        return all(atom.holds(self._event) for atom in clause.cheap) and self._holds(clause.rest)

    def _holds(self, part: ExpensiveClause) -> bool:
        if any(name not in self.view for name in part.required):
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
        except NotAnswered:
            raise
        except OperatorFailed as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return False


if TYPE_CHECKING:
    from kindcast.semantic.matching.operator_layer import OperatorLayer


NOBODY = -1
"""Stands for the subscription of a candidate that is not decided by another clause."""
NOT_ANSWERED = Failure("waiting", "an operator has not answered yet")


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
    outcome: bool | None = None
    settled: int = 0
    """Candidates that its answer decided."""
    failure: Failure | None = None
    """Why it has no outcome."""


@dataclass(slots=True)
class Decision:
    """What became of the candidates of one event: clause → its joined bindings; clause → why it is undecided; and the
    calls that were made, in order. `literals`: how many calls there would have been with nothing shared and nothing
    left out."""

    matched: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    undecided: dict[int, Failure] = field(default_factory=dict)
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
    """The candidates of one event on their way to a decision.

    `run` asks what the plan wants. A call that is asked elsewhere and has not answered yet (`NotAnswered`) is waited
    for: no other call of its candidate, nor of another clause of its subscription that it may make superfluous, starts
    meanwhile, except those of operators that `speculate`. When it has answered, `run` goes on.

    `patient`: a call that failed, but may answer another time, leaves its candidates for later instead of asking their
    other calls, which cannot make them match now.
    """

    def __init__(
        self, layer: "OperatorLayer", waiting: Waiting, *, steps: bool, patient: bool = False, learns: bool = True
    ) -> None:
        self._layer = layer
        self._candidates = waiting.candidates
        self._patient = patient
        literals, calls, self._estimates = layer.problem(waiting.candidates)
        self._calls = calls.tolist()
        self._undecided = Undecided(literals, len(self._calls))
        self._literals = len(literals.predicate)
        self._steps: list[Step] | None = [] if steps else None
        self._step_of: dict[int, int] = {}
        self._members: dict[int, Sequence[int]] = {}
        self._subscription = self._group(waiting.subscriptions)
        self.asking = Asking(layer, waiting.event, learns=learns)
        self._plan = layer.plan(self._undecided, self._estimates, waiting.candidates)
        self._started: dict[int, NotAnswered] = {}  # by predicate
        self._unheld: set[int] = set()  # asked by a plan (`naive`) that asks what decided candidates hold
        self._groups: dict[int, NotAnswered] = {}  # by candidate: a call of a negated group
        self._matched: dict[int, list[dict[str, Any]]] = {}  # by candidate
        self._failures: dict[int, Failure] = {}
        self._concluded: set[int] = set()
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
                self._members[subscription] = candidates
                certain = [each for each, part in zip(candidates, parts, strict=True) if not part.groups]
                self._undecided.group(candidates, certain)
        return found

    @property
    def pending(self) -> bool:
        """Whether an answer is pending; `run` continues when it arrives."""
        return bool(self._started or self._groups)

    def run(self) -> None:
        """Ask, one after another, all that the plan wants and nothing under way hinders."""
        for predicate in [each for each, hanging in self._started.items() if hanging.done()]:
            del self._started[predicate]
            self._take(predicate)
        self._follow_plan()
        while self._started and self._drop():
            self._follow_plan()
        self._conclude()

    def take_known(self, knows: Callable[[str, tuple[object, ...]], bool]) -> None:
        """Settle, before anything is asked, the calls whose answers `knows(operator, arguments)` are there."""
        view = self.asking.view
        for predicate in range(len(self._calls)):
            call = self.call(predicate)
            if all(name in view for name in call.attributes) and knows(call.operator, tuple(call.given(view))):
                self._take(predicate)

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
            self._note_step(chosen)
            self._undecided.begin(chosen)
            found.append(chosen)
        return found

    def call(self, predicate: int) -> Call:
        return self._layer.call_of(self._calls[predicate])

    def settle(self, predicate: int, answer: Answer | OperatorFailed) -> None:
        before = 0 if self._steps is None else self._undecided.unsettled()
        failure = answer.failure if isinstance(answer, OperatorFailed) else None
        outcome = answer.holds if isinstance(answer, Answer) else None
        if failure is not None and (failure.kind == "busy" or (self._patient and not failure.for_good)):
            self._undecided.give_up(predicate)
        else:
            self._undecided.settle(predicate, outcome)
        if self._steps is not None:
            settled = before - self._undecided.unsettled()
            at = self._step_of[predicate]
            self._steps[at] = replace(self._steps[at], outcome=outcome, settled=settled, failure=failure)

    def decision(self) -> Decision:
        """What is known by now. What waits for an answer is undecided."""
        found = Decision(asked=self.asking.asked, literals=self._literals, steps=self._steps)
        found.matched = {self._candidates[each]: bindings for each, bindings in self._matched.items()}
        undecided = dict(self._failures)
        if self.pending:
            settled = [*self._undecided.satisfied(), *self._undecided.undecidable()]
            for each in (*self._undecided.open(), *settled):
                if each not in self._concluded:
                    undecided[each] = NOT_ANSWERED
        for each, failure in undecided.items():
            if not self._has_matched(each):
                found.undecided[self._candidates[each]] = failure
        return found

    def _follow_plan(self) -> None:
        while True:
            chosen = next(self._plan, None)
            if chosen is None or chosen == WAIT:
                break
            self._take(chosen)
        if self._started and self._layer.speculates:
            self._speculate()

    # ── one call ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, predicate: int) -> None:
        """Make the call, and apply its answer or wait for it."""
        self._note_step(predicate)
        answer = self.asking.answer(self.call(predicate))
        if isinstance(answer, NotAnswered):
            if predicate not in self._undecided.under_way:
                self._undecided.begin(predicate)
            self._started[predicate] = answer
            if not self._undecided.is_held(predicate):
                self._unheld.add(predicate)
        else:
            self.settle(predicate, answer)

    def _note_step(self, predicate: int) -> None:
        if self._steps is not None and predicate not in self._step_of:
            held, work = (int(each[predicate].sum()) for each in (self._undecided.popularity, self._undecided.work))
            chance, seconds = (float(each[predicate]) for each in (self._estimates.holds, self._estimates.cost))
            self._step_of[predicate] = len(self._steps)
            self._steps.append(Step(self.call(predicate), chance, seconds, held, work))

    def _speculate(self) -> None:
        """Ask what an open candidate holds and need not be waited with."""
        for predicate in range(len(self._calls)):
            unknown = self._undecided.outcome[predicate] == UNKNOWN
            if unknown and self._layer.operator(self.call(predicate)).speculate and self._undecided.is_held(predicate):
                self._take(predicate)

    def _drop(self) -> bool:
        """Cancel calls whose answers are no longer needed; returns whether there were any."""
        held = self._undecided.is_held
        superfluous = [each for each in self._started if each not in self._unheld and not held(each)]
        for predicate in superfluous:
            self._started.pop(predicate).drop()
            self._undecided.settle(predicate, None)
        return bool(superfluous)

    # ── conclusions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _conclude(self) -> None:
        """What bindings and negated groups say of the candidates whose literals are settled."""
        for satisfied, candidates in ((True, self._undecided.satisfied()), (False, self._undecided.undecidable())):
            for candidate in candidates:
                hanging = self._groups.get(candidate)
                if candidate not in self._concluded and (hanging is None or hanging.done()):
                    self._groups.pop(candidate, None)
                    self._conclude_one(candidate, satisfied)

    def _conclude_one(self, candidate: int, satisfied: bool) -> None:
        part = self._layer.part(self._candidates[candidate])
        if not self._has_matched(candidate):
            if part.groups and self._siblings_hang(candidate):
                return
            try:
                if satisfied:
                    self._finish(candidate)
                else:
                    self._leave(candidate)
            except NotAnswered as hanging:
                self._groups[candidate] = hanging
                return
        self._concluded.add(candidate)

    def _finish(self, candidate: int) -> None:
        """A candidate whose literals all came out as wanted."""
        part = self._layer.part(self._candidates[candidate])
        try:
            bindings = self.asking.bindings(part)
            if bindings and not self.asking.any_has_binding(part.groups):
                self._matched[candidate] = bindings if part.has_variables else []
        except NotAnswered:
            raise
        except OperatorFailed as failed:
            self._failures[candidate] = failed.failure

    def _leave(self, candidate: int) -> None:
        """One that hangs on a call that failed, unless one of its negated groups decides it all the same."""
        part = self._layer.part(self._candidates[candidate])
        known = (self.asking.answers.get(call) for call, _ in part.literals)
        failures = [each.failure for each in known if isinstance(each, OperatorFailed)]
        for group in () if self._patient else part.groups:
            try:
                if self.asking.has_binding(group):
                    return
            except NotAnswered:
                raise
            except OperatorFailed as failed:
                failures.append(failed.failure)
        self._failures[candidate] = Failure.of_clause(failures or [NOT_ANSWERED])

    def _of(self, candidate: int) -> int:
        return self._subscription.get(candidate, NOBODY)

    def _has_matched(self, candidate: int) -> bool:
        """Whether another clause, of which one is enough, matched."""
        members = self._members.get(self._of(candidate), ())
        return any(each in self._matched for each in members)

    def _siblings_hang(self, candidate: int) -> bool:
        """Whether another clause, of which one is enough, waits for an answer."""
        members = self._members.get(self._of(candidate), ())
        state = self._undecided.state
        return any(each != candidate and (each in self._groups or state[each] == OPEN) for each in members)
