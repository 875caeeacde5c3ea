"""Raw events → canonical events: every reading of every value, beside what was published, with what changed and why.

    normalise(events, snapshot)      DataFrame → DataFrame, for pipelines of one's own
    Normaliser.table(batch)          the rows of one batch, for tasks that read and write by themselves

Readings are added, nothing that was published is lost: `body` is the line as it was archived, and an event that is
matched from a normalised archive matches what it matched before.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from semantic import Event, InvalidEvent, Vocabulary
from semantic.canonicalise import Canonicaliser
from semantic.flatten import EventLimits, flatten
from semantic.instants import format_instant
from semantic.model import CanonicalEvent, Value
from spark_jobs.bulk_match import decoded
from spark_jobs.event_batch import EventBatch, Rejected
from spark_jobs.schemas import NORMALISED, READING, spark_schema
from spark_jobs.snapshot import Snapshot
from spark_jobs.terms import Terms
from spark_jobs.workers import reason_of, shown, vocabulary_of

__all__ = ["Normaliser", "normalise"]

KEPT_CHANGES = 1 << 16
"""Values whose changes are kept: those that repeat, which most do."""
_LIMITS = EventLimits()


def normalise(events: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Canonical events. `events` has the columns of `schemas.EVENTS`, the result those of `NORMALISED`. Rows that
    cannot be read are left out: `quarantined` has them."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        normaliser = Normaliser(vocabulary_of(snapshot))
        for batch in batches:
            table, _ = normaliser.table(decoded(batch)[0])
            yield from table.to_batches()

    return events.mapInArrow(rows, spark_schema(NORMALISED))


class Normaliser:
    """Reads events under one vocabulary, and counts the terms that it does not know. One thread at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.terms = Terms(vocabulary)
        self._vocabulary = vocabulary
        self._canonicaliser = Canonicaliser(vocabulary)
        self._changes: dict[Any, list[dict[str, str]]] = {}

    def table(self, batch: EventBatch) -> tuple[pa.Table, list[Rejected]]:
        """`schemas.NORMALISED`, and the events that cannot be read. The batch must have its bodies."""
        kept: list[int] = []
        rejected: list[Rejected] = []
        columns = _Columns(self._vocabulary)
        ids = batch.keys["id"].to_pylist()
        sources = batch.keys["source"].to_pylist()
        for row, event in enumerate(batch.each()):
            try:
                canonical = self._canonicaliser.canonicalise(event)
            except InvalidEvent as error:
                rejected.append(Rejected(batch.file, int(batch.lines[row]), reason_of(error), shown(event.data)))
                continue
            kept.append(row)
            self.terms.count(canonical, sources[row], ids[row])
            notes = [
                {"code": each.code, "attribute": each.attribute, "detail": each.detail} for each in canonical.notes
            ]
            columns.add(canonical, self._changed(event, canonical), notes)
        if rejected:
            batch = batch.take(kept)
        table = batch.keys.append_column("body", pa.array(batch.bodies, pa.string()))
        for name, column in columns.arrays().items():
            table = table.append_column(name, column)
        version = pa.repeat(self._vocabulary.version, len(table))
        return table.append_column("vocabulary_version", version).cast(NORMALISED), rejected

    def _changed(self, event: Event, canonical: CanonicalEvent) -> list[dict[str, str]]:
        """What is read otherwise than it was published: names, then values."""
        if not isinstance(event.data, Mapping):
            return []
        changes: list[dict[str, str]] = []
        for raw in flatten(event.data, _LIMITS).scalars:
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


def _change(attribute: str, published: str, became: str, why: str) -> dict[str, str]:
    return {"attribute": attribute, "published": published, "became": became, "why": why}


class _Columns:
    """The nested columns of a batch. Equal readings are made once, and then pointed at."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._places: dict[Any, int] = {}
        self._readings: list[dict[str, Any]] = []
        self._chosen: list[int] = []  # places of readings, one after the other
        self._value_ends: list[int] = [0]  # by (event, attribute)
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
