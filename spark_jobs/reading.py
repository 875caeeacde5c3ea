"""The reader of a split → batches of events; records that cannot be read get their file, line and reason.

Nothing is unpickled, no schema is inferred: a line is JSON, a field of CSV is a text (or a number, where an option
says so), a column of Parquet has the type that its file says. A line has a bounded length.
"""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from kindcast.semantic import Event
from kindcast.semantic.flatten import UNIT_KEYS
from kindcast.semantic.units import parse_instant
from kindcast.spark_jobs.archive import Format, Split
from kindcast.spark_jobs.event_batch import (
    ANONYMOUS,
    ArchivedEvent,
    EventBatch,
    Rejected,
    Unreadable,
    days_of,
    event_of,
    from_events,
    json_of,
    keyed,
    without_nothing,
)
from kindcast.spark_jobs.report import JobFailed

__all__ = ["AS_IT_STANDS", "JsonColumns", "ReadOptions", "lines_of", "read_split"]


# Columnar reading of JSON lines by Arrow, where the result is the same as reading each line alone.
#
#     lines ─▶ one object a line? ─▶ Arrow ─▶ types that keep every value? ─▶ table
#                └─no─────────────────┴─────────┴─no─▶ None: one by one (`event_batch`)
#
# Arrow's reader is some eight times faster than Python objects, but reads some texts differently: several objects in a
# line, NaN, integers as doubles, texts as times. It refuses members of several types and duplicate names, which JSON
# allows.

EXACT = float(1 << 53)
"""What Arrow reads as a double from here on may have been an integer that is none."""
NESTED = 400
"""Arrow reads nested values by recursion: how many brackets a piece may have beyond one per line."""
MOST_MEMBERS = 1_000
"""Of one event, by its name in any: a member that an object lacks becomes null, which counts as a value."""
FIRST_BYTES = 4_096
"""Of a piece, in which a CloudEvent is looked for."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
NEWLINE, RETURN, OPEN, CLOSE = b"\n\r{}"


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a piece of a file: from `starts` to before `ends`."""

    text: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[bytes]:
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield self.text[start:end]

    def take(self, chosen: npt.NDArray[np.int64]) -> "Lines":
        """Some of the lines."""
        return Lines(self.text, self.starts[chosen], self.ends[chosen])

    @property
    def are_objects(self) -> bool:
        """Whether each begins and ends as an object does; lines of the text that are left out are empty. Then no object
        can stand in two lines: what begins in one would have to go on with `{` after `}`."""
        letters = np.frombuffer(self.text, dtype=np.uint8)
        if not len(self):
            return False
        return bool((letters[self.starts] == OPEN).all() and (letters[self.ends - 1] == CLOSE).all())


def lines_of(text: bytes) -> Lines:
    """The lines of `text` without their ends, of which the last may lack its own. Some 0.3 ns per byte."""
    letters = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(letters == NEWLINE)
    if letters.size and letters[-1] != NEWLINE:
        ends = np.append(ends, letters.size)
    starts = np.append(np.int64(0), ends + 1)[: ends.size]
    ends = ends.copy()
    while True:  # as many as stand there
        longer = ends > starts
        longer[longer] = letters[ends[longer] - 1] == RETURN
        if not longer.any():
            return Lines(text, starts, ends)
        ends[longer] -= 1


@dataclass(slots=True)
class JsonColumns:
    """Reads the pieces of one archive. Remembers which members hold texts that Arrow would take for times."""

    _texts: dict[str, Any] = field(default_factory=dict)

    def table(self, lines: Lines) -> pa.Table | None:
        """A row for each line; None where only reading them one by one tells what they mean, as of CloudEvents. `lines`
        are all of their text that are not empty."""
        text = lines.text
        if text.find(b'"specversion"', 0, FIRST_BYTES) >= 0:
            return None
        if not lines.are_objects or text.count(b"{") + text.count(b"[") > len(lines) * 8 + NESTED:
            return None
        if not _is_text(text):
            return None
        try:
            table = self._read(text)
            if any(_holds_times(each.type) for each in table.schema):
                self._texts |= {each.name: _as_texts(each.type) for each in table.schema if _holds_times(each.type)}
                table = self._read(text)
        except pa.ArrowException:
            return None
        if not table.num_columns or len(table) != len(lines) or any(_holds_times(each.type) for each in table.schema):
            return None
        if sum(_members(each.type) for each in table.schema) > MOST_MEMBERS:
            return None
        if any(_is_odd(each.type) for each in table.schema) or not all(map(_is_exact, table.columns)):
            return None
        return table

    def _read(self, text: bytes) -> pa.Table:
        schema = pa.schema(list(self._texts.items())) if self._texts else None
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema),
        )


def _is_text(text: bytes) -> bool:
    """Whether it is UTF-8, and escapes no halves of letters."""
    if SURROGATE.search(text):
        return False
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _children(kind: Any) -> list[Any]:
    return [kind.field(number) for number in range(kind.num_fields)]


def _holds_times(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) or any(_holds_times(each.type) for each in _children(kind))


def _as_texts(kind: Any) -> Any:
    """The type with texts for times."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _as_texts(each.type)) for each in _children(kind)])
    return pa.list_(_as_texts(kind.value_type)) if pa.types.is_list(kind) else kind


def _members(kind: Any) -> int:
    return 1 + sum(_members(each.type) for each in _children(kind))


def _is_odd(kind: Any) -> bool:
    """Whether an object in it may be a quantity in one row, and have a further member in another: the null that stands
    for the member would make it none."""
    if pa.types.is_struct(kind):
        names = {each.name for each in _children(kind)}
        if "value" in names and not UNIT_KEYS.isdisjoint(names) and len(names) != 2:
            return True
    return any(_is_odd(each.type) for each in _children(kind))


def _is_exact(column: Any) -> bool:
    """Whether every number in a column is the one that was written."""
    kind = column.type
    if pa.types.is_floating(kind):
        if column.null_count == len(column):
            return True
        bounds = pc.min_max(column)  # NaN goes before
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        return low > -EXACT and high < EXACT and not pc.any(pc.is_nan(column)).as_py()
    if pa.types.is_struct(kind):
        return all(map(_is_exact, column.flatten()))
    return _is_exact(pc.list_flatten(column)) if pa.types.is_list(kind) else True


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MOST_LINE_BYTES = 16 << 20
"""Of one line: what a server takes as one request at most."""
PIECE_BYTES = 8 << 20
"""Of lines that are read at one time."""
BLOCK_BYTES = 1 << 16
"""Of one call: what is lost where a compressed file is damaged."""
LATEST = 1e10
"""Seconds since 1970 that are a time."""
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


DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)
"""What a damaged gzip file raises. Other errors of reading are those of a disk or a network: the task fails."""
AS_IT_STANDS = ReadOptions()


def read_split(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    """The events of a split in batches, and the lines that are no events. A damaged file gives what comes before the
    damage. Raises `OSError` for a file that cannot be opened or read, `JobFailed` for a format that `READERS` lacks."""
    if split.problem:
        yield Rejected(split.name, None, split.problem)
        return
    if split.format not in READERS:
        raise JobFailed(f"{split.name}: the format {split.format!r} is not supported; use {', '.join(READERS)}")
    yield from READERS[split.format](split, options)


_Read = tuple[int, ArchivedEvent | Rejected, str]


def _batches(read: Iterable[_Read], split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
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


def _lines(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    """Lines piece by piece: as columns, or one by one where only that tells what they mean."""
    number = split.first
    columns = JsonColumns()
    try:
        with _opened(split) as file:
            for piece in _pieces(file, split):
                lines = lines_of(piece) if piece is not None else None
                if lines is None:
                    reason = f"a line of more than {MOST_LINE_BYTES:,} bytes"
                    yield Rejected(split.name, number, reason)
                    number += 1
                    continue
                filled = np.flatnonzero(lines.ends > lines.starts)
                own = lines.take(filled)
                table = None if options.bodies else columns.table(own)
                found = None if table is None else _of_columns(table, own, filled + number, split, options)
                yield from (
                    found if found is not None else _batches(_one_by_one(lines, number, split, options), split, options)
                )
                number += len(lines)
    except DAMAGED as error:
        yield Rejected(split.name, number, f"the file cannot be read from here on: {error}")


def _one_by_one(lines: Lines, number: int, split: Split, options: ReadOptions) -> Iterator[_Read]:
    for place, line in enumerate(lines, number):
        if line and not line.isspace():
            yield place, _event(line, place, split, options), line.decode("utf-8", "replace")


def _of_columns(
    table: pa.Table, lines: Lines, places: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> list[EventBatch] | None:
    """The batches of lines that were read as columns; None where they are no plain data, or say a time that is none."""
    names = set(table.column_names)
    if not names.isdisjoint({"specversion", "@context"}) or any(
        name == "ce" or name.startswith("ce.") for name in names
    ):
        return None
    for name, value in split.parts:
        if name not in names:
            table = table.append_column(name, pa.repeat(value, len(table)))
        elif table[name].null_count:  # does it say null, or nothing?
            return None
    if not _says_times(table, options):
        return None
    batches = []
    for start in range(0, len(table), options.batch_events):
        some = table.slice(start, options.batch_events)
        numbers = places[start : start + len(some)]
        batch = _flat(some, numbers, split, options)
        own = lines.take(np.arange(start, start + len(some)))
        batch.read = partial(_event_of_line, own, numbers, split, options)
        batches.append(batch)
    return batches


def _event_of_line(lines: Lines, places: npt.NDArray[np.int64], split: Split, options: ReadOptions, row: int) -> Event:
    """The event of a line that was read as columns before."""
    (line,) = lines.take(np.array([row]))
    found = _event(line, int(places[row]), split, options)
    assert isinstance(found, ArchivedEvent), found
    return found.event


def _says_times(table: pa.Table, options: ReadOptions) -> bool:
    """Whether the member that says the time does so in every line that has it."""
    if options.time_from not in table.column_names:
        return True
    column = table[options.time_from]
    if column.null_count == len(column):
        return True
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return bool(pc.max(pc.abs(pc.cast(column, pa.float64()))).as_py() < LATEST)
    return _holds_text(column.type) and _times(column).null_count == column.null_count


def _event(line: bytes, number: int, split: Split, options: ReadOptions) -> ArchivedEvent | Rejected:
    try:
        value = json_of(line)
        if split.parts and isinstance(value, dict) and "specversion" not in value:
            value = {**dict(split.parts), **value}
        return event_of(value, f"{split.name}:{number}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, number, str(error), line.decode("utf-8", "replace").rstrip())


def _opened(split: Split) -> io.BufferedReader:
    file = split.open()
    if split.gzipped:
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    file.seek(split.start)
    return io.BufferedReader(file, 1 << 20)


def _pieces(file: io.BufferedReader, split: Split) -> Iterator[bytes | None]:
    """The lines of a split, many at a time; None for one that is too long, which is read past. What was read before a
    file ends badly is given before that is raised."""
    left = split.stop - split.start if split.stop else math.inf
    whole: list[bytes] = []  # lines with their ends
    size = 0
    rest: list[bytes] = []  # of a line, as far as it was read; of one that is too long nothing is kept
    length = 0
    failure: Exception | None = None
    while left > 0:
        try:
            block = file.read1(int(min(left, BLOCK_BYTES)))
        except DAMAGED as error:
            failure, rest = error, []
            break
        if not block:
            break
        left -= len(block)
        first = block.find(b"\n")
        length += len(block) if first < 0 else first
        if length > MOST_LINE_BYTES:
            rest = []
            if first < 0:
                continue
            if whole:
                yield b"".join(whole)
                whole, size = [], 0
            yield None
            block = block[first + 1 :]
        end = block.rfind(b"\n") + 1
        if end or first >= 0:
            whole += [*rest, block[:end]]
            size += sum(map(len, rest)) + end
            rest, length = [block[end:]], len(block) - end
        else:
            rest.append(block)
        if size >= PIECE_BYTES:
            yield b"".join(whole)
            whole, size = [], 0
    if length <= MOST_LINE_BYTES:
        whole += rest
    if any(whole):
        yield b"".join(whole)
    if failure is not None:
        raise failure
    if length > MOST_LINE_BYTES:
        yield None


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
        yield row + 1, Rejected(split.name, row + 1, f"this is not CSV from here on: {error}"), ""
    except DAMAGED as error:
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
                    raise Unreadable(f"{name}: {field[:64]!r} is not a number")
                data[name] = float(field)
            else:
                data[name] = field
        return keyed(data, f"{split.name}:{row}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, row, str(error), shown)


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parquet(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    first = split.first
    with split.open() as file:
        try:
            footer = pq.read_metadata(file)
            stored = pq.ParquetFile(file, metadata=footer, read_dictionary=_repeating(footer, split))
            groups = list(range(split.start, split.stop))
            for batch in stored.iter_batches(options.batch_events, row_groups=groups, use_threads=False):
                table = pa.Table.from_batches([batch])
                yield from _of_table(table, first, split, options)
                first += len(table)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno:  # of the disk or the network, not of what the file holds
                raise
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


def _csv_batches(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    yield from _batches(_csv(split, options), split, options)


READERS: Mapping[Format, Callable[[Split, ReadOptions], Iterator[EventBatch | Rejected]]] = {
    "lines": _lines,
    "csv": _csv_batches,
    "parquet": _parquet,
}
"""The reader of each format of `kindcast.spark_jobs.archive`."""
