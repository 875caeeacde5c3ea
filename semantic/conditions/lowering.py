"""Clauses and events in numbers, as the index takes them, and the operator calls of a clause, which no index decides.

One `Lowering` belongs to one matcher: it numbers the attributes and columns that its subscriptions ask about.
Attributes and readings that nobody asks about are left out of lowered events, so an event costs what its subscribers
care for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kindcast.index.clause import AttributeId, Clause, ColumnId, Key, LoweredEvent, Predicate
from kindcast.semantic.conditions.normal_form import Atom, elements_of, normal_form
from kindcast.semantic.conditions.predicates import AtomEvaluator, checks_of, readings_of, values_of
from kindcast.semantic.errors import Problem
from kindcast.semantic.model import (
    CanonicalEvent,
    EveryValue,
    Group,
    OperatorCall,
    Presence,
    Value,
    ValueConstraint,
    Variable,
    aggregate_of,
)
from kindcast.semantic.operators.calls import Call, unified, variables_of
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "ExpensiveClause",
    "LoweredClause",
    "Lowering",
    "ValueColumns",
    "expensive_clause",
    "is_expensive",
    "unbound",
]

# ── the expensive part of a clause: its calls, how their bindings join, what must have no binding ─────────────────────

# atoms of a clause ─▶ literals      calls that must hold, or must not
#                   ─▶ sources       calls whose bindings join, with the names of the variables here
#                   ─▶ constraints   over these variables
#                   ─▶ groups        negated groups with variables of their own: asked only when all else holds


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


ValueColumns = tuple[tuple[ColumnId, Key], ...]
"""Where one value stands in a lowered event."""


@dataclass(frozen=True, slots=True)
class LoweredClause:
    """`clause` for the index; `rest` are the atoms that must be verified on an event that the clause lets through."""

    clause: Clause
    rest: tuple[AtomEvaluator, ...]


class Lowering:
    """Numbers attributes and columns under one vocabulary. One thread at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._attributes: dict[str, AttributeId] = {}
        self._columns: dict[tuple[str, str], ColumnId] = {}
        self._aggregates: dict[str, str] = {}  # aggregate -> the attribute over which it ranges
        self._readings: dict[str, set[str]] = {}  # attribute -> its readings, of the first `_gathered` columns
        self._gathered = 0

    def clause(self, atoms: tuple[Atom, ...]) -> LoweredClause | None:
        """The clause of `atoms`, or None if it can never hold (because a concept was removed). Linear in the
        operands."""
        predicates: list[Predicate] = []
        required: set[AttributeId] = set()
        forbidden: set[AttributeId] = set()
        rest: list[AtomEvaluator] = []
        for atom in atoms:
            predicate = atom.predicate
            if isinstance(predicate, Presence):
                (required if predicate.present else forbidden).add(self._attribute(predicate.attribute))
                continue
            required.update(self._attribute(name) for name in atom.attributes)
            if is_expensive(atom):
                continue  # the operator layer decides it, on what the others let through
            if isinstance(predicate, EveryValue):
                if not self._every(atom, predicate, predicates):
                    return None
                rest.append(AtomEvaluator(atom, self._vocabulary))
                continue
            checks = checks_of(predicate, self._vocabulary)
            if checks is None:
                rest.append(AtomEvaluator(atom, self._vocabulary))
            elif not checks:
                return None
            else:
                name = atom.attributes[0]
                tests = tuple((self._column(name, reading), test) for reading, test in checks)
                predicates.append(Predicate(self._attribute(name), tests, atom.negated))
        return LoweredClause(Clause(tuple(predicates), frozenset(required), frozenset(forbidden)), tuple(rest))

    def _every(self, atom: Atom, predicate: EveryValue, predicates: list[Predicate]) -> bool:
        """What an index can ask for `every`: that some value satisfies. False where it can never hold."""
        ((inner,),) = normal_form(predicate.item)
        checks = checks_of(inner.predicate, self._vocabulary)
        if checks and not inner.negated and not atom.negated:
            name = predicate.attribute
            tests = tuple((self._column(name, reading), test) for reading, test in checks)
            predicates.append(Predicate(self._attribute(name), tests))
        return checks != ()

    def event(self, event: CanonicalEvent) -> LoweredEvent:
        """`event` as far as some subscription asks about it."""
        present: set[AttributeId] = set()
        values: dict[ColumnId, set[Key]] = {}
        for name, found in event.attributes.items():
            attribute = self._attributes.get(name)
            if attribute is None:
                continue
            present.add(attribute)
            for value in found:
                for column, key in self.columns(name, value):
                    values.setdefault(column, set()).add(key)
        for name in self._aggregates:
            for value in values_of(event, name):
                present.add(self._attributes[name])
                for column, key in self.columns(name, value):
                    values.setdefault(column, set()).add(key)
        for name, elements in event.elements.items():
            attribute = self._attributes.get(elements_of(name))
            if attribute is not None and elements:
                present.add(attribute)
        return LoweredEvent(frozenset(present), {column: tuple(keys) for column, keys in values.items()})

    @property
    def asked(self) -> int:
        """Grows whenever a subscription asks about an attribute or a reading that none asked about before."""
        return len(self._attributes) + len(self._columns)

    def known(self, name: str) -> AttributeId | None:
        """The number of an attribute that some subscription asks about."""
        return self._attributes.get(name)

    def may_ask(self, attribute: str) -> bool:
        """Whether some subscription asks about an attribute, or about an aggregate of it."""
        return attribute in self._attributes or attribute in self._aggregates.values()

    def aggregates(self, names: Iterable[str]) -> bool:
        """Whether some subscription asks an aggregate over one of these attributes: events with it are read whole."""
        return bool(self._aggregates) and not frozenset(self._aggregates.values()).isdisjoint(names)

    def asks(self, name: str, reading: str) -> bool:
        """Whether some subscription reads an attribute so."""
        return (name, reading) in self._columns

    def readings(self, name: str) -> Collection[str]:
        """The readings of an attribute that subscriptions ask about. Linear in the columns that are new since the last
        call."""
        for attribute, reading in islice(reversed(self._columns), len(self._columns) - self._gathered):
            self._readings.setdefault(attribute, set()).add(reading)
        self._gathered = len(self._columns)
        return self._readings.get(name, ())

    def columns(self, name: str, value: Value) -> ValueColumns:
        """The columns that some subscription reads of `value` under the attribute `name`."""
        columns = self._columns
        pairs = ((columns.get((name, reading)), key) for reading, key in readings_of(value))
        return tuple((column, key) for column, key in pairs if column is not None)

    @property
    def numbered(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The attributes, and the columns as (attribute, reading), in the order of their numbers."""
        return list(self._attributes), list(self._columns)

    def number(self, attributes: Iterable[str], columns: Iterable[tuple[str, str]]) -> None:
        """Give out the same numbers as another that had these `numbered`. For a new one."""
        for name in attributes:
            self._attribute(name)
        for column in columns:
            self._column(*column)

    def attribute(self, name: str) -> AttributeId:
        """The number of an attribute that a subscription asks about, a new one if need be."""
        return self._attribute(name)

    def column(self, name: str, reading: str) -> ColumnId:
        """The number of a column that a subscription reads, a new one if need be."""
        return self._column(name, reading)

    def _attribute(self, name: str) -> AttributeId:
        aggregate = aggregate_of(name)
        if aggregate is not None:
            self._aggregates[name] = aggregate[1]
        return self._attributes.setdefault(name, AttributeId(len(self._attributes)))

    def _column(self, name: str, reading: str) -> ColumnId:
        return self._columns.setdefault((name, reading), ColumnId(len(self._columns)))
