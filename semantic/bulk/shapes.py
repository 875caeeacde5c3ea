"""A tree → its shape and its constants: what two trees must share to be compiled as one.

    {"all": [{"isa": ["target", {"iri": "…#Laptop"}]}, {"<=": ["price", 400]}]}
        ──▶  ("all", ("isa", "target", ("iri",)), ("<=", "price", ("number",)))   and   ["…#Laptop", 400]

A shape holds operators, attributes, units and the kinds of constants. Trees without one (relations, texts that are
searched, operators, whatever is odd or wrong) are compiled one by one, which also says what is wrong with them.
"""

from typing import Any

__all__ = ["INSTANT", "IRI", "NUMBER", "STRING", "Shape", "equalities", "shape_of"]

NUMBER, STRING, INSTANT, IRI = "number", "string", "instant", "iri"
"""Kinds of constants; a quantity is `"unit:"` and its unit, true and false stand in the shape themselves."""
MOST_PARTS = 64
"""Predicates of a tree that has a shape, and constants of a predicate: larger ones are seldom alike."""
LONGEST_TEXT = 1_000
"""Characters of a constant or an attribute: so the bounds of `semantic.language.bounds` cannot be met."""
DEEPEST = 8
"""Levels of groups."""

Shape = tuple[Any, ...]

_ORDERS = frozenset(("<", "<=", ">", ">="))
_EQUALS = frozenset(("=", "!="))
_KINDS = frozenset(("isa", "below", "is"))
_GROUPS = frozenset(("all", "any"))
_ENDS = frozenset(("[]", "[)", "(]", "()"))


def shape_of(tree: Any, constants: list[Any], depth: int = 0) -> Shape | None:
    """The shape of `tree`, with its constants added to `constants` in the order of the tree; None if it has none.
    Linear, about 1 µs a predicate."""
    if type(tree) is not dict or len(tree) != 1 or depth > DEEPEST:
        return None
    ((key, body),) = tree.items()
    if key in _GROUPS:
        return _group(key, body, constants, depth)
    if key == "not":
        inner = shape_of(body, constants, depth + 1)
        return None if inner is None else ("not", inner)
    if key == "exists" or key == "missing":
        name = body[0] if type(body) is list and len(body) == 1 else body
        return (key, name, ()) if _is_name(name) else None
    if type(body) is not list or len(body) < 2 or not _is_name(body[0]):
        return None
    if key == "between":
        return _between(body, constants)
    if len(body) != 2:
        return None
    operand = body[1]
    if key in _ORDERS:
        kind = _kind(operand, constants, ordered=True)
        return None if kind is None else (key, body[0], (kind,))
    if key in _EQUALS:
        kind = _kind(operand, constants)
        return None if kind is None else (key, body[0], (kind,))
    if key in _KINDS or key == "in":
        several = operand if type(operand) is list else (operand,)
        if not several or len(several) > MOST_PARTS or (key == "in" and several is not operand):
            return None
        kinds = tuple([_kind(each, constants, term=key != "in") for each in several])
        return None if None in kinds else (key, body[0], kinds)
    return None


def equalities(constants: list[Any]) -> tuple[int, ...] | None:
    """Which constants are equal: for each the place of the first like it; None if all differ. Where two predicates ask
    one attribute, that decides whether they are one, or contradict each other."""
    if len(set(constants)) == len(constants):
        return None
    first: dict[Any, int] = {}
    return tuple([first.setdefault(each, place) for place, each in enumerate(constants)])


def _group(key: str, body: Any, constants: list[Any], depth: int) -> Shape | None:
    if type(body) is not list or not body or len(body) > MOST_PARTS:
        return None
    if len(body) == 1:
        return shape_of(body[0], constants, depth + 1)
    parts: list[Any] = [key]
    for item in body:
        shape = shape_of(item, constants, depth + 1)
        if shape is None or len(constants) > MOST_PARTS:
            return None
        parts.append(shape)
    return tuple(parts)


def _between(body: list[Any], constants: list[Any]) -> Shape | None:
    ends, closed = body[1], body[2] if len(body) == 3 else "[]"
    if type(ends) is not list or len(ends) != 2 or len(body) > 3 or type(closed) is not str or closed not in _ENDS:
        return None
    low = _kind(ends[0], constants, ordered=True)
    high = _kind(ends[1], constants, ordered=True)
    return None if low is None or high is None else ("between", body[0], (low, high), closed)


def _kind(operand: Any, constants: list[Any], *, ordered: bool = False, term: bool = False) -> str | None:
    """The kind of an operand, which joins `constants` unless it stands in the shape; None for what has no kind."""
    of = type(operand)
    if of is int or of is float:
        if term:
            return None
        constants.append(operand)
        return NUMBER
    if of is str:
        if ordered or len(operand) > LONGEST_TEXT or operand[:1] == "?":
            return None
        constants.append(operand)
        return STRING
    if of is dict:
        return _object_kind(operand, constants, ordered=ordered, term=term)
    if of is bool and not ordered and not term:
        return "true" if operand else "false"
    return None


def _object_kind(operand: dict[Any, Any], constants: list[Any], *, ordered: bool, term: bool) -> str | None:
    if len(operand) == 1:
        ((key, text),) = operand.items()
        if type(text) is not str or len(text) > LONGEST_TEXT:
            return None
        if key == "iri" and not ordered:
            constants.append(text)
            return IRI
        if key == "instant" and not term:
            constants.append(text)
            return INSTANT
        return None
    if term or operand.keys() != {"value", "unit"}:
        return None
    number, unit = operand["value"], operand["unit"]
    if (type(number) is not int and type(number) is not float) or type(unit) is not str or len(unit) > LONGEST_TEXT:
        return None
    constants.append(number)
    return f"unit:{unit}"


def _is_name(name: Any) -> bool:
    return type(name) is str and len(name) <= LONGEST_TEXT and name[:1] != "?"
