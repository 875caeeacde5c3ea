"""Built-in operators: regions and distances, images, calendar windows, text similarity, look-up tables."""

import base64
import binascii
import csv
import hashlib
import io
import json
import math
import re
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kindcast.semantic.errors import InvalidDeclaration, InvalidPattern
from kindcast.semantic.model import AttributeRef, Quantity, Variable
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import FailedForGood, needed
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units.kinds import parse_instant
from kindcast.semantic.units.patterns import check_size, compile_pattern, fold

__all__ = [
    "LONGEST_IMAGE",
    "LONGEST_TEXT",
    "MOST_CELLS",
    "MOST_CORNERS",
    "MOST_PIXELS",
    "MOST_REGIONS",
    "MOST_WINDOWS",
    "Regions",
    "Table",
    "Window",
    "builtin_operators",
    "geography",
    "operators_of_documents",
    "pictures",
    "tables",
    "texts",
    "windows",
]

# ── places: whether a position lies in a region, and its distance from a region. The only code that uses shapely ──────

#     inRegion("Bronx", @position)                  the region is a name, or is written as WKT or GeoJSON
#     inRegion("Bronx", @place.lat, @place.lon)     the position is two numbers in degrees (WGS 84)
#     distanceFrom("Liberty", @position, ?d)        metres to the nearest point of the region; 0 m inside
#
# Named regions are data: a GeoJSON document whose features have names. A position is written as `geo:40.8,-73.9`
# (RFC 5870, latitude first), WKT or GeoJSON (longitude first). The edges of a region are straight lines in longitude
# and latitude, as in GeoJSON. Distances are measured on the sphere.


MOST_REGIONS = 10_000
"""Maximum number of named regions: enough for all municipalities of a large country."""
MOST_CORNERS = 200_000
"""Maximum number of corners of one region: enough for coast lines in full detail. A distance reads each corner."""
GEOJSON = '{"type": "FeatureCollection", "features": [{"properties": {"name": "Vienna"}, "geometry": …}]}'
"""What regions look like, for messages."""
MOST_CROSSINGS = 1_000
"""Maximum number of crossings of the edges of a region. To repair more takes minutes, and gigabytes of memory."""
NEAR_EDGES = 50
"""Maximum number of edges to which an edge of such a region is near, on average: their bounding boxes meet.
In a grid of squares there are 14."""
EDGES_AT_A_TIME = 32
"""The number of edges that are compared with all edges at a time."""
LONGEST_POSITION = 10_000
"""Maximum number of characters of a position or region that is written as text."""
EARTH = 6_371_008.8
"""Mean radius of the Earth in metres."""
NEAR = 300_000.0
"""Within this number of metres the nearest point on a flat map is the nearest point."""
POLAR = 80.0
"""From this latitude on, flat maps are not used alone."""
GEO = re.compile(
    r"geo:(-?[0-9.]{1,20}),(-?[0-9.]{1,20})(?:,-?[0-9.]{1,20})?(?:;crs=wgs84)?(?:;(?!crs=)[^;]*)*", re.IGNORECASE
)
"""A position of RFC 5870 in the only coordinate system that is known."""


class _Feature(msgspec.Struct):
    """A feature of GeoJSON. Its geometry is not read, because shapely does that."""

    properties: dict[str, Any] | None = None
    id: Any = None
    geometry: msgspec.Raw = msgspec.Raw(b"null")


class _Regions(_Feature):
    """A FeatureCollection, or one feature."""

    features: list[_Feature] | None = None


class Regions:
    """Regions by name. Immutable and thread-safe."""

    def __init__(self, shapes: Mapping[str, Any], digest: str) -> None:
        self._shapes = dict(shapes)
        self.digest = digest

    @classmethod
    def from_geojson(cls, document: bytes | str | Mapping[str, Any]) -> "Regions":
        """Reads the named features of a FeatureCollection, or one Feature. The name is `properties.name`, else `id`.

        Raises `InvalidDeclaration` with the number of the feature that cannot be read, or `FailedForGood` if shapely is
        not installed.
        """
        text = document if isinstance(document, bytes | str) else json.dumps(document, sort_keys=True)
        data = text.encode() if isinstance(text, str) else text
        try:
            read = msgspec.json.decode(data, type=_Regions)
        except msgspec.ValidationError:
            raise InvalidDeclaration(f"regions are GeoJSON with named features, like {GEOJSON}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidDeclaration(f"regions are GeoJSON, but this is not JSON: {error}") from error
        features = [read] if read.features is None else read.features
        if len(features) > MOST_REGIONS:
            raise InvalidDeclaration(f"{len(features):,} regions; {MOST_REGIONS:,} are allowed")
        shapes: dict[str, Any] = {}
        for number, feature in enumerate(features, 1):
            name = (feature.properties or {}).get("name", feature.id)
            if not isinstance(name, str) or not name:
                raise InvalidDeclaration(f"feature {number} has no name: give it properties.name, or an id")
            if name in shapes:
                raise InvalidDeclaration(f"feature {number}: the region {name!r} exists already")
            try:
                shapes[name] = _shape(bytes(feature.geometry).decode())
            except ValueError as error:
                raise InvalidDeclaration(f"feature {number}, {name!r}: {error}") from error
        return cls(shapes, hashlib.sha256(data).hexdigest()[:12])

    def __len__(self) -> int:
        return len(self._shapes)

    def find(self, region: str) -> Any:
        """Returns the region with this name, or the region that is written as WKT or GeoJSON. Raises ValueError if
        there is no region with this name, and `FailedForGood` if a written one cannot be read."""
        found = self._shapes.get(region)
        if found is not None:
            return found
        if region.lstrip()[:1] != "{" and "(" not in region:
            known = ", ".join(sorted(self._shapes)[:5]) or "none"
            raise ValueError(f"there is no region {region!r} (known: {known}, …), and it is neither WKT nor GeoJSON")
        try:
            return _written_region(region)
        except ValueError as error:
            raise FailedForGood(str(error)) from error


def geography(regions: Regions | None = None) -> list[Operator]:
    """Returns the operators `inRegion` and `distanceFrom` over these regions."""
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
    """Yields the positions in the values of one attribute, or of two attributes with one number each.

    Values of one attribute that are not positions are skipped. Raises `FailedForGood` if latitude or longitude does not
    have exactly one value."""
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
                yield _written_region(text)
        except ValueError:
            continue  # a value of another kind does not match, as in any predicate


def _point(latitude: Any, longitude: Any) -> tuple[float, float] | None:
    """Returns (longitude, latitude), or None if these are not coordinates on Earth."""
    try:
        y, x = float(latitude), float(longitude)
    except (TypeError, ValueError, OverflowError):
        return None
    return (x, y) if abs(y) <= 90 and abs(x) <= 180 else None


@lru_cache(maxsize=1_024)
def _written_region(text: str) -> Any:
    """Returns the prepared shape of a WKT or GeoJSON text. Raises ValueError."""
    if len(text) > LONGEST_POSITION:
        raise ValueError(f"a written region has at most {LONGEST_POSITION:,} characters")
    return _shape(text)


def _shape(text: str) -> Any:
    """Parses WKT or GeoJSON into a prepared, valid shape. Raises ValueError."""
    shapely = needed("shapely", "geography")
    try:
        with np.errstate(all="ignore"):  # a number that is too large becomes infinite; it is reported below
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
        _check_edges(found)
        found = shapely.make_valid(found, method="structure")  # "linework" would omit what two polygons share
    west, south, east, north = found.bounds
    if west < -180 or east > 180 or south < -90 or north > 90:
        raise ValueError("longitudes are from -180 to 180 and come first, latitudes are from -90 to 90")
    shapely.prepare(found)
    return found


def _check_edges(region: Any) -> None:
    """Raises ValueError if so many edges cross or overlap each other that the region cannot be repaired in a short
    time."""
    shapely = needed("shapely", "geography")
    parts = shapely.get_parts(region)
    while (shapely.get_type_id(parts) > shapely.GeometryType.POLYGON).any():
        parts = shapely.get_parts(parts)
    points, ring = shapely.get_coordinates(shapely.get_rings(parts), return_index=True)
    ends = np.stack([points[:-1], points[1:]], axis=1)[ring[:-1] == ring[1:]]
    edges = shapely.linestrings(ends)
    tree = shapely.STRtree(edges)
    near = crossings = 0
    for begin in range(0, len(edges), EDGES_AT_A_TIME):
        one, other = tree.query(edges[begin : begin + EDGES_AT_A_TIME])
        near += len(one)
        if near <= MOST_CROSSINGS + NEAR_EDGES * len(edges):
            crossings += _crossings(ends[one + begin], ends[other])
            if crossings <= 2 * MOST_CROSSINGS:  # each is found from both sides
                continue
        raise ValueError(f"its edges cross or overlap too often; {MOST_CROSSINGS:,} crossings are allowed")


def _crossings(ones: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> int:
    """Returns for how many i edge `ones[i]` crosses edge `others[i]`. Both are of shape [n, 2, 2]: edge, end,
    coordinate."""

    def sides(edges: npt.NDArray[np.float64], points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        along, to = edges[:, 1] - edges[:, 0], points - edges[:, 0]
        return np.sign(along[:, 0] * to[:, 1] - along[:, 1] * to[:, 0])

    apart = sides(ones, others[:, 0]) * sides(ones, others[:, 1]) < 0
    return int(np.count_nonzero(apart & (sides(others, ones[:, 0]) * sides(others, ones[:, 1]) < 0)))


def _metres(place: Any, region: Any) -> float:
    """Returns the distance in metres from `place` to the nearest point of `region`.

    The nearest point is found on a flat map around `place`; the distance to it is measured on the sphere. Far away and
    near the poles the map is distorted, so the points of the edges, each degree, are measured as well.
    """
    shapely = needed("shapely", "geography")
    if region.intersects(place):
        return 0.0
    (west, _, east, _), (first, _, last, _) = region.bounds, place.bounds
    turns = [each for each in (-360.0, 0.0, 360.0) if west + each - last <= 180.0 and first - east - each <= 180.0]
    metres, start = min(_on_flat_map(place, region, turn) for turn in turns)
    if metres < NEAR and abs(start[1]) < POLAR:
        return metres
    step = max(1.0, region.length / MOST_CORNERS)
    return min(metres, _on_sphere(start, shapely.get_coordinates(shapely.segmentize(region, step))))


def _on_flat_map(place: Any, region: Any, turn: float) -> tuple[float, tuple[float, float]]:
    """Returns the distance in metres between the points of `place` and `region` that are nearest on a flat map around
    `place`, and that point of `place`. `turn` is added to the longitudes of `region`."""
    shapely = needed("shapely", "geography")
    stretch = max(math.cos(math.radians(place.centroid.y)), 1e-6)
    flat = shapely.transform(place, lambda points: points * (stretch, 1.0))
    other = shapely.transform(region, lambda points: np.add(points, (turn, 0.0)) * (stretch, 1.0))
    here, there = shapely.get_coordinates(shapely.shortest_line(flat, other)) / (stretch, 1.0)
    start = (float(here[0]), float(here[1]))
    return _on_sphere(start, there[None]), start


def _on_sphere(one: tuple[float, float], others: npt.NDArray[np.float64]) -> float:
    """Returns the great-circle distance in metres from a point (longitude, latitude) to the nearest of `others`: the
    haversine formula."""
    x1, y1 = map(math.radians, one)
    x2, y2 = np.radians(others).T
    half = np.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * np.cos(y2) * np.sin((x2 - x1) / 2) ** 2
    return 2 * EARTH * math.asin(min(1.0, math.sqrt(float(half.min()))))


# ── pictures: what the pixels of a small image show. The only code that uses Pillow ───────────────────────────────────

#     brightness(@image, ?b)                     mean brightness, 0 to 1
#     colourShare("red", @image, ?share)         share of pixels of a colour, 0 to 1
#     spots(@image, ?n)                          number of separate objects that stand out from the background
#
# An image is a PNG in base64, with or without the prefix `data:image/png;base64,`. It is read from the event only: no
# file is opened and no URL is fetched. An image that is too large is refused before it is decompressed.


LONGEST_IMAGE = 1_000_000
"""Maximum number of characters of an image in base64. A larger image belongs in an object store, its URL in the
event."""
MOST_PIXELS = 1 << 20
"""Maximum number of pixels of an image: a megabyte of PNG can decompress to gigabytes."""
STANDS_OUT = 48.0
"""Minimum difference in grey levels between an object and the background."""
SMALLEST = 4
"""Minimum number of pixels of an object; smaller groups are noise."""

Pixels = npt.NDArray[np.uint8]

HUES = {
    "red": (330, 30),
    "yellow": (30, 90),
    "green": (90, 150),
    "cyan": (150, 210),
    "blue": (210, 270),
    "magenta": (270, 330),
}
"""Colour → its range of hues, in degrees. The range of red passes 0."""


def pictures() -> list[Operator]:
    """Returns the operators `brightness`, `colourShare` and `spots`."""
    said: dict[str, Any] = {"cost": 2e-3, "selectivity": 0.95, "cache_key": "arguments", "concurrency": 64}
    return [
        Operator(name="brightness", function=_each(_brightness, "brightness"), binds=(float,), **said),
        Operator(name="colourShare", function=_colour_share, binds=(float,), check=_wrong_colour, **said),
        Operator(name="spots", function=_each(_spots, "spots"), binds=(int,), **said),
    ]


def _each(measured: Callable[[Pixels], Any], name: str) -> Callable[..., Any]:
    """Returns the function of an operator that measures each image of an attribute."""

    def function(event: Any, image: tuple[Any, ...]) -> list[Any]:
        return [measured(_pixels(each, name)) for each in image]

    return function


def _pixels(text: Any, operator: str) -> Pixels:
    """Decodes an image into uint8[height, width, 3] (RGB). Raises `FailedForGood`."""
    image_of = needed("PIL.Image", operator)
    if not isinstance(text, str) or len(text) > LONGEST_IMAGE:
        raise FailedForGood(f"an image is a text of at most {LONGEST_IMAGE:,} characters")
    try:
        data = base64.b64decode(text.removeprefix("data:image/png;base64,"), validate=True)
        with image_of.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise FailedForGood(f"the image has {image.width * image.height:,} pixels; {MOST_PIXELS:,} are allowed")
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (binascii.Error, OSError, ValueError, SyntaxError, EOFError, image_of.DecompressionBombError) as error:
        raise FailedForGood(f"this is not a PNG in base64: {error}") from error


def _grey(pixels: Pixels) -> npt.NDArray[np.float64]:
    return np.asarray(pixels @ np.array([0.299, 0.587, 0.114]), dtype=np.float64)


def _brightness(pixels: Pixels) -> float:
    return round(float(_grey(pixels).mean()) / 255, 4)


def _wrong_colour(colour: str, *_: Any) -> str | None:
    return None if colour in HUES else f"there is no colour {colour!r}; known are {', '.join(HUES)}"


def _colour_share(event: Any, colour: str, image: tuple[Any, ...]) -> list[float]:
    low, high = HUES[colour]
    found = []
    for each in image:
        hue, vivid = _hues(_pixels(each, "colourShare"))
        inside = (hue >= low) & (hue < high) if low < high else (hue >= low) | (hue < high)
        found.append(round(float((inside & vivid).mean()), 4))
    return found


def _hues(pixels: Pixels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Returns the hue of each pixel in degrees, and whether the pixel has a colour (not grey, not nearly black)."""
    red, green, blue = (pixels[..., channel].astype(np.float64) for channel in range(3))
    most, least = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    spread = np.maximum(most - least, 1e-9)
    hue = np.where(
        most == red,
        (green - blue) / spread,
        np.where(most == green, 2 + (blue - red) / spread, 4 + (red - green) / spread),
    )
    return (hue * 60) % 360, (most - least > 0.25 * most) & (most > 32)


def _spots(pixels: Pixels) -> int:
    """Counts the connected groups of pixels (4 neighbours) that differ from the most frequent grey level."""
    grey = _grey(pixels)
    background = float(np.bincount(grey.astype(np.int64).ravel(), minlength=256).argmax())
    return sum(size >= SMALLEST for size in _sizes(np.abs(grey - background) > STANDS_OUT))


def _sizes(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Returns the sizes of the connected groups of true cells. Each run of a row is joined (union-find) with the runs
    of the row above that it touches."""
    root: list[int] = []
    size: list[int] = []

    def top(run: int) -> int:
        while root[run] != run:
            root[run] = root[root[run]]
            run = root[run]
        return run

    above: list[tuple[int, int, int]] = []
    for row in mask:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0])))).tolist()
        runs, at = [], 0
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            number = len(root)
            root.append(number)
            size.append(end - begin)
            while at < len(above) and above[at][1] <= begin:
                at += 1
            look = at
            while look < len(above) and above[look][0] < end:
                one, other = top(above[look][2]), top(number)
                if one != other:
                    root[other] = one
                    size[one] += size[other]
                look += 1
            runs.append((begin, end, number))
        above = runs
    return [size[each] for each in range(len(root)) if root[each] == each]


# ── calendar windows: whether a date-time lies in given hours of given days, in a time zone ───────────────────────────

#     inWindow("office hours", @ce.time)                                   a window by name
#     inWindow("mon-fri 09:00-17:00 Europe/Vienna", @ce.time)              a window in its written form
#     inWindow("2026-12-24..2027-01-06 Europe/Vienna", @due)
#
# A window consists of days of the week, dates, hours and a time zone, in this order. Only the time zone is required.
# The end of the hours is exclusive. Hours may pass midnight: `22:00-06:00` belongs to the day on which it begins.
# Named windows are data, too:
# {"office hours": ["mon-thu 09:00-17:00 Europe/Vienna", "fri 09:00-13:00 Europe/Vienna"]}.


MOST_WINDOWS = 1_000
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = f"(?:{'|'.join(DAYS)})"
FORM = re.compile(
    rf"(?:(?P<days>{DAY}(?:-{DAY})?(?:,{DAY}(?:-{DAY})?)*)\s+)?"
    r"(?:(?P<first>\d{4}-\d{2}-\d{2})(?:\.\.(?P<last>\d{4}-\d{2}-\d{2}))?\s+)?"
    r"(?:(?P<begin>\d{2}:\d{2})-(?P<end>\d{2}:\d{2})\s+)?"
    r"(?P<zone>[A-Za-z0-9_+/-]{1,64})",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of some days in one time zone; `begin == end` is the whole day."""

    zone: zoneinfo.ZoneInfo
    days: frozenset[int]
    first: date
    last: date
    begin: time
    end: time

    @classmethod
    def of(cls, text: str) -> "Window":
        """Parses the written form of a window. Raises ValueError, whose message says what is wrong.

        >>> Window.of("mon-fri 09:00-17:00 Europe/Vienna").holds(datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
        True
        """
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(
                f"{text!r} is not a window: write 'mon-fri 2026-01-01..2026-12-31 09:00-17:00 Europe/Vienna'"
            )
        if found["zone"] not in _zones():  # only a listed name may become a file name
            raise ValueError(f"there is no time zone {found['zone']!r}; write a name such as Europe/Vienna or UTC")
        first = date.fromisoformat(found["first"]) if found["first"] else date.min
        last = date.fromisoformat(found["last"]) if found["last"] else first if found["first"] else date.max
        begin, end = (_clock(found[each] or "00:00") for each in ("begin", "end"))
        return cls(zoneinfo.ZoneInfo(found["zone"]), _days(found["days"]), first, last, begin, end)

    def holds(self, instant: datetime) -> bool:
        """Whether `instant`, a date-time with an offset, lies in the window."""
        here = instant.astimezone(self.zone)
        clock, day = here.time(), here.date()
        if self.begin < self.end:
            return self.begin <= clock < self.end and self._on(day)
        if clock >= self.begin and self._on(day):
            return True
        return clock < self.end and day > date.min and self._on(day - timedelta(days=1))

    def _on(self, day: date) -> bool:
        return day.weekday() in self.days and self.first <= day <= self.last


def windows(named: Mapping[str, Sequence[str]] | bytes | str | None = None) -> list[Operator]:
    """Returns the operator `inWindow` over these named windows, given as a mapping or as its JSON text. Raises
    `InvalidDeclaration`."""
    known, version = _named(named)

    def found(window: str) -> Sequence[Window]:
        return known[window] if window in known else (_written_window(window),)

    def wrong(window: str, *_: Any) -> str | None:
        try:
            found(window)
        except ValueError as error:
            return str(error)
        return None

    def in_window(event: Any, window: str, times: tuple[Any, ...]) -> bool:
        instants = [parse_instant(each) for each in times if isinstance(each, str)]
        moments = [_EPOCH + timedelta(microseconds=each) for each in instants if each is not None]
        return any(each.holds(moment) for moment in moments for each in found(window))

    said: dict[str, Any] = {"version": version, "cost": 1e-5, "selectivity": 0.3, "binds": (), "concurrency": 64}
    return [Operator(name="inWindow", function=in_window, check=wrong, cache_key="arguments", **said)]


def _named(given: Mapping[str, Sequence[str]] | bytes | str | None) -> tuple[dict[str, tuple[Window, ...]], str]:
    try:
        read = json.loads(given) if isinstance(given, bytes | str) else dict(given or {})
        if not isinstance(read, dict) or len(read) > MOST_WINDOWS:
            raise ValueError(f"an object from names to windows is expected, with at most {MOST_WINDOWS:,} names")
        found = {}
        for name, texts in read.items():
            try:
                found[name] = tuple(Window.of(each) for each in ([texts] if isinstance(texts, str) else texts))
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"window {name!r}: {error}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidDeclaration(str(error)) from error
    return found, hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:12]


@lru_cache(maxsize=1_024)
def _written_window(text: str) -> Window:
    return Window.of(text)


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _clock(text: str) -> time:
    return time(0, 0) if text == "24:00" else time.fromisoformat(text)


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update(each % 7 for each in range(begin, end + 1 if end >= begin else end + 8))
    return frozenset(found)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ── texts: a regular expression over several attributes, and text similarity. The only code that uses rapidfuzz ───────

#     anyMatches("(?i)urgent|asap", @subject, @body)      RE2, like `matches`
#     similar("pump 7 leaks", @title, ?score)             similarity from 0 to 1, whatever the order of the words
#
# The score compares folded words without punctuation. It is 1 for the same words in any order. `?score >= 0.9` finds
# near-duplicates.


LONGEST_TEXT = 10_000
"""Number of characters that are compared: the cost grows with the product of both lengths."""


def texts() -> list[Operator]:
    """Returns the operators `anyMatches` and `similar`."""
    said: dict[str, Any] = {"cache_key": "arguments", "concurrency": 64}
    return [
        Operator(name="anyMatches", function=_any_matches, cost=2e-5, binds=(), check=_wrong_pattern, **said),
        Operator(name="similar", function=_similar, cost=1e-4, selectivity=0.9, binds=(float,), **said),
    ]


def _wrong_pattern(pattern: str, *attributes: Any) -> str | None:
    try:
        check_size(compile_pattern(pattern))
    except InvalidPattern as error:
        return str(error)
    return None


MOST_STEPS = 200_000_000
"""States of a pattern times characters that one call of `anyMatches` searches: up to a second. Other calls wait."""


def _any_matches(event: Any, pattern: str, *attributes: tuple[Any, ...]) -> bool:
    """Searches the shortest texts first, so that a long one is no obstacle to the others."""
    compiled = compile_pattern(pattern)
    texts = sorted((text for values in attributes for text in values if isinstance(text, str)), key=len)
    most = left = MOST_STEPS // compiled.states
    for text in texts:
        left -= len(text)
        if left < 0:
            count = sum(map(len, texts))
            raise FailedForGood(
                f"the texts have {count:,} characters; {most:,} are allowed for a pattern of {compiled.states:,} states"
            )
        if compiled.found_in(text):
            return True
    return False


def _similar(event: Any, text: str, values: tuple[Any, ...]) -> list[float]:
    fuzz = needed("rapidfuzz.fuzz", "similar")
    wanted = _words(text)
    return [round(fuzz.token_sort_ratio(wanted, _words(value)) / 100, 4) for value in values if isinstance(value, str)]


def _words(text: str) -> str:
    return " ".join("".join(each if each.isalnum() else " " for each in fold(text[:LONGEST_TEXT])).split())


# ── tables: look-ups of values in uploaded tables ─────────────────────────────────────────────────────────────────────

#     inTable("blocked", @sender)                        whether a value is a key of the table
#     lookUp("suppliers", @supplier, ?country, ?grade)   other columns of the rows with this key, one binding per row
#
# A table is CSV with a header. Its first column is the key; several rows may have the same key. Cells that read as
# numbers are numbers. Keys are compared as by `=`: texts as written (NFC), numbers by value.


MOST_CELLS = 5_000_000
"""Maximum number of cells of a table, and of all uploaded tables of a tenant: some hundreds of megabytes at worst."""
LONGEST_CELL = 10_000
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,3})?")


class Table:
    """The rows of a table by key. Immutable."""

    def __init__(self, name: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]], digest: str) -> None:
        self.name, self.columns, self.digest = name, columns, digest
        self._rows: dict[Any, list[tuple[Any, ...]]] = {}
        for row in rows:
            self._rows.setdefault(_key(row[0]), []).append(row[1:])
        self._length = sum(map(len, self._rows.values()))

    @classmethod
    def from_csv(cls, name: str, document: bytes | str) -> "Table":
        """Reads a table from CSV in UTF-8. Raises `InvalidDeclaration` with the line that cannot be read."""
        data = document.encode() if isinstance(document, str) else document
        try:
            lines = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
            columns = tuple(next(lines, ()))
            rows: list[tuple[Any, ...]] = []
            for row in lines:
                if len(row) != len(columns):
                    raise ValueError(f"{len(row)} cells under {len(columns)} columns")
                if len(rows) * len(columns) > MOST_CELLS:
                    raise ValueError(f"more than {MOST_CELLS:,} cells")
                if any(len(cell) > LONGEST_CELL for cell in row):
                    raise ValueError(f"a cell of more than {LONGEST_CELL:,} characters")
                rows.append(tuple(map(_cell, row)))
        except UnicodeDecodeError as error:
            raise InvalidDeclaration(f"table {name!r} is not UTF-8: {error}") from error
        except (ValueError, csv.Error) as error:
            raise InvalidDeclaration(f"table {name!r}, line {lines.line_num}: {error}") from error
        if not columns or len(set(columns)) != len(columns):
            raise InvalidDeclaration(f"table {name!r}: the first line names the columns, each once")
        if columns[0].startswith(("{", "[")):
            raise InvalidDeclaration(
                f"table {name!r}: a table is CSV with a line of column names; this looks like JSON"
            )
        return cls(name, columns, rows, hashlib.sha256(data).hexdigest()[:12])

    def __len__(self) -> int:
        return self._length

    @property
    def cells(self) -> int:
        """The number of cells, on which the memory of a table depends."""
        return self._length * len(self.columns)

    def rows(self, value: Any) -> list[tuple[Any, ...]]:
        """Returns the cells, without the key, of the rows whose key is `value`. Keys that are numbers are found by
        numbers and by their texts."""
        if not isinstance(value, str | int | float):
            return []
        found = self._rows.get(_key(value))
        if found is not None:
            return found
        if isinstance(value, str):
            return self._rows.get(_key(_cell(value)), [])
        if isinstance(value, bool) or not math.isfinite(value) or value != int(value):
            return []
        return self._rows.get(str(int(value)), [])  # a cell with more digits than `NUMBER` has is a text


def tables(known: Iterable[Table] = ()) -> list[Operator]:
    """Returns the operators `inTable` and `lookUp` over these tables."""
    by_name = {table.name: table for table in known}
    version = hashlib.sha256("".join(f"{n}={t.digest};" for n, t in sorted(by_name.items())).encode()).hexdigest()[:12]

    def wrong(table: str, *given: object) -> str | None:
        if table not in by_name:
            return f"there is no table {table!r}; known are {', '.join(sorted(by_name)) or 'none'}"
        columns = by_name[table].columns[1:]
        bound = len({each.name for each in given if isinstance(each, Variable)})
        if bound in (0, len(columns)):
            return None
        return f"table {table!r} binds {len(columns)} variables ({', '.join(columns)}), or none; the call has {bound}"

    def in_table(event: Any, table: str, values: tuple[Any, ...]) -> bool:
        return any(by_name[table].rows(value) for value in values)

    def look_up(event: Any, table: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [row for value in values for row in by_name[table].rows(value)]

    said: dict[str, Any] = {"version": version, "cost": 5e-6, "check": wrong, "concurrency": 64}
    return [
        Operator(name="inTable", function=in_table, selectivity=0.1, binds=(), **said),
        Operator(name="lookUp", function=look_up, selectivity=0.5, **said),
    ]


def _cell(text: str) -> Any:
    if NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return int(text) if text.lstrip("-").isdigit() else number
    return nfc(text)


def _key(value: Any) -> Any:
    """Returns the dictionary key of a value: texts in NFC; booleans are marked, so that true is not 1."""
    return (bool, value) if isinstance(value, bool) else nfc(value) if isinstance(value, str) else value


def builtin_operators(
    *,
    regions: Regions | None = None,
    tables_known: Iterable[Table] = (),
    windows_known: Mapping[str, Sequence[str]] | None = None,
) -> list[Operator]:
    """Returns all built-in operators, over this data. Raises `InvalidDeclaration` for windows that cannot be read.

    >>> " ".join(each.name for each in builtin_operators())
    'inRegion distanceFrom anyMatches similar inTable lookUp inWindow brightness colourShare spots'
    """
    return [*geography(regions), *texts(), *tables(tables_known), *windows(windows_known), *pictures()]


def operators_of_documents(documents: Iterable[tuple[str, str, bytes]]) -> list[Operator]:
    """Returns all built-in operators over the data in documents: (`regions`, `tables` or `windows`, name, content).
    Raises `InvalidDeclaration`.

    >>> found = {each.name: each for each in operators_of_documents([("tables", "blocked", b"address\\n10.0.0.1\\n")])}
    >>> found["inTable"]({}, "blocked", ("10.0.0.1",))
    True
    """
    regions, windows = None, None
    tables_known: list[Table] = []
    for kind, name, content in documents:
        if kind == "regions":
            regions = Regions.from_geojson(content)
        elif kind == "windows":
            windows = json.loads(content)
        else:
            tables_known.append(Table.from_csv(name, content))
    return builtin_operators(regions=regions, tables_known=tables_known, windows_known=windows)
