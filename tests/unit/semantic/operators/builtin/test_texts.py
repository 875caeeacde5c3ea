"""Patterns over several attributes, and likeness."""

import sys

import pytest

from kindcast.semantic.operators.builtin import LONGEST_TEXT, texts
from tests.unit.semantic.operators.builtin.asking import bindings, holds, reason, refused

OPERATORS = texts()


def test_any_matches_looks_into_all_attributes_that_are_named() -> None:
    """One value of one attribute is enough; numbers are no texts."""
    asked = 'anyMatches("(?i)urgent|asap", @subject, @body)'
    assert holds(OPERATORS, asked, subject="pump", body=["fine", "ASAP please"])
    assert not holds(OPERATORS, asked, subject="pump", body="fine")
    assert not holds(OPERATORS, 'anyMatches("5", @a)', a=5)


def test_any_matches_pattern_that_runs_away_elsewhere_ends() -> None:
    """RE2: linear in the text."""
    assert not holds(OPERATORS, 'anyMatches("^(a+)+$", @a)', a="a" * 50_000 + "b")


def test_any_matches_text_that_would_delay_other_calls_is_no_answer() -> None:
    """One long text, or many short ones. The call says so; a text of another value that holds is enough."""
    asked = 'anyMatches("[a-y]{1,900}z.{1,90}q", @a)'
    assert "1,000,000 characters" in reason(OPERATORS, asked, a="a" * 1_000_000)
    assert "250,000 characters" in reason(OPERATORS, asked, a=[str(number) * 25_000 for number in range(10)])
    assert holds(OPERATORS, asked, a=["a" * 1_000_000, "azbq"])


def test_any_matches_bad_pattern_is_refused_when_subscribing() -> None:
    """With RE2's reason."""
    assert "parenthesis" in refused(OPERATORS, 'anyMatches("(", @a)')
    assert "not supported" in refused(OPERATORS, 'anyMatches("(?=x)", @a)')


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        ("Pump 7 leaks", "leaks: PUMP 7!", 1, 1),
        ("Pump 7 leaks", "pump 7 leaking", 0.8, 0.99),
        ("Straße", "STRASSE", 1, 1),
        ("pump", "weather report", 0, 0.5),
        ("", "", 0, 1),
    ],
)
def test_similar_scores_by_words_whatever_their_order(one: str, other: str, least: float, most: float) -> None:
    """1 for the same words, less for other ones."""
    ((score,),) = bindings(OPERATORS, f'similar("{one}", @title, ?s)', title=other)
    assert least <= score <= most


def test_similar_near_duplicates_by_a_constraint() -> None:
    """The score is a variable like any other; each value has its own."""
    asked = 'similar("pump 7 leaks", @title, ?s) and ?s >= 0.9'
    assert bindings(OPERATORS, asked, title=["pump 7 leaks!", "weather", 5]) == [(1.0,)]
    assert not holds(OPERATORS, asked, title="weather")


def test_similar_long_text_costs_no_more_than_the_bound() -> None:
    """What is beyond it is not looked at."""
    ((score,),) = bindings(OPERATORS, 'similar("a", @title, ?s)', title="a" + " " * LONGEST_TEXT + "b" * 1_000_000)
    assert score == 1


def test_similar_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest works; this call fails for good."""
    monkeypatch.setitem(sys.modules, "rapidfuzz.fuzz", None)
    said = reason(OPERATORS, 'similar("a", @title, ?s)', title="b")
    assert said.endswith(": similar needs rapidfuzz: pip install 'kindcast[operators]'")
