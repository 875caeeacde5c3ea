"""The wire format of the pipes between a process and its child: frames of a kind, a length and bytes.

    parent ──HEADER, PAYLOAD──▶ child          HEADER, in JSON: the import path, the task, the limits
    parent ◀──READY, PROGRESS…, RESULT | ERROR, END── child          END: the peak memory, the refused events

Frames contain only JSON and bytes, so neither side can make the other run code.
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
"""The prefix of each frame: its kind and its length."""

HEADER: Final = b"H"
PAYLOAD: Final = b"P"
READY: Final = b"r"
PROGRESS: Final = b"p"
RESULT: Final = b"R"
ERROR: Final = b"E"
END: Final = b"e"

CHUNK = 1 << 20
LENGTH = 8  # bytes of a length in `joined`


def packed(value: Any) -> bytes:
    """Encodes a JSON value as bytes. Lone surrogates are kept, as escapes."""
    return json.dumps(value).encode("ascii")


def unpacked(data: bytes) -> Any:
    """Decodes the result of `packed`. Raises ValueError."""
    return json.loads(data)


def joined(*parts: bytes) -> bytes:
    """Joins byte strings into one. Each is preceded by its length."""
    return b"".join(len(part).to_bytes(LENGTH, "big") + part for part in parts)


def parted(data: bytes) -> list[bytes]:
    """Splits the result of `joined`."""
    parts = []
    at = 0
    while at < len(data):
        start = at + LENGTH
        at = start + int.from_bytes(data[at:start], "big")
        parts.append(data[start:at])
    return parts


def frame(descriptor: int) -> tuple[bytes, bytes]:
    """Reads the next frame from a pipe and returns its kind and its bytes. Blocks. Raises EOFError at the end."""
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
