"""Values of events and answers as JSON, for operators in processes of their own.

Scalars stand for themselves; everything else is a list whose first element says what it is, so that a tuple comes back
as a tuple and 1 km as a quantity: `["q", 1, "km"]`. Reading it makes values and runs no code.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

from kindcast.semantic.model import Instant, Quantity

__all__ = ["HEADER", "from_wire", "read", "to_wire", "written"]

HEADER = struct.Struct(">Q")
"""A frame on a pipe is its length, and then so many bytes of JSON."""


def written(value: object) -> bytes:
    """`value` as one JSON text. Raises TypeError for what is no value of an event or of an answer."""
    return json.dumps(to_wire(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def read(text: bytes) -> Any:
    """What `written` wrote. Raises ValueError."""
    return from_wire(json.loads(text.decode("utf-8", "surrogatepass")))


def to_wire(value: object) -> object:
    """As JSON writes it. Raises TypeError.

    >>> to_wire((1, Quantity(2, "km")))
    ['t', 1, ['q', 2, 'km']]
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Quantity(number, unit):
            return ["q", number, unit]
        case Instant(text):
            return ["i", text]
        case Mapping():
            return ["d", *([to_wire(key), to_wire(each)] for key, each in value.items())]
        case list() | tuple() | set() | frozenset():
            return ["t", *map(to_wire, value)]
    raise TypeError(f"{type(value).__name__} is no value of an event or of an answer")


def from_wire(value: Any) -> Any:
    """The other way round. Raises ValueError."""
    if not isinstance(value, list):
        return value
    match value:
        case ["q", number, unit]:
            return Quantity(number, unit)
        case ["i", text]:
            return Instant(text)
        case ["d", *items]:
            return {from_wire(key): from_wire(each) for key, each in items}
        case ["t", *items]:
            return tuple(map(from_wire, items))
    raise ValueError(f"{value!r:.60} is no value")
