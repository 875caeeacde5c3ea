"""Many subscriptions, compiled together where they are of one shape and one by one where not.

    (name, expression) … ─▶ shapes ─▶ groups ─▶ templates ─▶ Piece: constants of many trees as columns
                               └─ has none, few like it, constants that need a word ─▶ compiled by itself

The outcome is that of compiling one after the other: the same clauses and notes, and the first that is invalid ends it
with those before it kept. Only how far the input has been read by then differs: up to `CHUNK` further.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from semantic.bulk.columns import Part
from semantic.bulk.operands import Operands
from semantic.bulk.templates import TRIES, ShapeKey, Template, Templates
from semantic.compilation import Compiled, compile_expression, restore_expression
from semantic.errors import InvalidSubscription
from semantic.operators.declaration import Operator
from semantic.vocabulary import Vocabulary

__all__ = ["Bulk", "Piece"]

CHUNK = 1 << 16
"""Subscriptions that are read before they are compiled: enough for thousands of shapes to be worth it."""
LEAST = 4
"""Trees of one shape in a chunk from which a template pays: making one costs about as much as two trees."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Subscriptions of one template: `numbers` says which of the bulk they are, ascending, `int64[n]`; `operands` are
    those of each slot."""

    template: Template
    numbers: npt.NDArray[np.int64]
    operands: tuple[Operands, ...]

    @property
    def part(self) -> Part:
        """Their trees."""
        return Part(self.template.skeleton, tuple(each.stored for each in self.operands))


@dataclass(slots=True)
class _Group:
    """Trees of one shape and their constants, by their numbers."""

    numbers: list[int] = field(default_factory=list)
    constants: list[list[Any]] = field(default_factory=list)


class Bulk:
    """Collects subscriptions; `names`, `singles` and `pieces()` are what became of them. `names` has None for those
    that were refused."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        operators: Mapping[str, Operator],
        *,
        stored: bool,
        refused: Callable[[str, InvalidSubscription], None] | None = None,
    ) -> None:
        """`stored`: they are trees that were compiled before (rule 14). `refused` is told of those that are invalid;
        without it the first ends the bulk."""
        self.names: list[str | None] = []
        self.singles: dict[int, Compiled] = {}
        self._vocabulary = vocabulary
        self._operators = operators
        self._stored = stored
        self._refused = refused
        self._templates = Templates(vocabulary, operators, stored=stored)
        self._pieces: dict[int, list[Piece]] = {}

    def take(self, subscriptions: Iterable[tuple[str, Any]]) -> None:
        """Compile all. Raises `InvalidSubscription` for the first that is invalid, those before it being kept, and
        whatever `subscriptions` raises, after what it gave."""
        given = iter(subscriptions)
        more = True
        while more:
            chunk: list[tuple[str, Any]] = []
            with _uncollected():
                try:
                    for each in islice(given, CHUNK):
                        chunk.append(each)  # what was given before an error is kept
                finally:
                    self._compile(chunk)
            more = len(chunk) == CHUNK

    def name(self, number: int) -> str:
        """The name of one that was not refused."""
        name = self.names[number]
        assert name is not None, number
        return name

    def pieces(self) -> Iterator[Piece]:
        """The pieces, one for each template."""
        for found in self._pieces.values():
            yield found[0] if len(found) == 1 else _together(found)

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
        """Compile those that have no template, and enter the names of all. Returns how many of the chunk are taken, and
        the error of the next one, if there is one."""
        self.names += [name for name, _ in chunk]
        compile_one = restore_expression if self._stored else compile_expression
        for number in alone:
            name, expression = chunk[number]
            try:
                self.singles[start + number] = compile_one(expression, self._vocabulary, self._operators)
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
        if key in self._templates:
            return self._templates[key]
        if len(group.numbers) < LEAST:
            return None
        numbered = zip(group.numbers, group.constants, strict=True)
        return self._templates.make(key, [(chunk[number][1], own) for number, own in islice(numbered, TRIES)])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Around a chunk: all its objects are reachable until it is done, and the collector would walk them many times."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _piece(template: Template, group: _Group, alone: list[int]) -> Piece:
    """The trees of `group` whose constants are as those of the template; the numbers of the others join `alone`."""
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
    """Pieces of one template, one after the other."""
    numbers = np.concatenate([each.numbers for each in pieces])
    slots = zip(*(each.operands for each in pieces), strict=True)
    return Piece(pieces[0].template, numbers, tuple(Operands.joined(each) for each in slots))
