"""Limits on the size of expressions, the same for text and tree, so that each form can be converted to the other.

Whatever `parse_text` accepts, `parse_tree` accepts of `to_tree`, resolved or not: stored subscriptions are trees.
"""

from typing import Any

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    EveryOf,
    EveryValue,
    Expression,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Position,
    RelationTest,
    SomeOf,
    ValueConstraint,
)

__all__ = [
    "LONGEST_LIST",
    "LONGEST_TEXT",
    "MOST_NODES",
    "MOST_PROBLEMS",
    "NESTING",
    "TREE_CHARACTERS",
    "TREE_LEVELS",
    "TREE_VALUES",
    "check_bounds",
    "refuse",
]

LONGEST_TEXT = 1 << 16
"""Characters of a text: a thousand predicates, far above what a person writes."""
NESTING = 64
"""Levels of an expression; deeper ones come from programs gone wrong."""
MOST_NODES = 10_000
"""Nodes of an expression: predicates, groups, operands and terms."""
LONGEST_LIST = 1_000
"""Operands of `in`, terms of `isa (…)`, arguments of a call."""
MOST_PROBLEMS = 100
"""Problems that are told of one tree; nobody reads more, and each costs a search for near names."""

TREE_LEVELS = 3 * NESTING
"""JSON levels of a tree: an expression's level is an object in a list, and its operands nest a few more."""
TREE_VALUES = 5 * MOST_NODES
"""JSON values of a tree; no node is written with more than five (`{"contains": ["name", "HP", "nocase"]}`)."""
TREE_CHARACTERS = 1 << 22
"""Characters in all strings of a tree. More than of a text: a resolved tree has an IRI where the text had a word."""


def check_bounds(expression: Expression, start: Position) -> None:
    """Raise `InvalidSubscription` where `expression` has too many levels or nodes. `start` is where it starts. Linear,
    with a stack of its own."""
    nodes = 0
    stack: list[tuple[Any, int]] = [(expression, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > NESTING:
            detail = f"the expression is nested deeper than {NESTING} levels"
            raise refuse("too-deep", detail, getattr(node, "at", None) or start)
        inner: tuple[Any, ...] = ()
        nodes += 1
        match node:
            case All(items) | AnyOf(items):
                inner = items
            case Not(item) | SomeOf(_, item) | EveryOf(_, item) | EveryValue(item):
                inner = (item,)
            case ValueConstraint(left, _, right) | Arithmetic(_, left, right):
                inner = (left, right)
            case KindTest(_, _, leaves) | RelationTest(_, _, leaves) | Membership(_, leaves) | OperatorCall(_, leaves):
                nodes += len(leaves)
            case Between():
                nodes += 2
            case Comparison():
                nodes += 1
            case _:
                pass
        if nodes > MOST_NODES:
            detail = f"the expression has more than {MOST_NODES:,} predicates, operands and terms"
            raise refuse("too-long", detail, start)
        stack.extend((each, depth + 1) for each in inner)


def refuse(code: str, detail: str, at: Position | None) -> InvalidSubscription:
    """One problem as an error."""
    return InvalidSubscription([Problem(code, detail, at)])
