"""Compilation of one subscription: text or tree → names resolved → clauses, with notes and advice to the subscriber.

    text or tree ──language──▶ expression ──resolution──▶ resolved ──normal_form──▶ clauses of atoms

Clauses are checked against the declared event types, by rules R1 to R3 of Le Subscribe. Only events of a type can
satisfy a clause that requires the type (`ce.type = "furniture"`, or the member `types` of a subscription), so a
predicate that no such event can satisfy is an error:

    R2   a constant outside the attribute's domain: `quantity = "two"`, a member that an enumeration does not have
    R3   an attribute that none of the types has, if the types are closed

An event may have further types, so an attribute of another type only gives a note (the paper's own example asks for the
`furniture_category` of antiques). So do conditions that are merely unlikely: an undeclared type, an undeclared
attribute of an open type, `missing` on a mandatory attribute. Clauses that require no type are not checked.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import permutations
from types import MappingProxyType
from typing import Any, cast

from kindcast.index.clause import IntervalTest
from kindcast.semantic.conditions.lowering import is_expensive, unbound
from kindcast.semantic.conditions.normal_form import Atom, normal_form
from kindcast.semantic.conditions.predicates import checks_of, enumeration_of, holds_instants, read_as
from kindcast.semantic.errors import InvalidSubscription, Problem, SemanticError, UnknownUnit
from kindcast.semantic.events.advice import advice_on_unit, published_in_words
from kindcast.semantic.events.canonical_events import range_of
from kindcast.semantic.language import nearest_keyword, parse, parse_tree, to_text, to_tree
from kindcast.semantic.language.literals import is_absolute_iri
from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Between,
    CanonicalEvent,
    Comparison,
    Constant,
    EveryOf,
    EveryValue,
    Expression,
    Group,
    Instance,
    Instant,
    KindTest,
    Membership,
    Not,
    Note,
    OperatorCall,
    Position,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    Value,
    ValueConstraint,
    Variable,
    aggregate_name,
    aggregate_of,
)
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.units.kinds import (
    instant_of_epoch,
    parse_address,
    parse_dates,
    parse_instant,
    parse_network,
    parse_version,
)
from kindcast.semantic.units.measure import in_words, is_number
from kindcast.semantic.units.patterns import check_size, compile_pattern
from kindcast.semantic.vocabulary.attributes import (
    MOST_IRIS,
    AttributeDeclaration,
    AttributeScheme,
    Enumeration,
    segments_of,
)
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import EVENT_TYPES, Domain, Shape
from kindcast.semantic.vocabulary.labels import NearNames
from kindcast.semantic.vocabulary.vocabulary import Vocabulary, notes_on_term

__all__ = [
    "Compiled",
    "Resolved",
    "SeenAttributes",
    "advise",
    "as_new",
    "compile_expression",
    "compiled_again",
    "resolve",
    "restore_expression",
]

# ── resolution of names in expressions: terms become IRIs, attribute names become canonical ones ──────────────────────

# docs/matching-semantics.md, rules 2, 9, 12 to 15. All problems of a subscription are collected and raised together.
# The server stores the resolved expression, which no longer depends on labels. When it is resolved again under another
# version of the vocabulary (`stored=True`), only its IRIs are looked up. An IRI that was removed is flagged, not
# refused.


NO_VALUE = frozenset({"null", "none", "nil", "undefined", "empty"})
"""Words with which other languages write the absence of a value."""
HABITS = {
    "like": "contains",
    "ilike": "contains",
    "has": "contains",
    "includes": "contains",
    "regex": "matches",
    "regexp": "matches",
    "rlike": "matches",
    "equals": "=",
    "eq": "=",
    "ne": "!=",
    "lt": "<",
    "lte": "<=",
    "le": "<=",
    "gt": ">",
    "gte": ">=",
    "ge": ">=",
    "under": "below",
    "kindof": "isa",
    "kind_of": "isa",
    "type_of": "isa",
    "instanceof": "isa",
    "subclassof": "isa",
    "starts": "startswith",
    "ends": "endswith",
    "was": "is",
    "are": "isa",
}
"""Comparison words of other languages → the comparison of this language."""
CANDIDATES = 20
"""The maximum number of meanings that are listed for an ambiguous term."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The result of `resolve`. `expression` has every name resolved; `notes` tell the subscriber how. `kept` is the
    expression to store. It is the resolved one, except for a stored subscription: then it is the expression that was
    stored, because its IRIs and names may have another meaning again under a later version."""

    expression: Expression
    notes: tuple[Note, ...]
    kept: Expression


def resolve(
    expression: Expression,
    vocabulary: Vocabulary,
    *,
    stored: bool = False,
    operators: Mapping[str, Operator] | None = None,
) -> Resolved:
    """Replaces every name in `expression` by its meaning under `vocabulary`.

    With `stored`, a term that carries an IRI is kept even if the vocabulary no longer has the IRI (a note says so).
    Raises `InvalidSubscription` with every unknown or ambiguous term, unknown relation or operator, wrong unit,
    impossible comparison and bad pattern. Linear in the expression; a term costs one look-up.
    """
    resolver = _Resolver(vocabulary, stored, operators or {})
    resolved = resolver.expression(expression)
    if resolver.problems:
        raise InvalidSubscription(resolver.problems)
    kept = expression if stored and not resolver.relabelled else resolved
    return Resolved(resolved, tuple(dict.fromkeys(resolver.notes)), kept)


@dataclass
class _Resolver:
    vocabulary: Vocabulary
    stored: bool
    operators: Mapping[str, Operator]
    array: str = ""  # inside `some`: the whole name of the array whose elements are tested
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    relabelled: bool = False  # whether a term had no IRI yet

    def expression(self, node: Expression) -> Expression:
        match node:
            case All(items):
                return replace(node, items=tuple(self.expression(item) for item in items))
            case AnyOf(items):
                return replace(node, items=tuple(self.expression(item) for item in items))
            case Not(item):
                return replace(node, item=self.expression(item))
            case EveryValue(item):
                return replace(node, item=cast(Any, self.expression(item)))
            case SomeOf(attribute, item) | EveryOf(attribute, item):
                around, name = self.array, self.name(attribute, node.at)
                self.array = f"{around}.{name}" if around else name
                inner = self.expression(item)
                self.array = around
                return replace(node, attribute=name, item=inner)
            case KindTest(attribute, _, terms):
                name = self.name(attribute, node.at)
                return replace(node, attribute=name, terms=tuple(self.term(name, term) for term in terms))
            case Comparison():
                return self.comparison(node)
            case Membership(attribute, constants):
                name = self.name(attribute, node.at)
                kind = read_as(self.declared_as(name), self.vocabulary)
                if kind is not None:
                    for constant in constants:
                        self.of_kind(name, kind, constant, networks=True)
                    return replace(node, attribute=name)
                return replace(node, attribute=name, constants=tuple(self.constant(name, each) for each in constants))
            case Between():
                return self.between(node)
            case Presence(attribute):
                return replace(node, attribute=self.name(attribute, node.at))
            case TextTest():
                return self.text_test(node)
            case RelationTest(attribute, _, terms):
                name = self.name(attribute, node.at)
                relation = self.relation(name, node)
                if relation is None:
                    return node  # the word may not be a relation, and the words after it may not be concepts
                resolved = tuple(self.term(name, term, ranged=False) for term in terms)
                return replace(node, attribute=name, relation=relation, terms=resolved)
            case OperatorCall(at=at) | ValueConstraint(at=at) if self.array:
                detail = "an operator reads the whole event, not one element: write the call outside of some and every"
                self.flagged("operator-in-elements", self.array, detail, at)
                return node
            case OperatorCall():
                return self.call(node)
            case ValueConstraint():
                return node
            case Group(item):
                return replace(node, item=self.expression(item))

    def call(self, node: OperatorCall) -> OperatorCall:
        """Resolves attributes and terms among the arguments. Checks that the operator exists and accepts these
        arguments."""
        arguments = tuple(map(self.argument, node.arguments))
        operator = self.operators.get(node.name)
        if operator is None:
            detail = f"no operator has the name {node.name!r}"
            if self.stored:
                self.notes.append(Note("operator-gone", "", f"{detail}: this call never holds"))
            else:
                if not self.operators:
                    detail += "; this matcher has no operators (a server has the built-in ones)"
                near = get_close_matches(node.name, self.operators, n=3)
                self.problem("unknown-operator", detail, node.at, tuple({"label": name} for name in near))
        elif not self.stored:
            misfit = operator.misfit(arguments)
            if misfit is not None:
                self.problem("wrong-arguments", f"{node.name}: {misfit}", node.at)
            elif (unreadable := operator.unreadable(arguments)) is not None:
                self.problem("bad-constant", f"{node.name}: {unreadable}", node.at)
        return replace(node, arguments=arguments)

    def argument(self, argument: Constant | AttributeRef | Variable) -> Constant | AttributeRef | Variable:
        if isinstance(argument, AttributeRef):
            return replace(argument, name=self.name(argument.name, argument.at))
        if isinstance(argument, Constant) and isinstance(argument.value, Term):
            return replace(argument, value=self.term("", argument.value))
        return argument

    # ── names and terms ─────────────────────────────────────────────────────────────────────────────────────────

    def name(self, raw: str, at: Position | None) -> str:
        aggregate = aggregate_of(raw)
        if aggregate is not None:
            return aggregate_name(aggregate[0], self.name(aggregate[1], at))
        if not raw and not self.stored:
            self.problem("empty-name", "an attribute must have a name", at)
        if self.array and raw.startswith("ce."):
            detail = f"only the event has {raw}, elements of {self.array} have not"
            detail += "; the type of an element is @type" if raw == "ce.type" else ""
            self.notes.append(Note("context-of-element", raw, detail))
        return self.vocabulary.attributes.asked(raw, self.array)

    def declaration(self, name: str) -> AttributeDeclaration | None:
        return self.vocabulary.attributes.declaration(self.declared_as(name))

    def declared_as(self, name: str) -> str:
        return self.vocabulary.attributes.declared_as(name, self.array)

    def term(self, attribute: str, term: Term, *, ranged: bool = True, written: bool = True) -> Term:
        """Returns `term` with the IRI of the concept that it means. `ranged=False` ignores the declared range of the
        attribute, because a relation leads to other concepts. `written=False` is for a string: it is resolved here, but
        stored as a string."""
        vocabulary = self.vocabulary
        if term.iri is not None or (self.stored and term.is_iri):
            return self.kept(attribute, term.iri or term.text, term)
        self.relabelled |= written
        scope = range_of(self.declaration(attribute), vocabulary) if ranged else ()
        found = vocabulary.resolve(term.text, is_iri=term.is_iri, within=scope, asked=written)
        self.notes.extend(notes_on_term(attribute, term.text, found, vocabulary))
        if len(found.candidates) == 1:
            # The name that was found is stored, not the preferred name of its concept. If a later version removes an
            # equivalence, the subscription keeps the concept that its author named (rule 14).
            return replace(term, iri=found.iris[0] if len(found.iris) == 1 else vocabulary.iri(found.candidates[0]))
        several = found.candidates or (() if term.is_iri else vocabulary.with_local_name(term.text).candidates)
        if len(several) > 1:
            listed = [(concept, vocabulary.curie(concept)) for concept in several[:CANDIDATES]]
            ways = [curie or f"<{vocabulary.iri(concept)}>" for concept, curie in listed]
            detail = f"{term.text!r} may mean several concepts: write the one that you mean, as {' or '.join(ways[:3])}"
            candidates = tuple({**vocabulary.summary(concept), "curie": curie} for concept, curie in listed)
            self.problem("ambiguous-term", detail, term.at, candidates)
        else:
            self.problem("unknown-concept", *self.unknown(attribute, term))
        return term

    def unknown(self, attribute: str, term: Term) -> tuple[str, Position | None, tuple[dict[str, object], ...]]:
        """Returns the detail, position and suggestions of the problem that no concept has the name `term`. Suggests the
        concept with another spelling of the name first, then similar names: after `SUGGESTED` problems nothing, because
        the search takes milliseconds."""
        vocabulary = self.vocabulary
        detail = f"no concept has the name {term.text!r}"
        if term.text.casefold() in NO_VALUE:
            return f"{detail}; to ask for absence write {attribute} missing", term.at, ({"label": "missing"},)
        if not len(vocabulary):
            return f"{detail}: the vocabulary is empty; load an ontology first", term.at, ()
        if len(self.problems) >= SUGGESTED:
            return detail, term.at, ()
        respelt = vocabulary.respelt(term.text).candidates
        if respelt and "://" in term.text:
            meant = vocabulary.iri(respelt[0])
            return f"{detail}, but a concept has the name {meant}", term.at, (vocabulary.summary(respelt[0]),)
        near = vocabulary.suggest(term.text)
        first = [{"label": vocabulary.label(each), "lang": None, "iri": vocabulary.iri(each)} for each in respelt]
        others = [each for each in near if all(each["iri"] != one["iri"] for one in first)]
        return detail, term.at, (*first, *others)[: max(len(near), 1)]

    def kept(self, attribute: str, iri: str, term: Term) -> Term:
        """Returns a term that was resolved before with its IRI or the replacement of its IRI. An IRI that is no longer
        in the vocabulary is kept, and a note says so (rule 14)."""
        vocabulary = self.vocabulary
        successor = vocabulary.replacement(iri)
        if successor is not None:
            self.notes.append(Note("deprecated-term", attribute, f"{iri} is deprecated: {successor} is used instead"))
            return replace(term, text=successor, is_iri=True, iri=successor)
        if vocabulary.concept(iri) is None:
            detail = (
                f"{iri} is no longer in the vocabulary: until it is back, no value is this concept or beneath it, and "
                f"a negation that names it never holds"
            )
            self.notes.append(Note("gone-concept", attribute, detail))
        return replace(term, text=iri, is_iri=True, iri=iri)

    def relation(self, attribute: str, node: RelationTest) -> str | None:
        """Returns the IRI of the relation, or None after reporting a problem. A stored relation that is no longer in
        the vocabulary is kept, and a note says so (rule 14)."""
        relations = self.vocabulary.relations
        written = node.relation
        if self.stored and (":" in written or written in relations):
            if written not in relations:
                detail = (
                    f"the relation {written} is no longer in the vocabulary: this predicate never holds until it "
                    f"is back"
                )
                self.notes.append(Note("gone-relation", attribute, detail))
            return written
        meant = self.vocabulary.relation(written)
        if len(meant) == 1:
            return meant[0]
        if meant:
            detail = f"{written!r} may mean several relations: write one of them as <IRI>"
            candidates: list[dict[str, object]] = [{"label": relations.label(iri), "iri": iri} for iri in meant[:20]]
            self.problem("ambiguous-relation", detail, node.at, tuple(candidates))
            return None
        known = ", ".join(relations.label(iri) for iri in list(relations)[:10])
        there = f"known are isa, below, is and {known}" if known else "known are isa, below and is"
        near = list(relations.names.near(written, 3)) if len(self.problems) < SUGGESTED else []
        keyword = HABITS.get(written.casefold()) or nearest_keyword(written)
        suggestions: list[dict[str, object]] = [{"label": each} for each in ([keyword] if keyword else []) + near]
        detail = f"no relation has the name {written!r}; {there} (request relations when you upload an ontology)"
        self.problem("unknown-relation", detail, node.at, tuple(suggestions))
        return None

    # ── constants ───────────────────────────────────────────────────────────────────────────────────────────────

    def comparison(self, node: Comparison) -> Comparison:
        name = self.name(node.attribute, node.at)
        if isinstance(node.operand, AttributeRef):
            other = self.name(node.operand.name, node.operand.at)
            operand: Constant | AttributeRef = replace(node.operand, name=other)
            if self.declaration(other) is None and aggregate_of(other) is None:
                detail = self.of_operand(name, node.operand.name)
                self.notes.append(Note("attribute-operand", name, detail))
            if other == name:
                detail = f"both sides are {name}, so this compares its values with each other"
                self.notes.append(Note("same-attribute", name, detail))
            return replace(node, attribute=name, operand=operand)
        counts = (aggregate_of(name) or ("",))[0] == "count"
        if counts and (node.order, node.operand.value) in (("=", 0), ("<=", 0), ("<", 1)):
            self.flagged("absent-count", name, "an absent attribute has no count: write `missing` instead", node.at)
        kind = read_as(self.declared_as(name), self.vocabulary)
        if kind is not None:
            ordered = node.order not in ("=", "!=")
            self.of_kind(name, kind, node.operand, ordered=ordered)
            return replace(node, attribute=name)
        if node.order in ("=", "!="):
            return replace(node, attribute=name, operand=self.constant(name, node.operand))
        self.ordered(name, node.operand)
        return replace(node, attribute=name)

    def of_operand(self, name: str, operand: str) -> str:
        """Returns the detail of the note that an operand without quotes is another attribute of the event, with the
        alternatives that the author may have meant."""
        if len(self.vocabulary.resolve(operand, asked=True).candidates) == 1:
            return (
                f"{operand} is read as an attribute of the event, not as the concept of this name: write "
                f'{name} isa {operand}, or "{operand}" in quotes to compare texts'
            )
        read = f"{operand} is read as an attribute of the event"
        if operand.lower() in NO_VALUE:
            return f"{read}; to ask whether there is a value, write {name} exists or {name} missing"
        if operand.lower() in ("true", "false"):
            return f"{read}; a truth value is {operand.lower()}"
        return f"{read}; write a string in quotes"

    def between(self, node: Between) -> Between:
        name = self.name(node.attribute, node.at)
        kind = read_as(self.declared_as(name), self.vocabulary)
        if kind is not None:
            for constant in (node.low, node.high):
                self.of_kind(name, kind, constant, ordered=True)
            return replace(node, attribute=name)
        kinds = {self.ordered(name, node.low), self.ordered(name, node.high)}
        if len(kinds - {None}) > 1:
            detail = (
                "both ends must have one kind: two numbers, quantities of one dimension, two date-times or two strings"
            )
            far = [each for each in (node.low.value, node.high.value) if self.is_beyond_time(name, each)]
            if far:
                detail = (
                    f"{name} holds date-times, but {far[0]} is not a date-time in seconds or milliseconds since 1970"
                )
            self.problem("mixed-ends", detail, node.at)
        return replace(node, attribute=name)

    def is_beyond_time(self, name: str, value: Any) -> bool:
        """Whether the attribute holds date-times, and the value is a number that is not one."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and holds_instants(self.declared_as(name), self.vocabulary) and instant_of_epoch(value) is None

    def constant(self, name: str, constant: Constant) -> Constant:
        """Resolves an operand of `=`, `!=` or `in`. Terms are resolved; strings are too if the attribute holds concepts
        (rule 9). A stored string stays one, whatever was declared since (rule 14)."""
        value = constant.value
        declaration = self.declaration(name)
        if isinstance(value, Term):
            return replace(constant, value=self.instance(name, value) or self.term(name, value))
        holds_concepts = declaration is not None and declaration.kind == "concept"
        if isinstance(value, str) and holds_concepts and not (self.stored or constant.is_text):
            term = Term(value, at=constant.at)
            return replace(constant, value=self.instance(name, term) or self.term(name, term, written=False))
        listed = enumeration_of(self.declared_as(name), self.vocabulary)
        if isinstance(value, str) and listed is not None and self.vocabulary.root_word(value) not in listed.members:
            near = get_close_matches(value[:100], listed.members, n=3) if len(self.notes) < SUGGESTED else []
            detail = f"{value!r} is not a member of {name}" + (f" (near: {', '.join(near)})" if near else "")
            self.notes.append(Note("not-a-member", name, detail))
        elif isinstance(value, str):
            self.quoted(name, value)
        self.checked(name, constant)
        return constant

    def of_kind(
        self, name: str, kind: str, constant: Constant, *, ordered: bool = False, networks: bool = False
    ) -> None:
        """Checks a constant that is compared with versions or IP addresses: it must be one itself (rule 26)."""
        text = constant.value if isinstance(constant.value, str) else ""
        if kind == "ip" and ordered:
            self.flagged("no-order", name, "IP addresses have no order: use =, or in with a network", constant.at)
        elif kind == "version" and parse_version(text) is None:
            how = (
                f'{text[:40]!r} is not a version such as "2.4.50"'
                if text
                else 'this is not a version: write it in quotes, such as "2.4.50"'
            )
            detail = f"{name} has versions, but {how}"
            self.flagged("unreadable-constant", name, detail, constant.at)
        elif kind == "ip" and parse_address(text) is None and (parse_network(text) is None or not networks):
            how = "this is not an IP address: write it in quotes, or write a network such as 10.0.0.0/8 after in"
            if parse_network(text) is not None:
                how = f"{text} is a network: write {name} in {text}"
            elif text:
                how = f"{text[:40]!r} is neither an IP address nor a network"
            detail = f"{name} has IP addresses, but {how}"
            self.flagged("unreadable-constant", name, detail, constant.at)

    def instance(self, attribute: str, term: Term) -> Instance | None:
        """Returns the instance that an absolute IRI names if no vocabulary has the IRI (rule 25). Returns None for any
        other term and for a term that was resolved before."""
        if term.iri is not None or (self.stored and term.is_iri):
            return None
        if not is_absolute_iri(term.text, quoted=not term.is_iri):
            return None
        if self.vocabulary.resolve(term.text, is_iri=term.is_iri).candidates:
            return None
        respelt = self.vocabulary.respelt(term.text).candidates
        meant = f"; a concept has the name {self.vocabulary.iri(respelt[0])}" if respelt else ""
        detail = f"no concept has the name {term.text!r}: values are compared with it as an IRI{meant}"
        self.notes.append(Note("unknown-iri", attribute, detail))
        return Instance(term.text)

    def ordered(self, name: str, constant: Constant) -> str | None:
        """Checks an operand of `<`, `<=`, `>`, `>=` or `between` and returns its kind."""
        value = constant.value
        if isinstance(value, bool | Term | Instance):
            what = "true and false have" if isinstance(value, bool) else "a concept has"
            self.problem("no-order", f"{what} no order: use =, != or isa", constant.at)
            return None
        listed = enumeration_of(self.declared_as(name), self.vocabulary)
        if isinstance(value, str) and listed is not None:
            return self.ordered_member(name, value, listed, constant.at)
        self.checked(name, constant)
        if isinstance(value, Instant) or (isinstance(value, str) and parse_instant(value) is not None):
            return "instant"
        if holds_instants(self.declared_as(name), self.vocabulary):
            if isinstance(value, str) and parse_dates(value, year=True) is not None:
                return "instant"
            if isinstance(value, int | float) and instant_of_epoch(value) is not None:
                return "instant"
        if isinstance(value, Quantity):
            return self.dimension(value.unit)
        if isinstance(value, str):
            self.quoted(name, value)
            return "text"
        declaration = self.declaration(name)
        return "number" if declaration is None or declaration.unit is None else self.dimension(declaration.unit)

    def quoted(self, name: str, text: str) -> None:
        """Adds a note if a quoted constant looks like a quantity or a date-time: it is compared as a text (rule 9)."""
        declaration = self.declaration(name)
        if declaration is not None and declaration.kind == "text":
            return
        if holds_instants(self.declared_as(name), self.vocabulary) and parse_instant(text) is not None:
            detail = f"{text!r} is compared as a text: leave out the quotes to compare the date-time"
            self.notes.append(Note("quoted-date-time", name, detail))
        if self.vocabulary.units.parse(text) is not None:
            detail = f"{text!r} is compared as a text: leave out the quotes to compare the quantity"
            self.notes.append(Note("quoted-quantity", name, detail))

    def ordered_member(self, name: str, value: str, listed: Enumeration, at: Position | None) -> str:
        """Checks a member of an enumeration in an ordered comparison. Members have the declared order and no other
        (rule 9)."""
        if not listed.is_ordered:
            detail = f"{name} is an enumeration without an order: use = or in, or declare an order"
            self.flagged("no-order", name, detail, at)
        elif self.vocabulary.root_word(value) not in listed.members:
            near = get_close_matches(value[:100], listed.members, n=5) if len(self.problems) < SUGGESTED else []
            detail = f"{value!r} is not a member of {name}, so it has no place in its order"
            self.flagged(
                "not-in-enumeration", name, detail, at, tuple({"label": each} for each in near or listed.members[:5])
            )
        return "enumeration"

    def checked(self, name: str, constant: Constant) -> None:
        """Checks that a unit is known and fits the declared unit of the attribute, and that a date-time is valid."""
        value = constant.value
        if isinstance(value, Instant) and parse_instant(value.text) is None and parse_dates(value.text) is None:
            detail = f"{value.text} is neither a date-time of RFC 3339 nor a date between July 1684 and June 2255"
            self.problem("bad-date-time", detail, constant.at)
        if not isinstance(value, Quantity):
            return
        units = self.vocabulary.units
        declaration = self.declaration(name)

        def measure() -> None:
            dimension = units.dimension(value.unit, suggest=len(self.problems) < SUGGESTED)
            if declaration is not None and declaration.unit is not None:
                expected = units.dimension(declaration.unit)
                if expected != dimension:
                    detail = f"{value.unit!r} is not a unit of {name}, which has {declaration.unit} ({expected})"
                    self.flagged("wrong-dimension", name, detail, constant.at)

        self.attempt("unknown-unit", measure, constant.at)

    def dimension(self, unit: str) -> str | None:
        """Returns the dimension of a unit; None for an unknown unit, which was reported before."""
        units = self.vocabulary.units
        return units.dimension(unit) if units.knows(unit) else None

    def text_test(self, node: TextTest) -> TextTest:
        if node.test == "matches":
            self.attempt("bad-pattern", lambda: self._pattern(node), node.at)
        return replace(node, attribute=self.name(node.attribute, node.at))

    def _pattern(self, node: TextTest) -> None:
        pattern = compile_pattern(node.text, node.nocase)
        if not self.stored:
            check_size(pattern)

    # ── problems ────────────────────────────────────────────────────────────────────────────────────────────────

    def attempt(self, code: str, check: Callable[[], object], at: Position | None) -> None:
        try:
            check()
        except UnknownUnit as error:
            suggestions: tuple[dict[str, object], ...] = tuple({"label": each} for each in error.suggestions)
            self.problem(code, f"unknown unit {error.unit!r}: {error.detail}", at, suggestions)
        except SemanticError as error:
            self.problem(code, str(error), at)

    def flagged(
        self,
        code: str,
        attribute: str,
        detail: str,
        at: Position | None,
        suggestions: tuple[dict[str, object], ...] = (),
    ) -> None:
        """Reports a problem of a new subscription. For a stored subscription it adds a note instead: the subscription
        was valid when it was created, so a later declaration must not remove it. It keeps the meaning that is left
        (rule 14)."""
        if self.stored:
            self.notes.append(Note(code, attribute, detail))
        else:
            self.problem(code, detail, at, suggestions)

    def problem(
        self, code: str, detail: str, at: Position | None, suggestions: tuple[dict[str, object], ...] = ()
    ) -> None:
        self.problems.append(Problem(code, detail, at, suggestions))


TYPE = "ce.type"
NUMBERS = frozenset({"number", "integer"})
MOST_TOLD = 100
"""The maximum number of problems, and of notes, that are reported for one subscription."""
MOST_JUDGED = 64
"""The maximum number of event types in a clause that is checked. A clause with more types is meant for browsing."""
SUGGESTED = 10
"""The number of names of one subscription for which similar names are searched. Each search compares the name with all
known names."""


class SubscriptionCheck:
    """Checks the clauses of one subscription against the event types, and collects `problems` and `notes`. Linear in
    their atoms."""

    def __init__(self, schemas: EventSchemas, attributes: AttributeScheme) -> None:
        self._schemas = schemas
        self._attributes = attributes
        self._having = schemas.having(attributes)
        self._sought = 0
        self._problems: dict[tuple[str, str], Problem] = {}
        self._notes: dict[Note, None] = {}

    @property
    def problems(self) -> list[Problem]:
        """The problems, each once, although clauses may share an atom."""
        return list(self._problems.values())

    @property
    def notes(self) -> list[Note]:
        return list(self._notes)

    def clause(self, atoms: Sequence[Atom]) -> None:
        """Checks one clause, whose terms and names are resolved."""
        asked = [types for atom in atoms if (types := _types_asked(atom))]
        for name in sorted({each for types in asked for each in types} - self._schemas.types.keys()):
            near = self._near(name, self._schemas.types)
            hint = f" (near: {', '.join(near)})" if near else ""
            self._note("undeclared-type", TYPE, f"no event type {name!r} is declared{hint}")
        known = [types for types in asked if types <= self._schemas.types.keys()]
        if not known:
            return
        types = frozenset().union(*known)
        if len(types) > MOST_JUDGED:
            return
        is_closed = any(all(self._schemas.types[name].shape.closed for name in each) for each in known)
        for atom in atoms:
            for name in atom.attributes or (getattr(atom.predicate, "attribute", ""),):
                plain = name.removesuffix("[]")
                if plain and not plain.startswith("ce.") and plain != EVENT_TYPES:
                    self._attribute(atom, plain, types, is_closed=is_closed)

    def _attribute(self, atom: Atom, name: str, types: frozenset[str], *, is_closed: bool) -> None:
        predicate = atom.predicate
        told = " or ".join(sorted(types))
        owners = self._having.get(name, frozenset())
        if owners & types or any(_leads_to(self._schemas.types[each].shape, name.split(".")) for each in types):
            domain = self._schemas.domains.get(name)
            mandatory = all((use := self._schemas.uses[each].get(name)) and use.mandatory for each in types)
            if isinstance(predicate, Presence) and not predicate.present and mandatory:
                self._note("mandatory-attribute", name, f"{name} is mandatory for {told}, so it is never missing (R2)")
            elif domain is not None and getattr(predicate, "attribute", None) == name:
                self._operands(name, predicate, domain)
            return
        if isinstance(predicate, Presence) and not predicate.present:
            return
        if owners:
            also = " or ".join(sorted(owners)[:5])
            detail = f"{name} is not an attribute of {told}: only events that are also of type {also} have it"
            self._note("attribute-of-other-type", name, detail)
            return
        near = self._near(name, sorted({use for each in types for use in self._schemas.uses[each]}))
        if is_closed:
            detail = f"{name} is not an attribute of {told}, which is closed, nor of another type: no event has it (R3)"
            suggestions = tuple(map(self._attributes.suggestion, near))
            self._problem("unknown-attribute", detail, getattr(predicate, "at", None), suggestions)
        else:
            hint = f" (near: {', '.join(map(self._attributes.in_words, near))})" if near else ""
            self._note("undeclared-attribute", name, f"{name} is not a declared attribute of {told}{hint}")

    def _operands(self, name: str, predicate: Any, domain: Domain) -> None:
        """Checks rule R2: every constant is in the domain of the attribute."""
        for constant in _constants(predicate):
            expected = _outside(domain, constant.value if isinstance(constant, Constant) else constant)
            if expected is not None:
                at = getattr(constant, "at", None) or getattr(predicate, "at", None)
                self._problem("not-in-domain", f"{name} holds {expected}: this can never hold (R2)", at)
        enumeration = getattr(self._attributes.declaration(name), "enumeration", None)
        if enumeration is not None and isinstance(predicate, Comparison | Membership):
            for constant in _constants(predicate):
                if isinstance(constant.value, str):
                    member = self._attributes.synonyms.get(constant.value, constant.value)
                    if member not in enumeration.members:
                        near = self._near(member, enumeration.members)
                        detail = f"{constant.value!r} is not a member of {name}: this can never hold (R2)"
                        self._problem("not-in-domain", detail, constant.at, tuple({"label": each} for each in near))

    def _near(self, word: str, known: Iterable[str]) -> list[str]:
        self._sought += 1
        return difflib.get_close_matches(word[:100], known, 3) if self._sought <= SUGGESTED else []

    def _problem(
        self, code: str, detail: str, at: Position | None, suggestions: tuple[dict[str, Any], ...] = ()
    ) -> None:
        if len(self._problems) < MOST_TOLD:
            problem = Problem(code, detail, at, suggestions)
            self._problems.setdefault((str(at), detail), problem)

    def _note(self, code: str, attribute: str, detail: str) -> None:
        if len(self._notes) < MOST_TOLD:
            self._notes.setdefault(Note(code, attribute, detail))


def _types_asked(atom: Atom) -> frozenset[str]:
    """Returns the types of which an event must have one to satisfy the atom. Empty if the atom names no type."""
    match atom:
        case Atom(Comparison(attribute="ce.type", order="=", operand=Constant(value=str(name))), False):
            return frozenset({name})
        case Atom(Membership(attribute="ce.type", constants=constants), False):
            names = [constant.value for constant in constants]
            return frozenset(each for each in names if isinstance(each, str)) if _all_texts(names) else frozenset()
        case _:
            return frozenset()


def _all_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


def _leads_to(shape: Shape, segments: Sequence[str]) -> bool:
    """Whether a dotted name leads to a member that the shape describes, or into an object whose members it does not
    describe."""
    for segment in segments:
        shape = shape.items if shape.items is not None and not shape.members else shape
        if segment not in shape.members:
            return not shape.members and not shape.closed and shape.types is not None and shape.allows("object")
        shape = shape.members[segment]
    return True


def _constants(predicate: Any) -> Iterator[Any]:
    yield from _compared_constants(predicate)
    match predicate:
        case KindTest(terms=terms) | RelationTest(terms=terms):
            yield from terms[:1]
        case TextTest(text=text):
            yield Constant(text, at=predicate.at)


def _outside(domain: Domain, value: Any) -> str | None:
    """Returns a description of the domain if no value of the domain can be compared with the constant; otherwise
    None."""
    types = domain.types
    if types is None:
        return None
    told = " or ".join(sorted(types)) or "nothing"
    match value:
        case bool():
            return None if "boolean" in types else told
        case str() | Instant() | Instance() | Term():
            return None if "string" in types else told
        case Quantity(unit=unit):
            if domain.unit is None and domain.unit_from is None and not types & {"string", "object"}:
                return f"{told} without a unit, not {unit}"
            return None
        case _:
            return None if types & NUMBERS or domain.is_numeric or "object" in types else told


VERIFIED_COST = 10.0
"""The cost of an atom that no column decides, relative to an atom that a column decides. It is verified for each
candidate."""
SECOND_COST = 1e5
"""The cost of one second of an operator in the same measure. A call of one millisecond costs as much as ten verified
atoms."""


class Compiled:
    """A subscription compiled for matching under one vocabulary. Immutable.

    `tree` is the expression to store, as JSON: the resolved expression with IRIs instead of labels, or the stored tree
    if the subscription was restored. `notes` are for the subscriber. The other properties are computed at the first
    access.
    """

    def __init__(self, tree: dict[str, Any], notes: tuple[Note, ...], meaning: "Callable[[], Meaning]") -> None:
        self.tree = tree
        self.notes = notes
        self._make = meaning

    @cached_property
    def _meaning(self) -> "Meaning":
        return self._make()

    @property
    def expression(self) -> Expression:
        """The resolved expression."""
        return self._meaning.expression

    @property
    def clauses(self) -> tuple[tuple[Atom, ...], ...]:
        """The disjunctive normal form of the expression."""
        return self._meaning.clauses

    @cached_property
    def canonical(self) -> str:
        """The resolved expression as text."""
        return to_text(self.expression)

    @cached_property
    def cost(self) -> float:
        """The relative cost: 1 for each atom that a column of the index decides, 10 for each atom that must be verified
        on candidates, and for a call of an operator its declared seconds times `SECOND_COST`."""
        of = self._meaning
        return sum(_cost(atom, of.vocabulary, of.operators) for clause in of.clauses for atom in clause)

    @property
    def clause_count(self) -> int:
        """The number of clauses. A subscription without clauses can never match."""
        return len(self.clauses)

    def with_notes(self, notes: tuple[Note, ...]) -> "Compiled":
        """Returns the same compiled subscription with other notes."""
        return Compiled(self.tree, notes, lambda: self._meaning)


Operators = Mapping[str, Operator]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The resolved expression and clauses of a subscription under one vocabulary."""

    expression: Expression
    clauses: tuple[tuple[Atom, ...], ...]
    vocabulary: Vocabulary
    operators: Operators


def compile_expression(
    expression: str | Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compiles a new subscription. Raises `InvalidSubscription` with every problem."""
    return _compiled(parse(expression), vocabulary, operators, stored=False)


def restore_expression(
    tree: Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compiles a stored tree again, possibly under another vocabulary (rule 14). An IRI is kept or replaced by its
    successor. If an IRI is no longer in the vocabulary, a note says so, and no value is beneath it. The tree itself
    is not changed, so that it can be compiled under later versions."""
    return _compiled(parse_tree(tree), vocabulary, operators, stored=True)


def as_new(tree: Mapping[str, Any], vocabulary: Vocabulary, array: str = "") -> Mapping[str, Any]:
    """Returns a stored tree in a form that has the same meaning as a new subscription: a text whose attribute was
    declared to hold concepts later is written as `{"value": …}`. Returns the tree itself if it has no such text. Inside
    `some`, `array` is the full name of the array."""
    ((key, body),) = tree.items()
    match key, body:
        case (("all" | "any"), [*items]):
            told: Any = [as_new(item, vocabulary, array) for item in items]
        case (("not" | "every"), dict(item)):
            told = as_new(item, vocabulary, array)
        case (("some" | "every"), [str(name), dict(item)]):
            told = [name, as_new(item, vocabulary, f"{array}.{name}" if array else name)]
        case (("=" | "!=" | "in"), [str(name), operand]):
            attributes = vocabulary.attributes
            declaration = attributes.declaration(attributes.declared_as(attributes.asked(name, array), array))
            if declaration is None or declaration.kind != "concept":
                return tree
            several = operand if isinstance(operand, list) else [operand]
            texts = [{"value": each} if isinstance(each, str) else each for each in several]
            told = [name, texts if isinstance(operand, list) else texts[0]]
        case _:
            return tree
    return tree if told == body else {key: told}


def compiled_again(
    tree: dict[str, Any], notes: tuple[Note, ...], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Returns a subscription that was compiled before under this vocabulary, with the notes of that time. Its meaning
    is compiled at the first access."""
    return Compiled(tree, notes, lambda: restore_expression(tree, vocabulary, operators)._meaning)


def _compiled(expression: Expression, vocabulary: Vocabulary, operators: Operators, *, stored: bool) -> Compiled:
    try:
        resolved = resolve(expression, vocabulary, stored=stored, operators=operators)
    except InvalidSubscription as error:
        raise InvalidSubscription([*error.problems, *unbound(normal_form(expression))]) from None
    clauses = normal_form(resolved.expression)
    problems = unbound(clauses)
    if problems:
        raise InvalidSubscription(problems)
    notes = [*resolved.notes, *_typed(clauses, vocabulary, stored=stored)]
    if not clauses:
        notes.append(Note("never-matches", "", "the expression contradicts itself: no event can match it"))
    meaning = Meaning(resolved.expression, clauses, vocabulary, operators)
    return Compiled(to_tree(resolved.kept), tuple(notes), lambda: meaning)


def _typed(clauses: tuple[tuple[Atom, ...], ...], vocabulary: Vocabulary, *, stored: bool) -> list[Note]:
    """Checks the clauses against the declared event types and returns the notes. For a stored subscription, problems
    become notes, whatever was declared since. Raises `InvalidSubscription`."""
    if not vocabulary.schemas:
        return []
    check = SubscriptionCheck(vocabulary.schemas, vocabulary.attributes)
    for atoms in clauses:
        check.clause(atoms)
    if check.problems and not stored:
        raise InvalidSubscription(check.problems)
    told = [Note(each.code, "", each.detail) for each in check.problems]
    return [*check.notes, *told]


def _cost(atom: Atom, vocabulary: Vocabulary, operators: Operators) -> float:
    predicate = atom.predicate
    if isinstance(predicate, OperatorCall):
        return operators[predicate.name].cost * SECOND_COST if predicate.name in operators else 0.0
    if isinstance(predicate, Group):
        return sum(_cost(each, vocabulary, operators) for clause in normal_form(predicate.item) for each in clause)
    if is_expensive(atom):
        return 1.0
    return 1.0 if checks_of(predicate, vocabulary) is not None else VERIFIED_COST


# ── advice: notes for a subscriber whose expression is valid but may never match ──────────────────────────────────────

# Notes about similar names, surprising units, and numbers where recent events have quantities.
#
# Advice is given when a subscription is created or checked. It is never stored, because the attributes of recent events
# change by the hour. It changes no meaning and reveals no value of an event: a subscriber may not be allowed to read
# what others publish.


MOST_ATOMS = 64
"""The maximum number of predicates of one subscription for which advice is computed."""
MOST_ADVICE = 20
ENVELOPE = frozenset(
    {"id", "source", "type", "subject", "time", "dataschema", "datacontenttype", "specversion", "received"}
)


@dataclass(frozen=True)
class SeenAttributes:
    """The attributes of recent events, most frequent first. Each has one example value of every kind that it had:
    `number`, `text`, or the dimension of a quantity. `names` holds the names of these and of all declared attributes.
    Immutable."""

    kinds: Mapping[str, Mapping[str, Value]]
    names: NearNames

    @classmethod
    def of(cls, events: Iterable[CanonicalEvent], vocabulary: Vocabulary) -> "SeenAttributes":
        """Collects the attributes of `events`. Linear in their values."""
        found: dict[str, dict[str, Value]] = {}
        count: dict[str, int] = {}
        for event in events:
            for name, values in event.attributes.items():
                kinds = found.setdefault(name, {})
                count[name] = count.get(name, 0) + 1
                for value in values:
                    for kind in _kinds(value):
                        kinds.setdefault(kind, value)
        ordered = {name: found[name] for name in sorted(found, key=lambda name: -count[name])}
        return cls(ordered, NearNames((*vocabulary.declared_names, *ordered)))


def advise(compiled: Compiled, vocabulary: Vocabulary, seen: SeenAttributes | None = None) -> tuple[Note, ...]:
    """Returns advice for the author of a subscription, in addition to its notes. Costs some µs per predicate. The first
    unknown attribute of a vocabulary costs some ms at thousands of properties."""
    found: dict[Note, None] = {}
    known = vocabulary.near_names if seen is None else seen.names
    for atom in _atoms(compiled):
        found.update(dict.fromkeys(_of_names(atom, known, vocabulary.attributes)))
        found.update(dict.fromkeys(_of_constants(atom, vocabulary, seen)))
        if len(found) >= MOST_ADVICE:
            break
    found.update(dict.fromkeys(_of_variables(compiled)))
    return tuple(found)[:MOST_ADVICE]


def _of_variables(compiled: Compiled) -> Iterator[Note]:
    """Yields a note for each plain number that is compared with a variable for quantities, as the operator declares."""
    operators = compiled._meaning.operators
    for clause in compiled.clauses:
        predicates = [atom.predicate for atom in clause]
        calls = [each for each in predicates if isinstance(each, OperatorCall) and each.name in operators]
        givers = {name: call.name for call in calls for name in _quantities_of(call, operators[call.name])}
        for constraint in (each for each in predicates if givers and isinstance(each, ValueConstraint)):
            for one, other in permutations((constraint.left, constraint.right)):
                if isinstance(one, Variable) and one.name in givers and isinstance(other, Constant):
                    number = other.value
                    if isinstance(number, int | float) and not isinstance(number, bool):
                        name = f"?{one.name}"
                        never = f"{givers[one.name]} gives quantities for {name}, which never match the plain number"
                        yield Note("plain-number", name, f"{never} {number}: write the number with its unit")


def _quantities_of(call: OperatorCall, operator: Operator) -> list[str]:
    """Returns the variables of a call for which its operator declares that it gives quantities."""
    names = dict.fromkeys(each.name for each in call.arguments if isinstance(each, Variable))
    return [name for name, kind in zip(names, operator.binds or (), strict=False) if kind is Quantity]


def _atoms(compiled: Compiled) -> list[Atom]:
    found: dict[int, Atom] = {}
    for clause in compiled.clauses:
        for atom in clause:
            found.setdefault(id(atom.predicate), atom)
            if len(found) >= MOST_ATOMS:
                return list(found.values())
    return list(found.values())


def _of_names(atom: Atom, known: NearNames, scheme: AttributeScheme) -> Iterator[Note]:
    predicate = atom.predicate
    if isinstance(predicate, SomeOf | EveryOf):
        names: tuple[str, ...] = (predicate.attribute,)
    else:
        names = atom.attributes or (getattr(predicate, "attribute", ""),)
    for each in names:
        name = (aggregate_of(each) or ("", each))[1].removesuffix("[]")
        if not name:
            continue
        if name.startswith("ce."):
            near = NearNames(ENVELOPE).nearest(name.removeprefix("ce."))
            if near is not None and name.count(".") == 1:
                detail = f"events have no context attribute {name}; did you mean ce.{near}?"
                yield Note("near-attribute", name, detail)
            continue
        near = known.nearest(name)
        if near is not None:
            detail = f"no recent event, declaration or vocabulary has the attribute {name}; did you mean {near}?"
            yield Note("near-attribute", name, detail)
        for segment in segments_of(name):
            iris = scheme.sharing(segment)
            if len(iris) > 1:
                named = ", ".join(f"<{iri}>" for iri in iris[:MOST_IRIS])
                detail = f"{segment} is the name of {len(iris)} properties, and asks for all of them ({named})"
                yield Note("shared-name", name, f"{detail}: to ask for one in graphs, write its IRI instead")


def _of_constants(atom: Atom, vocabulary: Vocabulary, seen: SeenAttributes | None) -> Iterator[Note]:
    predicate: Any = atom.predicate.item if isinstance(atom.predicate, EveryValue) else atom.predicate
    name = getattr(predicate, "attribute", "")
    for constant in _compared_constants(predicate):
        value = constant.value
        if isinstance(value, Quantity):
            yield from advice_on_unit(name, value.unit, vocabulary, published_in_words(value))
        if seen is not None and name in seen.kinds:
            yield from _against_events(name, value, seen.kinds[name], vocabulary)
    if isinstance(predicate, Between) and _is_empty(predicate, vocabulary):
        ends = f"{published_in_words(predicate.low.value)} and {published_in_words(predicate.high.value)}"
        why = "a round bracket excludes its end" if predicate.low == predicate.high else "write the lower end first"
        yield Note("empty-interval", name, f"no value lies between {ends}: {why}")
    if _never_counts(atom):
        counted = (aggregate_of(name) or ("", name))[1]
        yield Note(
            "absent-count", counted, f"this never holds, because what is absent has no count: write {counted} missing"
        )


def _never_counts(atom: Atom) -> bool:
    """Whether a comparison of a count can hold for no event, because a present attribute has a count of at least 1."""
    match atom.predicate:
        case Comparison(attribute, order, Constant(value=value)) if (aggregate_of(attribute) or ("",))[0] == "count":
            return (atom.negated, order, value) in ((True, ">", 0), (True, ">=", 1), (False, "=", 0))
    return False


def _is_empty(between: Between, vocabulary: Vocabulary) -> bool:
    """Whether no value can lie between the two ends, as far as columns decide it."""
    checks = checks_of(between, vocabulary)
    tests = [test for _, test in checks or () if isinstance(test, IntervalTest)]
    return len(tests) == len(checks or ()) > 0 and all(test.low > test.high for test in tests)


def _against_events(name: str, constant: Any, kinds: Mapping[str, Value], vocabulary: Vocabulary) -> Iterator[Note]:
    """Yields notes if recent events have `name` with another kind of value than the constant."""
    declaration = vocabulary.attributes.declaration(name)
    dimensions = [kind for kind in kinds if kind not in ("number", "text")]
    if isinstance(constant, Quantity):
        dimension = vocabulary.units.dimension(constant.unit)
        if dimension in kinds:
            return
        if "number" in kinds:
            detail = (
                f"recent events have plain numbers in {name}, which never match {constant.value} "
                f"{constant.unit}: declare the unit of the attribute, or unit_from for the attribute with the unit"
            )
            yield Note("quantity-for-number", name, detail)
        elif dimensions:
            measured = dimensions[0]
            detail = (
                f"recent events have {in_words(measured)} in {name}, which never matches "
                f"{constant.value} {constant.unit}"
            )
            yield Note("other-dimension", name, detail)
    elif isinstance(constant, int | float) and not isinstance(constant, bool):
        if "number" in kinds or (declaration is not None and declaration.unit is not None):
            return
        if dimensions:
            other = kinds[dimensions[0]]
            unit = _unit_of(other, vocabulary)
            instead = f"write {constant} {unit}" if unit else "write the number with its unit"
            detail = (
                f"recent events have {in_words(dimensions[0])} in {name}, which never matches the plain number "
                f"{constant}: {instead}, or declare the unit of the attribute"
            )
            yield Note("plain-number", name, detail)
        elif "text" in kinds and is_number(kinds["text"].text or ""):
            detail = (
                f"recent events have numbers in quotes in {name}, which are texts and never match a number: "
                "declare kind number for the attribute"
            )
            yield Note("numeric-text", name, detail)
    elif isinstance(constant, str) and set(kinds) == {"number"} and is_number(constant):
        detail = f"recent events have numbers in {name}, but {constant!r} is a text: leave out the quotes"
        yield Note("quoted-number", name, detail)


def _compared_constants(predicate: Any) -> Iterator[Constant]:
    match predicate:
        case Comparison(operand=Constant() as constant):
            yield constant
        case Membership(constants=constants):
            yield from constants
        case Between(low=low, high=high):
            yield from (low, high)


def _kinds(value: Value) -> Iterator[str]:
    if value.number is not None:
        yield "number"
    if value.amount is not None and value.dimension is not None:
        yield value.dimension
    if not value.is_numeric and value.text is not None:
        yield "text"


def _unit_of(value: Value, vocabulary: Vocabulary) -> str | None:
    said = vocabulary.units.parse(value.text) if value.text is not None else None
    return None if said is None else said.unit
