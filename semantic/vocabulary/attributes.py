"""Attributes: the meaning of their names, their hierarchy, the declared types of their values, and enumerations.

Attributes come from the properties of ontologies (`rdfs:subPropertyOf`, `rdfs:range`, labels), from declared event
types, and from the user's declarations of single attributes; a later source takes precedence over an earlier one. The
attribute of a property has the property's local name: `shop:price` → `price`. docs/matching-semantics.md, rules 2, 9.

The members of an enumeration may have a partial order, which comparisons use (rule 9). A comparison of incomparable
members is false. Le Subscribe, section 2.1.

    [["draft", "review", "published"], ["draft", "withdrawn"]]

        published   withdrawn          draft < review < published, draft < withdrawn;
            │           │              published and withdrawn are incomparable
          review        │
            └── draft ──┘
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise, product
from typing import Any, Final, Literal, get_args

from kindcast.semantic.errors import InvalidDeclaration, OntologyError, property_in_words
from kindcast.semantic.flatten import UNIT_KEYS
from kindcast.semantic.ontology.records import Label, PropertyRecord, local_name
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.vocabulary.derivation import parse_arithmetic
from kindcast.semantic.vocabulary.event_types import (
    CodeMembers,
    Domain,
    QuantityMembers,
    code_members,
    may_be_compared,
    quantity_members,
)
from kindcast.semantic.vocabulary.identifiers import IdentifierPattern, attribute_readings
from kindcast.semantic.vocabulary.labels import CURIE, folded, label_in

__all__ = [
    "MOST_IRIS",
    "MOST_MEMBERS",
    "AttributeDeclaration",
    "AttributeScheme",
    "Enumeration",
    "check_sense",
    "enumeration",
    "segments_of",
]


MOST_TOLD = 20
"""The maximum number of unknown members of a declaration that an error lists."""
MOST_MEMBERS = 1_000
"""The maximum number of members of an enumeration. A longer list is better declared as a hierarchy of concepts."""
MOST_IRIS = 5
"""The maximum number of properties with one local name that are shown."""
MOST_ORDERED = 256
"""The maximum number of members of an ordered enumeration: all pairs are stored, so that a comparison is one
look-up."""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A list of texts, and for each text those strictly above it. `is_ordered` is False if no order was declared."""

    members: tuple[str, ...]
    above: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    is_ordered: bool = False

    def satisfying(self, order: str, bound: str) -> frozenset[str]:
        """Returns the members that satisfy the comparison with the member `bound`: `satisfying(">=", "review")`."""
        return frozenset(member for member in self.members if self.compares(member, order, bound))

    def compares(self, left: str, order: str, right: str) -> bool:
        """Returns whether `left` satisfies the comparison with `right`. False if one is not a member, or they are
        incomparable."""
        if left not in self.members or right not in self.members:
            return False
        match order:
            case "=":
                return left == right
            case "<":
                return right in self.above.get(left, ())
            case "<=":
                return left == right or right in self.above.get(left, ())
            case ">":
                return left in self.above.get(right, ())
            case _:
                return left == right or left in self.above.get(right, ())

    def renamed(self, name: Callable[[str], str]) -> "Enumeration":
        """Returns the enumeration with other words, such as root words instead of the words of a table of synonyms."""
        words = {member: name(member) for member in self.members}
        above: dict[str, frozenset[str]] = {}
        for low, high in self.above.items():
            above[words[low]] = above.get(words[low], frozenset()) | {words[each] for each in high}
        return Enumeration(tuple(dict.fromkeys(words.values())), above, self.is_ordered)


def enumeration(members: Sequence[str], chains: Sequence[Sequence[str]] | None) -> Enumeration:
    """Returns the enumeration of `members`, ordered by `chains`, each from low to high.

    Raises InvalidDeclaration for a chain with an unknown member, and for a cycle. Cost: the number of members times the
    number of pairs; an ordered enumeration has at most 256 members.
    """
    if chains is None:
        return Enumeration(tuple(members))
    if len(members) > MOST_ORDERED:
        raise InvalidDeclaration(f"an enumeration with an order has at most {MOST_ORDERED} members")
    known = set(members)
    next_above: dict[str, set[str]] = {member: set() for member in members}
    for chain in chains:
        strangers = [each for each in chain if each not in known]
        if strangers:
            raise InvalidDeclaration(f"the order names {strangers[0]!r}, which is not a member of the enumeration")
        for low, high in pairwise(chain):
            next_above[low].add(high)
    above = {member: _reached(member, next_above) for member in members}
    circle = next((member for member in members if member in above[member]), None)
    if circle is not None:
        raise InvalidDeclaration(f"the order has a cycle: it leads from {circle!r} back to {circle!r}")
    return Enumeration(tuple(members), above, True)


def _reached(member: str, next_above: Mapping[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(next_above[member])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend(next_above[each])
    return frozenset(found)


_OF_PROPERTY: Final = ("<", "^<")
"""The first characters of a segment that holds the values of one property, or of one that is stated in the inverse
direction."""


# The declaration of one attribute, merged from properties, event types and users.
#
# `AttributeScheme` applies these functions to all attributes of a vocabulary in this order. Later ones take precedence.

AttributeKind = Literal["concept", "text", "number", "instant", "boolean", "version", "ip"]

XSD: Final = "http://www.w3.org/2001/XMLSchema#"
RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NUMBERS: Final = (
    *("decimal", "integer", "double", "float", "long", "int", "short", "byte"),
    *("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger"),
    *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
)
_KIND_OF_RANGE: Final[Mapping[str, AttributeKind]] = {
    **{XSD + name: "number" for name in _NUMBERS},
    **{XSD + name: "text" for name in ("string", "normalizedString", "token", "anyURI", "language")},
    **{RDF + name: "text" for name in ("langString", "PlainLiteral")},
    XSD + "dateTime": "instant",
    XSD + "dateTimeStamp": "instant",
    XSD + "date": "instant",
    XSD + "gYearMonth": "instant",
    XSD + "gYear": "instant",
    XSD + "boolean": "boolean",
}
_NO_KIND: Final = (XSD, RDF, "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2002/07/owl#")
_KEYS: Final = frozenset(
    {"kind", "range", "unit", "unit_from", "labels", "values", "enum", "order", "derived", "quantity", "code", "reads"}
    | {"readable_by", "matchable_by"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeDeclaration:
    """The declaration of an attribute. `range` are IRIs of concepts. `unit` is the unit of bare numbers, and
    `unit_from` names the sibling attribute that holds the unit. `enumeration` are its values, perhaps with an order.
    `multiple` tells whether an event may have several values (None: not declared). `derived` is the expression that
    computes it. `quantity` and `code` name the members of an object that hold its quantity or its code (rule 22).
    `reads` are patterns that give its texts further readings (rule 4). `readable_by` and `matchable_by` name the roles
    that may read its values and subscribe to them (`visibility.py`); None means every role."""

    name: str
    kind: AttributeKind | None = None
    range: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    labels: tuple[Label, ...] = ()
    enumeration: Enumeration | None = None
    multiple: bool | None = None
    derived: str | None = None
    quantity: QuantityMembers | None = None
    code: CodeMembers | None = None
    reads: tuple[IdentifierPattern | str, ...] = ()
    readable_by: frozenset[str] | None = None
    matchable_by: frozenset[str] | None = None


def from_properties(name: str, records: Sequence[PropertyRecord]) -> AttributeDeclaration:
    """Merges the properties with one local name into one attribute. If their ranges disagree about its kind, it has
    none. Their units agree."""
    ranges = sorted({iri for record in records for iri in record.ranges})
    kinds = {_KIND_OF_RANGE.get(iri, None if iri.startswith(_NO_KIND) else "concept") for iri in ranges}
    kind = kinds.pop() if len(kinds) == 1 else None
    return AttributeDeclaration(
        name=name,
        kind=kind,
        range=tuple(ranges) if kind == "concept" else (),
        unit=next((unit for record in records for unit in record.units), None),
        labels=tuple(dict.fromkeys(label for record in records for label in record.labels)),
    )


def inherited(low: AttributeDeclaration, high: AttributeDeclaration) -> AttributeDeclaration:
    """Applies the range and unit of a property to the property beneath it, unless that one declares its own."""
    if low.kind is None and high.kind is not None:
        low = replace(low, kind=high.kind, range=high.range)
    if low.unit is None and high.unit is not None and low.kind == high.kind:
        low = replace(low, unit=high.unit)
    return low


def with_domain(found: AttributeDeclaration | None, name: str, domain: Domain) -> AttributeDeclaration:
    """Merges the domain of an attribute in an event type. It takes precedence over ontologies."""
    members = domain.members or ()
    texts = tuple(each for each in members if isinstance(each, str))
    listed = enumeration(texts, domain.order) if texts and len(texts) == len(members) else None
    kind = _kind_of(domain)
    found = found or AttributeDeclaration(name=name)
    return replace(
        found,
        kind=kind or found.kind,
        range=domain.concepts or (() if kind not in (None, "concept") else found.range),
        unit=domain.unit or found.unit,
        unit_from=domain.unit_from or found.unit_from,
        enumeration=listed,
    )


def _kind_of(domain: Domain) -> AttributeKind | None:
    if domain.concepts:
        return "concept"
    if domain.is_numeric:
        return "number"
    if domain.types == frozenset({"boolean"}):
        return "boolean"
    if domain.types == frozenset({"string"}):
        return "instant" if domain.date_time else "text"
    return None


def check_agreement(schema: AttributeDeclaration, declared: AttributeDeclaration, owner: str) -> None:
    """Checks that an attribute has one domain: its own declaration must agree with that of its event type, the `owner`.
    Raises InvalidDeclaration."""
    for field_name in ("kind", "range", "unit", "unit_from", "enumeration"):
        theirs, ours = getattr(schema, field_name), getattr(declared, field_name)
        if theirs != ours and theirs not in (None, ()):
            raise InvalidDeclaration(
                f"attribute {schema.name!r}: {field_name} is declared as {_told(ours)}, and as {_told(theirs)} by the "
                f"event type {owner!r}: an attribute has one domain: change one of the two"
            )


def _told(value: Any) -> str:
    if isinstance(value, Enumeration):
        return "one of " + ", ".join(value.members[:8])
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def overridden(found: AttributeDeclaration | None, name: str, fields: Mapping[str, Any]) -> AttributeDeclaration:
    """Applies the user's declaration, which takes precedence over everything else, field by field. Raises
    InvalidDeclaration."""
    if not isinstance(fields, Mapping):
        raise InvalidDeclaration(f"attribute {name!r}: an object with {', '.join(sorted(_KEYS))} is expected")
    unknown = set(fields) - _KEYS
    if unknown:
        told, known = ", ".join(map(repr, sorted(unknown)[:MOST_TOLD])), ", ".join(sorted(_KEYS))
        raise InvalidDeclaration(f"attribute {name!r}: a declaration has no member {told}; known are {known}")
    kind = fields.get("kind")
    if kind is not None and kind not in get_args(AttributeKind):
        raise InvalidDeclaration(f"attribute {name!r}: kind is one of {', '.join(get_args(AttributeKind))}")
    changed = {key: value for key, value in fields.items() if key in ("kind", "unit", "unit_from", "derived")}
    if "range" in fields:
        changed["range"] = _strings(fields["range"], f"attribute {name!r}: range must be an IRI or a list of IRIs")
    for key in ("unit", "unit_from", "derived"):
        if changed.get(key) is not None and not isinstance(changed[key], str):
            raise InvalidDeclaration(f"attribute {name!r}: {key} is a string")
    if changed.get("derived") is not None:
        parse_arithmetic(changed["derived"])
    if fields.get("values") is not None:
        if fields["values"] not in ("unique", "multiple"):
            raise InvalidDeclaration(f"attribute {name!r}: values are unique or multiple")
        changed["multiple"] = fields["values"] == "multiple"
    for key, read in _READ_BY.items():
        if key in fields:
            changed[key] = read(name, fields[key])
    if fields.get("readable_by") is not None or fields.get("matchable_by") is not None:
        changed |= roles_allowed(name, fields.get("readable_by"), fields.get("matchable_by"))
    if "enum" in fields or "order" in fields:
        changed["enumeration"] = _enumeration(name, fields.get("enum"), fields.get("order"))
    if kind is not None and kind != "concept" and found is not None and "range" not in changed:
        changed["range"] = ()
    return replace(found or AttributeDeclaration(name=name), **changed)


def check_sense(name: str, fields: Mapping[str, Any]) -> None:
    """Checks that the members of a new declaration, each valid by itself, make sense together. Raises
    InvalidDeclaration."""
    kind = fields.get("kind")
    numeric = [key for key in ("unit", "unit_from", "derived") if fields.get(key) is not None]
    if numeric and kind not in (None, "number", "instant"):
        raise InvalidDeclaration(f"attribute {name!r}: {numeric[0]} is for numbers, but its kind is {kind}")
    if fields.get("unit_from") == name:
        raise InvalidDeclaration(f"attribute {name!r}: unit_from must name another attribute, which has the unit")
    ranges = _strings(fields.get("range"), f"attribute {name!r}: range must be an IRI or a list of IRIs")
    label = next((each for each in ranges if ":" not in each), None)
    if label is not None:
        raise InvalidDeclaration(f"attribute {name!r}: range names concepts by their IRIs, and {label!r} is not an IRI")


ROLES: Final = ("publisher", "subscriber", "ontologist", "auditor", "admin")
"""The roles that a declaration may name. An admin sees everything in any case."""
ALWAYS_SEEN: Final = frozenset({"ce.id", "ce.source", "ce.type", "ce.specversion", "ce.time", "ce.datacontenttype"})
"""Attributes that are needed to deliver and date an event."""
PARTS_OF_VALUES: Final = frozenset({"value", *UNIT_KEYS, "code", "system", "type", "coordinates"})
"""Members that make an object a value. Hiding one of them would change the meaning of the object."""


def roles_allowed(name: str, readable: Any, matchable: Any) -> dict[str, frozenset[str]]:
    """Returns the roles that may read the values of an attribute, and those that may match on them. If only one of the
    two is declared, it holds for both. Raises InvalidDeclaration."""
    if name in ALWAYS_SEEN or name.startswith(("@", "^", "<")) or name in PARTS_OF_VALUES:
        raise InvalidDeclaration(f"attribute {name!r} is part of every event or of every value: it cannot be hidden")
    found = {}
    for key, said in (("readable_by", readable), ("matchable_by", matchable)):
        said = (matchable if key == "readable_by" else readable) if said is None else said
        expected = f"attribute {name!r}: {key} is a list of roles: {', '.join(ROLES)}"
        roles = _strings(said, expected)
        if isinstance(said, str) or not set(roles) <= set(ROLES):
            raise InvalidDeclaration(expected)
        found[key] = frozenset(roles)
    return found


def _enumeration(name: str, members: Any, order: Any) -> Enumeration | None:
    """Reads `{"enum": ["low", "high"], "order": "listed"}`; instead of `listed` also one chain of members from low to
    high, or several."""
    if members is None and order is None:
        return None
    texts = _strings(members, f"attribute {name!r}: enum is a list of strings")
    if not 0 < len(texts) <= MOST_MEMBERS:
        raise InvalidDeclaration(f"attribute {name!r}: an enumeration has 1 to {MOST_MEMBERS} members")
    texts = tuple(dict.fromkeys(texts))
    expected = f'attribute {name!r}: order must be chains of members, each from low to high, or "listed"'
    if order is None:
        return enumeration(texts, None)
    chains = [texts] if order == "listed" else order
    if not isinstance(chains, list | tuple):
        raise InvalidDeclaration(expected)
    if all(isinstance(each, str) for each in chains):
        chains = [chains]
    try:
        return enumeration(texts, [_strings(chain, expected) for chain in chains])
    except InvalidDeclaration as error:
        raise InvalidDeclaration(f"attribute {name!r}: {error}") from None


def _labels(name: str, labels: Any) -> tuple[Label, ...]:
    """Reads `"Preis"`, `["Preis", "price"]` or `{"de": "Preis"}`."""
    expected = f"attribute {name!r}: labels are strings, by language or in a list"
    if isinstance(labels, Mapping):
        return tuple(zip(_strings(list(labels.values()), expected), (tag or None for tag in labels), strict=True))
    return tuple((text, None) for text in _strings(labels, expected))


_READ_BY: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "labels": _labels,
    "quantity": quantity_members,
    "code": code_members,
    "reads": attribute_readings,
}


def _strings(values: Any, expected: str) -> tuple[str, ...]:
    """Reads one string, several, or none. Raises InvalidDeclaration with the text `expected`."""
    found = (values,) if isinstance(values, str) else () if values is None else values
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise InvalidDeclaration(expected)
    return tuple(found)


UNDECLARED: Final = "\0"
"""The array of elements within which no name is declared. No declared name begins with it."""
ABOVE: Final = 64
"""The maximum number of names above one dotted name. They multiply with the segments, and each costs a copy of the
values."""

ABOVE_IN_ALL: Final = 1_000_000
"""The maximum number of (name, name above it) pairs of all attributes. Real vocabularies have thousands, but the number
is quadratic in the length of a chain."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttributeScheme:
    """All declared attributes of one vocabulary. Immutable except for the requested CURIEs. A look-up costs one or two
    dict accesses per segment."""

    declarations: Mapping[str, AttributeDeclaration] = field(default_factory=dict)
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> all names above it, nearest first
    synonyms: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)  # word of a table of synonyms -> the name it stands for
    by_label: Mapping[str, str] = field(default_factory=dict)  # folded label -> name, unambiguous ones only
    properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # local name -> IRIs of its properties
    main: Callable[[str], str] = str  # the main form of the IRI of a property (rule 24)
    inverses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # main form of an IRI -> inverse properties
    spelt_out: Callable[[str], tuple[str, ...]] = lambda curie: ()  # the IRIs that a CURIE stands for
    asked_curies: set[str] = field(default_factory=set)
    """The CURIEs in names that subscriptions use. This set grows."""
    _curies: dict[str, dict[str, None]] = field(default_factory=dict)  # main form of an IRI → its CURIEs

    @classmethod
    def build(
        cls,
        properties: Iterable[PropertyRecord] = (),
        declared: Mapping[str, Mapping[str, Any]] | None = None,
        synonyms: Mapping[str, str] | None = None,
        domains: Mapping[str, tuple[str, Domain]] | None = None,
        main: Callable[[str], str] = str,
        spelt_out: Callable[[str], tuple[str, ...]] = lambda curie: (),
    ) -> "AttributeScheme":
        """Builds the scheme of `properties`, overridden field by field by `declared` (`{"price": {"kind": "number"}}`).
        `declared` must agree with `domains`, the domains of attributes in event types: name → (event type, domain).
        `main` returns the main form of the IRI of a property (rule 24), and `spelt_out` the IRIs that a CURIE stands
        for.

        Raises InvalidDeclaration.
        """
        parents: defaultdict[str, set[str]] = defaultdict(set)
        records: defaultdict[str, list[PropertyRecord]] = defaultdict(list)
        inverses: defaultdict[str, set[str]] = defaultdict(set)
        for each in sorted(properties, key=lambda record: record.iri):
            name = local_name(each.iri)
            if name:
                records[name].append(each)
                parents[name].update(filter(None, map(local_name, each.parents)))
            for other in each.inverses:
                inverses[main(each.iri)].add(other)
                inverses[main(other)].add(each.iri)
        found, above = _stated(records, parents)
        domains, roots = domains or {}, synonyms or {}
        _declare(found, declared or {}, domains, roots)
        by_label = _by_label(found.values())

        def named(root: str) -> str:
            segments = (root,) if root in found else segments_of(root)
            return ".".join(each if each in found else by_label.get(folded(each), each) for each in segments)

        return cls(
            declarations=found,
            above={name: uppers for name, uppers in above.items() if uppers},
            synonyms=dict(roots),
            renamed={word: named(root) for word, root in roots.items()},
            by_label=by_label,
            properties={name: tuple(dict.fromkeys(one.iri for one in each)) for name, each in records.items()},
            main=main,
            inverses={iri: tuple(sorted(each)) for iri, each in inverses.items()},
            spelt_out=spelt_out,
        )

    def asked(self, raw: str, array: str) -> str:
        """Returns the attribute that `raw` means in a subscription: as `resolve_within`, with the main form of each
        `<IRI>` (rule 24)."""
        name = self.resolve_within(raw, array)
        if ":" in name:
            self.ask(name)
        return name if "<" not in name else ".".join(map(self._in_main_form, segments_of(name)))

    def ask(self, name: str) -> None:
        """Records the CURIEs in a name that a subscription uses. From then on the values of such a property are also
        stored under the CURIE (rule 21). Unused CURIEs are not stored, because there may be many."""
        for each in (name, *segments_of(name)):
            if each in self.asked_curies or not CURIE.fullmatch(each):
                continue
            for iri in self.spelt_out(each):
                self._curies.setdefault(self.main(iri), {})[each] = None
            self.asked_curies.add(each)

    def _in_main_form(self, segment: str) -> str:
        if not (segment.startswith(_OF_PROPERTY) and segment.endswith(">")):
            return segment
        start = segment.index("<")
        return f"{segment[:start]}<{self.main(segment[start + 1 : -1])}>"

    def resolve_within(self, raw: str, array: str) -> str:
        """Like `resolve`, for a name inside elements of `array` (rule 3). If the full dotted name is declared, `raw` is
        returned unchanged (in NFC)."""
        raw = nfc(raw)
        return raw if array and f"{array}.{raw}" in self.declarations else self.resolve(raw)

    def declared_as(self, name: str, array: str) -> str:
        """Returns the name under which `name` inside elements of `array` is declared: the full dotted name, if that is
        declared."""
        if not array:
            return name
        whole = f"{array}.{name}"
        if whole in self.declarations:
            return whole
        return whole if (whole := self.localised(whole)) in self.declarations else name

    def array_within(self, name: str, around: str) -> str:
        """Returns the whole name of an array `name` inside elements of the array `around`, or `UNDECLARED` if no
        declared name begins with it: then its elements are read like those of every other such array."""
        if around == UNDECLARED:
            return around
        whole = f"{around}.{name}" if around else name
        is_declared = whole in self._declared_arrays or self.localised(whole) in self._declared_arrays
        return whole if is_declared else UNDECLARED

    @cached_property
    def _declared_arrays(self) -> frozenset[str]:
        """What declared dotted names begin with."""
        dotted = (segments_of(name) for name in self.declarations if "." in name)
        return frozenset(".".join(each[:count]) for each in dotted for count in range(1, len(each)))

    def resolve(self, raw: str) -> str:
        """Returns the attribute that `raw` means, segment by segment: by exact name, else by the user's table of
        synonyms, else by the folded label of a declared property (if only one has it), else `raw` itself (NFC). The
        result means itself, because subscriptions are stored with it and compiled again."""
        raw = nfc(raw)
        if raw in self.declarations:
            return raw
        root = self.renamed.get(raw)
        return root if root is not None else self.resolve_segments(raw)

    def resolve_segments(self, name: str) -> str:
        """Returns the attribute that a name (NFC) would mean if no table of synonyms had it as a whole. Segments that
        are the dotted name of a root word (`contact.email`, if `email` stands for it) do not change."""
        if "." not in name:
            return self._segment(name)
        segments = list(segments_of(name))
        found: list[str] = []
        while (at := len(found)) < len(segments):
            dotted = self._dotted.get(segments[at], ())
            known = next((each for each in dotted if segments[at : at + len(each)] == each), None)
            found += known or [self._segment(segments[at])]
        return ".".join(found)

    @cached_property
    def _dotted(self) -> Mapping[str, list[list[str]]]:
        """First segment → the dotted names of root words, as segments, the longest first."""
        names = sorted({name for name in self.renamed.values() if "." in name}, key=len, reverse=True)
        dotted: defaultdict[str, list[list[str]]] = defaultdict(list)
        for each in map(list, map(segments_of, names)):
            dotted[each[0]].append(each)
        return dotted

    def _segment(self, name: str) -> str:
        if name in self.declarations or name.startswith(_OF_PROPERTY):
            return name
        root = self.renamed.get(name)
        return root if root is not None else self.by_label.get(folded(name), name)

    def broader(self, name: str) -> tuple[str, ...]:
        """Returns `name`, then each name above it in any segment: at most `ABOVE` in all."""
        choices = [self._upwards(segment) for segment in segments_of(name)]
        if all(len(each) == 1 for each in choices) and name not in self.above:
            return (name,)
        if "<" in name:  # declarations use local names, so these come first
            names = dict.fromkeys(".".join(each) for each in islice(product(*choices), ABOVE - 1))
            return tuple(dict.fromkeys((*names, name)))
        names = dict.fromkeys((name, *self.above.get(name, ())))
        names.update(dict.fromkeys(".".join(each) for each in islice(product(*choices), ABOVE)))
        return tuple(names)[:ABOVE]

    def _upwards(self, segment: str) -> tuple[str, ...]:
        """Returns a segment and the names above it. For `<IRI>`, which holds the values of one property, it returns the
        local name, the names above that, and then the segment itself (rule 21)."""
        if not (segment.startswith(_OF_PROPERTY) and segment.endswith(">")):
            return (segment, *self.above.get(segment, ()))
        start = segment.index("<")
        mark, iri = segment[:start], segment[start + 1 : -1]
        found: dict[str, None] = {}
        if mark and (inverses := self.inverses.get(self.main(iri))):  # an inverse property has these names
            return tuple(dict.fromkeys(name for each in inverses for name in self._upwards(f"<{each}>")))
        for each in dict.fromkeys((self.main(iri), iri)):
            local = local_name(each)
            if local and "." not in local:
                found.update(dict.fromkeys((mark + local, *(() if mark else self.above.get(local, ())))))
            if not mark and each in self._curies:
                found.update(self._curies[each])
            found[f"{mark}<{each}>"] = None
        return tuple(found)

    def declaration(self, name: str) -> AttributeDeclaration | None:
        """Returns the declaration of the dotted `name`, else that of its last segment."""
        found = self.declarations.get(name)
        if found is not None:
            return found
        local = self.localised(name)
        if local != name:
            found = self.declarations.get(local)
        return found if found is not None else self.declarations.get(local.rpartition(".")[2])

    def localised(self, name: str) -> str:
        """Returns a dotted name with the local names of properties instead of their IRIs and CURIEs, as they are
        declared."""
        if "<" not in name and ":" not in name:
            return name
        return ".".join(map(self._declared_segment, segments_of(name)))

    def _declared_segment(self, segment: str) -> str:
        if segment.startswith("<") and segment.endswith(">"):
            return local_name(segment[1:-1])
        iris = self.spelt_out(segment) if CURIE.fullmatch(segment) else ()
        return local_name(iris[0]) if iris else segment

    def described(self, name: str, language: str = "en") -> dict[str, Any] | None:
        """Returns the property at the end of the dotted `name` for display: `{"label": "gross weight", "iris": ["…"]}`.
        The label is in `language` if possible; there are at most `MOST_IRIS` IRIs. A name with several segments also
        has `"path"`, with the label of each segment, or the segment itself. Unknown members are left out; None if
        nothing is known."""
        segments = segments_of(name)
        if name.startswith("ce."):
            return None
        label = self._label(name, segments[-1], language)
        told: dict[str, Any] = {} if label is None else {"label": label}
        iris = self._iris(segments[-1])
        if iris:
            told["iris"] = list(iris[:MOST_IRIS])
        if told and len(segments) > 1:
            before = [self._label(each, each, language) or self._local(each) for each in segments[:-1]]
            told["path"] = [*before, label or self._local(segments[-1])]
        return told or None

    def in_words(self, name: str) -> str:
        """Returns `name` with the label and the IRIs of its property: `grossWeight ("gross weight",
        <http://…#grossWeight>)`. Returns `name` alone if neither is known."""
        return property_in_words(name, self.described(name))

    def sharing(self, segment: str) -> tuple[str, ...]:
        """Returns the IRIs of the properties that have this local name. Aliases (rule 24) are one property."""
        return tuple(dict.fromkeys(map(self.main, self.properties.get(segment, ()))))

    def suggestion(self, name: str) -> dict[str, Any]:
        """Returns a declared attribute as an error message suggests it: its name as `label`, and `property` with what
        is known of its property."""
        told = self.described(name)
        return {"label": name} if told is None else {"label": name, "property": told}

    def _label(self, name: str, segment: str, language: str) -> str | None:
        """Returns the label of the attribute `name`, which ends with `segment`; None without a label. A segment `<IRI>`
        has a label only if a property with this IRI is known, because other properties may have its local name."""
        if segment.startswith(_OF_PROPERTY) and not self._is_known(segment):
            return None
        found = self.declaration(name)
        return None if found is None else label_in(found.labels, language)

    def _iris(self, segment: str) -> tuple[str, ...]:
        if segment.startswith(_OF_PROPERTY) and segment.endswith(">"):
            return (segment[segment.index("<") + 1 : -1],)
        return self.properties.get(segment, ())

    def _is_known(self, segment: str) -> bool:
        iri = segment[segment.index("<") + 1 : -1]
        return iri in self.properties.get(local_name(iri), ())

    def _local(self, segment: str) -> str:
        """Returns the short form of a segment: of `<IRI>` the local name, unless that is empty or contains a dot."""
        if not (segment.startswith(_OF_PROPERTY) and segment.endswith(">")):
            return segment
        local = local_name(segment[segment.index("<") + 1 : -1])
        return local if local and "." not in local else segment

    def mentioned(self, names: Iterable[str]) -> frozenset[str]:
        """Returns the segments in dotted `names` (those that subscriptions use) and in all declarations: local names,
        CURIEs, and the main forms of IRIs of properties. Linear."""
        found: set[str] = set()
        for name in (*self.declarations, *names):
            for segment in segments_of(name):
                if segment.startswith(_OF_PROPERTY) and segment.endswith(">"):
                    found.add(self.main(segment[segment.index("<") + 1 : -1]))
                    continue
                found.add(segment)
                if CURIE.fullmatch(segment):
                    found.update(map(self.main, self.spelt_out(segment)))
        return frozenset(found)

    def strangers(self, name: str, mentioned: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yields the properties in the dotted `name` of a graph that are not `mentioned`: (main form of the IRI, dotted
        path to the property, with local names)."""
        segments = segments_of(name) if "<" in name else ()
        for place, segment in enumerate(segments):
            if segment.startswith(_OF_PROPERTY) and segment.endswith(">"):
                iri = self.main(segment[segment.index("<") + 1 : -1])
                if iri not in mentioned and self._local(f"<{iri}>") not in mentioned:
                    yield iri, ".".join(map(self._local, segments[: place + 1]))

    def takes_comparators(self, name: str) -> bool:
        """Whether the quantities of the dotted `name` may be intervals (rule 22): the attribute is declared to hold
        objects that state quantities, or has one of the names that FHIR uses for quantities."""
        if may_be_compared(name):
            return True
        found = self.declaration(name)
        return found is not None and found.quantity is not None

    @cached_property
    def hides(self) -> bool:
        """Whether the values of some attribute are hidden from some roles."""
        return any(each.readable_by is not None for each in self.declarations.values())

    @cached_property
    def states(self) -> bool:
        """Whether some attribute is declared to hold objects that state quantities or codes."""
        return any(each.quantity is not None or each.code is not None for each in self.declarations.values())


def segments_of(name: str) -> list[str]:
    """Splits a dotted name into segments. The dots of an IRI in `<…>` do not separate segments.

    >>> segments_of("seller.<http://example.org/e.mail>.@language")
    ['seller', '<http://example.org/e.mail>', '@language']
    """
    if "<" not in name:
        return name.split(".")
    found: list[str] = []
    start = 0
    while start >= 0:
        closed = name.find(">", start) if name.startswith(_OF_PROPERTY, start) else start
        dot = name.find(".", max(closed, start))
        found.append(name[start:] if dot < 0 else name[start:dot])
        start = dot + 1 if dot >= 0 else -1
    return found


def _declare(
    found: dict[str, AttributeDeclaration],
    declared: Mapping[str, Mapping[str, Any]],
    domains: Mapping[str, tuple[str, Domain]],
    roots: Mapping[str, str],
) -> None:
    """Adds the domains of event types and what is declared to what ontologies state. Members of enumerations are
    replaced by their root words."""
    for name, (_, domain) in domains.items():
        found[name] = with_domain(found.get(name), name, domain)
    for raw, fields in declared.items():
        name = nfc(raw)
        before = found.get(name)
        found[name] = overridden(before, name, fields)
        if before is not None and name in domains:
            check_agreement(before, found[name], domains[name][0])
    for name, declaration in found.items():
        if declaration.enumeration is not None:
            listed = declaration.enumeration.renamed(lambda word: roots.get(word, word))
            found[name] = replace(declaration, enumeration=listed)


def _stated(
    records: Mapping[str, Sequence[PropertyRecord]], parents: Mapping[str, set[str]]
) -> tuple[dict[str, AttributeDeclaration], dict[str, tuple[str, ...]]]:
    """Returns what the properties of each attribute state, with what it inherits; and the attributes above each,
    nearest first."""
    own = {name: from_properties(name, each) for name, each in records.items()}
    above, found = _closures(own, parents), dict(own)
    for name, uppers in above.items():
        for upper in uppers:
            if upper in own:
                found[name] = inherited(found[name], own[upper])
    return found, above


def _by_label(declarations: Iterable[AttributeDeclaration]) -> dict[str, str]:
    """Returns folded label → the one attribute that has it."""
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for declaration in declarations:
        for text, _ in declaration.labels:
            labels[folded(text)].add(declaration.name)
    return {label: min(names) for label, names in labels.items() if len(names) == 1}


def _closures(names: Iterable[str], parents: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """Returns name → all names above it, nearest first. Raises OntologyError if there are more than `ABOVE_IN_ALL` in
    all."""
    above: dict[str, tuple[str, ...]] = {}
    total = 0
    for name in names:
        above[name] = _closure(name, parents)
        total += len(above[name])
        if total > ABOVE_IN_ALL:
            raise OntologyError(f"the properties have more than {ABOVE_IN_ALL:,} others above them in all, the limit")
    return above


def _closure(name: str, parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Returns the names above `name`, nearest first: at most `ABOVE`. `parents`: name → the names directly above it."""
    found: dict[str, None] = {}
    layer = [name]
    while layer and len(found) < ABOVE:
        layer = sorted({high for low in layer for high in parents.get(low, ()) if high not in found and high != name})
        found.update(dict.fromkeys(layer))
    return tuple(found)[:ABOVE]
