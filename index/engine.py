"""The base class of all engines: clauses in, rows of matching clauses out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, LoweredEvent
from kindcast.index.columns import ClauseColumns, ColumnBatch, in_order
from kindcast.index.concept_graph import ConceptGraph

__all__ = ["Engine", "EngineFactory", "RowTable", "row_table"]


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a batch: event `i` matched `rows[offsets[i] : offsets[i + 1]]`, ascending.

    `offsets` is `int64[events + 1]`, `rows` is `int32[matches]`.
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]


class Engine(ABC):
    """An index over clauses. Exact: `match` returns all rows whose clause matches, and no other row.

    One thread may change an engine, and no other thread may read it meanwhile; several threads may read it together.
    The methods with a body here work for every engine; an engine overrides those that it can do faster.
    """

    reads_columns: ClassVar[bool] = False
    """Whether `match_columns` makes no object for each event, and may be called by several threads at the same time."""

    @abstractmethod
    def __len__(self) -> int:
        """How many clauses are stored."""

    @abstractmethod
    def add(self, clause: Clause) -> ClauseRow:
        """Store `clause` and return its row, the lowest free one. The next `match` finds it."""

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` for each clause, in order."""
        return [self.add(clause) for clause in clauses]

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """`add_many` for `count` clauses, many of which have one form and are given as columns.

        The clauses are numbered 0 … count - 1: those of `clauses` are (number, clause), those of `columns` state their
        numbers. Returns the row for each number, `int32[count]`.
        """
        return np.array(self.add_many(in_order(clauses, columns, count)), dtype=np.int32)

    @abstractmethod
    def remove(self, row: ClauseRow) -> None:
        """Remove the clause at `row`; the row is free for another. Raises `UnknownRow` if nothing is stored there."""

    @abstractmethod
    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """The rows whose clauses match `event`: `int32[matches]`, ascending."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""
        return row_table([self.match(event) for event in events])

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """`match_batch` for `batch.lowered()`; the rows of an event are distinct, but in no order."""
        return self.match_batch(batch.lowered())

    def explain(self, event: LoweredEvent) -> dict[str, Any] | None:
        """Which structures are visited in which order, and how many rows are left after each, as JSON; None if the
        engine does not explain itself. Slow; for people."""
        return None

    def save(self, folder: Path) -> bool:
        """Write everything into files in `folder` that are named `*.index`, which `kindcast.index.registry.open_engine`
        opens. False: the engine has no file format, and nothing is written. Raises `OSError`."""
        return False

    @property
    def nbytes(self) -> int | None:
        """The bytes of index and caches; None if the engine does not measure them."""
        return None

    @property
    def structure(self) -> Mapping[str, int]:
        """How many parts of each kind there are, by name, for people who watch; empty if the engine tells nothing."""
        return {}

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError, with the internals in its text, if a structural invariant is broken. Slow; for
        tests."""


class EngineFactory(Protocol):
    """What the registry of engines holds: builds an empty engine over a concept graph."""

    def __call__(self, graph: ConceptGraph) -> Engine: ...


def row_table(found: Sequence[npt.NDArray[np.int32]]) -> RowTable:
    """The table of the rows of several events, one array each. Copies them.

    >>> table = row_table([np.array([1, 4], dtype=np.int32), np.array([], dtype=np.int32)])
    >>> table.offsets.tolist(), table.rows.tolist()
    ([0, 2, 2], [1, 4])
    """
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([rows.size for rows in found], out=offsets[1:])
    return RowTable(offsets, np.concatenate(found) if found else np.array([], dtype=np.int32))
