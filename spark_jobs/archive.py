"""Archives and their splits: the byte ranges or row groups of files, each read by one task.

    lines (JSON), plain      ranges of bytes that begin and end with a line     one pass more to number the lines
    lines, gzip; CSV         whole files: they cannot be entered in the middle
    Parquet                  ranges of row groups

Files below the named folder are read in order. Names that begin with `_` or `.` are skipped. Every file system that
pyarrow supports can be used (a path, or s3://, gs://, hdfs://).
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from kindcast.spark_jobs.report import NoArchive

__all__ = ["Format", "Split", "file_system", "lines_in", "numbered", "splits_of"]

Format = Literal["lines", "csv", "parquet"]

SPLIT_BYTES = 32 << 20
"""Bytes of lines in one task: some seconds of work, so that a crash undoes little."""
SPLIT_ROWS = 100_000
"""Rows of Parquet in one task, in whole row groups."""
EXTENSIONS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".json": "lines",
    ".csv": "csv",
    ".parquet": "parquet",
}
READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a file: bytes of lines, row groups of Parquet, or all of it (`stop` 0). `first` is the number of its
    first line or row, from 1; `parts` are the `name=value` folders that it lies in; `stamp` changes when the file does.
    """

    path: str
    name: str
    format: Format
    start: int = 0
    stop: int = 0
    first: int = 1
    parts: tuple[tuple[str, str], ...] = ()
    stamp: str = ""
    problem: str = ""
    """Why the file cannot be read; empty if it can."""

    @property
    def gzipped(self) -> bool:
        return self.path.endswith(".gz")


def file_system(place: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path on it."""
    if "://" in place:
        system, path = pa.fs.FileSystem.from_uri(place)
        return system, path
    return pa.fs.LocalFileSystem(), place


def splits_of(place: str, *, split_bytes: int = SPLIT_BYTES, split_rows: int = SPLIT_ROWS) -> list[Split]:
    """The splits of an archive, a file or a folder. Looks at sizes, line ends at the borders, and Parquet's footers.

    Lines after the first split of a file are not numbered yet (`first` is 0): see `numbered`. Raises `NoArchive`.
    """
    system, root = file_system(place)
    found = system.get_file_info(root)
    if found.type == pa.fs.FileType.NotFound:
        raise NoArchive(f"there is nothing at {place}")
    if found.is_file:
        files = [found]
    else:
        below = system.get_file_info(pa.fs.FileSelector(root, recursive=True))
        files = sorted((each for each in below if each.is_file), key=lambda each: each.path)
    splits = [split for file in files for split in _of_file(system, root, file, split_bytes, split_rows)]
    if not splits:
        raise NoArchive(
            f"{place} has no readable file; supported are {', '.join(EXTENSIONS)}, the first four also with .gz"
        )
    return splits


def numbered(splits: Sequence[Split], counts: Sequence[int]) -> list[Split]:
    """The same splits with their first lines; `counts` are the lines in each, those of one file in order."""
    done: list[Split] = []
    at: dict[str, int] = {}
    for split, count in zip(splits, counts, strict=True):
        first = at.get(split.path, 1) if split.first == 0 else split.first
        done.append(replace(split, first=first))
        at[split.path] = first + count
    return done


def lines_in(split: Split) -> int:
    """How many lines a split of plain lines has."""
    system, _ = file_system(split.path)
    count, left = 0, split.stop - split.start
    with system.open_input_file(split.path) as file:
        file.seek(split.start)
        while left > 0:
            block = file.read(min(READ_BYTES, left))
            if not block:
                break
            count += block.count(b"\n")
            left -= len(block)
    return count


def _of_file(system: Any, root: str, file: Any, split_bytes: int, split_rows: int) -> Iterator[Split]:
    name = posixpath.relpath(file.path, root) if file.path != root else posixpath.basename(file.path)
    if any(part.startswith(("_", ".")) for part in name.split("/")):
        return
    format = EXTENSIONS.get(posixpath.splitext(file.path.removesuffix(".gz"))[1].lower())
    if format is None:
        return
    folders = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
    parts = tuple((key, unquote(value)) for key, _, value in folders)
    whole = Split(path=file.path, name=name, format=format, parts=parts, stamp=f"{file.size}-{file.mtime_ns}")
    yield from SPLITTERS[format](system, whole, file.size, SplitSizes(split_bytes, split_rows))


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The size of one split: bytes of lines, rows of Parquet."""

    lines_bytes: int
    parquet_rows: int


def _whole_file(system: Any, whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    yield whole


def _of_lines(system: Any, whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    if whole.gzipped:
        yield whole
        return
    borders = [0]
    with system.open_input_file(whole.path) as file:
        while borders[-1] + sizes.lines_bytes < size:
            borders.append(_line_after(file, borders[-1] + sizes.lines_bytes, size))
    if borders[-1] < size:
        borders.append(size)
    for start, stop in pairwise(borders):
        yield replace(whole, start=start, stop=stop, first=1 if start == 0 else 0)


def _line_after(file: Any, position: int, size: int) -> int:
    """Where the first line begins at or after `position`."""
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


def _of_parquet(system: Any, whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    try:
        with system.open_input_file(whole.path) as file:
            footer = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        yield replace(whole, problem=f"no Parquet that can be read: {error}")
        return
    start, rows, first = 0, 0, 1
    for group in range(footer.num_row_groups):
        rows += footer.row_group(group).num_rows
        if rows >= sizes.parquet_rows or group == footer.num_row_groups - 1:
            yield replace(whole, start=start, stop=group + 1, first=first)
            start, first, rows = group + 1, first + rows, 0


SPLITTERS: Mapping[Format, Callable[[Any, Split, int, SplitSizes], Iterator[Split]]] = {
    "lines": _of_lines,
    "csv": _whole_file,
    "parquet": _of_parquet,
}
"""How a file of each format is split. `kindcast.spark_jobs.reading.READERS` has the readers."""
