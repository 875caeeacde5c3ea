"""Tuning of Python's garbage collector: long-lived objects are frozen, so that full collections skip them, and
collections are rare, so that most objects are gone before one visits them.

A full collection visits every tracked object. A vocabulary with its subscriptions has millions, so each takes tenths of
a second, several times per second while events are published. Frozen objects are not visited: publishing became 1.5
times as fast in the workload of real readings.

By default a collection follows every 700 objects that were made and are still there: the events of one group are more,
so each group was visited several times over. None of that is garbage in circles. It took a sixth of the processor time
of events in batches.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_and_freeze", "collect_rarely", "paused"]

LARGE = 1_000
"""From this number of concepts and subscriptions on, a full collection is worth its time."""

OBJECTS_BETWEEN = 50_000
"""Objects made, beyond those that went, between two collections: more than a group of events has, and some MB."""


def collect_rarely() -> None:
    """Sets how often the collector runs in this process."""
    gc.set_threshold(OBJECTS_BETWEEN, *gc.get_threshold()[1:])


def collect_and_freeze(objects: int) -> None:
    """Runs a full collection after a large change, and freezes the objects that stay. Any thread."""
    if objects >= LARGE:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@contextmanager
def paused() -> Iterator[None]:
    """Disables the collector while a large object is built that stays. Otherwise the collector would visit the
    unfinished
    object again and again, and every thread stops during a collection. Any thread; may be nested."""
    global _builders
    with _door:
        _builders += 1
        gc.disable()
    try:
        yield
    finally:
        with _door:
            _builders -= 1
            if not _builders:
                gc.enable()


_door = threading.Lock()
_builders = 0
