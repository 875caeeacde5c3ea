"""Expression → JSON tree, the mirror of the text: `parse_tree(to_tree(e)) == e` for every expression that a parser
made."""

from typing import Any, assert_never

from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Expression,
    Group,
    Instant,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    ValueConstraint,
    Variable,
)

__all__ = ["to_tree"]

Json = Any


def to_tree(expression: Expression) -> dict[str, Json]:
    """The tree of `expression`, JSON-able; a resolved term is `{"iri": …}`. Linear; recursion as deep as the
    expression."""
    match expression:
        case All(items):
            return {"all": [to_tree(item) for item in items]}
        case AnyOf(items):
            return {"any": [to_tree(item) for item in items]}
        case Not(item):
            return {"not": to_tree(item)}
        case SomeOf(attribute, item):
            return {"some": [attribute, to_tree(item)]}
        case KindTest(attribute, test, terms):
            return {test: [attribute, _terms(terms)]}
        case RelationTest(attribute, relation, terms):
            return {"relation": [attribute, relation, _terms(terms)]}
        case Comparison(attribute, order, operand):
            return {order: [_attribute(attribute), _compared(operand)]}
        case Membership(attribute, constants):
            return {"in": [attribute, [_operand(constant) for constant in constants]]}
        case Between(attribute, low, high, closed):
            return {"between": [attribute, [_operand(low), _operand(high)], closed]}
        case Presence(attribute, present):
            return {"exists" if present else "missing": attribute}
        case TextTest(attribute, test, text, nocase):
            return {test: [attribute, text, "nocase"] if nocase else [attribute, text]}
        case OperatorCall(name, arguments):
            return {"op": [name, *map(_argument, arguments)]}
        case ValueConstraint(left, order, right):
            return {order: [_sum(left), _sum(right)]}
        case Group(item):
            return to_tree(item)
        case _:
            assert_never(expression)


def _attribute(name: str) -> Json:
    return {"attribute": name} if name.startswith("?") else name


def _terms(terms: tuple[Term, ...]) -> Json:
    return _term(terms[0]) if len(terms) == 1 else [_term(term) for term in terms]


def _term(term: Term) -> Json:
    return {"iri": term.iri or term.text} if term.iri is not None or term.is_iri else term.text


def _operand(operand: Constant | AttributeRef) -> Json:
    if isinstance(operand, AttributeRef):
        return {"attribute": operand.name}
    match operand.value:
        case Term() as term:
            shown = _term(term)
            return shown if isinstance(shown, dict) else {"term": shown}
        case Quantity(number, unit):
            return {"value": number, "unit": unit}
        case Instant(text):
            return {"instant": text}
        case value:
            return value


def _compared(operand: Constant | AttributeRef) -> Json:
    if isinstance(operand, Constant) and isinstance(operand.value, str) and operand.value.startswith("?"):
        return {"value": operand.value}
    return _operand(operand)


def _argument(argument: Constant | AttributeRef | Variable) -> Json:
    match argument:
        case Variable(name):
            return f"?{name}"
        case AttributeRef(name):
            return {"attribute": name}
        case Constant(str(text)) if text.startswith(("?", "@")):
            return {"value": text}
        case _:
            return _operand(argument)


def _sum(node: Arithmetic | Variable | Constant) -> Json:
    match node:
        case Arithmetic(operator, left, right):
            return {operator: [_sum(left), _sum(right)]}
        case _:
            return _argument(node)
