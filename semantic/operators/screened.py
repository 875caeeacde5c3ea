"""Events after the index and the verification, and the subscriptions that operators decide of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semantic.model import CanonicalEvent, SubscriptionSlot
from semantic.operators.deciding import Decision, Waiting
from semantic.operators.layer import OperatorLayer
from semantic.results import Found, ascending

__all__ = ["EITHER", "Screened", "decide_screened"]

EITHER = " | "
"""Between the reasons of several clauses of a subscription, each of which could match it."""


@dataclass(slots=True)
class Screened:
    """One event: the slots that match already, the rows that hang on operators, and the slot of each of these; `event`
    is needed where there are such rows."""

    slots: set[SubscriptionSlot]
    rows: dict[int, SubscriptionSlot]
    event: CanonicalEvent | None


def decide_screened(
    layer: OperatorLayer, screened: Sequence[Screened], evaluations: Counter[str], deferred: str | None
) -> list[Found]:
    """What each event matches, slots ascending. Operators are asked about all events together; with `deferred` they are
    not asked at all, and what hangs on them is undecided for that reason. Where no clause of a subscription has
    variables, one clause that matches is enough."""
    needed: list[dict[int, SubscriptionSlot]] = []
    for each in screened:
        carrying = {slot for row, slot in each.rows.items() if layer.has_variables(row)}
        needed.append({row: slot for row, slot in each.rows.items() if slot not in each.slots - carrying})
    if deferred is not None:
        return [_waiting(each, rows, deferred) for each, rows in zip(screened, needed, strict=True)]
    asked = [number for number, rows in enumerate(needed) if rows]
    waiting = []
    for number in asked:
        event = screened[number].event
        assert event is not None, "operators are asked about an event that is not there"
        waiting.append(Waiting(list(needed[number]), event, list(needed[number].values())))
    decisions = dict(zip(asked, layer.decide_several(waiting) if waiting else (), strict=True))
    found = []
    for number, each in enumerate(screened):
        decision = decisions.get(number, Decision())
        evaluations.update(map(str, decision.asked))
        found.append(_decided(each, needed[number], decision))
    return found


def _waiting(screened: Screened, rows: dict[int, SubscriptionSlot], why: str) -> Found:
    """A match that hangs on operators is to carry the bindings of all its clauses."""
    waiting = dict.fromkeys(rows.values(), why)
    return Found(ascending(screened.slots - waiting.keys()), undecided=waiting)


def _decided(screened: Screened, rows: dict[int, SubscriptionSlot], decision: Decision) -> Found:
    bindings: dict[SubscriptionSlot, list[dict[str, Any]]] = {}
    for row, joined in decision.matched.items():
        bindings.setdefault(rows[row], []).extend(joined)
    slots = (screened.slots | bindings.keys()) - {rows[row] for row in decision.not_yet}
    reasons: dict[SubscriptionSlot, list[str]] = {}
    for row, why in decision.undecided.items():
        if rows[row] not in slots:
            reasons.setdefault(rows[row], []).append(why)
    undecided = {slot: EITHER.join(dict.fromkeys(whys)) for slot, whys in reasons.items()}
    return Found(ascending(slots), {slot: bindings[slot] for slot in bindings.keys() & slots}, undecided)
