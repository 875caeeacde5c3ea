"""The file format of an index: named arrays and metadata in one file, which is memory-mapped when it is opened.

    preamble (64 bytes)    magic, position of the contents, checksums
    arrays                 in their memory layout, each aligned to 64 bytes
    contents               JSON: the kind of file, the facts, and the type, shape, place and checksum of each array

A file is written under a temporary name in the same folder, synced to disk, and renamed. So a name always refers to a
complete file, old or new. Nothing in the file is ever executed. Opening reads the file once, to verify the checksums.
Pages that are changed later are private to the process, and the file stays unchanged.
"""

import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.errors import DamagedIndex, OtherLayout

__all__ = ["read_arrays", "write_arrays"]

MAGIC = b"KINDARR1"
PREAMBLE = struct.Struct("<8sQQII")
"""Magic, offset and length of the contents, their checksum, and the checksum of the fields before it."""
ALIGNMENT = 64
"""The size of a cache line in bytes. Kernels are compiled for aligned arrays."""
TYPES = ("|u1", "<u4", "<i4", "<u8", "<i8", "<f8")
"""The types that an array may have."""

Array = npt.NDArray[Any]


def write_arrays(path: Path, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Writes a file. `kind` names its content and layout; `facts` can be any JSON. Raises `OSError`; then an existing
    file of this name is unchanged."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            _write(file, kind, facts, arrays)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_arrays(path: Path, *kinds: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the facts and the arrays. Changes of the arrays do not change the file. Reads the file once, some 0.3 s
    per GB. Raises `DamagedIndex` if it is not such a file or a checksum is wrong, `OtherLayout` if its kind is not one
    of `kinds`, `OSError` if it cannot be opened."""
    path = Path(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < PREAMBLE.size:
            raise DamagedIndex(path, f"it has {size} bytes, which is too small for a file of arrays")
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    magic, at, length, checksum, own = PREAMBLE.unpack_from(whole)
    if magic != MAGIC:
        raise DamagedIndex(path, "it is not a file of arrays")
    if own != zlib.crc32(whole[: PREAMBLE.size - 4]) or at + length != size:
        raise DamagedIndex(path, "its preamble is damaged or its end is missing")
    text = whole[at : at + length]
    if zlib.crc32(text) != checksum:
        raise DamagedIndex(path, "its contents are damaged")
    contents = json.loads(text)
    if contents["kind"] not in kinds:
        raise OtherLayout(path, contents["kind"], kinds[0])
    arrays = {name: _mapped(path, whole, name, place) for name, place in contents["arrays"].items()}
    return contents["facts"], arrays


def _write(file: Any, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    places: dict[str, Any] = {}
    at = ALIGNMENT
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        if array.dtype.str not in TYPES:
            raise TypeError(f"the array {name} has the type {array.dtype}, which files of arrays do not support")
        data = _bytes(array)
        file.seek(at)
        file.write(data)
        places[name] = [array.dtype.str, list(array.shape), at, zlib.crc32(data)]
        at = -(-(at + data.nbytes) // ALIGNMENT) * ALIGNMENT
    text = json.dumps({"kind": kind, "facts": facts, "arrays": places}, separators=(",", ":")).encode("ascii")
    file.seek(at)
    file.write(text)
    preamble = PREAMBLE.pack(MAGIC, at, len(text), zlib.crc32(text), 0)
    file.seek(0)
    file.write(preamble[:-4] + struct.pack("<I", zlib.crc32(preamble[:-4])))


def _mapped(path: Path, whole: mmap.mmap, name: str, place: tuple[str, list[int], int, int]) -> Array:
    dtype, shape, at, checksum = place
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype=dtype)
    array = np.frombuffer(whole, dtype=dtype, count=count, offset=at)
    if zlib.crc32(_bytes(array)) != checksum:
        raise DamagedIndex(path, f"the array {name} is damaged")
    return array.reshape(shape)


def _bytes(array: Array) -> memoryview:
    return memoryview(cast(Any, array.reshape(-1).view(np.uint8))) if array.size else memoryview(b"")
