"""Atomic output folders: units of work are staged one by one, then published day by day.

    OUTPUT/day=2026-01-31/part-<unit>.parquet      what readers see (Spark and pyarrow pass by names that begin with _)
    OUTPUT/_quarantine/part-<unit>.parquet         what could not be read
    OUTPUT/_kindcast/staged/<unit>/                a unit that is done: its files and `unit.json`, renamed in as one
    OUTPUT/_kindcast/journal.json                  what is being put in place; a crash is carried on from here
    OUTPUT/_kindcast/committed.json                what is in place

A unit is named by a digest of all its inputs (the part of the file, its stamp, the subscriptions, the options), so a
second run repeats only what changed. A day is swapped in by renaming its folder. Needs a file system with atomic
renames: a local one, NFS and the like; not an object store.
"""

import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kindcast.spark_jobs.event_batch import QUARANTINE, Rejected
from kindcast.spark_jobs.reading import Split, lines_in, numbered
from kindcast.spark_jobs.report import JobFailed, Progress, UnusableOutput
from kindcast.spark_jobs.snapshot import settle

__all__ = [
    "OWN",
    "QUARANTINED",
    "Done",
    "Output",
    "UnitWriter",
    "Work",
    "by_day",
    "number_lines",
    "parquet_writer",
    "quarantine_reasons",
    "rejected_rows",
    "run_tasks",
    "run_units",
    "sum_of",
    "sync",
    "tasks_for",
    "unit_name",
    "worst_of",
]


# How jobs write Parquet: repeated texts are dictionary-encoded, and only statistics that help readers are written.
#
# The dictionary of subscription ids is written once per row group, so row groups are large. The minimum and maximum id
# would help no reader, and computing them would take as long as the rest of writing.

DICTIONARY_BYTES = 64 << 20
"""Of the ids in one row group; beyond, Parquet would write each id out."""


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Opens a Parquet writer for rows of `schema`."""
    told = [field.name for field in schema if not pa.types.is_dictionary(field.type) and field.type.num_fields == 0]
    return pq.ParquetWriter(
        path, schema, compression="zstd", dictionary_pagesize_limit=DICTIONARY_BYTES, write_statistics=told or False
    )


def weight(table: pa.Table) -> int:
    """Returns the size of a table in bytes, without dictionaries, because many tables share them."""
    return sum(_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _bytes(array: Any) -> int:
    if pa.types.is_dictionary(array.type):
        return int(array.indices.nbytes)
    if pa.types.is_list(array.type):
        return 4 * len(array) + _bytes(array.flatten())
    return int(array.nbytes)


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────────

OWN = "_kindcast"
QUARANTINED = "_quarantine"
"""The folder of the rows that are not events."""
ROW_GROUP_BYTES = 64 << 20
"""Of the rows that are held back and written together: the dictionary of ids is written once for them."""
OPEN_FILES = 64
"""Days that one unit writes at the same time."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished unit: the folders that it wrote into, and its counts."""

    unit: str
    folders: tuple[str, ...]
    counts: Mapping[str, float] = field(default_factory=dict)


def sum_of(done: Iterable[Done], name: str) -> int:
    """Returns the sum of one count of all units."""
    return int(sum(each.counts.get(name, 0) for each in done))


class UnitWriter:
    """Writes the files of one unit. Readers do not see them before `finish`."""

    def __init__(self, output: Path, unit: str) -> None:
        self._unit = unit
        self._staged = output / OWN / "staged"
        self._folder = self._staged / f"{unit}.{uuid.uuid4().hex[:8]}"
        self._folder.mkdir(parents=True)
        self._open: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.Table]] = {}
        self._held: dict[str, int] = {}
        self._known: list[str] = []

    def write(self, folder: str, table: pa.Table) -> None:
        """Adds rows to the file in `folder`. Rows are buffered until there are enough for a row group."""
        self._waiting.setdefault(folder, []).append(table)
        self._held[folder] = self._held.get(folder, 0) + weight(table)
        if sum(self._held.values()) >= ROW_GROUP_BYTES:
            self._flush(max(self._held, key=self._held.__getitem__))

    def finish(self, counts: Mapping[str, float]) -> Done:
        """Closes the files and makes all of them visible in one step."""
        for folder in list(self._waiting):
            self._flush(folder)
        for writer in self._open.values():
            writer.close()
        done = Done(self._unit, tuple(sorted(set(self._known))), dict(counts))
        for path in self._folder.rglob("*.parquet"):
            sync(path)
        _write_json(self._folder / "unit.json", {"folders": done.folders, "counts": done.counts})
        try:
            self._folder.rename(self._staged / self._unit)
        except OSError:  # another attempt was quicker: its files are the same
            shutil.rmtree(self._folder, ignore_errors=True)
            if not (self._staged / self._unit).is_dir():
                raise
        return done

    def abandon(self) -> None:
        """Discards the files of this unit."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _flush(self, folder: str) -> None:
        del self._held[folder]
        table = pa.concat_tables(self._waiting.pop(folder))
        if not len(table):
            return
        if folder not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            number = self._known.count(folder)
            path = self._folder / folder
            path.mkdir(exist_ok=True)
            name = f"part-{self._unit}{f'-{number}' if number else ''}.parquet"
            self._open[folder] = parquet_writer(path / name, table.schema)
            self._known.append(folder)
        self._open[folder].write_table(table, row_group_size=len(table))


class Output:
    """The output folder of a job, on the driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # workers run in folders of their own
        self._own = self.folder / OWN
        self._staged = self._own / "staged"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the output folder, so that only one job uses it. Raises `UnusableOutput`."""
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            lock = (self._own / "lock").open("w")
        except OSError as error:
            raise UnusableOutput(f"{self.folder} cannot be written: {error}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UnusableOutput(
                    f"another job is writing {self.folder}: wait for it, or name another folder"
                ) from None
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the output folder like `held`. After a crash, an incomplete publication is finished, and half-written
        files are removed. Raises `UnusableOutput`, also if the folder has days that no job wrote: they would be
        replaced."""
        with self.held():
            self._carry_on()
            self._check_days()
            yield

    def own(self, name: str) -> Path:
        """Returns a folder for the internal files of a job."""
        return self._own / name

    def done(self) -> dict[str, Done]:
        """Returns the finished units, published or staged. They need not run again."""
        found = {unit: Done(unit, tuple(said["folders"]), said["counts"]) for unit, said in self._committed().items()}
        for path in self._staged.iterdir():
            if "." not in path.name:
                said = json.loads((path / "unit.json").read_text(encoding="utf-8"))
                found[path.name] = Done(path.name, tuple(said["folders"]), said["counts"])
        return found

    def commit(self, units: Iterable[Done]) -> None:
        """Publishes the files of these units and removes all others from the folder."""
        wanted = {each.unit: {"folders": list(each.folders), "counts": dict(each.counts)} for each in units}
        _write_json(self._own / "journal.json", wanted)
        self._carry_on()

    def staged(self, unit: str, folder: str) -> list[Path]:
        """Returns the files that a staged unit wrote into `folder`, in order."""
        return sorted((self._staged / unit / folder).glob("part-*.parquet"))

    # ── putting in place ────────────────────────────────────────────────────────────────────────────────────────

    def _carry_on(self) -> None:
        self._staged.mkdir(exist_ok=True)
        journal = self._own / "journal.json"
        if journal.exists():
            self._put_in_place(json.loads(journal.read_text(encoding="utf-8")))
            journal.replace(self._own / "committed.json")
            sync(self._own)
            self._staged.rename(self._own / "discarded")  # in one step: half a unit must not be taken for one
            self._staged.mkdir()
        for name in ("building", "old", "discarded"):
            shutil.rmtree(self._own / name, ignore_errors=True)
        for path in self._staged.glob("*.*"):
            self._discard(path)

    def _check_days(self) -> None:
        """Raises `UnusableOutput` if there are days that are not from a job with this output."""
        ours = {folder for said in self._committed().values() for folder in said["folders"]}
        for path in sorted(self.folder.glob("day=*")):
            if path.name not in ours and path.is_dir() and any(path.iterdir()):
                raise UnusableOutput(f"{path} was not written by this job, which would replace it: name another folder")

    def _discard(self, unfinished: Path) -> None:
        """Deletes an unfinished unit. The folder is moved away first: a worker that outlives its job may finish the
        unit at this moment, and a half-deleted unit must not be taken for a finished one."""
        gone = self._own / "discarded"
        gone.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # it has just been finished
            unfinished.rename(gone / unfinished.name)
        shutil.rmtree(gone, ignore_errors=True)

    def _put_in_place(self, wanted: Mapping[str, Any]) -> None:
        by_folder: dict[str, set[str]] = {}
        for unit, said in wanted.items():
            for folder in said["folders"]:
                by_folder.setdefault(folder, set()).add(unit)
        there = {path.name for path in self.folder.iterdir() if path.is_dir() and path.name != OWN}
        ours = {folder for said in self._committed().values() for folder in said["folders"]}
        for folder, units in sorted(by_folder.items()):
            self._swap(folder, units)
        for folder in (there & ours) - by_folder.keys():
            self._set_aside(folder)

    def _swap(self, folder: str, units: set[str]) -> None:
        """Replaces the contents of `folder` by the files of `units`. Can be repeated after a crash at any point."""
        place, old = self.folder / folder, self._own / "old" / folder
        if place.is_dir() and {_unit_of(path) for path in place.glob("*.parquet")} == units:
            return
        building = self._own / "building" / folder
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        for unit in sorted(units):
            homes = (self._staged / unit / folder, place, old)
            files = next((found for home in homes if (found := sorted(home.glob(f"part-{unit}*.parquet")))), [])
            if not files:
                raise UnusableOutput(f"a file of {place} is missing: remove {self.folder} and run again")
            for path in files:
                _link(path, building / path.name)
        if place.is_dir():
            self._set_aside(folder)
        building.rename(place)
        sync(self.folder)

    def _set_aside(self, folder: str) -> None:
        """Moves `folder` away in one step, so that no reader sees a part of it."""
        old = self._own / "old" / folder
        if old.is_dir():
            shutil.rmtree(old)
        old.parent.mkdir(exist_ok=True)
        (self.folder / folder).rename(old)

    def _committed(self) -> dict[str, Any]:
        path = self._own / "committed.json"
        if not path.exists():
            return {}
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def _unit_of(path: Path) -> str:
    return path.stem.removeprefix("part-").partition("-")[0]


def _link(source: Path, target: Path) -> None:
    """Links `target` to the file `source`. Copies the file if the file system does not support links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        sync(target)


def _write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically and flushes it to disk."""
    writing = path.with_name(f".{path.name}.{os.getpid()}")
    writing.write_text(json.dumps(value), encoding="utf-8")
    sync(writing)
    writing.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Units of work as Spark tasks: each reads its part of the archive and writes its own files. Spark schedules and
# retries them. Units that are done are not run again.

Work = Callable[[UnitWriter], Mapping[str, float]]
"""A function that writes the files of a unit and returns its counts."""

POLL_SECONDS = 0.2
MOST_TASKS = 512
"""Up to so many units, each is a task of its own. Beyond, a task has several: starting one takes longer than the work
on a file of a few events."""
TASKS_OF_A_CORE = 16
"""On a large cluster there are at least so many tasks for each core, so that all cores end at about the same time."""
OWN_ERROR = re.compile(r"kindcast\.[\w.]+: ")
FAILURE = re.compile(r"(?!py4j\.).*(Error|Exception): .*[^:]$")
"""A line that names an error. That of py4j says only that Java failed, and the next one why."""
WORST_FIRST = 400
"""Characters of a failure that are told: the last lines of Python's, which name it."""


def unit_name(kind: str, split: Split, *parts: Any) -> str:
    """Returns the name of a unit: a digest of its inputs, which changes whenever the output of the unit would
    change."""
    told = {name: value for name, value in asdict(split).items() if name != "path"}
    return hashlib.sha256(repr((kind, sorted(told.items()), parts)).encode()).hexdigest()[:20]


def number_lines(session: SparkSession, splits: Sequence[Split], progress: Progress) -> list[Split]:
    """Returns the splits with the numbers of their first lines. Reads once the files that have several splits, and no
    others."""
    several = {split.path for split in splits if split.first == 0}
    if not several:
        return list(splits)
    asked = [split for split in splits if split.path in several and split.stop]
    counts = iter(run_tasks(session, asked, lines_in, "number", progress))
    return numbered(splits, [next(counts) if split.path in several and split.stop else 0 for split in splits])


def run_units(
    session: SparkSession, output: Output, units: Sequence[tuple[str, Work]], stage: str, progress: Progress
) -> list[Done]:
    """Runs the units that are not finished, in this order; returns all units. The output must be locked. Raises
    `JobFailed`."""
    known = output.done()
    folder = output.folder

    def work(unit: tuple[str, Work]) -> Done:
        name, write = unit
        writer = UnitWriter(folder, name)
        began, cpu = time.perf_counter(), time.process_time()
        try:
            counts = dict(write(writer))
            counts["seconds"] = time.perf_counter() - began
            counts["cpu_seconds"] = time.process_time() - cpu
            counts["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            return writer.finish(counts)
        except BaseException:
            writer.abandon()
            raise

    missing = [unit for unit in units if unit[0] not in known]
    for done in run_tasks(session, missing, work, stage, progress, before=len(units) - len(missing)):
        known[done.unit] = done
    return [known[name] for name, _ in units]


def tasks_for(session: SparkSession, items: int) -> int:
    """Returns the number of tasks for so many units of work."""
    return min(items, max(MOST_TASKS, TASKS_OF_A_CORE * session.sparkContext.defaultParallelism))


def run_tasks(
    session: SparkSession,
    items: Sequence[Any],
    function: Callable[[Any], Any],
    stage: str,
    progress: Progress,
    *,
    before: int = 0,
) -> list[Any]:
    """Calls `function` on each item in tasks and returns the results in order. Reports progress. Raises `JobFailed`."""
    total = before + len(items)
    progress(stage, before, total)
    if not items:
        return []
    context = session.sparkContext
    tasks = tasks_for(session, len(items))
    group = f"kindcast-{stage}-{time.time_ns()}"
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(POLL_SECONDS):
            stages = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            infos = [tracker.getStageInfo(number) for info in stages if info for number in info.stageIds]
            completed = sum(info.numCompletedTasks for info in infos if info)
            progress(stage, before + completed * len(items) // tasks, total)

    def task(item: Any) -> Any:
        found = function(item)
        settle()
        return found

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        context.setJobGroup(group, stage)
        found: list[Any] = context.parallelize(items, tasks).map(task).collect()
    except Exception as error:
        raise JobFailed(f"the job failed at {stage!r}: {worst_of(error)}; run it again to continue") from error
    finally:
        ended.set()
        watching.join()
        context.setLocalProperty("spark.jobGroup.id", "")
    progress(stage, total, total)
    return found


def worst_of(error: Exception) -> str:
    """Returns what a worker said when it failed: our own error, or the first of Python's."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback", "Caused by", "..."))]
    own = [line.partition(": ")[2] for line in said if OWN_ERROR.match(line)]
    python = [line for line in said if FAILURE.match(line)]
    return (own or python or said or [type(error).__name__])[0].removeprefix(": ")[:WORST_FIRST]


def by_day(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Splits rows by day and keeps their order. Returns (folder, rows); the name of the folder replaces the column
    `day`."""
    days = table["day"].combine_chunks().dictionary_encode()
    rest = table.drop_columns(["day"])
    names = days.dictionary.to_pylist()
    if len(names) == 1:
        return [(f"day={names[0]}", rest)]
    return [(f"day={name}", rest.filter(pc.equal(days.indices, number))) for number, name in enumerate(names)]


def rejected_rows(rejected: Sequence[Rejected]) -> pa.Table:
    """Returns rejected events as rows of `event_batch.QUARANTINE`."""
    return pa.Table.from_pylist([each.row() for each in rejected], QUARANTINE)


REASONS = 5
"""Those that a summary shows, the most frequent first; the quarantine has all."""


def quarantine_reasons(output: Path) -> dict[str, int]:
    """Returns the number of quarantined events of an output, or of all batches of a stream, by reason; empty if there
    are none."""
    found: Counter[str] = Counter()
    for path in sorted([*output.glob(f"{QUARANTINED}/*.parquet"), *output.glob(f"batch=*/{QUARANTINED}/*.parquet")]):
        found.update(pq.read_table(path, columns=["reason"])["reason"].to_pylist())
    return dict(found.most_common(REASONS))
