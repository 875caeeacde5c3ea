"""The command `kindcast` for shells of tests: forked off a template, which has imported everything once.

The command on the path is a small Python program. It hands its arguments, folder, variables and open files to the
template of `forked_process`, passes signals on, and ends as the forked process does.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

__all__ = ["write_command"]

MODULE = "kindcast.server.cli"


def write_command(folder: Path, template: str) -> None:
    """Writes the program `kindcast` into `folder`, for the template at this address."""
    program = folder / "kindcast"
    program.write_text(f"#!{sys.executable} -ISB\n{Path(__file__).read_text('utf-8')}\nrun({template!r})\n", "utf-8")
    program.chmod(0o755)


def run(template: str) -> None:
    """What the program does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(template)
    asked = {"module": MODULE, "arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    # The files go with the first byte.
    socket.send_fds(connection, [b"{"], [0, 1, 2])
    connection.sendall(json.dumps(asked).encode()[1:] + b"\n")
    told = connection.makefile()
    number = int(told.readline())
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda received, _: os.kill(number, received))
    status = int(told.read())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
