"""The command `match`: splits × shards as units, and the summary of what came of them.

one shard       read ─▶ match ─▶ files by day
several shards  read ─▶ match ─▶ a part for each shard ─▶ joined by place ─▶ files by day
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.archive import SPLIT_BYTES, SPLIT_ROWS, Split, splits_of
from spark_jobs.bulk_match import A_ROW_AN_EVENT, Chosen, exploded_rows, listed_rows, side_by_side
from spark_jobs.event_batch import Rejected
from spark_jobs.output import Done, Output, UnitWriter
from spark_jobs.progress import Progress, silent
from spark_jobs.reading import AS_IT_STANDS, ReadOptions, read_split
from spark_jobs.snapshot import Snapshot
from spark_jobs.units import Work, by_day, number_lines, rejected_rows, run_units, unit_name
from spark_jobs.workers import opened

__all__ = ["match_archive", "match_unit"]

PARTS = "_parts"
QUARANTINED = "_quarantine"
READ_TOGETHER = 10_000


def match_archive(
    session: SparkSession,
    archive: str,
    output: Path,
    snapshot: Snapshot,
    *,
    chosen: Chosen = A_ROW_AN_EVENT,
    read: ReadOptions = AS_IT_STANDS,
    split_bytes: int = SPLIT_BYTES,
    split_rows: int = SPLIT_ROWS,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Match an archive into `output`, by day; returns the summary. May be interrupted and run again at any time: what
    is done is not done again, and readers see whole days only. Raises `JobFailed`."""
    target = Output(output)
    with target.locked():
        splits = number_lines(session, splits_of(archive, split_bytes=split_bytes, split_rows=split_rows), progress)
        options = (asdict(chosen), asdict(read))
        shards = range(len(snapshot.shards))
        single = len(shards) == 1 or chosen.explode
        units: list[tuple[str, Work]] = [
            (
                unit_name("match" if single else "part", split, shard, snapshot.shards[shard].digest, options),
                partial(match_unit, split, snapshot, shard, chosen, read, parts=not single),
            )
            for shard in shards
            for split in splits
        ]
        if single:
            done = run_units(session, target, units, "match", progress)
        else:
            done = _joined(session, target, splits, units, snapshot, chosen, options, progress)
        target.commit(done)
    return _summary(snapshot, splits, done)


def _joined(
    session: SparkSession,
    target: Output,
    splits: Sequence[Split],
    units: Sequence[tuple[str, Work]],
    snapshot: Snapshot,
    chosen: Chosen,
    options: Any,
    progress: Progress,
) -> list[Done]:
    names = [name for name, _ in units]
    joining: list[tuple[str, Work]] = []
    needed: set[str] = set()
    known = target.done()
    for number, split in enumerate(splits):
        parts = names[number :: len(splits)]
        name = unit_name("joined", split, parts, options)
        joining.append((name, partial(_join_unit, target.folder, parts, chosen)))
        if name not in known:
            needed.update(parts)
    run_units(session, target, [unit for unit in units if unit[0] in needed], "match", progress)
    return run_units(session, target, joining, "join", progress)


def match_unit(
    split: Split,
    snapshot: Snapshot,
    shard: int,
    chosen: Chosen,
    read: ReadOptions,
    writer: UnitWriter,
    *,
    parts: bool,
) -> Mapping[str, float]:
    """In a worker: one split against one shard."""
    matcher = opened(snapshot, shard)
    before = matcher.spent()
    events = matches = 0
    rejected: list[Rejected] = []
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            rejected.append(batch)
            continue
        matched = matcher.match(batch)
        rejected += matched.rejected
        events += len(matched.batch)
        matches += len(matched.table.slots)
        rows = (exploded_rows if chosen.explode else listed_rows)(matcher, matched, snapshot.vocabulary_version)
        if parts:
            writer.write(PARTS, rows)
        else:
            _write_days(writer, rows, chosen)
    if rejected and shard == 0:
        writer.write(QUARANTINED, rejected_rows(rejected))
    counts = {"matches": matches, **matcher.spent_since(before)}
    return counts | ({"events": events, "quarantined": len(rejected)} if shard == 0 else {})


def _write_days(writer: UnitWriter, rows: pa.Table, chosen: Chosen) -> None:
    if chosen.matched_only and not chosen.explode:
        rows = rows.filter(pc.greater(pc.list_value_length(rows["subscriptions"]), 0))
    for folder, part in by_day(rows) if len(rows) else ():
        writer.write(folder, part)


def _join_unit(folder: Path, parts: Sequence[str], chosen: Chosen, writer: UnitWriter) -> Mapping[str, float]:
    """In a worker: the parts of one split, event by event."""
    staged = Output(folder)
    counts = {"events": 0.0, "matches": 0.0, "quarantined": 0.0}
    streams = [_batches(staged.staged(part, PARTS)) for part in parts]
    for tables in zip_longest(*streams):
        rows = side_by_side(tables)
        counts["events"] += len(rows)
        counts["matches"] += pc.sum(pc.list_value_length(rows["subscriptions"])).as_py() or 0
        _write_days(writer, rows, chosen)
    for path in staged.staged(parts[0], QUARANTINED):
        table = pq.read_table(path)
        counts["quarantined"] += len(table)
        writer.write(QUARANTINED, table)
    return counts


def _batches(files: Sequence[Path]) -> Iterator[pa.Table]:
    for path in files:
        file = pq.ParquetFile(path, read_dictionary=["subscriptions.list.element"])
        for batch in file.iter_batches(READ_TOGETHER, use_threads=False):
            yield pa.Table.from_batches([batch])


def _summary(snapshot: Snapshot, splits: Sequence[Split], done: Sequence[Done]) -> dict[str, Any]:
    def total(name: str) -> int:
        return int(sum(each.counts.get(name, 0) for each in done))

    told: dict[str, Any] = {
        "files": len({split.path for split in splits}),
        "events": total("events"),
        "matches": total("matches"),
        "quarantined": total("quarantined"),
        "days": sorted({folder[4:] for each in done for folder in each.folders if folder.startswith("day=")}),
        "subscriptions": sum(shard.subscriptions for shard in snapshot.shards),
        "refused": [asdict(each) for each in snapshot.refused],
        "shards": len(snapshot.shards),
        "vocabulary_version": snapshot.vocabulary_version,
        "worker_peak_mb": round(max((each.counts.get("peak_mb", 0.0) for each in done), default=0.0)),
    }
    if total("evaluations"):
        told["operators"] = {"evaluations": total("evaluations"), "undecided": total("undecided")}
    return told
