"""Normal form of expressions: negation normal form, then disjunctive normal form, simplified to clauses.

docs/matching-semantics.md, rules 8 and 16. Negation does not change presence: the negation of `a < 5` is "a is present
and no value is below 5". So a predicate and its negation are both false if the attribute is absent. `in`, `between` and
`!=` are one atom each and never multiply clauses.
"""

from dataclasses import dataclass, replace

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Comparison,
    Constant,
    EveryOf,
    EveryValue,
    Expression,
    Group,
    Not,
    OperatorCall,
    Predicate,
    Presence,
    SomeOf,
    ValueConstraint,
    Variable,
)

__all__ = ["MOST_CLAUSES", "Atom", "elements_of", "has_variable", "normal_form"]

MOST_CLAUSES = 64
"""The maximum number of clauses of a subscription. Each is a row of the index and may be tested for every event."""
MOST_ON_THE_WAY = 1024
"""The maximum number of clauses in intermediate results. Absorption compares them pairwise, so there are at most a
million comparisons."""
MOST_PRODUCTS = 16 * MOST_ON_THE_WAY
"""The maximum number of conjunctions that one step may create before implied ones are dropped."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A predicate, or its negation: the attribute is present and no value satisfies the predicate. A group is always
    negated."""

    predicate: Predicate
    negated: bool = False
    requires: str = ""
    """The attribute that must be present, if it is another one than those of the predicate."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that must be present for this atom to hold (for `missing`: the one that must be absent)."""
        predicate = self.predicate
        if self.requires:
            return (self.requires,)
        if isinstance(predicate, OperatorCall):
            return tuple(dict.fromkeys(each.name for each in predicate.arguments if isinstance(each, AttributeRef)))
        name: str | None = getattr(predicate, "attribute", None)
        if isinstance(predicate, SomeOf | EveryOf):
            return (elements_of(predicate.attribute),)
        if isinstance(predicate, Comparison) and isinstance(predicate.operand, AttributeRef):
            return (predicate.attribute, predicate.operand.name)
        return () if name is None else (name,)


_Clause = frozenset[Atom]


def elements_of(attribute: str) -> str:
    """Returns the name that stands for the presence of elements. `some items (…)` needs an array of objects, not a
    value."""
    return f"{attribute}[]"


def normal_form(expression: Expression) -> tuple[tuple[Atom, ...], ...]:
    """Returns the clauses of `expression`, each a conjunction of atoms in the order of the text. Empty if it can never
    hold.

    Duplicate, contradictory and implied clauses are dropped. Raises `InvalidSubscription`, with the count, for more
    than `MOST_CLAUSES`.
    """
    order: dict[Atom, int] = {}
    clauses = _disjunction(_push(expression, negated=False), order)
    if len(clauses) > MOST_CLAUSES:
        raise _too_many(str(len(clauses)))
    return tuple(tuple(sorted(clause, key=order.__getitem__)) for clause in clauses)


def _push(node: Expression, *, negated: bool) -> All | AnyOf | Atom:
    """Returns the negation normal form. The leaves are atoms, in the `items` of `All` and `AnyOf`."""
    match node:
        case Not(item) if not negated and has_variable(item):
            return Atom(Group(item), negated=True)
        case Not(item):
            return _push(item, negated=not negated)
        case All(items) | AnyOf(items):
            conjunction = isinstance(node, All) != negated
            pushed = tuple(_push(item, negated=negated) for item in items)
            return All(pushed) if conjunction else AnyOf(pushed)  # type: ignore[arg-type]
        case Presence():
            return Atom(replace(node, present=node.present != negated))
        case Comparison(order="!="):
            return Atom(replace(node, order="="), not negated)
        case EveryValue(Comparison(order="!=", operand=Constant()) as item):
            return _push(item, negated=negated)  # every value differs if and only if no value is equal
        case EveryOf(attribute) if negated:  # holds if it is present, as elements or as values, and `every` fails
            return AnyOf(
                (Atom(node, True, elements_of(attribute)), Atom(node, True, attribute))  # type: ignore[arg-type]
            )
        case _:
            return Atom(node, negated)


def has_variable(node: Expression) -> bool:
    """Whether `node` contains a variable."""
    match node:
        case Not(item):
            return has_variable(item)
        case All(items) | AnyOf(items):
            return any(map(has_variable, items))
        case OperatorCall(arguments=arguments):
            return any(isinstance(each, Variable) for each in arguments)
        case _:
            return isinstance(node, ValueConstraint)


def _disjunction(node: All | AnyOf | Atom, order: dict[Atom, int]) -> list[_Clause]:
    if isinstance(node, Atom):
        order.setdefault(node, len(order))
        return [frozenset({node})]
    parts: list[list[_Clause]] = [_disjunction(item, order) for item in node.items]  # type: ignore[arg-type]
    if isinstance(node, AnyOf):
        return _simplified([clause for part in parts for clause in part])
    # The parts that are a single clause are joined first, in one step. Most expressions have only such parts.
    together = frozenset[Atom]().union(*(part[0] for part in parts if len(part) == 1))
    clauses = _simplified([together])
    for part in parts:
        if len(part) == 1:
            continue
        if len(clauses) * len(part) > MOST_PRODUCTS:
            raise _too_many(f"more than {MOST_PRODUCTS}, before implied ones are dropped,")
        clauses = _simplified([left | right for left in clauses for right in part])
    return clauses


def _simplified(clauses: list[_Clause]) -> list[_Clause]:
    """Returns the clauses without duplicate, contradictory and implied ones. A clause is implied if another clause has
    a subset of its atoms."""
    sound = list(dict.fromkeys(_tidy(clause) for clause in clauses if not _contradictory(clause)))
    if len(sound) > MOST_ON_THE_WAY:
        raise _too_many(f"{len(sound)}, before implied ones are dropped,")
    shortest_first = sorted(sound, key=len)
    kept: list[_Clause] = []
    for clause in shortest_first:
        if not any(other <= clause for other in kept):
            kept.append(clause)
    survivors = set(kept)
    return [clause for clause in sound if clause in survivors]


def _contradictory(clause: _Clause) -> bool:
    absent = {
        atom.predicate.attribute
        for atom in clause
        if isinstance(atom.predicate, Presence) and not atom.predicate.present
    }
    return any(
        Atom(atom.predicate, not atom.negated) in clause or (absent and _requires(atom) & absent) for atom in clause
    )


def _requires(atom: Atom) -> frozenset[str]:
    if isinstance(atom.predicate, Presence) and not atom.predicate.present:
        return frozenset()
    return frozenset(atom.attributes)


def _tidy(clause: _Clause) -> _Clause:
    """Drops `exists` if another atom requires the same attribute."""
    needed = {name for atom in clause if not isinstance(atom.predicate, Presence) for name in atom.attributes}
    return frozenset(
        atom
        for atom in clause
        if not (isinstance(atom.predicate, Presence) and atom.predicate.present and atom.predicate.attribute in needed)
    )


def _too_many(count: str) -> InvalidSubscription:
    detail = (
        f"the expression becomes {count} alternatives joined by or; at most {MOST_CLAUSES} are allowed: "
        "use in, isa (A, B) or several subscriptions"
    )
    return InvalidSubscription([Problem("too-many-clauses", detail)])
