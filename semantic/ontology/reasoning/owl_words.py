"""The words of OWL 2 that a reasoner understands, sorted by what may stand beside them. Annotations are left out."""

from typing import Final

from rdflib.namespace import OWL, RDF, RDFS, XSD

from semantic.ontology import namespaces as ns

__all__ = [
    "CLASS",
    "CLASS_PAIRS",
    "CLASS_TYPES",
    "DATATYPE",
    "DATATYPES",
    "DATATYPE_PROPERTY",
    "DATA_PROPERTY_TYPES",
    "FILLERS",
    "HAS_VALUE",
    "LITERAL_WORDS",
    "OBJECT_PROPERTY",
    "OBJECT_PROPERTY_TYPES",
    "ON_PROPERTY",
    "PROPERTY_AXIOMS",
    "PROPERTY_PAIRS",
    "TYPES",
    "WORDS",
    "is_datatype",
]

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
