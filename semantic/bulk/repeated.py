"""Subscriptions that are added one by one, compiled by what those of their shape before them became.

tree ──▶ shape, constants ──template of the shape──▶ clauses, stored tree
                └─ no template, or a constant that needs a word ─▶ None: compile it by itself
"""

from collections.abc import Mapping
from typing import Any

from index.clause import Clause
from semantic.bulk.bulk import LEAST
from semantic.bulk.columns import filled
from semantic.bulk.templates import TRIES, ShapeKey, Template, Templates
from semantic.compilation import Compiled, compiled_again
from semantic.lowering import Lowering
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["RepeatedShapes"]

MOST_REMEMBERED = 200_000
"""Shapes and constants that are remembered; beyond it all are forgotten: some 50 MB."""
Example = tuple[Any, list[Any]]
"""A tree and its constants."""


class RepeatedShapes:
    """Remembers the shapes of trees that one matcher was given. The outcome is that of compiling each by itself."""

    def __init__(self, vocabulary: Vocabulary, operators: Mapping[str, Operator], lowering: Lowering) -> None:
        self._vocabulary = vocabulary
        self._operators = operators
        self._lowering = lowering
        self._forget()

    def compiled(self, tree: Any) -> tuple[Compiled, list[Clause]] | None:
        """The subscription and its clauses, which an index decides alone; None for what is to be compiled by itself.
        About a third of what that takes."""
        constants: list[Any] = []
        key = self._templates.key(tree, constants)
        template = None if key is None else self._template(key, tree, constants)
        if template is None:
            return None
        operands = []
        for reader, sort, constant in zip(template.readers, template.sorts, constants, strict=True):
            operand = reader.operand(constant, sort)
            if operand is None:
                return None
            operands.append(operand)
        keys = [own for own, _ in operands]
        clauses = [plan.clause(self._lowering, keys) for plan in template.clauses]
        stored = filled(template.skeleton, [written for _, written in operands])
        return compiled_again(stored, (), self._vocabulary, self._operators), clauses

    def _template(self, key: ShapeKey, tree: Any, constants: list[Any]) -> Template | None:
        if key in self._templates:
            return self._templates[key]
        examples = self._examples.setdefault(key, [])
        examples.append((tree, constants))
        if len(examples) < LEAST:
            return None
        if self._templates.remembered + len(self._examples) > MOST_REMEMBERED:
            self._forget()
            return None
        del self._examples[key]
        return self._templates.make(key, examples[-TRIES:])

    def _forget(self) -> None:
        self._templates = Templates(self._vocabulary, self._operators, stored=False)
        self._examples: dict[ShapeKey, list[Example]] = {}
