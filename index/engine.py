"""The protocol that every engine follows: clauses in, rows of matching clauses out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseColumns, ClauseRow, ColumnBatch, LoweredEvent, in_order
from kindcast.index.concept_graph import ConceptGraph

__all__ = [
    "BulkEngine",
    "ColumnEngine",
    "Engine",
    "EngineFactory",
    "MeasuredEngine",
    "RowTable",
    "SavedEngine",
    "TellingEngine",
    "add_in_bulk",
    "row_table",
]


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a batch: event `i` matched `rows[offsets[i] : offsets[i + 1]]`, ascending.

    `offsets` is `int64[events + 1]`, `rows` is `int32[matches]`.
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]


class Engine(Protocol):
    """An index over clauses. Exact: what `match` returns are all rows whose clause matches, and no other.

    One thread may change an engine, and no other may read it meanwhile; readers alone may run together.
    """

    def add(self, clause: Clause) -> ClauseRow:
        """Store `clause` and return its row, the lowest free one. Visible to the next `match`."""

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` each in turn, as one bulk step where the engine has a faster way."""

    def remove(self, row: ClauseRow) -> None:
        """Forget the clause at `row`; the row is free for another. Raises `UnknownRow` if nothing is stored there."""

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """The rows whose clauses match `event`: `int32[matches]`, ascending."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""

    def __len__(self) -> int:
        """How many clauses are stored."""

    def check_invariants(self) -> None:
        """Raise AssertionError, with the internals in its text, if a structural invariant is broken. Slow; for
        tests."""


@runtime_checkable
class ColumnEngine(Engine, Protocol):
    """An engine that takes events in columns, without an object for each."""

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """What `match_batch` gives for `batch.lowered()`, the rows of an event each once, in no order. Several threads
        may call this at the same time."""


@runtime_checkable
class BulkEngine(Engine, Protocol):
    """An engine that takes many clauses of one form as columns, without an object for each."""

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """What `add_many` does for `count` clauses. Each stands at one place, 0 … count - 1: those of `clauses` are
        (place, clause), those of `columns` say theirs. Returns the row for each place, `int32[count]`."""


@runtime_checkable
class TellingEngine(Engine, Protocol):
    """An engine that tells what it does with an event."""

    def explain(self, event: LoweredEvent) -> dict[str, Any]:
        """Which structures are visited in which order, and how many rows are left where; JSON. Slow; for people."""


@runtime_checkable
class SavedEngine(Engine, Protocol):
    """An engine that is kept in files; `kindcast.index.registry.open_engine` opens it again."""

    def save(self, folder: Path) -> None:
        """Write everything into files in `folder` that are named `*.index`. Raises `OSError`."""


@runtime_checkable
class MeasuredEngine(Engine, Protocol):
    """An engine that knows how large it is."""

    @property
    def nbytes(self) -> int:
        """The bytes of index and caches."""


class EngineFactory(Protocol):
    """What the registry of engines holds: builds an empty engine over a concept graph."""

    def __call__(self, graph: ConceptGraph) -> Engine: ...


def add_in_bulk(
    engine: Engine, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
) -> npt.NDArray[np.int32]:
    """`BulkEngine.add_columns` with any engine: one that has no faster way gets the clauses one by one, in order."""
    if isinstance(engine, BulkEngine):
        return engine.add_columns(clauses, columns, count)
    return np.array(engine.add_many(in_order(clauses, columns, count)), dtype=np.int32)


def row_table(found: Sequence[npt.NDArray[np.int32]]) -> RowTable:
    """The table of the rows of several events, one array each. Copies them.

    >>> table = row_table([np.array([1, 4], dtype=np.int32), np.array([], dtype=np.int32)])
    >>> table.offsets.tolist(), table.rows.tolist()
    ([0, 2, 2], [1, 4])
    """
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([rows.size for rows in found], out=offsets[1:])
    return RowTable(offsets, np.concatenate(found) if found else np.array([], dtype=np.int32))
