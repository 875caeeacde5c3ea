"""The shape of a unit, before anyone knows what its names mean: text → names with exponents.

Units come from publishers, so nothing here evaluates anything. The grammar is small and every part of it is bounded:

    unit      =  ["/"] term { operator term }            read from left to right, as UCUM does: a/b.c is (a/b).c
    operator  =  "/" | "per" | "." | "*" | "-" | white space       the last two stay below a slash: W/m2 K is W/(m2.K)
    term      =  ( name | integer | "(" unit ")" ) [ exponent ]
    exponent  =  [ "^" | "**" ] integer                  m2, m^2, s-1; UCUM writes powers of ten as 10*3 or 10^3
    name      =  a letter, then letters, digits, "_" ; or in brackets, as UCUM has them: [in_i], mm[Hg] ; or % ° ' ''

Words around a name count as exponents (`square metre`, `second squared`); annotations in braces count as nothing behind
a unit and as one elsewhere (`{beats}/min`). A digit at the end of a name is left to whoever knows the names: `m2` is a
power, `mmH2O` is not.
"""

import re
import unicodedata
from dataclasses import dataclass, replace

__all__ = ["Factor", "UnitSyntaxError", "factors", "tidy"]

MOST_FACTORS = 12
"""Names in a unit."""
LARGEST_EXPONENT = 12
"""Nothing physical comes near; with the bound above it keeps the numbers of a conversion below a kilobyte."""
LARGEST_POWER_OF_TEN = 30
"""`10*n`, as UCUM writes counts: prefixes end at 10^30 too."""
DEEPEST = 4
"""Parentheses within parentheses."""

RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
TYPOGRAPHY = str.maketrans("−–⁄∕÷⋅·∙×μ′", "--///...*u'")
"""After NFKC, which turns `℃` into `°C`, both micro signs into the Greek letter and a double prime into two."""
QUALIFIER = re.compile(r"\{[^{}]*\b(?:UK|US|Imp|IT|th|mean|long|short|Troy)\b[^{}]*\}")
"""Not an annotation but another unit (`gal{UK}`, as some tables print it): left in place, which no grammar reads."""
ANNOTATION = re.compile(r"(?P<unit>[\w\])%'])?\{[^{}]*\}")
TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<power>10(?:\*|\^)(?P<ten>[+-]?[0-9]{1,2})(?![0-9]))"
    r"|(?P<number>[0-9]{1,10})"
    r"|(?P<name>''|'|%[A-Za-z]{0,2}|°[A-Za-z]{0,2}|[^\W\d]\w*(?:\[[\w']+\])?|\[[\w']+\]|[‰€₹₺₴₪₫₽])"
    r"|(?P<operator>[/.*()-])"
)
EXPONENT = re.compile(r"(?:\*\*|\^)?([+-]?[0-9]{1,2})(?![0-9])")


class UnitSyntaxError(Exception):
    """The text has not the shape of a unit."""


@dataclass(frozen=True, slots=True)
class Factor:
    """`words` (one name, or several that may be one name: `degree Celsius`) to the power of `exponent`. A number is a
    factor without words. `first` is a further power of what stands first (`square`, `cubic`); `written` tells that the
    power stood in the text, so that digits at the end of a name are not another one."""

    words: tuple[str, ...]
    exponent: int
    number: int = 1
    first: int = 1
    written: bool = False


def tidy(text: str) -> str:
    """One spelling of what type-setting varies; the annotations of UCUM fall away."""
    plain = text.strip()
    if not plain.isascii():
        plain = plain.replace("º", "°")
        plain = RAISED.sub(lambda digits: "^" + digits[0].translate(LOWERED), plain)
        plain = unicodedata.normalize("NFKC", plain).translate(TYPOGRAPHY)
    if "{" not in plain or QUALIFIER.search(plain):
        return plain
    return ANNOTATION.sub(lambda found: found["unit"] or "1", plain)


def factors(text: str) -> tuple[Factor, ...]:
    """The factors of `text` (already tidy), without any order that matters. Empty text is the unit one.

    Linear in the length, which the caller bounds. Raises `UnitSyntaxError`.

    >>> [(factor.words, factor.exponent) for factor in factors("kg/m3")]
    [(('kg',), 1), (('m3',), -1)]
    """
    found, position = _unit(text, 0, depth=0)
    if position != len(text):
        raise UnitSyntaxError(f"{text[position]!r} does not belong here")
    if len(found) > MOST_FACTORS:
        raise UnitSyntaxError(f"a unit has at most {MOST_FACTORS} factors")
    if any(abs(factor.exponent) > LARGEST_EXPONENT for factor in found):
        raise UnitSyntaxError(f"an exponent is at most {LARGEST_EXPONENT}")
    return tuple(found)


def _unit(text: str, position: int, depth: int) -> tuple[list[Factor], int]:
    """The factors from `position` to the end, or to the parenthesis that closes this depth, and where that is."""
    terms = _Terms()
    free = True
    """A term may begin here: at the beginning, after an operator and after white space."""
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None:
            raise UnitSyntaxError(f"{text[position]!r} does not belong here")
        kind, word, position = token.lastgroup, token.group(), token.end()
        begins = kind in ("name", "number", "power") or word == "("
        if begins and not free:
            raise UnitSyntaxError(f"something is missing in front of {word!r}")
        free = not begins and word != ")"
        if kind == "name":
            if not terms.spoken(word.lower()):
                exponent, position = _exponent(text, position)
                terms.name(word, exponent)
        elif kind == "number" and text[position : position + 1].strip("/.*)") == "":
            terms.number(int(word), 1)
        elif kind == "power":
            ten = int(token["ten"])
            if abs(ten) > LARGEST_POWER_OF_TEN:
                raise UnitSyntaxError(f"{word} is too large: at most 10*{LARGEST_POWER_OF_TEN}")
            terms.number(10 ** abs(ten), 1 if ten >= 0 else -1)
        elif word == "(":
            if depth == DEEPEST:
                raise UnitSyntaxError(f"more than {DEEPEST} parentheses within each other")
            inner, position = _unit(text, position, depth + 1)
            if not inner or text[position : position + 1] != ")":
                raise UnitSyntaxError("a parenthesis is empty or not closed")
            exponent, position = _exponent(text, position + 1)
            terms.group(inner, 1 if exponent is None else exponent)
        elif word == ")" and depth:
            return terms.done(), position - 1
        elif word in ("/", ".", "*"):
            terms.operator(-1 if word == "/" else 1)
        elif word == "-":
            terms.hyphen()
        elif kind != "space":
            raise UnitSyntaxError(f"{word!r} does not belong here")
    return terms.done(), position


class _Terms:
    """Collects the terms of one unit; neighbouring words are kept together, since they may be one name."""

    def __init__(self) -> None:
        self._found: list[Factor] = []
        self._words: list[str] = []
        self._sign = 1
        self._power = 1
        self._waiting = False
        """An operator was read, and its right side was not."""

    def done(self) -> list[Factor]:
        self._flush()
        if self._waiting or self._power != 1:
            raise UnitSyntaxError("something is missing at the end")
        return self._found

    def operator(self, sign: int) -> None:
        self._flush()
        if self._waiting or not (self._found or sign < 0):
            raise UnitSyntaxError("an operator stands between two units")
        self._sign = sign
        self._waiting = True

    def hyphen(self) -> None:
        """`kW-h`: a product like white space, but something must follow."""
        if self._waiting or not (self._found or self._words):
            raise UnitSyntaxError("a hyphen stands between two units")
        self._waiting = True

    def spoken(self, word: str) -> bool:
        """Take `word` if it is one of the words for operators and exponents."""
        if word == "per":
            self.operator(-1)
        elif word in ("square", "cubic"):
            self._flush()
            self._power = 2 if word == "square" else 3
        elif word in ("squared", "cubed") and self._words:
            self.name(self._words.pop(), 2 if word == "squared" else 3)
        else:
            return False
        return True

    def name(self, word: str, exponent: int | None) -> None:
        self._waiting = False
        if exponent is None:
            self._words.append(word)
        else:
            self._flush()
            self._found.append(Factor((word,), self._sign * exponent, written=True))

    def number(self, number: int, exponent: int) -> None:
        self._flush()
        self._waiting = False
        self._found.append(Factor((), self._sign * exponent, number))

    def group(self, inner: list[Factor], exponent: int) -> None:
        self._flush()
        self._waiting = False
        self._found += [replace(each, exponent=each.exponent * exponent * self._sign) for each in inner]

    def _flush(self) -> None:
        if self._words:
            self._found.append(Factor(tuple(self._words), self._sign, first=self._power, written=self._power != 1))
            self._words.clear()
            self._power = 1


def _exponent(text: str, position: int) -> tuple[int | None, int]:
    """The exponent that stands at `position`, if any, and where it ends."""
    token = EXPONENT.match(text, position)
    return (None, position) if token is None else (int(token[1]), token.end())
