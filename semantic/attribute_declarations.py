"""One attribute's declaration: what properties, event types and users say of it, put together.

`attributes` applies these to all attributes of a vocabulary, in this order; the later goes before the earlier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from semantic.errors import InvalidDeclaration
from semantic.ontology.records import Label, PropertyRecord
from semantic.schemas.arithmetic import parse_arithmetic
from semantic.schemas.enumerations import MOST_MEMBERS, Enumeration, enumeration
from semantic.schemas.records import Domain

__all__ = [
    "AttributeDeclaration",
    "AttributeKind",
    "check_agreement",
    "from_properties",
    "inherited",
    "overridden",
    "with_domain",
]

AttributeKind = Literal["concept", "text", "number", "instant", "boolean"]

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
    XSD + "boolean": "boolean",
}
_NO_KIND: Final = (XSD, RDF, "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2002/07/owl#")
_KEYS: Final = frozenset({"kind", "range", "unit", "unit_from", "labels", "values", "enum", "order", "derived"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeDeclaration:
    """What is known of an attribute. `range` are IRIs of concepts; `unit` is that of bare numbers; `unit_from` names
    the sibling attribute that holds the unit. `enumeration` are its values, perhaps with an order; `multiple` says
    whether an event may have several (None: nothing is said); `derived` is the expression that it is worth."""

    name: str
    kind: AttributeKind | None = None
    range: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    labels: tuple[Label, ...] = ()
    enumeration: Enumeration | None = None
    multiple: bool | None = None
    derived: str | None = None


def from_properties(name: str, records: Sequence[PropertyRecord]) -> AttributeDeclaration:
    """Properties with one local name are one attribute; where their ranges disagree about its kind, it has none."""
    ranges = sorted({iri for record in records for iri in record.ranges})
    kinds = {_KIND_OF_RANGE.get(iri, None if iri.startswith(_NO_KIND) else "concept") for iri in ranges}
    kind = kinds.pop() if len(kinds) == 1 else None
    return AttributeDeclaration(
        name=name,
        kind=kind,
        range=tuple(ranges) if kind == "concept" else (),
        unit=min((record.unit for record in records if record.unit), default=None),
        labels=tuple(dict.fromkeys(label for record in records for label in record.labels)),
    )


def inherited(low: AttributeDeclaration, high: AttributeDeclaration) -> AttributeDeclaration:
    """A range holds for the properties beneath as well, where they say nothing themselves."""
    if low.kind is None and high.kind is not None:
        low = replace(low, kind=high.kind, range=high.range)
    if low.unit is None and high.unit is not None and low.kind == high.kind:
        low = replace(low, unit=high.unit)
    return low


def with_domain(found: AttributeDeclaration | None, name: str, domain: Domain) -> AttributeDeclaration:
    """What an event type says of an attribute goes before what ontologies say."""
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
    """An attribute has one domain: what is declared of it by itself must not differ from that of its event type, the
    `owner`. Raises InvalidDeclaration."""
    for field_name in ("kind", "range", "unit", "unit_from", "enumeration"):
        theirs, ours = getattr(schema, field_name), getattr(declared, field_name)
        if theirs != ours and theirs not in (None, ()):
            raise InvalidDeclaration(
                f"attribute {schema.name!r}: {field_name} is declared as {_told(ours)}, and as {_told(theirs)} by the "
                f"event type {owner!r}: an attribute has one domain, change one of the two"
            )


def _told(value: Any) -> str:
    if isinstance(value, Enumeration):
        return "one of " + ", ".join(value.members[:8])
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def overridden(found: AttributeDeclaration | None, name: str, fields: Mapping[str, Any]) -> AttributeDeclaration:
    """What the user says goes before everything else, field by field. Raises InvalidDeclaration."""
    if not isinstance(fields, Mapping):
        raise InvalidDeclaration(f"attribute {name!r}: an object with {', '.join(sorted(_KEYS))} is expected")
    unknown = set(fields) - _KEYS
    if unknown:
        raise InvalidDeclaration(f"attribute {name!r}: {sorted(unknown)} unknown; known are {sorted(_KEYS)}")
    kind = fields.get("kind")
    if kind is not None and kind not in get_args(AttributeKind):
        raise InvalidDeclaration(f"attribute {name!r}: kind is one of {', '.join(get_args(AttributeKind))}")
    changed = {key: value for key, value in fields.items() if key in ("kind", "unit", "unit_from", "derived")}
    if "range" in fields:
        changed["range"] = _strings(fields["range"], f"attribute {name!r}: range is an IRI or a list of IRIs")
    if "labels" in fields:
        changed["labels"] = _labels(name, fields["labels"])
    for key in ("unit", "unit_from", "derived"):
        if changed.get(key) is not None and not isinstance(changed[key], str):
            raise InvalidDeclaration(f"attribute {name!r}: {key} is a string")
    if changed.get("derived") is not None:
        parse_arithmetic(changed["derived"])
    if fields.get("values") is not None:
        if fields["values"] not in ("unique", "multiple"):
            raise InvalidDeclaration(f"attribute {name!r}: values are unique or multiple")
        changed["multiple"] = fields["values"] == "multiple"
    if "enum" in fields or "order" in fields:
        changed["enumeration"] = _enumeration(name, fields.get("enum"), fields.get("order"))
    if kind is not None and kind != "concept" and found is not None and "range" not in changed:
        changed["range"] = ()
    return replace(found or AttributeDeclaration(name=name), **changed)


def _enumeration(name: str, members: Any, order: Any) -> Enumeration | None:
    """`{"enum": ["low", "high"], "order": "listed"}`, or chains of members from low to high in place of `listed`."""
    if members is None and order is None:
        return None
    texts = tuple(dict.fromkeys(_strings(members, f"attribute {name!r}: enum is a list of strings")))
    if not 0 < len(texts) <= MOST_MEMBERS:
        raise InvalidDeclaration(f"attribute {name!r}: an enumeration has 1 to {MOST_MEMBERS} members")
    expected = f'attribute {name!r}: order are chains of members, each from low to high, or "listed"'
    if order is None:
        return enumeration(texts, None)
    chains = [texts] if order == "listed" else order
    if not isinstance(chains, list | tuple):
        raise InvalidDeclaration(expected)
    try:
        return enumeration(texts, [_strings(chain, expected) for chain in chains])
    except InvalidDeclaration as error:
        raise InvalidDeclaration(f"attribute {name!r}: {error}") from None


def _labels(name: str, labels: Any) -> tuple[Label, ...]:
    """`"Preis"`, `["Preis", "price"]` or `{"de": "Preis"}`."""
    expected = f"attribute {name!r}: labels are strings, by language or in a list"
    if isinstance(labels, Mapping):
        return tuple(zip(_strings(list(labels.values()), expected), (tag or None for tag in labels), strict=True))
    return tuple((text, None) for text in _strings(labels, expected))


def _strings(values: Any, expected: str) -> tuple[str, ...]:
    """One string, several, or none. Raises InvalidDeclaration with what is `expected`."""
    found = (values,) if isinstance(values, str) else () if values is None else values
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise InvalidDeclaration(expected)
    return tuple(found)
