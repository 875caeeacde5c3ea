"""The concept graph: the is-a edges of all documents, and relations as additional hierarchies.

The hierarchy is one DAG of numbered concepts. Equivalent names, and names in a cycle, are merged:

    names ──equivalences──▶ groups ──exact matches──▶ groups ──peel off the acyclic part──▶ cycles ──▶ groups ──▶ graph

Exact matches join groups only if they are one-to-one between schemes (docs/matching-semantics.md, rule 10). Almost all
hierarchies are acyclic except for a few parts. So the acyclic part is removed first, and only the rest is passed to
networkx. The same names and pairs give the same numbers in any order.

Relations (rule 11):

`x R C` holds if a path leads from x to C that has any number of is-a steps and at least one step of R, in any order.
Engines do not know relations: each concept that an edge of R leads to, and each concept above it, has a *shadow*. A
shadow is a node of the same graph that stands for "reached by R".

    a ──is-a──▶ b ──R──▶ c ──is-a──▶ d              a        b                 concepts
                                                    a ──▶ b ──▶ c′ ──▶ d′      shadows, numbered after all concepts

So `x R d` is "x is at or beneath d′", and an index decides it like `isa`. A cycle of R becomes one shadow of several
concepts. Code that needs only concepts uses the graph without shadows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final
from urllib.parse import quote, unquote

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph
from kindcast.semantic.errors import InvalidDeclaration, OntologyError
from kindcast.semantic.ontology.records import Label, Ontology, RelationNames, local_name, namespace
from kindcast.semantic.vocabulary.labels import label_in

__all__ = [
    "Hierarchy",
    "Relations",
    "Step",
    "union_iri",
    "union_parts",
]

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hierarchy:
    """An immutable DAG whose nodes have names. Safe for threads.

    `names[c]` are the names of concept `c`, the preferred one first; `concept_of` is the inverse map. `children[c]` and
    `individuals[c]` are the inverses of `graph.parents` and `graph.entries`. `depth` is the length of the longest path
    upwards, in pairs. `cycles` are the groups of names that formed a cycle. `unmerged` are the groups of names that are
    connected by exact matches but not merged, because the matches are not one-to-one.
    """

    names: tuple[tuple[str, ...], ...]
    concept_of: dict[str, ConceptId]
    graph: ConceptGraph
    children: dict[int, list[ConceptId]] = field(repr=False)
    individuals: dict[int, list[ConceptId]] = field(repr=False)
    depth: int
    cycles: tuple[tuple[str, ...], ...]
    unmerged: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def build(
        cls,
        names: Iterable[str],
        *,
        pairs: Iterable[Pair] = (),
        types: Iterable[Pair] = (),
        equivalences: Iterable[Pair] = (),
        matches: Iterable[Pair] = (),
        schemes: Callable[[str], Iterable[str]] = lambda name: (),
        preference: Callable[[str], object] = str,
    ) -> "Hierarchy":
        """`pairs` are (narrower, broader), and `types` are (individual, class); their names become concepts too.
        `equivalences` and `matches` (of `skos:exactMatch`) may contain further names: those connected to a known name
        become names of its concept, the others are ignored. `schemes` returns the schemes of a name. The first name of
        a concept is the smallest by `preference`.

        Cost: linear in the names and pairs, except for sorting.
        """
        pairs, types = list(pairs), list(types)
        known = {*names, *chain.from_iterable(pairs), *chain.from_iterable(types)}
        union = _Union(known)
        for one, other in sorted(equivalences):
            union.join(one, other)
        unmerged = _join_matches(union, known, set(matches), schemes)
        cycles: list[tuple[str, ...]] = []
        low_high = {(union.find(low), union.find(high)) for low, high in pairs}
        for component in _components(low_high):
            cycles.append(tuple(sorted(component)))
            first, *rest = sorted(component)
            for name in rest:
                union.join(first, name)
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in union.all():
            groups[union.find(name)].append(name)
        # preference (ties: by the name itself) decides the first name; the first names decide the numbers
        ordered = sorted(
            tuple(sorted(group, key=lambda name: (preference(name), name)))
            for group in groups.values()
            if not known.isdisjoint(group)
        )
        concept_of = {name: ConceptId(number) for number, group in enumerate(ordered) for name in group}
        edges = {(concept_of[low], concept_of[high]) for low, high in pairs}
        entries = {(concept_of[one], concept_of[each]) for one, each in types}
        edges = {(low, high) for low, high in edges if low != high}
        entries = {(low, high) for low, high in entries if low != high}
        return cls(
            names=tuple(ordered),
            concept_of=concept_of,
            graph=ConceptGraph(len(ordered), edges, entries),
            children=_downwards(edges),
            individuals=_downwards(entries),
            depth=_depth(len(ordered), edges),
            cycles=tuple(cycles),
            unmerged=tuple(unmerged),
        )

    def __len__(self) -> int:
        return len(self.names)

    def isa(self, concept: ConceptId, upper: ConceptId) -> bool:
        """Returns whether `concept` is `upper` or beneath it."""
        return upper in self.graph.ancestors(concept)

    def descendants(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns all concepts beneath `concept`, ascending: the narrower concepts at all levels, and their
        individuals. Concepts beneath an individual are not beneath its class. Cost: one walk over the result."""
        narrower = {concept}
        frontier = [concept]
        while frontier:
            for child in self.children.get(frontier.pop(), ()):
                if child not in narrower:
                    narrower.add(child)
                    frontier.append(child)
        found = {each for upper in narrower for each in self.individuals.get(upper, ())}
        return tuple(sorted((found | narrower) - {concept}))

    def path(self, concept: ConceptId, upper: ConceptId) -> tuple[ConceptId, ...] | None:
        """Returns a shortest chain from `concept` up to `upper`, including both; None if there is none."""
        if concept == upper:
            return (concept,)
        came_from: dict[ConceptId, ConceptId] = {}
        frontier: list[ConceptId] = [concept]
        while frontier:
            reached: list[ConceptId] = []
            for low in frontier:
                above: Sequence[ConceptId] = self.graph.parents(low)
                if low == concept:
                    above = (*above, *self.graph.entries(low))
                for high in above:
                    if high == concept or high in came_from:
                        continue
                    came_from[high] = low
                    if high == upper:
                        return _chain(came_from, concept, upper)
                    reached.append(high)
            frontier = reached
        return None


def _chain(came_from: dict[ConceptId, ConceptId], start: ConceptId, end: ConceptId) -> tuple[ConceptId, ...]:
    steps = [end]
    while steps[-1] != start:
        steps.append(came_from[steps[-1]])
    return tuple(reversed(steps))


class _Union:
    """Disjoint sets of names (union-find)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parent = {name: name for name in names}

    def find(self, name: str) -> str:
        parent = self._parent
        root = parent.setdefault(name, name)
        while parent[root] != root:
            root = parent[root]
        while parent[name] != root:
            parent[name], name = root, parent[name]
        return root

    def join(self, one: str, other: str) -> None:
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low

    def all(self) -> list[str]:
        return list(self._parent)

    def __contains__(self, name: str) -> bool:
        return name in self._parent


def _join_matches(
    union: _Union, known: set[str], matches: set[Pair], schemes: Callable[[str], Iterable[str]]
) -> list[tuple[str, ...]]:
    """Joins concepts that are connected by exact matches, component by component, if no two concepts of a component
    share a scheme. Returns the names of the components that were not joined, without those that have no `known` name.
    Linear."""
    connected = _Union(())
    for one, other in sorted(matches):
        connected.join(union.find(one), union.find(other))
    components: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)  # component → concept → its names
    for root in connected.all():
        components[connected.find(root)][root] = set()
    for name in union.all() if matches else ():
        root = union.find(name)
        if root in connected:
            components[connected.find(root)][root].add(name)
    ends = {name for pair in matches for name in pair}
    unmerged: list[tuple[str, ...]] = []
    for _, concepts in sorted(components.items()):
        if _share_schemes(concepts.values(), schemes):
            group = set(chain.from_iterable(concepts.values()))
            if not known.isdisjoint(group):
                unmerged.append(tuple(sorted(ends & group)))
        else:
            first, *rest = concepts
            for root in rest:
                union.join(first, root)
    return unmerged


def _share_schemes(concepts: Iterable[set[str]], schemes: Callable[[str], Iterable[str]]) -> bool:
    """Returns whether two of these concepts share a scheme or, if one of them has no scheme, a namespace."""
    seen: set[str] = set()
    spaces_of_bare: set[str] = set()  # the namespaces of concepts without a scheme
    spaces: set[str] = set()
    for names in concepts:
        own = {scheme for name in names for scheme in schemes(name)}
        within = {namespace(name) for name in names}
        if not seen.isdisjoint(own) or not within.isdisjoint(spaces_of_bare if own else spaces):
            return True
        seen |= own
        spaces |= within
        if not own:
            spaces_of_bare |= within
    return False


def _components(pairs: set[Pair]) -> list[set[str]]:
    """Returns the strongly connected components with more than one name."""
    rest = _without_acyclic(pairs)
    if not rest:
        return []
    import networkx as nx  # imported only here: it takes 0.1 s, and few vocabularies have a cycle

    return sorted((each for each in nx.strongly_connected_components(nx.DiGraph(rest)) if len(each) > 1), key=min)


def _without_acyclic(pairs: set[Pair]) -> list[Pair]:
    """Repeatedly removes the names with nothing above them, then those with nothing beneath. Returns the remaining
    pairs, a superset of all cycles."""
    left = sorted((low, high) for low, high in pairs if low != high)
    for lower, upper in ((0, 1), (1, 0)):
        below: defaultdict[str, list[str]] = defaultdict(list)
        above: dict[str, int] = {}
        for pair in left:
            below[pair[upper]].append(pair[lower])
            above[pair[lower]] = above.get(pair[lower], 0) + 1
        free = [name for name in below if name not in above]
        while free:
            for name in below[free.pop()]:
                above[name] -= 1
                if not above[name]:
                    del above[name]
                    free.append(name)
        left = [pair for pair in left if pair[0] in above and pair[1] in above]
    return left


def _depth(size: int, edges: set[tuple[ConceptId, ConceptId]]) -> int:
    """Returns the length of the longest path of a DAG, in pairs."""
    below = _downwards(edges)
    above = [0] * size
    for low, _ in edges:
        above[low] += 1
    layer = [concept for concept in range(size) if not above[concept]]
    depth = 0
    while layer:
        reached: list[int] = []
        for high in layer:
            for low in below.get(high, ()):
                above[low] -= 1
                if not above[low]:
                    reached.append(low)
        depth += bool(reached)
        layer = reached
    return depth


def _downwards(pairs: set[tuple[ConceptId, ConceptId]]) -> dict[int, list[ConceptId]]:
    below: defaultdict[int, list[ConceptId]] = defaultdict(list)
    for low, high in sorted(pairs):
        below[high].append(low)
    return dict(below)


MOST_SHADOWS = 8_000_000
"""The maximum number of shadows of all relations together: four relations over as many concepts as one document may
have. A shadow costs some tens of bytes, like a concept."""

Step = tuple[ConceptId, bool]
"""The concept that a step leads to, and whether it is a step of the relation."""

Edges = dict[ConceptId, tuple[ConceptId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relations:
    """The relations of one vocabulary. Immutable and safe for threads.

    `graph` has the concepts of the hierarchy, with the same numbers, and after them the shadows. Without relations it
    is the graph of the hierarchy. `labels` are the labels of each relation by IRI.
    """

    graph: ConceptGraph
    names: RelationNames
    labels: Mapping[str, tuple[Label, ...]]
    unions: frozenset[str]
    """The IRIs of the relations that are declared as unions of others."""
    _edges: Mapping[str, Edges] = field(repr=False)
    _shadows: Mapping[str, Mapping[ConceptId, ConceptId]] = field(repr=False)
    _hierarchy: Hierarchy = field(repr=False)

    @classmethod
    def build(
        cls, ontologies: Sequence[Ontology], hierarchy: Hierarchy, unions: Mapping[str, Any] | None = None
    ) -> "Relations":
        """Builds the relations that were requested in any of `ontologies`. Relations with the same IRI are one
        relation. `unions` are declarations: name → `{"union": [names of parts]}`.

        Cost: per relation linear in its edges and in the concepts above their ends. Raises OntologyError if there are
        more than `MOST_SHADOWS` shadows, and InvalidDeclaration.
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
                    f"the relations lead to more than {MOST_SHADOWS:,} concepts in all: request fewer relations"
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
        """Iterates over the IRIs, sorted."""
        return iter(self.labels)

    def __contains__(self, iri: object) -> bool:
        return iri in self.labels

    def meant(self, name: str) -> tuple[str, ...]:
        """Returns the IRIs that a name may mean: the union declared under this name, else the result of `names`."""
        declared = union_iri(name)
        return (declared,) if declared in self.unions else self.names.meant(name)

    def label(self, iri: str, language: str = "en") -> str:
        """Returns the label to show: the one that fits `language` best, else the local name of the IRI."""
        return label_in(self.labels.get(iri, ()), language) or local_name(iri) or iri

    def edge_count(self, iri: str) -> int:
        """Returns the number of edges of a relation after equivalent names are merged."""
        return sum(map(len, self._edges[iri].values()))

    def shadow(self, iri: str, concept: ConceptId) -> ConceptId | None:
        """Returns the node of `graph` that is above everything in the relation `iri` to `concept`; None if nothing
        is."""
        return self._shadows.get(iri, {}).get(concept)

    def holds(self, concept: ConceptId, iri: str, upper: ConceptId) -> bool:
        """Returns whether `concept` is in the relation to `upper`."""
        shadow = self.shadow(iri, upper)
        return shadow is not None and shadow in self.graph.ancestors(concept)

    def next(self, concept: ConceptId) -> Iterator[tuple[str, ConceptId]]:
        """Yields each edge from `concept`: the relation and the end of the edge."""
        for iri, edges in self._edges.items():
            for end in edges.get(concept, ()):
                yield iri, end

    def path(self, concept: ConceptId, iri: str, upper: ConceptId) -> tuple[Step, ...] | None:
        """Returns a shortest path by which `concept` is in the relation to `upper`, from the first step on; None if
        there is none. Cost: one walk over the concepts above."""
        edges = self._edges.get(iri, {})
        start = (concept, False, True)  # the concept, whether the relation was taken, whether a class may be entered
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
    """Returns the path as steps. A step of the relation is one that ends where a class may be entered again."""
    steps: list[Step] = []
    place = end
    while place != start:
        steps.append((place[0], place[2]))
        place = came_from[place]
    return tuple(reversed(steps))


UNION: Final = "urn:kindcast:relation:"
"""The prefix of the IRIs of unions."""
MOST_PARTS = 64


def union_iri(name: str) -> str:
    """Returns the IRI of the union that is declared under a name.

    >>> union_iri("belongs to")
    'urn:kindcast:relation:belongs%20to'
    """
    return UNION + quote(name, safe="")


def union_parts(name: str, declared: Any) -> tuple[str, ...]:
    """Returns the names of the parts in the declaration of a union. Raises InvalidDeclaration."""
    parts = declared.get("union") if isinstance(declared, Mapping) else None
    if not isinstance(parts, list | tuple) or not 0 < len(parts) <= MOST_PARTS or set(declared) != {"union"}:
        raise InvalidDeclaration(f'relation {name!r}: {{"union": [1 to {MOST_PARTS} names of relations]}} is expected')
    if not all(isinstance(each, str) and each.strip() for each in parts):
        raise InvalidDeclaration(f"relation {name!r}: name a relation by an IRI, a CURIE, a local name or a label")
    return tuple(parts)


class _Stated:
    """The labels and edges of each relation, by IRI, over all documents. One document may use a property, and another
    one may state that it is narrower than a relation, or its inverse."""

    def __init__(self, ontologies: Sequence[Ontology]) -> None:
        labels: defaultdict[str, set[Label]] = defaultdict(set)
        self._facts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.unions: dict[str, frozenset[str]] = {}
        """IRI → the IRIs of its parts."""
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
        """Adds unions: name → names of parts. A union without a known part is left out."""
        names = RelationNames({iri: [text for text, _ in texts] for iri, texts in self.labels.items()}, prefixes)
        for name, parts in sorted(unions.items()):
            meant = {iri for part in parts for iri in names.meant(part)}
            if meant:
                self.unions[union_iri(name)] = frozenset(meant)
        told = {iri: ((unquote(iri.removeprefix(UNION)), None),) for iri in self.unions}
        self.labels = dict(sorted({**self.labels, **told}.items()))

    def edges(self, iri: str) -> set[tuple[str, str]]:
        """Returns all edges of a relation, or of all parts of a union, including those of narrower relations. Edges of
        an inverse are reversed, except for derived ones, which hold in one direction only."""
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
        """Returns a map: concept → its shadow. Shadows are numbered from `first` on."""
        return {
            concept: ConceptId(number) for number, group in enumerate(self._groups, start=first) for concept in group
        }

    def steps(self, shadows: Mapping[ConceptId, ConceptId]) -> Iterator[tuple[int, int]]:
        """Yields the pairs of the graph that lead into shadows: from concepts by an edge, and from shadow to shadow."""
        for concept, ends in self._arrivals.items():
            for end in ends:
                yield concept, shadows[end]
        for concept, above in self._above.items():
            for each in above:
                if shadows[concept] != shadows[each]:
                    yield shadows[concept], shadows[each]


def _arrivals(ends: Iterable[ConceptId], graph: ConceptGraph) -> list[ConceptId]:
    """Returns the ends of edges and, if an end is an individual, also its classes. Within a path, the classes of an
    individual may be entered only there."""
    return sorted({each for end in ends for each in (end, *graph.entries(end))})


def _groups(above: Mapping[ConceptId, Sequence[ConceptId]]) -> list[list[ConceptId]]:
    """Returns the strongly connected components, each sorted, in an order that depends only on the numbers. Tarjan's
    algorithm with an explicit stack. Linear."""
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
