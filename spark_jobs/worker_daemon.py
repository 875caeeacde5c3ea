"""The process whose forks are Spark's Python workers on this machine: it has imported what the jobs use, and
loaded the kernels.

Spark's own daemon imports nothing, so every worker of every job would do both. The reason is that an import
may start threads, and a lock that a thread holds at a fork stays locked in the new process. Two of the libraries that
we import start threads. OpenBLAS, which our jobs do not use, is told to start none. jemalloc, a part of Arrow, prepares
for forks itself.
"""

import gc
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["is_copy", "run"]


def run() -> None:
    """Starts workers for Spark until it ends this process."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path[:] = [each for each in sys.path if not is_copy(Path(each))]
    gc.disable()
    import pandas  # noqa: F401
    import pyspark.daemon
    import pyspark.worker

    from kindcast.semantic.matching import warm_up
    from kindcast.spark_jobs import learn, normalise, stream  # noqa: F401

    warm_up()
    sys.path_importer_cache.clear()  # otherwise each worker reads the directories of Spark's archives again
    gc.freeze()  # until a worker opens a snapshot, its collections do not visit what all workers share
    gc.enable()
    pyspark.daemon.manager()


def is_copy(archive: Path) -> bool:
    """Whether this is the archive of modules in the installed package pyspark. They are the same, but Python would
    compile them in every process, because an archive has no bytecode."""
    if archive.name != "pyspark.zip":
        return False
    others = [each for each in sys.path if each != str(archive)]
    found = PathFinder.find_spec("pyspark", others)
    return found is not None and found.origin == str(archive.parents[2] / "__init__.py")


if __name__ == "__main__":
    run()
