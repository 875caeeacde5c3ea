"""Places: whether a position lies in a region, and how far it is from one. Uses shapely; nothing else does.

    inRegion("Bronx", @position)                  a region by name, or written as WKT or GeoJSON
    inRegion("Bronx", @place.lat, @place.lon)     a position as two numbers, in degrees (WGS 84)
    distanceFrom("Liberty", @position, ?d)        metres to the nearest point of the region; 0 m inside

Regions are data: a GeoJSON document whose features have names. Texts of positions: `geo:40.8,-73.9` (RFC 5870, latitude
first), WKT and GeoJSON (longitude first). Regions are flat between their corners, as GeoJSON has them; distances are on
the sphere, right to 0.5 %.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import AttributeRef, Quantity
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import FailedForGood, needed

__all__ = ["MOST_CORNERS", "MOST_REGIONS", "Regions", "geography"]

MOST_REGIONS = 10_000
"""Named regions: all municipalities of a large country."""
MOST_CORNERS = 200_000
"""Corners of one region: coast lines in full detail. A distance looks at each."""
LONGEST_POSITION = 10_000
"""Characters of a position or region that is written out."""
EARTH = 6_371_008.8
"""Mean radius in metres."""
GEO = re.compile(r"geo:(-?[0-9.]{1,20}),(-?[0-9.]{1,20})(?:[,;].*)?", re.IGNORECASE)


class Regions:
    """Regions by name. Immutable; any number of threads may ask."""

    def __init__(self, shapes: Mapping[str, Any], digest: str) -> None:
        self._shapes = dict(shapes)
        self.digest = digest

    @classmethod
    def from_geojson(cls, document: bytes | str | Mapping[str, Any] = b'{"features": []}') -> "Regions":
        """The named features of a FeatureCollection, or of one Feature: the name is `properties.name`, else `id`.

        Raises `InvalidDeclaration` with the number of the feature that cannot be read; `FailedForGood` without shapely.
        """
        text = document if isinstance(document, bytes | str) else json.dumps(document, sort_keys=True)
        try:
            read = json.loads(text)
            features = read.get("features", [read])
            names = [(each.get("properties") or {}).get("name", each.get("id")) for each in features]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidDeclaration(f"this is not GeoJSON with features: {error}") from error
        if len(features) > MOST_REGIONS:
            raise InvalidDeclaration(f"{len(features):,} regions; {MOST_REGIONS:,} are allowed")
        shapes: dict[str, Any] = {}
        for number, (name, feature) in enumerate(zip(names, features, strict=True), 1):
            if not isinstance(name, str) or not name:
                raise InvalidDeclaration(f"feature {number} has no name: give it properties.name, or an id")
            if name in shapes:
                raise InvalidDeclaration(f"feature {number}: the region {name!r} exists already")
            try:
                shapes[name] = _shape(json.dumps(feature.get("geometry")))
            except ValueError as error:
                raise InvalidDeclaration(f"feature {number}, {name!r}: {error}") from error
        data = text.encode() if isinstance(text, str) else text
        return cls(shapes, hashlib.sha256(data).hexdigest()[:12])

    def __len__(self) -> int:
        return len(self._shapes)

    def find(self, region: str) -> Any:
        """A region by name, or as WKT or GeoJSON. Raises ValueError."""
        found = self._shapes.get(region)
        if found is not None:
            return found
        if region.lstrip()[:1] != "{" and "(" not in region:
            known = ", ".join(sorted(self._shapes)[:5]) or "none"
            raise ValueError(f"there is no region {region!r} (known: {known}, …), and it is neither WKT nor GeoJSON")
        return _written(region)


def geography(regions: Regions | None = None) -> list[Operator]:
    """`inRegion` and `distanceFrom` over these regions."""
    known = Regions({}, "0") if regions is None else regions

    def wrong(region: str, *position: object) -> str | None:
        if sum(isinstance(each, AttributeRef) for each in position) not in (1, 2):
            return "a position is one attribute, or two attributes: latitude and longitude"
        try:
            known.find(region)
        except (ValueError, FailedForGood) as error:
            return str(error)
        return None

    def in_region(event: Any, region: str, *position: tuple[Any, ...]) -> bool:
        shape = known.find(region)
        return any(shape.intersects(each) for each in _positions(position))

    def distance_from(event: Any, region: str, *position: tuple[Any, ...]) -> list[Quantity]:
        shape = known.find(region)
        return [Quantity(round(_metres(each, shape), 3), "m") for each in _positions(position)]

    said: dict[str, Any] = {"version": known.digest, "cache_key": "arguments", "check": wrong, "concurrency": 64}
    return [
        Operator(name="inRegion", function=in_region, cost=1e-4, selectivity=0.1, binds=(), **said),
        Operator(name="distanceFrom", function=distance_from, cost=3e-4, selectivity=0.9, binds=(Quantity,), **said),
    ]


def _positions(given: tuple[tuple[Any, ...], ...]) -> Iterator[Any]:
    """The readable positions in the values of one attribute, or of two that have one number each."""
    shapely = needed("shapely", "geography")
    if len(given) == 2:
        if len(given[0]) != 1 or len(given[1]) != 1:
            raise FailedForGood("latitude and longitude must each have exactly one value")
        found = _point(given[0][0], given[1][0])
        if found is not None:
            yield shapely.Point(found)
        return
    for text in given[0]:
        if not isinstance(text, str):
            continue
        geo = GEO.fullmatch(text)
        try:
            found = _point(geo[1], geo[2]) if geo else None
            if found is not None:
                yield shapely.Point(found)
            elif geo is None:
                yield _written(text)
        except ValueError:
            continue  # another kind of value, as in any predicate


def _point(latitude: Any, longitude: Any) -> tuple[float, float] | None:
    """(longitude, latitude), or None for what is no place on Earth."""
    try:
        y, x = float(latitude), float(longitude)
    except (TypeError, ValueError, OverflowError):
        return None
    return (x, y) if abs(y) <= 90 and abs(x) <= 180 else None


@lru_cache(maxsize=1_024)
def _written(text: str) -> Any:
    """WKT or GeoJSON. Raises ValueError."""
    if len(text) > LONGEST_POSITION:
        raise ValueError(f"a written region has at most {LONGEST_POSITION:,} characters")
    return _shape(text)


def _shape(text: str) -> Any:
    """A prepared shape. Raises ValueError."""
    shapely = needed("shapely", "geography")
    try:
        with np.errstate(all="ignore"):  # a number too large is infinite, and told below
            found = shapely.from_geojson(text) if text.lstrip()[:1] == "{" else shapely.from_wkt(text)
    except (shapely.errors.ShapelyError, TypeError) as error:
        raise ValueError(f"this is not a region: {error}") from error
    if found is None or found.is_empty:
        raise ValueError("this is not a region: it is empty")
    if not np.isfinite(shapely.get_coordinates(found)).all():
        raise ValueError("this is not a region: its coordinates must be finite numbers")
    if shapely.get_num_coordinates(found) > MOST_CORNERS:
        raise ValueError(f"a region has at most {MOST_CORNERS:,} corners")
    if not shapely.is_valid(found):
        found = shapely.make_valid(found)
    west, south, east, north = found.bounds
    if west < -180 or east > 180 or south < -90 or north > 90:
        raise ValueError("longitudes are from -180 to 180 and come first, latitudes are from -90 to 90")
    shapely.prepare(found)
    return found


def _metres(place: Any, region: Any) -> float:
    """From `place` to the nearest point of `region`: nearest on a map around the place, measured on the sphere."""
    shapely = needed("shapely", "geography")
    if region.intersects(place):
        return 0.0
    centre = place.centroid
    stretch = max(math.cos(math.radians(centre.y)), 1e-6)

    def flat(points: Any) -> Any:
        turned = points.copy()
        turned[:, 0] = ((points[:, 0] - centre.x + 180.0) % 360.0 - 180.0) * stretch
        return turned

    line = shapely.shortest_line(shapely.transform(place, flat), shapely.transform(region, flat))
    (x1, y1), (x2, y2) = line.coords
    return _on_sphere((x1 / stretch, y1), (x2 / stretch, y2))


def _on_sphere(one: tuple[float, float], other: tuple[float, float]) -> float:
    (x1, y1), (x2, y2) = ([math.radians(each) for each in point] for point in (one, other))
    half = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * EARTH * math.asin(min(1.0, math.sqrt(half)))
