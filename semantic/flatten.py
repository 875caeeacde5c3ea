"""Flattening of JSON data into dotted names with their scalars. `canonical_events` resolves the names and values.

docs/matching-semantics.md, rules 1, 3, 4 and 15:

    {"seller": {"name": "John"}, "tags": ["a", null, "b"]}   seller.name: John     tags: a, b
    {"items": [{"x": 1}, {"x": 2}]}                          items.x: 1, 2         items: two elements
    {"price": {"value": 5, "currency": "USD"}}               price: the quantity   price.value: 5   price.currency: USD
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.model import Node, Position, Resource, TypedText

__all__ = [
    "Comparator",
    "EventLimits",
    "Flat",
    "Found",
    "QuantityObject",
    "Scalar",
    "Stated",
    "StatedCode",
    "as_json",
    "as_quantity",
    "cells_of",
    "flatten",
    "problem_at",
    "stated_of",
    "without_nulls",
]

UNIT_KEYS = frozenset({"unit", "unitCode", "unitText", "currency"})
"""The members that may accompany `value` in an object that is a quantity (rule 15)."""


JSON_SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types of JSON scalars. `as_json` returns values of exactly these types unchanged."""
_CONVERTED = (np.generic, np.ndarray, date, time, timedelta, Decimal, UUID)  # a datetime is a date
_SECOND = 1_000_000
_MICROSECONDS: Mapping[str, tuple[int, int]] = {
    "W": (604_800 * _SECOND, 1),
    "D": (86_400 * _SECOND, 1),
    "h": (3_600 * _SECOND, 1),
    "m": (60 * _SECOND, 1),
    "s": (_SECOND, 1),
    "ms": (1_000, 1),
    "us": (1, 1),
    "ns": (1, 10**3),
    "ps": (1, 10**6),
    "fs": (1, 10**9),
    "as": (1, 10**12),
}
"""The units of numpy's durations in microseconds, as a fraction. numpy itself wraps around beyond 2^63."""
LARGEST_POWER = 308
"""The largest power of ten in a double. A larger decimal is not expanded into an integer of, say, a million digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Limits of one event: the nesting of `data`, also by dots in names; its number of JSON values, including nulls and
    containers; and the characters of a dotted name. Each value and each part of a name costs time that other events
    wait for. Values that have a name in common have a copy of it each."""

    depth: int = 64
    values: int = 10_000
    name: int = 10_000

    def takes_name(self, name: str, *, of_graph: bool = False) -> bool:
        """Whether a dotted name is within the limits. The dots of IRIs in names of a graph are no nesting."""
        return len(name) <= self.name and (of_graph or name.count(".") <= self.depth)

    def too_deep(self, path: tuple[Any, ...] | None = None) -> InvalidEvent:
        """Returns the error of an event that is nested too deeply, at `path`."""
        return InvalidEvent([problem_at(path, "too-deep", f"nested deeper than {self.depth} levels")])

    def too_many_values(self, path: tuple[Any, ...] | None = None) -> InvalidEvent:
        """Returns the error of an event with too many values, at `path`."""
        detail = f"more than {self.values} values in one event: send smaller events"
        return InvalidEvent([problem_at(path, "too-many-values", detail)])


Comparator = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class QuantityObject:
    """An object `{"value": …, "unit": …}`, kept as one value. `published` is the object. With a `comparator` it stands
    for all amounts that compare so with its own."""

    value: int | float
    unit: str
    published: Mapping[str, Any]
    comparator: Comparator | None = None
    node: Resource | None = None
    """The node of a graph that states the quantity: both are one value."""


@dataclass(frozen=True, slots=True)
class StatedCode:
    """An object that states a code, in one or several systems: `codes` are pairs (system, code). `published` is the
    object."""

    codes: tuple[tuple[str, str], ...]
    published: Mapping[str, Any]
    node: Resource | None = None


Scalar = str | int | float | bool | QuantityObject | StatedCode | Resource | TypedText


class Stated(NamedTuple):
    """The quantity or code that an object states (rule 22). `number` is the name of the member with the number of a
    quantity."""

    scalar: QuantityObject | StatedCode
    number: str | None = None


StatedIn = Callable[[str, Mapping[str, Any]], Stated | None]
"""Function (raw dotted name, object under it) → what the object states; None if it states nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """A scalar; its `unit`, if it is the number of a quantity object; and the object `around` it, which may have the
    unit in another member."""

    scalar: Scalar
    unit: str | None = None
    around: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Flat:
    """The content of `data`, in the types of JSON: raw dotted name → scalars, and raw dotted name → the objects in
    arrays (at any depth)."""

    data: Mapping[str, Any]
    scalars: dict[str, list[Found]] = field(default_factory=dict)
    elements: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)


def flatten(
    data: Mapping[str, Any], limits: EventLimits, stated: StatedIn | None = None, whole: Stated | None = None
) -> Flat:
    """Returns the content of `data` by dotted name, in the order of the data. Values of Python and numpy types are
    converted by `as_json`. `stated` is called for each inner object that is not a quantity of two members. `whole` is
    what `data` states itself, as an element of an array.

    Uses an explicit stack, so that nesting is bounded by `limits` and not by the interpreter. Linear in `data`. Raises
    `InvalidEvent` with a JSON pointer for each key that is not a string, number that is not finite or not exact as a
    double, and value that is not JSON. Raises it immediately for nesting or size beyond the limits.
    """
    flat, problems, is_json = _walked(data, limits, stated, whole)
    if not is_json:
        flat, problems, _ = _walked(as_json(data), limits, stated, whole)
    if problems:
        raise InvalidEvent(problems)
    return flat


def _walked(
    data: Mapping[str, Any], limits: EventLimits, stated: StatedIn | None, whole: Stated | None
) -> tuple[Flat, list[Problem], bool]:
    """Returns (the content of `data`, its problems, whether no value must be converted by `as_json`)."""
    flat = Flat(data)
    problems: list[Problem] = []
    is_json = True
    left = limits.values
    stack: list[tuple[str, Any, tuple[Any, ...], Mapping[str, Any] | None]] = [("", data, (), None)]
    while stack:
        name, node, path, around = stack.pop()
        if len(path) > limits.depth:
            raise limits.too_deep(path)
        if isinstance(node, Mapping | list | tuple):
            left -= len(node)
            if left < 0:
                raise limits.too_many_values(path)
        if isinstance(node, Mapping):
            found = stated_of(name, node, stated) if path else None
            if found is not None:
                read = _put_stated(flat, name, found, node)
            else:
                read = None if path or whole is None else _put_number(flat, "", whole, node)
            if path and isinstance(node, Node):  # also a value, and always an element (rule 21)
                if node.value is not None and found is None:
                    flat.scalars.setdefault(name, []).append(Found(node.value))
                if not isinstance(path[-1], int):
                    flat.elements.setdefault(name, []).append(node)
            for key, value in reversed(list(node.items())):
                if not isinstance(key, str):
                    problems.append(problem_at(path, "bad-name", f"the name {key!r} is not a string"))
                elif key != read or read is None:
                    inner = f"{name}.{key}" if path else key
                    if not limits.takes_name(inner, of_graph=isinstance(node, Node)):
                        raise InvalidEvent([problem_at(path, "long-name", _long_name(inner, limits))])
                    stack.append((inner, value, (*path, key), node))
        elif isinstance(node, list | tuple):
            objects = [each for each in node if isinstance(each, Mapping)]
            if objects:
                flat.elements.setdefault(name, []).extend(objects)
            stack.extend((name, node[index], (*path, index), around) for index in range(len(node) - 1, -1, -1))
        elif node is not None:
            is_json = is_json and not isinstance(node, _CONVERTED)
            problem = _scalar_problem(node)
            if problem:
                problems.append(problem_at(path, *problem))
            else:
                flat.scalars.setdefault(name, []).append(Found(node, None, around))
    return flat, problems, is_json


def _long_name(name: str, limits: EventLimits) -> str:
    most = f"at most {limits.name:,} characters and {limits.depth} dots are allowed"
    return f"the name that begins with {name[:40]!r} is too long: with the names of objects around it, {most}"


def stated_of(name: str, node: Mapping[str, Any], stated: StatedIn | None) -> Stated | None:
    """Returns what an object under `name` states."""
    quantity = None if isinstance(node, Node) else as_quantity(node)
    if quantity is not None:
        return Stated(quantity, "value")
    return None if stated is None else stated(name, node)


def _put_stated(flat: Flat, name: str, found: Stated, node: Mapping[str, Any]) -> str | None:
    """Adds what an object states under `name`, and the number of a quantity, with its unit, under the name of its
    member. Returns the name of this member; None if the number was not added, so that the member must still be read."""
    flat.scalars.setdefault(name, []).append(Found(found.scalar))
    return _put_number(flat, f"{name}.", found, node)


def _put_number(flat: Flat, before: str, found: Stated, node: Mapping[str, Any]) -> str | None:
    """Adds the number of a quantity with its unit, under the name of its member after `before`. Returns the name of
    this member; None if the number was not added."""
    scalar = found.scalar
    if not isinstance(scalar, QuantityObject) or found.number is None or scalar.comparator is not None:
        return None
    number = node[found.number]
    if isinstance(number, list) and len(number) == 1:
        number = number[0]
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    flat.scalars.setdefault(before + found.number, []).append(Found(number, scalar.unit))
    return found.number


def as_quantity(node: Mapping[str, Any]) -> QuantityObject | None:
    """Returns an object with exactly the members `value` and a unit as a quantity; None for other objects. Members
    that are null do not count (rule 1)."""
    if node.get("value") is None:
        return None
    if len(node) > 2:
        node = without_nulls(node)
    if len(node) != 2:
        return None
    unit_key = next(key for key in node if key != "value")
    value, unit = node["value"], node[unit_key]
    if unit_key not in UNIT_KEYS or not isinstance(unit, str) or isinstance(value, bool):
        return None
    if not isinstance(value, int | float) or _scalar_problem(value):
        return None
    return QuantityObject(value, unit, dict(node))


def without_nulls(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an object without its members that are null."""
    return {key: value for key, value in node.items() if value is not None}


def _scalar_problem(node: Any) -> tuple[str, str] | None:
    if isinstance(node, str | bool | Resource | TypedText):
        return None
    if isinstance(node, float):
        return None if math.isfinite(node) else ("not-finite", f"{node} is not a finite number")
    if isinstance(node, int):
        try:
            exact = int(float(node)) == node
        except OverflowError:
            exact = False
        if exact:
            return None
        return (
            "inexact-number",
            f"the integer {_short(node)} is not exactly representable as a double: publish it as a string",
        )
    return "bad-value", f"a {type(node).__name__} is not a JSON value"


def _short(number: int) -> str:
    """Returns an integer as text for a message. A large one is replaced by its size, because Python does not print
    integers of more than some thousands of digits."""
    return str(number) if number.bit_length() < 256 else f"of {number.bit_length()} bits"


def problem_at(path: tuple[Any, ...] | None, code: str, detail: str) -> Problem:
    """Returns a problem at the place of `path`, given as a JSON pointer (RFC 6901)."""
    if path is None:
        return Problem(code, detail)
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return Problem(code, detail, Position(pointer=pointer))


def cells_of(column: Any) -> list[Any]:
    """Returns the values of an Arrow array, or the rows of an Arrow table. A map is an object: `{"a": 1}`, not
    `[("a", 1)]` as in pyarrow. Keys that are numbers, booleans or dates become texts. Of equal keys, the last
    counts."""
    kind = column.type if hasattr(column, "type") else column.schema
    try:
        cells: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a date after the year 9999, or nanoseconds without pandas
        if hasattr(column, "column_names"):
            rows = zip(*map(cells_of, column.columns), strict=True)
            return [dict(zip(column.column_names, row, strict=True)) for row in rows]
        cells = list(map(_cell_of, column))
    return [_with_text_keys(cell) for cell in cells] if "map<" in str(kind) else cells


def _cell_of(scalar: Any) -> Any:
    """Returns the value of an Arrow scalar; times and dates as texts, however far away they are."""
    kind = str(scalar.type)
    if not scalar.is_valid:
        return None
    if kind.startswith("struct<"):
        return {name: _cell_of(each) for name, each in scalar.items()}
    if kind.startswith("map<"):
        return {_cell_of(entry[0]): _cell_of(entry[1]) for entry in scalar.values}
    if kind.startswith(("list<", "large_list<", "fixed_size_list<")):
        return list(map(_cell_of, scalar.values))
    if kind.startswith("timestamp["):
        return as_json(np.datetime64(scalar.value, scalar.type.unit))
    if kind.startswith("duration["):
        return as_json(np.timedelta64(scalar.value, scalar.type.unit))
    if kind.startswith("date"):
        return as_json(np.datetime64(scalar.value, "D" if kind.startswith("date32") else "ms").astype("datetime64[D]"))
    return scalar.as_py()


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_text_keys(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {_text_of_key(as_json(key)): _with_text_keys(each) for key, each in value.items()}


def _text_of_key(key: Any) -> Any:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key) if isinstance(key, int | float) else key


def as_json(value: Any) -> Any:
    """Returns `value` in the types of JSON, at any depth. `match` and `match_table` read values in this form.

    | Python, numpy | JSON |
    |---|---|
    | `datetime`, `datetime64` | its RFC 3339 text in UTC; without an offset it is UTC; `NaT`: null |
    | `date`, `datetime64` of days, months, years | its text: `2026-01-31`, `2026-01`, `2026` |
    | `time` | its text: `08:30:00` |
    | `timedelta`, `timedelta64` | a duration of ISO 8601 in seconds: `PT5400S` (rule 26); `NaT`: null |
    | `Decimal` | a number: an integer if it is whole, else the nearest double |
    | `UUID` | its text |
    | `NA` of pandas, masked values of numpy | null |
    | other scalars of numpy, arrays | the number, text or boolean of Python; a list |

    JSON scalars are returned unchanged. So are values that JSON cannot represent; `flatten` refuses them. Linear in
    `value`. Recursive, so callers must bound the depth.

    >>> as_json({"at": datetime(2026, 1, 31, 12, 30), "price": Decimal("9.50"), "n": [np.int64(3)]})
    {'at': '2026-01-31T12:30:00Z', 'price': 9.5, 'n': [3]}
    """
    if type(value) in JSON_SCALARS:
        return value
    if value is np.ma.masked or type(value).__name__ == "NAType":
        return None
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return [as_json(each) for each in value]
    if isinstance(value, np.datetime64):
        return _of_datetime64(value)
    if isinstance(value, np.timedelta64) and np.datetime_data(value.dtype)[0] not in ("Y", "M", "generic"):
        return _of_timedelta64(value)
    if isinstance(value, np.ndarray):
        return as_json(value[()])
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _of_timedelta(value)
    if isinstance(value, UUID):
        return str(value)
    return _of_decimal(value) if isinstance(value, Decimal) else value


def _of_datetime(value: datetime) -> str | None:
    if value != value:  # `NaT` of pandas is a datetime
        return None
    value = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    with contextlib.suppress(OverflowError):  # in the years 1 and 9999 the time in UTC may be out of range
        value = value.astimezone(UTC)
    return value.replace(tzinfo=None).isoformat() + "Z" if value.tzinfo is UTC else value.isoformat()


def _of_timedelta(value: timedelta) -> str | None:
    return None if value != value else _duration(value // timedelta(microseconds=1))  # `NaT` of pandas


def _of_timedelta64(value: np.timedelta64) -> str | None:
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    numerator, denominator = _MICROSECONDS[unit]
    return _duration(int(value.astype(np.int64)) * count * numerator // denominator)


def _duration(microseconds: int) -> str:
    seconds, micros = divmod(abs(microseconds), _SECOND)
    decimals = f".{micros:06}".rstrip("0").rstrip(".")
    return f"{'-' if microseconds < 0 else ''}PT{seconds}{decimals}S"


def _of_datetime64(value: np.datetime64) -> str | None:
    if np.isnat(value):
        return None
    unit = np.datetime_data(value.dtype)[0]
    return str(value) if unit in "YMWD" else str(value.astype("datetime64[us]")).removesuffix(".000000") + "Z"


def _of_decimal(value: Decimal) -> int | float:
    if not value.is_finite():
        return math.nan if value.is_nan() else math.copysign(math.inf, value)
    whole = value.adjusted() <= LARGEST_POWER and value == value.to_integral_value()
    return int(value) if whole else float(value)
