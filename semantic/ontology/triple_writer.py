"""Triples for readers of syntaxes that are no RDF: the words that they use, as nodes, and the shapes that OWL gives to
lists and restrictions in RDF."""

from collections.abc import Sequence
from typing import Final

import pyoxigraph as ox
from rdflib.namespace import OWL, RDF, RDFS, XSD

__all__ = ["TYPE", "Node", "TripleWriter", "Value", "owl", "rdf", "rdfs", "xsd"]

Node = ox.NamedNode | ox.BlankNode
Value = ox.NamedNode | ox.BlankNode | ox.Literal


def rdf(name: str) -> ox.NamedNode:
    """The node of `rdf:name`. Raises AttributeError where RDF has no such word, as do the three below."""
    return ox.NamedNode(str(getattr(RDF, name)))


def rdfs(name: str) -> ox.NamedNode:
    """The node of `rdfs:name`."""
    return ox.NamedNode(str(getattr(RDFS, name)))


def owl(name: str) -> ox.NamedNode:
    """The node of `owl:name`."""
    return ox.NamedNode(str(getattr(OWL, name)))


def xsd(name: str) -> ox.NamedNode:
    """The node of `xsd:name`."""
    return ox.NamedNode(str(getattr(XSD, name)))


TYPE: Final = rdf("type")
_FIRST: Final = rdf("first")
_REST: Final = rdf("rest")
_NIL: Final = rdf("nil")
_RESTRICTION: Final = owl("Restriction")
_ON_PROPERTY: Final = owl("onProperty")


class TripleWriter:
    """Collects triples until they are taken. Blank nodes are numbered, so that the same document gives the same
    triples."""

    def __init__(self) -> None:
        self._triples: list[ox.Quad] = []
        self._blanks = 0

    def add(self, subject: Node, predicate: ox.NamedNode, value: Value) -> None:
        """One more triple."""
        self._triples.append(ox.Quad(subject, predicate, value))

    def taken(self) -> list[ox.Quad]:
        """What was added since the last call."""
        found, self._triples = self._triples, []
        return found

    def blank(self) -> ox.BlankNode:
        """A new blank node."""
        self._blanks += 1
        return ox.BlankNode(f"b{self._blanks}")

    def typed(self, kind: ox.NamedNode) -> ox.BlankNode:
        """A new blank node of type `kind`."""
        node = self.blank()
        self.add(node, TYPE, kind)
        return node

    def sequence(self, items: Sequence[Value]) -> Node:
        """An RDF list of `items`; its head."""
        if not items:
            return _NIL
        head: Node = _NIL
        for item in reversed(items):
            cell = self.blank()
            self.add(cell, _FIRST, item)
            self.add(cell, _REST, head)
            head = cell
        return head

    def expression(self, kind: ox.NamedNode, predicate: ox.NamedNode, members: Sequence[Value]) -> ox.BlankNode:
        """A class or data range that `predicate` makes of a list."""
        node = self.typed(kind)
        self.add(node, predicate, self.sequence(members))
        return node

    def restriction(self, on: Node, predicate: ox.NamedNode, value: Value) -> ox.BlankNode:
        """The class of what has `on` in the way that `predicate` says."""
        node = self.typed(_RESTRICTION)
        self.add(node, _ON_PROPERTY, on)
        self.add(node, predicate, value)
        return node
