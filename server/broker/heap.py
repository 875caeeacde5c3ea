"""Garbage collection and a large vocabulary: what lives as long as the server must not be walked again and again.

The collector visits every object that it knows, and a vocabulary with its subscriptions is millions of them, so a full
round takes tenths of a second and comes several times a second while events are published. Frozen, they are visited no
more: publishing became half as fast again in the workload of real readings.
"""

import gc

__all__ = ["settle"]

LARGE = 1_000
"""Concepts and subscriptions from which it is worth a full collection."""


def settle(objects: int) -> None:
    """After a large change: collect what it left behind, and freeze what stays. A full collection; any thread."""
    if objects >= LARGE:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
