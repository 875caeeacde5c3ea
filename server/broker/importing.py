"""Many new subscriptions in one command: compiled together beside the thread, stored by one statement, added in bulk.

    checked requests ──describe, any thread──▶ what to store ──create_many, one group──▶ rows, roll, matcher

Each comes out as if it had been made alone, and one that is refused stops no other.
"""

from collections.abc import Sequence

from semantic import InvalidSubscription, Vocabulary
from semantic.bulk.described import Described, compile_many
from server.broker.changes import admit_many, introduce
from server.broker.group import Group
from server.broker.roll import Live
from server.broker.subscribing import NewSubscription, compile_new, new_row
from server.broker.sweeping import Sweeper
from server.errors import ServerError, TooManySubscriptions
from server.operators.registry import Registry
from server.operators.uses import operators_of
from server.store import subscriptions
from server.store.operators import note_uses

__all__ = ["Refusal", "create_many", "describe"]

Refusal = InvalidSubscription | ServerError
"""Why one of many was not made."""


def describe(
    new: Sequence[NewSubscription], vocabulary: Vocabulary, operators: Registry
) -> list[Described | InvalidSubscription]:
    """What each becomes under the vocabulary, or what is wrong with it. Any thread."""
    together = [number for number, each in enumerate(new) if len(each.parts) == 1]
    compiled = compile_many([new[number].parts[0] for number in together], vocabulary, operators.available)
    found = dict(zip(together, compiled, strict=True))
    return [
        found[number] if number in found else _alone(each, vocabulary, operators) for number, each in enumerate(new)
    ]


def create_many(
    group: Group,
    new: Sequence[NewSubscription],
    described: Sequence[Described | InvalidSubscription],
    vocabulary: Vocabulary,
    operators: Registry,
    sweeper: Sweeper,
    *,
    limit: int,
) -> list[Refusal | None]:
    """Store those that are valid, and make them match; None for each that was made, in the order of `new`.

    If the vocabulary or the operators have changed since they were `described`, that is done again. Raises
    `index.errors.IndexFull`, and makes none of them then. Costs some 50 µs each.
    """
    state = group.state
    if vocabulary is not state.vocabulary or operators is not state.operators:
        described = describe(new, state.vocabulary, state.operators)
    results: list[Refusal | None] = []
    made: list[tuple[NewSubscription, Described]] = []
    for each, became in zip(new, described, strict=True):
        if isinstance(became, InvalidSubscription):
            results.append(became)
        elif len(state.roll) + len(made) >= limit:
            results.append(TooManySubscriptions(f"this server takes at most {limit:,} subscriptions"))
        else:
            results.append(None)
            made.append((each, became))
    rows = [new_row(group, each, became) for each, became in made]
    numbers = subscriptions.insert_subscriptions(group.connection, rows)
    lives = []
    for number, (each, became) in zip(numbers, made, strict=True):
        note_uses(group.connection, number, operators_of(became.tree))
        lives.append(introduce(group, Live(number, each.id, "active", each.expires_at, matching=False)))
    admit_many(group, lives, [became.tree for _, became in made])
    for live in lives:
        sweeper.watch(live)
    return results


def _alone(new: NewSubscription, vocabulary: Vocabulary, operators: Registry) -> Described | InvalidSubscription:
    try:
        return Described.of(compile_new(new, vocabulary, operators.available))
    except InvalidSubscription as error:
        return error
