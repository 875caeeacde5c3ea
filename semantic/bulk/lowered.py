"""A bulk → what an engine takes, and where the rows of each subscription then stand.

singles ─▶ clauses one by one          rows of the bulk:  | 0: row row | 1: row | 2: row …
pieces  ─▶ columns, or clauses                              offsets[0]   [1]      [2]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, Clause
from index.clause_columns import ClauseColumns
from semantic.books import Books, packed
from semantic.bulk.bulk import Bulk, Piece
from semantic.bulk.columns import Part
from semantic.compilation import Compiled
from semantic.lowering import LoweredClause, Lowering
from semantic.operators.clauses import ExpensiveClause, expensive_clause
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["ClauseParts", "LoweredBulk", "enter_bulk", "is_asked", "lower_bulk", "lower_one"]

IMPOSSIBLE = Clause(required=frozenset([AttributeId(0)]), forbidden=frozenset([AttributeId(0)]))
"""Keeps a slot for a subscription that can never match."""

ClauseParts = Sequence[tuple[Clause, LoweredClause | None, ExpensiveClause | None]]
"""The clauses of one subscription, each with what remains to be asked of its candidates; at least one."""


@dataclass(frozen=True, slots=True)
class LoweredBulk:
    """`offsets` is `int64[n + 1]`: number i of the bulk has the places `offsets[i] … offsets[i + 1]`, none if it was
    refused. `clauses` and `columns` fill all places. `asked`: those with something to ask of candidates."""

    offsets: npt.NDArray[np.int64]
    clauses: list[tuple[int, Clause]]
    columns: list[ClauseColumns]
    pieces: list[Piece]
    asked: dict[int, ClauseParts]

    @property
    def count(self) -> int:
        """How many places there are."""
        return int(self.offsets[-1])


def lower_one(
    lowering: Lowering, operators: Mapping[str, Operator], vocabulary: Vocabulary, compiled: Compiled
) -> ClauseParts:
    """The clauses of one subscription, without those that can never hold."""
    parts: list[tuple[Clause, LoweredClause | None, ExpensiveClause | None]] = []
    for atoms in compiled.clauses:
        expensive = expensive_clause(atoms, operators, vocabulary)
        lowered = lowering.clause(atoms)
        if lowered is not None and (expensive is None or expensive.possible):
            parts.append((lowered.clause, lowered, expensive))
    return parts or [(IMPOSSIBLE, None, None)]


def lower_bulk(bulk: Bulk, lowering: Lowering, lower_one: Callable[[Compiled], ClauseParts]) -> LoweredBulk:
    """Lower all of `bulk`. Linear; a column costs some ns a constant, what cannot stand in one some µs a clause."""
    pieces = list(bulk.pieces())
    singles = {number: lower_one(compiled) for number, compiled in bulk.singles.items()}
    offsets = np.zeros(len(bulk.names) + 1, dtype=np.int64)
    for piece in pieces:
        offsets[piece.numbers + 1] = len(piece.template.clauses)
    for number, parts in singles.items():
        offsets[number + 1] = len(parts)
    np.cumsum(offsets, out=offsets)
    clauses: list[tuple[int, Clause]] = []
    columns: list[ClauseColumns] = []
    for piece in pieces:
        first = offsets[piece.numbers]
        for after, plan in enumerate(piece.template.clauses):
            places = first + after
            if plan.in_columns:
                columns.append(plan.columns(lowering, piece.operands, places))
            else:
                one_by_one = plan.clauses(lowering, piece.operands, places.size)
                clauses += zip(places.tolist(), one_by_one, strict=True)
    for number, parts in singles.items():
        clauses += enumerate((clause for clause, _, _ in parts), start=int(offsets[number]))
    asked = {number: parts for number, parts in singles.items() if any(is_asked(*each[1:]) for each in parts)}
    return LoweredBulk(offsets, clauses, columns, pieces, asked)


def is_asked(lowered: LoweredClause | None, expensive: ExpensiveClause | None) -> bool:
    """Whether something remains to be asked of the candidates of a clause."""
    return expensive is not None or (lowered is not None and bool(lowered.rest))


def enter_bulk(
    bulk: Bulk, lowered: LoweredBulk, rows: npt.NDArray[np.int32], books: Books
) -> list[tuple[npt.NDArray[np.int64], Part]]:
    """Enter all in the books of a matcher; `rows` are those that the engine gave the places. Returns the numbers and
    trees of those that were compiled together."""
    counts = np.diff(lowered.offsets)
    kept = np.flatnonzero(counts)
    slots = np.zeros(counts.size, dtype=np.int32)
    slots[kept] = books.enter_many([bulk.name(number) for number in kept.tolist()], rows, counts[kept])
    parts = [(piece.numbers, piece.part) for piece in lowered.pieces]
    for numbers, part in parts:
        books.keep_part(slots[numbers], part)
    for number, compiled in bulk.singles.items():
        books.keep_tree(int(slots[number]), packed(compiled.tree), compiled.notes)
    return parts
