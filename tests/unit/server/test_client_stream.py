"""Reading server-sent events: the state that survives lost connections."""

import msgspec
import pytest
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.client.clients import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, StreamReader
from kindcast.server.client.problem_error import ProblemError


def wire(*messages: dict[str, object]) -> bytes:
    """The messages as the server sends them, with pings in between."""
    parts = [format_sse_event(retry=2_000)]
    for message in messages:
        data = msgspec.json.encode(message).decode()
        parts += [format_sse_event(id=str(message["cursor"]), event="match", data_str=data), KEEPALIVE_COMMENT]
    return b"".join(parts)


@given(st.lists(st.text(), max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_reader_any_chunks_yields_the_messages(texts: list[str], sizes: list[int]) -> None:
    """However the bytes are cut, also inside characters, the messages come out whole, in order, and not a ping."""
    messages: list[dict[str, object]] = [{"cursor": str(n), "event": {"data": text}} for n, text in enumerate(texts)]
    reader, rest, found, turn = StreamReader(None), wire(*messages), [], 0
    reader.connected()
    while rest:
        size = sizes[turn % len(sizes)]
        found += reader.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert found == messages
    assert reader.cursor == (messages[-1]["cursor"] if messages else None)


def test_reader_line_separator_in_data_stays() -> None:
    """U+2028 and its like end lines for Python, but not for server-sent events."""
    message = {"cursor": "1", "event": {"data": "a\u2028b\u0085c\u2029d\x1ee"}}
    assert list(StreamReader(None).feed(wire(message))) == [message]


def test_reader_carriage_returns_and_several_data_lines_join() -> None:
    """Lines may end in CR LF, and data may be spread over lines."""
    [message] = StreamReader(None).feed(b'event: match\r\nid: 7\r\ndata: {"a":\r\ndata: 1}\r\n\r\n')
    assert message == {"a": 1}


def test_reader_lost_connection_goes_on_after_the_last_message() -> None:
    """What was half received is dropped with the connection, and asked for again by the last cursor."""
    reader = StreamReader("3")
    assert reader.headers()["Last-Event-ID"] == "3"
    complete, torn = wire({"cursor": "4"}), wire({"cursor": "5"})[:-20]
    assert [message["cursor"] for message in reader.feed(complete + torn)] == ["4"]
    reader.connected()
    assert reader.headers()["Last-Event-ID"] == "4"
    assert [message["cursor"] for message in reader.feed(wire({"cursor": "5"}))] == ["5"]


def test_reader_without_cursor_asks_for_none() -> None:
    """A first connection leaves the start to the server: after what was acknowledged."""
    assert "Last-Event-ID" not in StreamReader(None).headers()


def test_reader_end_by_reason() -> None:
    """A stream that ends because the server stops goes on; one whose subscription ended does not."""
    ended = {}
    for reason in ("shutdown", "gone", "expired"):
        reader = StreamReader(None)
        assert list(reader.feed(format_sse_event(event="end", data_str=f'{{"reason":"{reason}"}}'))) == []
        ended[reason] = reader.ended
    assert ended == {"shutdown": False, "gone": False, "expired": True}


@pytest.mark.parametrize(
    ("reason", "type"),
    [("damaged", "record-damaged"), ("hidden", "hidden-attribute"), ("deleted", "unknown-subscription")],
)
def test_reader_end_before_its_time_is_an_error(reason: str, type: str) -> None:
    """Else nobody would know that there are more messages, or that no more come."""
    with pytest.raises(ProblemError, match=reason) as told:
        list(StreamReader(None).feed(format_sse_event(event="end", data_str=f'{{"reason":"{reason}"}}')))
    assert told.value.type.endswith(type)


def test_reader_pause_grows_until_a_message_comes() -> None:
    """The pause doubles from what the server asks for, has a bound, and starts again after a message."""
    reader = StreamReader(None)
    assert FIRST_PAUSE_SECONDS <= reader.pause() <= FIRST_PAUSE_SECONDS * 1.25
    reader = StreamReader(None)
    list(reader.feed(wire()))
    pauses = [reader.pause() for _ in range(40)]
    assert [2.0 <= pauses[0] <= 2.5, 4.0 <= pauses[1] <= 5.0, 8.0 <= pauses[2] <= 10.0] == [True] * 3
    assert max(pauses) <= LONGEST_PAUSE_SECONDS * 1.25
    list(reader.feed(wire({"cursor": "1"})))
    assert 2.0 <= reader.pause() <= 2.5
