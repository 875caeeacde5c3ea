"""The worker process of an isolated operator: reads calls, runs the function, writes answers.

    python -m kindcast.semantic.operators.worker                  frames on standard input and output

The first frame names the function. What the function prints goes to standard error. The process ends when its input
ends, even while the function runs: nobody would read the answer.
"""

import contextlib
import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from kindcast.semantic.operators.calls import MOST_BINDINGS, EventCopy, outcomes
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import OperatorFailed, in_words
from kindcast.semantic.operators.isolation import HEADER, read, to_wire

__all__ = ["function_of", "main"]


def main() -> None:
    """Answers calls until the input ends."""
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(source, frames), daemon=True).start()
    first = read(frames.get())
    sys.path[:] = list(first["path"])
    try:
        function = function_of(first["target"])
    except Exception as error:
        _send(target, {"failed": in_words(error)})
        return
    _send(target, {"ready": True})
    while True:
        _send(target, {"answers": _answers(function, read(frames.get()))})


def function_of(target: str) -> Callable[..., Any]:
    """Imports and returns the function or operator that `module:name` names. Raises what the import raises, or
    TypeError for something that cannot be called."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is not a function")
    return found  # type: ignore[no-any-return]


def _answers(function: Callable[..., Any], asked: Sequence[tuple[Any, ...]]) -> list[Any]:
    run, batch = (function.function, function.batch) if isinstance(function, Operator) else (function, None)
    copies = [(EventCopy(event), *arguments) for event, *arguments in asked]
    return [_told(outcome) for outcome in outcomes(run, batch, copies)]


def _told(outcome: object) -> dict[str, Any]:
    if isinstance(outcome, OperatorFailed):
        return {"failed": str(outcome), "for_good": outcome.for_good, "after": outcome.after}
    try:
        return {"value": to_wire(_bounded(outcome))}
    except Exception as error:  # a generator may raise anything
        return {"failed": in_words(error), "for_good": False, "after": None}


def _bounded(value: object) -> object:
    """Returns an iterable as a tuple of at most `MOST_BINDINGS + 1` items, so that the reader notices if there are too
    many. Other values, texts and mappings are returned as they are."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    return tuple(islice(value, MOST_BINDINGS + 1))


def _receive(source: int, frames: "queue.SimpleQueue[bytes]") -> None:
    with contextlib.suppress(OSError), os.fdopen(source, "rb") as stream:
        while len(header := stream.read(HEADER.size)) == HEADER.size:
            frames.put(stream.read(HEADER.unpack(header)[0]))
    os._exit(0)


def _send(target: int, message: dict[str, Any]) -> None:
    text = json.dumps(message, separators=(",", ":")).encode()
    data = memoryview(HEADER.pack(len(text)) + text)
    while data:
        data = data[os.write(target, data) :]


if __name__ == "__main__":
    main()
