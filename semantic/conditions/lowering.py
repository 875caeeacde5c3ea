"""Lowering of clauses and events to the numbers that the index uses, and the operator calls of a clause, which no index
decides.

A `Lowering` belongs to one matcher. It numbers the attributes and columns that its subscriptions use. Lowered events
leave out all other attributes and readings, so the cost of an event depends only on what its subscriptions use.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kindcast.index.clause import AttributeId, Clause, ColumnId, Key, LoweredEvent, Predicate
from kindcast.semantic.conditions.normal_form import Atom, elements_of, normal_form
from kindcast.semantic.conditions.predicates import AtomEvaluator, asks_what_is_gone, checks_of, readings_of, values_of
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

# ── the expensive part of a clause: its calls, how their bindings are joined, and its negated groups ──────────────────

# atoms of a clause ─▶ literals      calls that must hold, or must not
#                   ─▶ sources       calls whose bindings are joined, with the names of their variables in the clause
#                   ─▶ constraints   over these variables
#                   ─▶ groups        negated groups with variables of their own: evaluated only if all else holds


@dataclass(frozen=True, slots=True)
class GroupClause:
    """One conjunction of a negated group: its cheap atoms, and its expensive part."""

    cheap: tuple[AtomEvaluator, ...]
    rest: "ExpensiveClause"


@dataclass(frozen=True, slots=True)
class ExpensiveClause:
    """The conditions that a candidate must still satisfy after the index and the verification."""

    literals: tuple[tuple[Call, bool], ...]
    sources: tuple[tuple[Call, tuple[str, ...]], ...]
    constraints: tuple[ValueConstraint, ...]
    groups: tuple[tuple[GroupClause, ...], ...] = ()
    required: frozenset[str] = frozenset()
    """The attributes in the arguments of its calls. If one is absent, the call is false, and so is its negation (rule
    8). The index checks this for a clause, and the operator layer for a conjunction in a negated group."""
    possible: bool = True
    """False if it can never hold, because it contains a call and its negation, or an operator that was removed."""

    @property
    def has_variables(self) -> bool:
        return bool(self.sources)


def is_expensive(atom: Atom) -> bool:
    """Whether an operator is needed to decide `atom`."""
    return isinstance(atom.predicate, OperatorCall | ValueConstraint | Group)


def expensive_clause(
    atoms: Sequence[Atom], operators: Mapping[str, Operator], vocabulary: Vocabulary
) -> ExpensiveClause | None:
    """Returns the expensive part of a clause; None if it has none."""
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
            case Group(OperatorCall(name=name) as written):  # a call has no binding exactly if it does not hold
                if name not in operators:
                    possible = False
                else:
                    possible &= not literals.setdefault(unified(written, operators)[0], False)
            case Group(item):
                possible &= not asks_what_is_gone(item, vocabulary)
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


OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""What a comparison of variables is written as, because no `not` may stand before it."""


def unbound(clauses: Sequence[Sequence[Atom]]) -> list[Problem]:
    """Returns the problems of the variables of a subscription: variables of a value constraint that no positive
    operator call of its clause binds, and variables of a negated group that also occur outside it. Groups are checked
    too."""
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
            if not isinstance(atom.predicate, Group):
                continue
            item = atom.predicate.item
            if isinstance(item, ValueConstraint) and variables_of(item) <= bound:
                detail = f"write {OPPOSITE[item.order]} in place of `not` and {item.order}"
                problems[f"{detail} {item.at}"] = Problem("variable-in-negation", detail, item.at)
            else:
                inner = normal_form(item)
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
"""The columns of one value in a lowered event, each with the key in it."""


@dataclass(frozen=True, slots=True)
class LoweredClause:
    """`clause` is for the index. `rest` are the atoms that must be verified for an event that satisfies the clause."""

    clause: Clause
    rest: tuple[AtomEvaluator, ...]


class Lowering:
    """Numbers attributes and columns under one vocabulary. Not thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._attributes: dict[str, AttributeId] = {}
        self._columns: dict[tuple[str, str], ColumnId] = {}
        self._aggregates: dict[str, str] = {}  # aggregate → the attribute that it aggregates
        self._readings: dict[str, set[str]] = {}  # attribute → its readings in the first `_gathered` columns
        self._gathered = 0

    def clause(self, atoms: tuple[Atom, ...]) -> LoweredClause | None:
        """Returns the clause of `atoms`, or None if it can never hold because a concept was removed. Linear in the
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
                continue  # decided by the operator layer, for the candidates
            if isinstance(predicate, EveryValue):
                if not self._every(atom, predicate, predicates):
                    return None
                rest.append(AtomEvaluator(atom, self._vocabulary))
                continue
            checks = checks_of(predicate, self._vocabulary, negated=atom.negated)
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
        """Adds the part of `every` that an index can decide: some value satisfies the predicate. Returns False if it
        can never hold."""
        ((inner,),) = normal_form(predicate.item)
        for name in inner.attributes:  # also the one with which values are compared: it need not be present
            self._attribute(name)
        checks = checks_of(inner.predicate, self._vocabulary, negated=atom.negated)
        if checks and not inner.negated and not atom.negated:
            name = predicate.attribute
            tests = tuple((self._column(name, reading), test) for reading, test in checks)
            predicates.append(Predicate(self._attribute(name), tests))
        return checks != ()

    def event(self, event: CanonicalEvent) -> LoweredEvent:
        """Returns `event` with the attributes and readings that subscriptions use."""
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
        """A counter that grows whenever a subscription uses an attribute or a reading that no other used before."""
        return len(self._attributes) + len(self._columns)

    def known(self, name: str) -> AttributeId | None:
        """Returns the number of an attribute; None if no subscription uses it."""
        return self._attributes.get(name)

    def may_ask(self, attribute: str) -> bool:
        """Whether a subscription uses an attribute, or an aggregate of it."""
        return attribute in self._attributes or attribute in self._aggregates.values()

    @property
    def aggregated(self) -> Mapping[str, str]:
        """Aggregate → the attribute that it aggregates, of all aggregates that subscriptions use."""
        return self._aggregates

    def aggregates(self, names: Iterable[str]) -> bool:
        """Whether a subscription uses an aggregate of one of these attributes. Events with such an attribute must be
        read whole."""
        return bool(self._aggregates) and not frozenset(self._aggregates.values()).isdisjoint(names)

    def asks(self, name: str, reading: str) -> bool:
        """Whether a subscription uses this reading of an attribute."""
        return (name, reading) in self._columns

    def readings(self, name: str) -> Collection[str]:
        """Returns the readings of an attribute that subscriptions use. Linear in the columns that were added since the
        last call."""
        for attribute, reading in islice(reversed(self._columns), len(self._columns) - self._gathered):
            self._readings.setdefault(attribute, set()).add(reading)
        self._gathered = len(self._columns)
        return self._readings.get(name, ())

    def columns(self, name: str, value: Value) -> ValueColumns:
        """Returns the columns of `value` under the attribute `name` that subscriptions use."""
        columns = self._columns
        pairs = ((columns.get((name, reading)), key) for reading, key in readings_of(value))
        return tuple((column, key) for column, key in pairs if column is not None)

    @property
    def numbered(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The attributes, and the columns as (attribute, reading), in the order of their numbers."""
        return list(self._attributes), list(self._columns)

    def number(self, attributes: Iterable[str], columns: Iterable[tuple[str, str]]) -> None:
        """Assigns the same numbers as in another `Lowering`, of which these are the `numbered`. This one must be
        new."""
        for name in attributes:
            self._attribute(name)
        for column in columns:
            self._column(*column)

    def attribute(self, name: str) -> AttributeId:
        """Returns the number of an attribute that a subscription uses; assigns one if necessary."""
        return self._attribute(name)

    def column(self, name: str, reading: str) -> ColumnId:
        """Returns the number of a column that a subscription uses; assigns one if necessary."""
        return self._column(name, reading)

    def _attribute(self, name: str) -> AttributeId:
        aggregate = aggregate_of(name)
        if aggregate is not None:
            self._aggregates[name] = aggregate[1]
        return self._attributes.setdefault(name, AttributeId(len(self._attributes)))

    def _column(self, name: str, reading: str) -> ColumnId:
        return self._columns.setdefault((name, reading), ColumnId(len(self._columns)))
