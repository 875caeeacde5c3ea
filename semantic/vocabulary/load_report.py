"""The load report of ontologies: the numbers that an ontologist checks first, as JSON (docs/ontologies.md).

Counts of names and pairs are of what the documents state, before equivalent names are merged, so that they agree with
what an ontology editor shows; `roots` and `max_depth` are of the merged hierarchy.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology.records import Ontology
from kindcast.semantic.vocabulary.hierarchy import Hierarchy
from kindcast.semantic.vocabulary.labels import Names
from kindcast.semantic.vocabulary.relations import Relations

__all__ = ["report"]

LISTED = 100  # entries of a list in the report; the numbers are complete
EXAMPLES = 20  # pairs that a reasoner added


def report(ontologies: Sequence[Ontology], names: Names, hierarchy: Hierarchy, relations: Relations) -> dict[str, Any]:
    """The load report of `ontologies` together. JSON-able."""
    edges = {pair for each in ontologies for pair in each.edges}
    derived = {pair for each in ontologies for pair in each.derived} - {
        pair for each in ontologies for pair in set(each.edges) - each.derived
    }
    parents = Counter(low for low, _ in edges)
    records = names.records.values()
    kinds = Counter(record.kind for record in records)
    languages = Counter(tag or "" for each in records for _, tag in (*each.preferred, *each.synonyms, *each.hidden))
    return {
        "name": ", ".join(each.name for each in ontologies),
        "sha256": ontologies[0].sha256 if len(ontologies) == 1 else _digest(ontologies),
        "triples": sum(each.triples for each in ontologies),
        "concepts": len(records) - kinds["individual"] - kinds["retired"],
        "individuals": kinds["individual"],
        "retired": kinds["retired"],
        "undeclared": sum(not record.declared for record in records),
        "edges": len(edges),
        "derived_edges": len(derived),
        "roots": _roots(names, hierarchy),
        "max_depth": hierarchy.depth,
        "multi_parent": sum(count > 1 for count in parents.values()),
        "synonyms": sum(len(record.synonyms) for record in records),
        "languages": {tag: languages[tag] for tag in sorted(languages)},
        "merged": len(hierarchy.concept_of) - len(hierarchy),
        "merged_across": _merges_across(names, hierarchy),
        "unmerged": [list(group) for group in hierarchy.unmerged[:LISTED]],
        "deprecated": sum(record.deprecated for record in records),
        "relations": [
            {"iri": iri, "label": relations.label(iri), "edges": relations.edge_count(iri)} for iri in relations
        ],
        **_reasoned(ontologies),
        "unresolved_imports": _unresolved(ontologies),
        "warnings": _warnings(ontologies, hierarchy),
    }


def _roots(names: Names, hierarchy: Hierarchy) -> int:
    """Concepts with nothing above them; an individual without a broader concept is no root, nor is a retired name."""
    graph = hierarchy.graph
    return sum(
        not graph.parents(concept) and names.places(hierarchy.names[concept])
        for concept in map(ConceptId, range(len(hierarchy)))
    )


def _reasoned(ontologies: Sequence[Ontology]) -> dict[str, Any]:
    """How far it was reasoned, how many pairs that gave, some of them, and what can have no member."""
    inferred = sorted({pair for each in ontologies for pair in each.inferred})
    reasons = sorted({each.reason for each in ontologies})
    return {
        "reason": ", ".join(reasons) or "none",
        "inferred": len(inferred),
        "inferred_examples": [list(pair) for pair in inferred[:EXAMPLES]],
        "unsatisfiable": sorted({name for each in ontologies for name in each.unsatisfiable})[:LISTED],
    }


def _digest(ontologies: Sequence[Ontology]) -> str:
    return hashlib.sha256("\n".join(sorted(each.sha256 for each in ontologies)).encode()).hexdigest()


def _merges_across(names: Names, hierarchy: Hierarchy) -> list[list[str]]:
    """Groups of names of one concept that different ontologies declare."""
    groups = []
    for group in hierarchy.names:
        if len(group) > 1 and len({names.origins[iri] for iri in group if iri in names.origins}) > 1:
            groups.append(list(group))
            if len(groups) == LISTED:
                break
    return groups


def _unresolved(ontologies: Sequence[Ontology]) -> list[str]:
    """Imports that no ontology here satisfies; the last `#` or `/` does not matter."""
    there = {iri.rstrip("#/") for each in ontologies for iri in each.declares}
    return sorted({iri for each in ontologies for iri in each.imports if iri.rstrip("#/") not in there})


def _warnings(ontologies: Sequence[Ontology], hierarchy: Hierarchy) -> list[str]:
    several = len(ontologies) > 1
    warnings = [f"{each.name}: {text}" if several else text for each in ontologies for text in each.warnings]
    for cycle in hierarchy.cycles[:LISTED]:
        warnings.append(f"each of these is beneath the other, so they are one concept: {_shown(cycle)}")
    if hierarchy.unmerged:
        count, first = len(hierarchy.unmerged), _shown(hierarchy.unmerged[0])
        warnings.append(
            f"skos:exactMatch is not one-to-one in {count} groups of names, which stay apart; one is: {first}"
        )
    return warnings


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
