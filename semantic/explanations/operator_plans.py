"""Why operators were asked in this order, and what a subscription is expected to cost: plans in words and numbers.

Beside `kindcast.semantic.explanations.explanation`, which tells of one subscription and one event: here all
subscriptions of a matcher take part, since what they share decides what is asked.
"""

from collections.abc import Mapping
from typing import Any

from kindcast.semantic.matching.decision import Decision, Step
from kindcast.semantic.matching.matcher import Matcher
from kindcast.semantic.matching.operator_layer import Link
from kindcast.semantic.model import CanonicalEvent, Event, SubscriptionSlot

__all__ = ["chains", "explain_chains", "explain_plan"]


def explain_plan(matcher: Matcher, event: Mapping[str, Any] | Event | CanonicalEvent) -> dict[str, Any]:
    """What the operators of `matcher` are asked about `event`, and why in this order, as JSON; they are really asked.

    `{"planner", "candidates", "asked": [{"call", "why", "holds", "chance", "expected_seconds", "popularity", "work",
    "settled"}], "evaluations", "alone", "saved", "expected_seconds"}`: `alone` is what the candidates would ask with
    nothing shared and nothing left out, `saved` the difference. Raises `InvalidEvent`.
    """
    canonical = event if isinstance(event, CanonicalEvent) else matcher.canonicalise(event)
    open = matcher.open_decision(canonical, steps=True)
    open.advance()
    decision = open.decision
    steps = decision.steps or []
    return {
        "planner": matcher.planner_name,
        "candidates": open.candidates,
        "asked": [_told(step, matcher.planner_name) for step in steps],
        "evaluations": len(decision.asked),
        "alone": decision.literals,
        "saved": _saved(decision),
        "expected_seconds": sum(step.seconds for step in steps),
    }


def explain_chains(matcher: Matcher, subscription: str) -> list[dict[str, Any]]:
    """The chain of operator calls of each clause of a subscription, from top to bottom, as JSON: with what chance each
    call holds, what it takes, how many clauses of others share it, and what the chain is expected to cost alone.
    Raises `UnknownSubscription`."""
    found = []
    for chain in chains(matcher, subscription):
        calls, passing, seconds = [], 1.0, 0.0
        for link in chain:
            seconds += passing * link.seconds
            passing *= link.passing
            calls.append(
                {
                    "call": str(link.call),
                    "wanted": link.wanted,
                    "chance": link.chance,
                    "expected_seconds": link.seconds,
                    "shared_with": matcher.layer.holders(link.call) - 1,
                }
            )
        found.append({"calls": calls, "expected_seconds": seconds, "chance": passing})
    return found


def chains(matcher: Matcher, subscription: str) -> list[list[Link]]:
    """The calls of each clause of a subscription that has any, in the order in which the planner asks them of an event
    that has no other candidate. Raises `UnknownSubscription`."""
    slot = matcher._subscriptions.slot(subscription)
    matcher[subscription]  # what was kept as data is compiled now
    rows = matcher._subscriptions.rows(SubscriptionSlot(slot))
    return [matcher.layer.chain(row) for row in rows if row in matcher.layer]


def _saved(decision: Decision) -> int:
    return max(decision.literals - len(decision.asked), 0)


def _told(step: Step, planner: str) -> dict[str, Any]:
    return {
        "call": str(step.call),
        "why": _why(step, planner),
        "holds": step.outcome,
        "chance": step.chance,
        "expected_seconds": step.seconds,
        "popularity": step.popularity,
        "work": step.work,
        "settled": step.settled,
    }


def _why(step: Step, planner: str) -> str:
    waiting = f"{step.popularity} undecided {'clause needs' if step.popularity == 1 else 'clauses need'} it"
    match planner:
        case "greedy":
            expected = f"up to {step.work} questions settled by one of {1e3 * step.seconds:.3g} ms"
            return f"most expected work per second: {waiting}, {expected}, chance {step.chance:.2g}"
        case "sub_order":
            return f"next from the top of the first undecided chain: {waiting}"
        case "sequential":
            return f"all calls of the first undecided clause: {waiting}"
    return f"next call of the clause: {waiting}"
