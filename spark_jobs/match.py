"""The commands `match` and `backtest`: splits × groups of shards as units of work, and the sum of their results.

one group       read ─▶ match ─▶ files by day
several groups  read ─▶ match ─▶ a part for each group ─▶ joined by place ─▶ files by day
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from kindcast.semantic import Event
from kindcast.semantic.backtest import Backtest, Counts, PastEvent
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.explanations import as_json
from kindcast.semantic.matching import MatchTable
from kindcast.spark_jobs.event_batch import (
    ANONYMOUS,
    EXPLODED,
    MATCHES,
    EventBatch,
    Rejected,
    Unreadable,
    event_of,
    from_events,
    json_of,
    spark_schema,
)
from kindcast.spark_jobs.output import (
    QUARANTINED,
    Done,
    Output,
    UnitWriter,
    Work,
    by_day,
    number_lines,
    rejected_rows,
    run_tasks,
    run_units,
    sum_of,
    tasks_for,
    unit_name,
)
from kindcast.spark_jobs.reading import (
    AS_IT_STANDS,
    SPLIT_BYTES,
    ReadOptions,
    Split,
    columns_of,
    read_split,
    splits_of,
)
from kindcast.spark_jobs.report import Progress, silent
from kindcast.spark_jobs.snapshot import (
    SHARD_SUBSCRIPTIONS,
    Matched,
    ShardMatcher,
    Snapshot,
    event_keys,
    opened,
    operators_for_jobs,
    settle,
    vocabulary_of,
)

__all__ = [
    "A_ROW_AN_EVENT",
    "NONE_REPEATED",
    "PLACE",
    "Chosen",
    "backtest_archive",
    "bindings_of",
    "decoded",
    "in_pieces",
    "match",
    "match_archive",
    "match_unit",
    "matched_rows",
    "side_by_side",
]

# Deduplication of an archive by source and key (`event_keys`): the first event in its order is kept, as on a server.
#
#     splits ─▶ (digest of the name, split, line) ─shuffled by digest─▶ all but the first ─▶ FOLDER/split=<n>/
#
# Only this step needs a shuffle: 32 bytes per event, and only for events that have names. Plain data is named by its
# place, so a split of columns without names is not read for this. The numbers of repeated lines are stored
# in files, and each task reads those of its split.

NAMED = pa.schema([("name", pa.binary()), ("split", pa.int32()), ("line", pa.int64())])
SPLITS_SHUFFLED_TOGETHER = 4
"""Splits for one partition of names: some 400,000 names."""
NAMES = {"source", "id"}


@dataclass(frozen=True, slots=True)
class Repeated:
    """The repeated lines of one split: their number, the file that lists them, and a digest of the list."""

    folder: str = ""
    count: int = 0
    digest: int = 0

    def lines(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of the lines, ascending."""
        if not self.count:
            return np.zeros(0, dtype=np.int64)
        return np.sort(pq.read_table(self.folder, columns=["line"])["line"].to_numpy())


NONE_REPEATED = Repeated()


def find_repeated(
    session: SparkSession, splits: Sequence[Split], read: ReadOptions, snapshot: Snapshot, folder: Path
) -> list[Repeated]:
    """Finds the lines of each split that repeat an event of an earlier split or line. `snapshot` is one for tasks.
    Writes the line numbers into `folder`, which is replaced."""
    asked = [number for number, split in enumerate(splits) if _has_names(split)]
    if not asked:
        return [NONE_REPEATED] * len(splits)
    plain = replace(read, bodies=False)
    rows = session.sparkContext.parallelize([(number,) for number in asked], tasks_for(session, len(asked)))

    def names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key_of = event_keys(snapshot)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for found in read_split(splits[number], plain):
                    if not isinstance(found, Rejected):
                        yield _named(found, number, key_of)
        settle()

    partitions = max(2, -(-len(asked) // SPLITS_SHUFFLED_TOGETHER))
    first = sql.row_number().over(Window.partitionBy("name").orderBy("split", "line"))
    repeated = (
        session.createDataFrame(rows, "split int")
        .mapInArrow(names, spark_schema(NAMED))
        .repartition(partitions, "name")
        .withColumn("place", first)
        .where("place > 1")
        .select("split", "line")
    )
    shutil.rmtree(folder, ignore_errors=True)
    repeated.write.partitionBy("split").parquet(str(folder))
    told = session.read.schema("line bigint, split int").parquet(str(folder))
    digests = told.groupBy("split").agg(
        sql.count("*").alias("count"), sql.expr("bit_xor(xxhash64(line))").alias("digest")
    )
    by_split = {
        row["split"]: Repeated(str(folder / f"split={row['split']}"), row["count"], row["digest"])
        for row in digests.collect()
    }
    return [by_split.get(number, NONE_REPEATED) for number in range(len(splits))]


def without_repeated(batches: Iterable[EventBatch | Rejected], repeated: Repeated) -> Iterator[EventBatch | Rejected]:
    """Yields the events of a split without the repeated lines."""
    lines = repeated.lines()
    for batch in batches:
        if isinstance(batch, Rejected) or not lines.size:
            yield batch
            continue
        kept = np.flatnonzero(~np.isin(batch.lines, lines))
        if kept.size == len(batch):
            yield batch
        elif kept.size:
            yield batch.take(kept.tolist())


def _has_names(split: Split) -> bool:
    """Returns whether events of a split may have a source and an id."""
    if split.problem:
        return False
    if split.format == "lines":
        return True
    if split.format == "csv":
        return set(columns_of(split)) >= NAMES
    with split.open() as file:
        return set(pq.read_schema(file).names) >= NAMES


def _named(batch: EventBatch, split: int, key_of: Callable[[Event], str] | None) -> pa.RecordBatch:
    sources, ids = batch.keys["source"].to_pylist(), batch.keys["id"].to_pylist()
    keys = ids if key_of is None or batch.events is None else list(map(key_of, batch.events))
    named = [
        (_digest(source, key), line)
        for source, id, key, line in zip(sources, ids, keys, batch.lines.tolist(), strict=True)
        if source != ANONYMOUS or id != f"{batch.file}:{line}"  # who is named by its place is no other
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([name for name, _ in named], pa.binary()),
            pa.array([split] * len(named), pa.int32()),
            pa.array([line for _, line in named], pa.int64()),
        ],
        schema=NAMED,
    )


def _digest(source: str, key: str) -> bytes:
    """Returns a digest of 16 bytes. The probability that any two of 10⁹ different events have the same digest is
    10⁻²¹."""
    return hashlib.blake2b(f"{len(source)} {source}{key}".encode(), digest_size=16).digest()


# ── match ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# An archive against all subscriptions: two ways to the same rows.
#
#     match(events, snapshot)      DataFrame → DataFrame, for your own pipelines; Spark reads and writes
#     match_units(session, …)      splits × shards as tasks that read and write by themselves: the command, and faster
#
# A unit of work matches one split of the archive against one group of shards, as many shards as fit into a worker's
# memory. Nothing is shuffled, so a frequent value costs no more than others; a task has a bounded number of events.
# With
# several groups, the tasks run group by group, and the parts of an event are joined at the end by its place.


@dataclass(frozen=True, slots=True)
class Chosen:
    """How matches are written: one row per event (all events, or only those with matches), or one row per match."""

    explode: bool = False
    matched_only: bool = False


A_ROW_AN_EVENT = Chosen()


def match(events: DataFrame, snapshot: Snapshot, *, explode: bool = False) -> DataFrame:
    """Returns the matches of each event. `events` has the columns of `event_batch.EVENTS`. The result has those of
    `MATCHES` or, with `explode`, those of `EXPLODED`. Rows that cannot be read are left out; `quarantined` returns
    them."""
    schema = EXPLODED if explode else MATCHES
    snapshot = snapshot.for_workers(events.sparkSession)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in matched_rows((decoded(batch)[0] for batch in batches), snapshot, Chosen(explode=explode)):
            yield from table.select(schema.names).cast(schema).to_batches()  # Spark takes no dictionaries

    return events.mapInArrow(rows, spark_schema(schema))


def matched_rows(
    batches: Iterable[EventBatch],
    snapshot: Snapshot,
    chosen: Chosen,
    rejected: list[Rejected] | None = None,
    seen: Callable[[ShardMatcher, Matched], None] | None = None,
) -> Iterator[pa.Table]:
    """Yields the rows of matches of each batch. If there are several groups of shards, all batches are kept in memory
    and the groups are opened one after the other, so that no group is opened once per batch. Events that cannot be read
    are added to `rejected`. `seen` is called with the result of each batch and group of shards."""
    rows = exploded_rows if chosen.explode else listed_rows
    version = snapshot.vocabulary_version
    groups = snapshot.groups()
    if len(groups) > 1:
        batches = list(batches)
    parts: list[list[pa.Table]] = []
    for number, group in enumerate(groups):
        matcher = opened(snapshot, group)
        found: list[pa.Table] = []
        for batch in batches:
            matched = matcher.match(batch)
            if rejected is not None and number == 0:
                rejected += matched.rejected
            if seen is not None:
                seen(matcher, matched)
            table = rows(matcher, matched, version)
            if len(groups) == 1 or chosen.explode:
                yield table
            else:
                found.append(table)
        parts.append(found)
    settle()
    if len(groups) > 1 and not chosen.explode:
        yield from (side_by_side(tables) for tables in zip(*parts, strict=True))


def listed_rows(matcher: ShardMatcher, matched: Matched, version: str) -> pa.Table:
    """Returns the rows of `MATCHES`; the ids of subscriptions are dictionary-encoded."""
    keys = matched.batch.keys
    subscriptions = matcher.subscriptions(matched.table)
    return keys.append_column("subscriptions", subscriptions).append_column(
        "vocabulary_version", pa.repeat(version, len(keys))
    )


def exploded_rows(matcher: ShardMatcher, matched: Matched, version: str) -> pa.Table:
    """Returns the rows of `EXPLODED`: one row per match, with the keys of its event."""
    table: MatchTable = matched.table
    events = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    keys = matched.batch.keys.take(pa.array(events))
    ids = matcher.ids(table)
    return (
        keys.append_column("subscription", ids)
        .append_column("bindings", _bindings(table))
        .append_column("vocabulary_version", pa.repeat(version, len(keys)))
    )


def side_by_side(tables: Sequence[pa.Table | None], named: str = "id") -> pa.Table:
    """Joins the results of several groups of shards for the same events into one row per event. The other columns are
    those of the first table. Raises ValueError if the tables differ in the column `named`."""
    first = tables[0]
    assert first is not None
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    lists = []
    for table in tables:
        if table is None or not table[named].equals(first[named]):
            raise ValueError("these are not the same events: remove the output and run again")
        column = table["subscriptions"].combine_chunks()
        bounds = column.offsets.to_numpy().astype(np.int64)
        values = column.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        lists.append((bounds - bounds[0], values))
        offsets += bounds - bounds[0]
    slots = np.zeros(int(offsets[-1]), dtype=np.int32)
    start = offsets[:-1].copy()
    names: list[pa.Array] = []
    shift = 0
    for bounds, values in lists:
        lengths = np.diff(bounds)
        within = np.arange(int(bounds[-1])) - np.repeat(bounds[:-1], lengths)
        slots[np.repeat(start, lengths) + within] = values.indices.to_numpy() + shift
        start += lengths
        names.append(values.dictionary)
        shift += len(values.dictionary)
    ids = pa.DictionaryArray.from_arrays(pa.array(slots), pa.concat_arrays(names))
    joined = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), ids)
    return first.set_column(first.column_names.index("subscriptions"), "subscriptions", joined)


def decoded(batch: pa.RecordBatch) -> tuple[EventBatch, list[Rejected]]:
    """Converts rows of `event_batch.EVENTS` back to events, with their names and times."""
    found, files, lines, bodies = [], [], [], []
    rejected: list[Rejected] = []
    times = batch.column("time").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("id", "body", "file", "line")]
    for id, body, file, line, time in zip(*columns, times, strict=True):
        try:
            event = event_of(json_of((body or "").encode()), id)
        except Unreadable as error:
            rejected.append(Rejected(file or "", line, str(error), body))
            continue
        event.time = time if event.time is None else event.time
        found.append(event)
        files.append(file or "")
        lines.append(line or 0)
        bodies.append(body)
    events = from_events(found, "", lines, bodies)
    events.files = files
    return events, rejected


def _bindings(table: MatchTable) -> pa.Array:
    if table.bindings is None:
        return pa.nulls(len(table.slots), pa.string())
    texts = [None if not each else msgspec.json.encode(bindings_of(each)).decode() for each in table.bindings]
    return pa.array(texts, pa.string())


def bindings_of(found: Any) -> list[dict[str, Any]]:
    """Returns the bindings of a match in the types of JSON, as a server gives them: variable → value."""
    return [{name: as_json(value) for name, value in each} for each in found]


# ── matching units ────────────────────────────────────────────────────────────────────────────────────────────────────

PARTS = "_parts"
PLACE = "line"
"""The column of parts that says which event this is."""
JOINED_MATCHES = 8 << 20
"""Of the events whose parts are joined at one time: 32 MB for each of a few arrays."""


def match_archive(
    session: SparkSession,
    archive: str,
    output: Path,
    snapshot: Snapshot,
    *,
    chosen: Chosen = A_ROW_AN_EVENT,
    read: ReadOptions = AS_IT_STANDS,
    split_bytes: int = SPLIT_BYTES,
    distinct: bool = False,
    together: int = SHARD_SUBSCRIPTIONS,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Matches an archive into `output`, by day; returns the summary. The job can be interrupted and run again at any
    time: finished units are not repeated, and readers see only complete days. With `distinct`, only the first of the
    events with the same source, id and declared revision is matched. `together` is the number of subscriptions that a
    worker holds at one time. Raises `JobFailed`."""
    target = Output(output)
    with target.locked():
        splits = number_lines(session, splits_of(archive, split_bytes=split_bytes), progress)
        groups, sent = snapshot.groups(together), snapshot.for_workers(session)
        repeated = [NONE_REPEATED] * len(splits)
        if distinct:
            progress("names", 0, None)
            repeated = find_repeated(session, splits, read, sent, target.own("repeated"))
        options = (asdict(chosen), asdict(read))
        single = len(groups) == 1 or chosen.explode
        units: list[tuple[str, Work]] = [
            (
                unit_name("match" if single else "part", split, _digests(snapshot, group), number == 0, left, options),
                partial(match_unit, split, sent, group, chosen, read, left, first=number == 0, parts=not single),
            )
            for number, group in enumerate(groups)
            for split, left in zip(splits, repeated, strict=True)
        ]
        if single:
            done = run_units(session, target, units, "match", progress)
        else:
            done = _joined(session, target, splits, units, chosen, options, progress)
        target.commit(done)
    told = _summary(snapshot, splits, done)
    return told | {"repeated": sum(each.count for each in repeated)} if distinct else told


def _joined(
    session: SparkSession,
    target: Output,
    splits: Sequence[Split],
    units: Sequence[tuple[str, Work]],
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
    group: Sequence[int],
    chosen: Chosen,
    read: ReadOptions,
    repeated: Repeated,
    writer: UnitWriter,
    *,
    first: bool,
    parts: bool,
) -> Mapping[str, float]:
    """Runs in a worker: matches one split against one group of shards. `first` says whether it is the first group,
    `parts` whether partial rows are written for a later join."""
    matcher = opened(snapshot, group)
    before = matcher.spent()
    events = matches = 0
    rejected: list[Rejected] = []
    for batch in without_repeated(read_split(split, read), repeated):
        if isinstance(batch, Rejected):
            rejected.append(batch)
            continue
        matched = matcher.match(batch)
        rejected += matched.rejected
        events += len(matched.batch)
        matches += len(matched.table.slots)
        if parts:
            writer.write(PARTS, _part(matcher, matched, snapshot, first=first))
        else:
            rows = (exploded_rows if chosen.explode else listed_rows)(matcher, matched, snapshot.vocabulary_version)
            _write_days(writer, rows, chosen)
    if rejected and first:
        writer.write(QUARANTINED, rejected_rows(rejected))
    counts = {"matches": matches, **matcher.spent_since(before)}
    return counts | ({"events": events, "quarantined": len(rejected)} if first else {})


def _digests(snapshot: Snapshot, group: Sequence[int]) -> tuple[str, ...]:
    return tuple(snapshot.shards[shard].digest for shard in group)


def _part(matcher: ShardMatcher, matched: Matched, snapshot: Snapshot, *, first: bool) -> pa.Table:
    """Returns the partial rows of one group of shards. Only the part of the first group contains the events."""
    place = pa.array(matched.batch.lines)
    if first:
        return listed_rows(matcher, matched, snapshot.vocabulary_version).append_column(PLACE, place)
    return pa.table({PLACE: place, "subscriptions": matcher.subscriptions(matched.table)})


def _write_days(writer: UnitWriter, rows: pa.Table, chosen: Chosen) -> None:
    if chosen.matched_only and not chosen.explode:
        rows = rows.filter(pc.greater(pc.list_value_length(rows["subscriptions"]), 0))
    for folder, part in by_day(rows) if len(rows) else ():
        writer.write(folder, part)


def _join_unit(folder: Path, parts: Sequence[str], chosen: Chosen, writer: UnitWriter) -> Mapping[str, float]:
    """Runs in a worker: joins the parts of one split by event."""
    staged = Output(folder)
    counts = {"events": 0.0, "matches": 0.0, "quarantined": 0.0}
    files = [[_opened(path) for path in staged.staged(part, PARTS)] for part in parts]
    together = _rows_together([file for each in files for file in each])
    for tables in zip_longest(*(in_pieces(each, together) for each in files)):
        rows = side_by_side(tables, PLACE).drop_columns([PLACE])
        counts["events"] += len(rows)
        counts["matches"] += pc.sum(pc.list_value_length(rows["subscriptions"])).as_py() or 0
        _write_days(writer, rows, chosen)
    for path in staged.staged(parts[0], QUARANTINED):
        table = pq.read_table(path)
        counts["quarantined"] += len(table)
        writer.write(QUARANTINED, table)
    return counts


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, read_dictionary=["subscriptions.list.element"])


def _rows_together(files: Sequence[pq.ParquetFile]) -> int:
    """Returns the number of events that are joined at one time. It must not be small, because each join costs time for
    each subscription id."""
    events = matches = 1
    for footer in (file.metadata for file in files):
        events = max(events, footer.num_rows)
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            columns = (row_group.column(number) for number in range(row_group.num_columns))
            matches += sum(each.num_values for each in columns if each.path_in_schema.startswith("subscriptions."))
    return max(1, min(events, events * JOINED_MATCHES // matches))


def in_pieces(files: Sequence[pq.ParquetFile], together: int) -> Iterator[pa.Table]:
    """Yields the rows of one part in pieces of `together` rows. The pieces do not depend on the row groups, because the
    row groups of other parts end elsewhere. The files are read by row group, since each has its own dictionary."""
    held: list[pa.Table] = []
    rows = 0
    for file in files:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            held.append(table)
            rows += len(table)
            while rows >= together:
                table = pa.concat_tables(held)
                yield table.slice(0, together)
                held, rows = [table.slice(together)], rows - together
    if rows:
        yield pa.concat_tables(held)


def _summary(snapshot: Snapshot, splits: Sequence[Split], done: Sequence[Done]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "files": len({split.path for split in splits}),
        "events": sum_of(done, "events"),
        "matches": sum_of(done, "matches"),
        "quarantined": sum_of(done, "quarantined"),
        "days": sorted({folder[4:] for each in done for folder in each.folders if folder.startswith("day=")}),
        "subscriptions": sum(shard.subscriptions for shard in snapshot.shards),
        "refused": [asdict(each) for each in snapshot.refused],
        "shards": len(snapshot.shards),
        "vocabulary_version": snapshot.vocabulary_version,
        "cpu_seconds": round(sum(each.counts.get("cpu_seconds", 0.0) for each in done), 2),
        "worker_peak_mb": round(max((each.counts.get("peak_mb", 0.0) for each in done), default=0.0)),
    }
    if sum_of(done, "evaluations"):
        told["operators"] = {"evaluations": sum_of(done, "evaluations"), "undecided": sum_of(done, "undecided")}
    return told


# ── the command `backtest`: one expression over an archive; the counts of all splits are added on the driver ──────────


def backtest_archive(
    session: SparkSession,
    archive: str,
    snapshot: Snapshot,
    expression: Any,
    *,
    read: ReadOptions = AS_IT_STANDS,
    progress: Progress = silent,
    note: Callable[[str], None] = lambda detail: None,
    language: str = "en",
    data: Path | None = None,
    hides_linked: bool = False,
) -> dict[str, Any]:
    """Returns the report of `kindcast.semantic.backtest` for an archive. `expression` is text or a tree. `note` is
    called for each file that is not read, or not in full. `data` is a file of `operators_for_jobs`, which all workers
    must see. `hides_linked` is as in `Backtest.report`. Raises `JobFailed`, `InvalidSubscription`."""
    test = Backtest(snapshot.vocabulary(), expression, operators=operators_for_jobs(data))
    splits = number_lines(session, splits_of(archive), progress)
    for split in splits:
        if told := split.problem or split.left_out:
            note(f"{split.name}: {told}")
    work = partial(_count, snapshot=snapshot.for_workers(session), expression=expression, read=read, data=data)
    for counts in run_tasks(session, splits, work, "backtest", progress):
        test.counts.add(counts)
    return test.report(language=language, hides_linked=hides_linked)


def _count(split: Split, *, snapshot: Snapshot, expression: Any, read: ReadOptions, data: Path | None) -> Counts:
    """Runs in a worker: counts one split."""
    test = Backtest(vocabulary_of(snapshot), expression, operators=operators_for_jobs(data))
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            test.counts.unreadable += batch.reason != split.left_out
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
