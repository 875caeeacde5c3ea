"""What both syntaxes of OWL are read into: a keyword, and what stands in its brackets; and how names become nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Union
from urllib.parse import urljoin

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.oddities import shown

__all__ = ["Argument", "Expression", "Names", "OddName"]

PREFIXES: Final = {name: ns.WELL_KNOWN_PREFIXES[name] for name in ("owl", "rdf", "rdfs", "xsd")}
_PLAIN_LITERAL: Final = ns.WELL_KNOWN_PREFIXES["rdf"] + "PlainLiteral"

Argument = Union["Expression", ox.NamedNode, ox.BlankNode, ox.Literal, int]


@dataclass(frozen=True, slots=True)
class Expression:
    """`SubClassOf(:A :B)` or its element in XML; `line` is where it begins."""

    keyword: str
    arguments: Sequence[Argument]
    line: int


class OddName(ValueError):
    """A name of which no IRI can be made: its axiom is left out, with a warning."""


class Names:
    """The prefixes and the base of one document. Names are looked up once."""

    def __init__(self, base: str, longest: int) -> None:
        self.prefixes: dict[str, str] = dict(PREFIXES)
        self.declared: dict[str, str] = {}
        self.base = base
        self._longest = longest
        self._known: dict[str, ox.NamedNode] = {}

    def declare(self, prefix: str, iri: str, line: int) -> None:
        """`prefix` stands for `iri` from here on. Raises OntologyError where that is too long."""
        if len(iri) > self._longest:
            raise OntologyError(f"a prefix stands for more than {self._longest:,} characters", line=line)
        self.prefixes[prefix] = self.declared[prefix] = iri
        self._known.clear()

    def full(self, iri: str) -> ox.NamedNode:
        """The node of an IRI as written, relative ones against the base. Raises OddName."""
        if len(iri) > self._longest:
            raise OddName(f"an IRI has more than {self._longest:,} characters")
        try:
            return ox.NamedNode(iri)
        except ValueError as error:
            if "scheme" not in str(error):
                raise OddName(f"{shown(iri)} is no IRI: {error}") from error
        try:
            whole = self.base.partition("#")[0] + iri if iri.startswith("#") else urljoin(self.base, iri)
            return ox.NamedNode(whole)
        except ValueError as error:
            raise OddName(f"{shown(iri)} is no IRI: {error}") from error

    def short(self, name: str, line: int) -> ox.NamedNode:
        """The node of `prefix:local`. Raises OddName; OntologyError where the prefix is not declared."""
        found = self._known.get(name)
        if found is None:
            prefix, _, local = name.partition(":")
            namespace = self.prefixes.get(prefix)
            if namespace is None:
                raise OntologyError(f"prefix {shown(prefix + ':')} is not declared", line=line)
            found = self._known[name] = self.full(namespace + local)
        return found

    @staticmethod
    def literal(text: str, datatype: ox.NamedNode | None, language: str | None) -> ox.Literal:
        """A literal; the odd `"text@en"^^rdf:PlainLiteral` too. A language tag that is none is put right or left
        out."""
        if datatype is not None and datatype.value == _PLAIN_LITERAL:
            text, _, language = text.rpartition("@") if "@" in text else (text, "", "")
            datatype = None
        if not language:
            return ox.Literal(text, datatype=datatype) if datatype is not None else ox.Literal(text)
        try:
            return ox.Literal(text, language=language.replace("_", "-"))
        except ValueError:
            return ox.Literal(text)
