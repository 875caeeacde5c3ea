"""Vocabularies: concepts and their names, attributes, and the declarations of users in addition to ontologies."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.index.clause import ConceptId
    from kindcast.semantic.vocabulary.contexts import LONGEST_URL, shipped_contexts
    from kindcast.semantic.vocabulary.declarations import DeclarationKind, Declarations, check_table, read_table
    from kindcast.semantic.vocabulary.declarations_file import arguments_of
    from kindcast.semantic.vocabulary.event_schemas import SPLIT_BY, document_of, read_event_type
    from kindcast.semantic.vocabulary.event_types import FHIR, SHIPPED_SPLITS, Correctable, EventType, view_of
    from kindcast.semantic.vocabulary.visibility import View, is_linked
    from kindcast.semantic.vocabulary.vocabulary import MEANING, overlap

__all__ = [
    "FHIR",
    "LONGEST_URL",
    "MEANING",
    "SHIPPED_SPLITS",
    "SPLIT_BY",
    "ConceptId",
    "Correctable",
    "DeclarationKind",
    "Declarations",
    "EventType",
    "View",
    "arguments_of",
    "check_table",
    "document_of",
    "is_linked",
    "overlap",
    "read_event_type",
    "read_table",
    "shipped_contexts",
    "view_of",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.index.clause": ("ConceptId",),
        "kindcast.semantic.vocabulary.contexts": ("LONGEST_URL", "shipped_contexts"),
        "kindcast.semantic.vocabulary.declarations": ("DeclarationKind", "Declarations", "check_table", "read_table"),
        "kindcast.semantic.vocabulary.declarations_file": ("arguments_of",),
        "kindcast.semantic.vocabulary.event_schemas": ("SPLIT_BY", "document_of", "read_event_type"),
        "kindcast.semantic.vocabulary.event_types": (
            "FHIR",
            "SHIPPED_SPLITS",
            "Correctable",
            "EventType",
            "view_of",
        ),
        "kindcast.semantic.vocabulary.visibility": ("View", "is_linked"),
        "kindcast.semantic.vocabulary.vocabulary": ("MEANING", "overlap"),
    },
)
