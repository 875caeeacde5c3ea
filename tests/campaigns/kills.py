"""Servers killed with SIGKILL, many times, with other choices each time: nothing that was promised is lost.

Each part is `tests/acceptance/test_kill.py`, and `test_kill_corrections.py` for the retractions of withdrawn events,
with a seed and so many kills each; the history of a failure is kept.
"""

import argparse
import os
import subprocess
import sys
from typing import Any

from tests.campaigns.campaign import ROOT, SHOWN, STATE, Outcome, Told

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "a server that is killed again and again loses and doubles nothing"
OF_ONE_PART = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """How often."""
    parser.add_argument("--kills", type=int, default=200, help=f"in all, in parts of {OF_ONE_PART}")


def run(options: Any, told: Told) -> Outcome:
    """Parts one after the other, each on a new data folder."""
    STATE.mkdir(parents=True, exist_ok=True)
    done, failures = 0, []
    for number in range(-(-options.kills // OF_ONE_PART)):
        told(done, options.kills, f"{done} kills, {len(failures)} parts failed")
        kills = min(OF_ONE_PART, options.kills - done)
        problem = part(options.seed + number, kills)
        if problem:
            failures.append(f"seed {options.seed + number}, {kills} kills:\n{problem}")
        done += kills
    told(done, options.kills, f"{done} kills, {len(failures)} parts failed")
    return Outcome(f"{done} kills: {len(failures)} of {number + 1} parts failed", failures)


def part(seed: int, kills: int) -> str:
    """The end of what pytest said where it failed."""
    environment = {
        **os.environ,
        "KINDCAST_KILL_ROUNDS": str(kills),
        "KINDCAST_KILL_SEED": str(seed),
        "KINDCAST_KILL_HISTORY": str(STATE),
    }
    tests = [f"tests/acceptance/{name}.py" for name in ("test_kill", "test_kill_corrections")]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "faulthandler_timeout=0", *tests]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout[-SHOWN:] if ran.returncode else ""
