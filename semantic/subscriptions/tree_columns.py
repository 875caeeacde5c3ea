"""Columnar storage of trees of one shape: one narrow column per constant, and the trees rebuilt from them.

ConstantColumn   numbers as they were written (5 is not 5.0), or texts, each distinct one once
Part             a skeleton {"all": [{"<=": ["price", {"slot": 0}]}]} and a column for each slot
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "SLOT",
    "ConstantColumn",
    "NumberColumn",
    "Part",
    "TextColumn",
    "filled",
    "joined",
    "narrowed",
    "number_column",
]

SLOT = "slot"
"""Key of the place of a constant in a skeleton; no operator is named so."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """n numbers. `values` are integers where all were written so, else doubles; `whole` (`uint8[n]`, or empty: none)
    says which of the doubles were written as integers."""

    values: Array
    whole: Array

    def __getitem__(self, place: int) -> int | float:
        value: int | float = self.values[place].item()
        return int(value) if self.whole.size and self.whole[place] else value

    def taken(self, places: Array) -> "NumberColumn":
        """Those at `places`."""
        return NumberColumn(self.values[places], self.whole[places] if self.whole.size else self.whole)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.whole.nbytes


@dataclass(frozen=True, slots=True)
class TextColumn:
    """n texts: `texts[places[i]]`; columns may share their texts."""

    places: Array
    texts: Sequence[str]

    def __getitem__(self, place: int) -> str:
        return self.texts[int(self.places[place])]

    def taken(self, places: Array) -> "TextColumn":
        """Those at `places`."""
        return TextColumn(self.places[places], self.texts)

    @property
    def nbytes(self) -> int:
        """Without the texts."""
        return self.places.nbytes


ConstantColumn = NumberColumn | TextColumn


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """n trees of one shape; immutable."""

    skeleton: Any
    columns: tuple[ConstantColumn, ...]

    def tree(self, place: int) -> dict[str, Any]:
        """Tree number `place`. Some µs."""
        tree: dict[str, Any] = filled(self.skeleton, [column[place] for column in self.columns])
        return tree

    def taken(self, places: Array) -> "Part":
        """The trees at `places`."""
        return Part(self.skeleton, tuple(column.taken(places) for column in self.columns))

    @property
    def nbytes(self) -> int:
        """Of the columns."""
        return sum(column.nbytes for column in self.columns)


def filled(node: Any, constants: Sequence[Any]) -> Any:
    """`node` with every `{"slot": k}` replaced by constant k; all containers are new."""
    if type(node) is dict:
        if SLOT in node:
            return constants[node[SLOT]]
        return {key: filled(value, constants) for key, value in node.items()}
    if type(node) is list:
        return [filled(value, constants) for value in node]
    return node


def number_column(written: Sequence[int | float], values: npt.NDArray[np.float64]) -> NumberColumn:
    """The column of numbers as `written`, which `values` are as doubles, exactly."""
    none = np.zeros(0, dtype=np.uint8)
    types = set(map(type, written))
    if types == {int}:
        return NumberColumn(narrowed(values.astype(np.int64)), none)
    if types <= {float}:
        return NumberColumn(values, none)
    return NumberColumn(values, np.array([type(each) is int for each in written], dtype=np.uint8))


def joined(columns: Sequence[ConstantColumn]) -> ConstantColumn:
    """Columns of one slot, one after the other; those of texts share them."""
    if len(columns) == 1:
        return columns[0]
    first = columns[0]
    if isinstance(first, TextColumn):
        return TextColumn(narrowed(np.concatenate([each.places for each in _texts(columns)])), first.texts)
    numbers = [each for each in columns if isinstance(each, NumberColumn)]
    values = np.concatenate([each.values for each in numbers])
    if values.dtype.kind != "f":
        return NumberColumn(values, np.zeros(0, dtype=np.uint8))
    whole = np.concatenate([_whole(each) for each in numbers])
    return NumberColumn(values, whole if whole.any() else whole[:0])


def narrowed(whole: Array) -> Array:
    """The same integers in the narrowest type that holds them."""
    if not whole.size:
        return whole.astype(np.uint8)
    low, high = int(whole.min()), int(whole.max())
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return whole.astype(dtype)
    return whole.astype(np.int64)


def _texts(columns: Iterable[ConstantColumn]) -> list[TextColumn]:
    return [each for each in columns if isinstance(each, TextColumn)]


def _whole(column: NumberColumn) -> Array:
    if column.values.dtype.kind != "f":
        return np.ones(column.values.size, dtype=np.uint8)
    return column.whole if column.whole.size else np.zeros(column.values.size, dtype=np.uint8)
