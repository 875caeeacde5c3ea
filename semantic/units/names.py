"""A unit as someone named it → what to look for, in the order in which it is meant.

A plain name is tried as a symbol or a name of pint's, as a code of UN/CEFACT, as a name of QUDT, and last as an
expression of such names (`km/h`); only there prefixes come off, so that `GP` is CEFACT's mg/m³, not the giga-poise. An
IRI says by itself which system it belongs to. Everything comes out as expressions that `semantic.units.grammar` reads.
"""

import difflib
import re
from collections.abc import Container, Iterable, Iterator
from fractions import Fraction

from semantic.units.codes import (
    CODES_REC20,
    CURRENCIES,
    QUDT_ATOMS,
    QUDT_BINARY,
    QUDT_PREFIXES,
    SI_PREFIXES,
    SYMBOLS,
    WORDS_OM,
)
from semantic.units.grammar import tidy

__all__ = ["local_name", "nearest", "spellings", "variants", "without_prefix"]

QUDT = re.compile(
    r"(?:https?://(?:www\.)?qudt\.org/(?:[0-9.]+/)?vocab/(?:unit|currency)[/#]|unit:|cur:)(?P<local>[\w.-]+)"
)
OM = re.compile(r"(?:https?://www\.(?:ontology-of-units-of-measure\.org|wurvoc\.org)/.*/|om:)(?P<local>[\w-]+)")
OM_KIND = re.compile(r"-(?:Time|Angle|Temperature)")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
TOKEN = re.compile(rf"({'|'.join(QUDT_PREFIXES)})?([A-Za-z][A-Za-z_]*?)([0-9]?)")
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
    elif om:
        local = om["local"]
        yield WORDS_OM.get(local) or CAMEL.sub(" ", OM_KIND.sub("", local)).lower()
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
    shape = TOKEN.fullmatch(token)
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
