"""Some thousand events as jobs pass them on: their names, and their attributes as columns for `Matcher.match_table`.

lines     columns that Arrow has read of them, made into events when asked for; or events, made into columns
Parquet   columns as they were stored, made into events when asked for
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semantic import Event
from spark_jobs.archived_events import ANONYMOUS, PLAIN_TYPE, ArchivedEvent
from spark_jobs.schemas import NO_DAY

__all__ = ["EventBatch", "Rejected", "days_of", "from_events", "without_nothing"]

TEXT_SHOWN = 200
"""Characters of a bad line that the quarantine shows."""
EXACT = 1 << 53
DAY = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rejected:
    """What could not be read, for the quarantine. Without `line` it is the whole file."""

    file: str
    line: int | None
    reason: str
    text: str | None = None

    def row(self) -> dict[str, Any]:
        text = None if self.text is None else self.text[:TEXT_SHOWN]
        return {"file": self.file, "line": self.line, "reason": self.reason, "text": text}


@dataclass(slots=True)
class EventBatch:
    """`keys` has the columns source, id, time and day; `lines` are their places in `file`. Either `events` or `table`
    is there; of a table that was read from lines, `read` gives each as an event again. `bodies` are the lines
    themselves, where a job asks for them."""

    keys: pa.Table
    file: str
    lines: npt.NDArray[np.int64]
    events: list[Event] | None = None
    table: pa.Table | None = None
    bodies: list[str] = field(default_factory=list)
    read: Callable[[int], Event] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def columns(self, *, with_context: bool) -> Any:
        """What `Matcher.match_table` takes; with the context attributes as `ce.…` where they are asked for."""
        if self.events is not None:
            return _columns(self.events, with_context=with_context)
        assert self.table is not None
        if not with_context:
            return self.table
        context = {"ce.specversion": "1.0", "ce.source": ANONYMOUS, "ce.type": PLAIN_TYPE}
        table = self.table.append_column("ce.id", self.keys["id"])
        for name, text in context.items():
            table = table.append_column(name, pa.repeat(text, len(self)))
        return table

    def each(self) -> Iterator[Event]:
        """Event by event."""
        if self.events is not None:
            yield from self.events
            return
        if self.read is not None:
            yield from map(self.read, range(len(self)))
            return
        assert self.table is not None
        for data, id in zip(self.table.to_pylist(), self.keys["id"].to_pylist(), strict=True):
            yield Event(
                without_nothing(data), {"specversion": "1.0", "source": ANONYMOUS, "type": PLAIN_TYPE, "id": id}
            )

    def take(self, rows: Sequence[int]) -> "EventBatch":
        """Some of the rows, in the order given."""
        chosen = np.asarray(rows, dtype=np.int64)
        events = None if self.events is None else [self.events[row] for row in chosen]
        if self.read is not None:  # a member that an object lacks is null in columns: read the lines themselves
            events = [self.read(row) for row in chosen.tolist()]
        return EventBatch(
            keys=self.keys.take(pa.array(chosen)),
            file=self.file,
            lines=self.lines[chosen],
            events=events,
            table=None if events is not None or self.table is None else self.table.take(pa.array(chosen)),
            bodies=[self.bodies[row] for row in chosen] if self.bodies else [],
        )


def from_events(found: Sequence[ArchivedEvent], file: str, lines: Sequence[int], bodies: list[str]) -> EventBatch:
    """The batch of events that came as lines."""
    time = pa.array([each.time for each in found], pa.timestamp("us", tz="UTC"))
    keys = pa.table(
        {
            "source": pa.array([each.source for each in found], pa.string()),
            "id": pa.array([each.id for each in found], pa.string()),
            "time": time,
            "day": days_of(time),
        }
    )
    return EventBatch(keys, file, np.array(lines, dtype=np.int64), [each.event for each in found], None, bodies)


def days_of(time: Any) -> Any:
    """The day of each time in UTC as `2026-01-31`; `NO_DAY` for none. A format a distinct day, not a row."""
    days = pc.divide(pc.cast(pc.floor_temporal(time, unit="day"), pa.int64()), DAY)
    encoded = (days.combine_chunks() if isinstance(days, pa.ChunkedArray) else days).dictionary_encode()
    texts = [str((EPOCH + timedelta(days=number)).date()) for number in encoded.dictionary.to_pylist()]
    named = pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))
    return named.cast(pa.string()).fill_null(NO_DAY)


def _columns(events: Sequence[Event], *, with_context: bool) -> dict[str, Any]:
    """A column for each name at the top of some data; numbers as doubles where doubles hold them exactly."""
    cells: dict[str, list[Any]] = {}
    count = len(events)
    for row, event in enumerate(events):
        if isinstance(event.data, dict):
            for name, value in event.data.items():
                column = cells.get(name)
                if column is None:
                    column = cells[name] = [None] * count
                column[row] = value
        if with_context:
            for name, value in event.context.items():
                column = cells.setdefault(f"ce.{name}", [None] * count)
                column[row] = value
    if not cells:  # a table without columns would have no rows
        cells[""] = [None] * count
    return {name: _as_numbers(column) for name, column in cells.items()}


def _as_numbers(column: list[Any]) -> Any:
    kinds = set(map(type, column))
    if kinds <= {float, int, type(None)} and kinds != {type(None)}:
        if int in kinds and any(type(each) is int and not -EXACT < each < EXACT for each in column):
            return column
        return np.array([np.nan if each is None else each for each in column], dtype=np.float64)
    return column


def without_nothing(value: Any) -> Any:
    """A row of Arrow as JSON has it: NaN is null."""
    if isinstance(value, dict):
        return {name: without_nothing(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nothing(each) for each in value]
    return None if isinstance(value, float) and value != value else value
