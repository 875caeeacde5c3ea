"""Operator answers about one event, collected without waiting for slow operators.

    planner ──▶ Deferred ──▶ EventAnswers ──▶ DirectClient: a built-in operator answers at once
                                  │    └────▶ QueuedClient: a service or a process answers later; the answer is cached
                                  └ no answer yet: `NotAnswered`; the planner goes on with calls that need not wait

A call is not repeated for the same event, not even in a later try (`AnswerCache`).
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

from kindcast.semantic.operators import NotAnswered, OperatorFailed, Remembered

__all__ = [
    "AnswerCache",
    "Answered",
    "Deferred",
    "DirectClient",
    "EventAnswers",
    "OperatorClient",
    "answering_from",
    "missing",
]

Event = Mapping[str, tuple[Any, ...]]


def missing(name: str) -> OperatorFailed:
    """Returns the error for an operator that is no longer provided."""
    return OperatorFailed(f"there is no operator {name!r} at present", kind="missing")


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of an operator, and the seconds that it took. The seconds are 0.0 for all waiters of a shared call
    except the first."""

    value: object
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class DirectClient:
    """The client of a built-in operator, which answers at once in the calling thread."""

    function: Callable[..., object]

    def status(self) -> dict[str, Any]:
        """Returns the state in the form of other clients. A direct call has no circuit breaker, so it is always
        closed."""
        return {"circuit": {"state": "closed"}}

    def close(self) -> None:
        """Does nothing, because there is nothing to free."""


class QueuedClient(Protocol):
    """The client of an operator that answers later: a remote service, or a plug-in in a child process."""

    def start(self, event: Event, arguments: tuple[Any, ...]) -> "Future[Answered]":
        """Starts a call. May be called in any thread. Cancel the future if the answer is no longer needed."""

    def status(self) -> dict[str, Any]:
        """Returns the state of the circuit breaker and the number of calls, as the API shows them."""

    def close(self) -> None:
        """Ends the client. No call may be started afterwards."""


OperatorClient = DirectClient | QueuedClient

Question = tuple[OperatorClient, str]
"""A client and the arguments as text: within one event, equal questions have equal answers."""


@dataclass(slots=True)
class _Kept:
    """The answers about one event, the number of its users, and its subscriptions that are tried again later."""

    answers: dict[Question, object] = field(default_factory=dict)
    users: int = 0
    postponed: set[str] = field(default_factory=set)


class AnswerCache:
    """The answers about events that are being decided or that wait for a further try, so that no call is repeated. It
    is in memory, for at most `MOST` events; the oldest are dropped first. For one event loop."""

    MOST = 10_000

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def of(self, event: int, ids: Iterable[str]) -> Iterator[tuple[dict[Question, object], set[str]]]:
        """A context manager for the task that decides the candidates `ids` of an event. It yields the known answers,
        which the task extends, and the set in which the task notes the candidates that are tried again. The answers are
        dropped when no task and no further try needs them."""
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


class EventAnswers:
    """Calls operators about one event. Only one thread at a time may use it. `woken` is called, in any thread, for each
    answer that arrives after `NotAnswered` was raised for it."""

    def __init__(
        self,
        clients: Mapping[str, OperatorClient],
        *,
        woken: Callable[[], None],
        answers: dict[Question, object] | None = None,
    ) -> None:
        """`answers` are already known; new ones are added."""
        self._clients = clients
        self._woken = woken
        self._answers = {} if answers is None else answers
        self.not_answered = 0
        """How often `ask` has raised `NotAnswered`."""
        self._started: dict[Question, Future[Answered]] = {}
        self._waiting: Counter[Question] = Counter()
        self._failed: dict[Question, OperatorFailed] = {}

    def ask(self, name: str, event: Event, arguments: tuple[Any, ...]) -> object:
        """Returns the answer of an operator. Raises `NotAnswered`, `OperatorFailed`, and any error of a built-in
        operator."""
        client = self._clients.get(name)
        if client is None:
            raise missing(name)
        if isinstance(client, DirectClient):
            return client.function(event, *arguments)
        question = (client, repr(arguments))  # plain values: equal texts mean equal arguments
        if question in self._answers:
            return Remembered(self._answers[question])
        if question in self._failed:
            raise self._failed[question]
        future = self._started.get(question)
        if future is None:
            future = self._started[question] = client.start(event, arguments)
            future.add_done_callback(lambda _: self._woken())
        if not future.done():
            self._waiting[question] += 1
            self.not_answered += 1
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
        """Whether any answer is known."""
        return bool(self._answers)

    def knows(self, name: str, arguments: tuple[object, ...]) -> bool:
        """Whether the answer of an operator to these arguments is known."""
        client = self._clients.get(name)
        return client is not None and (client, repr(arguments)) in self._answers

    @property
    def is_waiting(self) -> bool:
        """Whether a call has not been answered yet."""
        return not all(each.done() for each in self._started.values())

    def cancel(self) -> None:
        """Cancels the calls that are not answered yet."""
        for each in self._started.values():
            each.cancel()

    def _drop(self, question: Question) -> None:
        self._waiting[question] -= 1
        if not self._waiting[question] and question in self._started:
            self._started.pop(question).cancel()


@dataclass(frozen=True, slots=True)
class Deferred:
    """The function of an operator on the server. It calls the operator through the `EventAnswers` of the current
    thread."""

    name: str
    __signature__: inspect.Signature = field(repr=False)

    def __call__(self, event: Event, *arguments: Any) -> object:
        event_answers = getattr(_here, "event_answers", None)
        if event_answers is None:
            raise OperatorFailed("is not called here", kind="missing")
        answer: object = event_answers.ask(self.name, event, arguments)
        return answer


@contextmanager
def answering_from(event_answers: EventAnswers) -> Iterator[None]:
    """A context manager: while the block runs, operators are called through `event_answers` in this thread."""
    before = getattr(_here, "event_answers", None)
    _here.event_answers = event_answers
    try:
        yield
    finally:
        _here.event_answers = before


_here = threading.local()
