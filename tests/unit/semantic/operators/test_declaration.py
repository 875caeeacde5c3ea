"""What an operator may be."""

import pytest

from semantic import Matcher, Vocabulary, operator
from semantic.errors import InvalidDeclaration
from semantic.operators.declaration import operators_by_name


@operator("near", cost=0.5, selectivity=0.2)
def near(event: object, place: str, distance: float = 1.0) -> bool:
    """Always near."""
    return True


def test_operator_is_still_the_function() -> None:
    """Decorating loses nothing: it can be called and tested by itself."""
    assert near({}, "Vienna") is True
    assert (near.name, near.cost, near.selectivity, near.version) == ("near", 0.5, 0.2, "1")


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (2, True), (3, False)])
def test_takes_counts_the_arguments_after_the_event(count: int, fits: bool) -> None:
    """Defaults count as Python has them."""
    assert near.takes(count) is fits


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("not a name", {}, "letters, digits and _"),
        ("p", {"selectivity": 1.5}, "a probability"),
        ("p", {"cost": 0.0}, "a number of seconds"),
        ("p", {"cost": float("inf")}, "a number of seconds"),
    ],
)
def test_operator_nonsense_is_refused(name: str, fields: dict[str, float], said: str) -> None:
    """The error says what is expected."""
    with pytest.raises(InvalidDeclaration, match=said):
        operator(name, **fields)(lambda event: True)  # type: ignore[arg-type]


def test_operators_by_name_two_of_one_name_are_refused() -> None:
    """Which one is meant could not be told."""
    with pytest.raises(InvalidDeclaration, match="two operators of the name 'near'"):
        operators_by_name([near, near])
    with pytest.raises(InvalidDeclaration, match="decorate the function"):
        Matcher(Vocabulary.from_ontologies([]), operators=[lambda event: True])  # type: ignore[list-item]
