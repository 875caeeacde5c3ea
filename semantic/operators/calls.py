"""Operator calls: equality of calls, the values they take and return, their execution, and the join of their bindings.

Two calls are the same if they have the same operator and version, constants, attribute names and pattern of variables:
`near(?a, ?b)` is `near(?c, ?d)` and not `near(?a, ?a)`. The same call is made once per event (rule 17 of
docs/matching-semantics.md).

A returned value is compared by kind and content. Bindings join, and value constraints hold, only between values of one
kind: numbers, texts, booleans, date-times, or quantities of one dimension (so 1 km equals 1000 m).

An operator runs in this process or in its own, with one or several calls at a time, at most as many as the operator
allows. The results are in the order of the calls. Each is a value or an `OperatorFailed`, whatever the operator does.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kindcast.semantic.errors import InvalidQuantity, UnknownUnit
from kindcast.semantic.model import (
    Arithmetic,
    AttributeRef,
    CanonicalEvent,
    Constant,
    Instant,
    OperatorCall,
    Quantity,
    Term,
    Value,
    ValueConstraint,
    Variable,
)
from kindcast.semantic.operators.declaration import KINDS, Operator, constant_given
from kindcast.semantic.operators.failures import OperatorFailed, in_words
from kindcast.semantic.operators.isolation import Cancellation, Workers
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units import Units
from kindcast.semantic.units.kinds import parse_instant

__all__ = [
    "MOST_BINDINGS",
    "MOST_JOINED",
    "MOST_REPORTED",
    "Answer",
    "Call",
    "EventCopy",
    "EventView",
    "OperatorFailed",
    "Reading",
    "Remembered",
    "ask",
    "ask_several",
    "holds",
    "joined",
    "outcomes",
    "reading",
    "reported",
    "run",
    "stop",
    "time_left",
    "unified",
    "variables_of",
]

Reading = tuple[str, Any]
"""(kind, content). Contents of one kind are ordered and hashable. In the kind `number`, 1 equals 1.0."""


def reading(value: object, units: Units) -> Reading:
    """Returns the reading by which `value` is compared. Raises ValueError, with the reason, if no variable can hold
    it."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number to compare")
        return "number", value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half of a surrogate pair, which is no character") from None
        return "text", nfc(value)
    if isinstance(value, Quantity):
        try:
            measure = units.measure(value.value, value.unit)
        except (UnknownUnit, InvalidQuantity) as error:
            raise ValueError(str(error)) from error
        return measure.dimension, measure.amount
    if isinstance(value, Instant):
        instant = parse_instant(value.text)
        if instant is None:
            raise ValueError(f"{value.text!r} is not a date-time")
        return "instant", instant
    if isinstance(value, Term):
        return "text", value.iri or value.text
    raise ValueError(f"{type(value).__name__} is not a bool, int, float, str, Quantity or Instant")


def plain(value: Value) -> object:
    """Returns a value of an event in the form that operators receive: str as published, in NFC; number; bool. A
    quantity published as an object becomes a `Quantity`."""
    published = value.published
    if isinstance(published, Mapping):
        number, unit = published.get("value"), next((published[key] for key in _UNIT_KEYS if key in published), None)
        return Quantity(number, unit) if isinstance(number, int | float) and isinstance(unit, str) else dict(published)
    return value.text if isinstance(published, str) and value.text is not None else published


_UNIT_KEYS = ("unit", "unitCode", "unitText", "currency")


class EventView(Mapping[str, tuple[Any, ...]]):
    """A read-only view of an event for operators: attribute → its values; an absent attribute has none."""

    def __init__(self, event: CanonicalEvent) -> None:
        self._event = event
        self._seen: dict[str, tuple[Any, ...]] = {}

    def __getitem__(self, attribute: str) -> tuple[Any, ...]:
        found = self._seen.get(attribute)
        if found is None:
            found = tuple(plain(value) for value in self._event.attributes.get(attribute, ()))
            self._seen[attribute] = found
        return found

    def __contains__(self, attribute: object) -> bool:
        return attribute in self._event.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._event.attributes)

    def __len__(self) -> int:
        return len(self._event.attributes)


class EventCopy(dict[str, tuple[Any, ...]]):
    """A copy of an `EventView` that was sent to another process."""

    def __missing__(self, attribute: str) -> tuple[Any, ...]:
        return ()


Asked = tuple[Any, ...]
"""(event, *arguments) of one call."""

_deadline: ContextVar[float | None] = ContextVar("deadline of an operator", default=None)
_guard = threading.Lock()
_slots: WeakKeyDictionary[Operator, threading.BoundedSemaphore] = WeakKeyDictionary()
_workers: WeakKeyDictionary[Operator, Workers] = WeakKeyDictionary()


def run(operator: Operator, asked: Sequence[Asked], *, cancellation: Cancellation | None = None) -> list[Any]:
    """Runs `operator` on each of `asked`. Returns for each call a value as the operator returned it, or an
    `OperatorFailed`.

    Blocks while the maximum number of concurrent calls is running. An isolated operator is killed at its timeout, or if
    another thread uses `cancellation`; its calls have then failed. Safe for threads.
    """
    if operator.isolated:
        return _workers_of(operator).ask(asked, cancellation)
    with _slot_of(operator), _until(operator.timeout):
        return outcomes(operator.function, operator.batch, asked)


def outcomes(
    function: Callable[..., Any], batch: Callable[[Sequence[Asked]], Sequence[Any]] | None, asked: Sequence[Asked]
) -> list[Any]:
    """Returns the results of `asked`, by `batch` if there are several. An exception becomes an `OperatorFailed`."""
    if batch is None or len(asked) == 1:
        return [_outcome(partial(function, *each)) for each in asked]
    found = _outcome(lambda: list(batch(asked)))
    if not isinstance(found, OperatorFailed) and len(found) != len(asked):
        found = OperatorFailed(f"answered {len(found)} of {len(asked)} calls of a batch")
    if isinstance(found, OperatorFailed):
        return [found] * len(asked)
    return [_failure(each) if isinstance(each, Exception) else each for each in found]


def time_left() -> float | None:
    """Returns the seconds until the timeout of the operator that runs in this thread: negative after the timeout, None
    if it has none. For functions that run in the matcher's process, where only they themselves can stop."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.monotonic()


def stop(operator: Operator) -> None:
    """Stops the processes of an isolated operator. Running calls fail. The next call starts new processes."""
    with _guard:
        workers = _workers.pop(operator, None)
    if workers is not None:
        workers.close()


def _outcome(called: Callable[[], Any]) -> Any:
    try:
        return called()
    except Exception as error:  # any exception of a plug-in is a failure of this operator only
        return _failure(error)


def _failure(error: Exception) -> OperatorFailed:
    return error if isinstance(error, OperatorFailed) else OperatorFailed(f"raised {in_words(error)}")


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


MOST_BINDINGS = 1_000
"""The maximum number of bindings that one call may return: they multiply when they are joined."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The wrapper for a cached value that an operator's function returns. `seconds` is the time that the value once
    took to compute. It is 0.0 if that time was reported before, so that it is not learned twice. `refuse` is called if
    the value is no answer to the call."""

    value: object
    seconds: float = 0.0
    refuse: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Call:
    """A call without the names of its variables. An int in `arguments` is a variable, numbered by first appearance."""

    operator: str
    version: str
    arguments: tuple[Constant | AttributeRef | int, ...]

    @property
    def variables(self) -> int:
        """The number of distinct variables."""
        return max((each + 1 for each in self.arguments if isinstance(each, int)), default=0)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes whose values are arguments."""
        return tuple(each.name for each in self.arguments if isinstance(each, AttributeRef))

    def given(self, event: EventView) -> list[object]:
        """Returns the arguments of the function after the event."""
        return [_argument(each, event) for each in self.arguments if not isinstance(each, int)]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(_shown, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call: whether it holds and, if the call has variables, the distinct bindings with one value per
    variable. `seconds` is its duration, if that is not the duration of this call."""

    holds: bool
    bindings: tuple[tuple[Any, ...], ...] = ()
    seconds: float | None = None


def unified(call: OperatorCall, operators: Mapping[str, Operator]) -> tuple[Call, tuple[str, ...]]:
    """Returns the shared form of `call`, and the names of its distinct variables by first appearance."""
    numbers: dict[str, int] = {}
    arguments = tuple(
        numbers.setdefault(each.name, len(numbers)) if isinstance(each, Variable) else each for each in call.arguments
    )
    return Call(call.name, operators[call.name].version, arguments), tuple(numbers)


def ask(call: Call, operator: Operator, event: EventView, units: Units) -> Answer:
    """Calls the operator. Returns false without a call if the event lacks an attribute among the arguments.

    Raises `OperatorFailed` for any failure of the operator.
    """
    answer = ask_several([(call, event)], operator, units)[0]
    if isinstance(answer, OperatorFailed):
        raise answer
    return answer


def ask_several(
    asked: Sequence[tuple[Call, EventView]],
    operator: Operator,
    units: Units,
) -> list[Answer | OperatorFailed]:
    """Returns the answers of one operator to several calls, for one or many events, in order; in one batch if
    possible."""
    found: list[Answer | OperatorFailed] = [Answer(False)] * len(asked)
    real = [number for number, (call, event) in enumerate(asked) if all(name in event for name in call.attributes)]
    given = [(event, *call.given(event)) for call, event in (asked[number] for number in real)]
    for number, outcome in zip(real, run(operator, given) if given else (), strict=True):
        found[number] = _told(asked[number][0], operator, outcome, units)
    return found


def _told(call: Call, operator: Operator, outcome: Any, units: Units) -> Answer | OperatorFailed:
    if isinstance(outcome, OperatorFailed):
        return outcome.of(call)
    if isinstance(outcome, Remembered):
        answer = _told(call, operator, outcome.value, units)
        if isinstance(answer, OperatorFailed):
            outcome.refuse()
            return answer
        return replace(answer, seconds=outcome.seconds)
    try:
        return _answer(call, operator, outcome, units)
    except OperatorFailed as failure:
        return failure.of(call)
    except Exception as error:  # an iterable of bindings, or its items, may raise any exception
        return OperatorFailed(f"raised {in_words(error)}").of(call)


def _answer(call: Call, operator: Operator, returned: object, units: Units) -> Answer:
    returned = _scalar(returned)
    if not call.variables:
        if returned is None or isinstance(returned, bool):
            return Answer(bool(returned))
        if isinstance(returned, list | tuple | set | frozenset):
            return Answer(len(returned) > 0)
        raise OperatorFailed(f"returned {type(returned).__name__}; a bool is expected")
    if returned is None or returned is False:
        return Answer(False)
    if isinstance(returned, bool | str | Mapping) or not hasattr(returned, "__iter__"):
        raise OperatorFailed(f"returned {type(returned).__name__}; an iterable of tuples is expected")
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number, binding in enumerate(returned):
        if number == MOST_BINDINGS:
            raise OperatorFailed(f"returned more than {MOST_BINDINGS:,} bindings", for_good=True)
        values = tuple(map(_scalar, binding if isinstance(binding, tuple) else (binding,)))
        if len(values) != call.variables:
            raise OperatorFailed(f"returned a binding of {len(values)} values for {call.variables} variables")
        for place, value in enumerate(values if operator.binds else ()):
            declared = operator.binds[place]  # type: ignore[index]
            if KINDS.get(type(value)) != KINDS[declared]:
                raise OperatorFailed(f"bound a {type(value).__name__}, {declared.__name__} is declared")
        found.setdefault(tuple(reading(value, units) for value in values), values)
    return Answer(bool(found), tuple(found.values()))


def _scalar(value: object) -> object:
    """Returns a number, text or boolean of numpy as that of Python, because JSON has no other."""
    return value.item() if isinstance(value, np.generic) else value


def _argument(argument: Constant | AttributeRef, event: EventView) -> object:
    if isinstance(argument, AttributeRef):
        return event[argument.name]
    return constant_given(argument)


def _shown(argument: Constant | AttributeRef | int) -> str:
    if isinstance(argument, int):
        return f"?{argument + 1}"
    if isinstance(argument, AttributeRef):
        return f"@{argument.name}"
    value = argument.value
    return repr(value) if isinstance(value, str) else str(getattr(value, "text", value))


# ── bindings of a clause: the bindings of its calls are joined, and value constraints filter the result ───────────────

# docs/matching-semantics.md, rules 17 and 18: bindings are joined by equality of values of one kind; a constraint
# between values of different kinds is false.


MOST_JOINED = 100_000
"""The maximum number of joined bindings at any time: two calls with a thousand each and no common variable make a
million."""

MOST_REPORTED = 100
"""The maximum number of bindings in a match."""


def joined(
    sources: Sequence[tuple[tuple[str, ...], Sequence[tuple[Any, ...]]]],
    constraints: Sequence[ValueConstraint],
    units: Units,
) -> list[dict[str, Any]]:
    """Returns all joined bindings of `sources` (names, bindings) that satisfy `constraints`, each as variable → value.
    Without variables it is one empty binding. Each constraint is evaluated as soon as its variables are bound.

    Raises `OperatorFailed` if there are more than `MOST_JOINED` at any time.
    """
    rows: list[dict[str, tuple[Reading, Any]]] = [{}]
    waiting = list(constraints)
    bound: set[str] = set()
    for names, bindings in sources:
        shared = [name for name in names if name in bound]
        by_key: dict[tuple[Reading, ...], list[dict[str, tuple[Reading, Any]]]] = {}
        for values in bindings:
            new = {name: (reading(value, units), value) for name, value in zip(names, values, strict=True)}
            by_key.setdefault(tuple(new[name][0] for name in shared), []).append(new)
        bound.update(names)
        ready = [each for each in waiting if variables_of(each) <= bound]
        waiting = [each for each in waiting if each not in ready]
        found: list[dict[str, tuple[Reading, Any]]] = []
        for row in rows:
            for new in by_key.get(tuple(row[name][0] for name in shared), ()):
                both = row | new
                if all(holds(each, {name: pair[0] for name, pair in both.items()}, units) for each in ready):
                    found.append(both)
                    if len(found) > MOST_JOINED:
                        told = f"joining the bindings gives more than {MOST_JOINED:,} combinations"
                        raise OperatorFailed(told, for_good=True)
        rows = found
    return [{name: pair[1] for name, pair in row.items()} for row in rows if _hold_all(waiting, row, units)]


def reported(
    bindings: Iterable[Mapping[str, Any]], units: Units
) -> tuple[tuple[tuple[tuple[str, Any], ...], ...], bool]:
    """Returns the distinct `bindings`, sorted, at most `MOST_REPORTED`, each as (variable, value) pairs by name; and
    whether there were more."""
    distinct: dict[tuple[tuple[str, Reading], ...], tuple[tuple[str, Any], ...]] = {}
    for binding in bindings:
        pairs = tuple(sorted(binding.items()))
        distinct.setdefault(tuple((name, reading(value, units)) for name, value in pairs), pairs)
    in_order = [distinct[key] for key in sorted(distinct)]
    return tuple(in_order[:MOST_REPORTED]), len(in_order) > MOST_REPORTED


def _hold_all(constraints: Sequence[ValueConstraint], row: Mapping[str, tuple[Reading, Any]], units: Units) -> bool:
    return all(holds(each, {name: pair[0] for name, pair in row.items()}, units) for each in constraints)


def holds(constraint: ValueConstraint, bound: Mapping[str, Reading], units: Units) -> bool:
    """Returns whether a value constraint holds. False if a side has no value or the sides are of different kinds."""
    left, right = _value(constraint.left, bound, units), _value(constraint.right, bound, units)
    if left is None or right is None or left[0] != right[0]:
        return False
    if left[0] == "boolean" and constraint.order not in ("=", "!="):
        return False
    return _ORDERS[constraint.order](left[1], right[1])


def variables_of(node: ValueConstraint | Arithmetic | Variable | Constant) -> frozenset[str]:
    """Returns the names of the variables in a value constraint."""
    if isinstance(node, Variable):
        return frozenset({node.name})
    if isinstance(node, Constant):
        return frozenset()
    return variables_of(node.left) | variables_of(node.right)


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def _value(node: Arithmetic | Variable | Constant, bound: Mapping[str, Reading], units: Units) -> Reading | None:
    if isinstance(node, Variable):
        return bound.get(node.name)
    if isinstance(node, Constant):
        try:
            return reading(node.value, units)
        except ValueError:
            return None
    left, right = _value(node.left, bound, units), _value(node.right, bound, units)
    if left is None or right is None or not (_is_amount(left) and _is_amount(right)):
        return None
    try:
        return _calculated(node.operator, left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def _calculated(operator: str, left: Reading, right: Reading) -> Reading | None:
    """Adds or subtracts values of one kind, and multiplies or divides by a plain number. A quotient of one kind is a
    plain number."""
    (kind, a), (other, b) = left, right
    if operator in ("+", "-"):
        if kind != other:
            return None
        return kind, a + b if operator == "+" else a - b
    if operator == "*" and "number" in (kind, other):
        return (other if kind == "number" else kind), a * b
    if operator == "/" and other == "number":
        return kind, a / b
    return ("number", a / b) if operator == "/" and kind == other else None


def _is_amount(value: Reading) -> bool:
    return value[0] not in ("text", "boolean", "instant")
