"""The language against random expressions, texts and trees: what is printed is read again, and nothing crashes.

The strategies write expressions as a parser makes them: groups have two items or more, strings have no surrogate pair
in two halves (JSON and UTF-8 never bring one), numbers are finite and exact.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.language import parse_text, parse_tree, to_text, to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Expression,
    Instant,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Position,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    ValueConstraint,
    Variable,
)

# ── strings, names, numbers ─────────────────────────────────────────────────────────────────────────────────────────

KEYWORDS = [
    "and",
    "or",
    "not",
    "some",
    "true",
    "isa",
    "is",
    "in",
    "between",
    "missing",
    "contains",
    "matches",
    "nocase",
]
NASTY = ["", " ", '"', "'", "`", "\\", '\\"', "\\u0041", "\n", "\x00", "\x7f", "\ud800", "\udfff", "\u2028", "e\u0301"]
ODD = [
    "?",
    "?n",
    "@",
    "@a",
    "<",
    "<x>",
    "/",
    "()",
    "a.b",
    "a b",
    ".a",
    "a.",
    "-",
    "1",
    "1a",
    "²",
    "\ufeff",
    "Straße",
    "😀",
]


def _whole(text: str) -> str:
    """The text with halves of surrogate pairs that stand side by side joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


strings = st.one_of(
    st.sampled_from([*NASTY, *ODD, *KEYWORDS]),
    st.text(st.characters(), max_size=6),
    st.lists(st.sampled_from([*NASTY, *ODD]), max_size=4).map("".join),
).map(_whole)
words = st.sampled_from(
    ["a", "price", "größe", "a-b", "a.b", "a.@b", "@type", "x_1", "Is", "And", "andy", "in-stock", "タ"]
)
names = st.one_of(
    words,
    st.sampled_from([*KEYWORDS, "NOT", "ex:price", "ex:a.b", "a.ex:b", "ex:a.b.is:c", "@a.ex:b", "P:T1", "in:x"]),
    strings,
)
integers = st.one_of(st.integers(-20, 20), st.integers(-(2**53), 2**53), st.sampled_from([10**22, 2**70, -(2**1000)]))
numbers = st.one_of(integers, st.floats(allow_nan=False, allow_infinity=False))
units = st.one_of(
    st.sampled_from(["kg", "°C", "m/s", "µm", "%", "and", "OR", "e5", "€", "Ω", "http://qudt.org/KG"]), strings
)
quantities = st.builds(Quantity, numbers, units)
instants = st.sampled_from(
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31t12:00:00z",
        "2026-01-31T12:00:00",
        "1990-12-31T23:59:60.5Z",
        "2026-01-31T01:02:03+05:30",
    ]
).map(Instant)

# ── terms and operands ──────────────────────────────────────────────────────────────────────────────────────────────

iris = st.one_of(st.sampled_from(["http://example.org/A#b", "urn:x", "a b", "<>", "\\"]), strings.filter(bool)).map(
    lambda iri: Term(iri, is_iri=True)
)
curies = st.sampled_from(["brick:Sensor", "CL:0000084", "is:a", "e-x:a.b-c"]).map(Term)
terms = st.one_of(strings.map(Term), words.map(Term), curies, iris)
term_lists = st.lists(terms, min_size=1, max_size=3).map(tuple)
constants = st.one_of(strings, st.booleans(), numbers, quantities, instants, iris, curies).map(Constant)
attribute_refs = names.map(AttributeRef)
variables = st.sampled_from(["n", "_", "größe", "n1", "and"]).map(Variable)
sums: st.SearchStrategy[Any] = st.recursive(
    st.one_of(variables, st.one_of(numbers, quantities).map(Constant)),
    lambda inner: st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
    max_leaves=5,
)
orders: st.SearchStrategy[Any] = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def uses_variable(node: Any) -> bool:
    """Whether a sum has a variable, as every value constraint must."""
    if isinstance(node, Arithmetic):
        return uses_variable(node.left) or uses_variable(node.right)
    return isinstance(node, Variable)


# ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────────

predicates: st.SearchStrategy[Expression] = st.one_of(
    st.builds(KindTest, names, st.sampled_from(["isa", "below", "is"]), term_lists),
    st.builds(RelationTest, names, names, term_lists),
    st.builds(Comparison, names, orders, st.one_of(constants, attribute_refs)),
    st.builds(Membership, names, st.lists(constants, min_size=1, max_size=3).map(tuple)),
    st.builds(Between, names, constants, constants, st.sampled_from(["[]", "[)", "(]", "()"])),
    st.builds(Presence, names, st.booleans()),
    st.builds(
        TextTest, names, st.sampled_from(["startswith", "endswith", "contains", "matches"]), strings, st.booleans()
    ),
    st.builds(OperatorCall, words, st.lists(st.one_of(constants, attribute_refs, variables), max_size=3).map(tuple)),
    st.builds(ValueConstraint, sums, orders, sums).filter(
        lambda each: uses_variable(each.left) or uses_variable(each.right)
    ),
)


def _grouped(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    some = st.builds(SomeOf, names, inner)
    return st.one_of(st.builds(All, several), st.builds(AnyOf, several), st.builds(Not, inner), some)


expressions = st.recursive(st.one_of(predicates, predicates, predicates, st.just(All(()))), _grouped, max_leaves=6)

# ── what is printed is read again ───────────────────────────────────────────────────────────────────────────────────


@given(expressions)
def test_parse_text_of_what_to_text_printed_is_the_expression(expression: Expression) -> None:
    """The canonical text loses nothing."""
    assert parse_text(to_text(expression)) == expression


@given(expressions)
def test_to_text_any_expression_can_be_sent_as_utf8_on_one_line(expression: Expression) -> None:
    """Lone surrogates and control characters, in names too, are printed as escapes."""
    text = to_text(expression)
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x1f]", text)


@given(expressions)
def test_parse_tree_of_what_to_tree_printed_is_the_expression(expression: Expression) -> None:
    """The tree loses nothing, nor does JSON on the way."""
    tree = to_tree(expression)
    assert parse_tree(tree) == expression
    carried = json.loads(json.dumps(tree))
    assert carried == tree
    assert parse_tree(carried) == expression


# ── anything at all ─────────────────────────────────────────────────────────────────────────────────────────────────

PIECES = [
    *KEYWORDS,
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    "<=",
    "!=",
    "<",
    "+",
    "-",
    "*",
    "/",
    '"',
    "'",
    "`",
    "?n",
    "@a",
    "a",
    "ex:A",
]
MORE_PIECES = [
    "<http://x>",
    "1",
    "2.5e3",
    "kg",
    "2026-01-31T12:00:00Z",
    "/x/",
    "\n",
    "\\",
    "==",
    "&&",
    "≤",
    "~",
    "<>",
    ":",
    ".",
]


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """Canonical texts with a few pieces cut out, put in, or doubled."""
    text = to_text(draw(expressions))
    for _ in range(draw(st.integers(1, 3))):
        low = draw(st.integers(0, len(text)))
        high = min(len(text), low + draw(st.integers(0, 5)))
        put_in = draw(st.sampled_from(["", " ", *PIECES, *MORE_PIECES, text[low:high] * 2]))
        text = text[:low] + put_in + text[high:]
    return text


def outcome(parse: Callable[[Any], Expression], source: Any) -> tuple[Expression | None, list[Problem]]:
    """The expression, or the problems, of which there are some then."""
    try:
        return parse(source), []
    except InvalidSubscription as error:
        return None, error.problems or [Problem("none", "no problem was told")]


def stands_in(text: str, at: Position | None) -> bool:
    """Whether `at` is the place of a character of `text` (a line break ends its line), or its start."""
    if at is None or at.line is None or at.column is None or at.line < 1 or at.column < 1:
        return False
    lines = re.split(r"(?<=\n)", text)
    return (at.line, at.column) == (1, 1) or at.column <= len(lines[at.line - 1])


def check_text(text: str) -> None:
    """`text` is read, and printed and read again, or refused with places inside it."""
    expression, problems = outcome(parse_text, text)
    assert [each for each in problems if not each.detail or not stands_in(text, each.at)] == []
    if expression is not None:
        assert parse_text(to_text(expression)) == expression
        assert parse_tree(to_tree(expression)) == expression


@given(st.text(st.characters(), max_size=30).map(_whole))
@example("²")
@example("price ≤")
def test_parse_text_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    """Whatever people paste, the answer is an expression or a place."""
    check_text(text)


@given(st.lists(st.sampled_from([*PIECES, *MORE_PIECES]), max_size=12).map(" ".join))
def test_parse_text_any_row_of_tokens_is_read_or_refused_with_a_place(text: str) -> None:
    """Real words in a wrong order."""
    check_text(text)


@given(mutated_texts())
def test_parse_text_any_mutation_is_read_or_refused_with_a_place(text: str) -> None:
    """A slip of the hand in a sound text."""
    check_text(text)


KEYS = ["all", "any", "not", "some", "isa", "relation", "=", "<", "in", "between", "exists", "matches", "op", "+", "/"]
OTHER_KEYS = ["value", "unit", "instant", "iri", "term", "attribute", "", "x/y", "~"]
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), strings),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*KEYS, *OTHER_KEYS]), inner, max_size=2),
        st.dictionaries(st.sampled_from(KEYS), st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=1),
    ),
    max_leaves=12,
)


@st.composite
def mutated_trees(draw: st.DrawFn) -> Any:
    """Sound trees in which one value is something else."""
    tree = to_tree(draw(expressions))
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in inner:
            places.append((node, key))
            stack.append(value)
    node, key = draw(st.sampled_from(places))
    node[key] = draw(anything)
    return tree


def points_into(tree: Any, pointer: str) -> bool:
    """Whether an RFC 6901 pointer leads to a value of `tree`, or to a place missing in a list or object of it."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for number, part in enumerate(parts):
        if isinstance(tree, dict) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return isinstance(tree, dict | list) and number == len(parts) - 1
    return pointer == "" or pointer.startswith("/")


def check_tree(tree: Any) -> None:
    """`tree` is read, and printed and read again, or refused with pointers into it."""
    expression, problems = outcome(parse_tree, tree)
    pointers = [each.at.pointer if each.at else None for each in problems]
    assert [each for each in pointers if each is None or not points_into(tree, each)] == []
    if expression is not None:
        assert parse_tree(to_tree(expression)) == expression
        assert parse_text(to_text(expression)) == expression


@given(anything)
def test_parse_tree_any_json_is_read_or_refused_with_a_pointer(tree: Any) -> None:
    """Whatever programs send, the answer is an expression or pointers to what is wrong."""
    check_tree(tree)


@given(mutated_trees())
def test_parse_tree_any_mutation_is_read_or_refused_with_a_pointer(tree: Any) -> None:
    """One wrong value in a sound tree."""
    check_tree(tree)
