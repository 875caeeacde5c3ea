"""Attributes: how their names resolve, which are above which, what kind of value they are declared to hold.

From the properties of ontologies (`rdfs:subPropertyOf`, `rdfs:range`, labels) and from what the user declares beside
them; what the user declares goes before. An attribute's name for a property is the property's local name: `shop:price`
→ `price`. docs/matching-semantics.md, rules 2 and 9.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, Final, Literal, get_args

from semantic.errors import InvalidDeclaration
from semantic.ontology.names import local_name
from semantic.ontology.records import Label, PropertyRecord
from semantic.terms import folded

__all__ = ["AttributeDeclaration", "AttributeKind", "AttributeScheme"]

AttributeKind = Literal["concept", "text", "number", "instant", "boolean"]

ABOVE: Final = 64
"""Names above one dotted name that count: with several segments they multiply, and each costs a copy of the values."""

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
_KEYS: Final = frozenset({"kind", "range", "unit", "unit_from", "labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeDeclaration:
    """What is known of an attribute. `range` are IRIs of concepts; `unit` is that of bare numbers; `unit_from` names
    the sibling attribute that holds the unit."""

    name: str
    kind: AttributeKind | None = None
    range: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttributeScheme:
    """All declared attributes of one vocabulary. Immutable; look-ups cost one or two dict accesses a segment."""

    declarations: Mapping[str, AttributeDeclaration] = field(default_factory=dict)
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> all names above it, nearest first
    synonyms: Mapping[str, str] = field(default_factory=dict)
    by_label: Mapping[str, str] = field(default_factory=dict)  # folded label -> name, unambiguous ones only

    @classmethod
    def build(
        cls,
        properties: Iterable[PropertyRecord] = (),
        declared: Mapping[str, Mapping[str, Any]] | None = None,
        synonyms: Mapping[str, str] | None = None,
    ) -> "AttributeScheme":
        """The scheme of `properties`, overridden field by field by `declared` (`{"price": {"kind": "number"}}`).

        Raises InvalidDeclaration.
        """
        parents: defaultdict[str, set[str]] = defaultdict(set)
        records: defaultdict[str, list[PropertyRecord]] = defaultdict(list)
        for each in sorted(properties, key=lambda record: record.iri):
            name = local_name(each.iri)
            if name:
                records[name].append(each)
                parents[name].update(filter(None, map(local_name, each.parents)))
        found = {name: _from_properties(name, each) for name, each in records.items()}
        above = {name: _closure(name, parents) for name in found}
        own = dict(found)
        for name, uppers in above.items():
            for upper in uppers:
                if upper in own:
                    found[name] = _inherited(found[name], own[upper])
        for name, fields in (declared or {}).items():
            found[unicodedata.normalize("NFC", name)] = _overridden(found.get(name), name, fields)
        labels: defaultdict[str, set[str]] = defaultdict(set)
        for declaration in found.values():
            for text, _ in declaration.labels:
                labels[folded(text)].add(declaration.name)
        return cls(
            declarations=found,
            above={name: uppers for name, uppers in above.items() if uppers},
            synonyms=dict(synonyms or {}),
            by_label={label: min(names) for label, names in labels.items() if len(names) == 1},
        )

    def resolve(self, raw: str) -> str:
        """The attribute that `raw` means, segment by segment: its exact name, else the user's synonym table, else the
        label of a declared property (folded, if it is the label of one only), else as it is (NFC)."""
        raw = unicodedata.normalize("NFC", raw)
        if raw in self.declarations:
            return raw
        if raw in self.synonyms:
            return self.synonyms[raw]
        if "." not in raw:
            return self._segment(raw)
        return ".".join(map(self._segment, raw.split(".")))

    def _segment(self, name: str) -> str:
        if name in self.declarations:
            return name
        root = self.synonyms.get(name)
        return root if root is not None else self.by_label.get(folded(name), name)

    def broader(self, name: str) -> tuple[str, ...]:
        """`name` itself, then every name above it, on any segment: at most `ABOVE` in all."""
        segments = name.split(".")
        choices = [(segment, *self.above.get(segment, ())) for segment in segments]
        if all(len(each) == 1 for each in choices) and name not in self.above:
            return (name,)
        names = dict.fromkeys((name, *self.above.get(name, ())))
        names.update(dict.fromkeys(".".join(each) for each in islice(product(*choices), ABOVE)))
        return tuple(names)[:ABOVE]

    def declaration(self, name: str) -> AttributeDeclaration | None:
        """What is declared of the dotted `name`, else of its last segment."""
        found = self.declarations.get(name)
        return found if found is not None else self.declarations.get(name.rpartition(".")[2])


def _from_properties(name: str, records: Sequence[PropertyRecord]) -> AttributeDeclaration:
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


def _inherited(low: AttributeDeclaration, high: AttributeDeclaration) -> AttributeDeclaration:
    """A range holds for the properties beneath as well, where they say nothing themselves."""
    if low.kind is None:
        low = replace(low, kind=high.kind, range=high.range)
    return replace(low, unit=low.unit or high.unit) if low.kind == high.kind else low


def _overridden(found: AttributeDeclaration | None, name: str, fields: Mapping[str, Any]) -> AttributeDeclaration:
    if not isinstance(fields, Mapping):
        raise InvalidDeclaration(f"attribute {name!r}: an object with {', '.join(sorted(_KEYS))} is expected")
    unknown = set(fields) - _KEYS
    if unknown:
        raise InvalidDeclaration(f"attribute {name!r}: {sorted(unknown)} unknown; known are {sorted(_KEYS)}")
    kind = fields.get("kind")
    if kind is not None and kind not in get_args(AttributeKind):
        raise InvalidDeclaration(f"attribute {name!r}: kind is one of {', '.join(get_args(AttributeKind))}")
    changed = {key: value for key, value in fields.items() if key not in ("range", "labels")}
    if "range" in fields:
        changed["range"] = _strings(fields["range"], f"attribute {name!r}: range is an IRI or a list of IRIs")
    if "labels" in fields:
        changed["labels"] = _labels(name, fields["labels"])
    for key in ("unit", "unit_from"):
        if changed.get(key) is not None and not isinstance(changed[key], str):
            raise InvalidDeclaration(f"attribute {name!r}: {key} is a string")
    if kind is not None and kind != "concept" and found is not None and "range" not in changed:
        changed["range"] = ()
    return replace(found or AttributeDeclaration(name=name), **changed)


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


def _closure(name: str, parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    """All names above `name`, nearest first."""
    found: dict[str, None] = {}
    layer = [name]
    while layer and len(found) < ABOVE:
        layer = sorted({high for low in layer for high in parents.get(low, ()) if high not in found and high != name})
        found.update(dict.fromkeys(layer))
    return tuple(found)[:ABOVE]
