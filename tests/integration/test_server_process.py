"""The server as a process of its own: a full disk, an orderly stop, what it refuses to start with."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client, ProblemError
from kindcast.server.broker import Broker
from tests.harness.application import problem_code
from tests.harness.server_process import ServerProcess, running_server
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

BLOCK = 4_096


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that writes no bytecode: a module that is first imported without room would be kept cut off, and no
    later server could import it."""
    with running_server(tmp_path, {"PYTHONDONTWRITEBYTECODE": "1"}) as server:
        yield server


@contextmanager
def no_room(server: ServerProcess) -> Iterator[None]:
    """No file of the process may grow beyond a block: the next write to the log of the database fails."""
    pid = _pid(server)
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (BLOCK, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))


def _pid(server: ServerProcess) -> int:
    process = server._process
    assert process is not None
    return process.pid


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_full_disk_refuses_and_recovers_without_losing_what_was_acknowledged(tight: ServerProcess) -> None:
    """While nothing can be written every change is answered 503 and /readyz says so; reading goes on; afterwards all
    that was acknowledged is there, nothing that was refused matches, and publishing works again."""
    with Client(tight.url) as client:
        id = client.subscribe("n exists")["id"]
        client.publish([{"n": number} for number in range(10)])
        with no_room(tight):
            for change in (
                lambda: client.publish([{"n": 1, "text": "x" * 100_000}]),
                lambda: client.subscribe("n exists", metadata={"text": "x" * 100_000}),
            ):
                with pytest.raises(ProblemError) as refused:
                    change()
                assert (refused.value.status, refused.value.type.rpartition("/")[2]) == (503, "store-unavailable")
            assert httpx.get(f"{tight.url}/readyz").status_code == 503
            assert len(client.pull(id, limit=100)["events"]) == 10
        assert client.publish({"n": 11})["events"][0]["matched"] == 1
        assert httpx.get(f"{tight.url}/readyz").status_code == 200
        assert len(client.subscriptions()["subscriptions"]) == 1
        assert len(client.pull(id, limit=100)["events"]) == 11
    tight.kill()
    tight.start()
    with Client(tight.url) as client:
        assert len(client.pull(id, limit=100)["events"]) == 11


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stop_is_orderly_and_the_next_start_has_everything(server: ServerProcess, number: signal.Signals) -> None:
    """SIGTERM, and the hang-up of the terminal, end the process by itself, without a complaint in its log; the data are
    complete."""
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("under nohup, a server goes on")
    with Client(server.url) as client:
        id = client.subscribe("n exists")["id"]
        client.publish([{"n": number} for number in range(100)])
    assert server.stop(number) in (0, -signal.SIGTERM)
    assert "Traceback" not in server.log.read_text()
    server.start()
    with Client(server.url) as client:
        assert len(client.pull(id, limit=200)["events"]) == 100


def test_start_that_hangs_ends_when_it_is_told_to_stop(tmp_path: Path) -> None:
    """The import of a plug-in cannot be interrupted. Nothing was accepted yet, and the next start has everything."""
    info, begun = tmp_path / "site" / "hanging-1.0.dist-info", tmp_path / "begun"
    info.mkdir(parents=True)
    (info.parent / "hanging.py").write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(3_600)\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kindcast.operators]\nall = hanging:operators\n")
    server = ServerProcess(tmp_path / "data", {"PYTHONPATH": str(info.parent)})
    try:
        server.start(wait=False)
        until(begun.exists)
        assert server.stop() == 1
        assert "told to stop while it was starting" in server.log.read_text()
        server.start(KINDCAST_PLUGINS="false")
    finally:
        if server.running:
            server.kill()


def test_stop_answers_requests_that_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client may repeat the request if that does no harm; the log has no traceback."""

    async def endless(*_: Any) -> None:
        began.set()
        await asyncio.sleep(3_600)

    began = threading.Event()
    monkeypatch.setattr(Broker, "match", endless)
    with ThreadPoolExecutor() as pool:
        with running_app(tmp_path) as url:
            asked = pool.submit(httpx.post, f"{url}/v1/match", json={"event": {"n": 1}}, timeout=60)
            assert began.wait(60)
        answer = asked.result()
    assert (answer.status_code, problem_code(answer)) == (503, "not-ready")
    assert "retry-after" not in answer.headers
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "environment", "word"),
    [
        (["--host", "0.0.0.0"], {}, "key create"),
        ([], {"KINDCAST_ENGINE": "fastest"}, "fastest"),
        (["--database", "sqlite://"], {}, "memory"),
        ([], {"KINDCAST_RETENTION_SECONDS": "-1"}, "retention_seconds"),
    ],
)
def test_start_with_what_cannot_be_is_refused_in_words(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], word: str
) -> None:
    """A wrong setting ends the start at once, names itself, and shows no stack trace."""
    command = [sys.executable, "-m", "kindcast.server.cli", "serve", "--port", "0", "--data", str(tmp_path), *arguments]
    ended = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr
