"""A real standalone cluster of Spark on this machine: a master and workers of one core and 1 GB each."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

__all__ = ["environment_of_a_cluster", "spark_cluster"]

DEPLOY = "org.apache.spark.deploy"
LONGEST = 120.0
"""Seconds that a process may take to be ready beside other work."""


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """The address of the master, as `spark://127.0.0.1:PORT`. Ports are free ones. The workers' folders and the logs
    are in `folder`. Raises `TimeoutError` with the log of a process that is not ready in time."""
    with ExitStack() as processes:
        master = folder / "master.log"
        _start(processes, master, f"{DEPLOY}.master.Master", "--port", "0")
        address = _found(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            log, place = folder / f"worker-{number}.log", folder / f"worker-{number}"
            size = ("--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(place))
            _start(processes, log, f"{DEPLOY}.worker.Worker", *size, address)
            _found(log, r"(Successfully registered) with master")
        yield address


def environment_of_a_cluster() -> dict[str, str]:
    """For its processes and drivers: without what a session of this process has set, with the modules of tests, and
    with logs that say more than errors."""
    ours = ("SPARK_", "PYSPARK_", "LOG4J_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours) or name == "SPARK_CONF_DIR"}
    modules = os.pathsep.join([str(Path(__file__).parents[2]), kept.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": modules, "SPARK_LOCAL_IP": "127.0.0.1"}


def _start(processes: ExitStack, log: Path, name: str, *given: str) -> None:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), name]
    environment = {**environment_of_a_cluster(), "SPARK_NO_DAEMONIZE": "1"}
    with log.open("w") as file:
        local = ("--host", "127.0.0.1", "--webui-port", "0")
        child = subprocess.Popen([*command, *local, *given], stdout=file, stderr=file, env=environment)
    processes.callback(child.wait)
    processes.callback(child.terminate)


def _found(log: Path, pattern: str) -> str:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        said = re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))
        if said:
            return said[1]
        time.sleep(0.1)
    raise TimeoutError(f"{log.name}: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
