"""OBO files, 1.2 and 1.4: bytes to triples, tolerantly."""

from kindcast.semantic.ontology.obo.document import OboDocument

__all__ = ["OboDocument"]
