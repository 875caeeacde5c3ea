"""Amounts of many numbers are those of each."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic.errors import InvalidQuantity, UnknownUnit
from kindcast.semantic.units import Units

UNITS = Units({"EUR": {"USD": "1.08"}})
NUMBERS = st.one_of(
    st.floats(),
    st.decimals(-100_000, 100_000, places=2).map(float),
    st.decimals(-100, 100, places=6).map(float),
    st.integers(-(1 << 60), 1 << 60).map(float),
    st.sampled_from([0.0, -0.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 999999999999.99]),
)


@given(
    st.lists(NUMBERS, max_size=20), st.sampled_from(["degF", "degC", "kg", "lb", "USD", "EUR", "deg", "mg/m3", "Gbit"])
)
def test_amounts_of_numbers_are_what_each_measures(numbers: list[float], unit: str) -> None:
    """To the last bit, whether a division of doubles or of integers gives them; none where there is none."""
    expected = []
    for number in numbers:
        try:
            expected.append(UNITS.measure(number, unit).amount)
        except InvalidQuantity:
            expected.append(math.nan)
    found = UNITS.amounts(np.array(numbers, dtype=np.float64), unit)
    assert [repr(each) for each in found.tolist()] == [repr(each) for each in expected]


def test_amounts_of_an_unknown_unit_are_refused() -> None:
    """As `measure` refuses it."""
    with pytest.raises(UnknownUnit):
        UNITS.amounts(np.array([1.0]), "nothing known")
