"""Ontology documents in, plain records out. The only package that knows RDF."""

from semantic.ontology.isolated_reading import read_isolated
from semantic.ontology.isolation import Isolation
from semantic.ontology.loader import read
from semantic.ontology.reasoning.owl import Reasoner
from semantic.ontology.records import ConceptRecord, Limits, Ontology, PropertyRecord, Reason, RelationRecord

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
