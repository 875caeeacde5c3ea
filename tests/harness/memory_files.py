"""The temporary files of a run of tests in memory, where there is enough of it.

The tests create thousands of databases, and each commit waits for the disk. What they kill are processes, and files in
memory outlive these as files on a disk do.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["keep", "use"]

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 8 << 30
"""The least free memory: about three times what a whole run has in files at one time."""
PREFIX = f"kindcast-tests-{os.getuid()}-"


def use() -> None:
    """Makes a folder in memory, in which this process and those that it starts have their temporary files. It is
    deleted when this process exits. Does nothing if TMPDIR says where they are, if there is not enough memory, or if
    no program may be run from there, as in most containers."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    for folder in MEMORY.glob(f"{PREFIX}*"):
        process = folder.name.removeprefix(PREFIX)
        if process == str(os.getpid()) or not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)
    if min(_free(), shutil.disk_usage(MEMORY).free) < NEEDED_BYTES:
        return
    folder = MEMORY / f"{PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o711)  # PostgreSQL runs as another user if the tests run as root
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    tempfile.tempdir = None  # it may have looked already
    atexit.register(_forget, folder)


def keep() -> None:
    """Does not delete the files at the exit. The next run deletes them."""
    atexit.unregister(_forget)


def _forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _free() -> int:
    """Free memory in bytes."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (available,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(available) * 1_024
