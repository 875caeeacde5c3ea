"""Events in columns → lowered events, reading each distinct value once.

A table of flat columns holds few distinct values many times over: a value is canonicalised and lowered the first time
it is seen, and rows are put together from the pieces. Where one cell is not enough to read a value (structs, or a unit
that stands in a sibling attribute), rows are canonicalised one by one, as `Matcher.match` would.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from index.clause import AttributeId, ColumnId, Key, LoweredEvent
from semantic.canonicalise import Canonicaliser
from semantic.lowering import Lowering, ValueColumns
from semantic.model import CanonicalEvent

__all__ = ["TableLowering"]

_Piece = tuple[tuple[AttributeId, ...], ValueColumns]
"""What one cell adds to a lowered event: attributes that it makes present, and where its values stand."""
_NOTHING: _Piece = ((), ())
CACHED_CELLS = 1 << 16
"""Distinct cells a column remembers: a column of measurements may hold as many as it has rows."""


@dataclass(slots=True)
class _Column:
    name: str
    cells: Sequence[Any]
    pieces: dict[Any, _Piece] = field(default_factory=dict)


class TableLowering:
    """Rows of `columns` as lowered events. `columns` is a `pyarrow.Table`, or a mapping of attribute → sequence.

    Raises ValueError for columns of different lengths.
    """

    def __init__(self, columns: Any, canonicaliser: Canonicaliser, lowering: Lowering) -> None:
        self._canonicaliser = canonicaliser
        self._lowering = lowering
        self._columns = [_Column(name, cells) for name, cells in _cells(columns).items()]
        lengths = {column.name: len(column.cells) for column in self._columns}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns have different lengths: {lengths}")
        self._length = next(iter(lengths.values()), 0)
        self._by_row = any(self._needs_row(column) for column in self._columns)

    def __len__(self) -> int:
        return self._length

    def events(self, start: int, stop: int) -> list[LoweredEvent]:
        """The rows `start … stop-1`, lowered. Raises `InvalidEvent`."""
        if self._by_row:
            return [self._lowering.event(self.canonical(row)) for row in range(start, stop)]
        cells = [self._lowered_cells(column, start, stop) for column in self._columns]
        return [_joined(pieces) for pieces in zip(*cells, strict=True)]

    def canonical(self, row: int) -> CanonicalEvent:
        """One row as a canonical event."""
        data = {column.name: _plain(column.cells[row]) for column in self._columns}
        return self._canonicaliser.canonicalise(data)

    def _needs_row(self, column: _Column) -> bool:
        if self._canonicaliser.needs_siblings(column.name):
            return True
        return any(isinstance(cell, Mapping) or _is_list(cell) for cell in column.cells)

    def _lowered_cells(self, column: _Column, start: int, stop: int) -> list[_Piece]:
        pieces = column.pieces
        lowered: list[_Piece] = []
        for cell in column.cells[start:stop]:
            key = cell if type(cell) is str else (type(cell), cell)
            piece = pieces.get(key)
            if piece is None:
                if len(pieces) >= CACHED_CELLS:
                    pieces.clear()
                piece = pieces[key] = self._piece(column.name, _plain(cell))
            lowered.append(piece)
        return lowered

    def _piece(self, name: str, scalar: Any) -> _Piece:
        if scalar is None:
            return _NOTHING
        event = self._lowering.event(self._canonicaliser.canonicalise({name: scalar}))
        pairs = tuple((column, key) for column, keys in event.values.items() for key in keys)
        return tuple(event.present), pairs


def _joined(pieces: tuple[_Piece, ...]) -> LoweredEvent:
    present: list[AttributeId] = []
    values: dict[ColumnId, tuple[Key, ...]] = {}
    for attributes, pairs in pieces:
        present += attributes
        for column, key in pairs:
            before = values.get(column)
            values[column] = (key,) if before is None else before if key in before else (*before, key)
    return LoweredEvent(frozenset(present), values)


def _cells(columns: Any) -> dict[str, Sequence[Any]]:
    """Columns of Python scalars: Arrow and numpy give theirs up in bulk."""
    if isinstance(columns, Mapping):
        return {name: cells.tolist() if isinstance(cells, np.ndarray) else cells for name, cells in columns.items()}
    return {name: columns.column(name).to_pylist() for name in columns.column_names}


def _plain(cell: Any) -> Any:
    """NaN means absent, at any depth of a cell; numpy scalars become Python's."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float) and math.isnan(cell):
        return None
    if isinstance(cell, Mapping):
        return {key: _plain(value) for key, value in cell.items()}
    return [_plain(each) for each in cell] if _is_list(cell) else cell


def _is_list(cell: Any) -> bool:
    return isinstance(cell, list | tuple | np.ndarray)
