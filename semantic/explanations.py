"""Explanations: why an event did or did not match a subscription, and why operators were called in their order.

The verdict on each predicate comes from `kindcast.semantic.conditions.predicates`; tests compare the verdicts with the
decisions of the matcher. Every operator call of a clause is made, even if an earlier call has decided the clause,
because an explanation shows all calls. The reason of a verdict is a sentence: "450 USD is more than 400 USD".

A verdict is True, False, or None. None means undecided: an operator has failed or has not answered yet, or a search of
a text takes too long.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kindcast.index.clause import ConceptId, ConceptTest
from kindcast.semantic.conditions.lowering import expensive_clause, is_expensive
from kindcast.semantic.conditions.normal_form import Atom, elements_of
from kindcast.semantic.conditions.predicates import (
    AtomEvaluator,
    checks_of,
    holds_instants,
    read_as,
    values_of,
    why_no_aggregate,
)
from kindcast.semantic.errors import InvalidQuantity, property_in_words
from kindcast.semantic.events.advice import advice_on_value, published_in_words
from kindcast.semantic.events.canonical_events import Canonicaliser
from kindcast.semantic.language import to_text
from kindcast.semantic.matching.matcher import Matcher
from kindcast.semantic.matching.operator_layer import Decision, Link, OperatorLayer, Step, Waiting
from kindcast.semantic.model import (
    AttributeRef,
    Between,
    CanonicalEvent,
    Comparison,
    Constant,
    Event,
    EveryOf,
    EveryValue,
    Instant,
    KindTest,
    Membership,
    Not,
    Note,
    OperatorCall,
    Predicate,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    SubscriptionSlot,
    Term,
    TextTest,
    Value,
    ValueConstraint,
    aggregate_of,
)
from kindcast.semantic.operators.calls import (
    Answer,
    Call,
    EventView,
    OperatorFailed,
    ask,
    joined,
    reported,
    unified,
    variables_of,
)
from kindcast.semantic.operators.declaration import Operator, operators_by_name
from kindcast.semantic.subscriptions.compilation import Compiled, SeenAttributes, advise, compile_expression
from kindcast.semantic.units.kinds import format_instant
from kindcast.semantic.units.measure import in_words, is_number, not_a_quantity
from kindcast.semantic.units.patterns import TooCostlyNow
from kindcast.semantic.vocabulary.labels import NearNames
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "as_json",
    "chains",
    "explain",
    "explain_chains",
    "explain_plan",
    "sentence",
    "without_values",
]

HELD = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least", "=": "equal to"}
FAILED = {"<": "not less than", "<=": "more than", ">": "not more than", ">=": "less than", "=": "not equal to"}
TESTS = {
    "startswith": ("begins", "does not begin", "with"),
    "endswith": ("ends", "does not end", "with"),
    "contains": ("contains", "does not contain", ""),
    "matches": ("matches", "does not match", ""),
}
LONGEST = 60
DIGITS = 9
"""The number of digits of an amount that was converted."""

Verdict = bool | None


def sentence(predicate: Predicate, value: Value, satisfied: bool, vocabulary: Vocabulary, language: str) -> str | None:
    """Returns a sentence that says why `value` satisfies `predicate` or does not. A negation is not considered. None if
    there is no special sentence for this predicate and value."""
    name = getattr(predicate, "attribute", "")
    if read_as(name, vocabulary) is not None:
        return None
    match predicate:
        case Comparison(order=order, operand=Constant(value=constant)):
            constant = _with_unit(constant, name, value, vocabulary)
            return _compared(name, value, "=" if order == "!=" else order, constant, satisfied, vocabulary, language)
        case Between(closed=closed):
            low, high = (_with_unit(end.value, name, value, vocabulary) for end in (predicate.low, predicate.high))
            wrong = None if satisfied else _unlike(name, value, low, vocabulary)
            said = _measured(value, low, vocabulary)
            ends = f"{closed[0]}{_written(low, vocabulary, language)}, {_written(high, vocabulary, language)}"
            lies = "lies" if satisfied else "does not lie"
            return wrong or f"{said} {lies} in {ends}{closed[1]}"
        case Membership():
            constants = [_with_unit(each.value, name, value, vocabulary) for each in predicate.constants[:6]]
            if len(constants) == 1:
                return _compared(name, value, "=", constants[0], satisfied, vocabulary, language)
            listed = ", ".join(_written(each, vocabulary, language) for each in constants[:5])
            more = ", …" if len(constants) > 5 else ""
            said = _measured(value, constants[0], vocabulary)
            return f"{said} is {'' if satisfied else 'not '}one of {listed}{more}"
        case KindTest(terms=terms) if not satisfied:
            return _kind(predicate.test, value, terms, vocabulary, language)
        case TextTest(test=test, text=text):
            if value.text is None:
                return f"{_said(value)} is not a text"
            does, does_not, preposition = TESTS[test]
            wanted = (f"/{text}/" if test == "matches" else repr(text)) + (" in any case" if predicate.nocase else "")
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
    said = _measured(value, constant, vocabulary)
    if aggregate_of(name) is not None:
        said = f"{named(name)} is {_in_unit(value, constant, vocabulary)}, which"
    return " ".join(filter(None, (said, "is", words, _written(constant, vocabulary, language))))


def named(attribute: str) -> str:
    """Returns the name of an attribute or aggregate as subscriptions write it."""
    function, inner = aggregate_of(attribute) or ("", attribute)
    return f"{function}({inner})" if function else attribute


def _in_unit(value: Value, constant: Any, vocabulary: Vocabulary) -> str:
    """Returns the value of an aggregate in words: a quantity in the unit of the constant."""
    if isinstance(constant, Quantity) and value.amount is not None:
        with suppress(InvalidQuantity):
            return f"{vocabulary.units.bare(value.amount, constant.unit):.{DIGITS}g} {constant.unit}"
    if value.instant is not None and value.number is None:
        return format_instant(value.instant)
    return published_in_words(value)


def _measured(value: Value, constant: Any, vocabulary: Vocabulary) -> str:
    """Returns a value in words, as it is compared with `constant`. A quantity whose words have no unit gets one:
    `30.5 (86.9 degF)`, or `30.5 degC` if it has the unit of the constant."""
    said = _said(value)
    has_unit = not is_number(said) and not said.startswith("{")
    if has_unit or not isinstance(constant, Quantity) or value.amount is None:
        return said
    if vocabulary.units.dimension(constant.unit) != value.dimension:
        return said
    try:
        amount = vocabulary.units.bare(value.amount, constant.unit)
    except InvalidQuantity:
        return said
    is_same = is_number(said) and float(said) == amount
    return f"{said} {constant.unit}" if is_same else f"{said} ({amount:.{DIGITS}g} {constant.unit})"


def _with_unit(constant: Any, name: str, value: Value, vocabulary: Vocabulary) -> Any:
    """Returns a plain number with the declared unit of the attribute, in which a quantity is compared with it (rule
    15). Other constants do not change."""
    if isinstance(constant, bool) or not isinstance(constant, int | float) or value.dimension is None:
        return constant
    declaration = vocabulary.attributes.declaration((aggregate_of(name) or ("", name))[1])
    if value.number is not None or declaration is None or declaration.unit is None:
        return constant
    return Quantity(constant, declaration.unit)


def _unlike(name: str, value: Value, constant: Any, vocabulary: Vocabulary) -> str | None:
    """Returns a sentence that value and constant are of kinds that cannot be compared, and what to do about it. None if
    they can be compared."""
    said = _said(value)
    function, inner = aggregate_of(name) or ("", name)
    if isinstance(constant, Quantity):
        dimension = vocabulary.units.dimension(constant.unit)
        written = f"{constant.value} {constant.unit}"
        if value.amount is None and value.number is not None:
            remedy = f"publish a unit, or declare unit or unit_from for {inner}"
            remedy = "a count has no unit" if function == "count" else remedy
            return f"{said} is a plain number, but {written} is {in_words(dimension)}: {remedy}"
        if value.dimension is not None and value.dimension != dimension:
            return f"{said} is {in_words(value.dimension)}, but {written} is {in_words(dimension)}"
        if value.amount is None and value.amounts is None:
            return f"{said} is not a quantity{_why(value, vocabulary)}"
    elif isinstance(constant, Instant):
        if value.text is not None and value.instant is None and value.dates is None:
            return f"{said} is not a date-time"
    elif isinstance(constant, bool):
        return None if value.boolean is not None else f"{said} is neither true nor false"
    elif isinstance(constant, int | float):
        if value.number is None and value.dimension is not None:
            return (
                f"{said} is {in_words(value.dimension)}, but {constant} is a plain number: write a unit after "
                f"{constant}"
            )
        if value.number is None and value.instant is None and value.dates is None:
            if value.text is not None and is_number(value.text):
                return f"{said} is a text, not a number: publish it without quotes, or declare kind number for {name}"
            return f"{said} is not a number{_why(value, vocabulary)}"
        if value.number is None and not holds_instants(inner, vocabulary):
            return (
                f"{said} is a date, but {constant} is a plain number: write a date, or declare kind instant for {inner}"
            )
    elif isinstance(constant, str) and value.text is None:
        return f"{said} is not a text, but {constant!r} is a text"
    return None


def _why(value: Value, vocabulary: Vocabulary) -> str:
    wrong = not_a_quantity(value.text, vocabulary.units.knows) if value.text is not None else None
    return f": {wrong}" if wrong else ""


def _kind(test: str, value: Value, terms: Sequence[Term], vocabulary: Vocabulary, language: str) -> str | None:
    asked = [concept for term in terms if term.iri and (concept := vocabulary.concept(term.iri)) is not None]
    if not asked:
        return None
    found = tuple(dict.fromkeys((*value.concepts, *value.types)))
    if not found:
        if value.text is None:
            return f"{_said(value)} is not the name of a concept"
        meant = vocabulary.respelt(value.text).candidates
        near = ""
        if meant:
            name = vocabulary.iri(meant[0]) if "://" in value.text else vocabulary.label(meant[0], language)
            near = f"; did you mean {name}?"
        return f"{value.text!r} is not a known concept{near}"
    wanted = _names(asked[:5], value.concepts, vocabulary, language)
    label = _names(value.concepts[:3], asked, vocabulary, language) or _said(value)
    if test == "below" and set(asked) & set(found):
        return f"{label} is {wanted} itself, not beneath it"
    if any(vocabulary.isa(upper, each) for each in found for upper in asked):
        relation = "is wider than" if test != "is" else "is not"
        return f"{label} {relation} {wanted}"
    if test == "is":
        return f"{label} is not {wanted}"
    return f"{label} is not a kind of {wanted}"


def _names(concepts: Sequence[ConceptId], others: Sequence[ConceptId], vocabulary: Vocabulary, language: str) -> str:
    """Returns the names of `concepts`: their labels, or the IRI if one of `others` has the same label."""
    labels = {each: vocabulary.label(each, language) for each in (*concepts, *others)}
    shared = {each for each in concepts for other in others if other != each and labels[other] == labels[each]}
    told = (f"<{vocabulary.iri(each)}>" if each in shared else labels[each] for each in concepts)
    return " or ".join(dict.fromkeys(told))


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


def _all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict on a conjunction. One part that is false decides it, even if others are undecided."""
    found = set(verdicts)
    return False if False in found else None if None in found else True


def _one_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict on a disjunction. One part that is true decides it, even if others are undecided."""
    found = set(verdicts)
    return True if True in found else None if None in found else False


def _constraints(atoms: Sequence[Atom], bound: frozenset[str]) -> list[ValueConstraint]:
    """Returns the value constraints whose variables are all in `bound`."""
    found = [atom.predicate for atom in atoms if isinstance(atom.predicate, ValueConstraint)]
    return [each for each in found if variables_of(each) <= bound]


class OperatorTeller:
    """The verdicts of operators on one event. Each call is made once, even if several clauses contain it."""

    def __init__(self, vocabulary: Vocabulary, event: CanonicalEvent, operators: Mapping[str, Operator]) -> None:
        self._vocabulary = vocabulary
        self._event = event
        self._operators = operators
        self._view = EventView(event)
        self._said: dict[Call, tuple[Answer | OperatorFailed, float]] = {}

    def clause(self, atoms: Sequence[Atom]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns (the verdict on each expensive atom, as a predicate of an explanation; the joined bindings of
        all)."""
        expensive = [atom for atom in atoms if is_expensive(atom)]
        told = {atom: self._asked(atom) for atom in expensive if not isinstance(atom.predicate, ValueConstraint)}
        failed: OperatorFailed | None = None
        rows: list[dict[str, Any]] = []
        bound: frozenset[str] = frozenset()
        try:
            rows, bound = self._rows(expensive)
        except OperatorFailed as failure:
            failed = failure
        unsure = failed is not None or any(each["verdict"] is None for each in told.values())
        predicates = [told.get(atom) or self._constrained(atom, rows, bound, unsure=unsure) for atom in expensive]
        constraints = _constraints(expensive, bound)
        kept = [row for row in rows if self._allowed(row, constraints)]
        if not kept and all(each["verdict"] is not False for each in predicates):
            reason = "no combination of bindings agrees in all variables and satisfies all constraints"
            joining: dict[str, Any] = {"text": "bindings join", "attribute": "", "negated": False, "values": []}
            joining |= (
                {"verdict": False, "reason": reason}
                if failed is None
                else {"verdict": None, "reason": f"undecided, {failed}"}
            )
            predicates.append(joining)
        shown, _ = reported((row for row in kept if row), self._vocabulary.units)
        return predicates, [{name: as_json(value) for name, value in row} for row in shown]

    def _rows(self, atoms: Sequence[Atom]) -> tuple[list[dict[str, Any]], frozenset[str]]:
        """Returns the joined bindings of the calls that have an answer, and the names of their variables. Value
        constraints are left aside, unless there are too many bindings without them. Raises `OperatorFailed` if there
        are too many with them."""
        sources: list[tuple[tuple[str, ...], Sequence[tuple[Any, ...]]]] = []
        for atom in atoms:
            if isinstance(atom.predicate, OperatorCall) and not atom.negated:
                if atom.predicate.name not in self._operators:
                    return [], frozenset()
                call, names = unified(atom.predicate, self._operators)
                answer, _ = self._answer(call)
                if names and isinstance(answer, Answer):
                    sources.append((names, answer.bindings))
        bound = frozenset(name for names, _ in sources for name in names)
        try:
            return joined(sources, (), self._vocabulary.units), bound
        except OperatorFailed:
            return joined(sources, _constraints(atoms, bound), self._vocabulary.units), bound

    def _allowed(self, row: Mapping[str, Any], constraints: Sequence[ValueConstraint]) -> bool:
        source = [(tuple(row), [tuple(row.values())])]
        return bool(joined(source, constraints, self._vocabulary.units))

    def _asked(self, atom: Atom) -> dict[str, Any]:
        """Returns the verdict on a call or a negated group."""
        predicate, told = atom.predicate, _told_of(atom)
        if isinstance(predicate, OperatorCall):
            return told | {"attribute": predicate.name} | self._call(atom, predicate, told["text"])
        return told | self._group(atom, told["text"])

    def _constrained(
        self, atom: Atom, rows: list[dict[str, Any]], bound: frozenset[str], *, unsure: bool
    ) -> dict[str, Any]:
        """Returns the verdict on a value constraint. If a call of the clause has no answer (`unsure`), it may be false,
        but not true."""
        assert isinstance(atom.predicate, ValueConstraint)
        told = _told_of(atom)
        if unsure and (
            not variables_of(atom.predicate) <= bound or any(self._allowed(row, [atom.predicate]) for row in rows)
        ):
            return told | {
                "verdict": None,
                "reason": f"{told['text']}: undecided, because not all bindings are known",
            }
        count = sum(self._allowed(row, [atom.predicate]) for row in rows)
        reason = f"{told['text']}: {count} of {len(rows)} joined bindings satisfy it"
        return told | {"verdict": count > 0, "reason": reason}

    def _call(self, atom: Atom, predicate: OperatorCall, text: str) -> dict[str, Any]:
        absent = [name for name in atom.attributes if name not in self._view]
        if predicate.name not in self._operators:
            return {"verdict": False, "reason": f"{text}: there is no operator {predicate.name}"}
        if absent:
            said = "; ".join(f"{name} is absent{_members(name, self._event)}" for name in absent)
            return {"verdict": False, "reason": f"{text}: {said}"}
        call, names = unified(predicate, self._operators)
        answer, seconds = self._answer(call)
        if isinstance(answer, OperatorFailed):
            return {"verdict": None, "reason": f"{text}: undecided, {answer}"}
        said = f"{len(answer.bindings)} bindings" if names else "yes" if answer.holds else "no"
        told = {"verdict": answer.holds is not atom.negated, "reason": f"{text}: the operator says {said}"}
        return told | ({"seconds": seconds} if seconds else {})

    def _group(self, atom: Atom, text: str) -> dict[str, Any]:
        part = expensive_clause([atom], self._operators, self._vocabulary)
        layer = OperatorLayer(self._operators, "naive", self._vocabulary.units)
        if part is None or not part.possible:
            return {"verdict": False, "reason": f"{text}: one of its operators or concepts no longer exists"}
        layer.add(0, part)
        (decision,) = layer.decide_several([Waiting([0], self._event)])
        if decision.undecided:
            return {"verdict": None, "reason": f"{text}: undecided, {decision.undecided[0].reason}"}
        holds = 0 in decision.matched
        return {"verdict": holds, "reason": f"{text}: the group has {'no' if holds else 'a'} joined binding"}

    def _answer(self, call: Call) -> tuple[Answer | OperatorFailed, float]:
        if call not in self._said:
            began = time.perf_counter()
            answer: Answer | OperatorFailed
            try:
                answer = ask(call, self._operators[call.operator], self._view, self._vocabulary.units)
            except OperatorFailed as failure:
                answer = failure
            seconds = getattr(answer, "seconds", None)
            self._said[call] = answer, time.perf_counter() - began if seconds is None else seconds
        return self._said[call]


def _members(attribute: str, event: CanonicalEvent) -> str:
    """Returns a hint at the first member of an object, which has no value itself (rule 1); else ""."""
    members = (name for name in event.attributes if name.startswith(f"{attribute}."))
    return next((f"; the event has {name}" for name in members), "")


def _told_of(atom: Atom) -> dict[str, Any]:
    text = to_text(Not(atom.predicate) if atom.negated else atom.predicate)
    return {"text": text, "attribute": "", "negated": atom.negated, "values": []}


def as_json(value: object) -> object:
    """Returns the value of a binding as JSON."""
    if isinstance(value, Quantity):
        return {"value": value.value, "unit": value.unit}
    return value.text if isinstance(value, Instant) else value


def explain(
    vocabulary: Vocabulary,
    subscription: str | Mapping[str, Any] | Compiled,
    event: Mapping[str, Any] | Event | CanonicalEvent,
    *,
    language: str = "en",
    operators: Iterable[Operator] = (),
) -> dict[str, Any]:
    """Returns whether `event` matches `subscription`, and why, as JSON. `matches` and each `verdict` are None while
    undecided.

    `{"matches", "summary", "canonical", "clauses": [{"matches", "predicates": [{"text", "attribute", "negated",
    "verdict", "reason", "values": [{"published", "canonical", "path", "verdict"}]}]}], "notes"}`. A value that is
    compared with a quantity also has `"converted"`, the value in the unit of that quantity: `{"amount", "unit"}`.
    `path` has the labels from the published concept up to the concept in the predicate, with a step of a relation as
    `(part of) heart`. Labels are in `language` if there are such labels. A predicate on a known property has
    `"property"` (`AttributeScheme.described`). A clause with expensive predicates also has `"bindings"`, and a call of
    one of `operators` has the `"seconds"` that it took, unless the answer was known before. All calls are made. Raises
    `InvalidSubscription`, `InvalidEvent`.
    """
    known = operators_by_name(operators)
    compiled = (
        subscription if isinstance(subscription, Compiled) else compile_expression(subscription, vocabulary, known)
    )
    canonical = event if isinstance(event, CanonicalEvent) else Canonicaliser(vocabulary).canonicalise(event)
    teller = _Teller(vocabulary, canonical, language, OperatorTeller(vocabulary, canonical, known))
    clauses = [teller.clause(atoms) for atoms in _told_clauses(compiled)]
    matches = _one_of(clause["matches"] for clause in clauses)
    return {
        "matches": matches,
        "summary": _summary(clauses),
        "canonical": compiled.canonical,
        "clauses": clauses,
        "notes": [
            {"code": note.code, "attribute": note.attribute, "detail": note.detail}
            for note in dict.fromkeys((*compiled.notes, *_advice(compiled, canonical, vocabulary), *canonical.notes))
        ],
    }


def without_values(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an explanation with its verdict and without everything that may show values of the event."""
    verdict = {True: "matches", False: "does not match", None: "is not decided yet"}[explanation["matches"]]
    summary = f"The event {verdict}. Its data is hidden from you as a whole, and with it the reasons."
    return {**explanation, "summary": summary, "clauses": [], "notes": []}


def _told_clauses(compiled: Compiled) -> Iterator[tuple[Atom, ...]]:
    """Yields the clauses to explain. The index has `not every x (…)` in two clauses, for elements and for values. They
    are one here, unless another predicate excludes one of the two."""
    alike: defaultdict[tuple[Atom, ...], list[tuple[Atom, ...]]] = defaultdict(list)
    for clause in compiled.clauses:
        alike[tuple(replace(atom, requires="") for atom in clause)].append(clause)
    for clause, parts in alike.items():
        is_whole = len(parts) == 2 ** sum(atom.requires != "" for atom in parts[0])
        yield from [clause] if is_whole else parts


def _advice(compiled: Compiled, event: CanonicalEvent, vocabulary: Vocabulary) -> Iterator[Note]:
    """Yields notes besides the verdicts: for the subscriber about the subscription, and for the publisher about the
    values of its attributes."""
    names = NearNames((*vocabulary.declared_names, *event.attributes))
    yield from advise(compiled, vocabulary, SeenAttributes({}, names))
    for name in dict.fromkeys(name for clause in compiled.clauses for atom in clause for name in atom.attributes):
        for value in event.attributes.get(name, ())[:MOST_ADVISED]:
            yield from advice_on_value(name, value, vocabulary)


MOST_ADVISED = 20
"""Maximum number of values of an attribute that are examined for notes."""


def _summary(clauses: list[dict[str, Any]]) -> str:
    if not clauses:
        return "No match: the expression never holds."
    won = next((clause for clause in clauses if clause["matches"]), None)
    if won is not None:
        reasons = "; ".join(each["reason"] for each in won["predicates"])
        return f"Match: {reasons or 'the expression has no condition'}."
    open_ones = [clause for clause in clauses if clause["matches"] is None]
    verdict = None if open_ones else False
    nearest = min(open_ones or clauses, key=lambda clause: sum(not each["verdict"] for each in clause["predicates"]))
    decisive = [each for each in nearest["predicates"] if each["verdict"] is verdict]
    others_hold = all(each["verdict"] or each in decisive for each in nearest["predicates"])
    alone = " alone" if len(decisive) == 1 and len(nearest["predicates"]) > 1 and others_hold else ""
    names = " and ".join(dict.fromkeys(named(each["attribute"]) for each in decisive if each["attribute"]))
    because = f" because of {names}{alone}" if names else ""
    outcome = "Undecided" if open_ones else "No match"
    return f"{outcome}{because}: {'; '.join(each['reason'] for each in decisive)}."


class _Teller:
    """Describes the verdicts on one event in words."""

    def __init__(self, vocabulary: Vocabulary, event: CanonicalEvent, language: str, operators: OperatorTeller) -> None:
        self._vocabulary = vocabulary
        self._event = event
        self._language = language
        self._operators = operators

    def clause(self, atoms: tuple[Atom, ...]) -> dict[str, Any]:
        predicates = [self.predicate(atom) for atom in atoms if not is_expensive(atom)]
        if len(predicates) == len(atoms):
            return {"matches": _all_of(each["verdict"] for each in predicates), "predicates": predicates}
        expensive, bindings = self._operators.clause(atoms)
        predicates += expensive
        matches = _all_of(each["verdict"] for each in predicates)
        return {"matches": matches, "predicates": predicates, "bindings": bindings if matches else []}

    def predicate(self, atom: Atom) -> dict[str, Any]:
        evaluator = AtomEvaluator(atom, self._vocabulary)
        text = self._text(atom)
        attribute = getattr(atom.predicate, "attribute", "")
        verdict: Verdict
        values: list[dict[str, Any]]
        try:
            verdict = evaluator.holds(self._event)
            values = [self._value(atom, evaluator, value) for value in values_of(self._event, attribute)]
            if evaluator.never_holds:
                reason = f"{text}: it cannot hold: the vocabulary lacks what it names, or reads {attribute} otherwise"
            else:
                reason = self._reason(atom, text, attribute, verdict, values)
        except TooCostlyNow:
            verdict, values = None, []
            reason = f"{text}: undecided, because it takes too long to decide for an explanation"
        told = {"text": text, "attribute": attribute, "negated": atom.negated, "verdict": verdict}
        name = (aggregate_of(attribute) or ("", attribute))[1]
        known = self._vocabulary.attributes.described(name, self._language) if name else None
        if known is None:
            return told | {"reason": reason, "values": values}
        reason = f"{reason} [{property_in_words(name, known)}]"
        return told | {"property": known, "reason": reason, "values": values}

    def _text(self, atom: Atom) -> str:
        """Returns the text of an atom for users, with labels in place of IRIs."""
        predicate = atom.predicate
        terms = getattr(predicate, "terms", ())
        text = to_text(Not(predicate) if atom.negated else predicate)
        for term in terms:
            concept = self._vocabulary.concept(term.iri) if term.iri else None
            if concept is not None:
                text = text.replace(f"<{term.iri}>", self._vocabulary.label(concept, self._language))
        if isinstance(predicate, RelationTest) and predicate.relation in self._vocabulary.relations:
            label = self._vocabulary.relations.label(predicate.relation, self._language)
            text = text.replace(f"<{predicate.relation}>", label)
        return text

    def _value(self, atom: Atom, evaluator: AtomEvaluator, value: Value) -> dict[str, Any]:
        predicate = atom.predicate
        path: list[str] = []
        asked = predicate.item if isinstance(predicate, EveryValue) else predicate
        compared = isinstance(getattr(asked, "operand", None), AttributeRef)
        if compared or isinstance(predicate, Presence | SomeOf | EveryOf):
            verdict = None
        else:
            verdict = evaluator.satisfied_by(value)
            path = self._path(atom, value)
        told = {"published": value.published, "canonical": self._canonical(value), "path": path, "verdict": verdict}
        converted = self._converted(asked, value)
        return told if converted is None else told | {"converted": converted}

    def _converted(self, asked: object, value: Value) -> dict[str, Any] | None:
        """Returns the value in the unit of the constant with which it is compared; None if their dimensions differ or
        the constant has no unit."""
        constants = (getattr(getattr(asked, name, None), "value", None) for name in ("operand", "low", "high"))
        unit = next((each.unit for each in constants if isinstance(each, Quantity)), None)
        units = self._vocabulary.units
        if unit is None or value.amount is None or units.dimension(unit) != value.dimension:
            return None
        try:
            return {"amount": units.bare(value.amount, unit), "unit": unit}
        except InvalidQuantity:
            return None

    def _canonical(self, value: Value) -> dict[str, Any]:
        """Returns the readings of `value` by name."""
        readings: dict[str, Any] = {
            name: getattr(value, name)
            for name in ("text", "number", "boolean", "instant")
            if getattr(value, name) is not None
        }
        if value.dates is not None:
            readings["dates"] = list(value.dates)
        if value.root_word != value.text:
            readings["root_word"] = value.root_word
        if value.also:
            readings["also"] = list(value.also)
        if value.amounts is not None:
            readings["amounts"] = [None if math.isinf(end) else end for end in value.amounts]
        if value.amount is not None:
            readings["quantity"] = {"amount": value.amount, "dimension": value.dimension}
        if value.concepts:
            readings["concepts"] = [self._vocabulary.iri(concept) for concept in value.concepts]
        return readings

    def _path(self, atom: Atom, value: Value) -> list[str]:
        """Returns the labels from the published concept up to the concept in the predicate, on a shortest path. Empty
        if the published concept is not beneath it."""
        if isinstance(atom.predicate, RelationTest):
            return self._relation_path(atom.predicate, value)
        checks = checks_of(atom.predicate, self._vocabulary) or ()
        asked: set[ConceptId] = set()
        for _, test in checks:
            if isinstance(test, ConceptTest):
                asked |= test.within | test.below | test.exactly
        paths = (self._vocabulary.path(concept, upper) for concept in value.concepts for upper in sorted(asked))
        shortest = min((path for path in paths if path), key=len, default=())
        return [self._vocabulary.label(concept, self._language) for concept in shortest]

    def _relation_path(self, predicate: RelationTest, value: Value) -> list[str]:
        """Returns the labels from the published concept to the concept of a relation test. A step of the relation has
        the name of the relation before its label."""
        vocabulary = self._vocabulary
        relations = vocabulary.relations
        uppers = (vocabulary.concept(term.iri) for term in predicate.terms if term.iri is not None)
        asked = sorted({upper for upper in uppers if upper is not None})
        paths = [
            (concept, path)
            for concept in value.concepts
            for upper in asked
            if (path := relations.path(concept, predicate.relation, upper)) is not None
        ]
        if not paths:
            return []
        start, path = min(paths, key=lambda each: len(each[1]))
        name = relations.label(predicate.relation, self._language)
        labels = [(vocabulary.label(concept, self._language), taken) for concept, taken in path]
        said = [f"({name}) {label}" if taken else label for label, taken in labels]
        return [vocabulary.label(start, self._language), *said]

    def _reason(self, atom: Atom, text: str, attribute: str, verdict: bool, values: list[dict[str, Any]]) -> str:
        predicate = atom.predicate
        if isinstance(predicate, Presence):
            if attribute in self._event.attributes:
                return f"{attribute} is present"
            return f"{attribute} is absent{_members(attribute, self._event)}"
        if isinstance(predicate, EveryOf | SomeOf):
            return f"{text}: {self._of_elements(atom, attribute, verdict, values)}"
        if not values:
            return f"{text}: {self._absent(attribute)}"
        asked: Any = predicate.item if isinstance(predicate, EveryValue) else predicate
        holds = verdict != atom.negated
        if isinstance(asked, Comparison) and isinstance(asked.operand, AttributeRef):
            if not values_of(self._event, asked.operand.name):
                return f"{text}: {self._absent(asked.operand.name)}"
            if isinstance(predicate, EveryValue):
                return f"{text}: {'every' if holds else 'not every'} value satisfies it"
            return f"{text}: {'some' if holds else 'no'} pair of values satisfies"
        sentences = self._sentences(atom, attribute, values)
        return sentences or f"{text}: {self._of_values(atom, values, holds)} {self._text(Atom(asked))}"

    def _of_elements(self, atom: Atom, attribute: str, verdict: bool, values: list[dict[str, Any]]) -> str:
        """Says how many elements of an array satisfy a predicate about some or every element."""
        elements, holds = self._event.elements.get(attribute), verdict != atom.negated
        if isinstance(atom.predicate, SomeOf):
            if not elements:
                return f"{attribute} is {self._no_elements(attribute)}"
            return f"{'some' if holds else 'no'} element satisfies it"
        if not values and not elements:
            return f"{attribute} is {self._no_elements(attribute)}"
        if atom.requires == elements_of(attribute) and not elements:
            return f"{attribute} is not an array of objects"
        if atom.requires == attribute and not values:
            return f"{attribute} has no value"
        return f"{'every' if holds else 'not every'} element satisfies it"

    def _of_values(self, atom: Atom, values: list[dict[str, Any]], holds: bool) -> str:
        """Names up to three values that decide, and says whether they satisfy a predicate, which follows."""
        if isinstance(atom.predicate, EveryValue):
            said = values if holds else [each for each in values if not each["verdict"]]
        else:
            said = [each for each in values if each["verdict"]] or values
        shown = ", ".join(_shown(each) for each in said[:3]) + (" …" if len(said) > 3 else "")
        one, several = ("satisfies", "satisfy") if holds else ("does not satisfy", "do not satisfy")
        return f"{shown} {one if len(said) == 1 else several}"

    def _sentences(self, atom: Atom, attribute: str, told: list[dict[str, Any]]) -> str:
        """Returns sentences about the values that satisfy the predicate, or about all values if none does; at most
        three. Empty if one of these values has no sentence."""
        pairs = list(zip(values_of(self._event, attribute), told, strict=True))
        decisive = [pair for pair in pairs if pair[1]["verdict"]] or pairs
        found = []
        for value, each in decisive[:3]:
            if each["verdict"] is None:
                return ""
            said = sentence(atom.predicate, value, each["verdict"], self._vocabulary, self._language)
            if said is None:
                return ""
            found.append(said)
        return ", ".join(found) + (" …" if len(decisive) > 3 else "")

    def _no_elements(self, attribute: str) -> str:
        """Returns what an attribute without elements is."""
        there = attribute in self._event.attributes or _members(attribute, self._event)
        return "not an array of objects" if there else "absent"

    def _absent(self, attribute: str) -> str:
        """Returns why an attribute or aggregate has no value."""
        function, inner = aggregate_of(attribute) or ("", attribute)
        if not function or inner not in self._event.attributes:
            return f"{inner} is absent{self._instead(inner)}"
        return why_no_aggregate(attribute)

    def _instead(self, attribute: str) -> str:
        """Returns a hint at a member of an absent attribute, or at an attribute of the event with a similar name; else
        ""."""
        if members := _members(attribute, self._event):
            return members
        asked = NearNames((attribute,))
        for name in self._event.attributes:
            if not name.startswith("ce.") and asked.nearest(name) == attribute:
                return f"; the event has {name}"
        return ""


def _shown(value: dict[str, Any]) -> str:
    published = value["published"]
    if len(value["path"]) > 1:
        return f"{published!r} ({' → '.join(value['path'])})"
    return repr(published)


# ── plans of operators: why they were called in this order, and the expected cost ─────────────────────────────────────

# `explain` is about one subscription and one event. A plan depends on all subscriptions of a matcher, because the calls
# that they share determine the order.


def explain_plan(matcher: Matcher, event: Mapping[str, Any] | Event | CanonicalEvent) -> dict[str, Any]:
    """Returns the calls of operators that `matcher` makes for `event`, and why in this order, as JSON. The calls are
    really made.

    `{"planner", "candidates", "asked": [{"call", "why", "holds", "chance", "expected_seconds", "popularity", "work",
    "settled"}], "evaluations", "alone", "saved", "expected_seconds"}`. `alone` is the number of calls if the candidates
    shared none and skipped none; `saved` is the difference to `evaluations`. Raises `InvalidEvent`.
    """
    canonical = event if isinstance(event, CanonicalEvent) else matcher.canonicalise(event)
    open = matcher.open_decision(canonical, steps=True)
    open.advance()
    decision = open.decision
    steps = decision.steps or []
    return {
        "planner": matcher.planner_name,
        "candidates": open.candidates,
        "asked": [_told(step, matcher.planner_name) for step in steps],
        "evaluations": len(decision.asked),
        "alone": decision.literals,
        "saved": _saved(decision),
        "expected_seconds": sum(step.seconds for step in steps),
    }


def explain_chains(matcher: Matcher, subscription: str) -> list[dict[str, Any]]:
    """Returns the chain of operator calls of each clause of a subscription, from top to bottom, as JSON. For each call:
    the probability that it holds, its expected seconds, and the number of other clauses that share it. For each chain:
    its expected seconds without sharing, and its probability. Raises `UnknownSubscription`."""
    found = []
    for chain in chains(matcher, subscription):
        calls, passing, seconds = [], 1.0, 0.0
        for link in chain:
            seconds += passing * link.seconds
            passing *= link.passing
            calls.append(
                {
                    "call": str(link.call),
                    "wanted": link.wanted,
                    "chance": link.chance,
                    "expected_seconds": link.seconds,
                    "shared_with": matcher.layer.holders(link.call) - 1,
                }
            )
        found.append({"calls": calls, "expected_seconds": seconds, "chance": passing})
    return found


def chains(matcher: Matcher, subscription: str) -> list[list[Link]]:
    """Returns the operator calls of each clause of a subscription that has any, in the order in which the planner makes
    them for an event without other candidates. Raises `UnknownSubscription`."""
    slot = matcher._subscriptions.slot(subscription)
    matcher[subscription]  # compiles the subscription if it is stored as data
    rows = matcher._subscriptions.rows(SubscriptionSlot(slot))
    return [matcher.layer.chain(row) for row in rows if row in matcher.layer]


def _saved(decision: Decision) -> int:
    return max(decision.literals - len(decision.asked), 0)


def _told(step: Step, planner: str) -> dict[str, Any]:
    return {
        "call": str(step.call),
        "why": _why_next(step, planner),
        "holds": step.outcome,
        "chance": step.chance,
        "expected_seconds": step.seconds,
        "popularity": step.popularity,
        "work": step.work,
        "settled": step.settled,
    }


def _why_next(step: Step, planner: str) -> str:
    waiting = f"{step.popularity} undecided {'clause needs' if step.popularity == 1 else 'clauses need'} it"
    match planner:
        case "greedy":
            expected = f"up to {step.work} questions settled by one of {1e3 * step.seconds:.3g} ms"
            return f"most expected work per second: {waiting}, {expected}, chance {step.chance:.2g}"
        case "sub_order":
            return f"next from the top of the first undecided chain: {waiting}"
        case "sequential":
            return f"all calls of the first undecided clause: {waiting}"
    return f"next call of the clause: {waiting}"
