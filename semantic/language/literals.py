"""Names, strings and numbers of the language: how they are written, read and bounded, for text and tree alike."""

import json
import math
import re

from semantic.errors import InvalidSubscription, Problem
from semantic.model import Position

__all__ = [
    "BARE_NAME",
    "BARE_TERM",
    "KEYWORDS",
    "LONGEST_LIST",
    "LONGEST_TEXT",
    "MOST_NODES",
    "NESTING",
    "bad_number",
    "number_of",
    "quoted_name",
    "refuse",
    "string_of",
    "unquoted_name",
]

LONGEST_TEXT = 1 << 16
"""Characters of a text, and of all strings of a tree: a thousand predicates, far above what a person writes."""
NESTING = 64
"""Levels of an expression; deeper ones come from programs gone wrong."""
MOST_NODES = 10_000
"""Nodes of a tree, operands included: what a text of the greatest length can hold."""
LONGEST_LIST = 1_000
"""Operands of `in`, terms of `isa (…)`, arguments of a call."""

_OF_STRUCTURE = ("and", "or", "not", "some", "true", "false")
_OF_PREDICATES = ("isa", "below", "is", "in", "between", "exists", "missing")
_OF_TEXTS = ("startswith", "endswith", "contains", "matches", "nocase")
KEYWORDS = frozenset((*_OF_STRUCTURE, *_OF_PREDICATES, *_OF_TEXTS))
"""Words that are names only in backquotes, in lower and in upper case."""
BARE_NAME = re.compile(r"@?[^\W\d][\w\-]*(\.[\w\-@]+)*")
"""An attribute name that needs no backquotes, unless it is a keyword."""
BARE_TERM = re.compile(r"[^\W\d][\w\-]*(\.[\w\-@]+)*|[^\W\d][\w\-]*:[\w\-.]*\w")
"""A term that needs no quotes, unless it is a keyword: a word or a CURIE."""
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def string_of(token: str) -> str | None:
    """The string that a quoted token stands for (JSON's escapes, and `\\'`), or None for an escape that is none."""
    sound = True

    def replacement(match: re.Match[str]) -> str:
        nonlocal sound
        letter = match[1]
        if letter is None:
            return str(json.loads(f'"{match[0]}"'))
        sound = sound and letter in "\"'\\/bfnrt"
        return _ESCAPED.get(letter, letter)

    text = _ESCAPE.sub(replacement, token[1:-1])
    return text if sound else None


def number_of(token: str) -> int | float:
    """An integer as int, anything else as float (which may be infinite)."""
    if token.lstrip("-").isdigit():
        return int(token) if len(token) <= 400 else math.inf
    return float(token)


def bad_number(number: int | float) -> str | None:
    """What is wrong with a number as operand, or None."""
    if isinstance(number, float):
        return None if math.isfinite(number) else "a number must be finite: doubles end near 1.8e308"
    try:
        exact = int(float(number)) == number
    except OverflowError:
        exact = False
    return None if exact else "an integer beyond 2^53 that no double holds exactly: compare it as a string"


def quoted_name(name: str) -> str:
    """An attribute name as text, in backquotes where it needs them."""
    if BARE_NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def unquoted_name(token: str) -> str:
    """The attribute name that a token stands for."""
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL) if token.startswith("`") else token


def refuse(code: str, detail: str, at: Position | None) -> InvalidSubscription:
    """One problem as an error."""
    return InvalidSubscription([Problem(code, detail, at)])
