"""Plain events → lowered events on a short road: flat objects whose names and texts were seen before.

Most events are a handful of numbers, texts and truths under names that come again and again. What such a value becomes
does not depend on the others, so it is read once by `Canonicaliser` and `Lowering` and remembered:

    {"price": 350.0, "kind": "laptop"}
       │                └──────────── a text or truth: what was made of the same one under this name
       └───────────────────────────── a number: itself, in the columns that read it as it is
    the names together ─────────────▶ which attributes are present

Whatever is not plain (a nested value, a number that is refused, a unit in a sibling attribute, two names that mean one
attribute, derived attributes) is left to them: the answer is None, and the event goes the general road. So there is one
meaning, and one place that refuses events.
"""

from collections.abc import Mapping
from typing import Any

from index.clause import AttributeId, ColumnId, Key, LoweredEvent
from semantic.canonicalise import Canonicaliser
from semantic.lowering import Lowering
from semantic.table import EXACT, TableReader, attributes_of, read_plain

__all__ = ["PlainEvents"]

REMEMBERED = 1 << 16
"""Names, values and sets of names that are remembered together; then all are forgotten. Some 30 MB at most, whatever
publishers send."""
LONGEST = 200
"""Characters of a name or text that is remembered."""
MOST_NAMES = 200
"""Names of an event that is read here."""

Cell = Mapping[ColumnId, tuple[Key, ...]]
"""What became of one value: its keys, by column."""

NOTHING: Cell = {}


class _Name:
    """What is known of one name: the attributes that any value makes present, those of them that somebody asks about,
    the columns that take a number as it is (None: not known, or none does), and what became of values."""

    __slots__ = ("attributes", "cells", "numbers", "present", "raw", "texts")

    def __init__(self, raw: str, attributes: Mapping[str, AttributeId]) -> None:
        present = frozenset(attributes.values())
        self.raw = raw
        self.attributes = tuple(attributes)
        self.present = present
        self.numbers: tuple[ColumnId, ...] | None = None if present else ()
        self.texts: dict[str, Cell] = {}
        self.cells: dict[tuple[type, Any], Cell] = {}


_Shape = tuple[tuple[_Name, ...], frozenset[AttributeId]]
"""The names of an event in order, and the attributes that they make present."""


class PlainEvents:
    """Reads plain events for one matcher. One thread at a time."""

    def __init__(self, canonicaliser: Canonicaliser, lowering: Lowering, tables: TableReader) -> None:
        self._canonicaliser = canonicaliser
        self._lowering = lowering
        self._tables = tables
        self._asked = -1
        self._names: dict[str, _Name | None] = {}
        self._shapes: dict[tuple[str, ...], _Shape | None] = {}
        self._kept = 0
        self._most = min(MOST_NAMES, canonicaliser.limits.values) if canonicaliser.reads_values_apart else -1

    def lowered(self, data: dict[str, Any]) -> LoweredEvent | None:
        """What `Lowering.event` makes of the canonical form of `data`, or None where only they can tell. Costs about
        150 ns a value, and what they cost for a text that was not seen lately."""
        if type(data) is not dict or len(data) > self._most:
            return None
        if self._asked != self._lowering.asked:  # somebody asks about more than when values were read
            self._forget()
        names = tuple(data)
        try:
            shape = self._shapes[names]
        except KeyError:
            shape = self._shape(names)
        if shape is None:
            return None
        known, present = shape
        values: dict[ColumnId, tuple[Key, ...]] = {}
        absent = False
        for name, value in zip(known, data.values(), strict=True):
            kind = type(value)
            if kind is float or kind is int:
                if kind is int:
                    if not -EXACT < value < EXACT:
                        return None
                    value = float(value)
                elif value - value != 0.0:  # infinite, or no number
                    return None
                columns = name.numbers
                if columns is not None:
                    for column in columns:
                        values[column] = (value,)
                    continue
                cell = self._number(name, value)
            elif kind is str:
                known_text = name.texts.get(value)
                cell = self._text(name, value) if known_text is None else known_text
            elif value is None:
                absent = True
                continue
            elif kind is bool:
                cell = self._cell(name, value)
            else:
                return None
            values.update(cell)
        if absent:
            pairs = zip(known, data.values(), strict=True)
            present = frozenset().union(*(name.present for name, value in pairs if value is not None))
        return LoweredEvent(present, values)

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _shape(self, names: tuple[Any, ...]) -> _Shape | None:
        """What is known of these names together; None where they are not all plain, or two mean one attribute."""
        found: _Shape | None = None
        known = [self._name(each) for each in names if type(each) is str and len(each) <= LONGEST]
        plain = [each for each in known if each is not None]
        if len(plain) == len(names):
            present = frozenset[AttributeId]().union(*(each.present for each in plain))
            if len(present) == sum(len(each.present) for each in plain):
                found = tuple(plain), present
        if len(known) == len(names):
            self._count(len(names))
            self._shapes[names] = found
        return found

    def _name(self, raw: str) -> _Name | None:
        try:
            return self._names[raw]
        except KeyError:
            found: _Name | None = None
            if self._canonicaliser.is_plain(raw):
                found = _Name(raw, attributes_of(self._canonicaliser, self._lowering, raw))
            self._count(1)
            self._names[raw] = found
            return found

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, name: _Name, value: float) -> Cell:
        """A number under a name of which it is not known, or not so, that it stands in its columns as it is."""
        as_it_is = self._tables.numbers(name.raw)
        if as_it_is is not None and as_it_is[0] == name.present:
            name.numbers = as_it_is[1]
            return {column: (value,) for column in name.numbers}
        return self._cell(name, value)

    def _text(self, name: _Name, value: str) -> Cell:
        if not name.present:
            return NOTHING
        cell = self._read(name, value)
        if len(value) <= LONGEST:
            self._count(1)
            name.texts[value] = cell
        return cell

    def _cell(self, name: _Name, value: Any) -> Cell:
        if not name.present:
            return NOTHING
        key = type(value), value
        cell = name.cells.get(key)
        if cell is None:
            cell = name.cells[key] = self._read(name, value)
            self._count(1)
        return cell

    def _read(self, name: _Name, value: Any) -> Cell:
        return read_plain(self._canonicaliser, self._lowering, name.attributes, value)

    # ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _count(self, more: int) -> None:
        self._kept += more
        if self._kept > REMEMBERED:
            self._forget()
            self._kept = more

    def _forget(self) -> None:
        self._asked = self._lowering.asked
        self._names.clear()
        self._shapes.clear()
        self._kept = 0
        self._tables.renew()
