"""Runs operators: here or in processes of their own, one call or several at once, never more than the operator allows.

Whatever an operator does, the result is a value or an `OperatorFailed`, one for each call, in order.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import OperatorFailed
from kindcast.semantic.operators.isolation import Cancellation, Workers

__all__ = ["Asked", "outcomes", "run", "stop", "time_left"]

Asked = tuple[Any, ...]
"""(event, *arguments) of one call."""

_deadline: ContextVar[float | None] = ContextVar("deadline of an operator", default=None)
_guard = threading.Lock()
_slots: WeakKeyDictionary[Operator, threading.BoundedSemaphore] = WeakKeyDictionary()
_workers: WeakKeyDictionary[Operator, Workers] = WeakKeyDictionary()


def run(operator: Operator, asked: Sequence[Asked], *, cancellation: Cancellation | None = None) -> list[Any]:
    """What `operator` says to each of `asked`: a value as it returned it, or an `OperatorFailed`.

    Blocks while as many calls are under way as the operator allows. An isolated operator is killed at its timeout, or
    when `cancellation` says so from another thread, and its calls have failed then. Any number of threads may call it.
    """
    if operator.isolated:
        return _workers_of(operator).ask(asked, cancellation)
    with _slot_of(operator), _until(operator.timeout):
        return outcomes(operator.function, operator.batch, asked)


def outcomes(
    function: Callable[..., Any], batch: Callable[[Sequence[Asked]], Sequence[Any]] | None, asked: Sequence[Asked]
) -> list[Any]:
    """The values of `asked`, by `batch` where there are several; an exception is an `OperatorFailed`."""
    if batch is None or len(asked) == 1:
        return [_outcome(partial(function, *each)) for each in asked]
    found = _outcome(lambda: list(batch(asked)))
    if not isinstance(found, OperatorFailed) and len(found) != len(asked):
        found = OperatorFailed(f"answered {len(found)} of {len(asked)} calls of a batch")
    if isinstance(found, OperatorFailed):
        return [found] * len(asked)
    return [_failure(each) if isinstance(each, Exception) else each for each in found]


def time_left() -> float | None:
    """Seconds until the timeout of the operator that is running in this thread; negative when it is over, None where
    it has none. For functions that run in the matcher's process, where nobody can stop them but themselves."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.monotonic()


def stop(operator: Operator) -> None:
    """End the processes of an isolated operator; calls under way fail. The next call begins new ones."""
    with _guard:
        workers = _workers.pop(operator, None)
    if workers is not None:
        workers.close()


def _outcome(called: Callable[[], Any]) -> Any:
    try:
        return called()
    except Exception as error:  # whatever a plug-in raises is its failure and nobody else's
        return _failure(error)


def _failure(error: Exception) -> OperatorFailed:
    return error if isinstance(error, OperatorFailed) else OperatorFailed(f"raised {type(error).__name__}: {error}")


def _slot_of(operator: Operator) -> threading.BoundedSemaphore:
    with _guard:
        return _slots.setdefault(operator, threading.BoundedSemaphore(operator.concurrency))


def _workers_of(operator: Operator) -> Workers:
    with _guard:
        if operator not in _workers:
            function = operator.function
            target = f"{function.__module__}:{function.__qualname__}"
            _workers[operator] = Workers(target, most=operator.concurrency, timeout=operator.timeout)
        return _workers[operator]


@contextmanager
def _until(timeout: float | None) -> Iterator[None]:
    token = _deadline.set(None if timeout is None else time.monotonic() + timeout)
    try:
        yield
    finally:
        _deadline.reset(token)
