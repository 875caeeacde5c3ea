"""Archives and their splits: the byte ranges or row groups of files, each read by one task.

    lines (JSON), plain      ranges of bytes that begin and end with a line     one pass more to number the lines
    lines, gzip; CSV         whole files: they cannot be entered in the middle
    Parquet                  ranges of row groups

Files below the named folder are read in order. Names that begin with `_` or `.` are skipped. Every file system that
pyarrow supports can be used (a path, or s3://, gs://, hdfs://).
"""

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from kindcast.spark_jobs.report import NoArchive

__all__ = ["Format", "Split", "check_archive", "file_system", "lines_in", "numbered", "splits_of"]

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
UNOPENABLE = "{} cannot be opened as a file: remove it from the archive"
SPARK_S3 = frozenset({"s3a", "s3n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a file: bytes of lines, row groups of Parquet, or all of it (`stop` 0). `first` is the number of its
    first line or row, from 1; `parts` are the `name=value` folders that it lies in; `stamp` changes when the file does.
    """

    path: str
    """Absolute, or a URI: every worker opens it, in whatever folder it runs."""
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
        return self.name.endswith(".gz")

    def open(self) -> Any:
        """The file, to be read at any place in it. Raises `OSError`, which names the file."""
        system, path = file_system(self.path)
        return system.open_input_file(path)


def file_system(place: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path on it. `s3a://` and `s3n://` are Spark's names of `s3://`."""
    if "://" in place:
        scheme, _, rest = place.partition("://")
        system, path = pa.fs.FileSystem.from_uri(f"{'s3' if scheme in SPARK_S3 else scheme}://{rest}")
        return system, path
    return pa.fs.LocalFileSystem(), os.path.abspath(place)


def _path_of(place: str, root: str, path: str) -> str:
    """The path or URI of a file at `path` below `root`, the path of `place`."""
    if "://" not in place:
        return path
    uri, mark, query = place.partition("?")
    return f"{uri.rstrip('/')}{quote(path[len(root.rstrip('/')) :])}{mark}{query}"


def splits_of(place: str, *, split_bytes: int = SPLIT_BYTES, split_rows: int = SPLIT_ROWS) -> list[Split]:
    """The splits of an archive, a file or a folder. Looks at sizes, line ends at the borders, and Parquet's footers.

    Lines after the first split of a file are not numbered yet (`first` is 0): see `numbered`. Raises `NoArchive`, and
    `OSError` for a file that cannot be opened.
    """
    root, files = _files_of(place)
    if "://" not in place:
        _check_links(root)
    sizes = SplitSizes(split_bytes, split_rows)
    splits = [split for file in files for split in _of_file(place, root, file, sizes)]
    if not splits:
        raise _nothing_in(place)
    return splits


def check_archive(place: str) -> None:
    """Before anything is started for it: whether there is something, by its names. Raises `NoArchive`."""
    _, files = _files_of(place)
    if not any(_format_of(file.path) for file in files):
        raise _nothing_in(place)


def _files_of(place: str) -> tuple[str, list[Any]]:
    """The root of an archive in its file system, and what is there. Raises `NoArchive`."""
    system, root = file_system(place)
    found = system.get_file_info(root)
    if found.type == pa.fs.FileType.NotFound:
        raise NoArchive(f"{place} does not exist")
    if found.is_file:
        return root, [found]
    below = system.get_file_info(pa.fs.FileSelector(root, recursive=True))
    return root, sorted((each for each in below if each.type != pa.fs.FileType.Directory), key=lambda each: each.path)


def _nothing_in(place: str) -> NoArchive:
    return NoArchive(
        f"{place} has no readable file; supported are {', '.join(EXTENSIONS)}, the first four also with .gz"
    )


def _format_of(path: str) -> Format | None:
    return EXTENSIONS.get(posixpath.splitext(path.removesuffix(".gz"))[1].lower())


def _check_links(root: str) -> None:
    """Arrow passes by links that lead nowhere, without a word."""
    for folder, _, names in os.walk(root):
        for path in (posixpath.join(folder, name) for name in names):
            if os.path.islink(path) and not os.path.exists(path):
                raise NoArchive(UNOPENABLE.format(path))


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
    name = posixpath.relpath(file.path, root) if file.path != root else posixpath.basename(file.path)
    if any(part.startswith(("_", ".")) for part in name.split("/")):
        return
    format = _format_of(file.path)
    if format is None:
        return
    if not file.is_file:  # a pipe, for one
        raise NoArchive(UNOPENABLE.format(file.path))
    folders = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
    parts = tuple((key, unquote(value)) for key, _, value in folders)
    path = _path_of(place, root, file.path)
    whole = Split(path=path, name=name, format=format, parts=parts, stamp=f"{file.size}-{file.mtime_ns}")
    yield from SPLITTERS[format](whole, file.size, sizes)


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The size of one split: bytes of lines, rows of Parquet."""

    lines_bytes: int
    parquet_rows: int


def _whole_file(whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    yield whole


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


def _of_parquet(whole: Split, size: int, sizes: SplitSizes) -> Iterator[Split]:
    with whole.open() as file:
        try:
            footer = pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            yield replace(whole, problem=f"this is not readable Parquet: {error}")
            return
    start, rows, first = 0, 0, 1
    for group in range(footer.num_row_groups):
        rows += footer.row_group(group).num_rows
        if rows >= sizes.parquet_rows or group == footer.num_row_groups - 1:
            yield replace(whole, start=start, stop=group + 1, first=first)
            start, first, rows = group + 1, first + rows, 0


SPLITTERS: Mapping[Format, Callable[[Split, int, SplitSizes], Iterator[Split]]] = {
    "lines": _of_lines,
    "csv": _whole_file,
    "parquet": _of_parquet,
}
"""How a file of each format is split. `kindcast.spark_jobs.reading.READERS` has the readers."""
