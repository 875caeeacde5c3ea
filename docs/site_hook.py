"""The hook of MkDocs: a link to a folder, or to a file outside docs/, stands on the site as a name, and a block of code
has its language alone."""

import re
from typing import Any

__all__ = ["on_page_markdown"]

FENCE = re.compile(r"^```(\w+) .*$", re.M)
FOLDER = re.compile(r"\[([^\]]+)\]\((?!\w+:)[\w/-]+\)")
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?!docs/)[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """`[index](../index/README.md)` becomes "index (`index/README.md` in the repository)"."""
    depth = page.file.src_uri.count("/")

    def named(found: re.Match[str]) -> str:
        if found[0].count("../") <= depth:
            return found[0]  # still within docs/
        return f"{found[1]} (`{found[2]}` in the repository)"

    plain = FENCE.sub(r"```\1", markdown)  # what tests read behind the language
    return OUTSIDE.sub(named, FOLDER.sub(r"`\1`", plain))
