"""The generated tests with other examples each time: in rounds, for as long as there is time.

A round is one run of pytest over the tests of properties under the profile `fuzz`, with a seed of its own; what fails
says the seed of its round, and Hypothesis prints how to see it again.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import Outcome, Told

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "every generated test with examples that were never drawn before"
ROOT = Path(__file__).resolve().parents[2]
SHOWN = 4_000
"""Characters of a failed round that are kept."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """How long, and what."""
    parser.add_argument("--minutes", type=float, default=60.0, help="no further round after so many")
    parser.add_argument("--rounds", type=int, default=1_000, help="and no more than so many")
    parser.add_argument(
        "--tests", default="tests/property tests/spark/test_random_archives.py", help="what pytest is given"
    )


def run(options: Any, told: Told) -> Outcome:
    """Rounds until the time is over."""
    began, done, failures = time.monotonic(), 0, []
    while done < options.rounds and (spent := (time.monotonic() - began) / 60) < options.minutes:
        told(max(spent, 1e-9), options.minutes, f"{done} rounds, {len(failures)} failed")
        number = options.seed + done
        problem = round_of(number, options.tests.split())
        if problem:
            failures.append(f"round with seed {number}:\n{problem}")
        done += 1
    told(1, 1, f"{done} rounds, {len(failures)} failed")
    return Outcome(f"{done} rounds of {options.tests}: {len(failures)} failed", failures)


def round_of(number: int, tests: list[str]) -> str:
    """One round; the end of what pytest said where it failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", f"--hypothesis-seed={number}", *tests]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "fuzz"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout[-SHOWN:] if ran.returncode else ""
