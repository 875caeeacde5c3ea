"""Units of work as Spark tasks: each reads its part of the archive and writes its own files. Spark schedules and
retries them. Units that are done are not run again.
"""

import hashlib
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from kindcast.spark_jobs.archive import Split, lines_in, numbered
from kindcast.spark_jobs.errors import JobFailed
from kindcast.spark_jobs.event_batch import Rejected
from kindcast.spark_jobs.output import Done, Output, UnitWriter
from kindcast.spark_jobs.progress import Progress
from kindcast.spark_jobs.schemas import QUARANTINE
from kindcast.spark_jobs.workers import settle

__all__ = ["Work", "by_day", "number_lines", "rejected_rows", "run_tasks", "run_units", "unit_name"]

Work = Callable[[UnitWriter], Mapping[str, float]]
"""Writes the files of a unit and returns what it counted."""

POLL_SECONDS = 0.2
WORST_FIRST = 400
"""Characters of a failure that are told: the last lines of Python's, which name it."""


def unit_name(kind: str, split: Split, *parts: Any) -> str:
    """The name of a unit: another one whenever it would write something else."""
    told = {name: value for name, value in asdict(split).items() if name != "path"}
    return hashlib.sha256(repr((kind, sorted(told.items()), parts)).encode()).hexdigest()[:20]


def number_lines(session: SparkSession, splits: Sequence[Split], progress: Progress) -> list[Split]:
    """The splits with their first lines. One pass over those files that have several splits; none if there are no
    such."""
    several = {split.path for split in splits if split.first == 0}
    if not several:
        return list(splits)
    asked = [split for split in splits if split.path in several and split.stop]
    counts = iter(run_tasks(session, asked, lines_in, "number", progress))
    return numbered(splits, [next(counts) if split.path in several and split.stop else 0 for split in splits])


def run_units(
    session: SparkSession, output: Output, units: Sequence[tuple[str, Work]], stage: str, progress: Progress
) -> list[Done]:
    """Do what is not done yet, in this order; returns all. The output must be locked. Raises `JobFailed`."""
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


def run_tasks(
    session: SparkSession,
    items: Sequence[Any],
    function: Callable[[Any], Any],
    stage: str,
    progress: Progress,
    *,
    before: int = 0,
) -> list[Any]:
    """`function` of each item, one task each, in order; reports progress meanwhile. Raises `JobFailed`."""
    total = before + len(items)
    progress(stage, before, total)
    if not items:
        return []
    context = session.sparkContext
    group = f"kindcast-{stage}-{time.time_ns()}"
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(POLL_SECONDS):
            stages = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            infos = [tracker.getStageInfo(number) for info in stages if info for number in info.stageIds]
            progress(stage, before + sum(info.numCompletedTasks for info in infos if info), total)

    def task(item: Any) -> Any:
        found = function(item)
        settle()
        return found

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        context.setJobGroup(group, stage)
        found: list[Any] = context.parallelize(items, len(items)).map(task).collect()
    except Exception as error:
        raise JobFailed(f"the job failed at {stage!r}: {_worst(error)}; run it again to carry on") from error
    finally:
        ended.set()
        watching.join()
        context.setLocalProperty("spark.jobGroup.id", "")
    progress(stage, total, total)
    return found


def _worst(error: Exception) -> str:
    """What a worker said last before it failed."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback", "Caused by", "..."))]
    python = [line for line in said if "Error: " in line or "Exception: " in line]
    return (python or said or [type(error).__name__])[0][:WORST_FIRST]


def by_day(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """The rows of each day, in their order, with the folder that they belong to; the column `day` is in its name."""
    days = table["day"].combine_chunks().dictionary_encode()
    rest = table.drop_columns(["day"])
    names = days.dictionary.to_pylist()
    if len(names) == 1:
        return [(f"day={names[0]}", rest)]
    return [(f"day={name}", rest.filter(pc.equal(days.indices, number))) for number, name in enumerate(names)]


def rejected_rows(rejected: Sequence[Rejected]) -> pa.Table:
    """`schemas.QUARANTINE`."""
    return pa.Table.from_pylist([each.row() for each in rejected], QUARANTINE)
