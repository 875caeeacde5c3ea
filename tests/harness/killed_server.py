"""`kindcast` as a process that ends itself by SIGKILL at a named point, with small blocks of stored matches.

    python -m tests.harness.killed_server serve --data …        KINDCAST_TEST_KILL="fold 3 before"

Blocks are folded and merged after some tens of positions, so that a short run does what a large one does. With the
variable the process kills itself where the point is passed for the third time: before the step, or after it.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from kindcast.server.cli import main
from kindcast.server.store import matches

__all__ = ["POINTS", "VARIABLE"]

VARIABLE = "KINDCAST_TEST_KILL"

POINTS = {
    "publish": "kindcast.server.broker.publishing _published",
    "commit": "kindcast.server.broker.group.Group commit",
    "fold": "kindcast.server.store.matches store_fold",
    "merge": "kindcast.server.store.matches store_merge",
    "progress": "kindcast.server.delivery.outbox record_progress",
    "acknowledge": "kindcast.server.delivery.turns acknowledge",
    "subscribe": "kindcast.server.broker.subscription_commands create",
    "key": "kindcast.server.store.system.SystemStore add_key",
    "revoke": "kindcast.server.store.system.SystemStore delete_key",
    "swap": "kindcast.server.broker.vocabulary_commands swap",
    "witness": "kindcast.server.store.integrity.Witness saw",
}
"""Name → the object and its function, a step of the server. Before and after it the process may die."""


def _dying(step: Callable[..., Any], passes: int, *, after: bool) -> Callable[..., Any]:
    left = passes

    def passed() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(step)
    def run(*positional: Any, **named: Any) -> Any:
        if not after:
            passed()
        found = step(*positional, **named)
        if after:
            passed()
        return found

    return run


def _object(path: str) -> Any:
    """A module, or a class in one."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)


if __name__ == "__main__":
    matches.FOLD_POSITIONS, matches.BLOCKS_MERGED = 40, 3
    if wanted := os.environ.get(VARIABLE):
        name, passes, when = wanted.split()
        path, _, function = POINTS[name].rpartition(" ")
        owner = _object(path)
        setattr(owner, function, _dying(getattr(owner, function), int(passes), after=when == "after"))
    sys.exit(main())
