"""Decomposition of clauses into conjuncts, the numbered columns of the conjuncts, and the encoding of events by column.

    (column, reading) ─▶ number                     keys ─▶ codes, valid for the lifetime of the engine
    events or a `ColumnBatch` ─▶ EventBatch         one matrix per batch: one value per event and column; the values of
                                                    events with several values in a column follow the matrix

Numbers are encoded later, separately for each segment, because each segment has its own order of bounds.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    can_hold,
)
from kindcast.index.engine import ColumnBatch, KeyTable
from kindcast.index.fused.arrays import Codes, Floats, Ints

__all__ = [
    "CONCEPT",
    "KEY",
    "ORDERED",
    "ColumnLayout",
    "Columns",
    "Conjunct",
    "EventBatch",
    "Parts",
    "decompose",
]

# ── splitting of a clause: conjuncts that are stored in segment records, and residual predicates checked later ────────

#     Clause ──▶ required, forbidden      the attribute sets, which determine the cluster
#            ──▶ alternatives             conjunctions of conjuncts; one of them holds for every event that matches
#            ──▶ rest                     residual predicates, checked by a program on the remaining rows
#
# | test of a predicate that is not negated | conjunct |
# |---|---|
# | interval, one key that is a number | `ORDERED`: low, high |
# | one key of another type; exactly one concept | `KEY`: the key |
# | within one concept | `CONCEPT`: the concept |
# | properly below one concept | `CONCEPT`: the concept; in addition, the predicate is in the rest |
#
# Several predicates on one attribute are several conjuncts, each of which some value must satisfy (erratum 3). Sets and
# predicates with several tests become alternatives, each stored as a separate row in a segment, up to a limit. The
# other predicates, and all negated predicates, are the rest.


ORDERED, KEY, CONCEPT = 0, 1, 2
"""The readings of a column: by order, by equality, by ancestor concepts. The slots of a cluster have this order."""
MOST_ALTERNATIVES = 16
"""Maximum number of rows of a clause in a segment. More rows cost memory, and a long set is seldom selective."""

Conjunct = tuple[int, ColumnId, Key, Key]
"""Reading, column, and the two ends, which are equal for keys and concepts."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a clause (see above). The conjuncts of an alternative are sorted by reading and column."""

    required: frozenset[AttributeId]
    forbidden: frozenset[AttributeId]
    alternatives: tuple[tuple[Conjunct, ...], ...]
    rest: tuple[Predicate, ...]


def decompose(clause: Clause) -> Parts | None:
    """Returns the parts of `clause`, or None if no event can match it."""
    required = clause.required
    if not required.isdisjoint(clause.forbidden):
        return None
    alternatives: list[tuple[Conjunct, ...]] = [()]
    rest: list[Predicate] = []
    several: list[tuple[Predicate, list[Conjunct]]] = []
    for predicate in dict.fromkeys(clause.predicates):
        if predicate.negated:
            if any(can_hold(test) for _, test in predicate.tests):
                rest.append(predicate)
            continue
        options, exact = _options(predicate)
        if not options:
            return None
        if not exact:
            rest.append(predicate)
        if len(options) > 1:
            several.append((predicate, options))
        else:
            alternatives[0] += (options[0],)
    several.sort(key=lambda each: len(each[1]))
    for predicate, options in several:
        if len(alternatives) * len(options) <= MOST_ALTERNATIVES:
            alternatives = [(*known, option) for known in alternatives for option in options]
        elif predicate not in rest:
            rest.append(predicate)
    ordered = (tuple(sorted(dict.fromkeys(each), key=_place)) for each in alternatives)
    return Parts(required, clause.forbidden, tuple(dict.fromkeys(ordered)), tuple(rest))


def _options(predicate: Predicate) -> tuple[list[Conjunct], bool]:
    """Returns conjuncts, one of which holds if `predicate` holds; and whether the converse is true, too."""
    exact = True
    options: dict[Conjunct, None] = {}
    for column, test in predicate.tests:
        if isinstance(test, IntervalTest):
            if test.low <= test.high:
                options[ORDERED, column, test.low, test.high] = None
        elif isinstance(test, KeyTest):
            for key in test.keys:
                options[ORDERED if type(key) is float else KEY, column, key, key] = None
        else:
            exact = exact and not test.below
            for concept in (*test.within, *test.below):
                options[CONCEPT, column, cast(Key, concept), cast(Key, concept)] = None
            for concept in test.exactly:
                options[KEY, column, cast(Key, concept), cast(Key, concept)] = None
    return list(options), exact


def _place(conjunct: Conjunct) -> tuple[int, int]:
    return conjunct[0], conjunct[1]


KEY_BYTES = 160
"""Estimated size in bytes of a key and its code: an entry of a dictionary, a short string, a number."""
NOTHING = -1
"""The code of no value, and of a key that no clause has."""
ALONE, NO_FURTHER, ONE_KIND = np.full(1, -1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32)
"""`several_index`, `several_from` and `kinds` of a single event with one value per column."""
REMEMBERED = 1024
"""Maximum number of sets of columns whose layouts are cached. A stream has few."""
REMEMBERED_COLUMNS = 1 << 16
"""Maximum number of columns in these sets together. A layout has some objects per column."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """E events in S columns. `codes` and `numbers` begin with a matrix of E·S values, row by row: codes for keys and
    concepts (-1 for no value), numbers for ordered columns (NaN for no value).

    The matrix is not used for an event e with several values in a column. Such an event has the number
    n = `several_index[e]`, and its values in column s are those from `several_from[n·S + s]` to before
    `several_from[n·S + s + 1]`, after the matrix in the same arrays. For other events, `several_index[e]` is -1."""

    columns: Codes
    codes: Codes
    numbers: Floats
    several_index: Codes
    several_from: Ints
    kinds: Codes
    presents: Sequence[frozenset[AttributeId]]
    concept_places: Sequence[int]
    """The columns that hold concepts."""

    @property
    def events(self) -> int:
        """The number of events, E."""
        return self.kinds.size


class ColumnLayout(NamedTuple):
    """The layout of the values of single events with the same columns: the column numbers; the readers of each column
    (place, reading, codes of its keys); the places that hold codes, and concepts. `known` is the count of assigned
    numbers when the layout was made."""

    known: int
    columns: Codes
    readers: list[list[tuple[int, int, dict[Key, int]]]]
    coded: Ints
    concepts: list[int]


class Columns:
    """Map from (column, reading) to a number, in order of first use. Append-only."""

    def __init__(self) -> None:
        self.how: list[int] = []
        self._readers: dict[ColumnId, dict[int, int]] = {}
        self._keys: list[dict[Key, int]] = []
        self._layouts: dict[tuple[ColumnId, ...], ColumnLayout] = {}
        self._laid_out = 0
        """Count of columns in the cached layouts."""
        self._token = object()
        self.known = 0
        """Count of assigned numbers and keys. When it has grown, earlier translations may be incomplete."""

    def __len__(self) -> int:
        return len(self.how)

    @property
    def nbytes(self) -> int:
        """Estimated size of the keys in bytes."""
        return KEY_BYTES * sum(map(len, self._keys))

    def number(self, column: ColumnId, how: int) -> int:
        """Returns the number of a column in a reading. Assigns a new one if necessary."""
        readers = self._readers.setdefault(column, {})
        found = readers.get(how)
        if found is None:
            found = readers[how] = len(self.how)
            self.how.append(how)
            self._keys.append({})
            self.known += 1
        return found

    def key(self, number: int, key: Key) -> int:
        """Returns the code of `key` in a column of keys. Assigns a new one if necessary."""
        codes = self._keys[number]
        found = codes.get(key)
        if found is None:
            found = codes[key] = len(codes)
            self.known += 1
        return found

    def columns(self) -> list[ColumnId]:
        """Returns the column of each number."""
        column_of = {number: column for column, readers in self._readers.items() for number in readers.values()}
        return [column_of[number] for number in range(len(self.how))]

    def as_records(self) -> list[list[Any]]:
        """Returns the column, the reading, and the keys in the order of their codes for each number, as JSON."""
        pairs = zip(self.columns(), self.how, strict=True)
        return [[column, how, list(self._keys[number])] for number, (column, how) in enumerate(pairs)]

    @classmethod
    def from_records(cls, records: Iterable[Sequence[Any]]) -> "Columns":
        """Restores numbers and codes from the result of `as_records`."""
        columns = cls()
        for column, how, keys in records:
            columns._keys[columns.number(column, how)] = {key: code for code, key in enumerate(keys)}
            columns.known += len(keys)
        return columns

    def encode(self, events: Sequence[LoweredEvent]) -> EventBatch:
        """Encodes `events`. Costs some 200 ns per value."""
        presents: dict[frozenset[AttributeId], int] = {}
        kinds = np.array([presents.setdefault(event.present, len(presents)) for event in events], dtype=np.int32)
        places: dict[int, int] = {}
        singles: list[tuple[int, int, int, Key]] = []
        several: dict[int, tuple[list[int], list[Key]]] = {}
        readers_of = self._readers.get
        for place, event in enumerate(events):
            for column, values in event.values.items():
                readers = readers_of(column)
                if readers is None or not values:
                    continue
                for number in readers.values():
                    s = places.setdefault(number, len(places))
                    if len(values) == 1:
                        singles.append((place, s, number, values[0]))
                    else:
                        event_of, keys = several.setdefault(s, ([], []))
                        event_of += [place] * len(values)
                        keys += values
        numbers = list(places)
        codes, floats = _matrices(len(events), len(numbers))
        for place, s, number, value in singles:
            how = self.how[number]
            if how == ORDERED:
                floats[place, s] = cast(float, value)
            elif how == CONCEPT:
                codes[place, s] = cast(int, value)
            else:
                codes[place, s] = self._keys[number].get(value, NOTHING)
        more = {
            s: (np.array(event_of, dtype=np.int64), self._coded(numbers[s], keys))
            for s, (event_of, keys) in several.items()
        }
        return self._batch(numbers, codes, floats, more, kinds, list(presents))

    def values_of(self, event: LoweredEvent) -> tuple[ColumnLayout, Floats] | None:
        """Returns the layout of the columns of `event`, and its value in each: a number, or the code of a key or
        concept (-1 if unknown). Returns None if it has several values in a column. Some 100 ns per value."""
        names = tuple(event.values)
        layout = self._layouts.get(names)
        if layout is None or layout.known != len(self.how):
            layout = self._layout(names)
        values: list[Any] = [NOTHING] * layout.columns.size
        for readers, keys in zip(layout.readers, event.values.values(), strict=True):
            if len(keys) != 1:
                return None
            for s, how, codes in readers:
                values[s] = codes.get(keys[0], NOTHING) if how == KEY else keys[0]
        return layout, np.array(values, dtype=np.float64)

    def batch_of(self, present: frozenset[AttributeId], layout: ColumnLayout, values: Floats) -> EventBatch:
        """Returns a batch with one event that has these values."""
        codes = np.full(values.size, NOTHING, dtype=np.int32)
        codes[layout.coded] = values[layout.coded]
        return EventBatch(layout.columns, codes, values, ALONE, NO_FURTHER, ONE_KIND, [present], layout.concepts)

    def _layout(self, names: tuple[ColumnId, ...]) -> ColumnLayout:
        readers: list[list[tuple[int, int, dict[Key, int]]]] = []
        numbers: list[int] = []
        known = len(self.how)
        for column in names:
            own = list(self._readers.get(column, {}).values())
            readers.append([(len(numbers) + i, self.how[each], self._keys[each]) for i, each in enumerate(own)])
            numbers += own
        coded = np.array([s for s, each in enumerate(numbers) if self.how[each] != ORDERED], dtype=np.int64)
        concepts = [s for s, each in enumerate(numbers) if self.how[each] == CONCEPT]
        layout = ColumnLayout(known, np.array(numbers, dtype=np.int32), readers, coded, concepts)
        if len(self._layouts) >= REMEMBERED or self._laid_out + len(names) > REMEMBERED_COLUMNS:
            self._layouts.clear()
            self._laid_out = 0
        self._layouts[names] = layout
        self._laid_out += len(names)
        return layout

    def encode_columns(self, batch: ColumnBatch) -> EventBatch:
        """Encodes a batch in columns. Costs some ns per value, and some µs per value of events that are not in
        columns."""
        flat: dict[int, Any] = {}
        listed: dict[int, list[tuple[Ints, Any]]] = {}
        for values in batch.columns:
            for how, number in self._readers.get(values.column, {}).items():
                table = values.table
                if table is None:
                    coded = self._numbers_as(how, number, values.numbers)
                else:
                    coded = self._translated(table, how, number)[values.places]
                if values.offsets is not None:
                    event_of = np.repeat(np.arange(batch.events), np.diff(values.offsets))
                    listed.setdefault(number, []).append((event_of, coded))
                elif number in flat:
                    listed.setdefault(number, []).append((np.arange(batch.events), coded))
                else:
                    flat[number] = coded
        for place, event in batch.several.items():
            for column, keys in event.values.items():
                for number in self._readers.get(column, {}).values():
                    event_of = np.full(len(keys), place, dtype=np.int64)
                    listed.setdefault(number, []).append((event_of, self._coded(number, keys)))
        numbers = list(dict.fromkeys((*flat, *listed)))
        codes, floats = _matrices(batch.events, len(numbers))
        more: dict[int, tuple[Ints, Any]] = {}
        for s, number in enumerate(numbers):
            matrix = floats if self.how[number] == ORDERED else codes
            if number not in listed:
                matrix[:, s] = flat[number]
                continue
            if number in flat:
                listed[number].append((np.arange(batch.events), flat[number]))
            event_of, coded = _by_event(listed[number])
            count = np.bincount(event_of, minlength=batch.events)[event_of]
            matrix[event_of[count == 1], s] = coded[count == 1]
            if (count > 1).any():
                more[s] = event_of[count > 1], coded[count > 1]
        return self._batch(numbers, codes, floats, more, batch.kinds, batch.presents)

    def _batch(
        self,
        numbers: list[int],
        codes: Codes,
        floats: Floats,
        more: dict[int, tuple[Ints, Any]],
        kinds: Codes,
        presents: Sequence[frozenset[AttributeId]],
    ) -> EventBatch:
        """Builds a batch. `more` maps each column to its events with several values, ascending, repeated for each
        value, and to the values. `codes` and `floats`, both [events, columns], have all other values."""
        several_index = np.full(kinds.size, -1, dtype=np.int32)
        several_from = np.zeros(1, dtype=np.int64)
        all_codes, all_floats = codes.ravel(), floats.ravel()
        if more:
            events = np.unique(np.concatenate([event_of for event_of, _ in more.values()]))
            several_index[events] = np.arange(events.size)
            counts = np.ones((events.size, len(numbers)), dtype=np.int64)
            for s, (event_of, _) in more.items():
                of_event = np.bincount(several_index[event_of], minlength=events.size)
                counts[:, s] = np.maximum(of_event, 1)
            several_from = np.concatenate([[0], np.cumsum(counts.ravel())])
            begin = several_from[:-1].reshape(counts.shape)
            further = np.full(several_from[-1], NOTHING, dtype=np.int32), np.full(several_from[-1], math.nan)
            further[0][begin], further[1][begin] = codes[events], floats[events]
            for s, (event_of, coded) in more.items():
                own = several_index[event_of]
                rank = np.arange(own.size) - np.searchsorted(own, own)
                further[self.how[numbers[s]] == ORDERED][begin[own, s] + rank] = coded
            several_from += codes.size
            all_codes, all_floats = np.append(all_codes, further[0]), np.append(all_floats, further[1])
        return EventBatch(
            np.array(numbers, dtype=np.int32),
            all_codes,
            all_floats,
            several_index,
            several_from,
            kinds,
            presents,
            [s for s, number in enumerate(numbers) if self.how[number] == CONCEPT],
        )

    def _coded(self, number: int, keys: Sequence[Key]) -> Any:
        """Returns the codes of `keys` in this column."""
        if self.how[number] == ORDERED:
            return np.array(keys, dtype=np.float64)
        if self.how[number] == CONCEPT:
            return np.array(keys, dtype=np.int32)
        known = self._keys[number]
        return np.array([known.get(key, NOTHING) for key in keys], dtype=np.int32)

    def _numbers_as(self, how: int, number: int, numbers: Any) -> Any:
        if how == ORDERED:
            return numbers
        known = self._keys[number]
        return np.array([known.get(value, NOTHING) for value in numbers.tolist()], dtype=np.int32)

    def _translated(self, table: KeyTable, how: int, number: int) -> Any:
        """Returns the codes of the keys of `table` in this column, followed by one for no value. Cached in the
        table."""
        size = len(table.keys)  # other threads may add keys
        kept = table.translations.get((self._token, number))
        if kept is not None and kept[0] == (size, self.known):
            return kept[1]
        keys = (*table.keys[:size], None)
        if how == ORDERED:
            found: Any = np.array([math.nan if key is None else key for key in keys], dtype=np.float64)
        elif how == CONCEPT:
            found = np.array([NOTHING if key is None else key for key in keys], dtype=np.int32)
        else:
            get = self._keys[number].get
            found = np.array([get(key, NOTHING) for key in keys], dtype=np.int32)  # type: ignore[arg-type]
        table.translations[self._token, number] = ((size, self.known), found)
        return found


def _matrices(events: int, columns: int) -> tuple[Codes, Floats]:
    """Returns empty matrices for codes and numbers."""
    return np.full((events, columns), NOTHING, dtype=np.int32), np.full((events, columns), math.nan)


def _by_event(parts: Sequence[tuple[Ints, Any]]) -> tuple[Ints, Any]:
    """Returns all present values of a column, sorted by event, with their events."""
    event_of, coded = (np.concatenate(each) for each in zip(*parts, strict=True))
    some = ~np.isnan(coded) if coded.dtype == np.float64 else coded >= 0
    event_of, coded = event_of[some], coded[some]
    if len(parts) > 1:
        order = np.argsort(event_of, kind="stable")
        event_of, coded = event_of[order], coded[order]
    return event_of, coded
