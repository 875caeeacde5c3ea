"""A server with keys and Spark streams that deliver to it, as processes that can be killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kindcast import Client
from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.server_process import ServerProcess

__all__ = ["DeliveringStreams"]


class DeliveringStreams:
    """A server with keys, the shop's vocabulary, and `kindcast spark stream --deliver` from one folder into another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ServerProcess(folder / "server")
        command = [sys.executable, "-m", "kindcast.server.cli", "key", "create", "--role", "admin", "--json"]
        (folder / "in").mkdir()
        self.server.data.mkdir()
        made = subprocess.run([*command, "--data", str(self.server.data)], check=True, capture_output=True)
        self.key: str = json.loads(made.stdout)["key"]
        self.server.start()
        self.ids: dict[str, str] = {}
        with self.client() as client:
            client.put_ontology("shop", shipped("shop").read_bytes(), format="turtle")

    def client(self) -> Client:
        return Client(self.server.url, key=self.key)

    def subscribe(self, **expressions: str) -> None:
        """Under names of ours, which `ids` has."""
        with self.client() as client:
            self.ids |= {name: str(client.subscribe(text)["id"]) for name, text in expressions.items()}

    def stream(self, *more: str) -> "subprocess.Popen[bytes]":
        """`kindcast spark stream --deliver`, in a process group with all that it starts."""
        places = ["--archive", str(self.folder / "in"), "--output", str(self.folder / "out")]
        named = ["--server", self.server.url, "--deliver", self.server.url, "--master", "local[2]", "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "kindcast.server.cli", "spark", "stream", *places, *named, "--every", "0.2", *more],
            env={**os.environ, "KINDCAST_KEY": self.key},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def once(self) -> tuple[int, dict[str, Any], str]:
        """Exit status, result and warnings of a run that ends by itself."""
        job = self.stream("--once")
        out, errors = job.communicate()
        return job.returncode, json.loads(out) if out.strip() else {}, errors.decode()

    def got(self, name: str) -> list[dict[str, Any]]:
        """All messages of a subscription."""
        found: list[dict[str, Any]] = []
        with self.client() as client:
            while page := client.pull(self.ids[name], after=found[-1]["cursor"] if found else "0", limit=1_000)[
                "events"
            ]:
                found += [dict(each) for each in page]
        return found
