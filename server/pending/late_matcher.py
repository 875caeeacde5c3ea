"""The late matcher: a matcher of the subscriptions with operators, under one version of the vocabulary.

    event, candidates ──▶ cheap predicates again ──▶ planner ──▶ operators, through `Asking`
                                                        └──▶ matched | does not match | undecided, and why

All late matchers share the statistics of the operators. Everything here runs in one thread, which never waits: an
operator that takes its time is asked elsewhere, and a `Case` goes on when it has answered.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, InvalidSubscription, Match, Matcher, Vocabulary
from kindcast.semantic.events.canonical_events import EventLimits
from kindcast.semantic.matching.decision import Decision
from kindcast.semantic.matching.operator_layer import OperatorLayer
from kindcast.semantic.matching.verification import OpenDecision
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import Failure
from kindcast.semantic.planner.learning import Experience
from kindcast.server.operators.answers import Asking, asking_through

__all__ = ["Case", "LateMatcher", "Verdicts", "desk_maker"]


@dataclass(slots=True)
class Verdicts:
    """What is known of the candidates of one event, by the id of the subscription. What operators have not answered yet
    is undecided, with a failure of the kind `waiting`."""

    matched: dict[str, Match] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    undecided: dict[str, Failure] = field(default_factory=dict)


class Case:
    """Candidates of one event on their way to a decision. In the thread of the late matchers; it stays with the
    operators and subscriptions of its beginning."""

    def __init__(
        self,
        matcher: Matcher,
        open: OpenDecision,
        asking: Asking,
        ids: Sequence[str],
        meaningless: Mapping[str, Failure],
    ) -> None:
        self._matcher = matcher
        self._open = open
        self._asking = asking
        self._ids = ids
        self._meaningless = meaningless

    @property
    def pending(self) -> bool:
        """Whether an answer is yet to come."""
        return self._open.pending

    @property
    def decision(self) -> Decision:
        """The state of the calls."""
        return self._open.decision

    def advance(self) -> Verdicts:
        """What can be said now. No call is made that the plan does not want by what was answered so far."""
        with asking_through(self._asking):
            decided = self._matcher.decided(self._open.advance())
        verdicts = Verdicts({each.subscription: each for each in decided.matches})
        verdicts.undecided = {each.subscription: each.failure for each in decided.undecided} | dict(self._meaningless)
        verdicts.unmatched = [id for id in self._ids if id not in verdicts.matched and id not in verdicts.undecided]
        return verdicts


class LateMatcher:
    """One thread."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._meaningless: dict[str, Failure] = {}

    @property
    def layer(self) -> OperatorLayer:
        return self.matcher.layer

    def lacks(self, ids: Collection[str]) -> list[str]:
        """Subscriptions whose trees it has not seen."""
        return [id for id in ids if id not in self.matcher and id not in self._meaningless]

    def learn_trees(self, trees: Mapping[str, Any]) -> None:
        """Know these subscriptions. One whose tree has no meaning here (an operator takes other arguments now, say) is
        undecided, for that reason."""
        for id, tree in trees.items():
            if id not in self.matcher:
                try:
                    self.matcher.restore(id, tree)
                except InvalidSubscription as error:
                    self._meaningless[id] = Failure("failed", str(error))

    def canonical(self, event: Event) -> CanonicalEvent | None:
        """The event under this version; None where it cannot be read (it could when it was accepted)."""
        try:
            return self.matcher.canonicalise(event)
        except InvalidEvent:
            return None

    def begin(
        self,
        event: CanonicalEvent,
        ids: Sequence[str],
        asking: Asking,
        *,
        patient: bool = False,
        steps: bool = False,
        learns: bool = True,
    ) -> Case:
        """The way to the verdicts on `ids`, none of which it may lack. `patient`: what failed for now is left for a
        later try; otherwise the other calls may still tell that it does not match."""
        open = self.matcher.open_decision(event, ids, steps=steps, patient=patient, learns=learns)
        if asking.has_answers:
            with asking_through(asking):
                open.take_known(asking.knows)
        meaningless = {id: self._meaningless[id] for id in ids if id in self._meaningless}
        return Case(self.matcher, open, asking, ids, meaningless)


def desk_maker(
    operators: Callable[[], Mapping[str, Operator]], experience: Experience, *, planner: str, depth: int
) -> Callable[[Vocabulary], LateMatcher]:
    """A factory of late matchers, with the present operators and the statistics so far."""
    new_matcher = partial(Matcher, planner=planner, limits=EventLimits(depth=depth))

    def made(vocabulary: Vocabulary) -> LateMatcher:
        matcher = new_matcher(vocabulary, operators=operators().values())
        matcher.layer.learned(experience)
        return LateMatcher(matcher)

    return made
