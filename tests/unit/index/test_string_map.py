"""Rows by key."""

from kindcast.index.published.ctps_rows import StringMap, empty_bits, rows_of


def test_map_gives_the_rows_of_a_key_and_none_for_an_unknown_one() -> None:
    """A key that nobody asked for is the empty set, not an error (erratum 8)."""
    keys = StringMap(64)
    keys.add(1, {"red", "green"})
    keys.add(2, {"red"})
    for key, expected in (("red", [1, 2]), ("green", [1]), ("Red", []), ("", [])):
        bits = empty_bits(64)
        keys.union_into(bits, key)
        assert rows_of(bits).tolist() == expected


def test_map_of_numbers_reads_both_zeros_as_one_key() -> None:
    """Keys of numeric columns compare as numbers do."""
    keys = StringMap(64)
    keys.add(0, {0.0})
    bits = empty_bits(64)
    keys.union_into(bits, -0.0)
    assert rows_of(bits).tolist() == [0]


def test_map_after_removal_forgets_keys_without_rows() -> None:
    """Removing the last row of a key removes the key."""
    keys = StringMap(64)
    keys.add(1, {"red", "green"})
    keys.add(2, {"red"})
    keys.remove(1, {"red", "green"})
    keys.check_invariants()
    assert list(keys.contents()) == [("red", [2])]
