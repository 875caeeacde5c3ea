"""Requests that the library schemathesis makes from our OpenAPI document, good and bad; every answer must be what the
document says, and no request may make the server fail.

    /openapi.json ──▶ schemathesis ──requests──▶ a server with a vocabulary, subscriptions and events
                            └── all its checks: status, content type, schema, headers, methods, bad data refused …
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
MADE = tuple(f"made{number}" for number in range(20))
"""Names that requests may delete."""
OF_KEYS = r"^/v1/keys/\{"
"""The routes that end keys. The library learns the ids of keys from answers, so it ends the one of its requests."""
SHARE_KNOWN = 0.7
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
    generated, tested = _sum(r"(\d[\d,]*) generated", said), _sum(r"Tested: (\d+)", said)
    refused = _sum(r"Authentication failed: (\d+) operation", said)
    summary = f"{generated:,} requests to {tested} operations, of which {refused} refused every key"
    if not status:
        return Outcome(f"{summary}: all answers as the document says")
    return Outcome(f"{summary}: failures", [said[-SHOWN:]])


def judged(folder: Path, seed: int, examples: int, phases: str = PHASES) -> tuple[int, str]:
    """The status with which the library ended, and what it said."""
    with running_app(folder / "data") as address:
        key, known = _fill(address)
        config = folder / CONFIG.name
        config.write_text(CONFIG.read_text(encoding="utf-8") + _parameters(known), encoding="utf-8")
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
        command += ["-H", f"Authorization: Bearer {key}", f"{address}/openapi.json"]
        command += ["--phases", phases, "--continue-on-failure"]
        command += ["--max-examples", str(examples), "--seed", str(seed), "--no-color"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_CORE")}
        status, said = 0, ""
        for chosen in ("--exclude-path-regex", "--include-path-regex"):  # what may end the key comes last
            ran = subprocess.run(
                [*command, chosen, OF_KEYS],
                cwd=folder,
                env=environment | {"NO_PROXY": "127.0.0.1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            status, said = status or ran.returncode, said + ran.stdout
        httpx.get(f"{address}/readyz", trust_env=False, timeout=60.0).raise_for_status()
    return status, said


def _fill(address: str) -> tuple[str, dict[str, list[Any]]]:
    """Something for the requests to meet. Returns the key with which they are made, and by the beginning of a path the
    values of its parameter that are known. A server without keys would get its first one from a request, and refuse all
    that come after it."""
    with httpx.Client(base_url=address, trust_env=False, timeout=60.0) as client:

        def told(method: str, path: str, **more: Any) -> Any:
            answer = client.request(method, path, **more)
            answer.raise_for_status()
            return answer.json()

        key: str = told("POST", "/v1/keys", json={"role": "admin"})["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        known: dict[str, list[Any]] = {}
        turtle = {"Content-Type": "text/turtle"}
        told("PUT", "/v1/ontologies/shop", content=(ROOT / "ontologies" / "shop.ttl").read_bytes(), headers=turtle)
        for name in MADE:
            told("PUT", f"/v1/ontologies/{name}", content=f"<http://x.org/{name}> a <http://x.org/C> .", headers=turtle)
            told("PUT", f"/v1/attributes/{name}", json={"kind": "number"})
            told("PUT", f"/v1/schemas/{name}", json={"type": "object"})
            told("POST", "/v1/tenants", json={"name": name})
        for path in ("ontologies", "attributes", "schemas", "tenants"):
            known[f"/v1/{path}/"] = list(MADE)
        made = [told("POST", "/v1/subscriptions", json={"expression": "target isa Computer"}) for _ in range(40)]
        known["/v1/subscriptions/"] = [each["id"] for each in made]
        body = {"sink": "https://sink.example/", "protocol": "HTTP", "types": ["t"]}
        listed = [told("POST", "/v1/cloudevents/subscriptions", json=body) for _ in range(20)]
        known["/v1/cloudevents/subscriptions/"] = [each["id"] for each in listed]
        keys = [told("POST", "/v1/keys", json={"role": "auditor"}) for _ in range(20)]
        known["/v1/keys/"] = [each["id"] for each in keys]
        for _ in range(20):
            told("POST", "/v1/events", json={"target": "laptop", "price": 350})
        known["/v1/events/"] = list(range(1, 21))
    return key, known


def _parameters(known: Mapping[str, Sequence[Any]]) -> str:
    """What the library is told of the values that exist: it takes one of them most of the time."""
    lines = []
    for number, values in enumerate(known.values()):
        lines += [f"[dictionaries.known{number}]", f"values = {json.dumps(values)}"]
    for number, path in enumerate(known):
        lines += ["[[operations]]", f"include-path-regex = '^{path}\\{{'"]
        lines += [
            f'parameters."path.{name}" = {{ dictionary = "known{number}", probability = {SHARE_KNOWN} }}'
            for name in ("id", "name", "type", "sequence")
        ]
    return "\n" + "\n".join(lines) + "\n"


def _sum(pattern: str, said: str) -> int:
    return sum(int(each.replace(",", "")) for each in re.findall(pattern, said))
