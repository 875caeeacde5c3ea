"""Compilation of kernels to machine code: the only module that imports numba and LLVM, at the first kernel call.

The cache key of numba is the name of the function, the SHA-256 of its source file, the signature, and the name and
features of the processor. Machine code of a kernel contains the kernels that it calls, so here the key includes all
source files of this package. A cache can move with the package, but not to another kind of processor. So each machine
has its own cache, and wheels contain none.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numba

# It registers types with numba, and numba imports it when it first compiles. Another thread that calls a kernel at this
# time, for example for another shard, would then read the register while it changes.
import numba.experimental.function_type
import numpy as np
from llvmlite import ir
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.cgutils import get_or_insert_function
from numba.core.types import void
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from kindcast.index import jit

__all__ = ["INSTRUCTIONS", "compile_for", "folder_of", "form_of", "is_cached", "keeps"]


def _prefetch(context: Any, array: Any, place: Any) -> Any:
    def code(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = cast(Any, make_array)(signature.args[0])(target, builder, values[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cast(Any, get_or_insert_function)(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(builder.gep(start, [values[1]]), byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # read, high locality, data cache
        return target.get_dummy_value()

    return void(array, place), code


# trailing_zeros is imported from a private module of numba, so the lock file pins numba. Our own version would crash if
# both declare the same intrinsic.
INSTRUCTIONS: dict[str, Any] = {
    "lowest_bit": trailing_zeros,
    "nth": np.uint64,
    "prefetch": cast(Any, intrinsic(_prefetch)),
}
"""The instructions, by the name of their Python form in `kindcast.index.jit`."""


class _Locator(cast(type[Any], UserProvidedCacheLocator)):  # type: ignore[misc]
    """The cache folder that is set for this project, if any. It precedes the folders that numba selects."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        folder = jit.cache_folder()
        assert folder is not None
        self._cache_path = str(folder / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        if jit.cache_folder() is None:
            return None
        self = cls(function, file)
        try:
            self.ensure_cache_path()
        except OSError:  # not writable
            return None
        return self


class _CacheImpl(cast(type[Any], CompileResultCacheImpl)):  # type: ignore[misc]
    _locator_classes = (_Locator, *CompileResultCacheImpl._locator_classes)


class _Cache(cast(type[Any], FunctionCache)):  # type: ignore[misc]
    _impl_class = _CacheImpl

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _sources())


@cache
def _sources() -> str:
    """Returns the SHA-256 of all modules of `kindcast.index`."""
    found = sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def form_of(function: Callable[..., Any]) -> Any:
    """Returns the compiled form of `function`, which is compiled, or read from the cache, at its first call."""
    dispatcher: Any = numba.njit(nogil=True)(function)
    with suppress(RuntimeError):  # no folder is writable
        dispatcher._cache = _Cache(function)
    return dispatcher


def is_cached(dispatcher: Any) -> bool:
    """Whether the cache has a form of this kernel for this source file and this kind of processor."""
    file = getattr(dispatcher._cache, "_cache_file", None)
    if file is None:
        return False
    processor = dispatcher.targetctx.codegen().magic_tuple()
    return any(key[1] == processor for key in file._load_index())


def folder_of(dispatcher: Any) -> Path:
    """Returns the cache folder of this kernel."""
    return Path(dispatcher.stats.cache_path)


def keeps(dispatcher: Any) -> bool:
    """Whether this kernel is cached, which requires a writable folder."""
    return dispatcher.stats.cache_path is not None


def compile_for(dispatcher: Any, arguments: tuple[Any, ...]) -> None:
    """Compiles a kernel for the types of these arguments, without calling it."""
    dispatcher.compile(tuple(map(numba.typeof, arguments)))
