"""Lists of matches as bytes: what is stored is read again, and nothing else is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.store.postings import DamagedBytes, Postings, pack_lists, unpack

numbers = st.lists(st.integers(1, 1 << 34) | st.integers(1, 200), min_size=1, max_size=150, unique=True).map(sorted)


@given(numbers, st.data())
def test_list_that_was_changed_in_one_bit_is_noticed(listed: list[int], data: st.DataObject) -> None:
    (packed,) = pack_lists(np.array(listed, dtype=np.int64), np.array([0, len(listed)]))
    assert unpack(packed).tolist() == listed
    assert Postings.of_lists([(7, packed)], 7, 7).subscriptions.tolist() == listed
    changed = bytearray(packed)
    changed[data.draw(st.integers(1, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedBytes):
        unpack(bytes(changed))
    with pytest.raises(DamagedBytes):
        Postings.of_lists([(7, bytes(changed))], 7, 7)


@pytest.mark.parametrize(
    "packed", [b"\0" + np.array([3, 9], "<u4").tobytes(), b"\1" + np.array([3, 9], "<i8").tobytes()]
)
def test_list_of_an_earlier_version_is_read(packed: bytes) -> None:
    """It has no checksum."""
    assert unpack(packed).tolist() == [3, 9]
    (checked,) = pack_lists(np.array([4], dtype=np.int64), np.array([0, 1]))
    assert Postings.of_lists([(1, packed), (2, checked)], 1, 2).positions.tolist() == [1, 2, 1]


@pytest.mark.parametrize("content", [b"", b"\xff", b"\3", b"\2junk", b"\0abc"])
def test_bytes_that_are_no_list_are_damaged(content: bytes) -> None:
    with pytest.raises(DamagedBytes):
        unpack(content)
    with pytest.raises(DamagedBytes):
        Postings.decoded(content, 1, 2)
