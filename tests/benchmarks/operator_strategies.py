"""Predicates asked per event by each strategy, on the workloads of the paper on overlapping subscriptions.

Liu et al. (2007), section 5.2, Table 1: subscriptions of 3 to `longest` predicates, drawn by a popularity that is
uniform or Zipf's; 0.2 % of the subscriptions match. The paper leaves the selectivities open. Here `equal` gives every
predicate the same one, and `mixed` spreads them around it; either way so that the ratio comes out.

    python -m tests.benchmarks.operator_strategies [--full]        JSON, one line a setting

`bound` is what a clairvoyant needs at least: all predicates of the subscriptions that match, and one for each of a set
of others that share no false predicate. `microseconds` are those of planning and settling, for each predicate asked.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semantic.planner.estimates import Estimates
from semantic.planner.greedy import greedy
from semantic.planner.linked_chains import Node, order_chains
from semantic.planner.naive import naive
from semantic.planner.problem import Literals, Undecided
from semantic.planner.sequential import sequential
from semantic.planner.strategies import PLANNERS
from semantic.planner.sub_order import sub_order

__all__ = ["Setting", "main", "measured"]

MATCHED = 0.002


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure."""

    subscriptions: int = 20_000
    predicates: int = 30_000
    zipf: float | None = 1.0
    longest: int = 5
    selectivities: str = "equal"
    events: int = 5
    seed: int = 1


QUICK = (
    Setting(),
    Setting(zipf=None, predicates=40_000),
    Setting(selectivities="mixed"),
)
FULL = (
    *(Setting(subscriptions=n, predicates=40_000, zipf=None) for n in (2_000, 20_000, 40_000, 80_000)),
    *(Setting(subscriptions=n, predicates=40_000) for n in (2_000, 20_000, 40_000, 80_000)),
    *(Setting(predicates=n) for n in (2_000, 10_000, 20_000, 30_000)),
    *(Setting(predicates=5_000, longest=n) for n in (5, 7, 9, 11)),
    *(Setting(zipf=alpha) for alpha in (0.8, 1.0, 1.2)),
    *(Setting(selectivities="mixed", zipf=alpha) for alpha in (None, 1.0)),
)


def measured(setting: Setting) -> dict[str, Any]:
    """Mean predicates asked per event, by strategy; the bound; microseconds of planning a predicate asked."""
    chance = np.random.default_rng(setting.seed)
    chains = _subscriptions(setting, chance)
    used = sorted({predicate for chain in chains for predicate in chain})
    number = {predicate: at for at, predicate in enumerate(used)}
    chains = [[number[predicate] for predicate in chain] for chain in chains]
    holds = _selectivities(setting, chains, len(used), chance)
    estimates = Estimates(holds, np.ones(len(used)))
    literals = Literals.of([[(predicate, True) for predicate in chain] for chain in chains])
    began = time.perf_counter()
    order = order_chains([[Node(p, float(holds[p]), 1.0) for p in chain] for chain in chains])
    ordering = time.perf_counter() - began
    positions = np.empty(len(chains))
    positions[order] = np.arange(len(chains))
    asked: dict[str, list[int]] = {name: [] for name in PLANNERS}
    spent: dict[str, list[float]] = {name: [] for name in PLANNERS}
    bounds, matches = [], []
    for _ in range(setting.events):
        truth = chance.random(len(used)) < holds
        bounds.append(_bound(chains, truth))
        for name in PLANNERS:
            began = time.thread_time()
            undecided = Undecided(literals, len(used))
            count = 0
            for predicate in _plan(name, undecided, estimates, positions):
                undecided.settle(predicate, bool(truth[predicate]))
                count += 1
            spent[name].append((time.thread_time() - began) / max(count, 1))
            asked[name].append(count)
            assert not undecided.unsettled()
        matches.append(len(undecided.satisfied()))
    return {
        **asdict(setting),
        "asked": {name: float(np.mean(counts)) for name, counts in asked.items()},
        "bound": float(np.mean(bounds)),
        "matched": float(np.mean(matches)) / setting.subscriptions,
        "microseconds": {name: round(1e6 * float(np.median(each)), 1) for name, each in spent.items()},
        "ordering_seconds": round(ordering, 2),
    }


def _plan(name: str, undecided: Undecided, estimates: Estimates, positions: npt.NDArray[np.float64]) -> Iterator[int]:
    match name:
        case "greedy":
            return greedy(undecided, estimates)
        case "sub_order":
            return sub_order(undecided, estimates, positions.tolist())
        case "sequential":
            return sequential(undecided)
        case _:
            return naive(undecided)


def _subscriptions(setting: Setting, chance: np.random.Generator) -> list[list[int]]:
    """Predicates of each subscription, in the order in which they were drawn."""
    ranks = np.arange(1, setting.predicates + 1)
    weights = chance.random(setting.predicates) if setting.zipf is None else 1.0 / ranks**setting.zipf
    cumulated = np.cumsum(weights / weights.sum())
    cumulated[-1] = 1.0
    found = []
    for length in chance.integers(3, setting.longest + 1, setting.subscriptions):
        chosen: dict[int, None] = {}
        while len(chosen) < length:
            drawn = np.searchsorted(cumulated, chance.random(int(length) - len(chosen)))
            chosen.update(dict.fromkeys(drawn.tolist()))
        found.append(chance.permutation(list(chosen)).tolist())
    return found


def _selectivities(
    setting: Setting, chains: list[list[int]], predicates: int, chance: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Such that `MATCHED` of the subscriptions are expected to match: a power of one base for all predicates."""
    exponent = np.ones(predicates) if setting.selectivities == "equal" else chance.uniform(0.2, 1.8, predicates)
    together = np.array([exponent[chain].sum() for chain in chains])
    low, high = 0.0, 1.0
    for _ in range(60):
        base = (low + high) / 2
        low, high = (low, base) if float((base**together).mean()) > MATCHED else (base, high)
    return np.asarray(((low + high) / 2) ** exponent, dtype=np.float64)


def _bound(chains: list[list[int]], truth: npt.NDArray[np.bool_]) -> int:
    needed: set[int] = set()
    false: list[list[int]] = []
    for chain in chains:
        missed = [predicate for predicate in chain if not truth[predicate]]
        if missed:
            false.append(missed)
        else:
            needed.update(chain)
    covered: set[int] = set()
    apart = 0
    for missed in sorted(false, key=len):
        if covered.isdisjoint(missed):
            covered.update(missed)
            apart += 1
    return len(needed) + apart


def main(arguments: list[str]) -> None:
    """Print one JSON line a setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="every figure of the paper: some minutes")
    for setting in FULL if parser.parse_args(arguments).full else QUICK:
        sys.stdout.write(json.dumps(measured(setting)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
