"""What the matcher tells of the index's work on one event: the right names, and counts that add up to the matches."""

from typing import Any

import pytest

from kindcast import Matcher, Vocabulary

SUBCLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
TREE = "".join(f"<http://example.org/K{n}> {SUBCLASS} <http://example.org/K{(n - 1) // 2}> .\n" for n in range(1, 31))


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    """4,000 subscriptions by kind and price in one cluster, prices alone in another, a few newer ones."""
    matcher = Matcher(Vocabulary.from_bytes(TREE.encode(), format="ntriples", name="tree"))
    by_kind = ((f"k{n}", f"kind isa <http://example.org/K{n % 31}> and price <= {n}") for n in range(4_000))
    by_price = ((f"p{n}", f"price >= {n}") for n in range(1_000))
    negated = ((f"n{n}", f"price >= {n} and kind missing") for n in range(10))
    matcher.add_many([*by_kind, *by_price, *negated])
    matcher.add("new", "price <= 700")
    return matcher


def test_index_steps_name_the_clusters_whose_attributes_fit(matcher: Matcher) -> None:
    """With both attributes two clusters, without a kind those that do not ask for it, one of which forbids it."""
    both = matcher.explain_index({"kind": "http://example.org/K30", "price": 600})
    assert [(each["requires"], each["clauses"]) for each in both["clusters"]] == [
        (["kind", "price"], 4_000),
        (["price"], 1_000),
    ]
    assert both["newest"] == {"clauses": 1, "asked": 1, "found": 1}
    price = matcher.explain_index({"price": 600})
    assert [(each["requires"], each["forbids"]) for each in price["clusters"]] == [
        (["price"], []),
        (["price"], ["kind"]),
    ]
    assert matcher.explain_index({"other": 1})["clusters"] == []


def test_index_steps_count_what_is_looked_at_left_and_found(matcher: Matcher) -> None:
    """By kind, the lists of the event's concept and of those above it that are narrow enough, and the block of those
    that are not; of each what the price leaves. By price alone, a range that needs no check."""
    event = {"kind": "http://example.org/K30", "price": 600}
    told = matcher.explain_index(event)
    assert told["clauses"]["found"] == len(matcher.match(event))
    kind, price = told["clusters"]
    rows = {k: range(k, 4_000, 31) for k in range(31)}
    block, *lists = kind["steps"]
    assert (block["by"], block["column"], block["clauses"]) == ("block", None, sum(len(rows[k]) for k in range(3)))
    assert [each["column"] for each in block["left"]] == ["price as number", "kind as concept"]
    for step in lists:
        assert (step["by"], step["column"]) == ("list", "kind as concept")
        assert [each["column"] for each in step["left"]] == ["price as number"]
    assert sum(step["clauses"] for step in lists) == sum(len(rows[k]) for k in (30, 14, 6))
    for step in kind["steps"]:
        left = [step["clauses"], *(each["clauses"] for each in step["left"])]
        assert left == sorted(left, reverse=True)
        assert left[-1] == step["checked"] >= step["found"] > 0
    matching = [n for k in (30, 14, 6, 2, 0) for n in rows[k] if n >= 600]
    assert sum(step["found"] for step in kind["steps"]) == len(matching)
    (step,) = price["steps"]
    assert (step["by"], step["clauses"], step["checked"], step["found"]) == ("range", 1_000, 0, 601)


def test_index_steps_of_many_clusters_tell_the_largest_and_how_many_more() -> None:
    """The answer stays readable; the totals count everything."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    attributes = [f"a{number}" for number in range(30)]
    matcher.add_many((f"s{n}.{k}", f"a{n} >= {k}") for n in range(30) for k in range(n + 10))
    told = matcher.explain_index(dict.fromkeys(attributes, 5))
    assert [each["requires"] for each in told["clusters"]] == [[f"a{n}"] for n in range(29, 9, -1)]
    assert told["not_shown"]["clusters"] == 10
    assert told["clauses"]["found"] == 30 * 6


def test_index_steps_of_an_engine_that_does_not_tell_are_empty() -> None:
    """Only the default engine tells."""
    matcher = Matcher(Vocabulary.from_ontologies([]), engine="naive")
    matcher.add("s", "a = 1")
    expected: dict[str, Any] = {}
    assert matcher.explain_index({"a": 1}) == expected
