"""The table of formats of ontology documents: content types, extensions and other names of each. Imports no parser.

`kindcast.semantic.ontology.document_readers` has the reader of each, and detects the format of a document. The HTTP API
lists the content types of this table, and the command line looks up extensions in it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kindcast.semantic.errors import OntologyError

__all__ = ["CONTENT_TYPES", "NAMES", "SYNTAXES", "Syntax", "refuse_empty", "syntax_of_extension"]


class Syntax(NamedTuple):
    """The names of one syntax. The first content type and the first extension are the usual ones."""

    content_types: tuple[str, ...]
    extensions: tuple[str, ...]
    other_names: tuple[str, ...] = ()


SYNTAXES: Final[Mapping[str, Syntax]] = {
    "turtle": Syntax(("text/turtle", "application/x-turtle", "application/turtle"), ("ttl", "turtle")),
    "rdf-xml": Syntax(("application/rdf+xml",), ("rdf", "rdfs", "rdfxml"), ("rdf/xml",)),
    "json-ld": Syntax(("application/ld+json", "application/json"), ("jsonld", "json")),
    "n-triples": Syntax(("application/n-triples",), ("nt", "ntriples")),
    "n-quads": Syntax(("application/n-quads",), ("nq", "nquads")),
    "trig": Syntax(("application/trig", "application/x-trig"), ("trig",)),
    "obo": Syntax(("text/obo", "application/obo", "application/x-obo", "text/x-obo"), ("obo",)),
    "owl-xml": Syntax(("application/owl+xml",), ("owx", "owlxml"), ("owl/xml",)),
    "owl-functional": Syntax(("text/owl-functional", "text/owl-functional-syntax"), ("ofn", "fss"), ("functional",)),
    "sssom": Syntax(
        ("text/tab-separated-values", "text/tsv", "application/sssom+tsv", "text/x-sssom"), ("tsv",), ("sssom.tsv",)
    ),
}
"""From the name of each syntax to its other names."""

NAMES: Final[Mapping[str, str]] = {
    name: syntax
    for syntax, known in SYNTAXES.items()
    for name in (syntax, *known.content_types, *known.extensions, *known.other_names)
}
"""From every name, content type and extension to the name of the syntax."""

CONTENT_TYPES: Final = tuple(known.content_types[0] for known in SYNTAXES.values())
"""The usual content type of each syntax."""

_BY_LOOKS: Final = frozenset({"rdf-xml", "json"})
"""Syntaxes and extensions whose files often have another syntax, so that the text of the file decides."""


def refuse_empty(data: bytes) -> None:
    """Refuses a new document without a character. Syntaxes such as Turtle allow it, but a transfer that failed leaves
    it, and as the next version it would remove all concepts. Raises `OntologyError`."""
    if not data.strip():
        raise OntologyError("the document is empty: was it transferred whole?")


def syntax_of_extension(extension: str) -> str | None:
    """Returns the syntax of files with this extension (without the dot), or None if the text of the file decides or the
    extension is unknown.

    >>> syntax_of_extension("ttl"), syntax_of_extension("owl")
    ('turtle', None)
    """
    extension = extension.lower()
    found = next((name for name, known in SYNTAXES.items() if extension in known.extensions), None)
    return None if {found, extension} & _BY_LOOKS else found
