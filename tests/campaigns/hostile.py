"""Hostile documents in full size: graphs of up to a million statements, of which `make test` reads a twentieth."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import Outcome, Told

__all__ = ["ABOUT", "add_options", "run"]

ABOUT = "hostile documents in full size cost bounded time and memory; nothing is random"
ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/integration/test_hostile_documents.py"
SHOWN = 4_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(options: Any, told: Told) -> Outcome:
    """All of them once."""
    environment = {**os.environ, "KINDCAST_HOSTILE_WHOLE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    told(1, 1, "read")
    summary = ran.stdout.strip().rpartition("\n")[2]
    return Outcome(f"documents in full size: {summary}", [ran.stdout[-SHOWN:]] if ran.returncode else [])
