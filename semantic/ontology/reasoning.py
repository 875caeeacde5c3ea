"""Classification of ontologies by HermiT, a reasoner for OWL 2 DL (`reason="owl"`), in a child process.

    triples ──axioms_of──▶ Axioms: numbered N-Triples
    records, Axioms ──classified──▶ child, classify_task: run_hermit ──▶ Findings ──with_findings──▶ records

The axioms of a document are its triples about classes, properties and individuals. Labels, annotations, imports and the
words of SKOS are left out. Each IRI and each blank node of the document is replaced by a number. So no name can confuse
a parser of the triples or of the reasoner's output, and the reasoner gets no address from which it could fetch
anything. A name that is used as a class or property but not declared (its ontology may be imported) is declared here,
because a restriction on an undeclared property has no meaning.

A finding is new if it does not follow from the stated pairs by walking upwards. A class that can have no member is
listed, and its stated position does not change. An inconsistent document is rejected. HermiT is sound and complete, and
slow in the worst case (Glimm, Horrocks, Motik, Stoilos, Wang: HermiT: An OWL 2 Reasoner, J. Autom. Reasoning 53, 2014).
Its jar is part of the package owlready2. owlready2 itself is not used, because it starts the reasoner without a time
limit and keeps a second copy of the document.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import pyoxigraph as ox
from rdflib.namespace import OWL, RDF, RDFS, XSD

from kindcast.semantic.errors import InconsistentOntology, OntologyError, ReasonerUnavailable, TooCostly
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import Known, Pairs, serves
from kindcast.semantic.ontology.isolation import Cost, Isolation, run_isolated
from kindcast.semantic.ontology.records import ConceptRecord, Ontology, Progress, decode, encode
from kindcast.semantic.ontology.statements import Statements

__all__ = [
    "Axioms",
    "Reasoner",
    "available",
    "axioms_of",
    "classified",
    "classified_encoded",
    "classify_task",
    "find_java",
    "hermit_classpath",
    "run_hermit",
]


# The terms of OWL 2 that a reasoner understands, by the kinds of their subjects and objects. Annotations are left out.

CLASS: Final = str(OWL.Class)
OBJECT_PROPERTY: Final = str(OWL.ObjectProperty)
DATATYPE_PROPERTY: Final = str(OWL.DatatypeProperty)
DATATYPE: Final = str(RDFS.Datatype)
ON_PROPERTY: Final = str(OWL.onProperty)
HAS_VALUE: Final = str(OWL.hasValue)

CLASS_TYPES: Final = ns.CLASS_TYPES
OBJECT_PROPERTY_TYPES: Final = frozenset(
    str(each)
    for each in (
        OWL.ObjectProperty,
        OWL.InverseFunctionalProperty,
        OWL.TransitiveProperty,
        OWL.SymmetricProperty,
        OWL.AsymmetricProperty,
        OWL.ReflexiveProperty,
        OWL.IrreflexiveProperty,
    )
)
DATA_PROPERTY_TYPES: Final = frozenset({DATATYPE_PROPERTY})

TYPES: Final = (
    OBJECT_PROPERTY_TYPES
    | DATA_PROPERTY_TYPES
    | {
        str(each)
        for each in (
            OWL.Class,
            OWL.Restriction,
            OWL.FunctionalProperty,
            OWL.NamedIndividual,
            OWL.AllDisjointClasses,
            OWL.AllDisjointProperties,
            OWL.AllDifferent,
            OWL.NegativePropertyAssertion,
            OWL.DataRange,
            RDFS.Datatype,
            RDF.List,
            OWL.Thing,
            OWL.Nothing,
        )
    }
)
"""The types of OWL and RDFS that a reasoner understands. Classes of other types have been declared already."""

CLASS_PAIRS: Final = frozenset(
    str(each) for each in (RDFS.subClassOf, OWL.equivalentClass, OWL.disjointWith, OWL.complementOf)
)
"""Predicates between two classes."""

PROPERTY_PAIRS: Final = frozenset(
    str(each) for each in (RDFS.subPropertyOf, OWL.equivalentProperty, OWL.propertyDisjointWith, OWL.inverseOf)
)
"""Predicates between two properties."""

PROPERTY_AXIOMS: Final = PROPERTY_PAIRS | {str(each) for each in (RDFS.domain, RDFS.range, OWL.propertyChainAxiom)}
"""Predicates whose subject is a property."""

FILLERS: Final = frozenset(
    str(each) for each in (OWL.someValuesFrom, OWL.allValuesFrom, OWL.onClass, OWL.onDataRange, OWL.hasValue)
)
"""Predicates from a restriction to what it requires of the values of its property."""

LITERAL_WORDS: Final = frozenset(
    str(each)
    for each in (
        OWL.hasValue,
        OWL.hasSelf,
        OWL.cardinality,
        OWL.minCardinality,
        OWL.maxCardinality,
        OWL.qualifiedCardinality,
        OWL.minQualifiedCardinality,
        OWL.maxQualifiedCardinality,
        OWL.targetValue,
        RDF.first,
        XSD.length,
        XSD.minLength,
        XSD.maxLength,
        XSD.pattern,
        XSD.minInclusive,
        XSD.minExclusive,
        XSD.maxInclusive,
        XSD.maxExclusive,
    )
)
"""Predicates whose object may be a literal."""

WORDS: Final = (
    CLASS_PAIRS
    | FILLERS
    | {
        str(each)
        for each in (
            OWL.intersectionOf,
            OWL.unionOf,
            OWL.disjointUnionOf,
            OWL.oneOf,
            OWL.onProperty,
            OWL.onProperties,
            OWL.onDatatype,
            OWL.withRestrictions,
            OWL.datatypeComplementOf,
            OWL.hasKey,
            OWL.members,
            OWL.distinctMembers,
            OWL.sameAs,
            OWL.differentFrom,
            OWL.sourceIndividual,
            OWL.assertionProperty,
            OWL.targetIndividual,
            RDF.rest,
        )
    }
)
"""Predicates whose object must not be a literal, except those also in `LITERAL_WORDS`."""

DATATYPES: Final = frozenset(
    str(each)
    for each in (
        *(OWL.real, OWL.rational, XSD.decimal, XSD.integer, XSD.nonNegativeInteger, XSD.nonPositiveInteger),
        *(XSD.positiveInteger, XSD.negativeInteger, XSD.long, XSD.int, XSD.short, XSD.byte, XSD.unsignedLong),
        *(XSD.unsignedInt, XSD.unsignedShort, XSD.unsignedByte, XSD.double, XSD.float, XSD.string),
        *(XSD.normalizedString, XSD.token, XSD.language, XSD.Name, XSD.NCName, XSD.NMTOKEN, XSD.boolean),
        *(XSD.hexBinary, XSD.base64Binary, XSD.anyURI, XSD.dateTime, XSD.dateTimeStamp, RDF.XMLLiteral),
        *(RDF.PlainLiteral, RDF.langString, RDFS.Literal),
    )
)
"""The datatype map of OWL 2 (Structural Specification, §4): the datatypes whose values a reasoner supports."""


def is_datatype(iri: str) -> bool:
    """Whether `iri` names a datatype: it is in the namespace of XSD or in the datatype map."""
    return iri in DATATYPES or iri.startswith(str(XSD))


# The kinds of names: which are classes, object properties and data properties, by declaration, or else by their use.
#
# A document without its imports uses undeclared properties, and plain RDF only has `rdf:Property`. OWL needs the kind
# of each property: if its range, a restriction on it or one of its values is data, it is a data property. Otherwise it
# is an object property. Annotation properties are neither.


class PropertyKinds:
    """The names of each kind: `classes`, `objects` (object properties), `data` (data properties), `datatypes`. Cost:
    one pass over the triples; memory for names and restrictions."""

    def __init__(self, quads: Iterable[ox.Quad], statements: Statements) -> None:
        types = statements.types
        self.datatypes = {name for name, each in types.items() if DATATYPE in each}
        self.classes = {name for name, each in types.items() if each & CLASS_TYPES and _counts(name)}
        self.classes |= {
            each
            for node, each_types in types.items()
            if not each_types & ns.NOT_CONCEPT_TYPES
            for each in each_types
            if _counts(each)
        }
        self.objects = {name for name, each in types.items() if each & OBJECT_PROPERTY_TYPES and _counts(name)}
        self.data = {name for name, each in types.items() if each & DATA_PROPERTY_TYPES and _counts(name)}
        self._annotations = {name for name, each in types.items() if ns.ANNOTATION_PROPERTY in each}
        undeclared = {name for name, each in types.items() if each & ns.PROPERTY_TYPES and _counts(name)}
        uses = _Uses(quads, self.datatypes)
        self.classes |= {name for name in uses.classes | _listed(statements) if _counts(name)} - self.datatypes
        properties = uses.properties | _members(statements, statements.property_lists)
        undeclared |= {name for name in properties if _counts(name)}
        undeclared -= self.objects | self.data | self._annotations
        self._settle(undeclared, uses, statements)

    def is_property(self, name: str) -> bool:
        return name in self.objects or name in self.data

    def are_alike(self, one: str, other: str) -> bool:
        """Whether two properties are of the same kind. `owl:top…Property` has either kind."""
        if ns.is_vocabulary(other):
            return True
        return (one in self.objects and other in self.objects) or (one in self.data and other in self.data)

    def _settle(self, undeclared: set[str], uses: "_Uses", statements: Statements) -> None:
        """Assigns a kind to each undeclared property. It is a data property if its range or its use with data says so,
        or if a super-property, sub-property or equivalent property is one, unless it has an IRI or blank node as a
        value. Otherwise it is an object property."""
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
        return is_datatype(iri) or iri in self.datatypes


class _Uses:
    """How a document uses names, collected in one pass over the triples."""

    def __init__(self, quads: Iterable[ox.Quad], datatypes: set[str]) -> None:
        self.classes: set[str] = set()
        self.properties: set[str] = set()
        self.with_data: set[str] = set()
        self.with_names: set[str] = set()
        property_of: dict[str, str] = {}
        fillers: dict[str, bool] = {}  # restriction -> whether it requires data
        for quad in quads:
            predicate, subject, value = quad.predicate.value, quad.subject, quad.object
            if predicate in PROPERTY_AXIOMS and isinstance(subject, ox.NamedNode):
                self.properties.add(subject.value)
            if predicate in PROPERTY_PAIRS and isinstance(value, ox.NamedNode):
                self.properties.add(value.value)
            if predicate in CLASS_PAIRS:
                self.classes.update(each.value for each in (subject, value) if isinstance(each, ox.NamedNode))
            elif predicate == ON_PROPERTY and isinstance(value, ox.NamedNode):
                self.properties.add(value.value)
                property_of[str(subject)] = value.value
            elif predicate in FILLERS:
                fillers[str(subject)] = isinstance(value, ox.Literal) or (
                    isinstance(value, ox.NamedNode) and (is_datatype(value.value) or value.value in datatypes)
                )
                if predicate != HAS_VALUE and isinstance(value, ox.NamedNode) and not fillers[str(subject)]:
                    self.classes.add(value.value)
            elif predicate in (ns.DOMAIN, ns.RANGE) and isinstance(value, ox.NamedNode):
                if not is_datatype(value.value):
                    self.classes.add(value.value)
            elif not ns.is_vocabulary(predicate):
                (self.with_data if isinstance(value, ox.Literal) else self.with_names).add(predicate)
        for restriction, name in property_of.items():
            if fillers.get(restriction):
                self.with_data.add(name)


def _related(statements: Statements) -> Iterator[tuple[str, str]]:
    """Yields pairs of properties that are of the same kind: sub-properties and equivalent properties."""
    yield from statements.sub_properties
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_PROPERTY:
            yield one, other


def _listed(statements: Statements) -> set[str]:
    """Returns the IRIs in the lists of intersections and unions of classes, without those of datatypes."""
    lists = (statements.conjunctions, statements.disjunctions)
    nodes = (item for each in lists for item in each.items())
    heads = (head for node, each in nodes if DATATYPE not in statements.types.get(node, ()) for head in each)
    return {name for name in _members(statements, heads) if not is_datatype(name)}


def _members(statements: Statements, heads: Iterable[str]) -> set[str]:
    """Returns the IRIs in lists."""
    found: set[str] = set()
    seen: set[str] = set()  # cells of all lists; a cell that several lists share is visited once
    for head in heads:
        while head and head != ns.NIL and head not in seen:
            seen.add(head)
            item = statements.first.get(head)
            if item and not item.startswith("_:"):
                found.add(item)
            head = statements.rest.get(head, "")
    return found


def _counts(name: str) -> bool:
    return not name.startswith("_:") and not ns.is_vocabulary(name)


# The literals that a reasoner reads. It rejects a document for a single invalid date, so invalid literals are not sent.
#
# The lexical forms are those of XML Schema part 2, after white space around them is removed. Some forms that XML Schema
# allows (years before Christ, IRIs with non-ASCII characters) do not match the patterns here. Such literals are not
# sent either.

_PATTERNS: Final = {
    **dict.fromkeys(
        (
            *(XSD.integer, XSD.long, XSD.int, XSD.short, XSD.byte, XSD.nonNegativeInteger, XSD.positiveInteger),
            *(XSD.nonPositiveInteger, XSD.negativeInteger, XSD.unsignedLong, XSD.unsignedInt, XSD.unsignedShort),
            XSD.unsignedByte,
        ),
        r"[+-]?[0-9]+",
    ),
    XSD.decimal: r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)",
    **dict.fromkeys((XSD.double, XSD.float), r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?INF|NaN"),
    XSD.boolean: r"true|false|1|0",
    XSD.dateTime: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?",
    XSD.dateTimeStamp: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})",
    XSD.anyURI: r"[A-Za-z0-9:/?#@!$&'()*+,;=._~-]*",
    XSD.hexBinary: r"([0-9A-Fa-f]{2})*",
    XSD.base64Binary: r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    **dict.fromkeys((XSD.Name, XSD.NCName, XSD.NMTOKEN), r"[A-Za-z_][A-Za-z0-9_.-]*"),
    XSD.language: r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*",
    RDF.XMLLiteral: r"(?!)",
}
_FORMS: Final = {str(datatype): re.compile(pattern) for datatype, pattern in _PATTERNS.items()}
_DATES: Final = frozenset({str(XSD.dateTime), str(XSD.dateTimeStamp)})


def lexical_form(text: str, datatype: str) -> str | None:
    """Returns `text` in the form that a reasoner reads for `datatype`, or None if it is invalid for `datatype`. A
    datatype without a pattern allows every text.

    >>> integer = str(XSD.integer)
    >>> lexical_form(" 5 ", integer), lexical_form("5.5", integer), lexical_form(" 5 ", str(XSD.string))
    ('5', None, ' 5 ')
    """
    form = _FORMS.get(datatype)
    if form is None:
        return text
    text = text.strip(" \t\r\n")
    if form.fullmatch(text) is None:
        return None
    return text if datatype not in _DATES or _is_in_the_calendar(text) else None


def _is_in_the_calendar(text: str) -> bool:
    try:
        datetime.fromisoformat(re.sub(r"\.[0-9]+", "", text))
    except ValueError:
        return False
    return True


NAMESPACE: Final = "http://k/"
"""The prefix of the numbers of names."""

_NUMBER = re.compile(re.escape(NAMESPACE) + r"(\d{1,9})")

MOST = 2_000_000
"""The maximum number of triples for a reasoner. It is far more than a reasoner processes in minutes, and its heap holds
as many."""

Triples = Callable[[], Iterable[ox.Quad]]
"""A function that returns all triples of the document, from the start in each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axioms:
    """The input of a reasoner. `triples` are N-Triples in ASCII. `names` are the IRIs that the numbers in them stand
    for; the first `classes` of them are classes. `unsupported` are datatypes of the document that an OWL 2 reasoner
    does not support, so that it ignores axioms with their values. `malformed` counts the values that are invalid for
    their datatype and were left out."""

    triples: bytes
    names: tuple[str, ...]
    classes: int = 0
    unsupported: tuple[str, ...] = ()
    malformed: int = 0

    def packed(self) -> bytes:
        """Encodes the axioms as bytes, for another process."""
        return framing.joined(
            framing.packed([self.names, self.classes, self.unsupported, self.malformed]), self.triples
        )

    @classmethod
    def unpacked(cls, data: bytes) -> "Axioms":
        """Decodes the result of `packed`."""
        told, triples = framing.parted(data)
        names, classes, unsupported, malformed = framing.unpacked(told)
        return cls(
            triples=triples,
            names=tuple(names),
            classes=classes,
            unsupported=tuple(unsupported),
            malformed=malformed,
        )

    def named(self, number: str) -> str | None:
        """Returns the IRI that a name in the triples stands for; None for a term of OWL, which is not replaced."""
        if not number.startswith(NAMESPACE):
            return None
        return self.names[int(number.removeprefix(NAMESPACE))]

    def spelt_out(self, text: str) -> str:
        """Returns `text` with each numbered name replaced by its IRI."""
        return _NUMBER.sub(lambda match: self.names[int(match[1])], text)


def axioms_of(triples: Triples, statements: Statements) -> Axioms:
    """Returns the axioms of a document whose statements were collected already. Cost: two passes over its triples.

    Raises OntologyError if there are more than `MOST` triples for the reasoner, and the errors of reading.
    """
    kinds = PropertyKinds(triples(), statements)
    writer = _Writer(kinds, statements)
    lines = dict.fromkeys(writer.declarations())
    for quad in triples():
        line = writer.line(quad)
        if line:
            lines[line] = None
            if len(lines) > MOST:
                raise OntologyError(
                    f"the ontology has more than {MOST:,} triples for the reasoner; load it with reason=none or "
                    f"reason=rdfs"
                )
    return Axioms(
        triples="".join(lines).encode("ascii"),
        names=tuple(writer.numbers),
        classes=len(kinds.classes),
        unsupported=tuple(sorted(writer.unsupported)),
        malformed=writer.malformed,
    )


@dataclass(slots=True)
class _Writer:
    """Writes the triples that a reasoner needs as lines of N-Triples."""

    kinds: PropertyKinds
    statements: Statements
    numbers: dict[str, int] = field(default_factory=dict)
    blanks: dict[str, int] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    malformed: int = 0

    def declarations(self) -> Iterator[str]:
        """Yields the declarations, which come before all other lines: first of every class, then of every property."""
        for word, names in (
            (CLASS, self.kinds.classes),
            (OBJECT_PROPERTY, self.kinds.objects),
            (DATATYPE_PROPERTY, self.kinds.data),
        ):
            for name in sorted(names):
                yield f"{self._name(name)} <{ns.TYPE}> <{word}> .\n"

    def line(self, quad: ox.Quad) -> str:
        """Returns the line of a triple, or "" if the triple is left out."""
        predicate = quad.predicate.value
        subject, value = quad.subject, quad.object
        if isinstance(subject, ox.Triple) or isinstance(value, ox.Triple):
            return ""
        literal = isinstance(value, ox.Literal)
        if predicate == ns.TYPE:
            kept = not literal and self._type_counts(subject, value)
        elif predicate in PROPERTY_AXIOMS:
            kept = not literal and self._property_axiom_counts(predicate, subject, value)
        elif predicate in LITERAL_WORDS:
            kept = True
        elif predicate in WORDS:
            kept = not literal
        else:
            kept = predicate in (self.kinds.data if literal else self.kinds.objects) and all(
                self._is_individual(each.value) for each in (subject, value) if isinstance(each, ox.NamedNode)
            )
            if kept and isinstance(value, ox.Literal):
                form = lexical_form(value.value, value.datatype.value)
                if form is None:
                    self.malformed += 1
                    return ""
        if not kept:
            return ""
        line = f"{self._term(subject)} {self._name(predicate)} {self._term(value)} .\n"
        if isinstance(value, ox.BlankNode) and self._must_be_class(predicate, subject):
            line += f"{self._term(value)} <{ns.TYPE}> <{CLASS}> .\n"  # OWL API ignores those without a type
        return line

    def _type_counts(self, subject: ox.NamedNode | ox.BlankNode, value: object) -> bool:
        if not isinstance(value, ox.NamedNode):
            return True
        if ns.is_vocabulary(value.value):
            return value.value in TYPES
        return not isinstance(subject, ox.NamedNode) or self._is_individual(subject.value)

    def _is_individual(self, name: str) -> bool:
        """Whether `name` can be an individual: it is not a vocabulary term, a property, a part of the document itself
        or a group for display."""
        return not (ns.is_vocabulary(name) or self.kinds.is_property(name) or serves(name, self.statements))

    def _property_axiom_counts(self, predicate: str, subject: object, value: object) -> bool:
        """Whether an axiom about a property is kept. Axioms about annotation properties and axioms between properties
        of different kinds are left out."""
        if not isinstance(subject, ox.NamedNode):
            return isinstance(subject, ox.BlankNode)
        if not self.kinds.is_property(subject.value):
            return False
        if predicate in PROPERTY_PAIRS and isinstance(value, ox.NamedNode):
            return self.kinds.are_alike(subject.value, value.value)
        return True

    def _must_be_class(self, predicate: str, subject: ox.NamedNode | ox.BlankNode) -> bool:
        """Whether the object of `predicate` is a class: the domain of a property, or the range of an object
        property."""
        return predicate == ns.DOMAIN or (predicate == ns.RANGE and subject.value in self.kinds.objects)

    def _term(self, term: object) -> str:
        if isinstance(term, ox.NamedNode):
            return self._name(term.value)
        if isinstance(term, ox.BlankNode):
            return f"_:n{self.blanks.setdefault(term.value, len(self.blanks))}"
        assert isinstance(term, ox.Literal)
        return self._literal(term)

    def _name(self, iri: str) -> str:
        if ns.is_vocabulary(iri):
            return f"<{iri}>"
        return f"<{NAMESPACE}{self.numbers.setdefault(iri, len(self.numbers))}>"

    def _literal(self, literal: ox.Literal) -> str:
        text = (lexical_form(literal.value, literal.datatype.value) or literal.value).translate(_ESCAPES)
        text = "".join(each if each.isascii() and each.isprintable() else _escaped(each) for each in text)
        if literal.language:
            tag = literal.language.lower()
            return f'"{text}"@{tag}' if _LANGUAGE.fullmatch(tag) else f'"{text}"'
        datatype = literal.datatype.value
        if datatype not in DATATYPES and datatype not in self.kinds.datatypes:
            self.unsupported.add(datatype)
        return f'"{text}"^^{self._name(datatype)}'


_LANGUAGE = re.compile(r"[a-z]{1,8}(-[a-z0-9]{1,8})*")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"


# ── running HermiT: its output and its findings ──────────────────────────────────────────────────────────────────────

THING: Final = "http://www.w3.org/2002/07/owl#Thing"
NOTHING: Final = "http://www.w3.org/2002/07/owl#Nothing"
ANSWER_BYTES = 1 << 29
"""The maximum size of HermiT's output, which has about a hundred bytes per pair."""

_ACTIONS = ("--classify", "--classifyIs", "--ignoreUnsupportedDatatypes")
_LINE = re.compile(r"^(SubClassOf|EquivalentClasses|Type)\( (.*) \)$")
_TERM = re.compile(r"<([^<>]*)>")
_JAVA_ERROR = re.compile(r"^(?:Exception in thread \"main\" )?(?:\w+\.)+(\w*(?:Exception|Error))(?::[ ]?(.*))?$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of HermiT, with the names of the document. `pairs` are the direct pairs (class, superclass), `types`
    the direct pairs (individual, class), `groups` the groups of equivalent classes, and `unsatisfiable` the classes
    that can have no member. `owl:Thing` does not occur. A class that is equivalent to it is above all others."""

    pairs: list[tuple[str, str]]
    types: list[tuple[str, str]]
    groups: list[tuple[str, ...]]
    unsatisfiable: list[str]


def run_hermit(axioms: Axioms, *, java: str, classpath: str, heap: int) -> Findings:
    """Runs HermiT on `axioms` with at most `heap` bytes of Java heap, and returns its findings. Blocks. The caller must
    limit the time.

    Raises OntologyError if the ontology is inconsistent or not OWL 2 DL; TooCostly if the heap is too small, the
    expressions are nested too deeply or the output is too large; ReasonerUnavailable if Java does not start.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        document, answer, complaint = (os.path.join(folder, name) for name in ("axioms.nt", "answer", "complaint"))
        Path(document).write_bytes(axioms.triples)
        command = [java, *_options(heap, folder), "-cp", classpath, "org.semanticweb.HermiT.cli.CommandLine"]
        command += [*_ACTIONS, f"file://{document}"]
        with open(answer, "wb") as out, open(complaint, "wb") as err:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
                close_fds=False,
                env=_environment(),
            ).returncode
        if status:
            with open(complaint, encoding="utf-8", errors="replace") as file:
                raise _error(status, axioms.spelt_out(file.read(1 << 16)), heap)
        if os.path.getsize(answer) > ANSWER_BYTES:
            raise TooCostly(f"the reasoner finds more than {ANSWER_BYTES >> 20} MiB of pairs", "memory")
        with open(answer, encoding="ascii", errors="replace") as lines:
            return _understood(lines, axioms)


def _options(heap: int, folder: str) -> Iterator[str]:
    yield f"-Xmx{heap >> 20}m"
    yield "-Xss16m"  # HermiT visits nested expressions by recursion
    yield "-XX:+UseSerialGC"  # one thread is enough; other collectors reserve memory for each core
    yield "-XX:MaxMetaspaceSize=128m"
    yield "-XX:CompressedClassSpaceSize=64m"
    yield "-XX:ReservedCodeCacheSize=64m"
    yield "-XX:-UsePerfData"  # no file outside the scratch folder
    yield "-XX:+ExitOnOutOfMemoryError"
    yield f"-XX:ErrorFile={folder}/crash"
    yield f"-Djava.io.tmpdir={folder}"
    yield "-Djava.awt.headless=true"
    yield "-Dfile.encoding=UTF-8"


def _environment() -> dict[str, str]:
    """Returns the environment of Java. It has no Java options. It has few malloc arenas, each of which reserves 64 MiB
    of address space."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"MALLOC_ARENA_MAX": "2"}


def _understood(lines: Iterable[str], axioms: Axioms) -> Findings:
    found = Findings(pairs=[], types=[], groups=[], unsatisfiable=[])
    everything: list[str] = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        kind, terms = match[1], _TERM.findall(match[2])
        names = [name for name in map(axioms.named, terms) if name is not None]
        if kind == "EquivalentClasses":
            if NOTHING in terms:
                found.unsatisfiable.extend(names)
            elif len(names) > 1:
                found.groups.append(tuple(names))
            if THING in terms:
                everything = names
        elif len(names) == 2:  # not owl:Thing, not an individual without a name
            (found.pairs if kind == "SubClassOf" else found.types).append((names[0], names[1]))
    if everything:  # HermiT does not report every class as a subclass of owl:Thing
        placed = {low for low, _ in found.pairs}.union(everything, found.unsatisfiable)
        found.pairs.extend((each, everything[0]) for each in axioms.names[: axioms.classes] if each not in placed)
    return found


def _error(status: int, said: str, heap: int) -> OntologyError:
    """Returns the error for a HermiT that failed, from its exit status and its standard error."""
    match = _JAVA_ERROR.search(said)
    kind, detail = (match[1], (match[2] or "").strip()) if match else ("", said.strip()[:500])
    if kind == "InconsistentOntologyException":
        return InconsistentOntology(
            "the ontology is inconsistent: its axioms contradict each other, for example by an individual in two "
            "disjoint classes"
        )
    if "OutOfMemoryError" in said or "OutOfMemoryError" in kind or status == 3:
        return TooCostly(
            f"classifying the ontology takes more than {heap >> 20:,} MiB of Java heap and was stopped", "memory"
        )
    if kind == "StackOverflowError":
        return TooCostly("its class expressions are nested too deeply to be classified", "crash")
    if "Could not reserve enough space" in said or "Could not create the Java Virtual Machine" in said:
        return ReasonerUnavailable(f"Java could not be started for reason=owl: {said.strip()[:500]}")
    told = f"{kind}: {detail}" if kind else detail or f"it ended with status {status}"
    return OntologyError(f"the ontology cannot be classified: HermiT reports {told}")


# Findings of a reasoner are added to the records of a document. Only new ones are added, and marked as inferred.

SHOWN = 3  # names that a warning shows; the records have all


def with_findings(ontology: Ontology, findings: Findings, axioms: Axioms) -> Ontology:
    """Returns `ontology` with the pairs of `findings` that do not follow from its own pairs, and with its unsatisfiable
    classes.

    The first of equivalent names in sorted order represents all of them, whichever name the reasoner uses. So the same
    axioms in another order give the same records. Cost: a walk upwards for each name that the reasoner puts below
    another name.
    """
    hopeless = set(findings.unsatisfiable)
    first = {name: min(group) for group in findings.groups for name in group}
    same = _same(Known(ontology.edges, ontology.equivalences), findings, hopeless)
    equivalences = tuple(sorted({*ontology.equivalences, *same}))
    pairs = {
        (first.get(low, low), first.get(high, high)) for low, high in findings.pairs if hopeless.isdisjoint((low, high))
    }
    beneath = Known(ontology.edges, equivalences).news(pairs)
    edges = tuple(sorted({*ontology.edges, *beneath}))
    members = Known(edges, equivalences).memberships(
        ontology.types, {(one, first.get(each, each)) for one, each in findings.types if each not in hopeless}
    )
    return replace(
        ontology,
        concepts=_concepts(ontology, beneath | same, members),
        edges=edges,
        types=tuple(sorted({*ontology.types, *members})),
        equivalences=equivalences,
        inferred=ontology.inferred | beneath | same | members,
        unsatisfiable=tuple(sorted(hopeless)),
        warnings=(*ontology.warnings, *_warnings(sorted(hopeless), axioms)),
    )


def _same(known: Known, findings: Findings, hopeless: set[str]) -> Pairs:
    """Returns the pairs of equivalent names that `known` does not imply."""
    news: Pairs = set()
    for group in findings.groups:
        first, *others = sorted(name for name in group if name not in hopeless)
        above = known.above(first)
        news.update((first, each) for each in others if each not in above or first not in known.above(each))
    return news


def _concepts(ontology: Ontology, pairs: Pairs, members: Pairs) -> tuple[ConceptRecord, ...]:
    """Returns the records of `ontology`, and one for each name that is a concept only by reasoning: a class that the
    document only uses in restrictions, or an individual without a stated class."""
    missing = {name: "class" for pair in pairs for name in pair} | {name: "class" for _, name in members}
    missing = {one: "individual" for one, _ in members} | missing
    for record in ontology.concepts:
        missing.pop(record.iri, None)
    if not missing:
        return tuple(ontology.concepts)
    told = {remark.iri: remark for remark in ontology.remarks}
    found = (
        replace(
            told.get(iri, ConceptRecord(iri=iri)), kind="class" if kind == "class" else "individual", declared=False
        )
        for iri, kind in missing.items()
    )
    return tuple(sorted((*ontology.concepts, *found), key=lambda record: record.iri))


def _warnings(hopeless: list[str], axioms: Axioms) -> list[str]:
    warnings = []
    if hopeless:
        more = f" and {len(hopeless) - SHOWN} more" if len(hopeless) > SHOWN else ""
        warnings.append(f"unsatisfiable classes, which can have no members: {', '.join(hopeless[:SHOWN])}{more}")
    if axioms.malformed:
        warnings.append(f"{axioms.malformed} values are invalid for their datatype and are left out of the reasoning")
    if axioms.unsupported:
        warnings.append(
            f"the reasoner does not support values of {', '.join(axioms.unsupported[:SHOWN])}; axioms with them are "
            f"left out"
        )
    return warnings


def classify_task(payload: bytes, progress: Progress) -> bytes:
    """The task of the child: from (options, axioms, encoded records) to encoded records with the findings."""
    told, packed, encoded = framing.parted(payload)
    del payload
    axioms = Axioms.unpacked(packed)
    progress("reason", 0, None)
    findings = run_hermit(axioms, **framing.unpacked(told))
    progress("encode", 0, None)
    return encode(with_findings(decode(encoded), findings, axioms))


# ── the child process, as its callers see it ──────────────────────────────────────────────────────────────────────────

TASK: Final = "kindcast.semantic.ontology.reasoning:classify_task"


def find_java(java: str | None = None) -> str:
    """Returns the full path of a Java runtime: `java` (a path, or a name on PATH) if given, else the one in JAVA_HOME,
    else `java` on PATH.

    Raises ReasonerUnavailable if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    wanted = [java] if java else [*([os.path.join(home, "bin", "java")] if home else []), "java"]
    for each in wanted:
        found = shutil.which(each)
        if found:
            return os.path.realpath(found)
    looked = f"at {java}" if java else "on PATH nor under JAVA_HOME"
    raise ReasonerUnavailable(
        f"reason=owl needs a Java runtime, version 8 or later, but there is none {looked}: install one (on Debian: "
        "apt-get install default-jre-headless) or set JAVA_HOME; reason=none and reason=rdfs need none"
    )


def hermit_classpath() -> str:
    """Returns the class path of HermiT in the folder of owlready2, without an import of owlready2. Raises
    ReasonerUnavailable."""
    found = importlib.util.find_spec("owlready2")
    folder = Path(found.origin).parent / "hermit" if found and found.origin else None
    if folder is None or not (folder / "HermiT.jar").is_file():
        raise ReasonerUnavailable("reason=owl needs HermiT, which is part of the package owlready2: install owlready2")
    return os.pathsep.join((str(folder), str(folder / "HermiT.jar")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoner:
    """The Java runtime of the reasoner, and its limits of Java heap and time. The cost of reasoning, unlike that of all
    other steps, cannot be predicted from the size of a document."""

    java: str | None = None
    heap_bytes: int = 2 << 30
    seconds: float = 300.0

    def isolation(self, java: str) -> Isolation:
        """Returns the isolation of the child: it may start only `java`, open files only in its folder, and use memory
        for the Java heap and the code of Java."""
        return Isolation(
            memory=self.heap_bytes + (3 << 30),  # address space; Java and its libraries take 1 GiB besides the heap
            cpu_seconds=2 * self.seconds,  # a JVM has one or two threads besides the one that reasons
            wall_seconds=self.seconds,
            open_files=256,
            file_bytes=1 << 30,
            programs=(java,),
            folder=True,
        )


def available(reasoner: Reasoner | None = None) -> None:
    """Raises ReasonerUnavailable if there is no Java or no HermiT."""
    find_java((reasoner or Reasoner()).java)
    hermit_classpath()


def classified(
    ontology: Ontology,
    axioms: Axioms,
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
) -> Ontology:
    """Returns `ontology` with the findings of a reasoner about its `axioms`. Blocks. Any thread may call it.

    Raises OntologyError if the document is inconsistent or not OWL 2 DL; TooCostly for a limit; ReasonerUnavailable.
    """
    return decode(classified_encoded(encode(ontology), axioms, reasoner=reasoner, progress=progress))


def classified_encoded(
    encoded: bytes,
    axioms: Axioms,
    *,
    reasoner: Reasoner | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """Does the same as `classified`, from encoded records to encoded records. `account` gets the cost of the child."""
    reasoner = reasoner or Reasoner()
    java = find_java(reasoner.java)
    options = {"java": java, "classpath": hermit_classpath(), "heap": reasoner.heap_bytes}
    try:
        return run_isolated(
            TASK,
            framing.joined(framing.packed(options), axioms.packed(), encoded),
            reasoner.isolation(java),
            progress=progress,
            cancelled=cancelled,
            account=account,
        )
    except TooCostly as error:
        if error.limit not in ("wall", "cpu"):
            raise
        raise TooCostly(
            f"classifying the ontology takes longer than {reasoner.seconds:,.0f} seconds and was stopped: raise the "
            "limit, or load the ontology with reason=none or reason=rdfs",
            error.limit,
        ) from error
