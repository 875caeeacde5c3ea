"""Identifiers that are written in several ways, or that name something in a part of themselves, read by patterns.

    {"match": "attack\\\\.(t[0-9]{4})", "as": "{1}"}

A pattern is matched against the whole text, in linear time (RE2); `{0}` is all of the text, `{1}` its first group.
docs/matching-semantics.md, rules 4 and 24.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from kindcast.semantic.errors import InvalidDeclaration, SemanticError
from kindcast.semantic.units.patterns import Pattern, compile_pattern

__all__ = [
    "DIGITAL_LINK",
    "DIGITAL_LINK_FORM",
    "GTIN_14",
    "LONGEST_TEXT",
    "IdentifierPattern",
    "attribute_readings",
    "digital_link",
    "identifier_patterns",
    "named_pattern",
    "readings_of_identifier",
]

MOST_PATTERNS = 16
"""Patterns of one declaration: each is tried on each new text."""
LONGEST_PATTERN = 500
LONGEST_TEXT = 500
"""Characters of a text that is tried: identifiers are short."""
GROUP: Final = re.compile(r"\{([^{}]*)\}")


GTIN_14: Final = "gtin-14"
"""The built-in reading of trade items: GS1's EPC URIs, Digital Links and element strings, and GTINs of any length, as
the GTIN-14 and as its canonical Digital Link."""
DIGITAL_LINK: Final = "https://id.gs1.org/01/"
EPC: Final = re.compile(
    r"urn:epc:(?:(?:id:sgtin|idpat:sgtin|class:lgtin):|tag:sgtin-(?:96|198):[0-7]\.)"
    r"([0-9]{6,12})\.([0-9]{1,7})(?:\..{1,64})?"
)
LINK: Final = re.compile(r"https?://[^/\s]{1,200}(?:/[^?#\s]{0,200})?/01/([0-9]{8}|[0-9]{12,14})(?:[/?#].{0,300})?")
ELEMENTS: Final = re.compile(r"\(01\)([0-9]{14})(?:\(.{1,200})?")
DIGITS: Final = re.compile(r"[0-9]{8}|[0-9]{12,14}")

DIGITAL_LINK_FORM: Final = "gs1-digital-link"
"""The built-in alias of trade items: EPC URIs and Digital Links of any domain, as GS1's Digital Link that names the
same item, lot or class."""
EPC_ITEM: Final = re.compile(
    r"urn:epc:(?P<kind>id:sgtin:|tag:sgtin-(?:96|198):[0-7]\.|idpat:sgtin:|class:lgtin:)"
    r"(?P<company>[0-9]{6,12})\.(?P<item>[0-9]{1,7})\.(?P<own>[^.\s]{1,64})"
)
LINK_ITEM: Final = re.compile(
    r"https?://[^/\s]{1,200}(?:/[^?#\s]{0,200})?/01/(?P<gtin>[0-9]{8}|[0-9]{12,14})"
    r"(?P<more>(?:/(?:22|10|21)/[^/?#\s]{1,64}){0,3})/?(?:[?#]\S{0,300})?"
)


@dataclass(frozen=True, slots=True)
class IdentifierPattern:
    """`match` against a whole text gives the text `form`, with groups put in."""

    match: str
    form: str
    _regex: Pattern = field(compare=False, repr=False)

    def reading(self, text: str) -> str | None:
        """What `text` is also, None where it does not match. Linear in the text."""
        if len(text) > LONGEST_TEXT:
            return None
        parts = self._regex.parts(text)
        return None if parts is None else GROUP.sub(lambda group: parts[int(group[1])], self.form)


def gtin_readings(text: str) -> tuple[str, ...]:
    """The GTIN-14 of a trade item and its Digital Link; nothing for another text, or a wrong check digit.

    >>> gtin_readings("urn:epc:id:sgtin:9506000.013435.42")
    ('09506000134352', 'https://id.gs1.org/01/09506000134352')
    """
    if len(text) > LONGEST_TEXT or not text.isascii():
        return ()
    if found := EPC.fullmatch(text):
        company, item = found[1], found[2]
        if len(company) + len(item) != 13:
            return ()
        body = item[0] + company + item[1:]
        gtin = body + _check_digit(body)
    elif found := LINK.fullmatch(text) or ELEMENTS.fullmatch(text):
        gtin = found[1].zfill(14)
    elif DIGITS.fullmatch(text):
        gtin = text.zfill(14)
    else:
        return ()
    return (gtin, DIGITAL_LINK + gtin) if gtin[-1] == _check_digit(gtin[:-1]) else ()


def digital_link(text: str) -> str | None:
    """GS1's Digital Link that names the same trade item; None for another text, or a wrong check digit. EPC URIs are
    mapped as GS1's EPC Tag Data Standard has it.

    >>> digital_link("urn:epc:id:sgtin:9506000.013435.42")
    'https://id.gs1.org/01/09506000134352/21/42'
    """
    if len(text) > LONGEST_TEXT or not text.isascii():
        return None
    if found := EPC_ITEM.fullmatch(text):
        company, item, own = found["company"], found["item"], found["own"]
        if len(company) + len(item) != 13:
            return None
        body = item[0] + company + item[1:]
        gtin = body + _check_digit(body)
        if found["kind"].startswith("idpat"):
            if own != "*":
                return None
            more = ""
        else:
            more = f"/{'10' if found['kind'].startswith('class') else '21'}/{own}"
    elif found := LINK_ITEM.fullmatch(text):
        gtin, more = found["gtin"].zfill(14), found["more"]
    else:
        return None
    if gtin[-1] != _check_digit(gtin[:-1]):
        return None
    return DIGITAL_LINK + gtin + "".join(f"/{quote(unquote(part), safe='')}" for part in more.split("/")[1:])


def _check_digit(body: str) -> str:
    """That of the first 13 digits of a GTIN-14 (GS1 General Specifications, section 7.9): weights 3, 1, 3, …"""
    total = sum(int(digit) * (3, 1)[place % 2] for place, digit in enumerate(body))
    return str(-total % 10)


def readings_of_identifier(patterns: Iterable["IdentifierPattern | str"], text: str) -> tuple[str, ...]:
    """What `text` is also, by patterns and built-in readings: distinct, without itself."""
    found: dict[str, None] = {}
    for each in patterns:
        if isinstance(each, str):
            found.update(dict.fromkeys(gtin_readings(text)))
        elif (reading := each.reading(text)) is not None:
            found[unicodedata.normalize("NFC", reading)] = None
    found.pop(text, None)
    found.pop("", None)
    return tuple(found)


def attribute_readings(attribute: str, declared: Any) -> tuple["IdentifierPattern | str", ...]:
    """Patterns and names of built-in readings, as the declaration of an attribute has them. Raises
    InvalidDeclaration."""
    if declared is None:
        return ()
    what = f"attribute {attribute!r}"
    listed = [declared] if isinstance(declared, Mapping | str) else declared
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MOST_PATTERNS:
        raise InvalidDeclaration(f"{what}: reads is a list of 1 to {MOST_PATTERNS} patterns or {GTIN_14!r}")
    return tuple(named_pattern(what, "reads", each, (GTIN_14,)) for each in listed)


def named_pattern(what: str, key: str, declared: Any, built_in: Sequence[str]) -> "IdentifierPattern | str":
    """One pattern, or the name of one that is `built_in`. Raises InvalidDeclaration."""
    if not isinstance(declared, str):
        return _pattern(what, key, declared)
    if declared not in built_in:
        raise InvalidDeclaration(
            f"{what}: {key} has no built-in {declared!r}; there is {', '.join(map(repr, built_in))}"
        )
    return declared


def identifier_patterns(what: str, key: str, declared: Any) -> tuple[IdentifierPattern, ...]:
    """The patterns of a declaration: one `{"match": …, "as": …}` or a list of them. Raises InvalidDeclaration."""
    listed = [declared] if isinstance(declared, Mapping) else declared
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MOST_PATTERNS:
        raise InvalidDeclaration(f'{what}: {key} is {{"match": …, "as": …}}, or a list of 1 to {MOST_PATTERNS} of them')
    return tuple(_pattern(what, key, each) for each in listed)


def _pattern(what: str, key: str, declared: Any) -> IdentifierPattern:
    given = declared if isinstance(declared, Mapping) else {}
    match, form = given.get("match"), given.get("as")
    if given.keys() != {"match", "as"} or not isinstance(match, str) or not isinstance(form, str):
        raise InvalidDeclaration(f'{what}: each of {key} is {{"match": a pattern, "as": a text with {{1}}}}')
    if len(match) > LONGEST_PATTERN or len(form) > LONGEST_PATTERN:
        raise InvalidDeclaration(f"{what}: a pattern and its form have at most {LONGEST_PATTERN} characters")
    try:
        regex = compile_pattern(match, capture=True)
    except SemanticError as error:
        raise InvalidDeclaration(f"{what}: {key}: {error}") from None
    for group in GROUP.findall(form):
        if not group.isdigit() or int(group) > regex.groups:
            raise InvalidDeclaration(f"{what}: {key}: {{{group}}} in {form!r} is not a group of {match!r}")
    return IdentifierPattern(match, form, regex)
