"""The media types of data that is a graph (rule 20). Imports no parser, so that whoever only asks for them is quick."""

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
    """The media type that `datacontenttype` says, in lower case, without parameters.

    >>> media_type_of({"datacontenttype": "Text/Turtle; charset=utf-8"})
    'text/turtle'
    """
    return str(context.get("datacontenttype", "")).partition(";")[0].strip().lower()
