"""Laws of units: the same physical value is the same double in any unit, order is kept, and no text does harm."""

import math
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from kindcast.semantic.errors import InvalidQuantity, UnknownUnit
from kindcast.semantic.units import Units

UNITS = Units()

SCALES: dict[str, dict[str, tuple[Fraction, Fraction]]] = {
    "temperature": {
        "K": (Fraction(1), Fraction(0)),
        "degC": (Fraction(1), Fraction("273.15")),
        "degF": (Fraction(5, 9), Fraction("459.67") * Fraction(5, 9)),
        "degR": (Fraction(5, 9), Fraction(0)),
    },
    "length": {
        "m": (Fraction(1), Fraction(0)),
        "um": (Fraction("1e-6"), Fraction(0)),
        "inch": (Fraction("0.0254"), Fraction(0)),
        "foot": (Fraction("0.3048"), Fraction(0)),
        "mile": (Fraction("1609.344"), Fraction(0)),
        "km": (Fraction(1000), Fraction(0)),
        "light_year": (Fraction(9460730472580800), Fraction(0)),
    },
    "length/time": {
        "m/s": (Fraction(1), Fraction(0)),
        "km/h": (Fraction(1000, 3600), Fraction(0)),
        "mph": (Fraction("1609.344") / 3600, Fraction(0)),
        "knot": (Fraction(1852, 3600), Fraction(0)),
    },
    "length^2*mass/time^2": {
        "J": (Fraction(1), Fraction(0)),
        "kWh": (Fraction(3600000), Fraction(0)),
        "cal": (Fraction("4.184"), Fraction(0)),
        "ft.lbf": (Fraction("0.3048") * Fraction("0.45359237") * Fraction("9.80665"), Fraction(0)),
    },
    "dimensionless": {
        "percent": (Fraction(1, 100), Fraction(0)),
        "ppm": (Fraction(1, 10**6), Fraction(0)),
        "UNITLESS": (Fraction(1), Fraction(0)),
    },
}
"""What some units are worth by their definitions: amount = number · factor + offset. Written down here again, so that
the test does not ask what it tests."""

dimensions = st.sampled_from(sorted(SCALES))
numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e200, max_value=1e200)


def in_base(number: int | float, dimension: str, unit: str) -> Fraction:
    """The exact amount, the number read as its shortest decimal."""
    factor, offset = SCALES[dimension][unit]
    return Fraction(repr(number)) * factor + offset


@given(st.data())
def test_measure_is_the_exact_amount_rounded_once(data: st.DataObject) -> None:
    """No step but the last one rounds."""
    dimension = data.draw(dimensions)
    unit = data.draw(st.sampled_from(sorted(SCALES[dimension])))
    number = data.draw(st.one_of(numbers, st.integers(-(10**30), 10**30)))
    assert tuple(UNITS.measure(number, unit)) == (dimension, float(in_base(number, dimension, unit)))


@given(dimensions, st.data())
def test_measure_same_physical_value_in_any_two_units_is_one_double(dimension: str, data: st.DataObject) -> None:
    """A decimal in one unit whose value is a decimal in the other too: both measure the same, whoever publishes."""
    one = data.draw(st.sampled_from(sorted(SCALES[dimension])))
    other = data.draw(st.sampled_from(sorted(SCALES[dimension])))
    number = Fraction(data.draw(st.integers(-(10**9), 10**9)), 10 ** data.draw(st.integers(0, 6)))
    factor, offset = SCALES[dimension][one]
    other_factor, other_offset = SCALES[dimension][other]
    converted = (number * factor + offset - other_offset) / other_factor
    text, converted_text = decimal(number), decimal(converted)
    assume(converted_text is not None)
    assert text is not None
    assert UNITS.measure(text, one) == UNITS.measure(converted_text or "", other)


@given(dimensions, numbers, numbers, st.data())
@example("temperature", 86.0, 86.00000000000001, None)
def test_measure_keeps_order(dimension: str, low: float, high: float, data: st.DataObject | None) -> None:
    """Within a unit more is never less, and across units the exact amounts decide."""
    names = sorted(SCALES[dimension])
    one = data.draw(st.sampled_from(names)) if data else "degF"
    other = data.draw(st.sampled_from(names)) if data else "degC"
    first, second = UNITS.measure(low, one).amount, UNITS.measure(high, other).amount
    if in_base(low, dimension, one) <= in_base(high, dimension, other):
        assert first <= second
    else:
        assert first >= second


@given(dimensions, st.floats(-1e12, 1e12), st.data())
def test_bare_measures_the_same_again(dimension: str, number: float, data: st.DataObject) -> None:
    """A number shown in a message measures the same as the one that was written, to a few parts in 10^15."""
    unit = data.draw(st.sampled_from(sorted(SCALES[dimension])))
    amount = UNITS.measure(number, unit).amount
    shown = UNITS.bare(amount, unit)
    again = UNITS.measure(shown, unit).amount
    assert math.isclose(again, amount, rel_tol=1e-14, abs_tol=1e-300)


names = st.one_of(
    st.text(max_size=30),
    st.text("mskKCFg()/*.^-0123456789 [{}]°%'²µ", max_size=130),
    st.builds("".join, st.lists(st.sampled_from(["m", "/", "s", "2", "^", "(", ")", "10*", " ", "per", "kg", "-"]))),
)


@given(names)
@example("m" + "/m" * 50)
@example("(" * 60 + "m" + ")" * 60)
@example("m^" + "9" * 60)
@example("10^9^9^9")
def test_units_any_text_is_a_unit_or_refused(text: str) -> None:
    """Whatever stands for a unit, it has a dimension and a finite measure, or it is unknown: nothing else happens."""
    try:
        dimension = UNITS.dimension(text)
    except UnknownUnit:
        return
    try:
        measured = UNITS.measure(1, text)
    except InvalidQuantity:
        return
    assert measured.dimension == dimension
    assert math.isfinite(measured.amount)


@given(st.one_of(names, st.builds("{} {}".format, numbers, names), st.builds("{} {}".format, names, numbers)))
def test_parse_any_text_agrees_with_measure(text: str) -> None:
    """What `parse` calls a quantity can be measured, its number is finite; the text begins or ends with its unit."""
    found = UNITS.parse(text)
    if found is None:
        return
    assert math.isfinite(found.value)
    assert text.strip().endswith(found.unit) or text.strip().startswith(found.unit)
    assert UNITS.dimension(found.unit)


def decimal(number: Fraction) -> str | None:
    """`number` written out, or None if it has no end within twenty digits."""
    scaled = number * 10**20
    if scaled.denominator != 1:
        return None
    digits = f"{abs(scaled.numerator):021d}"
    return ("-" if number < 0 else "") + digits[:-20] + "." + digits[-20:]
