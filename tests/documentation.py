"""Reads the commands in our documentation, so that tests can run them.

A block fenced as `console` is a session at a terminal: a line that starts with `$ ` is typed, lines that end in a
backslash go on, and what stands below is what one sees. `…` stands for anything, on one line or over several; lines
that are not shown are allowed between those that are. All blocks of a page are one session in one folder.

    ```console
    $ kindcast concept find laptop
    Laptop …
    ```
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Command", "commands", "matches", "pages", "targets"]

FENCE = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed, what is expected to be seen, and the line of the page it stands on."""

    text: str
    expected: tuple[str, ...]
    line: int


def pages(repository: Path) -> list[Path]:
    """Every page of documentation."""
    folders = ("deploy", "docs", "index", "semantic", "server", "spark_jobs", "ontologies", "tests", "kindcast")
    return sorted([*repository.glob("*.md"), *(page for each in folders for page in (repository / each).rglob("*.md"))])


def commands(page: Path) -> list[Command]:
    """The commands of `page`, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        command
        for block in FENCE.finditer(text)
        for command in _session(block[1], text.count("\n", 0, block.start(1)) + 1)
    ]


def matches(expected: tuple[str, ...], seen: str) -> bool:
    """Whether the expected lines stand in `seen`, in order."""
    wanted = [_pattern(line) for line in expected if line.strip()]
    return re.search(".*?".join(wanted), seen, re.S) is not None


def targets(page: Path) -> Iterator[tuple[str, str]]:
    """The links of `page` that stay in the project: (path, fragment); the path is empty for the page itself."""
    for link in LINK.findall(re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)):
        if not re.match(r"[a-z]+:", link):
            path, _, fragment = link.partition("#")
            yield path, fragment


def _session(block: str, first: int) -> Iterator[Command]:
    typed: list[str] = []
    expected: list[str] = []
    line = first
    for number, text in enumerate(block.splitlines(), first):
        if text.startswith("$ "):
            if typed:
                yield Command("\n".join(typed), tuple(expected), line)
            typed, expected, line = [text[2:]], [], number
        elif typed and not expected and typed[-1].endswith("\\"):
            typed.append(text)
        else:
            expected.append(text)
    if typed:
        yield Command("\n".join(typed), tuple(expected), line)


def _pattern(line: str) -> str:
    words = re.split(r"(…|\s+)", line.strip())
    return "".join(".*?" if word == "…" else r"\s+" if word.isspace() else re.escape(word) for word in words)
