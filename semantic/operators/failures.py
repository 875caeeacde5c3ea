"""Why a call has no answer: the kinds of failure, and the exceptions that operators raise.

    raise TryLater("the camera is booting", after=30)      parked with the event, asked again
    raise FailedForGood("the picture is no PNG")           asking this again cannot help
    any other exception                                    as `TryLater`: most faults pass

Either way the operator decides nothing: a subscription that hangs on it alone is undecided, all others get their
answer. What is undecided carries a `Failure`, from the call to the subscriber.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

__all__ = ["KINDS", "FailedForGood", "Failure", "FailureKind", "NotAnswered", "OperatorFailed", "TryLater", "needed"]

FailureKind = Literal["failed", "timed_out", "circuit_open", "busy", "missing", "waiting"]
"""failed: it raised, or answered what is no answer; timed_out: no answer in its time; circuit_open: it failed too often
and is left alone; busy: too many calls wait for it; missing: there is no such operator at present; waiting: it was
asked, or is about to be, and has not answered yet."""
KINDS: Final[Sequence[FailureKind]] = get_args(FailureKind)

LEARNED: Final = frozenset({"failed", "timed_out"})
"""The operator was asked and failed: the other kinds say nothing about it."""
TO_COME: Final = frozenset({"waiting", "busy"})
"""There will be an answer, or another try at once: neither counts as one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call has no answer, or why a subscription is undecided. `for_good`: asking again cannot help; `after`:
    seconds before asking again, where somebody knows."""

    kind: FailureKind
    reason: str
    for_good: bool = False
    after: float | None = None

    @property
    def is_to_come(self) -> bool:
        """Whether the answer is yet to come, so that this is no try that failed."""
        return self.kind in TO_COME

    @classmethod
    def of_clause(cls, failures: Iterable["Failure"]) -> "Failure":
        """Of a clause whose calls failed so: all of them are needed. At least one."""
        found = list(dict.fromkeys(failures))
        return cls(
            _foremost(found, default=found[0].kind),
            "; ".join(each.reason for each in found),
            any(each.for_good for each in found),
            max((each.after for each in found if each.after is not None), default=None),
        )

    @classmethod
    def of_subscription(cls, failures: Iterable["Failure"]) -> "Failure":
        """Of a subscription whose clauses failed so: one of them is enough. At least one."""
        found = list(dict.fromkeys(failures))
        hopeful = [each for each in found if not each.for_good] or found
        return cls(
            _foremost(hopeful, default=hopeful[0].kind),
            " | ".join(each.reason for each in found),
            all(each.for_good for each in found),
            min((each.after or 0.0 for each in hopeful), default=None) or None,
        )


def _foremost(failures: Iterable[Failure], *, default: FailureKind) -> FailureKind:
    """What is to come goes before what failed."""
    kinds = {each.kind for each in failures}
    return "waiting" if "waiting" in kinds else "busy" if "busy" in kinds else default


class OperatorFailed(Exception):
    """A call without an answer; nothing is decided by it. `for_good`: the same call on the same event will fail again.
    `after`: seconds to wait before asking again, where the operator knows. `told`: somebody else was told of this very
    failure, so that nothing is learned from it twice."""

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
        super().__init__(reason)
        self.kind = kind
        self.told = told
        if for_good is not None:
            self.for_good = for_good
        if after is not None:
            self.after = after

    @property
    def teaches(self) -> bool:
        """Whether something is learned from it about the operator."""
        return self.kind in LEARNED and not self.told

    @property
    def failure(self) -> Failure:
        """The same as data."""
        return Failure(self.kind, str(self), self.for_good, self.after)

    def of(self, call: object) -> "OperatorFailed":
        """The same failure, with the name of this call."""
        return self._with(f"{call}: {self}", self.told)

    def again(self) -> "OperatorFailed":
        """The same failure, reported again."""
        return self._with(str(self), True)

    def _with(self, reason: str, told: bool) -> "OperatorFailed":
        return OperatorFailed(reason, kind=self.kind, for_good=self.for_good, after=self.after, told=told)


class TryLater(OperatorFailed):
    """What an operator raises when asking again may help."""

    def __init__(self, reason: str, *, after: float | None = None) -> None:
        super().__init__(reason, after=after)


class FailedForGood(OperatorFailed):
    """What an operator raises when asking again cannot help: the event has not what it needs, the call makes no
    sense."""

    for_good = True


class NotAnswered(OperatorFailed):
    """What the function of an operator raises that was asked elsewhere and has not answered yet. Once `done()` it can
    be called again, and answers; `drop()` says that nobody here needs the answer any more."""

    def __init__(self, reason: str, done: Callable[[], bool], drop: Callable[[], None]) -> None:
        super().__init__(reason, kind="waiting")
        self.done = done
        self.drop = drop

    def of(self, call: object) -> "NotAnswered":
        return NotAnswered(f"{call}: {self}", self.done, self.drop)


def needed(module: str, operator: str) -> Any:
    """The module of a library that an installation may lack, imported when `operator` first needs it. Raises
    `FailedForGood`, which says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise FailedForGood(f"{operator} needs {library}: pip install 'kindcast[operators]'") from error
