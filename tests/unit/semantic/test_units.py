"""Units: the same quantity under every name is one number; everything else is refused with a clear word."""

import math
import subprocess
import sys
from collections.abc import Iterable

import pytest

from kindcast.semantic.errors import InvalidDeclaration, InvalidQuantity, UnknownUnit
from kindcast.semantic.model import Quantity
from kindcast.semantic.units import Measure, Units, measure
from kindcast.semantic.units.codes import AMBIGUOUS, nearest

QUDT = "http://qudt.org/vocab/unit/"
OM = "http://www.ontology-of-units-of-measure.org/resource/om-2/"


@pytest.fixture(scope="module")
def units() -> Units:
    return Units()


# ── what a quantity measures ────────────────────────────────────────────────────────────────────────────────────────


def test_measure_86_fahrenheit_is_exactly_30_celsius(units: Units) -> None:
    """The example of rule 15, which doubles alone get wrong."""
    assert units.measure(86, "degF") == units.measure(30, "degC") == units.measure(303.15, "K")
    assert Measure("temperature", 303.15) == units.measure(86.0, "degF")
    assert (86 + 459.67) * 5 / 9 != 303.15, "if this holds, the example no longer shows anything"


@pytest.mark.parametrize(
    ("number", "unit", "other", "other_unit"),
    [
        (1, "mile", 1609.344, "m"),
        (0.1, "km", 100, "m"),
        (1, "kWh", 3.6, "MJ"),
        (1.1, "kWh", 3960000, "J"),
        (100, "km/h", "27.77777777777777777777777777777777", "m/s"),
        (55, "%", 0.55, "dimensionless"),
        (400, "ppm", 0.04, "percent"),
        (1013.25, "hPa", 1, "atm"),
        (760, "mmHg", 101.3250144354, "kPa"),
        (12, "inch", 1, "foot"),
        (1, "lb", 453.59237, "g"),
        (35, "ug/m3", 0.000035, "g/m^3"),
        (-40, "degF", -40, "degC"),
        (0, "K", -273.15, "degC"),
        (360, "degree", 1, "turn"),
        (60, "arcmin", 1, "degree"),
        (1, "byte", 8, "bit"),
        (1, "KiB", 1024, "byte"),
        (20, "MHz", 20000, "kHz"),
        (3, "L/min", 0.05, "L/s"),
        (2, "W/m2/degC", 2, "W/(m2.K)"),
        (5, "degC/min", 9, "degF/min"),
        (1, "nautical_mile/hour", 1, "knot"),
    ],
)
def test_measure_same_value_in_two_units_gives_the_same_double(
    units: Units, number: float, unit: str, other: float | str, other_unit: str
) -> None:
    """Conversion is exact and rounded once, so equal quantities are equal doubles."""
    assert units.measure(number, unit) == units.measure(other, other_unit)


@pytest.mark.parametrize(
    ("names", "dimension"),
    [
        (["month", "mo", "MON"], "time"),
        (["degC", "Cel", "CEL", "DEG_C", QUDT + "DEG_C", "unit:DEG_C", OM + "degreeCelsius", "°C", "℃",
          "degrees Celsius", "Celsius", "celsius", "degree_Celsius", " degC "], "temperature"),
        (["degF", "[degF]", "FAH", "DEG_F", QUDT + "DEG_F", OM + "degreeFahrenheit", "°F",
          "Fahrenheit"], "temperature"),
        (["m/s^2", "m/s2", "m/s²", "m.s-2", "m s⁻²", "M-PER-SEC2", QUDT + "M-PER-SEC2", "MSK",
          OM + "metrePerSecond-TimeSquared", "metre per second squared", "meter/second**2"], "length/time^2"),
        (["kWh", "KWH", "KiloW-HR", "kW.h", "kW h", "kW·h", "kW-h", OM + "kilowattHour", "kilowatt-hours"],
         "length^2*mass/time^2"),
        (["ug/m3", "µg/m³", "μg/m³", "GQ", "MicroGM-PER-M3", "microgram per cubic metre"], "mass/length^3"),
        (["%", "percent", "P1", "PERCENT", QUDT + "PERCENT", OM + "percent"], "dimensionless"),
        (["lx", "lux", "LUX", QUDT + "LUX", OM + "lux"], "angle^2*luminosity/length^2"),
        (["mmHg", "mm[Hg]", "MilliM_HG", "HN"], "mass/length/time^2"),
        (["L/min", "l/min", "L2", "L-PER-MIN", "litre per minute", "liters per minute"], "length^3/time"),
        (["m", "MTR", QUDT + "M", "metre", "meters", "Metre"], "length"),
        (["mA.h", "mAh", "MilliA-HR", "E09"], "current*time"),
        (["/min", "min-1", "{beats}/min", "1/min", "PER-MIN"], "1/time"),
        (["10*3/uL", "10^3/uL", "10³/µL"], "1/length^3"),
        (["Ohm", "ohm", "Ω", "OHM", QUDT + "OHM"], "length^2*mass/current^2/time^3"),
        (["kNm", "kN.m", "KiloN-M"], "length^2*mass/time^2"),
        (["mcd", "MilliCD"], "luminosity"),
        (["mil", "MIL", QUDT + "MIL", QUDT + "MIL_Angle", "revolution/6400"], "angle"),
        (["thou", "[mil_i]", QUDT + "MIL_Length"], "length"),
        ([QUDT + "CUP", "cup", "CUP_US"], "length^3"),
        (["CUP", QUDT + "CCY_CUP", "http://qudt.org/vocab/currency/CUP"], "currency:CUP"),
        (["Mbit/s", "Mbps", "MegaBIT-PER-SEC", "E20"], "information/time"),
    ],
)  # fmt: skip
def test_measure_every_name_of_a_unit_means_the_same(units: Units, names: list[str], dimension: str) -> None:
    """Names, symbols, UCUM, UN/CEFACT, QUDT, OM and type-setting agree."""
    assert {units.measure(12.5, name) for name in names} == {units.measure(12.5, names[0])}
    assert units.dimension(names[0]) == dimension


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hz", "rpm"),
        ("dB", "dBA"),
        ("dB", "percent"),
        ("pH", "dimensionless"),
        ("USD", "EUR"),
        ("bit", "dimensionless"),
        ("radian", "dimensionless"),
        ("lumen", "candela"),
        ("gauss", "g"),
    ],
)
def test_dimension_what_nobody_would_compare_differs(units: Units, one: str, other: str) -> None:
    """Dimensions are finer than a physicist's where a comparison would be a mistake."""
    assert units.dimension(one) != units.dimension(other)


def test_measure_level_is_counted_on_its_own_scale(units: Units) -> None:
    """A level is compared as it stands: no logarithm is taken."""
    assert units.measure(85.5, "dB(A)") == Measure("level:dB(A)", 85.5)
    assert units.measure(1, "bel") == units.measure(10, "dB")


def test_measure_temperature_inside_another_unit_has_no_offset(units: Units) -> None:
    """A degree in a rate is a difference; alone, thousandths of it too, it is a temperature."""
    assert units.measure(1, "K/min") == units.measure(1, "degC/min") == units.measure(1, "Cel/min")
    assert units.measure(20_000, "MilliDEG_C") == units.measure(20, "degC")


def test_measure_short_codes_mean_the_code_not_a_rare_prefix(units: Units) -> None:
    """`GP` is UN/CEFACT's mg/m³, not a giga-poise; QUDT's `GM` a gram, not a giga-molar."""
    assert units.measure(1, "GP") == units.measure(1, "mg/m3")
    assert units.measure(1, "GM") == units.measure(1, "g")
    assert units.measure(1, "PA") == units.measure(1, "Pa")


def test_measure_int_beyond_doubles_is_read_exactly(units: Units) -> None:
    """An integer is not rounded before it is converted."""
    assert units.measure(2**53 + 1, "mm").amount == (2**53 + 1) / 1000
    assert units.measure(9007199254740993000, "um").amount == 9007199254740.992


def test_measure_minus_zero_is_zero(units: Units) -> None:
    """Both zeros are one key of an index."""
    for unit in ("K", "km"):
        assert math.copysign(1, units.measure(-0.0, unit).amount) == 1


def test_measure_string_must_be_a_decimal(units: Units) -> None:
    """A string is read as the decimal it is, and nothing else."""
    assert units.measure("12.50", "USD") == units.measure(12.5, "USD")
    for text in ("", "abc", "1/3", "0x10", "nan", "inf", "1e9999", "1_000", "١", "1e99999999999", "9" * 100):
        with pytest.raises(InvalidQuantity):
            units.measure(text, "USD")


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**400])
@pytest.mark.parametrize("unit", ["K", "degF", "km"])
def test_measure_not_finite_or_too_large_is_refused(units: Units, number: float, unit: str) -> None:
    """No amount is ever infinite or no number."""
    with pytest.raises(InvalidQuantity, match="not a number within the range of a double"):
        units.measure(number, unit)


def test_measure_leaving_the_range_of_a_double_is_refused(units: Units) -> None:
    """1e308 km is no double in metres."""
    with pytest.raises(InvalidQuantity):
        units.measure(1e308, "km")


@pytest.mark.parametrize(
    ("number", "unit"),
    [(86, "degF"), (30, "degC"), (451.3, "degF"), (12.5, "kWh"), (0.1, "mile"), (60, "%"), (7, "pH")],
)
def test_bare_gives_back_the_number(units: Units, number: float, unit: str) -> None:
    """A message shows the number that was written, without dust behind the point."""
    assert units.bare(units.measure(number, unit).amount, unit) == number


# ── quantities in strings ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "quantity"),
    [
        ("86 degF", Quantity(86, "degF")),
        ("12.5kg", Quantity(12.5, "kg")),
        (" -40 °C ", Quantity(-40, "°C")),
        ("400 USD", Quantity(400, "USD")),
        ("55%", Quantity(55, "%")),
        ("1.5e3 W", Quantity(1500.0, "W")),
        (".5 m/s", Quantity(0.5, "m/s")),
        ("10 km per hour", Quantity(10, "km per hour")),
        ("5 10*9/L", Quantity(5, "10*9/L")),
        (" 4.5  10^3/uL ", Quantity(4.5, "10^3/uL")),
        ("EUR 12.50", Quantity(12.5, "EUR")),
        ("€400", Quantity(400, "€")),
        (" USD -3 ", Quantity(-3, "USD")),
    ],
)
def test_parse_number_with_unit_is_a_quantity(units: Units, text: str, quantity: Quantity) -> None:
    """A number, perhaps a space, a unit, or a currency first; whole numbers stay whole."""
    found = units.parse(text)
    assert found == quantity
    assert found is not None
    assert type(found.value) is type(quantity.value)


@pytest.mark.parametrize(
    "text",
    ["", "laptop", "86", "degF", "86 apples", "12 59", "2026-01-31T12:00:00Z", "10:30", "192.168.0.1", "5 2 m",
     "510*9/L", "5 10", "5 10/L", "5 10* 9",
     "1,5 kg", "1e999 m", "5 e", "5 k", "3 5", "-", "+", "1 m\n2 m", "9" * 50 + " m", "1 " + "m" * 500, "5 RM", "0x1F",
     "$5", "5 $", "ABC 12", "KGM 12", "m 12", "EUR 5 EUR", "§5", "EUR 1e999"],
)  # fmt: skip
def test_parse_other_strings_are_no_quantities(units: Units, text: str) -> None:
    """Names, times, codes and mere numbers do not turn into quantities."""
    assert units.parse(text) is None


# ── unknown units ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("unit", "near"),
    [("degg", "deg"), ("kilogran", "kilogram"), ("celcius", "celsius"), ("luxx", "lux"), ("farenheit", "fahrenheit")],
)
def test_unknown_unit_names_the_nearest(units: Units, unit: str, near: str) -> None:
    """A slip is answered with what was meant."""
    with pytest.raises(UnknownUnit, match="unknown unit") as raised:
        units.measure(1, unit)
    assert near in raised.value.suggestions


def test_unknown_unit_is_compared_once_with_names_of_its_first_letter(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishers wait while an event with very many unknown units is read."""
    compared: list[int] = []

    def counted(name: str, known: Iterable[str]) -> tuple[str, ...]:
        names = list(known)
        compared.append(len(names))
        return nearest(name, names)

    monkeypatch.setattr(measure, "nearest", counted)
    for _ in range(3):
        with pytest.raises(UnknownUnit) as raised:
            units.measure(1, "Celcius once")
        assert raised.value.suggestions == nearest("Celcius once", measure.known_names())
    assert len(compared) == 1
    assert compared[0] < len(measure.known_names()) / 2


@pytest.mark.parametrize("unit", sorted(AMBIGUOUS))
def test_ambiguous_unit_is_refused_with_the_choices(units: Units, unit: str) -> None:
    """What means one thing here and another there is not guessed; every choice that is offered is known."""
    with pytest.raises(UnknownUnit, match="several units") as raised:
        units.dimension(unit)
    assert raised.value.suggestions == AMBIGUOUS[unit]
    assert all(units.dimension(choice) for choice in AMBIGUOUS[unit])


@pytest.mark.parametrize(
    "unit",
    ["", " ", "-", "/", "m/0", "kg*0", "m/0.0", "m/", "m//s", "*m", "m..s", "(m", "m)", "()", "m**99999999", "m^999",
     "9**9**9", "((((((m))))))", "m" * 200, "m/" * 100,
     "(9999999999)12.(9999999999)12^99", "2 3", "5", "10*99", "__import__('os')", "m;s", "m\x00",
     "lambda: 0", "e", "c", "k", "pi", "mm°C", "gal{UK}", "Btu (59 °F)", "\ud800", "http://example.org/m",
     QUDT + "NOPE", QUDT + "M-PER-PER-SEC", "m" + "²" * 3, "kk", "°C°C", "m99", "mdegC"],
)  # fmt: skip
def test_unknown_unit_strange_text_is_refused(units: Units, unit: str) -> None:
    """Whatever a publisher sends, it is refused at once: nothing is evaluated."""
    with pytest.raises(UnknownUnit) as raised:
        units.measure(1, unit)
    assert len(str(raised.value).encode()) < 1_000


def test_units_cache_of_names_is_bounded(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of invented units does not fill the memory."""
    monkeypatch.setattr("kindcast.semantic.units.measure.CACHED", 100)
    mine = Units()
    for number in range(1_000):
        assert mine.parse(f"1 nonsense{number}x") is None
    assert len(mine._scales) <= 100


def test_importing_semantic_units_does_not_import_pint() -> None:
    """pint costs a third of a second: only the first quantity pays it."""
    code = "import sys, kindcast.semantic.units; sys.exit('pint' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ── currencies ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_currency_without_rates_is_a_dimension_of_its_own(units: Units) -> None:
    """No rate is ever assumed."""
    assert units.measure(12.5, "EUR") == Measure("currency:EUR", 12.5)
    assert units.measure(12.5, "€") == Measure("currency:EUR", 12.5)
    assert units.dimension("cur:USD") == units.dimension(QUDT + "CCY_USD") == "currency:USD"


def test_currency_price_of_something_is_a_unit(units: Units) -> None:
    """Prices a kilogram or a kilowatt-hour compare with each other."""
    assert units.measure(1000, "EUR/t") == units.measure(1, "EUR/kg")
    assert units.dimension("USD/kWh") == "currency:USD*time^2/length^2/mass"


def test_rates_connect_currencies_exactly() -> None:
    """One euro is 1.08 dollars; what a rate does not mention stays apart."""
    units = Units({"EUR": {"USD": "1.08", "GBP": "0.85"}})
    assert units.measure(108, "USD") == units.measure(100, "EUR") == units.measure(85, "GBP")
    assert units.measure(1.08, "USD/kg") == units.measure(1, "EUR/kg")
    assert units.dimension("JPY") == "currency:JPY"


def test_rates_of_two_groups_make_two_dimensions() -> None:
    """A chain of rates connects; groups that nothing connects do not compare."""
    units = Units({"USD": {"EUR": "0.5"}, "EUR": {"CHF": 2}, "JPY": {"KRW": 9.5}})
    assert units.measure(1, "CHF") == units.measure(1, "USD")
    assert units.dimension("CHF") == "currency:CHF"
    assert units.dimension("JPY") == units.dimension("KRW") == "currency:JPY"


@pytest.mark.parametrize(
    ("rates", "complaint"),
    [
        ({"EUR": {"USD": "0"}}, "positive decimal"),
        ({"EUR": {"USD": "-1"}}, "positive decimal"),
        ({"EUR": {"USD": "1e3"}}, "positive decimal"),
        ({"EUR": {"USD": math.nan}}, "positive decimal"),
        ({"EUR": {"USD": True}}, "positive decimal"),
        ({"EUR": {"USD": None}}, "positive decimal"),
        ({"EUR": {"EUR": "2"}}, "two different rates"),
        ({"EUR": {"XYZ": "1"}}, "not a currency"),
        ({"euro": {"USD": "1"}}, "not a currency"),
        ({"EUR": "1.08"}, "are an object like"),
        ({"EUR": {"USD": "2"}, "USD": {"EUR": "2"}}, "two different rates"),
        ({"EUR": {"USD": "2", "GBP": "3"}, "USD": {"GBP": "2"}}, "contradict"),
    ],
)
def test_rates_that_make_no_sense_are_refused(rates: dict[str, dict[str, object]], complaint: str) -> None:
    """The message says which rate, and how one looks."""
    with pytest.raises(InvalidDeclaration, match=complaint):
        Units(rates)


def test_rates_round_trip_that_agrees_is_accepted() -> None:
    """A table may say both directions if they agree exactly."""
    units = Units({"EUR": {"USD": "2"}, "USD": {"EUR": "0.5"}})
    assert units.measure(2, "USD") == units.measure(1, "EUR")
