"""The command `stream`: matches a stream in micro-batches, and writes each exactly once as Parquet.

    stream_events ─▶ repeated events dropped ─▶ each micro-batch: newest snapshot ─▶ match ─▶ OUTPUT/batch=<n>/day=…

A batch writes one folder, which is renamed into place. Spark's checkpoint records which batches are done. An
interrupted batch runs again; readers never see a part of it. Changes of subscriptions and ontologies are read between
batches and take effect with the next batch. Each row contains the version of its vocabulary.

With an outbox, a batch also writes its matches in the form that a server accepts (`POST /v1/matches`) into `_outbox`,
atomically with the batch. The process that delivers them removes the files, so each remaining file is undelivered.

An event is repeated if another one with the same source and key (`event_keys`) *arrived* within the window. The time of
arrival counts and not the time in the event, because Spark drops events that are older than its watermark.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from kindcast.semantic import Event
from kindcast.spark_jobs.event_batch import (
    BOM,
    EVENTS,
    PLAIN_TYPE,
    QUARANTINE,
    EventBatch,
    Rejected,
    Unreadable,
    event_of,
    from_events,
    json_of,
    spark_schema,
)
from kindcast.spark_jobs.match import A_ROW_AN_EVENT, Chosen, bindings_of, decoded, matched_rows
from kindcast.spark_jobs.output import (
    OWN,
    QUARANTINED,
    by_day,
    number_lines,
    parquet_writer,
    rejected_rows,
    sync,
    tasks_for,
)
from kindcast.spark_jobs.reading import AS_IT_STANDS, ReadOptions, check_links, file_split, read_split, splits_of
from kindcast.spark_jobs.report import UnusableOutput, silent
from kindcast.spark_jobs.snapshot import Matched, ShardMatcher, Snapshot, event_keys, settle

__all__ = ["FILES", "Written", "quarantined", "read_events", "readable", "start_stream", "stream_events"]


# DataFrames of events from archives and streams: `event_batch.EVENTS`, and the records that cannot be read.
#
# read_events(session, archive)         an archive
# stream_events(session, format, …)     new files in a folder, a socket, Kafka, or another streaming source of Spark
# quarantined(events)                   the rows that are not events, with file, line and reason
# readable(events)                      the rows that are events

RAW = pa.schema([*EVENTS, pa.field("reason", pa.string())])
"""`EVENTS` and the reason why a row is none: then `body` shows how it begins."""
KEYED = pa.schema([*RAW, pa.field("key", pa.string())])
"""`RAW` and the key of each event."""
FILES = "files"
"""The stream of an archive's files as they are put there."""
FILE_AGE = "36500d"
"""The age of files that Spark may ignore and forget. Its default, a week before the newest file, would leave out files
that keep an older time when they are moved into the folder."""


def read_events(session: SparkSession, archive: str, read: ReadOptions = AS_IT_STANDS) -> DataFrame:
    """Reads the events of an archive. A partition has one split, or several if there are very many. The result includes
    the rows that are not events. Raises `NoArchive`."""
    splits = number_lines(session, splits_of(archive), silent)
    wanted = replace(read, bodies=True)
    rows = session.sparkContext.parallelize(list(enumerate(splits)), tasks_for(session, len(splits)))
    numbers = session.createDataFrame(rows.map(lambda pair: (pair[0],)), "split int")

    def read_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(_row_batch, read_split(splits[number], wanted))

    return numbers.mapInArrow(read_all, spark_schema(RAW))


def stream_events(
    session: SparkSession, format: str, options: Mapping[str, str], read: ReadOptions = AS_IT_STANDS
) -> DataFrame:
    """Reads the events of a stream. The result includes the rows that are not events. `format` is `files` (option
    `path`: a folder into which complete archive files are moved) or the name of a Spark source: `socket`, `kafka`.
    Raises `NoArchive` if the folder has a link to what it has anyway."""
    if format == FILES:
        wanted = replace(read, bodies=True)
        schema = "path string, modificationTime timestamp, length long, content binary"
        read_as = {"recursiveFileLookup": "true", "maxFileAge": FILE_AGE, **options, "pathGlobFilter": "[!_.]*"}
        files = session.readStream.format("binaryFile").schema(schema).options(**read_as)
        found = files.load().select("path")
        place = options["path"].removeprefix("file:")
        if "://" not in place:
            place = os.path.abspath(place)  # workers run in folders of their own
            check_links(place)  # Spark would follow a link to a folder around it without end

        def read_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield from _file(place, path.removeprefix("file:"), wanted)

        return found.mapInArrow(read_files, spark_schema(RAW))
    source = session.readStream.format(format).options(**options).load()
    named = "concat(topic, '/', partition, ':', offset)" if "offset" in source.columns else "cast(null as string)"
    lines = source.selectExpr("cast(value as string) value", f"{named} place")
    time_from = read.time_from

    def read_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _lines(batch, format, time_from)

    return lines.mapInArrow(read_lines, spark_schema(RAW))


def readable(events: DataFrame) -> DataFrame:
    """Returns the rows that are events: `event_batch.EVENTS`."""
    return events.where(sql.col("reason").isNull()).drop("reason")


def quarantined(events: DataFrame) -> DataFrame:
    """Returns the rows that are not events: `event_batch.QUARANTINE`."""
    bad = events.where(sql.col("reason").isNotNull())
    return bad.selectExpr("file", "line", "reason", "body text").select(*QUARANTINE.names)


def _file(place: str, path: str, read: ReadOptions) -> Iterator[pa.RecordBatch]:
    split = file_split(place, path)
    if split is not None:
        yield from map(_row_batch, read_split(split, read))


def _lines(batch: pa.RecordBatch, format: str, time_from: str | None) -> Iterator[pa.RecordBatch]:
    found, bodies = [], []
    for text, place in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
        if not (text or "").strip():
            continue
        try:
            found.append(event_of(json_of(text.encode()), place or f"{format}:{uuid.uuid4().hex}", time_from))
            bodies.append(text)
        except Unreadable as error:
            yield _row_batch(Rejected(place or format, None, str(error), text))
    if found:
        yield _row_batch(from_events(found, format, [0] * len(found), bodies))


def _row_batch(read: EventBatch | Rejected) -> pa.RecordBatch:
    """Returns what was read as a batch with the columns of `RAW`."""
    if isinstance(read, Rejected):
        row = {"file": read.file, "line": read.line, "reason": read.reason, "body": read.text, "day": ""}
        return pa.RecordBatch.from_pylist([row], RAW)
    table = (
        read.keys.append_column("body", pa.array(read.bodies, pa.string()))
        .append_column("file", pa.repeat(read.file, len(read)))
        .append_column("line", pa.array(read.lines))
        .append_column("reason", pa.nulls(len(read), pa.string()))
    )
    (batch,) = table.cast(RAW).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], RAW)]
    return batch


# ── stream ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch wrote: events, their matches, and what could not be read."""

    events: int
    matches: int
    quarantined: int


Told = Callable[[int, Written], None]
"""Called after each batch with its number and what it wrote."""

SNAPSHOT = "snapshot.json"
"""Describes the snapshot of the batch that is being matched, for the tasks that need the declared event types."""
OUTBOX = "_outbox"
IDS_A_LINE = 10_000
"""Subscriptions in one line of an outbox: a server takes some of these lines at a time."""
FILES_WRITTEN = pa.schema([("file", pa.string()), *((each.name, pa.int64()) for each in fields(Written))])
"""The files that the tasks of a batch wrote, with what is in each."""


def start_stream(
    events: DataFrame,
    output: Path,
    newest: Callable[[], Snapshot],
    *,
    window: str = "1 hour",
    trigger_seconds: float | None = 1.0,
    chosen: Chosen = A_ROW_AN_EVENT,
    outbox: bool = False,
    told: Told = lambda batch, written: None,
) -> StreamingQuery:
    """Starts matching `events` (from `stream_events`). `newest` returns the snapshot for each batch. Without
    `trigger_seconds` the stream ends when all events that exist now are matched. `outbox` says whether each batch
    writes its matches for a server. Raises `UnusableOutput`."""
    output = output.absolute()  # workers run in folders of their own
    output.mkdir(parents=True, exist_ok=True)
    checkpoint = output / OWN / "checkpoint"
    if any(output.glob("batch=*")) and not checkpoint.is_dir():
        detail = f"{output} has batches of a stream whose checkpoint is missing: name another folder, or empty this one"
        raise UnusableOutput(detail)
    shutil.rmtree(output / OWN / "building", ignore_errors=True)

    def batch(frame: DataFrame, number: int) -> None:
        told(number, _write_batch(frame, number, output, newest(), chosen, outbox=outbox))

    writer = (
        _without_repeated(events, window, output / OWN / SNAPSHOT)
        .writeStream.foreachBatch(batch)
        .queryName(f"kindcast-{uuid.uuid4().hex[:8]}")
        .option("checkpointLocation", str(checkpoint))
    )
    if trigger_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(trigger_seconds * 1000)} milliseconds").start()


def _without_repeated(events: DataFrame, window: str, described: Path) -> DataFrame:
    keyed = events.mapInArrow(_with_keys(described), spark_schema(KEYED)).withColumnRenamed("id", "own")
    arrived = keyed.withColumn("arrived", sql.current_timestamp())
    # What cannot be read has no name, and must not count as one event.
    named = arrived.withColumn("source", sql.coalesce("source", sql.lit("")))
    # The key is called `id`, because the state of older checkpoints has the columns `source` and `id`.
    named = named.withColumn("id", sql.coalesce("key", sql.concat_ws(":", "file", "line", "reason")))
    first = named.withWatermark("arrived", window).dropDuplicatesWithinWatermark(["source", "id"])
    return first.withColumn("id", sql.col("own")).select(*RAW.names)


def _with_keys(described: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function of a task that adds the keys of events. The declared event types are those of the snapshot
    that is described at this time, because they may change from batch to batch."""

    def with_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key_of = event_keys(msgspec.json.decode(described.read_bytes(), type=Snapshot))
        for batch in batches:
            keys = batch.column("id")
            if key_of is not None:
                rows = zip(keys.to_pylist(), batch.column("body").to_pylist(), strict=True)
                keys = pa.array([id and _key(id, body, key_of) for id, body in rows], pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, keys], schema=KEYED)
        settle()

    return with_keys


def _key(id: str, body: str, key_of: Callable[[Event], str]) -> str:
    try:
        return key_of(event_of(json_of(body.encode()), id).event)
    except Unreadable:  # `decoded` leaves it out
        return id


def _write_batch(
    frame: DataFrame, number: int, output: Path, snapshot: Snapshot, chosen: Chosen, *, outbox: bool
) -> Written:
    """Writes the folder of a batch atomically."""
    snapshot = snapshot.for_workers(frame.sparkSession)
    (output / OWN / SNAPSHOT).write_bytes(msgspec.json.encode(snapshot))
    place = output / f"batch={number:09}"
    if place.is_dir():  # a crash came after the batch, and before the checkpoint said so
        frame.write.format("noop").mode("overwrite").save()  # Spark wants to know which events came, too
        counts = json.loads((place / "_batch.json").read_text(encoding="utf-8"))
        return Written(counts["events"], counts["matches"], counts.get("quarantined", 0))
    building = output / OWN / "building" / place.name
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    frame.persist()
    try:
        rows = (
            readable(frame)
            .mapInArrow(_writer(building, snapshot, chosen, outbox=outbox), spark_schema(FILES_WRITTEN))
            .collect()
        )
        bad = quarantined(frame).collect()
    finally:
        frame.unpersist()
    kept = {row["file"] for row in rows}
    for path in [*building.rglob("*.parquet"), *building.glob(f"{OUTBOX}/*")]:
        if str(path.relative_to(building)) not in kept:
            path.unlink()  # of an attempt that failed
    if bad:
        rejected = [Rejected(row["file"], row["line"], row["reason"], row["text"]) for row in bad]
        (building / QUARANTINED).mkdir(exist_ok=True)
        pq.write_table(rejected_rows(rejected).cast(QUARANTINE), building / QUARANTINED / "lines.parquet")
    events, matches, rejected_later = (sum(row[each.name] for row in rows) for each in fields(Written))
    written = Written(events, matches, len(bad) + rejected_later)
    said = asdict(written) | {"vocabulary_version": snapshot.vocabulary_version}
    (building / "_batch.json").write_text(json.dumps(said), encoding="utf-8")
    for path in (*building.rglob("*"), building):
        sync(path)
    building.rename(place)
    sync(output)
    return written


def _writer(
    building: Path, snapshot: Snapshot, chosen: Chosen, *, outbox: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function of a task: it matches its part of a batch, writes the rows by day and returns the files."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = uuid.uuid4().hex[:12]
        files: dict[str, pq.ParquetWriter] = {}
        counts: dict[str, Written] = {}
        rejected: list[Rejected] = []
        sent: list[bytes] = []

        def seen(matcher: ShardMatcher, matched: Matched) -> None:
            sent.extend(_outgoing(matcher, matched))

        read = (found for batch in batches for found in [decoded(batch)[0]] if len(found))
        for table in matched_rows(read, snapshot, chosen, rejected, seen if outbox else None):
            for folder, part in by_day(table) if len(table) else ():
                path = f"{folder}/part-{attempt}.parquet"
                if path not in files:
                    (building / folder).mkdir(exist_ok=True)
                    files[path] = parquet_writer(building / path, part.schema)
                files[path].write_table(part)
                before = counts.get(path, Written(0, 0, 0))
                counts[path] = Written(before.events + len(part), before.matches + _matches(part), 0)
        if rejected:
            path = f"{QUARANTINED}/part-{attempt}.parquet"
            (building / QUARANTINED).mkdir(exist_ok=True)
            pq.write_table(rejected_rows(rejected), building / path)
            counts[path] = Written(0, 0, len(rejected))
        if sent:
            path = f"{OUTBOX}/part-{attempt}.ndjson"
            (building / OUTBOX).mkdir(exist_ok=True)
            (building / path).write_bytes(b"".join(sent))
            counts[path] = Written(0, 0, 0)
        for writer in files.values():
            writer.close()
        for path in counts:
            sync(building / path)
        rows = [{"file": path} | asdict(written) for path, written in counts.items()]
        yield pa.RecordBatch.from_pylist(rows, FILES_WRITTEN)

    return write


def _outgoing(matcher: ShardMatcher, matched: Matched) -> Iterator[bytes]:
    """Yields the matches of a batch as lines: an event with several subscriptions, or with one subscription and its
    bindings."""
    table, batch = matched.table, matched.batch
    bounds, ids = table.offsets.tolist(), matcher.ids(table).to_pylist()
    sources, names = batch.keys["source"].to_pylist(), batch.keys["id"].to_pylist()
    for row in np.flatnonzero(np.diff(table.offsets)).tolist():
        event = _whole(batch.bodies[row], sources[row], names[row])
        places = range(bounds[row], bounds[row + 1])
        bound = {place for place in places if table.bindings is not None and table.bindings[place]}
        plain = [ids[place] for place in places if place not in bound]
        for start in range(0, len(plain), IDS_A_LINE):
            yield _line(event, subscriptions=plain[start : start + IDS_A_LINE])
        for place in sorted(bound):
            assert table.bindings is not None
            yield _line(event, subscription=ids[place], bindings=bindings_of(table.bindings[place]))


def _line(event: msgspec.Raw, **more: Any) -> bytes:
    return msgspec.json.encode({"event": event, **more}) + b"\n"


def _whole(body: str, source: str, id: str) -> msgspec.Raw:
    """Returns a line as a CloudEvent; the line is a CloudEvent or the data of one. An event without an id is named by
    its place and its content, because another archive may have a different event at the same place."""
    text = msgspec.json.format(body.encode().removeprefix(BOM), indent=-1)  # on one line
    if "specversion" in msgspec.json.decode(text, type=dict[str, msgspec.Raw]):
        return msgspec.Raw(text)
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    context = {"specversion": "1.0", "id": f"{id}:{digest}", "source": source, "type": PLAIN_TYPE}
    return msgspec.Raw(msgspec.json.encode({**context, "data": msgspec.Raw(text)}))


def _matches(table: pa.Table) -> int:
    if "subscription" in table.column_names:
        return len(table)
    found = pc.sum(pc.list_value_length(table["subscriptions"])).as_py()
    return int(found or 0)
