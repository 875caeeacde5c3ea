"""Tables match as their rows do: nested columns, several values, units beside numbers, dates and decimals."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kindcast import InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.events.canonical_events import EventLimits
from kindcast.semantic.flatten import cells_of
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Event, Expression
from tests.oracle import World, matching
from tests.strategies import events, expressions, vocabulary_of, worlds


def by_table(matcher: Matcher, columns: Any, **options: Any) -> list[list[str]]:
    found = matcher.match_table(columns, **options)
    return [sorted(found.subscriptions(found.slots[low:high])) for low, high in pairwise(found.offsets.tolist())]


def by_rows(matcher: Matcher, rows: list[dict[str, Any]]) -> list[list[str]]:
    return [sorted(match.subscription for match in matcher.match(event_of(row))) for row in rows]


def event_of(row: dict[str, Any]) -> Event:
    """A row as `match` takes it: columns `ce.…` are context attributes."""
    context = {name[3:]: value for name, value in row.items() if name.startswith("ce.") and value is not None}
    return Event({name: value for name, value in row.items() if not name.startswith("ce.")}, context)


def columns_of(published: list[Event]) -> dict[str, list[Any]]:
    """The events as columns of Python's own objects."""
    rows = [{**event.data, **{f"ce.{name}": value for name, value in event.context.items()}} for event in published]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_arrow(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Each column as an array of Arrow, where one type holds its cells; texts are dictionaries in every second one."""
    found: dict[str, Any] = {}
    for number, (name, cells) in enumerate(columns.items()):
        try:
            array = pa.array(cells)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            found[name] = cells
            continue
        is_text = pa.types.is_string(array.type)
        found[name] = array.dictionary_encode() if is_text and number % 2 else array
    return found


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows as Arrow gives them."""
    cells = {name: each if isinstance(each, list) else each.to_pylist() for name, each in columns.items()}
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


@given(
    data=st.data(),
    world=worlds(),
    asked=st.lists(expressions(), min_size=8, max_size=16),
    published=st.lists(events(), min_size=4, max_size=12),
)
def test_table_of_events_decides_as_the_oracle_row_by_row(
    data: st.DataObject, world: World, asked: list[Expression], published: list[Event]
) -> None:
    """As lists of Python's objects and as Arrow's types, in which a missing member of an object is null; with one
    thread and with two."""
    matcher = Matcher(vocabulary_of(world), engine=data.draw(st.sampled_from(["fused", "fused", "ctps"])))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    columns = columns_of(published)
    for table in (columns, as_arrow(columns)):
        expected = [sorted(matching(subscriptions, event_of(row), world)) for row in rows_of(table)]
        assert by_table(matcher, table) == expected
        assert by_table(matcher, table, threads=2) == expected


# ── types of Arrow and numpy ────────────────────────────────────────────────────────────────────────────────────────

MOMENT = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
ASKED = (
    "t isa Computer",
    't = "Laptop"',
    't startswith "La"',
    "at > 2026-01-31T12:00:00Z",
    "day exists",
    'day = "2026-01-31"',
    "price < 400",
    "price in (12.5, 400, 7)",
    "weight > 2 kg",
    "temp > 20 degC",
    "temp <= 86 degF",
    "temp.value > 20",
    "flag = true",
    "box.x > 2",
    "box.temp > 20 degC",
    'box.unit = "degF"',
    "some box (x > 2 and y < 2)",
    "box missing",
    "tags isa Computer and not tags isa Tower",
    "not price < 400",
    "not at > 2026-01-31T12:00:00Z",
)
TREE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer . :Tower rdfs:subClassOf :Computer .
:Bat rdfs:subClassOf :Computer ; rdfs:label "bat" . :Club rdfs:subClassOf :Tower ; rdfs:label "bat" .
"""
DECLARED = {
    "weight": {"kind": "number", "unit": "kg"},
    "temp": {"kind": "number", "unit": "degC", "unit_from": "unit"},
}

_texts = st.sampled_from(["Laptop", "Tower", "bat", "x", "", "30 degC", "2026-01-31T12:30:00Z"])
_units = st.sampled_from(["degF", "degC", "K", "kg", "nothing known"])
_floats = st.sampled_from([1.5, 400.0, 12.5, -3.0, 7.0, 303.15, 0.1 + 0.2, 1e300, float("nan")])
_integers = st.sampled_from([-5, 1, 2, 3, 7, 400])
_decimals = st.sampled_from([Decimal("12.50"), Decimal("400.00"), Decimal("-0.01"), Decimal("99999999.99")])
_moments = st.sampled_from([0, 1, 1800, 86_400, -86_400 * 400]).map(lambda seconds: MOMENT + timedelta(seconds=seconds))
_boxes = st.fixed_dictionaries(
    {}, optional={"x": _integers, "y": _integers, "temp": st.one_of(_floats, st.none()), "unit": _units}
)
_struct = pa.struct([("x", pa.int64()), ("y", pa.int64()), ("temp", pa.float64()), ("unit", pa.string())])
_quantity = pa.struct([("value", pa.float64()), ("unit", pa.string())])
_of_quantity = st.fixed_dictionaries({"value": st.one_of(_floats, st.none()), "unit": st.one_of(_units, st.none())})
_amount = pa.struct([("unitCode", pa.string()), ("value", pa.float64()), ("unit", pa.string()), ("seen", pa.bool_())])
_of_amount = st.fixed_dictionaries(
    {"value": _floats}, optional={"unit": _units, "unitCode": st.sampled_from(["CEL", "FAH"]), "seen": st.booleans()}
)
_maps = st.dictionaries(st.sampled_from(["x", "y", "temp"]), st.one_of(_integers, st.none()), max_size=2)
TYPES: dict[str, list[tuple[Any, st.SearchStrategy[Any]]]] = {
    "t": [
        (pa.string(), _texts),
        (pa.large_string(), _texts),
        (pa.dictionary(pa.int8(), pa.string()), _texts),
        (pa.list_(pa.string()), st.lists(_texts, max_size=3)),
    ],
    "tags": [
        (pa.list_(pa.string()), st.lists(_texts, max_size=3)),
        (pa.list_(pa.string(), 2), st.lists(_texts, min_size=2, max_size=2)),
        (pa.list_(pa.list_(pa.string())), st.lists(st.lists(_texts, max_size=2), max_size=2)),
    ],
    "at": [
        (pa.timestamp("us", "UTC"), _moments),
        (pa.timestamp("s"), _moments.map(lambda moment: moment.replace(tzinfo=None))),
        (pa.timestamp("ns", "Europe/Berlin"), _moments),
        (pa.list_(pa.timestamp("ms", "UTC")), st.lists(_moments, max_size=2)),
    ],
    "day": [
        (pa.date32(), _moments.map(datetime.date)),
        (pa.date64(), _moments.map(datetime.date)),
    ],
    "price": [
        (pa.float64(), _floats),
        (pa.float32(), st.sampled_from([1.5, 400.0, 0.1])),
        (pa.int16(), _integers),
        (pa.uint64(), st.sampled_from([3, 400, 1 << 60])),
        (pa.int64(), st.sampled_from([7, 400, (1 << 53) + 1])),
        (pa.decimal128(12, 2), _decimals),
        (pa.decimal128(38, 2), st.sampled_from([Decimal("12.50"), Decimal("123456789012345678901234567890.12")])),
        (pa.list_(pa.decimal128(12, 2)), st.lists(_decimals, max_size=2)),
        (pa.large_list(pa.float64()), st.lists(_floats, max_size=3)),
        (pa.dictionary(pa.int32(), pa.int64()), _integers),
    ],
    "weight": [(pa.float64(), _floats), (pa.string(), _texts), (_quantity, _of_quantity)],
    "temp": [
        (pa.float64(), _floats),
        (_quantity, _of_quantity),
        (pa.list_(_quantity), st.lists(_of_quantity, max_size=2)),
        (_amount, _of_amount),
        (pa.list_(_amount), st.lists(_of_amount, max_size=2)),
        (pa.list_(pa.float64()), st.lists(_floats, max_size=2)),
        (
            pa.struct([("value", pa.decimal128(12, 2)), ("currency", pa.string())]),
            st.fixed_dictionaries({"value": _decimals, "currency": _units}),
        ),
    ],
    "unit": [(pa.string(), _units), (pa.dictionary(pa.int8(), pa.string()), _units)],
    "flag": [(pa.bool_(), st.booleans()), (pa.list_(pa.bool_()), st.lists(st.booleans(), max_size=2))],
    "box": [
        (_struct, _boxes),
        (pa.list_(_struct), st.lists(_boxes, max_size=2)),
        (pa.map_(pa.string(), pa.int64()), _maps),
        (pa.list_(pa.map_(pa.string(), pa.int64())), st.lists(_maps, max_size=2)),
        (pa.null(), st.none()),
    ],
    "noise": [
        (pa.list_(_struct), st.lists(_boxes, max_size=2)),
        (pa.float64(), _floats),
        (pa.string(), _texts),
        (pa.float64(), st.sampled_from([1.0, float("inf")])),
    ],
}


@st.composite
def typed_tables(draw: st.DrawFn) -> pa.Table:
    """Tables of some of these columns, with nulls, in one chunk or in several."""
    count = draw(st.integers(1, 16))
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=3, max_size=8, unique=True))
    columns: dict[str, Any] = {}
    for name in names:
        kind, cells = draw(st.sampled_from(TYPES[name]))
        drawn = draw(st.lists(st.one_of(cells, cells, st.none()), min_size=count, max_size=count))
        columns[name] = pa.array(drawn, kind)
    whole = pa.table(columns)
    cut = draw(st.integers(0, count))
    table = whole if draw(st.booleans()) else pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    return table.slice(draw(st.integers(0, 1)))


def without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and value != value else value


@pytest.fixture(scope="module")
def asked() -> Matcher:
    """One matcher for all tables, so that what it remembers of one must be right for the next."""
    vocabulary = Vocabulary.from_bytes(TREE, format="turtle", name="t", attributes=DECLARED)
    matcher = Matcher(vocabulary, limits=EventLimits(values=40))
    for text in ASKED:
        matcher.add(text, text)
    return matcher


@given(table=typed_tables(), wanted=st.sets(st.sampled_from(ASKED), min_size=1), threads=st.sampled_from([1, 2]))
def test_table_of_typed_columns_matches_as_its_rows(
    asked: Matcher, table: pa.Table, wanted: set[str], threads: int
) -> None:
    """Each type of Arrow, nested too, reads as what it is in Python; what `match` refuses is refused. A matcher that
    was asked less reads less, and decides the same."""
    few = Matcher(asked.vocabulary, limits=EventLimits(values=40))
    for text in wanted:
        few.add(text, text)
    rows = without_nan(table.to_pylist(maps_as_pydicts="strict"))
    for matcher in (asked, few):
        try:
            expected = by_rows(matcher, rows)
        except InvalidEvent:
            with pytest.raises(InvalidEvent):
                matcher.match_table(table, threads=threads)
            continue
        assert by_table(matcher, table, threads=threads) == expected
        assert by_table(matcher, {name: cells_of(table[name]) for name in table.column_names}) == expected


@given(
    st.lists(
        st.one_of(
            _texts,
            _floats,
            _integers,
            st.booleans(),
            st.none(),
            _moments,
            _decimals,
            _boxes,
            st.lists(_texts, max_size=2),
            st.tuples(_floats, _texts),
            st.just(date(2026, 1, 31)),
            st.sampled_from([np.float32(1.5), np.int64(7), np.datetime64("2026-01-31T12:30:00"), np.str_("Laptop")]),
            st.lists(_floats, max_size=2).map(np.array),
            st.sampled_from([1 << 53, (1 << 53) + 1, float("inf"), b"", {1: 2}, timedelta(1), [[[]]]]),
        ),
        max_size=5,
    ),
    st.sampled_from(["t", "temp", "at", "box", "price", "noise", "@type", "ce.type"]),
)
@example(["Laptop", (1 << 53) + 1], "noise")
def test_column_of_anything_matches_as_its_cells(asked: Matcher, cells: list[Any], name: str) -> None:
    """Lists and arrays of objects that hold whatever Python has, by one name."""
    if name == "ce.type":
        cells = [cell for cell in cells if isinstance(cell, str | bool)]
    try:
        expected = by_rows(asked, [{name: without_nan(cell)} for cell in cells])
    except InvalidEvent:
        expected = None
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    for column in (cells, array):
        if expected is None:
            with pytest.raises(InvalidEvent):
                asked.match_table({name: column})
        else:
            assert by_table(asked, {name: column}) == expected
