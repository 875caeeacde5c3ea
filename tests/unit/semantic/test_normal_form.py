"""Expressions become simplified disjunctive normal forms."""

import pytest

from kindcast.semantic.conditions.normal_form import MOST_CLAUSES, Atom, normal_form
from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language import parse
from kindcast.semantic.model import Comparison, Constant, Presence


def clauses(text: str) -> list[list[str]]:
    """The normal form in a readable shape: `!` marks negated atoms."""
    return [[_shown(atom) for atom in clause] for clause in normal_form(parse(text))]


def _shown(atom: Atom) -> str:
    predicate = atom.predicate
    if isinstance(predicate, Presence):
        return f"{predicate.attribute} {'exists' if predicate.present else 'missing'}"
    assert isinstance(predicate, Comparison)
    assert isinstance(predicate.operand, Constant)
    return f"{'!' if atom.negated else ''}{predicate.attribute}{predicate.order}{predicate.operand.value}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [[]]),
        ("a = 1 and b = 2", [["a=1", "b=2"]]),
        ("a = 1 or b = 2", [["a=1"], ["b=2"]]),
        ("(a = 1 or b = 2) and c = 3", [["a=1", "c=3"], ["b=2", "c=3"]]),
        ("a != 1", [["!a=1"]]),
        ("not a != 1", [["a=1"]]),
        ("not (a = 1 and b = 2)", [["!a=1"], ["!b=2"]]),
        ("not (a = 1 or b = 2)", [["!a=1", "!b=2"]]),
        ("not a exists", [["a missing"]]),
        ("not not a < 5", [["a<5"]]),
        ("not a < 5", [["!a<5"]]),
    ],
)
def test_normal_form_negation_and_groups_are_pushed_inwards(text: str, expected: list[list[str]]) -> None:
    """De Morgan over groups; a negated comparison is never rewritten to the opposite one."""
    assert clauses(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 or a = 1", [["a=1"]]),
        ("a = 1 or (a = 1 and b = 2)", [["a=1"]]),
        ("a = 1 and a != 1", []),
        ("a = 1 and a missing", []),
        ("not a = 1 and a missing", []),
        ("a exists and a = 1", [["a=1"]]),
        ("a exists or a = 1", [["a exists"], ["a=1"]]),
        ("a missing and a missing", [["a missing"]]),
    ],
)
def test_normal_form_redundant_clauses_are_dropped(text: str, expected: list[list[str]]) -> None:
    """Duplicate, contradictory and implied clauses go; what is left means the same."""
    assert clauses(text) == expected


def test_normal_form_of_too_many_clauses_is_refused_with_the_count() -> None:
    """Seven pairs joined by and make 128 clauses: the message names the number and the limit."""
    text = " and ".join(f"(a{number} = 1 or b{number} = 1)" for number in range(7))
    with pytest.raises(InvalidSubscription, match=f"128 .*{MOST_CLAUSES}") as caught:
        normal_form(parse(text))
    assert caught.value.problems[0].code == "too-many-clauses"


def test_normal_form_of_an_explosive_product_is_refused_before_it_is_built() -> None:
    """2^40 clauses are refused after a bounded number of steps."""
    text = " and ".join(f"(a{number} = 1 or b{number} = 1)" for number in range(40))
    with pytest.raises(InvalidSubscription):
        normal_form(parse(text))


def test_normal_form_in_and_between_are_one_atom_each() -> None:
    """Lists and ranges never multiply clauses, also under not."""
    text = " and ".join(f"a{number} in (1, 2, 3) and not b{number} between [1, 2]" for number in range(10))
    assert [len(clause) for clause in normal_form(parse(text))] == [20]
