"""A subscription as written → what a matcher keeps of it.

text or tree ──language──▶ expression ──resolution──▶ resolved ──normal_form──▶ clauses of atoms
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semantic.language import parse, parse_tree, to_text, to_tree
from semantic.model import Expression, Note
from semantic.normal_form import Atom, normal_form
from semantic.reading import checks_of
from semantic.resolution import resolve
from semantic.vocabulary import Vocabulary

__all__ = ["Compiled", "compile_expression", "restore_expression"]

VERIFIED_COST = 10.0
"""What an atom costs that no column decides, in atoms that one does: it is asked of each candidate by itself."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A subscription ready to be matched under the vocabulary that compiled it.

    `canonical` is the resolved expression as text, `tree` the same as JSON (what to store: it holds IRIs, no labels),
    `clauses` its disjunctive normal form, `notes` what the subscriber should know, `cost` a relative figure: one per
    atom that a column of the index decides, ten per atom that must be verified on candidates.
    """

    expression: Expression
    canonical: str
    tree: dict[str, Any]
    clauses: tuple[tuple[Atom, ...], ...]
    notes: tuple[Note, ...]
    cost: float

    @property
    def clause_count(self) -> int:
        """How many clauses the subscription became; none means that it can never match."""
        return len(self.clauses)


def compile_expression(expression: str | Mapping[str, Any], vocabulary: Vocabulary) -> Compiled:
    """Compile what a subscriber wrote. Raises `InvalidSubscription` with every problem."""
    return _compiled(parse(expression), vocabulary, stored=False)


def restore_expression(tree: Mapping[str, Any], vocabulary: Vocabulary) -> Compiled:
    """Compile a stored tree again, perhaps under another vocabulary (rule 14): IRIs stay or follow their replacement;
    one that is gone is noted, and its predicate never holds."""
    return _compiled(parse_tree(tree), vocabulary, stored=True)


def _compiled(expression: Expression, vocabulary: Vocabulary, *, stored: bool) -> Compiled:
    resolved = resolve(expression, vocabulary, stored=stored)
    clauses = normal_form(resolved.expression)
    notes = list(resolved.notes)
    if not clauses:
        notes.append(Note("never-matches", "", "the expression contradicts itself: no event can match it"))
    atoms = [atom for clause in clauses for atom in clause]
    cost = sum(1.0 if checks_of(atom.predicate, vocabulary) is not None else VERIFIED_COST for atom in atoms)
    text = to_text(resolved.expression)
    return Compiled(resolved.expression, text, to_tree(resolved.expression), clauses, tuple(notes), cost)
