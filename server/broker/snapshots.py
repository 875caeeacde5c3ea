"""Snapshots of the matcher on disk, so that a start need not compile every subscription again.

    stop, or idle after many changes ──▶ folder/<commits>/   the saved matcher, and the arrays of the subscriptions
                                          its token ──▶ the store, which notes every later change
    start ──▶ the folder with that token ──▶ minus removed, plus added subscriptions ──▶ as the store has them

Only the database is trusted. A snapshot is used if it is complete, belongs to this vocabulary, these operators and this
program, and has the token that the database names. Otherwise the server logs a warning and builds the matcher from the
store. The expression of a subscription never changes, so an old snapshot needs only the changes noted since: a server
that is killed loses nothing.
"""

import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.errors import UnusableIndex, UnusableMatcher
from kindcast.semantic.events import EventLimits
from kindcast.semantic.matching import read_arrays, write_arrays
from kindcast.semantic.operators import Operator
from kindcast.server.broker.state import LiveSubscriptions, State
from kindcast.server.settings import Settings

__all__ = ["Snapshots"]

_log = logging.getLogger("kindcast.broker")

ROLL = "server.roll"
KIND = "kindcast server 2"
PROGRAM = version("kindcast")
ENGINE = "fused"
"""The engine that can save its index. An index of another engine is always built from the subscriptions."""
DIGITS = 20
"""Of a folder's name, so that the order of names is that of numbers."""
TOKEN_BYTES = 16
NOTED_PER_CHANGE = 10
"""So many small changes, such as renewals, count as one added or removed subscription: a start applies them fast."""


class Snapshots:
    """Owned by the broker's thread, or by the thread that starts it. Nothing here raises: without a snapshot, a server
    only starts more slowly."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.snapshot_folder
        self._every = settings.snapshot_changes if settings.engine == ENGINE else 0
        self._limits = EventLimits(depth=settings.max_json_depth)
        self._budget = settings.index_bytes
        self._written: tuple[str, int] | None = None
        """The vocabulary and the change count of the matcher that was written or opened last."""

    def open(
        self, vocabulary: Vocabulary, operators: Iterable[Operator], token: str | None
    ) -> LiveSubscriptions | None:
        """The subscriptions and the matcher of the snapshot with `token`, if they may be used. Returns None without a
        log
        line if there is no snapshot."""
        if not self._every or (token is None and not self._folders()):
            return None
        try:
            if token is None:
                raise UnusableMatcher(self._folder, "the database does not know it")
            found = self._find(token)
            matcher = Matcher.open(found, vocabulary, operators=operators, limits=self._limits, budget=self._budget)
            live_subscriptions = LiveSubscriptions.opened(matcher, read_arrays(found / ROLL, KIND)[1])
        except (UnusableMatcher, UnusableIndex, OSError, ValueError, KeyError) as error:
            self.refuse(error)
            return None
        self._written = vocabulary.version, matcher.changes
        return live_subscriptions

    def refuse(self, why: object) -> None:
        """Logs that the snapshot is not used, and why."""
        _log.warning("the snapshot of the subscriptions is not used; all subscriptions are compiled again: %s", why)
        self._written = None

    def write_if_due(self, state: State) -> str | None:
        """Writes a snapshot if there were many changes since the last one; called when no command waits.

        Returns the token of the snapshot. The caller stores it (`store.subscriptions.begin_snapshot`) before the next
        change, and then calls `keep_newest`."""
        if not self._every:
            return None
        changes = max(self._changes(state.matcher), state.changes_since_snapshot // NOTED_PER_CHANGE)
        return self._write(state) if changes >= self._every else None

    def write(self, state: State) -> str | None:
        """Writes a snapshot if anything changed since the last one. Returns its token."""
        return (
            self._write(state)
            if self._every and (self._changes(state.matcher) or state.changes_since_snapshot)
            else None
        )

    def keep_newest(self) -> None:
        """Deletes all snapshots but the newest, which the store now names."""
        with contextlib.suppress(OSError):
            newest = max(self._folders(), default=None)
            self._clear(*(each for each in self._all() if each != newest))

    def _changes(self, matcher: Matcher) -> int:
        """How many changes a new snapshot would have beyond the last one."""
        if self._written is None or self._written[0] != matcher.vocabulary.version:
            return len(matcher) + matcher.changes
        return matcher.changes - self._written[1]

    def _write(self, state: State) -> str | None:
        started = time.perf_counter()
        matcher, token = state.matcher, secrets.token_hex(TOKEN_BYTES)
        final = self._folder / f"{state.commits:0{DIGITS}}"
        part = self._folder / f".{state.commits}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._clear(final, part)
            part.mkdir(mode=0o700)
            matcher.save(part)
            write_arrays(part / ROLL, KIND, {"program": PROGRAM, "token": token}, state.live_subscriptions.arrays())
            part.rename(final)
            _sync(self._folder)
        except OSError as error:
            _log.warning("no snapshot of the subscriptions was written to %s: %s", self._folder, error)
            with contextlib.suppress(OSError):
                self._clear(part)
            return None
        self._written = matcher.vocabulary.version, matcher.changes
        seconds = time.perf_counter() - started
        _log.info("wrote a snapshot of %d subscriptions in %.2f s", len(state.live_subscriptions), seconds)
        return token

    def _find(self, token: str) -> Path:
        """The folder with the token: the newest, or the one before where the server was killed before the store named
        the newest. Raises `UnusableMatcher`, and what reading a file raises."""
        found = sorted(self._folders(), reverse=True)
        for folder in found:
            facts, _ = read_arrays(folder / ROLL, KIND)
            if facts["token"] != token:
                continue
            if facts["program"] != PROGRAM:
                raise UnusableMatcher(folder, f"it was written by version {facts['program']}; this is {PROGRAM}")
            return folder
        raise UnusableMatcher(self._folder, "it is of another database, or of another time" if found else "it is gone")

    def _folders(self) -> list[Path]:
        try:
            return [each for each in self._all() if each.name.isdigit()]
        except OSError:
            return []

    def _all(self) -> list[Path]:
        """What earlier writing left, whole or not; nothing else that may lie there."""
        if not self._folder.is_dir():
            return []
        return [each for each in self._folder.iterdir() if each.name.isdigit() or each.suffix == ".part"]

    @staticmethod
    def _clear(*folders: Path) -> None:
        for each in folders:
            if each.exists():
                shutil.rmtree(each)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
