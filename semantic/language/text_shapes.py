"""Texts that differ in their strings and numbers only: the first two are parsed, the trees of the others filled in."""

import re
from dataclasses import dataclass
from typing import Any, Final

from kindcast.semantic.errors import InvalidSubscription
from kindcast.semantic.language.bounds import LONGEST_TEXT
from kindcast.semantic.language.literals import number_of
from kindcast.semantic.language.text import parse_text
from kindcast.semantic.language.tree import to_tree

__all__ = ["TextShapes"]

_CONSTANT: Final = re.compile(
    r"""("[^?@"'`\\\x00-\x1f][^"'`\\\x00-\x1f]*"|'[^?@"'`\\\x00-\x1f][^"'`\\\x00-\x1f]*')"""
    r"""|(?<![\w.\-:+/*^@?`])(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)(?![\w.\-:/*^])"""
)
"""Strings whose text stands in a tree as it is, and numbers that no other token can begin or end with: whatever else
such a string or number says, the text around it is read the same way."""
_STRING, _WHOLE, _FRACTION = "\x00s", "\x00w", "\x00f"
"""What stands in a shape for a constant; no expression has this character."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of a constant in the tree of a shape."""

    number: int


class TextShapes:
    """Trees of texts. Remembers what each shape became: make one for each bulk, since texts may all differ."""

    def __init__(self) -> None:
        self._trees: dict[str, Any] = {}

    def tree(self, text: str) -> dict[str, Any]:
        """`to_tree(parse_text(text))`. Some 0.2 ms for the first two of a shape, 5 to 10 µs for the others. Raises
        `InvalidSubscription`."""
        if len(text) > LONGEST_TEXT or "\x00" in text:
            return to_tree(parse_text(text))
        constants: list[str | int | float] = []

        def noted(match: re.Match[str]) -> str:
            string, number = match.groups()
            constants.append(string[1:-1] if string is not None else number_of(number))
            return _STRING if string is not None else _form(number)

        shape = _CONSTANT.sub(noted, text)
        if shape in self._trees:
            known = self._trees[shape]
            if known is None:
                known = self._trees[shape] = _skeleton(text, constants)
            if known is not False:
                filled: dict[str, Any] = _filled(known, constants)
                return filled
        tree = to_tree(parse_text(text))
        self._trees.setdefault(shape, None)
        return tree


def _form(number: str) -> str:
    sign = "-" if number.startswith("-") else ""
    return sign + (_FRACTION if "." in number else _WHOLE)


def _skeleton(text: str, constants: list[str | int | float]) -> Any:
    """The tree of `text` with slots for its constants; False where these do not stand in it each as a value of its
    own, or where it is no expression."""
    marks: list[str | int | float] = []

    def marked(match: re.Match[str]) -> str:
        """A constant of the same form that is nowhere else in the text."""
        string, number = match.groups()
        told, count = 7_310_001 + len(marks), len(marks)
        while str(told) in text:
            told += 10_000_019
        if string is not None:
            marks.append(f"slot {told} {count}")
            return f"{string[0]}{marks[-1]}{string[0]}"
        written = ("-" if number.startswith("-") else "") + (f"{told}.5" if "." in number else f"{told}")
        marks.append(number_of(written))
        return written

    other = _CONSTANT.sub(marked, text)
    try:
        given, tree = to_tree(parse_text(text)), to_tree(parse_text(other))
    except InvalidSubscription:
        return False
    found: list[int] = []
    skeleton = _slotted(tree, {(type(mark), mark): number for number, mark in enumerate(marks)}, found)
    sound = sorted(found) == list(range(len(marks))) and _filled(skeleton, constants) == given
    return skeleton if sound else False


def _slotted(node: Any, numbers: dict[tuple[type, Any], int], found: list[int]) -> Any:
    """`node` with a slot in place of each mark; the numbers of those that are there join `found`."""
    match node:
        case dict():
            return {name: _slotted(each, numbers, found) for name, each in node.items()}
        case list():
            return [_slotted(each, numbers, found) for each in node]
    number = numbers.get((type(node), node))
    if number is None:
        return node
    found.append(number)
    return _Slot(number)


def _filled(node: Any, constants: list[str | int | float]) -> Any:
    match node:
        case dict():
            return {name: _filled(each, constants) for name, each in node.items()}
        case list():
            return [_filled(each, constants) for each in node]
        case _Slot(number):
            return constants[number]
        case _:
            return node
