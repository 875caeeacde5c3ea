"""A split → batches of events, and what cannot be read, with its file, its line and the reason.

Nothing is unpickled, no schema is inferred: a line is JSON, a field of CSV is a text (or a number, where the job was
told so), a column of Parquet has the type that its file says. A line has a bounded length.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semantic.instants import parse_instant
from spark_jobs.archive import Split, file_system
from spark_jobs.archived_events import ANONYMOUS, ArchivedEvent, Unreadable, event_of, json_of, keyed
from spark_jobs.event_batch import EventBatch, Rejected, days_of, from_events, without_nothing

__all__ = ["AS_IT_STANDS", "ReadOptions", "read_split"]

MOST_LINE_BYTES = 16 << 20
"""Of one line: what a server takes as one request at most."""
CODED_BYTES = 4
"""A value, on average, of a column of texts that is read as codes: more is no column of texts that repeat."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """`time_from`: the member of plain data (or the column) that says the time of an event; `numbers`: the columns of
    CSV that hold numbers; `batch_events`: of one batch; `bodies`: whether the lines themselves are wanted."""

    time_from: str | None = None
    numbers: tuple[str, ...] = ()
    batch_events: int = 10_000
    bodies: bool = False


AS_IT_STANDS = ReadOptions()


def read_split(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    """The events of a split, batch by batch, and what is wrong with it. A file that ends badly gives what comes before
    that."""
    if split.problem:
        yield Rejected(split.name, None, split.problem)
        return
    if split.format == "parquet":
        yield from _parquet(split, options)
        return
    read = _csv(split, options) if split.format == "csv" else _lines(split, options)
    found: list[ArchivedEvent] = []
    lines: list[int] = []
    bodies: list[str] = []
    for line, event, body in read:
        if isinstance(event, Rejected):
            yield event
            continue
        found.append(event)
        lines.append(line)
        if options.bodies:
            bodies.append(body)
        if len(found) == options.batch_events:
            yield from_events(found, split.name, lines, bodies)
            found, lines, bodies = [], [], []
    if found:
        yield from_events(found, split.name, lines, bodies)


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_Read = tuple[int, ArchivedEvent | Rejected, str]


def _lines(split: Split, options: ReadOptions) -> Iterator[_Read]:
    number = split.first - 1
    try:
        with _opened(split) as file:
            for line in _bounded(file, split):
                number += 1
                if line is None:
                    reason = f"a line of more than {MOST_LINE_BYTES:,} bytes"
                    yield number, Rejected(split.name, number, reason), ""
                elif line and not line.isspace():
                    yield number, _event(line, number, split, options), line.decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        yield number + 1, Rejected(split.name, number + 1, f"the file cannot be read from here on: {error}"), ""


def _event(line: bytes, number: int, split: Split, options: ReadOptions) -> ArchivedEvent | Rejected:
    try:
        value = json_of(line)
        if split.parts and isinstance(value, dict) and "specversion" not in value:
            value = {**dict(split.parts), **value}
        return event_of(value, f"{split.name}:{number}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, number, str(error), line.decode("utf-8", "replace").rstrip())


def _opened(split: Split) -> IO[bytes]:
    system, _ = file_system(split.path)
    if split.gzipped:
        return io.BufferedReader(gzip.GzipFile(fileobj=system.open_input_stream(split.path, compression=None)))
    file = system.open_input_file(split.path)
    file.seek(split.start)
    buffered: IO[bytes] = io.BufferedReader(file, 1 << 20)
    return buffered


def _bounded(file: IO[bytes], split: Split) -> Iterator[bytes | None]:
    """The lines of a split without their ends; None for one that is too long, which is read past."""
    left = split.stop - split.start if split.stop else None
    while left is None or left > 0:
        line = file.readline(MOST_LINE_BYTES + 1)
        if not line:
            return
        read = len(line)
        if read > MOST_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_LINE_BYTES)
                read += len(line)
            yield None
        else:
            yield line.rstrip(b"\r\n")
        if left is not None:
            left -= read


def _csv(split: Split, options: ReadOptions) -> Iterator[_Read]:
    """Rows of CSV under the names in the first one. An empty field is absent."""
    row = 1
    try:
        with _opened(split) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text, strict=True)
            names = next(reader, [])
            for fields in reader:
                row = reader.line_num
                if fields:
                    event = _of_fields(names, fields, row, split, options)
                    body = "" if isinstance(event, Rejected) else msgspec.json.encode(event.event.data).decode()
                    yield row, event, body
    except csv.Error as error:
        yield row + 1, Rejected(split.name, row + 1, f"no CSV from here on: {error}"), ""
    except (OSError, EOFError, zlib.error) as error:
        yield row + 1, Rejected(split.name, row + 1, f"the file cannot be read from here on: {error}"), ""


def _of_fields(
    names: list[str], fields: list[str], row: int, split: Split, options: ReadOptions
) -> ArchivedEvent | Rejected:
    shown = ",".join(fields).encode("utf-8", "replace").decode("utf-8")
    try:
        if len(fields) != len(names):
            raise Unreadable(f"{len(fields)} fields under {len(names)} names")
        data: dict[str, Any] = dict(split.parts)
        for name, field in zip(names, fields, strict=True):
            if field == "":
                continue
            if any("\udc80" <= letter <= "\udcff" for letter in field):
                raise Unreadable(f"{name}: the text is not UTF-8")
            if name in options.numbers:
                if not _NUMBER.fullmatch(field):
                    raise Unreadable(f"{name}: {field[:64]!r} is no number")
                data[name] = float(field)
            else:
                data[name] = field
        return keyed(data, f"{split.name}:{row}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, row, str(error), shown)


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parquet(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    system, _ = file_system(split.path)
    first = split.first
    try:
        with system.open_input_file(split.path) as file:
            footer = pq.read_metadata(file)
            stored = pq.ParquetFile(file, metadata=footer, read_dictionary=_repeating(footer, split))
            groups = list(range(split.start, split.stop))
            for batch in stored.iter_batches(options.batch_events, row_groups=groups, use_threads=False):
                table = pa.Table.from_batches([batch])
                yield from _of_table(table, first, split, options)
                first += len(table)
    except (pa.ArrowException, OSError) as error:
        yield Rejected(split.name, first, f"the file cannot be read from here on: {error}")


def _repeating(footer: pq.FileMetaData, split: Split) -> list[str]:
    """The columns of texts that are stored as codes of few distinct ones: they are never read as texts."""
    names = []
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        if column.path == column.name and str(column.logical_type) == "String":
            chunks = [footer.row_group(group).column(number) for group in range(split.start, split.stop)]
            stored = sum(chunk.total_uncompressed_size for chunk in chunks)
            few = stored <= CODED_BYTES * sum(chunk.num_values for chunk in chunks)
            if few and all(chunk.has_dictionary_page for chunk in chunks):
                names.append(column.name)
    return names


def _of_table(table: pa.Table, first: int, split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    names = set(table.column_names)
    lines = np.arange(first, first + len(table))
    if {"body", "source", "id", "time"} <= names and _holds_text(table.schema.field("body").type):
        yield from _of_bodies(table, lines, split, options)
        return
    table = _as_json_has_it(table)
    if "specversion" in names or options.bodies:
        yield from _of_rows(table.to_pylist(), lines, split, options)
        return
    for name, value in split.parts:
        if name not in names:
            table = table.append_column(name, pa.repeat(value, len(table)))
    yield _flat(table, lines, split, options)


def _of_bodies(
    table: pa.Table, lines: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> Iterator[EventBatch | Rejected]:
    """Events that a job has read before: `schemas.EVENTS`, or what `normalise` wrote. They keep their names and
    times."""
    found: list[ArchivedEvent] = []
    kept, bodies = [], []
    times = pc.cast(pc.cast(table["time"], pa.timestamp("us", tz="UTC")), pa.int64()).to_pylist()
    columns = (lines.tolist(), table["body"].to_pylist(), table["id"].to_pylist(), times)
    for line, body, id, time in zip(*columns, strict=True):
        try:
            event = event_of(json_of((body or "").encode()), str(id), None)
        except Unreadable as error:
            yield Rejected(split.name, line, str(error), body)
            continue
        event.time = time if event.time is None else event.time
        found.append(event)
        kept.append(line)
        if options.bodies:
            bodies.append(body)
    if found:
        yield from_events(found, split.name, kept, bodies)


def _of_rows(
    rows: list[dict[str, Any]], lines: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> Iterator[EventBatch | Rejected]:
    """Rows that are looked at one by one: CloudEvents in columns, and what is wanted as JSON."""
    found: list[ArchivedEvent] = []
    kept, bodies = [], []
    for line, row in zip(lines.tolist(), rows, strict=True):
        value = without_nothing(row)
        try:
            body = msgspec.json.encode(value).decode() if options.bodies else ""
            event = event_of(value, f"{split.name}:{line}", options.time_from)
        except (Unreadable, TypeError) as error:
            yield Rejected(split.name, line, str(error), str(row))
            continue
        found.append(event)
        kept.append(line)
        if options.bodies:
            bodies.append(body)
    if found:
        yield from_events(found, split.name, kept, bodies)


def _flat(table: pa.Table, lines: npt.NDArray[np.int64], split: Split, options: ReadOptions) -> EventBatch:
    """Rows of plain data, left in their columns."""
    count = len(table)
    time = pa.nulls(count, pa.timestamp("us", tz="UTC"))
    if options.time_from in table.column_names:
        time = _times(table[options.time_from])
    ids = pc.binary_join_element_wise(split.name, pc.cast(pa.array(lines), pa.string()), ":")
    keys = pa.table({"source": pa.repeat(ANONYMOUS, count), "id": ids, "time": time, "day": days_of(time)})
    return EventBatch(keys, split.name, lines, None, table)


def _as_json_has_it(table: pa.Table) -> pa.Table:
    """Times and days as RFC 3339 has them, decimals as numbers, dictionaries as what they stand for; but texts stay
    codes of texts where they are."""
    for place, column in enumerate(table.schema):
        kind, cells = column.type, table.column(place)
        if pa.types.is_dictionary(kind):
            if _holds_text(kind):
                continue
            cells = pc.cast(cells, kind.value_type)
        elif pa.types.is_timestamp(kind):
            utc = _times(cells)
            cells = pc.strftime(utc, format="%Y-%m-%dT%H:%M:%SZ")
        elif pa.types.is_date(kind):
            cells = pc.cast(cells, pa.string())
        elif pa.types.is_decimal(kind):
            cells = pc.cast(cells, pa.float64())
        else:
            continue
        table = table.set_column(place, column.name, cells)
    return table


def _holds_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _times(column: Any) -> Any:
    """The times in a column: of a type that is one, texts of RFC 3339, or seconds since 1970."""
    kind, utc = column.type, pa.timestamp("us", tz="UTC")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        micros = pc.round(pc.multiply(pc.cast(column, pa.float64()), 1e6))
        return pc.cast(pc.cast(micros, pa.int64(), safe=False), utc)
    if _holds_text(kind):
        return pa.array([None if text is None else parse_instant(text) for text in column.to_pylist()], utc)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        column = pc.assume_timezone(column, "UTC")
    return pc.cast(column, utc, safe=False)
