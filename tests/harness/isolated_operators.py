"""Operators that run in processes of their own, good ones and bad ones; the process imports them from here."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kindcast import operator
from kindcast.semantic.model import Quantity
from kindcast.semantic.operators.failures import FailedForGood, TryLater

__all__ = ["behaves", "echoes", "hangs", "holds_many", "in_batches", "waits"]

Event = Mapping[str, tuple[Any, ...]]


def _many(asked: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [ValueError("odd") if number % 2 else [(number, len(asked))] for _, number in asked]


@operator("inBatches", isolated=True, batch=_many)
def in_batches(event: Event, number: int) -> Any:
    """Several at once by `_many`; one alone here."""
    return [(number, 1)]


@operator("echoes", isolated=True, timeout=20)
def echoes(event: Event, *given: Any) -> Any:
    """What it was given, and which process it is."""
    print("this goes to standard error")  # noqa: T201  a plug-in may print
    return (event["a"], event["absent"], "absent" in event, given, Quantity(2, "km")), os.getpid()


@operator("waits", isolated=True, timeout=30, concurrency=2)
def waits(event: Event, seconds: float) -> bool:
    """Asleep for so long, with a child that sleeps longer; its id stands in the file that the event names."""
    if seconds > 1:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(event["file"][0], "w", encoding="ascii") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
    time.sleep(seconds)
    return True


@operator("holdsMany", isolated=True, timeout=20)
def holds_many(event: Event) -> Any:
    """Bindings without end."""
    number = 0
    while True:
        yield number
        number += 1


@operator("hangs", isolated=True, timeout=1.5)
def hangs(event: Event, how: str) -> bool:
    """In a loop, unless all is well."""
    while how != "well":
        pass
    return True


@operator("behaves", isolated=True, timeout=60)
def behaves(event: Event, how: str) -> Any:
    """Badly, in the way that is asked for."""
    match how:
        case "well":
            return True
        case "exits":
            os._exit(3)
        case "raises":
            raise RuntimeError("out of order")
        case "later":
            raise TryLater("the camera is booting", after=30)
        case "never":
            raise FailedForGood("no picture")
        case "floods":
            return ["x" * 11_000_000]
        case "object":
            return object()
        case "numpy":
            return np.bool_(True), np.int32(3), np.float32(2.5), np.str_("x")
        case "writes":
            os.write(1, b"\xff" * 100)  # what it prints is not taken for an answer
            return True
        case "frame":  # a frame where the answer should be: the pipe of the worker is the second after it opened
            for pipe in range(3, 20):
                try:
                    os.write(pipe, (4).to_bytes(8, "big") + b"true")
                except OSError:
                    continue
            return True
    raise AssertionError(how)
