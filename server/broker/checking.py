"""The background check after a start: reads all stored data once.

    ready ──some seconds──▶ quick_check, table by table ──▶ digests, some thousand rows at a time ──▶ log, /readyz

After each piece it pauses for several times as long as the piece took, so that it uses only a small share of one
processor.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from kindcast.server.errors import ServerError, StoreDamaged
from kindcast.server.store.integrity import CHECKS, Check, Damage, count_of, find_damage, tables_of

__all__ = ["check_everything"]

ROWS = 1_000
"""The number of rows of a piece."""
REST = 4.0
"""The length of a pause, as a multiple of the time of a piece."""
MAX_DAMAGE = 20
"""The maximum number of kept lines of SQLite's own check."""

_log = logging.getLogger("kindcast.store")

Read = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


async def check_everything(read: Read, damage: Damage, after_seconds: float) -> None:
    """Checks all data once. `read` is the method of the broker. The damage is recorded in `damage`."""
    await asyncio.sleep(after_seconds)
    began = time.monotonic()
    try:
        for table in await read(tables_of):
            damage.progress = f"checking the table {table}"
            if lines := await _rested(read, partial(find_damage, table=table, at_most=MAX_DAMAGE)):
                damage.note_file("; ".join(lines))
        checked = 0
        for name, check, table in CHECKS:
            total, done = await read(partial(count_of, table=table)), 0
            after: int | None = 0
            while after is not None:
                damage.progress = f"checking {name}: {done:,} of {total:,}"
                after, found = await _rested(read, _from(check, after))
                for each in found:
                    damage.note(each)
                done = min(total, done + ROWS)
            checked += total
    except StoreDamaged:
        damage.progress = "the check stopped at damaged pages"
        return
    except ServerError as error:
        damage.progress = f"the check stopped early: {error}"
        return
    damage.progress = f"{checked:,} records were checked"
    _log.info("%s in %.1f s after the start", damage.progress, time.monotonic() - began)


def _from(check: Check, after: int) -> Callable[[Connection], Any]:
    return lambda connection: check(connection, after, ROWS)


async def _rested(read: Read, work: Callable[[Connection], Any]) -> Any:
    began = time.monotonic()
    found = await read(work)
    await asyncio.sleep(REST * (time.monotonic() - began))
    return found
