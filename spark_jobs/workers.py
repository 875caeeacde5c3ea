"""What a Python worker keeps from task to task: a vocabulary, and the shard that it matches against.

A worker serves one task at a time, and tasks come shard by shard, so one shard in memory is enough.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from semantic import InvalidEvent, Matcher, Vocabulary
from semantic.results import MatchTable
from spark_jobs.event_batch import EventBatch, Rejected
from spark_jobs.snapshot import Snapshot

__all__ = ["Matched", "ShardMatcher", "opened", "vocabulary_of"]


@dataclass(frozen=True, slots=True)
class Matched:
    """What became of a batch: the events that can be read, their matches, and the events that cannot."""

    batch: EventBatch
    table: MatchTable
    rejected: list[Rejected]


@dataclass(slots=True)
class ShardMatcher:
    """A shard, opened. `names` are the ids of its subscriptions by slot, for Arrow."""

    matcher: Matcher
    context: bool
    _names: Any = field(default=None, repr=False)

    def match(self, batch: EventBatch) -> Matched:
        """The matches of a batch. An event that cannot be read is set aside; the others do not suffer for it."""
        try:
            return Matched(batch, self.matcher.match_table(batch.columns(with_context=self.context)), [])
        except InvalidEvent:
            kept, rejected = self._sorted_out(batch)
            return Matched(kept, self.matcher.match_table(kept.columns(with_context=self.context)), rejected)

    def names(self, table: MatchTable) -> Any:
        """`string[slots]`: the id of each subscription at its slot."""
        if self._names is None:
            known = table.names
            texts = [""] * (1 + max(known, default=-1))  # a slot that nobody has is never met
            for slot in known:
                texts[slot] = known[slot]
            self._names = pa.array(texts, pa.string())
        return self._names

    def subscriptions(self, table: MatchTable) -> Any:
        """`list<dictionary<string>>[events]`: who gets each event. No text is copied."""
        offsets = pa.array(table.offsets.astype(np.int32))
        slots = pa.DictionaryArray.from_arrays(pa.array(table.slots), self.names(table))
        return pa.ListArray.from_arrays(offsets, slots)

    def spent(self) -> dict[str, float]:
        """What operators have been asked so far, and how many clauses none of them could decide."""
        statistics = self.matcher.statistics
        return {"evaluations": sum(statistics.evaluations.values()), "undecided": statistics.undecided}

    def spent_since(self, before: dict[str, float]) -> dict[str, float]:
        """The same since then."""
        return {name: value - before[name] for name, value in self.spent().items() if value - before[name]}

    def _sorted_out(self, batch: EventBatch) -> tuple[EventBatch, list[Rejected]]:
        kept: list[int] = []
        rejected: list[Rejected] = []
        for row, event in enumerate(batch.each()):
            try:
                self.matcher.canonicalise(event)
                kept.append(row)
            except InvalidEvent as error:
                rejected.append(Rejected(batch.file, int(batch.lines[row]), reason_of(error), shown(event.data)))
        return batch.take(kept), rejected


_vocabularies: dict[tuple[str, str], Vocabulary] = {}
_shards: dict[tuple[str, str], ShardMatcher] = {}


def vocabulary_of(snapshot: Snapshot) -> Vocabulary:
    """The vocabulary of a snapshot; the last one is kept."""
    key = (snapshot.folder, snapshot.vocabulary_version)
    if key not in _vocabularies:
        _vocabularies.clear()
        _vocabularies[key] = snapshot.vocabulary()
    return _vocabularies[key]


def opened(snapshot: Snapshot, shard: int) -> ShardMatcher:
    """A shard of a snapshot; the last one is kept. Costs its opening the first time in this worker."""
    key = (snapshot.folder, snapshot.shards[shard].digest)
    if key not in _shards:
        _shards.clear()  # before the next one is in memory
        _shards[key] = ShardMatcher(snapshot.matcher(shard, vocabulary_of(snapshot)), snapshot.context)
    return _shards[key]


def reason_of(error: InvalidEvent) -> str:
    """Every problem with its place."""
    return "; ".join(f"{problem.at}: {problem.detail}" if problem.at else problem.detail for problem in error.problems)


def shown(data: Any) -> str:
    """How the data of an event begins."""
    return str(data)[:200]
