"""How kernels are compiled: once after installation, without the interpreter lock, kept on disk for later starts."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core.cgutils import get_or_insert_function
from numba.core.types import void
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = ["announce_compilation", "compiled", "lowest_bit", "nth", "prefetch"]

P = ParamSpec("P")
R = TypeVar("R")

lowest_bit: Callable[[np.uint64], int] = cast(Any, trailing_zeros)
"""The place of the lowest bit that is set; one instruction in a kernel. A private path of numba's, so the lock file
pins numba; a version of our own crashes where both declare the same intrinsic."""

nth: Callable[[int], int] = cast(Any, np.uint64)
"""Marks a subscript that is never negative, in a kernel: `array[nth(i)]`. Without it the compiler adds to each the
test for one that counts from the end, which a third of the time of the hottest kernel went to."""


def _prefetch(context: Any, array: Any, place: Any) -> Any:
    def code(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = cast(Any, make_array)(signature.args[0])(target, builder, values[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cast(Any, get_or_insert_function)(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(builder.gep(start, [values[1]]), byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, soon again, data
        return target.get_dummy_value()

    return void(array, place), code


prefetch: Callable[[Any, int], None] = cast(Any, intrinsic(_prefetch))
"""In a kernel: have `array[place]`, which is read soon, brought into the cache meanwhile. `place` may lie outside: a
hint reads nothing."""

if cast(Any, numba.config).DISABLE_JIT:  # kernels run as they are written, as where their coverage is counted

    def _lowest_bit(word: np.uint64) -> int:
        return (int(word) & -int(word)).bit_length() - 1

    def _no_prefetch(array: Any, place: int) -> None:
        pass

    lowest_bit, nth, prefetch = _lowest_bit, int, _no_prefetch

WARNED = "(warned)"

_logger = logging.getLogger(__name__)
_looked_at: set[str] = set()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled at its first call. Where no directory can be written, it is compiled in every process."""
    try:
        kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no place for its cache
        kernel = numba.njit(nogil=True)(function)
    return cast(Callable[P, R], kernel)


def announce_compilation(kernel: Callable[..., Any]) -> None:
    """Say once, as a warning in the log (standard error where no log is set up), that the first use will take a while,
    if `kernel` is in no cache yet."""
    name = getattr(kernel, "__name__", "")
    if name in _looked_at:
        return
    path = getattr(getattr(kernel, "stats", None), "cache_path", None)
    if path is None or not any(Path(path).glob(f"*.{name}-*.nbi")):
        if WARNED not in _looked_at:
            _logger.warning("compiling the kernels of the index: once after installation, about half a minute")
        _looked_at.add(WARNED)
    _looked_at.add(name)
