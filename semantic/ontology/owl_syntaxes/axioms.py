"""Axioms of OWL 2 as triples, by the W3C mapping. Annotations of axioms say nothing about concepts and are left out."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import pyoxigraph as ox

from semantic.errors import OntologyError
from semantic.ontology.oddities import Oddities, shown
from semantic.ontology.owl_syntaxes.class_expressions import ENTITIES, ClassExpressions
from semantic.ontology.owl_syntaxes.expressions import Argument, Expression
from semantic.ontology.triple_writer import TYPE, Node, TripleWriter, owl, rdfs

__all__ = ["Axioms"]

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
