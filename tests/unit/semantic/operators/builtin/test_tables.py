"""Look-up in uploaded tables."""

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.builtin import LONGEST_CELL, Table, tables
from kindcast.semantic.operators.calls import MOST_BINDINGS
from tests.unit.semantic.operators.builtin.asking import bindings, holds, refused

SUPPLIERS = Table.from_csv("suppliers", 'name,country,grade\nAcme,AT,1\nAcme,DE,2.5\n"Müller, Söhne",CH,x\n7,US,3\n')
BLOCKED = Table.from_csv("blocked", b"\xef\xbb\xbfaddress\n10.0.0.1\n")
OPERATORS = tables([SUPPLIERS, BLOCKED])


def test_look_up_binds_the_other_columns_a_binding_a_row() -> None:
    """Cells that read as numbers are numbers."""
    asked = 'lookUp("suppliers", @who, ?country, ?grade)'
    assert bindings(OPERATORS, asked, who="Acme") == [("AT", 1), ("DE", 2.5)]
    assert bindings(OPERATORS, asked + " and ?grade > 2", who="Acme") == [("DE", 2.5)]
    assert bindings(OPERATORS, asked, who=["Mu\u0308ller, So\u0308hne", "?"]) == [("CH", "x")]
    assert bindings(OPERATORS, asked, who=7.0) == [("US", 3)]
    assert not holds(OPERATORS, asked, who=True)
    assert not holds(OPERATORS, asked, who="acme")


def test_in_table_asks_for_the_key_alone() -> None:
    """A table of one column is a list."""
    assert holds(OPERATORS, 'inTable("blocked", @ip)', ip="10.0.0.1")
    assert holds(OPERATORS, 'not inTable("blocked", @ip)', ip="10.0.0.2")


def test_keys_that_are_numbers_are_found_by_numbers_and_by_their_texts() -> None:
    """Postcodes are often texts. A key that begins with 0 is a text itself."""
    known = tables([Table.from_csv("zips", "zip,city\n10115,Berlin\n01067,Dresden\n2.50,None\n")])
    for found in ("10115", 10115, 10115.0, "01067", "2.50", "2.5", 2.5):
        assert holds(known, 'inTable("zips", @zip)', zip=found), found
    for other in ("1067", 1067, "10115 ", "010115", True, "x"):
        assert not holds(known, 'inTable("zips", @zip)', zip=other), other
    assert bindings(known, 'lookUp("zips", @zip, ?city)', zip="10115") == [("Berlin",)]


def test_long_numbers_are_found_by_numbers_and_by_their_texts() -> None:
    """Numbers of orders and cards often have 16 digits."""
    known = tables([Table.from_csv("cards", "card\n4111111111111111\n00411111111111112\n")])
    for found in (4111111111111111, 4111111111111111.0, "4111111111111111", "00411111111111112"):
        assert holds(known, 'inTable("cards", @card)', card=found), found
    for other in (411111111111112, 4111111111111110, 4111111111111111.5, 1e300, True):
        assert not holds(known, 'inTable("cards", @card)', card=other), other


def test_tables_unknown_name_and_wrong_variables_are_refused_when_subscribing() -> None:
    """The error names what there is."""
    assert (
        refused(OPERATORS, 'inTable("nope", @a)') == "inTable: there is no table 'nope'; known are blocked, suppliers"
    )
    assert "binds 2 variables (country, grade), or none; the call has 1" in refused(
        OPERATORS, 'lookUp("suppliers", @a, ?x)'
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "names the columns"),
        (b"a,a\n", "names the columns, each once"),
        (b'{"a": 1}', "a table is CSV with a line of column names; this looks like JSON"),
        (b"a,b\n1\n", "line 2: 1 cells under 2 columns"),
        (b"a\n\xff\n", "is not UTF-8"),
        (b'a\n"x\n', "line 2: unexpected end of data"),
        (b"a\n" + b"x" * (LONGEST_CELL + 1), "more than 10,000 characters"),
    ],
)
def test_table_that_cannot_be_read_is_refused_with_its_line(document: bytes, why: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InvalidDeclaration, match=why):
        Table.from_csv("t", document)


def test_tables_other_data_is_another_version() -> None:
    """Answers over an old table are never taken for answers over the new one."""
    assert tables([SUPPLIERS])[0].version != OPERATORS[0].version
    assert len(SUPPLIERS) == 4


def test_look_up_of_too_many_rows_fails_for_good() -> None:
    """Each try would find them again, so the subscriber is told after the first. A call without variables holds."""
    many = tables([Table.from_csv("many", "key,n\n" + "".join(f"a,{n}\n" for n in range(MOST_BINDINGS + 1)))])
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=many)
    matcher.add("bound", 'lookUp("many", @key, ?n)')
    matcher.add("there", 'lookUp("many", @key)')
    decided = matcher.decide({"key": "a"})
    assert [match.subscription for match in decided.matches] == ["there"]
    (undecided,) = decided.undecided
    assert "more than 1,000 bindings" in undecided.reason
    assert undecided.failure.for_good
