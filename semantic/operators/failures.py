"""Failures of operator calls: their kinds, and the exceptions that operators raise.

    raise TryLater("the camera is booting", after=30)      the candidate is parked with its event, and called again
    raise FailedForGood("the picture is no PNG")           calling again cannot help
    any other exception                                    like `TryLater`: most faults are temporary

In each case the call decides nothing. A subscription that depends on this call alone is undecided; all other
subscriptions are decided. A `Failure` carries the reason, from the call to the subscriber.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

__all__ = [
    "KINDS",
    "FailedForGood",
    "Failure",
    "FailureKind",
    "NotAnswered",
    "OperatorFailed",
    "TryLater",
    "in_words",
    "needed",
]

FailureKind = Literal["failed", "timed_out", "circuit_open", "busy", "missing", "waiting"]
"""failed: the operator raised, or returned an invalid answer; timed_out: it did not answer within its timeout;
circuit_open: it failed too often and is not called for a while; busy: too many calls wait for it; missing: there is no
such operator at present; waiting: it was called, or is about to be called, and has not answered yet."""
KINDS: Final[Sequence[FailureKind]] = get_args(FailureKind)

LEARNED: Final = frozenset({"failed", "timed_out"})
"""Kinds of failure from which something is learned about the operator: it was called and failed."""
TO_COME: Final = frozenset({"waiting", "busy"})
"""Kinds of failure that do not count as failed attempts: an answer or another attempt follows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call has no answer, or why a subscription is undecided.

    `for_good`: calling again cannot help. `after`: seconds to wait before the next call; None if unknown."""

    kind: FailureKind
    reason: str
    for_good: bool = False
    after: float | None = None

    @property
    def is_to_come(self) -> bool:
        """Whether an answer or another attempt follows, so that this does not count as a failed attempt."""
        return self.kind in TO_COME

    @classmethod
    def of_clause(cls, failures: Iterable["Failure"]) -> "Failure":
        """Returns the failure of a clause whose calls failed with `failures` (at least one).

        The clause needs all of its calls: it has failed for good if one call has, and it waits for the longest
        `after`."""
        found = list(dict.fromkeys(failures))
        return cls(
            _foremost(found, default=found[0].kind),
            "; ".join(each.reason for each in found),
            any(each.for_good for each in found),
            max((each.after for each in found if each.after is not None), default=None),
        )

    @classmethod
    def of_subscription(cls, failures: Iterable["Failure"]) -> "Failure":
        """Returns the failure of a subscription whose clauses failed with `failures` (at least one).

        One clause is enough: the subscription has failed for good only if all clauses have, and it waits for the
        shortest `after` of the other clauses."""
        found = list(dict.fromkeys(failures))
        hopeful = [each for each in found if not each.for_good] or found
        return cls(
            _foremost(hopeful, default=hopeful[0].kind),
            " | ".join(each.reason for each in found),
            all(each.for_good for each in found),
            min((each.after or 0.0 for each in hopeful), default=None) or None,
        )


def _foremost(failures: Iterable[Failure], *, default: FailureKind) -> FailureKind:
    """Returns the kind of the joint failure: "waiting" if it occurs, else "busy" if it occurs, else `default`."""
    kinds = {each.kind for each in failures}
    return "waiting" if "waiting" in kinds else "busy" if "busy" in kinds else default


MOST_REASON = 4_000
"""The maximum number of characters in a reason. Beginning and end of a longer one are kept."""


def _storable(reason: str) -> str:
    """Returns a reason that every database can store, because an operator may fail with any text: "?" stands for null
    characters and halves of surrogate pairs."""
    if len(reason) > MOST_REASON:
        reason = f"{reason[: MOST_REASON // 2]} … {reason[-MOST_REASON // 2 :]}"
    return reason.replace("\0", "?").encode("utf-8", "replace").decode()


def in_words(error: BaseException) -> str:
    """Returns the class and the text of an exception; only its class if its text cannot be had."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # from `__str__` of another library
        return name


class OperatorFailed(Exception):
    """A call without an answer; it decides nothing. `for_good`: the same call on the same event will fail again.
    `after`: seconds to wait before the next call; None if the operator does not say. `told`: this failure was reported
    before, so nothing is learned from it a second time."""

    for_good: bool = False
    after: float | None = None
    told: bool = False

    def __init__(
        self,
        reason: str = "",
        *,
        kind: FailureKind = "failed",
        for_good: bool | None = None,
        after: float | None = None,
        told: bool = False,
    ) -> None:
        super().__init__(_storable(reason))
        self.kind = kind
        self.told = told
        if for_good is not None:
            self.for_good = for_good
        if after is not None:
            self.after = after

    @property
    def teaches(self) -> bool:
        """Whether this failure counts in what is learned about the operator."""
        return self.kind in LEARNED and not self.told

    @property
    def failure(self) -> Failure:
        """This exception as a `Failure`."""
        return Failure(self.kind, str(self), self.for_good, self.after)

    def of(self, call: object) -> "OperatorFailed":
        """Returns the same failure with the name of this call in its message."""
        return self._with(f"{call}: {self}", self.told)

    def again(self) -> "OperatorFailed":
        """Returns the same failure, marked as reported before."""
        return self._with(str(self), True)

    def _with(self, reason: str, told: bool) -> "OperatorFailed":
        return OperatorFailed(reason, kind=self.kind, for_good=self.for_good, after=self.after, told=told)


class TryLater(OperatorFailed):
    """An operator raises this when calling again may help."""

    def __init__(self, reason: str, *, after: float | None = None) -> None:
        super().__init__(reason, after=after)


class FailedForGood(OperatorFailed):
    """An operator raises this when calling again cannot help: the event lacks what the operator needs, or the call
    makes no sense."""

    for_good = True


class NotAnswered(OperatorFailed):
    """The function of an operator raises this if the answer comes from elsewhere and has not arrived yet. When `done()`
    is true, the function can be called again and answers. `drop()` says that the answer is not needed any more."""

    def __init__(self, reason: str, done: Callable[[], bool], drop: Callable[[], None]) -> None:
        super().__init__(reason, kind="waiting")
        self.done = done
        self.drop = drop

    def of(self, call: object) -> "NotAnswered":
        return NotAnswered(f"{call}: {self}", self.done, self.drop)


def needed(module: str, operator: str) -> Any:
    """Imports and returns a module of an optional library, when `operator` first needs it. If the library is not
    installed, raises `FailedForGood`, which says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise FailedForGood(f"{operator} needs {library}: pip install 'kindcast[operators]'") from error
