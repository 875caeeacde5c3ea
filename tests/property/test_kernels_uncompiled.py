"""The kernels as they are written, without the compiler: the same tests hold, and coverage sees their lines."""

import os
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

SAMPLE = (
    "index/test_ctps_errata.py",
    "index/test_engines.py",
    "index/test_fused.py::test_fused_over_random_clauses_finds_what_naive_finds",
    "index/test_dexin_errata.py",
    "index/test_fused_results.py",
    "index/test_fused_scattered.py::test_scattered_rows_are_found_as_by_the_plain_twin[64]",
    "index/test_fused_sharing.py",
    "index/test_fused_single.py::test_single_event_gives_the_rows_of_a_batch_in_order[8]",
    "index/test_le_subscribe.py",
    "semantic/planner",
)
"""Tests that reach most kernels with few rows. Integers of NumPy wrap where those of kernels do, and say so."""


@pytest.mark.slow
def test_kernels_that_are_not_compiled_pass_the_same_tests(repository: Path) -> None:
    """A process of its own, since numba looks at the environment once. Its coverage is combined with ours."""
    measured = coverage.Coverage.current()
    if measured is None:
        pytest.skip("`make coverage` runs these tests without the compiler")
    data = str(Path(measured.get_option("run:data_file")).absolute())
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "COVERAGE_FILE": data}
    program = ("coverage", "run", "--parallel-mode", "-m", "pytest")
    plugins = ("-p", "no:cov", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning")
    tests = [str(Path(__file__).parents[1] / "unit" / each) for each in SAMPLE]
    done = subprocess.run(
        [sys.executable, "-m", *program, "-q", *plugins, *tests],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
