"""What to tell a subscriber whose text is no expression: where it stops making sense, what was expected, what was
meant.

The parser knows terminals; people know words. `EXPECTED` has the words, `HABITS` the signs that other languages use.
"""

import difflib
import re
from collections.abc import Iterable

from lark import Token, UnexpectedCharacters, UnexpectedInput

from kindcast.semantic.errors import Problem
from kindcast.semantic.language.literals import KEYWORDS, is_keyword
from kindcast.semantic.model import Position
from kindcast.semantic.units.codes import AMBIGUOUS

__all__ = ["HABITS", "nearest_keyword", "syntax_problem"]

EXPECTED = {
    "NAME": "a name",
    "CURIE": "a CURIE (brick:Sensor)",
    "WORD": 'a concept (Computer, "Desktop PC", <IRI>)',
    "QUOTED_NAME": "a name in backquotes",
    "AT_NAME": "an attribute (@image)",
    "VARIABLE": "a variable (?n)",
    "STRING": "a string in quotes",
    "NUMBER": "a number",
    "UNIT": "a unit",
    "IRI": "an <IRI>",
    "TRUTH": "true or false",
    "INSTANT": "a date-time (2026-01-31T12:00:00Z)",
    "DATE": "a date (2026-01-31)",
    "NETWORK": "a network (10.0.0.0/8)",
    "DURATION": "a duration (PT2H)",
    "PATTERN": "a /pattern/",
    "KIND": "isa, below or is",
    "ORDER": "one of = != < <= > >=",
    "PRESENCE": "exists or missing",
    "AFFIX": "startswith, endswith or contains",
    "MATCHES": "`matches`",
    "NOCASE": "`nocase`",
    "SOME": "`some`",
    "EVERY": "`every`",
    "AGGREGATE": "an aggregate (count(items))",
    "NOT": "`not`",
    "_AND": "`and`",
    "_OR": "`or`",
    "_IN": "`in`",
    "_BETWEEN": "`between`",
    "_LPAR": "`(`",
    "_RPAR": "`)`",
    "OPEN": "`[`",
    "CLOSE": "`]`",
    "_COMMA": "a comma",
    "PLUS_MINUS": "+ or -",
    "TIMES": "* or /",
    "$END": "the end of the expression",
}
"""Terminal of the grammar → the words for it."""

_PREDICATE = frozenset({"NAME", "SOME", "NOT", "_LPAR"})
"""Where all of these are possible a predicate may start."""
_VALUE = frozenset({"STRING", "NUMBER", "TRUTH", "INSTANT"})
HABITS = {
    "==": "=",
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "<>": "!=",
    "=<": "<=",
    "=>": ">=",
    "!": "not",
    "~": "matches",
}
"""What people write who know another language → what they mean."""


_IS_A = re.compile(r"\bis\s+an?\s*\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\s*\Z", re.IGNORECASE)
_ENDS = re.compile(r"(\S{1,40})\s+and\s+(\S{1,40})", re.IGNORECASE)
_MONEY = re.compile(r"([$£¥])\s*([0-9][0-9.]*)")
_THOUSANDS = re.compile(r"[0-9]{1,3}\Z")
_GROUPS = re.compile(r"(?:,[0-9]{3})+(?![0-9])")
_WORD = re.compile(r"[\w.\-:@]{1,40}")
_LAST_WORD = re.compile(r"(\w+)\s*\Z")
_ANY = re.compile(r"(?s:.)")


def syntax_problem(text: str, error: UnexpectedInput) -> Problem:
    """The problem that the parser's `error` is about, with line and column inside `text`."""
    parser = getattr(error, "interactive_parser", None)
    expected: set[str] = set(parser.accepts()) if parser else set()
    token = getattr(error, "token", None)
    if isinstance(token, Token) and token.type == "$END":
        return _at_the_end(text, expected)
    offset = min(int(getattr(error, "pos_in_stream", None) or 0), max(len(text) - 1, 0))
    at = _position(text, offset)
    rest = text[offset:]
    phrase = _phrase(text, offset)
    if phrase is not None:
        detail, meant = phrase
        return Problem("syntax", detail, at, ({"label": meant},))
    sign = _habit(text, offset)
    if sign is not None:
        start, meant = _position(text, offset - (not rest.startswith(sign))), HABITS[sign]
        return Problem("syntax", f"{sign} is not understood; write {meant}", start, ({"label": meant},))
    if isinstance(error, UnexpectedCharacters) and rest[0] in "\"'`":
        detail = f"the quote {rest[0]} is not closed on its line (write a line break as \\n)"
        return Problem("syntax", detail, at)
    if rest[0] == "/" and "PATTERN" in expected:
        return Problem("syntax", "the pattern has no closing /", at)
    word = (_WORD.match(rest) or _ANY.match(rest))[0]  # type: ignore[index]  # one sign matches always
    detail = f"{word!r} is not expected here; {_words(expected)}"
    if "AT_NAME" in expected and word.isidentifier():
        detail += f'; "{word}" in quotes is a string, @{word} the attribute'
    if is_keyword(word):
        return Problem("syntax", detail + _advice(word, expected), at)
    near = _near(text[:offset]) if "WORD" in expected else nearest_keyword(word)
    return Problem("syntax", detail, at, ({"label": near},) if near else ())


def _phrase(text: str, offset: int) -> tuple[str, str] | None:
    """What to say, and what to write, where a phrase of everyday language or of SQL stands around `offset`."""
    before, rest = text[max(offset - 60, 0) : offset], text[offset : offset + 100]
    if _IS_A.search(before):
        return "`is a` is not understood; write isa", "isa"
    if _BETWEEN.search(before) and (ends := _ENDS.match(rest)):
        meant = f"[{ends[1]}, {ends[2]}]"
        return f"the ends of `between` need brackets; write between {meant}", meant
    if money := _MONEY.match(rest):
        currencies = AMBIGUOUS[money[1]]
        meant = f"{money[2]} {currencies[0]}"
        others = " or ".join(currencies[1:])
        return f"write the code of a currency after the number: {meant} (or {others} for {money[1]})", meant
    if (start := _THOUSANDS.search(before)) and (groups := _GROUPS.match(rest)):
        meant = start[0] + groups[0].replace(",", "")
        return f"numbers have no commas; write {meant}", meant
    return None


def _near(before: str) -> str | None:
    """The keyword that the last word may have been: `price exist` and `price betwen [` begin relations."""
    last = _LAST_WORD.search(before, max(len(before) - 40, 0))
    return nearest_keyword(last[1]) if last else None


def _habit(text: str, offset: int) -> str | None:
    """The sign of another language at `offset`, or around it: of `<>` only the `>` was a surprise."""
    around = text[max(offset - 1, 0) : offset + 1]
    if around in HABITS:
        return around
    return next((sign for sign in (text[offset : offset + 2], text[offset]) if sign in HABITS), None)


def _advice(word: str, expected: set[str]) -> str:
    """How a keyword can stand where it stands, or where else it should."""
    if "ORDER" in expected or "WORD" in expected:
        return (
            '; write not before the predicate: not colour = "red"'
            if word.lower() == "not"
            else (f'; to use {word} as a concept, write it in quotes: "{word}"' if "WORD" in expected else "")
        )
    return f"; to use {word} as a name, write it in backquotes: `{word}`" if "QUOTED_NAME" in expected else ""


def nearest_keyword(word: str) -> str | None:
    """The keyword that a misspelt `word` most looks like."""
    near = difflib.get_close_matches(word.lower(), sorted(KEYWORDS), n=1, cutoff=0.6)
    return near[0] if near and near[0] != word.lower() else None


def _at_the_end(text: str, expected: set[str]) -> Problem:
    opened = _unclosed(text)
    at = _position(text, max(len(text.rstrip()) - 1, 0))
    detail = f"the text ends too early; {_words(expected)}"
    if opened is not None and expected & {"_RPAR", "CLOSE"}:
        detail += f"; the bracket opened at {_position(text, opened)} is not closed"
    near = _near(text) if "WORD" in expected else None
    return Problem("syntax", detail, at, ({"label": near},) if near else ())


def _unclosed(text: str) -> int | None:
    """Where the innermost bracket opens that is still open at the end, strings left aside."""
    opened: list[int] = []
    quote = ""
    escaped = False
    for offset, sign in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif sign == "\\":
                escaped = True
            elif sign == quote:
                quote = ""
        elif sign in "\"'`":
            quote = sign
        elif sign in "([":
            opened.append(offset)
        elif sign in ")]" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _position(text: str, offset: int) -> Position:
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _words(expected: Iterable[str]) -> str:
    """The terminals as a list of alternatives, with the usual groups under one name."""
    left = set(expected)
    words: list[str] = []
    if left >= _PREDICATE:
        words.append("a predicate such as price <= 400 or target isa Computer")
        left -= _PREDICATE | {"AGGREGATE", "EVERY", "CURIE", "QUOTED_NAME", "IRI", "KIND", "VARIABLE", "NUMBER"}
    if left >= _VALUE:
        words.append('a value (400, "red", true, 20 kg, a date-time, an attribute)')
        left -= _VALUE | {"AGGREGATE", "DATE", "DURATION", "NETWORK"}
        left -= {"NAME", "CURIE", "QUOTED_NAME", "IRI", "VARIABLE", "AT_NAME"}
    if "WORD" in left:
        words.append(EXPECTED["WORD"])
        left -= {"WORD", "NAME", "CURIE", "STRING", "IRI"}
    if "KIND" in left:
        words.append("a comparison (isa, =, <=, in, between, exists, contains …)")
        left -= {
            "KIND",
            "ORDER",
            "PRESENCE",
            "AFFIX",
            "MATCHES",
            "_IN",
            "_BETWEEN",
            "_LPAR",
            "NAME",
            "CURIE",
            "QUOTED_NAME",
        }
    words += [EXPECTED[each] for each in sorted(left, key=lambda each: (each == "$END", each)) if each in EXPECTED]
    return f"expected {_alternatives(words)}"


def _alternatives(words: list[str]) -> str:
    if len(words) < 3:
        return " or ".join(words) or "nothing more"
    return f"{', '.join(words[:-1])}, or {words[-1]}"
