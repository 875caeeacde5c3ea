"""The concept graph: is-a edges of all documents, and relations as hierarchies beside them.

The hierarchy is one DAG of numbered concepts; equivalent names and cycles are merged:

    names ──equivalences──▶ groups ──exact matches──▶ groups ──peel off the acyclic part──▶ cycles ──▶ groups ──▶ graph

Exact matches join groups only where they are one-to-one between schemes (docs/matching-semantics.md, rule 10). Almost
every hierarchy is acyclic but for a few corners, so the acyclic part is peeled off first and only the rest is given to
networkx. The same names and pairs give the same numbers, in whatever order they come.

Relations (rule 11):

`x R C` holds when a path leads from x to C that goes up is-a any number of steps, then along R at least once, with is-a
before, between and after. Engines know nothing of it: each concept that an edge of R leads to, and everything above
that, gets a *shadow*, a node of the same graph that stands for "reached by R".

    a ──is-a──▶ b ──R──▶ c ──is-a──▶ d              a        b                 concepts
                                                    a ──▶ b ──▶ c′ ──▶ d′      shadows, numbered after all concepts

So `x R d` is "x is at or beneath d′", which an index decides as it decides `isa`. Circles of R become one shadow of
several concepts. What only looks at concepts never sees a shadow: it has the graph without them.
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
    """An immutable DAG whose nodes have names; may be read from any number of threads.

    `names[c]` are the names of concept `c`, the preferred one first; `concept_of` is their inverse; `children[c]` and
    `individuals[c]` are what `graph.parents` and `graph.entries` say, downwards; `depth` is the longest path upwards,
    in pairs; `cycles` are the groups of names that stood in a circle; `unmerged` are the groups of names that exact
    matches connect and, not being one-to-one, do not merge.
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
        """`pairs` are (narrower, broader), `types` (individual, class); their names are names too. `equivalences` and
        `matches` (those by `skos:exactMatch`) may bring in further ones: those connected to a name are names too, the
        others are ignored. `schemes` says which ones a name is in. Of the names of one concept the smallest by
        `preference` comes first.

        Cost: linear in names and pairs, but for sorting.
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
        # preference (ties by the name itself) decides the first name, the first names decide the numbers
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
        """Whether `concept` is `upper` or beneath it."""
        return upper in self.graph.ancestors(concept)

    def descendants(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """All beneath `concept`, ascending: the narrower ones of any degree, and the individuals of any of them. What
        is beneath an individual is not beneath its class. Cost: one walk over them."""
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
        """A shortest chain of steps from `concept` up to `upper`, both included; None where there is none."""
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
    """Disjoint sets of names."""

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
    """Join what exact matches connect, component by component, where no two concepts of a component share a scheme;
    returns the names of the others, those left out where nothing is `known`. Linear."""
    connected = _Union(())
    for one, other in sorted(matches):
        connected.join(union.find(one), union.find(other))
    components: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)  # the names of each concept of each
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
    """Whether two of these concepts have a scheme in common, or, where one of them has none, a namespace."""
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
    """The strongly connected components with more than one name."""
    rest = _without_acyclic(pairs)
    if not rest:
        return []
    import networkx as nx  # 0.1 s, and few vocabularies have a cycle

    return sorted((each for each in nx.strongly_connected_components(nx.DiGraph(rest)) if len(each) > 1), key=min)


def _without_acyclic(pairs: set[Pair]) -> list[Pair]:
    """The pairs that are left when names with nothing above them, and then those with nothing beneath, are taken away
    again and again: a superset of all cycles."""
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
    """The longest path of a DAG, in pairs."""
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
        raise InvalidDeclaration(f"relation {name!r}: name a relation by an IRI, a CURIE, a local name or a label")
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
