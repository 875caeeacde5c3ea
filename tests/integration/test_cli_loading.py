"""`kindcast ontology check` and `load` on long work: a bar for people, silence in a pipe, the server's own words."""

import contextlib
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from kindcast import Client
from kindcast.server.cli import output
from kindcast.server.cli.ontologies import STAGES, upload_with_progress
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast

PREFIXES = "@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that takes a second or so to read."""
    path = tmp_path / "large.ttl"
    lines = (f":C{number} rdfs:subClassOf :C{number // 2} ; rdfs:label 'kind {number}' ." for number in range(30_000))
    path.write_text(PREFIXES + "\n".join(lines), encoding="utf-8")
    return path


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """The exit status of a command, what it printed, and what stood on the terminal meanwhile."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                piece = os.read(ours, 4_096)
            except OSError:  # how Linux says that the other end is closed
                return
            if not piece:
                return
            shown.append(piece)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "kindcast.server.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            text=True,
            check=False,
        )
    finally:
        os.close(theirs)
        listener.join()
        os.close(ours)
    return ran.returncode, ran.stdout, b"".join(shown).decode(errors="replace")


@pytest.mark.slow
def test_check_on_a_terminal_shows_how_far_it_is(large: Path) -> None:
    """The number of triples grows while they are read."""
    status, out, terminal = on_a_terminal("ontology", "check", str(large))
    assert status == 0
    assert "large.ttl can be loaded" in out
    assert any(f"large.ttl: {stage}" in terminal for stage in STAGES.values())


@pytest.mark.slow
def test_load_on_a_terminal_shows_how_far_the_server_is(large: Path, tmp_path: Path) -> None:
    """A stage of the job, as the server tells it. Which of them a person sees depends on how busy the machine is."""
    with running_app(tmp_path / "data") as url:
        status, out, terminal = on_a_terminal("ontology", "load", str(large), "--server", url)
    assert status == 0
    assert "loaded large, version 1" in out
    assert any(f"large.ttl: {stage}" in terminal for stage in STAGES.values())


def test_upload_shows_each_stage_that_the_server_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again and again until the job is done: the bar gets every answer's stage, count and total."""
    told = [("wait", 0, None), ("parse", 10, 100), ("parse", 90, 100), ("build", 0, None)]
    jobs = [
        {"id": "j", "status": "running", "progress": dict(zip(("stage", "done", "total"), each, strict=True))}
        for each in told
    ]
    jobs.append({"id": "j", "status": "done", "result": {"version": 1}})

    class Server:
        def start_ontology(self, name: str, document: bytes) -> dict[str, Any]:
            return jobs.pop(0)

        def job(self, id: str) -> dict[str, Any]:
            return jobs.pop(0)

    shown: list[tuple[str, int, int | None]] = []

    class Bar(contextlib.AbstractContextManager["Bar"]):
        def __exit__(self, *_: object) -> None:
            pass

        def add_task(self, name: str, total: int | None) -> int:
            return 0

        def update(self, task: int, *, description: str, completed: int, total: int | None) -> None:
            shown.append((description, completed, total))

    monkeypatch.setattr(output, "progress", Bar)
    (tmp_path / "large.ttl").write_text(PREFIXES, encoding="utf-8")
    report = upload_with_progress(cast("Client", Server()), "large", tmp_path / "large.ttl")
    assert report == {"version": 1}
    assert shown == [(f"large.ttl: {STAGES[stage]}", done, total) for stage, done, total in told]


def test_load_that_fails_says_what_the_server_said(kindcast: Kindcast, tmp_path: Path) -> None:
    """The problem of the job is the problem of the command, place and all; nothing of a bar in a pipe."""
    broken = tmp_path / "broken.ttl"
    broken.write_text(PREFIXES + ":A rdfs:subClassOf\n", encoding="utf-8")
    with running_app(tmp_path / "data") as url:
        ran = kindcast("ontology", "load", str(broken), "--server", url)
        told = kindcast("ontology", "load", str(broken), "--server", url, "--json")
    assert (ran.status, told.status) == (1, 1)
    assert "line 3" in ran.err or "line 2" in ran.err
    assert "triples read" not in ran.err
    assert '"status": 400' in told.err
    assert "malformed-ontology" in told.err


def test_check_that_fails_says_where(kindcast: Kindcast, tmp_path: Path) -> None:
    """An error crosses from the child process with its line."""
    broken = tmp_path / "broken.ttl"
    broken.write_text(PREFIXES + ":A rdfs:subClassOf [ .\n", encoding="utf-8")
    ran = kindcast("ontology", "check", str(broken))
    assert ran.status == 1
    assert "line 2" in ran.err
