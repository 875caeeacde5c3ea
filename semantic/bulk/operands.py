"""Constants of one slot → what the index compares with, once per distinct value.

What a constant means depends on the attribute, on how it is compared and on its kind. `OperandReader` asks the ordinary
way, with an expression of one predicate, what each distinct constant means; numbers that mean themselves are not asked
one by one. A constant that is refused, or of which there is something to tell, is none for a column: its tree is
compiled by itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from index.clause import ConceptTest, IntervalTest, Key, KeyTest
from semantic.bulk.columns import ConstantColumn, TextColumn, joined, narrowed, number_column
from semantic.bulk.shapes import INSTANT, IRI, NUMBER, STRING
from semantic.errors import InvalidSubscription
from semantic.language import parse_tree, to_tree
from semantic.operators.declaration import Operator
from semantic.reading import checks_of
from semantic.resolution import resolve
from semantic.vocabulary import Vocabulary

__all__ = ["EQUAL", "KIND", "ORDERED", "OperandReader", "Operands", "Use"]

EQUAL, ORDERED, KIND = "=", "<=", "isa"
"""How a constant is compared, as the operator that is asked what it means."""
EXACT = float(1 << 53)
"""Integers below are doubles, each of its own; larger ones are looked at one by one."""

Use = tuple[str, str, str]
"""How it is compared, the attribute as written, the kind of the constant."""
Sort = tuple[str, str]
"""The reading, and `key` or `concept`: constants of one column are of one sort."""


@dataclass(frozen=True, slots=True)
class Operands:
    """n operands of one slot. `good` is `bool[n]`; the others are not to be used. Either `numbers` (`float64[n]`), or
    `keys[places[i]]` (`int32[n]`)."""

    good: npt.NDArray[np.bool_]
    stored: ConstantColumn
    numbers: npt.NDArray[np.float64]
    keys: Sequence[Key]
    places: npt.NDArray[np.int32]

    def key(self, number: int) -> Key:
        """What operand `number` compares with."""
        return self.keys[self.places[number]] if self.places.size else float(self.numbers[number])

    def taken(self, places: npt.NDArray[np.int64]) -> "Operands":
        """Those at `places`."""
        numbers = self.numbers[places] if self.numbers.size else self.numbers
        own = self.places[places] if self.places.size else self.places
        return Operands(self.good[places], self.stored.taken(places), numbers, self.keys, own)

    @classmethod
    def joined(cls, operands: Sequence["Operands"]) -> "Operands":
        """Those of one slot, one after the other."""
        return cls(
            np.concatenate([each.good for each in operands]),
            joined([each.stored for each in operands]),
            np.concatenate([each.numbers for each in operands]),
            operands[0].keys,
            np.concatenate([each.places for each in operands]),
        )


class OperandReader:
    """Reads the constants of one use. Remembers every distinct one, so it is for one bulk."""

    def __init__(self, use: Use, vocabulary: Vocabulary, operators: Mapping[str, Operator], *, stored: bool) -> None:
        self._how, self._attribute, self._kind = use
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._places: dict[Any, int] = {}
        self._sorts: list[int] = []
        self._numbered: dict[Sort, int] = {}
        self._keys: list[Key] = []
        self._texts: list[str] = []
        self._plain = self._kind == NUMBER and self.sort(1) == ("number", "key")

    def sort(self, constant: Any) -> Sort | None:
        """What sort `constant` is of, None if it is none for a column."""
        number = self._sorts[self._place(constant)]
        return next((sort for sort, known in self._numbered.items() if known == number), None)

    def operands(self, constants: Sequence[Any], sort: Sort) -> Operands:
        """The operands for `constants`; good are those of this `sort`."""
        if self._plain:
            try:
                numbers = np.array(constants, dtype=np.float64)
            except OverflowError:
                numbers = np.array([each if abs(each) < EXACT else np.nan for each in constants], dtype=np.float64)
            good = np.abs(numbers) < EXACT if int in set(map(type, constants)) else np.isfinite(numbers)
            numbers = numbers if good.all() else np.where(good, numbers, 0.0)
            stored: ConstantColumn = number_column(constants, numbers)
            return Operands(good, stored, numbers, (), np.zeros(0, dtype=np.int32))
        known = self._places
        for each in set(constants).difference(known):
            self._place(each)
        places = np.array([known[each] for each in constants], dtype=np.int32)
        good = np.array(self._sorts, dtype=np.int32)[places] == self._numbered[sort]
        if self._kind in (STRING, IRI, INSTANT):
            stored = TextColumn(narrowed(places), self._texts)
        else:
            numbers = np.array([each if ok else 0 for each, ok in zip(constants, good, strict=True)], dtype=np.float64)
            stored = number_column([each if ok else 0 for each, ok in zip(constants, good, strict=True)], numbers)
        if sort[1] == "key" and sort[0] not in ("text", "boolean"):
            numbers = np.array([each if type(each) is float else 0.0 for each in self._keys], dtype=np.float64)[places]
        else:
            numbers = np.zeros(0)
        return Operands(good, stored, numbers, self._keys, places)

    def operand(self, constant: Any, sort: Sort) -> tuple[Key, Any] | None:
        """What one constant compares with, and what stands for it in the stored tree; None if it is not of `sort`."""
        if self._plain:
            good = abs(constant) < EXACT if type(constant) is int else math.isfinite(constant)
            return (float(constant), constant) if good else None
        place = self._place(constant)
        if self._sorts[place] != self._numbered[sort]:
            return None
        return self._keys[place], self._texts[place] if self._kind in (STRING, IRI, INSTANT) else constant

    @property
    def remembered(self) -> int:
        """How many distinct constants it remembers."""
        return len(self._places)

    def _place(self, constant: Any) -> int:
        found = self._places.get(constant)
        if found is None:
            sort, key, text = self._meaning(constant)
            found = self._places[constant] = len(self._keys)
            self._keys.append(key)
            self._texts.append(text)
            self._sorts.append(-1 if sort is None else self._numbered.setdefault(sort, len(self._numbered)))
        return found

    def _meaning(self, constant: Any) -> tuple[Sort | None, Key, str]:
        """Its sort, what it compares with, and the text that stands in the stored tree."""
        nothing = None, 0.0, ""
        if type(constant) is int and abs(constant) >= EXACT:
            return nothing
        try:
            asked = parse_tree({self._how: [self._attribute, self._written(constant)]})
            resolved = resolve(asked, self._vocabulary, stored=self._stored, operators=self._operators)
        except InvalidSubscription:
            return nothing
        checks = checks_of(resolved.expression, self._vocabulary)  # type: ignore[arg-type]  # one predicate
        if resolved.notes or checks is None or len(checks) != 1:
            return nothing
        ((_, body),) = to_tree(resolved.kept).items()
        text = next(iter(body[1].values())) if isinstance(body[1], dict) else body[1]
        ((reading, test),) = checks
        match test:
            case KeyTest(keys):
                (key,) = keys
                return (reading, "key"), key, text
            case IntervalTest(_, high):
                return (reading, "key"), high, text
            case ConceptTest(within, _, exactly):
                found = within | exactly
                return ((reading, "concept"), next(iter(found)), text) if len(found) == 1 else nothing

    def _written(self, constant: Any) -> Any:
        if self._kind in (IRI, INSTANT):
            return {self._kind: constant}
        return (
            constant
            if self._kind in (NUMBER, STRING)
            else {"value": constant, "unit": self._kind.removeprefix("unit:")}
        )
