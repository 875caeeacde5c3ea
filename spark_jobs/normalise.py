"""The command `normalise`: plans splits as units of work, aggregates the terms found, and returns a summary."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from kindcast.semantic import Event, InvalidEvent, Vocabulary
from kindcast.semantic.events import Canonicaliser
from kindcast.semantic.flatten import EventLimits, flatten
from kindcast.semantic.model import CanonicalEvent, Value
from kindcast.semantic.units import format_instant
from kindcast.spark_jobs.event_batch import NORMALISED, READING, TERMS, EventBatch, Rejected, reason_of, spark_schema
from kindcast.spark_jobs.match import decoded
from kindcast.spark_jobs.output import (
    QUARANTINED,
    Output,
    UnitWriter,
    Work,
    by_day,
    number_lines,
    rejected_rows,
    run_units,
    sum_of,
    unit_name,
)
from kindcast.spark_jobs.reading import AS_IT_STANDS, SPLIT_BYTES, ReadOptions, Split, read_split, splits_of
from kindcast.spark_jobs.report import Progress, silent
from kindcast.spark_jobs.snapshot import Snapshot, parts_of, shown, vocabulary_of

__all__ = ["normalise", "normalise_archive"]


# The unknown and ambiguous terms of an archive: a work list for ontologists.
#
# Terms are counted in every task and added up at the end. A text is a term if its attribute holds concepts, by
# declaration or because most of its values in this archive are concepts.

COUNTED = pa.schema(
    [
        ("attribute", pa.string()),
        ("term", pa.string()),
        ("events", pa.int64()),
        ("example", pa.string()),
        ("concepts", pa.list_(pa.string())),
    ]
)
"""The counts of a task: a term, the IRIs that it may mean (none, one, several), and the number of events with it."""

MOST_TERMS = 50_000
"""Maximum number of distinct texts that a task counts per attribute. An attribute with more is free text."""
MOSTLY = 0.5
"""Minimum share of the values of an attribute that must be concepts. Then its other values are unknown terms."""
SUGGESTED_FOR = 2_000
"""Number of terms that get suggestions, the most frequent first. A search for similar names takes milliseconds."""


class Terms:
    """Counts the texts of events by attribute. Not thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._counts: dict[str, Counter[str]] = {}
        self._first: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def count(self, event: CanonicalEvent, source: str, id: str) -> None:
        """Counts the texts of one event."""
        for name, values in event.attributes.items():
            if name.startswith("ce."):
                continue
            counts = self._counts.setdefault(name, Counter())
            for value in values:
                published = value.published
                if not isinstance(published, str) or value.amount is not None or value.instant is not None:
                    continue
                if (name, published) not in self._first:
                    if len(counts) >= MOST_TERMS:
                        continue
                    iris = tuple(self._vocabulary.iri(concept) for concept in value.concepts)
                    self._first[name, published] = (f"{source} {id}", iris)
                counts[published] += 1

    def table(self) -> pa.Table:
        """Returns the counts as a table with the schema `COUNTED`."""
        rows = []
        for name, counts in self._counts.items():
            for term, events in counts.items():
                example, concepts = self._first[name, term]
                rows.append(
                    {"attribute": name, "term": term, "events": events, "example": example, "concepts": concepts}
                )
        return pa.Table.from_pylist(rows, COUNTED)


def work_list(counted: Iterable[pa.Table], vocabulary: Vocabulary) -> pa.Table:
    """Returns the unknown and ambiguous terms of all tasks, the most frequent first. The schema is `TERMS`."""
    tables = [table for table in counted if len(table)]
    if not tables:
        return pa.Table.from_pylist([], TERMS)
    every = pa.concat_tables(tables)
    every = every.append_column("meanings", pc.cast(pc.list_value_length(every["concepts"]), pa.int64()))
    known = every.group_by("attribute").aggregate([("events", "sum")])
    hits = every.filter(pc.equal(every["meanings"], 1)).group_by("attribute").aggregate([("events", "sum")])
    totals = dict(zip(known["attribute"].to_pylist(), known["events_sum"].to_pylist(), strict=True))
    meant = dict(zip(hits["attribute"].to_pylist(), hits["events_sum"].to_pylist(), strict=True))
    open_terms = every.filter(pc.not_equal(every["meanings"], 1))
    grouped = open_terms.group_by(["attribute", "term"], use_threads=False).aggregate(
        [("events", "sum"), ("example", "first"), ("meanings", "max")]
    )
    rows = sorted(grouped.to_pylist(), key=lambda row: (-row["events_sum"], row["attribute"], row["term"]))
    told: list[dict[str, Any]] = []
    for row in rows:
        attribute, term = row["attribute"], row["term"]
        declaration = vocabulary.attributes.declaration(attribute)
        holds_concepts = declaration is not None and declaration.kind == "concept"
        if row["meanings_max"] == 0 and not holds_concepts and meant.get(attribute, 0) < MOSTLY * totals[attribute]:
            continue
        told.append(
            {
                "attribute": attribute,
                "term": term,
                "problem": "ambiguous" if row["meanings_max"] else "unknown",
                "events": row["events_sum"],
                "suggestions": _suggestions(vocabulary, term) if len(told) < SUGGESTED_FOR else [],
                "example": row["example_first"],
            }
        )
    return pa.Table.from_pylist(told, TERMS)


def _suggestions(vocabulary: Vocabulary, term: str) -> list[str]:
    """Returns the IRIs of the meanings of `term`, or else the most similar names."""
    meant = vocabulary.readings(term)
    if meant:
        return [vocabulary.iri(concept) for concept in meant]
    return [str(found["label"]) for found in vocabulary.suggest(term)]


# ── normalise ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Raw events → canonical events: every reading of every value, the published value, and each change with its reason.
#
#     normalise(events, snapshot)      DataFrame → DataFrame, for users' own pipelines
#     Normaliser.table(batch)          the rows of one batch, for tasks that read and write files themselves
#
# Readings are added, and nothing that was published is lost: `body` is the archived line, and an event of a normalised
# archive matches the same subscriptions as before.

KEPT_CHANGES = 1 << 16
"""Maximum number of values whose changes are cached. Most values repeat."""
_LIMITS = EventLimits()


def normalise(events: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Returns canonical events. `events` has the columns of `event_batch.EVENTS`; the result has those of `NORMALISED`.
    Unreadable rows are left out; `quarantined` returns them."""
    snapshot = snapshot.for_workers(events.sparkSession)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        normaliser = Normaliser(vocabulary_of(snapshot))
        for batch in batches:
            table, _ = normaliser.table(decoded(batch)[0])
            yield from table.to_batches()

    return events.mapInArrow(rows, spark_schema(NORMALISED))


class Normaliser:
    """Reads events with one vocabulary, and counts their terms. Not thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.terms = Terms(vocabulary)
        self._vocabulary = vocabulary
        self._canonicaliser = Canonicaliser(vocabulary)
        self._changes: dict[Any, list[dict[str, str]]] = {}

    def table(self, batch: EventBatch) -> tuple[pa.Table, list[Rejected]]:
        """Returns a table with the schema `NORMALISED`, and the unreadable events. The batch must have its bodies."""
        kept: list[tuple[int, Event | None]] = []
        rejected: list[Rejected] = []
        columns = _Columns(self._vocabulary)
        ids = batch.keys["id"].to_pylist()
        sources = batch.keys["source"].to_pylist()
        for row, event in enumerate(batch.each()):
            line = int(batch.lines[row])
            reader = self._canonicaliser
            try:
                parts = parts_of(event, line, reader.canonicalise, reader.events_of)
            except InvalidEvent as error:
                rejected.append(batch.rejected(row, reason_of(error), shown(event.data)))
                continue
            for part, canonical in parts:
                kept.append((row, part))
                self.terms.count(canonical, sources[row], ids[row] if part is None else str(part.context["id"]))
                notes = [
                    {"code": each.code, "attribute": each.attribute, "detail": each.detail} for each in canonical.notes
                ]
                columns.add(canonical, self._changed(part or event, canonical), notes)
        if rejected or any(part is not None for _, part in kept):
            batch = batch.expanded(kept)
        table = batch.keys.append_column("body", pa.array(batch.bodies, pa.string()))
        for name, column in columns.arrays().items():
            table = table.append_column(name, column)
        version = pa.repeat(self._vocabulary.version, len(table))
        return table.append_column("vocabulary_version", version).cast(NORMALISED), rejected

    def _changed(self, event: Event, canonical: CanonicalEvent) -> list[dict[str, str]]:
        """Returns the differences between the readings and the published event: names, then values."""
        if not isinstance(event.data, Mapping):
            return []
        changes: list[dict[str, str]] = []
        for raw in _names_in(event.data):
            names = self._canonicaliser.names(raw)
            if names != (raw,):
                changes.append(_change(names[0], raw, ", ".join(names), "attribute-name"))
        for name, values in canonical.attributes.items():
            if name.startswith("ce."):
                continue
            for value in values:
                key = (
                    name,
                    type(value.published),
                    value.text,
                    value.root_word,
                    value.number,
                    value.amount,
                    value.dimension,
                )
                found = self._changes.get(key)
                if found is None:
                    if len(self._changes) >= KEPT_CHANGES:
                        self._changes.clear()
                    found = self._changes[key] = list(self._of_value(name, value))
                changes += found
        return changes

    def _of_value(self, name: str, value: Value) -> Iterator[dict[str, str]]:
        published = value.published
        said = published if isinstance(published, str) else msgspec.json.encode(published).decode()
        if value.root_word is not None and value.root_word != value.text:
            yield _change(name, said, value.root_word, "synonym")
        iris = [self._vocabulary.iri(concept) for concept in value.concepts]
        if iris and iris != [said]:
            resolution = self._vocabulary.resolve(value.text or said)
            why = "deprecated" if resolution.replaced else "concept" if len(iris) == 1 else "ambiguous"
            yield _change(name, said, ", ".join(iris), why)
        if value.amount is not None:
            yield _change(name, said, f"{value.amount:.17g} {value.dimension}", "unit")
        elif value.number is not None and isinstance(published, str):
            yield _change(name, said, f"{value.number:.17g}", "number")
        if value.instant is not None and format_instant(value.instant) != said:
            yield _change(name, said, format_instant(value.instant), "instant")


def _names_in(data: Mapping[str, Any]) -> Iterable[str]:
    """Returns the published names. None if the data is refused as plain JSON: of linked data, members without an IRI
    are not read, and may be anything."""
    try:
        return flatten(data, _LIMITS).scalars
    except InvalidEvent:
        return ()


def _change(attribute: str, published: str, became: str, why: str) -> dict[str, str]:
    return {"attribute": attribute, "published": published, "became": became, "why": why}


class _Columns:
    """Builds the nested columns of a batch. Equal readings are stored once and referenced by position."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._places: dict[Any, int] = {}
        self._readings: list[dict[str, Any]] = []
        self._chosen: list[int] = []  # the position of each reading, in order
        self._value_ends: list[int] = [0]  # the end of the values of each (event, attribute)
        self._names: list[str] = []
        self._attribute_ends: list[int] = [0]  # by event
        self._changes: list[list[dict[str, str]]] = []
        self._notes: list[list[dict[str, str]]] = []

    def add(self, event: CanonicalEvent, changes: list[dict[str, str]], notes: list[dict[str, str]]) -> None:
        for name, values in event.attributes.items():
            if name.startswith("ce."):
                continue
            self._names.append(name)
            self._chosen += [self._place(value) for value in values]
            self._value_ends.append(len(self._chosen))
        self._attribute_ends.append(len(self._names))
        self._changes.append(changes)
        self._notes.append(notes)

    def arrays(self) -> dict[str, pa.Array]:
        readings = pa.array(self._readings, READING)
        chosen = readings.take(pa.array(np.array(self._chosen, dtype=np.int64)))
        values = pa.ListArray.from_arrays(pa.array(self._value_ends, pa.int32()), chosen)
        names = pa.array(self._names, pa.string())
        attributes = pa.MapArray.from_arrays(pa.array(self._attribute_ends, pa.int32()), names, values)
        return {
            "attributes": attributes,
            "changes": pa.array(self._changes, NORMALISED.field("changes").type),
            "notes": pa.array(self._notes, NORMALISED.field("notes").type),
        }

    def _place(self, value: Value) -> int:
        published = msgspec.json.encode(value.published).decode()
        key = (published, value.text, value.number, value.instant, value.amount, value.dimension, value.concepts)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._readings)
            self._readings.append(
                {
                    "published": published,
                    "text": value.text,
                    "root_word": value.root_word,
                    "number": value.number,
                    "boolean": value.boolean,
                    "instant": value.instant,
                    "amount": value.amount,
                    "dimension": value.dimension,
                    "concepts": [self._vocabulary.iri(concept) for concept in value.concepts],
                }
            )
        return place


# ── normalising units ─────────────────────────────────────────────────────────────────────────────────────────────────

TERM_PARTS = "_term_counts"
TERMS_FILE = "_terms.csv"
"""The name begins with `_`, so that readers of the folder, as an archive or as Parquet, skip the file."""


def normalise_archive(
    session: SparkSession,
    archive: str,
    output: Path,
    snapshot: Snapshot,
    *,
    read: ReadOptions = AS_IT_STANDS,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Normalises an archive into `output`, by day, and writes `_terms.csv` for ontologists. Returns the summary. The
    job can be interrupted and run again at any time. Raises `JobFailed`."""
    read = replace(read, bodies=True)
    target = Output(output)
    with target.locked():
        splits = number_lines(session, splits_of(archive, split_bytes=split_bytes), progress)
        sent = snapshot.for_workers(session)
        units: list[tuple[str, Work]] = [
            (
                unit_name("normalise", split, snapshot.vocabulary_version, asdict(read)),
                partial(_normalise_unit, split, sent, read),
            )
            for split in splits
        ]
        done = run_units(session, target, units, "normalise", progress)
        target.commit(done)
        progress("terms", 0, None)
        parts = sorted((output / TERM_PARTS).glob("*.parquet")) if (output / TERM_PARTS).is_dir() else []
        terms = work_list((pq.read_table(path) for path in parts), snapshot.vocabulary())
        _write_terms(terms, output)

    problems = terms["problem"].to_pylist()
    return {
        "files": len({split.path for split in splits}),
        "events": sum_of(done, "events"),
        "changed": sum_of(done, "changed"),
        "quarantined": sum_of(done, "quarantined"),
        "unknown_terms": problems.count("unknown"),
        "ambiguous_terms": problems.count("ambiguous"),
        "days": sorted({folder[4:] for each in done for folder in each.folders if folder.startswith("day=")}),
        "vocabulary_version": snapshot.vocabulary_version,
        "worker_peak_mb": round(max((each.counts.get("peak_mb", 0.0) for each in done), default=0.0)),
    }


def _normalise_unit(split: Split, snapshot: Snapshot, read: ReadOptions, writer: UnitWriter) -> Mapping[str, float]:
    """Normalises one split, in a worker."""
    normaliser = Normaliser(vocabulary_of(snapshot))
    events = changed = 0
    rejected: list[Rejected] = []
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            rejected.append(batch)
            continue
        table, bad = normaliser.table(batch)
        rejected += bad
        events += len(table)
        changed += int(pc.sum(pc.greater(_lengths(table), 0)).as_py() or 0)
        for folder, part in by_day(table) if len(table) else ():
            writer.write(folder, part)
    writer.write(TERM_PARTS, normaliser.terms.table())
    if rejected:
        writer.write(QUARANTINED, rejected_rows(rejected))
    return {"events": events, "changed": changed, "quarantined": len(rejected)}


def _lengths(table: Any) -> Any:
    return pc.list_value_length(table["changes"])


def _write_terms(terms: Any, output: Path) -> None:
    """Writes the work list as a file for spreadsheets. The write is atomic."""
    writing = output / f".{TERMS_FILE}"
    flat = terms.set_column(
        terms.column_names.index("suggestions"),
        "suggestions",
        pc.binary_join(terms["suggestions"], " | "),
    )
    pyarrow.csv.write_csv(flat, writing)
    writing.replace(output / TERMS_FILE)
