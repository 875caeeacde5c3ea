"""What a document says, as the oracle's plain lists.

The records are those that reading an ontology gives; only their fields are looked at here, so that the oracle depends
on no code of the product.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from tests.oracle.world import Declaration, World, local_name

__all__ = ["world_of"]

XSD = "http://www.w3.org/2001/XMLSchema#"
KINDS = {
    **dict.fromkeys(("decimal", "integer", "double"), "number"),
    "string": "text",
    **dict.fromkeys(("dateTime", "date", "gYearMonth", "gYear"), "instant"),
    "boolean": "boolean",
}


def world_of(
    records: Any,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    synonyms: Mapping[str, str] | None = None,
    schemas: Mapping[str, Any] | None = None,
) -> World:
    """The world of one document, with what the user declares beside it."""
    declarations = {local_name(each.iri): _declaration(each) for each in records.properties}
    for type, document in (schemas or {}).items():
        for name, node in _attributes_of(document, ""):
            declared = _of_schema(node, type)
            known = declarations.get(name, Declaration())
            types = {*known.of_types, *declared.of_types}
            declarations[name] = replace(known, **{**_said(declared), "of_types": tuple(sorted(types))})
    for name, declared_fields in (attributes or {}).items():
        known = declarations.get(name, Declaration())
        given = {key: tuple(value) if key in ("range", "enum") else value for key, value in declared_fields.items()}
        if "order" in given:
            chains = [given["enum"]] if given["order"] == "listed" else given["order"]
            given["order"] = tuple(map(tuple, chains))
        declarations[name] = replace(known, **{key: value for key, value in given.items() if key != "values"})
    return World(
        narrower=records.edges,
        individuals=records.types,
        equivalent=records.equivalences,
        matches=records.matches,
        schemes=tuple((each.iri, scheme) for each in (*records.concepts, *records.remarks) for scheme in each.schemes),
        only=frozenset(each.iri for each in records.concepts if each.kind == "individual"),
        labels=tuple(
            (each.iri, text, language, level)
            for each in records.concepts
            for level, labels in (("preferred", each.preferred), ("synonym", each.synonyms), ("hidden", each.hidden))
            for text, language in labels
        ),
        names=tuple(each.iri for each in records.concepts),
        prefixes=records.prefixes,
        relations={each.iri: each.edges for each in records.relations},
        replaced=tuple((each.iri, new) for each in records.concepts if each.deprecated for new in each.replaced_by),
        subproperties=tuple(
            (local_name(each.iri), local_name(upper)) for each in records.properties for upper in each.parents
        ),
        declarations=declarations,
        synonyms=dict(synonyms or {}),
    )


def _attributes_of(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every attribute beneath an object of a JSON Schema; of an array, its items speak."""
    for name, member in node.get("properties", {}).items():
        member = member.get("items", member)
        yield prefix + name, member
        yield from _attributes_of(member, f"{prefix}{name}.")


def _of_schema(node: Mapping[str, Any], type: str) -> Declaration:
    annotations = {key: node.get(f"x-kindcast-{key}") for key in ("concept", "unit", "unit-from", "order", "derived")}
    numeric = annotations["unit"] or annotations["unit-from"] or node.get("type") in ("number", "integer")
    concept, members = annotations["concept"], tuple(node.get("enum", ()))
    chains = [members] if annotations["order"] == "listed" else annotations["order"] or ()
    kinds = {"boolean": "boolean", "string": "instant" if node.get("format") == "date-time" else "text"}
    return Declaration(
        kind="concept" if concept else "number" if numeric else kinds.get(node.get("type", "")),
        range=(concept,) if isinstance(concept, str) else tuple(concept or ()),
        unit=annotations["unit"],
        unit_from=annotations["unit-from"],
        enum=members,
        order=tuple(map(tuple, chains)),
        derived=annotations["derived"],
        of_types=(type,) if annotations["derived"] else (),
    )


def _said(declaration: Declaration) -> dict[str, Any]:
    return {
        each.name: getattr(declaration, each.name) for each in fields(declaration) if getattr(declaration, each.name)
    }


def _declaration(record: Any) -> Declaration:
    kinds = {KINDS.get(iri.removeprefix(XSD), "concept") for iri in record.ranges}
    kind = kinds.pop() if len(kinds) == 1 else None
    return Declaration(
        kind=kind,
        range=tuple(record.ranges) if kind == "concept" else (),
        unit=record.units[0] if len(record.units) == 1 else None,
        labels=tuple(text for text, _ in record.labels),
    )
