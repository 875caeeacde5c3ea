"""Lines that Arrow reads as columns mean what they mean one by one; what it would read otherwise is not left to it."""

import gzip
import json
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary
from kindcast.semantic.backtest import Backtest, PastEvent
from kindcast.semantic.events.documents import digest_of
from kindcast.semantic.model import Event
from kindcast.spark_jobs import reading
from kindcast.spark_jobs.event_batch import EventBatch, Rejected, event_of, json_of
from kindcast.spark_jobs.normalise import Normaliser
from kindcast.spark_jobs.reading import JsonColumns, ReadOptions, lines_of, read_split, splits_of
from kindcast.spark_jobs.snapshot import ShardMatcher

ASKED = (
    "a = 1",
    "a > 9007199254740992",
    'a = "2017-01-01"',
    "a > 2016-12-31T00:00:00Z",
    "a missing",
    "a > 2 kg",
    "a.unit exists",
    "b.a exists",
    'b.a = "x"',
    "some b (a = 1 and c = 2)",
    "a = true",
    "a.value > 1",
)


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for text in ASKED:
        matcher.add(text, text)
    return matcher


def read(folder: Path, text: bytes, **options: Any) -> list[EventBatch | Rejected]:
    (folder / "a.ndjson").write_bytes(text)
    return [each for split in splits_of(str(folder)) for each in read_split(split, ReadOptions(**options))]


def told(found: list[EventBatch | Rejected], matcher: Matcher) -> list[Any]:
    """What becomes of each line: its place, its time, who gets it; or why nobody."""
    lines: list[Any] = []
    for each in found:
        if isinstance(each, Rejected):
            lines.append((each.line, each.reason))
            continue
        matched = ShardMatcher([matcher], False).match(each)
        bounds = matched.table.offsets.tolist()
        times = matched.batch.keys["time"].to_pylist()
        for row, (line, time) in enumerate(zip(matched.batch.lines.tolist(), times, strict=True)):
            names = matched.table.subscriptions(matched.table.slots[bounds[row] : bounds[row + 1]].tolist())
            lines.append((line, time, sorted(names)))
        lines += [(rejected.line, rejected.reason) for rejected in matched.rejected]
    return sorted(lines, key=repr)


def same(folder: Path, text: bytes, matcher: Matcher, **options: Any) -> bool:
    """Whether Arrow read some of it; AssertionError if that made a difference."""
    found = read(folder, text, **options)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JsonColumns, "table", lambda self, lines: None)
        one_by_one = read(folder, text, **options)
    assert told(found, matcher) == told(one_by_one, matcher)
    return any(isinstance(each, EventBatch) and each.table is not None for each in found)


@pytest.mark.parametrize(
    ("text", "by_arrow"),
    [
        (b'{"a": 1}\n{"a": 2.5}\n', True),
        (b'{"a": 1}\r\n\n{"a": 2}', True),
        (b'{"a": "2017-01-01"}\n{"a": "2017-01-01T00:00:00Z"}\n', True),
        (b'{"b": {"a": "2017-01-01"}}\n{"b": {"a": "x"}}\n', True),
        (b'{"b": [{"a": 1, "c": 2}, {"a": 2}]}\n{"b": null}\n{}\n', True),
        (b'{"a": {"value": 5, "unit": "kg"}}\n{"a": {"value": 5}}\n', True),
        (b'{"a": {"value": 5, "unit": "kg"}}\n{"a": {"value": 5, "unit": "kg", "by": "x"}}\n', True),
        (b'{"a": {"value": 5, "unit": "kg", "by": {}}}\n{"a": {"value": 5, "unit": "kg", "by": {"x": 1}}}\n', True),
        (b'{"a": 9007199254740993}\n', True),  # refused in columns too, and quarantined
        (b'{"a": 9007199254740993}\n{"a": 0.5}\n', False),
        (b'{"a": 12345678901234567890123}\n', False),
        (b'{"a": 1, "a": 2}\n', False),
        (b'{"a": 1}\n{"a": "1"}\n{"a": true}\n', False),
        (b'{"a": 1}{"a": 2}\n{"a": 3}\n', False),
        (b'{"a": 1}{"a": 2}\n\n', False),
        (b'{"a":\n1}\n', False),
        (b'{"a": [null, 2]}\n{"a": [1]}\n', False),
        (b'{"b": [null, {"a": 1}]}\n{"b": [{"a": "x"}]}\n', False),
        (b'{"a": [2, null]}\n{"a": [null, 1]}\n', True),
        (b'{"a": 1} \n [1]\n', False),
        (b'{"a": NaN}\n{"a": 1}\n', False),
        (b'{"a": 1e400}\n', False),
        (b'{"a": "\xff"}\n', False),
        (b'{"a": "\\ud83d\\ude00"}\n', False),
        (b'\xef\xbb\xbf{"a": 1}\n', False),
        (b'{"ce.type": 1}\n{"a": 1}\n', False),
        (b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}\n', False),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", False),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}\n", True),
    ],
)
def test_lines_as_columns_mean_what_they_mean_one_by_one(
    tmp_path: Path, matcher: Matcher, text: bytes, by_arrow: bool
) -> None:
    """Every way in which Arrow reads JSON otherwise."""
    assert same(tmp_path, text, matcher) == by_arrow


@pytest.mark.parametrize(
    ("times", "by_arrow"),
    [
        (["1489017377", "1489017377.25", "null"], True),
        (['"2017-01-01T00:00:00Z"', '"2017-01-01 00:00:00"'], True),
        (['"2017-01-01T00:00:00Z"', '"soon"'], False),
        (["1489017377", "1e10"], False),
        (["true"], False),
    ],
)
def test_time_of_lines_as_columns_is_that_of_each(
    tmp_path: Path, matcher: Matcher, times: list[str], by_arrow: bool
) -> None:
    """Seconds, texts, and what is none, which is quarantined."""
    text = "".join(f'{{"a": 1, "t": {time}}}\n' for time in times)
    assert same(tmp_path, text.encode(), matcher, time_from="t") == by_arrow


def test_event_whose_time_is_beyond_the_range_of_instants_is_read() -> None:
    """The server accepts it: the time is only a string. It was quarantined."""
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": "9999-12-31T23:59:59Z"}
    found = event_of(event, "1")
    assert (found.time, found.event.context["time"]) == (None, "9999-12-31T23:59:59Z")


_scalars = st.one_of(
    st.sampled_from([1, 2, 2.5, -0.0, 1 << 53, (1 << 53) + 1, 1e300, True, None]),
    st.sampled_from(["x", "", "2017-01-01", "2017-01-01T00:00:00Z", "5 kg", "\u00e4\U0001f600", "}\n{", "[[[["]),
)
_members = st.fixed_dictionaries({}, optional={"a": _scalars, "c": _scalars, "value": _scalars, "unit": _scalars})
_values = st.one_of(_scalars, _scalars, _members, st.lists(_scalars, max_size=2), st.lists(_members, max_size=2))
_rows = st.fixed_dictionaries({}, optional={"a": _values, "b": _values, "day": st.just("monday")})


@given(
    rows=st.lists(_rows, min_size=1, max_size=6),
    ascii=st.booleans(),
    alike=st.booleans(),
    name=st.sampled_from(["", "day=1"]),
)
def test_random_lines_as_columns_mean_what_they_mean_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    matcher: Matcher,
    rows: list[dict[str, Any]],
    ascii: bool,
    alike: bool,
    name: str,
) -> None:
    """Objects that Arrow takes, and objects that it does not; `alike`: the same ones again, of one shape."""
    rows = rows[:1] * 3 if alike else rows
    folder = tmp_path_factory.mktemp("lines") / name
    folder.mkdir(exist_ok=True)
    same(folder, "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows).encode(), matcher)


def test_pieces_of_a_file_are_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matcher: Matcher) -> None:
    """Whatever the size of the pieces and of what is read at one time, plain and gzipped, each line has its number."""
    text = b"".join(b'{"a": %d, "b": "%s"}\n' % (number, b"x" * (number % 7 * 3)) for number in range(60))
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(text))
    for size in (1, 10, 100, 1_000, 1 << 16):
        monkeypatch.setattr(reading, "BLOCK_BYTES", size)
        monkeypatch.setattr(reading, "PIECE_BYTES", 3 * size)
        found = read(tmp_path, text)
        for file in ("a.ndjson", "b.ndjson.gz"):
            own = [each for each in found if isinstance(each, EventBatch) and each.file == file]
            assert [line for each in own for line in each.lines.tolist()] == list(range(1, 61))
            assert [event.data["a"] for each in own for event in each.each()] == list(range(60))


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"a\r\n\nb", b"\n\n", b"a\r\r\n", b"\r\n\r"])
def test_lines_of_a_text(text: bytes) -> None:
    """Ends of both kinds, empty lines, and a last one without an end."""
    split = text.split(b"\n")
    assert list(lines_of(text)) == [line.rstrip(b"\r") for line in (split if split[-1] else split[:-1])]


def test_event_of_a_line_that_was_read_as_columns_lacks_what_it_lacks(tmp_path: Path) -> None:
    """Not null: in a column a missing member is."""
    (batch,) = read(tmp_path, b'{"a": 1}\n{"b": {"c": 1}}\n{"b": {"d": 1}}\n')
    assert isinstance(batch, EventBatch)
    assert isinstance(batch.table, pa.Table)
    expected = [{"a": 1}, {"b": {"c": 1}}, {"b": {"d": 1}}]
    assert [event.data for event in batch.each()] == expected
    assert [event.data for event in batch.take([2, 0]).each()] == [expected[2], expected[0]]
    assert all(isinstance(event, Event) for event in batch.each())


def test_lines_that_are_graphs_are_matched_as_graphs(tmp_path: Path) -> None:
    """JSON-LD and RDF in an archive mean what they mean to a server; what cannot be read is rejected alone."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("price", "price = 7")
    matcher.add("same", "<http://p/price> = 7")
    graph = {"@context": {"cost": "http://p/price"}, "cost": 7}
    head = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    turtle = "<http://e/1> <http://p/price> 7 ."
    lines = [
        {"price": 7},
        graph,
        {**head, "datacontenttype": "application/ld+json", "data": graph},
        {**head, "datacontenttype": "text/turtle", "data": turtle},
        {**head, "datacontenttype": "text/turtle", "data_base64": b64encode(turtle.encode()).decode()},
        {**head, "datacontenttype": "application/ld+json", "data": {"@context": "http://nowhere/", "cost": 7}},
        {"price": 7},
    ]
    found = told(read(tmp_path, b"\n".join(map(msgspec.json.encode, lines))), matcher)
    assert [each[-1] for each in found[:5]] == [["price"], *[["price", "same"]] * 4]
    assert "http://nowhere/" in found[5][1]
    assert found[6][-1] == ["price"]


def test_documents_of_several_events_are_taken_apart_as_a_server_does(tmp_path: Path) -> None:
    """As columns, one by one and as rows of a DataFrame: the same ids and matches; each event keeps its line."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for n in range(1, 5):
        matcher.add(f"n{n}", f"n = {n}")
    bundle = {"type": "bundle", "id": "bundle--1", "objects": [{"id": "a--1", "modified": "2026", "n": 1}, {"n": 2}]}
    graph = {"@context": {"@vocab": "http://p/"}, "@graph": [{"n": 3}, {"@id": "http://e/4", "n": 4}]}
    one = {"type": "bundle", "id": "bundle--2", "objects": [{"n": 3}]}
    broken = {"type": "bundle", "id": "bundle--3", "objects": [{"n": 3}, {"ce": 1}]}
    head = {"specversion": "1.0", "source": "s", "type": "t"}
    plain: list[Any] = [{"n": 1}, bundle, {"n": 2}, one, broken]
    clouds: list[Any] = [{**head, "id": "7", "data": bundle}, {**head, "id": "8", "data": graph}]
    digest = digest_of(Event(bundle, {"specversion": "1.0", "type": "kindcast.event"}))
    expected = [
        (1, "lines.ndjson:1", ["n1"]),
        (2, "a--1#2026", ["n1"]),
        (2, f"{digest}#1", ["n2"]),
        (3, "lines.ndjson:3", ["n2"]),
        (4, "lines.ndjson:4", ["n3"]),
    ]
    of_clouds = [
        (1, "7#a--1#2026", ["n1"]),
        (1, "7#1", ["n2"]),
        (2, "8#0", ["n3"]),
        (2, "8#http://e/4", ["n4"]),
    ]
    for lines, options, wanted, columns in (
        (plain, ReadOptions(), expected, True),
        (plain, ReadOptions(bodies=True), expected, False),
        (clouds, ReadOptions(bodies=True), of_clouds, False),
    ):
        text = b"\n".join(map(msgspec.json.encode, lines))
        (tmp_path / "lines.ndjson").write_bytes(text)
        (split,) = splits_of(str(tmp_path / "lines.ndjson"))
        (batch,) = read_split(split, options)
        assert isinstance(batch, EventBatch)
        assert (batch.table is not None) == columns
        found = ShardMatcher((matcher,), True).match(batch)
        assert [each.line for each in found.rejected] == ([5] if lines is plain else [])
        offsets = found.table.offsets.tolist()
        names = [found.table.subscriptions(found.table.slots[a:b].tolist()) for a, b in pairwise(offsets)]
        ids = found.batch.keys["id"].to_pylist()
        assert list(zip(found.batch.lines.tolist(), ids, map(list, names), strict=True)) == wanted
        if options.bodies:  # what is normalised is an archive again, of the same events
            table, rejected = Normaliser(matcher.vocabulary).table(batch)
            assert table["id"].to_pylist() == ids
            assert len(rejected) == len(found.rejected)
            rows = table.select(["id", "body"]).to_pylist()
            again = [event_of(json_of(row["body"].encode()), row["id"]).event for row in rows]
            assert [[each.subscription for each in matcher.match(event)] for event in again] == [w[2] for w in wanted]
        test = Backtest(matcher.vocabulary, "n = 2")
        test.feed([PastEvent("s", "7", "2026-01-01", event) for event in batch.each()])
        assert (test.counts.events, test.counts.unreadable) == (len(wanted), len(found.rejected))
        assert test.counts.matched == sum(w[2] == ["n2"] for w in wanted)
