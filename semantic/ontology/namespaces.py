"""The IRIs of RDF vocabularies that the reader of ontologies understands.

Most are taken from the closed namespaces of rdflib, so that a misspelt term is an error at import.
"""

from typing import Final

from rdflib.namespace import DC, DCTERMS, OWL, RDF, RDFS, SH, SKOS, XSD, Namespace

from kindcast.semantic.ontology.records import NOTATION, NOTATIONS, OBO, local_name, namespace

__all__ = ["NOTATION", "NOTATIONS", "OBO", "local_name", "namespace"]

_OBO_IN_OWL = Namespace("http://www.geneontology.org/formats/oboInOwl#")
_IAO = Namespace("http://purl.obolibrary.org/obo/IAO_")
_XL = Namespace("http://www.w3.org/2008/05/skos-xl#")
_QUDT = Namespace("http://qudt.org/schema/qudt/")
_BRICK = Namespace("https://brickschema.org/schema/Brick#")

# Types of concepts
TYPE: Final = str(RDF.type)
CLASS_TYPES: Final = frozenset({str(RDFS.Class), str(OWL.Class), str(OWL.DeprecatedClass)})
DEPRECATED_CLASS: Final = str(OWL.DeprecatedClass)
SKOS_CONCEPT: Final = str(SKOS.Concept)
SKOS_NAMESPACE: Final = str(SKOS)
IN_SCHEME: Final = str(SKOS.inScheme)

# Hierarchy
SUB_CLASS: Final = str(RDFS.subClassOf)
BROADER: Final = frozenset({SUB_CLASS, str(SKOS.broader), str(SKOS.broaderTransitive), str(SKOS.broadMatch)})
NARROWER: Final = frozenset({str(SKOS.narrower), str(SKOS.narrowerTransitive), str(SKOS.narrowMatch)})
TOP_CONCEPT_OF: Final = str(SKOS.topConceptOf)
TOP_CONCEPT_TO: Final = str(SKOS.hasTopConcept)
CONJUNCTION: Final = str(OWL.intersectionOf)
PROPERTY_LISTS: Final = frozenset({str(OWL.propertyChainAxiom), str(OWL.hasKey)})
ONE_OF: Final = str(OWL.oneOf)
DISJUNCTIONS: Final = frozenset({str(OWL.unionOf), str(OWL.disjointUnionOf)})
FIRST: Final = str(RDF.first)
REST: Final = str(RDF.rest)
NIL: Final = str(RDF.nil)

# Equivalence
EQUIVALENT_CLASS: Final = str(OWL.equivalentClass)
EQUIVALENT_PROPERTY: Final = str(OWL.equivalentProperty)
EXACT_MATCH: Final = str(SKOS.exactMatch)
INDIVIDUAL_EQUIVALENCES: Final = frozenset({str(OWL.sameAs), EXACT_MATCH})

# Labels and definitions
PREFERRED_LABELS: Final = frozenset({str(RDFS.label), str(SKOS.prefLabel)})
ALT_LABELS: Final = frozenset({str(SKOS.altLabel), str(_OBO_IN_OWL.hasExactSynonym)})
HIDDEN_LABELS: Final = frozenset(
    {
        str(SKOS.hiddenLabel),
        str(_OBO_IN_OWL.hasBroadSynonym),
        str(_OBO_IN_OWL.hasNarrowSynonym),
        str(_OBO_IN_OWL.hasRelatedSynonym),
    }
)
TITLES: Final = frozenset({str(DC.title), str(DCTERMS.title)})  # many concept schemes have a title instead of a label
XL_PREFERRED: Final = str(_XL.prefLabel)
XL_ALT: Final = str(_XL.altLabel)
XL_HIDDEN: Final = str(_XL.hiddenLabel)
XL_FORM: Final = str(_XL.literalForm)
DEFINITIONS: Final = {  # predicate -> rank; the text with the lowest rank is used as the definition
    str(SKOS.definition): 0,
    str(_IAO["0000115"]): 0,
    str(DCTERMS.description): 1,
    str(DC.description): 1,
    str(RDFS.comment): 2,
}

# Deprecation
DEPRECATED: Final = str(OWL.deprecated)
CONSIDER: Final = str(_OBO_IN_OWL.consider)  # a possible replacement; it is reported to people, but never applied
REPLACED_BY: Final = frozenset({str(DCTERMS.isReplacedBy), str(_BRICK.isReplacedBy), str(_IAO["0100001"])})

# Attributes
PROPERTY_TYPES: Final = frozenset(
    str(each)
    for each in (
        RDF.Property,
        OWL.ObjectProperty,
        OWL.DatatypeProperty,
        OWL.FunctionalProperty,
        OWL.InverseFunctionalProperty,
        OWL.TransitiveProperty,
        OWL.SymmetricProperty,
        OWL.AsymmetricProperty,
        OWL.ReflexiveProperty,
        OWL.IrreflexiveProperty,
        OWL.DeprecatedProperty,
    )
)
SUB_PROPERTY: Final = str(RDFS.subPropertyOf)
RANGE: Final = str(RDFS.range)
DOMAIN: Final = str(RDFS.domain)
UNITS: Final = frozenset({str(_QUDT.unit), str(_QUDT.hasUnit)})

# Requested relations
ON_PROPERTY: Final = str(OWL.onProperty)
SOME_VALUES: Final = str(OWL.someValuesFrom)
HAS_VALUE: Final = str(OWL.hasValue)
INVERSE_OF: Final = str(OWL.inverseOf)
TRANSITIVE: Final = str(OWL.TransitiveProperty)
SYMMETRIC: Final = str(OWL.SymmetricProperty)
SHORTHAND: Final = str(_OBO_IN_OWL.shorthand)  # the name in an OBO file of a relation that has another id

# Types of names that are not concepts, because they describe the document and not the world
ANNOTATION_PROPERTY: Final = str(OWL.AnnotationProperty)
NAMED_INDIVIDUAL: Final = str(OWL.NamedIndividual)
COLLECTION_TYPES: Final = frozenset(
    {str(SKOS.Collection), str(SKOS.OrderedCollection), "http://purl.org/iso25964/skos-thes#ConceptGroup"}
)  # groups for display, often with the labels of the concepts in them
NOT_CONCEPT_TYPES: Final = frozenset(
    str(each) for each in (OWL.Ontology, OWL.AnnotationProperty, OWL.OntologyProperty, RDFS.Datatype)
)
ONTOLOGY: Final = str(OWL.Ontology)
IMPORTS: Final = str(OWL.imports)

# Prefixes that OBO, OWL and SSSOM documents may use without declaring them
WELL_KNOWN_PREFIXES: Final = {
    "dc": str(DC),
    "dcterms": str(DCTERMS),
    "oboInOwl": str(_OBO_IN_OWL),
    "oio": str(_OBO_IN_OWL),
    "owl": str(OWL),
    "rdf": str(RDF),
    "rdfs": str(RDFS),
    "semapv": "https://w3id.org/semapv/vocab/",
    "skos": str(SKOS),
    "sssom": "https://w3id.org/sssom/",
    "xsd": str(XSD),
}

_VOCABULARIES = tuple(str(each) for each in (RDF, RDFS, OWL, SKOS, XSD, SH, _XL))


def is_vocabulary(iri: str) -> bool:
    """Whether `iri` is a term of RDF, RDFS, OWL, SKOS, SKOS-XL, SHACL or XSD. Such a term is never a concept and never
    an ancestor."""
    return iri.startswith(_VOCABULARIES)
