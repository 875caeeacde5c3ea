"""OWL functional syntax and OWL/XML: bytes to the triples that they stand for."""

from kindcast.semantic.ontology.owl_syntaxes.document import OwlDocument

__all__ = ["OwlDocument"]
