"""A server in the background: `kindcast serve --detach` starts it and waits until it is ready, `kindcast stop` ends it.

The running server holds a lock on `DATA/server.json`, which has its process id and address. Whoever gets that lock
knows that no server runs, whatever process has the id by now.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import JsonOption
from kindcast.server.cli.problems import CommandFailed

__all__ = ["LOG", "STATE", "found_server", "running", "start", "stop"]

LOG = "server.log"
STATE = "server.json"
ERROR = "error: "
LOOKED_EVERY = 0.05
TOLD_LINES = 5
"""Last lines of the log that are shown when a server could not start."""


@contextlib.contextmanager
def running(data: Path, address: str) -> Iterator[None]:
    """What other commands find of the server of this process, while the body runs. Of servers that share a database and
    a folder they find the first."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / STATE
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "listening": address}))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def start(arguments: Sequence[str], data: Path, wait: float) -> dict[str, Any]:
    """Starts `kindcast serve` with these arguments as a process of its own, and returns its process id, address and log
    once it is ready. The address is None where it is not ready after `wait` seconds.

    Raises CommandFailed where a server runs already, or the new one could not start.
    """
    data.mkdir(parents=True, exist_ok=True)
    if found := found_server(data):
        raise CommandFailed(
            f"a server runs in {data} already, at {found['listening']}", f"To stop it: kindcast stop --data {data}"
        )
    log = data / LOG
    with log.open("ab") as written:
        begin = written.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "kindcast.server.cli", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # it says there where it listens, which is known
            stderr=written,
            start_new_session=True,
        )
    until = time.monotonic() + wait
    while True:
        if process.poll() is not None:
            raise CommandFailed(*_why(log, begin))
        found = found_server(data)
        if (found and found["pid"] == process.pid) or time.monotonic() >= until:
            address = found["listening"] if found else None
            return {"pid": process.pid, "listening": address, "log": str(log)}
        time.sleep(LOOKED_EVERY)


def stop(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data folder of the server.")] = Path("kindcast-data"),
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="How long to wait until it has ended.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Stop the server of a data folder on this machine. It finishes what it has begun; nothing is lost."""
    found = found_server(data)
    if found is None:
        raise CommandFailed(f"no server runs in {data}", "Name its data folder: kindcast stop --data DIR")
    with contextlib.suppress(ProcessLookupError):
        os.kill(found["pid"], signal.SIGTERM)
    until = time.monotonic() + wait
    while found_server(data) is not None:
        if time.monotonic() >= until:
            raise CommandFailed(f"process {found['pid']} has not ended after {wait:g} s", f"See {data / LOG}.")
        time.sleep(LOOKED_EVERY)
    if json:
        output.print_json({"stopped": found["pid"]})
    else:
        output.paragraph(f"stopped the server at {found['listening']}")


def found_server(data: Path) -> dict[str, Any] | None:
    """Process id and address of the server that runs in `data`, None without one."""
    try:
        with (data / STATE).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _state(file.read())
    except FileNotFoundError:
        pass
    return None


def _state(text: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return None  # it is just being written
    return found


def _why(log: Path, begin: int) -> tuple[str, str]:
    """What a server that could not start wrote last, and where the rest is."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").strip().splitlines()
    told = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    said = "\n".join(lines[told[-1] :] if told else map(_message, lines[-TOLD_LINES:])).removeprefix(ERROR)
    return said or "the server ended before it was ready", f"Its log: {log}"


def _message(line: str) -> str:
    """What a line of the log says, without its time where it is JSON."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line
