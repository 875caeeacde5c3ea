"""Backtests of an expression: how many events match, when, ten samples, and how many events each predicate excludes.

    expression ──compile──▶ the expression and each of its predicates, as subscriptions of one matcher
    events ──match──▶ which of these match each event ──count──▶ `Counts`, which can be added over parts of an archive

The same code is used for a small archive in the server and for a large one in Spark workers.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.semantic.conditions.lowering import is_expensive
from kindcast.semantic.conditions.normal_form import Atom
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.event_plans import ReadEvent
from kindcast.semantic.explanations import explain, without_values
from kindcast.semantic.language import to_text, to_tree
from kindcast.semantic.matching.matcher import Matcher
from kindcast.semantic.matching.verification import MatchTable
from kindcast.semantic.model import Event, Not
from kindcast.semantic.operators.declaration import Operator, operators_by_name
from kindcast.semantic.subscriptions.compilation import compile_expression
from kindcast.semantic.vocabulary.visibility import is_linked
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["SAMPLES", "Backtest", "Counts", "PastEvent"]

SAMPLES = 10
"""Number of matching events that are shown with their explanation."""
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An event of an archive. `day` is the day of its time, such as `2026-01-31`."""

    source: str
    id: str
    day: str
    event: Event


@dataclass(slots=True)
class Counts:
    """The counts of a backtest; counts of several parts of an archive can be added. `days`: day → [events, matched].
    `clauses`: for each predicate of each clause [events for which it holds, events for which it and all predicates
    before it hold, events for which it alone does not hold]. `samples`: the matching events of the lowest rank. The
    rank is a hash of source and id, so the samples do not depend on the division of the archive into parts."""

    events: int = 0
    matched: int = 0
    unreadable: int = 0
    undecided: int = 0
    days: dict[str, list[int]] = field(default_factory=dict)
    clauses: list[list[list[int]]] = field(default_factory=list)
    samples: list[tuple[str, PastEvent]] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Adds the counts of `other`."""
        self.events += other.events
        self.matched += other.matched
        self.unreadable += other.unreadable
        self.undecided += other.undecided
        for day, (events, matched) in other.days.items():
            mine = self.days.setdefault(day, [0, 0])
            mine[0] += events
            mine[1] += matched
        if not self.clauses:
            self.clauses = [[[0, 0, 0] for _ in clause] for clause in other.clauses]
        for clause, its in zip(self.clauses, other.clauses, strict=True):
            for counts, more in zip(clause, its, strict=True):
                counts[:] = [one + two for one, two in zip(counts, more, strict=True)]
        self.samples = sorted((*self.samples, *other.samples), key=lambda each: each[0])[:SAMPLES]


class Backtest:
    """The backtest of one expression under one vocabulary, with the counts so far. Not thread-safe."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        expression: str | Mapping[str, Any],
        *,
        operators: Iterable[Operator] = (),
    ) -> None:
        """Compiles the expression. Raises `InvalidSubscription` with every problem."""
        self._operators = tuple(operators)
        self._vocabulary = vocabulary
        self.compiled = compile_expression(expression, vocabulary, operators_by_name(self._operators))
        self.matcher = Matcher(vocabulary, operators=self._operators)
        self.matcher.add_compiled(WHOLE, self.compiled)
        self._atoms: dict[Atom, int] = {}
        """Predicate without operators → its column in the table of results; the whole expression has column 0."""
        self._clauses = [[atom for atom in clause if not is_expensive(atom)] for clause in self.compiled.clauses]
        for clause in self._clauses:
            for atom in clause:
                if atom not in self._atoms:
                    self._atoms[atom] = number = len(self._atoms) + 1
                    self.matcher.restore(str(number), to_tree(_expression(atom)))
        self.counts = Counts(clauses=[[[0, 0, 0] for _ in clause] for clause in self._clauses])

    # ── counting ────────────────────────────────────────────────────────────────────────────────────────────────

    def feed(self, events: Sequence[PastEvent]) -> None:
        """Matches and counts events. The events of a document with several events are counted one by one. A document
        that cannot be read counts as `unreadable`."""
        read: list[ReadEvent] = []
        past: list[PastEvent] = []
        for each, found in zip(events, self.matcher.read_each([each.event for each in events]), strict=True):
            if not isinstance(found, InvalidEvent):
                past.append(each)
                read.append(found)
                continue
            try:
                parts = self._parts(each, found)
                read += [self.matcher.read(part.event) for part in parts]
                past += parts
            except InvalidEvent:
                self.counts.unreadable += 1
        before = self.matcher.statistics.undecided
        table = self.matcher.match_read(read)
        self.counts.undecided += self.matcher.statistics.undecided - before
        names = [(each.source, each.id) for each in past]
        self.feed_table(table, [each.day for each in past], names.__getitem__, past.__getitem__)

    def _parts(self, document: PastEvent, error: InvalidEvent) -> list[PastEvent]:
        """Returns the events of a document that was not read because it has several events. Raises `error` if that is
        not the reason."""
        if not any(problem.code == "several-events" for problem in error.problems):
            raise error
        parts = self.matcher.events_of(document.event)
        return [PastEvent(document.source, str(each.context["id"]), document.day, each) for each in parts]

    def feed_table(
        self,
        table: MatchTable,
        days: Sequence[str],
        name: Callable[[int], tuple[str, str]],
        event: Callable[[int], PastEvent],
    ) -> None:
        """Counts events that `matcher` has matched as a table. `days` has one day per row; `name` returns (source, id)
        of a row, and `event` the event of a row."""
        truth = np.zeros((len(table.offsets) - 1, len(self._atoms) + 1), dtype=bool)
        rows = np.repeat(np.arange(len(truth)), np.diff(table.offsets))
        known, place = np.unique(table.slots, return_inverse=True)
        columns = np.array([self._column(name) for name in table.subscriptions(known.tolist())], dtype=np.int64)
        if len(columns):
            truth[rows, columns[place]] = True
        self._count(truth, days, name, event)

    def _column(self, name: str) -> int:
        return 0 if name == WHOLE else int(name)

    def _count(
        self,
        truth: npt.NDArray[np.bool_],
        days: Sequence[str],
        name: Callable[[int], tuple[str, str]],
        event: Callable[[int], PastEvent],
    ) -> None:
        counts = Counts(events=len(truth), matched=int(truth[:, 0].sum()))
        names, place = np.unique(np.array(days, dtype=object).astype(str), return_inverse=True)
        per_day = np.bincount(place, minlength=len(names))
        matched = np.bincount(place[truth[:, 0]], minlength=len(names))
        counts.days = {str(day): [int(per_day[n]), int(matched[n])] for n, day in enumerate(names)}
        for clause in self._clauses:
            holds = truth[:, [self._atoms[atom] for atom in clause]]
            failing = (~holds).sum(axis=1)
            so_far = np.logical_and.accumulate(holds, axis=1) if clause else holds
            alone = (~holds) & (failing == 1)[:, None]
            counts.clauses.append(
                [[int(holds[:, n].sum()), int(so_far[:, n].sum()), int(alone[:, n].sum())] for n in range(len(clause))]
            )
        rows = np.flatnonzero(truth[:, 0]).tolist()
        ranked = sorted((_rank(*name(row)), row) for row in rows)
        counts.samples = [(rank, event(row)) for rank, row in ranked[:SAMPLES]]
        self.counts.add(counts)

    # ── the report ──────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, *, language: str = "en", hides_linked: bool = False) -> dict[str, Any]:
        """Returns the result as JSON: `{"canonical", "vocabulary_version", "events", "matched", "unreadable",
        "undecided", "days": [{"day", "events", "matched"}], "clauses": [{"predicates": [{"text", "holds", "left",
        "cuts"}], "expensive"}], "samples": [{"source", "id", "day", "data", "explanation"}], "notes"}`. `holds` counts
        the events for which a predicate holds, `left` those for which it and every predicate before it hold, `cuts`
        those that only this predicate excludes. `expensive` is the number of predicates with operators; they are not
        counted by themselves. With `hides_linked`, samples of linked data have no data, and of their explanation the
        verdict only."""
        counts = self.counts
        return {
            "canonical": self.compiled.canonical,
            "vocabulary_version": self._vocabulary.version,
            "events": counts.events,
            "matched": counts.matched,
            "unreadable": counts.unreadable,
            "undecided": counts.undecided,
            "days": [
                {"day": day, "events": events, "matched": matched}
                for day, (events, matched) in sorted(counts.days.items())
            ],
            "clauses": [
                {
                    "predicates": [
                        {"text": self._text(atom), "holds": holds, "left": left, "cuts": cuts}
                        for atom, (holds, left, cuts) in zip(atoms, numbers, strict=True)
                    ],
                    "expensive": len(whole) - len(atoms),
                }
                for atoms, numbers, whole in zip(self._clauses, counts.clauses, self.compiled.clauses, strict=True)
            ],
            "samples": [self._shown(past, language, hides_linked) for _, past in counts.samples],
            "notes": [
                {"code": note.code, "attribute": note.attribute, "detail": note.detail} for note in self.compiled.notes
            ],
        }

    def _text(self, atom: Atom) -> str:
        return to_text(_expression(atom))

    def _shown(self, past: PastEvent, language: str, hides_linked: bool) -> dict[str, Any]:
        told = explain(self._vocabulary, self.compiled, past.event, language=language, operators=self._operators)
        data = past.event.data
        if hides_linked and is_linked(past.event.context.get("datacontenttype"), data):
            data, told = None, without_values(told)
        return {"source": past.source, "id": past.id, "day": past.day, "data": data, "explanation": told}


def _expression(atom: Atom) -> Any:
    return Not(atom.predicate) if atom.negated else atom.predicate


def _rank(source: str, id: str) -> str:
    """Returns the rank of an event as a sample: a hash of its source and id."""
    return hashlib.blake2b(f"{source}\n{id}".encode(), digest_size=8).hexdigest()
