"""What adding many gives back: each `Compiled` when it is read, and what was to be told of stored trees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from semantic.bulk.columns import Part
from semantic.compilation import Compiled, compiled_again
from semantic.errors import InvalidSubscription
from semantic.model import Note
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["CompiledTrees", "Restored"]


@dataclass(frozen=True, slots=True)
class Restored:
    """Of stored subscriptions, by name: what there is to tell of them, and why some have no meaning any more."""

    notes: dict[str, tuple[Note, ...]] = field(default_factory=dict)
    refused: dict[str, InvalidSubscription] = field(default_factory=dict)


class CompiledTrees(Sequence[Compiled]):
    """The subscriptions of a bulk, in order. Those that were compiled together are made again when they are read; later
    changes of the matcher change nothing here."""

    def __init__(
        self,
        count: int,
        singles: Mapping[int, Compiled],
        parts: Sequence[tuple[npt.NDArray[np.int64], Part]],
        vocabulary: Vocabulary,
        operators: Mapping[str, Operator],
    ) -> None:
        """`parts`: the numbers of the trees of each part, ascending; `singles` has the others by number."""
        self._singles = singles
        self._parts = [part for _, part in parts]
        self._part_of = np.full(count, -1, dtype=np.int32)
        self._place_of = np.zeros(count, dtype=np.int32)
        for number, (numbers, _) in enumerate(parts):
            self._part_of[numbers] = number
            self._place_of[numbers] = np.arange(numbers.size)
        self._vocabulary = vocabulary
        self._operators = operators

    def __len__(self) -> int:
        return self._part_of.size

    @overload
    def __getitem__(self, index: int) -> Compiled: ...
    @overload
    def __getitem__(self, index: slice) -> list[Compiled]: ...
    def __getitem__(self, index: int | slice) -> Compiled | list[Compiled]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        known = self._singles.get(numbers)
        if known is not None:
            return known
        tree = self._parts[self._part_of[numbers]].tree(int(self._place_of[numbers]))
        return compiled_again(tree, (), self._vocabulary, self._operators)
