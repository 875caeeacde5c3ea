"""Fixtures and settings that every test shares.

The real ontologies and readings behind some tests are not part of the project. They are looked for in the folder that
the environment variable KINDCAST_TEST_DATA names, else in `shared/data` beside the checkout; where they are absent, the
tests that need them say so and skip.

Hypothesis has three profiles, chosen by HYPOTHESIS_PROFILE. `sample` (the default) draws the same few examples every
time, so that no run fails by chance; `fuzz` (of `make campaign fuzz`) draws others, and more of them; `deep` does so
for a long look at one property: HYPOTHESIS_PROFILE=deep pytest tests/property/test_engines.py.
"""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.harness.forked_process import share_template
from tests.harness.reading_once import reading_once
from tests.harness.trusted_once import trusted_once

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
collect_ignore_glob = ["fixtures/*"]  # scripts of earlier versions: they import what these had
DATA_MARK = "ontologies"  # a folder that is in the data whatever its version

JAVA_CLASSES = Path(sys.prefix, "classes-of-spark.jsa")
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In the tests Spark's Java runs for seconds. Its second compiler would take more time than it saves."""
os.environ.setdefault("SPARK_CONF_DIR", str(Path(sys.prefix, "no-configuration-of-spark")))
os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(ROOT / "kindcast" / "spark_jobs" / "conf" / "log4j2.properties"))
"""Java uses the file of classes only if no folder on its class path has files. So the folder of Spark's configuration
is one that does not exist, and our only configuration file is named directly."""
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    f"{JAVA_OPTIONS} -Xshare:auto -XX:SharedArchiveFile={JAVA_CLASSES} -Xlog:disable -Xlog:all=error:stderr",
)
"""Java maps the classes of Spark from this file if it is there and fits. Otherwise it loads them, without a message."""

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Python looks for cycles after 700 new objects by default. Hypothesis makes so many objects that this slowed its tests
down."""
gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)

# No deadlines: the machines that run this are shared, and no test asserts a time.
settings.register_profile(
    "fuzz", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("deep", parent=settings.get_profile("fuzz"), max_examples=5_000)
settings.register_profile(
    "sample", parent=settings.get_profile("fuzz"), derandomize=True, database=None, max_examples=10
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "sample"))


LONGEST_FIRST = ("spark", "acceptance", "console", "integration", "campaigns", "benchmarks", "property", "golden")
"""Folders of tests in the order of a parallel run: many short files come last, so that the workers end together."""


class FileScheduling(LoadScopeScheduling):
    """A file of tests runs in one worker, which makes its fixtures once; all tests of Spark do, in one session."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "spark" if path.startswith("tests/spark/") else path


WORKERS_PER_CORE = 2
"""Many tests wait for processes, brokers and clocks: with one worker a core, cores are idle. Unit tests do not wait."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means here, which is the default: folders are tested in several processes, and files and single
    tests in this one, which is as fast and can be debugged."""
    chosen = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    if not any(path.is_dir() for path in chosen):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if _only_unit_tests(config) else WORKERS_PER_CORE * cores


def _only_unit_tests(config: pytest.Config) -> bool:
    chosen = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return all(path.resolve().is_relative_to(TESTS / "unit") for path in chosen)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    """Our own: `--dist loadgroup` of xdist 3.8 does not group under pytest 9.2 (pytest-xdist issue 1386)."""
    return FileScheduling(config, log)


RUN_PUBLISHED_ENGINES = """
from kindcast.index.registry import ENGINES
from tests.benchmarks.experiments.kinds_engines import BATCH, measure
for engine in sorted(ENGINES.keys() - {"ctps", "fused", "naive"}):
    measure(engine=engine, n=100, events=2 * BATCH)
"""
RUN_PLANNERS = """
from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.planner.strategies import PLANNERS
operators = [operator(name)(lambda event: True) for name in ("one", "other")]
for planner in sorted(PLANNERS.keys()):
    matcher = Matcher(Vocabulary(), engine="naive", operators=operators, planner=planner)
    matcher.add_many([("a", "one() and other()"), ("b", "other() and not one()"), ("c", "n > 0 and other()")])
    matcher.match_batch(2 * [{"n": 1}])
"""


KEEP_JAVA_CLASSES = """
import os, sys, tempfile
from pathlib import Path
from pyspark.sql import SparkSession
kept, options = Path(sys.argv[1]), sys.argv[2]
with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
    made = Path(folder, "classes.jsa")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{options} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    frame = session.createDataFrame([(1, "a")], "a int, b string")
    frame.groupBy("b").count().write.parquet(f"{folder}/table")
    session.read.parquet(f"{folder}/table").collect()
    java = session.sparkContext._gateway.proc
    session.stop()
    java.stdin.close()
    java.wait()
    if made.exists():
        made.replace(kept)
"""


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Doctests are in the packages. Here they would only be looked for, in each process, and all modules imported."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the workers of a parallel run begin, the kernels of the default engine are compiled, once. Otherwise each
    of many servers would start a compiler, with the lowest priority, and run the kernels as Python until one of them is
    done. Those of published engines and of planners are needed later, and are compiled beside the first tests:
    otherwise several workers would compile them. The file of Spark's classes is made beside the first tests, too. The
    template of servers is that of all workers. Unit tests need little of this."""
    if getattr(session.config.option, "numprocesses", None) and not hasattr(session.config, "workerinput"):
        only_units = _only_unit_tests(session.config)
        with _keeping_bytecode():
            warm_up = "from kindcast.index.compilation import warm_up; warm_up()"
            subprocess.run([sys.executable, "-c", warm_up], cwd=ROOT, check=True)
        if only_units:
            return
        for program in (RUN_PUBLISHED_ENGINES, RUN_PLANNERS):
            _compiling.append(subprocess.Popen([sys.executable, "-c", program], cwd=ROOT))
        if not JAVA_CLASSES.exists() and shutil.which("java") is not None and find_spec("pyspark") is not None:
            keep = [sys.executable, "-c", KEEP_JAVA_CLASSES, str(JAVA_CLASSES), JAVA_OPTIONS]
            _keeping.append(subprocess.Popen(keep, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        share_template()


_compiling: "list[subprocess.Popen[bytes]]" = []
_keeping: "list[subprocess.Popen[bytes]]" = []


def pytest_sessionfinish() -> None:
    """Checks that the compilers beside the tests have ended without an error. Without the file of Spark's classes the
    tests only take longer."""
    assert [each.wait() for each in _compiling] == [0] * len(_compiling)
    for each in _keeping:
        each.wait()


@contextmanager
def _keeping_bytecode() -> Iterator[None]:
    """Imports all tests once meanwhile, if that was never done, so that Python keeps their bytecode. Otherwise each
    worker would compile all of them, and the libraries that they import."""
    if any(TESTS.glob("unit/**/*-pytest-*.pyc")) or sys.dont_write_bytecode:
        yield
        return
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]
    with subprocess.Popen(collect, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def pytest_collection_finish() -> None:
    """Imported modules stay until the end, so collections of garbage need not visit their objects."""
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of a parallel run the folders come in the order of `LONGEST_FIRST`, and slow files of a folder come
    first."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        items.sort(key=lambda item: (_rank(item.path), item.path not in slow))


def _rank(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session", autouse=True)
def _once() -> Iterator[None]:
    with reading_once(), trusted_once():
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real ontologies and events; skips where it is absent."""
    named = os.environ.get("KINDCAST_TEST_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (folder / DATA_MARK).is_dir():
        pytest.skip(f"no test data at {folder}: set KINDCAST_TEST_DATA to the folder with ontologies/ and events/")
    return folder
