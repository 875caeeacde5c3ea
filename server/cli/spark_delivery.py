"""`kindcast spark stream --deliver`: the matches that a stream wrote enter the queues of a server.

    OUTPUT/batch=<n>/_outbox/part-….ndjson ──POST /v1/matches──▶ 202 ──▶ the file is removed

A file is removed when the server has all of it. What a run did not deliver, the next one does. The server takes each
event and each match once, so a file that is sent again changes nothing. Spark goes on while the server is away.
"""

import threading
import time
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kindcast.server.cli import output
from kindcast.server.cli.connection import connected
from kindcast.server.cli.problems import CommandFailed
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["Outbox"]

LOOKED_EVERY = 0.5
TRIED_AGAIN_AFTER = (0.5, 1.0, 2.0, 5.0)
"""Seconds. The last one counts from then on."""
GIVEN_UP_AFTER = 10.0
"""Seconds in which the server took nothing, once the stream has ended."""
NEVER_TAKEN = (400, 413, 422)
"""Answers that would be the same if the match were sent again."""

EVENTS_SENT = 500
MATCHES_SENT = 20_000
BYTES_SENT = 1 << 20
"""Of one request, unless one line has more."""

REFUSED = "_refused"


class _Line(msgspec.Struct):
    """What is counted of a line."""

    subscriptions: list[str] = []


_COUNTED = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class Delivered:
    """What the server took. `events` and `matches` are new there; `repeated` were there before; `unmatched` have a
    subscription that is gone, paused or expired; `refused` lines are in `_refused` of their batch."""

    events: int = 0
    matches: int = 0
    repeated: int = 0
    unmatched: int = 0
    refused: int = 0


@dataclass(slots=True)
class _InHand:
    """A file that is being delivered: how many of its lines the server has, or refused."""

    path: Path
    lines: int = 0
    refused: list[bytes] = field(default_factory=list)


class Outbox:
    """The batches of a stream's output, delivered beside the stream, in their order."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder, self._server = folder, server
        self._told = Delivered()
        self._ended = threading.Event()
        self._given_up = threading.Event()
        self._in_hand: _InHand | None = None
        self._progress = 0.0
        """When the server took something last."""
        self._failure: Exception | None = None
        """Why the last try failed."""
        context = copy_context()  # it has the key
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def __enter__(self) -> "Outbox":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._given_up.set()
        self._ended.set()
        self._thread.join()

    def rest(self) -> dict[str, Any]:
        """Delivers what is left, and says what was delivered. Raises CommandFailed where the server does not take it:
        then it stays where it is."""
        self._ended.set()
        self._thread.join()
        if left := len(self._files()):
            raise CommandFailed(
                f"{left:,} file{'s' if left > 1 else ''} of matches could not be delivered to {self._server}: "
                f"{self._failure}",
                "They are kept in _outbox folders of the output: run the command again to deliver them.",
            )
        return asdict(self._told)

    def _run(self) -> None:
        """Until the stream has ended and all is delivered, or the server takes nothing for a while after that."""
        failures, last = 0, 0.0
        while not self._given_up.is_set():
            ended = self._ended.is_set()
            last = last or (time.monotonic() if ended else 0.0)
            try:
                for path in self._files():
                    with connected(self._server) as client:
                        self._deliver(client, path)
                    failures = 0
                    if self._given_up.is_set():
                        return
                if ended:
                    return
                self._ended.wait(LOOKED_EVERY)
            except (CommandFailed, ProblemError, OSError) as error:
                self._failure = error
                if ended and time.monotonic() - max(self._progress, last) > GIVEN_UP_AFTER:
                    return
                if failures == 0:
                    output.warn(f"matches wait in {self._folder}: {error}")
                time.sleep(TRIED_AGAIN_AFTER[min(failures, len(TRIED_AGAIN_AFTER) - 1)])
                failures += 1

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("batch=*/_outbox/*.ndjson"))

    def _deliver(self, client: "Client", path: Path) -> None:
        """One file, from where the last try ended. Raises `ProblemError`, and what `connected` turns into
        CommandFailed."""
        if self._in_hand is None or self._in_hand.path != path:
            self._in_hand = _InHand(path)
        file = self._in_hand
        for lines in _requests(path, file.lines):
            file.refused += self._send(client, lines)
            file.lines += len(lines)
        if file.refused:
            place = path.parent.parent / REFUSED
            place.mkdir(exist_ok=True)
            (place / path.name).write_bytes(b"".join(file.refused))
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()

    def _send(self, client: "Client", lines: list[bytes]) -> list[bytes]:
        """One request. Returns the lines that the server cannot take, with the reason. Raises `ProblemError`."""
        try:
            answer = client.deliver_matches(b"".join(lines))
        except ProblemError as error:
            if error.status not in NEVER_TAKEN:
                raise
            if len(lines) > 1:
                return [each for line in lines for each in self._send(client, [line])]
            self._told.refused += 1
            return [_refused(lines[0], error.detail)]
        self._progress = time.monotonic()
        self._told.events += answer["accepted"]
        self._told.matches += answer["matched"]
        self._told.repeated += answer["repeated"]
        self._told.unmatched += answer["unmatched"]
        self._told.refused += len(answer["rejected"])
        return [_refused(lines[each["index"]], each["problem"]["detail"]) for each in answer["rejected"]]


def _refused(line: bytes, reason: str) -> bytes:
    return msgspec.json.encode({"reason": reason, "match": msgspec.Raw(line.strip())}) + b"\n"


def _requests(path: Path, done: int) -> Iterator[list[bytes]]:
    """The lines of a file without the first ones, as many as a request takes."""
    some: list[bytes] = []
    size = matches = 0
    with path.open("rb") as file:
        for line in islice(file, done, None):
            count = len(_COUNTED.decode(line).subscriptions) or 1
            over = len(some) >= EVENTS_SENT or matches + count > MATCHES_SENT or size + len(line) > BYTES_SENT
            if some and over:
                yield some
                some, size, matches = [], 0, 0
            some.append(line)
            size += len(line)
            matches += count
    if some:
        yield some
