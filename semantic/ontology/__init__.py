"""Reading of ontology documents into plain records. No other package imports rdflib or pyoxigraph."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.ontology.formats import CONTENT_TYPES, refuse_empty, syntax_of_extension
    from kindcast.semantic.ontology.isolation import Cancelled, Cost, Isolation
    from kindcast.semantic.ontology.loader import read, read_encoded, read_isolated, read_several
    from kindcast.semantic.ontology.reasoning import Reasoner, find_java
    from kindcast.semantic.ontology.records import (
        ConceptRecord,
        Limits,
        Ontology,
        Progress,
        PropertyRecord,
        Reason,
        RelationRecord,
        decode,
        encode,
        is_readable,
        silent,
    )

__all__ = [
    "CONTENT_TYPES",
    "Cancelled",
    "ConceptRecord",
    "Cost",
    "Isolation",
    "Limits",
    "Ontology",
    "Progress",
    "PropertyRecord",
    "Reason",
    "Reasoner",
    "RelationRecord",
    "decode",
    "encode",
    "find_java",
    "is_readable",
    "read",
    "read_encoded",
    "read_isolated",
    "read_several",
    "refuse_empty",
    "silent",
    "syntax_of_extension",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.ontology.isolation": ("Cancelled", "Cost", "Isolation"),
        "kindcast.semantic.ontology.loader": ("read", "read_encoded", "read_isolated", "read_several"),
        "kindcast.semantic.ontology.reasoning": ("Reasoner", "find_java"),
        "kindcast.semantic.ontology.records": (
            "ConceptRecord",
            "Limits",
            "Ontology",
            "Progress",
            "PropertyRecord",
            "Reason",
            "RelationRecord",
            "decode",
            "encode",
            "is_readable",
            "silent",
        ),
        "kindcast.semantic.ontology.formats": ("CONTENT_TYPES", "refuse_empty", "syntax_of_extension"),
    },
)
