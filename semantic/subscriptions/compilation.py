"""Compilation of one subscription: text or tree → resolved tree, clauses and notes.

text or tree ──language──▶ expression ──resolution──▶ resolved ──normal_form──▶ clauses of atoms
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kindcast.semantic.conditions.normal_form import Atom, normal_form
from kindcast.semantic.conditions.operator_clauses import is_expensive, unbound
from kindcast.semantic.conditions.reading import checks_of
from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language import parse, parse_tree, to_text, to_tree
from kindcast.semantic.model import Expression, Group, Note, OperatorCall
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.subscriptions.resolution import resolve
from kindcast.semantic.subscriptions.schema_checks import SubscriptionCheck
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["Compiled", "Meaning", "compile_expression", "compiled_again", "restore_expression"]

VERIFIED_COST = 10.0
"""What an atom costs that no column decides, in atoms that one does: it is asked of each candidate by itself."""
SECOND_COST = 1e5
"""What a second of an operator costs in the same measure: a call that takes a millisecond counts as ten of those."""


class Compiled:
    """A subscription ready to be matched under the vocabulary that compiled it. Immutable.

    `tree` is the resolved expression as JSON (what to store: IRIs, no labels), of a stored one what was stored;
    `notes` what the subscriber should know. What else there is, is made when it is first read.
    """

    def __init__(self, tree: dict[str, Any], notes: tuple[Note, ...], meaning: "Callable[[], Meaning]") -> None:
        self.tree = tree
        self.notes = notes
        self._make = meaning

    @cached_property
    def _meaning(self) -> "Meaning":
        return self._make()

    @property
    def expression(self) -> Expression:
        """The resolved expression."""
        return self._meaning.expression

    @property
    def clauses(self) -> tuple[tuple[Atom, ...], ...]:
        """Its disjunctive normal form."""
        return self._meaning.clauses

    @cached_property
    def canonical(self) -> str:
        """The resolved expression as text."""
        return to_text(self.expression)

    @cached_property
    def cost(self) -> float:
        """A relative figure: one per atom that a column of the index decides, ten per atom that must be verified on
        candidates, and by its declared seconds for a call of an operator."""
        of = self._meaning
        return sum(_cost(atom, of.vocabulary, of.operators) for clause in of.clauses for atom in clause)

    @property
    def clause_count(self) -> int:
        """How many clauses the subscription became; none means that it can never match."""
        return len(self.clauses)

    def with_notes(self, notes: tuple[Note, ...]) -> "Compiled":
        """The same with other notes."""
        return Compiled(self.tree, notes, lambda: self._meaning)


Operators = Mapping[str, Operator]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a subscription means under a vocabulary."""

    expression: Expression
    clauses: tuple[tuple[Atom, ...], ...]
    vocabulary: Vocabulary
    operators: Operators


def compile_expression(
    expression: str | Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compile what a subscriber wrote. Raises `InvalidSubscription` with every problem."""
    return _compiled(parse(expression), vocabulary, operators, stored=False)


def restore_expression(
    tree: Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compile a stored tree again, perhaps under another vocabulary (rule 14): IRIs stay or follow their replacement;
    one that is gone is noted, and its predicate never holds. The tree stays what it is, for the version after that."""
    return _compiled(parse_tree(tree), vocabulary, operators, stored=True)


def compiled_again(
    tree: dict[str, Any], notes: tuple[Note, ...], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """What was compiled once under this vocabulary; `notes` are those that there were then."""
    return Compiled(tree, notes, lambda: restore_expression(tree, vocabulary, operators)._meaning)


def _compiled(expression: Expression, vocabulary: Vocabulary, operators: Operators, *, stored: bool) -> Compiled:
    try:
        resolved = resolve(expression, vocabulary, stored=stored, operators=operators)
    except InvalidSubscription as error:
        raise InvalidSubscription([*error.problems, *unbound(normal_form(expression))]) from None
    clauses = normal_form(resolved.expression)
    problems = unbound(clauses)
    if problems:
        raise InvalidSubscription(problems)
    notes = [*resolved.notes, *_typed(clauses, vocabulary, stored=stored)]
    if not clauses:
        notes.append(Note("never-matches", "", "the expression contradicts itself: no event can match it"))
    meaning = Meaning(resolved.expression, clauses, vocabulary, operators)
    return Compiled(to_tree(resolved.kept), tuple(notes), lambda: meaning)


def _typed(clauses: tuple[tuple[Atom, ...], ...], vocabulary: Vocabulary, *, stored: bool) -> list[Note]:
    """What the declared event types say to the clauses. A stored subscription is kept whatever was declared since.
    Raises `InvalidSubscription`."""
    if not vocabulary.schemas:
        return []
    check = SubscriptionCheck(vocabulary.schemas, vocabulary.attributes)
    for atoms in clauses:
        check.clause(atoms)
    if check.problems and not stored:
        raise InvalidSubscription(check.problems)
    told = [Note(each.code, "", each.detail) for each in check.problems]
    return [*check.notes, *told]


def _cost(atom: Atom, vocabulary: Vocabulary, operators: Operators) -> float:
    predicate = atom.predicate
    if isinstance(predicate, OperatorCall):
        return operators[predicate.name].cost * SECOND_COST if predicate.name in operators else 0.0
    if isinstance(predicate, Group):
        return sum(_cost(each, vocabulary, operators) for clause in normal_form(predicate.item) for each in clause)
    if is_expensive(atom):
        return 1.0
    return 1.0 if checks_of(predicate, vocabulary) is not None else VERIFIED_COST
