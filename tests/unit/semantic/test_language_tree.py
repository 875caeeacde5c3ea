"""The tree form: what may be left out, where nodes stand, and every mistake with its pointer. The constructs themselves
stand beside their texts in test_language_text.py."""

from typing import Any

import pytest

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.language import parse, parse_text, parse_tree, to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    Comparison,
    Constant,
    KindTest,
    Not,
    OperatorCall,
    Position,
    Presence,
    Term,
)


def problems_of(tree: object) -> list[Problem]:
    """The problems of a tree that is refused."""
    with pytest.raises(InvalidSubscription) as caught:
        parse_tree(tree)
    return caught.value.problems


# ── forms that have no text of their own ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"all": [{"exists": "a"}]}, "a exists"),
        ({"any": [{"exists": "a"}]}, "a exists"),
        ({"exists": ["a"]}, "a exists"),
        ({"exists": {"attribute": "?n"}}, "`?n` exists"),
        ({"between": ["a", [0, 4]]}, "a between [0, 4]"),
        ({"isa": ["a", ["Laptop"]]}, "a isa Laptop"),
        ({"=": [{"attribute": "a"}, {"value": "red"}]}, 'a = "red"'),
        ({"=": ["a", {"value": True}]}, "a = true"),
        ({"=": ["a", "ex:B"]}, 'a = "ex:B"'),
        ({"in": ["a", ["?n", "@x"]]}, 'a in ("?n", "@x")'),
        ({"op": ["near", "@area", {"value": "@area"}]}, 'near(@area, "@area")'),
        ({"<": ["?n", {"*": [2, {"+": ["?m", {"value": 1, "unit": "kg"}]}]}]}, "?n < 2 * (?m + 1 kg)"),
        ({"all": ({"exists": "a"}, {"missing": ("b",)})}, "a exists and b missing"),
    ],
)
def test_parse_tree_other_ways_to_write_it_mean_the_text(tree: Any, text: str) -> None:
    """What a program may write differently than `to_tree` does."""
    assert parse_tree(tree) == parse_text(text)


def test_parse_mapping_is_read_as_tree() -> None:
    """`parse` takes either form."""
    assert parse({"exists": "a"}) == parse("a exists") == Presence("a", True)


def test_parse_tree_truth_is_not_one() -> None:
    """JSON tells `true` from 1, and so do we."""
    assert parse_tree({"=": ["a", True]}) != parse_tree({"=": ["a", 1]})


def test_parse_tree_nodes_know_where_they_stand() -> None:
    """Pointers of RFC 6901, escaped where a key has a slash."""
    expression = parse_tree({"any": [{"isa": ["a", ["B", {"iri": "urn:c"}]]}, {"not": {"<=": ["d", 4]}}]})
    assert isinstance(expression, AnyOf)
    kind, negated = expression.items
    assert isinstance(kind, KindTest)
    assert isinstance(negated, Not)
    assert isinstance(negated.item, Comparison)
    nodes = [expression, kind, *kind.terms, negated, negated.item, negated.item.operand]
    places = [
        "/any",
        "/any/0/isa",
        "/any/0/isa/1/0",
        "/any/0/isa/1/1",
        "/any/1/not",
        "/any/1/not/<=",
        "/any/1/not/<=/1",
    ]
    assert [node.at for node in nodes] == [Position(pointer=place) for place in places]


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────────────────────────

TERM = 'a concept is a string (label, short form, CURIE) or {"iri": "…"}'
VALUE = "a value is a string, a number, true, false"
MISTAKES: list[tuple[Any, str, str, str]] = [
    (None, "syntax", "", "an expression is an object such as"),
    ([{"exists": "a"}], "syntax", "", "an expression is an object such as"),
    ("a exists", "syntax", "", "an expression is an object such as"),
    ({}, "syntax", "", "exactly one key, but this one has 0"),
    ({"=": ["a", 1], "exists": "b"}, "syntax", "", "this one has 2: join several expressions with all or any"),
    ({"all": [{"exists": "a"}, 5]}, "syntax", "/all/1", "an expression is an object such as"),
    ({"all": {"exists": "a"}}, "syntax", "/all", "all takes a list of expressions"),
    ({"any": []}, "syntax", "/any", "any needs at least one expression"),
    ({"not": []}, "syntax", "/not", "an expression is an object such as"),
    ({"some": ["a"]}, "syntax", "/some", "some takes"),
    ({"some": [1, {"exists": "b"}]}, "syntax", "/some/0", "the name of an attribute is expected: a string"),
    ({"isa": "a"}, "syntax", "/isa", "isa takes"),
    ({"isa": ["a", []]}, "syntax", "/isa/1", "at least one value"),
    ({"isa": ["a", ["B", 5]]}, "syntax", "/isa/1/1", TERM),
    ({"is": ["a", {"iri": 5}]}, "syntax", "/is/1", TERM),
    ({"is": ["a", {"iri": ""}]}, "syntax", "/is/1", "an IRI must not be empty"),
    ({"relation": ["a", "part_of"]}, "syntax", "/relation", "relation takes"),
    ({"relation": ["a", 5, "B"]}, "syntax", "/relation/1", "the name of an attribute"),
    ({"<": ["a"]}, "syntax", "/<", '< takes ["price", 400]'),
    ({"<": ["a", None]}, "syntax", "/</1", VALUE),
    ({"<": ["a", [1]]}, "syntax", "/</1", VALUE),
    ({"<": ["a", {"value": 5}]}, "syntax", "/</1", VALUE),
    ({"<": ["a", {"value": True, "unit": "kg"}]}, "syntax", "/</1", VALUE),
    ({"=": ["a", {"term": "red"}]}, "syntax", "/=/1", "'red' is not a CURIE such as brick:Sensor"),
    ({"=": ["a", "?n"]}, "syntax", "/=/1", 'write such a string as {"value": "?n"}'),
    ({"<": [1, 2]}, "syntax", "/<", "a comparison starts with the name of an attribute"),
    ({"<": ["?n", "red"]}, "syntax", "/</1", "beside a variable only numbers, quantities and variables are allowed"),
    ({"<": ["?n", True]}, "syntax", "/</1", "beside a variable only numbers"),
    ({"<": ["?1", 5]}, "syntax", "/</0", "'?1' is not a variable such as \"?n\""),
    ({"<": ["?n", {"/": [1]}]}, "syntax", "/</1", "/ takes"),
    ({"<": ["?n", {"/": [1, "x"]}]}, "syntax", "/</1/~1/1", "beside a variable only numbers"),
    ({"in": ["a", 5]}, "syntax", "/in/1", "a list with at least one value"),
    ({"in": ["a", [{"attribute": "b"}]]}, "syntax", "/in/1/0", VALUE),
    ({"between": ["a", 0, 4]}, "syntax", "/between", 'between takes ["price", [0, 400], "[)"]'),
    ({"between": ["a", [0, 4], "[["]}, "syntax", "/between/2", "write the ends as one of [] [) (] ()"),
    ({"exists": 5}, "syntax", "/exists", "the name of an attribute"),
    ({"contains": ["a", 5]}, "syntax", "/contains", 'contains takes ["name", "HP"] or ["name", "HP", "nocase"]'),
    ({"matches": ["a", "x", "i"]}, "syntax", "/matches", "matches takes"),
    ({"op": []}, "syntax", "/op", 'op takes ["locIn", "Bronx", "@area", "?n"]'),
    ({"op": ["loc in"]}, "syntax", "/op/0", "'loc in' is not the name of an operator"),
    ({"op": ["NOT", 1]}, "syntax", "/op/0", "'NOT' is not the name of an operator"),
    ({"op": ["near", "?"]}, "syntax", "/op/1", "'?' is not a variable"),
    ({"=": ["a", float("nan")]}, "bad-number", "/=/1", "a number must be finite"),
    ({"=": ["a", float("-inf")]}, "bad-number", "/=/1", "a number must be finite"),
    ({"=": ["a", 10**400]}, "bad-number", "/=/1", "not exactly representable as a double"),
    ({"=": ["a", {"value": 2**53 + 1, "unit": "kg"}]}, "bad-number", "/=/1", "not exactly representable as a double"),
    ({"=": ["a", {"instant": "2026-02-30T00:00:00Z"}]}, "bad-date-time", "/=/1", "is neither a date-time of RFC 3339"),
    ({"=": ["a", {"instant": "2026-01-31 12:00:00Z"}]}, "bad-date-time", "/=/1", "is neither a date-time of RFC 3339"),
    ({"in": ["a", [1] * 1001]}, "too-many", "/in/1", "1,001 values; at most 1,000 are allowed"),
    ({"isa": ["a", ["B"] * 1001]}, "too-many", "/isa/1", "1,001 values; at most 1,000 are allowed"),
    ({"op": ["near", *[1] * 1001]}, "too-many", "/op", "1,001 arguments; at most 1,000 are allowed"),
    ({"any": [{"=": ["a", 1]}] * 5_001}, "too-long", "", "more than 10,000 predicates, operands and terms"),
    ({"any": [1] * 50_000}, "too-long", "", "at most 50,000 values"),
    ({"=": ["a", "x" * 4_194_304]}, "too-long", "", "4,194,304 characters"),
]


@pytest.mark.parametrize(
    ("tree", "code", "pointer", "detail"), MISTAKES, ids=[f"{str(tree)[:40]}" for tree, *_ in MISTAKES]
)
def test_parse_tree_mistake_is_told_with_its_pointer(tree: Any, code: str, pointer: str, detail: str) -> None:
    """The code, where, and what to write instead."""
    (problem,) = problems_of(tree)
    assert (problem.code, problem.at) == (code, Position(pointer=pointer))
    assert detail in problem.detail


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("equals", None),
        ("and", "all"),
        ("||", "any"),
        ("==", "="),
        ("ISA", "isa"),
        ("=>", ">="),
        ("exist", "exists"),
        ("betwen", "between"),
    ],
)
def test_parse_tree_unknown_operator_has_the_nearest_one(key: str, near: str | None) -> None:
    """The known ones are told in any case."""
    (problem,) = problems_of({"all": [{key: ["a", 1]}]})
    assert (problem.code, problem.at) == ("unknown-operator", Position(pointer="/all/0"))
    assert problem.detail.startswith(f"'{key}' is not an operator; known are all any not some every isa below is")
    if near is not None:
        assert near in [each["label"] for each in problem.suggestions]


def test_parse_tree_all_problems_are_told_at_once() -> None:
    """Nobody has to send a form five times to learn of five mistakes."""
    tree = {
        "any": [
            {"isa": ["target", 5]},
            {"all": [{"<=": ["price", None]}, {"equals": 1}]},
            {"not": {"between": ["a", [0, 10**400], "||"]}},
            {"exists": "fine"},
        ]
    }
    assert [(problem.code, problem.at and problem.at.pointer) for problem in problems_of(tree)] == [
        ("syntax", "/any/0/isa/1"),
        ("syntax", "/any/1/all/0/<=/1"),
        ("unknown-operator", "/any/1/all/1"),
        ("syntax", "/any/2/not/between/2"),
        ("bad-number", "/any/2/not/between/1/1"),
    ]


def test_parse_tree_thousands_of_problems_are_cut_at_a_hundred() -> None:
    """A reply stays readable, and a hostile tree cheap."""
    assert len(problems_of({"all": [{"isaa": 1}] * 10_000})) == 100


def test_parse_tree_long_names_are_shortened_in_what_is_told() -> None:
    """An echo of a megabyte helps nobody."""
    (problem,) = problems_of({"x" * 100_000: 1})
    assert len(problem.detail) < 300


@pytest.mark.parametrize("key", ["not", "all", "+"])
def test_parse_tree_100_000_levels_are_refused_without_recursion(key: str) -> None:
    """Depth is measured before anything recurses."""
    tree: Any = {"exists": "a"}
    for _ in range(100_000):
        tree = {key: tree} if key == "not" else {key: [tree]}
    (problem,) = problems_of(tree)
    assert (problem.code, problem.at) == ("too-deep", Position(pointer=""))


def test_parse_tree_expression_deeper_than_a_text_may_be_is_refused() -> None:
    """The bound is on expressions, the same for both forms, not on JSON."""
    tree: Any = {"exists": "a"}
    for _ in range(63):
        tree = {"not": tree}
    assert to_tree(parse_tree(tree)) == tree
    (problem,) = problems_of({"not": tree})
    assert problem.code == "too-deep"
    assert problem.at == Position(pointer="/not" * 64 + "/exists")


def test_parse_tree_thousand_arguments_are_read() -> None:
    """The name of the operator does not count."""
    assert parse_tree({"op": ["near", *[1] * 1000]}) == OperatorCall("near", (Constant(1),) * 1000)


def test_parse_tree_does_not_change_what_it_was_given() -> None:
    """A tree is the caller's."""
    tree = {"all": [{"isa": ["a", ["B"]]}]}
    assert parse_tree(tree) == KindTest("a", "isa", (Term("B"),))
    assert tree == {"all": [{"isa": ["a", ["B"]]}]}
    assert parse_tree({"all": []}) == All(())
