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

import difflib
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from kindcast.semantic.units.codes import (
    CODES_REC20,
    CURRENCIES,
    QUDT_ATOMS,
    QUDT_BINARY,
    QUDT_PREFIXES,
    SI_PREFIXES,
    SYMBOLS,
    WORDS_OM,
)

__all__ = [
    "Factor",
    "UnitSyntaxError",
    "factors",
    "local_name",
    "nearest",
    "spellings",
    "tidy",
    "variants",
    "without_prefix",
]


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
            raise UnitSyntaxError(f"an operand is missing before {word!r}")
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
            raise UnitSyntaxError("an operand is missing at the end")
        return self._found

    def operator(self, sign: int) -> None:
        self._flush()
        if self._waiting or not (self._found or sign < 0):
            raise UnitSyntaxError("write an operator between two units")
        self._sign = sign
        self._waiting = True

    def hyphen(self) -> None:
        """`kW-h`: a product like white space, but something must follow."""
        if self._waiting or not (self._found or self._words):
            raise UnitSyntaxError("there is a hyphen between two units")
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


# A unit as someone named it → what to look for, in the order in which it is meant.
#
# A plain name is tried as a symbol or a name of pint's, as a code of UN/CEFACT, as a name of QUDT, and last as an
# expression of such names (`km/h`); only there prefixes come off, so that `GP` is CEFACT's mg/m³, not the giga-poise.
# An IRI says by itself which system it belongs to. Everything comes out as expressions that
# `kindcast.semantic.units.grammar` reads.

QUDT = re.compile(
    r"(?:https?://(?:www\.)?qudt\.org/(?:[0-9.]+/)?vocab/(?:unit|currency)[/#]|unit:|cur:)(?P<local>[\w.-]+)"
)
OM = re.compile(r"(?:https?://www\.(?:ontology-of-units-of-measure\.org|wurvoc\.org)/.*/|om:)(?P<local>[\w-]+)")
REC20 = re.compile(r"https?://\S*[Uu]nit[^\s/#]*[#/](?P<code>[A-Z0-9]{2,3})")
"""A code of UN/CEFACT Recommendation 20 in the list of somebody else: `…/MeasurementUnitCode#KGM`."""
OM_KIND = re.compile(r"-(?:Time|Angle|Temperature)")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
QUDT_TOKEN = re.compile(rf"({'|'.join(QUDT_PREFIXES)})?([A-Za-z][A-Za-z_]*?)([0-9]?)")
BINARY = re.compile(rf"({'|'.join(QUDT_BINARY)})(BIT|BYTE)")

BINARY_SYMBOLS = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
PREFIXES = {
    **{symbol: Fraction(10) ** power for symbol, power in SI_PREFIXES.items()},
    **{symbol: Fraction(1024) ** power for power, symbol in enumerate(BINARY_SYMBOLS, start=1)},
}
WORD_PREFIXES = {
    **{prefix.lower(): Fraction(10) ** power for prefix, power in QUDT_PREFIXES.items()},
    **{prefix.lower(): Fraction(1024) ** power for power, prefix in enumerate(QUDT_BINARY, start=1)},
    "deka": Fraction(10),
}
LONGEST_PREFIX = max(map(len, WORD_PREFIXES))
SHORTEST_WORD = 4
"""Letters from which a name counts as a word, not a symbol."""
SHORTEST_STEM = 3
"""Letters that follow a prefix that is a word: `kilobit`, but `Kibit` is no kibi-tonne."""

SUGGESTED = 5
CUTOFF = 0.6
"""How alike (0 … 1, `difflib`) a suggestion must be."""


def local_name(name: str) -> str:
    """The last part of an IRI or CURIE of a system that we read; other names as they are."""
    found = QUDT.fullmatch(name) or OM.fullmatch(name)
    return found["local"] if found else name


def spellings(name: str, known: Container[str]) -> Iterator[str]:
    """Expressions that `name` may be short for, the likeliest first. `known` are pint's own names and symbols, which no
    other system overrules."""
    qudt, om = QUDT.fullmatch(name), OM.fullmatch(name)
    if qudt:
        code = qudt["local"].removeprefix("CCY_")
        expression = code if code in CURRENCIES else _of_qudt(qudt["local"])
        if expression:
            yield expression
        elif "1.1/" in name:  # before version 2 names were written out: `DegreeCelsius`
            yield CAMEL.sub(" ", qudt["local"]).lower()
    elif om:
        local = om["local"]
        yield WORDS_OM.get(local) or CAMEL.sub(" ", OM_KIND.sub("", local)).lower()
    elif code_of := REC20.fullmatch(name):
        if code_of["code"] in CODES_REC20:
            yield CODES_REC20[code_of["code"]]
    elif "://" not in name:
        plain = tidy(name)
        if plain in SYMBOLS:
            yield SYMBOLS[plain]
        elif plain in CURRENCIES or plain in known:
            yield plain
        elif plain:
            if plain in CODES_REC20:
                yield CODES_REC20[plain]
            expression = _of_qudt(plain)
            if expression:
                yield expression
            yield plain


def variants(name: str) -> Iterator[str]:
    """`name`, and what it is if it is a plural or begins with a capital (`Kelvin`); short names are symbols, where each
    letter counts."""
    yield name
    if len(name) >= SHORTEST_WORD:
        if name.endswith("s"):
            yield name[:-1]
        if name.istitle():
            yield name.lower()
            yield name.lower().removesuffix("s")


def without_prefix(name: str) -> Iterator[tuple[Fraction, str]]:
    """Ways to read the beginning of `name` as a prefix: (its worth, the rest)."""
    folded = name.lower() if name.istitle() else name
    for length in range(min(len(name) - SHORTEST_STEM, LONGEST_PREFIX), 0, -1):
        worth = WORD_PREFIXES.get(folded[:length])
        if worth is not None:
            yield worth, folded[length:]
    for length in (2, 1):
        worth = PREFIXES.get(name[:length])
        if worth is not None and len(name) > length:
            yield worth, name[length:]


def _of_qudt(name: str) -> str | None:
    """`KiloW-HR-PER-M2` → `(10*3.(watt)).(hour)/((meter)2)`."""
    if name in QUDT_ATOMS:
        return QUDT_ATOMS[name]
    expression, operator = "", ""
    for token in name.split("-"):
        if token == "PER":
            if operator == "/":
                return None
            operator = "/"
            continue
        factor = _factor_of_qudt(token)
        if factor is None:
            return None
        expression += operator + factor
        operator = operator or "."
    return expression or None


def _factor_of_qudt(token: str) -> str | None:
    binary = BINARY.fullmatch(token)
    if binary:
        return binary[1].lower() + binary[2].lower()
    shape = QUDT_TOKEN.fullmatch(token)
    if shape is None:
        return None
    prefix, atom, power = shape.groups()
    if atom not in QUDT_ATOMS:
        return None
    scaled = f"10*{QUDT_PREFIXES[prefix]}.({QUDT_ATOMS[atom]})" if prefix else QUDT_ATOMS[atom]
    return f"({scaled}){power}"


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Known names that `name` may be a slip for, the most alike first.

    Only names of about the same length with the same first letter, in either case, are compared: some dozens.
    """
    local = local_name(name)[:40]
    if not local:
        return ()
    first, length = local[0].casefold(), len(local)
    alike = (each for each in known if abs(len(each) - length) <= length // 3 + 1 and each[0].casefold() == first)
    folded: dict[str, str] = {}
    for each in alike:
        folded[each.casefold()] = max(each, folded.get(each.casefold(), ""))  # `deg` rather than `DEG`
    found = difflib.get_close_matches(local.casefold(), folded, SUGGESTED, CUTOFF)
    return tuple(folded[each] for each in found)
