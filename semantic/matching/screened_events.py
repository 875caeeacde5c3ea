"""Screened events: events after index and verification, with the candidates that operators must decide."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kindcast.semantic.matching.decision import Deciding, Decision, Waiting
from kindcast.semantic.matching.operator_layer import OperatorLayer
from kindcast.semantic.matching.results import Found, ascending
from kindcast.semantic.model import CanonicalEvent, SubscriptionSlot
from kindcast.semantic.operators.failures import Failure

__all__ = ["OpenDecision", "Screened", "decide_screened"]


@dataclass(slots=True)
class Screened:
    """One event: the slots that match already, the rows that hang on operators, and the slot of each of these; `event`
    is needed where there are such rows."""

    slots: set[SubscriptionSlot]
    rows: dict[int, SubscriptionSlot]
    event: CanonicalEvent | None


def decide_screened(
    layer: OperatorLayer, screened: Sequence[Screened], evaluations: Counter[str], deferred: Failure | None
) -> list[Found]:
    """What each event matches, slots ascending. Operators are asked about all events together; with `deferred` they are
    not asked at all, and what hangs on them is undecided for that reason. Where no clause of a subscription has
    variables, one clause that matches is enough."""
    needed = [_needed(layer, each) for each in screened]
    if deferred is not None:
        return [_deferred(each, rows, deferred) for each, rows in zip(screened, needed, strict=True)]
    asked = [number for number, rows in enumerate(needed) if rows]
    waiting = [_waiting(screened[number], needed[number]) for number in asked]
    decisions = dict(zip(asked, layer.decide_several(waiting) if waiting else (), strict=True))
    found = []
    for number, each in enumerate(screened):
        decision = decisions.get(number, Decision())
        evaluations.update(map(str, decision.asked))
        found.append(_decided(each, needed[number], decision))
    return found


class OpenDecision:
    """What one event matches, for a caller that does not wait for operators: `advance` asks what can be asked now, and
    goes on each time an answer has come. One thread at a time. `Deciding` says what the flags mean."""

    def __init__(
        self,
        layer: OperatorLayer,
        screened: Screened,
        *,
        steps: bool = False,
        patient: bool = False,
        learns: bool = True,
    ) -> None:
        self._screened = screened
        self._rows = _needed(layer, screened)
        self._deciding: Deciding | None = None
        if self._rows:
            waiting = _waiting(screened, self._rows)
            self._deciding = layer.open(waiting, steps=steps, patient=patient, learns=learns)
        self.decision = Decision()
        """The state of the calls."""

    def take_known(self, knows: Callable[[str, tuple[object, ...]], bool]) -> None:
        """Take first what was answered in an earlier try: `knows(operator, arguments)`."""
        if self._deciding is not None:
            self._deciding.take_known(knows)

    @property
    def candidates(self) -> int:
        """How many clauses hang on operators."""
        return len(self._rows)

    @property
    def pending(self) -> bool:
        """Whether an answer is yet to come."""
        return self._deciding is not None and self._deciding.pending

    def advance(self) -> Found:
        """What is known now; what waits for an answer is undecided, and its failure is of the kind `waiting`."""
        if self._deciding is not None:
            self._deciding.run()
            self.decision = self._deciding.decision()
        return _decided(self._screened, self._rows, self.decision)


def _needed(layer: OperatorLayer, screened: Screened) -> dict[int, SubscriptionSlot]:
    """The rows to be decided: those of slots that match already only where their matches carry bindings."""
    carrying = {slot for row, slot in screened.rows.items() if layer.has_variables(row)}
    return {row: slot for row, slot in screened.rows.items() if slot not in screened.slots - carrying}


def _waiting(screened: Screened, rows: dict[int, SubscriptionSlot]) -> Waiting:
    assert screened.event is not None, "operators are asked about an event that is not there"
    return Waiting(list(rows), screened.event, list(rows.values()))


def _deferred(screened: Screened, rows: dict[int, SubscriptionSlot], why: Failure) -> Found:
    """A match that hangs on operators is to carry the bindings of all its clauses."""
    waiting = dict.fromkeys(rows.values(), why)
    return Found(ascending(screened.slots - waiting.keys()), undecided=waiting)


def _decided(screened: Screened, rows: dict[int, SubscriptionSlot], decision: Decision) -> Found:
    bindings: dict[SubscriptionSlot, list[dict[str, Any]]] = {}
    for row, joined in decision.matched.items():
        bindings.setdefault(rows[row], []).extend(joined)
    slots = (screened.slots | bindings.keys()) - {
        rows[row] for row, why in decision.undecided.items() if why.is_to_come
    }
    failures: dict[SubscriptionSlot, list[Failure]] = {}
    for row, why in decision.undecided.items():
        if rows[row] not in slots:
            failures.setdefault(rows[row], []).append(why)
    undecided = {slot: Failure.of_subscription(whys) for slot, whys in failures.items()}
    return Found(ascending(slots), {slot: bindings[slot] for slot in bindings.keys() & slots}, undecided)
