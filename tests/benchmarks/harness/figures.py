"""The figures of docs/benchmarks.md: shown where they are drawn, left out where their experiment has not run.

<!-- figure ctps_time: what it shows -->  …  <!-- end -->
"""

import re
from pathlib import Path

__all__ = ["figures"]

MARKED = re.compile(r"(<!-- figure ([a-z0-9_]+): ([^>]*?) -->\n).*?(<!-- end -->)", re.S)


def figures(text: str, folder: Path) -> str:
    """`text` with the images whose file is in `folder`, which lies beside the page."""

    def shown(found: re.Match[str]) -> str:
        there = (folder / f"{found[2]}.svg").exists()
        image = f"![{found[3]}]({folder.name}/{found[2]}.svg)\n" if there else ""
        return f"{found[1]}{image}{found[4]}"

    return MARKED.sub(shown, text)
