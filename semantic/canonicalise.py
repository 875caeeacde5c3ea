"""Events as published → canonical events: attribute → values, each with every reading it has.

docs/matching-semantics.md, rules 1 to 4, 13 and 15. Readings are added, nothing published is replaced: the string
"laptop" stays a string and may also be read as a concept. What an event means does not depend on any subscription.

    JSON ──flatten──▶ (dotted name, scalar or quantity) ──name──▶ every name above it ──read──▶ Value
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from index.clause import ConceptId
from semantic.attributes import AttributeDeclaration
from semantic.errors import InvalidEvent, Problem, SemanticError
from semantic.instants import parse_instant
from semantic.model import CanonicalEvent, Event, Note, Position, Value
from semantic.units import Units
from semantic.vocabulary import Vocabulary

__all__ = ["Canonicaliser", "EventLimits", "range_of"]

UNIT_KEYS = frozenset({"unit", "unitCode", "unitText", "currency"})
"""What may stand beside `value` in an object that is a quantity (rule 15)."""
JSON_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*")
CACHED_STRINGS = 1 << 16
"""Strings whose readings are kept: a stream repeats its names, rooms and classes, and a reading costs several
look-ups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Bounds on one event: nesting of `data`, and how many scalars it may hold (each is read, matched and kept)."""

    depth: int = 64
    scalars: int = 10_000


@dataclass(frozen=True, slots=True)
class _Quantity:
    """An object `{"value": …, "unit": …}` met while flattening; kept whole, because it is one value."""

    value: int | float
    unit: str
    published: Mapping[str, Any]


_Scalar = str | int | float | bool | _Quantity
_Flat = dict[str, list[tuple[_Scalar, str | None]]]
"""Raw dotted name → (scalar, the unit that a declared sibling gives)."""


class Canonicaliser:
    """Reads events under one vocabulary. Keeps a bounded cache of readings, so one thread at a time may use it.

    Costs about 1 µs for a number or a string seen before, some 10 to 20 µs for a new string.
    """

    def __init__(self, vocabulary: Vocabulary, units: Units | None = None, limits: EventLimits | None = None) -> None:
        self._vocabulary = vocabulary
        self._units = units or vocabulary.units
        self._limits = limits or EventLimits()
        self._names: dict[str, tuple[str, ...]] = {}
        self._declarations: dict[str, AttributeDeclaration | None] = {}
        self._strings: dict[tuple[str, str], tuple[Value, tuple[Note, ...]]] = {}

    def canonicalise(self, event: Mapping[str, Any] | Event) -> CanonicalEvent:
        """The canonical form of `event`, a bare mapping being its data.

        Raises `InvalidEvent` with a JSON pointer for each problem: a top-level key `ce`, a number that is not finite or
        that no double holds exactly, nesting or size beyond the limits, a key that is no string.
        """
        event = event if isinstance(event, Event) else Event(event)
        problems: list[Problem] = []
        notes: list[Note] = []
        flat: _Flat = {f"ce.{name}": [(value, None)] for name, value in event.context.items()}
        elements: dict[str, list[Mapping[str, Any]]] = {}
        if isinstance(event.data, Mapping):
            self._refuse_context_names(event.data, problems)
            self._flatten(event.data, flat, elements, problems)
            flat.setdefault("ce.type", []).extend(pair for pair in flat.get("@type", []) if isinstance(pair[0], str))
        elif event.data is not None:
            notes.append(Note("no-attributes", "", "data is not a JSON object: only context attributes can match"))
        if problems:
            raise InvalidEvent(problems)
        attributes = self._read(flat, notes)
        return CanonicalEvent(attributes, self._elements(elements, {}), tuple(dict.fromkeys(notes)))

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def names(self, raw: str) -> tuple[str, ...]:
        """The attribute that a published name means, and every attribute above it (rule 2)."""
        found = self._names.get(raw)
        if found is None:
            attributes = self._vocabulary.attributes
            found = attributes.broader(attributes.resolve(raw))
            if len(self._names) >= CACHED_STRINGS:
                self._names.clear()
            self._names[raw] = found
        return found

    def needs_siblings(self, raw: str) -> bool:
        """Whether a value of this attribute can only be read beside its siblings (its unit stands in one of them)."""
        declaration = self._declaration(self.names(raw)[0])
        return declaration is not None and declaration.unit_from is not None

    def _named(self, raw: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        named: dict[str, list[Any]] = {}
        for name, found in raw.items():
            for each in self.names(name):
                named.setdefault(each, []).extend(found)
        return named

    @staticmethod
    def _refuse_context_names(data: Mapping[str, Any], problems: list[Problem]) -> None:
        for key in filter(lambda key: isinstance(key, str), data):
            if key == "ce" or key.startswith("ce."):
                detail = f"the name {key!r} is kept for context attributes such as ce.type: choose another"
                problems.append(Problem("reserved-name", detail, Position(pointer=_pointer((key,)))))

    # ── flattening ──────────────────────────────────────────────────────────────────────────────────────────────

    def _flatten(
        self,
        data: Mapping[str, Any],
        flat: _Flat,
        elements: dict[str, list[Mapping[str, Any]]],
        problems: list[Problem],
    ) -> None:
        """Walk `data` with a stack of our own: nesting is bounded by a limit, not by the interpreter."""
        count = 0
        stack: list[tuple[str, Any, tuple[Any, ...], Mapping[str, Any] | None]] = [("", data, (), None)]
        while stack:
            name, node, path, parent = stack.pop()
            if len(path) > self._limits.depth:
                detail = f"nested deeper than {self._limits.depth} levels"
                raise InvalidEvent([Problem("too-deep", detail, Position(pointer=_pointer(path)))])
            if isinstance(node, Mapping):
                quantity = _as_quantity(node)
                if quantity is not None and name:
                    flat.setdefault(name, []).append((quantity, None))
                    flat.setdefault(f"{name}.value", []).append((quantity.value, quantity.unit))
                    node = {key: value for key, value in node.items() if key != "value"}
                for key, value in reversed(node.items()):
                    if not isinstance(key, str):
                        problems.append(_problem("bad-name", f"the name {key!r} is not a string", path))
                        continue
                    stack.append((f"{name}.{key}" if path else key, value, (*path, key), node))
            elif isinstance(node, list | tuple):
                objects = [each for each in node if isinstance(each, Mapping)]
                if objects:
                    elements.setdefault(name, []).extend(objects)
                for index in range(len(node) - 1, -1, -1):
                    stack.append((name, node[index], (*path, index), parent))
            elif node is not None:
                count += 1
                if count > self._limits.scalars:
                    detail = f"more than {self._limits.scalars} values in one event: split it"
                    raise InvalidEvent([Problem("too-many-values", detail, Position(pointer=_pointer(path)))])
                problem = _scalar_problem(node)
                if problem:
                    problems.append(_problem(*problem, path))
                else:
                    flat.setdefault(name, []).append((node, self._sibling_unit(name, node, parent)))

    def _sibling_unit(self, name: str, node: Any, parent: Mapping[str, Any] | None) -> str | None:
        """The unit in the sibling attribute that `name`'s declaration points to, for a number."""
        if parent is None or isinstance(node, bool | str):
            return None
        declaration = self._declaration(self.names(name)[0])
        if declaration is None or declaration.unit_from is None:
            return None
        sibling = declaration.unit_from.rpartition(".")[2]
        for key, value in parent.items():
            if isinstance(value, str) and self.names(key)[0].rpartition(".")[2] == sibling:
                return value
        return None

    def _elements(
        self, raw: Mapping[str, list[Mapping[str, Any]]], done: dict[int, CanonicalEvent]
    ) -> dict[str, tuple[CanonicalEvent, ...]]:
        """The elements of arrays of objects, each as an event of its own (for `some`). `done` keeps those already made:
        an object is an element of every array around it, and making it anew for each would cost 2^depth."""
        return {name: tuple(self._element(each, done) for each in found) for name, found in self._named(raw).items()}

    def _element(self, data: Mapping[str, Any], done: dict[int, CanonicalEvent]) -> CanonicalEvent:
        found = done.get(id(data))
        if found is None:
            flat: _Flat = {}
            deeper: dict[str, list[Mapping[str, Any]]] = {}
            self._flatten(data, flat, deeper, [])
            found = done[id(data)] = CanonicalEvent(self._read(flat, []), self._elements(deeper, done))
        return found

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, flat: _Flat, notes: list[Note]) -> dict[str, tuple[Value, ...]]:
        attributes: dict[str, dict[Any, Value]] = {}
        for raw, pairs in flat.items():
            for name in self.names(raw):
                values = attributes.setdefault(name, {})
                for scalar, unit in pairs:
                    value = self.read(name, scalar, unit, notes)
                    published = scalar if not isinstance(scalar, _Quantity) else (scalar.value, scalar.unit)
                    values.setdefault((type(published), published, unit), value)
        return {name: tuple(values.values()) for name, values in attributes.items() if values}

    def read(self, name: str, scalar: Any, unit: str | None, notes: list[Note]) -> Value:
        """One scalar under the attribute `name` with all its readings; what the publisher should know goes to
        `notes`."""
        if isinstance(scalar, str):
            key = (name, scalar)
            found = self._strings.get(key)
            if found is None:
                own: list[Note] = []
                found = (self._read_string(name, scalar, own), tuple(own))
                if len(self._strings) >= CACHED_STRINGS:
                    self._strings.clear()
                self._strings[key] = found
            notes.extend(found[1])
            return found[0]
        if isinstance(scalar, bool):
            return Value(scalar, boolean=scalar)
        if isinstance(scalar, _Quantity):
            dimension, amount = self._measure(name, scalar.value, scalar.unit, notes)
            return Value(scalar.published, amount=amount, dimension=dimension)
        return self._read_number(name, scalar, scalar, unit, notes)

    def _read_number(
        self, name: str, published: Any, number: int | float, unit: str | None, notes: list[Note]
    ) -> Value:
        declaration = self._declaration(name)
        unit = unit or (declaration.unit if declaration else None)
        dimension, amount = self._measure(name, number, unit, notes) if unit else (None, None)
        text = published if isinstance(published, str) else None
        return Value(published, text=text, number=float(number), amount=amount, dimension=dimension)

    def _read_string(self, name: str, published: str, notes: list[Note]) -> Value:
        vocabulary = self._vocabulary
        declaration = self._declaration(name)
        text = vocabulary.root_word(published)
        if declaration is not None and declaration.kind == "number" and JSON_NUMBER.fullmatch(published):
            number = float(published)
            if math.isfinite(number):
                value = self._read_number(name, published, number, None, notes)
                return Value(published, text, number=number, amount=value.amount, dimension=value.dimension)
        scope = range_of(declaration, vocabulary)
        concepts = vocabulary.resolve(text, within=scope).candidates if scope else vocabulary.readings(text)
        if len(concepts) > 1:
            labels = ", ".join(vocabulary.label(concept) for concept in concepts)
            notes.append(Note("ambiguous-term", name, f"{published!r} may mean {labels}: all are counted"))
        elif not concepts and declaration is not None and declaration.kind == "concept":
            notes.append(Note("unknown-term", name, f"{published!r} is no concept we know: it stays a string"))
        quantity = self._units.parse(published)
        dimension, amount = self._measure(name, quantity.value, quantity.unit, notes) if quantity else (None, None)
        return Value(
            published,
            text,
            instant=parse_instant(published),
            amount=amount,
            dimension=dimension,
            concepts=tuple(concepts),
        )

    def _measure(self, name: str, number: int | float, unit: str, notes: list[Note]) -> tuple[str | None, float | None]:
        try:
            measure = self._units.measure(number, unit)
        except SemanticError as problem:
            notes.append(Note("unknown-unit", name, str(problem)))
            return None, None
        declaration = self._declaration(name)
        if declaration is not None and declaration.unit is not None:
            expected = self._units.dimension(declaration.unit)
            if expected != measure.dimension:
                detail = f"{unit!r} is no unit of {name}, which has {declaration.unit}"
                notes.append(Note("wrong-dimension", name, detail))
        return measure.dimension, measure.amount

    def _declaration(self, name: str) -> AttributeDeclaration | None:
        if name not in self._declarations:
            if len(self._declarations) >= CACHED_STRINGS:
                self._declarations.clear()
            self._declarations[name] = self._vocabulary.attributes.declaration(name)
        return self._declarations[name]


def range_of(declaration: AttributeDeclaration | None, vocabulary: Vocabulary) -> tuple[ConceptId, ...]:
    """The concepts that an attribute is declared to hold; empty if nothing is declared or known."""
    if declaration is None:
        return ()
    found = (vocabulary.concept(iri) for iri in declaration.range)
    return tuple(concept for concept in found if concept is not None)


def _as_quantity(node: Mapping[str, Any]) -> _Quantity | None:
    if len(node) != 2 or "value" not in node:
        return None
    unit_key = next(key for key in node if key != "value")
    value, unit = node["value"], node[unit_key]
    if unit_key not in UNIT_KEYS or not isinstance(unit, str) or isinstance(value, bool):
        return None
    if not isinstance(value, int | float) or _scalar_problem(value):
        return None
    return _Quantity(value, unit, dict(node))


def _scalar_problem(node: Any) -> tuple[str, str] | None:
    if isinstance(node, str | bool):
        return None
    if isinstance(node, float):
        return None if math.isfinite(node) else ("not-finite", f"{node} is no finite number")
    if isinstance(node, int):
        try:
            exact = int(float(node)) == node
        except OverflowError:
            exact = False
        if exact:
            return None
        return "inexact-number", f"the integer {_short(node)} is not exactly a double: publish it as a string"
    return "bad-value", f"a {type(node).__name__} is no JSON value"


def _short(number: int) -> str:
    """Digits for a message; Python refuses to print integers of more than some thousands of digits."""
    return str(number) if number.bit_length() < 256 else f"of {number.bit_length()} bits"


def _problem(code: str, detail: str, path: tuple[Any, ...]) -> Problem:
    return Problem(code, detail, Position(pointer=_pointer(path)))


def _pointer(path: tuple[Any, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
