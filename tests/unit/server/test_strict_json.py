"""JSON in, strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.strict_json import MalformedJson, decode, depth_within

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"NaN", "malformed"),
        (b'{"a": Infinity}', "malformed"),
        (b'{"a": 1e999}', "too large"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a": 1', "truncated"),
        (b"{} {}", "malformed"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b'"\\ud800 lone"', "malformed"),
        (b'{"a": "\\\\\\ud800"}', r"ud800 at byte 9 is half of a surrogate pair"),
        (b'{"a": "\\\\ud800"', "truncated"),
        (b'{"a": "\\ud83d\\ude00"', "truncated"),
        (b"[" * 100_000, "nested"),
        (b"{'a': 1}", "malformed"),
    ],
)
def test_decode_what_is_no_json_is_refused_in_words(text: bytes, word: str) -> None:
    """Non-finite numbers, lone surrogates, bottomless nesting and the rest are refused, each in words."""
    with pytest.raises(MalformedJson, match=rf"(?i){word}"):
        decode(text)


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (b'{"a": [{"b": 1.5}, {"~/": -1e999}], "c": 1e999}', "/a/1/~0~1"),
        (b"1e999", ""),
        (b'{"a": 1e999, "b": }', ""),
        (b'{"' + b"a" * 2_000 + b'": 1e999}', ""),
    ],
)
def test_decode_number_that_is_too_large_has_its_place(text: bytes, pointer: str) -> None:
    """The first one, if the rest can be read and the pointer is not very long."""
    with pytest.raises(MalformedJson, match="a number is too large for a double") as raised:
        decode(text)
    assert raised.value.pointer == pointer


def test_decode_large_integer_keeps_every_digit() -> None:
    """Integers beyond 64 bits are not rounded on the way in."""
    assert decode(b'{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}


def test_decode_byte_order_mark_is_ignored() -> None:
    """Files from some editors begin with one."""
    assert decode(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_decode_repeated_name_counts_as_its_last_value() -> None:
    """Two readers of what we store cannot see two values: it is written anew from this one."""
    assert decode(b'{"a": 1, "a": 2}') == {"a": 2}


def depth_of(value: object) -> int:
    """The obvious definition."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(JSON, st.integers(1, 6))
def test_depth_within_any_value_agrees_with_the_definition(value: object, limit: int) -> None:
    """A value is within the limit exactly if no container lies deeper."""
    assert depth_within(value, limit) == (depth_of(value) <= limit)


def test_depth_within_deep_value_needs_no_recursion() -> None:
    """A nesting that would overflow the interpreter's stack is measured, not crashed on."""
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert not depth_within(value, 64)
    while value:  # taken apart from outside, for the interpreter would do it recursively
        value = value.pop()  # type: ignore[assignment]
