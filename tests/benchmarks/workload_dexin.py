"""DEXIN's workloads, section 4: numbers in a range of η values, every attribute constrained, as a `Drawing`.

| parameter | in the paper | default |
|---|---|---|
| `subscriptions` | N | |
| `attributes` | M, 2 to 22 | 10 |
| `values` | η, the cardinality | 10⁴ |
| `points` | λ, the share of point constraints | 0.1 |
| `width` | θ, of the range; one number or drawn between two | 0.2 to 0.8 |
| `skewed` | Zipf's law instead of the uniform one, for lower ends and for events | no |
| `rate` | ξ: each event matches about this share of the subscriptions | as it comes out |

With `rate`, 1/ξ events are drawn first and each subscription is made for one of them: one of its constraints holds on
no other of these events, the others hold at least on this one.
"""

import numpy as np
import numpy.typing as npt

from tests.benchmarks.harness.experiment import Scale
from tests.benchmarks.workload_papers import NUMBER, Drawing

__all__ = ["CONTESTANTS", "SIZE", "draw_dexin"]

Numbers = npt.NDArray[np.int64]

CONTESTANTS = ("fused", "dexin", "ctps", "counting", "scan (numpy)", "scan (compiled)", "REIN", "TAMA, refined")
"""In every figure; Figure 2 has all others as well."""
SIZE: dict[Scale, int] = {"quick": 3_000, "default": 20_000, "full": 1_000_000}
"""Subscriptions where a figure varies something else."""


def draw_dexin(
    *,
    subscriptions: int,
    events: int,
    attributes: int = 10,
    values: int = 10_000,
    points: float = 0.1,
    width: float | None = None,
    skewed: bool = False,
    rate: float | None = None,
    seed: int = 1,
) -> Drawing:
    """One drawing; the same arguments give the same."""
    chance = np.random.default_rng([seed, subscriptions, attributes, values])
    shape = (subscriptions, attributes)
    widths = np.full(shape, width) if width is not None else chance.uniform(0.2, 0.8, shape)
    span = np.maximum((widths * values).astype(np.int64), 1)
    is_point = chance.random(shape) < points
    if rate is not None:
        low, high, happening = _around_events(chance, span, is_point, events, values, rate)
    else:
        low = _drawn(chance, shape, values - span + 1, skewed)
        at = _drawn(chance, shape, np.full(shape, values), skewed)
        low, high = np.where(is_point, at, low), np.where(is_point, at, low + span - 1)
        happening = _drawn(chance, (events, attributes), np.full((events, attributes), values), skewed)
    nothing = np.zeros((0, 0), dtype=np.int32)
    return Drawing(
        name="dexin",
        seed=seed,
        height=0,
        kinds=(NUMBER,) * attributes,
        most=values,
        asked=np.ones(shape, dtype=np.bool_),
        low=low.astype(np.int32),
        high=high.astype(np.int32),
        values=happening.astype(np.int32),
        nodes=nothing,
        event_nodes=nothing,
    )


def _drawn(chance: np.random.Generator, shape: tuple[int, int], below: Numbers, skewed: bool) -> Numbers:
    """Numbers 0 … below-1. Skewed: number k with a chance that falls as 1/(k+1)."""
    if not skewed:
        return (chance.random(shape) * below).astype(np.int64)
    return np.minimum(np.exp(chance.random(shape) * np.log(below + 1.0)).astype(np.int64) - 1, below - 1)


def _around_events(
    chance: np.random.Generator, span: Numbers, is_point: npt.NDArray[np.bool_], events: int, values: int, rate: float
) -> tuple[Numbers, Numbers, Numbers]:
    """Ends of constraints around 1/rate events, and `events` draws among these."""
    n, m = span.shape
    base = chance.integers(0, values, (max(1, round(1 / rate)), m))
    own = chance.integers(0, len(base), n)
    value = base[own]
    first = np.maximum(0, value - span + 1)
    last = np.minimum(value, values - span)
    low = first + (chance.random((n, m)) * (np.maximum(last - first, 0) + 1)).astype(np.int64)
    high = np.maximum(low + span - 1, value)
    low, high = np.where(is_point, value, np.minimum(low, value)), np.where(is_point, value, high)
    telling = chance.integers(0, m, n)
    rows = np.arange(n)
    for j in range(m):  # half-way to the neighbours among the values of the events
        ordered = np.unique(base[:, j])
        at = np.searchsorted(ordered, value[:, j])
        below = np.where(at > 0, ordered[np.maximum(at - 1, 0)], -1)
        above = np.where(at + 1 < ordered.size, ordered[np.minimum(at + 1, ordered.size - 1)], values)
        narrow = (telling == j) & ~is_point[rows, j]
        low[narrow, j] = (value[narrow, j] + below[narrow]) // 2 + 1
        high[narrow, j] = np.maximum(value[narrow, j], (value[narrow, j] + above[narrow] - 1) // 2)
        exact = (telling == j) & is_point[rows, j]
        low[exact, j] = high[exact, j] = value[exact, j]
    return low, high, base[chance.integers(0, len(base), events)]
