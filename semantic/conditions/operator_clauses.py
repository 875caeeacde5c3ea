"""The expensive part of a clause: which calls it needs, how their bindings join, what must have no binding at all.

atoms of a clause ─▶ literals      calls that must hold, or must not
                  ─▶ sources       calls whose bindings join, with the names of the variables here
                  ─▶ constraints   over these variables
                  ─▶ groups        negated groups with variables of their own: asked only when all else holds
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kindcast.semantic.conditions.normal_form import Atom, normal_form
from kindcast.semantic.conditions.predicates import AtomEvaluator
from kindcast.semantic.errors import Problem
from kindcast.semantic.model import Group, OperatorCall, ValueConstraint, Variable
from kindcast.semantic.operators.bindings import variables_of
from kindcast.semantic.operators.calls import Call, unified
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["ExpensiveClause", "expensive_clause", "is_expensive", "unbound"]


@dataclass(frozen=True, slots=True)
class GroupClause:
    """One conjunction of a negated group: cheap atoms, and the expensive part."""

    cheap: tuple[AtomEvaluator, ...]
    rest: "ExpensiveClause"


@dataclass(frozen=True, slots=True)
class ExpensiveClause:
    """What a candidate still has to satisfy after the index and the verification."""

    literals: tuple[tuple[Call, bool], ...]
    sources: tuple[tuple[Call, tuple[str, ...]], ...]
    constraints: tuple[ValueConstraint, ...]
    groups: tuple[tuple[GroupClause, ...], ...] = ()
    required: frozenset[str] = frozenset()
    """Attributes that its calls are given: where one is absent, the call is false, and so is its negation (rule 8). The
    index sees to it for a clause, the layer for one in a negated group."""
    possible: bool = True
    """False where it can never hold: it wants a call and its negation, or an operator that is gone."""

    @property
    def has_variables(self) -> bool:
        return bool(self.sources)


def is_expensive(atom: Atom) -> bool:
    """Whether an operator is needed to decide `atom`."""
    return isinstance(atom.predicate, OperatorCall | ValueConstraint | Group)


def expensive_clause(
    atoms: Sequence[Atom], operators: Mapping[str, Operator], vocabulary: Vocabulary
) -> ExpensiveClause | None:
    """The expensive part of a clause; None where there is none."""
    if not any(map(is_expensive, atoms)):
        return None
    literals: dict[Call, bool] = {}
    sources: list[tuple[Call, tuple[str, ...]]] = []
    constraints: list[ValueConstraint] = []
    groups: list[tuple[GroupClause, ...]] = []
    required: set[str] = set()
    possible = True
    for atom in atoms:
        match atom.predicate:
            case OperatorCall(name=name) if name not in operators:
                possible = False
            case OperatorCall() as written:
                required.update(atom.attributes)
                call, names = unified(written, operators)
                possible &= literals.setdefault(call, not atom.negated) is not atom.negated
                if names and not atom.negated:
                    sources.append((call, names))
            case ValueConstraint() as constraint:
                constraints.append(constraint)
            case Group(OperatorCall(name=name) as written):  # no binding of one call: the call does not hold
                if name not in operators:
                    possible = False
                else:
                    possible &= not literals.setdefault(unified(written, operators)[0], False)
            case Group(item):
                groups.append(_group(normal_form(item), operators, vocabulary))
            case _:
                pass
    return ExpensiveClause(
        literals=tuple(literals.items()),
        sources=tuple(sources),
        constraints=tuple(constraints),
        groups=tuple(groups),
        required=frozenset(required),
        possible=possible,
    )


def _group(
    clauses: Sequence[Sequence[Atom]], operators: Mapping[str, Operator], vocabulary: Vocabulary
) -> tuple[GroupClause, ...]:
    found = []
    for clause in clauses:
        cheap = tuple(AtomEvaluator(atom, vocabulary) for atom in clause if not is_expensive(atom))
        rest = expensive_clause(clause, operators, vocabulary) or ExpensiveClause((), (), ())
        if rest.possible:
            found.append(GroupClause(cheap, rest))
    return tuple(found)


def unbound(clauses: Sequence[Sequence[Atom]]) -> list[Problem]:
    """What is wrong with the variables of a subscription: those of a value constraint that no positive operator of its
    clause binds, and those of a negated group that occur outside it. Groups are looked into."""
    problems: dict[str, Problem] = {}
    for clause in clauses:
        bound = {
            each.name
            for atom in clause
            if isinstance(atom.predicate, OperatorCall) and not atom.negated
            for each in atom.predicate.arguments
            if isinstance(each, Variable)
        }
        used = set(bound)
        for atom in clause:
            if isinstance(atom.predicate, ValueConstraint):
                names = variables_of(atom.predicate)
                used |= names
                for name in sorted(names - bound):
                    detail = f"no operator call of this clause binds ?{name}: add a call that binds it"
                    problems[f"{name} {atom.predicate.at}"] = Problem("unbound-variable", detail, atom.predicate.at)
        for atom in clause:
            if isinstance(atom.predicate, Group):
                inner = normal_form(atom.predicate.item)
                for problem in unbound(inner):
                    problems[f"{problem.detail} {problem.at}"] = problem
                for name in sorted(_variables(inner) & used):
                    detail = f"?{name} is used inside and outside a negated group: use another name inside the group"
                    problems[detail] = Problem("variable-in-negation", detail, None)
    return list(problems.values())


def _variables(clauses: Sequence[Sequence[Atom]]) -> set[str]:
    found: set[str] = set()
    for clause in clauses:
        for atom in clause:
            match atom.predicate:
                case OperatorCall(arguments=arguments):
                    found |= {each.name for each in arguments if isinstance(each, Variable)}
                case ValueConstraint() as constraint:
                    found |= variables_of(constraint)
                case Group(item):
                    found |= _variables(normal_form(item))
                case _:
                    pass
    return found
