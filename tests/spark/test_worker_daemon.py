"""The daemon whose forks are the Python workers of a session on one machine."""

import gc
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from kindcast import Matcher
from kindcast.spark_jobs import worker_daemon
from kindcast.spark_jobs.snapshot import Snapshot, opened, settle, write_snapshot


def _seen(_: object) -> tuple[list[str], str]:
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    assert spec is not None
    return list(sys.modules), str(spec.origin)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers import for themselves")
def test_worker_has_what_jobs_use_and_the_installed_pyspark(spark: SparkSession) -> None:
    """It imports nothing of ours, and compiles no module of Spark's archive."""
    ((modules, origin),) = spark.sparkContext.parallelize([None], 1).map(_seen).collect()
    assert {"kindcast.spark_jobs.stream", "kindcast.spark_jobs.normalise", "numba", "pandas", "pyarrow"} <= set(modules)
    assert origin == pyspark.__file__


def _daemon(_: object) -> int:
    return os.getppid()


def _daemons(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"daemon": os.getppid()}])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers import for themselves")
def test_functions_of_rdds_and_of_data_frames_have_workers_of_one_daemon(spark: SparkSession) -> None:
    """A job that has both would otherwise import everything twice, and open its snapshot in twice as many workers."""
    rdds = spark.sparkContext.parallelize([None], 1).map(_daemon).collect()
    frames = spark.range(1).mapInArrow(_daemons, "daemon long").collect()
    assert rdds == [row["daemon"] for row in frames]


def _freed(snapshots: list[Snapshot]) -> list[bool]:
    """Whether a matcher is freed some time after the next one was opened, and whether it is freed when the task ends if
    opening the next one took long."""
    first, second, third = snapshots
    matcher = weakref.ref(opened(first, [0]).matchers[0])
    settle()
    gc.collect()
    assert matcher() is not None
    opened(second, [0])
    deadline = time.monotonic() + 120
    while matcher() is not None and time.monotonic() < deadline:
        settle()
        time.sleep(0.02)
    some_time_later, large = matcher() is None, weakref.ref(opened(second, [0]).matchers[0])
    open_matcher = Snapshot.matcher

    def open_slowly(*given: Any) -> Matcher:
        time.sleep(5.0)
        return open_matcher(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshot, "matcher", open_slowly)
        opened(third, [0])
    settle()
    return [some_time_later, large() is None]


def test_worker_frees_a_snapshot_after_it_opened_another(tmp_path: Path, spark: SparkSession) -> None:
    """Open snapshots are kept from the collector of garbage, and what they consist of refers to each other."""
    snapshots = [write_snapshot(tmp_path / name, [], [(name, f"{name} > 1")]) for name in ("a", "b", "c")]
    (freed,) = spark.sparkContext.parallelize([snapshots], 1).map(_freed).collect()
    assert freed == [True, True]


def test_archive_of_another_pyspark_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution of Spark has its own, which the workers must use."""
    own = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    other = tmp_path / "python" / "lib" / "pyspark.zip"
    assert worker_daemon.is_copy(own)
    assert not worker_daemon.is_copy(other)
    assert not worker_daemon.is_copy(own.with_name("py4j-src.zip"))
    monkeypatch.setattr("sys.path", [str(own)])
    assert not worker_daemon.is_copy(own)  # nothing else is there
