"""How an operator says that it has no answer: for now, or for good.

    raise TryLater("the camera is booting", after=30)      parked with the event, asked again
    raise FailedForGood("the picture is no PNG")           asking this again cannot help
    any other exception                                    as `TryLater`: most faults pass

Either way the operator decides nothing: a subscription that hangs on it alone is undecided, all others get their
answer.
"""

__all__ = ["FailedForGood", "NotAsked", "NotYet", "OperatorFailed", "TryLater"]


class OperatorFailed(Exception):
    """An operator raised, ran out of time, or returned what it must not; nothing is decided by it.

    `for_good`: the same call on the same event will fail again. `after`: seconds to wait before asking again, where the
    operator knows.
    """

    for_good: bool = False
    after: float | None = None

    def __init__(self, reason: str = "", *, for_good: bool | None = None, after: float | None = None) -> None:
        super().__init__(reason)
        if for_good is not None:
            self.for_good = for_good
        if after is not None:
            self.after = after


class TryLater(OperatorFailed):
    """What an operator raises when asking again may help."""

    def __init__(self, reason: str, *, after: float | None = None) -> None:
        super().__init__(reason, after=after)


class FailedForGood(OperatorFailed):
    """What an operator raises when asking again cannot help: the event has not what it needs, the call makes no
    sense."""

    for_good = True


class NotAsked(OperatorFailed):
    """No answer, and the operator was not asked just now (it is still at it, or out of order): nothing is learned."""


class NotYet(NotAsked):
    """No answer, and no failure either: there will be one. A subscription waits for it, also where another of its
    clauses holds, if its match is to carry the bindings of all of them."""
