"""A real HTTP server that receives webhooks, remembers every request, and answers as a test tells it to.

Answers are scripted per path: `receiver.script("/a", 500, 500, 204)` answers the first requests so, and 200
afterwards. A path given to `swallow` is a black hole: the request is read and never answered until `release`.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

__all__ = ["Answer", "Received", "Receiver", "running_receiver"]

PATIENCE_SECONDS = 30.0
"""How long a test waits for what must come; only a failing test ever waits this long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted answer."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in, and the status it was answered with (None while it is swallowed)."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int | None

    @property
    def message(self) -> Any:
        return msgspec.json.decode(self.body)


class Receiver:
    """The records and the scripts. Any thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._changed = threading.Condition()
        self._received: list[Received] = []
        self._scripts: dict[str, deque[Answer]] = defaultdict(deque)
        self._last_cursors: dict[str, int] = {}
        self._holes: set[str] = set()
        self.consents: dict[str, tuple[int, dict[str, str]]] = {}
        """Path → what OPTIONS is answered there: status and headers."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Paths and headers of the requests by OPTIONS."""
        self._released = threading.Event()

    def script(self, path: str, *answers: int | Answer) -> str:
        """Sets the next answers of a path; returns its URL."""
        with self._changed:
            self._scripts[path].extend(Answer(each) if isinstance(each, int) else each for each in answers)
        return self.url + path

    def recover(self, path: str) -> None:
        """Forgets the answers set for a path: it answers 200 from now on."""
        with self._changed:
            self._scripts[path].clear()

    def swallow(self, path: str) -> str:
        """Makes a path a black hole; returns its URL."""
        self._holes.add(path)
        return self.url + path

    def release(self) -> None:
        """Lets the black holes answer."""
        self._released.set()

    def requests(self, path: str | None = None) -> list[Received]:
        """All requests so far, in order of arrival."""
        with self._changed:
            return [each for each in self._received if path is None or each.path == path]

    def last_cursor(self, path: str) -> int:
        """The cursor of the last message at a path, 0 before the first. For `wait_until` too."""
        return self._last_cursors.get(path, 0)

    def wait_for(self, path: str, count: int) -> list[Received]:
        """Waits until a path has had this many requests."""
        self.wait_until(lambda: sum(each.path == path for each in self._received) >= count, f"{count} at {path}")
        return self.requests(path)

    def wait_until(self, holds: Callable[[], bool], wanted: str = "the condition") -> None:
        """Waits until a claim about the records holds; fails loudly otherwise."""
        if not self.holds_within(PATIENCE_SECONDS, holds):
            raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {wanted}; got {len(self.requests())} requests")

    def holds_within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        """Waits for a claim about the records; returns whether it came true in time."""
        with self._changed:
            return self._changed.wait_for(holds, seconds)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Records a request and says how to answer it. Called by the threads of the server."""
        with self._changed:
            hole = path in self._holes and not self._released.is_set()
            answer = self._scripts[path].popleft() if self._scripts[path] else Answer(200)
            self._received.append(Received(path, headers, body, None if hole else answer.status))
            if body.startswith(b'{"cursor"'):
                self._last_cursors[path] = int(msgspec.json.decode(body)["cursor"])
            self._changed.notify_all()
        if hole:
            self._released.wait()
        return answer


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """A receiver on a free port of this machine, for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_OPTIONS(self) -> None:
            receiver.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            status, headers = receiver.consents.get(self.path, (501, {}))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return  # the sender was killed half-way: nothing was received
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = receiver.answer(self.path, headers, body)
            try:
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
            except OSError:
                self.close_connection = True  # the sender gave up or was killed

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

        do_GET = do_PUT = do_POST  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.release()
            server.shutdown()
            thread.join()
