"""What is learned of predicates, and how it is kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic.planner import learning
from kindcast.semantic.planner.learning import Experience

NOTES = st.lists(
    st.tuples(st.sampled_from(["near", "far"]), st.integers(0, 3), st.booleans(), st.floats(0.001, 5)), max_size=30
)


@given(NOTES, st.booleans())
def test_records_through_json_are_the_same_experience(notes: list[tuple[str, int, bool, float]], fails: bool) -> None:
    """What was learned survives a restart, to the last digit."""
    known = Experience()
    for operator, argument, held, seconds in notes:
        known.note(operator, f"{operator}({argument})", held, seconds)
        if fails:
            known.note_failure(operator, f"{operator}(9)")
    again = Experience.from_records(json.loads(json.dumps(known.as_records())))
    assert again == known
    assert again.expected("near", "near(0)", 0.5, 1.0) == known.expected("near", "near(0)", 0.5, 1.0)


def test_expected_falls_back_from_predicate_to_operator_to_declaration() -> None:
    """A predicate that nobody asked yet is taken for one of its operator."""
    known = Experience()
    assert known.expected("near", "near(1)", 0.3, 2.0) == (0.3, 2.0)
    for _ in range(200):
        known.note("near", "near(1)", False, 0.1)
    chance, cost = known.expected("near", "near(2)", 0.3, 2.0)
    assert chance < 0.01
    assert cost == pytest.approx(0.1, rel=0.5)
    assert known.expected("far", "far(1)", 0.3, 2.0) == (0.3, 2.0)


def test_note_lately_counts_more_than_long_ago() -> None:
    """After a few thousand evaluations nothing is left of what was before."""
    known = Experience()
    for _ in range(3_000):
        known.note("p", "p()", True, 1.0)
    for _ in range(5_000):
        known.note("p", "p()", False, 0.01)
    chance, cost = known.expected("p", "p()", 0.5, 1.0)
    assert chance < 0.02
    assert cost < 0.03


def test_note_predicates_are_bounded_and_those_asked_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs for a year does not fill up with what nobody asks any more."""
    monkeypatch.setattr(learning, "MOST_RECORDS", 3)
    known = Experience()
    for number in (1, 2, 3, 1, 4):
        known.note("p", f"p({number})", True, 1.0)
    assert [each["predicate"] for each in known.as_records()] == [None, "p(3)", "p(1)", "p(4)"]


@pytest.mark.parametrize(
    "change",
    [
        {"operator": 5},
        {"predicate": 5},
        {"held": 3.0},
        {"asked": float("nan")},
        {"seconds": -1},
        {"seconds": "long"},
        {"evaluations": None},
    ],
)
def test_from_records_what_makes_no_sense_is_refused_with_the_record(change: dict[str, object]) -> None:
    """Records may come from a file that somebody wrote."""
    known = Experience()
    known.note("p", "p()", True, 1.0)
    with pytest.raises(ValueError, match="not a record of an operator"):
        Experience.from_records([known.as_records()[0] | change])
    with pytest.raises(ValueError, match="not a record of an operator"):
        Experience.from_records([{"operator": "p"}])


def test_begin_with_takes_over_what_was_never_asked_here() -> None:
    """An archive speaks where nobody has asked yet; what was learned here stays, and is asked last."""
    here, archive = Experience(), Experience()
    here.note("near", "near(1)", held=True, seconds=1.0)
    for _ in range(50):
        archive.note("near", "near(1)", held=False, seconds=0.1)
        archive.note("far", "far(1)", held=False, seconds=0.1)
    assert here.begin_with(archive.as_records()) == 2
    assert here.expected("near", "near(1)", 0.5, 1.0)[0] > 0.5
    assert here.expected("far", "far(1)", 0.5, 1.0)[0] < 0.1
    assert list(here.predicates) == ["far(1)", "near(1)"]
    assert here.begin_with(archive.as_records()) == 0
    with pytest.raises(ValueError, match="not a record"):
        here.begin_with([{"operator": "p"}])
