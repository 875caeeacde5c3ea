"""The hierarchy builder: names and pairs → one DAG of numbered concepts; equivalent names and cycles are merged.

    names ──equivalences──▶ groups ──exact matches──▶ groups ──peel off the acyclic part──▶ cycles ──▶ groups ──▶ graph

Exact matches join groups only where they are one-to-one between schemes: docs/matching-semantics.md, rule 10. Almost
every hierarchy is acyclic but for a few sloppy corners, so the acyclic part is peeled off first and only what is left
is given to networkx. Everything is deterministic: the same names and pairs give the same numbers, in whatever order
they come.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph
from kindcast.semantic.ontology.iris import namespace

__all__ = ["Hierarchy"]

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
