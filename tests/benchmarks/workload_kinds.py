"""Subscriptions by kind: a complete tree of concepts, three attributes that hold concepts, one price.

Each subscription asks two of the attributes for a concept, of a depth drawn between 1 and 4 (the root is 0), and the
price for an interval that is a fifth to four fifths of its range. Each event has all four attributes; half of its
concepts are leaves.
"""

import random
from dataclasses import dataclass
from typing import Any

from kindcast import Vocabulary

__all__ = ["Kinds", "kinds"]

ATTRIBUTES = ("alpha", "beta", "gamma")
PRICES = 10_000
MAX_ASKED_DEPTH = 4
NAMESPACE = "http://example.org/kinds#"
SUBCLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"


@dataclass(frozen=True, slots=True)
class Kinds:
    """One drawing of the workload; `description` says how to draw it again."""

    vocabulary: Vocabulary
    subscriptions: list[tuple[str, str]]
    events: list[dict[str, Any]]
    description: dict[str, Any]


def kinds(*, subscriptions: int, events: int, branching: int = 3, depth: int = 6, seed: int = 1) -> Kinds:
    """Draws the workload. Concept `n` has the children `n * branching + 1 …`; there are `(b**(d+1) - 1) / (b - 1)`."""
    chance = random.Random(f"kinds/{seed}/{subscriptions}/{events}/{branching}/{depth}")
    size = (branching ** (depth + 1) - 1) // (branching - 1)
    first_leaf = size - branching**depth
    triples = (
        f"<{NAMESPACE}K{node}> {SUBCLASS} <{NAMESPACE}K{(node - 1) // branching}> .\n" for node in range(1, size)
    )
    vocabulary = Vocabulary.from_bytes("".join(triples).encode(), format="ntriples", name="kinds")
    return Kinds(
        vocabulary=vocabulary,
        subscriptions=[(f"s{number}", _subscription(chance, branching)) for number in range(subscriptions)],
        events=[_event(chance, size, first_leaf) for _ in range(events)],
        description={
            "workload": "kinds",
            "subscriptions": subscriptions,
            "events": events,
            "concepts": size,
            "depth": depth,
            "seed": seed,
        },
    )


def _subscription(chance: random.Random, branching: int) -> str:
    def concept() -> str:
        depth = chance.randint(1, MAX_ASKED_DEPTH)
        first = (branching**depth - 1) // (branching - 1)
        return f"<{NAMESPACE}K{chance.randrange(first, first + branching**depth)}>"

    first, second = chance.sample(ATTRIBUTES, 2)
    width = chance.randint(PRICES // 5, PRICES * 4 // 5)
    low = chance.randrange(PRICES - width)
    return f"{first} isa {concept()} and {second} isa {concept()} and price between [{low}, {low + width}]"


def _event(chance: random.Random, size: int, first_leaf: int) -> dict[str, Any]:
    def concept() -> str:
        leaf = chance.random() < 0.5
        return f"{NAMESPACE}K{chance.randrange(first_leaf, size) if leaf else chance.randrange(1, size)}"

    return {**{name: concept() for name in ATTRIBUTES}, "price": chance.randrange(PRICES)}
