"""The terms of an archive that mean nothing, or several things: a table that an ontologist can work through.

Counted in every task, added up at the end. A text is a term where its attribute holds concepts: by declaration, or
because most of its values in this archive are.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from semantic import Vocabulary
from semantic.model import CanonicalEvent
from spark_jobs.schemas import TERMS

__all__ = ["COUNTED", "Terms", "work_list"]

COUNTED = pa.schema(
    [
        ("attribute", pa.string()),
        ("term", pa.string()),
        ("events", pa.int64()),
        ("example", pa.string()),
        ("concepts", pa.list_(pa.string())),
    ]
)
"""One task's counts: a term, the IRIs that it may mean (none, one, several), in how many events."""

MOST_TERMS = 50_000
"""Distinct texts of one attribute that a task counts: an attribute with more is free text."""
MOSTLY = 0.5
"""Of the values of an attribute that must be concepts for the others to be called unknown terms."""
SUGGESTED_FOR = 2_000
"""Of the most frequent terms, which get suggestions; looking for near names costs milliseconds each."""


class Terms:
    """Counts the texts of events by attribute. One thread at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._counts: dict[str, Counter[str]] = {}
        self._first: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def count(self, event: CanonicalEvent, source: str, id: str) -> None:
        """One event."""
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
        """`COUNTED`."""
        rows = []
        for name, counts in self._counts.items():
            for term, events in counts.items():
                example, concepts = self._first[name, term]
                rows.append(
                    {"attribute": name, "term": term, "events": events, "example": example, "concepts": concepts}
                )
        return pa.Table.from_pylist(rows, COUNTED)


def work_list(counted: Iterable[pa.Table], vocabulary: Vocabulary) -> pa.Table:
    """`schemas.TERMS`: the unknown and ambiguous terms of all tasks, the most frequent first."""
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
    """What it may mean, or the nearest names."""
    meant = vocabulary.readings(term)
    if meant:
        return [vocabulary.iri(concept) for concept in meant]
    return [str(found["label"]) for found in vocabulary.suggest(term)]
