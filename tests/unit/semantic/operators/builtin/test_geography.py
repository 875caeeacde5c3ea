"""Positions in regions, and distances from them."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.builtin import EARTH, MOST_CORNERS, Regions, geography
from kindcast.semantic.operators.failures import FailedForGood
from tests.unit.semantic.operators.builtin.asking import bindings, holds, reason, refused

BRONX = [[-73.93, 40.80], [-73.78, 40.80], [-73.78, 40.91], [-73.93, 40.91], [-73.93, 40.80]]
LIBERTY = [-74.0445, 40.6892]
CITY = {
    "type": "FeatureCollection",
    "features": [
        {"properties": {"name": "Bronx"}, "geometry": {"type": "Polygon", "coordinates": [BRONX]}},
        {"id": "Liberty", "properties": None, "geometry": {"type": "Point", "coordinates": LIBERTY}},
    ],
}
REGIONS = Regions.from_geojson(CITY)
OPERATORS = geography(REGIONS)


@pytest.mark.parametrize(
    ("position", "inside"),
    [
        ("geo:40.85,-73.85", True),
        ("geo:40.85,-73.85;u=35", True),
        ("geo:40.85,-73.85,12.5;crs=WGS84;u=35", True),
        ("geo:40.85,-73.85;crs=moon-2011", False),
        ("geo:40.85,-73.85;u=35;crs=moon-2011", False),
        ("geo:40.85,-73.85,high", False),
        ("POINT (-73.85 40.85)", True),
        ('{"type": "Point", "coordinates": [-73.85, 40.85]}', True),
        ("LINESTRING (-74 40.85, -73.85 40.85)", True),
        ("geo:40.80,-73.93", True),
        ("geo:-73.85,40.85", False),
        ("geo:91,0", False),
        ("geo:40.7,-74", False),
        ("nowhere", False),
        ("POINT (", False),
        ("POINT (NaN 40.85)", False),
        (5, False),
        (["nowhere", "geo:40.85,-73.85"], True),
    ],
)
def test_in_region_position_in_any_notation(position: Any, inside: bool) -> None:
    """What is no position is in no region; the edge belongs to it; one value of several is enough."""
    assert holds(OPERATORS, 'inRegion("Bronx", @at)', at=position) is inside


def test_in_region_position_as_two_numbers() -> None:
    """Latitude, then longitude; two of each belong together in no way that is known."""
    asked = 'inRegion("Bronx", @at.lat, @at.lon)'
    assert holds(OPERATORS, asked, at={"lat": 40.85, "lon": -73.85})
    assert not holds(OPERATORS, asked, at={"lat": 0, "lon": 0})
    assert not holds(OPERATORS, asked, at={"lat": "north", "lon": 0})
    assert "exactly one value" in reason(OPERATORS, asked, at={"lat": [40.85, 1], "lon": -73.85})


def test_in_region_given_region_is_written_out() -> None:
    """WKT or GeoJSON in the subscription; a bow tie is taken as the two triangles that it is."""
    assert holds(OPERATORS, 'inRegion("POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))", @at)', at="geo:1,1")
    square = json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]})
    assert holds(OPERATORS, f"inRegion({json.dumps(square)}, @at)", at="geo:1,1")
    bow = 'inRegion("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", @at)'
    assert holds(OPERATORS, bow, at="geo:1,0.5")
    assert not holds(OPERATORS, bow, at="geo:0.5,1")


def test_region_of_polygons_with_common_borders_contains_each_of_them() -> None:
    """As with a region that consists of its districts. The polygons of a region may also overlap."""
    squares = [[[[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]] for x in range(10) for y in range(10)]
    over = [[[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]], [[[2, 2], [6, 2], [6, 6], [2, 6], [2, 2]]]]
    known = Regions.from_geojson(
        {
            "features": [
                {"id": name, "geometry": {"type": "MultiPolygon", "coordinates": polygons}}
                for name, polygons in (("districts", squares), ("overlapping", over))
            ]
        }
    )
    at = tuple(f"geo:{y + 0.5},{x + 0.5}" for x in range(10) for y in range(10))
    in_region = geography(known)[0].function
    assert [each for each in at if not in_region({}, "districts", (each,))] == []
    assert in_region({}, "overlapping", ("geo:3,3",))
    assert not in_region({}, "districts", ("geo:10.5,5",))


def _crossing(corners: int) -> list[list[float]]:
    """Returns a ring whose edges go to and fro between north and south, and so cross each other very often."""
    turns = [[(37 * n) % 101 - 50, (-1) ** n * (20 + (53 * n) % 60)] for n in range(corners)]
    return [*turns, turns[0]]


@pytest.mark.parametrize("corners", [100, 300, 3_000])
def test_region_with_too_many_crossings_is_refused_in_a_short_time(corners: int) -> None:
    """To repair it would take minutes and gigabytes."""
    shape = {"type": "Polygon", "coordinates": [_crossing(corners)]}
    collection = {"type": "GeometryCollection", "geometries": [shape, {"type": "Point", "coordinates": [0, 0]}]}
    for geometry in (shape, collection):
        with pytest.raises(InvalidDeclaration, match="1,000 crossings are allowed"):
            Regions.from_geojson({"features": [{"id": "a", "geometry": geometry}]})


def test_position_with_too_many_crossings_lies_nowhere() -> None:
    """An event costs little, too."""
    at = "POLYGON ((" + ", ".join(f"{x} {y}" for x, y in _crossing(300)) + "))"
    assert "1,000 crossings are allowed" in refused(OPERATORS, f'inRegion("{at}", @at)')
    assert not holds(OPERATORS, 'inRegion("Bronx", @at)', at=at)


def test_written_region_of_an_older_subscription_that_cannot_be_read_is_not_called_again() -> None:
    """An earlier version may have accepted it. A region that has only no name yet may come later."""
    in_region = OPERATORS[0].function
    with pytest.raises(FailedForGood, match="1,000 crossings are allowed"):
        in_region({}, "POLYGON ((" + ", ".join(f"{x} {y}" for x, y in _crossing(300)) + "))", ("geo:0,0",))
    with pytest.raises(ValueError, match="there is no region 'Bronks'"):
        in_region({}, "Bronks", ("geo:0,0",))


def test_large_region_with_few_crossings_is_repaired() -> None:
    """Coast lines of real maps have some."""
    ring = [[50 * math.cos(n / 500 * math.pi), 50 * math.sin(n / 500 * math.pi)] for n in range(1_000)]
    for n in range(0, 1_000, 20):
        ring[n], ring[n + 1] = ring[n + 1], ring[n]
    known = Regions.from_geojson(
        {"features": [{"id": "a", "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}}]}
    )
    assert geography(known)[0].function({}, "a", ("geo:0,0",))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('inRegion("Bronks", @at)', "there is no region 'Bronks' (known: Bronx, Liberty, …)"),
        ('inRegion("POLYGON ((0 0))", @at)', "this is not a region"),
        ('inRegion("POLYGON EMPTY ()", @at)', "this is not a region"),
        ('inRegion("POINT(NaN Infinity)", @at)', "its coordinates must be finite numbers"),
        ('inRegion("POLYGON((0 0, 1e400 1, 1 1, 0 0))", @at)', "its coordinates must be finite numbers"),
        ('distanceFrom("MULTIPOINT((1 1), (1 NaN))", @at, ?d)', "its coordinates must be finite numbers"),
        ('inRegion("POINT (200 0)", @at)', "longitudes are from -180 to 180"),
        ('inRegion("Bronx")', "a position is one attribute, or two"),
        ('inRegion("Bronx", @a, @b, @c)', "a position is one attribute, or two"),
        ('distanceFrom("Bronx", @at, ?x, ?y)', "it binds 1 variables, or none; the call has 2"),
        (f'inRegion("LINESTRING ({", ".join(["0 0"] * 5000)})", @at)', "at most 10,000 characters"),
    ],
)
def test_region_that_cannot_be_read_is_refused_when_subscribing(call: str, why: str) -> None:
    """Not when the first event comes."""
    assert why in refused(OPERATORS, call)


def test_distance_from_is_in_metres_and_zero_inside() -> None:
    """To the Statue of Liberty from Battery Park it is some 2.7 km; a constraint may say it in km."""
    ((found,),) = bindings(OPERATORS, 'distanceFrom("Liberty", @at, ?d) and ?d < 3 km', at="geo:40.7033,-74.0170")
    assert found.unit == "m"
    assert found.value == pytest.approx(2_800, rel=0.02)
    ((inside,),) = bindings(OPERATORS, 'distanceFrom("Bronx", @at, ?d)', at="geo:40.85,-73.85")
    assert inside.value == 0
    assert not holds(OPERATORS, 'distanceFrom("Liberty", @at, ?d) and ?d < 2 km', at="geo:40.7033,-74.0170")


def test_distance_from_across_the_date_line_is_the_short_way() -> None:
    """From 179.9 east to 179.9 west it is 22 km, not around the world."""
    ((found,),) = bindings(OPERATORS, 'distanceFrom("POINT (-179.9 0)", @at, ?d)', at="geo:0,179.9")
    assert found.value == pytest.approx(0.2 * math.pi / 180 * EARTH, rel=1e-6)


@pytest.mark.parametrize(
    ("region", "at", "degrees"),
    [
        ("POLYGON ((16.2 48.1, 16.6 48.1, 16.6 48.3, 16.2 48.3, 16.2 48.1))", "geo:48.2,-163.6", 83.5),
        ("POLYGON ((30 0, 170 0, 170 10, 30 10, 30 0))", "geo:0,-120", 70.0),
        ("POLYGON ((-180 66, 180 66, 180 90, -180 90, -180 66))", "geo:65,0", 1.0),
        ("LINESTRING (90 -80, 90 80)", "geo:40,10", 49.0),
    ],
    ids=["the other side of the Earth", "a wide region", "around the Earth", "nearest on another parallel"],
)
def test_distance_from_far_and_wide_regions(region: str, at: str, degrees: float) -> None:
    """The region stays whole, and the nearest point is the one on the sphere."""
    ((found,),) = bindings(OPERATORS, f'distanceFrom("{region}", @at, ?d)', at=at)
    assert found.value == pytest.approx(math.radians(degrees) * EARTH, rel=0.005)


@given(st.floats(-85, 85), st.floats(-180, 180), st.floats(-85, 85), st.floats(-180, 180))
def test_distance_of_two_points_is_that_on_the_sphere(lat: float, lon: float, other: float, far: float) -> None:
    """Against the angle between two vectors."""
    text = f"POINT ({far:.6f} {other:.6f})"
    distance = OPERATORS[1].function({}, text, (f"geo:{lat:.6f},{lon:.6f}",))[0].value
    one, two = (_vector(float(f"{a:.6f}"), float(f"{b:.6f}")) for a, b in ((lat, lon), (other, far)))
    cross = math.hypot(
        one[1] * two[2] - one[2] * two[1], one[2] * two[0] - one[0] * two[2], one[0] * two[1] - one[1] * two[0]
    )
    angle = math.atan2(cross, sum(a * b for a, b in zip(one, two, strict=True)))
    assert distance == pytest.approx(angle * EARTH, rel=1e-6, abs=0.01)


def _vector(lat: float, lon: float) -> tuple[float, float, float]:
    y, x = math.radians(lat), math.radians(lon)
    return math.cos(y) * math.cos(x), math.cos(y) * math.sin(x), math.sin(y)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"no json", "regions are GeoJSON, but this is not JSON"),
        (b"[]", "regions are GeoJSON with named features, like"),
        (b'"POINT(1 2)"', "regions are GeoJSON with named features, like"),
        ({"features": [{"geometry": None}]}, "feature 1 has no name"),
        ({"features": [{"id": "a", "geometry": None}]}, "feature 1, 'a': this is not a region"),
        ({"features": [*CITY["features"], CITY["features"][0]]}, "feature 3: the region 'Bronx' exists already"),
        ({"features": [{"id": str(n)} for n in range(10_001)]}, "10,001 regions; 10,000 are allowed"),
        (
            {
                "features": [
                    {"id": "a", "geometry": {"type": "LineString", "coordinates": [[0, 0]] * (MOST_CORNERS + 1)}}
                ]
            },
            "at most 200,000 corners",
        ),
    ],
)
def test_regions_document_that_cannot_be_read_is_refused_with_the_feature(document: Any, why: str) -> None:
    """What, where, and what to do."""
    with pytest.raises(InvalidDeclaration, match=why):
        Regions.from_geojson(document)


def test_regions_other_data_is_another_version() -> None:
    """Answers over old regions are never taken for answers over new ones."""
    other = Regions.from_geojson({"features": CITY["features"][:1]})
    assert (len(REGIONS), len(other)) == (2, 1)
    assert geography(other)[0].version != OPERATORS[0].version


def test_a_distance_against_a_plain_number_is_noted() -> None:
    """It never holds, whatever the distance. With a unit there is nothing to say."""
    matcher = Matcher(Vocabulary.from_ontologies([]), operators=OPERATORS)
    for asked in ("?d < 5", "5 > ?d"):
        (note,) = matcher.compile(f'distanceFrom("Liberty", @at, ?d) and {asked}').notes
        assert (note.code, note.attribute) == ("plain-number", "?d")
        assert note.detail == (
            "distanceFrom gives quantities for ?d, which never match the plain number 5: write the number with its unit"
        )
    assert not matcher.compile('distanceFrom("Liberty", @at, ?d) and ?d < 5 km').notes
    assert not matcher.compile('distanceFrom("Liberty", @at, ?d) and ?d / 1 km < 5').notes
