"""In which order an event goes through the axes, and how: Algorithm 4 of DEXIN, and what sections 4.3 and 4.4 compare.

    rates of the axes ─▶ order: lowest matching rate first ─▶ so many exclude, the others include

| plan | |
|---|---|
| `FIRST_FIT` | Algorithm 4: exclude as long as more is left than the stage walks |
| `OPTIMAL` | the cheapest of all subsets of axes that exclude, by formula (6) and observations 1 to 3; exponential |
| `EXCLUSIVE`, `INCLUSIVE` | one method throughout |

Rates and costs are shares of all rows. Excluding costs what is walked: δ as in the paper, or fewer where the complement
is shorter.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled

__all__ = ["EXCLUSIVE", "FIRST_FIT", "INCLUSIVE", "MOST_SUBSETS", "OPTIMAL", "cost_of", "first_fit", "optimal"]

Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]

FIRST_FIT, OPTIMAL, EXCLUSIVE, INCLUSIVE = range(4)

MOST_SUBSETS = 24
"""Axes of which all subsets are tried: 16 million of them take a second. With more, `OPTIMAL` is `FIRST_FIT`."""


@compiled
def first_fit(failing: Floats, cost: Floats, excludes: Chosen) -> None:
    """Algorithm 4 over axes by descending failing rate δ. Fills `excludes`."""
    left = 1.0
    fits = True
    for k in range(failing.size):
        fits = fits and (k == 0 or left > cost[k])
        excludes[k] = fits
        left *= 1.0 - failing[k]


@compiled
def cost_of(failing: Floats, cost: Floats, excludes: Chosen) -> float:
    """Formula (6), for axes by descending failing rate: what excludes comes before what includes."""
    total, left = 0.0, 1.0
    for k in range(failing.size):
        if excludes[k]:
            total += cost[k]
            left *= 1.0 - failing[k]
    for k in range(failing.size):
        if not excludes[k]:
            total += left
            left *= 1.0 - failing[k]
    return total


@compiled
def optimal(failing: Floats, cost: Floats, excludes: Chosen) -> None:
    """The subset with the least `cost_of`. Fills `excludes`. 2^axes times axes."""
    size = failing.size
    best, best_cost = 0, np.inf
    for subset in range(1, 1 << size):
        total, left = 0.0, 1.0
        for k in range(size):
            if subset >> k & 1:
                total += cost[k]
                left *= 1.0 - failing[k]
        for k in range(size):
            if not subset >> k & 1:
                total += left
                left *= 1.0 - failing[k]
        if total < best_cost:
            best, best_cost = subset, total
    for k in range(size):
        excludes[k] = best >> k & 1 == 1
