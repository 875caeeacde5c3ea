"""A drawing as the baselines take it: an interval on every attribute of every subscription.

Absent values are -1. An attribute that is not asked about has the interval from -1 up, so absent values satisfy it, and
no other.
"""

import numpy as np
import numpy.typing as npt

from tests.benchmarks.workload_papers import Drawing

__all__ = ["TOP", "Ints", "intervals"]

Ints = npt.NDArray[np.int32]

TOP = np.int32(1 << 30)
"""Above every value."""


def intervals(drawing: Drawing) -> tuple[Ints, Ints]:
    """Lower and upper ends, closed, `int32[attributes, subscriptions]`: one attribute is contiguous."""
    low = np.where(drawing.asked, drawing.low, -1).T
    high = np.where(drawing.asked, drawing.high, TOP).T
    return np.ascontiguousarray(low, dtype=np.int32), np.ascontiguousarray(high, dtype=np.int32)
