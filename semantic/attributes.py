"""Attributes: how their names resolve, which are above which, what kind of value they are declared to hold.

From the properties of ontologies (`rdfs:subPropertyOf`, `rdfs:range`, labels), from the event types that are declared,
and from what the user declares of single attributes; the later goes before the earlier. An attribute's name for a
property is the property's local name: `shop:price` → `price`. docs/matching-semantics.md, rules 2 and 9.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, Final

from semantic.attribute_declarations import (
    AttributeDeclaration,
    AttributeKind,
    check_agreement,
    from_properties,
    inherited,
    overridden,
    with_domain,
)
from semantic.errors import OntologyError
from semantic.ontology.names import local_name
from semantic.ontology.records import PropertyRecord
from semantic.schemas.records import Domain
from semantic.terms import folded

__all__ = ["AttributeDeclaration", "AttributeKind", "AttributeScheme"]
ABOVE: Final = 64
"""Names above one dotted name that count: with several segments they multiply, and each costs a copy of the values."""

ABOVE_IN_ALL: Final = 1_000_000
"""Names above others, of all attributes: real vocabularies have thousands, but a chain has the square of its length."""


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
        domains: Mapping[str, tuple[str, Domain]] | None = None,
    ) -> "AttributeScheme":
        """The scheme of `properties`, overridden field by field by `declared` (`{"price": {"kind": "number"}}`), which
        must agree with the `domains` that event types give attributes: name → (event type, domain).

        Raises InvalidDeclaration.
        """
        parents: defaultdict[str, set[str]] = defaultdict(set)
        records: defaultdict[str, list[PropertyRecord]] = defaultdict(list)
        for each in sorted(properties, key=lambda record: record.iri):
            name = local_name(each.iri)
            if name:
                records[name].append(each)
                parents[name].update(filter(None, map(local_name, each.parents)))
        found = {name: from_properties(name, each) for name, each in records.items()}
        above = _closures(found, parents)
        own = dict(found)
        for name, uppers in above.items():
            for upper in uppers:
                if upper in own:
                    found[name] = inherited(found[name], own[upper])
        for name, (_, domain) in (domains or {}).items():
            found[name] = with_domain(found.get(name), name, domain)
        for raw, fields in (declared or {}).items():
            name = unicodedata.normalize("NFC", raw)
            before = found.get(name)
            found[name] = overridden(before, name, fields)
            if before is not None and name in (domains or {}):
                check_agreement(before, found[name], (domains or {})[name][0])
        roots = synonyms or {}
        for name, declaration in found.items():
            if declaration.enumeration is not None:
                listed = declaration.enumeration.renamed(lambda word: roots.get(word, word))
                found[name] = replace(declaration, enumeration=listed)
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

    def resolve_within(self, raw: str, array: str) -> str:
        """The same inside elements of `array` (rule 3): a declaration of the whole dotted name goes first."""
        raw = unicodedata.normalize("NFC", raw)
        return raw if array and f"{array}.{raw}" in self.declarations else self.resolve(raw)

    def declared_as(self, name: str, array: str) -> str:
        """The name by which the declaration of `name` inside elements of `array` is found: the whole dotted one, if it
        is declared."""
        whole = f"{array}.{name}"
        return whole if array and whole in self.declarations else name

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


def _closures(names: Iterable[str], parents: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """Name → all names above it, nearest first. Raises OntologyError for more than anybody means."""
    above: dict[str, tuple[str, ...]] = {}
    total = 0
    for name in names:
        above[name] = _closure(name, parents)
        total += len(above[name])
        if total > ABOVE_IN_ALL:
            raise OntologyError(
                f"the properties have more than {ABOVE_IN_ALL:,} others above them in all, the most that are read"
            )
    return above


def _closure(name: str, parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    """All names above `name`, nearest first."""
    found: dict[str, None] = {}
    layer = [name]
    while layer and len(found) < ABOVE:
        layer = sorted({high for low in layer for high in parents.get(low, ()) if high not in found and high != name})
        found.update(dict.fromkeys(layer))
    return tuple(found)[:ABOVE]
