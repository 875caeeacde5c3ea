"""Reading of events: published events to canonical events, and to columns of the index."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.events.canonical_events import MOST_OF_ONE, MOST_PROBLEMS, Canonicaliser, EventLimits
    from kindcast.semantic.events.documents import (
        MOST_TOGETHER,
        Correction,
        correction_key,
        correction_of,
        is_newer,
        published_id,
    )
    from kindcast.semantic.events.event_plans import READ_TOGETHER, ReadEvent
    from kindcast.semantic.events.linked_data import GRAPH_TYPES, JSON_LD, RDF_TYPES, media_type_of
    from kindcast.semantic.events.linked_data.reader import TakesLong, is_graph

__all__ = [
    "GRAPH_TYPES",
    "JSON_LD",
    "MOST_OF_ONE",
    "MOST_PROBLEMS",
    "MOST_TOGETHER",
    "RDF_TYPES",
    "READ_TOGETHER",
    "Canonicaliser",
    "Correction",
    "EventLimits",
    "ReadEvent",
    "TakesLong",
    "correction_key",
    "correction_of",
    "is_graph",
    "is_newer",
    "media_type_of",
    "published_id",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.events.canonical_events": ("Canonicaliser", "EventLimits", "MOST_OF_ONE", "MOST_PROBLEMS"),
        "kindcast.semantic.events.documents": (
            "Correction",
            "MOST_TOGETHER",
            "correction_key",
            "correction_of",
            "is_newer",
            "published_id",
        ),
        "kindcast.semantic.events.event_plans": ("READ_TOGETHER", "ReadEvent"),
        "kindcast.semantic.events.linked_data": ("GRAPH_TYPES", "JSON_LD", "RDF_TYPES", "media_type_of"),
        "kindcast.semantic.events.linked_data.reader": ("TakesLong", "is_graph"),
    },
)
