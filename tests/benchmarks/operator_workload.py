"""Subscriptions over expensive predicates as the paper on overlapping subscriptions draws them, and what asking costs.

Liu et al. (2007), section 5.2, Table 1: subscriptions of 3 to `longest` predicates, drawn by a popularity that is
uniform or Zipf's; 0.2 % of the subscriptions match. The paper leaves the selectivities open. Here

    equal        every predicate holds with the same probability
    mixed        spread around it: a power of one base, the exponents uniform from 0.2 to 1.8
    calibrated   the most popular predicates, a fifth of all literals, hold with 0.8, all others equally seldom: of some
                 fifty settings of two levels the one with the counts nearest to those that the paper prints

each such that the ratio comes out. A strategy is counted by the predicates that it asks for an event, or by what these
cost: section 4.3 has predicates of unequal costs, drawn here by a log-normal law with a mean of 1. The strategies are
the objects that a matcher has under these names; that of Sub-Order has made its order of all before the first event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.problem import Estimates, Literals, Undecided
from kindcast.semantic.planner.strategies import Strategy, SubOrder, new_strategy

__all__ = ["MATCHED", "Costs", "Selectivities", "Setting", "Workload"]

MATCHED = 0.002
POPULAR, COMMON = 0.2, 0.8
"""Calibrated: the most popular predicates, with this share of all literals, hold so often; how seldom the others do
follows from `MATCHED`."""
Selectivities = Literal["equal", "mixed", "calibrated"]
Costs = Literal["equal", "unequal"]
SPREAD = 1.0
"""Standard deviation of the logarithm of unequal costs: of a hundred predicates the dearest costs some hundred times as
much as the cheapest."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure."""

    subscriptions: int = 20_000
    predicates: int = 30_000
    zipf: float | None = 1.0
    longest: int = 5
    selectivities: Selectivities = "equal"
    costs: Costs = "equal"
    seed: int = 1


class Workload:
    """The subscriptions of a setting, numbered predicates, and events as the truth of every predicate."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._chance = np.random.default_rng(setting.seed)
        self.chains = self._drawn()
        self.predicates = 1 + max(max(chain) for chain in self.chains)
        self.holds = self._selectivities()
        self.literals = Literals.of([[(predicate, True) for predicate in chain] for chain in self.chains])
        self.cost = np.ones(self.predicates)
        if setting.costs == "unequal":
            self.cost = np.random.default_rng([setting.seed, 2]).lognormal(-(SPREAD**2) / 2, SPREAD, self.predicates)
        self.estimates = Estimates(self.holds, self.cost)
        self._strategies: dict[str, Strategy] = {}

    def events(self, count: int) -> Iterator[npt.NDArray[np.bool_]]:
        """The same ones for every strategy."""
        chance = np.random.default_rng([self.setting.seed, 1])
        for _ in range(count):
            yield chance.random(self.predicates) < self.holds

    def filled(self, strategy: Strategy) -> Strategy:
        """`strategy`, told of all chains and of what is known of their predicates, one after the other."""
        for predicate in range(self.predicates):
            strategy.learned(predicate, float(self.holds[predicate]), float(self.cost[predicate]))
        for number, chain in enumerate(self.chains):
            strategy.add(number, chain, [True] * len(chain))
        return strategy

    def strategy(self, name: str) -> Strategy:
        """What a matcher has under this name, over these subscriptions; it stays."""
        if name not in self._strategies:
            found = self._strategies[name] = self.filled(new_strategy(name))
            if isinstance(found, SubOrder):
                found.order_now()
        return self._strategies[name]

    def plan(self, strategy: str, undecided: Undecided) -> Iterator[int]:
        """The order in which `strategy` asks."""
        return self.strategy(strategy).plan(undecided, self.estimates, range(len(self.chains)))

    def any_strategy(self, truth: npt.NDArray[np.bool_]) -> float:
        """At least so many predicates are asked, in the mean over events, by whoever does not know the outcomes
        beforehand; with equal selectivities and costs only.

        Each predicate asked is false with the same chance 1 - p, whatever was asked before. Those that came out false
        are at least as many as `bound` sets apart; so those asked are at least that over 1 - p in the mean.
        """
        assert self.setting.selectivities == self.setting.costs == "equal"
        return self.bound(truth)[1] / (1.0 - float(self.holds[0]))

    def asked(self, strategy: str, truth: npt.NDArray[np.bool_]) -> tuple[int, float, int]:
        """(predicates asked for an event, what they cost, subscriptions that match it)."""
        return self.spent(self.plan(strategy, undecided := Undecided(self.literals, self.predicates)), undecided, truth)

    def spent(self, plan: Iterator[int], undecided: Undecided, truth: npt.NDArray[np.bool_]) -> tuple[int, float, int]:
        """The same for a plan."""
        count, cost = 0, 0.0
        for predicate in plan:
            undecided.settle(predicate, bool(truth[predicate]))
            count += 1
            cost += float(self.cost[predicate])
        assert not undecided.unsettled()
        return count, cost, len(undecided.satisfied())

    def bound(self, truth: npt.NDArray[np.bool_]) -> tuple[float, float, int]:
        """(what the predicates of the matched subscriptions cost; what at least those of the others cost: of
        subscriptions of which no two share a false predicate each needs one of its own; subscriptions that match).
        Whoever knows all outcomes beforehand spends at least the sum of the first two."""
        needed: set[int] = set()
        false: list[list[int]] = []
        matched = 0
        for chain in self.chains:
            missed = [predicate for predicate in chain if not truth[predicate]]
            if missed:
                false.append(missed)
            else:
                matched += 1
                needed.update(chain)
        held = np.bincount([predicate for missed in false for predicate in missed], minlength=self.predicates)
        covered: set[int] = set()
        apart = 0.0
        for missed in sorted(false, key=lambda missed: int(held[missed].sum())):  # those first that exclude fewest
            if covered.isdisjoint(missed):
                covered.update(missed)
                apart += float(self.cost[missed].min())
        return float(self.cost[list(needed)].sum()), apart, matched

    def _drawn(self) -> list[list[int]]:
        """The predicates of each subscription in the order in which they were drawn, numbered from 0."""
        setting, chance = self.setting, self._chance
        ranks = np.arange(1, setting.predicates + 1)
        weights = chance.random(setting.predicates) if setting.zipf is None else 1.0 / ranks**setting.zipf
        cumulated = np.cumsum(weights / weights.sum())
        cumulated[-1] = 1.0
        found = []
        numbers: dict[int, int] = {}
        for length in chance.integers(3, setting.longest + 1, setting.subscriptions):
            chosen: dict[int, None] = {}
            while len(chosen) < length:
                drawn = np.searchsorted(cumulated, chance.random(int(length) - len(chosen)))
                chosen.update(dict.fromkeys(drawn.tolist()))
            order = chance.permutation(list(chosen)).tolist()
            found.append([numbers.setdefault(predicate, len(numbers)) for predicate in order])
        return found

    def _selectivities(self) -> npt.NDArray[np.float64]:
        """Such that `MATCHED` of the subscriptions are expected to match."""
        exponent = np.ones(self.predicates)
        if self.setting.selectivities == "mixed":
            exponent = self._chance.uniform(0.2, 1.8, self.predicates)
        first = np.concatenate([[0], np.cumsum([len(chain) for chain in self.chains])])[:-1]
        flat = np.concatenate([np.array(chain) for chain in self.chains])
        common = np.zeros(self.predicates, dtype=np.bool_)
        if self.setting.selectivities == "calibrated":
            held = np.bincount(flat)
            popular = np.argsort(-held, kind="stable")
            common[popular[np.cumsum(held[popular]) <= POPULAR * len(flat)]] = True
        low, high = 0.0, 1.0
        for _ in range(50):
            base = (low + high) / 2
            holds = np.where(common, COMMON, base**exponent)
            matched = float(np.multiply.reduceat(holds[flat], first).mean())
            low, high = (low, base) if matched > MATCHED else (base, high)
        return np.asarray(np.where(common, COMMON, ((low + high) / 2) ** exponent), dtype=np.float64)
