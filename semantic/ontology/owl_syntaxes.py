"""Reader of OWL 2 functional syntax and OWL/XML. It checks a document, reads it axiom by axiom, and writes triples.

Both syntaxes are read into the same expressions: a keyword, and the content of its brackets.

    Prefix(:=<http://e.org/>)
    Ontology(<http://e.org/shop>
      SubClassOf(:Laptop :Computer)         ──▶  Expression("SubClassOf", [<…Laptop>, <…Computer>])
    )

    <SubClassOf>
      <Class IRI="#Laptop"/>                ──▶  Expression("SubClassOf", [Expression("Class", [<…#Laptop>]), …])
      <Class abbreviatedIRI="e:B"/>
    </SubClassOf>

The reader keeps open brackets on a stack, so nesting needs no recursion here; the depth is limited for later steps.
`guards` checks OWL/XML before Expat reads it.

Axioms become triples by the W3C mapping. Annotations of axioms state nothing about concepts and are left out.
`TripleWriter` writes lists and restrictions as OWL in RDF does; the reader of OBO uses it too.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Union
from urllib.parse import urljoin
from xml.parsers import expat

import pyoxigraph as ox
from rdflib.namespace import OWL, RDF, RDFS, XSD

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.guards import inspect_xml, utf8_text
from kindcast.semantic.ontology.records import DocumentWarnings, Limits, shown

__all__ = [
    "TYPE",
    "Argument",
    "Axioms",
    "Expression",
    "Names",
    "Node",
    "OddName",
    "OwlDocument",
    "TripleWriter",
    "Value",
    "functional_expressions",
    "owl",
    "rdf",
    "rdfs",
    "xml_expressions",
    "xsd",
]


PREFIXES: Final = {name: ns.WELL_KNOWN_PREFIXES[name] for name in ("owl", "rdf", "rdfs", "xsd")}
_PLAIN_LITERAL: Final = ns.WELL_KNOWN_PREFIXES["rdf"] + "PlainLiteral"

Argument = Union["Expression", ox.NamedNode, ox.BlankNode, ox.Literal, int]


@dataclass(frozen=True, slots=True)
class Expression:
    """An axiom or a part of it: `SubClassOf(:A :B)`, or the same element in XML. `line` is its first line."""

    keyword: str
    arguments: Sequence[Argument]
    line: int


class OddName(ValueError):
    """Raised for a name that gives no valid IRI. Its axiom is left out, with a warning."""


class Names:
    """The prefixes and the base IRI of one document. Nodes of names are cached."""

    def __init__(self, base: str, longest: int) -> None:
        self.prefixes: dict[str, str] = dict(PREFIXES)
        self.declared: dict[str, str] = {}
        self.base = base
        self._longest = longest
        self._known: dict[str, ox.NamedNode] = {}

    def declare(self, prefix: str, iri: str, line: int) -> None:
        """Declares `prefix` as `iri` for the rest of the document. Raises OntologyError if the IRI is too long."""
        if len(iri) > self._longest:
            raise OntologyError(f"a prefix is longer than {self._longest:,} characters", line=line)
        self.prefixes[prefix] = self.declared[prefix] = iri
        self._known.clear()

    def full(self, iri: str) -> ox.NamedNode:
        """Returns the node of an IRI as written. Relative IRIs are resolved against the base. Raises OddName."""
        if len(iri) > self._longest:
            raise OddName(f"an IRI has more than {self._longest:,} characters")
        try:
            return ox.NamedNode(iri)
        except ValueError as error:
            if "scheme" not in str(error):
                raise OddName(f"{shown(iri)} is not an IRI: {error}") from error
        try:
            whole = self.base.partition("#")[0] + iri if iri.startswith("#") else urljoin(self.base, iri)
            return ox.NamedNode(whole)
        except ValueError as error:
            raise OddName(f"{shown(iri)} is not an IRI: {error}") from error

    def short(self, name: str, line: int) -> ox.NamedNode:
        """Returns the node of `prefix:local`. Raises OddName, and OntologyError if the prefix is not declared."""
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
        """Returns a literal. Also reads `"text@en"^^rdf:PlainLiteral`. An invalid language tag is corrected or left
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


_NAME = r"""[^\s()<>"=@^\#:]*+:[^\s()<>"=@^\#]*+"""
_BETWEEN = re.compile(r"(?:\s++|#[^\n]*+)*+")
_TOKEN = re.compile(
    rf""" (?P<open>[A-Za-z]*+)\s*+\(
      | (?P<close>\))
      | <(?P<iri>[^<>"]*+)>
      | "(?P<text>(?:[^"\\]|\\.)*+)"
        (?: @(?P<language>[A-Za-z0-9_-]++) | \^\^ (?: <(?P<type>[^<>"]*+)> | (?P<short_type>{_NAME}) ) )?+
      | _:(?P<blank>[^\s()<>"=@^]++)
      | (?P<name>{_NAME})
      | (?P<number>[0-9]{{1,18}})(?![0-9A-Za-z])
      | (?P<equals>=)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def functional_expressions(text: str, names: Names, noted: DocumentWarnings, limits: Limits) -> Iterator[Expression]:
    """Yields `Ontology` with its IRIs, then each of its axioms, annotations and imports. Linear; one axiom is in
    memory.

    An axiom with a name that gives no valid IRI is left out, with a warning. Raises OntologyError with the line if
    brackets, prefixes or tokens are wrong.
    """
    reader = _FunctionalReader(names, noted, limits)
    at, line = 0, 1
    while True:
        start = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        line += text.count("\n", at, start)
        if start == len(text):
            break
        token = _TOKEN.match(text, start)
        if token is None:
            raise OntologyError(f"cannot read {shown(text[start : start + 40])}", line=line)
        found = reader.token(token, line)
        if found is not None:
            yield from found
        at = token.end()
        line += text.count("\n", start, at)
    reader.end(line)


@dataclass(slots=True)
class _OpenBracket:
    """A pair of brackets that is not closed yet."""

    keyword: str
    line: int
    arguments: list[Argument] = field(default_factory=list)


class _FunctionalReader:
    """The parser state: the open brackets. It takes one token at a time."""

    def __init__(self, names: Names, noted: DocumentWarnings, limits: Limits) -> None:
        self._names = names
        self._noted = noted
        self._depth = limits.depth
        self._stack: list[_OpenBracket] = []
        self._prefix: str | None = None  # in `Prefix(`: the text before `=`
        self._problem = ""  # why the axiom that is being read is left out
        self._headed = False  # whether `Ontology` with its IRIs was yielded
        self._done = False  # whether the ontology is closed

    def token(self, token: re.Match[str], line: int) -> Iterator[Expression] | None:
        """Takes one token and returns the expressions that it completes."""
        kind = token.lastgroup
        if kind == "open":
            return self._opened(token["open"], line)
        if kind == "close":
            return self._closed(line)
        if not self._stack:
            raise OntologyError(f"outside Ontology(…): {shown(token[0])}", line=line)
        inner = self._stack[-1]
        if inner.keyword == "Prefix":
            self._prefix_token(token, line)
            return None
        if kind == "equals":
            raise OntologyError("= is allowed only in prefixes", line=line)
        try:
            inner.arguments.append(self._argument(token, line))
        except OddName as error:
            self._problem = self._problem or str(error)
            inner.arguments.append(ox.BlankNode())
        return None

    def end(self, line: int) -> None:
        """Ends the document. Raises OntologyError if it is incomplete."""
        if self._stack:
            inner = self._stack[-1]
            raise OntologyError(f"the document ends within {inner.keyword}( of line {inner.line}", line=line)
        if not self._done:
            raise OntologyError("the document has no Ontology(…)", line=line)

    def _opened(self, keyword: str, line: int) -> Iterator[Expression] | None:
        if not self._stack and (self._done or keyword not in ("Prefix", "Ontology")):
            raise OntologyError(f"{keyword}( is outside Ontology(…)", line=line)
        if len(self._stack) >= self._depth:
            raise OntologyError(f"nested more than {self._depth} deep", line=line)
        self._stack.append(_OpenBracket(keyword, line))
        if len(self._stack) == 2 and not self._headed:
            return self._head()
        return None

    def _closed(self, line: int) -> Iterator[Expression] | None:
        if not self._stack:
            raise OntologyError("a closing bracket has no opening bracket", line=line)
        found = self._stack.pop()
        if found.keyword == "Prefix":
            self._prefix = None
            return None
        if not self._stack:
            self._done = True
            return None if self._headed else self._head(found)
        expression = Expression(found.keyword, found.arguments, found.line)
        if len(self._stack) > 1:
            self._stack[-1].arguments.append(expression)
            return None
        if self._problem:
            self._noted.add(found.line, "no IRI", f"this {found.keyword} was left out: {self._problem}")
            self._problem = ""
            return None
        return iter((expression,))

    def _head(self, found: _OpenBracket | None = None) -> Iterator[Expression]:
        """Yields the ontology with its names, which come before its other contents."""
        found = found or self._stack[0]
        self._headed = True
        self._problem = ""
        names = [each for each in found.arguments if isinstance(each, ox.NamedNode)]
        if names:
            self._names.base = names[0].value
        found.arguments.clear()
        yield Expression("Ontology", names, found.line)

    def _prefix_token(self, token: re.Match[str], line: int) -> None:
        kind = token.lastgroup
        if kind == "name" and self._prefix is None and token["name"].endswith(":"):
            self._prefix = token["name"][:-1]
        elif kind == "iri" and self._prefix is not None:
            self._names.declare(self._prefix, token["iri"], line)
        elif kind != "equals":
            raise OntologyError(f"write a prefix as Prefix(name:=<IRI>), without {shown(token[0])}", line=line)

    def _argument(self, token: re.Match[str], line: int) -> Argument:
        if token["iri"] is not None:
            return self._names.full(token["iri"])
        if token["name"] is not None:
            return self._names.short(token["name"], line)
        if token["blank"] is not None:
            return ox.BlankNode("n" + re.sub(r"\W", "_", token["blank"]))
        if token["number"] is not None:
            return int(token["number"])
        kind = None
        if token["type"] is not None:
            kind = self._names.full(token["type"])
        elif token["short_type"] is not None:
            kind = self._names.short(token["short_type"], line)
        text = token["text"]
        text = _ESCAPED.sub(r"\1", text) if "\\" in text else text
        return self._names.literal(text, kind, token["language"])


_OWL: Final = "http://www.w3.org/2002/07/owl# "
_XML: Final = "http://www.w3.org/XML/1998/namespace "
_TEXTS: Final = frozenset({"Literal", "IRI", "AbbreviatedIRI", "Import"})
_PIECE: Final = 1 << 16  # bytes passed to the parser at once


def xml_expressions(data: bytes, names: Names, noted: DocumentWarnings) -> Iterator[Expression]:
    """Yields `Ontology` with its IRIs, then each of its axioms, annotations and imports. Linear; one axiom is in
    memory.

    An axiom with a name that gives no valid IRI is left out, with a warning. Raises OntologyError with the line.
    """
    reader = _XmlReader(names, noted)
    for start in range(0, max(len(data), 1), _PIECE):
        piece = data[start : start + _PIECE]
        try:
            reader.parser.Parse(piece, start + _PIECE >= len(data))
        except expat.ExpatError as error:  # an error that the guard did not find, because it depends on our handlers
            raise OntologyError(f"not well-formed XML: {error}", line=error.lineno) from error
        yield from reader.found
        reader.found.clear()


@dataclass(slots=True)
class _OpenElement:
    """An element that is not closed yet."""

    name: str
    line: int
    attributes: dict[str, str]
    arguments: list[Argument] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _XmlReader:
    """The parser state: the open elements and the completed expressions."""

    def __init__(self, names: Names, noted: DocumentWarnings) -> None:
        self.found: list[Expression] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self._names = names
        self._noted = noted
        self._stack: list[_OpenElement] = []
        self._problem = ""  # why the axiom that is being read is left out

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if not self._stack:
            if name != _OWL + "Ontology":
                raise OntologyError(f"an OWL/XML document must begin with <Ontology>, not {shown(name)}", line=line)
            self._head(attributes, line)
        elif not name.startswith(_OWL):
            self._problem = self._problem or f"{shown(name)} is not an element of OWL/XML"
        self._stack.append(_OpenElement(name.removeprefix(_OWL), line, attributes))

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
            raise OntologyError(f"<{inner.name}> has a text, which has no meaning there: {shown(text)}", line=line)

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
            self._noted.add(closed.line, "no IRI", f"this {shown(closed.name)} was left out: {self._problem}")
            self._problem = ""
        elif isinstance(argument, Expression):
            self.found.append(argument)
        else:
            self._noted.add(closed.line, "no axiom", f"<{closed.name}> is not an axiom and was left out")

    def _argument(self, closed: _OpenElement) -> Argument:
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
            raise OntologyError(f"a cardinality must be a whole number, not {shown(text)}", line=line)
        return int(text)


Node = ox.NamedNode | ox.BlankNode
Value = ox.NamedNode | ox.BlankNode | ox.Literal


def rdf(name: str) -> ox.NamedNode:
    """Returns the node of `rdf:name`. Like the three functions below, raises AttributeError for an unknown name."""
    return ox.NamedNode(str(getattr(RDF, name)))


def rdfs(name: str) -> ox.NamedNode:
    """Returns the node of `rdfs:name`."""
    return ox.NamedNode(str(getattr(RDFS, name)))


def owl(name: str) -> ox.NamedNode:
    """Returns the node of `owl:name`."""
    return ox.NamedNode(str(getattr(OWL, name)))


def xsd(name: str) -> ox.NamedNode:
    """Returns the node of `xsd:name`."""
    return ox.NamedNode(str(getattr(XSD, name)))


TYPE: Final = rdf("type")
_FIRST: Final = rdf("first")
_REST: Final = rdf("rest")
_NIL: Final = rdf("nil")
_RESTRICTION: Final = owl("Restriction")
_ON_PROPERTY: Final = owl("onProperty")


class TripleWriter:
    """Collects triples. Blank nodes are numbered, so that the same document always gives the same triples."""

    def __init__(self) -> None:
        self._triples: list[ox.Quad] = []
        self._blanks = 0

    def add(self, subject: Node, predicate: ox.NamedNode, value: Value) -> None:
        """Adds a triple."""
        self._triples.append(ox.Quad(subject, predicate, value))

    def taken(self) -> list[ox.Quad]:
        """Returns the triples added since the last call, and removes them."""
        found, self._triples = self._triples, []
        return found

    def blank(self) -> ox.BlankNode:
        """Returns a new blank node."""
        self._blanks += 1
        return ox.BlankNode(f"b{self._blanks}")

    def typed(self, kind: ox.NamedNode) -> ox.BlankNode:
        """Returns a new blank node of type `kind`."""
        node = self.blank()
        self.add(node, TYPE, kind)
        return node

    def sequence(self, items: Sequence[Value]) -> Node:
        """Writes an RDF list of `items` and returns its head."""
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
        """Writes a class or data range that relates to a list by `predicate` (such as `owl:unionOf`), and returns its
        node."""
        node = self.typed(kind)
        self.add(node, predicate, self.sequence(members))
        return node

    def restriction(self, on: Node, predicate: ox.NamedNode, value: Value) -> ox.BlankNode:
        """Writes the restriction on the property `on` that `predicate` and `value` state, and returns its node."""
        node = self.typed(_RESTRICTION)
        self.add(node, _ON_PROPERTY, on)
        self.add(node, predicate, value)
        return node


# Class expressions, data ranges and inverse properties of OWL as triples, by the W3C mapping.
#
# ObjectSomeValuesFrom(:part :Wheel)     ──▶  [ a owl:Restriction ; owl:onProperty :part ; owl:someValuesFrom :Wheel ]

ENTITIES: Final = {  # what a name is said to be
    "Class": owl("Class"),
    "Datatype": rdfs("Datatype"),
    "ObjectProperty": owl("ObjectProperty"),
    "DataProperty": owl("DatatypeProperty"),
    "AnnotationProperty": owl("AnnotationProperty"),
    "NamedIndividual": owl("NamedIndividual"),
}
_CLASS: Final = owl("Class")
_DATATYPE: Final = rdfs("Datatype")
_LISTS: Final = {  # keyword -> type, predicate to a list of what stands in the brackets
    "ObjectIntersectionOf": (_CLASS, owl("intersectionOf")),
    "ObjectUnionOf": (_CLASS, owl("unionOf")),
    "ObjectOneOf": (_CLASS, owl("oneOf")),
    "DataIntersectionOf": (_DATATYPE, owl("intersectionOf")),
    "DataUnionOf": (_DATATYPE, owl("unionOf")),
    "DataOneOf": (_DATATYPE, owl("oneOf")),
}
_COMPLEMENTS: Final = {
    "ObjectComplementOf": (_CLASS, owl("complementOf")),
    "DataComplementOf": (_DATATYPE, owl("datatypeComplementOf")),
}
_VALUES: Final = {  # keyword -> predicate of a restriction to the last of what stands in the brackets
    "ObjectSomeValuesFrom": owl("someValuesFrom"),
    "ObjectAllValuesFrom": owl("allValuesFrom"),
    "ObjectHasValue": owl("hasValue"),
    "DataSomeValuesFrom": owl("someValuesFrom"),
    "DataAllValuesFrom": owl("allValuesFrom"),
    "DataHasValue": owl("hasValue"),
}
_CARDINALITIES: Final = {"Min": "min{}ardinality", "Max": "max{}ardinality", "Exact": "{}ardinality"}
_TRUE: Final = ox.Literal("true", datatype=xsd("boolean"))


class ClassExpressions:
    """Writes class expressions and returns their nodes."""

    def __init__(self, writer: TripleWriter) -> None:
        self._writer = writer

    def node(self, argument: Argument) -> Node:
        """Returns the node of a class, property, individual or data range. Raises OntologyError with the line."""
        found = self.value(argument)
        if isinstance(found, ox.Literal):
            raise OntologyError(f'the literal "{found.value[:40]}" is used where a name is expected')
        return found

    def value(self, argument: Argument) -> Value:
        """As `node`, but the argument may be a literal."""
        if isinstance(argument, Expression):
            return self._expression(argument)
        if isinstance(argument, int):
            raise OntologyError(f"the number {argument} is used where a name is expected")
        return argument

    def nodes(self, arguments: Sequence[Argument]) -> list[Node]:
        """Returns the nodes of several arguments."""
        return [self.node(each) for each in arguments]

    def _expression(self, found: Expression) -> Node:
        keyword, arguments = found.keyword, found.arguments
        if keyword in ENTITIES or keyword == "Ontology":
            return self.node(_exactly(found, 1)[0])
        if keyword in _LISTS:
            kind, predicate = _LISTS[keyword]
            return self._writer.expression(kind, predicate, [self.value(each) for each in arguments])
        if keyword in _COMPLEMENTS:
            kind, predicate = _COMPLEMENTS[keyword]
            node = self._writer.typed(kind)
            self._writer.add(node, predicate, self.node(_exactly(found, 1)[0]))
            return node
        if keyword in _VALUES:
            return self._restriction(found, _VALUES[keyword])
        if keyword == "ObjectHasSelf":
            return self._writer.restriction(self.node(_exactly(found, 1)[0]), owl("hasSelf"), _TRUE)
        if keyword in ("ObjectInverseOf", "InverseObjectProperty"):
            node = self._writer.blank()
            self._writer.add(node, owl("inverseOf"), self.node(_exactly(found, 1)[0]))
            return node
        if keyword == "DatatypeRestriction":
            return self._faceted(found)
        if keyword.endswith("Cardinality") and keyword.startswith(("Object", "Data")):
            return self._cardinality(found)
        raise OntologyError(f"{keyword} is not an expression of OWL 2", line=found.line)

    def _restriction(self, found: Expression, predicate: ox.NamedNode) -> Node:
        if len(found.arguments) < 2:
            raise OntologyError(f"{found.keyword} needs a property and a value", line=found.line)
        *properties, last = found.arguments
        if len(properties) == 1:
            return self._writer.restriction(self.node(properties[0]), predicate, self.value(last))
        node = self._writer.typed(owl("Restriction"))
        self._writer.add(node, owl("onProperties"), self._writer.sequence(self.nodes(properties)))
        self._writer.add(node, predicate, self.value(last))
        return node

    def _cardinality(self, found: Expression) -> Node:
        words = found.keyword.removeprefix("Object").removeprefix("Data").removesuffix("Cardinality")
        count = found.arguments[0] if found.arguments else None
        if words not in _CARDINALITIES or not isinstance(count, int) or not 2 <= len(found.arguments) <= 3:
            raise OntologyError(f"{found.keyword} needs a number, a property and perhaps a class", line=found.line)
        number = ox.Literal(str(count), datatype=xsd("nonNegativeInteger"))
        qualified = len(found.arguments) == 3
        word = _CARDINALITIES[words].format("QualifiedC" if qualified else "C")
        node = self._writer.restriction(self.node(found.arguments[1]), owl(word[0].lower() + word[1:]), number)
        if qualified:
            on = "onClass" if found.keyword.startswith("Object") else "onDataRange"
            self._writer.add(node, owl(on), self.node(found.arguments[2]))
        return node

    def _faceted(self, found: Expression) -> Node:
        """Reads `DatatypeRestriction(type facet value …)`. In XML each pair of facet and value is an element."""
        flat: list[Argument] = []
        for each in found.arguments[1:]:
            inner = isinstance(each, Expression) and each.keyword == "FacetRestriction"
            flat.extend(each.arguments if inner and isinstance(each, Expression) else (each,))
        if len(flat) < 2 or len(flat) % 2:
            raise OntologyError("DatatypeRestriction needs a datatype, facets and their values", line=found.line)
        facets: list[Node] = []
        for facet, value in zip(flat[::2], flat[1::2], strict=True):
            node = self._writer.blank()
            named = self.node(facet)
            if isinstance(named, ox.NamedNode):
                self._writer.add(node, named, self.value(value))
            facets.append(node)
        node = self._writer.typed(_DATATYPE)
        self._writer.add(node, owl("onDatatype"), self.node(found.arguments[0]))
        self._writer.add(node, owl("withRestrictions"), self._writer.sequence(facets))
        return node


def _exactly(found: Expression, count: int) -> Sequence[Argument]:
    if len(found.arguments) != count:
        raise OntologyError(f"{found.keyword} needs {count} arguments, not {len(found.arguments)}", line=found.line)
    return found.arguments


_PAIRS: Final = {  # keyword -> predicate from the first to the second
    "SubClassOf": rdfs("subClassOf"),
    "SubDataPropertyOf": rdfs("subPropertyOf"),
    "SubAnnotationPropertyOf": rdfs("subPropertyOf"),
    "InverseObjectProperties": owl("inverseOf"),
    "ObjectPropertyDomain": rdfs("domain"),
    "DataPropertyDomain": rdfs("domain"),
    "AnnotationPropertyDomain": rdfs("domain"),
    "ObjectPropertyRange": rdfs("range"),
    "DataPropertyRange": rdfs("range"),
    "AnnotationPropertyRange": rdfs("range"),
    "DatatypeDefinition": owl("equivalentClass"),
}
_CHAINS: Final = {  # keyword -> predicate from each to the next
    "EquivalentClasses": owl("equivalentClass"),
    "EquivalentObjectProperties": owl("equivalentProperty"),
    "EquivalentDataProperties": owl("equivalentProperty"),
    "SameIndividual": owl("sameAs"),
}
_GROUPS: Final = {  # keyword -> predicate of two; type and predicate of more
    "DisjointClasses": (owl("disjointWith"), owl("AllDisjointClasses"), owl("members")),
    "DisjointObjectProperties": (owl("propertyDisjointWith"), owl("AllDisjointProperties"), owl("members")),
    "DisjointDataProperties": (owl("propertyDisjointWith"), owl("AllDisjointProperties"), owl("members")),
    "DifferentIndividuals": (owl("differentFrom"), owl("AllDifferent"), owl("distinctMembers")),
}
_KINDS: Final = {  # keyword -> type of the property
    "FunctionalObjectProperty": owl("FunctionalProperty"),
    "FunctionalDataProperty": owl("FunctionalProperty"),
    "InverseFunctionalObjectProperty": owl("InverseFunctionalProperty"),
    "ReflexiveObjectProperty": owl("ReflexiveProperty"),
    "IrreflexiveObjectProperty": owl("IrreflexiveProperty"),
    "SymmetricObjectProperty": owl("SymmetricProperty"),
    "AsymmetricObjectProperty": owl("AsymmetricProperty"),
    "TransitiveObjectProperty": owl("TransitiveProperty"),
}
_NEGATIVE: Final = {
    "NegativeObjectPropertyAssertion": owl("targetIndividual"),
    "NegativeDataPropertyAssertion": owl("targetValue"),
}
_ONTOLOGY: Final = owl("Ontology")


class Axioms:
    """Writes axioms, one at a time. Raises OntologyError with the line if an axiom is malformed."""

    def __init__(self, writer: TripleWriter, noted: DocumentWarnings) -> None:
        self._writer = writer
        self._noted = noted
        self._classes = ClassExpressions(writer)
        self._ontology: Node = ox.BlankNode("ontology")
        self._others: dict[str, Callable[[Expression, Sequence[Argument]], None]] = {
            "Ontology": self._head,
            "Import": self._import,
            "Annotation": self._annotation,
            "Declaration": self._declaration,
            "DisjointUnion": self._union,
            "SubObjectPropertyOf": self._sub_property,
            "HasKey": self._key,
            "ClassAssertion": self._member,
            "ObjectPropertyAssertion": self._assertion,
            "DataPropertyAssertion": self._assertion,
            "AnnotationAssertion": self._assertion,
        }

    def write(self, axiom: Expression) -> None:
        """Writes the triples of `axiom`. An unknown axiom is left out, with a warning."""
        found = axiom.arguments
        if axiom.keyword != "Annotation":
            found = [each for each in found if not (isinstance(each, Expression) and each.keyword == "Annotation")]
        try:
            if not self._known(axiom, found):
                self._noted.add(axiom.line, f"axiom {axiom.keyword[:40]}", f"{shown(axiom.keyword)} was left out")
        except OntologyError as error:
            raise error if error.line else OntologyError(error.detail, line=axiom.line) from error

    def _known(self, axiom: Expression, found: Sequence[Argument]) -> bool:
        keyword = axiom.keyword
        if keyword in _PAIRS:
            one, other = self._classes.nodes(_count(axiom, found, 2))
            self._writer.add(one, _PAIRS[keyword], other)
        elif keyword in _CHAINS:
            for one, other in pairwise(self._classes.nodes(_count(axiom, found, 2, more=True))):
                self._writer.add(one, _CHAINS[keyword], other)
        elif keyword in _GROUPS:
            self._group(keyword, self._classes.nodes(_count(axiom, found, 2, more=True)))
        elif keyword in _KINDS:
            self._writer.add(self._classes.node(_count(axiom, found, 1)[0]), TYPE, _KINDS[keyword])
        elif keyword in _NEGATIVE:
            relation, source, target = _count(axiom, found, 3)
            node = self._writer.typed(owl("NegativePropertyAssertion"))
            self._writer.add(node, owl("assertionProperty"), self._classes.node(relation))
            self._writer.add(node, owl("sourceIndividual"), self._classes.node(source))
            self._writer.add(node, _NEGATIVE[keyword], self._classes.value(target))
        elif keyword in self._others:
            self._others[keyword](axiom, found)
        else:
            return False
        return True

    def _head(self, axiom: Expression, found: Sequence[Argument]) -> None:
        names = self._classes.nodes(found)
        self._ontology = names[0] if names else self._ontology
        self._writer.add(self._ontology, TYPE, _ONTOLOGY)
        if len(names) > 1:
            self._writer.add(self._ontology, owl("versionIRI"), names[1])

    def _import(self, axiom: Expression, found: Sequence[Argument]) -> None:
        self._writer.add(self._ontology, owl("imports"), self._classes.node(_count(axiom, found, 1)[0]))

    def _annotation(self, axiom: Expression, found: Sequence[Argument]) -> None:
        """Writes an annotation of the ontology. Annotations of annotations come first in it and are left out."""
        found = [each for each in found if not (isinstance(each, Expression) and each.keyword == "Annotation")]
        name, value = _count(axiom, found, 2)
        self._triple(self._ontology, name, value, axiom)

    def _declaration(self, axiom: Expression, found: Sequence[Argument]) -> None:
        entity = _count(axiom, found, 1)[0]
        if not isinstance(entity, Expression) or entity.keyword not in ENTITIES:
            raise OntologyError("a declaration must name a class, a datatype, a property or an individual")
        self._writer.add(self._classes.node(entity), TYPE, ENTITIES[entity.keyword])

    def _union(self, axiom: Expression, found: Sequence[Argument]) -> None:
        whole, *parts = self._classes.nodes(_count(axiom, found, 2, more=True))
        self._writer.add(whole, owl("disjointUnionOf"), self._writer.sequence(parts))

    def _sub_property(self, axiom: Expression, found: Sequence[Argument]) -> None:
        lower, upper = _count(axiom, found, 2)
        if isinstance(lower, Expression) and lower.keyword == "ObjectPropertyChain":
            links = self._writer.sequence(self._classes.nodes(lower.arguments))
            self._writer.add(self._classes.node(upper), owl("propertyChainAxiom"), links)
        else:
            self._writer.add(self._classes.node(lower), rdfs("subPropertyOf"), self._classes.node(upper))

    def _key(self, axiom: Expression, found: Sequence[Argument]) -> None:
        """Reads `HasKey(C (P …) (D …))`. The inner brackets have no keyword; their names form one list."""
        flat: list[Argument] = []
        for each in found:
            flat.extend(each.arguments if isinstance(each, Expression) and not each.keyword else (each,))
        owner, *keys = self._classes.nodes(_count(axiom, flat, 1, more=True))
        self._writer.add(owner, owl("hasKey"), self._writer.sequence(keys))

    def _member(self, axiom: Expression, found: Sequence[Argument]) -> None:
        each_class, individual = self._classes.nodes(_count(axiom, found, 2))
        self._writer.add(individual, TYPE, each_class)

    def _assertion(self, axiom: Expression, found: Sequence[Argument]) -> None:
        name, source, value = _count(axiom, found, 3)
        inverse = isinstance(name, Expression) and name.keyword in ("ObjectInverseOf", "InverseObjectProperty")
        if inverse and isinstance(name, Expression):
            self._triple(self._classes.node(value), _count(name, name.arguments, 1)[0], source, axiom)
        else:
            self._triple(self._classes.node(source), name, value, axiom)

    def _triple(self, subject: Node, name: Argument, value: Argument, axiom: Expression) -> None:
        predicate = self._classes.node(name)
        if not isinstance(predicate, ox.NamedNode):
            raise OntologyError(f"{axiom.keyword} needs a named property")
        self._writer.add(subject, predicate, self._classes.value(value))

    def _group(self, keyword: str, members: Sequence[Node]) -> None:
        two, kind, predicate = _GROUPS[keyword]
        if len(members) == 2:
            self._writer.add(members[0], two, members[1])
        else:
            self._writer.add(self._writer.typed(kind), predicate, self._writer.sequence(members))


def _count(found: Expression, arguments: Sequence[Argument], count: int, *, more: bool = False) -> Sequence[Argument]:
    """Returns `arguments`. Raises OntologyError unless there are `count` of them (with `more`, at least `count`)."""
    if len(arguments) == count or (more and len(arguments) > count):
        return arguments
    raise OntologyError(
        f"{found.keyword} needs {count}{' or more' if more else ''} arguments, not {len(arguments)}",
        line=found.line,
    )


class OwlDocument:
    """Reader of one document. `prefixes` and `warnings` are complete after all triples were read. Linear; memory: one
    axiom.

    Raises OntologyError with the line, from the constructor (XML that a guard rejects) and while reading.
    """

    def __init__(self, data: bytes, syntax: str, base: str, limits: Limits) -> None:
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._xml = syntax == "owl-xml"
        self._data = inspect_xml(data, limits).data if self._xml else data.removeprefix(b"\xef\xbb\xbf")
        self._base = base
        self._limits = limits

    def triples(self) -> Iterator[ox.Quad]:
        """Yields all triples, in document order."""
        noted = DocumentWarnings()
        names = Names(self._base, self._limits.iri)
        writer = TripleWriter()
        axioms = Axioms(writer, noted)
        if self._xml:
            expressions = xml_expressions(self._data, names, noted)
        else:
            expressions = functional_expressions(utf8_text(self._data), names, noted, self._limits)
        for axiom in expressions:
            axioms.write(axiom)
            yield from writer.taken()
        self.prefixes = dict(names.declared)
        self.warnings = list(noted.texts())
