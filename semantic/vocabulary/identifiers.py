"""Identifiers: code systems, which map codes to concepts, patterns that read identifiers written in several ways, and
aliases, other forms of an IRI.

A code system (docs/matching-semantics.md, rule 22):

    {"identifiers": ["http://human-phenotype-ontology.org", "http://purl.obolibrary.org/obo/HP_"],
     "iri": [{"match": "HP:([0-9]{7})", "as": "http://purl.obolibrary.org/obo/HP_{1}"}]}

A code means the concepts that are found in one of two ways. By IRI: the declaration says how the IRI is built from the
code (`iri`). By notation: the concept has the code as a notation, and an identifier of the system is its scheme or the
namespace of its IRI. A scheme without a declaration is a code system under its own IRI.

A pattern (rules 4 and 24) reads an identifier from a text or from a part of it:

    {"match": "attack\\\\.(t[0-9]{4})", "as": "{1}"}

It must match the whole text, in linear time (RE2). `{0}` is the whole text, `{1}` its first group.

Aliases (docs/matching-semantics.md, rule 24) declare which forms of an IRI name the same thing:

    {"iris": {"urn:oid:2.16.840.1.113883.6.1": "http://loinc.org"},
     "prefixes": {"http://schema.org/": "https://schema.org/"},
     "patterns": [{"match": "urn:shop:(.+)", "as": "https://example.org/shop#{1}"}, "gs1-digital-link"],
     "spellings": ["en"]}

Each entry leads from one form to another. The last form reached is the main form of a text; two texts with one main
form are aliases of each other. Every text has one main form, so this is an equivalence that costs a few look-ups.
`spellings` says that other spellings of labels mean their concepts (rule 12); they are not aliases.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from kindcast.semantic.errors import InvalidDeclaration, SemanticError
from kindcast.semantic.ontology.records import NOTATION, NOTATIONS, ConceptRecord, local_name
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units.patterns import Pattern, compile_pattern

__all__ = [
    "GTIN_14",
    "Aliases",
    "CodeSystem",
    "CodeSystems",
    "IdentifierPattern",
    "attribute_readings",
    "code_system",
    "digital_link",
    "identifier_patterns",
    "main_forms",
    "readings_of_identifier",
]

MOST_PATTERNS = 16
"""Maximum number of patterns of one declaration: each pattern is tried on each new text."""
LONGEST_PATTERN = 500
LONGEST_TEXT = 500
"""Maximum length in characters of a text on which patterns are tried: identifiers are short."""
GROUP: Final = re.compile(r"\{([^{}]*)\}")


GTIN_14: Final = "gtin-14"
"""Name of the built-in reading of trade items: it reads EPC URIs, Digital Links and element strings of GS1, and GTINs
of any length, as the GTIN-14 and as its canonical Digital Link."""
DIGITAL_LINK: Final = "https://id.gs1.org/01/"
EPC: Final = re.compile(
    r"urn:epc:(?:(?:id:sgtin|idpat:sgtin|class:lgtin):|tag:sgtin-(?:96|198):[0-7]\.)"
    r"([0-9]{6,12})\.([0-9]{1,7})(?:\..{1,64})?"
)
LINK: Final = re.compile(r"https?://[^/\s]{1,200}(?:/[^?#\s]{0,200})?/01/([0-9]{8}|[0-9]{12,14})(?:[/?#].{0,300})?")
ELEMENTS: Final = re.compile(r"\(01\)([0-9]{14})(?:\(.{1,200})?")
DIGITS: Final = re.compile(r"[0-9]{8}|[0-9]{12,14}")

DIGITAL_LINK_FORM: Final = "gs1-digital-link"
"""Name of the built-in alias of trade items: it maps EPC URIs and Digital Links of any domain to the Digital Link of
GS1 that names the same item, lot or class."""
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
    """A pattern: if `match` matches a whole text, the reading is `form` with the groups inserted."""

    match: str
    form: str
    _regex: Pattern = field(compare=False, repr=False)

    def reading(self, text: str) -> str | None:
        """Returns the reading of `text`, or None if the pattern does not match. Linear in the text."""
        if len(text) > LONGEST_TEXT:
            return None
        parts = self._regex.parts(text)
        return None if parts is None else GROUP.sub(lambda group: parts[int(group[1])], self.form)


def gtin_readings(text: str) -> tuple[str, ...]:
    """Returns the GTIN-14 of a trade item and its Digital Link; () for other texts and for wrong check digits.

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
    """Returns the Digital Link of GS1 that names the same trade item; None for other texts and for wrong check digits.
    EPC URIs are mapped according to the EPC Tag Data Standard of GS1.

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
    """Returns the check digit for the first 13 digits of a GTIN-14 (GS1 General Specifications, section 7.9; weights
    3, 1, 3, …)."""
    total = sum(int(digit) * (3, 1)[place % 2] for place, digit in enumerate(body))
    return str(-total % 10)


def readings_of_identifier(patterns: Iterable["IdentifierPattern | str"], text: str) -> tuple[str, ...]:
    """Returns the distinct readings of `text` by patterns and built-in readings, without `text` itself."""
    found: dict[str, None] = {}
    for each in patterns:
        if isinstance(each, str):
            found.update(dict.fromkeys(gtin_readings(text)))
        elif (reading := each.reading(text)) is not None:
            found[nfc(reading)] = None
    found.pop(text, None)
    found.pop("", None)
    return tuple(found)


def attribute_readings(attribute: str, declared: Any) -> tuple["IdentifierPattern | str", ...]:
    """Returns the patterns and the names of built-in readings in the declaration of an attribute (`reads`). Raises
    InvalidDeclaration."""
    if declared is None:
        return ()
    what = f"attribute {attribute!r}"
    listed = [declared] if isinstance(declared, Mapping | str) else declared
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MOST_PATTERNS:
        raise InvalidDeclaration(f"{what}: reads is a list of 1 to {MOST_PATTERNS} patterns or {GTIN_14!r}")
    return tuple(named_pattern(what, "reads", each, (GTIN_14,)) for each in listed)


def named_pattern(what: str, key: str, declared: Any, built_in: Sequence[str]) -> "IdentifierPattern | str":
    """Returns a declared pattern, or the name of a built-in one, which must be in `built_in`. Raises
    InvalidDeclaration."""
    if not isinstance(declared, str):
        return _pattern(what, key, declared)
    if declared not in built_in:
        raise InvalidDeclaration(
            f"{what}: {key} has no built-in {declared!r}; known is {', '.join(map(repr, built_in))}"
        )
    return declared


def identifier_patterns(what: str, key: str, declared: Any) -> tuple[IdentifierPattern, ...]:
    """Returns the patterns of a declaration: one `{"match": …, "as": …}` or a list of them. Raises
    InvalidDeclaration."""
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


KEYS: Final = frozenset({"identifiers", "iri", "notation"})
PLACE: Final = "{code}"
MOST_IDENTIFIERS = 32
LONGEST = 200
"""Maximum length of a code in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSystem:
    """A declared code system. `template`: an IRI with `{code}` in place of the code. `patterns`: they read the IRI from
    a code that they match. `notation`: the property that holds the codes of concepts."""

    name: str
    identifiers: tuple[str, ...]
    template: str | None = None
    patterns: tuple[IdentifierPattern, ...] = ()
    notation: str = NOTATION

    def iris(self, code: str) -> tuple[str, ...]:
        """Returns the IRIs that the code may mean, by `template` or else by `patterns`."""
        if self.template is not None:
            return (self.template.replace(PLACE, code),)
        return tuple(found for each in self.patterns if (found := each.reading(code)) is not None)


def code_system(name: str, declared: Any) -> CodeSystem:
    """Returns the code system of a declaration. Raises InvalidDeclaration."""
    what = f"code system {name!r}"
    if not isinstance(declared, Mapping) or declared.keys() - KEYS:
        raise InvalidDeclaration(f"{what}: an object with {', '.join(sorted(KEYS))} is expected")
    given = declared.get("identifiers")
    identifiers = tuple(given) if isinstance(given, list | tuple) else (given,)
    is_bounded = 0 < len(identifiers) <= MOST_IDENTIFIERS
    if not is_bounded or not all(isinstance(each, str) and each for each in identifiers):
        raise InvalidDeclaration(f"{what}: identifiers are 1 to {MOST_IDENTIFIERS} URIs or OIDs of the system")
    iri, notation = declared.get("iri"), declared.get("notation", NOTATION)
    if notation not in NOTATIONS:
        raise InvalidDeclaration(f"{what}: notation is one of {', '.join(NOTATIONS)}")
    template: str | None = None
    patterns: tuple[IdentifierPattern, ...] = ()
    if isinstance(iri, str):
        if PLACE not in iri:
            raise InvalidDeclaration(f"{what}: iri needs {PLACE} at the place of the code")
        template = iri
    elif iri is not None:
        patterns = identifier_patterns(what, "iri", iri)
    return CodeSystem(name=name, identifiers=identifiers, template=template, patterns=patterns, notation=notation)


class CodeSystems:
    """All code systems of one vocabulary. Immutable. Cost of a look-up: a few dictionary accesses."""

    def __init__(
        self,
        declared: Mapping[str, Any] | None,
        records: Callable[[], Iterable[ConceptRecord]],
        main: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`records` returns the records of all concepts; it is called once, at the first look-up of a code. `main`
        returns the main form of an identifier that may have aliases (rule 24). Raises InvalidDeclaration."""
        self._main = main
        self._declared = tuple(code_system(name, each) for name, each in (declared or {}).items())
        self._of: dict[str, CodeSystem] = {}
        for each in self._declared:
            for identifier in (*each.identifiers, each.name):
                known = self._of.setdefault(main(identifier), each)
                if known is not each:
                    raise InvalidDeclaration(
                        f"code system {each.name!r}: {identifier} already identifies {known.name!r}"
                    )
        self._records = records
        self._coded: dict[tuple[str, str], dict[str, tuple[str, ...]]] | None = None

    @property
    def declared(self) -> dict[str, CodeSystem]:
        """The declared systems, by name."""
        return {each.name: each for each in self._declared}

    def names_in(self, system: str, names: Iterable[str]) -> Iterator[str]:
        """Yields those of `names` (IRIs) that a code of a declared system may mean. Linear in `names`."""
        declared, coded = self._of[self._main(system)], self._by_notation()
        noted = {
            iri
            for identifier in declared.identifiers
            for iris in coded.get((self._main(identifier), declared.notation), {}).values()
            for iri in iris
        }
        forms = [declared.template] if declared.template is not None else [each.form for each in declared.patterns]
        beginnings = tuple(form.partition("{")[0] for form in forms)
        return (name for name in names if name in noted or (beginnings and name.startswith(beginnings)))

    def knows(self, system: str) -> bool:
        """Whether `system` is the name or identifier of a declared system, or a scheme whose concepts have codes."""
        system = self._main(system)
        return system in self._of or any(scheme == system for scheme, _ in self._by_notation())

    def iris(self, system: str, code: str) -> tuple[str, ...]:
        """Returns the IRIs that a code of a system may mean. They need not be IRIs of known concepts."""
        if len(code) > LONGEST:
            return ()
        system = self._main(system)
        declared = self._of.get(system)
        coded = self._by_notation()
        if declared is None:
            return coded.get((system, NOTATION), {}).get(code, ())
        found = dict.fromkeys(declared.iris(code))
        for identifier in declared.identifiers:
            found.update(dict.fromkeys(coded.get((self._main(identifier), declared.notation), {}).get(code, ())))
        return tuple(found)

    def _by_notation(self) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
        """Returns (scheme or namespace, property) → code → IRIs; built at the first call. Two threads may both build
        it."""
        if self._coded is None:
            coded: defaultdict[tuple[str, str], dict[str, tuple[str, ...]]] = defaultdict(dict)
            spaces = tuple(identifier for each in self._declared for identifier in each.identifiers)
            for record in self._records():
                if not record.notations:
                    continue
                names = {record.iri, self._main(record.iri)}
                within = {self._main(each) for each in record.schemes}
                within |= {self._main(each) for each in spaces if any(_is_in(name, each) for name in names)}
                for holder, code in record.notations:
                    for each in within:
                        codes = coded[each, holder]
                        codes[code] = (*codes.get(code, ()), record.iri)
            self._coded = dict(coded)
        return self._coded


def _is_in(iri: str, namespace: str) -> bool:
    """Whether `iri` is in `namespace`: a prefix of the IRI that contains at least all before the local name. It may be
    longer, such as the prefix of an OBO ontology (`…/obo/HP_`)."""
    local = local_name(iri)
    return iri.startswith(namespace) and len(namespace) >= len(iri) - len(local)


# ── aliases ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ALIAS_KEYS: Final = frozenset({"iris", "prefixes", "patterns", "spellings"})
MOST_STEPS = 8
"""The maximum number of aliases that are applied one after the other."""
MOST_ALIASES = 10_000
"""The maximum number of entries of all tables of aliases together."""
MOST_ALIAS_PATTERNS = 64
"""The maximum number of patterns of all tables together: each is tried on each new text."""
LONGEST_IRI = 2_000
"""The maximum length of an IRI in a table."""


class Aliases:
    """The aliases of one vocabulary. Immutable. False if there are none; `spelt` does not count.

    >>> aliases = Aliases({"web": {"prefixes": {"http://schema.org/": "https://schema.org/"}}})
    >>> aliases.main("http://schema.org/Car"), aliases.other("https://schema.org/Car")
    ('https://schema.org/Car', None)
    """

    def __init__(self, tables: Mapping[str, Any] | None = None) -> None:
        """`tables` by name; all are merged. Raises InvalidDeclaration."""
        self._iris: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self.spelt: bool = False
        """Whether other spellings of labels mean their concepts (rule 12)."""
        patterns: list[IdentifierPattern | str] = []
        for name, table in sorted((tables or {}).items()):
            what = f"aliases {name!r}"
            if not isinstance(table, Mapping) or not table or table.keys() - ALIAS_KEYS:
                raise InvalidDeclaration(f"{what}: an object with {', '.join(sorted(ALIAS_KEYS))} is expected")
            _add(what, "iris", table.get("iris", {}), self._iris)
            _add(what, "prefixes", table.get("prefixes", {}), self._prefixes)
            listed = table.get("patterns", [])
            listed = [listed] if isinstance(listed, Mapping | str) else listed
            if not isinstance(listed, list | tuple):
                raise InvalidDeclaration(f"{what}: patterns are a list")
            if table.get("spellings", ["en"]) != ["en"]:
                raise InvalidDeclaration(f'{what}: spellings are ["en"]: only the plurals of English are known')
            self.spelt |= "spellings" in table
            entries = len(self._iris) + len(self._prefixes)
            if entries > MOST_ALIASES or len(patterns) + len(listed) > MOST_ALIAS_PATTERNS:
                raise InvalidDeclaration(
                    f"aliases have at most {MOST_ALIASES:,} entries and {MOST_ALIAS_PATTERNS} patterns"
                )
            patterns += [named_pattern(what, "patterns", each, (DIGITAL_LINK_FORM,)) for each in listed]
        self._patterns = tuple(patterns)
        self._beginnings = tuple(sorted(self._prefixes, key=len, reverse=True))
        self._check_ends()

    def __bool__(self) -> bool:
        return bool(self._iris or self._prefixes or self._patterns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Aliases):
            return NotImplemented
        own = (self._iris, self._prefixes, self._patterns, self.spelt)
        return own == (other._iris, other._prefixes, other._patterns, other.spelt)

    __hash__ = None  # type: ignore[assignment]

    def main(self, text: str) -> str:
        """Returns the main form of `text`, else `text` itself. Cost: a look-up, a test of prefixes, and all
        patterns."""
        for _ in range(MOST_STEPS):
            found = self._step(text)
            if found is None or found == text:
                break
            text = found
        return text

    def other(self, text: str) -> str | None:
        """Returns the main form of `text` if it is another text, else None."""
        found = self.main(text) if self else text
        return None if found == text else found

    def spellings(self, text: str) -> frozenset[str]:
        """Returns `text` and the texts that tables (not patterns) make aliases of it. For reports: linear in the
        tables."""
        main = self.main(text)
        found = {text, main, *(iri for iri in self._iris if self.main(iri) == main)}
        for each in tuple(found):
            for prefix in self._beginnings:
                end = self._prefixes[prefix]
                if each.startswith(end) and self.main(other := prefix + each[len(end) :]) == main:
                    found.add(other)
        return frozenset(found)

    @property
    def words(self) -> frozenset[str]:
        """Returns all texts in the tables, whole forms and prefixes."""
        return frozenset(
            {*self._iris, *self._iris.values(), *self._prefixes, *self._prefixes.values()},
        )

    @property
    def patterns(self) -> dict[str, str]:
        """Pattern that a text must match → the main form of the constant beginning of its result. For reports."""
        told = {}
        for each in self._patterns:
            form, match = (DIGITAL_LINK, each) if isinstance(each, str) else (each.form, each.match)
            told[match] = self.main(form.partition("{")[0])
        return told

    def _step(self, text: str) -> str | None:
        found = self._iris.get(text)
        if found is not None:
            return found
        if text.startswith(self._beginnings):
            prefix = next(each for each in self._beginnings if text.startswith(each))
            return self._prefixes[prefix] + text[len(prefix) :]
        if self._patterns and len(text) <= LONGEST_TEXT:
            for each in self._patterns:
                form = digital_link(text) if isinstance(each, str) else each.reading(text)
                if form is not None:
                    return form
        return None

    def _check_ends(self) -> None:
        """Checks that each entry leads to a main form."""
        for start in (*self._iris, *self._beginnings):
            text = start
            for _ in range(MOST_STEPS):
                found = self._step(text)
                if found is None or found == text:
                    break
                text = found
            else:
                raise InvalidDeclaration(f"aliases: {start!r} has no last form: map it directly to its last form")


def _add(what: str, key: str, given: Any, found: dict[str, str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidDeclaration(f"{what}: {key} is an object, one form → the other")
    for form, other in given.items():
        for each in (form, other):
            if not isinstance(each, str) or not 0 < len(each) <= LONGEST_IRI or any(sign <= " " for sign in each):
                raise InvalidDeclaration(f"{what}: {key} has {each!r}, which is not an IRI or the beginning of one")
        if form == other:
            raise InvalidDeclaration(f"{what}: {form!r} is mapped to itself")
        if found.setdefault(form, other) != other:
            raise InvalidDeclaration(f"{what}: {form!r} is mapped to {found[form]!r} already, not to {other!r}")


def main_forms(aliases: Aliases, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields (name, its main form) for those of `names` whose main form is another text."""
    return ((name, main) for name in names if (main := aliases.other(name)) is not None) if aliases else ()
