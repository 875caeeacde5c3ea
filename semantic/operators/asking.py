"""The answers of one event: every call is made at most once; bindings and negated groups are worked out here too."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from semantic.model import CanonicalEvent
from semantic.operators.calls import Answer, Call, OperatorFailed
from semantic.operators.clauses import ExpensiveClause, GroupClause
from semantic.operators.failures import NotAnswered
from semantic.operators.readings import EventView

if TYPE_CHECKING:
    from semantic.operators.layer import OperatorLayer

__all__ = ["Asking"]

T = TypeVar("T")


class Asking:
    """The answers of one event: every call is made at most once. Without `learns` nothing is learned from them."""

    def __init__(self, layer: "OperatorLayer", event: CanonicalEvent, *, learns: bool = True) -> None:
        self.answers: dict[Call, Answer | OperatorFailed] = {}
        self._layer = layer
        self._event = event
        self._learns = learns
        self.view = EventView(event)
        self.asked: list[Call] = []

    def answer(self, call: Call) -> Answer | OperatorFailed:
        """The answer to a call; the operator is asked the first time only, and again after `NotAnswered`."""
        found = self.kept(call)
        return self.note(call, *self._layer.ask(call, self.view)) if found is None else found

    def kept(self, call: Call) -> Answer | OperatorFailed | None:
        """An answer that is there already: of this event, or of another one with the same key."""
        found: Answer | OperatorFailed | None = self.answers.get(call)
        if found is None:
            operator = self._layer.operator(call)
            found = self._layer.answers.get(self._layer.answers.key(call, operator, self.view))
            if found is not None:
                self.answers[call] = found
        return found

    def note(self, call: Call, answer: Answer | OperatorFailed, seconds: float) -> Answer | OperatorFailed:
        """An operator was asked, and this is what it said."""
        if isinstance(answer, NotAnswered):
            return answer
        self.answers[call] = answer
        self.asked.append(call)
        if all(name in self.view for name in call.attributes):  # else it was not called
            if self._learns:
                self._layer.learn(call, answer, seconds)
            if isinstance(answer, Answer):
                operator = self._layer.operator(call)
                self._layer.answers.keep(self._layer.answers.key(call, operator, self.view), answer, operator)
        return answer

    def bindings(self, part: ExpensiveClause) -> list[dict[str, Any]]:
        """The joined bindings of a clause whose literals hold; one empty one where it has no variables."""
        known: dict[Call, Answer] = {}
        for call, _ in part.sources:
            answer = self.answer(call)
            if isinstance(answer, OperatorFailed):
                raise answer
            known[call] = answer
        return self._layer.joined(part, known)

    def any_has_binding(self, groups: Sequence[Sequence[GroupClause]]) -> bool:
        """Whether some negated group holds by itself. Raises `OperatorFailed` where none is known to, and one hangs on
        a call that failed; `NotAnswered` as soon as a call has no answer yet: the others wait for it."""
        return _some(self.has_binding, groups)

    def has_binding(self, group: Sequence[GroupClause]) -> bool:
        """Whether some conjunction of a negated group holds by itself. Raises as `any_has_binding`."""
        return _some(self._clause_holds, group)

    def _clause_holds(self, clause: GroupClause) -> bool:
        return all(atom.holds(self._event) for atom in clause.cheap) and self._holds(clause.rest)

    def _holds(self, part: ExpensiveClause) -> bool:
        if any(name not in self.view for name in part.required):
            return False
        tests: list[Callable[[], bool]] = [partial(self._misses, call, wanted) for call, wanted in part.literals]
        tests += [partial(self.has_binding, group) for group in part.groups]
        return not _some(lambda test: test(), tests) and bool(self.bindings(part))

    def _misses(self, call: Call, wanted: bool) -> bool:
        answer = self.answer(call)
        if isinstance(answer, OperatorFailed):
            raise answer
        return answer.holds is not wanted


def _some(test: Callable[[T], bool], items: Iterable[T]) -> bool:
    """Whether `test` holds for one of `items`; a failure counts only where it holds for none."""
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
