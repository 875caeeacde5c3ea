"""Events that are graphs: JSON-LD 1.1, RDF and NGSI-LD (docs/matching-semantics.md, rules 20, 21 and 23).

The media types of graphs are defined here, so that code that needs only these imports no parser.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["GRAPH_TYPES", "JSON_LD", "RDF_TYPES", "media_type_of"]

JSON_LD = "application/ld+json"
RDF_TYPES = {
    "text/turtle": "turtle",
    "application/n-triples": "n-triples",
    "application/n-quads": "n-quads",
    "application/trig": "trig",
}
"""Media type → syntax."""
GRAPH_TYPES = frozenset({JSON_LD, *RDF_TYPES})


def media_type_of(context: Mapping[str, Any]) -> str:
    """Returns the media type in `datacontenttype`, in lower case and without parameters.

    >>> media_type_of({"datacontenttype": "Text/Turtle; charset=utf-8"})
    'text/turtle'
    """
    return str(context.get("datacontenttype", "")).partition(";")[0].strip().lower()
