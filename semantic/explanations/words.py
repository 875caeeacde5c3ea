"""Why one value satisfies one predicate or does not, as a sentence: "450 USD is more than 400 USD"."""

from collections.abc import Sequence
from typing import Any

from kindcast.semantic.conditions.predicates import read_as
from kindcast.semantic.events.advice import published_in_words
from kindcast.semantic.model import (
    Between,
    Comparison,
    Constant,
    Instant,
    KindTest,
    Membership,
    Predicate,
    Quantity,
    Term,
    TextTest,
    Value,
)
from kindcast.semantic.units.mistakes import in_words, is_number, not_a_quantity
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["sentence"]

HELD = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least", "=": "equal to"}
FAILED = {"<": "not less than", "<=": "more than", ">": "not more than", ">=": "less than", "=": "not equal to"}
TESTS = {
    "startswith": ("begins", "does not begin", "with"),
    "endswith": ("ends", "does not end", "with"),
    "contains": ("contains", "does not contain", ""),
    "matches": ("matches", "does not match", ""),
}
LONGEST = 60


def sentence(predicate: Predicate, value: Value, satisfied: bool, vocabulary: Vocabulary, language: str) -> str | None:
    """Whether `value` satisfies `predicate` (not its negation), in words; None where there are no better words than
    that it does or does not."""
    name = getattr(predicate, "attribute", "")
    if read_as(name, vocabulary) is not None:
        return None
    match predicate:
        case Comparison(order=order, operand=Constant(value=constant)):
            return _compared(name, value, "=" if order == "!=" else order, constant, satisfied, vocabulary, language)
        case Between(low=low, high=high, closed=closed):
            wrong = None if satisfied else _unlike(name, value, low.value, vocabulary)
            ends = (
                f"{closed[0]}{_written(low.value, vocabulary, language)}, {_written(high.value, vocabulary, language)}"
            )
            lies = "lies" if satisfied else "does not lie"
            return wrong or f"{_said(value)} {lies} in {ends}{closed[1]}"
        case Membership(constants=constants) if len(constants) == 1:
            return _compared(name, value, "=", constants[0].value, satisfied, vocabulary, language)
        case Membership(constants=constants):
            listed = ", ".join(_written(each.value, vocabulary, language) for each in constants[:5])
            more = ", …" if len(constants) > 5 else ""
            return f"{_said(value)} is {'' if satisfied else 'not '}one of {listed}{more}"
        case KindTest(terms=terms) if not satisfied:
            return _kind(predicate.test, value, terms, vocabulary, language)
        case TextTest(test=test, text=text):
            if value.text is None:
                return f"{_said(value)} is not a text"
            does, does_not, preposition = TESTS[test]
            wanted = f"/{text}/" if test == "matches" else repr(text)
            return " ".join(filter(None, (_said(value), does if satisfied else does_not, preposition, wanted)))
    return None


def _compared(
    name: str, value: Value, order: str, constant: Any, satisfied: bool, vocabulary: Vocabulary, language: str
) -> str | None:
    wrong = None if satisfied else _unlike(name, value, constant, vocabulary)
    if wrong is not None:
        return wrong
    if isinstance(constant, Term) or value.amounts is not None:
        return None
    if isinstance(constant, str) and order == "=" and not satisfied and value.text is not None:
        if value.text.casefold() == constant.casefold():
            return f"{value.text!r} is not {constant!r}: capital letters count"
        if value.text.strip() == constant.strip():
            return f"{value.text!r} is not {constant!r}: blanks count"
    words = HELD[order] if satisfied else FAILED[order]
    if (order == "=" and not isinstance(constant, int | float | Quantity)) or isinstance(constant, bool):
        words = "" if satisfied else "not"
    is_date = value.instant is not None and not isinstance(constant, int | float | Quantity)
    if isinstance(constant, Instant) or is_date:
        words = words.replace("less than", "before").replace("more than", "after").replace("at most", "not after")
        words = words.replace("at least", "not before")
    return " ".join(filter(None, (_said(value), "is", words, _written(constant, vocabulary, language))))


def _unlike(name: str, value: Value, constant: Any, vocabulary: Vocabulary) -> str | None:
    """That value and constant are of kinds that never compare, and what to do about it."""
    said = _said(value)
    if isinstance(constant, Quantity):
        dimension = vocabulary.units.dimension(constant.unit)
        written = f"{constant.value} {constant.unit}"
        if value.amount is None and value.number is not None:
            return (
                f"{said} is a plain number, {written} {in_words(dimension)}: publish the unit as well, or declare the "
                f"unit of {name}, or unit_from"
            )
        if value.dimension is not None and value.dimension != dimension:
            return f"{said} is {in_words(value.dimension)}, {written} {in_words(dimension)}"
        if value.amount is None and value.amounts is None:
            return f"{said} is not a quantity{_why(value, vocabulary)}"
    elif isinstance(constant, bool):
        return None if value.boolean is not None else f"{said} is neither true nor false"
    elif isinstance(constant, int | float):
        if value.number is None and value.dimension is not None:
            return f"{said} is {in_words(value.dimension)}, {constant} a plain number: write {constant} with its unit"
        if value.number is None and value.instant is None and value.dates is None:
            if value.text is not None and is_number(value.text):
                return f"{said} is a text, not a number: publish it without quotes, or declare {name} with kind number"
            return f"{said} is not a number{_why(value, vocabulary)}"
    elif isinstance(constant, str) and value.text is None:
        return f"{said} is not a text, and {constant!r} is one"
    return None


def _why(value: Value, vocabulary: Vocabulary) -> str:
    wrong = not_a_quantity(value.text, vocabulary.units.knows) if value.text is not None else None
    return f": {wrong}" if wrong else ""


def _kind(test: str, value: Value, terms: Sequence[Term], vocabulary: Vocabulary, language: str) -> str | None:
    asked = [concept for term in terms if term.iri and (concept := vocabulary.concept(term.iri)) is not None]
    wanted = " or ".join(vocabulary.label(each, language) for each in asked[:5])
    if not asked:
        return None
    found = tuple(dict.fromkeys((*value.concepts, *value.types)))
    if not found:
        if value.text is None:
            return f"{_said(value)} is no name of a concept"
        meant = vocabulary.respelt(value.text).candidates
        near = ""
        if meant:
            name = vocabulary.iri(meant[0]) if "://" in value.text else vocabulary.label(meant[0], language)
            near = f"; is {name} meant?"
        return f"{value.text!r} is not a known concept{near}"
    label = " or ".join(vocabulary.label(each, language) for each in value.concepts[:3]) or _said(value)
    if test == "below" and set(asked) & set(found):
        return f"{label} is {wanted} itself, and not beneath it"
    if any(vocabulary.isa(upper, each) for each in found for upper in asked):
        relation = "is wider than" if test != "is" else "is not"
        return f"{label} {relation} {wanted}"
    if test == "is":
        return f"{label} is not {wanted}"
    return f"{label} is not a kind of {wanted}"


def _said(value: Value) -> str:
    if value.text is not None and value.amount is None and value.instant is None:
        return repr(value.text if len(value.text) <= LONGEST else value.text[: LONGEST - 1] + "…")
    return published_in_words(value)


def _written(constant: Any, vocabulary: Vocabulary, language: str) -> str:
    match constant:
        case Quantity(number, unit):
            return f"{number} {unit}"
        case bool():
            return "true" if constant else "false"
        case Instant(text):
            return text
        case Term(iri=iri, text=text):
            concept = vocabulary.concept(iri) if iri else None
            return text if concept is None else vocabulary.label(concept, language)
        case str():
            return repr(constant)
        case int() | float():
            return str(constant)
        case _:
            return str(getattr(constant, "iri", constant))
