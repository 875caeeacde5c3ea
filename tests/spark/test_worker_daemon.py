"""The daemon whose forks are the Python workers of a session on one machine."""

import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs import worker_daemon


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


def test_archive_of_another_pyspark_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution of Spark has its own, which the workers must use."""
    own = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    other = tmp_path / "python" / "lib" / "pyspark.zip"
    assert worker_daemon.is_copy(own)
    assert not worker_daemon.is_copy(other)
    assert not worker_daemon.is_copy(own.with_name("py4j-src.zip"))
    monkeypatch.setattr("sys.path", [str(own)])
    assert not worker_daemon.is_copy(own)  # nothing else is there
