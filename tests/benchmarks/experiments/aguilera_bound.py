"""Aguilera et al.: nodes of the matching tree that an event visits, and the bound of their expected number."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast.index.published.matching_tree import Node, plant
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "aguilera_bound"
TITLE = "Aguilera et al.: nodes visited, and the bound"
PAPER = "Aguilera et al. 1999, sections 4 and 5"
PAPER_SHAPE = (
    "The expected number of nodes is at most N to the power 1 - λ times a factor of the numbers of attributes and"
    " values, λ = ln V / (ln V + ln(K + 1)): sublinear. In simulation it lies well below. The formula is lost in "
    "the text that we have, so the bound is the one that Le Subscribe quotes in its section 3."
)
AXES = Axes("subscriptions", "nodes an event", log_x=True, log_y=True)
SEED = 1

VALUES, ATTRIBUTES = 5, 8
SHARE = 0.5
"""Chance that a subscription asks for an attribute."""
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (100, 1_000),
    "default": (100, 1_000, 10_000),
    "full": (100, 1_000, 10_000, 100_000, 1_000_000),
}
EVENTS = 300


def tasks(scale: Scale) -> Sequence[Task]:
    """Both curves."""
    return [Task(who, n, {"who": who, "n": n}) for who in ("bound", "visited") for n in SIZES[scale]]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """Uniform values; don't-care edges are searched as well, without successor nodes or a switch."""
    if who == "bound":
        return {"y": round(bound(VALUES, ATTRIBUTES, n), 1)}
    chance = np.random.default_rng([SEED, n])
    asked = chance.random((n, ATTRIBUTES)) < SHARE
    wanted = chance.integers(0, VALUES, (n, ATTRIBUTES)).tolist()
    paths = [
        (row, tuple((axis, values[axis]) for axis in np.flatnonzero(asked[row]).tolist()))
        for row, values in enumerate(wanted)
    ]
    root = plant(paths, [False] * ATTRIBUTES)
    events = chance.integers(0, VALUES, (EVENTS, ATTRIBUTES)).tolist()
    return {"y": round(sum(visited(root, event) for event in events) / EVENTS, 2)}


def bound(values: int, attributes: int, subscriptions: int) -> float:
    """Of the expected number of nodes, for V values of each of K attributes, all tests equalities: V (K+1) ((K+1)
    N^(1-λ) - 1) (ln V + ln(K+1)) / ((V (K+1) - 1) ln(K+1))."""
    more, log_values, log_more = attributes + 1, math.log(values), math.log(attributes + 1)
    power = subscriptions ** (1 - log_values / (log_values + log_more))
    return values * more * (more * power - 1) * (log_values + log_more) / ((values * more - 1) * log_more)


def visited(root: Node, event: Sequence[int]) -> int:
    """Nodes on the edges with the event's values and on don't-care edges."""
    count, waiting = 0, [root]
    while waiting:
        node = waiting.pop()
        count += 1
        if node.star is not None:
            waiting.append(node.star)
        if node.edges and event[node.axis] in node.edges:
            waiting.append(node.edges[event[node.axis]])
    return count
