"""How kernels are compiled: once after installation, without the interpreter lock, kept on disk for later starts.

    @compiled ─▶ Kernel ──first call──▶ load: numba is imported, every kernel replaced by its compiled form
                  └── `meanwhile`: it runs as the Python that it is, until a thread of its own has loaded the others

numba and LLVM take 0.4 s to import and some 65 MB, so they are imported when a kernel is first called: a process that
matches nothing has none of them. `kindcast.index.machine_code` is the only module that imports them.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

__all__ = [
    "CACHE_VARIABLE",
    "announce_compilation",
    "cache_folder",
    "calls_of",
    "compiled",
    "is_compiled",
    "load",
    "lowest_bit",
    "meanwhile",
    "no_kernel_runs",
    "nth",
    "prefetch",
    "tell_no_folder",
    "use_cache",
]

P = ParamSpec("P")
R = TypeVar("R")

CACHE_VARIABLE = "KINDCAST_CACHE"
"""The environment variable that names the folder of compiled kernels."""
DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""Kernels run as they are written, as where their coverage is counted."""

_logger = logging.getLogger(__name__)


class Kernel(Generic[P, R]):
    """A function that is compiled when it is first called, with all the others."""

    __name__: str

    def __init__(self, function: Callable[P, R]) -> None:
        self.py_func = function
        self.form: Callable[P, R] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.form is None:
            if _prepare is None:
                load()
            else:
                with _interpreting:
                    if self.form is None:
                        return self._interpreted(*args, **kwargs)
        assert self.form is not None
        return self.form(*args, **kwargs)

    def _interpreted(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """As Python; integers wrap, as those of compiled kernels do. A kernel that this one calls comes here too."""
        global _runs
        if _runs:
            return self.py_func(*args, **kwargs)
        _begin()
        if _calls is not None and _caller == threading.get_ident():
            _calls.append((self, args))
        _runs = True
        try:
            with np.errstate(all="ignore"):
                return self.py_func(*args, **kwargs)
        finally:
            _runs = False


_kernels: list[Kernel[..., Any]] = []
_loaded = False
_cache: Path | None = None
_prepare: Callable[[], None] | None = None
_thread: threading.Thread | None = None
_loading = threading.RLock()
_runs = False
_calls: list[tuple["Kernel[..., Any]", tuple[Any, ...]]] | None = None
_caller = 0
_interpreting = threading.RLock()
"""Held by a kernel that runs as Python, and while kernels are replaced: none runs as Python and calls compiled ones."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` as a kernel. Where no directory can be written, it is compiled in every process."""
    if DISABLED:
        return function
    kernel = Kernel(function)
    with _loading:
        if not _loaded:
            _kernels.append(kernel)
            return kernel
        from kindcast.index.machine_code import form_of

        return cast(Callable[P, R], form_of(function))


def is_compiled() -> bool:
    """Whether kernels are called in their compiled form; else the next call loads them, or runs them as Python."""
    return DISABLED or _loaded


def load() -> None:
    """Import the compiler, and replace each kernel by its compiled form in every module of this project, and in every
    other that has kernels.
    A kernel is then compiled, or read from the cache, at its first call. Some 0.4 s; nothing the second time."""
    global _loaded
    if is_compiled():
        return
    with _loading:
        if _loaded:
            return
        from kindcast.index.machine_code import INSTRUCTIONS, form_of

        forms = {kernel: form_of(kernel.py_func) for kernel in _kernels}
        named = {id(kernel): form for kernel, form in forms.items()}
        named |= {id(python): INSTRUCTIONS[python.__name__] for python in (lowest_bit, nth, prefetch)}
        owners = {kernel.py_func.__module__ for kernel in _kernels}
        with _interpreting:
            for name, module in list(sys.modules.items()):
                if name.startswith("kindcast.") or name in owners:
                    for each, value in list(vars(module).items()):
                        if id(value) in named:
                            setattr(module, each, named[id(value)])
            for kernel, form in forms.items():
                kernel.form = form
            _loaded = True


def meanwhile(prepare: Callable[[], None]) -> None:
    """From now on kernels run as Python, up to a hundred times slower, until they are loaded: the first call begins a
    thread that carries out `prepare`, which loads them. For a process that should answer at once."""
    global _prepare
    if not is_compiled():
        _prepare = prepare


def calls_of(work: Callable[[], None]) -> list[tuple[Kernel[..., Any], tuple[Any, ...]]]:
    """The kernels that `work` calls, with the arguments of each call; they run as Python. Kernels that kernels call are
    left out. For a process that compiles some of them."""
    global _calls, _caller, _prepare
    before, _prepare, _caller, _calls = _prepare, _prepare or _nothing, threading.get_ident(), []
    try:
        work()
        return _calls
    finally:
        _prepare, _calls = before, None


def _nothing() -> None:
    pass


@contextmanager
def no_kernel_runs() -> Iterator[None]:
    """No kernel runs as Python meanwhile: other threads wait before their next one."""
    with _interpreting:
        yield


def _begin() -> None:
    global _thread
    if _thread is None and _prepare is not None:
        _thread = threading.Thread(target=_prepare, name="kindcast-kernels", daemon=True)
        _thread.start()


# ── where compiled kernels are kept ──────────────────────────────────────────────────────────────────────────────────


def use_cache(folder: Path | None) -> None:
    """Keep compiled kernels in `folder`; None: where `KINDCAST_CACHE` says, else beside the package or in the user's
    cache folder. Counts for kernels that are loaded afterwards."""
    global _cache
    _cache = folder


def cache_folder() -> Path | None:
    """The folder that was chosen for compiled kernels, by `use_cache` or by `KINDCAST_CACHE`; None: none was."""
    named = os.environ.get(CACHE_VARIABLE)
    return _cache or (Path(named) if named else None)


_announced: set[str] = set()


def announce_compilation(kernel: Callable[..., Any]) -> None:
    """Say once, as a warning in the log (standard error where no log is set up), that the first use will take a while,
    if `kernel` is in no cache yet, and that every first use will, if no cache can be written."""
    name = getattr(kernel, "__name__", "")
    if name in _announced or (_prepare is not None and not _loaded):
        return
    load()
    _announced.add(name)
    form = kernel.form if isinstance(kernel, Kernel) else kernel
    if DISABLED or getattr(form, "signatures", True):  # nothing is compiled, or it is compiled already
        return
    from kindcast.index import machine_code

    if machine_code.is_cached(form):
        return
    if machine_code.keeps(form):
        _say("compiling the kernels of the index; this happens once after installation and takes about half a minute")
    else:
        tell_no_folder()


def tell_no_folder() -> None:
    """Say that what is compiled cannot be kept, and what to do about it."""
    _say(
        "no folder can be written for compiled kernels: every start compiles them again, in about half a minute. Set "
        f"{CACHE_VARIABLE} to a writable folder"
    )


def _say(text: str) -> None:
    if text not in _announced:
        _announced.add(text)
        _logger.warning(text)


# ── instructions that numba has no name for ──────────────────────────────────────────────────────────────────────────
# These are their Python forms. `load` replaces them by the INSTRUCTIONS of `kindcast.index.machine_code`.


def lowest_bit(word: np.uint64) -> int:
    """The place of the lowest bit that is set; one instruction in a kernel."""
    return (int(word) & -int(word)).bit_length() - 1


def nth(place: int) -> int:
    """Marks a subscript that is never negative, in a kernel: `array[nth(i)]`. Without it the compiler adds to each the
    test for one that counts from the end, which a third of the time of the hottest kernel went to."""
    return int(place)


def prefetch(array: Any, place: int) -> None:
    """In a kernel: have `array[place]`, which is read soon, brought into the cache meanwhile. `place` may lie outside:
    a hint reads nothing."""
