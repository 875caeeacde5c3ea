"""Class expressions, data ranges and inverse properties of OWL as triples, by the W3C mapping.

ObjectSomeValuesFrom(:part :Wheel)     ──▶  [ a owl:Restriction ; owl:onProperty :part ; owl:someValuesFrom :Wheel ]
"""

from collections.abc import Sequence
from typing import Final

import pyoxigraph as ox

from semantic.errors import OntologyError
from semantic.ontology.owl_syntaxes.expressions import Argument, Expression
from semantic.ontology.triple_writer import Node, TripleWriter, Value, owl, rdfs, xsd

__all__ = ["ENTITIES", "ClassExpressions"]

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
    """Writes expressions, and tells the nodes that stand for them."""

    def __init__(self, writer: TripleWriter) -> None:
        self._writer = writer

    def node(self, argument: Argument) -> Node:
        """The node of a class, property, individual or data range. Raises OntologyError with the line."""
        found = self.value(argument)
        if isinstance(found, ox.Literal):
            raise OntologyError(f'the literal "{found.value[:40]}" stands where a name should')
        return found

    def value(self, argument: Argument) -> Value:
        """The same for what may be a literal."""
        if isinstance(argument, Expression):
            return self._expression(argument)
        if isinstance(argument, int):
            raise OntologyError(f"the number {argument} stands where a name should")
        return argument

    def nodes(self, arguments: Sequence[Argument]) -> list[Node]:
        """The nodes of several."""
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
        raise OntologyError(f"{keyword} is no expression of OWL 2", line=found.line)

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
        """`DatatypeRestriction(type facet value …)`; in XML each facet and value is an element of its own."""
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
        raise OntologyError(
            f"{found.keyword} has {len(found.arguments)} things in its brackets, not {count}", line=found.line
        )
    return found.arguments
