"""The papers' workloads, drawn as columns, with the subscriptions as expressions and the events as tables.

| name | what |
|---|---|
| W1 | DEXIN's default: 10 numbers of 10,000 values, all constrained; a tenth points, widths 0.2 to 0.8 |
| W2 | Le Subscribe's: 3 strings of 200 values, 3 numbers of 5,000, each constrained and present with probability ½ |
| W3 | concepts: 3 attributes over binary trees, a string half the time, two intervals |
| W4 | W3 with subscriptions at depth 2 to 5 and events at leaves: the same number of matches at any height |

The same drawing also stands as integer columns, for the full scan that the engines are measured against.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kindcast import Vocabulary

__all__ = ["WORKLOADS", "Drawing", "FullScan", "draw"]

WORKLOADS = ("W1", "W2", "W3", "W4")
NAMESPACE = "http://example.org/tree#"
SUBCLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
STRING, NUMBER, CONCEPT = 0, 1, 2

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Drawing:
    """n subscriptions and e events over m attributes `a0 … `: `asked`, `low`, `high` are `[n, m]` (closed ends; of
    concepts the interval of the walk from the root), `values` is `[e, m]` (-1: absent); `nodes` of subscriptions and
    `event_nodes` of events name the concepts."""

    name: str
    seed: int
    height: int
    kinds: tuple[int, ...]
    most: int
    asked: npt.NDArray[np.bool_]
    low: Ints
    high: Ints
    values: Ints
    nodes: Ints
    event_nodes: Ints

    def vocabulary(self) -> "Vocabulary":
        """The tree of concepts; empty where the workload has none."""
        from kindcast import Vocabulary  # where only the index is measured, its import would take most of the time

        if CONCEPT not in self.kinds:
            return Vocabulary.from_ontologies([])
        size = (1 << (self.height + 1)) - 1
        triples = (f"<{NAMESPACE}N{n}> {SUBCLASS} <{NAMESPACE}N{(n - 1) // 2}> .\n" for n in range(1, size))
        return Vocabulary.from_bytes("".join(triples).encode(), format="ntriples", name="tree")

    def tree(self, number: int) -> dict[str, Any]:
        """Subscription `number` as the tree that `Matcher.add_many` takes."""
        parts = []
        for j, kind in enumerate(self.kinds):
            if not self.asked[number, j]:
                continue
            low, high, name = int(self.low[number, j]), int(self.high[number, j]), f"a{j}"
            if kind == CONCEPT:
                parts.append({"isa": [name, {"iri": f"{NAMESPACE}N{self.nodes[number, j]}"}]})
            elif kind == STRING:
                parts.append({"=": [name, f"v{low}"]})
            elif low == high:
                parts.append({"=": [name, low]})
            elif low <= 0 and self.name == "W2":
                parts.append({"<=": [name, high]})
            elif self.name == "W2":
                parts.append({">=": [name, low]})
            else:
                parts.append({"between": [name, [low, high], "[]"]})
        return {"all": parts}

    def table(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Events as columns: strings as objects, numbers as floats, concepts by IRI; None and NaN are absent."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for j, kind in enumerate(self.kinds):
            values = self.values[start:stop, j]
            if kind == NUMBER:
                columns[f"a{j}"] = np.where(values < 0, np.nan, values.astype(np.float64))
            elif kind == STRING:
                texts = [None if value < 0 else f"v{value}" for value in values.tolist()]
                columns[f"a{j}"] = np.array(texts, dtype=object)
            else:
                names = [f"{NAMESPACE}N{node}" for node in self.event_nodes[start:stop, j].tolist()]
                columns[f"a{j}"] = np.array(names, dtype=object)
        return columns


class FullScan:
    """The baseline: every subscription against one event, column by column, with the ids extracted."""

    def __init__(self, drawing: Drawing) -> None:
        places = range(len(drawing.kinds))
        self._low = [np.ascontiguousarray(np.where(drawing.asked[:, j], drawing.low[:, j], -1)) for j in places]
        top = np.int32(1 << 30)
        self._high = [np.ascontiguousarray(np.where(drawing.asked[:, j], drawing.high[:, j], top)) for j in places]
        self._free = [np.ascontiguousarray(~drawing.asked[:, j]) for j in places]

    def match(self, event: Ints) -> npt.NDArray[np.int64]:
        """The numbers of the subscriptions that `event` matches, ascending."""
        live = None
        for low, high, free, value in zip(self._low, self._high, self._free, event.tolist(), strict=True):
            passes = free if value < 0 else (low <= value) & (high >= value)
            live = passes.copy() if live is None else np.logical_and(live, passes, out=live)
        assert live is not None
        return np.flatnonzero(live)


def draw(name: str, *, subscriptions: int, events: int, seed: int = 1, height: int = 5) -> Drawing:
    """One drawing; the same arguments give the same."""
    chance = np.random.default_rng([seed, WORKLOADS.index(name), subscriptions, height])
    if name == "W1":
        return _intervals(chance, subscriptions, events, seed)
    if name == "W2":
        return _sparse(chance, subscriptions, events, seed)
    return _concepts(name, chance, subscriptions, events, seed, height)


def _intervals(chance: np.random.Generator, n: int, e: int, seed: int) -> Drawing:
    m, most = 10, 10_000
    width = np.maximum((chance.uniform(0.2, 0.8, (n, m)) * most).astype(np.int64), 1)
    low = (chance.random((n, m)) * (most - width)).astype(np.int64)
    point, points = chance.random((n, m)) < 0.1, chance.integers(0, most, (n, m))
    values = chance.integers(0, most, (e, m))
    return _drawing(
        "W1",
        seed,
        0,
        (NUMBER,) * m,
        most,
        np.ones((n, m), dtype=bool),
        np.where(point, points, low),
        np.where(point, points, low + width - 1),
        values,
    )


def _sparse(chance: np.random.Generator, n: int, e: int, seed: int) -> Drawing:
    kinds = (STRING,) * 3 + (NUMBER,) * 3
    sizes = np.array([200] * 3 + [5_000] * 3)
    asked = chance.random((n, 6)) < 0.5
    while not asked.any(axis=1).all():
        empty = ~asked.any(axis=1)
        asked[empty] = chance.random((int(empty.sum()), 6)) < 0.5
    bound, order = chance.integers(0, sizes, (n, 6)), chance.random((n, 6))
    order[:, :3] = 0.0
    low = np.where((order >= 0.5) & (order < 0.75), 0, bound)
    high = np.where(order >= 0.75, sizes - 1, bound)
    values = np.where(chance.random((e, 6)) < 0.5, chance.integers(0, sizes, (e, 6)), -1)
    return _drawing("W2", seed, 0, kinds, 5_000, asked, low, high, values)


def _concepts(name: str, chance: np.random.Generator, n: int, e: int, seed: int, height: int) -> Drawing:
    kinds = (CONCEPT,) * 3 + (STRING,) + (NUMBER,) * 2
    size = (1 << (height + 1)) - 1
    before, below = _walk(height)
    if name == "W4":
        depth = chance.integers(2, 6, (n, 3))
        nodes = (1 << depth) - 1 + (chance.random((n, 3)) * (1 << depth)).astype(np.int64)
        event_nodes = chance.integers(size // 2, size, (e, 3))
    else:
        nodes = chance.integers(0, size, (n, 3))
        leaves = chance.integers(size // 2, size, (e, 3))
        event_nodes = np.where(chance.random((e, 3)) < 0.5, leaves, chance.integers(0, size, (e, 3)))
    asked = np.ones((n, 6), dtype=bool)
    asked[:, 3] = chance.random(n) < 0.5
    texts = chance.integers(0, 100, (n, 1))
    width = (chance.uniform(0.2, 0.8, (n, 2)) * 10_000).astype(np.int64)
    least = (chance.random((n, 2)) * (10_000 - width)).astype(np.int64)
    low = np.hstack([before[nodes], texts, least])
    high = np.hstack([before[nodes] + below[nodes] - 1, texts, least + width - 1])
    values = np.hstack([before[event_nodes], chance.integers(0, 100, (e, 1)), chance.integers(0, 10_000, (e, 2))])
    return _drawing(name, seed, height, kinds, 10_000, asked, low, high, values, nodes, event_nodes)


def _walk(height: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each node of the complete binary tree its place in a walk from the root, and how many it has below, itself
    included."""
    size = (1 << (height + 1)) - 1
    depth = np.floor(np.log2(np.arange(size) + 1)).astype(np.int64)
    below = (1 << (height + 1 - depth)) - 1
    before = np.zeros(size, dtype=np.int64)
    for node in range(size // 2):
        before[2 * node + 1] = before[node] + 1
        before[2 * node + 2] = before[node] + 1 + below[2 * node + 1]
    return before, below


def _drawing(
    name: str,
    seed: int,
    height: int,
    kinds: tuple[int, ...],
    most: int,
    asked: npt.NDArray[np.bool_],
    *columns: npt.NDArray[Any],
) -> Drawing:
    low, high, values, *nodes = (column.astype(np.int32) for column in columns)
    empty = np.zeros((0, 0), dtype=np.int32)
    own, others = nodes or (empty, empty)
    return Drawing(name, seed, height, kinds, most, asked, low, high, values, own, others)
