"""The same small document is read once in each process of the tests, in a child process as always.

Hundreds of tests load the same few ontologies, and each child takes longer to start than to read them. What a document
says depends on nothing but the task, the payload and the limits. Tests of child processes themselves call
`kindcast.semantic.ontology.isolation`, and so get a child each time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kindcast.semantic.ontology import loader
from kindcast.semantic.ontology.isolation import Cancelled, Cost, Isolation, run_isolated
from kindcast.semantic.ontology.records import Progress

__all__ = ["reading_once"]

SMALL = 1 << 16
"""Bytes. What a larger document costs matters to the test that reads it."""


@dataclass
class _Reading:
    """What a child told, and its result."""

    steps: list[tuple[str, int, int | None]] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    result: bytes = b""


@contextmanager
def reading_once() -> Iterator[None]:
    """Tells what was told before instead of starting a child for the same again. Errors are not kept."""
    kept: dict[tuple[str, bytes, Isolation | None], _Reading] = {}

    def run(
        task: str,
        payload: bytes,
        isolation: Isolation | None = None,
        *,
        progress: Progress | None = None,
        cancelled: threading.Event | None = None,
        account: Callable[[Cost], None] | None = None,
    ) -> bytes:
        key = (task, payload, isolation)
        reading = kept.get(key)
        if reading is None:
            reading = _Reading()

            def tell(stage: str, done: int, total: int | None) -> None:
                reading.steps.append((stage, done, total))
                if progress is not None:
                    progress(stage, done, total)

            def count(cost: Cost) -> None:
                reading.costs.append(cost)
                if account is not None:
                    account(cost)

            reading.result = run_isolated(task, payload, isolation, progress=tell, cancelled=cancelled, account=count)
            if len(payload) <= SMALL:
                kept[key] = reading
            return reading.result
        if cancelled is not None and cancelled.is_set():
            raise Cancelled("the reading was stopped")
        for step in reading.steps if progress is not None else ():
            progress(*step)
        for cost in reading.costs if account is not None else ():
            account(cost)
        return reading.result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "run_isolated", run)
        yield
