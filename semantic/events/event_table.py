"""Tables of events: conversion to columns of the index. Each distinct value is read once.

Columns are shredded to leaves (`kindcast.semantic.events.leaf_columns`). Leaves whose names no subscription uses are
only checked. A table has few distinct values, each many times. A value is read and lowered at its first occurrence, and
its keys are cached by the matcher, also for later tables.

    leaf of numbers ────────────────▶ the same numbers, or their amounts in base units, one unit at a time
    leaf of date-times ─────────────▶ microseconds, where no subscription reads them as texts
    leaf of other cells ──CellIndex─▶ places in a table of distinct values ──▶ a table of keys for each column read
                                                                           ColumnBatch ──▶ engine

A row is canonicalised by itself, as `Matcher.match` would do it, only if one of its values cannot be read without the
whole event: a value from which other attributes are derived, or the type of an event if types are declared.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, ColumnId, Key, LoweredEvent
from kindcast.index.engine import ColumnBatch, ColumnValues, KeyTable
from kindcast.semantic.conditions.lowering import Lowering
from kindcast.semantic.conditions.normal_form import elements_of
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.canonical_events import TYPES, Canonicaliser
from kindcast.semantic.events.leaf_columns import Cells, CodedCells, Leaf, Refused, Rows, Shredder, part_of_cells, plain
from kindcast.semantic.flatten import QuantityObject, as_json, cells_of, problem_at
from kindcast.semantic.model import CanonicalEvent, Event, Value
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units import Units
from kindcast.semantic.units.kinds import parse_instant

__all__ = ["EXACT", "Table", "TableReader", "attributes_of", "read_plain"]

CACHED_CELLS = 1 << 16
"""The maximum number of distinct cells that are cached for an attribute. A column of measurements may have as many as
it has rows."""
CACHED_NAMES = 1 << 14
"""The maximum number of cached names of columns, and of names of numbers with their units."""
CACHED_TABLES = 64
"""The maximum number of tables with different attributes whose sets of attributes are cached."""
FEW_COLUMNS = 12
"""Up to this number of columns, the sets of attributes of rows are counted in a table of size 2^columns; above, rows
are looked up one by one."""
PROBES = (1.5, 1e6 + 0.25, -3.0)
"""If these numbers are read as themselves, all numbers are taken unchanged. No unit converts all of them to
themselves."""
MOMENTS = ("2026-01-31T12:30:00Z", "1999-12-31T23:59:59.999999Z")
"""If these date-times are read as their microseconds, all date-times are."""
EXACT = 1 << 53
"""Integers beyond this are not exact as doubles. They are read cell by cell and refused there."""
ONLY_TEXT = frozenset({"text"})
MISSING, UNSEEN = -1, -2
CONTENT = "ce.datacontenttype"

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]


class _NotScalar(Exception):
    """A column that was assumed to hold texts has other cells."""


class _Known(dict[Any, int]):
    """Cells → their places; `UNSEEN` for unknown cells."""

    def __missing__(self, cell: Any) -> int:
        return UNSEEN


@dataclass(slots=True)
class _CellIndex:
    """The cached distinct cells of one attribute. Each cell has a place, and further places (`more`) if it has further
    keys in one column. The keys in `tables` are indexed by place."""

    places: _Known = field(default_factory=lambda: _Known({None: MISSING}))
    others: dict[Any, int] = field(default_factory=dict)
    size: int = 0
    more: dict[int, range] = field(default_factory=dict)
    tables: dict[ColumnId, KeyTable] = field(default_factory=dict)

    def learn(self, keys: Mapping[ColumnId, tuple[Key, ...]]) -> int:
        """Adds a new cell with these keys. Returns its place."""
        place, width = self.size, max(map(len, keys.values()), default=1)
        for column in keys:
            if column not in self.tables:
                self.tables[column] = KeyTable([None] * place)
        for column, table in self.tables.items():
            own = keys.get(column, ())
            table.keys.extend([*own, *[None] * (width - len(own))])
        if width > 1:
            self.more[place] = range(place + 1, place + width)
        self.size += width
        return place


@dataclass(frozen=True, slots=True)
class _Name:
    """The meaning of a raw dotted name: the attributes used by subscriptions that a value makes present, those that an
    object in an array of this name makes present, and whether a value can only be read with its whole event."""

    attributes: Mapping[str, AttributeId]
    present: frozenset[AttributeId]
    elements: frozenset[AttributeId]
    needs_event: bool

    @property
    def is_wanted(self) -> bool:
        return bool(self.attributes) or self.needs_event


class TableReader:
    """Reads tables for one matcher, and caches what it has read. Not thread-safe."""

    def __init__(self, canonicaliser: Canonicaliser, lowering: Lowering, units: Units) -> None:
        self._canonicaliser = canonicaliser
        self._units = units
        self.lowering = lowering
        self.depth = canonicaliser.limits.depth
        """The maximum depth of nested values in one event."""
        self._asked = 0
        self._names: dict[str, _Name] = {}
        self._cells: dict[tuple[str, str | None], _CellIndex] = {}
        self._measured: dict[tuple[str, str | None, bool], tuple[tuple[ColumnId, str | None], ...] | None] = {}
        self._moments: dict[str, tuple[ColumnId, ...] | None] = {}
        self._presents: dict[tuple[frozenset[AttributeId], ...], dict[int, frozenset[AttributeId]]] = {}
        self.reading = threading.RLock()
        """Held by the thread that reads, because the caches have one owner at a time."""

    def read(self, columns: Any) -> "Table":
        """Reads a table. `columns` is a `pyarrow.Table`, or a mapping of attribute → numpy array, Arrow array or list.
        Raises `InvalidEvent`, and ValueError for columns of different lengths."""
        self.renew()
        return Table(columns, self)

    def states(self, content: Any) -> bool:
        """Whether every object of an event with this content type may state a quantity or a code."""
        return self._canonicaliser.states({"datacontenttype": content})

    def renew(self) -> None:
        """Clears the caches if subscriptions use more attributes since they were filled."""
        if self._asked != self.lowering.asked:
            self._asked = self.lowering.asked
            for known in (self._names, self._cells, self._measured, self._moments, self._presents):
                known.clear()

    def canonical(self, data: Mapping[str, Any]) -> CanonicalEvent:
        """Returns one row as a canonical event. The columns `ce.…` are its context attributes. Raises
        `InvalidEvent`."""
        context = {name[3:]: data[name] for name in data if name.startswith("ce.")}
        if not context:
            return self._canonicaliser.canonicalise(data)
        said = {name: value for name, value in context.items() if value is not None}
        rest = {name: value for name, value in data.items() if not name.startswith("ce.")}
        return self._canonicaliser.canonicalise(Event(rest, said))

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def name(self, raw: str) -> _Name:
        """Returns the meaning of a raw dotted name."""
        found = self._names.get(raw)
        if found is None:
            names = self._canonicaliser.names(raw)
            elements = (self.lowering.known(elements_of(each)) for each in names)
            attributes = attributes_of(self._canonicaliser, self.lowering, raw)
            found = _Name(
                attributes,
                frozenset(attributes.values()),
                frozenset(each for each in elements if each is not None),
                self._needs_event(names) or self._is_stated(raw) or self.lowering.aggregates(names),
            )
            if len(self._names) >= CACHED_NAMES:
                self._names.clear()
            self._names[raw] = found
        return found

    def shredder(self, count: int) -> Shredder:
        """Returns a shredder for a table of `count` rows."""
        return Shredder(count, self._canonicaliser.limits, lambda raw: self.name(raw).is_wanted, self._beside)

    def _needs_event(self, names: Iterable[str]) -> bool:
        typed = self._canonicaliser.typed
        if not typed.needs_row(names):
            return False
        derived = typed.derived(frozenset())
        return not TYPES.isdisjoint(names) or any(map(self.lowering.may_ask, derived))

    def _is_stated(self, raw: str) -> bool:
        """Whether this is a member of an object that is declared to state a quantity or a code, and a subscription uses
        the object or the member."""
        if not self._canonicaliser.some_state:
            return False
        steps = raw.split(".")
        around = (".".join(steps[:count]) for count in range(1, len(steps)))
        return any(
            self._canonicaliser.is_stating(self._canonicaliser.names(each)[0])
            and any(attributes_of(self._canonicaliser, self.lowering, name) for name in (each, raw))
            for each in around
        )

    def _beside(self, raw: str) -> Callable[[str], bool] | None:
        names = self._canonicaliser.names
        declared = self._canonicaliser.declaration(names(raw)[0])
        if declared is None or declared.unit_from is None:
            return None
        sibling = declared.unit_from.rpartition(".")[2]
        return lambda each: names(each)[0].rpartition(".")[2] == sibling

    def has_numbers_in_texts(self, raw: str) -> bool:
        """Whether a text under this name may be a number whose unit is in a sibling."""
        declared = self._canonicaliser.declaration(self._canonicaliser.names(raw)[0])
        return declared is not None and declared.unit_from is not None and declared.kind == "number"

    def is_simple(self, raw: str) -> bool:
        """Whether a text under this name can be read by itself, without the other cells of its row."""
        known = self.name(raw)
        return raw != "@type" and not known.needs_event and self._beside(raw) is None

    # ── numbers and date-times ──────────────────────────────────────────────────────────────────────────────────

    def measured(
        self, name: str, unit: str | None, *, quantities: bool = False
    ) -> tuple[tuple[ColumnId, str | None], ...] | None:
        """Returns the columns of numbers with this unit, each with the unit from which they are converted (None:
        unchanged). Returns None if the numbers must be read one by one."""
        key = name, unit, quantities
        if key not in self._measured:
            if len(self._measured) >= CACHED_NAMES:
                self._measured.clear()
            self._measured[key] = self._probed(*key)
        return self._measured[key]

    def _probed(self, name: str, unit: str | None, quantities: bool) -> tuple[tuple[ColumnId, str | None], ...] | None:
        reader = self._canonicaliser
        found: list[tuple[ColumnId, str | None]] = []
        for attribute in self.name(name).attributes:
            read = []
            for probe in PROBES:
                scalar = QuantityObject(probe, unit or "", {}) if quantities else probe
                value = reader.read(attribute, scalar, None if quantities else unit, [])
                read.append(dict(self.lowering.columns(attribute, value)))
            for column in read[0]:
                keys = [each.get(column) for each in read]
                declared = reader.declaration(attribute)
                own = unit or (None if declared is None else declared.unit)
                if keys == list(PROBES):
                    found.append((column, None))
                elif own is not None and keys == [self._units.measure(probe, own).amount for probe in PROBES]:
                    found.append((column, own))
                else:
                    return None
        return tuple(found)

    def moments(self, name: str) -> tuple[ColumnId, ...] | None:
        """Returns the columns that take a date-time as its microseconds; None if subscriptions use other readings of it
        too."""
        if name not in self._moments:
            attributes = self.name(name).attributes
            instants = [float(parse_instant(text) or 0) for text in MOMENTS]
            read = [read_plain(self._canonicaliser, self.lowering, attributes, text) for text in MOMENTS]
            exact = all(
                [each.get(column) for each in read] == [(instant,) for instant in instants]
                for column in {column for each in read for column in each}
            )
            # The probes are not concepts, but other texts may be.
            asked = any(self.lowering.asks(attribute, "concept") for attribute in attributes)
            self._moments[name] = tuple(read[0]) if exact and not asked else None
        return self._moments[name]

    # ── cells ───────────────────────────────────────────────────────────────────────────────────────────────────

    def present(
        self, attributes: tuple[frozenset[AttributeId], ...], codes: Sequence[int]
    ) -> list[frozenset[AttributeId]]:
        """Returns for each code the union of the sets whose bits it has."""
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

    def looked_up(
        self, name: str, cells: CodedCells | list[Any], unit: str | None = None, *, checked: bool = True
    ) -> tuple[_CellIndex, Places]:
        """Returns the cache for the cells under a name, and the place of each cell in it, `MISSING` for an empty cell.
        Without `checked`, the cells may be other than scalars; then it raises `_NotScalar`."""
        room = len(cells.distinct) if isinstance(cells, CodedCells) else len(cells)
        index = self._cells.get((name, unit))
        if index is None or index.size + room > CACHED_CELLS:
            if len(self._cells) >= CACHED_NAMES:
                self._cells.clear()
            index = self._cells[name, unit] = _CellIndex()
        if isinstance(cells, CodedCells):
            known = index
            return index, cells.places(index, lambda distinct: self._places(known, name, unit, distinct), MISSING)
        return index, self._places(index, name, unit, cells, checked=checked)

    def _places(
        self, index: _CellIndex, name: str, unit: str | None, cells: list[Any], *, checked: bool = True
    ) -> Places:
        """Returns the places of cells. Costs some 40 ns per cell; a new cell is also read."""
        try:
            places = np.fromiter(map(index.places.__getitem__, cells), np.int32, len(cells))
        except TypeError:  # a list or a dict cannot be hashed
            raise _NotScalar from None
        for row in np.flatnonzero(places == UNSEEN).tolist():
            cell = cells[row]
            if not checked and type(cell) is not str:
                if type(cell) is not float or cell == cell:
                    raise _NotScalar
                places[row] = MISSING
            else:
                places[row] = self._place(index, name, unit, cell)
        return places

    def _place(self, index: _CellIndex, name: str, unit: str | None, cell: Any) -> int:
        # Strings are looked up as they are. Other cells are looked up with their type: 1, 1.0 and True are equal.
        is_text = type(cell) is str
        known: dict[Any, int] = index.places if is_text else index.others
        key = cell if is_text else (type(cell), cell)
        place = known.get(key)
        if place is None:
            attributes = self.name(name).attributes
            place = known[key] = index.learn(read_plain(self._canonicaliser, self.lowering, attributes, cell, unit))
        return place

    def amounts(self, numbers: Floats, unit: str | None) -> Floats:
        """Returns numbers unchanged, or their amounts in base units; NaN stays NaN."""
        return numbers if unit is None else self._units.amounts(numbers, unit)


class Table:
    """The rows of a table, as events."""

    def __init__(self, columns: Any, reader: TableReader) -> None:
        self._reader = reader
        self._columns = _columns(columns)
        lengths = {name: len(cells) for name, cells in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns have different lengths: {lengths}")
        self._length = next(iter(lengths.values()), 0)
        self._stating = self._rows_that_state()
        simple = {name: cells for name, cells in self._columns.items() if isinstance(cells, list)}
        self._shred({name for name, cells in simple.items() if _begins_with_text(cells) and reader.is_simple(name)})

    def __len__(self) -> int:
        return self._length

    def canonical(self, row: int) -> CanonicalEvent:
        """Returns one row as a canonical event. Raises `InvalidEvent`, with a note that names the row."""
        cells = ((name, _cell(cells, row)) for name, cells in self._columns.items())
        data = {name: plain(cell, self._reader.depth) for name, cell in cells}
        try:
            with self._reader.reading:
                return self._reader.canonical(data)
        except InvalidEvent as invalid:
            invalid.add_note(f"in row {row} of the table; the first row is 0")
            raise

    def lowered(self, row: int) -> LoweredEvent:
        """Returns one row as a lowered event, read by itself. Raises `InvalidEvent`."""
        return self._reader.lowering.event(self.canonical(row))

    def batch(self, start: int, stop: int) -> ColumnBatch:
        """Returns the rows `start … stop-1` as columns. Thread-safe. Raises `InvalidEvent`."""
        with self._reader.reading:
            try:
                return self._read(start, stop)
            except _NotScalar:
                self._shred(frozenset())
                return self._read(start, stop)

    def _rows_that_state(self) -> npt.NDArray[np.bool_] | None:
        """Returns the rows whose objects may all state something, because of their content type (rule 22); None if
        there are none."""
        cells = self._columns.get(CONTENT)
        if cells is None:
            return None
        states = self._reader.states
        found = np.array([states(_cell(cells, row)) for row in range(self._length)], dtype=np.bool_)
        return found if found.any() else None

    def _shred(self, texts: Collection[str]) -> None:
        """Determines the leaves. The columns `texts` are assumed to hold only texts until another cell is found,
        because checking all cells first costs nearly as much as reading them. Raises `InvalidEvent`."""
        shredder = self._reader.shredder(self._length)
        try:
            if self._length and "ce" in self._columns:
                raise Refused(0)
            shredder.shred(self._columns, texts)
        except Refused as refused:
            for row in (refused.row, *range(self._length)):
                self.canonical(row)
            raise AssertionError(f"row {refused.row} was refused, but it can be read") from refused
        self._leaves, self._elements = shredder.leaves, shredder.elements

    def _read(self, start: int, stop: int) -> ColumnBatch:
        part = _Part(self._reader, stop - start)
        if self._stating is not None:
            part.whole |= self._stating[start:stop]
        for leaf in self._leaves:
            low, high = leaf.span(start, stop)
            if low < high:
                rows = None if leaf.rows is None else leaf.rows[low:high] - start
                units = None if leaf.units is None else leaf.units.part(low, high)
                part.read(leaf, part_of_cells(leaf.cells, low, high), rows, units)
        for each in self._elements:
            known = self._reader.name(each.name)
            if known.elements or known.needs_event:
                low, high = np.searchsorted(each.rows, (start, stop)).tolist()
                there = np.zeros(stop - start, dtype=np.bool_)
                there[each.rows[low:high] - start] = True
                part.note(there, known.elements)
                if known.needs_event:
                    part.whole |= there
        return part.batch({row: self.lowered(start + row) for row in np.flatnonzero(part.whole).tolist()})


class _Part:
    """Reads some rows of a table into columns of the index."""

    def __init__(self, reader: TableReader, count: int) -> None:
        self._reader = reader
        self._count = count
        self._present: dict[frozenset[AttributeId], npt.NDArray[np.bool_]] = {}
        self._found: list[ColumnValues] = []
        self.whole = np.zeros(count, dtype=np.bool_)
        """The rows that can only be read as whole events."""

    # ── leaves ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, leaf: Leaf, cells: Cells, rows: Rows | None, units: CodedCells | None) -> None:
        """Reads some cells of a leaf. `rows` are relative to the first row of this part."""
        known = self._reader.name(leaf.name)
        if known.needs_event:
            self.whole |= self._rows_with(_there(cells), rows)
        elif not isinstance(cells, np.ndarray):
            self._cells(leaf, cells, rows, units)
        elif cells.dtype.kind == "M":
            self._moments(leaf, cells, rows)
        else:
            self._numbers(leaf, cells, rows, units)

    def note(self, there: npt.NDArray[np.bool_], attributes: frozenset[AttributeId]) -> None:
        """Records that the rows that are `there` (one for each row of the part) have these attributes."""
        if attributes:
            before = self._present.get(attributes)
            self._present[attributes] = there if before is None else before | there

    def _numbers(self, leaf: Leaf, numbers: Floats, rows: Rows | None, units: CodedCells | None) -> None:
        there = ~np.isnan(numbers)
        self.note(self._rows_with(there, rows), self._reader.name(leaf.name).present)
        found: dict[ColumnId, Floats] = {}
        for unit, own in _by_unit(there, units):
            columns = self._reader.measured(leaf.name, unit, quantities=leaf.quantities)
            if columns is None:
                chosen = np.flatnonzero(there if own is None else own)
                if leaf.quantities:
                    self.whole |= self._rows_with(np.ones(chosen.size, dtype=np.bool_), _of(rows, chosen))
                else:
                    index, places = self._reader.looked_up(leaf.name, numbers[chosen].tolist(), unit)
                    self._keys(index, places, _of(rows, chosen))
                continue
            for column, scale in columns:
                if own is None:
                    found[column] = self._reader.amounts(numbers, scale)
                else:
                    into = found.setdefault(column, np.full(numbers.size, np.nan))
                    into[own] = self._reader.amounts(numbers[own], scale)
        for column, values in found.items():
            self._add(column, rows, values)

    def _moments(self, leaf: Leaf, cells: npt.NDArray[Any], rows: Rows | None) -> None:
        there = ~np.isnat(cells)
        columns = None
        if np.datetime_data(cells.dtype)[0] not in "YMWD":
            columns = self._reader.moments(leaf.name)
            micros = cells.astype("datetime64[us]").astype(np.int64)
            if columns is not None and not (np.abs(micros[there]) >= EXACT).any():
                self.note(self._rows_with(there, rows), self._reader.name(leaf.name).present)
                for column in columns:
                    self._add(column, rows, np.where(there, micros, np.nan))
                return
        distinct, codes = np.unique(cells[there], return_inverse=True)
        all_codes = np.full(cells.size, MISSING, dtype=np.int32)
        all_codes[there] = codes
        self._cells(leaf, CodedCells([as_json(each) for each in distinct], all_codes), rows, None)

    def _cells(self, leaf: Leaf, cells: CodedCells | list[Any], rows: Rows | None, units: CodedCells | None) -> None:
        if units is not None and isinstance(cells, list):  # integers too large for numpy, and doubles among them
            numbers = np.array([type(cell) in (int, float) for cell in cells], dtype=np.bool_)
            self.whole |= self._rows_with(numbers, rows)
        index, places = self._reader.looked_up(leaf.name, cells, checked=leaf.is_checked)
        there = self._rows_with(places >= 0, rows)
        self.note(there, self._reader.name(leaf.name).present)
        if self._reader.has_numbers_in_texts(leaf.name):
            self.whole |= there
        self._keys(index, places, rows)

    def _keys(self, index: _CellIndex, places: Places, rows: Rows | None) -> None:
        for column, table in index.tables.items():
            self._add(column, rows, places, table)
        if index.more:
            hits = np.flatnonzero(np.isin(places, list(index.more)))
            if hits.size:
                more = [index.more[place] for place in places[hits].tolist()]
                where = np.repeat(hits, [len(each) for each in more])
                further = np.array([place for each in more for place in each], dtype=np.int32)
                for column, table in index.tables.items():
                    self._add(column, _of(rows, where), further, table)

    def _add(
        self, column: ColumnId, rows: Rows | None, values: npt.NDArray[Any], table: KeyTable | None = None
    ) -> None:
        """Adds the values of a column: one per row, or those of `rows` in ascending order."""
        offsets: Rows | None = None
        if rows is not None:
            if rows.size < 2 or (rows[1:] > rows[:-1]).all():
                dense = np.full(self._count, np.nan) if table is None else np.full(self._count, MISSING, np.int32)
                dense[rows] = values
                values = dense
            else:
                offsets = np.searchsorted(rows, np.arange(self._count + 1))
        if table is None:
            self._found.append(ColumnValues(column, values, offsets=offsets))
        else:
            self._found.append(ColumnValues(column, np.zeros(0), table, values, offsets))

    def _rows_with(self, there: npt.NDArray[np.bool_], rows: Rows | None) -> npt.NDArray[np.bool_]:
        """Returns the rows of the cells in `there`."""
        if rows is None:
            return there
        found = np.zeros(self._count, dtype=np.bool_)
        found[rows[there]] = True
        return found

    # ── together ────────────────────────────────────────────────────────────────────────────────────────────────

    def batch(self, whole: Mapping[int, LoweredEvent]) -> ColumnBatch:
        """Returns the columns. `whole` are the rows that were read as whole events."""
        kinds, presents = self._kinds()
        if not whole:
            return ColumnBatch(kinds, presents, self._found, {})
        rows = np.array(list(whole))
        presents = [*presents]
        for row, event in whole.items():
            kinds[row] = len(presents)
            presents.append(event.present)
        return ColumnBatch(kinds, presents, [_without(each, rows) for each in self._found], whole)

    def _kinds(self) -> tuple[npt.NDArray[np.int32], list[frozenset[AttributeId]]]:
        """Returns the number of the attribute set of each row, and the sets."""
        attributes, columns = tuple(self._present), list(self._present.values())
        if all(bits.all() for bits in columns):
            present = self._reader.present(attributes, [(1 << len(columns)) - 1])
            return np.zeros(self._count, dtype=np.int32), present
        if len(columns) <= FEW_COLUMNS:
            codes = np.zeros(self._count, dtype=np.int64)
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


def attributes_of(canonicaliser: Canonicaliser, lowering: Lowering, name: str) -> dict[str, AttributeId]:
    """Returns the attributes used by subscriptions that a value under this name makes present."""
    numbers = ((each, lowering.known(each)) for each in canonicaliser.names(name))
    return {each: number for each, number in numbers if number is not None}


def read_plain(
    canonicaliser: Canonicaliser, lowering: Lowering, attributes: Iterable[str], value: Any, unit: str | None = None
) -> dict[ColumnId, tuple[Key, ...]]:
    """Returns the keys of a plain value in the columns of its attributes. It is read without an event; only its unit is
    given. If subscriptions use an undeclared attribute only as a text, its texts are not read as concepts, quantities
    and dates: that would take most of the time, and texts such as identifiers do not repeat, so no cache helps."""
    keys: dict[ColumnId, dict[Key, None]] = {}
    for attribute in attributes:
        is_text = type(value) is str and canonicaliser.declaration(attribute) is None
        if is_text and ONLY_TEXT.issuperset(lowering.readings(attribute)):
            root_word, *others = canonicaliser.vocabulary.words(nfc(value))
            read = Value(value, root_word=root_word, also=tuple(others))
        else:
            read = canonicaliser.read(attribute, value, unit, [])
        for column, key in lowering.columns(attribute, read):
            keys.setdefault(column, {})[key] = None
    return {column: tuple(found) for column, found in keys.items()}


def _columns(columns: Any) -> dict[str, Any]:
    """Returns the columns by name: numpy arrays of numbers and dates, Arrow arrays, and lists."""
    if not isinstance(columns, Mapping):
        if not hasattr(columns, "column_names"):
            hint = ": use pyarrow.Table.from_pandas" if hasattr(columns, "to_dict") else ""
            raise TypeError(
                "a table of events is a pyarrow.Table, or a mapping from attribute to values, not "
                f"{type(columns).__name__}{hint}"
            )
        columns = {name: columns.column(name) for name in columns.column_names}
    found: dict[str, Any] = {}
    for name, cells in columns.items():
        if not isinstance(name, str):
            raise InvalidEvent([problem_at((), "bad-name", f"the name {name!r} is not a string")])
        if isinstance(cells, str | bytes | Mapping) or not isinstance(cells, Iterable):
            raise TypeError(f"{name!r} must have its values in a numpy array, Arrow array or list, not {cells!r:.60}")
        if isinstance(cells, np.ma.MaskedArray):
            found[name] = list(cells)
        elif isinstance(cells, np.ndarray):
            found[name] = cells.tolist() if cells.ndim == 1 and cells.dtype.kind in "OU" else cells
        else:
            found[name] = cells if isinstance(cells, list) or hasattr(cells, "null_count") else list(cells)
    return found


def _begins_with_text(cells: list[Any]) -> bool:
    return type(next((cell for cell in cells if cell is not None), None)) is str


def _cell(cells: Any, row: int) -> Any:
    """Returns one cell of a column."""
    cell = cells[row]
    if not hasattr(cells, "null_count"):
        return cell
    kind = str(cells.type)
    if kind.startswith("timestamp["):  # converted to microseconds, independent of the library
        value = cell.value
        return None if value is None else np.datetime64(value, cells.type.unit)
    nested = any(each in kind for each in ("map<", "timestamp[", "date"))
    return cells_of(cells.slice(row, 1))[0] if nested else cell.as_py()


def _there(cells: Cells) -> npt.NDArray[np.bool_]:
    """Returns which cells hold a value."""
    if isinstance(cells, CodedCells):
        return cells.codes >= 0
    if isinstance(cells, list):
        return np.array([cell is not None for cell in cells], dtype=np.bool_)
    found: npt.NDArray[np.bool_] = ~(np.isnat(cells) if cells.dtype.kind == "M" else np.isnan(cells))
    return found


def _by_unit(
    there: npt.NDArray[np.bool_], units: CodedCells | None
) -> Iterator[tuple[str | None, npt.NDArray[np.bool_] | None]]:
    """Yields the units of some numbers, each with the numbers that have it; None if all have it."""
    if units is None:
        yield None, None
        return
    codes = np.unique(units.codes[there]).tolist()
    for code in codes:
        yield units.distinct[code] if code >= 0 else None, None if len(codes) == 1 else there & (units.codes == code)


def _of(rows: Rows | None, chosen: Rows) -> Rows:
    """Returns the rows of the chosen cells."""
    return chosen if rows is None else rows[chosen]


def _without(values: ColumnValues, rows: Rows) -> ColumnValues:
    """Returns the same values without those in `rows`."""
    own: npt.NDArray[Any] = rows
    if values.offsets is not None:
        own = np.isin(np.repeat(np.arange(values.offsets.size - 1), np.diff(values.offsets)), rows)
    if values.table is None:
        numbers = values.numbers.copy()
        numbers[own] = np.nan
        return ColumnValues(values.column, numbers, offsets=values.offsets)
    places = values.places.copy()
    places[own] = MISSING
    return ColumnValues(values.column, values.numbers, values.table, places, values.offsets)
