"""What to tell a subscriber whose expression is sound and may yet never match: near names, surprising units, numbers
where recent events have quantities.

Advice is given when a subscription is made or checked, and never stored: what events have had changes by the hour. It
changes no meaning, and tells no value of an event: who may subscribe may not always read what others publish.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kindcast.semantic.conditions.normal_form import Atom
from kindcast.semantic.events.advice import advice_on_unit, published_in_words
from kindcast.semantic.model import (
    Between,
    CanonicalEvent,
    Comparison,
    Constant,
    EveryOf,
    EveryValue,
    Membership,
    Note,
    Quantity,
    SomeOf,
    Value,
    aggregate_of,
)
from kindcast.semantic.subscriptions.compilation import Compiled
from kindcast.semantic.units.mistakes import in_words, is_number
from kindcast.semantic.vocabulary.labels import NearNames
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["SeenAttributes", "advise"]

MOST_ATOMS = 64
"""Predicates of one subscription that are looked at."""
MOST_TOLD = 20
ENVELOPE = frozenset(
    {"id", "source", "type", "subject", "time", "dataschema", "datacontenttype", "specversion", "received"}
)


@dataclass(frozen=True)
class SeenAttributes:
    """The attributes of recent events, in the order of their frequency, each with one value of every kind that it had:
    `number`, `text`, or the dimension of a quantity. `names` are theirs and those that are declared. Immutable."""

    kinds: Mapping[str, Mapping[str, Value]]
    names: NearNames

    @classmethod
    def of(cls, events: Iterable[CanonicalEvent], vocabulary: Vocabulary) -> "SeenAttributes":
        """Those of `events`. Linear in their values."""
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
        return cls(ordered, NearNames((*vocabulary.attributes.declarations, *ordered)))


def advise(compiled: Compiled, vocabulary: Vocabulary, seen: SeenAttributes | None = None) -> tuple[Note, ...]:
    """What its author should know of a subscription beside its notes. Some µs for each predicate; the first unknown
    attribute of a vocabulary costs some ms at thousands of properties."""
    found: dict[Note, None] = {}
    known = vocabulary.attributes.near_names if seen is None else seen.names
    for atom in _atoms(compiled):
        found.update(dict.fromkeys(_of_names(atom, known)))
        found.update(dict.fromkeys(_of_constants(atom, vocabulary, seen)))
        if len(found) >= MOST_TOLD:
            break
    return tuple(found)[:MOST_TOLD]


def _atoms(compiled: Compiled) -> list[Atom]:
    found: dict[int, Atom] = {}
    for clause in compiled.clauses:
        for atom in clause:
            found.setdefault(id(atom.predicate), atom)
            if len(found) >= MOST_ATOMS:
                return list(found.values())
    return list(found.values())


def _of_names(atom: Atom, known: NearNames) -> Iterator[Note]:
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


def _of_constants(atom: Atom, vocabulary: Vocabulary, seen: SeenAttributes | None) -> Iterator[Note]:
    predicate: Any = atom.predicate.item if isinstance(atom.predicate, EveryValue) else atom.predicate
    name = getattr(predicate, "attribute", "")
    for constant in _constants(predicate):
        value = constant.value
        if isinstance(value, Quantity):
            yield from advice_on_unit(name, value.unit, vocabulary, published_in_words(value))
        if seen is not None and name in seen.kinds:
            yield from _against_events(name, value, seen.kinds[name], vocabulary)


def _against_events(name: str, constant: Any, kinds: Mapping[str, Value], vocabulary: Vocabulary) -> Iterator[Note]:
    """That recent events have `name` in another form than the constant."""
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


def _constants(predicate: Any) -> Iterator[Constant]:
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
