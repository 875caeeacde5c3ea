"""The command `learn`: statistics of the values in an archive, and the selectivity of each predicate, by day.

    OUTPUT/values/       (day, attribute, value, events)       value frequencies; numbers: count, least, greatest
    OUTPUT/predicates/   (day, predicate, events, holds)       selectivity of each predicate of the subscriptions
    OUTPUT/together/     (one, other, events)                  pairs of predicates that hold for the same event
    OUTPUT/drift/        (day, attribute, distance)            distance of the values of a day from the day before
    OUTPUT/priors.json                                         initial statistics for the planner and the index

Each predicate is matched by the engine as a separate subscription. Expensive operators are called as in matching, and
the observations are written to the priors in the planner's own format.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.conditions import is_expensive
from kindcast.semantic.language import to_text, to_tree
from kindcast.semantic.model import CanonicalEvent, Not, Value
from kindcast.spark_jobs.event_batch import NO_DAY, EventBatch, Rejected
from kindcast.spark_jobs.output import Output, number_lines, run_tasks
from kindcast.spark_jobs.reading import AS_IT_STANDS, ReadOptions, Split, read_split, splits_of
from kindcast.spark_jobs.report import Progress, silent
from kindcast.spark_jobs.snapshot import ShardMatcher, Snapshot, added_up, opened, records_of, vocabulary_of

__all__ = ["learn_archive"]

MOST_VALUES = 1_000
"""Maximum number of values of an attribute that are counted separately per day. Further new values are counted
together."""
MOST_PREDICATES = 5_000
"""Maximum number of predicates whose selectivity is measured: those that most subscriptions contain."""
MOST_TOGETHER = 200
"""Maximum number of predicates that are counted in pairs."""
OTHERS = "…"


@dataclass(slots=True)
class Learned:
    """The statistics of a part of an archive. Statistics of parts can be added."""

    events: int = 0
    unreadable: int = 0
    values: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Map from (day, attribute) to count, least and greatest number."""
    holds: Counter[tuple[str, int]] = field(default_factory=Counter)
    per_day: Counter[str] = field(default_factory=Counter)
    together: Counter[tuple[int, int]] = field(default_factory=Counter)
    records: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "Learned") -> None:
        self.events += other.events
        self.unreadable += other.unreadable
        self.per_day.update(other.per_day)
        for key, counts in other.values.items():
            self.values.setdefault(key, Counter()).update(counts)
        for key, (count, least, greatest) in other.numbers.items():
            mine = self.numbers.setdefault(key, [0, least, greatest])
            mine[:] = [mine[0] + count, min(mine[1], least), max(mine[2], greatest)]
        self.holds.update(other.holds)
        self.together.update(other.together)
        self.records += other.records


def learn_archive(
    session: SparkSession,
    archive: str,
    output: Path,
    snapshot: Snapshot,
    *,
    read: ReadOptions = AS_IT_STANDS,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Writes the statistics of an archive to `output`. The write of each table is atomic. Returns the summary. Raises
    `JobFailed`, also if another job is writing there."""
    with Output(output).held():
        predicates, asking = _predicates(snapshot)
        splits = number_lines(session, splits_of(archive), progress)
        learned = Learned()
        trees = [tree for _, tree in predicates]
        work = partial(_learn, snapshot=snapshot.for_workers(session), predicates=trees, asking=asking, read=read)
        for part in run_tasks(session, splits, work, "learn", progress):
            learned.add(part)
        texts = [text for text, _ in predicates]
        drift = _drift(learned)
        _write(output / "values", _value_rows(learned))
        _write(output / "predicates", _predicate_rows(learned, texts))
        _write(output / "together", _together_rows(learned, texts))
        _write(output / "drift", drift)
        priors = _priors(learned, texts, snapshot)
        writing = output / ".priors.json"
        writing.write_text(json.dumps(priors, ensure_ascii=False, indent=1), encoding="utf-8")
        writing.replace(output / "priors.json")
    return {
        "events": learned.events,
        "unreadable": learned.unreadable,
        "days": len(learned.per_day),
        "attributes": len({attribute for _, attribute in (*learned.values, *learned.numbers)}),
        "predicates": len(texts),
        "operator_predicates": len(priors["operators"]),
        "largest_drift": max(drift, key=lambda row: row["distance"], default=None),
        "vocabulary_version": snapshot.vocabulary_version,
        "refused": [asdict(each) for each in snapshot.refused],
    }


def _predicates(snapshot: Snapshot) -> tuple[list[tuple[str, dict[str, Any]]], list[int]]:
    """Returns the cheap predicates that most subscriptions contain, as text and tree, and the shards that call
    operators."""
    held: Counter[Any] = Counter()
    asking: list[int] = []
    for shard in range(len(snapshot.shards)):
        (matcher,) = opened(snapshot, (shard,)).matchers
        calls = False
        for name in matcher:
            atoms = {atom for clause in matcher[name].clauses for atom in clause}
            cheap = {atom for atom in atoms if not is_expensive(atom)}
            calls = calls or len(cheap) < len(atoms)
            held.update(cheap)
        asking += [shard] if calls else []
    expressions = (
        Not(atom.predicate) if atom.negated else atom.predicate for atom, _ in held.most_common(MOST_PREDICATES)
    )
    return [(to_text(each), to_tree(each)) for each in expressions], asking


def _learn(
    split: Split, *, snapshot: Snapshot, predicates: list[dict[str, Any]], asking: list[int], read: ReadOptions
) -> Learned:
    """Computes the statistics of one split, in a worker."""
    vocabulary = vocabulary_of(snapshot)
    matcher = Matcher(vocabulary)
    for number, tree in enumerate(predicates):
        matcher.restore(str(number), tree)
    alone = ShardMatcher((matcher,), True)
    # Opened again, so that their observations are from this task only.
    callers = [ShardMatcher((snapshot.matcher(shard, vocabulary),), snapshot.context) for shard in asking]
    learned = Learned()
    for batch in read_split(split, read):
        if isinstance(batch, Rejected):
            learned.unreadable += batch.reason != split.left_out
            continue
        matched = alone.match(batch)
        learned.unreadable += len(matched.rejected)
        days = np.array(matched.batch.keys["day"].to_pylist(), dtype=object)
        learned.events += len(days)
        learned.per_day.update(days.tolist())
        _note_predicates(learned, matched.table, days, len(predicates))
        _note_values(learned, vocabulary, matcher, matched.batch, days)
        for caller in callers:
            caller.match(matched.batch)
    learned.records = [record for caller in callers for each in caller.matchers for record in records_of(each)]
    return learned


def _note_predicates(learned: Learned, table: Any, days: Any, count: int) -> None:
    rows = np.repeat(np.arange(len(days)), np.diff(table.offsets))
    known, place = np.unique(table.slots, return_inverse=True)
    numbers = np.array([int(name) for name in table.subscriptions(known.tolist())], dtype=np.int64)
    if not len(numbers):
        return
    column = numbers[place]
    for day in np.unique(days.astype(str)):
        found = np.bincount(column[(days == day)[rows]], minlength=count)
        for number in np.flatnonzero(found).tolist():
            learned.holds[str(day), number] += int(found[number])
    few = min(count, MOST_TOGETHER)
    truth = np.zeros((len(days), few), dtype=np.float32)
    kept = column < few
    truth[rows[kept], column[kept]] = 1.0
    pairs = (truth.T @ truth).astype(np.int64)
    for one, other in zip(*np.nonzero(np.triu(pairs, 1)), strict=True):
        learned.together[int(one), int(other)] += int(pairs[one, other])


def _note_values(learned: Learned, vocabulary: Vocabulary, matcher: Matcher, batch: EventBatch, days: Any) -> None:
    for event, day in zip(batch.each(), days.tolist(), strict=True):
        canonical: CanonicalEvent = matcher.canonicalise(event)
        for name, values in canonical.attributes.items():
            for value in values if not name.startswith("ce.") else ():
                number = value.amount if value.amount is not None else value.number
                if number is not None:
                    known = learned.numbers.setdefault((day, name), [0, number, number])
                    known[:] = [known[0] + 1, min(known[1], number), max(known[2], number)]
                    continue
                counts = learned.values.setdefault((day, name), Counter())
                text = _text(value, vocabulary)
                counts[text if text in counts or len(counts) < MOST_VALUES else OTHERS] += 1


def _text(value: Value, vocabulary: Vocabulary) -> str:
    if value.concepts:
        return vocabulary.iri(value.concepts[0])
    return value.root_word if value.root_word is not None else str(value.published)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _value_rows(learned: Learned) -> Iterable[dict[str, Any]]:
    for (day, attribute), counts in sorted(learned.values.items()):
        for value, events in counts.most_common():
            yield {"day": day, "attribute": attribute, "value": value, "events": events}
    for (day, attribute), (count, least, greatest) in sorted(learned.numbers.items()):
        yield {"day": day, "attribute": attribute, "events": int(count), "least": least, "greatest": greatest}


def _predicate_rows(learned: Learned, texts: list[str]) -> Iterable[dict[str, Any]]:
    for day, events in sorted(learned.per_day.items()):
        for number, text in enumerate(texts):
            yield {"day": day, "predicate": text, "events": events, "holds": learned.holds.get((day, number), 0)}


def _together_rows(learned: Learned, texts: list[str]) -> Iterable[dict[str, Any]]:
    for (one, other), events in sorted(learned.together.items(), key=lambda item: -item[1]):
        yield {"one": texts[one], "other": texts[other], "events": events}


def _drift(learned: Learned) -> list[dict[str, Any]]:
    """Returns for each attribute and day the share of events that must change to get the distribution of the day
    before."""
    by_attribute: dict[str, dict[str, Counter[str]]] = defaultdict(dict)
    for (day, attribute), counts in learned.values.items():
        by_attribute[attribute][day] = counts
    rows = []
    for attribute, by_day in sorted(by_attribute.items()):
        days = sorted(by_day.keys() - {NO_DAY})
        for before, day in pairwise(days):
            old, new = by_day[before], by_day[day]
            shares = (abs(new[each] / new.total() - old[each] / old.total()) for each in new.keys() | old.keys())
            rows.append({"day": day, "attribute": attribute, "distance": sum(shares) / 2})
    return rows


def _priors(learned: Learned, texts: list[str], snapshot: Snapshot) -> dict[str, Any]:
    """Returns the selectivity of predicates, value frequencies, and the planner's records of operator predicates."""
    holds: Counter[int] = Counter()
    for (_, number), count in learned.holds.items():
        holds[number] += count
    frequencies: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, attribute), counts in learned.values.items():
        frequencies[attribute].update(counts)
    return {
        "vocabulary_version": snapshot.vocabulary_version,
        "events": learned.events,
        "predicates": [
            {"predicate": text, "calls": learned.events, "trues": holds[number]} for number, text in enumerate(texts)
        ],
        "values": {name: dict(counts.most_common(MOST_VALUES)) for name, counts in sorted(frequencies.items())},
        "operators": added_up(learned.records),
    }


TABLES: Mapping[str, pa.Schema] = {
    "values": pa.schema(
        [
            ("day", pa.string()),
            ("attribute", pa.string()),
            ("value", pa.string()),
            ("events", pa.int64()),
            ("least", pa.float64()),
            ("greatest", pa.float64()),
        ]
    ),
    "predicates": pa.schema(
        [("day", pa.string()), ("predicate", pa.string()), ("events", pa.int64()), ("holds", pa.int64())]
    ),
    "together": pa.schema([("one", pa.string()), ("other", pa.string()), ("events", pa.int64())]),
    "drift": pa.schema([("day", pa.string()), ("attribute", pa.string()), ("distance", pa.float64())]),
}


def _write(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    writing = folder / ".part.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), TABLES[folder.name]), writing)
    writing.replace(folder / "part.parquet")
