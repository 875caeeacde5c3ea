"""Expression → canonical text: `parse_text(to_text(e)) == e` for every expression that a parser made.

A resolved term is printed as `<IRI>`; so what is printed from a resolved expression means the same for ever.
"""

from typing import assert_never

from kindcast.semantic.language.literals import BARE_TERM, KEYWORDS, quoted_iri, quoted_name, quoted_string
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

__all__ = ["to_text"]


def to_text(expression: Expression) -> str:
    """The canonical text of `expression`. Linear; recursion is as deep as the expression (at most 64 levels)."""
    match expression:
        case All(items):
            return " and ".join(_inner(item) for item in items)
        case AnyOf(items):
            return " or ".join(_inner(item) for item in items)
        case Not(item):
            return f"not {_inner(item)}"
        case SomeOf(attribute, item):
            return f"some {quoted_name(attribute)} ({to_text(item)})"
        case KindTest(attribute, test, terms):
            return f"{quoted_name(attribute)} {test} {_terms(terms)}"
        case RelationTest(attribute, relation, terms):
            return f"{quoted_name(attribute)} {_relation(relation)} {_terms(terms)}"
        case Comparison(attribute, order, operand):
            return f"{quoted_name(attribute)} {order} {_operand(operand)}"
        case Membership(attribute, constants):
            return f"{quoted_name(attribute)} in ({', '.join(map(_operand, constants))})"
        case Between(attribute, low, high, closed):
            return f"{quoted_name(attribute)} between {closed[0]}{_operand(low)}, {_operand(high)}{closed[1]}"
        case Presence(attribute, present):
            return f"{quoted_name(attribute)} {'exists' if present else 'missing'}"
        case TextTest(attribute, test, text, nocase):
            return f"{quoted_name(attribute)} {test} {quoted_string(text)}{' nocase' if nocase else ''}"
        case OperatorCall(name, arguments):
            return f"{name}({', '.join(map(_argument, arguments))})"
        case ValueConstraint(left, order, right):
            return f"{_sum(left)} {order} {_sum(right)}"
        case Group(item):
            return to_text(item)
        case _:
            assert_never(expression)


def _inner(item: Expression) -> str:
    return f"({to_text(item)})" if isinstance(item, All | AnyOf | Group) else to_text(item)


def _relation(name: str) -> str:
    """A relation as it is written; a resolved one is an IRI."""
    return quoted_iri(name) if "://" in name or name.startswith("urn:") else quoted_name(name)


def _terms(terms: tuple[Term, ...]) -> str:
    return _term(terms[0]) if len(terms) == 1 else f"({', '.join(map(_term, terms))})"


def _term(term: Term) -> str:
    if term.iri is not None or term.is_iri:
        return quoted_iri(term.iri or term.text)
    bare = BARE_TERM.fullmatch(term.text) and term.text.lower() not in KEYWORDS
    return term.text if bare else quoted_string(term.text)


def _operand(operand: Constant | AttributeRef) -> str:
    if isinstance(operand, AttributeRef):
        return quoted_name(operand.name)
    match operand.value:
        case Term() as term:
            return _term(term)
        case Quantity(number, unit):
            return f"{number!r} {quoted_string(unit)}" if not _is_unit(unit) else f"{number!r} {unit}"
        case Instant(text):
            return text
        case bool(value):
            return "true" if value else "false"
        case str(text):
            return quoted_string(text)
        case number:
            return repr(number)


def _argument(argument: Constant | AttributeRef | Variable) -> str:
    match argument:
        case Variable(name):
            return f"?{name}"
        case AttributeRef(name):
            return f"@{quoted_name(name)}"
        case _:
            return _operand(argument)


def _sum(node: Arithmetic | Variable | Constant) -> str:
    match node:
        case Arithmetic(operator, left, right):
            return f"{_part(left)} {operator} {_part(right)}"
        case Variable(name):
            return f"?{name}"
        case _:
            return _operand(node)


def _part(node: Arithmetic | Variable | Constant) -> str:
    return f"({_sum(node)})" if isinstance(node, Arithmetic) else _sum(node)


def _is_unit(unit: str) -> bool:
    return unit.isalpha() and unit.lower() not in KEYWORDS
