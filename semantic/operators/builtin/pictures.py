"""Pictures: what the pixels of a small image show. Uses Pillow; nothing else does.

    brightness(@image, ?b)                     mean brightness, 0 to 1
    colourShare("red", @image, ?share)         the share of pixels of a colour, 0 to 1
    spots(@image, ?n)                          how many separate things stand out from the background

An image is a PNG in base64, alone or as `data:image/png;base64,…`. It comes from the event and from nowhere else: no
file is opened, no address asked. What is too large is refused before it is unpacked.
"""

import base64
import binascii
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import FailedForGood, needed

__all__ = ["LONGEST", "MOST_PIXELS", "pictures"]

LONGEST = 1_000_000
"""Characters of an image in base64; larger ones belong in an object store, and their address in the event."""
MOST_PIXELS = 1 << 20
"""Pixels of an image: a megabyte of PNG can unpack to gigabytes."""
STANDS_OUT = 48.0
"""Grey levels between a thing and the background."""
SMALLEST = 4
"""Pixels of a thing; less is noise."""

Pixels = npt.NDArray[np.uint8]

HUES = {
    "red": (330, 30),
    "yellow": (30, 90),
    "green": (90, 150),
    "cyan": (150, 210),
    "blue": (210, 270),
    "magenta": (270, 330),
}
"""Colour → its arc of hues, in degrees."""


def pictures() -> list[Operator]:
    """`brightness`, `colourShare` and `spots`."""
    said: dict[str, Any] = {"cost": 2e-3, "selectivity": 0.95, "cache_key": "arguments", "concurrency": 64}
    return [
        Operator(name="brightness", function=_each(_brightness, "brightness"), binds=(float,), **said),
        Operator(name="colourShare", function=_colour_share, binds=(float,), check=_wrong_colour, **said),
        Operator(name="spots", function=_each(_spots, "spots"), binds=(int,), **said),
    ]


def _each(measured: Callable[[Pixels], Any], name: str) -> Callable[..., Any]:
    def function(event: Any, image: tuple[Any, ...]) -> list[Any]:
        return [measured(_pixels(each, name)) for each in image]

    return function


def _pixels(text: Any, operator: str) -> Pixels:
    """uint8[height, width, 3]. Raises `FailedForGood`."""
    image_of = needed("PIL.Image", operator)
    if not isinstance(text, str) or len(text) > LONGEST:
        raise FailedForGood(f"an image is a text of at most {LONGEST:,} characters")
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
    """The hue of each pixel in degrees, and whether it has a colour at all."""
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
    """Connected groups of pixels (4 neighbours) that differ from the commonest grey."""
    grey = _grey(pixels)
    background = float(np.bincount(grey.astype(np.int64).ravel(), minlength=256).argmax())
    return sum(size >= SMALLEST for size in _sizes(np.abs(grey - background) > STANDS_OUT))


def _sizes(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Sizes of the connected groups: runs of a row are joined with those of the row above that they touch."""
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
