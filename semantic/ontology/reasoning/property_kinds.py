"""What a document uses as a class, as an object property, as a data property: by declaration, else by its use.

Documents whose imports are not there use properties that nobody declares, and plain RDF knows only `rdf:Property`. OWL
must be told: a property whose range, restriction or value is of data is a data property, any other one in use is an
object property. Annotation properties are neither.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyoxigraph as ox

from semantic.ontology import namespaces as ns
from semantic.ontology.reasoning import owl_words as owl
from semantic.ontology.statements import Statements

__all__ = ["PropertyKinds"]


class PropertyKinds:
    """`classes`, `objects`, `data`, `datatypes`: names of each kind. Cost: one reading of the triples; memory: names
    and restrictions."""

    def __init__(self, quads: Iterable[ox.Quad], statements: Statements) -> None:
        types = statements.types
        self.datatypes = {name for name, each in types.items() if owl.DATATYPE in each}
        self.classes = {name for name, each in types.items() if each & owl.CLASS_TYPES and _counts(name)}
        self.classes |= {
            each
            for node, each_types in types.items()
            if not each_types & ns.NOT_CONCEPT_TYPES
            for each in each_types
            if _counts(each)
        }
        self.objects = {name for name, each in types.items() if each & owl.OBJECT_PROPERTY_TYPES and _counts(name)}
        self.data = {name for name, each in types.items() if each & owl.DATA_PROPERTY_TYPES and _counts(name)}
        self._annotations = {name for name, each in types.items() if ns.ANNOTATION_PROPERTY in each}
        undeclared = {name for name, each in types.items() if each & ns.PROPERTY_TYPES and _counts(name)}
        uses = _Uses(quads, self.datatypes)
        self.classes |= {name for name in uses.classes | _listed(statements) if _counts(name)} - self.datatypes
        undeclared |= {name for name in uses.restricted if _counts(name)}
        undeclared |= {name for pair in _related(statements) for name in pair if _counts(name)}
        undeclared -= self.objects | self.data | self._annotations
        self._settle(undeclared, uses, statements)

    def is_property(self, name: str) -> bool:
        return name in self.objects or name in self.data

    def are_alike(self, one: str, other: str) -> bool:
        """Whether two properties are of one kind, `owl:top…Property` being of either."""
        if ns.is_vocabulary(other):
            return True
        return (one in self.objects and other in self.objects) or (one in self.data and other in self.data)

    def _settle(self, undeclared: set[str], uses: "_Uses", statements: Statements) -> None:
        """Sort undeclared properties into kinds: data where anything says so, then as their relatives are."""
        relatives: defaultdict[str, set[str]] = defaultdict(set)
        for one, other in _related(statements):
            relatives[one].add(other)
            relatives[other].add(one)
        told = {name for name in undeclared if any(map(self._is_data, statements.ranges.get(name, ())))}
        settled = self.data | told | (uses.with_data & undeclared)
        frontier = list(settled)
        while frontier:
            for other in relatives.get(frontier.pop(), ()):
                if other in undeclared and other not in settled and other not in uses.with_names:
                    settled.add(other)
                    frontier.append(other)
        self.data |= settled & undeclared
        self.objects |= undeclared - settled

    def _is_data(self, iri: str) -> bool:
        return owl.is_datatype(iri) or iri in self.datatypes


class _Uses:
    """How names are used: one look at every triple."""

    def __init__(self, quads: Iterable[ox.Quad], datatypes: set[str]) -> None:
        self.classes: set[str] = set()
        self.restricted: set[str] = set()
        self.with_data: set[str] = set()
        self.with_names: set[str] = set()
        property_of: dict[str, str] = {}
        fillers: dict[str, bool] = {}  # restriction -> whether it asks for data
        for quad in quads:
            predicate, subject, value = quad.predicate.value, quad.subject, quad.object
            if predicate in owl.CLASS_PAIRS:
                self.classes.update(each.value for each in (subject, value) if isinstance(each, ox.NamedNode))
            elif predicate == owl.ON_PROPERTY and isinstance(value, ox.NamedNode):
                self.restricted.add(value.value)
                property_of[str(subject)] = value.value
            elif predicate in owl.FILLERS:
                fillers[str(subject)] = isinstance(value, ox.Literal) or (
                    isinstance(value, ox.NamedNode) and (owl.is_datatype(value.value) or value.value in datatypes)
                )
                if predicate != owl.HAS_VALUE and isinstance(value, ox.NamedNode) and not fillers[str(subject)]:
                    self.classes.add(value.value)
            elif predicate in (ns.DOMAIN, ns.RANGE) and isinstance(value, ox.NamedNode):
                if not owl.is_datatype(value.value):
                    self.classes.add(value.value)
            elif not ns.is_vocabulary(predicate):
                (self.with_data if isinstance(value, ox.Literal) else self.with_names).add(predicate)
        for restriction, name in property_of.items():
            if fillers.get(restriction):
                self.with_data.add(name)


def _related(statements: Statements) -> Iterator[tuple[str, str]]:
    """Pairs of properties that are of one kind."""
    yield from statements.sub_properties
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_PROPERTY:
            yield one, other


def _listed(statements: Statements) -> set[str]:
    """Names in the lists of intersections and unions, those of data left out."""
    found: set[str] = set()
    seen: set[str] = set()  # cells of all lists: one that many share is walked once
    for lists in (statements.conjunctions, statements.disjunctions):
        for node, heads in lists.items():
            if owl.DATATYPE in statements.types.get(node, ()):
                continue
            for head in heads:
                while head and head != ns.NIL and head not in seen:
                    seen.add(head)
                    item = statements.first.get(head)
                    if item and not item.startswith("_:") and not owl.is_datatype(item):
                        found.add(item)
                    head = statements.rest.get(head, "")
    return found


def _counts(name: str) -> bool:
    return not name.startswith("_:") and not ns.is_vocabulary(name)
