"""Strict JSON: RFC 8259 only, without NaN, Infinity, lone surrogates or unbounded nesting.

If a name occurs twice in one object, the last value counts, as in nearly every JSON parser. Stored JSON is serialised
again from the parsed value, so later readers cannot interpret it differently.
"""

import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import msgspec

__all__ = ["MalformedJson", "TooDeepJson", "decode", "depth_within", "numbered_lines"]

_BOM = b"\xef\xbb\xbf"
_LONE_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")
"""An escaped character that is no character without the one after it."""

_MANY = 310
"""No double is as large as an integer with so many digits."""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_ZEROS = b"0" * _MANY
_RUN = re.compile(rb"0+")
_NO_INTEGER = re.compile(rb"[.eE][+-]?$")
"""The end of what is before the digits of a fraction or an exponent."""
_WITH_INFINITIES = msgspec.json.Decoder(float_hook=float)
_INFINITIES = (float("inf"), float("-inf"))
_LONGEST_POINTER = 1_000
_SMALL = 1 << 16
"""Texts of fewer bytes are not searched for long integers, because the parser reads those in a millisecond."""


class MalformedJson(ValueError):
    """The data is not JSON. The message says what is wrong and where. `pointer` is the place as a JSON pointer; empty
    if it is not known."""

    code = "malformed-json"

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {detail}" if pointer else detail)
        self.detail = detail
        self.pointer = pointer


class TooDeepJson(MalformedJson):
    """The JSON is nested too deeply to be read."""

    code = "too-deep"


def decode(data: bytes) -> Any:
    """Returns the value of a JSON text in UTF-8. Raises `MalformedJson`."""
    _check_integers(data)
    try:
        return msgspec.json.decode(data.removeprefix(_BOM))
    except msgspec.ValidationError:  # "Number out of range"
        raise MalformedJson("a number is too large for a double", _pointer_to_infinity(data)) from None
    except msgspec.DecodeError as error:
        if not data.removeprefix(_BOM).strip():
            raise MalformedJson("the text is empty; JSON is expected") from None
        detail = str(error)
        if "truncated" in detail and (found := _LONE_SURROGATE.search(data)) is not None:
            detail = f"{found[1].decode()} at byte {found.start(1)} is half of a surrogate pair"
        raise MalformedJson(detail) from None
    except UnicodeDecodeError as error:
        raise MalformedJson(f"the text is not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise TooDeepJson("the JSON is nested too deeply") from None


def _pointer_to_infinity(data: bytes) -> str:
    """Returns the JSON pointer to the first number that is too large; empty if it is very long, or if the text has
    other mistakes."""
    try:
        value = _WITH_INFINITIES.decode(data.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    path: list[str] = []
    open = [iter([("", value)])]
    while open:
        for name, inner in open[-1]:
            if inner in _INFINITIES:
                pointer = "/".join([*path, name])
                return pointer if len(pointer) <= _LONGEST_POINTER else ""
            if isinstance(inner, dict | list):
                path.append(name)
                open.append(_members(inner))
                break
        else:
            open.pop()
            del path[-1:]
    return ""


def _members(container: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the members with their names as JSON pointers write them."""
    if isinstance(container, list):
        return ((str(index), each) for index, each in enumerate(container))
    return ((name.replace("~", "~0").replace("/", "~1"), each) for name, each in container.items())


def _check_integers(data: bytes) -> None:
    """Raises `MalformedJson` for an integer that is certainly too large. To read an integer and to write it again take
    time that is quadratic in its digits, and no other thread runs meanwhile."""
    if len(data) < _SMALL:
        return
    end, in_string = 0, False
    for begin, after in _long_runs(data.translate(_DIGITS)):
        between = data[end:begin].replace(b"\\\\", b"").replace(b'\\"', b"")
        in_string ^= between.count(b'"') % 2 == 1
        end = after
        if not in_string and not _NO_INTEGER.search(between[-2:]) and data[end : end + 1] not in (b".", b"e", b"E"):
            raise MalformedJson(f"a number is too large for a double (byte {begin})")


def _long_runs(zeros: bytes) -> Iterator[tuple[int, int]]:
    """Yields begin and end of each run of many zeros. A regular expression would take quadratic time for shorter
    runs."""
    begin = zeros.find(_ZEROS)
    while begin >= 0:
        run = _RUN.match(zeros, begin)
        assert run is not None
        yield begin, run.end()
        begin = zeros.find(_ZEROS, run.end())


def numbered_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of NDJSON with their numbers, from 1, without the white space before them. Leaves out blank
    lines. One line after the other, because a body may have millions.

    >>> list(numbered_lines(b'\\n{}\\n\\n 1'))
    [(2, b'{}\\n'), (4, b'1')]
    """
    for number, each in enumerate(BytesIO(body), 1):
        if line := each.lstrip():
            yield number, line


def depth_within(value: Any, limit: int) -> bool:
    """Whether no object or array lies deeper than `limit` levels. Linear, without recursion.

    >>> depth_within([[1]], 2), depth_within([[1]], 1)
    (True, False)
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return True
        level = [inner for each in level for inner in _items(each) if isinstance(inner, dict | list)]
    return not level


def _items(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
