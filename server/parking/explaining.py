"""What operators say of an event that is not published, and plans in words. Nothing is stored, and nothing is learned.

Here somebody waits for the answer, so calls are waited for, in a worker thread and on a desk of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from semantic import CanonicalEvent, Vocabulary
from semantic.operators.calls import Call
from semantic.operators.clauses import expensive_clause
from semantic.operators.deciding import Step
from semantic.planner.learning import Experience
from server.operators.asking import Asking
from server.parking.desk import Desk, Verdicts, desk_maker
from server.parking.desks import Desks
from server.store import subscriptions

__all__ = ["asking_and_waiting", "decide_now", "subscription_plan"]

Link = tuple[Call, bool, float, float]
"""A call, whether it must hold, how likely it does, and what it costs."""


def asking_and_waiting(desks: Desks) -> Asking:
    """To be used with `asking_through`, in a thread that may wait. On the event loop."""
    return Asking(desks.ways)


async def decide_now(
    desks: Desks, vocabulary: Vocabulary, event: CanonicalEvent, ids: Sequence[str], *, depth: int
) -> tuple[Verdicts, dict[str, Any]]:
    """The verdicts on these candidates, and the plan: which calls were made, in which order, why, and what was saved.

    `ids` that are gone meanwhile do not match."""

    def read(connection: Connection) -> dict[str, Any]:
        found = (subscriptions.find_subscription(connection, id) for id in ids)
        return {row.id: row.tree for row in found if row is not None}

    trees = await desks.broker.read(read)
    asking = asking_and_waiting(desks)
    known = await desks.run(lambda: Experience(operators=dict(desks.experience.operators)))
    made = desk_maker(lambda: desks.broker.state.operators.known, known, depth=depth)

    def decide() -> tuple[Verdicts, dict[str, Any]]:
        desk = made(vocabulary)
        desk.learn_trees(trees)
        desk.layer.watched = []
        verdicts = desk.decide(event, list(trees), asking)
        return verdicts, _plan_in_words(desk)

    try:
        return await asyncio.to_thread(decide)
    finally:
        asking.cancel()


async def subscription_plan(desks: Desks, id: str, tree: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """The chain of each clause of a subscription with operators: its calls in the order that is cheapest for it alone,
    what each is expected to cost and how often to hold, and how many clauses of all subscriptions share it."""

    def work() -> list[list[Link]]:
        desk = desks.at(vocabulary)
        desk.learn_trees({id: tree})
        return _chains(desk, id)

    chains = await desks.run(work)
    layer = desks.broker.state.matcher.layer
    told = []
    for chain in chains:
        total, reached, calls = 0.0, 1.0, []
        for call, wanted, chance, seconds in chain:
            total += reached * seconds
            calls.append(
                {
                    "call": str(call) if wanted else f"not {call}",
                    "expected_seconds": seconds,
                    "expected_true": chance,
                    "asked_with_probability": reached,
                    "held_by_clauses": layer.holders(call),
                }
            )
            reached *= chance if wanted else 1.0 - chance
        told.append({"calls": calls, "expected_seconds": total, "expected_true": reached})
    return {"clauses": told, "expected_seconds": sum(each["expected_seconds"] for each in told)}


def _chains(desk: Desk, id: str) -> list[list[Link]]:
    """The calls of each clause, by cost over the chance that they settle it."""
    matcher, experience = desk.matcher, desk.layer.experience
    found = []
    for atoms in matcher[id].clauses if id in matcher else ():
        part = expensive_clause(atoms, matcher.operators, matcher.vocabulary)
        if part is None:
            continue
        chain = []
        for call, wanted in part.literals:
            operator = matcher.operators[call.operator]
            chance, seconds = experience.expected(call.operator, str(call), operator.selectivity, operator.cost)
            chain.append((call, wanted, chance, seconds))
        found.append(sorted(chain, key=_rank))
    return found


def _rank(each: Link) -> float:
    _, wanted, chance, seconds = each
    fails = 1.0 - chance if wanted else chance
    return seconds / max(fails, 1e-9)


def _plan_in_words(desk: Desk) -> dict[str, Any]:
    decisions = desk.layer.watched or []
    steps = [_step(each) for decision in decisions for each in decision.steps or ()]
    literals = sum(decision.literals for decision in decisions)
    asked = sum(len(decision.asked) for decision in decisions)
    return {"planner": desk.matcher.planner_name, "calls": steps, "asked": asked, "saved": max(0, literals - asked)}


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
        "settled": step.settled,
    }
