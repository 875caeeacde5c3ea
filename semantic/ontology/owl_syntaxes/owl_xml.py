"""OWL/XML to expressions, one axiom at a time, by expat. The document went through `xml_guard` before.

<SubClassOf>
  <Class IRI="#Laptop"/>            ──▶  Expression("SubClassOf", [Expression("Class", [<…#Laptop>]), …])
  <Class abbreviatedIRI="e:B"/>
</SubClassOf>
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.oddities import Oddities, shown
from kindcast.semantic.ontology.owl_syntaxes.expressions import Argument, Expression, Names, OddName

__all__ = ["xml_expressions"]

_OWL: Final = "http://www.w3.org/2002/07/owl# "
_XML: Final = "http://www.w3.org/XML/1998/namespace "
_TEXTS: Final = frozenset({"Literal", "IRI", "AbbreviatedIRI", "Import"})
_PIECE: Final = 1 << 16  # bytes given to the parser at once


def xml_expressions(data: bytes, names: Names, odd: Oddities) -> Iterator[Expression]:
    """`Ontology` with its IRIs, then every axiom, annotation and import of it. Linear; one axiom is kept at a time.

    An axiom with a name of which no IRI can be made is left out, with a warning. Raises OntologyError with the line.
    """
    reader = _Reader(names, odd)
    for start in range(0, max(len(data), 1), _PIECE):
        piece = data[start : start + _PIECE]
        try:
            reader.parser.Parse(piece, start + _PIECE >= len(data))
        except expat.ExpatError as error:  # the guard let it pass: something that depends on our handlers
            raise OntologyError(f"not well-formed XML: {error}", line=error.lineno) from error
        yield from reader.found
        reader.found.clear()


@dataclass(slots=True)
class _Open:
    """An element that is not closed yet."""

    name: str
    line: int
    attributes: dict[str, str]
    arguments: list[Argument] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Reader:
    """The elements that are open, and the expressions that are complete."""

    def __init__(self, names: Names, odd: Oddities) -> None:
        self.found: list[Expression] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self._names = names
        self._odd = odd
        self._stack: list[_Open] = []
        self._problem = ""  # why the axiom that is being read is left out

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if not self._stack:
            if name != _OWL + "Ontology":
                raise OntologyError(f"an OWL/XML document begins with <Ontology>, not {shown(name)}", line=line)
            self._head(attributes, line)
        elif not name.startswith(_OWL):
            self._problem = self._problem or f"{shown(name)} is no word of OWL"
        self._stack.append(_Open(name.removeprefix(_OWL), line, attributes))

    def _head(self, attributes: dict[str, str], line: int) -> None:
        names = [attributes[each] for each in ("ontologyIRI", "versionIRI") if attributes.get(each)]
        base = attributes.get(_XML + "base") or (names[0] if names else "")
        try:
            if base:
                self._names.base = self._names.full(base).value
            nodes = [self._names.full(each) for each in names]
        except OddName as error:
            raise OntologyError(str(error), line=line) from error
        self.found.append(Expression("Ontology", nodes, line))

    def _text(self, text: str) -> None:
        inner = self._stack[-1]
        if inner.name in _TEXTS:
            inner.texts.append(text)
        elif not text.isspace():
            line = self.parser.CurrentLineNumber
            raise OntologyError(f"<{inner.name}> holds a text, which means nothing there: {shown(text)}", line=line)

    def _end(self, name: str) -> None:
        closed = self._stack.pop()
        if not self._stack:
            return
        if closed.name == "Prefix":
            self._names.declare(closed.attributes.get("name", ""), closed.attributes.get("IRI", ""), closed.line)
            return
        try:
            argument = self._argument(closed)
        except OddName as error:
            self._problem = self._problem or str(error)
            argument = ox.BlankNode()
        if len(self._stack) > 1:
            self._stack[-1].arguments.append(argument)
            return
        if self._problem:
            self._odd.add(closed.line, "no IRI", f"this {shown(closed.name)} is left out: {self._problem}")
            self._problem = ""
        elif isinstance(argument, Expression):
            self.found.append(argument)
        else:
            self._odd.add(closed.line, "no axiom", f"<{closed.name}> is no axiom and is left out")

    def _argument(self, closed: _Open) -> Argument:
        text = "".join(closed.texts)
        attributes = closed.attributes
        if closed.name == "IRI":
            return self._names.full(text.strip())
        if closed.name == "AbbreviatedIRI":
            return self._names.short(text.strip(), closed.line)
        if closed.name == "AnonymousIndividual":
            return ox.BlankNode("n" + "".join(c if c.isalnum() else "_" for c in attributes.get("nodeID", "")))
        if closed.name == "Literal":
            datatype = attributes.get("datatypeIRI")
            kind = self._names.full(datatype) if datatype else None
            return self._names.literal(text, kind, attributes.get(_XML + "lang"))
        if closed.name == "Import":
            return Expression("Import", [self._names.full(text.strip())], closed.line)
        arguments = closed.arguments
        if "IRI" in attributes:
            arguments.insert(0, self._names.full(attributes["IRI"]))
        elif "abbreviatedIRI" in attributes:
            arguments.insert(0, self._names.short(attributes["abbreviatedIRI"], closed.line))
        if "facet" in attributes:
            arguments.insert(0, self._names.full(attributes["facet"]))
        if "cardinality" in attributes:
            arguments.insert(0, self._number(attributes["cardinality"], closed.line))
        return Expression(closed.name, arguments, closed.line)

    @staticmethod
    def _number(text: str, line: int) -> int:
        if not (text.strip().isdecimal() and len(text) < 19):
            raise OntologyError(f"a cardinality is a whole number, not {shown(text)}", line=line)
        return int(text)
