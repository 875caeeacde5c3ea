"""The part of a document that a reasoner of OWL is given, as N-Triples with numbers for names.

Only what bears on classes, properties and individuals goes there: no labels, no annotations, no imports, nothing of
SKOS. Each IRI of the document becomes a number, each blank node too, so that nothing in a name can trouble a reader of
triples or of answers, and so that the reasoner learns of no place to fetch anything from. What is used as a class or as
a property and nowhere declared (its ontology is imported, say) is declared here: an undeclared property would make
every restriction on it meaningless.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyoxigraph as ox
from rdflib.namespace import OWL, RDF, RDFS, XSD

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import serves
from kindcast.semantic.ontology.statements import Statements

__all__ = ["Axioms", "axioms_of"]


# The words of OWL 2 that a reasoner understands, sorted by what may stand beside them. Annotations are left out.

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
"""Types of OWL and RDFS that say something to a reasoner; classes of other kinds were declared already."""

CLASS_PAIRS: Final = frozenset(
    str(each) for each in (RDFS.subClassOf, OWL.equivalentClass, OWL.disjointWith, OWL.complementOf)
)
"""Between two classes."""

PROPERTY_PAIRS: Final = frozenset(
    str(each) for each in (RDFS.subPropertyOf, OWL.equivalentProperty, OWL.propertyDisjointWith, OWL.inverseOf)
)
"""Between two properties."""

PROPERTY_AXIOMS: Final = PROPERTY_PAIRS | {str(each) for each in (RDFS.domain, RDFS.range, OWL.propertyChainAxiom)}
"""Of a property."""

FILLERS: Final = frozenset(
    str(each) for each in (OWL.someValuesFrom, OWL.allValuesFrom, OWL.onClass, OWL.onDataRange, OWL.hasValue)
)
"""What a restriction asks of the values of its property."""

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
"""What may have a literal."""

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
"""What has a node."""

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
"""The datatype map of OWL 2 (Structural Specification, §4): what a reasoner knows the values of."""


def is_datatype(iri: str) -> bool:
    """Whether `iri` is a datatype by its name: one of XSD, or of the datatype map."""
    return iri in DATATYPES or iri.startswith(str(XSD))


# What a document uses as a class, as an object property, as a data property: by declaration, else by its use.
#
# Documents whose imports are not there use properties that nobody declares, and plain RDF knows only `rdf:Property`.
# OWL must be told: a property whose range, restriction or value is of data is a data property, any other one in use is
# an object property. Annotation properties are neither.


class PropertyKinds:
    """`classes`, `objects`, `data`, `datatypes`: names of each kind. Cost: one reading of the triples; memory: names
    and restrictions."""

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
        return is_datatype(iri) or iri in self.datatypes


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
            if predicate in CLASS_PAIRS:
                self.classes.update(each.value for each in (subject, value) if isinstance(each, ox.NamedNode))
            elif predicate == ON_PROPERTY and isinstance(value, ox.NamedNode):
                self.restricted.add(value.value)
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
            if DATATYPE in statements.types.get(node, ()):
                continue
            for head in heads:
                while head and head != ns.NIL and head not in seen:
                    seen.add(head)
                    item = statements.first.get(head)
                    if item and not item.startswith("_:") and not is_datatype(item):
                        found.add(item)
                    head = statements.rest.get(head, "")
    return found


def _counts(name: str) -> bool:
    return not name.startswith("_:") and not ns.is_vocabulary(name)


# Literals that a reasoner reads: it refuses a whole document for one date that is none, which is not our way.
#
# Forms are those of XML Schema part 2, white space around them left out; where that allows more than a pattern here
# (years before Christ, IRIs of other scripts), the literal counts as one that is not read.

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
    """`text` as a reasoner reads it under `datatype`; None where it does not. Datatypes without a pattern take all.

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
"""Before the number of a name."""

_NUMBER = re.compile(re.escape(NAMESPACE) + r"(\d{1,9})")

MOST = 2_000_000
"""Triples that are given to a reasoner: far more than it masters in minutes, and what its heap holds."""

Triples = Callable[[], Iterable[ox.Quad]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axioms:
    """N-Triples in ASCII, and the IRIs that stand behind the numbers in them, the first `classes` of which are classes;
    `unsupported` are datatypes of the document that a reasoner of OWL 2 does not know, so that it ignores what is said
    by their values, and `malformed` counts values that are none of their datatype and were left out."""

    triples: bytes
    names: tuple[str, ...]
    classes: int = 0
    unsupported: tuple[str, ...] = ()
    malformed: int = 0

    def packed(self) -> bytes:
        """As bytes, for another process."""
        return framing.joined(
            framing.packed([self.names, self.classes, self.unsupported, self.malformed]), self.triples
        )

    @classmethod
    def unpacked(cls, data: bytes) -> "Axioms":
        """Again as they were."""
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
        """The IRI behind a name in the triples; None for a word of OWL."""
        if not number.startswith(NAMESPACE):
            return None
        return self.names[int(number.removeprefix(NAMESPACE))]

    def spelt_out(self, text: str) -> str:
        """`text` with the IRIs of the document in place of their numbers."""
        return _NUMBER.sub(lambda match: self.names[int(match[1])], text)


def axioms_of(triples: Triples, statements: Statements) -> Axioms:
    """What the document, whose statements were collected already, has for a reasoner. Cost: two readings of it.

    Raises OntologyError beyond `MOST` triples, and what reading raises.
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
    """Triples as lines, where they are for a reasoner."""

    kinds: PropertyKinds
    statements: Statements
    numbers: dict[str, int] = field(default_factory=dict)
    blanks: dict[str, int] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    malformed: int = 0

    def declarations(self) -> Iterator[str]:
        """The kinds of names, before everything else: every class, then every property."""
        for word, names in (
            (CLASS, self.kinds.classes),
            (OBJECT_PROPERTY, self.kinds.objects),
            (DATATYPE_PROPERTY, self.kinds.data),
        ):
            for name in sorted(names):
                yield f"{self._name(name)} <{ns.TYPE}> <{word}> .\n"

    def line(self, quad: ox.Quad) -> str:
        """The triple as a line; "" where it is none for a reasoner."""
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
        return f"{self._term(subject)} {self._name(predicate)} {self._term(value)} .\n"

    def _type_counts(self, subject: ox.NamedNode | ox.BlankNode, value: object) -> bool:
        if not isinstance(value, ox.NamedNode):
            return True
        if ns.is_vocabulary(value.value):
            return value.value in TYPES
        return not isinstance(subject, ox.NamedNode) or self._is_individual(subject.value)

    def _is_individual(self, name: str) -> bool:
        """Whether a type of `name` says something of the world, and not of the schema or of the document."""
        return not (ns.is_vocabulary(name) or self.kinds.is_property(name) or serves(name, self.statements))

    def _property_axiom_counts(self, predicate: str, subject: object, value: object) -> bool:
        """Axioms of properties of one and the same kind, annotation properties being none."""
        if not isinstance(subject, ox.NamedNode):
            return isinstance(subject, ox.BlankNode)
        if not self.kinds.is_property(subject.value):
            return False
        if predicate in PROPERTY_PAIRS and isinstance(value, ox.NamedNode):
            return self.kinds.are_alike(subject.value, value.value)
        return True

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
