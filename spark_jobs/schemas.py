"""The schemas of all data that jobs read and write. Fixed here: nothing is inferred from data.

Each is a list of (name, type, nullable) in Spark's words; `pyspark.sql.types.StructType` and `pyarrow.Schema` are made
of it.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["CHANGES", "EVENTS", "EXPLODED", "MATCHES", "NORMALISED", "NO_DAY", "QUARANTINE", "TERMS", "spark_schema"]

NO_DAY = "unknown"
"""The day of an event that says no time."""

_TIME = pa.timestamp("us", tz="UTC")


def _schema(*fields: tuple[str, Any] | tuple[str, Any, bool]) -> pa.Schema:
    return pa.schema([pa.field(*field) for field in fields])


_KEY: tuple[tuple[str, Any], ...] = (
    ("source", pa.string()),
    ("id", pa.string()),
    ("time", _TIME),
    ("day", pa.string()),
)
"""An event: `source` and `id` name it, `day` is that of its time in UTC, or `NO_DAY`."""

EVENTS = _schema(*_KEY, ("body", pa.string()), ("file", pa.string()), ("line", pa.int64()))
"""Events as archived. `body` is the line: a CloudEvent where it has `specversion`, else the data of one."""

READING = pa.struct(
    [
        ("published", pa.string()),
        ("text", pa.string()),
        ("root_word", pa.string()),
        ("number", pa.float64()),
        ("boolean", pa.bool_()),
        ("instant", _TIME),
        ("amount", pa.float64()),
        ("dimension", pa.string()),
        ("concepts", pa.list_(pa.string())),
    ]
)
"""A value with all its readings; `published` is JSON, `text` a published string in NFC and `root_word` its root word by
the user's table of synonyms (the same where there is none), `amount` is in the base unit of `dimension`, `concepts` are
IRIs."""

CHANGES = pa.list_(
    pa.struct([("attribute", pa.string()), ("published", pa.string()), ("became", pa.string()), ("why", pa.string())])
)
"""What is read otherwise than it stands there, and why: attribute-name, concept, deprecated, synonym, unit, number."""

NORMALISED = _schema(
    *_KEY,
    ("body", pa.string()),
    ("attributes", pa.map_(pa.string(), pa.list_(READING))),
    ("changes", CHANGES),
    (
        "notes",
        pa.list_(pa.struct([("code", pa.string()), ("attribute", pa.string()), ("detail", pa.string())])),
    ),
    ("vocabulary_version", pa.string()),
)
"""Canonical events, with the events as published."""

MATCHES = _schema(*_KEY, ("subscriptions", pa.list_(pa.string())), ("vocabulary_version", pa.string()))
"""One row per event, with the subscriptions that match it."""

EXPLODED = _schema(*_KEY, ("subscription", pa.string()), ("bindings", pa.string()), ("vocabulary_version", pa.string()))
"""A match a row; `bindings` is JSON, null where the subscription has no variables."""

QUARANTINE = _schema(("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string()))
"""What could not be read: where it stands, why, and how it begins. Without `line` it is the whole file."""

TERMS = _schema(
    ("attribute", pa.string()),
    ("term", pa.string()),
    ("problem", pa.string()),
    ("events", pa.int64()),
    ("suggestions", pa.list_(pa.string())),
    ("example", pa.string()),
)
"""What an ontologist should look at: a term, its `problem` (unknown or ambiguous), in how many events, what it may
mean, and one event (its source and id)."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns for Spark."""
    return from_arrow_schema(schema)
