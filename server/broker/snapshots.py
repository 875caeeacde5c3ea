"""The matcher on disk beside the database, so that a start need not compile every subscription again.

    stop, or idle after many changes ──▶ folder/<commits>/   the matcher as it saves itself, and the numbers
    start ──▶ the newest folder ──▶ matcher ──▶ less what is gone, plus what came ──▶ the subscriptions in the store

Only the database is trusted. A snapshot helps where it is whole, of this vocabulary, these operators and this program,
and not of a later time than the database (which may have come from a backup); else there is a line in the log, and the
matcher is built from the store. A subscription's number and id never come back, and what it asks never changes, so an
old snapshot is as good as a new one but for what it lacks: a server that is killed loses nothing by it.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from index.array_file import read_arrays, write_arrays
from index.errors import UnusableIndex
from semantic import Matcher, Vocabulary
from semantic.canonicalise import EventLimits
from semantic.errors import UnusableMatcher
from semantic.operators.declaration import Operator
from server.broker.state import State
from server.settings import Settings

__all__ = ["Snapshots"]

_log = logging.getLogger("kindcast.broker")

NUMBERS = "server.numbers"
KIND = "kindcast server 1"
PROGRAM = version("kindcast")
ENGINE = "fused"
"""The engine that has files of its own; any other would have to be filled again from a snapshot as well."""
DIGITS = 20
"""Of a folder's name, so that the order of names is that of numbers."""


class Snapshots:
    """Owned by the broker's thread, or by whoever starts it. Nothing here raises: without a snapshot, a server only
    starts more slowly."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.snapshot_folder
        self._every = settings.snapshot_changes if settings.engine == ENGINE else 0
        self._limits = EventLimits(depth=settings.max_json_depth)
        self._written: tuple[str, int] | None = None
        """Of the matcher that was written, or opened, last: its vocabulary and how often it was changed by then."""

    def open(
        self, vocabulary: Vocabulary, operators: Iterable[Operator], commits: int
    ) -> tuple[Matcher, Mapping[str, int]] | None:
        """The newest matcher and the number of each of its subscriptions, if it may be used. `commits`: those of the
        database."""
        found = self._newest()
        if not self._every or found is None:
            return None
        try:
            facts, arrays = read_arrays(found / NUMBERS, KIND)
            if facts["program"] != PROGRAM:
                raise UnusableMatcher(found, f"version {facts['program']} wrote it, and this is {PROGRAM}")
            if facts["commits"] > commits:
                raise UnusableMatcher(found, "it is of a later time than the database")
            matcher = Matcher.open(found, vocabulary, operators=operators, limits=self._limits)
            numbers = dict(zip(matcher, arrays["numbers"].tolist(), strict=True))
        except (UnusableMatcher, UnusableIndex, OSError, ValueError, KeyError) as error:
            _log.warning("the snapshot of the subscriptions is not used, they are compiled again: %s", error)
            return None
        self._written = vocabulary.version, matcher.changes
        return matcher, numbers

    def write_if_due(self, state: State) -> None:
        """Write one if there were many changes since the last; for a moment in which nobody waits."""
        if self._every and (self._changes(state.matcher) or 0) >= self._every:
            self._write(state)

    def write(self, state: State) -> None:
        """Write one if anything changed since the last."""
        if self._every and self._changes(state.matcher):
            self._write(state)

    def _changes(self, matcher: Matcher) -> int:
        """How much a snapshot would be ahead of the last one."""
        if self._written is None or self._written[0] != matcher.vocabulary.version:
            return len(matcher) + matcher.changes
        return matcher.changes - self._written[1]

    def _write(self, state: State) -> None:
        started = time.perf_counter()
        matcher = state.matcher
        final = self._folder / f"{state.commits:0{DIGITS}}"
        part = self._folder / f".{state.commits}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._clear(final, part)
            part.mkdir(mode=0o700)
            matcher.save(part)
            numbers = np.fromiter((state.live[id].number for id in matcher), dtype=np.int64, count=len(matcher))
            write_arrays(part / NUMBERS, KIND, {"program": PROGRAM, "commits": state.commits}, {"numbers": numbers})
            part.rename(final)
            _sync(self._folder)
            self._clear(*(each for each in self._all() if each != final))
        except OSError as error:
            _log.warning("no snapshot of the subscriptions was written to %s: %s", self._folder, error)
            with contextlib.suppress(OSError):
                self._clear(part)
            return
        self._written = matcher.vocabulary.version, matcher.changes
        seconds = time.perf_counter() - started
        _log.info("wrote a snapshot of %d subscriptions in %.2f s", len(matcher), seconds)

    def _newest(self) -> Path | None:
        try:
            return max((each for each in self._all() if each.name.isdigit()), default=None)
        except OSError:
            return None

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
