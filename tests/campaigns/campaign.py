"""What a campaign is: a name, its options, a run that says how far it is, and a line that is kept of it.

A campaign is a module of this package with `ABOUT` (one sentence), `add_options(parser)` and `run(options, told) ->
Outcome`. It draws everything from `options.seed`, so that the same line of command does the same again.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = ["STATE", "Campaign", "Outcome", "Told", "another_seed", "bar"]

STATE = Path(__file__).resolve().parents[2] / "build" / "campaigns"
"""Where a run that was broken off left what it had, and failures their examples."""

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
