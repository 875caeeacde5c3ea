"""What a document says, as the oracle's plain lists.

The records are those that reading an ontology gives; only their fields are looked at here, so that the oracle depends
on no code of the product.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.oracle.world import Declaration, World, local_name

__all__ = ["world_of"]

XSD = "http://www.w3.org/2001/XMLSchema#"
KINDS = {
    **dict.fromkeys(("decimal", "integer", "double"), "number"),
    "string": "text",
    "dateTime": "instant",
    "boolean": "boolean",
}


def world_of(
    records: Any, attributes: Mapping[str, Mapping[str, Any]] | None = None, synonyms: Mapping[str, str] | None = None
) -> World:
    """The world of one document, with what the user declares beside it."""
    declarations = {local_name(each.iri): _declaration(each) for each in records.properties}
    for name, fields in (attributes or {}).items():
        ranges = {"range": tuple(fields["range"])} if "range" in fields else {}
        declarations[name] = replace(declarations.get(name, Declaration()), **{**fields, **ranges})
    return World(
        narrower=records.edges,
        individuals=records.types,
        equivalent=records.equivalences,
        labels=tuple(
            (each.iri, text, language, level)
            for each in records.concepts
            for level, labels in (("preferred", each.preferred), ("synonym", each.synonyms), ("hidden", each.hidden))
            for text, language in labels
        ),
        names=tuple(each.iri for each in records.concepts),
        prefixes=records.prefixes,
        replaced=tuple((each.iri, new) for each in records.concepts if each.deprecated for new in each.replaced_by),
        subproperties=tuple(
            (local_name(each.iri), local_name(upper)) for each in records.properties for upper in each.parents
        ),
        declarations=declarations,
        synonyms=dict(synonyms or {}),
    )


def _declaration(record: Any) -> Declaration:
    kinds = {KINDS.get(iri.removeprefix(XSD), "concept") for iri in record.ranges}
    kind = kinds.pop() if len(kinds) == 1 else None
    return Declaration(
        kind=kind,
        range=tuple(record.ranges) if kind == "concept" else (),
        unit=record.unit,
        labels=tuple(text for text, _ in record.labels),
    )
