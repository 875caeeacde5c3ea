"""The roll: what is known of each subscription, wherever it stands, and who ends next."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary
from kindcast.server.broker.state import Live, LiveSubscriptions

EMPTY = Vocabulary.from_ontologies([])
NAMES = ("a", "b", "c", "d")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("come", "enter", "leave", "end", "go", "swap")),
        st.sampled_from(NAMES),
        st.floats(1.0, 9.0),
    ),
    max_size=25,
)


def apply(
    live_subscriptions: LiveSubscriptions, model: dict[str, Live], step: str, name: str, end: float, number: int
) -> LiveSubscriptions:
    """One step on both; nothing where it is not possible."""
    known = model.get(name)
    if step == "swap":
        other = Matcher(EMPTY)
        for id in sorted(live_subscriptions.matcher, reverse=True):  # other slots than before
            other.restore(id, live_subscriptions.matcher.tree(id))
        return live_subscriptions.under(other)
    if step == "come" and known is None:
        model[name] = live_subscriptions.put_aside(Live(number, name, "active", end, matching=False))
    elif step == "enter" and known is not None and not known.matching:
        live_subscriptions.matcher.add(name, "n >= 1 or n = 0")  # two rows, so that slots have gaps
        model[name] = live_subscriptions.enter(known)
    elif step == "leave" and known is not None and known.matching:
        model[name] = live_subscriptions.leave(name)
        live_subscriptions.matcher.remove(name)
    elif step == "end" and known is not None:
        live_subscriptions.set_end(name, end)
        model[name] = Live(known.number, name, "active", end, known.matching)
    elif step == "go" and known is not None and not known.matching:
        live_subscriptions.drop(name)
        del model[name]
    return live_subscriptions


@given(STEPS, st.floats(0.0, 10.0))
def test_roll_says_what_a_dict_of_all_would_say(steps: list[tuple[str, str, float]], now: float) -> None:
    """After every step, and after it was written and read again."""
    live_subscriptions, model = LiveSubscriptions(Matcher(EMPTY)), dict[str, Live]()
    for number, (step, name, end) in enumerate(steps, 1):
        live_subscriptions = apply(live_subscriptions, model, step, name, end, number)
        again = LiveSubscriptions.opened(live_subscriptions.matcher, live_subscriptions.arrays())
        for each in (live_subscriptions, again):
            assert {id: each[id] for id in each} == model
            assert len(each) == len(model)
            assert each.numbers_sum() == sum(live.number for live in model.values())
            for live in model.values():
                assert each.number(live.id) == live.number
                if live.matching:
                    slots = np.array([each.matcher.slots[live.id]] * 2, dtype=np.int32)
                    expected = live.number if live.expires_at > now else 0
                    assert each.numbers_in_time(slots, now).tolist() == [expected] * 2


@given(st.lists(st.integers(1, 6), max_size=12), st.integers(1, 5), st.integers(0, 12))
def test_roll_tells_those_that_end_first_and_up_to_when(ends: list[int], count: int, aside: int) -> None:
    """None that ends by then is missing, however many end at one time; one aside that has expired is not told."""
    live_subscriptions = LiveSubscriptions(Matcher(EMPTY))
    for number, end in enumerate(ends, 1):
        live_subscriptions.matcher.add(f"s{number}", "n = 1")
        live_subscriptions.enter(Live(number, f"s{number}", "active", float(end), matching=False))
        if number == aside:
            live_subscriptions.leave(f"s{number}")
            live_subscriptions.matcher.remove(f"s{number}")
    live_subscriptions.put_aside(Live(99, "over", "expired", 0.0, matching=False))
    told, until = live_subscriptions.soonest(count)
    everyone = {(float(end), f"s{number}") for number, end in enumerate(ends, 1)}
    assert set(told) <= everyone
    assert len(set(told)) == len(told) <= count + 1
    assert {each for each in everyone if each[0] <= until} <= set(told)
    assert told or not everyone
    assert until == math.inf or told


def test_roll_of_another_matcher_is_refused() -> None:
    """Numbers that are missing, too many, or too few are told, not guessed."""
    live_subscriptions = LiveSubscriptions(Matcher(EMPTY))
    live_subscriptions.matcher.add("one", "n = 1")
    live_subscriptions.enter(Live(1, "one", "active", 1.0, matching=False))
    arrays = live_subscriptions.arrays()
    short, two = arrays | {"numbers": arrays["numbers"][:0], "ends": arrays["ends"][:0]}, np.array([1, 2])
    for wrong in (short, arrays | {"numbers": np.array([0])}, arrays | {"numbers": two, "ends": np.array([1.0, 1.0])}):
        with pytest.raises(ValueError, match="do not match"):
            LiveSubscriptions.opened(live_subscriptions.matcher, wrong)
    with pytest.raises(ValueError, match="do not match"):
        LiveSubscriptions.opened(Matcher(EMPTY), arrays)
