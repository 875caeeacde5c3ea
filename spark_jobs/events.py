"""DataFrames of events from archives and streams: `schemas.EVENTS`, and beside it the records that cannot be read.

read_events(session, archive)         an archive
stream_events(session, format, …)     files as they come, a socket, Kafka, whatever Spark can read as a stream
quarantined(events)                   the rows that are no events, with file, line and reason
readable(events)                      the others
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kindcast.spark_jobs.archive import splits_of
from kindcast.spark_jobs.event_batch import EventBatch, Rejected, Unreadable, event_of, from_events, json_of
from kindcast.spark_jobs.progress import silent
from kindcast.spark_jobs.reading import AS_IT_STANDS, ReadOptions, read_split
from kindcast.spark_jobs.schemas import EVENTS, QUARANTINE, spark_schema
from kindcast.spark_jobs.units import number_lines

__all__ = ["FILES", "RAW", "quarantined", "read_events", "readable", "stream_events"]

RAW = pa.schema([*EVENTS, pa.field("reason", pa.string())])
"""`EVENTS` and the reason why a row is none: then `body` shows how it begins."""
FILES = "files"
"""The stream of an archive's files as they are put there."""


def read_events(session: SparkSession, archive: str, read: ReadOptions = AS_IT_STANDS) -> DataFrame:
    """The events of an archive, one partition per split, with the rows that are no events. Raises `NoArchive`."""
    splits = number_lines(session, splits_of(archive), silent)
    wanted = replace(read, bodies=True)
    rows = session.sparkContext.parallelize(list(enumerate(splits)), len(splits))
    numbers = session.createDataFrame(rows.map(lambda pair: (pair[0],)), "split int")

    def read_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(_row_batch, read_split(splits[number], wanted))

    return numbers.mapInArrow(read_all, spark_schema(RAW))


def stream_events(
    session: SparkSession, format: str, options: Mapping[str, str], read: ReadOptions = AS_IT_STANDS
) -> DataFrame:
    """The events of a stream, with the rows that are none. `format` is `files` (option `path`: a folder that archive
    files are put into, whole), or what Spark calls a source: `socket`, `kafka`."""
    if format == FILES:
        wanted = replace(read, bodies=True)
        schema = "path string, modificationTime timestamp, length long, content binary"
        files = session.readStream.format("binaryFile").schema(schema).option("recursiveFileLookup", "true")
        found = files.options(**{**options, "pathGlobFilter": "[!_.]*"}).load().select("path")

        def read_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield from _file(path.removeprefix("file:"), wanted)

        return found.mapInArrow(read_files, spark_schema(RAW))
    source = session.readStream.format(format).options(**options).load()
    place = "concat(topic, '/', partition, ':', offset)" if "offset" in source.columns else "cast(null as string)"
    lines = source.selectExpr("cast(value as string) value", f"{place} place")
    time_from = read.time_from

    def read_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _lines(batch, format, time_from)

    return lines.mapInArrow(read_lines, spark_schema(RAW))


def readable(events: DataFrame) -> DataFrame:
    """Those rows that are events: `schemas.EVENTS`."""
    return events.where(sql.col("reason").isNull()).drop("reason")


def quarantined(events: DataFrame) -> DataFrame:
    """Those that are not: `schemas.QUARANTINE`."""
    bad = events.where(sql.col("reason").isNotNull())
    return bad.selectExpr("file", "line", "reason", "body text").select(*QUARANTINE.names)


def _file(path: str, read: ReadOptions) -> Iterator[pa.RecordBatch]:
    first = 1
    for split in splits_of(path, split_bytes=1 << 62, split_rows=1 << 62):
        for batch in read_split(replace(split, first=first), read):
            yield _row_batch(batch)


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
    """`RAW`."""
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
