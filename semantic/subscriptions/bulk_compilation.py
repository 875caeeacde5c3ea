"""Bulk compilation: subscriptions of one shape are compiled together, the others one by one.

    (name, expression) … ─▶ shapes ─▶ groups ─▶ templates ─▶ Piece: constants of many trees as columns
                               └─ no shape, few like it, constants that need resolution ─▶ compiled one by one

The result is the same as that of compiling one by one: the same clauses and notes. The first invalid subscription ends
the bulk, and the subscriptions before it are kept. Up to `CHUNK` items of the input may have been read beyond it.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, Clause
from kindcast.index.engine import ClauseColumns
from kindcast.semantic.conditions.lowering import ExpensiveClause, LoweredClause, Lowering, expensive_clause
from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language.text import FilledTree, TextShapes
from kindcast.semantic.language.tree import filled
from kindcast.semantic.model import Note
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.subscriptions.compilation import Compiled, compile_expression, compiled_again, restore_expression
from kindcast.semantic.subscriptions.subscription_table import Part, SubscriptionTable, packed
from kindcast.semantic.subscriptions.templates import Operands, ShapeKey, Template, Templates
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "Bulk",
    "BulkCompiler",
    "ClauseParts",
    "CompiledTrees",
    "Described",
    "DescribedMany",
    "RepeatedShapes",
    "Restored",
    "enter_bulk",
    "is_asked",
    "lower_bulk",
    "lower_one",
]


CHUNK = 1 << 16
"""The number of subscriptions that are read before they are compiled: enough to make templates useful for thousands of
shapes."""
LEAST = 4
"""The least number of trees of one shape in a chunk for which a template is made. Making one costs about as much as
compiling two trees."""
MOST_REMEMBERED = 200_000
"""The maximum number of cached shapes and constants, some 50 MB. When it is exceeded, the cache is cleared."""
CONSTANTS_PER_TEXT = 20
"""The number of constants that need as much memory as the shape of a long text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Subscriptions of one template. `numbers` are their numbers in the bulk, in ascending order, `int64[n]`.
    `operands` has the operands of each slot."""

    template: Template
    numbers: npt.NDArray[np.int64]
    operands: tuple[Operands, ...]

    @property
    def part(self) -> Part:
        """The trees of the subscriptions."""
        return Part(self.template.skeleton, tuple(each.stored for each in self.operands))


@dataclass(slots=True)
class _Group:
    """Trees of one shape: their numbers and their constants."""

    numbers: list[int] = field(default_factory=list)
    constants: list[list[Any]] = field(default_factory=list)


class Bulk:
    """Collects and compiles subscriptions. The results are `names`, `singles` and `pieces()`. `names` has None for
    those that were refused."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        operators: Mapping[str, Operator],
        *,
        stored: bool,
        refused: Callable[[str, InvalidSubscription], None] | None = None,
        templates: Templates | None = None,
    ) -> None:
        """`stored` says that the subscriptions are trees that were compiled before (rule 14). `refused` is called for
        each invalid subscription; without it, the first one ends the bulk. `templates` are the templates of earlier
        bulks of the same kind."""
        self.names: list[str | None] = []
        self.singles: dict[int, Compiled] = {}
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._refused = refused
        self._templates = templates or Templates(vocabulary, operators, stored=stored)
        self._pieces: dict[int, list[Piece]] = {}

    def take(self, subscriptions: Iterable[tuple[str, Any]]) -> None:
        """Compiles all subscriptions. Raises `InvalidSubscription` for the first invalid one; those before it are kept.
        If `subscriptions` itself raises an error, the subscriptions before it are compiled first."""
        given = iter(subscriptions)
        more = True
        while more:
            chunk: list[tuple[str, Any]] = []
            with _uncollected():
                try:
                    for each in islice(given, CHUNK):
                        chunk.append(each)  # kept if a later item raises an error
                finally:
                    self._compile(chunk)
            more = len(chunk) == CHUNK

    def name(self, number: int) -> str:
        """Returns the name of a subscription that was not refused."""
        name = self.names[number]
        assert name is not None, number
        return name

    def pieces(self) -> Iterator[Piece]:
        """Yields the pieces, one per template."""
        for found in self._pieces.values():
            yield found[0] if len(found) == 1 else _together(found)

    def selected(self, names: Mapping[str, str]) -> "Bulk":
        """Returns a bulk of those whose name is in `names`, under the new name that is given there."""
        chosen = Bulk(self._vocabulary, self._operators, stored=self._stored)
        chosen.names = [None if name is None else names.get(name) for name in self.names]
        kept = np.array([name is not None for name in chosen.names], dtype=np.bool_)
        chosen.singles = {number: each for number, each in self.singles.items() if kept[number]}
        for template, pieces in self._pieces.items():
            own = [_taken(each, np.flatnonzero(kept[each.numbers])) for each in pieces]
            if any(each.numbers.size for each in own):
                chosen._pieces[template] = own
        return chosen

    # ── one chunk ───────────────────────────────────────────────────────────────────────────────────────────────

    def _compile(self, chunk: list[tuple[str, Any]]) -> None:
        groups: dict[ShapeKey, _Group] = {}
        alone: list[int] = []
        for number, (_, expression) in enumerate(chunk):
            constants: list[Any] = []
            key = self._templates.key(expression, constants)
            if key is None:
                alone.append(number)
                continue
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group()
            group.numbers.append(number)
            group.constants.append(constants)
        ready: list[Piece] = []
        for key, group in groups.items():
            template = self._template(key, group, chunk)
            if template is None:
                alone += group.numbers
            else:
                ready.append(_piece(template, group, alone))
        start = len(self.names)
        end, error = self._compile_alone(chunk, sorted(alone), start)
        for piece in ready:
            kept = int(np.searchsorted(piece.numbers, end))
            if kept:
                own = piece if kept == piece.numbers.size else _taken(piece, np.arange(kept))
                moved = Piece(own.template, own.numbers + start, own.operands)
                self._pieces.setdefault(id(own.template), []).append(moved)
        if error is not None:
            raise error

    def _compile_alone(
        self, chunk: list[tuple[str, Any]], alone: list[int], start: int
    ) -> tuple[int, InvalidSubscription | None]:
        """Compiles the subscriptions that have no template, and adds the names of all. Returns how many of the chunk
        are accepted, and the error of the next one, if there is one."""
        self.names += [name for name, _ in chunk]
        compile_one = restore_expression if self._stored else compile_expression
        for number in alone:
            name, expression = chunk[number]
            try:
                self.singles[start + number] = compile_one(_whole(expression), self._vocabulary, self._operators)
            except InvalidSubscription as error:
                if self._refused is None:
                    del self.names[start + number :]
                    return number, error
                self.names[start + number] = None
                self._refused(name, error)
            except BaseException:
                del self.names[start:]
                self.singles = {known: each for known, each in self.singles.items() if known < start}
                raise
        return len(chunk), None

    def _template(self, key: ShapeKey, group: _Group, chunk: list[tuple[str, Any]]) -> Template | None:
        numbered = zip(group.numbers, group.constants, strict=True)
        return self._templates.template(key, ((_whole(chunk[number][1]), own) for number, own in numbered), LEAST)


def _whole(expression: Any) -> Any:
    return expression.whole() if isinstance(expression, FilledTree) else expression


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disables the garbage collector for a chunk. All its objects are reachable until it is done, and the collector
    would traverse them many times."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _piece(template: Template, group: _Group, alone: list[int]) -> Piece:
    """Returns the trees of `group` whose constants fit the template. The numbers of the others are appended to
    `alone`."""
    columns = zip(*group.constants, strict=True)
    operands = (
        tuple(
            reader.operands(constants, sort)
            for reader, sort, constants in zip(template.readers, template.sorts, columns, strict=True)
        )
        if template.readers
        else ()
    )
    piece = Piece(template, np.array(group.numbers, dtype=np.int64), operands)
    good = np.ones(piece.numbers.size, dtype=np.bool_)
    for each in operands:
        good &= each.good
    if good.all():
        return piece
    alone += piece.numbers[~good].tolist()
    return _taken(piece, np.flatnonzero(good))


def _taken(piece: Piece, places: npt.NDArray[np.int64]) -> Piece:
    return Piece(piece.template, piece.numbers[places], tuple(each.taken(places) for each in piece.operands))


def _together(pieces: list[Piece]) -> Piece:
    """Concatenates pieces of one template."""
    numbers = np.concatenate([each.numbers for each in pieces])
    slots = zip(*(each.operands for each in pieces), strict=True)
    return Piece(pieces[0].template, numbers, tuple(Operands.joined(each) for each in slots))


# Many subscriptions compiled for storage: the result for each, without its clauses.
#
#     texts, trees ──▶ trees ──▶ Bulk ──▶ of one shape: the tree filled in, printed; clauses and cost as in the first
#                                   └──▶ compiled by itself, from the text as written: so errors have its positions
#
# Each result is the same as for the subscription alone. An invalid subscription does not affect the others.


@dataclass(frozen=True, slots=True)
class Described:
    """The stored properties of a compiled subscription; see `Compiled`."""

    canonical: str
    tree: dict[str, Any]
    clause_count: int
    cost: float
    notes: tuple[Note, ...] = ()
    may_call: bool = field(default=True, compare=False, repr=False)
    """Whether the tree may call operators."""

    @classmethod
    def of(cls, compiled: Compiled) -> "Described":
        return cls(compiled.canonical, compiled.tree, compiled.clause_count, compiled.cost, compiled.notes)


@dataclass(frozen=True, slots=True)
class DescribedMany:
    """One result for each expression. `bulk` has the clauses of the valid ones; their names are their positions."""

    results: list[Described | InvalidSubscription]
    bulk: Bulk


class BulkCompiler:
    """Compiles bulks, and caches the shapes and constants of one vocabulary between them. Not thread-safe."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def trim(self) -> None:
        """Clears the cache if it is large: more than `MOST_REMEMBERED` constants, where a shape counts as many."""
        if self._known is not None and self._known.remembered > MOST_REMEMBERED:
            self._known = None

    def compile(
        self, expressions: Sequence[str | Mapping[str, Any]], vocabulary: Vocabulary, operators: Mapping[str, Operator]
    ) -> DescribedMany:
        """Returns one result per expression. If the shapes are cached, each costs some 10 µs."""
        if self._known is None or not self._known.holds_for(vocabulary, operators):
            self._known = _Known(vocabulary, operators)
        return _compile_many(expressions, self._known)


class _Known:
    """The cached shapes of texts and trees that were compiled under one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, operators: Mapping[str, Operator]) -> None:
        self.vocabulary = vocabulary
        self.operators = operators
        self.texts = TextShapes()
        self.templates = Templates(vocabulary, operators, stored=False)

    @property
    def remembered(self) -> int:
        """The number of cached constants and templates, and `CONSTANTS_PER_TEXT` for each cached text."""
        return CONSTANTS_PER_TEXT * self.texts.remembered + self.templates.remembered

    def holds_for(self, vocabulary: Vocabulary, operators: Mapping[str, Operator]) -> bool:
        """Whether the cache belongs to this vocabulary and these operators."""
        return vocabulary is self.vocabulary and operators == self.operators


def _compile_many(expressions: Sequence[str | Mapping[str, Any]], known: _Known) -> DescribedMany:
    results: list[Described | InvalidSubscription | None] = [None] * len(expressions)
    trees: list[tuple[str, Any]] = []
    for number, expression in enumerate(expressions):
        try:
            tree = known.texts.tree(expression) if isinstance(expression, str) else expression
        except InvalidSubscription as error:
            results[number] = error
        else:
            trees.append((str(number), tree))
    vocabulary, operators = known.vocabulary, known.operators
    bulk = Bulk(vocabulary, operators, stored=False, refused=lambda name, error: None, templates=known.templates)
    bulk.take(trees)
    for piece in bulk.pieces():
        part, template = piece.part, piece.template
        properties = template.clause_count, template.cost, (), False
        columns = [column.listed() for column in part.columns]
        texts, stored = template.text.filled(columns), part.trees()
        for among, text, own in zip(piece.numbers.tolist(), texts, stored, strict=False):
            results[int(bulk.name(among))] = Described(text, own, *properties)  # trees with a shape call no operators
    for among, compiled in bulk.singles.items():
        results[int(bulk.name(among))] = Described.of(compiled)
    told = [
        _alone(expressions[number], vocabulary, operators) if result is None else result
        for number, result in enumerate(results)
    ]
    return DescribedMany(told, bulk)


def _alone(
    expression: str | Mapping[str, Any], vocabulary: Vocabulary, operators: Mapping[str, Operator]
) -> Described | InvalidSubscription:
    try:
        return Described.of(compile_expression(expression, vocabulary, operators))
    except InvalidSubscription as error:
        return error


# Results of adding many subscriptions: each `Compiled` when it is read, and the notes about stored trees.


@dataclass(frozen=True, slots=True)
class Restored:
    """The results for stored subscriptions, by name: their notes, and the errors of those that can no longer be
    compiled."""

    notes: dict[str, tuple[Note, ...]] = field(default_factory=dict)
    refused: dict[str, InvalidSubscription] = field(default_factory=dict)


class CompiledTrees(Sequence[Compiled]):
    """The subscriptions of a bulk, in order. Those that were compiled together are compiled again when they are read.
    Later changes of the matcher do not affect them."""

    def __init__(
        self,
        count: int,
        singles: Mapping[int, Compiled],
        parts: Sequence[tuple[npt.NDArray[np.int64], Part]],
        vocabulary: Vocabulary,
        operators: Mapping[str, Operator],
    ) -> None:
        """`parts` has each part with the numbers of its trees, in ascending order. `singles` has the other
        subscriptions by number."""
        self._singles = singles
        self._parts = [part for _, part in parts]
        self._part_of = np.full(count, -1, dtype=np.int32)
        self._place_of = np.zeros(count, dtype=np.int32)
        for number, (numbers, _) in enumerate(parts):
            self._part_of[numbers] = number
            self._place_of[numbers] = np.arange(numbers.size)
        self._vocabulary = vocabulary
        self._operators = operators

    def __len__(self) -> int:
        return self._part_of.size

    @overload
    def __getitem__(self, index: int) -> Compiled: ...
    @overload
    def __getitem__(self, index: slice) -> list[Compiled]: ...
    def __getitem__(self, index: int | slice) -> Compiled | list[Compiled]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        known = self._singles.get(numbers)
        if known is not None:
            return known
        tree = self._parts[self._part_of[numbers]].tree(int(self._place_of[numbers]))
        return compiled_again(tree, (), self._vocabulary, self._operators)


# Lowering of a bulk to the input of an engine, and the rows of each subscription.
#
# singles ─▶ clauses one by one          rows of the bulk:  | 0: row row | 1: row | 2: row …
# pieces  ─▶ columns, or clauses                              offsets[0]   [1]      [2]

IMPOSSIBLE = Clause(required=frozenset([AttributeId(0)]), forbidden=frozenset([AttributeId(0)]))
"""The clause of a subscription that can never match. It occupies a slot."""

ClauseParts = Sequence[tuple[Clause, LoweredClause | None, ExpensiveClause | None]]
"""The clauses of one subscription, each with the residual predicates of its candidates. At least one."""


@dataclass(frozen=True, slots=True)
class LoweredBulk:
    """A bulk in the form for an engine. `offsets` is `int64[n + 1]`: number i of the bulk has the places `offsets[i] …
    offsets[i + 1]`, none if it was refused. `clauses` and `columns` fill all places. `asked` has the subscriptions with
    residual predicates."""

    offsets: npt.NDArray[np.int64]
    clauses: list[tuple[int, Clause]]
    columns: list[ClauseColumns]
    pieces: list[Piece]
    asked: dict[int, ClauseParts]

    @property
    def count(self) -> int:
        """The number of places."""
        return int(self.offsets[-1])


def lower_one(
    lowering: Lowering, operators: Mapping[str, Operator], vocabulary: Vocabulary, compiled: Compiled
) -> ClauseParts:
    """Returns the clauses of one subscription, without those that can never hold."""
    parts: list[tuple[Clause, LoweredClause | None, ExpensiveClause | None]] = []
    for atoms in compiled.clauses:
        expensive = expensive_clause(atoms, operators, vocabulary)
        lowered = lowering.clause(atoms)
        if lowered is not None and (expensive is None or expensive.possible):
            parts.append((lowered.clause, lowered, expensive))
    return parts or [(IMPOSSIBLE, None, None)]


def lower_bulk(bulk: Bulk, lowering: Lowering, lower_one: Callable[[Compiled], ClauseParts]) -> LoweredBulk:
    """Lowers all of `bulk`. Linear: some ns per constant in a column, and some µs per clause that cannot be in
    columns."""
    pieces = list(bulk.pieces())
    singles = {number: lower_one(compiled) for number, compiled in bulk.singles.items()}
    offsets = np.zeros(len(bulk.names) + 1, dtype=np.int64)
    for piece in pieces:
        offsets[piece.numbers + 1] = len(piece.template.clauses)
    for number, parts in singles.items():
        offsets[number + 1] = len(parts)
    np.cumsum(offsets, out=offsets)
    clauses: list[tuple[int, Clause]] = []
    columns: list[ClauseColumns] = []
    for piece in pieces:
        first = offsets[piece.numbers]
        for after, plan in enumerate(piece.template.clauses):
            places = first + after
            if plan.in_columns:
                columns.append(plan.columns(lowering, piece.operands, places))
            else:
                one_by_one = plan.clauses(lowering, piece.operands, places.size)
                clauses += zip(places.tolist(), one_by_one, strict=True)
    for number, parts in singles.items():
        clauses += enumerate((clause for clause, _, _ in parts), start=int(offsets[number]))
    asked = {number: parts for number, parts in singles.items() if any(is_asked(*each[1:]) for each in parts)}
    return LoweredBulk(offsets, clauses, columns, pieces, asked)


def is_asked(lowered: LoweredClause | None, expensive: ExpensiveClause | None) -> bool:
    """Whether the candidates of a clause have residual predicates."""
    return expensive is not None or (lowered is not None and bool(lowered.rest))


def enter_bulk(
    bulk: Bulk, lowered: LoweredBulk, rows: npt.NDArray[np.int32], subscription_table: SubscriptionTable
) -> list[tuple[npt.NDArray[np.int64], Part]]:
    """Adds all subscriptions to the subscription table of a matcher. `rows` are the rows that the engine assigned to
    the places. Returns the numbers and trees of those that were compiled together."""
    counts = np.diff(lowered.offsets)
    kept = np.flatnonzero(counts)
    slots = np.zeros(counts.size, dtype=np.int32)
    slots[kept] = subscription_table.enter_many([bulk.name(number) for number in kept.tolist()], rows, counts[kept])
    parts = [(piece.numbers, piece.part) for piece in lowered.pieces]
    for numbers, part in parts:
        subscription_table.keep_part(slots[numbers], part)
    for number, compiled in bulk.singles.items():
        subscription_table.keep_tree(int(slots[number]), packed(compiled.tree), compiled.notes)
    return parts


# Subscriptions that are added one by one: compiled by the template of their shape, if there is one.
#
# tree ──▶ shape, constants ──template of the shape──▶ clauses, stored tree
#                 └─ no template, or a constant that needs a note ─▶ None: compiled by itself

LOOK = 100
"""The size of the cache is checked after this number of subscriptions."""


class RepeatedShapes:
    """Caches the shapes of trees for one matcher. The result is the same as that of compiling each tree by itself."""

    def __init__(self, vocabulary: Vocabulary, operators: Mapping[str, Operator], lowering: Lowering) -> None:
        self._vocabulary = vocabulary
        self._operators = operators
        self._lowering = lowering
        self._templates = self._new_templates()
        self._given = 0

    def compiled(self, tree: Any) -> tuple[Compiled, list[Clause]] | None:
        """Returns the subscription and its clauses, which an index decides completely. None if it must be compiled by
        itself. Takes about a third of the time of that."""
        constants: list[Any] = []
        key = self._templates.key(tree, constants)
        self._given += 1
        if self._given % LOOK == 0 and self._templates.remembered > MOST_REMEMBERED:
            self._templates = self._new_templates()
        template = None if key is None else self._templates.template(key, [(tree, constants)], LEAST)
        if template is None:
            return None
        operands = []
        for reader, sort, constant in zip(template.readers, template.sorts, constants, strict=True):
            operand = reader.operand(constant, sort)
            if operand is None:
                return None
            operands.append(operand)
        keys = [own for own, _ in operands]
        clauses = [plan.clause(self._lowering, keys) for plan in template.clauses]
        stored = filled(template.skeleton, [written for _, written in operands])
        return compiled_again(stored, (), self._vocabulary, self._operators), clauses

    def _new_templates(self) -> Templates:
        return Templates(self._vocabulary, self._operators, stored=False)
