"""What the pixels of a small image show."""

import base64
import io
import struct
import sys
import zlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kindcast.semantic.operators.builtin import LONGEST_IMAGE, _sizes, pictures
from tests.unit.semantic.operators.builtin.asking import bindings, holds, reason, refused

OPERATORS = pictures()


def png(pixels: npt.NDArray[np.uint8], mode: str = "RGB") -> str:
    """An image as an event carries it."""
    data = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def harbour(boats: int) -> npt.NDArray[np.uint8]:
    """White boats on dark blue water, and a speck of foam."""
    picture = np.zeros((40, 120, 3), dtype=np.uint8)
    picture[:] = (10, 20, 90)
    for number in range(boats):
        picture[5 + 3 * number : 12 + 3 * number, 4 + 14 * number : 12 + 14 * number] = 250
    picture[39, 119] = 250
    return picture


@pytest.mark.parametrize("boats", [0, 1, 3, 7])
def test_spots_counts_what_stands_apart_from_the_background(boats: int) -> None:
    """A single bright pixel is noise; neither the notation nor the colour mode matters."""
    for text in (png(harbour(boats)), "data:image/png;base64," + png(harbour(boats), "P"), png(harbour(boats), "RGBA")):
        assert bindings(OPERATORS, "spots(@image, ?n)", image=text) == [(boats,)]
    assert holds(OPERATORS, "spots(@image, ?n) and ?n > 2", image=png(harbour(boats))) is (boats > 2)


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=7))
def test_sizes_of_groups_are_those_of_a_flood(rows: list[list[bool]]) -> None:
    """Against filling each group from a pixel of it."""
    left = {(y, x) for y, row in enumerate(rows) for x, each in enumerate(row) if each}
    sizes = []
    while left:
        begun = [left.pop()]
        size = 0
        while begun:
            y, x = begun.pop()
            size += 1
            for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if near in left:
                    left.remove(near)
                    begun.append(near)
        sizes.append(size)
    assert sorted(_sizes(np.array(rows))) == sorted(sizes)


def test_brightness_and_colour_share_are_those_of_the_pixels() -> None:
    """A quarter red, a quarter white, the rest black."""
    picture = np.zeros((10, 10, 3), dtype=np.uint8)
    picture[:5, :5] = (200, 0, 0)
    picture[:5, 5:] = 255
    text = png(picture)
    assert bindings(OPERATORS, 'colourShare("red", @image, ?s)', image=text) == [(0.25,)]
    assert bindings(OPERATORS, 'colourShare("blue", @image, ?s)', image=text) == [(0.0,)]
    ((bright,),) = bindings(OPERATORS, "brightness(@image, ?b)", image=text)
    assert bright == pytest.approx(0.25 * 0.299 * 200 / 255 + 0.25, abs=1e-3)
    assert "there is no colour 'pink'" in refused(OPERATORS, 'colourShare("pink", @image, ?s)')


def bomb(width: int, height: int) -> str:
    """A small PNG that says it is large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100_000)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("not base64!", "not a PNG in base64"),
        (base64.b64encode(b"GIF89a" + b"\0" * 50).decode(), "not a PNG in base64"),
        (png(harbour(1))[:100], "not a PNG in base64"),
        ("/etc/passwd", "not a PNG in base64"),
        ("https://example.org/a.png", "not a PNG in base64"),
        (5, "an image is a text"),
        ("A" * (LONGEST_IMAGE + 1), "at most 1,000,000 characters"),
        (bomb(40_000, 40_000), "not a PNG in base64"),
        (bomb(3_000, 3_000), "9,000,000 pixels; 1,048,576 are allowed"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_image_that_is_none_or_too_large_fails_for_good(image: object, why: str) -> None:
    """Neither a path nor an address is ever opened, and nothing is unpacked before its size is known."""
    assert why in reason(OPERATORS, "spots(@image, ?n)", image=image)


def test_pictures_without_pillow_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the extra still has all other operators."""
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "spots needs PIL: pip install 'kindcast[operators]'" in reason(OPERATORS, "spots(@i, ?n)", i=png(harbour(1)))
