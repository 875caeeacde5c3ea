"""Reading archives: every format gives the same events, and what cannot be read is told with file, line and reason."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary, operator
from kindcast.spark_jobs.event_batch import EVENTS as EVENTS_SCHEMA
from kindcast.spark_jobs.event_batch import NO_DAY, EventBatch, Rejected
from kindcast.spark_jobs.match import PLACE, decoded, exploded_rows, in_pieces, side_by_side
from kindcast.spark_jobs.normalise import Normaliser
from kindcast.spark_jobs.reading import (
    AS_IT_STANDS,
    EXTENSIONS,
    LIMITS,
    MOST_LINE_BYTES,
    READERS,
    SPLITTERS,
    ReadOptions,
    file_split,
    lines_in,
    numbered,
    read_split,
    splits_of,
    unknown_columns,
)
from kindcast.spark_jobs.report import JobFailed, NoArchive
from kindcast.spark_jobs.snapshot import ShardMatcher

EVENTS = [{"kind": "a", "size": 1.5, "ts": 0}, {"kind": "b", "size": 2.5, "ts": 86_400.25}]


def read_all(place: Path, **options: Any) -> tuple[list[tuple[str, str, Any]], list[tuple[str, int | None, str]]]:
    """(id, day, data) of the events, and (file, line, reason) of what is none."""
    events, bad = [], []
    splits = splits_of(str(place), split_bytes=options.pop("split_bytes", 1 << 30))
    counts = [lines_in(split) if split.stop and split.format == "lines" else 0 for split in splits]
    for split in numbered(splits, counts):
        for found in read_split(split, ReadOptions(**options)):
            if isinstance(found, Rejected):
                bad.append((found.file, found.line, found.reason))
                continue
            names = zip(found.keys["id"].to_pylist(), found.keys["day"].to_pylist(), found.each(), strict=True)
            events += [(id, day, event.data) for id, day, event in names]
    return events, bad


def test_formats_give_the_same_events_with_their_days(tmp_path: Path) -> None:
    """JSON lines, gzipped ones, CSV and Parquet."""
    lines = "".join(json.dumps(each) + "\n" for each in EVENTS)
    (tmp_path / "a.ndjson").write_text(lines, encoding="utf-8")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.csv").write_text("kind,size,ts\na,1.5,0\nb,2.5,86400.25\n", encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(EVENTS), tmp_path / "d.parquet")
    found, bad = read_all(tmp_path, time_from="ts", numbers=("size", "ts"))
    assert bad == []
    by_file: dict[str, list[Any]] = {}
    for id, day, data in found:
        by_file.setdefault(id.partition(":")[0], []).append((day, data))
    days = ["1970-01-01", "1970-01-02"]
    assert by_file == {
        name: list(zip(days, EVENTS, strict=True)) for name in ("a.ndjson", "b.jsonl.gz", "c.csv", "d.parquet")
    }


def test_lines_that_are_no_events_are_told_with_file_line_and_reason(tmp_path: Path) -> None:
    """None of them hides the good lines before and after."""
    bad = [b"{broken", b"[1]", b'{"a": "\xff"}', b"[" * 5_000, b'{"ce": 1}', b'{"a": 1e999}']
    bad.append(b'{"specversion": "1.0", "id": "1", "source": "/s"}')
    head = b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", '
    bad += [head + rest for rest in (b'"time": "noon"}', b'"data": 1, "data_base64": "e30="}', b'"more": 2147483648}')]
    good = b'{"a": 1}'
    (tmp_path / "x.ndjson").write_bytes(b"\n".join([good, *bad, b"", good]) + b"\n")
    events, found = read_all(tmp_path)
    assert [data for _, _, data in events] == [{"a": 1}, {"a": 1}]
    assert [(file, line) for file, line, _ in found] == [("x.ndjson", line) for line in range(2, 12)]
    reasons = ["not JSON", "JSON object", "not JSON", "nested", "context", "not JSON", "type", "date-time"]
    reasons += ["both data and data_base64", "32-bit"]
    assert all(word in reason for word, (_, _, reason) in zip(reasons, found, strict=True)), found


def test_line_beyond_the_bound_is_passed_over_in_pieces(tmp_path: Path) -> None:
    """It is never in memory whole."""
    with (tmp_path / "x.ndjson").open("wb") as file:
        file.write(b'{"a": "' + b"x" * (2 * MOST_LINE_BYTES) + b'"}\n{"a": 1}\n')
    events, found = read_all(tmp_path)
    assert ([data for _, _, data in events], [line for _, line, _ in found]) == ([{"a": 1}], [1])


@pytest.mark.parametrize("name", ["x.ndjson.gz", "x.parquet", "x.csv", "y.parquet"])
def test_damaged_file_gives_what_comes_before_and_says_so(tmp_path: Path, name: str) -> None:
    """A gzip that ends too early, Parquet that is none or is cut, CSV with a quote that never ends."""
    rows = [{"a": float(number), "b": "x" * 50} for number in range(50_000)]
    whole = tmp_path / "whole"
    if name.endswith(".gz"):
        data = gzip.compress("".join(json.dumps(each) + "\n" for each in rows).encode())[:-2_000]
    elif name == "x.parquet":
        data = b"PAR1 is how it begins, and this is how it ends"
    elif name == "y.parquet":
        pq.write_table(pa.Table.from_pylist(rows), whole, row_group_size=10_000, compression="none")
        data = bytearray(whole.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 60_000] = b"\xff" * 60_000
    else:
        data = b'a,b\n1,x\n2,"no end\n'
    (tmp_path / name).write_bytes(bytes(data))
    events, bad = read_all(tmp_path / name)
    assert len(bad) == 1
    assert bad[0][0] == name
    assert len(events) == {"x.parquet": 0, "x.csv": 1}.get(name, len(events))
    if name in ("x.ndjson.gz", "y.parquet"):
        assert 0 < len(events) < 50_000


@pytest.mark.parametrize("name", ["x.ndjson.gz", "x.csv.gz"])
@pytest.mark.parametrize("damage", ["cut", "checksum", "more"])
def test_everything_before_the_end_of_a_gzip_without_an_end_is_read(tmp_path: Path, name: str, damage: str) -> None:
    """It is cut within its last bytes, its checksum is wrong, or something else follows it."""
    rows = 5_000
    line = "a\n" + "1\n" * rows if "csv" in name else '{"a": "1"}\n' * rows
    whole = gzip.compress(line.encode())
    ends = {"cut": whole[:-3], "checksum": whole[:-8] + b"\xff" * 4 + whole[-4:], "more": whole + b"more"}
    (tmp_path / name).write_bytes(ends[damage])
    events, bad = read_all(tmp_path)
    assert (len(events), len(bad)) == (rows, 1)
    assert "the file cannot be read from here on" in bad[0][2]


def test_columns_that_no_csv_file_has_are_named(tmp_path: Path) -> None:
    """A typing error in `--numbers` would make texts of numbers. One file with the column is enough."""
    (tmp_path / "a.csv").write_text("value,unit\n1,kg\n", encoding="utf-8")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"mass,unit\n1,kg\n"))
    (tmp_path / "c.csv.gz").write_bytes(b"damaged")
    (tmp_path / "d.jsonl").write_text('{"vaule": 1}\n', encoding="utf-8")
    assert unknown_columns(str(tmp_path), ("value", "mass")) == []
    assert unknown_columns(str(tmp_path), ("vaule", "mass", "count")) == ["count", "vaule"]
    assert unknown_columns(str(tmp_path / "absent"), ()) == []


def test_whole_number_of_csv_that_no_double_holds_is_refused(tmp_path: Path) -> None:
    """As in lines of JSON: it would be rounded to another number."""
    (tmp_path / "x.csv").write_text("order,size\n9007199254740993,1\n9007199254740992,2\n", encoding="utf-8")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions(numbers=("order", "size")))
    assert isinstance(batch, EventBatch)
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("order", "order = 9007199254740992")
    found = ShardMatcher([matcher], False).match(batch)
    assert found.batch.lines.tolist() == [3]
    assert found.table.slots.tolist() == [0]
    assert [(each.line, "9007199254740993" in each.reason) for each in found.rejected] == [(2, True)]


def test_field_of_csv_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    """A picture, say."""
    (tmp_path / "x.csv").write_text(f"a,b\n{'x' * 200_000},1\ny,2\n", encoding="utf-8")
    events, bad = read_all(tmp_path)
    assert ([len(data["a"]) for _, _, data in events], bad) == ([200_000, 1], [])


@given(
    lines=st.lists(st.sampled_from(['{"a": 1}', '{"a": "é"}', "", "  ", "{", '{"b": [1, 2]}']), max_size=40),
    split_bytes=st.integers(1, 60),
    end=st.booleans(),
)
@settings(max_examples=settings.default.max_examples)
def test_splits_of_a_file_read_every_line_once_with_its_number(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], split_bytes: int, end: bool
) -> None:
    """Wherever the borders fall."""
    folder = tmp_path_factory.mktemp("splits")
    (folder / "x.ndjson").write_text("\n".join(lines) + ("\n" if end else ""), encoding="utf-8")
    if not (folder / "x.ndjson").stat().st_size:
        with pytest.raises(NoArchive):
            splits_of(str(folder))
        return
    assert read_all(folder, split_bytes=split_bytes) == read_all(folder)


def test_folders_of_a_partitioned_archive_are_attributes(tmp_path: Path) -> None:
    """As other tools write them; what an event says itself goes first. Names that begin with _ or . are passed by."""
    (tmp_path / "room=Bath%20room" / "_old").mkdir(parents=True)
    (tmp_path / "room=Bath%20room" / "a.ndjson").write_text('{"x": 1}\n{"room": "Hall"}\n', encoding="utf-8")
    (tmp_path / "room=Bath%20room" / "_old" / "b.ndjson").write_text('{"x": 2}\n', encoding="utf-8")
    pq.write_table(pa.table({"x": [3.0]}), tmp_path / "room=Bath%20room" / "c.parquet")
    (tmp_path / ".hidden.ndjson").write_text("{", encoding="utf-8")
    event = {"specversion": "1.0", "id": "room=Bath%20room/d.ndjson:1", "source": "/s", "type": "t", "data": {"x": 4}}
    (tmp_path / "room=Bath%20room" / "d.ndjson").write_text(json.dumps(event), encoding="utf-8")
    events, bad = read_all(tmp_path)
    assert bad == []
    wanted = [{"room": "Bath room", "x": 1}, {"room": "Hall"}, {"x": 3.0, "room": "Bath room"}]
    assert [data for _, _, data in events] == [*wanted, {"x": 4}]
    found = [each for split in splits_of(str(tmp_path)) for each in read_split(split, ReadOptions(bodies=True))]
    assert [json.loads(body) for each in found if isinstance(each, EventBatch) for body in each.bodies] == [
        *wanted,
        event,
    ]


def test_folder_of_rows_without_a_value_gives_none(tmp_path: Path) -> None:
    """As Hive and Spark name it. They also escape the names of columns. A folder without a name gives none either."""
    for number, folder in enumerate(("room=__HIVE_DEFAULT_PARTITION__", "room=Hall", "a%3Ab=1", "=1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{number}.ndjson").write_text('{"x": 1}\n', encoding="utf-8")
        pq.write_table(pa.table({"x": [1]}), tmp_path / folder / f"{number}.parquet")
    events, bad = read_all(tmp_path)
    assert bad == []
    without, hall, escaped = {"x": 1}, {"x": 1, "room": "Hall"}, {"x": 1, "a:b": "1"}
    assert [data for _, _, data in events] == [without, without, escaped, escaped, hall, hall, without, without]


def test_inner_of_two_folders_with_one_name_counts(tmp_path: Path) -> None:
    """They ended the job, unless the lines were read one by one."""
    (tmp_path / "room=House" / "room=Hall").mkdir(parents=True)
    (tmp_path / "room=House" / "room=Hall" / "a.ndjson").write_text('{"x": 1}\n', encoding="utf-8")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "room=House" / "room=Hall" / "b.parquet")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("hall", 'room = "Hall"')
    for split in splits_of(str(tmp_path)):
        (batch,) = read_split(split, ReadOptions())
        assert isinstance(batch, EventBatch)
        assert ShardMatcher([matcher], False).match(batch).table.offsets.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["a.ndjson", "a.parquet"])
def test_folder_with_a_reserved_name_gives_no_events(tmp_path: Path, name: str) -> None:
    """Lines that were read as columns got the name of a context attribute from their folder."""
    (tmp_path / "ce.type=offer").mkdir()
    if name == "a.parquet":
        pq.write_table(pa.table({"x": [1]}), tmp_path / "ce.type=offer" / name)
    else:
        (tmp_path / "ce.type=offer" / name).write_text('{"x": 1}\n', encoding="utf-8")
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        (found,) = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(found, Rejected)
        assert "/ce.type: this name is reserved" in found.reason


@pytest.mark.parametrize(
    ("beside", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_table_of_a_format_with_deleted_rows_is_refused(tmp_path: Path, beside: str, kind: str) -> None:
    """Its folder keeps the files of earlier versions, so deleted and replaced rows would be matched as well."""
    table = tmp_path / "archive" / "offers"
    (table / beside).parent.mkdir(parents=True)
    (table / beside).write_text("{}", encoding="utf-8")
    pq.write_table(pa.table({"x": [1]}), table / "old.parquet")
    with pytest.raises(NoArchive, match=f"has a table of {kind}, .* write its present rows as Parquet"):
        splits_of(str(tmp_path / "archive"))


def test_columns_of_parquet_match_as_json_does(tmp_path: Path) -> None:
    """Times, decimals, dictionaries, lists and structs."""
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "at": pa.array([moment, None], pa.timestamp("ns", tz="UTC")),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "tags": [["x", "y"], None],
            "box": [{"size": 1.0}, {"size": None}],
            "big": pa.array([1 << 60, 2], pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions())
    assert isinstance(batch, EventBatch)
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("at", "at >= 2026-01-31T00:00:00Z")
    matcher.add("tags", 'kind = "a" and tags = "y" and box.size = 1')
    found = [sorted(match.subscription for match in matcher.match(event)) for event in [next(batch.each())]]
    assert found == [["at", "tags"]]


def test_times_of_parquet_are_the_texts_of_the_matcher(tmp_path: Path) -> None:
    """A column of times had other texts than `match` and `match_table` give them: with six decimals, also for whole
    seconds, and with a wrong year after 9999."""
    times = pa.array([1_769_862_600_000_000, 1_769_862_600_250_000], pa.int64()).cast(pa.timestamp("us"))
    far = pa.array([0, 569_700_000_000], pa.int64()).cast(pa.timestamp("s"))
    zoned = times.cast(pa.timestamp("ns")).cast(pa.timestamp("ns", tz="+05:30"))
    table = pa.table({"at": times, "zoned": zoned, "far": far, "box": pa.StructArray.from_arrays([times], ["at"])})
    pq.write_table(table, tmp_path / "x.parquet")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    asked = ('at = "2026-01-31T12:30:00Z"', 'zoned endswith "12:30:00.250000Z"', "at = 2026-01-31T12:30:00.25Z")
    for text in (*asked, 'far startswith "20023-"'):
        matcher.add(text, text)
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        (batch,) = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(batch, EventBatch)
        found = ShardMatcher([matcher], False).match(batch).table
        ends = found.offsets.tolist()
        assert [sorted(found.slots[start:end].tolist()) for start, end in pairwise(ends)] == [[0], [1, 2, 3]]
        data = [event.data for event in batch.each()]
        assert [each["at"] for each in data] == [each["box"]["at"] for each in data]


def test_old_timestamps_of_parquet_keep_their_year(tmp_path: Path) -> None:
    """Those of 96 bits, which Arrow reads as nanoseconds unless told otherwise: the year 9999 became 1816."""
    times = pa.array(
        [datetime(9999, 12, 31, tzinfo=UTC), datetime(2026, 1, 31, 12, 30, tzinfo=UTC)], pa.timestamp("us")
    )
    table = pa.table({"until": times, "box": pa.StructArray.from_arrays([times], ["until"])})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        (batch,) = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(batch, EventBatch)
        found = [event.data for event in batch.each()]
        assert [each["box"]["until"] for each in found] == ["9999-12-31T00:00:00Z", "2026-01-31T12:30:00Z"]
        assert [each["until"][:16] for each in found] == ["9999-12-31T00:00", "2026-01-31T12:30"]


def test_times_after_the_year_9999_in_lists_and_objects_are_texts(tmp_path: Path) -> None:
    """As in a column of their own: Python has no such times, and the whole job failed."""
    far = pa.array([1_769_860_800, 569_700_000_000], pa.int64()).cast(pa.timestamp("s"))
    box = pa.StructArray.from_arrays([far, pa.array([0, 3_000_000], pa.int32()).cast(pa.date32())], ["at", "day"])
    tags = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), far)
    by = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["x", "x"]), far)
    pq.write_table(pa.table({"box": box, "tags": tags, "by": by}), tmp_path / "x.parquet")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    asked = ('tags startswith "20"', 'tags startswith "2002"', "tags < 2027-01-01", "box.at exists and by.x exists")
    for text in asked:
        matcher.add(text, text)
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        (batch,) = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(batch, EventBatch)
        found = ShardMatcher([matcher], False).match(batch).table
        ends = found.offsets.tolist()
        assert [sorted(found.slots[start:end].tolist()) for start, end in pairwise(ends)] == [[0, 2, 3], [0, 1, 3]]
        boxes = [event.data["box"] for event in batch.each()]
        assert boxes[0] == {"at": "2026-01-31T12:00:00Z", "day": "1970-01-01"}
        assert boxes[1] == {"at": "20023-01-28T00:00:00Z", "day": "10183-09-21"}


def test_maps_of_parquet_are_objects_as_in_json(tmp_path: Path) -> None:
    """Read as columns, row by row for a text that is verified, and as bodies; keys that are no texts become texts."""
    kinds = {
        "labels": pa.map_(pa.string(), pa.string()),
        "parts": pa.list_(pa.map_(pa.string(), pa.int64())),
        "hours": pa.map_(pa.int64(), pa.map_(pa.bool_(), pa.float64())),
    }
    row = {"labels": [("room", "kitchen")], "parts": [[("size", 5)], [("size", None)]], "hours": [(7, [(True, 0.5)])]}
    pq.write_table(pa.table({name: pa.array([row[name], None], kinds[name]) for name in row}), tmp_path / "x.parquet")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for text in ('labels.room startswith "kit"', "some parts (size = 5)", "`hours.7.true` = 0.5"):
        matcher.add(text, text)
    for text in ("labels exists", "parts exists", "labels.key exists", 'labels = "room"'):
        matcher.add(text, text)
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        (batch,) = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(batch, EventBatch)
        found = ShardMatcher([matcher], False).match(batch).table
        assert found.offsets.tolist() == [0, 3, 3]
        assert sorted(found.slots.tolist()) == [0, 1, 2]
        assert next(batch.each()).data["hours"] == {"7": {"true": 0.5}}


def test_decimals_of_parquet_are_the_numbers_that_they_say(tmp_path: Path) -> None:
    """The nearest double, as in lines; a whole number that no double holds is refused, not rounded. As times, they are
    seconds."""
    prices = [Decimal("2.90"), Decimal("6.52"), Decimal("7.00"), None, Decimal(2**53 + 1)]
    times = pa.array([Decimal("86400.5"), *[None] * 4], pa.decimal128(20, 3))
    pq.write_table(pa.table({"price": pa.array(prices, pa.decimal128(20, 2)), "at": times}), tmp_path / "x.parquet")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for price in ("2.9", "6.52", "7", str(2**53)):
        matcher.add(price, f"price = {price}")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions(time_from="at"))
    assert isinstance(batch, EventBatch)
    assert batch.keys["day"].to_pylist() == ["1970-01-02", *[NO_DAY] * 4]
    found = ShardMatcher([matcher], False).match(batch)
    assert [matcher.name(slot) for slot in found.table.slots] == ["2.9", "6.52", "7"]
    assert [each.line for each in found.rejected] == [5]


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (pa.array([1_700_000_000_000, 0, None]), "not '1700000000000'"),  # milliseconds
        (pa.array([1_700_000_000_000_000_000, 0, None]), "not '1700000000000000000'"),  # nanoseconds: no exact double
        (pa.array([1e300, 0.0, float("nan")]), "not '1e+300'"),
        (pa.array(["soon", "1970-01-01T00:00:00Z", None]), "not 'soon'"),
        (pa.array(["soon", "1970-01-01T00:00:00Z", None], pa.large_string()), "not 'soon'"),
        (pa.array([1 << 60, 0, None], pa.timestamp("us")), "a must be a date-time"),
    ],
)
def test_invalid_times_in_parquet_are_told_row_by_row(tmp_path: Path, times: Any, reason: str) -> None:
    """As in lines: the other rows are read, with their days."""
    pq.write_table(pa.table({"a": times}), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    found = list(read_split(split, ReadOptions(time_from="a")))
    told = [(each.line, each.reason) for each in found if isinstance(each, Rejected)]
    days = [each.keys["day"].to_pylist() for each in found if isinstance(each, EventBatch)]
    assert [line for line, _ in told] == [1]
    assert reason in told[0][1]
    assert days == [["1970-01-01", NO_DAY]]


def test_time_of_nanoseconds_in_a_line_is_told_and_the_other_lines_are_read(tmp_path: Path) -> None:
    """A number that no double has exactly ended the job."""
    lines = '{"a": 1700000000000000000}\n{"a": 0}\n'
    (tmp_path / "x.ndjson").write_text(lines, encoding="utf-8")
    events, bad = read_all(tmp_path, time_from="a")
    assert [day for _, day, _ in events] == ["1970-01-01"]
    ((_, line, reason),) = bad
    assert line == 1
    assert "not '1700000000000000000'" in reason


@pytest.mark.parametrize("name", ["a.parquet", "a.ndjson", "a.csv"])
def test_date_as_the_time_of_an_event_is_its_beginning(tmp_path: Path, name: str) -> None:
    """In every format; a date that does not exist is told."""
    if name == "a.parquet":
        pq.write_table(pa.table({"a": [date(2026, 1, 31), None], "b": [1, 2]}), tmp_path / name)
    elif name == "a.csv":
        (tmp_path / name).write_text("a,b\n2026-01-31,1\n,2\n2026-02-30,3\n", encoding="utf-8")
    else:
        (tmp_path / name).write_text('{"a": "2026-01-31"}\n{"b": 2}\n{"a": "2026-02-30"}\n', encoding="utf-8")
    events, bad = read_all(tmp_path, time_from="a")
    assert [day for _, day, _ in events] == ["2026-01-31", NO_DAY]
    assert ["a date or seconds" in reason for _, _, reason in bad] == [True] * (name != "a.parquet")


def test_bodies_of_parquet_say_what_its_columns_say(tmp_path: Path) -> None:
    """`normalise`, streams and DataFrames read bodies, `match` reads columns: nested decimals are numbers in both, and
    what is no JSON value is an event in neither."""
    items = [[{"price": Decimal("3.50"), "on": date(2026, 1, 31)}], None, None]
    table = pa.table({"items": items, "raw": [None, 2**53 + 1, None], "size": [1.0, 2.0, float("inf")]})
    pq.write_table(table, tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    found = list(read_split(split, ReadOptions(bodies=True)))
    (batch,) = (each for each in found if isinstance(each, EventBatch))
    assert [json.loads(body)["items"] for body in batch.bodies] == [[{"price": 3.5, "on": "2026-01-31"}]]
    told = [(each.line, each.reason) for each in found if isinstance(each, Rejected)]
    (columns,) = read_split(split, ReadOptions())
    assert isinstance(columns, EventBatch)
    matched = ShardMatcher([Matcher(Vocabulary.from_ontologies([]))], False).match(columns)
    assert [(each.line, each.reason) for each in matched.rejected] == told
    assert [line for line, _ in told] == [2, 3]


def test_infinity_deep_in_a_column_is_in_no_body(tmp_path: Path) -> None:
    """All other values of the column are JSON as they are."""
    items = [[{"size": float("inf"), "name": "a"}], [{"size": float("nan"), "name": "b"}], None]
    pq.write_table(pa.table({"items": items}), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    *bad, batch = sorted(read_split(split, ReadOptions(bodies=True)), key=lambda each: isinstance(each, EventBatch))
    assert [(each.line, "inf is not" in each.reason) for each in bad if isinstance(each, Rejected)] == [(1, True)]
    assert isinstance(batch, EventBatch)
    assert list(batch.bodies) == ['{"items":[{"size":null,"name":"b"}]}', '{"items":null}']


def test_columns_of_a_user_are_data_whatever_their_names(tmp_path: Path) -> None:
    """Names that outputs of jobs have, too; two columns of one name are told with the file."""
    mail = {"id": 1, "source": "inbox", "time": "noon", "body": "hello"}
    pq.write_table(pa.Table.from_pylist([mail]), tmp_path / "mail.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "twice.parquet")
    events, bad = read_all(tmp_path)
    assert [data for _, _, data in events] == [mail]
    assert bad == [("twice.parquet", None, "several columns have the name a")]


def test_parts_of_a_struct_with_one_name_are_told_with_the_file(tmp_path: Path) -> None:
    """As columns are: only the last of the values was read."""
    numbers = pa.array([1, 2])
    box = pa.StructArray.from_arrays([numbers, pa.array(["a", "b"]).dictionary_encode(), numbers], ["x", "y", "x"])
    pq.write_table(pa.table({"a": numbers, "a.x": numbers, "boxes": box}), tmp_path / "twice.parquet")
    one = pa.StructArray.from_arrays([numbers], ["x"])
    pq.write_table(pa.table({"x": numbers, "a.x": numbers, "a": one}), tmp_path / "y.parquet")
    events, bad = read_all(tmp_path)
    assert len(events) == 2
    assert bad == [("twice.parquet", None, "several columns have the name x")]


def test_names_in_csv_differ_by_case_and_only_empty_columns_lack_them(tmp_path: Path) -> None:
    """No value is lost: a file with one name twice is told, also zipped, and so is a value that has no name."""
    (tmp_path / "case.csv").write_text("a,A,,\n1,2,,\n3,4,,5\n", encoding="utf-8")
    (tmp_path / "twice.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfa,b,b,a\n1,2,3,4\n"))
    events, bad = read_all(tmp_path)
    assert [data for _, _, data in events] == [{"a": "1", "A": "2"}]
    assert bad == [
        ("case.csv", 3, "several columns have no name"),
        ("twice.csv.gz", None, "several columns have the name a, b"),
    ]


def test_row_of_csv_with_specversion_is_a_cloudevent(tmp_path: Path) -> None:
    """As a line is, and as streams and DataFrames read it from its body. `match` read it as plain data."""
    (tmp_path / "room=Hall").mkdir()
    rows = "specversion,id,source,type,time,unit\n1.0,1,/s,offer,2026-01-31T12:00:00Z,kg\n1.0,2,/s,,,\n,3,/s,,,g\n"
    (tmp_path / "room=Hall" / "x.csv").write_text(rows, encoding="utf-8")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("context", 'ce.type = "offer" and ce.unit = "kg"')
    matcher.add("data", 'unit = "g" and room = "Hall"')
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        bad, batch = read_split(split, ReadOptions(bodies=bodies))
        assert isinstance(bad, Rejected)
        assert (bad.line, bad.reason) == (3, "the CloudEvents attribute type is missing")
        assert isinstance(batch, EventBatch)
        assert batch.keys["id"].to_pylist() == ["1", "room=Hall/x.csv:4"]
        assert batch.keys["day"].to_pylist() == ["2026-01-31", NO_DAY]
        found = ShardMatcher([matcher], True).match(batch)
        assert [matcher.name(slot) for slot in found.table.slots] == ["context", "data"]
    context, data = map(json.loads, batch.bodies)
    assert (context["type"], data["unit"]) == ("offer", "g")


def test_csv_with_names_that_are_not_utf_8_is_told_and_the_other_files_are_read(tmp_path: Path) -> None:
    """As programs for tables on Windows write it. It was an error that ended the job and named no file."""
    for name, encoding in (("a.csv", "utf-8"), ("b.csv", "latin-1"), ("c.csv", "utf-16")):
        (tmp_path / name).write_text("Größe,kind\n5,x\n", encoding=encoding)
    events, bad = read_all(tmp_path)
    assert [data for _, _, data in events] == [{"Größe": "5", "kind": "x"}]
    reason = "the names of the columns are not UTF-8: write the file in UTF-8"
    assert bad == [("b.csv", None, reason), ("c.csv", None, reason)]


@pytest.mark.parametrize(("comma", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_csv_without_commas_says_what_to_write(tmp_path: Path, comma: str, name: str) -> None:
    """It is no table with one column, nor with two because a name has a comma. A table with one column is read, and one
    with such a sign within a name."""
    (tmp_path / "a.csv").write_text(f"Art{comma}Preis\nx{comma}5\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text(f"Art\nx{comma}5\n", encoding="utf-8")
    (tmp_path / "c.csv").write_text(f"Art{comma}Preis, EUR{comma}Ort\nx{comma}5{comma}y\n", encoding="utf-8")
    (tmp_path / "d.csv").write_text(f"Art{comma}2,Preis\nx,5\n", encoding="utf-8")
    events, bad = read_all(tmp_path)
    assert [data for _, _, data in events] == [{"Art": f"x{comma}5"}, {f"Art{comma}2": "x", "Preis": "5"}]
    reason = f"{name} separate the columns: write commas, and numbers with a point (1.5)"
    assert bad == [("a.csv", None, reason), ("c.csv", None, reason)]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_that_is_not_one_event_per_line_says_what_to_write(tmp_path: Path, indent: int | None) -> None:
    """The most frequent reason of an array, and of JSON with an event over several lines, says how to convert it."""
    (tmp_path / "a.json").write_text(json.dumps(EVENTS, indent=indent), encoding="utf-8")
    events, bad = read_all(tmp_path)
    ((reason, _),) = Counter(reason for _, _, reason in bad).most_common(1)
    advice = "write each event as one line, for example with jq -c . or, from an array, with jq -c '.[]'"
    assert (events, reason.partition(": ")[2]) == ([], advice)


def test_no_line_of_an_array_is_an_event(tmp_path: Path) -> None:
    """The last one, without a comma, was the only event of the file, so the job succeeded. A line that was not written
    to its end hides no other line."""
    (tmp_path / "a.json").write_text('[\n{"n": 1},\n{"n": 2}\n]\n{"n": 3}\n{"n": 4,\n{"n": 5}\n', encoding="utf-8")
    (tmp_path / "b.json").write_text('[{"n": 1},\n\n{"n": 2}\n]\n', encoding="utf-8")
    (tmp_path / "c.json").write_text('{"all": [\n  {"n": 1},\n  {"n": 2}\n]}\n', encoding="utf-8")
    events, bad = read_all(tmp_path)
    assert [data["n"] for _, _, data in events] == [3, 5]
    assert all("not a whole JSON text" in reason for _, _, reason in bad[:-1])


def test_text_of_parquet_that_is_not_utf_8_is_told_with_its_row(tmp_path: Path) -> None:
    """Parquet does not check texts. One ended the job with `UnicodeDecodeError`, and named no file."""
    texts = pa.array([b"x", b"\xfcber", b"x", b"y"] * 3).view(pa.string())
    columns = {
        "text": texts,
        "code": texts.dictionary_encode(),
        "box": pa.StructArray.from_arrays([texts], ["text"]),
        "tags": pa.ListArray.from_arrays(pa.array(range(13), pa.int32()), texts),
    }
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("x", 'text = "x" or code = "x" or box.text = "x" or tags = "x"')
    for name, cells in columns.items():
        pq.write_table(pa.table({"k": range(12), name: cells}), tmp_path / "x.parquet")
        (split,) = splits_of(str(tmp_path))
        for bodies in (False, True):
            found = list(read_split(split, ReadOptions(bodies=bodies)))
            told = [(each.line, each.reason) for each in found if isinstance(each, Rejected)]
            assert told == [(line, f"{name}: the text is not UTF-8") for line in (2, 6, 10)]
            (batch,) = (each for each in found if isinstance(each, EventBatch))
            matched = ShardMatcher([matcher], False).match(batch)
            assert np.diff(matched.table.offsets).tolist() == [1, 1, 0] * 3


def test_rows_of_bytes_alone_are_events(tmp_path: Path) -> None:
    """Without values: a table without columns has no rows in the matcher."""
    pq.write_table(pa.table({"photo": [b"a", b"b"]}), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    _, batch = read_split(split, ReadOptions())
    assert isinstance(batch, EventBatch)
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("every", "photo missing")
    assert ShardMatcher([matcher], False).match(batch).table.offsets.tolist() == [0, 1, 2]


def test_views_of_texts_and_bytes_in_parquet_are_texts_and_bytes(tmp_path: Path) -> None:
    """As some programs write them: a view of bytes ended the reading of the file."""
    views = {"text": pa.array(["1970-01-02"], pa.string_view()), "photo": pa.array([b"a"], pa.binary_view())}
    pq.write_table(pa.table(views), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    for bodies in (False, True):
        left_out, batch = read_split(split, ReadOptions(bodies=bodies, time_from="text"))
        assert isinstance(left_out, Rejected)
        assert left_out.reason == "columns of bytes are left out: photo"
        assert isinstance(batch, EventBatch)
        assert batch.keys["day"].to_pylist() == ["1970-01-02"]
        assert [event.data for event in batch.each()] == [{"text": "1970-01-02"}]


def test_rows_beside_a_refused_one_may_have_views_of_texts_in_lists_and_objects(tmp_path: Path) -> None:
    """Arrow cannot take rows of views, so one event that is refused ended the reading of the file."""
    views = pa.array(["x", "y"], pa.string_view())
    columns = {
        "tags": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), views),
        "box": pa.StructArray.from_arrays([views], ["kind"]),
        "by_name": pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), views, views),
        "size": pa.array([5.0, float("inf")]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions())
    assert isinstance(batch, EventBatch)
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("all", 'tags = "x" and box.kind = "x" and by_name.x = "x"')
    found = ShardMatcher([matcher], False).match(batch)
    assert [each.line for each in found.rejected] == [2]
    assert found.table.offsets.tolist() == [0, 1]


def test_file_whose_name_is_not_utf_8_is_named(tmp_path: Path) -> None:
    """Arrow lists no folder that has such a file."""
    (tmp_path / "a.ndjson").write_text("{}\n", encoding="utf-8")
    (tmp_path / os.fsdecode(b"\xff.ndjson")).write_text("{}\n", encoding="utf-8")
    with pytest.raises(NoArchive, match=r"xff\.ndjson' is not UTF-8: rename this file"):
        splits_of(str(tmp_path))


@pytest.mark.parametrize(
    ("times", "days"),
    [
        (pa.array([float("nan"), 0.0]), [NO_DAY, "1970-01-01"]),
        (pa.array([None, None], pa.bool_()), [NO_DAY, NO_DAY]),
        (pa.array([None, None], pa.struct([("start", pa.string())])), [NO_DAY, NO_DAY]),
    ],
)
def test_absent_times_in_parquet_are_no_invalid_times(tmp_path: Path, times: Any, days: list[str]) -> None:
    """NaN is an absent value in a column of numbers. A column without a value may have any type."""
    pq.write_table(pa.table({"a": times}), tmp_path / "x.parquet")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions(time_from="a"))
    assert isinstance(batch, EventBatch)
    assert batch.keys["day"].to_pylist() == days


def test_events_of_several_files_that_cannot_be_read_are_told_with_their_own_files() -> None:
    """A batch of a stream or a DataFrame has events of any files."""
    head = {"source": "s", "time": None, "day": NO_DAY}
    context = {"specversion": "1.0", "id": "2", "source": "s", "type": "t", "datacontenttype": "text/turtle"}
    rows = [
        {**head, "id": "1", "body": '{"a": 1}', "file": "one", "line": 7},
        {**head, "id": "2", "body": json.dumps({**context, "data": "no turtle"}), "file": "other", "line": 8},
    ]
    batch, _ = decoded(pa.RecordBatch.from_pylist(rows, EVENTS_SCHEMA))
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for rejected in (
        ShardMatcher([matcher], False).match(batch).rejected,
        Normaliser(matcher.vocabulary).table(batch)[1],
    ):
        assert [(each.file, each.line) for each in rejected] == [("other", 8)]


def test_linked_data_and_reserved_names_in_parquet_are_read_as_in_lines(tmp_path: Path) -> None:
    """A column of contexts makes rows graphs; a column of a context attribute is refused."""
    pq.write_table(pa.table({"@context": [{"w": "http://p/weight"}], "w": [7]}), tmp_path / "graphs.parquet")
    pq.write_table(pa.table({"ce.type": ["q"], "w": [7]}), tmp_path / "reserved.parquet")
    graphs, reserved = (list(read_split(split, ReadOptions())) for split in splits_of(str(tmp_path)))
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("s", "weight = 7")
    (batch,) = graphs
    assert isinstance(batch, EventBatch)
    assert ShardMatcher([matcher], False).match(batch).table.slots.size == 1
    (refused,) = reserved
    assert isinstance(refused, Rejected)
    assert "ce.type: this name is reserved" in refused.reason


def test_rows_with_bytes_times_of_day_and_durations_are_matched(tmp_path: Path) -> None:
    """Bytes are left out, at any depth, and named once for each file. The other types are read as their texts."""
    inner = {"sum": b"q", "opens": time(9), "run": timedelta(hours=3), "n": 1}
    row = {"photo": b"\xff", "opens": time(8, 30), "run": timedelta(minutes=90), "inner": inner, "many": [inner]}
    short = pa.array([7_200_000_000_001] * 2, pa.duration("ns"))
    table = pa.Table.from_pylist([row] * 2).append_column("short", short).append_column("raw", pa.array([[b"q"]] * 2))
    kind = pa.map_(pa.string(), pa.struct([("sum", pa.binary()), ("n", pa.int64())]))
    table = table.append_column("by", pa.array([[("x", {"sum": b"q", "n": 1})]] * 2, kind))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    asked = {
        "a": 'opens startswith "08:30:00"',
        "b": "run = 1.5 h",
        "c": "inner.run = 3 h and inner.n = 1",
        "d": "many.run = 3 h",
        "e": "short = 2 h",
        "f": "by.x.n = 1",
    }
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for id, expression in asked.items():
        matcher.add(id, expression)
    for bodies in (False, True):
        splits = splits_of(str(tmp_path), split_rows=1)
        found = [each for split in splits for each in read_split(split, ReadOptions(bodies=bodies))]
        told = [(each.line, each.reason) for each in found if isinstance(each, Rejected)]
        assert told == [(None, "columns of bytes are left out: photo, inner.sum, many.sum, raw, by.sum")]
        batches = [each for each in found if isinstance(each, EventBatch)]
        assert [ShardMatcher([matcher], False).match(each).table.slots.size for each in batches] == [6, 6]
        for event in (event for each in batches for event in each.each()):  # as a backtest shows its samples
            assert json.loads(json.dumps(event.data))["inner"]["opens"] == "09:00:00"
        for body in (body for each in batches for body in each.bodies):
            assert json.loads(body)["inner"] == {"opens": "09:00:00", "run": "PT10800S", "n": 1}


def test_archive_that_is_not_there_or_holds_nothing_is_refused(tmp_path: Path) -> None:
    """With what is read."""
    with pytest.raises(NoArchive, match="does not exist"):
        splits_of(str(tmp_path / "absent"))
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(NoArchive, match=r"\.parquet"):
        splits_of(str(tmp_path))
    (tmp_path / "empty.ndjson").touch()
    with pytest.raises(NoArchive, match="nothing but empty files"):
        splits_of(str(tmp_path))


def test_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    """In an archive and in a stream: packed ones and those with unknown names. What is no data is left out: notes about
    the archive, checksums, empty and hidden files."""
    (tmp_path / "a.ndjson.GZ").write_bytes(gzip.compress(b'{"n": 1}\n'))
    told = ("b.ndjson.bz2", "c.csv.zst", "d.parquet.ZIP", "e.zip", "f.tsv", "g.avro", "part-0000")
    for name in (*told, "_e.ndjson.bz2", "README", "readme.txt", "notes.md", "b.ndjson.bz2.crc", ".a.tsv", "h.tsv.tmp"):
        (tmp_path / name).write_bytes(b"other")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "empty").touch()
    found = [each for split in splits_of(str(tmp_path)) for each in read_split(split, ReadOptions())]
    assert [len(each.lines) for each in found if isinstance(each, EventBatch)] == [1]
    bad = [
        (each.file, each.line, each.reason.partition(" not read")[0]) for each in found if isinstance(each, Rejected)
    ]
    packed = [(name, None, f"{name[name.rindex('.') :]} files are") for name in told[:4]]
    assert bad == [*packed, *((name, None, "files with such names are") for name in told[4:])]
    for name in ("b.ndjson.bz2", "f.tsv"):
        split = file_split(str(tmp_path), (tmp_path / name).as_uri())
        assert split is not None
        assert "not read" in split.problem
    assert file_split(str(tmp_path), (tmp_path / "notes.md").as_uri()) is None


@pytest.mark.parametrize("link", ["archive/latest", "archive/day=2/loop", "archive/up", "archive/copy.ndjson"])
def test_link_to_what_the_archive_has_is_refused(tmp_path: Path, link: str) -> None:
    """The events of `latest` were matched twice, and those of a folder with a link to itself forty times. In the folder
    of a stream, the file in the quarantine is one that was linked while the stream ran."""
    targets = {
        "archive/latest": "day=1",
        "archive/day=2/loop": "../day=2",
        "archive/up": "../..",
        "archive/copy.ndjson": "day=1/a.ndjson",
    }
    for folder in ("archive/day=1", "archive/day=2", "archive/.versions", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.ndjson").write_text('{"a": 1}\n', encoding="utf-8")
    (tmp_path / "archive" / "more").symlink_to("../elsewhere")
    (tmp_path / "archive" / "b.ndjson").symlink_to(".versions/a.ndjson")
    (tmp_path / "archive" / "_previous").symlink_to("day=1")
    assert len(splits_of(str(tmp_path / "archive"))) == 4
    for name in ("more/a.ndjson", "b.ndjson", "day=1/a.ndjson"):
        split = file_split(str(tmp_path / "archive"), (tmp_path / "archive" / name).as_uri())
        assert split is not None
        assert not split.problem
    (tmp_path / link).symlink_to(targets[link])
    with pytest.raises(NoArchive, match=f"{link} is a link to .* read twice: remove the link"):
        splits_of(str(tmp_path / "archive"))
    up = f"/{tmp_path.name}/archive/day=1/a.ndjson"
    within = {"archive/latest": "/a.ndjson", "archive/day=2/loop": "/a.ndjson", "archive/up": up}
    split = file_split(str(tmp_path / "archive"), (tmp_path / f"{link}{within.get(link, '')}").as_uri())
    assert split is not None
    assert "read twice: remove the link" in split.problem


@pytest.mark.parametrize("second", ["outside/loop", "outside/other/loop", "archive/outside"])
def test_links_outside_the_archive_that_lead_to_the_same_folder_again_are_refused(tmp_path: Path, second: str) -> None:
    """Arrow and Spark followed two links in a circle without end, although the circle is outside the archive."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "outside" / "other").mkdir(parents=True)
    (tmp_path / "outside" / "a.ndjson").write_text('{"a": 1}\n', encoding="utf-8")
    (tmp_path / "archive" / "more").symlink_to(tmp_path / "outside")
    assert [split.name for split in splits_of(str(tmp_path / "archive"))] == ["more/a.ndjson"]
    (tmp_path / second).symlink_to(tmp_path / "outside")
    with pytest.raises(NoArchive, match=r"is a link to .*outside, whose events would be read twice: remove the link"):
        splits_of(str(tmp_path / "archive"))


def test_linked_data_with_members_that_are_not_read_is_normalised(tmp_path: Path) -> None:
    """A number that no double holds, in a member without an IRI, ended the job each time."""
    event = {"@context": {"n": "http://e/n"}, "@id": "http://e/x", "n": 1, "unknown": (1 << 60) + 1}
    (tmp_path / "a.ndjson").write_text(json.dumps(event) + "\n", encoding="utf-8")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions(bodies=True))
    assert isinstance(batch, EventBatch)
    table, rejected = Normaliser(Vocabulary()).table(batch)
    assert (len(table), rejected) == (1, [])


@pytest.mark.parametrize("store_schema", [True, False])
def test_uuids_of_parquet_are_texts_whoever_wrote_them(tmp_path: Path, store_schema: bool) -> None:
    """Without a schema of Arrow in the file, the quarantine said that the column was left out, although it was read."""
    id = UUID("0b0d5c1e-7c57-4f0f-9c1e-3a5d2f6f1a10")
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([id.bytes], pa.binary(16)))
    within = pa.StructArray.from_arrays([column], ["id"])
    pq.write_table(pa.table({"id": column, "in": within}), tmp_path / "a.parquet", store_schema=store_schema)
    events, bad = read_all(tmp_path)
    assert ([data for _, _, data in events], bad) == ([{"id": str(id), "in": {"id": str(id)}}], [])


def test_file_that_cannot_be_opened_is_an_error_and_not_a_line_of_the_quarantine(tmp_path: Path) -> None:
    """A link that leads nowhere, and a file that is gone when its split is read: the error names it."""
    (tmp_path / "good.ndjson").write_text('{"a": 1}\n', encoding="utf-8")
    (tmp_path / "link.ndjson").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NoArchive, match=r"link\.ndjson cannot be opened as a file"):
        splits_of(str(tmp_path))
    (tmp_path / "link.ndjson").unlink()
    for name in ("gone.ndjson", "gone.jsonl.gz", "gone.csv", "gone.parquet"):
        pq.write_table(pa.Table.from_pylist(EVENTS), tmp_path / name)
        (split,) = (split for split in splits_of(str(tmp_path)) if split.name == name)
        (tmp_path / name).unlink()
        with pytest.raises(OSError, match=name.replace(".", r"\.")):
            list(read_split(split, AS_IT_STANDS))


@pytest.mark.parametrize("name", ["a.ndjson", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_file_that_is_replaced_after_it_was_listed_is_an_error_that_says_so(tmp_path: Path, name: str) -> None:
    """Parts of the old and the new file were matched, or the error was one of Arrow. Lines may be added meanwhile."""

    def write(rows: int) -> None:
        events = [{"kind": f"kind {number}"} for number in range(rows)]
        lines = "".join(json.dumps(each) + "\n" for each in events)
        if name == "a.parquet":
            pq.write_table(pa.Table.from_pylist(events), tmp_path / name)
        else:
            (tmp_path / name).write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())

    write(500)
    (split,) = splits_of(str(tmp_path))
    write(100)
    with pytest.raises(JobFailed, match=f"{name} was replaced after the job had listed"):
        list(read_split(split, AS_IT_STANDS))
    write(900)
    if name == "a.parquet":
        with pytest.raises(JobFailed, match=f"{name} was replaced after the job had listed"):
            list(read_split(split, AS_IT_STANDS))
    else:
        assert sum(len(found) for found in read_split(split, AS_IT_STANDS) if isinstance(found, EventBatch)) >= 499


def test_relative_places_and_uris_of_files_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers run in folders of their own. Names are written out where a URI needs it."""
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    (tmp_path / "in" / "day=1" / "a b#é.ndjson").write_text('{"a": 1}\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    splits = [*splits_of("in"), *splits_of((tmp_path / "in").as_uri())]
    monkeypatch.chdir("/")
    assert [split.name for split in splits] == ["day=1/a b#é.ndjson"] * 2
    assert [len(found) for split in splits for found in read_split(split, AS_IT_STANDS)] == [1, 1]


def test_names_of_other_events_are_no_values_of_an_event(tmp_path: Path) -> None:
    """An event at the bound of values beside others with other names, and thousands of events with names of their
    own."""
    whole = {"l": list(range(LIMITS.values - 2)), "n": 1}
    (tmp_path / "a.ndjson").write_text(json.dumps(whole) + '\n{"n": 1, "m": 2}\n', encoding="utf-8")
    own = [{"n": 1, f"a{number}": 1, f"b{number}": 1} for number in range(LIMITS.values // 2 + 100)]
    (tmp_path / "b.ndjson").write_text("".join(json.dumps(each) + "\n" for each in own), encoding="utf-8")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("s", "n = 1")
    counts = []
    for split in splits_of(str(tmp_path)):
        for batch in read_split(split, ReadOptions()):
            assert isinstance(batch, EventBatch)
            matched = ShardMatcher([matcher], False).match(batch)
            counts.append((matched.table.slots.size, len(matched.rejected)))
    assert counts == [(2, 0), (len(own), 0)]


def test_parts_that_several_groups_of_shards_made_are_joined_wherever_their_row_groups_end(tmp_path: Path) -> None:
    """Each part was written in pieces of its own; an event is one row again, in its order."""
    count = 23
    held = [[[f"{part}-{n}"] * (n * part % 3) for n in range(count)] for part in (1, 2)]
    files = []
    for part, size in ((0, 4), (1, 7)):
        texts = pa.array(held[part], pa.list_(pa.string()))
        ids = pa.ListArray.from_arrays(texts.offsets, texts.values.dictionary_encode())
        table = pa.table({PLACE: pa.array(range(count)), "subscriptions": ids})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=size)
        files.append(pq.ParquetFile(tmp_path / f"{part}.parquet", read_dictionary=["subscriptions.list.element"]))
    for together in (1, 5, 30):
        joined = [
            side_by_side(pair, PLACE) for pair in zip(*(in_pieces([file], together) for file in files), strict=True)
        ]
        assert pa.concat_tables(joined)["subscriptions"].to_pylist() == [
            one + other for one, other in zip(*held, strict=True)
        ]


def test_every_format_of_an_extension_has_a_splitter_and_a_reader() -> None:
    """One table of extensions, and one entry of each format in the two tables behind it."""
    assert set(EXTENSIONS.values()) == SPLITTERS.keys() == READERS.keys()


def test_unknown_format_is_an_error_and_not_another_format(tmp_path: Path) -> None:
    """A split that names no format of ours is refused, with the file and the formats that there are."""
    (tmp_path / "events.jsonl").write_text("{}\n", encoding="utf-8")
    (split,) = splits_of(str(tmp_path))
    strange = replace(split, format="avro")  # type: ignore[arg-type]
    with pytest.raises(JobFailed, match=r"events\.jsonl: the format 'avro' is not supported; use lines, csv, parquet"):
        list(read_split(strange, AS_IT_STANDS))


def test_bindings_are_the_json_of_a_server(tmp_path: Path) -> None:
    """Objects, not lists of pairs. A number of numpy from an operator ended the job."""

    @operator("sizes", cost=0.01, selectivity=0.5)
    def sizes(event: Mapping[str, Any]) -> list[tuple[Any]]:
        return [(np.float64(2.5),), (3,)]

    (tmp_path / "x.ndjson").write_text('{"a": 1}\n', encoding="utf-8")
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[sizes])
    matcher.add("sizes", "sizes(?n)")
    matcher.add("a", "a = 1")
    (split,) = splits_of(str(tmp_path))
    (batch,) = read_split(split, ReadOptions())
    assert isinstance(batch, EventBatch)
    shards = ShardMatcher([matcher], False)
    rows = exploded_rows(shards, shards.match(batch), "1").to_pylist()
    assert [(row["subscription"], row["bindings"]) for row in rows] == [("sizes", '[{"n":2.5},{"n":3}]'), ("a", None)]
