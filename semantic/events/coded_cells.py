"""Dictionary-encoded columns of texts, as in Arrow: each distinct text is looked up once per table instead of once per
cell.

    distinct   ["Sofa", "Laptop"]        codes   [0, 0, 1, -1, 0]        -1: none

Takes what pyarrow gives without importing it: a table need not come from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CodedCells", "coded", "coded_texts"]

REPEATED = 4
"""Texts are coded if each is there so many times on average; others are looked at cell by cell."""
MOST_DISTINCT = 1 << 15
"""Of one column: half of the cells that a matcher remembers of an attribute."""


@dataclass(slots=True)
class CodedCells:
    """A sequence of cells. Parts of it share what was looked up."""

    distinct: list[Any]
    codes: npt.NDArray[np.int32]
    _looked_up: list[tuple[object, npt.NDArray[np.int32]]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return self.codes.size

    def __getitem__(self, row: int) -> Any:
        code = self.codes[row]
        return None if code < 0 else self.distinct[code]

    def part(self, start: int, stop: int) -> "CodedCells":
        """The cells `start … stop-1`."""
        return CodedCells(self.distinct, self.codes[start:stop], self._looked_up)

    def take(self, chosen: npt.NDArray[np.int64]) -> "CodedCells":
        """Some of the cells."""
        return CodedCells(self.distinct, self.codes[chosen], self._looked_up)

    def or_else(self, other: "CodedCells") -> "CodedCells":
        """The same cells, where there are none those of `other`."""
        shifted = np.where(other.codes < 0, other.codes, other.codes + len(self.distinct))
        codes = np.where(self.codes < 0, shifted, self.codes).astype(np.int32)
        return CodedCells([*self.distinct, *other.distinct], codes)

    def places(
        self, by: object, look_up: Callable[[list[Any]], npt.NDArray[np.int32]], missing: int
    ) -> npt.NDArray[np.int32]:
        """The place of each cell, where `look_up` gives those of the distinct ones; asked once for each `by`."""
        if not self._looked_up or self._looked_up[0][0] is not by:
            self._looked_up[:] = [(by, np.append(look_up(self.distinct), np.int32(missing)))]
        return self._looked_up[0][1][self.codes]  # -1 is the last one


def coded(column: Any) -> CodedCells | None:
    """The texts of a column of Arrow, if they repeat. Costs some 10 ns per cell, less where they are codes already."""
    cells = _encoded(column, MOST_DISTINCT)
    if cells is None:
        return None
    distinct, codes = cells.distinct, cells.codes
    # A table that was filtered may know texts that none of its rows has: nobody has asked to read those.
    used = np.bincount(codes + 1, minlength=len(distinct) + 1)[1:] > 0
    if not used.all():
        kept = np.flatnonzero(used)
        codes = np.append(np.cumsum(used, dtype=np.int32) - 1, np.int32(-1))[codes]
        distinct = [distinct[place] for place in kept.tolist()]
    return None if len(distinct) * REPEATED > codes.size else CodedCells(distinct, codes)


def coded_texts(column: Any) -> CodedCells | None:
    """The texts of a column of Arrow, an array of numpy or a list, however often they repeat; what is no text is none.
    None where it is of another type."""
    if hasattr(column, "null_count"):
        return _encoded(column, None)
    if isinstance(column, np.ndarray):
        if column.ndim != 1 or column.dtype.kind not in "OU":
            return None
        column = column.tolist()
    distinct: dict[Any, int] = {}
    codes = [distinct.setdefault(cell, len(distinct)) if isinstance(cell, str) else -1 for cell in column]
    return CodedCells(list(distinct), np.array(codes, dtype=np.int32))


def _encoded(column: Any, most: int | None) -> CodedCells | None:
    """A column of texts of Arrow as it is, or encoded as, codes; None for another one, or more than `most` texts."""
    kind = str(column.type)
    if kind in ("string", "large_string"):
        column = column.dictionary_encode()
    elif not kind.startswith(("dictionary<values=string", "dictionary<values=large_string")):
        return None
    elif hasattr(column, "unify_dictionaries"):
        column = column.unify_dictionaries()
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    if not chunks or (most is not None and len(chunks[0].dictionary) > most):
        return None
    codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks])
    distinct = chunks[0].dictionary.to_pylist()
    return CodedCells(distinct, codes.astype(np.int32, copy=False))
