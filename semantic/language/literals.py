"""What text and tree of an expression share: names, strings and numbers; limits of size; messages about mistakes."""

import difflib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from lark import Token, UnexpectedCharacters, UnexpectedInput

from kindcast.semantic.errors import InvalidSubscription, Problem
from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    EveryOf,
    EveryValue,
    Expression,
    KindTest,
    Membership,
    Not,
    OperatorCall,
    Position,
    RelationTest,
    SomeOf,
    ValueConstraint,
    aggregate_of,
)
from kindcast.semantic.units.codes import AMBIGUOUS

__all__ = [
    "BARE_NAME",
    "BARE_TERM",
    "CURIE",
    "CURIE_PATH",
    "HABITS",
    "KEYWORDS",
    "LONGEST_LIST",
    "LONGEST_TEXT",
    "MOST_NODES",
    "MOST_PROBLEMS",
    "NESTING",
    "TREE_CHARACTERS",
    "TREE_LEVELS",
    "TREE_VALUES",
    "VARIABLE",
    "attribute_text",
    "bad_number",
    "check_bounds",
    "is_absolute_iri",
    "is_keyword",
    "nearest_keyword",
    "number_of",
    "quoted_iri",
    "quoted_name",
    "quoted_string",
    "refuse",
    "string_of",
    "syntax_problem",
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


# ── limits on the size of expressions, the same for text and tree, so that each form can be converted to the other ────

# Whatever `parse_text` accepts, `parse_tree` accepts of `to_tree`, resolved or not: stored subscriptions are trees.


LONGEST_TEXT = 1 << 16
"""Characters of a text: a thousand predicates, far above what a person writes."""
NESTING = 64
"""Levels of an expression; deeper ones come from programs gone wrong."""
MOST_NODES = 10_000
"""Nodes of an expression: predicates, groups, operands and terms."""
LONGEST_LIST = 1_000
"""Operands of `in`, terms of `isa (…)`, arguments of a call."""
MOST_PROBLEMS = 100
"""Problems that are told of one tree; nobody reads more, and each costs a search for near names."""

TREE_LEVELS = 3 * NESTING
"""JSON levels of a tree: an expression's level is an object in a list, and its operands nest a few more."""
TREE_VALUES = 5 * MOST_NODES
"""JSON values of a tree; no node is written with more than five (`{"contains": ["name", "HP", "nocase"]}`)."""
TREE_CHARACTERS = 1 << 22
"""Characters in all strings of a tree. More than of a text: a resolved tree has an IRI where the text had a word."""


def check_bounds(expression: Expression, start: Position) -> None:
    """Raise `InvalidSubscription` where `expression` has too many levels or nodes. `start` is where it starts. Linear,
    with a stack of its own."""
    nodes = 0
    stack: list[tuple[Any, int]] = [(expression, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > NESTING:
            detail = f"the expression is nested deeper than {NESTING} levels"
            raise refuse("too-deep", detail, getattr(node, "at", None) or start)
        inner: tuple[Any, ...] = ()
        nodes += 1
        match node:
            case All(items) | AnyOf(items):
                inner = items
            case Not(item) | SomeOf(_, item) | EveryOf(_, item) | EveryValue(item):
                inner = (item,)
            case ValueConstraint(left, _, right) | Arithmetic(_, left, right):
                inner = (left, right)
            case KindTest(_, _, leaves) | RelationTest(_, _, leaves) | Membership(_, leaves) | OperatorCall(_, leaves):
                nodes += len(leaves)
            case Between():
                nodes += 2
            case Comparison():
                nodes += 1
            case _:
                pass
        if nodes > MOST_NODES:
            detail = f"the expression has more than {MOST_NODES:,} predicates, operands and terms"
            raise refuse("too-long", detail, start)
        stack.extend((each, depth + 1) for each in inner)


def refuse(code: str, detail: str, at: Position | None) -> InvalidSubscription:
    """One problem as an error."""
    return InvalidSubscription([Problem(code, detail, at)])


# ── mistakes: where a text stops making sense, what was expected, what was meant ──────────────────────────────────────

# The parser knows terminals; people know words. `EXPECTED` has the words, `HABITS` the signs that other languages use.


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
