"""Events that are graphs: JSON-LD 1.1, RDF and NGSI-LD (docs/matching-semantics.md, rules 20, 21 and 23)."""
