"""Pictures of results: bars and dots, as SVG files without a library."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["bars", "dots", "folder"]

HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    'width="{width}" height="{height}">'
    "<title>{title}</title><style>text{{font:13px sans-serif;fill:#222}}.b{{fill:#7fc8b8}}.h{{fill:#c4472f}}"
    '.l{{stroke:#999;fill:none}}</style><rect width="{width}" height="{height}" rx="8" fill="#f7f8f7"/>'
    '<text x="16" y="26">{title}</text>'
)


def folder() -> Path:
    """Where pictures go: the folder that the command names, or the one beside the examples."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures"


def bars(path: Path, title: str, values: Mapping[str, int]) -> None:
    """One horizontal bar for each name, with its number."""
    longest = max(values.values(), default=1) or 1
    height = 50 + 28 * len(values)
    parts = [HEAD.format(width=680, height=height, title=title)]
    for row, (name, value) in enumerate(values.items()):
        y = 44 + 28 * row
        parts.append(f'<text x="250" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect class="b" x="260" y="{y}" width="{340 * value / longest:.0f}" height="20"/>')
        parts.append(f'<text x="{268 + 340 * value / longest:.0f}" y="{y + 14}">{value}</text>')
    _write(path, parts)


def dots(path: Path, title: str, points: Sequence[tuple[float, float, bool]], across: str, up: str) -> None:
    """A dot for each (x, y, whether it matched); matches are red and larger."""
    xs, ys = [each[0] for each in points], [each[1] for each in points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    parts = [HEAD.format(width=680, height=360, title=title), '<path class="l" d="M50 40V320H660"/>']
    for x, y, matched in points:
        at = 50 + 600 * (x - left) / ((right - left) or 1), 315 - 265 * (y - low) / ((high - low) or 1)
        parts.append(
            f'<circle class="{"h" if matched else "b"}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{5 if matched else 3}"/>'
        )
    ends = ((50, 338, f"{left:g}", "start"), (660, 338, f"{right:g} {across}", "end"), (44, 320, f"{low:g}", "end"))
    for x, y, text, anchor in (*ends, (44, 50, f"{high:g}", "end"), (54, 50, up, "start")):
        parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
    _write(path, parts)


def _write(path: Path, parts: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join([*parts, "</svg>\n"]), encoding="utf-8")
    print(f"picture: {path.name}")
