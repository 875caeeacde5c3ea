"""Trees of texts that differ in constants only: what `TextShapes` gives is what the parser gives for each."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kindcast.semantic import InvalidSubscription, Vocabulary
from kindcast.semantic.language import parse_text, to_text, to_tree
from kindcast.semantic.language.text import FilledTree, TextShapes
from kindcast.semantic.subscriptions.templates import Templates
from tests.strategies import expressions

_PIECES = (
    *("price", "size", "a", "b", "ce.type", "schema:price", "`odd 5`", "`it's`", "@id", "?n", "count(a)", "every a"),
    *("and", "or", "not", "isa", "is", "below", "=", "<", ">=", "!=", "in", "between", "exists", "contains", "matches"),
    *("startswith", "nocase", "some", "(", ")", "[", "]", ",", "+", "-", "*", "/", "true", "near(", "@size", "§"),
    *('"x"', "'x'", "\"say 'x' 5\"", "'say \"x\" 5'", '"?x"', '"@x"', '"a/b"', '""', '"5"', r'"\"5"', '"2026-01-01"'),
    *(
        "5",
        "-5",
        "5.5",
        "-0.0",
        "5e3",
        "5kg",
        "5 kg",
        '5 "kg"',
        "5 10*3",
        "5 {5}",
        "5 m/s",
        "5%",
        "1234567890123456789",
    ),
    *("2026-01", "2026-01-01", "2026-01-01T00:00:00Z", "P5D", "-PT5M", "10.0.0.0/8", "::1/64", "/a 5/", '/a"5"/'),
    *("<urn:a,5>", "<urn:5>", "ex:5", "A5", "é5", "°5", "#", "\x00s", "\x00w"),
)
_VALUES = ("0", "5", "12", "12345", "007", "x", "y z", "kg", "m", "?n", "@a", "/", "é", "2026-01-01", "and")
_CONSTANT = re.compile(r'"[^"]*"|[0-9]+')


@st.composite
def alike(draw: st.DrawFn) -> list[str]:
    """A text, sound or not, and the same with other strings and digits."""
    if draw(st.booleans()):
        text = to_text(draw(expressions()))
    else:
        text = " ".join(draw(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=12)))
        text = draw(st.sampled_from([text, text.replace(" ", "")]))

    def other(match: re.Match[str]) -> str:
        return (
            match[0][0] + draw(st.sampled_from(_VALUES)) + match[0][0]
            if match[0][0] == '"'
            else str(draw(st.sampled_from([0, 5, 12, 2026, 2**53 + 1])))
        )

    return [text, text, *(_CONSTANT.sub(other, text) for _ in range(4))]


@given(alike())
@example(
    ['a = "x" and b = 5', 'a = "x" and b = 5', 'a = "y" and b = 7', "a = 'z' and b = -7", "a = \x00s and b = \x00w"]
)
@example(["a = 5", "a = 6", "a = #", "a = \x00w", "a = 7.0", "a = 9007199254740993", "a = 12345678901234567890"])
@example(['a matches "x"', 'a matches "y"', 'a contains "?x"', 'a contains "x"', 'a contains "y"'])
def test_texts_of_one_shape_are_read_as_the_parser_reads_each(texts: list[str]) -> None:
    shapes = TextShapes()
    for text in texts:
        assert outcome(shapes.tree, text) == outcome(lambda each: to_tree(parse_text(each)), text), text


@given(alike())
@example([f'a = "{"x" * size}" and b <= 5' for size in (3, 3, 3, 1_000, 1_001)])
@example([f"b <= {number} and a in ({number}, 7)" for number in (1, 2, 7, 0, 7)])
def test_a_filled_skeleton_has_the_shape_of_its_whole_tree(texts: list[str]) -> None:
    shapes = TextShapes()
    templates = Templates(Vocabulary.from_ontologies([]), {}, stored=False)
    for text in texts:
        try:
            tree = shapes.tree(text)
        except InvalidSubscription:
            continue
        of_filled: list[Any] = []
        of_whole: list[Any] = []
        assert templates.key(tree, of_filled) == templates.key(whole(tree), of_whole), text
        assert repr(of_filled) == repr(of_whole), text


def test_the_third_text_of_a_shape_is_not_parsed(monkeypatch: Any) -> None:
    shapes = TextShapes()
    for price in (1, 2):
        shapes.tree(f'article = "A{price}" and (price <= {price} EUR or size in ({price}.5, -{price}))')
    monkeypatch.setattr("kindcast.semantic.language.text.parse_text", None)
    tree = whole(shapes.tree('article = "B" and (price <= 30 EUR or size in (0.25, -4))'))
    price = {"<=": ["price", {"value": 30, "unit": "EUR"}]}
    assert tree == {"all": [{"=": ["article", "B"]}, {"any": [price, {"in": ["size", [0.25, -4]]}]}]}


def outcome(read: Any, text: str) -> tuple[str, str]:
    """The tree, with the types of its values; or what is wrong."""
    try:
        return "tree", repr(whole(read(text)))
    except InvalidSubscription as error:
        return "error", repr([(each.code, each.detail, each.at) for each in error.problems])


def whole(tree: Any) -> Any:
    return tree.whole() if isinstance(tree, FilledTree) else tree
