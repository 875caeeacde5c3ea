"""Whom a commit concerns: what was changed and what got a match, and which of them may have a sink."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kindcast.server.broker.group import Touched
from kindcast.server.delivery.outbox import SinkNumbers

NUMBERS = st.integers(1, 3_000)


def array(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


@given(st.sets(NUMBERS), st.lists(NUMBERS))
def test_touched_is_the_changed_and_the_matched_each_once(changed: set[int], matched: list[int]) -> None:
    """As a collection it is the set of both, and it is empty where both are."""
    touched = Touched(changed, array(matched))
    assert sorted(touched) == sorted(changed | set(matched))
    assert len(touched) == len(changed | set(matched))
    assert bool(touched) == bool(changed or matched)
    assert all((number in touched) == (number in changed or number in matched) for number in range(1, 50))


STEP = st.one_of(
    st.tuples(st.just("changed"), st.sets(NUMBERS, max_size=5), st.booleans()),
    st.tuples(st.just("look"), st.sets(NUMBERS, max_size=3), st.booleans()),
)


@given(st.lists(STEP, max_size=12), st.lists(NUMBERS, max_size=20))
def test_sink_numbers_miss_no_subscription_with_a_sink(
    steps: list[tuple[str, set[int], bool]], matched: list[int]
) -> None:
    """Subscriptions get and lose sinks, also between a look into the store and its result; whoever has one is found."""
    sinks, store = SinkNumbers(), set[int]()

    def change(numbers: set[int], gets: bool) -> None:
        store.difference_update(numbers)
        store.update(numbers if gets else ())
        sinks.add(numbers)

    for what, numbers, gets in steps:
        if what == "changed":
            change(numbers, gets)
        else:
            asked = sinks.take_changed()
            found = asked & store
            change(numbers, gets)
            sinks.learn(asked, found)
    got = sinks.among(array(matched))
    assert set(matched) & store <= set(got)
    asked = sinks.take_changed()
    sinks.learn(asked, asked & store)
    assert sinks.among(array(matched)) == [number for number in matched if number in store]
