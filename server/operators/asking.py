"""Asking operators about one event without waiting for those that take their time.

    planner ──▶ Deferred ──▶ Asking ── at once ──▶ built-in operators
                              │  └──── started ──▶ a service, a process ──▶ answer ──▶ kept here
                              └ not answered yet: `StillAsked`, and the planner goes on with the others

The event is looked at again when an answer has come; what was answered is not asked again. For explanations `Asking`
can wait for each answer instead.
"""

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from semantic.operators.calls import NotAsked, OperatorFailed, Remembered
from semantic.operators.failures import NotYet
from server.operators.circuit import CircuitOpen

__all__ = [
    "STILL_ASKED",
    "TOO_BUSY",
    "Answered",
    "Asking",
    "Caller",
    "Deferred",
    "StillAsked",
    "TooBusy",
    "asking_through",
]

Event = Mapping[str, tuple[Any, ...]]


STILL_ASKED = "is still being asked"
TOO_BUSY = "has too much to do at present"
"""By which a reason tells what kind it is: it is all that is left of a failure when the planner is done."""


class StillAsked(NotYet):
    """The operator was asked and has not answered yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} {STILL_ASKED}")


class TooBusy(NotYet):
    """So many calls of the operator wait already that this one is turned away; `after` says for how long."""

    def __init__(self, name: str, after: float) -> None:
        super().__init__(f"{name} {TOO_BUSY}", after=after)


@dataclass(frozen=True, slots=True)
class Answered:
    """What an operator returned, and the seconds it took."""

    value: object
    seconds: float


class Caller(Protocol):
    """A way to one operator."""

    at_once: bool
    """Whether `call` answers by itself, in the caller's thread, in no time to speak of."""

    def call(self, event: Event, arguments: tuple[Any, ...]) -> object:
        """The answer, at once."""

    def start(self, event: Event, arguments: tuple[Any, ...]) -> "Future[Answered]":
        """The answer, later. Any thread."""

    def told(self) -> dict[str, Any]:
        """How it is doing, for people."""

    def close(self) -> None:
        """It is not asked any more."""


class Asking:
    """The answers about one event. One thread at a time; `woken` is called, in any thread, for every answer that comes
    after `StillAsked` was raised for it."""

    def __init__(self, callers: Mapping[str, Caller], *, woken: Callable[[], None] | None = None) -> None:
        """Without `woken`, it waits for each answer."""
        self._callers = callers
        self._woken = woken
        self._started: dict[tuple[str, str], Future[Answered]] = {}
        self._told: set[tuple[str, str]] = set()
        self.not_before = 0.0
        """When the circuit of an operator that is left alone lets a call through again, in seconds since 1970."""
        self.busy_seconds = 0.0
        """How long those should wait that were turned away."""
        self.for_good: set[str] = set()
        """Reasons of failures that asking again cannot mend."""

    @property
    def pending(self) -> bool:
        """Whether an answer is yet to come."""
        return any(not each.done() for each in self._started.values())

    def ask(self, name: str, event: Event, arguments: tuple[Any, ...]) -> object:
        """The answer of an operator. Raises `StillAsked`, `OperatorFailed`, and whatever an operator of our own
        raises."""
        caller = self._callers.get(name)
        if caller is None:
            raise NotAsked(f"there is no operator {name!r} at present")
        if caller.at_once:
            return self._at_once(caller, event, arguments)
        key = (name, repr(arguments))  # plain values: what looks alike is alike
        future = self._started.get(key)
        if future is None:
            future = self._started[key] = caller.start(event, arguments)
            if self._woken is not None:
                woken = self._woken
                future.add_done_callback(lambda _: woken())
        if self._woken is not None and not future.done():
            raise StillAsked(name)
        return self._answer(key, future)

    def cancel(self) -> None:
        """Drop what was not answered."""
        for each in self._started.values():
            each.cancel()

    def _answer(self, key: tuple[str, str], future: "Future[Answered]") -> object:
        first = key not in self._told
        self._told.add(key)
        try:
            answered = future.result()
        except CircuitOpen as shut:
            self.not_before = max(self.not_before, shut.until)
            raise
        except TooBusy as busy:
            self.busy_seconds = max(self.busy_seconds, busy.after or 0.0)
            raise
        except OperatorFailed as error:
            self._note(error)
            raise error if first else NotAsked(str(error), for_good=error.for_good, after=error.after) from None
        return Remembered(answered.value, answered.seconds if first else 0.0)

    def _at_once(self, caller: Caller, event: Event, arguments: tuple[Any, ...]) -> object:
        try:
            return caller.call(event, arguments)
        except OperatorFailed as error:
            self._note(error)
            raise

    def _note(self, error: OperatorFailed) -> None:
        if error.for_good:
            self.for_good.add(str(error))
        if error.after is not None:
            self.not_before = max(self.not_before, time.time() + error.after)


@dataclass(frozen=True, slots=True)
class Deferred:
    """The function of an operator on the server: asks through whoever looks at the event in this thread."""

    name: str
    __signature__: inspect.Signature = field(repr=False)

    def __call__(self, event: Event, *arguments: Any) -> object:
        asking = getattr(_here, "asking", None)
        if asking is None:
            raise NotAsked(f"{self.name} is not asked here")
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
