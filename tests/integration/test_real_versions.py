"""Two real versions of a real ontology, Brick 1.4 and 1.5 as they were published: what changed, and for whom."""

import importlib.resources

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.changes.difference import difference_between
from kindcast.semantic.changes.impact import Impact

BRICK = "https://brickschema.org/schema/Brick#"
NAMES = ("Sensor", "Temperature_Sensor", "Equipment", "Zone", "HVAC_Zone", "Point", "Location", "Meter")


@pytest.fixture(scope="module")
def versions() -> tuple[Vocabulary, Vocabulary]:
    root = importlib.resources.files("brickschema") / "ontologies"
    old, new = ((root / version / "Brick.ttl").read_bytes() for version in ("1.4", "1.5"))
    return Vocabulary.from_bytes(old, format="turtle"), Vocabulary.from_bytes(new, format="turtle")


def test_difference_of_real_versions_counts(versions: tuple[Vocabulary, Vocabulary]) -> None:
    """Concepts by the dozen come, move and get other labels; nine are deprecated, in favour of QUDT's names."""
    found = difference_between(*versions).as_json()
    assert {name: part["count"] for name, part in found.items()} == {
        "added": 67,
        "removed": 10,
        "moved": 26,
        "merged": 1,
        "split": 0,
        "deprecated": 9,
        "restored": 5,
        "relabelled": 56,
    }
    first = found["deprecated"]["concepts"][0]
    assert first["iri"] == BRICK + "Active_Energy"
    assert first["replaced_by"] == ["http://qudt.org/vocab/quantitykind/ActiveEnergy"]


def test_impact_of_real_versions_is_what_matching_shows(versions: tuple[Vocabulary, Vocabulary]) -> None:
    """Every name of either version, published under both: who got it before, and who gets it after."""
    before, after = versions
    trees = {name: {"isa": ["type", {"iri": BRICK + name}]} for name in NAMES}
    values = sorted({iri for each in versions for number in range(len(each)) for iri in each.iris(number)})  # type: ignore[arg-type]
    reached: list[dict[str, set[str]]] = []
    for vocabulary in versions:
        matcher = Matcher(vocabulary)
        for name, tree in trees.items():
            matcher.restore(name, tree)
        got: dict[str, set[str]] = {name: set() for name in NAMES}
        for value, matches in zip(values, matcher.match_batch([{"type": value} for value in values]), strict=True):
            for match in matches:
                got[match.subscription].add(value)
        reached.append(got)
    impact = Impact(before, after, listed=1_000)
    impact.add(trees.items())
    assert impact.changed == ["Sensor", "Temperature_Sensor", "Equipment", "Point"]
    for name in NAMES:
        listed = [impact.changes[part].listed for part in impact.parts_of(name)]
        gains = {iri for each in listed for iri in each.get("gains", ())}
        loses = {iri for each in listed for iri in each.get("loses", ())}
        assert (gains, loses) == (reached[1][name] - reached[0][name], reached[0][name] - reached[1][name]), name
