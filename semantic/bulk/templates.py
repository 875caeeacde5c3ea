"""A shape, compiled once: which clauses its trees become, and where their constants stand.

    a tree of the shape ──compile──▶ clauses of atoms ──▶ ClausePlan: attributes, and for each atom the slots it reads
                               └──▶ resolved expression ──▶ skeleton of the stored tree

The normal form never looks at constants except for equality, so trees whose constants are equal at the same places
become the same clauses. A template is made only where an index decides every atom and there is nothing to tell.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, Clause, ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Predicate
from index.clause import Test as ClauseTest
from index.clause_columns import ClauseColumns, ConceptOperands, IntervalOperands, KeyOperands, OperandColumn
from semantic.bulk.columns import SLOT
from semantic.bulk.operands import EQUAL, KIND, ORDERED, OperandReader, Operands, Sort, Use
from semantic.bulk.shapes import Shape, equalities, shape_of
from semantic.compilation import Compiled, compile_expression, restore_expression
from semantic.errors import InvalidSubscription
from semantic.language import parse_tree, to_tree
from semantic.lowering import Lowering
from semantic.model import (
    All,
    AnyOf,
    Between,
    Comparison,
    Constant,
    Expression,
    Instant,
    KindTest,
    Membership,
    Not,
    Presence,
    Quantity,
    Term,
)
from semantic.normal_form import Atom
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["TRIES", "ClausePlan", "ShapeKey", "Template", "Templates"]

TRIES = 3
"""Trees of a shape that are tried as its example; the first may be odd in its constants alone."""
TYPE = "ce.type"
"""Where event types are declared, clauses that ask for one are compared with them by their constants."""

ShapeKey = tuple[Shape, tuple[int, ...] | None]
"""A shape, and which of its constants are equal where that matters."""

IN_COLUMNS = frozenset({("isa", 1), ("is", 1), ("=", 1), ("<", 1), ("<=", 1), (">", 1), (">=", 1), ("between", 2)})
"""Operators, with so many constants, whose operands an engine takes as columns, unless they are negated."""


@dataclass(frozen=True, slots=True)
class AtomPlan:
    """One atom: `form` is its operator, `closed` the ends of `between`, `slots` its constants, and `sorts` of what sort
    each is."""

    attribute: str
    form: str
    slots: tuple[int, ...]
    sorts: tuple[Sort, ...]
    closed: str
    negated: bool
    truths: tuple[bool, ...] = ()
    """True and false, which stand in the shape: those of `in`, or the operand of `=`."""

    @property
    def in_columns(self) -> bool:
        """Whether its operands can stand in a column."""
        return (self.form, len(self.slots)) in IN_COLUMNS and not self.negated and not self.truths

    def column(self, lowering: Lowering, operands: Sequence[Operands]) -> OperandColumn:
        """The tests of many clauses. `operands` are those of all slots."""
        of = [operands[slot] for slot in self.slots]
        reading, sort = self.sorts[0]
        attribute, column = lowering.attribute(self.attribute), lowering.column(self.attribute, reading)
        if sort == "concept":
            concepts = np.array(of[0].keys, dtype=np.float64).astype(np.int32)[of[0].places]
            return ConceptOperands(attribute, column, concepts, exactly=self.form != "isa")
        if reading in ("text", "boolean"):
            return KeyOperands(attribute, column, of[0].keys, of[0].places)
        low, high = self._ends(of[0].numbers, of[-1].numbers)
        return IntervalOperands(attribute, column, low, high, is_key=self.form == "=")

    def predicate(self, lowering: Lowering, keys: Sequence[Key]) -> Predicate:
        """The predicate of one clause. `keys` are what the constants of all slots compare with."""
        found = [keys[slot] for slot in self.slots]
        tests = tuple([(lowering.column(self.attribute, reading), test) for reading, test in self._tests(found)])
        return Predicate(lowering.attribute(self.attribute), tests, self.negated)

    def _tests(self, keys: Sequence[Key]) -> Iterator[tuple[str, ClauseTest]]:
        """As `semantic.reading.checks_of` has them."""
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
            yield self.sorts[0][0], self._interval(cast(float, keys[0]), cast(float, keys[-1]))

    def _interval(self, first: float, last: float) -> IntervalTest:
        """`_ends` of one clause."""
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
        """Closed ends of intervals, as `semantic.reading` makes them."""
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
    """One clause; `required` includes the attributes of its atoms."""

    atoms: tuple[AtomPlan, ...]
    required: frozenset[str]
    forbidden: frozenset[str]

    @property
    def in_columns(self) -> bool:
        """Whether an engine may take such clauses as columns."""
        return all(atom.in_columns for atom in self.atoms)

    def columns(self, lowering: Lowering, operands: Sequence[Operands], places: npt.NDArray[np.int64]) -> ClauseColumns:
        """Many such clauses, at these places of a bulk."""
        tests = tuple(atom.column(lowering, operands) for atom in self.atoms)
        return ClauseColumns(places, *self._attributes(lowering), tests)

    def clauses(self, lowering: Lowering, operands: Sequence[Operands], count: int) -> Iterator[Clause]:
        """The same one by one, whatever their atoms are."""
        for number in range(count):
            yield self.clause(lowering, [each.key(number) for each in operands])

    def clause(self, lowering: Lowering, keys: Sequence[Key]) -> Clause:
        """One such clause. `keys` are what the constants of all slots compare with."""
        predicates = tuple([atom.predicate(lowering, keys) for atom in self.atoms])
        return Clause(predicates, *self._attributes(lowering))

    def _attributes(self, lowering: Lowering) -> tuple[frozenset[AttributeId], frozenset[AttributeId]]:
        of = lowering.attribute
        return frozenset(map(of, sorted(self.required))), frozenset(map(of, sorted(self.forbidden)))


@dataclass(frozen=True, slots=True)
class Template:
    """Trees of one shape whose constants are equal at the same places. `readers` and `sorts` have an entry a slot."""

    skeleton: Any
    clauses: tuple[ClausePlan, ...]
    readers: tuple[OperandReader, ...]
    sorts: tuple[Sort, ...]


class Templates:
    """The templates that trees of one vocabulary have, each made once."""

    def __init__(self, vocabulary: Vocabulary, operators: Mapping[str, Operator], *, stored: bool) -> None:
        """`stored`: the trees were compiled before (rule 14)."""
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._watched: dict[Shape, bool | None] = {}
        self._templates: dict[ShapeKey, Template | None] = {}
        self._readers: dict[Use, OperandReader] = {}

    @property
    def remembered(self) -> int:
        """How many shapes and constants it remembers."""
        return len(self._templates) + sum(reader.remembered for reader in self._readers.values())

    def key(self, tree: Any, constants: list[Any]) -> ShapeKey | None:
        """What trees share that have the same template; the constants of `tree` are added to `constants`. None where
        it has no template whatever its constants are."""
        shape = shape_of(tree, constants)
        watched = None if shape is None else self._is_watched(shape)
        if shape is None or watched is None:
            return None
        return shape, equalities(constants) if watched else None

    def __contains__(self, key: ShapeKey) -> bool:
        return key in self._templates

    def __getitem__(self, key: ShapeKey) -> Template | None:
        """The template of a key that was made; None if there is none."""
        return self._templates[key]

    def make(self, key: ShapeKey, examples: Iterable[tuple[Any, Sequence[Any]]]) -> Template | None:
        """Make the template of `key` from the first of some trees of it, with their constants, that gives one."""
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
        """Whether two predicates of `shape` ask one attribute, so that it matters which constants are equal; None where
        it has no template whatever its constants are."""
        if shape not in self._watched:
            asked = [self._vocabulary.attributes.resolve(name) for name in _attributes(shape)]
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
    """How the constants of a shape are used, in the order of the tree."""
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
    """The template of the shape of one tree with these `constants`, which was compiled the ordinary way; None where
    trees of this shape, or with such constants, must all go that way."""
    if compiled.notes or not compiled.clauses:
        return None
    own = tuple(readers[use] for use in _uses_of(shape))
    sorts = tuple(reader.sort(constant) for reader, constant in zip(own, constants, strict=True))
    if None in sorts:
        return None
    slotting = _Slotting()
    slotting.expression(compiled.expression)
    skeleton = to_tree(_Slotting().expression(parse_tree(compiled.tree)))  # of what is stored: names may differ
    plans: list[ClausePlan] = []
    for atoms in compiled.clauses:
        plan = _clause_plan(atoms, slotting.slots, cast(tuple[Sort, ...], sorts))
        if plan is None:
            return None
        plans.append(plan)
    return Template(skeleton, tuple(plans), own, cast(tuple[Sort, ...], sorts))


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
        if plan.form == "between" and len(set(of)) > 1:
            return None  # never holds
        plans.append(plan)
    return ClausePlan(tuple(plans), frozenset(required), frozenset(forbidden))


class _Slotting:
    """Puts slots where an expression has constants, in the order of the tree; `slots` then tells which constants each
    predicate has, as the normal form writes it."""

    def __init__(self) -> None:
        self._next = 0
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
            case _:
                return Constant(self._slot())

    def _term(self, _: Term) -> Term:
        return Term("", is_iri=True, iri=self._slot())

    def _slot(self) -> Any:
        self._next += 1
        return {SLOT: self._next - 1}
