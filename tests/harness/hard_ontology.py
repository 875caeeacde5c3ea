"""An ontology of some lines that no reasoner ends with: numbers, inverses and choices, each in the way of others."""

__all__ = ["HARD"]

CLASSES = 40

HARD = """
@prefix : <http://e/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:p a owl:ObjectProperty ; owl:inverseOf :q . :q a owl:ObjectProperty .
""" + "\n".join(
    f""":B{n} a owl:Class ; owl:equivalentClass [ owl:unionOf ( :C{n} :D{n} ) ] ; rdfs:subClassOf
    [ a owl:Restriction ; owl:onProperty :p ; owl:onClass :B{(n * 7 + 1) % CLASSES} ;
      owl:qualifiedCardinality "30"^^xsd:nonNegativeInteger ] ,
    [ a owl:Restriction ; owl:onProperty :q ; owl:onClass :C{(n * 3 + 2) % CLASSES} ;
      owl:maxQualifiedCardinality "9"^^xsd:nonNegativeInteger ] .
    :C{n} a owl:Class . :D{n} a owl:Class ."""
    for n in range(CLASSES)
)
"""Turtle."""
