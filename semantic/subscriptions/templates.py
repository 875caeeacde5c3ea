"""Templates of subscriptions: shapes compiled once, with their clauses and the positions of their constants.

    a tree of the shape ──compile──▶ clauses of atoms ──▶ ClausePlan: attributes, and for each atom the slots it reads
                               └──▶ resolved expression ──▶ skeleton of the stored tree

The normal form compares constants only for equality. So trees of one shape whose constants are equal at the same places
become the same clauses. A template is made only if an index decides every atom and compilation gives no notes.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from operator import length_hint
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, Clause, ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Predicate
from kindcast.index.clause import Test as ClauseTest
from kindcast.index.engine import ClauseColumns, ConceptOperands, IntervalOperands, KeyOperands, OperandColumn
from kindcast.semantic.conditions.lowering import Lowering
from kindcast.semantic.conditions.normal_form import Atom
from kindcast.semantic.conditions.predicates import checks_of
from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language import parse_tree, to_text, to_tree
from kindcast.semantic.language.literals import quoted_iri, quoted_string
from kindcast.semantic.language.text import FilledTree, Skeleton
from kindcast.semantic.language.tree import SLOT
from kindcast.semantic.model import (
    All,
    AnyOf,
    Between,
    Comparison,
    Constant,
    Expression,
    Instance,
    Instant,
    KindTest,
    Membership,
    Not,
    Presence,
    Quantity,
    Term,
    aggregate_of,
)
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.subscriptions.compilation import Compiled, compile_expression, resolve, restore_expression
from kindcast.semantic.subscriptions.subscription_table import (
    ConstantColumn,
    TextColumn,
    joined,
    narrowed,
    number_column,
)
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["Operands", "ShapeKey", "Template", "Templates"]


# Shapes and constants of trees. Trees of one shape can be compiled together.
#
#     {"all": [{"isa": ["target", {"iri": "…#Laptop"}]}, {"<=": ["price", 400]}]}
#         ──▶  ("all", ("isa", "target", ("iri",)), ("<=", "price", ("number",)))   and   ["…#Laptop", 400]
#
# A shape holds operators, attributes, units and the kinds of constants. Trees without a shape (with relations, text
# search or operators, unusual ones, and invalid ones) are compiled one by one, which also reports what is wrong with
# them.

NUMBER, STRING, INSTANT, IRI, INSTANCE = "number", "string", "instant", "iri", "instance"
"""Kinds of constants. The kind of a quantity is `"unit:"` and its unit. True and false are part of the shape."""
OBJECTS = (INSTANT, IRI, INSTANCE)
"""Kinds of texts that are written as an object whose key is the kind."""
TEXTS = (STRING, *OBJECTS)
DATE = len("2026-01-31")
"""The number of characters of a date. A date-time has more."""
MOST_PARTS = 64
"""The maximum number of predicates of a tree with a shape, and of constants of a predicate. Larger trees seldom share a
shape."""
LONGEST_TEXT = 1_000
"""The maximum length in characters of a constant or an attribute. It is below the limits of
`kindcast.semantic.language.literals`."""
DEEPEST = 8
"""The maximum depth of groups."""

Shape = tuple[Any, ...]

_ORDERS = frozenset(("<", "<=", ">", ">="))
_EQUALS = frozenset(("=", "!="))
_KINDS = frozenset(("isa", "below", "is"))
_GROUPS = frozenset(("all", "any"))
_ENDS = frozenset(("[]", "[)", "(]", "()"))


def shape_of(tree: Any, constants: list[Any], depth: int = 0) -> Shape | None:
    """Returns the shape of `tree`, and appends its constants to `constants` in the order of the tree. None if it has no
    shape. Linear, about 1 µs per predicate."""
    if type(tree) is not dict or len(tree) != 1 or depth > DEEPEST:
        return None
    ((key, body),) = tree.items()
    if key in _GROUPS:
        return _group(key, body, constants, depth)
    if key == "not":
        inner = shape_of(body, constants, depth + 1)
        return None if inner is None else ("not", inner)
    if key == "exists" or key == "missing":
        name = body[0] if type(body) is list and len(body) == 1 else body
        return (key, name, ()) if _is_name(name) else None
    if type(body) is not list or len(body) < 2 or not _is_name(body[0]):
        return None
    if key == "between":
        return _between(body, constants)
    if len(body) != 2:
        return None
    operand = body[1]
    if key in _ORDERS:
        kind = _kind(operand, constants, ordered=True)
        return None if kind is None else (key, body[0], (kind,))
    if key in _EQUALS:
        kind = _kind(operand, constants)
        return None if kind is None else (key, body[0], (kind,))
    if key in _KINDS or key == "in":
        several = operand if type(operand) is list else (operand,)
        if not several or len(several) > MOST_PARTS or (key == "in" and several is not operand):
            return None
        kinds = tuple([_kind(each, constants, term=key != "in") for each in several])
        return None if None in kinds else (key, body[0], kinds)
    return None


def equalities(constants: list[Any]) -> tuple[int, ...] | None:
    """Returns for each constant the index of the first equal constant; None if all differ. If two predicates test the
    same attribute, this determines whether they are the same or contradict each other."""
    if len(set(constants)) == len(constants):
        return None
    first: dict[Any, int] = {}
    return tuple([first.setdefault(each, place) for place, each in enumerate(constants)])


def _group(key: str, body: Any, constants: list[Any], depth: int) -> Shape | None:
    if type(body) is not list or not body or len(body) > MOST_PARTS:
        return None
    if len(body) == 1:
        return shape_of(body[0], constants, depth + 1)
    parts: list[Any] = [key]
    for item in body:
        shape = shape_of(item, constants, depth + 1)
        if shape is None or len(constants) > MOST_PARTS:
            return None
        parts.append(shape)
    return tuple(parts)


def _between(body: list[Any], constants: list[Any]) -> Shape | None:
    ends, closed = body[1], body[2] if len(body) == 3 else "[]"
    if type(ends) is not list or len(ends) != 2 or len(body) > 3 or type(closed) is not str or closed not in _ENDS:
        return None
    low = _kind(ends[0], constants, ordered=True)
    high = _kind(ends[1], constants, ordered=True)
    return None if low is None or high is None else ("between", body[0], (low, high), closed)


def _kind(operand: Any, constants: list[Any], *, ordered: bool = False, term: bool = False) -> str | None:
    """Returns the kind of an operand, and appends it to `constants` unless it is part of the shape. None if it has no
    kind."""
    of = type(operand)
    if of is int or of is float:
        if term:
            return None
        constants.append(operand)
        return NUMBER
    if of is str:
        if ordered or len(operand) > LONGEST_TEXT or operand[:1] == "?":
            return None
        constants.append(operand)
        return STRING
    if of is dict:
        return _object_kind(operand, constants, ordered=ordered, term=term)
    if of is bool and not ordered and not term:
        return "true" if operand else "false"
    return None


def _object_kind(operand: dict[Any, Any], constants: list[Any], *, ordered: bool, term: bool) -> str | None:
    if len(operand) == 1:
        ((key, text),) = operand.items()
        if type(text) is not str or len(text) > LONGEST_TEXT:
            return None
        if key == "iri" and not ordered:
            constants.append(text)
            return IRI
        if key == "instant" and not term and len(text) > DATE:  # the bound of a date depends on the comparison
            constants.append(text)
            return INSTANT
        if key == "instance" and not ordered and not term:
            constants.append(text)
            return INSTANCE
        return None
    if term or operand.keys() != {"value", "unit"}:
        return None
    number, unit = operand["value"], operand["unit"]
    if (type(number) is not int and type(number) is not float) or type(unit) is not str or len(unit) > LONGEST_TEXT:
        return None
    constants.append(number)
    return f"unit:{unit}"


def _is_name(name: Any) -> bool:
    return type(name) is str and len(name) <= LONGEST_TEXT and name[:1] != "?"


# Reading of the constants of one slot as operands of the index, once per distinct value.
#
# The meaning of a constant depends on the attribute, the comparison and the kind of the constant. `OperandReader` reads
# each distinct constant as the compiler would, in an expression of one predicate. Plain numbers are taken unchanged. If
# a constant is refused or has a note, its tree is compiled individually.

UPPER = "until"
"""The reading of a date-time in an `ORDERED` comparison."""
EQUAL, ORDERED, KIND = "=", "<=", "isa"
"""How a constant is compared: the operator with which its meaning is determined."""
EXACT = float(1 << 53)
"""All integers below this are exact as doubles. Larger ones are checked one by one."""

Use = tuple[str, str, str]
"""The comparison, the attribute as written, and the kind of the constant."""
Sort = tuple[str, str]
"""The reading, and `key` or `concept`. All constants of a column have the same sort."""


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of one slot for n trees. `good` is `bool[n]`; operands that are not good must not be used. The
    operands are either `numbers` (`float64[n]`) or `keys[places[i]]` (`int32[n]`)."""

    good: npt.NDArray[np.bool_]
    stored: ConstantColumn
    numbers: npt.NDArray[np.float64]
    keys: Sequence[Key]
    places: npt.NDArray[np.int32]

    def key(self, number: int) -> Key:
        """Returns the key of operand `number`."""
        return self.keys[self.places[number]] if self.places.size else float(self.numbers[number])

    def taken(self, places: npt.NDArray[np.int64]) -> "Operands":
        """Returns the operands at `places`."""
        numbers = self.numbers[places] if self.numbers.size else self.numbers
        own = self.places[places] if self.places.size else self.places
        return Operands(self.good[places], self.stored.taken(places), numbers, self.keys, own)

    @classmethod
    def joined(cls, operands: Sequence["Operands"]) -> "Operands":
        """Concatenates operands of one slot."""
        return cls(
            np.concatenate([each.good for each in operands]),
            joined([each.stored for each in operands]),
            np.concatenate([each.numbers for each in operands]),
            operands[0].keys,
            np.concatenate([each.places for each in operands]),
        )


class OperandReader:
    """Reads the constants of one use. Caches every distinct constant, so a reader serves only one bulk operation."""

    def __init__(self, use: Use, vocabulary: Vocabulary, operators: Mapping[str, Operator], *, stored: bool) -> None:
        self._how, self._attribute, self._kind = use
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._places: dict[Any, int] = {}
        self._sorts: list[int] = []
        self._numbered: dict[Sort, int] = {}
        self._keys: list[Key] = []
        self._texts: list[str] = []
        self._example: Comparison | None = None
        asked = vocabulary.attributes.asked(self._attribute, "")
        is_known = vocabulary.attributes.declaration(asked) is not None or aggregate_of(asked) is not None
        self._is_text = self._kind == STRING and self._how == EQUAL and not is_known
        self._plain = self._kind == NUMBER and self.sort(1) == ("number", "key")

    def sort(self, constant: Any) -> Sort | None:
        """Returns the sort of `constant`; None if it cannot be in a column."""
        number = self._sorts[self._place(constant)]
        return next((sort for sort, known in self._numbered.items() if known == number), None)

    def operands(self, constants: Sequence[Any], sort: Sort) -> Operands:
        """Returns the operands for `constants`. Those of `sort` are good."""
        if self._plain:
            try:
                numbers = np.array(constants, dtype=np.float64)
            except OverflowError:
                numbers = np.array([each if abs(each) < EXACT else np.nan for each in constants], dtype=np.float64)
            good = np.abs(numbers) < EXACT if int in set(map(type, constants)) else np.isfinite(numbers)
            numbers = numbers if good.all() else np.where(good, numbers, 0.0)
            stored: ConstantColumn = number_column(constants, numbers)
            return Operands(good, stored, numbers, (), np.zeros(0, dtype=np.int32))
        known = self._places
        for each in set(constants).difference(known):
            self._place(each)
        at = [known[each] for each in constants]  # only these are read below: the caches may be far larger
        places = np.array(at, dtype=np.int32)
        wanted, sorts = self._numbered[sort], self._sorts
        good = np.array([sorts[place] == wanted for place in at], dtype=np.bool_)
        if self._kind in TEXTS:
            stored = TextColumn(narrowed(places), self._texts)
        else:
            plain = [each if ok else 0 for each, ok in zip(constants, good, strict=True)]
            stored = number_column(plain, np.array(plain, dtype=np.float64))
        if sort[1] == "key" and sort[0] not in ("text", "boolean"):
            keys = [self._keys[place] for place in at]
            numbers = np.array([each if isinstance(each, int | float) else 0.0 for each in keys], dtype=np.float64)
        else:
            numbers = np.zeros(0)
        return Operands(good, stored, numbers, self._keys, places)

    def operand(self, constant: Any, sort: Sort) -> tuple[Key, Any] | None:
        """Returns the key of one constant and its form in the stored tree; None if it is not of `sort`."""
        if self._plain:
            good = abs(constant) < EXACT if type(constant) is int else math.isfinite(constant)
            return (float(constant), constant) if good else None
        place = self._place(constant)
        if self._sorts[place] != self._numbered[sort]:
            return None
        return self._keys[place], self._texts[place] if self._kind in TEXTS else constant

    @property
    def remembered(self) -> int:
        """The number of distinct constants in the cache."""
        return len(self._places)

    def _place(self, constant: Any) -> int:
        found = self._places.get(constant)
        if found is None:
            sort, key, text = self._meaning(constant)
            found = self._places[constant] = len(self._keys)
            self._keys.append(key)
            self._texts.append(text)
            self._sorts.append(-1 if sort is None else self._numbered.setdefault(sort, len(self._numbered)))
        return found

    def _meaning(self, constant: Any) -> tuple[Sort | None, Key, str]:
        """Returns the sort of a constant, its key, and its text in the stored tree."""
        nothing = None, 0.0, ""
        if type(constant) is int and abs(constant) >= EXACT:
            return nothing
        if self._is_text:  # a text is compared with an attribute that is not declared: most constants are of this kind
            words = self._vocabulary.words(constant)
            is_quantity = self._vocabulary.units.parse(constant) is not None
            return nothing if is_quantity or len(words) > 1 else (("text", "key"), words[0], constant)
        try:
            resolved = resolve(self._asked(constant), self._vocabulary, stored=self._stored, operators=self._operators)
        except InvalidSubscription:
            return nothing
        checks = checks_of(resolved.expression, self._vocabulary)  # type: ignore[arg-type]  # one predicate
        if resolved.notes or checks is None or len(checks) != 1:
            return nothing
        text = _text_of(resolved.kept)
        ((reading, test),) = checks
        if reading == "ip":
            return nothing  # keys of addresses are no numbers, and their column is not one of texts
        match test:
            case KeyTest(keys):  # several if aliases give the constant several forms
                return ((reading, "key"), next(iter(keys)), text) if len(keys) == 1 else nothing
            case IntervalTest(_, high):
                return (reading, "key"), high, text
            case ConceptTest(within, _, exactly):
                found = within | exactly
                return ((reading, "concept"), next(iter(found)), text) if len(found) == 1 else nothing

    def _asked(self, constant: Any) -> Expression:
        """Returns the expression of one predicate with this constant. Quoted texts are taken unchanged, so it is parsed
        once for all of them."""
        if self._kind != STRING or self._how == KIND:
            return parse_tree({self._how: [self._attribute, self._written(constant)]})
        if self._example is None:
            self._example = cast(Comparison, parse_tree({self._how: [self._attribute, ""]}))
        return replace(self._example, operand=replace(self._example.operand, value=constant))

    def _written(self, constant: Any) -> Any:
        if self._kind in OBJECTS:
            return {self._kind: constant}
        return (
            constant
            if self._kind in (NUMBER, STRING)
            else {"value": constant, "unit": self._kind.removeprefix("unit:")}
        )


def _text_of(kept: Expression) -> str:
    """Returns the constant of a predicate as the stored tree has it."""
    if isinstance(kept, Comparison) and isinstance(kept.operand, Constant) and isinstance(kept.operand.value, str):
        return kept.operand.value
    ((_, body),) = to_tree(kept).items()
    text: str = next(iter(body[1].values())) if isinstance(body[1], dict) else body[1]
    return text


TRIES = 3
"""The number of trees of a shape that are tried as its example. Only the constants of the first may be unusual."""
TYPE = "ce.type"
"""If event types are declared, clauses with this attribute are checked against them by their constants."""

ShapeKey = tuple[Shape, tuple[int, ...] | None]
"""A shape, and which of its constants are equal if that matters."""
Example = tuple[Any, Sequence[Any]]
"""A tree and its constants."""

IN_COLUMNS = frozenset({("isa", 1), ("is", 1), ("=", 1), ("<", 1), ("<=", 1), (">", 1), (">=", 1), ("between", 2)})
"""Operators with their number of constants, for which an engine takes the operands as columns if they are not
negated."""


@dataclass(frozen=True, slots=True)
class AtomPlan:
    """The plan of one atom. `form` is its operator, `closed` the ends of `between`, `slots` its constants, and `sorts`
    the sort of each."""

    attribute: str
    form: str
    slots: tuple[int, ...]
    sorts: tuple[Sort, ...]
    closed: str
    negated: bool
    truths: tuple[bool, ...] = ()
    """The constants true and false of `in` or `=`, which are part of the shape."""

    @property
    def in_columns(self) -> bool:
        """Whether its operands can be in a column."""
        return (self.form, len(self.slots)) in IN_COLUMNS and not self.negated and not self.truths

    def column(self, lowering: Lowering, operands: Sequence[Operands]) -> OperandColumn:
        """Returns the tests of many clauses. `operands` are those of all slots."""
        of = [operands[slot] for slot in self.slots]
        reading, sort = self._reading(), self.sorts[0][1]
        attribute, column = lowering.attribute(self.attribute), lowering.column(self.attribute, reading)
        if sort == "concept":
            concepts = np.array([of[0].keys[place] for place in of[0].places.tolist()], dtype=np.int32)
            return ConceptOperands(attribute, column, concepts, exactly=self.form != "isa")
        if reading in ("text", "boolean"):
            return KeyOperands(attribute, column, of[0].keys, of[0].places)
        low, high = self._ends(of[0].numbers, of[-1].numbers)
        return IntervalOperands(attribute, column, low, high, is_key=self.form == "=")

    def _reading(self) -> str:
        """Returns the reading of the atom. A date-time was read as an upper end; for the orders `>` and `>=` the lower
        end is used."""
        reading = self.sorts[0][0]
        return "since" if reading == UPPER and self.form in (">", ">=") else reading

    def predicate(self, lowering: Lowering, keys: Sequence[Key]) -> Predicate:
        """Returns the predicate of one clause. `keys` are the keys of the constants of all slots."""
        found = [keys[slot] for slot in self.slots]
        tests = tuple([(lowering.column(self.attribute, reading), test) for reading, test in self._tests(found)])
        return Predicate(lowering.attribute(self.attribute), tests, self.negated)

    def _tests(self, keys: Sequence[Key]) -> Iterator[tuple[str, ClauseTest]]:
        """Yields the same tests as `kindcast.semantic.conditions.predicates.checks_of`."""
        if self.form in ("isa", "below", "is"):
            concepts = frozenset(cast(Sequence[ConceptId], keys))
            name = {"isa": "within", "below": "below", "is": "exactly"}[self.form]
            yield "concept", ConceptTest(**{name: concepts})
        elif self.form in ("=", "in"):
            by_reading: dict[str, set[Key]] = {}
            for (reading, _), key in zip(self.sorts, keys, strict=True):
                by_reading.setdefault(reading, set()).add(key)
            if self.truths:
                by_reading["boolean"] = set(self.truths)
            concepts = frozenset(cast(set[ConceptId], by_reading.pop("concept", set())))
            for reading, found in by_reading.items():
                yield reading, KeyTest(frozenset(found))
            if concepts:
                yield "concept", ConceptTest(exactly=concepts)
        else:
            yield self._reading(), self._interval(cast(float, keys[0]), cast(float, keys[-1]))

    def _interval(self, first: float, last: float) -> IntervalTest:
        """Returns the interval of one clause, with the same ends as `_ends`."""
        low = -math.inf if self.form in ("<", "<=") else first
        high = math.inf if self.form in (">", ">=") else last
        if self.form == ">" or self.closed[0] == "(":
            low = math.nextafter(low, math.inf)
        if self.form == "<" or self.closed[1] == ")":
            high = math.nextafter(high, -math.inf)
        return IntervalTest(low, high)

    def _ends(
        self, first: npt.NDArray[np.float64], last: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the closed ends of intervals, in the same way as `kindcast.semantic.conditions.predicates`."""
        low, high = first, last
        if self.form in ("<", "<="):
            low = np.full_like(first, -np.inf)
        elif self.form in (">", ">="):
            high = np.full_like(first, np.inf)
        if self.form == ">" or self.closed[0] == "(":
            low = np.nextafter(low, np.inf)
        if self.form == "<" or self.closed[1] == ")":
            high = np.nextafter(high, -np.inf)
        return low, high


@dataclass(frozen=True, slots=True)
class ClausePlan:
    """The plan of one clause. `required` includes the attributes of its atoms."""

    atoms: tuple[AtomPlan, ...]
    required: frozenset[str]
    forbidden: frozenset[str]

    @property
    def in_columns(self) -> bool:
        """Whether an engine can take clauses of this plan as columns."""
        return all(atom.in_columns for atom in self.atoms)

    def columns(self, lowering: Lowering, operands: Sequence[Operands], places: npt.NDArray[np.int64]) -> ClauseColumns:
        """Returns many clauses of this plan, at these places of a bulk."""
        tests = tuple(atom.column(lowering, operands) for atom in self.atoms)
        return ClauseColumns(places, *self._attributes(lowering), tests)

    def clauses(self, lowering: Lowering, operands: Sequence[Operands], count: int) -> Iterator[Clause]:
        """Yields clauses of this plan one by one; works for all atoms."""
        for number in range(count):
            yield self.clause(lowering, [each.key(number) for each in operands])

    def clause(self, lowering: Lowering, keys: Sequence[Key]) -> Clause:
        """Returns one clause of this plan. `keys` are the keys of the constants of all slots."""
        predicates = tuple([atom.predicate(lowering, keys) for atom in self.atoms])
        return Clause(predicates, *self._attributes(lowering))

    def _attributes(self, lowering: Lowering) -> tuple[frozenset[AttributeId], frozenset[AttributeId]]:
        of = lowering.attribute
        return frozenset(map(of, sorted(self.required))), frozenset(map(of, sorted(self.forbidden)))


@dataclass(frozen=True, slots=True)
class Template:
    """The template of trees of one shape whose constants are equal at the same places. `readers` and `sorts` have one
    entry per slot. `text` prints the trees."""

    skeleton: Any
    text: "SlottedText"
    clauses: tuple[ClausePlan, ...]
    readers: tuple[OperandReader, ...]
    sorts: tuple[Sort, ...]
    clause_count: int
    cost: float


class Templates:
    """The templates of trees under one vocabulary, each made once. Not thread-safe."""

    def __init__(self, vocabulary: Vocabulary, operators: Mapping[str, Operator], *, stored: bool) -> None:
        """`stored` says that the trees were compiled before (rule 14)."""
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._skeletons: dict[Skeleton, Shape | None] = {}
        self._watched: dict[Shape, bool | None] = {}
        self._templates: dict[ShapeKey, Template | None] = {}
        self._waiting: dict[ShapeKey, list[Example]] = {}
        self._readers: dict[Use, OperandReader] = {}

    @property
    def remembered(self) -> int:
        """The number of cached shapes and constants."""
        return len(self._templates) + len(self._waiting) + sum(reader.remembered for reader in self._readers.values())

    def key(self, tree: Any, constants: list[Any]) -> ShapeKey | None:
        """Returns the key of the template of `tree`, and appends the constants of `tree` to `constants`. None if the
        shape of the tree has no template, whatever its constants are."""
        shape = self._shape_of_filled(tree, constants) if isinstance(tree, FilledTree) else shape_of(tree, constants)
        watched = None if shape is None else self._is_watched(shape)
        if shape is None or watched is None:
            return None
        return shape, equalities(constants) if watched else None

    def _shape_of_filled(self, tree: FilledTree, constants: list[Any]) -> Shape | None:
        """Does the same as `shape_of` for the whole tree, which is looked at once for each skeleton."""
        skeleton, own = tree
        if skeleton not in self._skeletons:
            places = [f"{place}" if isinstance(each, str) else place for place, each in enumerate(own)]
            found: list[Any] = []
            shape = shape_of(FilledTree(skeleton, places).whole(), found)
            self._skeletons[skeleton] = shape if found == places else None
        shape = self._skeletons[skeleton]
        if shape is None or max(map(length_hint, own), default=0) > LONGEST_TEXT:
            return shape_of(tree.whole(), constants)
        constants += own
        return shape

    def template(self, key: ShapeKey, examples: Iterable[Example], least: int) -> Template | None:
        """Returns the template of `key`. `examples` are trees with this key. The template is made once `least` trees
        were given in all calls. Returns None before, and if there is no template."""
        if key in self._templates:
            return self._templates[key]
        waiting = self._waiting.setdefault(key, [])
        waiting += islice(examples, least)
        if len(waiting) < least:
            return None
        del self._waiting[key]
        return self._make(key, waiting[-TRIES:])

    def _make(self, key: ShapeKey, examples: Iterable[Example]) -> Template | None:
        """Makes the template from the first of these trees for which it is possible."""
        for use in _uses_of(key[0]):
            if use not in self._readers:
                self._readers[use] = OperandReader(use, self._vocabulary, self._operators, stored=self._stored)
        compile_one = restore_expression if self._stored else compile_expression
        found = None
        for tree, constants in examples:
            try:
                compiled = compile_one(tree, self._vocabulary, self._operators)
            except InvalidSubscription:
                continue
            found = _template_of(key[0], constants, compiled, self._readers)
            if found is not None:
                break
        self._templates[key] = found
        return found

    def _is_watched(self, shape: Shape) -> bool | None:
        """Whether two predicates of `shape` test the same attribute, so that it matters which constants are equal. None
        if the shape has no template, whatever its constants are."""
        if shape not in self._watched:
            asked = [self._vocabulary.attributes.asked(name, "") for name in _attributes(shape)]
            judged = bool(self._vocabulary.schemas) and TYPE in asked
            self._watched[shape] = None if judged else len(set(asked)) < len(asked)
        return self._watched[shape]


def _attributes(shape: Any) -> Iterator[str]:
    if shape[0] in ("all", "any", "not"):
        for inner in shape[1:]:
            yield from _attributes(inner)
    else:
        yield shape[1]


def _uses_of(shape: Any) -> Iterator[Use]:
    """Yields the uses of the constants of a shape, in the order of the tree."""
    key = shape[0]
    if key in ("all", "any", "not"):
        for inner in shape[1:]:
            yield from _uses_of(inner)
        return
    how = KIND if key in ("isa", "below", "is") else EQUAL if key in ("=", "!=", "in") else ORDERED
    for kind in shape[2]:
        if kind not in ("true", "false"):
            yield how, shape[1], kind


def _template_of(
    shape: Any, constants: Sequence[Any], compiled: Compiled, readers: Mapping[Use, OperandReader]
) -> Template | None:
    """Returns the template of a shape, from one tree with these `constants` that was compiled individually. None if all
    trees of this shape, or with such constants, must be compiled individually."""
    if compiled.notes or not compiled.clauses:
        return None
    own = tuple(readers[use] for use in _uses_of(shape))
    sorts = tuple(reader.sort(constant) for reader, constant in zip(own, constants, strict=True))
    if None in sorts:
        return None
    slotting = _Slotting()
    slotting.expression(compiled.expression)
    stored = parse_tree(compiled.tree)  # its names may differ from the names as written
    skeleton = to_tree(_Slotting().expression(stored))
    plans: list[ClausePlan] = []
    for atoms in compiled.clauses:
        plan = _clause_plan(atoms, slotting.slots, cast(tuple[Sort, ...], sorts))
        if plan is None:
            return None
        plans.append(plan)
    told = compiled.clause_count, compiled.cost
    return Template(skeleton, SlottedText(stored), tuple(plans), own, cast(tuple[Sort, ...], sorts), *told)


def _clause_plan(
    atoms: Sequence[Atom], slots: Mapping[Expression, tuple[int, ...]], sorts: Sequence[Sort]
) -> ClausePlan | None:
    plans: list[AtomPlan] = []
    required: set[str] = set()
    forbidden: set[str] = set()
    for atom in atoms:
        predicate = atom.predicate
        if isinstance(predicate, Presence):
            (required if predicate.present else forbidden).add(predicate.attribute)
            continue
        required.update(atom.attributes)
        own = slots[predicate]
        of = tuple(sorts[slot] for slot in own)
        match predicate:
            case KindTest(attribute, test):
                plan = AtomPlan(attribute, test, own, of, "[]", atom.negated)
            case Comparison(attribute, order, Constant(value=value)):
                truths = (value,) if isinstance(value, bool) else ()
                plan = AtomPlan(attribute, order, own, of, "[]", atom.negated, truths)
            case Between(attribute, _, _, closed):
                plan = AtomPlan(attribute, "between", own, of, closed, atom.negated)
            case Membership(attribute, constants):
                told = tuple(each.value for each in constants if isinstance(each.value, bool))
                plan = AtomPlan(attribute, "in", own, of, "[]", atom.negated, told)
            case _:
                return None
        if plan.form == "between" and (len(set(of)) > 1 or of[0][0] == UPPER):
            return None  # never holds, or compares dates of any precision
        plans.append(plan)
    return ClausePlan(tuple(plans), frozenset(required), frozenset(forbidden))


class _Slotting:
    """Replaces the constants of an expression by slots, in the order of the tree. `slots` then has the slots of each
    predicate, in the form that the normal form gives the predicate."""

    def __init__(self, mark: str | None = None) -> None:
        """`mark` is a text that is written in place of each constant, before the number of its slot."""
        self._next = 0
        self._mark = mark
        self.slots: dict[Expression, tuple[int, ...]] = {}

    def expression(self, node: Expression) -> Expression:
        match node:
            case All(items) | AnyOf(items):
                return replace(node, items=tuple(map(self.expression, items)))
            case Not(item):
                return replace(node, item=self.expression(item))
        first = self._next
        match node:
            case KindTest(terms=terms):
                found: Expression = replace(node, terms=tuple(map(self._term, terms)))
            case Membership(constants=constants):
                found = replace(node, constants=tuple(map(self._constant, constants)))
            case Between(low=low, high=high):
                found = replace(node, low=self._constant(low), high=self._constant(high))
            case Comparison(operand=Constant() as operand):
                found = replace(node, operand=self._constant(operand))
                node = replace(node, order="=") if node.order == "!=" else node
            case _:
                found = node
        self.slots.setdefault(node, tuple(range(first, self._next)))
        return found

    def _constant(self, constant: Constant) -> Constant:
        if isinstance(constant.value, bool):
            return constant
        match constant.value:
            case Term() as term:
                return Constant(self._term(term))
            case Quantity(_, unit):
                return Constant(Quantity(self._slot(), unit))
            case Instant():
                return Constant(Instant(self._slot()))
            case Instance():
                return Constant(Instance(self._slot()))
            case _:
                return Constant(self._slot())

    def _term(self, _: Term) -> Term:
        return Term("", is_iri=True, iri=self._slot())

    def _slot(self) -> Any:
        self._next += 1
        return {SLOT: self._next - 1} if self._mark is None else f"{self._mark}{self._next - 1}."


class SlottedText:
    """The canonical text of the trees of one template, printed once: pieces with the constants between them."""

    def __init__(self, expression: Expression) -> None:
        """`expression` may have any constants."""
        plain, mark = to_text(expression), "slot"
        while mark in plain:
            mark += "_"
        marked = to_text(_Slotting(mark).expression(expression))
        # The characters around a slot show its kind: "string or number", 'number' unit, <IRI>, or a date-time.
        pieces = re.split(rf"""(["'<]?){mark}(\d+)\.["'>]?""", marked)
        self._pieces = pieces[::3]
        self._slots = [(int(slot), _PRINTED[around]) for around, slot in zip(pieces[1::3], pieces[2::3], strict=True)]

    def filled(self, columns: Sequence[Sequence[Any]]) -> Iterator[str]:
        """Yields the texts whose slots have the constants of these columns, without end if there is no slot."""
        parts: list[Iterable[str]] = [repeat(self._pieces[0])]
        for (slot, printed), piece in zip(self._slots, self._pieces[1:], strict=True):
            parts += (map(printed, columns[slot]), repeat(piece))
        return map("".join, zip(*parts, strict=False))


def _printed(constant: str | int | float) -> str:
    return quoted_string(constant) if isinstance(constant, str) else repr(constant)


_PRINTED: dict[str, Callable[[Any], str]] = {'"': _printed, "'": repr, "<": quoted_iri, "": str}
