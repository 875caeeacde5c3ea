"""The command `backtest`: one expression over an archive; the counts of all splits are added on the driver."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from kindcast.semantic.backtest import Backtest, Counts, PastEvent
from kindcast.semantic.errors import InvalidEvent
from kindcast.spark_jobs.archive import Split, splits_of
from kindcast.spark_jobs.event_batch import EventBatch, Rejected
from kindcast.spark_jobs.output import number_lines, run_tasks
from kindcast.spark_jobs.reading import AS_IT_STANDS, ReadOptions, read_split
from kindcast.spark_jobs.report import Progress, silent
from kindcast.spark_jobs.snapshot import Snapshot, operators_for_jobs
from kindcast.spark_jobs.workers import vocabulary_of

__all__ = ["backtest_archive"]


def backtest_archive(
    session: SparkSession,
    archive: str,
    snapshot: Snapshot,
    expression: Any,
    *,
    read: ReadOptions = AS_IT_STANDS,
    progress: Progress = silent,
    language: str = "en",
) -> dict[str, Any]:
    """The report of `kindcast.semantic.backtest` over an archive. `expression` is text or a tree. Raises `JobFailed`,
    `InvalidSubscription`."""
    test = Backtest(snapshot.vocabulary(), expression, operators=operators_for_jobs())
    splits = number_lines(session, splits_of(archive), progress)
    work = partial(_count, snapshot=snapshot.for_workers(session), expression=expression, read=read)
    for counts in run_tasks(session, splits, work, "backtest", progress):
        test.counts.add(counts)
    return test.report(language=language)


def _count(split: Split, *, snapshot: Snapshot, expression: Any, read: ReadOptions) -> Counts:
    """In a worker: one split."""
    test = Backtest(vocabulary_of(snapshot), expression, operators=operators_for_jobs())
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            test.counts.unreadable += 1
            continue
        if batch.needs_reading or batch.has_names(test.matcher.vocabulary.envelope_names):
            test.feed(_all(batch))
            continue
        try:
            found = test.matcher.match_table(batch.columns(with_context=True))
        except InvalidEvent:
            test.feed(_all(batch))
            continue
        names = list(zip(batch.keys["source"].to_pylist(), batch.keys["id"].to_pylist(), strict=True))
        test.feed_table(found, batch.keys["day"].to_pylist(), names.__getitem__, partial(_one, batch))
    return test.counts


def _one(batch: EventBatch, row: int) -> PastEvent:
    return _all(batch.take([row]))[0]


def _all(batch: EventBatch) -> Sequence[PastEvent]:
    names = zip(*(batch.keys[name].to_pylist() for name in ("source", "id", "day")), batch.each(), strict=True)
    return [PastEvent(source, id, day, event) for source, id, day, event in names]
