"""The operator layer: decides the candidates that the index left, event by event, with as few calls as possible.

candidates ─▶ Undecided ◀─▶ strategy: which call next ─▶ call once ─▶ settle all candidates that depend on it
satisfied  ─▶ bindings joined, constraints, negated groups ─▶ matched
a failed call ─▶ the candidates that depend on it are undecided, the others are not affected

Several events, or several calls of one event, proceed in rounds: each event starts the calls that are needed in any
case, calls of one batching operator are made together, and all answers are applied.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kindcast.semantic.conditions.lowering import ExpensiveClause, GroupClause
from kindcast.semantic.model import CanonicalEvent
from kindcast.semantic.operators.calls import Answer, Call, EventView, OperatorFailed, ask_several, joined, variables_of
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import Failure, NotAnswered
from kindcast.semantic.planner.learning import Experience
from kindcast.semantic.planner.problem import OPEN, UNKNOWN, WAIT, Estimates, Literals, Undecided
from kindcast.semantic.planner.strategies import new_strategy
from kindcast.semantic.units import Units
from kindcast.semantic.units.patterns import STEPS, TooCostlyNow

__all__ = [
    "Asking",
    "Deciding",
    "Decision",
    "Link",
    "LiteralStore",
    "OperatorLayer",
    "Step",
    "Waiting",
]

# ── the decision about one event: its candidates, what is undecided, and the calls that a strategy plans ──────────────


# The answers of one event. Every call is made at most once. Bindings and negated groups are evaluated here too.


T = TypeVar("T")


class Asking:
    """The answers for one event. Every call is made at most once. With `learns=False`, the statistics of the layer do
    not change."""

    def __init__(self, layer: "OperatorLayer", event: CanonicalEvent, *, learns: bool = True) -> None:
        self.answers: dict[Call, Answer | OperatorFailed] = {}
        self._layer = layer
        self._event = event
        self._learns = learns
        self.view = EventView(event)
        self.asked: list[Call] = []

    def answer(self, call: Call) -> Answer | OperatorFailed:
        """Returns the answer to a call. The operator is called only the first time, and again after `NotAnswered`."""
        found = self.kept(call)
        return self.note(call, *self._layer.ask(call, self.view)) if found is None else found

    def kept(self, call: Call) -> Answer | OperatorFailed | None:
        """Returns an answer that exists already, for this event or for another event with the same cache key."""
        found: Answer | OperatorFailed | None = self.answers.get(call)
        if found is None:
            operator = self._layer.operator(call)
            found = self._layer.answers.get(self._layer.answers.key(call, operator, self.view))
            if found is not None:
                self.answers[call] = found
        return found

    def note(self, call: Call, answer: Answer | OperatorFailed, seconds: float) -> Answer | OperatorFailed:
        """Records the answer of an operator that was called."""
        if isinstance(answer, NotAnswered):
            return answer
        self.answers[call] = answer
        self.asked.append(call)
        if all(name in self.view for name in call.attributes):  # otherwise the operator was not called
            if self._learns:
                self._layer.learn(call, answer, seconds)
            if isinstance(answer, Answer):
                operator = self._layer.operator(call)
                self._layer.answers.keep(self._layer.answers.key(call, operator, self.view), answer, operator)
        return answer

    def bindings(self, part: ExpensiveClause) -> list[dict[str, Any]]:
        """Returns the joined bindings of a clause whose literals hold. Without variables this is one empty binding."""
        known: dict[Call, Answer] = {}
        for call, _ in part.sources:
            answer = self.answer(call)
            if isinstance(answer, OperatorFailed):
                raise answer
            known[call] = answer
        return self._layer.joined(part, known)

    def has_no_binding(self, part: ExpensiveClause) -> bool:
        """Whether the answers that are known leave a clause without joined bindings, whatever its other calls answer.
        Makes no call."""
        known = {call: found for call, _ in part.sources if isinstance(found := self.answers.get(call), Answer)}
        sources = tuple(each for each in part.sources if each[0] in known)
        bound = frozenset(name for _, names in sources for name in names)
        constraints = tuple(each for each in part.constraints if variables_of(each) <= bound)
        try:
            return not self._layer.joined(replace(part, sources=sources, constraints=constraints), known)
        except OperatorFailed:  # too many combinations
            return False

    def any_has_binding(self, groups: Sequence[Sequence[GroupClause]]) -> bool:
        """Whether one of the negated groups holds by itself. Raises `OperatorFailed` if none is known to hold and one
        depends on a call that failed. Raises `NotAnswered` at the first call without an answer; the later groups are
        not evaluated then."""
        return _some(self.has_binding, groups)

    def has_binding(self, group: Sequence[GroupClause]) -> bool:
        """Whether one conjunction of a negated group holds by itself. Raises the same errors as `any_has_binding`."""
        return _some(self._clause_holds, group)

    def _clause_holds(self, clause: GroupClause) -> bool:
        try:
            cheap = all(atom.holds(self._event) for atom in clause.cheap)
        except TooCostlyNow as error:
            if error.steps > STEPS:
                raise OperatorFailed(
                    "a long text or many values take too long in a negated group", for_good=True
                ) from None
            raise OperatorFailed(
                "too many long texts and values are tested in negated groups", kind="busy", after=1.0
            ) from None
        return cheap and self._holds(clause.rest)

    def _holds(self, part: ExpensiveClause) -> bool:
        if any(name not in self.view for name in part.required):
            return False
        tests: list[Callable[[], bool]] = [partial(self._misses, call, wanted) for call, wanted in part.literals]
        tests += [partial(self.has_binding, group) for group in part.groups]
        try:
            return not _some(lambda test: test(), tests) and bool(self.bindings(part))
        except NotAnswered:
            raise
        except OperatorFailed:
            if self.has_no_binding(part):
                return False
            raise

    def _misses(self, call: Call, wanted: bool) -> bool:
        answer = self.answer(call)
        if isinstance(answer, OperatorFailed):
            raise answer
        return answer.holds is not wanted


def _some(test: Callable[[T], bool], items: Iterable[T]) -> bool:
    """Whether `test` holds for one of `items`. A failure is raised only if it holds for none."""
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


NOBODY = -1
"""The subscription of a candidate that no other clause can decide."""
NOT_ANSWERED = Failure("waiting", "an operator has not answered yet")


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a plan, for explanations: the estimates before it, and its result."""

    call: Call
    chance: float
    """The estimated probability that it holds."""
    seconds: float
    """The estimated cost in seconds."""
    popularity: int
    """The number of open candidates that contain the call."""
    work: int
    """The number of unevaluated literals of these candidates: the most that the call could settle."""
    outcome: bool | None = None
    settled: int = 0
    """The number of candidates that the answer decided."""
    failure: Failure | None = None
    """The reason why there is no outcome."""


@dataclass(slots=True)
class Decision:
    """The result for the candidates of one event: matching clause → its joined bindings; undecided clause → the
    failure; and the calls that were made, in order. `literals` is the number of calls if none were shared or
    skipped."""

    matched: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    undecided: dict[int, Failure] = field(default_factory=dict)
    asked: list[Call] = field(default_factory=list)
    literals: int = 0
    steps: list[Step] | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The candidates of one event. `subscriptions` holds the subscription of each, if one matching clause per
    subscription is enough (unless one of its clauses has variables): its others are not in the result."""

    candidates: Sequence[int]
    event: CanonicalEvent
    subscriptions: Sequence[int] | None = None


class Deciding:
    """The evaluation of the candidates of one event.

    `run` makes the calls that the plan chooses. A call that is made elsewhere may have no answer yet (`NotAnswered`).
    Until it has, no other call of its candidate starts, and no call of another clause of the same subscription that the
    answer may make superfluous. Operators that `speculate` are an exception. When the answer has arrived, `run`
    continues.

    `patient`: if a call failed but may succeed later, its candidates are left for later. Their other calls are not
    made, because they cannot make the candidates match now.
    """

    def __init__(
        self,
        layer: "OperatorLayer",
        waiting: Waiting,
        *,
        steps: bool = False,
        patient: bool = False,
        learns: bool = True,
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
        self._started: dict[int, NotAnswered] = {}  # predicate → the pending call
        self._unheld: set[int] = set()  # made although only decided candidates contain them (by the plan `naive`)
        self._groups: dict[int, NotAnswered] = {}  # candidate → a pending call of a negated group
        self._matched: dict[int, list[dict[str, Any]]] = {}  # candidate → bindings
        self._failures: dict[int, Failure] = {}
        self._concluded: set[int] = set()
        self.done = False

    def _group(self, subscriptions: Sequence[int] | None) -> Mapping[int, int]:
        """Returns candidate → subscription for the subscriptions of which one matching clause is enough. Tells the
        planner, so that it skips calls that are not needed."""
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
        """Makes the calls that the plan chooses, one after another, until the plan must wait for pending answers."""
        for predicate in [each for each, hanging in self._started.items() if hanging.done()]:
            del self._started[predicate]
            self._take(predicate)
        self._follow_plan()
        while self._started and self._drop():
            self._follow_plan()
        self._conclude()

    def take_known(self, knows: Callable[[str, tuple[object, ...]], bool]) -> None:
        """Before any call is made, settles the calls for which `knows(operator, arguments)` says that an answer
        exists."""
        view = self.asking.view
        for predicate in range(len(self._calls)):
            call = self.call(predicate)
            if all(name in view for name in call.attributes) and knows(call.operator, tuple(call.given(view))):
                self._take(predicate)

    def choose(self, most: int) -> list[int]:
        """Returns at most `most` predicates that are needed whatever the others result in, and marks them as under
        way."""
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
        """Returns the current results. A candidate that waits for an answer is undecided."""
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
        """Makes the call, and applies its answer or records that it is pending."""
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
        """Makes the calls of speculating operators that an open candidate contains."""
        for predicate in range(len(self._calls)):
            unknown = self._undecided.outcome[predicate] == UNKNOWN
            if unknown and self._layer.operator(self.call(predicate)).speculate and self._undecided.is_held(predicate):
                self._take(predicate)

    def _drop(self) -> bool:
        """Cancels pending calls whose answers are no longer needed. Returns whether there were any."""
        held = self._undecided.is_held
        superfluous = [each for each in self._started if each not in self._unheld and not held(each)]
        for predicate in superfluous:
            self._started.pop(predicate).drop()
            self._undecided.settle(predicate, None)
        return bool(superfluous)

    # ── conclusions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _conclude(self) -> None:
        """Decides the candidates whose literals are settled, by their bindings and negated groups."""
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
        """Decides a candidate whose literals all have the wanted outcome."""
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
        """Records the failure of a candidate that depends on a failed call, unless the bindings of its other calls, or
        one of its negated groups, exclude it anyway."""
        part = self._layer.part(self._candidates[candidate])
        if self.asking.has_no_binding(part):
            return
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
        """Whether another clause of the same subscription has matched, where one is enough."""
        members = self._members.get(self._of(candidate), ())
        return any(each in self._matched for each in members)

    def _siblings_hang(self, candidate: int) -> bool:
        """Whether another clause of the same subscription, where one is enough, waits for an answer."""
        members = self._members.get(self._of(candidate), ())
        state = self._undecided.state
        return any(each != candidate and (each in self._groups or state[each] == OPEN) for each in members)


# The literals of all clauses are in flat arrays, so that those of ten thousand candidates are gathered in one step.

FIRST_ROOM = 64
"""The initial capacity of the arrays; it grows as needed."""


class LiteralStore:
    """The numbers of calls and the wanted outcomes of each clause. Has a single owner; not thread-safe.

        begin, length   by clause                      number, wanted   int32, int8: clause after clause, with gaps

    A removed clause leaves a gap. When half of the array consists of gaps, it is compacted.
    """

    def __init__(self) -> None:
        self._begin = np.zeros(FIRST_ROOM, dtype=np.int64)
        self._length = np.full(FIRST_ROOM, -1, dtype=np.int32)
        self._number = np.zeros(FIRST_ROOM, dtype=np.int32)
        self._wanted = np.zeros(FIRST_ROOM, dtype=np.int8)
        self._end = 0
        self._gaps = 0

    def add(self, clause: int, numbers: Sequence[int], wanted: Sequence[bool]) -> None:
        """Adds a clause. Amortised constant per literal. The memory depends on the largest clause number."""
        if clause >= len(self._begin):
            room = 2 * clause + 2 - len(self._begin)
            self._begin = np.concatenate([self._begin, np.zeros(room, dtype=np.int64)])
            self._length = np.concatenate([self._length, np.full(room, -1, dtype=np.int32)])
        end = self._end + len(numbers)
        if end > len(self._number):
            self._number = np.concatenate([self._number, np.zeros(end, dtype=np.int32)])
            self._wanted = np.concatenate([self._wanted, np.zeros(end, dtype=np.int8)])
        self._number[self._end : end] = numbers
        self._wanted[self._end : end] = wanted
        self._begin[clause], self._length[clause] = self._end, len(numbers)
        self._end = end

    def remove(self, clause: int) -> None:
        """Removes a clause, which must exist."""
        self._gaps += int(self._length[clause])
        self._length[clause] = -1
        if self._gaps > FIRST_ROOM and 2 * self._gaps > self._end:
            self._close_gaps()

    def of(self, clauses: Sequence[int]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Returns (first, number, wanted). The literals of `clauses[c]` are at `first[c] : first[c + 1]`."""
        chosen = np.asarray(clauses, dtype=np.int64)
        length = self._length[chosen]
        first = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum(length, out=first[1:])
        at = np.repeat(self._begin[chosen] - first[:-1], length) + np.arange(first[-1])
        return first, self._number[at], self._wanted[at]

    def _close_gaps(self) -> None:
        clauses = np.flatnonzero(self._length >= 0)
        first, number, wanted = self.of(clauses.tolist())
        self._begin[clauses] = first[:-1]
        self._end, self._gaps = len(number), 0
        self._number, self._wanted = number, wanted


def distinct(numbers: npt.NDArray[np.int32], below: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns (the distinct numbers in ascending order; the index of each of `numbers` among them). Linear in `below`.

    >>> [each.tolist() for each in distinct(np.array([7, 3, 7], dtype=np.int32), 10)]
    [[3, 7], [1, 0, 1]]
    """
    if below > 16 * len(numbers) + 1024:  # few numbers of a large range: sorting is faster
        found, places = np.unique(numbers, return_inverse=True)
        return found, places.astype(np.int32)
    there = np.zeros(below, dtype=np.int32)
    there[numbers] = 1
    found = np.flatnonzero(there).astype(np.int32)
    there[found] = np.arange(len(found), dtype=np.int32)
    return found, there[numbers]


# The answer cache, for operators that declare what their answers depend on (`cache_key`).

MOST_ANSWERS = 20_000
"""The maximum number of cached answers. The least recently used one is dropped. They take some tens of megabytes if the
keys contain digests of images."""
LONGEST_KEY = 200
"""The maximum length in characters of a text in a key that is kept as it is. For a longer text, its prefix, hashes and
length are kept."""


class Answers:
    """The answer cache: answers by call and key. Has a single owner; not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Answer, float]] = {}
        self.used = 0

    def __len__(self) -> int:
        return len(self._kept)

    def key(self, call: Call, operator: Operator, event: EventView) -> Hashable | None:
        """Returns the cache key of a call; None if its answer is not cached."""
        if operator.cache_key is None or any(name not in event for name in call.attributes):
            return None
        try:
            key = operator.key(event, call.given(event))
            return None if key is None else (call, _exact(key))
        except Exception:  # a function of a plug-in failed: the call itself reports it
            return None

    def get(self, key: Hashable | None) -> Answer | None:
        """Returns a cached answer. It has no duration, so nothing is learned from it."""
        if key is None:
            return None
        found = self._kept.pop(key, None)
        if found is None or found[1] < time.monotonic():
            return None
        self._kept[key] = found
        self.used += 1
        return found[0]

    def keep(self, key: Hashable | None, answer: Answer, operator: Operator) -> None:
        """Stores a new answer."""
        if key is None:
            return
        until = float("inf") if operator.cache_seconds is None else time.monotonic() + operator.cache_seconds
        self._kept[key] = (Answer(answer.holds, answer.bindings, seconds=0.0), until)
        if len(self._kept) > MOST_ANSWERS:
            del self._kept[next(iter(self._kept))]


def _exact(key: Any) -> Hashable:
    """Returns a key in which 1, 1.0 and true differ, and which is short for long texts. Raises TypeError."""
    if isinstance(key, str) and len(key) > LONGEST_KEY:
        return "long text", len(key), key[:LONGEST_KEY], hash(key), hash(key[::-1])
    if isinstance(key, Sequence) and not isinstance(key, str | bytes):
        return tuple(map(_exact, key))
    hash(key)
    return type(key).__name__, key


@dataclass(frozen=True, slots=True)
class Link:
    """A call of a clause: whether it must hold, its estimated probability, and its estimated duration."""

    call: Call
    wanted: bool
    chance: float
    seconds: float

    @property
    def passing(self) -> float:
        """The probability that the call has the wanted outcome."""
        return self.chance if self.wanted else 1.0 - self.chance


@dataclass(slots=True)
class _Known:
    """A call that a clause contains: its number, its text, and the number of clauses that contain it."""

    number: int
    text: str
    holders: int = 0


class OperatorLayer:
    """The expensive parts of all clauses, by clause number. Has a single owner; not thread-safe.

    `decide` makes one call for each predicate that the strategy chooses; choosing costs some 10 µs. With `threads`
    above 1, up to that number of calls of one event that are needed in any case run at the same time. Each operator
    runs in as many threads as it allows.
    """

    def __init__(self, operators: Mapping[str, Operator], planner: str, units: Units, *, threads: int = 1) -> None:
        """Raises `UnknownPlanner`."""
        self._operators = operators
        self._units = units
        self._strategy = new_strategy(planner)
        self._threads = threads
        self.experience = Experience()
        self.answers = Answers()
        self._clauses: dict[int, ExpensiveClause] = {}
        self._literals = LiteralStore()
        self._known: dict[Call, _Known] = {}
        self._call_of: list[Call | None] = []
        self._free: list[int] = []
        self._holds = np.zeros(FIRST_ROOM)
        self._cost = np.ones(FIRST_ROOM)

    def __len__(self) -> int:
        return len(self._clauses)

    def __contains__(self, clause: object) -> bool:
        return clause in self._clauses

    def holders(self, call: Call) -> int:
        """Returns the number of clauses that contain a call."""
        known = self._known.get(call)
        return 0 if known is None else known.holders

    def has_variables(self, clause: int) -> bool:
        """Whether the matches of a clause have bindings."""
        return self._clauses[clause].has_variables

    def add(self, clause: int, part: ExpensiveClause) -> None:
        """Adds a clause."""
        numbers = [self._hold(call) for call, _ in part.literals]
        wanted = [wanted for _, wanted in part.literals]
        self._clauses[clause] = part
        self._literals.add(clause, numbers, wanted)
        self._strategy.add(clause, numbers, wanted)

    def remove(self, clause: int) -> None:
        """Removes a clause. Raises KeyError if it does not exist."""
        part = self._clauses.pop(clause)
        self._literals.remove(clause)
        self._strategy.remove(clause)
        for call, _ in part.literals:
            known = self._known[call]
            known.holders -= 1
            if not known.holders:
                del self._known[call]
                self._call_of[known.number] = None
                self._free.append(known.number)

    def learned(self, experience: Experience) -> None:
        """Replaces everything learned so far by `experience`."""
        self.experience = experience
        for call, known in self._known.items():
            self._estimate(call, known)

    def chain(self, clause: int) -> list[Link]:
        """Returns the calls of a clause in the order of the strategy, for an event without other candidates, if each
        call has the wanted outcome."""
        wanted = dict(self._clauses[clause].literals)
        literals, calls, estimates = self.problem([clause])
        undecided = Undecided(literals, len(calls))
        found = []
        for predicate in self.plan(undecided, estimates, [clause]):
            call = self.call_of(int(calls[predicate]))
            chance, seconds = float(estimates.holds[predicate]), float(estimates.cost[predicate])
            found.append(Link(call, wanted[call], chance, seconds))
            undecided.settle(predicate, wanted[call])
        return found

    def decide_several(self, waiting: Sequence[Waiting]) -> list[Decision]:
        """Returns for each event which of its candidate clauses match. Their cheap atoms must hold already. An operator
        that answers in batches is called for all events together."""
        deciding = [Deciding(self, each) for each in waiting]
        if self._threads == 1 and not (len(waiting) > 1 and any(each.batch for each in self._operators.values())):
            for each in deciding:
                each.run()
        else:
            self._rounds(deciding)
            for each in deciding:
                each.run()  # bindings and negated groups
        return [each.decision() for each in deciding]

    def open(self, waiting: Waiting, *, steps: bool = False, patient: bool = False, learns: bool = True) -> Deciding:
        """Starts the evaluation of one event for a caller that does not wait for answers; see `Deciding`."""
        return Deciding(self, waiting, steps=steps, patient=patient, learns=learns)

    def _rounds(self, deciding: Sequence[Deciding]) -> None:
        open_ones = list(deciding)
        alone = self._threads == 1
        with nullcontext() if alone else ThreadPoolExecutor(self._threads, "kindcast-operators") as pool:
            while open_ones:
                chosen = [(each, number) for each in open_ones for number in each.choose(self._threads)]
                asked = [(each.call(number), each.asking) for each, number in chosen]
                found = self._answers(asked, pool)
                for (each, number), answer in zip(chosen, found, strict=True):
                    each.settle(number, answer)
                open_ones = [each for each in open_ones if not each.done]

    def _answers(
        self, asked: Sequence[tuple[Call, Asking]], pool: ThreadPoolExecutor | None
    ) -> list[Answer | OperatorFailed]:
        """Returns the answers to calls in their order; makes the calls that have no cached answer."""
        found: dict[int, Answer | OperatorFailed] = {}
        waiting: dict[str, list[int]] = {}
        for number, (call, asking) in enumerate(asked):
            kept = asking.kept(call)
            if kept is not None:
                found[number] = kept
            else:
                waiting.setdefault(call.operator, []).append(number)
        together: list[list[int]] = []
        for name, numbers in waiting.items():
            together += [numbers] if self._operators[name].batch else [[number] for number in numbers]
        jobs = [[(asked[number][0], asked[number][1].view) for number in numbers] for numbers in together]
        results = pool.map(self._timed, jobs) if pool is not None else map(self._timed, jobs)
        for numbers, (answers, seconds) in zip(together, results, strict=True):
            for number, answer in zip(numbers, answers, strict=True):
                call, asking = asked[number]
                found[number] = asking.note(call, answer, seconds / len(numbers))
        return [found[number] for number in range(len(asked))]

    # ── estimates of calls ──────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, call: Call, view: EventView) -> tuple[Answer | OperatorFailed, float]:
        """Returns (the answer of the operator, the seconds that it took)."""
        answers, seconds = self._timed([(call, view)])
        return answers[0], seconds

    def _timed(self, asked: Sequence[tuple[Call, EventView]]) -> tuple[list[Answer | OperatorFailed], float]:
        """Makes calls of one operator. Does not change this object, so any thread may call it."""
        began = time.perf_counter()
        answers = ask_several(asked, self._operators[asked[0][0].operator], self._units)
        return answers, time.perf_counter() - began

    def learn(self, call: Call, answer: Answer | OperatorFailed, seconds: float) -> None:
        """Records the result and the duration of a call that was made."""
        known = self._known.get(call)
        text = str(call) if known is None else known.text
        if isinstance(answer, OperatorFailed):
            if answer.teaches:
                self.experience.note_failure(call.operator, text)
            return
        seconds = seconds if answer.seconds is None else answer.seconds
        if seconds > 0.0:
            self.experience.note(call.operator, text, answer.holds, seconds)
            if known is not None:
                self._estimate(call, known)

    @property
    def speculates(self) -> bool:
        """Whether an operator's calls may start before it is known that they are needed."""
        return any(each.speculate for each in self._operators.values())

    def operator(self, call: Call) -> Operator:
        return self._operators[call.operator]

    def problem(self, candidates: Sequence[int]) -> tuple[Literals, npt.NDArray[np.int32], Estimates]:
        """Returns the literals of these clauses with predicates numbered from 0, the number of each predicate's call in
        this layer, and the estimates of the calls."""
        first, numbers, wanted = self._literals.of(candidates)
        calls, local = distinct(numbers, len(self._call_of))
        return Literals(first, local, wanted), calls, Estimates(self._holds[calls], self._cost[calls])

    def plan(self, undecided: Undecided, estimates: Estimates, candidates: Sequence[int]) -> Iterator[int]:
        return self._strategy.plan(undecided, estimates, candidates)

    def call_of(self, number: int) -> Call:
        call = self._call_of[number]
        assert call is not None, "a clause holds a call that the layer does not know"
        return call

    def part(self, clause: int) -> ExpensiveClause:
        return self._clauses[clause]

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
            known = self._known[call] = _Known(number, str(call))
            if number >= len(self._holds):
                self._holds = np.concatenate([self._holds, np.zeros(len(self._holds))])
                self._cost = np.concatenate([self._cost, np.ones(len(self._cost))])
            self._estimate(call, known)
        known.holders += 1
        return known.number

    def _estimate(self, call: Call, known: _Known) -> None:
        operator = self._operators[call.operator]
        holds, cost = self.experience.expected(call.operator, known.text, operator.selectivity, operator.cost)
        self._holds[known.number], self._cost[known.number] = holds, cost
        self._strategy.learned(known.number, holds, cost)
