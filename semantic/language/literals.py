"""Literals, size limits and syntax errors of the language, shared by the text form and the tree form."""

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
from kindcast.semantic.units.codes import AMBIGUOUS, CURRENCIES, CURRENCY_SIGNS

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
"""The keywords. In lower or upper case they are names only in backquotes."""
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
_JSON = json.JSONEncoder(ensure_ascii=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:.", re.DOTALL)
_NOT_IN_IRI = re.compile('[<>"{}|^`\\\\\x00-\x20\ud800-\udfff]')


def string_of(token: str) -> str | None:
    """Returns the string of a quoted token, with the escapes of JSON and of the quotes replaced. Returns None for an
    unknown escape."""
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
    """Returns `text` in double quotes. Non-ASCII characters are unchanged. Lone surrogates are escaped, so that the
    result can be encoded as UTF-8."""
    quoted = _JSON.encode(text)
    return quoted if quoted.isascii() else _SURROGATE.sub(_as_escape, quoted)


def quoted_name(name: str) -> str:
    """Returns an attribute name or an aggregate in the text form. A name is put in backquotes if it needs them."""
    aggregate = aggregate_of(name)
    if aggregate is not None:
        return f"{aggregate[0]}({quoted_name(aggregate[1])})"
    if BARE_NAME.fullmatch(name) and name.lower() not in KEYWORDS and name not in ("every", "EVERY"):
        return name
    return "`" + quoted_string(name)[1:-1].replace('\\"', '"').replace("`", "\\`") + "`"


def attribute_text(name: str) -> str:
    """Returns an attribute name as it is written at the start of a predicate. A CURIE needs no backquotes there,
    because it cannot be a concept."""
    return name if CURIE.fullmatch(name) or CURIE_PATH.fullmatch(name) else quoted_name(name)


def unquoted_name(token: str) -> str | None:
    """Returns the attribute name of a token, or None for an unknown escape."""
    return string_of(token) if token.startswith("`") else token


def quoted_iri(iri: str) -> str:
    """Returns an IRI in angle brackets. Characters that RFC 3987 forbids are escaped."""
    return f"<{_NOT_IN_IRI.sub(_as_escape, iri)}>"


def is_absolute_iri(text: str, *, quoted: bool = False) -> bool:
    """Whether `text` is an IRI with a scheme and no character that RFC 3987 forbids. A `quoted` text (a string)
    must also contain `://` or start with `urn:` or `did:`, because many strings have a colon."""
    if quoted and "://" not in text and not text.startswith(("urn:", "did:")):
        return False
    return _ABSOLUTE.match(text) is not None and _NOT_IN_IRI.search(text) is None


def is_keyword(word: str) -> bool:
    """Whether `word` is a keyword. A word in mixed case (`And`, `True`) is not."""
    return word in KEYWORDS or (word.isupper() and word.lower() in KEYWORDS)


def number_of(token: str) -> int | float:
    """Returns an integer as int, and any other number as float, which may be infinite. An integer of more than 400
    characters is infinite too."""
    if token.lstrip("-").isdigit():
        return int(token) if len(token) <= 400 else math.inf
    return float(token)


def bad_number(number: int | float) -> str | None:
    """Returns a message if `number` cannot be an operand, or None."""
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

# `parse_tree` accepts `to_tree(e)` for every expression `e` that `parse_text` accepts, with or without resolved terms,
# because subscriptions are stored as trees.


LONGEST_TEXT = 1 << 16
"""The maximum number of characters of a text. This is a thousand predicates, far more than a person writes."""
NESTING = 64
"""The maximum number of levels of an expression. Deeper expressions come from faulty programs."""
MOST_NODES = 10_000
"""The maximum number of nodes of an expression: predicates, groups, operands and terms."""
LONGEST_LIST = 1_000
"""The maximum number of operands of `in`, terms of `isa (…)`, and arguments of a call."""
MOST_PROBLEMS = 100
"""The maximum number of problems that are reported for one tree, because each costs a search for similar names."""

TREE_LEVELS = 3 * NESTING
"""The maximum number of JSON levels of a tree. A level of an expression is an object in a list, which are two levels,
and its operands add a few more."""
TREE_VALUES = 5 * MOST_NODES
"""The maximum number of JSON values of a tree. A node has at most five (`{"contains": ["name", "HP", "nocase"]}`)."""
TREE_CHARACTERS = 1 << 22
"""The maximum number of characters in all strings of a tree. It is higher than the limit of a text, because a resolved
tree has an IRI in place of each word for a concept."""


def check_bounds(expression: Expression, start: Position) -> None:
    """Raises `InvalidSubscription` if `expression` has too many levels or nodes. `start` is the position of
    `expression`. Linear, with an explicit stack."""
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
    """Returns an `InvalidSubscription` with one problem."""
    return InvalidSubscription([Problem(code, detail, at)])


# ── syntax errors: their position, what was expected there, and what was probably meant ───────────────────────────────

# The parser reports names of terminals, which `EXPECTED` translates into words. `HABITS` has signs of other languages.


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
"""From each terminal of the grammar to its words in messages."""

_PREDICATE = frozenset({"NAME", "SOME", "NOT", "_LPAR"})
"""The terminals that are all expected wherever a predicate may start."""
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
    **dict.fromkeys("“”„«»″", '"'),
    **dict.fromkeys("‘’‚‹›′", "'"),
    **dict.fromkeys("−–—", "-"),
}
"""From signs of other languages, and of programs that write letters, to those of this language."""


_IS_A = re.compile(r"\bis\s+an?\s*\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\s*\Z", re.IGNORECASE)
_ENDS = re.compile(r"(\S{1,40})\s+and\s+(\S{1,40})", re.IGNORECASE)
_MONEY = re.compile(rf"([$£¥{''.join(CURRENCY_SIGNS)}])\s*([0-9][0-9.]*)")
_CODE = re.compile(r"(?<![\w.\-:])([A-Z]{3})\s*\Z")
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]+)?(?![\w.]|,[0-9])")
_YEAR = re.compile(r"(?<![\w.\-])([0-9]{4})\Z")
_DAY_AFTER_SLASH = re.compile(r"/([0-9]{1,2})/([0-9]{1,2})(?![\w/])")
_DAY_WITH_DOTS = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})(?![\w.])")
_DOTTED = re.compile(r"[0-9]+(?:\.[0-9]+){2,}[\w.+\-]*")
_SCHEME = re.compile(r"(?<![\w.\-])([A-Za-z][A-Za-z0-9+.\-]{0,20})\Z")
_BEHIND_SCHEME = re.compile(r"://[^\s<>\"{}|^`\\]+(?<![),;])")
_DAY = re.compile(r"-([0-9]{1,2})(?:-([0-9]{1,2}))?(?![\w.\-])")
_MOMENT = re.compile(
    r"(?<![\w.\-])([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt]|\s+)([0-9]{2})(:[0-9]{2})?(:[0-9]{2}(?:\.[0-9]+)?)?"
    r"\s*(?:([Zz])|([+\-][0-9]{2})(?::?([0-9]{2}))?)?(?![\w:])"
)
_LISTED = re.compile(r"(?:\[([^\[\](){}]{1,60})\]|\{([^\[\](){}]{1,60})\})")
_IN = re.compile(r"(?<![\w.\-])in\s*\Z", re.IGNORECASE)
_QUANTIFIER = re.compile(r"(?<![\w.\-:@`])(some|every)\s*\(\s*\S?\Z", re.IGNORECASE)
_COUNTED = re.compile(r"(?<![\w.\-])([0-9]+(?:\.[0-9]+)?)\s+\Z")
_RATE = re.compile(r"/[^\W\d][\w.^\-/]{0,30}")
_NUMBER = r"(?<![\w.,])(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)"
_BEFORE_COMMA = re.compile(rf"{_NUMBER}\Z")
_AFTER_COMMA = re.compile(r",[0-9]+(?:,[0-9]{3})*(?![0-9])")
_WITH_COMMA = re.compile(rf"{_NUMBER}{_AFTER_COMMA.pattern}")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_KINDS = re.compile(r"\b(isa|is|below)\s+([\w.\-:]{1,40})\s*\Z", re.IGNORECASE)
_FURTHER_KIND = re.compile(r"(?:,|\|\|?)\s*([\w.\-:]{1,40})")
_FURTHER_WORDS = re.compile(r"[\w\-]{1,40}(?:\s+[\w\-]{1,40}){0,2}?(?=\s*(?:\Z|\)|(?<=\s)(?:and|or)\b))", re.IGNORECASE)
"""The rest of a name with spaces. What is before a comparison is an attribute, so that `and` is missing."""
_EITHER_KIND = re.compile(r"\b(isa|is|below)\s+([\w.\-:]{1,40})\s+or\s+([\w.\-:]{1,40})\s*\Z", re.IGNORECASE)
_AGGREGATE = re.compile(r"(?<![\w.\-])(count|sum|min|max)\s*\(\s*\Z", re.IGNORECASE)
_WORD = re.compile(r"[\w.\-:@]{1,40}")
_LAST_WORD = re.compile(r"(\w+)\s*\Z")
_ANY = re.compile(r"(?s:.)")


def syntax_problem(text: str, error: UnexpectedInput) -> Problem:
    """Returns the problem that the parser's `error` reports, with its line and column in `text`."""
    parser = getattr(error, "interactive_parser", None)
    expected: set[str] = set(parser.accepts()) if parser else set()
    token = getattr(error, "token", None)
    if isinstance(token, Token) and token.type == "$END":
        return _at_the_end(text, expected)
    offset = min(int(getattr(error, "pos_in_stream", None) or 0), max(len(text) - 1, 0))
    at = _position(text, offset)
    rest = text[offset:]
    if quantifier := _QUANTIFIER.search(text[max(offset - 60, 0) : offset + 1]):
        detail = "write the name of an array before the parenthesis"
        return Problem("syntax", f"{detail}: {quantifier[1].lower()} items (…)", at)
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
    word = (_WORD.match(rest) or _ANY.match(rest))[0]  # type: ignore[index]  # `_ANY` always matches
    detail = f"{word!r} is not expected here; {_words(expected)}"
    if "AT_NAME" in expected and word.isidentifier():
        detail += f'; "{word}" in quotes is a string, @{word} the attribute'
    near = _near(text[:offset]) if "WORD" in expected else nearest_keyword(word)
    if near is None and is_keyword(word):
        detail += _advice(word, expected)
    return Problem("syntax", detail, at, ({"label": near},) if near else ())


def _phrase(text: str, offset: int) -> tuple[str, str] | None:
    """Returns a message and a suggestion if a phrase of everyday language or SQL is around `offset`, or None."""
    before, rest = text[max(offset - 60, 0) : offset], text[offset : offset + 100]
    if _IS_A.search(before):
        return "`is a` is not understood; write isa", "isa"
    if _BETWEEN.search(before) and (ends := _ENDS.match(rest)):
        meant = _WITH_COMMA.sub(lambda found: _without_comma(found[0]), f"[{ends[1]}, {ends[2]}]")
        return f"the ends of `between` need brackets; write between {meant}", meant
    if money := _MONEY.match(rest):
        currency, *others = AMBIGUOUS.get(money[1]) or (CURRENCY_SIGNS[money[1]],)
        meant = f"{money[2]} {currency}"
        or_others = f" (or {' or '.join(others)} for {money[1]})" if others else ""
        return f"write the code of a currency after the number: {meant}{or_others}", meant
    if (code := _CODE.search(before)) and code[1] in CURRENCIES and (amount := _AMOUNT.match(rest)):
        meant = f"{amount[0]} {code[1]}"
        return f"write the code of a currency after the number: {meant}", meant
    if (year := _YEAR.search(before)) and (day := _DAY.match(rest)):
        meant = "-".join([year[1], *(each.zfill(2) for each in day.groups() if each)])
        return f"months and days have two digits; write {meant}", meant
    if (year and (day := _DAY_AFTER_SLASH.match(rest))) or (day := _DAY_WITH_DOTS.match(rest)):
        parts = [year[1], *day.groups()] if year and rest[0] == "/" else [*reversed(day.groups())]
        meant = "-".join(each.zfill(2) for each in parts)
        return f"a date is written as {meant}", meant
    if dotted := _DOTTED.match(rest):
        meant = f'"{dotted[0]}"'
        return f"versions and addresses need quotes; write {meant}", meant
    if (scheme := _SCHEME.search(before)) and (further := _BEHIND_SCHEME.match(rest)):
        meant = f"<{scheme[1]}{further[0]}>"
        return f"an IRI stands in angle brackets; write {meant}", meant
    if (moment := _date_time(before, rest)) is not None:
        return f"a date-time is written as {moment}", moment
    if _IN.search(before) and (listed := _LISTED.match(rest)):
        meant = f"({(listed[1] or listed[2]).strip()})"
        return f"the values of `in` need parentheses; write in {meant}", meant
    if (number := _COUNTED.search(before)) and (rate := _RATE.match(rest)):
        meant = f'{number[1]} "{rate[0]}"'
        return f"a unit that begins with / needs quotes; write {meant}", meant
    if (start := _BEFORE_COMMA.search(before)) and (further := _AFTER_COMMA.match(rest)):
        meant = _without_comma(start[0] + further[0])
        return f"numbers have no commas; write {meant}", meant
    if (kind := _KINDS.search(before)) and (other := _FURTHER_KIND.match(rest)):
        return _several_kinds(kind[1], kind[2], other[1])
    if kind and ":" not in kind[2] and (words := _FURTHER_WORDS.match(rest)):
        meant = f"{kind[2]} {' '.join(words[0].split())}"
        if not any(map(is_keyword, meant.split())):
            return f'names with spaces need quotes; write {kind[1]} "{meant}"', f'"{meant}"'
    if (function := _AGGREGATE.search(before)) and function[1] != function[1].lower():
        meant = function[1].lower()
        return f"{function[1]} is not understood; write {meant}", meant
    return None


def _date_time(before: str, rest: str) -> str | None:
    """Returns the date-time that is written around the end of `before` in another form of ISO 8601, or None."""
    for found in _MOMENT.finditer(before + rest):
        if found.start() <= len(before) < found.end():
            day, hour, minute, second, utc, hours, minutes = found.groups()
            zone = f"{hours}:{minutes or '00'}" if hours else "Z" if utc else ""
            return f"{day}T{hour}{minute or ':00'}{second or ':00'}{zone}"
    return None


def _without_comma(number: str) -> str:
    """Returns a number with commas as this language writes it: `3,5` is 3.5, `1,000` is 1000, `1.000,50` is 1000.50."""
    if _THOUSANDS.fullmatch(number):
        return number.replace(",", "")
    whole, _, decimals = number.partition(",")
    return f"{whole.replace('.', '')}.{decimals}"


def _several_kinds(test: str, one: str, other: str) -> tuple[str, str]:
    meant = f"{test} ({one}, {other})"
    return f"several concepts need parentheses; write {meant}", meant


def _near(before: str) -> str | None:
    """Returns the keyword that the last word of `before` may be a misspelling of, or None. The parser reads `price
    exist` and `price betwen [` as the start of a relation."""
    last = _LAST_WORD.search(before, max(len(before) - 40, 0))
    return nearest_keyword(last[1]) if last else None


def _habit(text: str, offset: int) -> str | None:
    """Returns the sign of another language at `offset` or around it, or None. For `<>`, the parser fails only at the
    `>`."""
    around = text[max(offset - 1, 0) : offset + 1]
    if around in HABITS:
        return around
    return next((sign for sign in (text[offset : offset + 2], text[offset]) if sign in HABITS), None)


def _advice(word: str, expected: set[str]) -> str:
    """Returns advice on how to quote a keyword in this place, or where to put it instead."""
    if "ORDER" in expected or "WORD" in expected:
        return (
            '; write not before the predicate: not colour = "red"'
            if word.lower() == "not"
            else (f'; to use {word} as a concept, write it in quotes: "{word}"' if "WORD" in expected else "")
        )
    return f"; to use {word} as a name, write it in backquotes: `{word}`" if "QUOTED_NAME" in expected else ""


def nearest_keyword(word: str) -> str | None:
    """Returns the keyword that is most similar to a misspelt `word`, or None."""
    near = difflib.get_close_matches(word.lower(), sorted(KEYWORDS), n=1, cutoff=0.6)
    return near[0] if near and not is_keyword(word) else None


def _at_the_end(text: str, expected: set[str]) -> Problem:
    opened = _unclosed(text)
    at = _position(text, max(len(text.rstrip()) - 1, 0))
    if "KIND" in expected and (either := _EITHER_KIND.search(text, max(len(text) - 100, 0))):
        detail, meant = _several_kinds(*either.groups())
        return Problem("syntax", detail, at, ({"label": meant},))
    detail = f"the text ends too early; {_words(expected)}"
    if opened is not None and expected & {"_RPAR", "CLOSE"}:
        detail += f"; the bracket opened at {_position(text, opened)} is not closed"
    near = _near(text) if "WORD" in expected else None
    return Problem("syntax", detail, at, ({"label": near},) if near else ())


def _unclosed(text: str) -> int | None:
    """Returns the position of the innermost bracket that is not closed, or None. Brackets in strings are ignored."""
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
    """Returns the expected terminals as a list of alternatives in words. Common groups of terminals have one name."""
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
