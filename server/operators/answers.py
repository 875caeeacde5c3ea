"""Operator answers about one event, collected without waiting for slow operators.

    planner ──▶ Deferred ──▶ Asking ── at once ──▶ built-in operators
                              │  └──── started ──▶ a service, a process ──▶ answer ──▶ kept here
                              └ not answered yet: `NotAnswered`, and the planner goes on with what need not wait for it

What was answered is not asked again, nor in a later try of the same event (`AnswersByEvent`). For explanations `Asking`
can wait for each answer instead.
"""

import inspect
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kindcast.semantic.operators.calls import Remembered
from kindcast.semantic.operators.failures import NotAnswered, OperatorFailed

__all__ = ["Answered", "AnswersByEvent", "Asking", "Caller", "Deferred", "asking_through", "missing"]

Event = Mapping[str, tuple[Any, ...]]


def missing(name: str) -> OperatorFailed:
    """The operator is not provided any more."""
    return OperatorFailed(f"there is no operator {name!r} at present", kind="missing")


@dataclass(frozen=True, slots=True)
class Answered:
    """What an operator returned, and the seconds it took; 0.0 for all but the first of those who share the answer."""

    value: object
    seconds: float


class Caller(Protocol):
    """A way to one operator."""

    at_once: bool
    """Whether `call` answers by itself, in the caller's thread, in no time to speak of."""

    def call(self, event: Event, arguments: tuple[Any, ...]) -> object:
        """The answer, at once."""

    def start(self, event: Event, arguments: tuple[Any, ...]) -> "Future[Answered]":
        """The future answer. Any thread. Cancel it when it is not needed any more."""

    def told(self) -> dict[str, Any]:
        """How it is doing, for people."""

    def close(self) -> None:
        """It is not asked any more."""


Question = tuple[Caller, str]
"""An operator as it is registered, and the arguments: within one event, what is asked alike is answered alike."""


@dataclass(slots=True)
class _Kept:
    """The answers about one event; how many are at it; which of its subscriptions are to be tried again."""

    answers: dict[Question, object] = field(default_factory=dict)
    users: int = 0
    postponed: set[str] = field(default_factory=set)


class AnswersByEvent:
    """What operators answered of events that are being decided, or some of whose candidates are to be tried again, so
    that nothing is asked twice. In memory; of events that wait for a try, so many, those of old tries go first. On one
    event loop."""

    MOST = 10_000

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def of(self, event: int, ids: Iterable[str]) -> Iterator[tuple[dict[Question, object], set[str]]]:
        """(the answers about an event, to be read and added to; where to note those of `ids` that are to be tried
        again), for who decides these candidates. The answers go when nobody decides any of the event's, nor will."""
        kept = self._kept.setdefault(event, _Kept())
        self._kept.move_to_end(event)
        kept.postponed.difference_update(ids)
        kept.users += 1
        try:
            yield kept.answers, kept.postponed
        finally:
            kept.users -= 1
            if not kept.users and not kept.postponed:
                self._kept.pop(event, None)
            while len(self._kept) > self.MOST:
                self._kept.popitem(last=False)


class Asking:
    """The answers about one event. One thread at a time; `woken` is called, in any thread, for every answer that comes
    after `NotAnswered` was raised for it."""

    def __init__(
        self,
        callers: Mapping[str, Caller],
        *,
        woken: Callable[[], None] | None = None,
        answers: dict[Question, object] | None = None,
    ) -> None:
        """Without `woken`, it waits for each answer. `answers` are known already, and grow."""
        self._callers = callers
        self._woken = woken
        self._answers = {} if answers is None else answers
        self._started: dict[Question, Future[Answered]] = {}
        self._waiting: Counter[Question] = Counter()
        self._failed: dict[Question, OperatorFailed] = {}

    def ask(self, name: str, event: Event, arguments: tuple[Any, ...]) -> object:
        """The answer of an operator. Raises `NotAnswered`, `OperatorFailed`, and whatever an operator of our own
        raises."""
        caller = self._callers.get(name)
        if caller is None:
            raise missing(name)
        if caller.at_once:
            return caller.call(event, arguments)
        question = (caller, repr(arguments))  # plain values: what looks alike is alike
        if question in self._answers:
            return Remembered(self._answers[question])
        if question in self._failed:
            raise self._failed[question]
        future = self._started.get(question)
        if future is None:
            future = self._started[question] = caller.start(event, arguments)
            if self._woken is not None:
                woken = self._woken
                future.add_done_callback(lambda _: woken())
        if self._woken is not None and not future.done():
            self._waiting[question] += 1
            raise NotAnswered("has not answered yet", future.done, partial(self._drop, question))
        del self._started[question]
        try:
            answered = future.result()
        except OperatorFailed as failed:
            self._failed[question] = failed.again()
            raise
        self._answers[question] = answered.value
        return Remembered(answered.value, answered.seconds)

    @property
    def has_answers(self) -> bool:
        """Whether anything was answered before."""
        return bool(self._answers)

    def knows(self, name: str, arguments: tuple[object, ...]) -> bool:
        """Whether an operator has answered this before."""
        caller = self._callers.get(name)
        return caller is not None and (caller, repr(arguments)) in self._answers

    def cancel(self) -> None:
        """Drop what was not answered."""
        for each in self._started.values():
            each.cancel()

    def _drop(self, question: Question) -> None:
        self._waiting[question] -= 1
        if not self._waiting[question] and question in self._started:
            self._started.pop(question).cancel()


@dataclass(frozen=True, slots=True)
class Deferred:
    """The function of an operator on the server: asks through the `Asking` of the event in this thread."""

    name: str
    __signature__: inspect.Signature = field(repr=False)

    def __call__(self, event: Event, *arguments: Any) -> object:
        asking = getattr(_here, "asking", None)
        if asking is None:
            raise OperatorFailed("is not asked here", kind="missing")
        answer: object = asking.ask(self.name, event, arguments)
        return answer


@contextmanager
def asking_through(asking: Asking) -> Iterator[None]:
    """In this thread, operators are asked through `asking` for as long as the block runs."""
    before = getattr(_here, "asking", None)
    _here.asking = asking
    try:
        yield
    finally:
        _here.asking = before


_here = threading.local()
