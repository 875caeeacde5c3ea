"""Checks of subscriptions against declared event types: rules R1 to R3 of Le Subscribe, for subscribers.

A clause that asks for types (`ce.type = "furniture"`, or the member `types` of a subscription) can only be satisfied by
events that fit those types, so what no such event can have is refused:

    R2   a constant that is not of the attribute's domain: `quantity = "two"`, a member that an enumeration lacks
    R3   an attribute that none of the types has, where they are closed

An event may be of further types, so an attribute of another type is only told (the paper's own example asks antiques
for their `furniture_category`). So is what is merely unlikely: a type that nobody declared, an attribute of an open
type that nobody declared, `missing` on a mandatory attribute. Clauses that ask for no type are not looked at.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kindcast.semantic.conditions.normal_form import Atom
from kindcast.semantic.errors import Problem
from kindcast.semantic.model import (
    Between,
    Comparison,
    Constant,
    Instant,
    KindTest,
    Membership,
    Note,
    Position,
    Presence,
    Quantity,
    RelationTest,
    Term,
    TextTest,
)
from kindcast.semantic.vocabulary.attributes import AttributeScheme
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import EVENT_TYPES, Domain, Shape

__all__ = ["SubscriptionCheck"]

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
                self._note("mandatory-attribute", name, f"{name} is mandatory for {told}: it is never missing (R2)")
            elif domain is not None and getattr(predicate, "attribute", None) == name:
                self._operands(name, predicate, domain)
            return
        if isinstance(predicate, Presence) and not predicate.present:
            return
        if owners:
            also = " or ".join(sorted(owners)[:5])
            detail = f"{name} is no attribute of {told}: only events that are also of type {also} have it"
            self._note("attribute-of-other-type", name, detail)
            return
        near = self._near(name, sorted({use for each in types for use in self._schemas.uses[each]}))
        if is_closed:
            detail = f"{name} is no attribute of {told}, which is closed, nor of any other type: no event has it (R3)"
            self._problem("unknown-attribute", detail, getattr(predicate, "at", None), near)
        else:
            hint = f" (near: {', '.join(near)})" if near else ""
            self._note("undeclared-attribute", name, f"{name} is no declared attribute of {told}{hint}")

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
                        detail = f"{constant.value!r} is no member of {name}: this can never hold (R2)"
                        self._problem("not-in-domain", detail, constant.at, near)

    def _near(self, word: str, known: Iterable[str]) -> list[str]:
        self._sought += 1
        return difflib.get_close_matches(word[:100], known, 3) if self._sought <= SUGGESTED else []

    def _problem(self, code: str, detail: str, at: Position | None, near: Iterable[str] = ()) -> None:
        if len(self._problems) < MOST_TOLD:
            problem = Problem(code, detail, at, tuple({"label": each} for each in near))
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
        case str() | Instant() | Term():
            return None if "string" in types else told
        case Quantity(unit=unit):
            if domain.unit is None and domain.unit_from is None and not types & {"string", "object"}:
                return f"{told} without a unit, so no {unit}"
            return None
        case _:
            return None if types & NUMBERS or domain.is_numeric or "object" in types else told
