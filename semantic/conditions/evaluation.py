"""One atom, one canonical event: does it hold? For what no column of the index can decide, and for explanations.

docs/matching-semantics.md, rules 3 and 6 to 9. The index answers the checks of `kindcast.semantic.conditions.reading`
for millions of clauses at once; here the same checks are asked one by one, beside the tests that only a look at the
value can answer: text, comparisons of two attributes, one element of an array.
"""

import unicodedata
from collections.abc import Callable
from typing import Any

from kindcast.index.clause import ConceptId, ConceptTest, IntervalTest, KeyTest, Test
from kindcast.semantic.conditions.normal_form import Atom, normal_form
from kindcast.semantic.conditions.reading import Check, checks_of, enumeration_of, readings_of
from kindcast.semantic.model import (
    AttributeRef,
    Between,
    CanonicalEvent,
    Comparison,
    Constant,
    Presence,
    SomeOf,
    TextTest,
    Value,
)
from kindcast.semantic.units.patterns import compile_pattern, fold
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["AtomEvaluator", "text_test"]


class AtomEvaluator:
    """An atom made ready to be asked of events under one vocabulary. Cost of `holds`: the values of its attribute.

    Inside `some`, `array` is the whole name of the array whose elements are asked, and names are seen from there."""

    def __init__(self, atom: Atom, vocabulary: Vocabulary, array: str = "") -> None:
        self.atom = atom
        self._vocabulary = vocabulary
        self._array = array
        self._checks: tuple[Check, ...] | None = checks_of(atom.predicate, vocabulary, array)
        self.satisfied_by = self._value_test()
        """Whether one value satisfies the predicate, negation left aside (for explanations; pairs and elements
        apart)."""
        self._inner: list[list[AtomEvaluator]] = []
        if isinstance(atom.predicate, SomeOf):
            clauses = normal_form(atom.predicate.item)
            whole = f"{array}.{atom.predicate.attribute}" if array else atom.predicate.attribute
            self._inner = [[AtomEvaluator(inner, vocabulary, whole) for inner in clause] for clause in clauses]

    def holds(self, event: CanonicalEvent) -> bool:
        """Rules 6 to 8: present and some value satisfies; or, negated, present and none does."""
        predicate = self.atom.predicate
        if isinstance(predicate, Presence):
            return (predicate.attribute in event.attributes) == predicate.present
        if isinstance(predicate, SomeOf):
            elements = event.elements.get(predicate.attribute, ())
            return bool(elements) and any(self._element(each) for each in elements) != self.atom.negated
        values = event.attributes.get(getattr(predicate, "attribute", ""), ())
        if not values or self._checks == ():
            return False
        if isinstance(predicate, Comparison) and isinstance(predicate.operand, AttributeRef):
            others = event.attributes.get(predicate.operand.name, ())
            found = any(self._compare(predicate, left, right) for left in values for right in others)
            return bool(others) and found != self.atom.negated
        return any(map(self.satisfied_by, values)) != self.atom.negated

    def _element(self, element: CanonicalEvent) -> bool:
        return any(all(atom.holds(element) for atom in clause) for clause in self._inner)

    def _compare(self, predicate: Comparison, left: Value, right: Value) -> bool:
        """Whether two values compare so (rule 9): numbers, quantities and date-times as such, and never as texts; other
        strings by their root words or, in order, by code point of any of their texts; members of an enumeration by its
        order, and where both attributes have one, by both; concepts where the attribute is declared to hold them."""
        order = predicate.order
        if order != "=" and left.root_word is not None and right.root_word is not None:
            names = (predicate.attribute, predicate.operand.name) if isinstance(predicate.operand, AttributeRef) else ()
            found = (enumeration_of(self._declared_as(name), self._vocabulary) for name in names)
            listed = [each for each in found if each is not None]
            if listed:
                return all(each.compares(left.root_word, order, right.root_word) for each in listed)
        if order == "=" and set(left.concepts) & set(right.concepts) and self._holds_concepts(predicate.attribute):
            return True
        if left.is_numeric and right.is_numeric:
            if left.dimension is not None:
                return left.dimension == right.dimension and _ordered(order, left.amount, right.amount)
            return right.dimension is None and _ordered(order, left.number, right.number)
        if left.instant is not None and right.instant is not None:
            return _ordered(order, left.instant, right.instant)
        if order != "=":
            return any(_ordered(order, one, other) for one in left.texts for other in right.texts)
        if left.boolean is not None:
            return left.boolean == right.boolean
        return left.root_word is not None and left.root_word == right.root_word

    def _holds_concepts(self, name: str) -> bool:
        declaration = self._vocabulary.attributes.declaration(self._declared_as(name))
        return declaration is not None and declaration.kind == "concept"

    def _declared_as(self, name: str) -> str:
        return self._vocabulary.attributes.declared_as(name, self._array)

    def _value_test(self) -> Callable[[Value], bool]:
        predicate = self.atom.predicate
        checks = self._checks
        if checks is not None:
            return lambda value: any(
                reading == asked and self._test(test, key)
                for reading, key in readings_of(value)
                for asked, test in checks
            )
        of_text = text_test(predicate)

        def some_text(value: Value) -> bool:  # as any(map(of_text, value.texts)), in a third of the time
            text, root = value.text, value.root_word
            return text is not None and (of_text(text) or (root is not None and root != text and of_text(root)))

        return some_text

    def _test(self, test: Test, key: Any) -> bool:
        match test:
            case KeyTest(keys):
                return bool(key in keys)
            case IntervalTest(low, high):
                return bool(low <= key <= high)
            case ConceptTest(within, below, exactly):
                concept = ConceptId(key)
                above = self._vocabulary.graph.ancestors(concept)
                return (
                    concept in exactly
                    or any(upper in within for upper in above)
                    or any(upper in below for upper in above if upper != concept)
                )


def text_test(predicate: Any) -> Callable[[str], bool]:
    """What a predicate that no column decides asks of one text: a test of text, or an order of strings."""
    match predicate:
        case TextTest(test="matches", text=pattern, nocase=nocase):
            return compile_pattern(pattern, nocase).search
        case TextTest(test=test, text=wanted, nocase=nocase):
            shape: Callable[[str], str] = fold if nocase else _as_is
            needle = shape(_nfc(wanted))
            match test:
                case "startswith":
                    return lambda text: shape(text).startswith(needle)
                case "endswith":
                    return lambda text: shape(text).endswith(needle)
                case _:
                    return lambda text: needle in shape(text)
        case Comparison(order=order, operand=Constant(value=str(wanted))):
            bound = _nfc(wanted)
            return lambda text: _ordered(order, text, bound)
        case Between(low=Constant(value=str(low)), high=Constant(value=str(high)), closed=closed):
            above, under = (">" if closed[0] == "(" else ">="), ("<" if closed[1] == ")" else "<=")
            least, most = _nfc(low), _nfc(high)
            return lambda text: _ordered(above, text, least) and _ordered(under, text, most)
        case _:
            return lambda text: False


def _as_is(text: str) -> str:
    return text


def _nfc(text: str) -> str:
    """Constants in the form that published strings are brought into."""
    return unicodedata.normalize("NFC", text)


def _ordered(order: str, left: Any, right: Any) -> bool:
    match order:
        case "=":
            return bool(left == right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)
