"""The log of a server: each record with its time and level, as a line of text or as a JSON object.

    2026-11-23T17:57:01.123Z WARNING kindcast.broker: the store did not take a change

Times are UTC. An exception follows its line as a traceback, or is the member `exception`.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonLines", "TextLines", "logged"]

NOISY = ("httpcore", "httpx", "asyncio", "numba")
"""Libraries that tell of each request, or of their own inside, below a warning."""


@contextmanager
def logged(format: str, level: str) -> Iterator[None]:
    """Meanwhile whatever this process logs goes to standard error, in this format, from this level up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:], root.level = before


class TextLines(logging.Formatter):
    """A line for each record; a line feed in a message does not begin another one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """An object on one line for each record: `time`, `level`, `logger`, `message`, and `exception` where there is
    one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
