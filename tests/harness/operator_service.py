"""A real HTTP service that answers questions of remote operators, well or badly, in a process that can be killed.

The path says how: `/yes`, `/no`, `/bindings` (the event's `count`), `/hang`, `/slow` (a tenth of a second), `/rubbish`,
`/text`, `/big` (10 MB), `/lies` (a binding too wide), `/kinds` (values that no variable holds), `/error`, `/redirect`,
`/says/NAME` (whether the event's NAME is 1), `/twice` (yes, and then no without being asked), `/bom` (yes, behind a
byte order mark), `/heals` and `/mends` (a binding too wide at first, then a right one), `/echoes` (the arguments, as
JSON).
`GET /asked` gives the number of questions by path.
"""

import json
import signal
import subprocess
import sys
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.harness.ports import free_port

__all__ = ["OperatorService", "running_service"]

PATIENCE_SECONDS = 30.0
BIG = 10_000_000
HANG_SECONDS = 600.0


class OperatorService:
    """One port; at most one process at a time."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        self._process = subprocess.Popen([sys.executable, "-m", "tests.harness.operator_service", str(self.port)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                self.asked()
                return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the service did not start")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def asked(self) -> dict[str, int]:
        """Questions so far, by path, since the last start."""
        found: dict[str, int] = httpx.get(f"{self.url}/asked", trust_env=False, verify=False).json()
        return found


@contextmanager
def running_service() -> Iterator[OperatorService]:
    """A service that runs, and is killed at the end."""
    service = OperatorService()
    service.start()
    try:
        yield service
    finally:
        service.kill()


def _answer(path: str, question: dict[str, Any], asked: int) -> tuple[int, bytes]:
    match path:
        case "/yes" | "/twice":
            return 200, b'{"holds": true}'
        case "/bom":
            return 200, BOM_UTF8 + b'{"holds": true}'
        case "/no":
            return 200, b'{"holds": false}'
        case "/bindings":
            counts = question["event"].get("count", [])
            return 200, json.dumps({"bindings": [[count] for count in counts]}).encode()
        case says if says.startswith("/says/"):
            return 200, json.dumps({"holds": question["event"].get(says[len("/says/") :]) == [1]}).encode()
        case "/slow":
            time.sleep(0.1)
            return 200, b'{"holds": true}'
        case "/hang":
            time.sleep(HANG_SECONDS)
            return 200, b'{"holds": true}'
        case "/rubbish":
            return 200, b"\x00\xff{{{"
        case "/text":
            return 200, b'{"holds": "yes"}'
        case "/big":
            return 200, b'{"holds": true, "more": "' + b"x" * BIG + b'"}'
        case "/lies":
            return 200, b'{"bindings": [[1, 2, 3]]}'
        case "/heals" | "/mends":
            return 200, b'{"bindings": [[1, 2]]}' if asked == 1 else b'{"bindings": [[1]]}'
        case "/echoes":
            return 200, json.dumps({"bindings": [[json.dumps(question["arguments"])]]}).encode()
        case "/kinds":
            return 200, b'{"bindings": [[{"value": "x"}]]}'
        case "/redirect":
            return 302, b""
        case _:
            return 500, b""


def _serve(port: int) -> None:
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, json.dumps(asked).encode())

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked[self.path] += 1
            self._send(*_answer(self.path, question, asked[self.path]))
            if self.path == "/twice":
                self._send(200, b'{"holds": false}')

        def _send(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/yes")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
