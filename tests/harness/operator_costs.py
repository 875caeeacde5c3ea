"""What remote operators cost: the requests that a real HTTP service answers, beside the calls that the library's plan
makes for the same truth.

Subscriptions of three calls each, the first cheap and selective, over operators that take their cost in seconds. The
service runs in this process, on a real socket, and notes each request with its beginning and end; one that it failed,
let hang, or whose asker was killed meanwhile does not count.
"""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Literal

from kindcast import Matcher, Vocabulary
from kindcast.semantic.operators.calls import Remembered
from kindcast.semantic.operators.declaration import Operator

__all__ = ["COSTS", "CostService", "Request", "Trouble", "Workload", "library_cost", "running_costs"]

COSTS: Mapping[str, float] = {"cheap": 0.01, "middle": 0.2, "dear": 0.6}
"""Seconds of a call; the service takes as long."""
SELECTIVITIES: Mapping[str, float] = {"cheap": 0.1, "middle": 0.5, "dear": 0.5}
ARGUMENTS: Mapping[str, int] = {"cheap": 40, "middle": 25, "dear": 25}
"""Constants that subscriptions draw from: calls are shared."""

Trouble = Literal["none", "fails", "hangs"]
Question = tuple[str, int, int]
"""Operator, its constant, the number of the event."""


def truth(operator: str, argument: int, number: int) -> bool:
    """What an operator says, always the same."""
    digest = hashlib.blake2b(f"{operator} {argument} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 < SELECTIVITIES[operator]


class Workload:
    """Expressions, and who matches which event."""

    def __init__(self, subscriptions: int = 120, events: int = 10, *, seed: int = 1) -> None:
        chance = Random(seed)
        self.events = range(events)
        self.calls = [tuple((name, chance.randrange(ARGUMENTS[name])) for name in COSTS) for _ in range(subscriptions)]

    @property
    def expressions(self) -> list[str]:
        """The dear call is written first: an order that goes by what is written pays for it."""
        return [" and ".join(f"{name}({argument})" for name, argument in reversed(calls)) for calls in self.calls]

    def matches(self, number: int) -> list[int]:
        """The subscriptions that an event is for."""
        return [n for n, calls in enumerate(self.calls) if all(truth(*call, number) for call in calls)]


def library_cost(workload: Workload, planner: str = "greedy") -> float:
    """Seconds of the calls that a matcher makes for the events, one after the other, learning what it does."""
    spent = [0.0]

    def operator(name: str) -> Operator:
        def function(event: Mapping[str, Sequence[Any]], argument: int) -> Remembered:
            spent[0] += COSTS[name]
            return Remembered(truth(name, argument, event["n"][0]), COSTS[name])

        return Operator(name=name, function=function, cost=COSTS[name], selectivity=SELECTIVITIES[name])

    matcher = Matcher(Vocabulary.from_ontologies([]), planner=planner, operators=map(operator, COSTS))
    matcher.add_many([(str(number), expression) for number, expression in enumerate(workload.expressions)])
    for number in workload.events:
        assert [int(each.subscription) for each in matcher.match({"n": number})] == workload.matches(number)
    return spent[0]


@dataclass
class Request:
    """One that arrived; `end` is None while it is not answered."""

    question: Question
    trouble: Trouble
    begin: float
    end: float | None = None


@dataclass
class CostService:
    """Answers by `truth`, after the seconds of `COSTS`. `trouble(question, times)`: what befalls a question that comes
    for so many times, from 1; what hangs is let go at the end."""

    url: str
    trouble: Callable[[Question, int], Trouble] = lambda question, times: "none"
    requests: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    _times: Counter[Question] = field(default_factory=Counter)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def registration(self, name: str, **more: Any) -> dict[str, Any]:
        """The body with which an administrator registers one of the operators."""
        return {
            "url": f"{self.url}/{name}",
            "arguments": 1,
            "attributes": ["n"],
            "cost": COSTS[name],
            "selectivity": SELECTIVITIES[name],
            "concurrency": 8,
            "retries": 0,
            **more,
        }

    def cost(self, *, killed: Sequence[tuple[float, float]] = ()) -> float:
        """Seconds of the requests that were answered, but for those that a kill cut short: (when, restarted)."""
        return sum(COSTS[each.question[0]] for each in self.counted(killed=killed))

    def counted(self, *, killed: Sequence[tuple[float, float]] = ()) -> list[Request]:
        """The requests that count."""
        return [
            each
            for each in self.requests
            if each.trouble == "none"
            and each.end is not None
            and not any(each.begin < restarted and each.end > when for when, restarted in killed)
        ]

    def answer(self, question: Question) -> bool | None:
        """None: with a fault."""
        with self._guard:
            self._times[question] += 1
            asked = Request(question, self.trouble(question, self._times[question]), time.monotonic())
            self.requests.append(asked)
        if asked.trouble == "hangs":
            self.released.wait()
            return None
        time.sleep(COSTS[question[0]])
        asked.end = time.monotonic()
        return truth(*question) if asked.trouble == "none" else None


@contextmanager
def running_costs() -> Iterator[CostService]:
    """A service on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            holds = service.answer((asked["operator"], asked["arguments"][0], asked["event"]["n"][0]))
            body = b"" if holds is None else json.dumps({"holds": holds}).encode()
            try:
                self.send_response(500 if holds is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # whoever asked is gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A server that was killed has closed its connections."""

    server = Server(("127.0.0.1", 0), Handler)
    service = CostService(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
