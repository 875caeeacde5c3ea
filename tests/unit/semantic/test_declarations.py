"""What is declared beside ontologies: checked by itself and together, kept and given back; tables as documents."""

from typing import Any

import pytest

from kindcast import Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.units.measure import read_rate_table
from kindcast.semantic.vocabulary.declarations import (
    DeclarationKind,
    Declarations,
    check_table,
    read_table,
    root_words,
)

OFFER = {"properties": {"price": {"type": "number", "x-kindcast-unit": "USD"}}}


def all_kinds() -> Declarations:
    declared = Declarations().extended("schema", "offer", OFFER).extended("attribute", "mass", {"unit": "kg"})
    declared = declared.extended("synonyms", "shop", {"Preis": "price"})
    return declared.extended("rates", "", {"EUR": {"USD": "1.25"}})


def test_declarations_make_the_vocabulary_they_describe() -> None:
    """Through `arguments`, and the same again from JSON."""
    declared = all_kinds()
    vocabulary = Vocabulary.from_ontologies([], **declared.arguments())
    price, mass = vocabulary.attributes.declaration("Preis"), vocabulary.attributes.declaration("mass")
    assert vocabulary.attributes.resolve("Preis") == "price"
    assert price is None  # `declaration` takes canonical names
    found = vocabulary.attributes.declaration("price")
    assert found is not None
    assert (found.kind, found.unit) == ("number", "USD")
    assert mass is not None
    assert mass.unit == "kg"
    assert vocabulary.units.measure(1, "EUR") == vocabulary.units.measure(1.25, "USD")
    assert Declarations.from_json(declared.to_json()) == declared
    assert bool(declared)
    assert not Declarations()


def test_declarations_without_one_are_checked_again() -> None:
    """Another may rest on it: a domain that is referred to."""
    declared = Declarations(schemas={"a": {"$defs": {"D": {}}}, "b": {"properties": {"x": {"$ref": "a#/$defs/D"}}}})
    with pytest.raises(InvalidDeclaration, match="event type 'b'"):
        declared.without("schema", "a")
    assert declared.without("schema", "b").schemas.keys() == {"a"}
    assert all_kinds().without("rates", "").rates == {}


@pytest.mark.parametrize(
    ("kind", "name", "body", "word"),
    [
        ("attribute", "price", {"unit": "EUR"}, "event type 'offer'"),
        ("attribute", "price", {"kind": "text"}, "event type 'offer'"),
        ("attribute", "x", {"unit": "kgg"}, "unknown unit"),
        ("attribute", "x", {"enum": ["a"], "order": [["a", "b"]]}, "not a member"),
        ("attribute", "x", {"values": "many"}, "unique or multiple"),
        ("attribute", "x", {"derived": "x + 1"}, "derived from each other"),
        ("attribute", "x", {"derived": "now"}, "uses no attribute"),
        ("attribute", "x", {"derived": "y + 1 kgg"}, "unknown unit"),
        ("attribute", "x", {"derived": 5}, "is a string"),
        ("attribute", "x", [], "JSON object"),
        ("attribute", "x", {"kind": "text", "unit": "kg"}, "unit is for numbers, but its kind is text"),
        ("attribute", "x", {"kind": "ip", "derived": "y + 1"}, "derived is for numbers, but its kind is ip"),
        ("attribute", "x", {"unit_from": "x"}, "unit_from must name another attribute"),
        ("attribute", "x", {"range": ["http://e/A", "Laptop"]}, "'Laptop' is not an IRI"),
        ("synonyms", "other", {"Preis": "cost"}, "'Preis' is 'cost' in the table 'other' and 'price' in 'shop'"),
        ("synonyms", "other", {"price": "Preis"}, "has a cycle"),
        ("rates", "", {"EUR": {"XXQ": 1}}, "not a currency"),
        ("schema", "bid", {"properties": {"price": {"type": "string"}}}, "another domain"),
        ("schema", "offer", {"properties": {}}, "rule 3"),
        ("schema", "bid", {"properties": {"mass": {"type": "number", "x-kindcast-unit": "g"}}}, "attribute 'mass'"),
        ("unit", "x", {}, "no kind of declaration 'unit'"),
    ],
)
def test_declaration_that_makes_no_sense_with_the_others_is_refused(kind: Any, name: str, body: Any, word: str) -> None:
    """The error names both sides, and nothing changes."""
    declared = all_kinds()
    with pytest.raises(InvalidDeclaration, match=word):
        declared.extended(kind, name, body)
    assert declared == all_kinds()


def test_declarations_checked_collect_every_problem() -> None:
    """Of every kind, in one go."""
    declared = Declarations(
        attributes={"a": {"kind": "wrong"}, "b": {"unknown": 1}},
        synonyms={"t": {"x": "y", "y": "x"}},
        rates={"EUR": {"USD": "-1"}},
        schemas={"s": {"oneOf": []}},
    )
    with pytest.raises(InvalidDeclaration) as caught:
        declared.checked()
    told = " ".join(problem.detail for problem in caught.value.problems)
    for word in ("kind is one of", "unknown", "has a cycle", "positive decimal", "oneOf"):
        assert word in told


def test_schema_replaced_by_an_administrator_may_change_at_will() -> None:
    """The four rules bind publishers."""
    kind: DeclarationKind = "schema"
    replaced = all_kinds().extended(kind, "offer", {"properties": {"price": {"type": "string"}}}, replace_schema=True)
    assert replaced.schemas["offer"]["properties"]["price"] == {"type": "string"}


def test_schema_changed_domain_that_another_type_refers_to_is_refused() -> None:
    """The type itself does not use it; the other one does."""
    declared = Declarations(
        schemas={
            "a": {"$defs": {"D": {"enum": ["x"]}}},
            "b": {"properties": {"m": {"$ref": "a#/$defs/D"}}},
        }
    )
    with pytest.raises(InvalidDeclaration, match="attribute m of b has another domain"):
        declared.extended("schema", "a", {"$defs": {"D": {"enum": ["x", "y"]}}})


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_table_of_synonyms_reads_the_same_as_json_and_csv() -> None:
    """Headings, empty lines, quotes, a byte order mark and decomposed letters are no matter."""
    csv_table = read_table('\ufeffword,root\r\nPC, computer\r\n\r\n"Cafe\u0301",coffee\r\n'.encode())
    assert check_table({"PC": "computer", "Café": "coffee"}) == csv_table == {"PC": "computer", "Café": "coffee"}


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (b"a,b\nc\nd,e,f\n,g\n", ["line 2, column 1", "line 3, column 1", "line 4, column 1"]),
        (b"a,b\na,c\n", ["line 2, column 1"]),
        (b'a,b\nc,"d\n', ["line 2, column 1"]),
        (b"a,b\nc,\xff\n", ["line 2, column 1"]),
        ({"a": 1, "b": "", "c/d": None}, ["/a", "/b", "/c~1d"]),
    ],
)
def test_table_of_synonyms_tells_every_bad_line(data: bytes | dict[str, Any], places: list[str]) -> None:
    """Where it stands, in the document that was sent."""
    with pytest.raises(InvalidDeclaration) as caught:
        read_table(data) if isinstance(data, bytes) else check_table(data)
    assert [str(problem.at) for problem in caught.value.problems] == places


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"a,\xff", "not UTF-8"),
        (b"a,b\nb,a", "has a cycle"),
        (b" " * ((16 << 20) + 1), "at most"),
        (b"\n".join(b"w%d,r" % number for number in range(200_002)), "at most"),
    ],
)
def test_table_of_synonyms_that_is_none_is_refused(data: bytes, word: str) -> None:
    """In bounded time, with what was expected."""
    with pytest.raises(InvalidDeclaration, match=word):
        read_table(data)


def test_table_of_synonyms_in_json_is_as_large_as_one_in_csv() -> None:
    """Both are kept in memory."""
    with pytest.raises(InvalidDeclaration, match="at most 200,000 words"):
        check_table(dict.fromkeys(map(str, range(200_001)), "r"))


def test_table_of_rates_keeps_the_decimals_that_were_written() -> None:
    """1.10 is not the double nearest to it."""
    expected = {"EUR": {"USD": "1.10", "GBP": "0.85"}}
    assert read_rate_table(b"base,currency,rate\nEUR,USD,1.10\nEUR,GBP,0.85\n") == expected


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (b"EUR,USD\nEUR,XXQ,1\nEUR,USD,-1\n", ["line 1, column 1", "line 2, column 1", "line 3, column 1"]),
        (b"EUR,USD,1\n\xff", ["line 2, column 1"]),
        (b'"EUR', ["line 1, column 1"]),
    ],
)
def test_table_of_rates_tells_every_bad_line(data: bytes, places: list[str]) -> None:
    """As the table of synonyms does."""
    with pytest.raises(InvalidDeclaration) as caught:
        read_rate_table(data)
    assert [str(problem.at) for problem in caught.value.problems] == places


@pytest.mark.parametrize("data", [b"EUR,USD,1\nUSD,EUR,2\n", b" " * (1 << 21)])
def test_table_of_rates_that_makes_no_sense_is_refused(data: bytes) -> None:
    """Contradictions, too much."""
    with pytest.raises(InvalidDeclaration):
        read_rate_table(data)


def test_long_chain_of_synonyms_costs_linear_time() -> None:
    """Following the whole chain from each word would be noticed, for it takes many minutes."""
    table = {f"w{number}": f"w{number + 1}" for number in range(100_000)}
    assert set(root_words(table).values()) == {"w100000"}
