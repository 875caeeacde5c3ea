"""An archive against all subscriptions: two ways to the same rows.

    match(events, snapshot)      DataFrame → DataFrame, for pipelines of one's own; Spark reads and writes
    match_units(session, …)      splits × shards as tasks that read and write by themselves: the command, and the fast
    way

A unit of work is a split of the archive against a group of shards of the subscriptions, as many as fit into a worker's
memory. Nothing is shuffled, so no value is too frequent; a task has a bounded number of events. With several groups the
tasks go group by group, and the parts of an event are joined at the end by their place, split by split.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from semantic.results import MatchTable
from spark_jobs.archived_events import Unreadable, event_of, json_of
from spark_jobs.event_batch import EventBatch, Rejected, from_events
from spark_jobs.schemas import EXPLODED, MATCHES, spark_schema
from spark_jobs.snapshot import Snapshot
from spark_jobs.workers import Matched, ShardMatcher, opened, settle

__all__ = [
    "A_ROW_AN_EVENT",
    "Chosen",
    "decoded",
    "exploded_rows",
    "listed_rows",
    "match",
    "matched_rows",
    "side_by_side",
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How matches are written: a row an event (all events, or only those with matches), or a row a match."""

    explode: bool = False
    matched_only: bool = False


A_ROW_AN_EVENT = Chosen()


def match(events: DataFrame, snapshot: Snapshot, *, explode: bool = False) -> DataFrame:
    """Who gets each event. `events` has the columns of `schemas.EVENTS`; the result those of `MATCHES`, or with
    `explode` of `EXPLODED`. Rows that cannot be read are left out: `quarantined` has them."""
    schema = EXPLODED if explode else MATCHES

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in matched_rows((decoded(batch)[0] for batch in batches), snapshot, Chosen(explode=explode)):
            yield from table.select(schema.names).cast(schema).to_batches()  # Spark takes no dictionaries

    return events.mapInArrow(rows, spark_schema(schema))


def matched_rows(
    batches: Iterable[EventBatch], snapshot: Snapshot, chosen: Chosen, rejected: list[Rejected] | None = None
) -> Iterator[pa.Table]:
    """The rows of each batch. With several groups of shards all batches are held while one after the other is asked:
    it would be opened again for every batch. `rejected` gets what cannot be read."""
    rows = exploded_rows if chosen.explode else listed_rows
    version = snapshot.vocabulary_version
    groups = snapshot.groups()
    if len(groups) > 1:
        batches = list(batches)
    parts: list[list[pa.Table]] = []
    for number, group in enumerate(groups):
        matcher = opened(snapshot, group)
        found: list[pa.Table] = []
        for batch in batches:
            matched = matcher.match(batch)
            if rejected is not None and number == 0:
                rejected += matched.rejected
            table = rows(matcher, matched, version)
            if len(groups) == 1 or chosen.explode:
                yield table
            else:
                found.append(table)
        parts.append(found)
    settle()
    if len(groups) > 1 and not chosen.explode:
        yield from (side_by_side(tables) for tables in zip(*parts, strict=True))


def listed_rows(matcher: ShardMatcher, matched: Matched, version: str) -> pa.Table:
    """`MATCHES`, the ids as a dictionary."""
    keys = matched.batch.keys
    subscriptions = matcher.subscriptions(matched.table)
    return keys.append_column("subscriptions", subscriptions).append_column(
        "vocabulary_version", pa.repeat(version, len(keys))
    )


def exploded_rows(matcher: ShardMatcher, matched: Matched, version: str) -> pa.Table:
    """`EXPLODED`: the keys of an event once for each of its matches."""
    table: MatchTable = matched.table
    events = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    keys = matched.batch.keys.take(pa.array(events))
    ids = matcher.ids(table)
    return (
        keys.append_column("subscription", ids)
        .append_column("bindings", _bindings(table))
        .append_column("vocabulary_version", pa.repeat(version, len(keys)))
    )


def side_by_side(tables: Sequence[pa.Table | None], named: str = "id") -> pa.Table:
    """The same events matched against several groups of shards, as one row each. The column `named` tells that they
    are the same; the other columns are those of the first table. Raises ValueError."""
    first = tables[0]
    assert first is not None
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    lists = []
    for table in tables:
        if table is None or not table[named].equals(first[named]):
            raise ValueError("these are not the same events: remove the output and run again")
        column = table["subscriptions"].combine_chunks()
        bounds = column.offsets.to_numpy().astype(np.int64)
        values = column.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        lists.append((bounds - bounds[0], values))
        offsets += bounds - bounds[0]
    slots = np.zeros(int(offsets[-1]), dtype=np.int32)
    start = offsets[:-1].copy()
    names: list[pa.Array] = []
    shift = 0
    for bounds, values in lists:
        lengths = np.diff(bounds)
        within = np.arange(int(bounds[-1])) - np.repeat(bounds[:-1], lengths)
        slots[np.repeat(start, lengths) + within] = values.indices.to_numpy() + shift
        start += lengths
        names.append(values.dictionary)
        shift += len(values.dictionary)
    ids = pa.DictionaryArray.from_arrays(pa.array(slots), pa.concat_arrays(names))
    joined = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), ids)
    return first.set_column(first.column_names.index("subscriptions"), "subscriptions", joined)


def decoded(batch: pa.RecordBatch) -> tuple[EventBatch, list[Rejected]]:
    """Rows of `schemas.EVENTS` as events again; they keep their names and times."""
    found, lines, bodies = [], [], []
    rejected: list[Rejected] = []
    times = batch.column("time").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("id", "body", "file", "line")]
    files = columns[2]
    for id, body, file, line, time in zip(*columns, times, strict=True):
        try:
            event = event_of(json_of((body or "").encode()), id)
        except Unreadable as error:
            rejected.append(Rejected(file or "", line, str(error), body))
            continue
        event.time = time if event.time is None else event.time
        found.append(event)
        lines.append(line or 0)
        bodies.append(body)
    return from_events(found, (files[0] if files else None) or "", lines, bodies), rejected


def _bindings(table: MatchTable) -> pa.Array:
    if table.bindings is None:
        return pa.nulls(len(table.slots), pa.string())
    texts = [None if not each else msgspec.json.encode(each).decode() for each in table.bindings]
    return pa.array(texts, pa.string())
