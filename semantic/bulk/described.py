"""Many subscriptions compiled for whoever stores them: what each became, without its clauses.

    texts, trees ──▶ trees ──▶ Bulk ──▶ of one shape: the tree filled in, printed; clauses and cost as the first of them
                                  └──▶ compiled by itself, from what was written: so errors have its places

Each comes out as it would have alone; one that is invalid stops no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semantic.bulk.bulk import Bulk
from semantic.compilation import Compiled, compile_expression, restore_expression
from semantic.errors import InvalidSubscription
from semantic.language import parse_text, parse_tree, to_text, to_tree
from semantic.model import Note
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["Described", "compile_many"]


@dataclass(frozen=True, slots=True)
class Described:
    """What there is to store of a compiled subscription; see `Compiled`."""

    canonical: str
    tree: dict[str, Any]
    clause_count: int
    cost: float
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, compiled: Compiled) -> "Described":
        return cls(compiled.canonical, compiled.tree, compiled.clause_count, compiled.cost, compiled.notes)


def compile_many(
    expressions: Sequence[str | Mapping[str, Any]], vocabulary: Vocabulary, operators: Mapping[str, Operator]
) -> list[Described | InvalidSubscription]:
    """One result each. Where many are of one shape, some 0.1 ms each, most of it reading and printing text."""
    results: list[Described | InvalidSubscription | None] = [None] * len(expressions)
    trees: list[tuple[str, Any]] = []
    for number, expression in enumerate(expressions):
        try:
            tree = to_tree(parse_text(expression)) if isinstance(expression, str) else expression
        except InvalidSubscription as error:
            results[number] = error
        else:
            trees.append((str(number), tree))
    bulk = Bulk(vocabulary, operators, stored=False, refused=lambda name, error: None)
    bulk.take(trees)
    for piece in bulk.pieces():
        part, first = piece.part, None
        for place, among in enumerate(piece.numbers.tolist()):
            tree = part.tree(place)
            if first is None:
                first = restore_expression(tree, vocabulary, operators)
            text = to_text(parse_tree(tree))
            results[int(bulk.name(among))] = Described(text, tree, first.clause_count, first.cost)
    return [
        _alone(expressions[number], vocabulary, operators) if result is None else result
        for number, result in enumerate(results)
    ]


def _alone(
    expression: str | Mapping[str, Any], vocabulary: Vocabulary, operators: Mapping[str, Operator]
) -> Described | InvalidSubscription:
    try:
        return Described.of(compile_expression(expression, vocabulary, operators))
    except InvalidSubscription as error:
        return error
