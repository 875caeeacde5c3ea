"""What a campaign is: a name, its options, a run that says how far it is, and a line that is kept of it.

A campaign is a module of this package with `ABOUT` (one sentence), `add_options(parser)` and `run(options, told) ->
Outcome`. It draws everything from `options.seed`, so that the same line of command does the same again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = ["ROOT", "SHOWN", "STATE", "Campaign", "Outcome", "Told", "another_seed", "bar", "part_of_test"]

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "campaigns"
"""Where a run that was broken off left what it had, and failures their examples."""
SHOWN = 4_000
"""How many characters of what pytest said are shown."""

Told = Callable[[float, float, str], None]
"""Told how much is done, of how much, and a word on it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`summary` is what is kept of the run: counts in words. `failures`: what went wrong, each with how to see it
    again. `kept`: whether it is a run of its own, and no look at a part of one."""

    summary: str
    failures: list[str] = field(default_factory=list)
    kept: bool = True


class Campaign(Protocol):
    """What a module of this package has."""

    ABOUT: str

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: Any, told: Told) -> Outcome: ...


def bar() -> Told:
    """A bar on the terminal; in a pipe a line every half minute."""
    began, shown = time.monotonic(), [0.0]
    terminal = sys.stderr.isatty()

    def told(done: float, total: float, word: str) -> None:
        now = time.monotonic()
        if now - shown[0] < (0.2 if terminal else 30.0) and done < total:
            return
        shown[0] = now
        share = done / total if total else 1.0
        left = (now - began) / share * (1 - share) if share else float("nan")
        filled = "█" * int(30 * share) + "·" * (30 - int(30 * share))
        line = f"{filled} {share:6.1%}  {word}  {now - began:,.0f} s, some {left:,.0f} s left"
        sys.stderr.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        if terminal and done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()

    return told


def another_seed() -> int:
    """Of a run that was not told one."""
    return int.from_bytes(os.urandom(4), "big") % 1_000_000


def part_of_test(folder: Path, test: str, variables: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """Runs a test with these environment variables. Returns the end of what pytest said if it failed, and the counts
    that the test prints in a line `done: {…}`. The test keeps its files in `folder`, which stays after a failure."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", "-o", "faulthandler_timeout=0", test]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False)
    done = [line for line in ran.stdout.splitlines() if line.startswith("done: ")]
    counted = json.loads(done[-1].removeprefix("done: ")) if done else {}
    if ran.returncode == 0 and done:
        shutil.rmtree(folder, ignore_errors=True)
        return "", counted
    (folder / "pytest.log").write_text(ran.stdout + ran.stderr, encoding="utf-8")
    return f"{ran.stdout[-SHOWN:]}\nlogs: {folder}", counted
