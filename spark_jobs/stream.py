"""The command `stream`: matches a stream in micro-batches, and writes each exactly once as Parquet.

    stream_events ─▶ repeated events dropped ─▶ each micro-batch: newest snapshot ─▶ match ─▶ OUTPUT/batch=<n>/day=…

What a batch writes is one folder, renamed into place; Spark's checkpoint says which batches are behind us. A batch that
was cut off is done again and replaces nothing, since nothing of it was seen. Subscriptions and ontologies are looked at
between batches: what changed counts from the next batch on, and each row says the version of the vocabulary.

An event is repeated if another of the same source and id *arrived* within the window. By arrival, not by the time that
the event says: Spark drops what is older than its watermark, and nothing is to be dropped for coming late.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from kindcast.spark_jobs.errors import UnusableOutput
from kindcast.spark_jobs.event_batch import Rejected
from kindcast.spark_jobs.events import quarantined, readable
from kindcast.spark_jobs.match import A_ROW_AN_EVENT, Chosen, decoded, matched_rows
from kindcast.spark_jobs.output import parquet_writer, sync
from kindcast.spark_jobs.schemas import QUARANTINE, spark_schema
from kindcast.spark_jobs.snapshot import Snapshot
from kindcast.spark_jobs.units import by_day, rejected_rows

__all__ = ["Told", "start_stream"]

Told = Callable[[int, int, int], None]
"""Called after each batch with its number, its events and their matches."""

OWN = "_kindcast"
QUARANTINED = "_quarantine"
WRITTEN = pa.schema([("file", pa.string()), ("events", pa.int64()), ("matches", pa.int64())])


def start_stream(
    events: DataFrame,
    output: Path,
    newest: Callable[[], Snapshot],
    *,
    window: str = "1 hour",
    trigger_seconds: float | None = 1.0,
    chosen: Chosen = A_ROW_AN_EVENT,
    told: Told = lambda batch, events, matches: None,
) -> StreamingQuery:
    """Start matching `events` (of `stream_events`). `newest` gives the snapshot of each batch; without
    `trigger_seconds` the stream ends when all that is there now is matched. Raises `UnusableOutput`."""
    output.mkdir(parents=True, exist_ok=True)
    checkpoint = output / OWN / "checkpoint"
    if any(output.glob("batch=*")) and not checkpoint.is_dir():
        detail = f"{output} holds batches of a stream whose checkpoint is gone: name another folder, or empty this one"
        raise UnusableOutput(detail)
    shutil.rmtree(output / OWN / "building", ignore_errors=True)

    def batch(frame: DataFrame, number: int) -> None:
        told(number, *_write_batch(frame, number, output, newest(), chosen))

    writer = (
        _without_repeated(events, window)
        .writeStream.foreachBatch(batch)
        .queryName(f"kindcast-{uuid.uuid4().hex[:8]}")
        .option("checkpointLocation", str(checkpoint))
    )
    if trigger_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(trigger_seconds * 1000)} milliseconds").start()


def _without_repeated(events: DataFrame, window: str) -> DataFrame:
    arrived = events.withColumn("arrived", sql.current_timestamp())
    # What cannot be read has no name, and must not count as one event.
    named = arrived.withColumn("source", sql.coalesce("source", sql.lit("")))
    named = named.withColumn("id", sql.coalesce("id", sql.concat_ws(":", "file", "line", "reason")))
    return named.withWatermark("arrived", window).dropDuplicatesWithinWatermark(["source", "id"]).drop("arrived")


def _write_batch(frame: DataFrame, number: int, output: Path, snapshot: Snapshot, chosen: Chosen) -> tuple[int, int]:
    """Write the folder of a batch, whole or not at all; returns its events and matches."""
    place = output / f"batch={number:09}"
    if place.is_dir():  # a crash came after the batch, and before the checkpoint said so
        counts = json.loads((place / "_batch.json").read_text(encoding="utf-8"))
        return counts["events"], counts["matches"]
    building = output / OWN / "building" / place.name
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    frame.persist()
    try:
        rows = readable(frame).mapInArrow(_writer(building, snapshot, chosen), spark_schema(WRITTEN)).collect()
        bad = quarantined(frame).collect()
    finally:
        frame.unpersist()
    kept = {row["file"] for row in rows}
    for path in list(building.rglob("*.parquet")):
        if str(path.relative_to(building)) not in kept:
            path.unlink()  # of an attempt that failed
    if bad:
        rejected = [Rejected(row["file"], row["line"], row["reason"], row["text"]) for row in bad]
        (building / QUARANTINED).mkdir(exist_ok=True)
        pq.write_table(rejected_rows(rejected).cast(QUARANTINE), building / QUARANTINED / "lines.parquet")
    events, matches = sum(row["events"] for row in rows), sum(row["matches"] for row in rows)
    said = {"events": events, "matches": matches, "vocabulary_version": snapshot.vocabulary_version}
    (building / "_batch.json").write_text(json.dumps(said), encoding="utf-8")
    sync(building)
    building.rename(place)
    sync(output)
    return events, matches


def _writer(
    building: Path, snapshot: Snapshot, chosen: Chosen
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task: match its part of a batch, write it by day, return the files."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = uuid.uuid4().hex[:12]
        files: dict[str, pq.ParquetWriter] = {}
        counts: dict[str, list[int]] = {}
        rejected: list[Rejected] = []
        read = (found for batch in batches for found in [decoded(batch)[0]] if len(found))
        for table in matched_rows(read, snapshot, chosen, rejected):
            for folder, part in by_day(table) if len(table) else ():
                path = f"{folder}/part-{attempt}.parquet"
                if path not in files:
                    (building / folder).mkdir(exist_ok=True)
                    files[path] = parquet_writer(building / path, part.schema)
                    counts[path] = [0, 0]
                files[path].write_table(part)
                counts[path][0] += len(part)
                counts[path][1] += _matches(part)
        if rejected:
            path = f"{QUARANTINED}/part-{attempt}.parquet"
            (building / QUARANTINED).mkdir(exist_ok=True)
            pq.write_table(rejected_rows(rejected), building / path)
            counts[path] = [0, 0]
        for writer in files.values():
            writer.close()
        for path in counts:
            sync(building / path)
        rows = [{"file": path, "events": events, "matches": matches} for path, (events, matches) in counts.items()]
        yield pa.RecordBatch.from_pylist(rows, WRITTEN)

    return write


def _matches(table: pa.Table) -> int:
    if "subscription" in table.column_names:
        return len(table)
    found = pc.sum(pc.list_value_length(table["subscriptions"])).as_py()
    return int(found or 0)
