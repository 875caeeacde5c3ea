"""Requests that the library schemathesis makes from our OpenAPI document, good and bad; every answer must be what the
document says, and no request may make the server fail.

    /openapi.json ──▶ schemathesis ──requests──▶ a server with a vocabulary, subscriptions and events
                            └── all its checks: status, content type, schema, headers, methods, bad data refused …
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.campaigns.campaign import Outcome, Told
from tests.harness.server_thread import running_app

__all__ = ["ABOUT", "add_options", "judged", "run"]

ABOUT = "requests made from the OpenAPI document: every answer is as it says, and nothing breaks the server"
ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
PHASES = "examples,coverage,fuzzing"
SHOWN = 20_000
"""Characters of what the library said of failures that are kept."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many requests."""
    parser.add_argument("--examples", type=int, default=100, help="requests of the fuzzing phase for each operation")


def run(options: Any, told: Told) -> Outcome:
    """One run of the library."""
    told(0, 1, "requests are being made")
    with tempfile.TemporaryDirectory() as folder:
        status, said = judged(Path(folder), options.seed, options.examples)
    told(1, 1, "done")
    counted = re.search(r"(\d[\d,]*) generated", said)
    summary = f"{counted[1] if counted else 'no'} requests to {_operations(said)} operations"
    if not status:
        return Outcome(f"{summary}: all answers as the document says")
    return Outcome(f"{summary}: failures", [said[-SHOWN:]])


def judged(folder: Path, seed: int, examples: int, phases: str = PHASES) -> tuple[int, str]:
    """The status with which the library ended, and what it said."""
    with running_app(folder / "data") as address:
        _fill(address)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"]
        command += [f"{address}/openapi.json", "--phases", phases, "--checks", "all", "--continue-on-failure"]
        command += ["--max-examples", str(examples), "--seed", str(seed), "--no-color"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_CORE")}
        ran = subprocess.run(
            command,
            cwd=folder,
            env=environment | {"NO_PROXY": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        httpx.get(f"{address}/readyz", trust_env=False, timeout=60.0).raise_for_status()
    return ran.returncode, ran.stdout


def _fill(address: str) -> None:
    """Something for the requests to meet."""
    with httpx.Client(base_url=address, trust_env=False, timeout=60.0) as client:
        shop = (ROOT / "ontologies" / "shop.ttl").read_bytes()
        turtle = {"Content-Type": "text/turtle"}
        client.put("/v1/ontologies/shop", content=shop, headers=turtle).raise_for_status()
        client.post("/v1/subscriptions", json={"expression": "target isa Computer"}).raise_for_status()
        client.post("/v1/events", json={"target": "laptop", "price": 350}).raise_for_status()


def _operations(said: str) -> str:
    found = re.search(r"Tested: (\d+)", said)
    return found[1] if found else "no"
