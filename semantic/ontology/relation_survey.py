"""What a document says that matters to relations only, noted while its triples pass by on their way to `Statements`.

Class expressions are blank nodes, whose names may be others when the document is read again; so restrictions are noted
in the same pass as the lists and pairs that lead to them. Triples between names can wait for a second pass.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from semantic.ontology import namespaces as ns

__all__ = ["RelationSurvey"]

_NOTED: Final = frozenset({ns.ON_PROPERTY, ns.SOME_VALUES, ns.HAS_VALUE, ns.INVERSE_OF, ns.SHORTHAND})


class RelationSurvey:
    """`used` counts the triples between names by predicate; `on` has the property of each restriction, `fillers` what
    it needs some of; `inverses` are pairs of properties, one of which may be a blank node; `shorthands` are what an OBO
    file calls its relations. Cost: one look-up a triple."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.on: dict[str, str] = {}
        self.fillers: defaultdict[str, set[str]] = defaultdict(set)
        self.inverses: set[tuple[str, str]] = set()
        self.shorthands: defaultdict[str, set[str]] = defaultdict(set)

    def noting(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        """`quads`, each noted before it is handed on."""
        for quad in quads:
            subject, value = quad.subject, quad.object
            predicate = quad.predicate.value
            if predicate in _NOTED:
                self._note(node_of(subject), predicate, value)
            elif isinstance(value, ox.NamedNode) and isinstance(subject, ox.NamedNode):
                self.used[predicate] += 1
            yield quad

    def _note(self, subject: str, predicate: str, value: object) -> None:
        if predicate == ns.SHORTHAND:
            if isinstance(value, ox.Literal) and value.value.strip():
                self.shorthands[subject].add(value.value.strip())
            return
        other = node_of(value)
        if not subject or not other:
            return
        if predicate == ns.ON_PROPERTY:
            self.on[subject] = other
        elif predicate == ns.INVERSE_OF:
            self.inverses.add((subject, other))
        else:
            self.fillers[subject].add(other)


def node_of(term: object) -> str:
    """A name as it is, a blank node as `_:…`; the empty string for anything else."""
    if isinstance(term, ox.NamedNode):
        return term.value
    return "_:" + term.value if isinstance(term, ox.BlankNode) else ""
