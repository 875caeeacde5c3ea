"""The desk: a matcher of its own for the subscriptions with operators, one for each version of the vocabulary.

    event, candidates ──▶ cheap predicates again ──▶ planner ──▶ operators, through `Asking`
                                                        └──▶ matched | does not match | failed | not answered yet

All desks share what is learned of the operators. Everything here runs in one thread, which never waits: an operator
that takes its time is asked elsewhere.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from semantic import CanonicalEvent, Event, InvalidEvent, InvalidSubscription, Match, Matcher, Vocabulary
from semantic.canonicalise import EventLimits
from semantic.operators.declaration import Operator
from semantic.operators.layer import OperatorLayer
from semantic.planner.learning import Experience
from server.operators.asking import STILL_ASKED, TOO_BUSY, Asking, asking_through

__all__ = ["Desk", "Verdicts", "desk_maker"]


@dataclass(slots=True)
class Verdicts:
    """What is known of the candidates of one event, by the id of the subscription; `reasons` of those that failed,
    `pending` those whose operators have not answered yet, `turned_away` those whose operator has too much to do."""

    matched: dict[str, Match] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    turned_away: dict[str, str] = field(default_factory=dict)


class Desk:
    """One thread."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._meaningless: dict[str, str] = {}

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
                    self._meaningless[id] = str(error)

    def canonical(self, event: Event) -> CanonicalEvent | None:
        """The event under this version; None where it cannot be read (it could when it was accepted)."""
        try:
            return self.matcher.canonicalise(event)
        except InvalidEvent:
            return None

    def decide(self, event: CanonicalEvent, ids: Sequence[str], asking: Asking) -> Verdicts:
        """What can be said now; each call that was answered is not made again. It must lack none of `ids`."""
        with asking_through(asking):
            decided = self.matcher.decide(event, among=ids)
        verdicts = Verdicts({each.subscription: each for each in decided.matches})
        for each in decided.undecided:
            if STILL_ASKED in each.reason:
                verdicts.pending.append(each.subscription)
            elif TOO_BUSY in each.reason:
                verdicts.turned_away[each.subscription] = each.reason
            else:
                verdicts.reasons[each.subscription] = each.reason
        verdicts.reasons |= {id: self._meaningless[id] for id in ids if id in self._meaningless}
        known = {*verdicts.matched, *verdicts.pending, *verdicts.reasons, *verdicts.turned_away}
        verdicts.unmatched = [id for id in ids if id not in known]
        return verdicts


def desk_maker(
    operators: Callable[[], Mapping[str, Operator]], experience: Experience, *, depth: int
) -> Callable[[Vocabulary], Desk]:
    """How to make a desk: with the operators of the moment, and with what was learned so far."""
    new_matcher = partial(Matcher, planner="greedy", limits=EventLimits(depth=depth))

    def made(vocabulary: Vocabulary) -> Desk:
        matcher = new_matcher(vocabulary, operators=operators().values())
        matcher.layer.learned(experience)
        return Desk(matcher)

    return made
