"""The frames on the pipes between a process and its child: a kind, a length and bytes.

    parent ──HEADER, PAYLOAD──▶ child          the header is JSON: where to import from, what to do, within what
    parent ◀──READY, PROGRESS…, RESULT | ERROR, END── child          END: what it cost, what was refused

Nothing but JSON and bytes, so that neither side can make the other run anything.
"""

import json
import os
import struct
from typing import Any, Final

__all__ = [
    "END",
    "ERROR",
    "HEADER",
    "PAYLOAD",
    "PREFIX",
    "PROGRESS",
    "READY",
    "RESULT",
    "frame",
    "joined",
    "packed",
    "parted",
    "unpacked",
]

PREFIX: Final = struct.Struct(">cQ")
"""Before each frame: its kind and its length."""

HEADER: Final = b"H"
PAYLOAD: Final = b"P"
READY: Final = b"r"
PROGRESS: Final = b"p"
RESULT: Final = b"R"
ERROR: Final = b"E"
END: Final = b"e"

CHUNK = 1 << 20
LENGTH = 8  # bytes of a length


def packed(value: Any) -> bytes:
    """A value of JSON as bytes; lone surrogates survive as escapes."""
    return json.dumps(value).encode("ascii")


def unpacked(data: bytes) -> Any:
    """The value again. Raises ValueError."""
    return json.loads(data)


def joined(*parts: bytes) -> bytes:
    """Several byte strings as one, each with its length before it."""
    return b"".join(len(part).to_bytes(LENGTH, "big") + part for part in parts)


def parted(data: bytes) -> list[bytes]:
    """And apart again."""
    parts = []
    at = 0
    while at < len(data):
        start = at + LENGTH
        at = start + int.from_bytes(data[at:start], "big")
        parts.append(data[start:at])
    return parts


def frame(descriptor: int) -> tuple[bytes, bytes]:
    """The next frame from a pipe: its kind and its bytes. Waits. Raises EOFError where the pipe ends."""
    kind, length = PREFIX.unpack(_exactly(descriptor, PREFIX.size))
    return kind, _exactly(descriptor, length)


def _exactly(descriptor: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length:
        piece = os.read(descriptor, min(length, CHUNK))
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
