"""The matcher: from an event to the subscriptions that it matches.

    event ──canonical_events──▶ readings ──lowering──▶ integers ──engine──▶ rows ──verification──▶ candidates
          ──operator_layer──▶ matches

docs/matching-semantics.md defines a match. The engine decides exactly what a column can decide. The predicates that no
column can decide (tests of text, comparisons of two attributes, one element of an array) are verified on the rows that
the engine found, and operators decide what is left.

`index_steps` explains the work of the index on one event: numbers of attributes and columns become names, clusters with
most rows come first, and the result is JSON.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import ClauseRow, LoweredEvent
from kindcast.index.engine import Engine, RowTable
from kindcast.index.registry import new_engine
from kindcast.semantic.conditions.lowering import Lowering
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events.canonical_events import Canonicaliser, EventLimits
from kindcast.semantic.events.event_plans import EventPlans, ReadEvent
from kindcast.semantic.events.event_table import Table, TableReader
from kindcast.semantic.matching.operator_layer import OperatorLayer
from kindcast.semantic.matching.saved_matcher import SavedMatcher, open_saved, save, versions
from kindcast.semantic.matching.verification import (
    Decided,
    Found,
    Matches,
    MatchTable,
    OpenDecision,
    Readable,
    Statistics,
    TablePart,
    Verification,
    matches_of,
    parts_of,
    table_of,
    undecided_of,
)
from kindcast.semantic.model import CanonicalEvent, Event, Match, Note, SubscriptionSlot
from kindcast.semantic.operators.declaration import Operator, operators_by_name
from kindcast.semantic.subscriptions.bulk_compilation import (
    Bulk,
    ClauseParts,
    CompiledTrees,
    DescribedMany,
    RepeatedShapes,
    Restored,
    enter_bulk,
    lower_bulk,
    lower_one,
)
from kindcast.semantic.subscriptions.compilation import (
    Compiled,
    advise,
    compile_expression,
    compiled_again,
    restore_expression,
)
from kindcast.semantic.subscriptions.subscription_table import (
    NamesView,
    Part,
    SubscriptionTable,
    packed,
)
from kindcast.semantic.units.patterns import SearchBudget
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["MatchTable", "Matcher"]

TEXTS_A_NAME = 4
"""A text takes some 150 bytes."""
BATCH = 1_000
"""Events lowered and matched in one call: enough to spread its overhead, few enough to stay in the cache."""
TABLE_PART = 4_000
"""Rows of a table that are read and matched in one call. More rows share more of the work on a cluster, and several
threads wait less often for each other; fewer rows need less memory for their matches."""
Published = Mapping[str, Any] | Event | CanonicalEvent
"""The input of matching: the data of an event, an event, or a canonical event."""


class Matcher:
    """Holds subscriptions under one vocabulary and finds those that an event matches.

    The result is exact as defined in docs/matching-semantics.md. A matcher has one owner: only one thread may use it at
    a time. `add` parses the expression and performs a few steps in the engine. `match` reads the event, searches the
    index once and verifies the rows that the index returns.

    >>> from kindcast.semantic import Matcher, Vocabulary
    >>> matcher = Matcher(Vocabulary.from_ontologies([]))
    >>> compiled = matcher.add("cheap", "price <= 400")
    >>> matcher.match({"price": 350})
    [Match(subscription='cheap', bindings=(), bindings_truncated=False)]
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        engine: str = "fused",
        planner: str = "greedy",
        operator_threads: int = 1,
        operators: Iterable[Operator] = (),
        limits: EventLimits | None = None,
        budget: int | None = None,
    ) -> None:
        """`budget` is the maximum size of index and caches in bytes (engine `fused` only); the default is no limit.
        When the budget is used up, adding raises `kindcast.index.errors.IndexFull` and adds nothing.

        Raises `kindcast.index.errors.UnknownEngine` if `engine` is not in `kindcast.index.registry.ENGINES`,
        `UnknownPlanner` if `planner` is not in `kindcast.semantic.planner.PLANNERS`, and `InvalidDeclaration` if two
        operators have the same name."""
        if not isinstance(vocabulary, Vocabulary):
            raise TypeError(
                f"a matcher needs a Vocabulary, not {type(vocabulary).__name__}: Vocabulary.from_files reads files"
            )
        self.vocabulary = vocabulary
        self.engine_name = engine
        self._limits = limits
        self._budget = budget
        self._canonicaliser = Canonicaliser(vocabulary, limits=limits)
        self._lowering = Lowering(vocabulary)
        self._engine = new_engine(engine, vocabulary.graph, budget=budget)
        self._tables = TableReader(self._canonicaliser, self._lowering, vocabulary.units)
        self._plans = EventPlans(self._canonicaliser, self._lowering, self._tables)
        self._subscriptions = SubscriptionTable()
        self._operators = dict(operators_by_name(operators))
        self.operators: Mapping[str, Operator] = self._operators
        self.planner_name = planner
        self._lowered = functools.partial(lower_one, self._lowering, self.operators, vocabulary)
        self._repeated = RepeatedShapes(vocabulary, self.operators, self._lowering)
        self._layer = OperatorLayer(self.operators, planner, vocabulary.units, threads=operator_threads)
        self._verification = Verification(self._subscriptions, self._layer, vocabulary.units, self._parts_of)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._subscriptions)

    @property
    def layer(self) -> OperatorLayer:
        """The operator layer, which holds the statistics of operator calls."""
        return self._layer

    @property
    def statistics(self) -> Statistics:
        """The counters of this matcher, including those of the matchers that it was rebuilt from."""
        return self._verification.statistics

    @property
    def defers(self) -> bool:
        """Whether this matcher leaves operators and costly tests of text to another matcher. If so, candidates that
        need them are returned undecided, and this matcher does not wait for them."""
        return self._verification.defers

    @defers.setter
    def defers(self, defers: bool) -> None:
        self._verification.defers = defers

    @property
    def names(self) -> int:
        """The number of attribute names, and of ways to read their values, that a subscription ever used, and of texts
        that it compared them with, `TEXTS_A_NAME` of which count as one. Each takes some 600 bytes until the matcher is
        rebuilt. May be read in any thread."""
        return self._lowering.asked + self._engine.keys // TEXTS_A_NAME

    @property
    def index_bytes(self) -> int | None:
        """The size of index and caches in bytes; None if the engine does not count it. Only the owner's thread may
        read it."""
        return self._engine.nbytes

    @property
    def index_structure(self) -> Mapping[str, int]:
        """The number of parts of the index, by kind of part; empty if the engine does not report it. Only the owner's
        thread may read it."""
        return self._engine.structure

    @property
    def changes(self) -> int:
        """The number of subscriptions that were added or removed since this matcher was made or opened."""
        return self._subscriptions.changes

    @property
    def asked(self) -> int:
        """A number that grows whenever a subscription uses an attribute, or a reading of one, that no other used
        before."""
        return self._lowering.asked

    def __contains__(self, name: object) -> bool:
        return name in self._subscriptions.slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._subscriptions.slots)

    @property
    def slots(self) -> Mapping[str, SubscriptionSlot]:
        """The slot of each subscription. A slot can be reused after its subscription is removed."""
        return self._subscriptions.slots

    def name(self, slot: int) -> str:
        """Returns the name of the subscription in an occupied slot."""
        return self._subscriptions.names[slot]

    def __getitem__(self, name: str) -> Compiled:
        """Returns the compiled subscription `name`, compiled again from its stored tree. Raises
        `UnknownSubscription`."""
        slot = self._subscriptions.slot(name)
        return compiled_again(
            self._subscriptions.tree(slot), self._subscriptions.notes(slot), self.vocabulary, self.operators
        )

    def tree(self, name: str) -> dict[str, Any]:
        """Returns the `Compiled.tree` of the subscription `name` without compiling it again. Raises
        `UnknownSubscription`."""
        return self._subscriptions.tree(self._subscriptions.slot(name))

    def compile(self, expression: str | Mapping[str, Any]) -> Compiled:
        """Checks and compiles an expression without adding it. If the expression is text, its `notes` also contain
        advice. Raises `InvalidSubscription` with all problems."""
        compiled = compile_expression(expression, self.vocabulary, self.operators)
        said = advise(compiled, self.vocabulary) if isinstance(expression, str) else ()
        return compiled.with_notes(tuple(dict.fromkeys((*compiled.notes, *said)))) if said else compiled

    def add(self, name: str, expression: str | Mapping[str, Any]) -> Compiled:
        """Adds a subscription, given as text or as a tree. The next `match` includes it. Raises `InvalidSubscription`
        with all problems, `DuplicateSubscription` if `name` exists, and TypeError if it is no text."""
        self._subscriptions.check_new(name)
        repeated = None if isinstance(expression, str) else self._repeated.compiled(expression)
        if repeated is None:
            return self.add_compiled(name, self.compile(expression))
        compiled, clauses = repeated
        self._subscriptions.enter(name, self._engine.add_many(clauses), packed(compiled.tree), ())
        return compiled

    def add_many(self, subscriptions: Iterable[tuple[str, str | Mapping[str, Any]]]) -> Sequence[Compiled]:
        """Adds each (name, expression) in order. Stops at the first invalid expression; those before it are added.
        Trees of the same shape are compiled together, about ten times as fast as one by one. The elements of the
        returned sequence are made when they are read."""
        bulk = Bulk(self.vocabulary, self.operators, stored=False)
        try:
            bulk.take(self._subscriptions.new(subscriptions))
        finally:
            parts = self._add_bulk(bulk)
        return CompiledTrees(len(bulk.names), bulk.singles, parts, self.vocabulary, self.operators)

    def restore(self, name: str, tree: Mapping[str, Any]) -> Compiled:
        """Adds a subscription from its stored `Compiled.tree`. Removed IRIs are reported in `notes` and are no
        error."""
        return self.add_compiled(name, restore_expression(tree, self.vocabulary, self.operators))

    def restore_many(self, trees: Iterable[tuple[str, Mapping[str, Any]]]) -> Restored:
        """Restores each (name, tree), as fast as `add_many`. Subscriptions without a meaning under this vocabulary are
        not added; the result lists them with their errors. Raises `DuplicateSubscription`; the subscriptions before the
        duplicate are added."""
        restored = Restored()
        bulk = Bulk(self.vocabulary, self.operators, stored=True, refused=restored.refused.__setitem__)
        try:
            bulk.take(self._subscriptions.new(trees))
        finally:
            self._add_bulk(bulk)
        restored.notes.update((bulk.name(number), each.notes) for number, each in bulk.singles.items() if each.notes)
        return restored

    def add_described(self, described: DescribedMany, names: Mapping[int, str]) -> None:
        """Adds expressions that a `BulkCompiler` compiled under the vocabulary of this matcher. `names` maps the place
        of each expression to add to the name of its subscription; all these expressions must be valid. Raises
        `DuplicateSubscription`; then nothing is added."""
        for name in names.values():
            self._subscriptions.check_new(name)
        self._add_bulk(described.bulk.selected({str(place): name for place, name in names.items()}))

    def add_compiled(self, name: str, compiled: Compiled) -> Compiled:
        """Adds a subscription that this matcher, or another one with the same vocabulary, compiled."""
        self._subscriptions.check_new(name)
        parts = self._lowered(compiled)
        rows = [int(row) for row in self._engine.add_many([clause for clause, _, _ in parts])]
        self._subscriptions.enter(name, rows, packed(compiled.tree), compiled.notes)
        self._verification.remain(rows, parts)
        return compiled

    def _add_bulk(self, bulk: Bulk) -> list[tuple[npt.NDArray[np.int64], Part]]:
        """Adds the subscriptions of `bulk` to the engine and to the subscription table. Returns the numbers and trees
        of those that were compiled together."""
        lowered = lower_bulk(bulk, self._lowering, self._lowered)
        rows = self._engine.add_columns(lowered.clauses, lowered.columns, lowered.count)
        parts = enter_bulk(bulk, lowered, rows, self._subscriptions)
        for number, asked in lowered.asked.items():
            self._verification.remain(rows[lowered.offsets[number] : lowered.offsets[number + 1]].tolist(), asked)
        return parts

    def _parts_of(self, slot: SubscriptionSlot) -> ClauseParts:
        """Returns the clauses of the subscription in `slot`, compiled and lowered again."""
        return self._lowered(compiled_again(self._subscriptions.tree(slot), (), self.vocabulary, self.operators))

    def declare(self, operator: Operator) -> None:
        """Registers an operator; replaces an operator of the same name."""
        self._operators[operator.name] = operator

    def remove(self, name: str) -> None:
        """Removes a subscription. Raises `UnknownSubscription`."""
        for row in self._subscriptions.leave(name):
            self._engine.remove(ClauseRow(row))
            self._verification.forget(row)

    def rebuilt(self, vocabulary: Vocabulary) -> "Matcher":
        """Returns a new matcher with the same subscriptions under another vocabulary (rule 14). This matcher does not
        change. Each subscription keeps the IRIs that it named: if a concept was removed or replaced and later returns,
        the subscription refers to it again. Raises `InvalidSubscription` if a subscription has no meaning under
        `vocabulary`, for example because a unit is wrong."""
        other = Matcher(
            vocabulary,
            engine=self.engine_name,
            planner=self.planner_name,
            operators=self.operators.values(),
            limits=self._limits,
            budget=self._budget,
        )
        other._verification.statistics = self.statistics
        for error in other.restore_many((name, self.tree(name)) for name in self).refused.values():
            raise error
        return other

    def check_invariants(self) -> None:
        """Raises AssertionError if the subscription table is inconsistent with the index. Slow; for tests."""
        self._engine.check_invariants()
        self._subscriptions.check_invariants()
        rows = {row for row, slot in enumerate(self._subscriptions.slot_of_row) if slot >= 0}
        assert len(self._engine) == len(rows), (len(self._engine), rows)
        self._verification.check_invariants(rows)

    def save(self, folder: Path) -> None:
        """Writes the matcher into `folder`, for `open`. The matcher does not change. The cost is that of writing its
        bytes. Raises `OSError`."""
        operators = versions(self.operators) if self._subscriptions.asking else []
        known = SavedMatcher(
            self.engine_name,
            self.planner_name,
            operators,
            *self._lowering.numbered,
            self._engine,
            self._subscriptions,
        )
        save(folder, self.vocabulary, known)

    @classmethod
    def open(
        cls,
        folder: Path,
        vocabulary: Vocabulary,
        *,
        operators: Iterable[Operator] = (),
        limits: EventLimits | None = None,
        budget: int | None = None,
    ) -> "Matcher":
        """Opens the matcher that was saved in `folder`, with the same subscriptions in the same slots. The index is
        mapped into memory and nothing is compiled: the residual predicates of a row are compiled when the row first
        becomes a candidate. Raises `UnusableMatcher` if the files are damaged or belong to another vocabulary; then the
        caller must add the subscriptions again."""
        known = open_saved(folder, vocabulary, versions(operators_by_name(operators)), budget)
        matcher = cls(
            vocabulary,
            engine=known.engine_name,
            planner=known.planner_name,
            operators=operators,
            limits=limits,
            budget=budget,
        )
        if known.engine is None:
            matcher.restore_many(
                (name, known.subscriptions.tree(slot)) for name, slot in known.subscriptions.slots.items()
            )
            return matcher
        matcher._lowering.number(known.attributes, known.columns)
        matcher._engine = known.engine
        matcher._subscriptions = matcher._verification.subscriptions = known.subscriptions
        return matcher

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def canonicalise(self, event: Mapping[str, Any] | Event) -> CanonicalEvent:
        """Returns the event with all readings of all values, and with notes for its publisher. Raises
        `InvalidEvent`."""
        return self._canonicaliser.canonicalise(event)

    def notes(self, event: Mapping[str, Any] | Event, most: int = 100) -> Sequence[Note]:
        """Returns up to `most` notes for the publisher of an event: about terms, units and values that are probably not
        read as intended, and about attributes whose names are similar to those in subscriptions. Raises
        `InvalidEvent`."""
        return self.read(event).notes(most)

    def events_of(self, document: Mapping[str, Any] | Event) -> list[Event]:
        """Splits a document into its events (rule 21), in order. Each event has an id and is matched separately. A
        document of one event is returned unchanged. Raises `InvalidEvent`."""
        return self._canonicaliser.events_of(document if isinstance(document, Event) else Event(document))

    def may_ask(self, attribute: str) -> bool:
        """Returns whether a subscription may depend on `attribute`. True for all attributes if one calls an operator,
        which is given the whole event. Derived attributes depend on their inputs."""
        if self._subscriptions.calling or self._lowering.may_ask(attribute):
            return True
        return any(attribute in each.reads for each in self.vocabulary.derivations)

    def published(self, event: Event) -> Event:
        """Returns the event of a document of one event as its publisher wrote it, without its envelope: a JSON object
        or the tree of an RDF graph. Raises `InvalidEvent`."""
        return self._canonicaliser.published(event)

    def read(self, event: Published, graph: tuple[Event, tuple[Note, ...]] | None = None) -> ReadEvent:
        """Reads the attributes of `event` that subscriptions use. The result must be passed to `match_read` before
        `asked` grows. `graph` is the result of `Canonicaliser.graph_event` for this event under the
        same vocabulary, if the caller has it. Raises `InvalidEvent`."""
        return self._plans.read(event, graph)

    def read_each(self, events: Sequence[Published]) -> Iterator[ReadEvent | InvalidEvent]:
        """Yields each event as `read` returns it, in order, or the error of one that cannot be read. Takes less time
        than `read` for each if the events have few shapes."""
        return self._plans.read_each(events)

    def read_together(self, events: Sequence[Published], *, noted: bool = False) -> list[ReadEvent | None]:
        """Reads those events that can be read together in less time, like `read`. Returns None for the others. With
        `noted`, the results know whether there are notes."""
        return self._plans.read_together(events, noted=noted)

    def match(self, event: Published) -> list[Match]:
        """Returns the subscriptions that `event` matches, in the order of their slots. A plain mapping is the event's
        data. Subscriptions that are undecided because an operator failed are left out; `decide` returns them. Raises
        `InvalidEvent`.

        In addition to the time of the engine, a dict whose names and texts were seen before costs some 10 to 20 µs.
        Each match costs the look-up of an object; beyond the first million slots, a new object is made for each match
        (docs/benchmarks.md)."""
        found = self._found(event, None)
        return matches_of(found, self._subscriptions.names, self.vocabulary.units)

    def decide(self, event: Published, *, among: Collection[str] | None = None) -> Decided:
        """Returns the matches, and the subscriptions that are undecided because an operator failed. With `among`, only
        these subscriptions are matched, and operators are not called for others. Raises `InvalidEvent`."""
        return self.decided(self._found(event, among))

    def open_decision(
        self,
        event: CanonicalEvent,
        among: Collection[str] | None = None,
        *,
        steps: bool = False,
        patient: bool = False,
        learns: bool = True,
        within: SearchBudget | None = None,
    ) -> OpenDecision:
        """Starts a decision whose operators are called elsewhere; it continues step by step as answers arrive. With
        `among`, only these subscriptions are decided. The decision uses the subscriptions as they are now, even if one
        is removed in the meantime. Tests of text that exceed the budget `within` are also left to the caller: see
        `OpenDecision.costly`."""
        rows, readable = self._rows(event, among)
        screened = self._verification.screened(rows, readable, within=within)
        return OpenDecision(self._layer, screened, steps=steps, patient=patient, learns=learns)

    def decided(self, found: Found) -> Decided:
        """Returns `found` with the names of the subscriptions instead of their slots."""
        names = self._subscriptions.names
        return Decided(matches_of(found, names, self.vocabulary.units), undecided_of(found.undecided, names))

    def explain_index(self, event: Published) -> dict[str, Any]:
        """Returns the steps of the index for `event`, with counts: see
        `kindcast.semantic.matching.matcher.index_steps`. Raises `InvalidEvent`."""
        canonical = event if isinstance(event, CanonicalEvent) else self.canonicalise(event)
        return index_steps(self._engine, self._lowering, self._lowering.event(canonical))

    def match_batch(self, events: Iterable[Published]) -> Matches:
        """Matches each event, in order. `Match` objects are made when they are read. Raises `InvalidEvent`, with a note
        that names the event."""
        read = self._each_read(events)
        if self._subscriptions.asking and not isinstance(events, list | tuple):
            read = map(ReadEvent.copied, read)
        names = self._subscriptions.names.view()
        return Matches(self._match_read(read, names), names)

    def match_read(self, events: Iterable[ReadEvent]) -> MatchTable:
        """Returns the matches of events that this matcher has read. The slots of each event are in ascending order."""
        return self._match_read(events, self._subscriptions.names.view())

    def match_table(self, columns: Any, *, threads: int = 1) -> MatchTable:
        """Matches a table of events: a `pyarrow.Table`, or a mapping from attribute to a numpy array or list.

        Null, NaN, `NA` of pandas and masked values mean that the attribute is absent. A list holds several values. The
        names in a struct and the keys of a map are joined with dots. Dates, decimals and the values of dictionary
        columns are read as `match` reads them. Rows are plain JSON and never graphs (rule 20): `match_batch` takes
        JSON-LD. Columns that no subscription uses are only checked. Each distinct value is read once, not once per
        row. If the engine takes columns, `threads` threads read the table and search the
        index; the result is the same.
        Raises `InvalidEvent`, with a note that names the row, and `ValueError` for columns of different lengths.
        """
        table = self._tables.read(columns)
        parts = parts_of(self._engine, table, self._verified, size=TABLE_PART, threads=threads)
        return table_of(parts, len(table), self._subscriptions.names.view())

    def _verified(self, found: RowTable, table: Table, start: int) -> TablePart:
        """Verifies the rows that the engine found for the events of `table` from row `start` on."""
        return self._verification.of_events(found, lambda number: table.canonical(start + number))

    def _each_read(self, events: Iterable[Published]) -> Iterator[ReadEvent]:
        number = 0
        try:
            if isinstance(events, list | tuple):
                for number, read in enumerate(self.read_each(events)):  # noqa: B007
                    if isinstance(read, InvalidEvent):
                        raise read
                    yield read
                return
            for number, event in enumerate(events):  # noqa: B007
                yield self._plans.read(event)
        except InvalidEvent as invalid:
            invalid.add_note(f"in event {number} of the batch; the first event is 0")
            raise

    def _match_read(self, events: Iterable[ReadEvent], names: NamesView) -> MatchTable:
        waiting = iter(events)
        parts: list[TablePart] = []
        count = 0
        while batch := list(islice(waiting, BATCH)):
            if len(batch) == 1:
                rows = self._engine.match(batch[0].lowered)
                found = RowTable(np.array([0, rows.size], dtype=np.int64), rows)
            else:
                found = self._engine.match_batch([each.lowered for each in batch])
            parts.append(self._verification.of_events(found, lambda number, batch=batch: batch[number].canonical()))  # type: ignore[misc]
            count += len(batch)
        return table_of(parts, count, names)

    def _found(self, event: Published, among: Collection[str] | None) -> Found:
        return self._verification.of_event(*self._rows(event, among))

    def _rows(self, event: Published, among: Collection[str] | None) -> tuple[npt.NDArray[np.int32], Readable]:
        """Returns the rows that the engine finds, and the event for residual predicates. Raises `InvalidEvent`."""
        read = self._plans.read(event)
        rows = self._engine.match(read.lowered)
        if among is not None:
            wanted = [self._subscriptions.slots[name] for name in among if name in self._subscriptions.slots]
            rows = rows[np.isin(np.frombuffer(self._subscriptions.slot_of_row, dtype=np.int32)[rows], wanted)]
        return rows, read.canonical


SHOWN = 20
"""The maximum number of clusters, and of steps per cluster, in the list. The totals include those not listed."""


def index_steps(engine: Engine, lowering: Lowering, event: LoweredEvent) -> dict[str, Any]:
    """Returns the steps that `engine` performs for `event`; `{}` if the engine has no explanations.

    `{"clauses": {"visited", "looked_at", "checked", "found"}, "clusters": [{"requires", "forbids", "clauses",
    "columns", "steps": [{"by", "column", "clauses", "left": [{"column", "clauses"}], "checked", "found"}],
    "programs"}], "newest": {"clauses", "asked", "found"}, "not_shown"}`.

    `visited` counts the clauses in clusters whose attributes fit the event. `looked_at` counts the clauses that a list,
    a range or a block offers for the event's values. `left` counts the clauses that remain after the mask of each
    column, in the order in which the masks are combined. `checked` counts the clauses that were compared one by one. A
    column is an attribute and its reading. `programs` counts the clauses whose residual predicates were checked. A
    clause with alternatives counts once per alternative.
    """
    told = engine.explain(event)
    if told is None:
        return {}
    attributes, columns = lowering.numbered
    clusters = []
    totals = {"visited": 0, "looked_at": 0, "checked": 0, "found": told["found"]}
    omitted = 0
    for segment in told["segments"]:
        for visited in segment["visited"]:
            totals["visited"] += visited["rows"]
            totals["looked_at"] += sum(step["rows"] for step in visited["steps"])
            totals["checked"] += sum(step["checked"] for step in visited["steps"])
            omitted += max(0, len(visited["steps"]) - SHOWN)
            clusters.append(_cluster(visited, attributes, columns))
    clusters.sort(key=lambda each: -int(each["clauses"]))
    newest = {
        "clauses": told["memtable"]["rows"],
        "asked": told["memtable"]["asked"],
        "found": told["memtable"]["found"],
    }
    return {
        "clauses": totals,
        "clusters": clusters[:SHOWN],
        "newest": newest,
        "not_shown": {"clusters": max(0, len(clusters) - SHOWN), "steps": omitted},
    }


def _cluster(visited: dict[str, Any], attributes: list[str], columns: list[tuple[str, str]]) -> dict[str, Any]:
    def named(column: int | None) -> str | None:
        return None if column is None else " as ".join(columns[column])

    steps = sorted(visited["steps"], key=lambda step: -int(step["rows"]))[:SHOWN]
    return {
        "requires": [attributes[number] for number in visited["required"]],
        "forbids": [attributes[number] for number in visited["forbidden"]],
        "clauses": visited["rows"],
        "columns": [{"column": named(each["column"]), "reads": each["reads"]} for each in visited["columns"]],
        "steps": [
            {
                "by": step["by"],
                "column": named(step["column"]),
                "clauses": step["rows"],
                "left": [{"column": named(each["column"]), "clauses": each["rows"]} for each in step["left"]],
                "checked": step["checked"],
                "found": step["found"],
            }
            for step in steps
        ],
        "programs": visited["programs"],
    }
