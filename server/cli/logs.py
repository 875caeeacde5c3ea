"""The log of a server: lines of text or of JSON on standard error, without repetitions."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonLines", "RepeatedRecords", "TextLines", "logged"]

NOISY = ("httpcore", "httpx", "asyncio", "numba")
"""Libraries whose messages below a warning are about single requests or internals."""

REPEAT_SECONDS = 30.0
"""How long the same warning or error is not written again."""
MOST_REMEMBERED = 1_000
"""The maximum number of warnings and errors that are remembered."""


@contextmanager
def logged(format: str, level: str) -> Iterator[None]:
    """A context manager that writes the log of this process to standard error, in this format, from this level up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(RepeatedRecords())
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


class RepeatedRecords(logging.Filter):
    """Leaves out a warning or an error that was already written within the last `REPEAT_SECONDS`. The next one that is
    written has the number of those left out, as `left_out`. So a database that cannot be reached for hours does not
    fill the disk. Records with a traceback are all written."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is written."""
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        now, key = time.monotonic(), (record.name, record.getMessage())
        written_at, left_out = self._written.pop(key, (-REPEAT_SECONDS, 0))
        if now - written_at < REPEAT_SECONDS:
            self._written[key] = written_at, left_out + 1
            return False
        if len(self._written) >= MOST_REMEMBERED:
            self._written.clear()
        self._written[key] = now, 0
        record.left_out = left_out
        return True


def _left_out(record: logging.LogRecord) -> int:
    return getattr(record, "left_out", 0)


class TextLines(logging.Formatter):
    """Formats each record as one line. Line feeds in a message are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text."""
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        if _left_out(record):
            message += f" ({_left_out(record):,} more times since it was last written)"
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """Formats each record as a JSON object on one line: `time`, `level`, `logger`, `message`, `left_out` if the same
    record was left out before, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as JSON."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if _left_out(record):
            told["left_out"] = _left_out(record)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
