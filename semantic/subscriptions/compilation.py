"""Compilation of one subscription: text or tree → resolved tree, clauses and notes.

    text or tree ──language──▶ expression ──resolution──▶ resolved ──normal_form──▶ clauses of atoms

Clauses are checked against the declared event types, by rules R1 to R3 of Le Subscribe. Only events of a type can
satisfy a clause that requires the type (`ce.type = "furniture"`, or the member `types` of a subscription), so a
predicate that no such event can satisfy is an error:

    R2   a constant outside the attribute's domain: `quantity = "two"`, a member that an enumeration does not have
    R3   an attribute that none of the types has, if the types are closed

An event may have further types, so an attribute of another type only gives a note (the paper's own example asks for the
`furniture_category` of antiques). So does what is merely unlikely: an undeclared type, an undeclared attribute of an
open type, `missing` on a mandatory attribute. Clauses that require no type are not checked.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kindcast.semantic.conditions.normal_form import Atom, normal_form
from kindcast.semantic.conditions.operator_clauses import is_expensive, unbound
from kindcast.semantic.conditions.predicates import checks_of
from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.language import parse, parse_tree, to_text, to_tree
from kindcast.semantic.model import (
    Between,
    Comparison,
    Constant,
    Expression,
    Group,
    Instance,
    Instant,
    KindTest,
    Membership,
    Note,
    OperatorCall,
    Position,
    Presence,
    Quantity,
    RelationTest,
    Term,
    TextTest,
)
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.subscriptions.resolution import resolve
from kindcast.semantic.vocabulary.attributes import AttributeScheme
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import EVENT_TYPES, Domain, Shape
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["Compiled", "compile_expression", "compiled_again", "restore_expression"]


TYPE = "ce.type"
NUMBERS = frozenset({"number", "integer"})
MOST_TOLD = 100
"""Problems, and notes, reported of one subscription at most."""
MOST_JUDGED = 64
"""Types that a clause may ask for and still be judged; who asks for more wants to browse."""
SUGGESTED = 10
"""Names of one subscription for which near ones are looked for: each is compared with all that are known."""


class SubscriptionCheck:
    """Collects `problems` and `notes` of one subscription's clauses. Linear in their atoms."""

    def __init__(self, schemas: EventSchemas, attributes: AttributeScheme) -> None:
        self._schemas = schemas
        self._attributes = attributes
        self._having = schemas.having(attributes)
        self._sought = 0
        self._problems: dict[tuple[str, str], Problem] = {}
        self._notes: dict[Note, None] = {}

    @property
    def problems(self) -> list[Problem]:
        """Each once, although clauses may share an atom."""
        return list(self._problems.values())

    @property
    def notes(self) -> list[Note]:
        return list(self._notes)

    def clause(self, atoms: Sequence[Atom]) -> None:
        """Look at one clause; terms and names are resolved."""
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
        """R2: every constant is of the attribute's domain."""
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
    """The types of which an event must have one; none where the atom asks for no type by name."""
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
    """Whether a dotted name leads to a place that the shape describes, or into an object of which it says nothing."""
    for segment in segments:
        shape = shape.items if shape.items is not None and not shape.members else shape
        if segment not in shape.members:
            return not shape.members and not shape.closed and shape.types is not None and shape.allows("object")
        shape = shape.members[segment]
    return True


def _constants(predicate: Any) -> Iterator[Any]:
    match predicate:
        case Comparison(operand=Constant() as constant):
            yield constant
        case Membership(constants=constants):
            yield from constants
        case Between(low=low, high=high):
            yield from (low, high)
        case KindTest(terms=terms) | RelationTest(terms=terms):
            yield from terms[:1]
        case TextTest(text=text):
            yield Constant(text, at=predicate.at)


def _outside(domain: Domain, value: Any) -> str | None:
    """What the domain holds instead, for a constant that no value of it can be compared with."""
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
"""What an atom costs that no column decides, in atoms that one does: it is asked of each candidate by itself."""
SECOND_COST = 1e5
"""What a second of an operator costs in the same measure: a call that takes a millisecond counts as ten of those."""


class Compiled:
    """A subscription ready to be matched under the vocabulary that compiled it. Immutable.

    `tree` is the resolved expression as JSON (what to store: IRIs, no labels), of a stored one what was stored;
    `notes` what the subscriber should know. What else there is, is made when it is first read.
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
        """Its disjunctive normal form."""
        return self._meaning.clauses

    @cached_property
    def canonical(self) -> str:
        """The resolved expression as text."""
        return to_text(self.expression)

    @cached_property
    def cost(self) -> float:
        """A relative figure: one per atom that a column of the index decides, ten per atom that must be verified on
        candidates, and by its declared seconds for a call of an operator."""
        of = self._meaning
        return sum(_cost(atom, of.vocabulary, of.operators) for clause in of.clauses for atom in clause)

    @property
    def clause_count(self) -> int:
        """How many clauses the subscription became; none means that it can never match."""
        return len(self.clauses)

    def with_notes(self, notes: tuple[Note, ...]) -> "Compiled":
        """The same with other notes."""
        return Compiled(self.tree, notes, lambda: self._meaning)


Operators = Mapping[str, Operator]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a subscription means under a vocabulary."""

    expression: Expression
    clauses: tuple[tuple[Atom, ...], ...]
    vocabulary: Vocabulary
    operators: Operators


def compile_expression(
    expression: str | Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compile what a subscriber wrote. Raises `InvalidSubscription` with every problem."""
    return _compiled(parse(expression), vocabulary, operators, stored=False)


def restore_expression(
    tree: Mapping[str, Any], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """Compile a stored tree again, perhaps under another vocabulary (rule 14): IRIs stay or follow their replacement;
    one that is gone is noted, and its predicate never holds. The tree stays what it is, for the version after that."""
    return _compiled(parse_tree(tree), vocabulary, operators, stored=True)


def compiled_again(
    tree: dict[str, Any], notes: tuple[Note, ...], vocabulary: Vocabulary, operators: Operators = MappingProxyType({})
) -> Compiled:
    """What was compiled once under this vocabulary; `notes` are those that there were then."""
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
    """What the declared event types say to the clauses. A stored subscription is kept whatever was declared since.
    Raises `InvalidSubscription`."""
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
