"""Several documents that become one vocabulary, and share the relations that are asked for."""

from collections.abc import Iterable, Sequence

from semantic.errors import UnknownRelation
from semantic.ontology.loader import read
from semantic.ontology.records import Limits, Ontology, Reason

__all__ = ["read_several"]


def read_several(
    documents: Iterable[tuple[str, bytes]],
    *,
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
) -> list[Ontology]:
    """The records of each (name, document); each of `relations` must be in one of them at least. A document that lacks
    some of them is read twice. Raises what `read` raises."""
    ontologies: list[Ontology] = []
    refusals: dict[str, list[str]] = {name: [] for name in relations}
    for name, data in documents:
        asked = list(relations)
        while True:
            try:
                ontologies.append(read(data, name=name, limits=limits, reason=reason, relations=asked))
                break
            except UnknownRelation as error:
                if not error.missing:
                    raise  # an ambiguous name
                asked = [each for each in asked if each not in error.missing]
                for each in error.missing:
                    refusals[each].append(f"{name}: {error.detail}")
    for relation, told in refusals.items():
        if len(told) == len(ontologies) > 0:
            detail = f"no document has a relation named {relation!r}; {'; '.join(told)}"
            raise UnknownRelation(detail, missing=(relation,))
    return ontologies
