"""Kernels are imported when they are first called, run as Python meanwhile, and are compiled by processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kindcast.index import compilation, jit, machine_code

PRELUDE = """
import json, sys, threading
from kindcast.index import compilation, jit
from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, LoweredEvent, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused import engine as fused
A, N = AttributeId(0), ColumnId(0)
clauses = [Clause((Predicate(A, ((N, IntervalTest(float(i), i + 5.0)),)),), frozenset({A})) for i in range(300)]
event = LoweredEvent(frozenset({A}), {N: (100.0,)})
def found(memtable_rows=2048):
    engine = fused.FusedEngine(ConceptGraph(0), memtable_rows=memtable_rows)
    for clause in clauses:
        engine.add(clause)
    return engine.match(event).tolist()
"""


def told(program: str, **environment: str) -> Any:
    """What a new process prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def test_kernels_run_as_python_until_they_are_loaded() -> None:
    """The same rows before and after, in memtables and segments; the first call begins the loading, and no call
    waits for it."""
    program = """
loaded = threading.Event()
begun = []
def prepare():
    begun.append(threading.current_thread().name)
    loaded.wait()
    with jit.no_kernel_runs():
        jit.load_kernels()
jit.meanwhile(prepare)
before = [found(), found(memtable_rows=0), "numba" in sys.modules]
loaded.set()
[each.join() for each in threading.enumerate() if each.name == "kindcast-kernels"]
after = [found(), found(memtable_rows=0), "numba" in sys.modules]
print(json.dumps([before, after, begun, isinstance(fused.match_single, jit.Kernel)]))
"""
    before, after, begun, still = told(program)
    rows = list(range(95, 101))
    assert before == [rows, rows, False]
    assert after == [rows, rows, True]
    assert begun == ["kindcast-kernels"]
    assert not still


def test_kernels_are_imported_by_their_first_call_alone() -> None:
    """A process that only imports the engine has no compiler."""
    assert told('a = "numba" in sys.modules; rows = found(); print(json.dumps([a, rows, "numba" in sys.modules]))') == [
        False,
        list(range(95, 101)),
        True,
    ]


def test_first_compilation_registers_no_types_beside_other_calls() -> None:
    """All types are registered before a kernel can be called: a thread that looks a type up at this time would fail."""
    program = """
from kindcast.index import machine_code
from numba.core.typing.typeof import typeof_impl
before = len(typeof_impl.registry)
rows = len(found())
print(json.dumps([rows, len(typeof_impl.registry) - before]))
"""
    rows, registered = told(program)
    assert rows > 0
    assert registered == 0


def test_each_kernel_that_is_called_is_in_one_share() -> None:
    """So the two processes compile all of them, and none of them twice."""
    program = "print(json.dumps(sorted({kernel.__name__ for kernel, _ in jit.calls_of(compilation.call_all)})))"
    called = told(program)
    assert called
    assert [name for name in called if sum(share(name) for share in compilation.SHARES) != 1] == []


@pytest.mark.slow
def test_what_the_shares_leave_in_the_cache_is_all_that_a_process_needs(tmp_path: Path) -> None:
    """It compiles nothing. With the kernels of another engine, which are small."""
    cached = {jit.CACHE_VARIABLE: str(tmp_path)}
    few = """
from kindcast.index.published.le_subscribe import CountingEngine
def call_few():
    engine = CountingEngine(ConceptGraph(0))
    engine.add(Clause())
    engine.match(LoweredEvent())
compilation.call_all, compilation.SHARES = call_few, [lambda name: True]
"""
    told(f"{few}compilation.compile_share(0); print(0)", **cached)
    program = """
compilation.warm_up()
counts = [sum(each.form.stats.cache_misses.values()) for each in jit._kernels]
print(json.dumps([sum(counts), sum(sum(each.form.stats.cache_hits.values()) for each in jit._kernels) > 0]))
"""
    assert told(few + program, **cached) == [0, True]


@pytest.mark.slow
def test_folder_that_cannot_be_written_is_told_and_done_without(tmp_path: Path) -> None:
    """Neither beside the package, nor at home, nor where the setting says: every folder is refused, as on a read-only
    disk. The message names the setting; matching works, and what was compiled for this process is removed."""
    program = """
import logging, tempfile
from pathlib import Path
from numba.core import caching
logging.basicConfig(stream=sys.stderr)
texts = []
logging.getLogger("kindcast.index.jit").warning = lambda text: texts.append(text)
real = caching._CacheLocator.ensure_cache_path
def refused(self):
    if not self.get_cache_path().startswith(tempfile.gettempdir() + "/kindcast-kernels-"):
        raise OSError(30, "Read-only file system")
    real(self)
caching._CacheLocator.ensure_cache_path = refused
processes = []
compilation._process = lambda share, niceness: processes.append(share) or __import__("subprocess").Popen(["true"])
import atexit
atexit.register(compilation._end, None)
compilation._fill_cache(0)
print(json.dumps([texts, processes, str(jit.cache_folder())]))
"""
    texts, processes, folder = told(program, KINDCAST_CACHE=str(tmp_path / "refused"), TMPDIR=str(tmp_path))
    assert len(texts) == 1
    assert jit.CACHE_VARIABLE in texts[0]
    assert "every start" in texts[0]
    assert processes == [0, 1]
    assert Path(folder).parent == tmp_path
    assert not Path(folder).exists()


def test_chosen_folder_is_used_before_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`use_cache` before the variable, the variable before what numba would choose."""
    kernel = next(iter(jit._kernels)).py_func
    monkeypatch.setenv(jit.CACHE_VARIABLE, str(tmp_path / "named"))
    assert Path(machine_code.form_of(kernel).stats.cache_path).parent == tmp_path / "named"
    monkeypatch.setattr(jit, "_cache", tmp_path / "chosen")
    assert Path(machine_code.form_of(kernel).stats.cache_path).parent == tmp_path / "chosen"
    monkeypatch.setattr(jit, "_cache", None)
    monkeypatch.delenv(jit.CACHE_VARIABLE)
    assert machine_code.keeps(machine_code.form_of(kernel))


def test_calls_of_gives_the_kernels_that_python_calls() -> None:
    """Those that kernels call are compiled with them."""
    program = """
names = {kernel.__name__ for kernel, _ in jit.calls_of(compilation.call_all)}
print(json.dumps([sorted(names), sorted(each.__name__ for each in jit._kernels)]))
"""
    called, known = told(program)
    assert {"match_memtable", "match_segment", "match_single", "distinct_rows"} <= set(called)
    assert set(called) < set(known)


def test_calls_of_in_two_threads_finds_the_same_kernels() -> None:
    """As if a large tenant is opened while the kernels are loaded in the background."""
    program = """
import threading
names = []
def find(work):
    names.append(sorted({kernel.__name__ for kernel, _ in jit.calls_of(work)}))
second = threading.Thread(target=find, args=[compilation.call_all])
def beside_another():
    second.start()
    second.join(1.0)  # it waits for this one
    compilation.call_all()
find(beside_another)
second.join()
print(json.dumps(names))
"""
    one, other = told(program)
    assert one == other != []


def test_two_threads_may_load_the_kernels() -> None:
    """One in the background, while no kernel runs, and one that must have them."""
    program = """
import os, threading
other = threading.Thread(target=jit.load_kernels, daemon=True)
def beside():
    with jit.no_kernel_runs():
        other.start()
        other.join(2.0)  # it waits for this one
        jit.load_kernels()
first = threading.Thread(target=beside, daemon=True)
first.start()
first.join(30.0)  # only a failing test waits this long
print(json.dumps([first.is_alive(), jit.is_compiled()]), flush=True)
os._exit(0)
"""
    assert told(program) == [False, True]
