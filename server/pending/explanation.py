"""Explanations with operators: their answers about an unpublished event, and the plans of the planner.

Explanations use the code of published events: the same late matcher, the same planner with its statistics, and calls
that are shared with running calls. An explanation of one subscription makes all its calls and waits for them in a
worker thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from kindcast.semantic import CanonicalEvent, Vocabulary
from kindcast.semantic.explanations import chains
from kindcast.semantic.matching import Decision, Link, Step
from kindcast.semantic.operators import Failure
from kindcast.server.operators.answers import EventAnswers
from kindcast.server.pending.decision import wake
from kindcast.server.pending.late_matchers import Case, LateMatchers, Verdicts
from kindcast.server.store import subscriptions

PREVIEW_SECONDS = 10.0
"""The time limit for tests of long texts of an unpublished event, because a user waits for them."""

NOT_IN_TIME = Failure("timed_out", "its texts could not be searched in time; a published event is decided later")

__all__ = ["blocking_answers", "decide_now", "subscription_plan"]


def blocking_answers(late_matchers: LateMatchers) -> EventAnswers:
    """Returns answers that wait for operators, for use with `answering_from` in a thread that may wait. Must be called
    on the event loop."""
    return EventAnswers(late_matchers.operator_clients)


async def decide_now(
    late_matchers: LateMatchers, vocabulary: Vocabulary, event: CanonicalEvent, ids: Sequence[str]
) -> tuple[Verdicts, dict[str, Any]]:
    """Returns the verdicts on these candidates in their first try, and the plan: which calls were made, in which order,
    why, and how many were saved. Subscriptions in `ids` that were deleted meanwhile do not match."""

    def read(connection: Connection) -> dict[str, Any]:
        found = (subscriptions.find_subscription(connection, id) for id in ids)
        return {row.id: row.tree for row in found if row is not None}

    trees = await late_matchers.broker.read(read)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken))

    def begin() -> Case:
        late_matcher = late_matchers.at(vocabulary)
        late_matcher.learn_trees(trees)
        return late_matcher.begin(
            event, list(trees), event_answers, patient=late_matchers.is_patient, steps=True, learns=False
        )

    try:
        case = await late_matchers.run(begin)
        if case.costly:
            try:
                async with asyncio.timeout(PREVIEW_SECONDS):
                    searched = await late_matchers.texts.ask(case.costly)
            except TimeoutError:
                searched = None
            await late_matchers.run(partial(case.settle, searched or {}, NOT_IN_TIME))
        while True:
            woken.clear()
            verdicts = await late_matchers.run(case.advance)
            if not case.pending:
                return verdicts, _plan_in_words(case.decision, late_matchers.planner)
            await woken.wait()
    finally:
        event_answers.cancel()


async def subscription_plan(
    late_matchers: LateMatchers, id: str, tree: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Returns, for each clause of a subscription with operators, its calls in the order of the planner for an event
    without other candidates. Each call has its expected cost, the probability that it holds, and the number of clauses
    of all subscriptions that share it."""

    def work() -> list[list[Link]]:
        late_matcher = late_matchers.at(vocabulary)
        late_matcher.learn_trees({id: tree})
        return chains(late_matcher.matcher, id) if id in late_matcher.matcher else []

    found = await late_matchers.run(work)
    layer = late_matchers.broker.state.matcher.layer
    told, seconds = [], 0.0
    for chain in found:
        total, reached, calls = 0.0, 1.0, []
        for link in chain:
            total += reached * link.seconds
            calls.append(
                {
                    "call": str(link.call) if link.wanted else f"not {link.call}",
                    "expected_seconds": link.seconds,
                    "expected_true": link.chance,
                    "asked_with_probability": reached,
                    "held_by_clauses": layer.holders(link.call),
                }
            )
            reached *= link.passing
        told.append({"calls": calls, "expected_seconds": total, "expected_true": reached})
        seconds += total
    return {"planner": late_matchers.planner, "clauses": told, "expected_seconds": seconds}


def _plan_in_words(decision: Decision, planner: str) -> dict[str, Any]:
    steps = [_step(each) for each in decision.steps or ()]
    asked = len(decision.asked)
    return {"planner": planner, "calls": steps, "asked": asked, "saved": max(0, decision.literals - asked)}


def _step(step: Step) -> dict[str, Any]:
    why = (
        f"{step.popularity} open clauses contained it, {step.work} of their calls depended on it; expected cost "
        f"{step.seconds:.3g} s, probability {step.chance:.2g}"
    )
    return {
        "call": str(step.call),
        "why": why,
        "expected_seconds": step.seconds,
        "expected_true": step.chance,
        "held": step.outcome,
        "failure": None if step.failure is None else {"kind": step.failure.kind, "reason": step.failure.reason},
        "settled": step.settled,
    }
