"""A batch of events in columns, for engines that need no object an event.

    ColumnBatch ─┬─ kinds, presents       which attributes each event has: an index into a few distinct sets
                 ├─ columns               the values: numbers as they are, or places in a table of distinct keys
                 └─ several               events with more than one value in some column, as `LoweredEvent`s

Means the same as the `LoweredEvent`s that `lowered` gives; engines without a way of their own take those.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, ColumnId, Key, LoweredEvent

__all__ = ["ColumnBatch", "ColumnValues", "KeyTable"]


@dataclass(slots=True, weakref_slot=True)
class KeyTable:
    """Distinct keys of one column; None stands for no value. Grows at its end only. `translations` belongs to
    engines: what they made of the keys, so that a batch does not ask for each of them again."""

    keys: list[Key | None] = field(default_factory=list)
    translations: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of every event in one column: `numbers` (`float64[events]`, NaN: none) if `table` is None, else
    `places` in it (`int32[events]`, -1: none)."""

    column: ColumnId
    numbers: npt.NDArray[np.float64]
    table: KeyTable | None = None
    places: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def floats(self) -> npt.NDArray[np.float64]:
        """The numbers of a column that holds numbers, however it is stored; NaN: none."""
        if self.table is None:
            return self.numbers
        keys = np.array([np.nan if key is None else float(key) for key in [*self.table.keys, None]])
        found: npt.NDArray[np.float64] = keys[self.places]
        return found

    def distinct(self) -> tuple[Sequence[Key | None], npt.NDArray[np.int32]]:
        """Its distinct keys, and the place of each event's key among them (-1 or a None: none)."""
        if self.table is not None:
            return self.table.keys, self.places
        keys, places = np.unique(self.numbers, return_inverse=True)
        return [None if key != key else key for key in keys.tolist()], places.astype(np.int32)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """See above. `kinds` is `int32[events]`; an event in `several` has no values in `columns`. No two of `columns`
    are of one column."""

    kinds: npt.NDArray[np.int32]
    presents: Sequence[frozenset[AttributeId]]
    columns: Sequence[ColumnValues]
    several: Mapping[int, LoweredEvent]

    @property
    def events(self) -> int:
        """How many events there are."""
        return self.kinds.size

    def part(self, start: int, stop: int) -> "ColumnBatch":
        """The events `start … stop-1`, numbered from 0; views, no copies."""
        columns = [
            ColumnValues(each.column, each.numbers[start:stop], each.table, each.places[start:stop])
            for each in self.columns
        ]
        several = {place - start: event for place, event in self.several.items() if start <= place < stop}
        return ColumnBatch(self.kinds[start:stop], self.presents, columns, several)

    def lowered(self) -> list[LoweredEvent]:
        """The same events one by one."""
        events = []
        for place, kind in enumerate(self.kinds.tolist()):
            if place in self.several:
                events.append(self.several[place])
                continue
            values: dict[ColumnId, tuple[Key, ...]] = {}
            for each in self.columns:
                if each.table is None:
                    number = float(each.numbers[place])
                    if not math.isnan(number):
                        values[each.column] = (number,)
                elif each.places[place] >= 0:
                    key = each.table.keys[each.places[place]]
                    if key is not None:
                        values[each.column] = (key,)
            events.append(LoweredEvent(self.presents[kind], values))
        return events
