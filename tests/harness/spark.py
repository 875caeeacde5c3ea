"""One Spark session for all tests: starting one takes seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs.report import NoJava
from kindcast.spark_jobs.session import spark_session

__all__ = ["running_spark"]


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A session on two cores; skips where there is no Java at all."""
    try:
        session = spark_session("kindcast-tests", master="local[2]", options={"spark.sql.shuffle.partitions": "2"})
    except NoJava as error:
        pytest.skip(str(error))
    session.sparkContext.setLogLevel("OFF")  # tests kill workers on purpose
    yield session
    session.stop()
