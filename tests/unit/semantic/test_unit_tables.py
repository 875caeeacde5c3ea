"""The tables of units: every entry is known, no code has two meanings, and the figures are those of QUDT."""

import gzip
import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kindcast.semantic.errors import UnknownUnit
from kindcast.semantic.units import Units
from kindcast.semantic.units.codes import AMBIGUOUS, CODES_REC20, CURRENCIES, LEVELS, NOT_UNITS, QUDT_ATOMS, SYMBOLS
from kindcast.semantic.units.measure import KINDS, MEANT, SURPRISING, known_names, meant_units, not_a_quantity

QUDT = "http://qudt.org/vocab/unit/"
OM = "http://www.ontology-of-units-of-measure.org/resource/om-2/"


@pytest.fixture(scope="module")
def units() -> Units:
    return Units()


@pytest.mark.parametrize(
    "name", sorted({*SYMBOLS, *CODES_REC20, *(set(QUDT_ATOMS) - set(AMBIGUOUS)), *LEVELS, *CURRENCIES})
)
def test_every_name_of_our_tables_is_known(units: Units, name: str) -> None:
    """No entry has a definition that nobody can read."""
    if name not in AMBIGUOUS:
        assert units.dimension(name)


def test_tables_no_code_has_two_meanings(units: Units) -> None:
    """Where code systems overlap they agree, but for what `AMBIGUOUS` lists and the known cases."""
    qudt = {name: units.measure(1, QUDT + name) for name in QUDT_ATOMS}
    overlap = (set(CODES_REC20) | set(SYMBOLS)) & set(qudt) - {"G"}  # gauss as a symbol, gravity in QUDT
    assert [name for name in sorted(overlap) if units.measure(1, name) != qudt[name]] == []
    # a cup in QUDT, where the currency is CCY_CUP
    assert set(CURRENCIES) & (set(CODES_REC20) | set(SYMBOLS) | set(QUDT_ATOMS)) == {"CUP"}


def test_tables_constants_of_pint_are_no_units() -> None:
    """Whatever pint calls a constant stays out, unless people do measure in it."""
    spec = find_spec("pint")
    assert spec is not None
    assert spec.origin is not None
    text = (Path(spec.origin).parent / "constants_en.txt").read_text(encoding="utf-8")
    constants = set(re.findall(r"^(\w+) *=", text, re.M))
    assert constants - NOT_UNITS == {"standard_gravity", "standard_atmosphere", "atomic_mass_constant"}
    assert not NOT_UNITS & known_names()


# ── against the figures of QUDT ─────────────────────────────────────────────────────────────────────────────────────

RELATIVE = 2e-6
"""QUDT prints some factors with seven digits."""
AXES = {
    "A": "substance",
    "E": "current",
    "L": "length",
    "I": "luminosity",
    "M": "mass",
    "H": "temperature",
    "T": "time",
}
NOT_COUNTED = {"1", "dimensionless", "angle", "information"}
"""Dimensions of ours that are numbers for QUDT."""
BIT_OF_QUDT = math.log(2)
"""QUDT measures information in nats."""

OTHER_OPINIONS = {
    "month MON": "the mean month here, the synodic one there, as in everything with `mo` below",
    "BAUD KiloBAUD MegaBAUD": "per second here, as in UCUM; a bare number there",
    "C26": "UN/CEFACT says millisecond; QUDT gives the code to the decisecond too",
    "TNE": "UN/CEFACT says metric ton; QUDT gives the code to the short ton too",
    "K43": "UN/CEFACT says electric horsepower; QUDT gives the mechanical one",
    "acreFoot chain rod": "the survey foot in pint",
    "gray sievert percent": "QUDT maps several units to one name of OM",
    "EV PA kt kt.a-1 Gb": "bare names that UCUM would read otherwise; their IRIs are right",
    "k[ft_i]3": "UCUM's power takes the prefix along",
    "GS": "QUDT gives the code to another unit too",
    "[oz_tr]{Ag} [oz_tr]{Au} [oz_tr]{Pd} [oz_tr]{Pt}": "QUDT counts precious metals in pieces",
    "{#}.min-1 {#}.min-1.s-1 {#}.s-2": "QUDT writes revolutions as a count",
}
"""Names where QUDT and we differ, and why. Everything else agrees."""


def test_tables_agree_with_qudt(units: Units, shared_data: Path) -> None:
    """Factor, offset and dimension of every unit of QUDT that we read, under its IRI, UN/CEFACT, UCUM and OM names."""
    disputed = {word for names in OTHER_OPINIONS for word in names.split()}
    wrong: list[str] = []
    read = 0
    for name, multiplier, offset, vector in _units_of_qudt(shared_data / "ontologies" / "qudt-unit.ttl.gz"):
        short = name.rpartition("/")[2] if name.startswith("http") else name
        try:
            dimension = units.dimension(name)
        except UnknownUnit:
            continue
        if dimension.startswith(("level:", "currency:")) or not multiplier or short in disputed:
            continue
        if "mo" in re.split(r"[^a-z]+", short):
            continue
        read += 1
        powers = _powers(dimension)
        factor = multiplier / BIT_OF_QUDT ** powers.get("information", 0)
        zero, one = units.measure(0, name).amount, _slope(units, name)
        ours = {axis: power for axis, power in powers.items() if axis not in NOT_COUNTED}
        if not (
            math.isclose(one, factor, rel_tol=RELATIVE)
            and math.isclose(zero, offset * factor, rel_tol=1e-12, abs_tol=1e-12)
            and ours == vector
        ):
            wrong.append(f"{name}: {one} + {zero} {ours} here, {factor} + {offset * factor} {vector} in QUDT")
    assert wrong == [], "\n".join(wrong)
    assert read > 4_000, "most names of QUDT are read"


def _units_of_qudt(path: Path) -> Iterator[tuple[str, float, float, dict[str, int]]]:
    """(name, multiplier, offset, dimensions) for every name of every unit that is not deprecated. A line reader: the
    file is regular, and the test must not depend on our own loader."""
    text = gzip.decompress(path.read_bytes()).decode()
    for block in re.split(r"\n(?=unit:)", text):
        iri = re.match(r"unit:(\S+)\n", block)
        multiplier = re.search(r"qudt:conversionMultiplier ([-+\d.eE]+) ;", block)
        vector = re.search(r"qudt:hasDimensionVector qkdv:(\S+) ;", block)
        if not iri or not multiplier or not vector or "qudt:deprecated true" in block:
            continue
        offset = re.search(r"qudt:conversionOffset ([-+\d.eE]+) ;", block)
        powers = {AXES[axis]: int(power) for axis, power in re.findall(r"([AELIMHT])(-?\d+)", vector[1]) if int(power)}
        figures = float(multiplier[1]), float(offset[1]) if offset else 0.0, powers
        yield QUDT + iri[1], *figures
        for code in re.findall(r'qudt:uneceCommonCode "([^"]+)"', block):
            if code in CODES_REC20:
                yield code, *figures
        for code in re.findall(r'qudt:ucumCode "([^"]+)"', block):
            yield code, *figures
        for om in re.findall(rf"qudt:omUnit <({re.escape(OM)}[^>]+)>", block):
            yield om, *figures


def _powers(dimension: str) -> dict[str, int]:
    above, *below = dimension.split("/")
    powers: dict[str, int] = {}
    for sign, factor in [*((1, each) for each in above.split("*")), *((-1, each) for each in below)]:
        name, _, power = factor.partition("^")
        powers[name] = powers.get(name, 0) + sign * int(power or 1)
    return powers


def _slope(units: Units, name: str) -> float:
    """What one more of the unit adds, without the rounding of a large offset."""
    step = 2.0**20
    return (units.measure(step, name).amount - units.measure(0, name).amount) / step


def test_tables_of_mistakes_name_units_that_are_and_units_that_are_not(units: Units) -> None:
    """What is called surprising is a unit, what is meant by another word is one, and that word is none; every dimension
    that has a name can be measured."""
    assert [unit for unit in SURPRISING if not units.knows(unit)] == []
    assert [word for word in MEANT if units.knows(word)] == []
    assert [unit for meant in MEANT.values() for unit in meant if not units.knows(unit)] == []
    measured = {units.dimension(name) for name in (*SYMBOLS, *CODES_REC20, "degC", "mol") if name not in AMBIGUOUS}
    assert set(KINDS) - measured == set()


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("5 kg.", "write 5 kg"), ("5 min.", "write 5 min"), ("5 USD.", "write 5 USD"), ("1,5 kg.", "write 1.5 kg"),
        ("0,500 kg", "write 0.500 kg"), ("-0,999 USD", "write -0.999 USD"), ("1,000 kg", "write 1000 kg"),
        ("50 cents", "'cents' is not a unit"), ("1 KB", "write 1 kB"), ("16 gb", "write 16 GB"), ("5 Kg", "write 5 kg"),
        ("usd 5", "write 5 USD"), ("Pen 12", None), ("Top 10", None),
    ],
)  # fmt: skip
def test_what_is_advised_for_a_text_like_a_quantity_has_its_value(units: Units, text: str, advised: str | None) -> None:
    """A point or a comma changes no value by a thousand, and no unit becomes another of the same letters."""
    told = not_a_quantity(text, units.knows)
    assert told is None if advised is None else told is not None and told.endswith(advised)


def test_words_that_have_the_letters_of_no_unit_are_not_tried_in_all_cases() -> None:
    """A publisher may send thousands of them."""
    asked = []
    assert meant_units("qwxyz", lambda name: bool(asked.append(name))) == ()
    assert asked == []
    assert meant_units("KPA", {"kPa"}.__contains__) == ("kPa",)
