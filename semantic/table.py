"""Events in columns → columns of the index, reading each distinct value once.

A table of flat columns holds few distinct values many times over: a value is canonicalised and lowered the first time
it is seen, and what became of it stays with the matcher, for later tables.

    column of numbers ──────────────▶ the same numbers, where the attribute is read as it is published
    column of other cells ──CellIndex──▶ places in a table of distinct values ──▶ a table of keys for each column read
                                                                           ColumnBatch ──▶ engine

Where one cell is not enough to read a value (structs, lists, a unit in a sibling attribute, the type of an event, what
others are derived from, two columns that mean one attribute), rows are canonicalised one by one, as `Matcher.match`
would.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, ColumnId, Key, LoweredEvent
from index.column_batch import ColumnBatch, ColumnValues, KeyTable
from semantic.canonicalise import Canonicaliser
from semantic.coded_cells import CodedCells, coded
from semantic.errors import InvalidEvent
from semantic.lowering import Lowering
from semantic.model import CanonicalEvent, Event

__all__ = ["RowsNeeded", "Table", "TableReader", "attributes_of", "read_plain"]

CACHED_CELLS = 1 << 16
"""Distinct cells that are remembered for an attribute: a column of measurements may hold as many as it has rows."""
CACHED_NAMES = 1 << 14
"""Names of columns of numbers that are remembered."""
CACHED_TABLES = 64
"""Tables with other attributes, whose sets of attributes are remembered."""
FEW_COLUMNS = 12
"""Which attributes a row has is counted in a table of 2^columns for so many, else looked up row by row."""
PROBES = (1.5, 1e6 + 0.25, -3.0)
"""A column of numbers is taken as it is if these are read as themselves: no unit converts them all to themselves."""
EXACT = 1 << 53
"""Integers beyond are not exact as doubles; they go cell by cell, where they are refused."""
MISSING, UNSEEN = -1, -2


class RowsNeeded(Exception):
    """This table cannot be read column by column."""


@dataclass(slots=True)
class _CellIndex:
    """What became of the distinct cells of one attribute. `present` and the keys of `tables` are by place."""

    places: dict[Any, int] = field(default_factory=lambda: {None: MISSING})
    others: dict[Any, int] = field(default_factory=dict)
    present: list[frozenset[AttributeId]] = field(default_factory=list)
    several: dict[int, LoweredEvent] = field(default_factory=dict)
    tables: dict[ColumnId, KeyTable] = field(default_factory=dict)


class TableReader:
    """Reads tables for one matcher, and remembers what it has read. One thread at a time."""

    def __init__(self, canonicaliser: Canonicaliser, lowering: Lowering) -> None:
        self._canonicaliser = canonicaliser
        self._lowering = lowering
        self._asked = 0
        self._cells: dict[str, _CellIndex] = {}
        self._numbers: dict[str, tuple[frozenset[AttributeId], tuple[ColumnId, ...]] | None] = {}
        self._presents: dict[tuple[frozenset[AttributeId], ...], dict[int, frozenset[AttributeId]]] = {}

    def read(self, columns: Any) -> "Table":
        """`columns` is a `pyarrow.Table`, or a mapping of attribute → numpy array or list. Raises ValueError for
        columns of different lengths."""
        self.renew()
        return Table(columns, self)

    def renew(self) -> None:
        """Forget what was read before somebody asked about more."""
        if self._asked != self._lowering.asked:
            self._asked = self._lowering.asked
            self._cells.clear()
            self._numbers.clear()
            self._presents.clear()

    def lowered(self, data: Mapping[str, Any]) -> LoweredEvent:
        """One row, lowered. Raises `InvalidEvent`."""
        return self._lowering.event(self.canonical(data))

    def canonical(self, data: Mapping[str, Any]) -> CanonicalEvent:
        """One row as a canonical event; columns `ce.…` are its context attributes. Raises `InvalidEvent`."""
        context = {name[3:]: data[name] for name in data if name.startswith("ce.")}
        if not context:
            return self._canonicaliser.canonicalise(data)
        said = {name: value for name, value in context.items() if value is not None}
        rest = {name: value for name, value in data.items() if not name.startswith("ce.")}
        return self._canonicaliser.canonicalise(Event(rest, said))

    def needs_row(self, name: str) -> bool:
        """Whether a value of this attribute can only be read with the event around it."""
        return self._canonicaliser.needs_row(name)

    def numbers(self, name: str) -> tuple[frozenset[AttributeId], tuple[ColumnId, ...]] | None:
        """The attributes that a number makes present, and the columns in which it stands, if it stands there as it
        is."""
        if name not in self._numbers:
            if len(self._numbers) >= CACHED_NAMES:
                self._numbers.clear()
            lowered = [(number, self.lowered({name: number})) for number in PROBES]
            first = lowered[0][1]
            as_it_is = all(
                event.present == first.present
                and event.values.keys() == first.values.keys()
                and all(keys == (number,) for keys in event.values.values())
                for number, event in lowered
            )
            self._numbers[name] = (first.present, tuple(first.values)) if as_it_is else None
        return self._numbers[name]

    def present(
        self, attributes: tuple[frozenset[AttributeId], ...], codes: Sequence[int]
    ) -> list[frozenset[AttributeId]]:
        """For each code the union of the sets whose bits it has."""
        known = self._presents.get(attributes)
        if known is None or len(known) + len(codes) > CACHED_CELLS:
            if len(self._presents) >= CACHED_TABLES:
                self._presents.clear()
            known = self._presents[attributes] = {}
        found = []
        for code in codes:
            union = known.get(code)
            if union is None:
                sets = (each for place, each in enumerate(attributes) if code >> place & 1)
                union = known[code] = frozenset[AttributeId]().union(*sets)
            found.append(union)
        return found

    def index(self, name: str, room: int) -> _CellIndex:
        """What is known of the cells of an attribute, with room for so many more."""
        index = self._cells.get(name)
        if index is None or len(index.present) + room > CACHED_CELLS:
            index = self._cells[name] = _CellIndex()
        return index

    def looked_up(self, name: str, cells: Any) -> tuple[_CellIndex, npt.NDArray[np.int32]]:
        """What is known of an attribute, and the place of each cell there. Raises `RowsNeeded`, `InvalidEvent`."""
        if isinstance(cells, CodedCells):
            index = self.index(name, len(cells.distinct))
            return index, cells.places(index, lambda distinct: self.places(index, name, distinct), MISSING)
        index = self.index(name, len(cells))
        return index, self.places(index, name, cells if isinstance(cells, list) else list(cells))

    def places(self, index: _CellIndex, name: str, cells: Sequence[Any]) -> npt.NDArray[np.int32]:
        """The place of each cell, `MISSING` for none. Some 60 ns a cell; a cell never seen costs its reading. Raises
        `RowsNeeded` for a list or a struct."""
        try:
            places = np.fromiter(map(index.places.get, cells, repeat(UNSEEN)), np.int32, len(cells))
        except TypeError:  # a list or a dict has no hash
            raise RowsNeeded from None
        for row in np.flatnonzero(places == UNSEEN).tolist():
            places[row] = self._place(index, name, cells[row])
        return places

    def _place(self, index: _CellIndex, name: str, cell: Any) -> int:
        plain = _plain(cell)
        if plain is None:
            return MISSING
        if isinstance(plain, list | Mapping):
            raise RowsNeeded
        # Strings are looked up as they are; others with their type, since 1, 1.0 and True are one key.
        known, key = (index.places, plain) if type(plain) is str else (index.others, (type(plain), plain))
        place = known.get(key)
        if place is None:
            place = known[key] = self._learn(index, self._lowered_cell(name, plain))
        return place

    def _lowered_cell(self, name: str, cell: Any) -> LoweredEvent:
        """A row of one cell, lowered: without an event around it where it needs none. Raises `InvalidEvent`."""
        reader = self._canonicaliser
        if type(cell) is str and reader.reads_values_apart and reader.is_plain(name):
            attributes = attributes_of(reader, self._lowering, name)
            try:
                return LoweredEvent(
                    frozenset(attributes.values()), read_plain(reader, self._lowering, attributes, cell)
                )
            except InvalidEvent:
                pass  # refused below, with what was refused and where
        return self.lowered({name: cell})

    def _learn(self, index: _CellIndex, event: LoweredEvent) -> int:
        place = len(index.present)
        if index.present and index.present[0] != event.present:
            raise RowsNeeded
        index.present.append(event.present)
        if any(len(keys) > 1 for keys in event.values.values()):
            index.several[place] = event
        for column in event.values:
            if column not in index.tables:
                index.tables[column] = KeyTable([None] * place)
        for column, table in index.tables.items():
            keys = event.values.get(column, ())
            table.keys.append(keys[0] if len(keys) == 1 else None)
        return place


class Table:
    """The rows of a table, as events."""

    def __init__(self, columns: Any, reader: TableReader) -> None:
        self._reader = reader
        self._columns = _columns(columns)
        lengths = {name: len(cells) for name, cells in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns have different lengths: {lengths}")
        self._length = next(iter(lengths.values()), 0)

    def __len__(self) -> int:
        return self._length

    def events(self, start: int, stop: int) -> list[LoweredEvent]:
        """The rows `start … stop-1`, lowered one by one. Raises `InvalidEvent`."""
        return [self._reader.lowered(self._row(row)) for row in range(start, stop)]

    def canonical(self, row: int) -> CanonicalEvent:
        """One row as a canonical event."""
        return self._reader.canonical(self._row(row))

    def batch(self, start: int, stop: int) -> ColumnBatch:
        """The rows `start … stop-1` in columns. Raises `RowsNeeded`, `InvalidEvent`."""
        count = stop - start
        found: list[ColumnValues] = []
        present: list[tuple[npt.NDArray[np.bool_], frozenset[AttributeId]]] = []
        several: set[int] = set()
        for name, cells in self._columns.items():
            if self._reader.needs_row(name):
                raise RowsNeeded
            part = cells.part(start, stop) if isinstance(cells, CodedCells) else cells[start:stop]
            if isinstance(part, np.ndarray) and part.dtype == np.float64:
                as_it_is = self._reader.numbers(name)
                if as_it_is is not None:
                    attributes, columns = as_it_is
                    if attributes:
                        present.append((~np.isnan(part), attributes))
                    found += [ColumnValues(column, part) for column in columns]
                    continue
                part = [None if cell != cell else cell for cell in part.tolist()]
            index, places = self._reader.looked_up(name, part)
            if index.present and index.present[0]:
                present.append((places >= 0, index.present[0]))
            if index.several:
                several.update(np.flatnonzero(np.isin(places, list(index.several))).tolist())
            no_numbers = np.zeros(0)
            found += [ColumnValues(column, no_numbers, table, places) for column, table in index.tables.items()]
        if len({each.column for each in found}) < len(found):
            raise RowsNeeded
        kinds, presents = self._kinds(present, count)
        if several:
            found = _without(found, sorted(several))
        return ColumnBatch(
            kinds, presents, found, {row: self._reader.lowered(self._row(start + row)) for row in several}
        )

    def _kinds(
        self, present: list[tuple[npt.NDArray[np.bool_], frozenset[AttributeId]]], count: int
    ) -> tuple[npt.NDArray[np.int32], list[frozenset[AttributeId]]]:
        """Which attributes each row has: the number of a set, and the sets."""
        attributes = tuple(each for _, each in present)
        columns = [bits for bits, _ in present]
        if all(bits.all() for bits in columns):
            return np.zeros(count, dtype=np.int32), self._reader.present(attributes, [(1 << len(columns)) - 1])
        if len(columns) <= FEW_COLUMNS:
            codes = np.zeros(count, dtype=np.int64)
            for place, bits in enumerate(columns):
                codes += bits * np.int64(1 << place)
            seen = np.bincount(codes) > 0
            distinct = np.flatnonzero(seen).tolist()
            kinds = (np.cumsum(seen) - 1)[codes]
        else:
            rows = np.packbits(np.column_stack(columns), axis=1, bitorder="little")
            numbers: dict[bytes, int] = {}
            kinds = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
            distinct = [int.from_bytes(row, "little") for row in numbers]
        return kinds.astype(np.int32), self._reader.present(attributes, distinct)

    def _row(self, row: int) -> dict[str, Any]:
        return {name: _plain(cells[row]) for name, cells in self._columns.items()}


def attributes_of(canonicaliser: Canonicaliser, lowering: Lowering, name: str) -> dict[str, AttributeId]:
    """The attributes that a value under this name makes present, of those that somebody asks about."""
    numbers = ((each, lowering.known(each)) for each in canonicaliser.names(name))
    return {each: number for each, number in numbers if number is not None}


def read_plain(
    canonicaliser: Canonicaliser, lowering: Lowering, attributes: Iterable[str], value: Any
) -> dict[ColumnId, tuple[Key, ...]]:
    """What a plain value becomes in the columns of its attributes, with no event around it. Raises `InvalidEvent`."""
    keys: dict[ColumnId, dict[Key, None]] = {}
    for attribute in attributes:
        for column, key in lowering.columns(attribute, canonicaliser.read(attribute, value, None, [])):
            keys.setdefault(column, {})[key] = None
    return {column: tuple(found) for column, found in keys.items()}


def _without(found: list[ColumnValues], rows: list[int]) -> list[ColumnValues]:
    """The same values, none in `rows`."""
    kept = []
    for each in found:
        numbers, places = each.numbers.copy(), each.places.copy()
        if each.table is None:
            numbers[rows] = math.nan
        else:
            places[rows] = MISSING
        kept.append(ColumnValues(each.column, numbers, each.table, places))
    return kept


def _columns(columns: Any) -> dict[str, Any]:
    """Each column as `float64[rows]` (NaN: none) where it holds numbers that doubles hold exactly, else as a sequence
    of cells."""
    if isinstance(columns, Mapping):
        return {name: _of_array(cells) if isinstance(cells, np.ndarray) else cells for name, cells in columns.items()}
    return {name: _of_arrow(columns.column(name)) for name in columns.column_names}


def _of_array(cells: npt.NDArray[Any]) -> Any:
    if cells.ndim == 1 and cells.dtype.kind in "iuf" and cells.dtype.itemsize <= 8:
        numbers = cells.astype(np.float64, copy=False)
        # Infinite numbers are refused, and long integers looked at, cell by cell.
        if cells.dtype.kind == "f" and not np.isinf(numbers).any():
            return numbers
        if cells.dtype.kind != "f" and (not cells.size or np.abs(numbers).max() < EXACT):
            return numbers
    return cells.tolist()


def _of_arrow(column: Any) -> Any:
    kind = str(column.type)
    if kind in ("double", "float") or kind.startswith(("int", "uint")):
        numbers = column.to_numpy()
        if column.null_count == 0:
            return _of_array(numbers)
        numbers = numbers.astype(np.float64, copy=False)
        finite = numbers[~np.isnan(numbers)]
        if not np.isinf(finite).any() and (kind in ("double", "float") or not (np.abs(finite) >= EXACT).any()):
            return numbers
    cells = coded(column)
    return column.to_pylist() if cells is None else cells


def _plain(cell: Any) -> Any:
    """NaN means absent, at any depth of a cell; numpy scalars become Python's."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float) and math.isnan(cell):
        return None
    if isinstance(cell, Mapping):
        return {key: _plain(value) for key, value in cell.items()}
    return [_plain(each) for each in cell] if isinstance(cell, list | tuple | np.ndarray) else cell
