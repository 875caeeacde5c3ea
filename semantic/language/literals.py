"""Names, strings, IRIs and numbers of the language: how they are written and read, for text and tree alike."""

import json
import math
import re

from kindcast.semantic.model import aggregate_of

__all__ = [
    "BARE_NAME",
    "BARE_TERM",
    "CURIE",
    "CURIE_PATH",
    "KEYWORDS",
    "VARIABLE",
    "attribute_text",
    "bad_number",
    "is_absolute_iri",
    "is_keyword",
    "number_of",
    "quoted_iri",
    "quoted_name",
    "quoted_string",
    "string_of",
    "unquoted_name",
]

_OF_STRUCTURE = ("and", "or", "not", "some", "true", "false")
_OF_PREDICATES = ("isa", "below", "is", "in", "between", "exists", "missing")
_OF_TEXTS = ("startswith", "endswith", "contains", "matches", "nocase")
KEYWORDS = frozenset((*_OF_STRUCTURE, *_OF_PREDICATES, *_OF_TEXTS))
"""Words that are names only in backquotes, in lower and in upper case."""
BARE_NAME = re.compile(r"@?[^\W\d][\w\-]*(\.[\w\-@]+)*")
"""An attribute name that needs no backquotes, unless it is a keyword."""
CURIE = re.compile(r"[^\W\d][\w\-]*:[\w\-.]*\w")
CURIE_PATH = re.compile(
    r"@?[^\W\d][\w\-]*(:[\w\-]*\w)?(\.[\w\-@]+(:[\w\-]*\w)?)*\.[^\W\d][\w\-]*:[\w\-]*\w(\.[\w\-@]+)*"
)
"""A dotted name with a CURIE after its first dot."""
BARE_TERM = re.compile(rf"[^\W\d][\w\-]*(\.[\w\-@]+)*|{CURIE.pattern}")
"""A term that needs no quotes, unless it is a keyword: a word or a CURIE."""
VARIABLE = re.compile(r"\?[^\W\d]\w*")
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:.", re.DOTALL)
_NOT_IN_IRI = re.compile('[<>"{}|^`\\\\\x00-\x20\ud800-\udfff]')


def string_of(token: str) -> str | None:
    """The string of a quoted token (with JSON's escapes, and those of the quotes), or None for an unknown escape."""
    sound = True

    def replacement(match: re.Match[str]) -> str:
        nonlocal sound
        letter = match[1]
        if letter is None:
            return str(json.loads(f'"{match[0]}"'))
        sound = sound and letter in "\"'`\\/bfnrt"
        return _ESCAPED.get(letter, letter)

    text = _ESCAPE.sub(replacement, token[1:-1])
    return text if sound else None


def quoted_string(text: str) -> str:
    """A string in double quotes; characters of every script stand as they are, halves of surrogate pairs as escapes,
    so that the result can be sent as UTF-8."""
    return _SURROGATE.sub(_as_escape, json.dumps(text, ensure_ascii=False))


def quoted_name(name: str) -> str:
    """An attribute name as text, in backquotes where it needs them; an aggregate as it is written."""
    aggregate = aggregate_of(name)
    if aggregate is not None:
        return f"{aggregate[0]}({quoted_name(aggregate[1])})"
    if BARE_NAME.fullmatch(name) and name.lower() not in KEYWORDS and name not in ("every", "EVERY"):
        return name
    return "`" + quoted_string(name)[1:-1].replace('\\"', '"').replace("`", "\\`") + "`"


def attribute_text(name: str) -> str:
    """The same where a predicate begins: there a CURIE is a name, and not a concept."""
    return name if CURIE.fullmatch(name) or CURIE_PATH.fullmatch(name) else quoted_name(name)


def unquoted_name(token: str) -> str | None:
    """The attribute name of a token, or None for an unknown escape."""
    return string_of(token) if token.startswith("`") else token


def quoted_iri(iri: str) -> str:
    """An IRI in angle brackets; what RFC 3987 forbids in it stands as an escape."""
    return f"<{_NOT_IN_IRI.sub(_as_escape, iri)}>"


def is_absolute_iri(text: str, *, quoted: bool = False) -> bool:
    """Whether `text` is an IRI with a scheme and no character that RFC 3987 forbids; `quoted` in a string, it must look
    like one: `https://…`, `urn:…` or `did:…`, since many texts have a colon."""
    if quoted and "://" not in text and not text.startswith(("urn:", "did:")):
        return False
    return _ABSOLUTE.match(text) is not None and _NOT_IN_IRI.search(text) is None


def is_keyword(word: str) -> bool:
    """Whether `word` is a keyword; `And` and `True` are none."""
    return word in KEYWORDS or (word.isupper() and word.lower() in KEYWORDS)


def number_of(token: str) -> int | float:
    """An integer as int, anything else as float (which may be infinite)."""
    if token.lstrip("-").isdigit():
        return int(token) if len(token) <= 400 else math.inf
    return float(token)


def bad_number(number: int | float) -> str | None:
    """What is wrong with a number as operand, or None."""
    if isinstance(number, float):
        return None if math.isfinite(number) else "a number must be finite: at most about 1.8e308"
    try:
        exact = int(float(number)) == number
    except OverflowError:
        exact = False
    return (
        None if exact else "this integer beyond 2^53 is not exactly representable as a double: compare it as a string"
    )


def _as_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
