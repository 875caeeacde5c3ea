"""Relations as hierarchies beside is-a: docs/matching-semantics.md, rule 11.

`x R C` holds when a path leads from x to C that goes up is-a any number of steps, then along R at least once, with is-a
before, between and after. Engines know nothing of it: each concept that an edge of R leads to, and everything above
that, gets a *shadow*, a node of the same graph that stands for "reached by R".

    a ──is-a──▶ b ──R──▶ c ──is-a──▶ d              a        b                 concepts
                                                    a ──▶ b ──▶ c′ ──▶ d′      shadows, numbered after all concepts

So `x R d` is "x is at or beneath d′", which an index decides as it decides `isa`. Circles of R become one shadow of
several concepts. What only looks at concepts never sees a shadow: it has the graph without them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph
from kindcast.semantic.errors import InvalidDeclaration, OntologyError
from kindcast.semantic.ontology.iris import local_name
from kindcast.semantic.ontology.records import Label, Ontology
from kindcast.semantic.ontology.relation_names import RelationNames
from kindcast.semantic.vocabulary.hierarchy import Hierarchy
from kindcast.semantic.vocabulary.labels import label_in

__all__ = ["Relations", "Step", "union_iri", "union_parts"]

MOST_SHADOWS = 8_000_000
"""Shadows of all relations together: four relations over as many concepts as one document may have. Each costs some
tens of bytes, as a concept does."""

Step = tuple[ConceptId, bool]
"""Where a step leads, and whether it is one of the relation."""

Edges = dict[ConceptId, tuple[ConceptId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relations:
    """The relations of one vocabulary. Immutable; may be read from any number of threads.

    `graph` has the concepts of the hierarchy, with the same numbers, and after them the shadows; it is the hierarchy's
    own where there are no relations. `labels` are those of each relation by IRI.
    """

    graph: ConceptGraph
    names: RelationNames
    labels: Mapping[str, tuple[Label, ...]]
    unions: frozenset[str]
    """The IRIs of those that are declared as unions of others."""
    _edges: Mapping[str, Edges] = field(repr=False)
    _shadows: Mapping[str, Mapping[ConceptId, ConceptId]] = field(repr=False)
    _hierarchy: Hierarchy = field(repr=False)

    @classmethod
    def build(
        cls, ontologies: Sequence[Ontology], hierarchy: Hierarchy, unions: Mapping[str, Any] | None = None
    ) -> "Relations":
        """The relations that were asked for in any of `ontologies`; those of one name are one relation. `unions` are
        declared: name → `{"union": [names of parts]}`.

        Cost: per relation linear in its edges and in what is above their ends. Raises OntologyError beyond
        `MOST_SHADOWS`, InvalidDeclaration.
        """
        prefixes = {pair for each in ontologies for pair in each.prefixes}
        stated = _Stated(ontologies)
        stated.unite({name: union_parts(name, each) for name, each in (unions or {}).items()}, prefixes)
        layers = [_Layer(_numbered(stated.edges(iri), hierarchy), hierarchy.graph) for iri in stated.labels]
        shadows: dict[str, Mapping[ConceptId, ConceptId]] = {}
        parents: list[tuple[int, int]] = []
        size = len(hierarchy)
        for iri, layer in zip(stated.labels, layers, strict=True):
            shadows[iri] = layer.numbered(size)
            parents.extend(layer.steps(shadows[iri]))
            size += layer.count
            if size - len(hierarchy) > MOST_SHADOWS:
                raise OntologyError(
                    f"the relations lead to more than {MOST_SHADOWS:,} concepts in all: ask for fewer of them"
                )
        labels = {iri: [text for text, _ in texts] for iri, texts in stated.labels.items()}
        return cls(
            graph=hierarchy.graph.extended(size - len(hierarchy), parents) if parents else hierarchy.graph,
            names=RelationNames(labels, prefixes),
            unions=frozenset(stated.unions),
            labels=stated.labels,
            _edges={iri: layer.edges for iri, layer in zip(stated.labels, layers, strict=True)},
            _shadows=shadows,
            _hierarchy=hierarchy,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[str]:
        """The IRIs, sorted."""
        return iter(self.labels)

    def __contains__(self, iri: object) -> bool:
        return iri in self.labels

    def meant(self, name: str) -> tuple[str, ...]:
        """The IRIs that a name may mean: of a union that is declared under it, else as `names` has it."""
        declared = union_iri(name)
        return (declared,) if declared in self.unions else self.names.meant(name)

    def label(self, iri: str, language: str = "en") -> str:
        """The label to show: the one that fits `language` best, else the local name of the IRI."""
        return label_in(self.labels.get(iri, ()), language) or local_name(iri) or iri

    def edge_count(self, iri: str) -> int:
        """The edges of a relation, after equivalent names are merged."""
        return sum(map(len, self._edges[iri].values()))

    def shadow(self, iri: str, concept: ConceptId) -> ConceptId | None:
        """The node of `graph` that everything is beneath which is in the relation `iri` to `concept`; None where
        nothing is."""
        return self._shadows.get(iri, {}).get(concept)

    def holds(self, concept: ConceptId, iri: str, upper: ConceptId) -> bool:
        """Whether `concept` is in the relation to `upper`."""
        shadow = self.shadow(iri, upper)
        return shadow is not None and shadow in self.graph.ancestors(concept)

    def next(self, concept: ConceptId) -> Iterator[tuple[str, ConceptId]]:
        """Every edge from `concept`: the relation and where it leads."""
        for iri, edges in self._edges.items():
            for end in edges.get(concept, ()):
                yield iri, end

    def path(self, concept: ConceptId, iri: str, upper: ConceptId) -> tuple[Step, ...] | None:
        """A shortest path by which `concept` is in the relation to `upper`, from the first step on; None where there is
        none. Cost: one walk over what is above."""
        edges = self._edges.get(iri, {})
        start = (concept, False, True)  # where, whether the relation was taken, whether a class may be entered
        came_from: dict[_Place, _Place] = {start: start}
        frontier: list[_Place] = [start]
        while frontier:
            reached: list[_Place] = []
            for here in frontier:
                for place in self._further(here, edges):
                    if place in came_from:
                        continue
                    came_from[place] = here
                    if place[0] == upper and place[1]:
                        return _steps(came_from, start, place)
                    reached.append(place)
            frontier = reached
        return None

    def _further(self, here: "_Place", edges: Edges) -> Iterator["_Place"]:
        concept, taken, may_enter = here
        graph = self._hierarchy.graph
        for end in edges.get(concept, ()):
            yield end, True, True
        for parent in graph.parents(concept):
            yield parent, taken, False
        if may_enter:
            for each in graph.entries(concept):
                yield each, taken, False


_Place = tuple[ConceptId, bool, bool]


def _steps(came_from: Mapping[_Place, _Place], start: _Place, end: _Place) -> tuple[Step, ...]:
    """The path as steps. A step of the relation is one that ends where a class may be entered again."""
    steps: list[Step] = []
    place = end
    while place != start:
        steps.append((place[0], place[2]))
        place = came_from[place]
    return tuple(reversed(steps))


UNION: Final = "urn:kindcast:relation:"
"""How the IRIs of unions begin."""
MOST_PARTS = 64


def union_iri(name: str) -> str:
    """The IRI of the union that is declared under a name.

    >>> union_iri("belongs to")
    'urn:kindcast:relation:belongs%20to'
    """
    return UNION + quote(name, safe="")


def union_parts(name: str, declared: Any) -> tuple[str, ...]:
    """The names of the parts of a union, as its declaration has them. Raises InvalidDeclaration."""
    parts = declared.get("union") if isinstance(declared, Mapping) else None
    if not isinstance(parts, list | tuple) or not 0 < len(parts) <= MOST_PARTS or set(declared) != {"union"}:
        raise InvalidDeclaration(f'relation {name!r}: {{"union": [1 to {MOST_PARTS} names of relations]}} is expected')
    if not all(isinstance(each, str) and each.strip() for each in parts):
        raise InvalidDeclaration(f"relation {name!r}: a relation is named by an IRI, a CURIE, a local name or a label")
    return tuple(parts)


class _Stated:
    """Labels and edges of every relation, by name, over all documents. A document may use a property and another one
    say that it is narrower than a relation, or its inverse."""

    def __init__(self, ontologies: Sequence[Ontology]) -> None:
        labels: defaultdict[str, set[Label]] = defaultdict(set)
        self._facts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.unions: dict[str, frozenset[str]] = {}
        """IRI → those of its parts."""
        self._derived: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._narrower: defaultdict[str, set[str]] = defaultdict(set)
        self._inverses: defaultdict[str, set[str]] = defaultdict(set)
        for ontology in ontologies:
            for record in ontology.relations:
                labels[record.iri].update(record.labels)
                self._facts[record.iri].update(edge for edge in record.edges if edge not in record.derived)
                self._derived[record.iri].update(record.derived)
                self._narrower[record.iri].update(record.narrower)
                self._inverses[record.iri].update(record.inverses)
        if labels:
            for each in (each for ontology in ontologies for each in ontology.properties):
                for parent in each.parents:
                    self._narrower[parent].add(each.iri)
        self.labels = {
            iri: tuple(sorted(labels[iri], key=lambda label: (label[1] or "", label[0]))) for iri in sorted(labels)
        }

    def unite(self, unions: Mapping[str, Sequence[str]], prefixes: Iterable[tuple[str, str]]) -> None:
        """Take in unions, name → names of parts. One of whose parts none is known is left out."""
        names = RelationNames({iri: [text for text, _ in texts] for iri, texts in self.labels.items()}, prefixes)
        for name, parts in sorted(unions.items()):
            meant = {iri for part in parts for iri in names.meant(part)}
            if meant:
                self.unions[union_iri(name)] = frozenset(meant)
        told = {iri: ((unquote(iri.removeprefix(UNION)), None),) for iri in self.unions}
        self.labels = dict(sorted({**self.labels, **told}.items()))

    def edges(self, iri: str) -> set[tuple[str, str]]:
        """Every edge of a relation, or of all parts of a union; of an inverse those that a triple states, backwards."""
        edges: set[tuple[str, str]] = set()
        seen = {(each, False) for each in self.unions.get(iri, (iri,))}
        frontier = list(seen)
        while frontier:
            name, backwards = frontier.pop()
            if backwards:
                edges.update((high, low) for low, high in self._facts.get(name, ()))
            else:
                edges |= self._facts.get(name, set()) | self._derived.get(name, set())
            further = {(each, backwards) for each in self._narrower.get(name, ())}
            further |= {(each, not backwards) for each in self._inverses.get(name, ())}
            frontier.extend(further - seen)
            seen |= further
        return edges


def _numbered(edges: Iterable[tuple[str, str]], hierarchy: Hierarchy) -> Edges:
    concept_of = hierarchy.concept_of
    found: defaultdict[ConceptId, set[ConceptId]] = defaultdict(set)
    for low, high in edges:
        if low in concept_of and high in concept_of:
            found[concept_of[low]].add(concept_of[high])
    return {concept: tuple(sorted(ends)) for concept, ends in found.items()}


class _Layer:
    """The shadows of one relation: one for each group of concepts that lead to each other in it."""

    def __init__(self, edges: Edges, graph: ConceptGraph) -> None:
        self.edges = edges
        arrivals = {low: _arrivals(ends, graph) for low, ends in edges.items()}
        self._arrivals = arrivals
        self._above: dict[ConceptId, list[ConceptId]] = {}
        frontier = sorted({end for ends in arrivals.values() for end in ends})
        while frontier:
            concept = frontier.pop()
            if concept not in self._above:
                self._above[concept] = [*graph.parents(concept), *arrivals.get(concept, ())]
                frontier.extend(self._above[concept])
        self._groups = _groups(self._above)
        self.count = len(self._groups)

    def numbered(self, first: int) -> dict[ConceptId, ConceptId]:
        """Concept → its shadow, from `first` on."""
        return {
            concept: ConceptId(number) for number, group in enumerate(self._groups, start=first) for concept in group
        }

    def steps(self, shadows: Mapping[ConceptId, ConceptId]) -> Iterator[tuple[int, int]]:
        """The pairs of the graph that lead into shadows: from concepts by an edge, and from shadow to shadow."""
        for concept, ends in self._arrivals.items():
            for end in ends:
                yield concept, shadows[end]
        for concept, above in self._above.items():
            for each in above:
                if shadows[concept] != shadows[each]:
                    yield shadows[concept], shadows[each]


def _arrivals(ends: Iterable[ConceptId], graph: ConceptGraph) -> list[ConceptId]:
    """Where an edge leads: its end, and its classes if it is an individual, which may be entered there and only
    there."""
    return sorted({each for end in ends for each in (end, *graph.entries(end))})


def _groups(above: Mapping[ConceptId, Sequence[ConceptId]]) -> list[list[ConceptId]]:
    """The strongly connected components, each sorted, in an order that depends on the numbers only (Tarjan's algorithm,
    with a stack of its own). Linear."""
    index: dict[ConceptId, int] = {}
    lowest: dict[ConceptId, int] = {}
    open_nodes: list[ConceptId] = []
    is_open: set[ConceptId] = set()
    groups: list[list[ConceptId]] = []
    for root in sorted(above):
        work: list[tuple[ConceptId, Iterator[ConceptId]]] = []
        if root not in index:
            work.append((root, iter(above[root])))
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = lowest[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            for other in rest:
                if other not in index:
                    work.append((other, iter(above[other])))
                    break
                if other in is_open:
                    lowest[node] = min(lowest[node], index[other])
            else:
                work.pop()
                if work:
                    lower = work[-1][0]
                    lowest[lower] = min(lowest[lower], lowest[node])
                if lowest[node] == index[node]:
                    group = [open_nodes.pop()]
                    while group[-1] != node:
                        group.append(open_nodes.pop())
                    is_open.difference_update(group)
                    groups.append(sorted(group))
    return groups
