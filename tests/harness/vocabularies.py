"""The product's vocabulary of what the oracle has as plain lists."""

import re
from dataclasses import asdict
from typing import Any

from kindcast import Vocabulary
from kindcast.semantic.ontology import ConceptRecord, Ontology, PropertyRecord, RelationRecord
from kindcast.semantic.ontology.namespaces import NOTATION
from tests.oracle import World

__all__ = ["declared_in", "vocabulary_of"]

NAMESPACE = "http://example.org/"
"""That of properties; the oracle has attributes by their names."""


def vocabulary_of(world: World) -> Vocabulary:
    """The vocabulary that says what `world` says."""

    def labels(iri: str, level: str) -> tuple[tuple[str, str | None], ...]:
        return tuple((text, language) for name, text, language, its in world.labels if (name, its) == (iri, level))

    records = [
        ConceptRecord(
            iri=iri,
            kind="individual" if iri in world.only else "class",
            schemes=tuple(scheme for name, scheme in world.schemes if name == iri),
            notations=tuple((NOTATION, code) for name, code in world.notations if name == iri),
            preferred=labels(iri, "preferred"),
            synonyms=labels(iri, "synonym"),
            hidden=labels(iri, "hidden"),
            deprecated=any(old == iri for old, _ in world.replaced),
            replaced_by=tuple(new for old, new in world.replaced if old == iri),
        )
        for iri in world.names
    ]
    lower = sorted({low for low, _ in world.subproperties} | {high for _, high in world.subproperties})
    properties = [
        PropertyRecord(
            iri=NAMESPACE + name, parents=tuple(NAMESPACE + high for low, high in world.subproperties if low == name)
        )
        for name in lower
    ]
    properties += [PropertyRecord(iri=one, inverses=(other,)) for one, other in world.inverses]
    ontology = Ontology(
        name="world",
        concepts=tuple(records),
        edges=world.narrower,
        types=world.individuals,
        equivalences=world.equivalent,
        matches=world.matches,
        properties=tuple(properties),
        prefixes=world.prefixes,
        relations=tuple(RelationRecord(iri=iri, edges=pairs) for iri, pairs in world.relations.items()),
    )
    return Vocabulary.from_ontologies([ontology], **declared_in(world))


def declared_in(world: World) -> dict[str, Any]:
    """What `world` declares beside its ontology, as `Vocabulary` takes it."""
    declared = {
        name: {key: value for key, value in asdict(each).items() if value} for name, each in world.declarations.items()
    }
    for fields in declared.values():
        if "reads" in fields:  # the oracle has Python's patterns
            fields["reads"] = [{**each, "as": re.sub(r"\\([0-9])", r"{\1}", each["as"])} for each in fields["reads"]]
    systems = {"code_systems": dict(world.code_systems)} if world.code_systems else {}
    return {"attributes": declared, "synonyms": dict(world.synonyms), **systems, **_aliases(world), **_unions(world)}


def _unions(world: World) -> dict[str, Any]:
    return {"unions": {name: {"union": list(parts)} for name, parts in world.unions.items()}} if world.unions else {}


def _aliases(world: World) -> dict[str, Any]:
    """Each kind in a table of its own."""
    tables: dict[str, Any] = {}
    for how in ("iri", "prefix"):
        pairs = {form: other for kind, form, other in world.aliases if kind == how}
        tables |= {how: {{"iri": "iris", "prefix": "prefixes"}[how]: pairs}} if pairs else {}
    listed = [
        {"match": form, "as": re.sub(r"\\([0-9])", r"{\1}", other)}
        for kind, form, other in world.aliases
        if kind == "pattern"
    ]
    tables |= {"patterns": {"patterns": listed}} if listed else {}
    if world.spelt:
        tables["spellings"] = {"spellings": ["en"]}
    return {"aliases": tables} if tables else {}
