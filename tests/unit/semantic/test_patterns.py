"""Regular expressions: what is found, what is refused and where, and that nobody can make them slow."""

from typing import Any

import pytest

from kindcast.semantic import InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.errors import InvalidPattern
from kindcast.semantic.units.patterns import (
    CACHED,
    LONGEST,
    SearchBudget,
    TooCostlyNow,
    compile_pattern,
    fold,
    searching_within,
)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("HP", "my HP 250", True),
        ("^HP", "my HP 250", False),
        ("^HP", "HP 250", True),
        ("hp", "HP 250", False),
        (r"^\d+$", "250", True),
        (r"^\d+$", "250\n", False),
        ("a|b", "xb", True),
        ("(?i)hp", "HP", True),
        ("é", "e\u0301", False),
        ("e\u0301", "é", True),
        ("", "", True),
        (r"\p{Greek}", "α", True),
        ("^.$", "𝄞", True),
        (".", "\ud800", True),
        ("^a.b$", "a\udfffb", True),
    ],
)
def test_search_finds_the_pattern_anywhere(pattern: str, text: str, found: bool) -> None:
    """As `matches /…/` says: anywhere in the text unless it is anchored; patterns are NFC, as texts are."""
    assert compile_pattern(pattern).search(text) is found


def test_search_nocase_ignores_case_of_any_script() -> None:
    """Letters match in either case, beyond ASCII too."""
    assert compile_pattern("größe", nocase=True).search("GRÖSSE GRÖßE")
    assert compile_pattern("ИВАН", nocase=True).search("иван")
    assert not compile_pattern("ИВАН").search("иван")


@pytest.mark.parametrize(
    ("pattern", "position", "word"),
    [
        ("a(?=b)", 1, "look-ahead"),
        ("a(?!b)", 1, "look-ahead"),
        ("(?<=a)b", 0, "look-behind"),
        (r"(a)\1", 3, "references back"),
        ("(?P<x>a)(?P=x)", 8, "references back"),
        ("ab(?>c)", 2, "atomic"),
        ("a++", 1, "possessive"),
        ("é(?!x)", 1, "look-ahead"),
        ("[z-a]", 1, "range"),
        ("ab{2,1}", 2, "repetition"),
        ("x{1001}", 1, "repetition"),
        ("a**", 1, "repetition"),
        ("*a", 0, "repetition"),
        ("(a", 2, "no closing parenthesis"),
        ("a)", None, "has no opening parenthesis"),
        ("a\\", 2, "trailing"),
        (r"\p{Nowhere}", 0, "range"),
        ("\ud800", 0, "surrogate"),
    ],
)
def test_compile_pattern_mistake_is_named_with_its_place(pattern: str, position: int | None, word: str) -> None:
    """The message says what is wrong, in words, and where."""
    with pytest.raises(InvalidPattern, match=word) as raised:
        compile_pattern(pattern)
    assert raised.value.position == position
    assert str(raised.value).encode()
    assert position is None or f"at character {position + 1}" in str(raised.value)


@pytest.mark.parametrize("pattern", ["a" * (LONGEST + 1), r"\pL{1000}", "(?:(?:a{30}){30}){30}", r"\pL{99}" * 8])
def test_compile_pattern_too_large_is_refused(pattern: str) -> None:
    """Long patterns, and short ones that are long once repetitions are written out."""
    with pytest.raises(InvalidPattern, match=r"at most|too large|repetition"):
        compile_pattern(pattern)


def test_search_pattern_that_explodes_elsewhere_ends() -> None:
    """`(a+)+$` on a long text takes other engines longer than the universe has; this returns."""
    assert not compile_pattern("^(a+)+$").search("a" * 20_000 + "b")
    assert not compile_pattern("(x+x+)+y").search("x" * 20_000)


def test_compile_pattern_same_text_is_compiled_once_and_the_cache_is_bounded() -> None:
    """Repeats cost nothing; many different ones push the oldest out."""
    assert compile_pattern("repeated") is compile_pattern("repeated")
    assert compile_pattern("repeated") is not compile_pattern("repeated", nocase=True)
    for number in range(CACHED + 10):
        compile_pattern(f"pattern {number}")
    assert compile_pattern.cache_info().currsize == CACHED


@pytest.mark.parametrize(
    ("one", "other"),
    [("HP", "hp"), ("Straße", "STRASSE"), ("é", "E\u0301"), ("Σίσυφος", "ΣΊΣΥΦΟΣ"), ("ﬁ", "FI"), ("", "")],
)
def test_fold_same_text_without_case_is_equal(one: str, other: str) -> None:
    """Full case folding over NFC."""
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    "text", ["HP 250", "Straße", "E\u0301", "ΐ", "İ", "\u1e9e", "\u0345", "ǰ", "\u1f80", "a\u0345\u0301"]
)
def test_fold_is_stable(text: str) -> None:
    """Folding what is folded changes nothing."""
    assert fold(fold(text)) == fold(text)


COSTLY = ".{0,900}z"
LONG_TEXT = "a" * 4_000
"""Together more steps than a search may have under a budget."""


@pytest.mark.parametrize(
    ("expression", "data", "wanted"),
    [
        (f'a matches "{COSTLY}"', {"a": LONG_TEXT}, None),
        (f'a matches "{COSTLY}"', {"a": LONG_TEXT + "z"}, None),
        (f'a matches "{COSTLY}"', {"a": "aaz"}, True),
        (f'not a matches "{COSTLY}"', {"a": LONG_TEXT}, None),
        (f'a matches "{COSTLY}" and b contains "x"', {"a": LONG_TEXT, "b": "y"}, False),
        (f'a matches "{COSTLY}" and b contains "x"', {"a": LONG_TEXT, "b": "x"}, None),
        (f'a matches "{COSTLY}" or b contains "x"', {"a": LONG_TEXT, "b": "x"}, True),
        (f'a matches "{COSTLY}" or b contains "x"', {"a": LONG_TEXT, "b": "y"}, None),
        (f'a matches "{COSTLY}"', {"b": LONG_TEXT}, False),
        (f'some a (b matches "{COSTLY}")', {"a": [{"b": LONG_TEXT}]}, None),
    ],
)
def test_costly_search_is_undecided_and_never_false(expression: str, data: dict[str, Any], wanted: bool | None) -> None:
    """Where it is left to another; what decides without it decides. Asked in the end, it says the same."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("s", expression)
    at_once = bool(matcher.match(data))
    canonical = matcher.canonicalise(data)
    opened = matcher.open_decision(canonical, within=SearchBudget(10.0))
    opened.settle({row: test.holds() for row, test in opened.costly.items()})
    assert bool(matcher.decided(opened.advance()).matches) == at_once
    matcher.defers = True
    decided = matcher.decide(data)
    assert [bool(decided.matches), bool(decided.undecided)] == [wanted is True, wanted is None]
    if wanted is not None:
        assert at_once is wanted


def test_costly_searches_of_one_event_share_a_budget() -> None:
    """Once its time is used up, even a small search is left to another."""
    budget = SearchBudget(0.0)
    with searching_within(budget), pytest.raises(TooCostlyNow):
        compile_pattern("a").search("a")
    assert compile_pattern("a").search("a")


def test_new_pattern_of_too_many_states_is_refused_and_an_old_one_still_opens() -> None:
    """Subscriptions that were accepted before the bound go on."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    with pytest.raises(InvalidSubscription, match="59,853 states"):
        matcher.add("s", r'a matches "\\pL{1,50}"')
    matcher.restore("s", {"matches": ["a", r"\pL{1,50}"]})
    assert matcher.match({"a": "é"})
