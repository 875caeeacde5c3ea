"""Parsing of Turtle, N-Triples, N-Quads and TriG into plain Python tuples, for readers of events.

The parser is pyoxigraph, which opens no file and no socket. Relative IRIs have no base, so they are syntax errors.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final, NamedTuple

import pyoxigraph as ox
from pyoxigraph import RdfFormat

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.guards import inspect_turtle
from kindcast.semantic.ontology.records import Limits

__all__ = ["RDF_SYNTAXES", "RdfLiteral", "Statement", "ntriples_of", "statements", "without_place"]

RDF_SYNTAXES: Final[Mapping[str, RdfFormat]] = {
    "turtle": RdfFormat.TURTLE,
    "rdf-xml": RdfFormat.RDF_XML,
    "n-triples": RdfFormat.N_TRIPLES,
    "json-ld": RdfFormat.JSON_LD,
    "trig": RdfFormat.TRIG,
    "n-quads": RdfFormat.N_QUADS,
}
"""From the name of each RDF syntax to its format in pyoxigraph."""


_NOISE: Final = re.compile(r"^Parser error (?:at|between) line.*?columns? [\d and]+: |^Parser error: | \(line \d+\)$")


def without_place(error: SyntaxError) -> str:
    """Returns the parser's message without the place, which the error has as numbers, too."""
    return _NOISE.sub("", _NOISE.sub("", str(error)))


class RdfLiteral(NamedTuple):
    """A literal: its lexical form, the IRI of its datatype, and its language tag or None."""

    text: str
    datatype: str
    language: str | None


Statement = tuple[str, str, "str | RdfLiteral", str]
"""(subject, property, object, name of the graph). The name of the default graph is empty. Blank nodes are `_:label`."""


def statements(data: bytes, syntax: str) -> Iterator[Statement]:
    """Yields every statement of `data`, in order. Raises `OntologyError` for syntax errors and invalid IRIs, with the
    line, and for triples as subjects or objects."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    inspect_turtle(data, Limits())
    labels: dict[str, str] = {}
    numbers = count(1)

    def name(term: ox.NamedNode | ox.BlankNode | ox.Triple | ox.DefaultGraph) -> str:
        if isinstance(term, ox.NamedNode):
            return term.value
        if isinstance(term, ox.BlankNode):
            return labels.get(term.value) or labels.setdefault(term.value, f"_:b{next(numbers)}")
        if isinstance(term, ox.DefaultGraph):
            return ""
        raise OntologyError("triples as subjects or objects of triples are not supported in events")

    try:
        for quad in ox.parse(data, RDF_SYNTAXES[syntax]):
            value = quad.object
            found = (
                RdfLiteral(value.value, value.datatype.value, value.language)
                if isinstance(value, ox.Literal)
                else name(value)
            )
            yield name(quad.subject), quad.predicate.value, found, name(quad.graph_name)
    except SyntaxError as error:
        raise OntologyError(without_place(error), line=error.lineno, column=error.offset) from error
    except MemoryError as error:
        if "buffer" not in str(error):
            raise
        raise OntologyError("a name or text of the document is longer than 16 MiB") from error


def ntriples_of(statement: Statement) -> str:
    """Returns `statement` as a line of N-Triples, without its graph.

    >>> ntriples_of(("http://example.org/a", "http://example.org/b", "_:c", ""))
    '<http://example.org/a> <http://example.org/b> _:c .\\n'
    """
    subject, property, value, _ = statement
    if isinstance(value, str):
        stated: ox.NamedNode | ox.BlankNode | ox.Literal = _node(value)
    elif value.language:
        stated = ox.Literal(value.text, language=value.language)
    else:
        stated = ox.Literal(value.text, datatype=ox.NamedNode(value.datatype))
    return f"{_node(subject)} {ox.NamedNode(property)} {stated} .\n"


def _node(name: str) -> ox.NamedNode | ox.BlankNode:
    return ox.BlankNode(name[2:]) if name.startswith("_:") else ox.NamedNode(name)
