"""Reading of archives: files → splits → batches of events. Unreadable records are returned with file, line and reason.

Nothing is unpickled, and no schema is inferred: a line is JSON, a CSV field is a text (or a number, if an option says
so), and a Parquet column has the type that its file declares. The length of a line is limited.
"""

import csv
import gzip
import io
import math
import os
import posixpath
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.json as pj
import pyarrow.parquet as pq

from kindcast.semantic import Event
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events import EventLimits
from kindcast.semantic.flatten import as_json, cells_of, flatten
from kindcast.spark_jobs.event_batch import (
    ANONYMOUS,
    ARRAY_GOES_ON,
    PART_PROBLEM,
    ArchivedEvent,
    EventBatch,
    Rejected,
    Unreadable,
    days_of,
    event_of,
    from_events,
    instant_of,
    json_of,
    reason_of,
    without_nothing,
)
from kindcast.spark_jobs.report import JobFailed, NoArchive

__all__ = [
    "AS_IT_STANDS",
    "Format",
    "JsonColumns",
    "ReadOptions",
    "Split",
    "check_archive",
    "check_links",
    "columns_of",
    "file_split",
    "file_system",
    "lines_in",
    "lines_of",
    "numbered",
    "read_split",
    "splits_of",
    "unknown_columns",
]

MOST_HEADERS = 100
"""The maximum number of CSV files whose columns are compared with the names that the user gave."""

# ── archives and their splits: the byte ranges or row groups of files, each read by one task ──────────────────────────

#     lines (JSON), plain      ranges of bytes that begin and end with a line     an additional pass numbers the lines
#     lines, gzip; CSV         whole files: they cannot be read from the middle
#     Parquet                  ranges of row groups
#
# Files below the named folder are read in order. Names that begin with `_` or `.` are skipped. Every file system that
# pyarrow supports can be used (a path, or s3://, gs://, hdfs://).


Format = Literal["lines", "csv", "parquet"]

SPLIT_BYTES = 32 << 20
"""Bytes of lines in one task: a few seconds of work, so that little is lost in a crash."""
SPLIT_ROWS = 100_000
"""Rows of Parquet in one task, rounded up to whole row groups."""
EXTENSIONS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".json": "lines",
    ".csv": "csv",
    ".parquet": "parquet",
}
PACKED = frozenset({".bz2", ".xz", ".zst", ".lz4", ".snappy", ".br", ".zip", ".7z"})
"""Compressed files that are not read."""
NOTES = frozenset({"readme", "license", "licence", "notice", "changelog", "manifest", "makefile"})
BESIDE = frozenset(
    {".crc", ".md5", ".sha1", ".sha256", ".sha512", ".asc", ".sig", ".md", ".rst", ".html", ".tmp", ".part"}
)
"""The names and extensions of files that are no data: notes about an archive, checksums, files that are being written.
Other files that are not read are reported."""
ABSENT_PART = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder `name=value` for rows that have no value. Hive and Spark write it for null and for ""."""
TABLES = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""The folders of table formats, whose files may contain deleted rows."""
READ_BYTES = 4 << 20
PACKED_PROBLEM = "{} files are not read: unpack the file, or compress it with gzip"
LEFT_OUT = "columns of bytes are left out: {}"
SUPPORTED = f"supported are {', '.join(EXTENSIONS)}, the first four also with .gz"
UNKNOWN_PROBLEM = f"files with such names are not read; {SUPPORTED}"
OTHER_COMMAS = {";": "semicolons", "\t": "tabs"}
"""What some programs write between the columns of CSV, instead of commas."""
UNOPENABLE = "{} cannot be opened as a file: remove it from the archive"
TWICE_PROBLEM = "{} is a link to {}, whose events would be read twice: remove the link"
REPLACED = "{} was replaced after the job had listed the files of the archive"
PATTERN = re.compile(r"[*?\[{]")
"""Where the pattern begins in a path of Spark that names several folders."""
SPARK_S3 = frozenset({"s3a", "s3n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a file: a range of bytes (JSON lines), a range of row groups (Parquet), or the whole file (`stop` 0).

    `first` is the number of its first line or row, counted from 1. `parts` are the `name=value` folders in the path of
    the file. `stamp` changes when the file changes.
    """

    path: str
    """An absolute path or a URI, because workers in other folders open it."""
    name: str
    format: Format
    start: int = 0
    stop: int = 0
    first: int = 1
    parts: tuple[tuple[str, str], ...] = ()
    stamp: str = ""
    problem: str = ""
    """Why the file cannot be read; empty if it can."""
    left_out: str = ""
    """What of the file is left out, in its first split; empty if nothing is."""

    @property
    def gzipped(self) -> bool:
        return self.name.lower().endswith(".gz")

    def open(self) -> Any:
        """Opens the file for random access. Raises `OSError`, which names the file, and `JobFailed` if it is another
        file now. A text file may have grown."""
        system, path = file_system(self.path)
        file = system.open_input_file(path)
        size, listed = file.size(), int(self.stamp.partition("-")[0] or 0)
        if size < listed or (self.format == "parquet" and size > listed):
            raise JobFailed(REPLACED.format(self.name))
        return file


def file_system(place: str) -> tuple[Any, str]:
    """Returns the file system of a path or URI, and the path in it. Spark writes `s3://` as `s3a://` or `s3n://`.
    Raises `NoArchive` for a URI that no file system understands."""
    if "://" in place:
        scheme, _, rest = place.partition("://")
        try:
            system, path = pa.fs.FileSystem.from_uri(f"{'s3' if scheme in SPARK_S3 else scheme}://{rest}")
        except pa.ArrowInvalid:
            raise NoArchive(
                f"{_shown(place)} is no address of files: write a path or s3://bucket/folder, gs://…, hdfs://…, and "
                "%20 for a space"
            ) from None
        return system, path
    return pa.fs.LocalFileSystem(), os.path.abspath(place)


def _shown(place: str) -> str:
    """Returns a path or URI as messages show it: without credentials."""
    return re.sub("(?<=://)[^/?]*@", "", place)


def _path_of(place: str, root: str, path: str) -> str:
    """Returns the path or URI of the file `path` below `root`. `root` is the path of `place` in its file system."""
    if "://" not in place:
        return path
    uri, mark, query = place.partition("?")
    return f"{uri.rstrip('/')}{quote(path[len(root.rstrip('/')) :])}{mark}{query}"


def splits_of(place: str, *, split_bytes: int = SPLIT_BYTES, split_rows: int = SPLIT_ROWS) -> list[Split]:
    """Returns the splits of an archive, which is a file or a folder. Reads only file sizes, the line ends near the
    borders of splits, the names of CSV columns, and Parquet footers.

    Only the first split of a file has the number of its first line; in the others `first` is 0 until `numbered` sets
    it. Raises `NoArchive`, and `OSError` if a file cannot be opened.
    """
    root, files = _files_of(place)
    sizes = SplitSizes(split_bytes, split_rows)
    splits = [split for file in files for split in _of_file(place, root, file, sizes)]
    if any(split.problem != UNKNOWN_PROBLEM for split in splits):
        return splits
    if any(_format_of(file.path) for file in files):
        raise NoArchive(f"{_shown(place)} has nothing but empty files")
    raise _nothing_in(place)


def file_split(place: str, path: str) -> Split | None:
    """Returns one file of a stream as one split, or None if `splits_of` would leave the file out. `place` is the folder
    of the stream, or Spark's pattern of folders; `path` is the file as Spark lists it. Raises `NoArchive` if the file
    is gone."""
    system, at = file_system(path)
    found = system.get_file_info(at)
    if found.type == pa.fs.FileType.NotFound:
        raise NoArchive(f"{_shown(path)} does not exist")
    before = PATTERN.split(place)[0]
    _, root = file_system(before if before == place else posixpath.dirname(before))
    whole = _whole(root if at.startswith(f"{root.rstrip('/')}/") else at, found, path)
    if whole is not None and isinstance(system, pa.fs.LocalFileSystem) and before == place:
        home, target = os.path.realpath(root), os.path.realpath(at)
        if target != posixpath.join(home, whole.name) and _is_in(home, target):
            whole = replace(whole, problem=TWICE_PROBLEM.format(at, target))
    return whole and next(_splits(whole, found.size, SplitSizes(1 << 62, 1 << 62)), None)


def check_archive(place: str) -> None:
    """Checks by file names that the archive has a readable file, before a job starts. Raises `NoArchive` if not."""
    _, files = _files_of(place)
    if not any(_format_of(file.path) for file in files):
        raise _nothing_in(place)


def _files_of(place: str) -> tuple[str, list[Any]]:
    """Returns the root of an archive in its file system and its files, sorted. Raises `NoArchive`."""
    system, root = file_system(place)
    found = system.get_file_info(root)
    if found.type == pa.fs.FileType.NotFound:
        raise NoArchive(f"{_shown(place)} does not exist")
    if found.is_file:
        return root, [found]
    if isinstance(system, pa.fs.LocalFileSystem):
        check_links(root)  # before Arrow follows them
    try:
        below = system.get_file_info(pa.fs.FileSelector(root, recursive=True))
        _check_tables(place, root, below)
        files = [each for each in below if each.type != pa.fs.FileType.Directory]
        return root, sorted(files, key=lambda each: each.path)
    except UnicodeDecodeError as error:
        raise NoArchive(f"the name {error.object!r} is not UTF-8: rename this file, or move it elsewhere") from None


def _check_tables(place: str, root: str, below: Iterable[Any]) -> None:
    """Raises `NoArchive` for the folder of a table whose files may contain deleted rows."""
    for each in below:
        folder, name = posixpath.split(posixpath.relpath(each.path, root))
        is_iceberg = posixpath.basename(folder) == "metadata" and name.endswith(".metadata.json")
        if kind := "Iceberg" if is_iceberg else TABLES.get(name):
            raise NoArchive(
                f"{_shown(place)} has a table of {kind}, whose files may contain deleted rows: write its present rows "
                "as Parquet into another folder, for example with Spark, and name that folder"
            )


def _nothing_in(place: str) -> NoArchive:
    return NoArchive(f"{_shown(place)} has no readable file; {SUPPORTED}")


def _format_of(path: str) -> Format | None:
    return EXTENSIONS.get(posixpath.splitext(path.lower().removesuffix(".gz"))[1])


def check_links(root: str) -> None:
    """Raises `NoArchive` for a broken link, because Arrow silently skips broken links, and for a link to what the
    archive has anyway: its events would be read twice, or without end. Also looks into the folders that links name."""
    known, waiting = [os.path.realpath(root)], [root]
    while waiting:
        for path in _links_below(waiting.pop()):
            if not os.path.exists(path):
                raise NoArchive(UNOPENABLE.format(path))
            target = os.path.realpath(path)
            if _is_left_out(posixpath.relpath(path, root)):
                continue
            if any(_is_in(each, target) for each in known):
                raise NoArchive(TWICE_PROBLEM.format(path, target))
            if os.path.isdir(target):
                known.append(target)
                waiting.append(path)


def _links_below(top: str) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        yield from filter(os.path.islink, (posixpath.join(folder, name) for name in [*folders, *names]))


def _is_in(root: str, path: str) -> bool:
    """Whether the archive in `root` has `path` itself, or is in it."""
    name = posixpath.relpath(path, root)
    if set(name.split("/")) <= {".", ".."}:
        return True
    return not _is_left_out(name) and (os.path.isdir(path) or _format_of(path) is not None)


def _is_left_out(name: str) -> bool:
    """Whether a name in an archive says that the file or folder is not a part of it."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def numbered(splits: Sequence[Split], counts: Sequence[int]) -> list[Split]:
    """Returns the splits with the numbers of their first lines. `counts` are the numbers of lines in the splits. The
    splits of a file are in order."""
    done: list[Split] = []
    at: dict[str, int] = {}
    for split, count in zip(splits, counts, strict=True):
        first = at.get(split.path, 1) if split.first == 0 else split.first
        done.append(replace(split, first=first))
        at[split.path] = first + count
    return done


def lines_in(split: Split) -> int:
    """Returns the number of lines in a split of an uncompressed file."""
    count, left = 0, split.stop - split.start
    with split.open() as file:
        file.seek(split.start)
        while left > 0:
            block = file.read(min(READ_BYTES, left))
            if not block:
                break
            count += block.count(b"\n")
            left -= len(block)
    return count


def _of_file(place: str, root: str, file: Any, sizes: "SplitSizes") -> Iterator[Split]:
    whole = _whole(root, file, _path_of(place, root, file.path))
    if whole is not None:
        yield from _splits(whole, file.size, sizes)


def _splits(whole: Split, size: int, sizes: "SplitSizes") -> Iterator[Split]:
    return iter([whole]) if whole.problem else SPLITTERS[whole.format](whole, size, sizes)


def _whole(root: str, file: Any, path: str) -> Split | None:
    """Returns a file of the archive in `root`, not yet split; None if it does not belong to the archive. `path` is what
    workers open."""
    name = posixpath.relpath(file.path, root) if file.path != root else posixpath.basename(file.path)
    extension = posixpath.splitext(file.path)[1]
    format, problem = _format_of(file.path), ""
    if _is_left_out(name):
        return None
    if format is None:
        if not file.is_file or not file.size or _is_beside(posixpath.basename(name).lower()):
            return None
        format, problem = "lines", UNKNOWN_PROBLEM
        if extension.lower() in PACKED:
            problem = PACKED_PROBLEM.format(extension)
    if not file.is_file:  # a pipe, for one
        raise NoArchive(UNOPENABLE.format(file.path))
    folders = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
    parts = {unquote(key): unquote(value) for key, _, value in folders if key and value != ABSENT_PART}
    stamp = f"{file.size}-{file.mtime_ns}"
    return Split(path=path, name=name, format=format, parts=tuple(parts.items()), stamp=stamp, problem=problem)


def _is_beside(name: str) -> bool:
    return name.partition(".")[0] in NOTES or posixpath.splitext(name)[1] in BESIDE


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The size of one split: bytes of lines, rows of Parquet."""

    lines_bytes: int
    parquet_rows: int


def _of_lines(whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    if whole.gzipped:
        yield whole
        return
    borders = [0]
    with whole.open() as file:
        while borders[-1] + sizes.lines_bytes < size:
            borders.append(_line_after(file, borders[-1] + sizes.lines_bytes, size))
    if borders[-1] < size:
        borders.append(size)
    for start, stop in pairwise(borders):
        yield replace(whole, start=start, stop=stop, first=1 if start == 0 else 0)


def _line_after(file: Any, position: int, size: int) -> int:
    """Returns the position of the first line that begins at or after `position`."""
    at = position - 1
    file.seek(at)
    while at < size:
        block = file.read(64 << 10)
        if not block:
            return size
        found: int = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return size


def _of_parquet(whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    with whole.open() as file:
        try:
            stored = pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            yield replace(whole, problem=f"this is not readable Parquet: {error}")
            return
        footer, columns = stored.metadata, stored.schema_arrow
    if problem := _twice_in(columns):
        yield replace(whole, problem=problem)
        return
    lost = [each for column in columns for each in _bytes_in(column)]
    left_out = LEFT_OUT.format(", ".join(lost)) if lost else ""
    start, rows, first = 0, 0, 1
    for group in range(footer.num_row_groups):
        rows += footer.row_group(group).num_rows
        if rows >= sizes.parquet_rows or group == footer.num_row_groups - 1:
            yield replace(whole, start=start, stop=group + 1, first=first, left_out=left_out if start == 0 else "")
            start, first, rows = group + 1, first + rows, 0


def _of_csv(whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    names = columns_of(whole)
    if any(map(_lacks_utf8, names)):
        yield replace(whole, problem="the names of the columns are not UTF-8: write the file in UTF-8")
        return
    counts = {each: sum(name.count(each) for name in names) for each in OTHER_COMMAS}
    if other := next((each for each, count in counts.items() if count >= max(1, len(names))), None):
        problem = f"{OTHER_COMMAS[other]} separate the columns: write commas, and numbers with a point (1.5)"
        yield replace(whole, problem=problem)
        return
    # Tables end with commas for empty columns: only a value under one of several absent names is a problem.
    yield replace(whole, problem=_twice(filter(None, names)))


def _lacks_utf8(text: str) -> bool:
    """Whether a text of CSV had bytes that are not UTF-8."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def columns_of(whole: Split) -> list[str]:
    """Returns the names of the columns of a CSV file."""
    try:
        with _opened(whole) as file:
            return next(_csv_rows(file), [])
    except (csv.Error, *DAMAGED):  # reading the file reports the problem
        return []


def unknown_columns(place: str, names: Iterable[str]) -> list[str]:
    """Returns those of `names` that no CSV file of the archive has as a column. Empty if the archive has more than
    `MOST_HEADERS` such files and the first ones do not have the column. Raises `NoArchive`, and `OSError` if a file
    cannot be opened."""
    left = set(names)
    if not left:
        return []
    root, files = _files_of(place)
    found = (_whole(root, file, _path_of(place, root, file.path)) for file in files)
    tables = [whole for whole in found if whole is not None and whole.format == "csv" and not whole.problem]
    for whole in tables[:MOST_HEADERS]:
        left.difference_update(columns_of(whole))
        if not left:
            break
    return sorted(left) if len(tables) <= MOST_HEADERS else []


def _twice(names: Iterable[str]) -> str:
    """Returns which columns have one name, as the problem of a file; empty if each has its own."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    return f"several columns have the name {', '.join(twice)}" if twice else ""


def _twice_in(fields: Iterable[Any]) -> str:
    """Like `_twice`, for the columns of Parquet and the parts of each struct."""
    some = list(fields)
    problems = (_twice_in(_children(each.type)) for each in some)
    return _twice(each.name for each in some) or next(filter(None, problems), "")


SPLITTERS: Mapping[Format, Callable[[Split, int, SplitSizes], Iterator[Split]]] = {
    "lines": _of_lines,
    "csv": _of_csv,
    "parquet": _of_parquet,
}
"""The function that splits a file of each format. `READERS` has the readers."""


# Columnar reading of JSON lines with Arrow, if the result is the same as reading each line separately.
#
#     lines ─▶ one object per line? ─▶ Arrow ─▶ types that keep every value? ─▶ table
#                └─no───────────────────┴─────────┴─no─▶ None: one by one (`event_batch`)
#
# Arrow's reader is about eight times faster than Python objects, but it reads some texts differently: it accepts
# several objects in a line and NaN, and it reads integers as doubles and texts as times. It rejects members with values
# of several types and duplicate names, which JSON allows.

EXACT = float(1 << 53)
"""From this value on, a double that Arrow returns may be an integer of the text that no double can represent."""
NESTED = 400
"""Maximum number of brackets of a piece, in addition to eight per line. Arrow reads nested values by recursion."""
MOST_MEMBERS = 1_000
"""Maximum number of members of a table. Each row has all of them: a member that an object lacks is null in its row."""
FIRST_BYTES = 4_096
"""The first bytes of a piece, which are searched for a CloudEvent."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
NEWLINE, RETURN, OPEN, CLOSE = b"\n\r{}"


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a piece of a file. Line i is `text[starts[i] : ends[i]]`."""

    text: bytes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[bytes]:
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield self.text[start:end]

    def take(self, chosen: npt.NDArray[np.int64]) -> "Lines":
        """Returns the lines with the indices `chosen`."""
        return Lines(self.text, self.starts[chosen], self.ends[chosen])

    @property
    def are_objects(self) -> bool:
        """Whether each line begins with `{` and ends with `}`. All other lines of the text must be empty. Then no
        object spans two lines, because it would have to continue with `{` after `}`."""
        letters = np.frombuffer(self.text, dtype=np.uint8)
        if not len(self):
            return False
        return bool((letters[self.starts] == OPEN).all() and (letters[self.ends - 1] == CLOSE).all())


def lines_of(text: bytes) -> Lines:
    """Splits `text` into lines without their line ends; the last line may lack one. Costs some 0.3 ns per byte."""
    letters = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(letters == NEWLINE)
    if letters.size and letters[-1] != NEWLINE:
        ends = np.append(ends, letters.size)
    starts = np.append(np.int64(0), ends + 1)[: ends.size]
    ends = ends.copy()
    while True:  # remove all carriage returns before the newline
        longer = ends > starts
        longer[longer] = letters[ends[longer] - 1] == RETURN
        if not longer.any():
            return Lines(text, starts, ends)
        ends[longer] -= 1


@dataclass(slots=True)
class JsonColumns:
    """Reads the pieces of one split as tables. Remembers the members whose texts Arrow would read as times."""

    _texts: dict[str, Any] = field(default_factory=dict)

    def table(self, lines: Lines) -> pa.Table | None:
        """Returns a table with one row per line, or None if the lines must be read one by one (CloudEvents, for
        example). `lines` must be all nonempty lines of their text."""
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
            table.validate()  # Arrow loses the nulls at the beginning of the first list of a member
        except pa.ArrowException:
            return None
        if not table.num_columns or len(table) != len(lines) or any(_holds_times(each.type) for each in table.schema):
            return None
        if sum(_members(each.type) for each in table.schema) > MOST_MEMBERS:
            return None
        if not all(map(_is_exact, table.columns)):
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
    """Whether `text` is UTF-8 and has no escaped surrogates."""
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
    """Returns the type with each time type replaced by text."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _as_texts(each.type)) for each in _children(kind)])
    return pa.list_(_as_texts(kind.value_type)) if pa.types.is_list(kind) else kind


def _members(kind: Any) -> int:
    return 1 + sum(_members(each.type) for each in _children(kind))


def _is_exact(column: Any) -> bool:
    """Whether every number in a column is equal to the number in the text."""
    kind = column.type
    if pa.types.is_floating(kind):
        if column.null_count == len(column):
            return True
        bounds = pc.min_max(column)  # NaN is ignored here and checked below
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        return low > -EXACT and high < EXACT and not pc.any(pc.is_nan(column)).as_py()
    if pa.types.is_struct(kind):
        return all(map(_is_exact, column.flatten()))
    return _is_exact(pc.list_flatten(column)) if pa.types.is_list(kind) else True


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MOST_LINE_BYTES = 16 << 20
"""Maximum length of a line, which is the maximum size of a request to a server."""
PIECE_BYTES = 8 << 20
"""Size of a piece: the lines that are processed together."""
BLOCK_BYTES = 1 << 16
"""Maximum size of one read. At most this much is lost before wrong bytes in a compressed file."""
LIMITS = EventLimits()
LATEST = 1e10
"""Numbers below this one are accepted as a time in seconds since 1970."""
CODED_BYTES = 4
"""Maximum average size of a stored value for a text column to be read as dictionary codes. In larger columns, texts do
not repeat enough."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """`time_from` is the member of plain data (or the column) that holds the time of an event. `numbers` are the CSV
    columns that hold numbers. `batch_events` is the maximum number of events in a batch. `bodies`: whether to return
    the lines, too."""

    time_from: str | None = None
    numbers: tuple[str, ...] = ()
    batch_events: int = 10_000
    bodies: bool = False


DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)
"""The errors of a damaged gzip file. Other read errors come from the disk or the network; they make the task fail."""
AS_IT_STANDS = ReadOptions()


def read_split(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    """Yields the events of a split in batches, and a `Rejected` for each line that is no event. A damaged file yields
    the events before the damage. Raises `OSError` if a file cannot be opened or read, `JobFailed` if `READERS` lacks
    its format."""
    if split.problem:
        yield Rejected(split.name, None, split.problem)
        return
    if split.format not in READERS:
        raise JobFailed(f"{split.name}: the format {split.format!r} is not supported; use {', '.join(READERS)}")
    if split.left_out:
        yield Rejected(split.name, None, split.left_out)
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
    """Reads lines in pieces: as columns if the meaning is the same, otherwise one by one."""
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
    is_inside = False
    for place, line in enumerate(lines, number):
        if line and not line.isspace():
            found = _event(line, place, split, options)
            if is_inside and isinstance(found, ArchivedEvent):
                found = Rejected(split.name, place, PART_PROBLEM, line.decode("utf-8", "replace").rstrip())
            is_inside = ARRAY_GOES_ON.search(line) is not None
            body = line.decode("utf-8", "replace")
            if split.parts and isinstance(found, ArchivedEvent) and found.plain:
                body = msgspec.json.encode(found.event.data).decode()  # with the names of its folders
            yield place, found, body


def _of_columns(
    table: pa.Table, lines: Lines, places: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> list[EventBatch] | None:
    """Returns the batches of lines that were read as columns, or None if they are not plain data or have an invalid
    time."""
    names = set(table.column_names)
    for name, value in split.parts:
        if name not in names:
            table = table.append_column(name, pa.repeat(value, len(table)))
        elif table[name].null_count:  # null or absent in the line? the table cannot tell
            return None
    if not _are_plain(table.column_names) or not _says_times(table, options):
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


def _are_plain(names: Iterable[str]) -> bool:
    """Whether rows with these members are plain data: no CloudEvents, no linked data, and no reserved name."""
    return not any(name in ("specversion", "@context", "ce") or name.startswith("ce.") for name in names)


def _event_of_line(lines: Lines, places: npt.NDArray[np.int64], split: Split, options: ReadOptions, row: int) -> Event:
    """Returns the event of a line that was already read as columns."""
    (line,) = lines.take(np.array([row]))
    found = _event(line, int(places[row]), split, options)
    assert isinstance(found, ArchivedEvent), found
    return found.event


def _says_times(table: pa.Table, options: ReadOptions) -> bool:
    """Whether the member `time_from` holds a valid time in every line that has it."""
    if options.time_from not in table.column_names:
        return True
    column = table[options.time_from]
    if column.null_count == len(column):
        return True
    if _holds_numbers(column.type):
        return bool(pc.max(pc.abs(pc.cast(column, pa.float64(), safe=False))).as_py() < LATEST)
    if pa.types.is_timestamp(column.type):
        bounds = pc.min_max(pc.cast(column, pa.int64()))
        return bool(bounds["min"].as_py() > -EXACT and bounds["max"].as_py() < EXACT)
    return _holds_text(column.type) and _times(column).null_count == column.null_count


def _event(line: bytes, number: int, split: Split, options: ReadOptions) -> ArchivedEvent | Rejected:
    try:
        value = json_of(line)
        if split.parts and isinstance(value, dict) and "specversion" not in value:
            value = {**dict(split.parts), **value}
        return event_of(value, f"{split.name}:{number}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, number, str(error), line.decode("utf-8", "replace").rstrip())


def _opened(split: Split) -> io.BufferedReader | gzip.GzipFile:
    file = split.open()
    if split.gzipped:
        return gzip.GzipFile(fileobj=file)  # a reader around it would lose what comes before the damage of a file
    file.seek(split.start)
    return io.BufferedReader(file, 1 << 20)


def _pieces(file: io.BufferedReader | gzip.GzipFile, split: Split) -> Iterator[bytes | None]:
    """Yields the lines of a split in pieces of many lines. A line that is too long is skipped and yields None. If the
    file is damaged, the lines before the damage are yielded before the error is raised."""
    left = split.stop - split.start if split.stop else math.inf
    whole: list[bytes] = []  # lines with their ends
    size = 0
    rest: list[bytes] = []  # the incomplete last line; empty if the line is too long
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
    """Yields the rows of a CSV file as events. The first row has the names. An empty field is an absent value."""
    row, usual = 1, csv.field_size_limit(MOST_LINE_BYTES)  # of the whole process
    try:
        with _opened(split) as file:
            reader = _csv_rows(file)
            names: list[str] = next(reader, [])
            for fields in reader:
                row = reader.line_num
                if fields:
                    event = _of_fields(names, fields, row, split, options)
                    yield row, event, "" if isinstance(event, Rejected) else _body_of(event)
    except csv.Error as error:
        yield row + 1, Rejected(split.name, row + 1, f"this is not CSV from here on: {error}"), ""
    except DAMAGED as error:
        yield row + 1, Rejected(split.name, row + 1, f"the file cannot be read from here on: {error}"), ""
    finally:
        csv.field_size_limit(usual)


def _body_of(read: ArchivedEvent) -> str:
    """Returns an event as a line would have it."""
    event = read.event
    return msgspec.json.encode(event.data if read.plain else {**event.context, "data": event.data}).decode()


def _csv_rows(file: io.BufferedReader | gzip.GzipFile) -> Any:
    """Returns the reader of the rows of a CSV file, as texts. Bytes that are not UTF-8 become surrogates."""
    return csv.reader(io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline=""), strict=True)


def _of_fields(
    names: list[str], fields: list[str], row: int, split: Split, options: ReadOptions
) -> ArchivedEvent | Rejected:
    shown = ",".join(fields).encode("utf-8", "replace").decode("utf-8")
    try:
        if len(fields) != len(names):
            raise Unreadable(f"{len(fields)} fields under {len(names)} names")
        data: dict[str, Any] = {}
        for name, field in zip(names, fields, strict=True):
            if field == "":
                continue
            if not name and names.count(name) > 1:
                raise Unreadable("several columns have no name")
            if _lacks_utf8(field):
                raise Unreadable(f"{name}: the text is not UTF-8")
            if name in options.numbers:
                if not _NUMBER.fullmatch(field):
                    raise Unreadable(f"{name}: {field[:64]!r} is not a number")
                data[name] = _number(field)
            else:
                data[name] = field
        value = data if "specversion" in data else {**dict(split.parts), **data}
        return event_of(value, f"{split.name}:{row}", options.time_from)
    except Unreadable as error:
        return Rejected(split.name, row, str(error), shown)


def _number(field: str) -> float | int:
    """Returns a number as JSON has it. A large whole number stays whole: it is refused if no double holds it."""
    number = float(field)
    return int(field) if EXACT <= abs(number) < math.inf and field.lstrip("-").isdigit() else number


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parquet(split: Split, options: ReadOptions) -> Iterator[EventBatch | Rejected]:
    first = split.first
    with split.open() as file:
        try:
            footer = pq.read_metadata(file)
            stored = pq.ParquetFile(
                file, metadata=footer, read_dictionary=_repeating(footer, split), coerce_int96_timestamp_unit="us"
            )
            groups = list(range(split.start, split.stop))
            for batch in stored.iter_batches(options.batch_events, row_groups=groups, use_threads=False):
                table = pa.Table.from_batches([batch])
                yield from _of_table(table, first, split, options)
                first += len(table)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno:  # the disk or the network failed; the content may be good
                raise
            yield Rejected(split.name, first, f"the file cannot be read from here on: {error}")


def _repeating(footer: pq.FileMetaData, split: Split) -> list[str]:
    """Returns the text columns that are stored as dictionary codes of few distinct texts. They are read as codes."""
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
    if _is_ours(table.schema):
        yield from _of_bodies(table, lines, split, options)
        return
    table = _as_json_has_it(table)
    for name, value in () if "specversion" in names else split.parts:
        if name not in names:
            table = table.append_column(name, pa.repeat(value, len(table)))
    as_columns = table.num_columns and not options.bodies and _are_plain(table.column_names)
    if as_columns and _is_valid(table) and _says_times(table, options):
        yield _flat(table, lines, split, options)
    else:
        yield from _of_rows(table, lines, split, options)


def _is_valid(table: pa.Table) -> bool:
    """Whether all texts of a table are UTF-8. Parquet does not promise it."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rows_of(table: pa.Table) -> Iterator[dict[str, Any] | str]:
    """Yields the rows of a table; for a row with a text that is not UTF-8, the reason why it cannot be read."""
    try:
        yield from cells_of(table)
    except UnicodeDecodeError:
        half = len(table) // 2
        if half:
            yield from _rows_of(table.slice(0, half))
            yield from _rows_of(table.slice(half))
        else:
            yield f"{next(filter(partial(_is_undecodable, table), table.column_names))}: the text is not UTF-8"


def _is_undecodable(table: pa.Table, name: str) -> bool:
    try:
        cells_of(table[name])
    except UnicodeDecodeError:
        return True
    return False


def _is_ours(schema: pa.Schema) -> bool:
    """Whether rows with these columns are events that an earlier job or a server wrote, and no data with such names."""
    names, own = set(schema.names), {"body", "source", "id", "time"}
    if not own <= names or not _holds_text(schema.field("body").type):
        return False
    if own == names:  # of a server
        return pa.types.is_timestamp(schema.field("time").type) and _holds_text(schema.field("id").type)
    return {"file", "line"} <= names or {"attributes", "changes"} <= names


def _of_bodies(
    table: pa.Table, lines: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> Iterator[EventBatch | Rejected]:
    """Yields events that an earlier job wrote: rows of `event_batch.EVENTS`, or the output of `normalise`. They keep
    their ids and times."""
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
    table: pa.Table, lines: npt.NDArray[np.int64], split: Split, options: ReadOptions
) -> Iterator[EventBatch | Rejected]:
    """Reads rows one by one: what is not plain data, rows with invalid times, and all rows if `options.bodies` asks for
    JSON."""
    found: list[ArchivedEvent] = []
    kept, bodies = [], []
    written = options.bodies and all(map(_is_json, table.columns))
    for line, row in zip(lines.tolist(), _rows_of(table), strict=True):
        if isinstance(row, str):
            yield Rejected(split.name, line, row)
            continue
        value = without_nothing(row)
        try:
            event = event_of(value, f"{split.name}:{line}", options.time_from)
            if options.bodies and not written:
                if event.plain:
                    flatten(value, LIMITS)  # JSON would have bytes and infinity as other values
                value = as_json(value)
            body = msgspec.json.encode(value).decode() if options.bodies else ""
        except (Unreadable, TypeError) as error:
            yield Rejected(split.name, line, str(error), str(row))
            continue
        except InvalidEvent as error:
            yield Rejected(split.name, line, reason_of(error), str(row))
            continue
        found.append(event)
        kept.append(line)
        if options.bodies:
            bodies.append(body)
    if found:
        yield from_events(found, split.name, kept, bodies)


def _is_json(cells: Any) -> bool:
    """Whether JSON has every value of a column, except NaN."""
    kind = cells.type
    if pa.types.is_struct(kind):
        return all(map(_is_json, cells.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_json(pc.list_flatten(cells))
    if pa.types.is_floating(kind):
        return not pc.any(pc.is_inf(cells)).as_py()
    is_one = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_null, pa.types.is_timestamp)
    return bool(_holds_text(kind) or any(each(kind) for each in is_one))


def _flat(table: pa.Table, lines: npt.NDArray[np.int64], split: Split, options: ReadOptions) -> EventBatch:
    """Returns a batch of plain data whose values stay in their columns."""
    count = len(table)
    time = pa.nulls(count, pa.timestamp("us", tz="UTC"))
    if options.time_from in table.column_names:
        time = _times(table[options.time_from])
    ids = pc.binary_join_element_wise(split.name, pc.cast(pa.array(lines), pa.string()), ":")
    keys = pa.table({"source": pa.repeat(ANONYMOUS, count), "id": ids, "time": time, "day": days_of(time)})
    return EventBatch(keys, split.name, lines, None, table)


def _as_json_has_it(table: pa.Table) -> pa.Table:
    """Converts columns to types whose values `as_json` knows: dates become texts, times have microseconds in UTC, and
    dictionaries become their values. Dictionaries of texts stay as they are, and so do decimals: Arrow would not cast
    them to the nearest double. Bytes are left out, at any depth."""
    kinds = {column.name: _without_bytes(column.type) for column in table.schema}
    table = table.select([name for name, kind in kinds.items() if kind is not None])
    for place, column in enumerate(table.schema):
        kind, cells = column.type, table.column(place)
        if kinds[column.name] != kind:
            cells = pc.cast(cells, kinds[column.name], safe=False)
        elif pa.types.is_dictionary(kind):
            if _holds_text(kind):
                continue
            cells = pc.cast(cells, kind.value_type)
        elif pa.types.is_timestamp(kind):
            cells = _times(cells)
        elif pa.types.is_date(kind):
            cells = pc.cast(cells, pa.string())
        else:
            continue
        table = table.set_column(place, column.name, cells)
    return table


def _is_bytes(kind: Any) -> bool:
    bare = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_binary(bare)
        or pa.types.is_large_binary(bare)
        or pa.types.is_binary_view(bare)
        or pa.types.is_fixed_size_binary(bare)
        or (pa.types.is_map(bare) and any(map(_is_bytes, (bare.key_type, bare.item_type))))
    )


def _bytes_in(column: pa.Field) -> list[str]:
    """Returns the names of the parts of a column that `_without_bytes` leaves out: `photo`, `item.checksum`."""
    if _is_bytes(column.type):
        return [column.name]
    if pa.types.is_map(column.type):
        return _bytes_in(column.with_type(column.type.item_type))
    inner = [] if pa.types.is_dictionary(column.type) else _children(column.type)
    prefix = f"{column.name}." if pa.types.is_struct(column.type) else ""
    return [
        each for part in inner for each in _bytes_in(part.with_name(f"{prefix}{part.name}" if prefix else column.name))
    ]


def _without_bytes(kind: Any) -> Any:
    """Returns a type without its parts that are bytes, None if nothing else is left. Durations have microseconds, as in
    Python. Views of texts are texts, because Arrow cannot take rows of views."""
    if _is_bytes(kind):
        return None
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_duration(kind):
        return pa.duration("us") if kind.unit == "ns" else kind
    if pa.types.is_struct(kind):
        parts = [each.with_type(inner) for each in _children(kind) if (inner := _without_bytes(each.type)) is not None]
        return pa.struct(parts) if parts or not kind.num_fields else None
    if pa.types.is_map(kind):
        key, inner = map(_without_bytes, (kind.key_type, kind.item_type))
        if inner is None or (key, inner) == (kind.key_type, kind.item_type):
            return None if inner is None else kind
        return pa.map_(key, inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _without_bytes(kind.value_type)
        if inner is None or inner == kind.value_type:
            return inner and kind
        return pa.large_list(inner) if pa.types.is_large_list(kind) else pa.list_(inner)
    return kind


def _holds_text(kind: Any) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text))


def _holds_numbers(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _times(column: Any) -> Any:
    """Returns the times in a column that holds times, texts in RFC 3339, dates, or seconds since 1970."""
    kind, utc = column.type, pa.timestamp("us", tz="UTC")
    if column.null_count == len(column):  # of any type: Arrow would not cast all of them
        return pa.nulls(len(column), utc)
    if _holds_numbers(kind):
        seconds = pc.cast(column, pa.float64())
        seconds = pc.if_else(pc.is_nan(seconds), None, seconds)  # NaN is an absent value
        micros = pc.round(pc.multiply(seconds, 1e6))
        return pc.cast(pc.cast(micros, pa.int64(), safe=False), utc)
    if _holds_text(kind):
        return pa.array([None if text is None else instant_of(text) for text in column.to_pylist()], utc)
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
"""The function that reads a split of each format."""
