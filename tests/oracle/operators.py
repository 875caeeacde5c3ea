"""Which subscriptions with operators match, by the rules 8 and 16 to 18: every clause written out, every call made.

The cheap predicates are asked of the other oracle. A call that fails is neither true nor false, and so may be a clause;
a subscription is undecided when no clause is true and some clause is neither.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Constant,
    Event,
    Expression,
    Not,
    OperatorCall,
    Quantity,
    ValueConstraint,
    Variable,
)
from tests.oracle.brute_force import holds
from tests.oracle.reading import attributes_of, measure
from tests.oracle.world import World

__all__ = ["Failure", "decide"]

Function = Callable[..., Any]
Row = frozenset[tuple[str, Any]]
Verdict = bool | None


class Failure(Exception):
    """An operator of a test that fails."""


def decide(
    expression: Expression, data: Mapping[str, Any], world: World, operators: Mapping[str, Function]
) -> tuple[Verdict, set[Row]]:
    """(matches, does not, or None for undecided; the joined bindings of all clauses that match, values as compared)."""
    clauses = list(_clauses(expression, negated=False))
    kept = [clause for clause in set(clauses) if not (_contradicts(clause) or any(other < clause for other in clauses))]
    asking = _Asking(data, world, operators)
    results = [asking.clause(clause) for clause in kept]
    rows = {row for verdict, rows in results if verdict for row in rows if row}
    if any(verdict for verdict, _ in results):
        return True, rows
    return (None if any(verdict is None for verdict, _ in results) else False), set()


def _clauses(node: Expression, *, negated: bool) -> Iterator[frozenset[tuple[Expression, bool]]]:
    """Every conjunction of (predicate, negated); a negated group with a variable stays whole."""
    match node:
        case Not(item) if not negated and _variables(item):
            yield frozenset({(item, True)})
        case Not(item):
            yield from _clauses(item, negated=not negated)
        case All(items) | AnyOf(items):
            parts = [list(_clauses(item, negated=negated)) for item in items]
            if isinstance(node, All) != negated:
                yield from (frozenset().union(*chosen) for chosen in product(*parts))
            else:
                yield from (clause for part in parts for clause in part)
        case _:
            yield frozenset({(node, negated)})


def _contradicts(clause: frozenset[tuple[Expression, bool]]) -> bool:
    """Whether a call is asked for and excluded; the names of variables do not matter (rule 17)."""
    calls = [(_renamed(node), negated) for node, negated in clause if isinstance(node, OperatorCall)]
    return any((call, not negated) in calls for call, negated in calls)


def _renamed(call: OperatorCall) -> tuple[Any, ...]:
    names = list(dict.fromkeys(each.name for each in call.arguments if isinstance(each, Variable)))
    return (call.name, *(names.index(each.name) if isinstance(each, Variable) else each for each in call.arguments))


def _variables(node: Any) -> set[str]:
    match node:
        case Variable(name):
            return {name}
        case Not(item):
            return _variables(item)
        case All(items) | AnyOf(items) | OperatorCall(arguments=items):
            return set().union(*map(_variables, items)) if items else set()
        case ValueConstraint(left, _, right) | Arithmetic(_, left, right):
            return _variables(left) | _variables(right)
        case _:
            return set()


class _Asking:
    def __init__(self, data: Mapping[str, Any], world: World, operators: Mapping[str, Function]) -> None:
        self.data, self.world, self.operators = data, world, operators
        self.attributes = attributes_of(data, {}, world)

    def clause(self, clause: frozenset[tuple[Expression, bool]]) -> tuple[Verdict, list[Row]]:
        """Whether a conjunction holds, and its joined bindings. False if one part alone is, or if
        the parts that do not fail have no joined binding; undecided if a part is."""
        rows: list[dict[str, Any]] = [{}]
        unsure = False
        bound: set[str] = set()
        for node, negated in clause:
            if isinstance(node, ValueConstraint):
                continue
            found = self.part(node, negated)
            if found == []:
                return False, []
            if found is None:
                unsure = True
            else:
                rows = [one | other for one in rows for other in found if _agree(one, other)]
                bound |= set() if negated else _variables(node)
        for node, _ in clause:
            if isinstance(node, ValueConstraint) and _variables(node) <= bound:
                rows = [row for row in rows if self.constraint(node, row)]
        if unsure and rows:
            return None, []
        return bool(rows), [frozenset(row.items()) for row in rows]

    def part(self, node: Expression, negated: bool) -> list[dict[str, Any]] | None:
        """The bindings of one part of a conjunction, an empty one if it has no variables and holds; None if it
        fails."""
        if not isinstance(node, OperatorCall):
            if negated and _variables(node):
                verdict, _ = decide(node, self.data, self.world, self.operators)
                return None if verdict is None else [] if verdict else [{}]
            return [{}] if holds(Not(node) if negated else node, Event(self.data), self.world) else []
        given = [each.name for each in node.arguments if isinstance(each, AttributeRef)]
        if not all(self.attributes.get(name) for name in given):
            return [{}] if negated and _variables(node) else []
        try:
            found = self.call(node)
        except Failure:
            return None
        if negated:
            return [] if found else [{}]
        return found

    def call(self, call: OperatorCall) -> list[dict[str, Any]]:
        """The bindings of a call, values as compared; one empty binding where it has no variables and holds."""
        constants = [each.value for each in call.arguments if isinstance(each, Constant)]
        names = list(dict.fromkeys(each.name for each in call.arguments if isinstance(each, Variable)))
        returned = self.operators[call.name](self.data, len(names), *constants)
        if not names:
            return [{}] if returned else []
        return [dict(zip(names, map(_compared, values), strict=True)) for values in returned]

    def constraint(self, node: ValueConstraint, row: Mapping[str, Any]) -> bool:
        left, right = self.value(node.left, row), self.value(node.right, row)
        if left is None or right is None or left[0] != right[0]:
            return False
        a, b = left[1], right[1]
        return bool({"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[node.order])

    def value(self, node: Any, row: Mapping[str, Any]) -> Any:
        match node:
            case Variable(name):
                return row[name]
            case Constant(value):
                return _compared(value)
            case Arithmetic(operator, left, right):
                one, other = self.value(left, row), self.value(right, row)
                if one is None or other is None:
                    return None
                return _calculated(operator, one, other)


def _calculated(operator: str, one: Any, other: Any) -> Any:
    (kind, a), (also, b) = one, other
    if operator in "+-":
        return (kind, a + b if operator == "+" else a - b) if kind == also else None
    if operator == "*":
        return (also, a * b) if kind == "number" else (kind, a * b) if also == "number" else None
    if b == 0 or also not in ("number", kind):
        return None
    return (kind if also == "number" else "number", a / b)


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def _compared(value: Any) -> tuple[str, Any]:
    return measure(value.value, value.unit) if isinstance(value, Quantity) else ("number", value)
