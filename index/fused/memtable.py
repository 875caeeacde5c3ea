"""The memtable: rows not yet in a segment, each with a program of its whole clause, filtered by bit masks.

add ─▶ required and forbidden attributes, a program        match ─▶ those whose attributes fit ─▶ masks ─▶ programs
    ─▶ its places in a segment, for when it is frozen

A *sieve* holds, for one column, the first predicate of each row on it (a second sieve the second, and so on): for each
cell of values one bit per row, set unless no value in that cell satisfies the row's predicate. Cells of numbers lie
between quantiles of the bounds; of keys and concepts they are the code's remainder by 64, where a concept also stands
in the cells of all that is above it. An event unites the masks of its values in a column and joins those of all sieves;
what is left is asked. Rows are entered into masks when the first event after them comes.

A memtable that is full is *sealed*: nothing is added to it any more, while a segment is made out of it.

`RowLocations` allocates rows: which rows exist, where each is stored, and which numbers are free.

take ─▶ lowest free row ─▶ IN_MEMTABLE ─▶ FROZEN          give_back ─▶ free again
                        └▶ NEVER (no event can match it)
"""

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, Clause
from kindcast.index.fused.arrays import Bytes, Codes, Floats, GraphArrays, Ints, Words, grown, joined
from kindcast.index.fused.columns import CONCEPT, KEY, ORDERED, Columns, Parts
from kindcast.index.fused.layout import Place, places_of
from kindcast.index.fused.residuals import (
    INTERVAL,
    KEYS,
    BatchArrays,
    Growing,
    GrowingRest,
    ProgramArrays,
    Programs,
    Rest,
    ask_programs,
    mark_concepts,
    unmark_concepts,
)
from kindcast.index.jit import compiled, lowest_bit

__all__ = ["FROZEN", "IN_MEMTABLE", "NEVER", "NOWHERE", "Memtable", "RowLocations", "match_memtable"]


NOWHERE, IN_MEMTABLE, FROZEN, NEVER = range(4)
"""Where a row is: free, in a memtable, in a segment, or stored but unable to match anything."""


class RowLocations:
    """The allocation of rows. Invariant: `size` counts all rows that were ever allocated; those that are free now are
    `NOWHERE`."""

    def __init__(self, state: Bytes | None = None) -> None:
        """`state` is the location of each row of a saved engine, `uint8[rows]`."""
        self._state = np.zeros(0, dtype=np.uint8) if state is None else state
        self.size = self._state.size
        self._free: list[int] = np.flatnonzero(self._state == NOWHERE).tolist()  # ascending, which is a heap
        self.repeating = 0
        """Rows of several alternatives, which a search may find more than once."""

    def __len__(self) -> int:
        return self.size - len(self._free)

    @property
    def nbytes(self) -> int:
        """About the bytes: an entry of the heap is a pointer and a number."""
        return self._state.nbytes + 40 * len(self._free)

    @property
    def next_nbytes(self) -> int:
        """The bytes that the next row may take."""
        return 40 if self._free or self.size < self._state.size else max(64, self.size)

    def state(self) -> npt.NDArray[np.uint8]:
        """The location of each row, as a view."""
        return self._state[: self.size]

    def take(self) -> int:
        """Takes the lowest free row. The caller must then say where it is stored."""
        if self._free:
            return heapq.heappop(self._free)
        if self.size == self._state.size:
            self._state = np.concatenate([self._state, np.zeros(max(64, self.size), dtype=np.uint8)])
        self.size += 1
        return self.size - 1

    def give_back(self, row: int) -> None:
        """Frees `row`."""
        self._state[row] = NOWHERE
        heapq.heappush(self._free, row)

    def shrink(self) -> None:
        """Drops the free rows after the last occupied one. Linear."""
        used = np.flatnonzero(self.state())
        self.size = int(used[-1]) + 1 if used.size else 0
        self._state = self._state[: self.size].copy()
        self._free = [row for row in self._free if row < self.size]
        heapq.heapify(self._free)

    def put(self, rows: int | Sequence[int] | Codes, where: int | Bytes) -> None:
        """Sets the location of each of `rows`."""
        self._state[rows] = where

    def where(self, row: int) -> int:
        """Returns the location of a row; `NOWHERE` also for a row that was never allocated."""
        return int(self._state[row]) if 0 <= row < self.size else NOWHERE

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is broken."""
        assert sorted(self._free) == np.flatnonzero(self.state() == NOWHERE).tolist(), (self._free, self.state())


CELLS = 64
"""Cells of a sieve: one bit a row and cell."""
MOST_SIEVES = 64
"""Where rows ask more columns than these, the others are left to their programs."""
OCCURRENCES = 2
"""Predicates of one row on one column that have a sieve each."""
FEWEST_SIEVED = 8
"""Rows before numbers are divided into cells for the first time."""
REMEMBERED = 1024
"""Kinds of events whose fitting rows are cached; a stream has few."""
ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
NO_WORDS = np.zeros(0, dtype=np.uint64)


class SieveArrays(NamedTuple):
    """The masks of n rows in w words each, w >= n / 64; the arrays may be longer than the sieves that are used."""

    column: Codes  # [sieves] the engine's number
    how: Bytes  # [sieves] how it is read
    cuts: Floats  # [sieves, CELLS - 1] where cells of numbers begin
    masks: Words  # [sieves, CELLS + 1, w] the last of each: no value, or none that any row asks for


class MemtableArrays(NamedTuple):
    """n entries; the arrays may be longer."""

    rows: Codes  # [n] -1 where the row has been removed
    attribute_from: Ints  # [2n+1] required, then forbidden attributes of each entry
    attributes: Ints


class Memtable:
    """Clauses by row. Invariant: `len` counts the entries that are not removed."""

    def __init__(self, columns: Columns) -> None:
        self.places: dict[int, Sequence[Place]] = {}
        """The places of each row in a future segment."""
        self._columns = columns
        self._programs = Programs()
        self._rest = GrowingRest()
        self._entries: dict[int, int] = {}
        self._rows = np.full(16, -1, dtype=np.int32)
        self._attribute_from = Growing(np.int64, [0])
        self._attributes = Growing(np.int64)
        self._arrays: tuple[MemtableArrays, ProgramArrays] | None = None
        self._sieves = _no_sieves(None, 1)
        self._sieve_of = np.full((0, OCCURRENCES), -1, dtype=np.int32)
        self._sieved = 0
        self._divided = 0
        self._entering = threading.Lock()
        self._fitting: dict[frozenset[AttributeId], tuple[int, Words]] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, row: int) -> bool:
        return row in self.places

    @property
    def entries(self) -> int:
        """The number of entries, including removed ones."""
        return len(self._programs)

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes: the arrays, and some 300 bytes of objects per row."""
        arrays = (*self._programs.arrays(), self._rows)
        known = len(self._fitting) * (self._sieves.masks.shape[2] * 8 + 300)
        sieves = sum(array.nbytes for array in self._sieves)
        own = sum(array.nbytes for array in arrays)
        return int(own + self._rest.nbytes + 300 * self.entries + sieves + known)

    def add(self, row: int, clause: Clause, parts: Parts) -> None:
        """Adds `clause`, whose decomposition is `parts`. Takes some 20 to 40 µs, depending on the length of the
        clause."""
        entry = self._programs.add(dict.fromkeys(clause.predicates), self._columns)
        if entry == self._rows.size:
            self._rows = np.concatenate([self._rows, np.full_like(self._rows, -1)])
        self._rows[entry] = row
        self._entries[row] = entry
        for attributes in (clause.required, clause.forbidden):
            for attribute in attributes:
                self._attributes.append(attribute)
            self._attribute_from.append(self._attributes.size)
        self.places[row] = places_of(parts, self._columns)
        if parts.rest:
            self._rest.add(row, parts.rest, self._columns)
        self._arrays = None

    def remove(self, row: int) -> None:
        """Removes `row`, which must be in this memtable."""
        del self.places[row]
        self._rest.discard(row)
        self._rows[self._entries.pop(row)] = -1

    def arrays(self) -> tuple[MemtableArrays, ProgramArrays]:
        """Returns the arrays that kernels read. They are valid until the next `add`."""
        if self._arrays is None:
            entries = MemtableArrays(self._rows, self._attribute_from.array, self._attributes.array)
            self._arrays = entries, self._programs.arrays()
        return self._arrays

    def sieves(self) -> SieveArrays:
        """Returns the masks of all rows. First enters the rows that are new, at some ns per cell. When the number of
        rows has doubled, all rows are entered again under new cells. Any matching thread may do this work."""
        if self._sieved < self.entries:
            with self._entering:
                if self._sieved < self.entries:
                    self._enter_rows()
        return self._sieves

    def fits(
        self,
        presents: Sequence[frozenset[AttributeId]],
        attributes: Callable[[frozenset[AttributeId]], Ints],
        words: int,
    ) -> Words:
        """Returns `uint64[kinds, words]`: the rows whose attribute sets fit each kind of event. `attributes` makes an
        array of one. Costs some ns per attribute of the rows that were not yet compared with this kind of event. The
        result must not be changed."""
        if len(presents) == 1:
            last, known = self._fitting.get(presents[0], (0, NO_WORDS))
            if last == self.entries and known.size == words:
                return known[None]
        found = np.zeros((len(presents), words), dtype=np.uint64)
        compared = np.zeros(len(presents), dtype=np.int64)
        for kind, each in enumerate(presents):
            compared[kind], known = self._fitting.get(each, (0, NO_WORDS))
            found[kind, : known.size] = known
        behind = np.flatnonzero(compared < self.entries)
        if behind.size:
            present_from, present = joined([attributes(each) for each in presents])
            _fit(self.arrays()[0], present_from, present, compared, self.entries, found)
            if len(self._fitting) + behind.size > REMEMBERED:
                self._fitting.clear()
            for kind in behind.tolist()[:REMEMBERED]:
                self._fitting[presents[kind]] = self.entries, found[kind].copy()
        return found

    def _enter_rows(self) -> None:
        entries, programs, sieves = self.entries, self._programs.arrays(), self._sieves
        missing = len(self._columns) - len(self._sieve_of)
        if missing > 0:
            none = np.full((missing, OCCURRENCES), -1, dtype=np.int32)
            self._sieve_of = np.concatenate([self._sieve_of, none])
        divide = entries >= max(FEWEST_SIEVED, 2 * self._divided)
        if divide:
            words = sieves.masks.shape[2]
            while words * 64 < 2 * entries:
                words *= 2
            sieves = _no_sieves(sieves, words)
        sieves = _enter(sieves, self._sieve_of, programs, self._sieved, entries)
        if divide:  # the call above has added the sieves of new columns; now all rows are entered
            sieves = self._divided_by(sieves)
            sieves = _enter(sieves, self._sieve_of, programs, 0, entries)
            self._divided = entries
        self._sieves = sieves
        self._sieved = entries

    def _divided_by(self, sieves: SieveArrays) -> SieveArrays:
        """Returns empty sieves for the same columns, with cells between the quantiles of the bounds of all rows."""
        programs, tests = self._programs.arrays(), self._programs.tests
        divided = _no_sieves(sieves, sieves.masks.shape[2])
        for sieve, column in enumerate(sieves.column.tolist()):
            asked = (programs.test[:tests] == INTERVAL) & (programs.column[:tests] == column)
            ends = np.concatenate([programs.low[:tests][asked], programs.high[:tests][asked]])
            ends = np.sort(ends[np.isfinite(ends)])
            if ends.size:
                divided.cuts[sieve] = ends[np.arange(1, CELLS) * ends.size // CELLS]
        return divided

    def forget(self) -> None:
        """Clears the caches."""
        self._fitting.clear()

    def fitting(self, present: frozenset[AttributeId]) -> int:
        """Returns the number of clauses whose attribute sets fit an event with exactly these attributes."""
        count = 0
        for entry in range(self.entries):
            first, middle, last = self._attribute_from.array[2 * entry : 2 * entry + 3]
            required = self._attributes.array[first:middle].tolist()
            forbidden = self._attributes.array[middle:last].tolist()
            fits = present.issuperset(required) and present.isdisjoint(forbidden)
            count += int(fits and self._rows[entry] >= 0)
        return count

    def rest(self) -> Rest | None:
        """Returns the residual predicates that the rows get when they are frozen."""
        return self._rest.rest()

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is broken."""
        live = {int(row): entry for entry, row in enumerate(self._rows[: self.entries]) if row >= 0}
        # Entries, their rows and their places agree.
        assert live == self._entries, (live, self._entries)
        assert set(live) == set(self.places), (live, self.places)
        assert self._attribute_from.size == 2 * self.entries + 1, (self._attribute_from.array, self.entries)
        # A sieve is of the column that leads to it; each row that was entered is in some cell of each.
        sieves = self._sieves
        for column, own in enumerate(self._sieve_of.tolist()):
            assert all(sieve < 0 or sieves.column[sieve] == column for sieve in own), (column, own, sieves.column)
        assert (sieves.cuts[:, 1:] >= sieves.cuts[:, :-1]).all(), sieves.cuts
        for entry in live.values():
            if entry < self._sieved:
                reached = (sieves.masks[:, :CELLS, entry >> 6] >> np.uint64(entry & 63)) & np.uint64(1)
                assert reached.any(axis=1).all(), (entry, reached)
        # Residual predicates are checked where the place says so.
        assert all((row in self._rest) == places[0][0][3] for row, places in self.places.items()), self.places


def _no_sieves(known: SieveArrays | None, words: int) -> SieveArrays:
    """Returns sieves without rows, for the columns of the `known` sieves, with space for `words` words of rows."""
    count = 0 if known is None else known.column.size
    return SieveArrays(
        np.zeros(0, dtype=np.int32) if known is None else known.column,
        np.zeros(0, dtype=np.uint8) if known is None else known.how,
        np.full((count, CELLS - 1), np.inf),
        np.full((count, CELLS + 1, words), ALL, dtype=np.uint64),
    )


@compiled
def _cell(value: float, cuts: Floats) -> int:
    """Returns the number of the sorted `cuts` that are below `value`."""
    low, high = 0, cuts.size
    while low < high:
        middle = (low + high) >> 1
        if cuts[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _enter(sieves: SieveArrays, sieve_of: Codes, programs: ProgramArrays, first: int, last: int) -> SieveArrays:
    """Enters the rows `first … last - 1` into the sieves. Adds sieves for new columns, up to `MOST_SIEVES`. Changes
    `sieve_of`."""
    column, how, cuts, masks = sieves.column, sieves.how, sieves.cuts, sieves.masks
    times = np.zeros(sieve_of.shape[0], dtype=np.int64)
    # The masks of the current word of rows. They are next to each other here; in `masks` each has its own cache line.
    near = np.empty((MOST_SIEVES, CELLS + 1), dtype=np.uint64)
    changed = np.zeros(MOST_SIEVES, dtype=np.uint8)
    for entry in range(first, last):
        word, place = entry >> 6, np.uint64(entry & 63)
        for predicate in range(programs.predicate_from[entry], programs.predicate_from[entry + 1]):
            begin, end = programs.test_from[predicate], programs.test_from[predicate + 1]
            if programs.negated[predicate] or begin == end:
                continue
            number = programs.column[begin]
            same = True
            for test in range(begin, end):
                same &= programs.column[test] == number
            if not same or times[number] >= sieve_of.shape[1]:
                continue
            sieve = sieve_of[number, times[number]]
            if sieve < 0:
                sieve = column.size
                if sieve >= MOST_SIEVES:
                    continue
                sieve_of[number, times[number]] = sieve
                column = np.append(column, np.array([number], dtype=np.int32))
                asks = programs.test[begin]
                read = ORDERED if asks == INTERVAL else (KEY if asks == KEYS else CONCEPT)
                how = np.append(how, np.array([read], dtype=np.uint8))
                more_cuts = np.full((sieve + 1, cuts.shape[1]), np.inf)
                more_masks = np.full((sieve + 1, masks.shape[1], masks.shape[2]), ALL, dtype=np.uint64)
                for each in range(sieve):  # slices would be compiled for seconds: see `grown`
                    for i in range(cuts.shape[1]):
                        more_cuts[each, i] = cuts[each, i]
                    for i in range(masks.shape[1]):
                        for j in range(masks.shape[2]):
                            more_masks[each, i, j] = masks[each, i, j]
                cuts, masks = more_cuts, more_masks
            times[number] += 1
            reach = np.uint64(0)
            for test in range(begin, end):
                if programs.test[test] == INTERVAL:
                    low, high = _cell(programs.low[test], cuts[sieve]), _cell(programs.high[test], cuts[sieve])
                    for cell in range(low, high + 1):
                        reach |= np.uint64(1) << np.uint64(cell)
                else:
                    for i in range(programs.operand_from[test], programs.operand_from[test + 1]):
                        reach |= np.uint64(1) << np.uint64(programs.operands[i] & (CELLS - 1))
            if not changed[sieve]:
                changed[sieve] = 1
                for cell in range(CELLS + 1):
                    near[sieve, cell] = ALL
            for cell in range(CELLS):
                near[sieve, cell] &= ~((~reach >> np.uint64(cell) & np.uint64(1)) << place)
            near[sieve, CELLS] &= ~(np.uint64(1) << place)
        for predicate in range(programs.predicate_from[entry], programs.predicate_from[entry + 1]):
            for test in range(programs.test_from[predicate], programs.test_from[predicate + 1]):
                times[programs.column[test]] = 0
        if entry & 63 == 63 or entry == last - 1:
            for sieve in range(column.size):
                if changed[sieve]:
                    changed[sieve] = 0
                    for cell in range(CELLS + 1):
                        masks[sieve, cell, word] &= near[sieve, cell]
    return SieveArrays(column, how, cuts, masks)


@compiled
def _fit(memtable: MemtableArrays, present_from: Ints, present: Ints, compared: Ints, last: int, fits: Words) -> None:
    """Sets in `fits[k]` the bits of those entries `compared[k] … last - 1` whose attribute sets fit kind k."""
    most = 0
    for i in range(memtable.attribute_from[2 * compared.min()], memtable.attribute_from[2 * last]):
        most = max(most, memtable.attributes[i] + 1)
    has = np.zeros(most + 1, dtype=np.uint8)
    for kind in range(compared.size):
        for i in range(present_from[kind], present_from[kind + 1]):
            has[min(present[i], most)] = 1
        for entry in range(compared[kind], last):
            good = True
            for i in range(memtable.attribute_from[2 * entry], memtable.attribute_from[2 * entry + 1]):
                good &= has[memtable.attributes[i]] != 0
            for i in range(memtable.attribute_from[2 * entry + 1], memtable.attribute_from[2 * entry + 2]):
                good &= has[memtable.attributes[i]] == 0
            if good:
                fits[kind, entry >> 6] |= np.uint64(1) << np.uint64(entry & 63)
        for i in range(present_from[kind], present_from[kind + 1]):
            has[min(present[i], most)] = 0


@compiled
def match_memtable(
    rows: Codes,
    sieves: SieveArrays,
    fits: Words,
    programs: ProgramArrays,
    graph: GraphArrays,
    batch: BatchArrays,
    kinds: Codes,
    marked: Bytes,
    above: Codes,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Returns the rows that each event matches, as a find of one pass like `match_segment`. `rows` has the row of each
    entry, or -1. `fits` has the entries that fit each kind of event."""
    words = fits.shape[1]
    columns, how, cuts, masks = sieves.column, sieves.how, sieves.cuts, sieves.masks
    several_index, several_from, codes, numbers = batch.several_index, batch.several_from, batch.codes, batch.numbers
    mark_base, width = batch.mark_base, batch.columns.size
    concepts = graph.parent_from.size - 1
    where = np.full(columns.size, -1, dtype=np.int64)
    for sieve in range(columns.size):
        if columns[sieve] < batch.where.size:
            where[sieve] = batch.where[columns[sieve]]
    left = np.empty(words, dtype=np.uint64)
    united = np.empty(words, dtype=np.uint64)
    used = 0
    for event in range(kinds.size):
        starts[event] = used
        if used + words * 64 > buffer.size:
            buffer = grown(buffer, used, 2 * buffer.size + words * 64)
        some = np.uint64(0)
        fitting = fits[kinds[event]]
        for w in range(words):
            left[w] = fitting[w]
            some |= fitting[w]
        walked = False
        for turn in range(2):  # concepts last: to walk up from them costs most
            for sieve in range(columns.size):
                if some == 0:
                    break
                if (how[sieve] == CONCEPT) != (turn == 1):
                    continue
                s = where[sieve]
                begin, end = event * width + s, event * width + s + 1
                if s < 0:
                    end = begin
                elif several_index[event] >= 0:
                    begin = several_from[several_index[event] * width + s]
                    end = several_from[several_index[event] * width + s + 1]
                if turn == 1:
                    if not walked:
                        mark_concepts(graph, batch, event, marked, above)
                        walked = True
                    begin = end = 0
                    if s >= 0:
                        begin = end = mark_base[s]
                        while end < mark_base[s] + concepts and above[end] >= 0:
                            end += 1
                mask = masks[sieve, CELLS]
                count = 0
                for i in range(begin, end):
                    if how[sieve] == ORDERED:
                        if np.isnan(numbers[i]):
                            continue
                        cell = _cell(numbers[i], cuts[sieve])
                    else:
                        code = above[i] if turn == 1 else codes[i]
                        if code < 0:
                            continue
                        cell = int(code & (CELLS - 1))
                    count += 1
                    if count == 1:
                        mask = masks[sieve, cell]
                        continue
                    more = masks[sieve, cell]
                    if count == 2:
                        for w in range(words):
                            united[w] = mask[w]
                        mask = united
                    for w in range(words):
                        united[w] |= more[w]
                some = np.uint64(0)
                for w in range(words):
                    left[w] &= mask[w]
                    some |= left[w]
        if walked:
            unmark_concepts(graph, batch, marked, above)
        if some != 0:
            for w in range(words):
                word = left[w]
                while word:
                    entry = w * 64 + int(lowest_bit(word))
                    word &= word - np.uint64(1)
                    buffer[used] = entry
                    used += rows[entry] >= 0
    starts[kinds.size] = used
    holds = np.empty(used, dtype=np.uint8)
    ask_programs(programs, graph, batch, starts, buffer, marked, above, holds)
    used = 0
    at = 0
    for event in range(kinds.size):
        stop = starts[event + 1]
        starts[event] = used
        while at < stop:
            buffer[used] = rows[buffer[at]]
            used += int(holds[at])
            at += 1
    starts[kinds.size] = used
    return buffer
