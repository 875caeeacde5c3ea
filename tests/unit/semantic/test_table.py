"""Tables of events: read column by column where that is enough, with the same matches as row by row."""

from datetime import UTC, date, datetime, time
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kindcast import InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.matching.verification import MatchTable

TREE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer . :Tower rdfs:subClassOf :Computer .
:Bat rdfs:subClassOf :Thing ; rdfs:label "bat" . :Club rdfs:subClassOf :Thing ; rdfs:label "bat" .
"""


@pytest.fixture
def matcher() -> Matcher:
    """Subscriptions over a concept, a number, a quantity and a text, one of them with two clauses."""
    vocabulary = Vocabulary.from_bytes(
        TREE, format="turtle", name="t", attributes={"weight": {"kind": "number", "unit": "kg"}}
    )
    matcher = Matcher(vocabulary, engine="fused")
    for name, text in {
        "kind": "t isa Computer",
        "cheap": "price < 400",
        "either": "t isa <http://example.org/Tower> or price > 900",
        "heavy": "weight > 2 kg",
        "bats": "t isa <http://example.org/Club>",
        "no price": "price missing",
        "text": 't startswith "La"',
    }.items():
        matcher.add(name, text)
    return matcher


def names(table: MatchTable) -> list[list[str]]:
    return [sorted(table.subscriptions(table.slots[low:high])) for low, high in pairwise(table.offsets.tolist())]


def by_rows(matcher: Matcher, columns: dict[str, list[Any]]) -> list[list[str]]:
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return [sorted(match.subscription for match in matcher.match(row)) for row in rows]


CELLS: dict[str, list[Any]] = {
    "t": ["Laptop", "Tower", None, "bat", "x", "Laptop", "", "Tower"],
    "price": [350.0, None, 1000.0, 399.5, -1.0, 400.0, None, 950.0],
    "weight": [3.0, 1.0, None, 2.0, 2.5, None, None, 5.0],
    "unasked": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
}


@pytest.mark.parametrize("verified", [True, False])
def test_table_of_every_kind_matches_as_its_rows_do(matcher: Matcher, verified: bool) -> None:
    """Arrays, lists and Arrow; ambiguous terms, units, absent cells; with and without atoms left to verify."""
    if not verified:
        matcher.remove("text")
    expected = by_rows(matcher, CELLS)
    arrays: dict[str, Any] = {"t": np.array(CELLS["t"], dtype=object)}
    for name in ("price", "weight", "unasked"):
        arrays[name] = np.array([np.nan if cell is None else cell for cell in CELLS[name]])
    for columns in (CELLS, arrays, pa.table(CELLS), {**arrays, "price": arrays["price"].astype(object)}):
        assert names(matcher.match_table(columns)) == expected


def test_table_read_again_after_a_subscription_asks_for_more_knows_it(matcher: Matcher) -> None:
    """What is remembered of cells is forgotten when somebody asks about a new attribute, reading or key."""
    columns = {"t": np.array(["Laptop", "y"], dtype=object), "z": np.array([1.0, 2.0])}
    assert names(matcher.match_table(columns)) == by_rows(matcher, {"t": ["Laptop", "y"], "z": [1.0, 2.0]})
    matcher.add("key", 't = "y"')
    matcher.add("number", "z = 2")
    assert names(matcher.match_table(columns))[1] == ["key", "no price", "number"]


def test_table_in_several_threads_gives_the_same(matcher: Matcher) -> None:
    """The parts come back in order."""
    columns = {name: np.array(cells * 400, dtype=object) for name, cells in CELLS.items()}
    assert names(matcher.match_table(columns, threads=3)) == names(matcher.match_table(columns))


def test_table_keeps_its_names_when_a_slot_is_used_again(matcher: Matcher) -> None:
    """A result is read later and still tells who matched then."""
    table = matcher.match_table({"price": np.array([1.0])})
    batch = matcher.match_batch([{"price": 1.0}])
    matcher.remove("cheap")
    matcher.add("other", "price > 5000")
    assert names(table) == [["cheap"]]
    assert [match.subscription for match in batch[0]] == ["cheap"]


@pytest.mark.parametrize("cells", [[1.0, float("inf")], [1.0, -float("inf"), float("nan")]])
def test_table_with_a_number_that_is_refused_is_refused(matcher: Matcher, cells: list[Any]) -> None:
    """As `match` refuses it."""
    with pytest.raises(InvalidEvent):
        matcher.match_table({"price": cells})
    with pytest.raises(InvalidEvent):
        matcher.match_table({"price": np.array(cells)})


@pytest.mark.parametrize("name", ["a." * 65 + "a", "a" * 10_001])
def test_name_beyond_the_limit_is_refused_by_every_method(matcher: Matcher, name: str) -> None:
    """A short name of many parts is read by a plan, and a column by none."""
    for match in (lambda: matcher.match({name: 1}), lambda: matcher.match_table({name: [1]})):
        with pytest.raises(InvalidEvent, match="is too long"):
            match()


def test_event_that_is_refused_in_a_table_or_batch_is_named(matcher: Matcher) -> None:
    """The pointer of a problem says only where it is in the event; a note says in which."""
    refused: dict[int, list[dict[str, Any]]] = {
        1: [{"price": 5}, {"price": float("inf")}],
        0: [{"a": [b""]}, {"a": 1}],
    }
    for place, events in refused.items():
        columns = {name: [event.get(name) for event in events] for name in ("price", "a")}
        with pytest.raises(InvalidEvent) as of_table:
            matcher.match_table(columns)
        assert of_table.value.__notes__ == [f"in row {place} of the table; the first row is 0"]
        with pytest.raises(InvalidEvent) as of_batch:
            matcher.match_batch(iter(events))
        assert of_batch.value.__notes__ == [f"in event {place} of the batch; the first event is 0"]


@pytest.mark.parametrize(
    "cells",
    [
        np.ma.array([1, 300, 300], mask=[False, True, False]),
        np.ma.array(["1", "300 USD", "300 USD"], mask=[False, True, False]),
        np.ma.array([[1, 300], [300, 1], [300, 1]], mask=[[False, True], [True, True], [False, False]]),
    ],
)
def test_table_with_masked_values_does_not_have_them(cells: Any) -> None:
    """The values beneath a mask are not those of the event, although numpy keeps them."""
    matcher = Matcher(Vocabulary.from_ontologies([], attributes={"price": {"kind": "number", "unit": "USD"}}))
    matcher.add("large", "price >= 300")
    matcher.add("none", "price missing")
    assert names(matcher.match_table({"price": cells})) == [[], ["none"], ["large"]]


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean", "string", "object"])
def test_table_of_pandas_columns_has_no_value_where_they_have_na(kind: str) -> None:
    """Columns with the null of pandas, and arrays that were made of them."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("there", "a exists")
    matcher.add("none", "a missing")
    column = pandas.Series([pandas.NA, True], dtype="Int64" if kind == "Float64" else kind).astype(kind)
    for cells in (column, column.to_numpy(dtype=object), [[pandas.NA], [True]]):
        assert names(matcher.match_table({"a": cells})) == [["none"], ["there"]]


@pytest.mark.parametrize("value", ["laptop", b"tablet", 350, None, {"value": 3}])
def test_event_in_place_of_a_table_is_refused(matcher: Matcher, value: Any) -> None:
    """A text was read as a column of its letters."""
    with pytest.raises(TypeError, match="'target' must have its values in a numpy array, Arrow array or list, not "):
        matcher.match_table({"target": value})


def test_table_with_a_name_that_is_no_text_is_refused(matcher: Matcher) -> None:
    """As `match` refuses it: columns of a pandas table without a header have numbers as names."""
    event: Any = {0: [1]}
    for match in (matcher.match, matcher.match_table):
        with pytest.raises(InvalidEvent, match="the name 0 is not a string"):
            match(event)


def test_table_without_rows_or_columns_has_no_matches(matcher: Matcher) -> None:
    """Nothing in, nothing out, in the promised types."""
    for columns in ({}, {"t": np.array([], dtype=object)}, {"price": np.array([])}):
        table = matcher.match_table(columns)
        assert (table.offsets.tolist(), table.slots.tolist()) == ([0], [])
        assert (table.offsets.dtype, table.slots.dtype) == (np.int64, np.int32)


def test_table_numbers_too_large_for_one_column_keep_the_units_beside_them() -> None:
    """An integer that a double cannot hold sends its column another way; a row whose unit means nothing stays one."""
    declared = {"temp": {"kind": "number", "unit": "degC", "unit_from": "unit"}}
    matcher = Matcher(Vocabulary.from_bytes(TREE, format="turtle", attributes=declared))
    matcher.add("warm", "temp >= 86 degF")
    columns: dict[str, list[Any]] = {"temp": [[None, -1], [5.0, 1e16], [5.0, 1e16]], "unit": [None, "unknown", "degF"]}
    assert by_rows(matcher, columns) == names(matcher.match_table(columns)) == [[], [], ["warm"]]


def test_table_of_structs_with_more_members_has_the_quantities_of_its_rows() -> None:
    """In a struct every row has all members. Those that are null do not count, in objects of Python neither."""
    matcher = Matcher(Vocabulary(), engine="fused")
    for text in ("i = 2 kg", "i = 2 EUR", "i.value = 2 kg", "i.value = 2", "some l (i = 2 kg)", "l = 3 kg"):
        matcher.add(text, text)
    amounts = [
        {"value": 2.0, "unit": "kg"},
        {"value": 2.0, "currency": "EUR"},
        {"value": 2.0, "unit": "kg", "currency": "EUR"},
        {"value": None, "unit": "kg"},
        {"value": 2.0, "seen": True},
    ]
    table = pa.Table.from_pylist([{"i": each} for each in amounts])
    of_rows = [sorted(match.subscription for match in matcher.match({"i": each})) for each in amounts]
    assert of_rows == [
        ["i = 2 kg", "i.value = 2", "i.value = 2 kg"],
        ["i = 2 EUR", "i.value = 2"],
        ["i.value = 2"],
        [],
        ["i.value = 2"],
    ]
    for columns in (table, {"i": table["i"].to_pylist()}):
        assert names(matcher.match_table(columns)) == of_rows
    assert by_rows(matcher, {"i": table["i"].to_pylist()}) == of_rows
    inside = {"l": [[{"value": 3.0, "unit": "kg", "seen": None}, {"i": {"value": 2, "unit": "kg", "seen": None}}]]}
    assert names(matcher.match_table(inside)) == by_rows(matcher, inside) == [["l = 3 kg", "some l (i = 2 kg)"]]


@pytest.mark.parametrize("unit", ["m", "s", "ns"])
def test_table_of_durations_has_the_durations_of_its_rows(unit: str) -> None:
    """Quantities of time, whatever the unit of the array."""
    matcher = Matcher(Vocabulary(), engine="fused")
    matcher.add("long", "took > PT1H")
    cells = np.array([90, 30, "NaT"], dtype="timedelta64[m]").astype(f"timedelta64[{unit}]")
    for column in (cells, list(cells), pa.array(cells.astype("timedelta64[us]"))):
        assert names(matcher.match_table({"took": column})) == [["long"], [], []]
    assert by_rows(matcher, {"took": list(cells)}) == [["long"], [], []]


def test_table_has_durations_beyond_those_of_python() -> None:
    """Each row matches what its text does, also inside a list or a struct."""
    matcher = Matcher(Vocabulary(), engine="fused")
    for text in ("took > PT1H", "each > PT1H", "in.took > PT1H"):
        matcher.add(text, text)
    cells = [2**62, 1, None, -(2**62)]
    took = pa.array(cells, pa.duration("s"))
    each = pa.array([[cell] for cell in cells], pa.list_(pa.duration("s")))
    table = pa.table({"took": took, "each": each, "in": pa.StructArray.from_arrays([took], ["took"])})
    texts = [None if cell is None else f"{'-' * (cell < 0)}PT{abs(cell)}S" for cell in cells]
    rows = {"took": texts, "each": [[text] for text in texts], "in": [{"took": text} for text in texts]}
    assert names(matcher.match_table(table)) == by_rows(matcher, rows)
    assert by_rows(matcher, rows) == [["each > PT1H", "in.took > PT1H", "took > PT1H"], [], [], []]


UNITS: dict[str, Any] = {
    "views": pa.array(["degF", "degC", None], pa.string_view()),
    "codes of views": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["degF", "degC"])),
    "dates": pa.array([date(2026, 1, 31), None, None]),
    "times": pa.array([datetime(2026, 1, 31, tzinfo=UTC), None, None]),
    "clock": [time(8, 30), None, None],
    "numpy": np.array(["2026-01-31", "NaT", "NaT"], dtype="datetime64[D]"),
    "numbers": pa.array([1, 2, None]),
    "lists": pa.array([["degF"], [], None]),
}


@pytest.mark.parametrize("kind", UNITS)
def test_table_has_the_units_beside_its_numbers_whatever_the_type_of_their_column(kind: str) -> None:
    """Of columns that Arrow does not call strings, and columns without texts in front of one with texts."""
    declared = {"temp": {"kind": "number", "unit": "degC", "unit_from": "unit"}, "unit": {"labels": {"de": "Einheit"}}}
    matcher = Matcher(Vocabulary.from_bytes(TREE, format="turtle", attributes=declared))
    for text in ("temp > 60 degC", "temp > 60 degF", "not temp > 60 degC", "temp > 60"):
        matcher.add(text, text)
    units = UNITS[kind]
    cells = units.to_pylist() if isinstance(units, pa.Array) else list(units)
    rows: dict[str, list[Any]] = {"temp": [70.0, 70.0, 70.0], "unit": cells}
    assert names(matcher.match_table({**rows, "unit": units})) == by_rows(matcher, rows)
    more: dict[str, list[Any]] = {**rows, "Einheit": [1, 2, 3]}
    assert names(matcher.match_table({**rows, "unit": units, "Einheit": pa.array([1, 2, 3])})) == by_rows(matcher, more)
    inside = pa.StructArray.from_arrays([pa.array(rows["temp"]), pa.array(units)], ["value", "unit"])
    matcher.add("quantity", "load > 60 degF")
    rows = {"load": inside.to_pylist()}
    assert names(matcher.match_table({"load": inside})) == by_rows(matcher, rows)


@pytest.mark.parametrize(
    "types",
    [
        pa.array([date(2026, 1, 31), None]),
        pa.array([datetime(2026, 1, 31, tzinfo=UTC), None]),
        np.array(["2026-01-31", "NaT"], dtype="datetime64[D]"),
        np.array([1.0, np.nan]),
        [date(2026, 1, 31), None],
        pa.array(["2026-01-31", None], pa.string_view()),
    ],
)
def test_table_with_dates_under_type_has_them_as_types_as_its_rows_do(types: Any) -> None:
    """They were values of `@type` only."""
    matcher = Matcher(Vocabulary())
    for text in ('ce.type = "2026-01-31"', "ce.type exists", "`@type` exists"):
        matcher.add(text, text)
    cells = types.to_pylist() if isinstance(types, pa.Array) else list(types)
    rows: dict[str, list[Any]] = {"@type": [None if cell != cell else cell for cell in cells]}
    assert names(matcher.match_table({"@type": types})) == by_rows(matcher, rows)
