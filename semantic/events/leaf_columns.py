"""Leaf columns: the columns of a table shredded to the scalars under each dotted name, with their rows.

Nested columns are shredded as in columnar formats (Melnik et al., "Dremel", VLDB 2010, section 4): lists repeat the
row, structs join names with a dot. The result has the same meaning as what `flatten` finds in each row:

    items  list<struct<x, y>>   ──▶   items.x   [1, 2, 5]   rows [0, 0, 2]
                                      items.y   [3, 4, 6]   rows [0, 0, 2]
                                      items     elements in the rows 0, 2
    load   struct<value, unit>  ──▶   load      [5, 7]      units ["kg", "g"]      where a row has both (rule 15)
                                      load.value, load.unit

Every cell is checked in the same way as by `flatten`. Cells under names that no subscription uses are only checked.

Columns of texts are dictionary-encoded, as in Arrow: each distinct text is looked up once per table instead of once per
cell.

    distinct   ["Sofa", "Laptop"]        codes   [0, 0, 1, -1, 0]        -1: none

The columns may come from pyarrow, which is not imported here; other sources are possible.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.flatten import JSON_SCALARS, UNIT_KEYS, EventLimits, as_json, as_quantity, cells_of, flatten

__all__ = ["Cells", "CodedCells", "Leaf", "Refused", "Shredder", "coded", "part_of_cells", "plain"]


REPEATED = 4
"""Texts are encoded if each occurs this many times on average. Otherwise they are read cell by cell."""
MOST_DISTINCT = 1 << 15
"""The maximum number of distinct texts of one encoded column: half of the cells that a matcher caches for an
attribute."""


@dataclass(slots=True)
class CodedCells:
    """A dictionary-encoded sequence of n cells. Cell i is `distinct[codes[i]]` (`codes`: int32[n]); if the code is
    negative, it is empty. The parts of a sequence share the results of look-ups."""

    distinct: list[Any]
    codes: npt.NDArray[np.int32]
    _looked_up: list[tuple[object, npt.NDArray[np.int32]]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return self.codes.size

    def __getitem__(self, row: int) -> Any:
        code = self.codes[row]
        return None if code < 0 else self.distinct[code]

    def part(self, start: int, stop: int) -> "CodedCells":
        """Returns the cells `start … stop-1`."""
        return CodedCells(self.distinct, self.codes[start:stop], self._looked_up)

    def take(self, chosen: npt.NDArray[np.int64]) -> "CodedCells":
        """Returns the cells with the indices `chosen`, in their order."""
        return CodedCells(self.distinct, self.codes[chosen], self._looked_up)

    def or_else(self, other: "CodedCells") -> "CodedCells":
        """Returns the same cells, with the cells of `other` in place of the empty ones."""
        shifted = np.where(other.codes < 0, other.codes, other.codes + len(self.distinct))
        codes = np.where(self.codes < 0, shifted, self.codes).astype(np.int32)
        return CodedCells([*self.distinct, *other.distinct], codes)

    def places(
        self, by: object, look_up: Callable[[list[Any]], npt.NDArray[np.int32]], missing: int
    ) -> npt.NDArray[np.int32]:
        """Returns the place of each cell. `look_up` returns the places of the distinct cells. It is called once per
        `by`."""
        if not self._looked_up or self._looked_up[0][0] is not by:
            self._looked_up[:] = [(by, np.append(look_up(self.distinct), np.int32(missing)))]
        return self._looked_up[0][1][self.codes]  # code -1 selects the last entry


def coded(column: Any) -> CodedCells | None:
    """Returns the texts of an Arrow column in encoded form, if they repeat. Costs some 10 ns per cell, and less if the
    column is dictionary-encoded."""
    cells = _encoded(column, MOST_DISTINCT)
    if cells is None:
        return None
    distinct, codes = cells.distinct, cells.codes
    # The dictionary of a filtered table may have texts that none of its rows has. Those must not be read.
    used = np.bincount(codes + 1, minlength=len(distinct) + 1)[1:] > 0
    if not used.all():
        kept = np.flatnonzero(used)
        codes = np.append(np.cumsum(used, dtype=np.int32) - 1, np.int32(-1))[codes]
        distinct = [distinct[place] for place in kept.tolist()]
    return None if len(distinct) * REPEATED > codes.size else CodedCells(distinct, codes)


def coded_texts(column: Any) -> CodedCells | None:
    """Returns the texts of an Arrow column, a numpy array or a list in encoded form, however often they repeat. Cells
    that are not texts in JSON become empty. None if there is no text."""
    if hasattr(column, "null_count"):
        found = _encoded(column, None)
        if found is not None:
            return found
        column = cells_of(column)
    elif isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return None
    distinct: dict[Any, int] = {}
    texts = map(as_json, column)
    codes = [distinct.setdefault(text, len(distinct)) if isinstance(text, str) else -1 for text in texts]
    return CodedCells(list(distinct), np.array(codes, dtype=np.int32)) if distinct else None


def _encoded(column: Any, most: int | None) -> CodedCells | None:
    """Returns an Arrow column of texts in encoded form; None for another type, or for more than `most` distinct
    texts."""
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


EXACT = 1 << 53
"""Integers beyond this are not all exact as doubles. They are checked one by one."""
CONTEXT = "ce."
SPARSE = 2
"""The keys of a column of dicts are looked up in every dict while that costs at most this many times as much as
iterating over the items."""

Cells = npt.NDArray[Any] | CodedCells | list[Any]
"""`float64` (NaN: empty), `datetime64` (NaT: empty), encoded texts or booleans, or a list of JSON scalars."""
Rows = npt.NDArray[np.int64]


class Refused(Exception):
    """`match` refuses this row."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Around(Protocol):
    """The objects whose members the cells are."""

    def texts(self, chosen: Callable[[str], bool]) -> CodedCells | None:
        """Returns for each object the first text among its own members whose raw name is `chosen`. None if no member
        is."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The scalars under a raw dotted name. `rows[i]` is the row of cell i, in ascending order; if `rows` is None, it is
    i. `units` has the unit of each cell from a sibling. `quantities` says that the cells are the numbers of objects
    with a value and a unit, which have no other reading. Without `is_checked`, there may be other cells than texts."""

    name: str
    cells: Cells
    rows: Rows | None
    units: CodedCells | None = None
    quantities: bool = False
    is_checked: bool = True

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Returns the range of the cells of the rows `start … stop-1`."""
        if self.rows is None:
            return start, stop
        low, high = np.searchsorted(self.rows, (start, stop)).tolist()
        return low, high


@dataclass(frozen=True, slots=True)
class Elements:
    """The `rows` (int64[objects], ascending) that have objects in an array of this raw dotted name, once per object."""

    name: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Place:
    """The position of the cells of a column: their `rows` (int64[cells]; None: cell i is in row i), their depth, and
    their objects in `around` (`owners`: int64[cells]; None: cell i is in object i)."""

    rows: Rows | None
    level: int = 1
    around: Around | None = None
    owners: Rows | None = None
    in_list: bool = False

    def row(self, cell: int) -> int:
        return cell if self.rows is None else int(self.rows[cell])

    def of(self, cells: Rows) -> "Place":
        """Returns the position of the cells with the indices `cells`."""
        owners = cells if self.owners is None else self.owners[cells]
        rows = cells if self.rows is None else self.rows[cells]
        return Place(rows, self.level, self.around, owners, self.in_list)

    def repeated(self, lengths: Rows) -> "Place":
        """Returns the position of the items of lists. `lengths` are the numbers of items of the cells."""
        items = self.of(np.repeat(np.arange(lengths.size), lengths))
        return Place(items.rows, self.level + 1, self.around, items.owners, in_list=True)

    def members(self, around: Around) -> "Place":
        """Returns the position of the members of objects, one per object."""
        return Place(self.rows, self.level + 1, around)


class Shredder:
    """Shreds the columns of one table. `wanted` returns whether a subscription uses a raw dotted name. `beside`
    returns, for a name whose unit is in a sibling, a function that recognises the sibling by its own raw name."""

    def __init__(
        self,
        count: int,
        limits: EventLimits,
        wanted: Callable[[str], bool],
        beside: Callable[[str], Callable[[str], bool] | None],
    ) -> None:
        self.leaves: list[Leaf] = []
        self.elements: list[Elements] = []
        self._limits = limits
        self._wanted = wanted
        self._beside = beside
        self._sizes = np.zeros(count)

    def shred(self, columns: Mapping[str, Any], texts: Collection[str] = ()) -> None:
        """Shreds all columns: numpy arrays, Arrow arrays and chunked arrays, and lists. The columns `texts` are lists
        whose cells are not checked here if a subscription uses them. Raises `Refused`."""
        self._sizes += len(columns)
        around = Columns({name: cells for name, cells in columns.items() if not name.startswith(CONTEXT)})
        for name, column in columns.items():
            if name in texts and self._wanted(name):
                self.leaves.append(Leaf(name, column, None, is_checked=False))
            else:
                self._column(name, column, Place(None, around=around))
        if self._sizes.size and self._sizes.max() > self._limits.values:
            raise Refused(int(self._sizes.argmax()))

    def _column(self, name: str, column: Any, place: Place) -> None:
        if len(column) == 0:
            return
        if place.level > self._limits.depth or not self._limits.takes_name(name):
            raise Refused(place.row(0))
        if isinstance(column, np.ndarray):
            self._array(name, column, place)
        elif hasattr(column, "null_count"):
            self._arrow(name, column, place)
        else:
            self._objects(name, column if isinstance(column, list) else list(column), place)

    # ── arrays ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _array(self, name: str, column: npt.NDArray[Any], place: Place) -> None:
        if column.ndim == 1 and column.dtype.kind in "iuf" and column.dtype.itemsize <= 8:
            self._numbers(name, column, place)
        elif column.ndim == 1 and column.dtype.kind == "M":
            self._leaf(name, column, place)
        elif column.ndim == 1 and column.dtype.kind == "b":
            self._leaf(name, CodedCells([False, True], column.astype(np.int32)), place)
        elif column.dtype.kind in "mM":
            self._objects(name, [as_json(each) for each in column], place)
        else:
            self._objects(name, column.tolist(), place)

    def _numbers(self, name: str, column: npt.NDArray[Any], place: Place) -> None:
        numbers = column.astype(np.float64, copy=False)
        if column.dtype.kind == "f":
            infinite = np.isinf(numbers)
            if not infinite.any():
                self._leaf(name, numbers, place)
            elif name.startswith(CONTEXT):
                self._leaf(name, column.tolist(), place)
            else:
                raise Refused(place.row(int(infinite.argmax())))
        elif np.abs(numbers).max() < EXACT:
            self._leaf(name, numbers, place)
        else:
            self._scalars(name, column.tolist(), {int}, place)

    # ── Arrow ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrow(self, name: str, column: Any, place: Place) -> None:
        kind = str(column.type)
        if column.null_count == len(column):
            return
        if kind in ("string", "large_string") or kind.startswith(
            ("dictionary<values=string", "dictionary<values=large_string")
        ):
            if self._wanted(name) or name == "@type":
                cells = coded(column)
                self._leaf(name, column.to_pylist() if cells is None else cells, place)
            return
        if hasattr(column, "chunks"):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if kind.startswith("dictionary<"):
            self._arrow(name, column.dictionary_decode(), place)
        elif kind in ("double", "float", "halffloat") or kind.startswith(("int", "uint")):
            numbers = column.to_numpy(zero_copy_only=False)
            exact = kind.startswith(("double", "float", "half")) or column.null_count == 0
            if exact or np.nanmax(np.abs(numbers)) < EXACT:
                self._numbers(name, numbers, place)
            else:
                self._objects(name, column.to_pylist(), place)
        elif kind.startswith(("timestamp[", "date")):
            unit = "D" if kind.startswith("date") else "us"
            self._leaf(name, column.to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]"), place)
        elif kind == "bool":
            self._leaf(name, CodedCells([False, True], _codes(column)), place)
        elif kind.startswith("decimal128("):
            numbers = _decimals(column)
            if numbers is None:
                self._objects(name, column.to_pylist(), place)
            else:
                self._leaf(name, numbers, place)
        elif kind.startswith(("list<", "large_list<", "fixed_size_list<")):
            self._lists(name, column, place)
        elif kind.startswith("struct<"):
            self._structs(name, column, place)
        else:
            self._objects(name, cells_of(column), place)

    def _lists(self, name: str, column: Any, place: Place) -> None:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if hasattr(column, "value_lengths"):
            lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            lengths = there * np.int64(column.type.list_size)
        self._count(place, lengths)
        self._column(name, column.flatten(), place.repeated(lengths))

    def _structs(self, name: str, column: Any, place: Place) -> None:
        fields = [column.type.field(number).name for number in range(column.type.num_fields)]
        if len(set(fields)) < len(fields):  # of two members with one name, the last counts
            self._objects(name, cells_of(column), place)
            return
        there = column.is_valid().to_numpy(zero_copy_only=False)
        self._count(place, there * np.int64(len(fields)))
        if place.in_list:
            self._element(name, place.of(np.flatnonzero(there)))
        members = dict(zip(fields, column.flatten(), strict=True))
        inside = place.members(Columns(members))
        texts = {each: coded_texts(members[each]) for each in fields if each in UNIT_KEYS and "value" in fields}
        units = {each: found for each, found in texts.items() if found is not None}
        if units:
            numbers = _numbers_of(members["value"])
            if numbers is None:
                self._dicts(name, *_some(cells_of(column), {dict}, place), counted=True)
                return
            filled = sum(each.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) for each in members.values())
            for found in units.values():
                whole = ~np.isnan(numbers) & (found.codes >= 0) & (filled == 2)  # members that are null do not count
                own = np.flatnonzero(whole)
                self._quantities(name, numbers[whole], found.take(own), place.of(own))
                numbers = np.where(whole, np.nan, numbers)
            members["value"] = numbers
        for key, cells in members.items():
            self._column(f"{name}.{key}", cells, inside)

    # ── objects of Python ───────────────────────────────────────────────────────────────────────────────────────

    def _objects(self, name: str, cells: list[Any], place: Place) -> None:
        kinds = set(map(type, cells))
        kinds.discard(type(None))
        if kinds <= JSON_SCALARS:
            self._scalars(name, cells, kinds, place)
            return
        odd = {kind for kind in kinds if kind not in JSON_SCALARS and not issubclass(kind, list | tuple | Mapping)}
        if odd:
            cells = [_with_items(cell) if type(cell) in odd else cell for cell in cells]
            kinds = set(map(type, cells)) - {type(None)}
        lists = {kind for kind in kinds if issubclass(kind, list | tuple)}
        dicts = {kind for kind in kinds if issubclass(kind, Mapping)}
        if lists:
            own, inside = _some(cells, lists, place)
            lengths = np.fromiter(map(len, own), np.int64, len(own))
            self._count(inside, lengths)
            self._column(name, list(chain.from_iterable(own)), inside.repeated(lengths))
        if dicts:
            self._dicts(name, *_some(cells, dicts, place))
        others = kinds - lists - dicts
        if others:
            self._scalars(name, *_some(cells, others, place, others))

    def _dicts(self, name: str, cells: list[Mapping[Any, Any]], place: Place, *, counted: bool = False) -> None:
        if not counted:
            self._count(place, np.fromiter(map(len, cells), np.int64, len(cells)))
            if place.in_list:
                self._element(name, place)
        keys = dict.fromkeys(chain.from_iterable(cells))
        for key in keys:
            if not isinstance(key, str):
                raise Refused(place.row(next(number for number, cell in enumerate(cells) if key in cell)))
        if "value" in keys and not UNIT_KEYS.isdisjoint(keys):
            found = [as_quantity(as_json(cell)) if _count_values(cell) == 2 else None for cell in cells]
            whole = np.array([each is not None for each in found])
            if whole.any():
                own = np.flatnonzero(whole)
                numbers = np.array([each.value for each in found if each is not None], dtype=np.float64)
                units = coded_texts([each.unit for each in found if each is not None])
                assert units is not None
                self._quantities(name, numbers, units, place.of(own))
                cells = [
                    {key: value for key, value in cell.items() if key != "value"} if is_whole else cell
                    for cell, is_whole in zip(cells, whole.tolist(), strict=True)
                ]
        inside = place.members(Dicts(cells))
        if len(keys) * len(cells) <= SPARSE * sum(map(len, cells)):
            for key in keys:
                self._column(f"{name}.{key}", [cell.get(key) for cell in cells], inside)
            return
        sparse: dict[str, tuple[list[int], list[Any]]] = {key: ([], []) for key in keys}
        for number, cell in enumerate(cells):
            for key, value in cell.items():
                numbers_of, values = sparse[key]
                numbers_of.append(number)
                values.append(value)
        for key, (numbers_of, values) in sparse.items():
            self._column(f"{name}.{key}", values, inside.of(np.array(numbers_of, dtype=np.int64)))

    def _scalars(self, name: str, cells: list[Any], kinds: set[type], place: Place) -> None:
        """Adds scalars. `kinds` are their types: JSON types, or subclasses of these. Other types are refused."""
        if not kinds <= JSON_SCALARS:
            for number, cell in enumerate(cells):
                _check(cell, place.row(number), self._limits)
            cells = [_of_base(cell) for cell in cells]
            kinds = set(map(type, cells)) - {type(None)}
        if kinds <= {float, int}:
            numbers = _doubles(cells)
            if numbers is not None and (int not in kinds or np.nanmax(np.abs(numbers), initial=0.0) < EXACT):
                self._numbers(name, numbers, place)
                return
        elif {float, int} & kinds:
            self._scalars(name, *_some(cells, {float, int}, place, kinds & {float, int}))
            self._scalars(name, *_some(cells, kinds - {float, int}, place, kinds - {float, int}))
            return
        if int in kinds and not name.startswith(CONTEXT):
            for number, cell in enumerate(cells):
                _check(cell, place.row(number), self._limits)
        self._leaf(name, cells, place)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _quantities(self, name: str, numbers: npt.NDArray[np.float64], units: CodedCells, place: Place) -> None:
        if numbers.size:
            if self._wanted(name):
                self.leaves.append(Leaf(name, numbers, place.rows, units, quantities=True))
            if self._wanted(f"{name}.value"):
                self.leaves.append(Leaf(f"{name}.value", numbers, place.rows, units))

    def _leaf(self, name: str, cells: Cells, place: Place) -> None:
        if name == "@type":
            self._types(cells, place)
        if not self._wanted(name):
            return
        units: CodedCells | None = None
        if isinstance(cells, list) or (isinstance(cells, np.ndarray) and cells.dtype.kind == "f"):
            chosen = self._beside(name) if place.around is not None else None
            found = place.around.texts(chosen) if chosen is not None and place.around is not None else None
            if found is not None:
                units = found if place.owners is None else found.take(place.owners)
        self.leaves.append(Leaf(name, cells, place.rows, units))

    def _types(self, cells: Cells, place: Place) -> None:
        """Adds texts under `@type` as values of `ce.type` too (rule 1)."""
        if self._wanted("ce.type"):
            if not isinstance(cells, CodedCells):
                cells = [text if isinstance(text, str) else None for text in map(as_json, cells)]
            elif False in cells.distinct:
                return
            self.leaves.append(Leaf("ce.type", cells, place.rows))

    def _element(self, name: str, place: Place) -> None:
        if place.rows is not None and place.rows.size:
            self.elements.append(Elements(name, place.rows))

    def _count(self, place: Place, lengths: Rows) -> None:
        """Adds `lengths` to the number of JSON values of these rows."""
        if place.rows is None:
            self._sizes += lengths
        else:
            self._sizes += np.bincount(place.rows, weights=lengths, minlength=self._sizes.size)


@dataclass(frozen=True, slots=True)
class Columns:
    """Objects in columns: the rows of a table, or of a struct. Members have the order of the columns."""

    members: Mapping[str, Any]

    def texts(self, chosen: Callable[[str], bool]) -> CodedCells | None:
        """See `Around`."""
        found: CodedCells | None = None
        for name, column in self.members.items():
            texts = coded_texts(column) if chosen(name) else None
            if texts is not None:
                found = texts if found is None else found.or_else(texts)
        return found


@dataclass(frozen=True, slots=True)
class Dicts:
    """Objects as dicts."""

    cells: Sequence[Mapping[str, Any]]

    def texts(self, chosen: Callable[[str], bool]) -> CodedCells | None:
        """See `Around`."""
        names = {name for name in dict.fromkeys(chain.from_iterable(self.cells)) if chosen(name)}
        if len(names) == 1:
            (name,) = names
            return coded_texts([cell.get(name) for cell in self.cells])
        if not names:
            return None
        texts = ([cell[name] for name in cell if name in names] for cell in self.cells)
        return coded_texts([next((each for each in own if isinstance(each, str)), None) for own in texts])


def part_of_cells(cells: Cells, start: int, stop: int) -> Cells:
    """Returns the cells `start … stop-1`. Slices of arrays are views."""
    return cells.part(start, stop) if isinstance(cells, CodedCells) else cells[start:stop]


def plain(cell: Any, depth: int) -> Any:
    """Returns a cell in JSON types. NaN means absent, at any depth up to `depth`; `flatten` refuses deeper values."""
    if type(cell) is str or depth < 0:
        return cell
    if isinstance(cell, Mapping):
        return {key: plain(value, depth - 1) for key, value in cell.items()}
    if isinstance(cell, list | tuple) or (isinstance(cell, np.ndarray) and cell.ndim):
        return [plain(each, depth - 1) for each in cell]
    found = as_json(cell)
    return None if isinstance(found, float) and math.isnan(found) else found


def _some(cells: list[Any], kinds: set[type], place: Place, *more: Any) -> tuple[Any, ...]:
    """Returns the cells of these types and their position, with `more` in between."""
    own = [number for number, cell in enumerate(cells) if type(cell) in kinds]
    if len(own) == len(cells):
        return (cells, *more, place)
    return ([cells[number] for number in own], *more, place.of(np.array(own, dtype=np.int64)))


def _with_items(cell: Any) -> Any:
    """Converts a cell that has no JSON type as `plain` does. Items of arrays are converted later."""
    if isinstance(cell, np.ndarray) and cell.ndim and cell.dtype.kind not in "mM":
        return cell.tolist()
    return plain(cell, 1)


def _of_base(cell: Any) -> Any:
    """Converts a value of a subclass of a JSON type to that type."""
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bool) or cell is None:
        return cell
    return int(cell) if isinstance(cell, int) else float(cell)


def _check(cell: Any, row: int, limits: EventLimits) -> None:
    try:
        flatten({"": cell}, limits)
    except InvalidEvent:
        raise Refused(row) from None


def _doubles(cells: Iterable[Any]) -> npt.NDArray[np.float64] | None:
    """Returns numbers as doubles, with NaN for None. Returns None if a number is too large."""
    try:
        return np.array(cells, dtype=np.float64)  # None becomes NaN
    except OverflowError:
        return None


# ── Arrow ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _codes(column: Any) -> npt.NDArray[np.int32]:
    """Returns 0 and 1 for booleans, -1 for empty cells."""
    found: npt.NDArray[np.int32] = column.cast("int8").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return found


def _count_values(cell: Mapping[Any, Any]) -> int:
    return sum(value is not None for value in cell.values())


def _numbers_of(column: Any) -> npt.NDArray[np.float64] | None:
    """Returns a column of numbers as doubles, with NaN for empty cells. None if it has no numbers, or if one is not
    finite and exact."""
    kind = str(column.type)
    if kind.startswith("decimal128("):
        return _decimals(column)
    if kind not in ("double", "float", "halffloat") and not kind.startswith(("int", "uint")):
        return None
    numbers: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    most = np.inf if kind.startswith(("double", "float", "half")) else EXACT
    return None if (np.abs(numbers) >= most).any() else numbers


def _decimals(column: Any) -> npt.NDArray[np.float64] | None:
    """Returns decimals as the nearest doubles; None if that is not certain. If the unscaled number and the power of ten
    are exact as doubles, a single division rounds only once."""
    scale = column.type.scale
    if not 0 <= scale <= 22:
        return None
    words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)[
        column.offset : column.offset + len(column)
    ]
    there = column.is_valid().to_numpy(zero_copy_only=False)
    low, high = words[:, 0], words[:, 1]
    small = (high == low >> 63) & (low > -EXACT) & (low < EXACT)
    if not (small | ~there).all():
        return None
    return np.where(there, low.astype(np.float64) / 10.0**scale, np.nan)
