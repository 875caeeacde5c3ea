"""Caches of a Python worker that last from task to task: a vocabulary, and the shards that it matches with.

A worker serves one task at a time, and tasks come group by group: shards that fit into a worker's memory at one time
are one group, and what is read of an event serves all of them.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.matching import MatchTable
from kindcast.spark_jobs.event_batch import EventBatch, Rejected, unnamed
from kindcast.spark_jobs.snapshot import Snapshot

__all__ = ["Matched", "ShardMatcher", "opened", "parts_of", "settle", "vocabulary_of"]


@dataclass(frozen=True, slots=True)
class Matched:
    """The result of a batch: the events that can be read, their matches, and the events that cannot be read."""

    batch: EventBatch
    table: MatchTable
    rejected: list[Rejected]


@dataclass(slots=True)
class ShardMatcher:
    """Open shards. In tables of matches, the slots of a shard follow those of the shard before it."""

    matchers: Sequence[Matcher]
    context: bool
    _names: Any = field(default=None, repr=False)
    _first: list[int] = field(default_factory=list, repr=False)

    def match(self, batch: EventBatch) -> Matched:
        """The matches of a batch. An event that cannot be read is set aside and does not affect the others."""
        try:
            return Matched(batch, self._matches(batch), [])
        except InvalidEvent:
            kept, rejected = self._sorted_out(batch)
            return Matched(kept, self._matches(kept), rejected)

    def _matches(self, batch: EventBatch) -> MatchTable:
        if batch.needs_reading or batch.has_names(self.matchers[0].vocabulary.envelope_names):
            read = ((matcher, [matcher.read(event) for event in batch.each()]) for matcher in self.matchers)
            return self._in_one([matcher.match_read(events) for matcher, events in read])
        columns = batch.columns(with_context=self.context)
        return self._in_one([matcher.match_table(columns) for matcher in self.matchers])

    def _in_one(self, tables: Sequence[MatchTable]) -> MatchTable:
        self._learn_names(tables)
        if len(tables) == 1:
            return tables[0]
        offsets = sum(table.offsets for table in tables)
        assert not isinstance(offsets, int)
        slots = np.zeros(int(offsets[-1]), dtype=np.int32)
        bindings: list[Any] | None = None
        if any(table.bindings is not None for table in tables):
            bindings = [()] * slots.size
        start = offsets[:-1].copy()
        for table, first in zip(tables, self._first, strict=True):
            lengths = np.diff(table.offsets)
            places = np.arange(table.slots.size) + np.repeat(start - table.offsets[:-1], lengths)
            slots[places] = table.slots + first
            if bindings is not None and table.bindings is not None:
                for place, each in zip(places.tolist(), table.bindings, strict=True):
                    bindings[place] = each
            start += lengths
        return MatchTable(offsets, slots, bindings, {})

    def _learn_names(self, tables: Sequence[MatchTable]) -> None:
        if self._names is not None:
            return
        texts: list[str] = []
        for table in tables:
            known = table.names
            self._first.append(len(texts))
            own = [""] * (1 + max(known, default=-1))  # a slot that nobody has is never met
            for slot in known:
                own[slot] = known[slot]
            texts += own
        self._names = pa.array(texts, pa.string())

    @property
    def names(self) -> Any:
        """`string[slots]`: the id of each subscription at its slot, once something was matched."""
        return self._names

    def ids(self, table: MatchTable) -> Any:
        """`dictionary<string>[matches]`: the subscription of each match. No text is copied."""
        return pa.DictionaryArray.from_arrays(pa.array(table.slots), self._names)

    def subscriptions(self, table: MatchTable) -> Any:
        """`list<dictionary<string>>[events]`: the subscriptions that each event matches."""
        return pa.ListArray.from_arrays(pa.array(table.offsets.astype(np.int32)), self.ids(table))

    def spent(self) -> dict[str, float]:
        """The number of operator calls so far, and of clauses that they could not decide."""
        told = [matcher.statistics for matcher in self.matchers]
        asked = sum(sum(each.evaluations.values()) for each in told)
        return {"evaluations": asked, "undecided": sum(each.undecided for each in told)}

    def spent_since(self, before: dict[str, float]) -> dict[str, float]:
        """The same since then."""
        return {name: value - before[name] for name, value in self.spent().items() if value - before[name]}

    def _sorted_out(self, batch: EventBatch) -> tuple[EventBatch, list[Rejected]]:
        kept: list[tuple[int, Event | None]] = []
        rejected: list[Rejected] = []
        matcher = self.matchers[0]
        for row, event in enumerate(batch.each()):
            line = int(batch.lines[row])
            try:
                kept += [(row, part) for part, _ in parts_of(event, line, matcher.canonicalise, matcher.events_of)]
            except InvalidEvent as error:
                rejected.append(Rejected(batch.file, line, reason_of(error), shown(event.data)))
        return batch.expanded(kept), rejected


def parts_of(
    event: Event,
    line: int,
    canonicalise: Callable[[Event], CanonicalEvent],
    events_of: Callable[[Event], list[Event]],
) -> list[tuple[Event | None, CanonicalEvent]]:
    """The events of a document with their canonical forms; None for one that is the document. Raises `InvalidEvent`
    where one of them cannot be read: they are accepted or refused together."""
    try:
        return [(None, canonicalise(event))]
    except InvalidEvent as error:
        if not any(problem.code == "several-events" for problem in error.problems):
            raise
    return [(part, canonicalise(part)) for part in events_of(unnamed(event, line))]


_vocabularies: dict[tuple[str, str], Vocabulary] = {}
_shards: dict[tuple[tuple[str, str], ...], ShardMatcher] = {}


def vocabulary_of(snapshot: Snapshot) -> Vocabulary:
    """The vocabulary of a snapshot; the last one is kept."""
    key = (snapshot.folder, snapshot.vocabulary_version)
    if key not in _vocabularies:
        _vocabularies.clear()
        _vocabularies[key] = snapshot.vocabulary()
        _collector.restless = True
    return _vocabularies[key]


def opened(snapshot: Snapshot, shards: Sequence[int]) -> ShardMatcher:
    """Shards of a snapshot; the last ones are kept. Costs their opening the first time in this worker."""
    key = tuple((snapshot.folder, snapshot.shards[shard].digest) for shard in shards)
    if key not in _shards:
        _shards.clear()  # before the next ones are in memory
        vocabulary = vocabulary_of(snapshot)
        matchers = [snapshot.matcher(shard, vocabulary) for shard in shards]
        _shards[key] = ShardMatcher(matchers, snapshot.context)
        _collector.restless = True
    return _shards[key]


@dataclass(slots=True)
class _Collector:
    """Whether something was opened since the last `settle`."""

    restless: bool = False


_collector = _Collector()


def settle() -> None:
    """Freezes the open objects, so that garbage collections skip them. A worker calls this when a task ends: Spark's
    daemon runs a collection after each task, which would take as long as the task itself."""
    if _collector.restless:
        gc.unfreeze()  # what was open before may be garbage now
        gc.collect()
        gc.freeze()
        _collector.restless = False


def reason_of(error: InvalidEvent) -> str:
    """Every problem with its place."""
    return "; ".join(f"{problem.at}: {problem.detail}" if problem.at else problem.detail for problem in error.problems)


def shown(data: Any) -> str:
    """How the data of an event begins."""
    return str(data)[:200]
