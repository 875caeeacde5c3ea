"""Ahead-of-time compilation of the kernels of the default engine, in several processes.

    warm_up         ─▶ processes compile the kernels that are in no cache ─▶ load_kernels: for many subscriptions
    warm_up_beside  ─▶ the same in a background thread, which the first kernel starts; kernels run as Python until then

A process runs the kernels as Python to find the types of their arguments, and then compiles its share of them, which
writes them to the cache. The two shares take about the same time.
"""

import atexit
import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindcast.index import jit
from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused import engine as fused

__all__ = ["KernelCache", "compile_share", "kernel_cache", "warm_up", "warm_up_beside"]

SLOWEST = frozenset({"match_segment", "match_single"})
"""Kernels whose compilation takes as long as that of all others."""
SHARES: tuple[Callable[[str], bool], ...] = (SLOWEST.__contains__, lambda name: name not in SLOWEST)

END_SECONDS = 5.0
"""Maximum time in seconds for which the exit of the process waits for the thread that loads kernels. Loading takes half
a second."""

POLL_SECONDS = 0.1

_logger = logging.getLogger(__name__)


_ending = threading.Event()
_processes: "list[subprocess.Popen[bytes]]" = []
_temporary: list[Path] = []


def warm_up() -> None:
    """Compiles and loads all kernels of `fused`. Takes some 20 s after installation, later half a second."""
    atexit.register(_end, None)
    _fill_cache(niceness=0)
    jit.load_kernels()
    call_all()


def warm_up_beside() -> None:
    """Like `warm_up`, but in a separate thread that starts when a kernel is first called. Until it ends, kernels run as
    Python, which takes some 0.1 ms more per event with few subscriptions."""
    jit.meanwhile(_beside)


def _beside() -> None:
    atexit.register(_end, threading.current_thread())
    try:
        cached = _fill_cache(niceness=19)
        from kindcast.index import machine_code  # noqa: F401  (slow, so imported before the lock is held)

        if not _ending.is_set():
            with jit.no_kernel_runs() if cached else nullcontext():  # compiling is slow: other threads go on
                jit.load_kernels()
                call_all()
    except Exception:  # kernels continue as Python
        _logger.exception("the kernels of the index could not be loaded")


def _end(loader: threading.Thread | None) -> None:
    """Waits for the loading thread, because the interpreter must not exit while a thread is in the compiler. Compiling
    processes continue, so that the next start finds their kernels, unless they compile for this process only."""
    _ending.set()
    for process in _processes:
        if _temporary:
            process.kill()
            process.wait()
        elif process.poll() is None:
            process.returncode = 0  # not waited for
    if loader is not None:
        loader.join(END_SECONDS)
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)


A, B, C = AttributeId(0), AttributeId(1), AttributeId(2)
NUMBER, KEY, CONCEPT = ColumnId(0), ColumnId(1), ColumnId(2)


def call_all() -> None:
    """Matches events of all kinds, with one value and with several, against rows in memtables and in segments."""
    graph = ConceptGraph(2, [(ConceptId(1), ConceptId(0))])
    graph.ancestors(ConceptId(1))
    tests = (
        (A, NUMBER, IntervalTest(0.0, 5.0)),
        (B, KEY, KeyTest(frozenset({"x"}))),
        (C, CONCEPT, ConceptTest(within=frozenset({ConceptId(0)}))),
    )
    predicates = [Predicate(attribute, ((column, test),)) for attribute, column, test in tests]
    negated = Predicate(A, ((NUMBER, IntervalTest(7.0, 8.0)),), negated=True)
    clauses = [
        *(Clause((each,), frozenset({each.attribute})) for each in (*predicates, negated)),
        Clause(tuple(predicates), frozenset({A, B, C})),
        Clause((predicates[0], negated), frozenset({A})),
    ]
    single = LoweredEvent(frozenset({A, B, C}), {NUMBER: (1.0,), KEY: ("x",), CONCEPT: (ConceptId(1),)})
    several = LoweredEvent(frozenset({A, B, C}), {NUMBER: (1.0, 9.0), KEY: ("x", "y"), CONCEPT: (ConceptId(1),)})
    for memtable_rows in (len(clauses), 0):
        engine = fused.FusedEngine(graph, memtable_rows=memtable_rows)
        engine.add_many(clauses)
        engine.add(clauses[0])
        engine.match(single)
        engine.match_batch([single, several])
        engine.merge_now()
    alone = fused.FusedEngine(graph, memtable_rows=0)
    alone.add_many([clauses[4]])
    alone.match(single)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The cached kernels for this version and this kind of processor. `folder` is None if no cache folder is
    writable."""

    folder: Path | None
    kernels: int
    compiled: int


def kernel_cache() -> KernelCache:
    """Returns the folder of compiled kernels and their number. Imports the compiler, but compiles nothing."""
    kernels = {kernel for kernel, _ in jit.calls_of(call_all)}
    from kindcast.index import machine_code

    forms = [machine_code.form_of(kernel.py_func) for kernel in kernels]
    folders = {machine_code.folder_of(form) for form in forms if machine_code.keeps(form)}
    return KernelCache(
        folder=Path(os.path.commonpath(folders)) if folders else None,
        kernels=len(forms),
        compiled=sum(machine_code.is_cached(form) for form in forms),
    )


def _fill_cache(niceness: int) -> bool:
    """Starts processes that compile the kernels that are in no cache for this kind of processor. If no cache folder is
    writable, they are written to a temporary folder of this process. Returns whether they are in the cache."""
    if jit.is_compiled():
        return True
    from kindcast.index import machine_code

    kernels = {kernel for kernel, _ in jit.calls_of(call_all)}

    def missing() -> list[Any]:
        forms = [machine_code.form_of(kernel.py_func) for kernel in kernels]
        return [form for form in forms if not machine_code.is_cached(form)]

    found = missing()
    if not found or _ending.is_set():
        return not found
    if all(map(machine_code.keeps, found)):
        _logger.warning(
            "compiling the kernels of the index in the background; this happens once after installation and takes "
            "about 20 seconds"
        )
    else:
        jit.tell_no_folder()
        try:
            _temporary.append(Path(tempfile.mkdtemp(prefix="kindcast-kernels-")))
        except OSError:
            return False  # this process compiles them itself
        jit.use_cache(_temporary[-1])
    began = time.monotonic()
    _processes.extend(_process(share, niceness) for share in range(len(SHARES)))
    for share, process in enumerate(_processes, 1):
        while process.poll() is None and not _ending.wait(POLL_SECONDS):
            pass
        if process.returncode == 0:
            _logger.warning("compiled %d of %d parts after %.0f s", share, len(SHARES), time.monotonic() - began)
    return not _ending.is_set() and not missing()


def compile_share(share: int) -> None:
    """Compiles the kernels of one of the `SHARES` that are in no cache, for the types of their arguments. Some 15 s. If
    several processes compile one share, the first compiles it and the others wait."""
    calls = [each for each in jit.calls_of(call_all) if SHARES[share](each[0].__name__)]
    jit.load_kernels()
    from kindcast.index.machine_code import compile_for, folder_of

    with (folder_of(calls[0][0].form) / f"compilation-{share}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for kernel, arguments in calls:
            compile_for(kernel.form, arguments)


def _process(share: int, niceness: int) -> "subprocess.Popen[bytes]":
    roof = str(Path(__file__).absolute().parents[2])  # of kindcast/index, without resolving links
    program = (
        f"import os, sys; os.nice({niceness}); sys.path.insert(0, {roof!r}); import kindcast; del sys.path[0]; "
        f"from kindcast.index.compilation import compile_share; compile_share({share})"
    )
    folder = jit.cache_folder()
    chosen = {} if folder is None else {jit.CACHE_VARIABLE: str(folder.absolute())}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **chosen},
    )
