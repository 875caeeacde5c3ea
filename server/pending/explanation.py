"""Explanations with operators: their answers about an event that is not published, and the planner's plans.

It takes the path of published events: the same late matcher, the same planner with its statistics, and calls that are
shared with running ones. An explanation of one subscription asks everything, and waits for it in a worker thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from kindcast.semantic import CanonicalEvent, Vocabulary
from kindcast.semantic.explanations.operator_plans import chains
from kindcast.semantic.matching.decision import Decision, Step
from kindcast.semantic.matching.operator_layer import Link
from kindcast.semantic.operators.failures import Failure
from kindcast.server.operators.answers import Asking
from kindcast.server.pending.decision import wake
from kindcast.server.pending.late_matchers import Case, LateMatchers, Verdicts
from kindcast.server.store import subscriptions

PREVIEW_SECONDS = 10.0
"""For the tests of long texts of an event that is not published: whoever asks waits for them."""

NOT_IN_TIME = Failure("timed_out", "its texts could not be searched in time; a published event would be decided later")

__all__ = ["asking_and_waiting", "decide_now", "subscription_plan"]


def asking_and_waiting(desks: LateMatchers) -> Asking:
    """To be used with `asking_through`, in a thread that may wait. On the event loop."""
    return Asking(desks.ways)


async def decide_now(
    desks: LateMatchers, vocabulary: Vocabulary, event: CanonicalEvent, ids: Sequence[str]
) -> tuple[Verdicts, dict[str, Any]]:
    """The verdicts on these candidates in their first try, and the plan: which calls were made, in which order, why,
    and what was saved. `ids` that are gone meanwhile do not match."""

    def read(connection: Connection) -> dict[str, Any]:
        found = (subscriptions.find_subscription(connection, id) for id in ids)
        return {row.id: row.tree for row in found if row is not None}

    trees = await desks.broker.read(read)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    asking = Asking(desks.ways, woken=lambda: wake(loop, woken))

    def begin() -> Case:
        desk = desks.at(vocabulary)
        desk.learn_trees(trees)
        return desk.begin(event, list(trees), asking, patient=desks.is_patient, steps=True, learns=False)

    try:
        case = await desks.run(begin)
        if case.costly:
            try:
                async with asyncio.timeout(PREVIEW_SECONDS):
                    searched = await desks.texts.ask(case.costly)
            except TimeoutError:
                searched = None
            await desks.run(partial(case.settle, searched or {}, NOT_IN_TIME))
        while True:
            woken.clear()
            verdicts = await desks.run(case.advance)
            if not case.pending:
                return verdicts, _plan_in_words(case.decision, desks.planner)
            await woken.wait()
    finally:
        asking.cancel()


async def subscription_plan(
    desks: LateMatchers, id: str, tree: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, Any]:
    """The calls of each clause of a subscription with operators in the order in which the planner asks them of an event
    that is for no other one, what each is expected to cost and how often to hold, and how many clauses of all
    subscriptions share it."""

    def work() -> list[list[Link]]:
        desk = desks.at(vocabulary)
        desk.learn_trees({id: tree})
        return chains(desk.matcher, id) if id in desk.matcher else []

    found = await desks.run(work)
    layer = desks.broker.state.matcher.layer
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
    return {"planner": desks.planner, "clauses": told, "expected_seconds": seconds}


def _plan_in_words(decision: Decision, planner: str) -> dict[str, Any]:
    steps = [_step(each) for each in decision.steps or ()]
    asked = len(decision.asked)
    return {"planner": planner, "calls": steps, "asked": asked, "saved": max(0, decision.literals - asked)}


def _step(step: Step) -> dict[str, Any]:
    why = (
        f"{step.popularity} open clauses held it, {step.work} of their calls hung on it; expected to cost "
        f"{step.seconds:.3g} s and to hold with probability {step.chance:.2g}"
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
