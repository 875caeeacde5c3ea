"""Ontology documents in, plain records out. The only package that knows RDF."""

from semantic.ontology.loader import read
from semantic.ontology.records import ConceptRecord, Limits, Ontology, PropertyRecord, Reason, RelationRecord

__all__ = ["ConceptRecord", "Limits", "Ontology", "PropertyRecord", "Reason", "RelationRecord", "read"]
