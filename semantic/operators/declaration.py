"""Operators: functions that answer expensive predicates, with what they say of themselves.

@operator("locIn", cost=0.02, selectivity=0.1)
def loc_in(event, region: str): ...
"""

import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from semantic.errors import InvalidDeclaration
from semantic.model import AttributeRef, Constant, Variable
from semantic.operators.signatures import constant_given, kind_of_type, misfit, signature_of

__all__ = ["MOST_AT_ONCE", "NAME", "Operator", "operator", "operators_by_name"]

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
MOST_AT_ONCE: Final = 64
"""Calls of one operator at a time, at most: each may be a process."""
CacheKey = Callable[..., Hashable] | Literal["arguments"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Operator:
    """An operator. `function(event, *arguments)` gets the event as attribute → tuple of values, then the constants and
    the values of attributes (`@name`, a tuple) of the call in their order; variables are not passed.

    It returns a bool; in a call with variables an iterable of tuples, one value for each distinct variable in order of
    first appearance (for a single variable the bare value will do). `None` and what is empty mean no. It raises
    `TryLater` or `FailedForGood` where it has no answer; any other exception counts as `TryLater`.

    What it says of itself, beside its name:

    `cost`, `selectivity`   seconds and probability, to assume before anything was learned
    `version`               tells apart two operators of one name: their answers are never shared
    `binds`                 the types that a call with variables binds, in order: such a call has that many distinct
                            variables, or none. None: any number, of any type
    `batch`                 `batch(asked)` answers several calls at once: a sequence of `(event, *arguments)` in, as
                            many answers out, in their order, each a value as `function` returns it or an exception
    `cache_key`             `cache_key(event, *arguments)`: what the answer depends on; calls with the same constants
                            and the same key share an answer, across events too. `"arguments"`: on nothing but them.
                            None (also when it returns None): every event is asked anew
    `check`                 `check(*arguments)`: what is wrong with the constants of a call, or None; a subscription is
                            refused with it. Attributes and variables stand there as `AttributeRef` and `Variable`
    `cache_seconds`         for so long an answer may be reused; None: as long as there is room
    `timeout`               seconds a call may take. A function in its own process is killed then; one in this process
                            cannot be, and should look at `time_left()` itself
    `concurrency`           how many calls may run at once
    `speculate`             its calls start as soon as a subscription may need them, without waiting for what its other
                            calls answer: more calls, sooner. Counts where calls are not waited for (on a server)
    `isolated`              run it in processes of its own, so that what hangs or crashes is killed and begun anew. The
                            function must stand at the top of a module that can be imported
    """

    name: str
    function: Callable[..., Any]
    cost: float = 0.001
    selectivity: float = 0.5
    version: str = "1"
    binds: tuple[type, ...] | None = None
    batch: Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]] | None = None
    check: Callable[..., str | None] | None = None
    cache_key: CacheKey | None = None
    cache_seconds: float | None = None
    timeout: float | None = None
    concurrency: int = 1
    speculate: bool = False
    isolated: bool = False
    signature: inspect.Signature = field(init=False, repr=False)

    def __post_init__(self) -> None:
        problem = next(filter(None, self._problems()), None)
        if problem is not None:
            raise InvalidDeclaration(f"operator {self.name!r}: {problem}")
        object.__setattr__(self, "signature", signature_of(self.function))

    def _problems(self) -> Iterable[str | None]:
        if not re.fullmatch(NAME, self.name):
            yield "a name is letters, digits and _, no digit first"
        if not 0 <= self.selectivity <= 1:
            yield f"selectivity is a probability, not {self.selectivity}"
        for name, seconds in (("cost", self.cost), ("timeout", self.timeout), ("cache_seconds", self.cache_seconds)):
            if seconds is not None and not 0 < seconds < float("inf"):
                yield f"{name} is a number of seconds, not {seconds}"
        if not 1 <= self.concurrency <= MOST_AT_ONCE:
            yield f"concurrency is from 1 to {MOST_AT_ONCE}, not {self.concurrency}"
        for each in self.binds or ():
            if kind_of_type(each) in (None, "attribute"):
                yield f"it binds bool, int, float, str, Quantity or Instant, not {each!r}"
        if self.isolated and "<" in getattr(self.function, "__qualname__", "<"):
            yield "a function that runs in a process of its own stands at the top of a module"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, here and now."""
        return self.function(*arguments, **named)

    def takes(self, arguments: int) -> bool:
        """Whether the function can be called with an event and so many arguments."""
        try:
            self.signature.bind(None, *range(arguments))
        except TypeError:
            return False
        return True

    def misfit(self, arguments: Sequence[Constant | AttributeRef | Variable]) -> str | None:
        """Why a call with these arguments does not fit; None where it does."""
        variables = len({each.name for each in arguments if isinstance(each, Variable)})
        if self.binds is not None and variables not in (0, len(self.binds)):
            return f"it binds {len(self.binds)} variables, or none; {variables} are given"
        found = misfit(self.signature, arguments)
        if found is None and self.check is not None:
            found = self.check(*map(_plain, arguments))
        return found

    def key(self, event: Mapping[str, tuple[Any, ...]], arguments: Sequence[Any]) -> Hashable | None:
        """What the answer depends on beside the call; None where it is not to be reused."""
        if self.cache_key is None:
            return None
        return tuple(arguments) if self.cache_key == "arguments" else self.cache_key(event, *arguments)


def operator(
    name: str,
    *,
    cost: float = 0.001,
    selectivity: float = 0.5,
    version: str = "1",
    binds: tuple[type, ...] | None = None,
    batch: Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]] | None = None,
    check: Callable[..., str | None] | None = None,
    cache_key: CacheKey | None = None,
    cache_seconds: float | None = None,
    timeout: float | None = None,
    concurrency: int = 1,
    speculate: bool = False,
    isolated: bool = False,
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an operator; what it may say of itself is told at `Operator`. Raises `InvalidDeclaration` for
    what makes no sense.

    >>> @operator("longer", cost=0.01)
    ... def longer(event, length: int):
    ...     return any(len(name) > length for name in event.get("name", ()))
    >>> longer({"name": ("kindcast",)}, 3)
    True
    """

    def made(function: Callable[..., Any]) -> Operator:
        return Operator(
            name=name,
            function=function,
            cost=cost,
            selectivity=selectivity,
            version=version,
            binds=binds,
            batch=batch,
            check=check,
            cache_key=cache_key,
            cache_seconds=cache_seconds,
            timeout=timeout,
            concurrency=concurrency,
            speculate=speculate,
            isolated=isolated,
        )

    return made


def _plain(argument: Constant | AttributeRef | Variable) -> Any:
    return constant_given(argument) if isinstance(argument, Constant) else argument


def operators_by_name(operators: Any) -> Mapping[str, Operator]:
    """Raises `InvalidDeclaration` for what is no operator, and for two of one name."""
    found: dict[str, Operator] = {}
    for each in operators:
        if not isinstance(each, Operator):
            raise InvalidDeclaration(f"{each!r} is no operator: decorate the function with @operator(name)")
        if each.name in found:
            raise InvalidDeclaration(f"there are two operators of the name {each.name!r}")
        found[each.name] = each
    return found
