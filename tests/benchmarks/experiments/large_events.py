"""What a large event costs the reader: objects with many names, of which a subscription uses one."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from kindcast import Matcher, Vocabulary
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "large_events"
TITLE = "Events with many names, of which a subscription uses one"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("names of an event", "microseconds a name", bars=True)
SEED = 1

NAMES = (100, 200, 1_000, 9_000)
ROUNDS: dict[Scale, int] = {"quick": 3, "default": 20, "full": 20}
NEW = 3
"""Events with new names. Each is read once."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Names that were seen before, and new ones."""
    return [
        Task(series, f"{names:,}", {"names": names, "is_new": is_new, "rounds": ROUNDS[scale]})
        for series, is_new in (("seen before", False), ("new names", True))
        for names in NAMES
    ]


def measure(*, names: int, is_new: bool, rounds: int) -> dict[str, Any]:
    """The processor time of `match` for an event with so many names, the median. `whole_ms` is the time to read every
    value, as for events that no plan can read."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("one", "price <= 100")
    matcher.match(_event(names, 0))
    gc.collect()
    gc.freeze()
    events = [_event(names, number + 1 if is_new else 0) for number in range(NEW if is_new else rounds)]
    taken = statistics.median(_seconds(matcher.match, each) for each in events)
    whole = statistics.median(_seconds(matcher.canonicalise, each) for each in events)
    return {"y": round(taken / names * 1e6, 3), "ms": round(taken * 1e3, 2), "whole_ms": round(whole * 1e3, 2)}


def _event(names: int, number: int) -> dict[str, Any]:
    return {f"m{number}_{each}": each for each in range(names - 1)} | {"price": 50}


def _seconds(work: Callable[[dict[str, Any]], object], event: dict[str, Any]) -> float:
    began = time.thread_time()
    work(event)
    return time.thread_time() - began
