"""The Spark session: on this machine unless spark-submit says otherwise, quiet, and with options that fit our jobs.

Started by spark-submit, a job keeps the master and every option that it was given there.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_jobs.java import find_java

__all__ = ["BATCH_EVENTS", "spark_session"]

BATCH_EVENTS = 10_000
"""Events of one Arrow batch. The speed hardly depends on it (docs/scale.md has the table), the memory does: the matches
of a batch are in memory at one time."""
ATTEMPTS = 4
"""Of a task. Spark's own default on one machine is 1: a Python worker that is killed would end the job."""
DRIVER_MEMORY = "2g"
"""Of the Java process, which on one machine is driver and executor in one. Events pass it by or stream through."""
SHUFFLED_PARTS = "8"
"""Only names of events are ever shuffled, to find repeated ones: a stream would keep 200 stores of them for each batch,
Spark's own default. A stream keeps the number that it began with."""

OPTIONS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_EVENTS),
    "spark.python.worker.reuse": "true",  # what a worker has opened stays open from task to task
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a day is a text
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.enabled": "false",  # nothing of ours is shuffled, and the partitions are as they should be
}


def spark_session(
    name: str = "kindcast", *, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process; made if there is none, some six seconds. `master` as `local[2]`; all cores unless
    told. Raises `NoJava`."""
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
        java = find_java()
        if java is not None:
            os.environ["JAVA_HOME"] = str(java)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = master or "local[*]"
        if master.startswith("local[") and "," not in master:
            master = f"{master[:-1]},{ATTEMPTS}]"
        builder = builder.master(master).config("spark.sql.shuffle.partitions", SHUFFLED_PARTS)
        given = None
    else:
        SparkContext._ensure_initialized()  # else SparkConf knows nothing of what spark-submit was given
        given = SparkConf()
    for key, value in {**OPTIONS, **(options or {})}.items():
        if given is None or not given.contains(key):
            builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
