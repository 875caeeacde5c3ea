"""CloudEvents filters mean in our language what the specification says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import Event, InvalidSubscription, Matcher, Vocabulary
from kindcast.server.cloudevents import SEMANTIC_DIALECT, filters_to_tree

EMPTY = Vocabulary.from_ontologies([])

NAMES = ("type", "source", "subject", "level")
VALUES = ("a", "ab", "abc", "b", "5", "true", "5x")
TESTS = st.builds(
    lambda dialect, name, value: {dialect: {name: value}},
    st.sampled_from(("exact", "prefix", "suffix")),
    st.sampled_from(NAMES),
    st.sampled_from(VALUES),
)
FILTERS = st.recursive(
    TESTS,
    lambda inner: (
        st.builds(
            lambda group, items: {group: items},
            st.sampled_from(("all", "any")),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda item: {"not": item}, inner)
    ),
    max_leaves=6,
)
CONTEXTS = st.fixed_dictionaries(
    {"type": st.sampled_from(VALUES), "source": st.sampled_from(VALUES)},
    optional={"subject": st.sampled_from(VALUES), "level": st.sampled_from((5, True, "5", "true", "a"))},
)


def holds(item: dict[str, Any], context: dict[str, Any]) -> bool:
    """The dialects as the specification defines them, on the canonical text of a value; but values that are no texts
    have no prefixes and suffixes."""
    dialect, value = next(iter(item.items()))
    match dialect:
        case "all":
            return all(holds(each, context) for each in value)
        case "any":
            return any(holds(each, context) for each in value)
        case "not":
            return not holds(value, context)
    for name, wanted in value.items():
        if name not in context:
            return False
        found = context[name]
        text = str(found).lower() if isinstance(found, bool) else str(found)
        if dialect == "exact" and text != wanted:
            return False
        if dialect == "prefix" and not (isinstance(found, str) and text.startswith(wanted)):
            return False
        if dialect == "suffix" and not (isinstance(found, str) and text.endswith(wanted)):
            return False
    return True


@given(st.lists(FILTERS, max_size=3), CONTEXTS)
def test_filters_any_nesting_matches_as_the_specification_says(filters: list[Any], context: dict[str, Any]) -> None:
    """Whatever the nesting of all, any and not, and whatever is absent, both definitions agree."""
    matcher = Matcher(EMPTY, engine="naive")
    matcher.add("s", filters_to_tree(filters))
    got = bool(matcher.match(Event({}, context)))
    assert got == all(holds(each, context) for each in filters)


def test_filters_not_of_an_absent_attribute_holds() -> None:
    """Plain negation: unlike ours, the dialects' `not` holds where there is no attribute."""
    matcher = Matcher(EMPTY, engine="naive")
    matcher.add("s", filters_to_tree([{"not": {"exact": {"subject": "x"}}}]))
    assert matcher.match(Event({}, {"type": "t"}))


def test_filters_exact_on_a_text_that_looks_like_a_variable() -> None:
    """A text that begins with a question mark, such as a relative reference, is compared like any other."""
    matcher = Matcher(EMPTY)
    matcher.add("s", filters_to_tree([{"exact": {"source": "?n"}}, {"not": {"exact": {"subject": "?n"}}}]))
    assert matcher.match(Event({}, {"type": "t", "source": "?n"}))
    assert not matcher.match(Event({}, {"type": "t", "source": "?n", "subject": "?n"}))


def test_filters_exact_on_a_number_as_text_gives_publishers_no_note() -> None:
    """The filter matches the text, so the publisher need not change it. Our own language does not."""
    event = Event({}, {"type": "t", "myext": "5"})
    matcher = Matcher(EMPTY)
    matcher.add("s", filters_to_tree([{"exact": {"myext": "5"}}]))
    assert matcher.match(event)
    assert not matcher.notes(event)
    matcher = Matcher(EMPTY)
    matcher.add("s", "ce.myext = 5")
    assert [note.code for note in matcher.notes(event)] == ["numeric-text"]


@pytest.mark.parametrize("dialect", ["semantic", SEMANTIC_DIALECT])
@pytest.mark.parametrize("value", ["price <= 400", {"<=": ["price", 400]}])
def test_filters_our_dialect_takes_text_and_tree(dialect: str, value: Any) -> None:
    """The subscription language is a dialect beside the required six, mixed with them at will."""
    matcher = Matcher(EMPTY, engine="naive")
    matcher.add("s", filters_to_tree([{dialect: value}, {"exact": {"type": "offer"}}]))
    assert matcher.match(Event({"price": 350}, {"type": "offer"}))
    assert not matcher.match(Event({"price": 350}, {"type": "demand"}))
    assert not matcher.match(Event({"price": 450}, {"type": "offer"}))


def test_filters_problem_in_our_dialect_keeps_its_place() -> None:
    """A syntax error inside a text says where in the request and where in the text."""
    with pytest.raises(InvalidSubscription) as error:
        filters_to_tree([{"exact": {"type": "t"}}, {"semantic": "price <="}])
    (problem,) = error.value.problems
    assert problem.at is not None
    assert problem.at.pointer == "/filters/1/semantic"
    assert "line 1" in problem.detail


@pytest.mark.parametrize(
    ("filters", "pointers"),
    [
        ({}, ["/filters"]),
        ([1, {}], ["/filters/0", "/filters/1"]),
        ([{"exact": {"a": "1"}, "prefix": {"a": "1"}}], ["/filters/0"]),
        (
            [{"exact": {}}, {"exact": {"type": ""}}, {"exact": {"Type": "x"}}],
            ["/filters/0/exact", "/filters/1/exact/type", "/filters/2/exact"],
        ),
        ([{"exact": {"data": "x"}}, {"not": {"prefix": {"data": "x"}}}], ["/filters/0/exact", "/filters/1/not/prefix"]),
        ([{"any": []}], ["/filters/0/any"]),
        ([{"sql": "1 = 1"}], ["/filters/0/sql"]),
        ([{"all": [{"regex": "x"}]}], ["/filters/0/all/0/regex"]),
        ([{"semantic": 5}], ["/filters/0/semantic"]),
    ],
)
def test_filters_malformed_are_refused_with_every_place(filters: Any, pointers: list[str]) -> None:
    """Unknown dialects and malformed filters are refused, each with its pointer."""
    with pytest.raises(InvalidSubscription) as error:
        filters_to_tree(filters)
    assert [problem.at.pointer for problem in error.value.problems if problem.at] == pointers


def test_filters_nested_without_end_are_refused() -> None:
    """Nesting is bounded here already, before the tree is walked again."""
    filters: Any = {"exact": {"type": "t"}}
    for _ in range(200):
        filters = {"not": filters}
    with pytest.raises(InvalidSubscription, match="nested"):
        filters_to_tree([filters])
