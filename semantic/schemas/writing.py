"""Event types and views → JSON Schema documents, which `documents` reads back to the same shape.

What was uploaded is kept and given back as it was; this writes what has no document of its own, such as a view.
"""

from typing import Any

from semantic.schemas.documents import DIALECT, PREFIX
from semantic.schemas.records import Domain, EventType, Shape
from semantic.schemas.views import View

__all__ = ["document_of"]

_BOUNDS = (
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("exclusiveMinimum", "above"),
    ("exclusiveMaximum", "under"),
    ("minLength", "shortest"),
    ("maxLength", "longest"),
    ("pattern", "pattern"),
    (PREFIX + "unit", "unit"),
    (PREFIX + "unit-from", "unit_from"),
    (PREFIX + "derived", "derived"),
)


def document_of(described: EventType | View) -> dict[str, Any]:
    """The JSON Schema of an event type, or of a view (whose title are its types). Linear in the shape.

    >>> from semantic.schemas.documents import read_event_type
    >>> document_of(read_event_type("offer", {"properties": {"price": {"type": "number"}}}))["properties"]
    {'price': {'type': 'number'}}
    """
    document: dict[str, Any] = {"$schema": DIALECT}
    if isinstance(described, View):
        document["title"] = " and ".join(described.types)
    else:
        words = {"title": described.title, "description": described.description}
        document |= {key: text for key, text in words.items() if text is not None}
    return document | _node(described.shape)


def _node(shape: Shape) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if shape.types is not None:
        node["type"] = sorted(shape.types) if len(shape.types) > 1 else next(iter(shape.types))
    node |= _domain(shape.domain)
    if shape.members:
        node["properties"] = {name: _node(member) for name, member in shape.members.items()}
    if shape.required:
        node["required"] = sorted(shape.required)
    if shape.closed:
        node["additionalProperties"] = False
    if shape.items is not None:
        node["items"] = _node(shape.items)
    counts = {"minItems": shape.fewest or None, "maxItems": shape.most, "uniqueItems": shape.distinct or None}
    return node | {key: value for key, value in counts.items() if value is not None}


def _domain(domain: Domain) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if domain.members is not None:
        node["enum"] = list(domain.members)
    if domain.order is not None:
        node[PREFIX + "order"] = [list(chain) for chain in domain.order]
    if domain.date_time:
        node["format"] = "date-time"
    if domain.concepts:
        node[PREFIX + "concept"] = list(domain.concepts)
    return node | {key: value for key, name in _BOUNDS if (value := getattr(domain, name)) is not None}
