"""What is known beforehand of each predicate of an event's problem: how likely it holds, and what asking costs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CERTAIN", "Estimates"]

CERTAIN = 1e-6
"""Probabilities stay this far from 0 and 1: nothing that was learned is certain, and orders divide by them."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """`holds[p]`: the probability that predicate `p` is true; `cost[p]`: seconds, or any unit common to all. Both
    float64."""

    holds: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]

    def passing(self, predicate: npt.NDArray[np.int32], wanted: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
        """The probability that each literal comes out as wanted."""
        holds = np.clip(self.holds[predicate], CERTAIN, 1 - CERTAIN)
        return np.where(wanted == 1, holds, 1 - holds)
