"""Axioms of OWL 2 as triples, by the W3C mapping. Annotations of axioms say nothing about concepts and are left out."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.oddities import Oddities, shown
from kindcast.semantic.ontology.owl_syntaxes.expressions import Argument, Expression
from kindcast.semantic.ontology.triple_writer import TYPE, Node, TripleWriter, Value, owl, rdfs, xsd

__all__ = ["Axioms"]


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


# ── axioms ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    """Writes axioms, one at a time. Raises OntologyError with the line where one is malformed."""

    def __init__(self, writer: TripleWriter, odd: Oddities) -> None:
        self._writer = writer
        self._odd = odd
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
        """The triples of `axiom`. One that is not known is left out, with a warning."""
        found = axiom.arguments
        if axiom.keyword != "Annotation":
            found = [each for each in found if not (isinstance(each, Expression) and each.keyword == "Annotation")]
        try:
            if not self._known(axiom, found):
                self._odd.add(axiom.line, f"axiom {axiom.keyword[:40]}", f"{shown(axiom.keyword)} is left out")
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
        """Of the ontology itself; annotations of annotations come first and are left out."""
        found = [each for each in found if not (isinstance(each, Expression) and each.keyword == "Annotation")]
        name, value = _count(axiom, found, 2)
        self._triple(self._ontology, name, value, axiom)

    def _declaration(self, axiom: Expression, found: Sequence[Argument]) -> None:
        entity = _count(axiom, found, 1)[0]
        if not isinstance(entity, Expression) or entity.keyword not in ENTITIES:
            raise OntologyError("a declaration is of a class, a datatype, a property or an individual")
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
        """`HasKey(C (P …) (D …))`: the inner brackets have no keyword, and their names are taken together."""
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
            raise OntologyError(f"{axiom.keyword} needs a property that has a name")
        self._writer.add(subject, predicate, self._classes.value(value))

    def _group(self, keyword: str, members: Sequence[Node]) -> None:
        two, kind, predicate = _GROUPS[keyword]
        if len(members) == 2:
            self._writer.add(members[0], two, members[1])
        else:
            self._writer.add(self._writer.typed(kind), predicate, self._writer.sequence(members))


def _count(found: Expression, arguments: Sequence[Argument], count: int, *, more: bool = False) -> Sequence[Argument]:
    """`arguments`, of which there must be `count`, or at least that many."""
    if len(arguments) == count or (more and len(arguments) > count):
        return arguments
    raise OntologyError(
        f"{found.keyword} has {len(arguments)} things in its brackets, not {count}{' or more' if more else ''}",
        line=found.line,
    )
