"""What a test lets a child do: one function a way to behave well or badly. See
`kindcast.semantic.ontology.isolation`."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnsupportedFormat
from kindcast.semantic.ontology.records import Progress

__all__ = [
    "abort",
    "allocate",
    "connect",
    "echo",
    "environment",
    "exhaust_the_stack",
    "fail",
    "import_more",
    "leave_a_child",
    "leave_a_child_and_wait",
    "load_native_code",
    "open_file",
    "open_file_natively",
    "program_in_the_folder",
    "refuse",
    "sleep",
    "spin",
    "start_a_program",
    "tell_progress",
    "write_to_the_answers",
]


def echo(payload: bytes, progress: Progress) -> bytes:
    return payload


def environment(payload: bytes, progress: Progress) -> bytes:
    """What the child knows of the world it lives in."""
    return json.dumps([dict(os.environ), os.getcwd()]).encode()


def tell_progress(payload: bytes, progress: Progress) -> bytes:
    for stage in ("unpack", "parse"):
        progress(stage, 1, 2)
        progress(stage, 2, 2)
    return b""


def refuse(payload: bytes, progress: Progress) -> bytes:
    if payload:
        raise UnsupportedFormat(payload.decode())
    raise OntologyError("a full stop is missing", line=3, column=7)


def fail(payload: bytes, progress: Progress) -> bytes:
    raise KeyError("nobody thought of this")


def spin(payload: bytes, progress: Progress) -> bytes:
    while True:
        pass


def sleep(payload: bytes, progress: Progress) -> bytes:
    progress("asleep", 0, None)
    time.sleep(3_600)
    return b""


def allocate(payload: bytes, progress: Progress) -> bytes:
    """Text that doubles until memory ends."""
    text = "x" * 1_000_000
    while True:
        text += text


def exhaust_the_stack(payload: bytes, progress: Progress) -> bytes:
    """Native recursion whose guard was taken away."""
    sys.setrecursionlimit(2**31 - 1)
    json.loads("[" * 10_000_000)
    return b""


def abort(payload: bytes, progress: Progress) -> bytes:
    os.abort()


def open_file(payload: bytes, progress: Progress) -> bytes:
    return Path(os.fsdecode(payload)).read_bytes()


def open_file_natively(payload: bytes, progress: Progress) -> bytes:
    """Past Python: the library opens the file by itself, which no audit hook sees."""
    return str(len(list(ox.parse(path=os.fsdecode(payload), format=ox.RdfFormat.TURTLE)))).encode()


def connect(payload: bytes, progress: Progress) -> bytes:
    with socket.create_connection(("127.0.0.1", int(payload)), timeout=5):
        return b"connected"


def start_a_program(payload: bytes, progress: Progress) -> bytes:
    return subprocess.run([os.fsdecode(payload)], check=True, capture_output=True).stdout


def import_more(payload: bytes, progress: Progress) -> bytes:
    try:
        __import__("wave")
    except ImportError:
        return b"refused"
    return b"imported"


def load_native_code(payload: bytes, progress: Progress) -> bytes:
    ctypes.CDLL(None).getpid()
    return b""


def leave_a_child(payload: bytes, progress: Progress) -> bytes:
    """A program that outlives the task, and tells its number."""
    running = subprocess.Popen([os.fsdecode(payload), "3600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    progress("left", running.pid, None)
    return str(running.pid).encode()


def leave_a_child_and_wait(payload: bytes, progress: Progress) -> bytes:
    """The same, and the number of the child itself; it ends when it is ended."""
    leave_a_child(payload, progress)
    progress("here", os.getpid(), None)
    time.sleep(3_600)
    return b""


def program_in_the_folder(payload: bytes, progress: Progress) -> bytes:
    """A program that reads a file which the task wrote."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("written by the task")
        file.flush()
        return subprocess.run([os.fsdecode(payload), file.name], check=True, capture_output=True).stdout


def write_to_the_answers(payload: bytes, progress: Progress) -> bytes:
    """What libraries do that print."""
    sys.stdout.write("R" * 10_000)
    sys.stdout.flush()
    os.write(1, b"R" * 10_000)
    return b"still understood"
