"""Compilation of kernels: once after installation, without the GIL, cached on disk for later starts.

    @compiled ─▶ Kernel ──first call──▶ load_kernels: imports numba, and replaces every kernel by its compiled form
                  └── `meanwhile`: kernels run as Python until a background thread has loaded them

numba and LLVM take 0.4 s to import and some 65 MB of memory. They are imported when a kernel is first called, so a
process that matches nothing does not import them. `kindcast.index.machine_code` is the only module that imports them.
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
    "load_kernels",
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
"""The environment variable with the folder for compiled kernels."""
DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""Whether kernels always run as Python, for example to measure their coverage."""

_logger = logging.getLogger(__name__)


class Kernel(Generic[P, R]):
    """A function that is loaded as compiled code, together with all other kernels, at the first call of any."""

    __name__: str

    def __init__(self, function: Callable[P, R]) -> None:
        self.py_func = function
        self.form: Callable[P, R] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.form is None:
            if _prepare is None:
                load_kernels()
            else:
                with _interpreting:
                    if self.form is None:
                        return self._interpreted(*args, **kwargs)
        assert self.form is not None
        return self.form(*args, **kwargs)

    def _interpreted(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the kernel as Python, with wrapping integers as in compiled code. Kernels that it calls run as Python,
        too."""
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
_listing = threading.Lock()
"""Held while `calls_of` lists calls."""
_interpreting = threading.RLock()
"""Held while a kernel runs as Python and while kernels are replaced, so that no Python kernel calls compiled
kernels."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Makes `function` a kernel. If no cache folder is writable, it is compiled in every process."""
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
    """Whether kernels are called in compiled form. If not, the next call loads them, or runs them as Python."""
    return DISABLED or _loaded


def load_kernels() -> None:
    """Imports the compiler, and replaces each kernel by its compiled form in every module of this project and in every
    other module that has kernels. A kernel is then compiled, or read from the cache, at its first call. Takes some
    0.4 s; a second call does nothing."""
    global _loaded
    if is_compiled():
        return
    from kindcast.index.machine_code import INSTRUCTIONS, form_of  # slow, so imported before the locks are held

    with _interpreting, _loading:  # in this order, because the caller may hold the first one (`no_kernel_runs`)
        if _loaded:
            return
        forms = {kernel: form_of(kernel.py_func) for kernel in _kernels}
        named = {id(kernel): form for kernel, form in forms.items()}
        named |= {id(python): INSTRUCTIONS[python.__name__] for python in (lowest_bit, nth, prefetch)}
        owners = {kernel.py_func.__module__ for kernel in _kernels}
        for name, module in list(sys.modules.items()):
            if name.startswith("kindcast.") or name in owners:
                for each, value in list(vars(module).items()):
                    if id(value) in named:
                        setattr(module, each, named[id(value)])
        for kernel, form in forms.items():
            kernel.form = form
        _loaded = True


def meanwhile(prepare: Callable[[], None]) -> None:
    """Lets kernels run as Python, up to a hundred times slower, until they are loaded. The first call of a kernel
    starts a thread that runs `prepare`, which loads them. For a process that must respond immediately."""
    global _prepare
    if not is_compiled():
        _prepare = prepare


def calls_of(work: Callable[[], None]) -> list[tuple[Kernel[..., Any], tuple[Any, ...]]]:
    """Runs `work` with kernels as Python. Returns the kernels that it calls, with the arguments of each call, without
    kernels that are called by kernels. For a process that compiles some of them."""
    global _calls, _caller, _prepare
    with _listing:  # a thread may load the kernels in the background while another one must have them
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
    """Prevents kernels from running as Python. Other threads wait before their next kernel."""
    with _interpreting:
        yield


def _begin() -> None:
    global _thread
    if _thread is None and _prepare is not None:
        _thread = threading.Thread(target=_prepare, name="kindcast-kernels", daemon=True)
        _thread.start()


# ── where compiled kernels are kept ──────────────────────────────────────────────────────────────────────────────────


def use_cache(folder: Path | None) -> None:
    """Sets the folder for compiled kernels. None selects the folder in `KINDCAST_CACHE`, or else a folder beside the
    package or in the user's cache folder. Applies to kernels that are loaded later."""
    global _cache
    _cache = folder


def cache_folder() -> Path | None:
    """Returns the folder for compiled kernels that `use_cache` or `KINDCAST_CACHE` set, or None."""
    named = os.environ.get(CACHE_VARIABLE)
    return _cache or (Path(named) if named else None)


_announced: set[str] = set()


def announce_compilation(kernel: Callable[..., Any]) -> None:
    """Warns once in the log (standard error if logging is not configured) that the first use is slow, if `kernel` is in
    no cache; and that the first use in every process is slow, if no cache folder is writable."""
    name = getattr(kernel, "__name__", "")
    if name in _announced or (_prepare is not None and not _loaded):
        return
    load_kernels()
    _announced.add(name)
    form = kernel.form if isinstance(kernel, Kernel) else kernel
    if DISABLED or getattr(form, "signatures", True):  # compilation is disabled, or the kernel is already compiled
        return
    from kindcast.index import machine_code

    if machine_code.is_cached(form):
        return
    if machine_code.keeps(form):
        _say("compiling the kernels of the index; this happens once after installation and takes about half a minute")
    else:
        tell_no_folder()


def tell_no_folder() -> None:
    """Warns that compiled kernels cannot be cached, and how to change that."""
    _say(
        "no folder can be written for compiled kernels: every start compiles them again, in about half a minute. Set "
        f"{CACHE_VARIABLE} to a writable folder"
    )


def _say(text: str) -> None:
    if text not in _announced:
        _announced.add(text)
        _logger.warning(text)


# ── instructions without a name in numba ────────────────────────────────────────────────────────────────────────────
# These are their Python forms. `load_kernels` replaces them by the INSTRUCTIONS of `kindcast.index.machine_code`.


def lowest_bit(word: np.uint64) -> int:
    """Returns the position of the lowest set bit. A single instruction in a kernel."""
    return (int(word) & -int(word)).bit_length() - 1


def nth(place: int) -> int:
    """Marks a subscript in a kernel that is never negative: `array[nth(i)]`. Without it, the compiler adds a test for
    negative subscripts, which took a third of the time of the hottest kernel."""
    return int(place)


def prefetch(array: Any, place: int) -> None:
    """In a kernel, prefetches `array[place]` into the cache for a later read. `place` may be out of bounds, because a
    prefetch reads nothing."""
