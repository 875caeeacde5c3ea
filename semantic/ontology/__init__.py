"""Ontology documents in, plain records out. The only package that knows RDF."""

from kindcast.semantic.ontology.isolated_reading import read_isolated
from kindcast.semantic.ontology.isolation import Isolation
from kindcast.semantic.ontology.loader import read
from kindcast.semantic.ontology.reasoning.owl import Reasoner
from kindcast.semantic.ontology.records import ConceptRecord, Limits, Ontology, PropertyRecord, Reason, RelationRecord

__all__ = [
    "ConceptRecord",
    "Isolation",
    "Limits",
    "Ontology",
    "PropertyRecord",
    "Reason",
    "Reasoner",
    "RelationRecord",
    "read",
    "read_isolated",
]
