"""The concept index of one column: who subscribed to which concept. CTPS §4.1 and §5.1, Algorithms 1, 3 and 7.

The paper hangs a list of subscriptions on every node of a tree and, for a value, unites the lists of its node and of
the nodes above. Concepts here form a DAG, which an individual enters by one `rdf:type` step, so the walk is
`ConceptGraph.ancestors`: upwards with a set of visited nodes (erratum 8). There is one index for each (attribute,
copy, column), never one for a tree shared by several attributes (erratum 1). Only concepts that somebody subscribed
to have a node; Algorithm 1, which builds nodes for the whole tree, is left with nothing but the graph itself.

    value ──ancestors──▶ node(Laptop)  node(Computer)  node(Product)        node: within   rows with `isa` this concept
                             exactly       below           below                  below    rows with `below` it
                             within        within          within                 exactly  rows with `is` it
"""

from collections.abc import Iterable

from bitarray import bitarray

from kindcast.index.clause import ConceptId, ConceptTest
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.ctps.row_bits import RowSet

__all__ = ["ConceptTree"]


class _Node:
    """The rows that subscribed to one concept, by the way in which they did."""

    __slots__ = ("below", "exactly", "within")

    def __init__(self, capacity: int) -> None:
        self.within = RowSet(capacity)
        self.below = RowSet(capacity)
        self.exactly = RowSet(capacity)

    def sets(self) -> tuple[RowSet, RowSet, RowSet]:
        return self.within, self.below, self.exactly


class ConceptTree:
    """Rows by subscribed concept. Every node has at least one row.

    Matching costs one look-up for each ancestor of the value and one union for each that somebody subscribed to.
    """

    def __init__(self, graph: ConceptGraph, capacity: int) -> None:
        self._graph = graph
        self._capacity = capacity
        self._nodes: dict[ConceptId, _Node] = {}

    def __len__(self) -> int:
        """How many concepts somebody subscribed to."""
        return len(self._nodes)

    def add(self, row: int, test: ConceptTest) -> None:
        """Algorithm 3: put `row` on the node of every concept of `test`."""
        for concept in test.within:
            self._node(concept).within.add(row)
        for concept in test.below:
            self._node(concept).below.add(row)
        for concept in test.exactly:
            self._node(concept).exactly.add(row)

    def remove(self, row: int, test: ConceptTest) -> None:
        """Undo `add(row, test)`; a node without rows goes."""
        for concept in test.within | test.below | test.exactly:
            node = self._nodes[concept]
            for rows in node.sets():
                rows.discard(row)
            if not any(node.sets()):
                del self._nodes[concept]

    def union_into(self, matched: bitarray, concept: ConceptId) -> None:
        """Algorithm 7, lines 1 to 6: set in `matched` every row that the value `concept` satisfies."""
        nodes = self._nodes
        for ancestor in self._graph.ancestors(concept):
            node = nodes.get(ancestor)
            if node is not None:
                node.within.union_into(matched)
                (node.exactly if ancestor == concept else node.below).union_into(matched)

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`."""
        self._capacity = capacity
        for node in self._nodes.values():
            for rows in node.sets():
                rows.grow(capacity)

    def contents(self) -> Iterable[tuple[ConceptId, str, list[int]]]:
        """All (concept, kind, rows) with rows, for checks."""
        for concept, node in self._nodes.items():
            for kind, rows in zip(("within", "below", "exactly"), node.sets(), strict=True):
                if rows:
                    yield concept, kind, rows.rows()

    def check_invariants(self) -> None:
        """Raise AssertionError if a node is empty or one of its sets is broken."""
        for concept, node in self._nodes.items():
            assert any(node.sets()), concept
            for rows in node.sets():
                rows.check_invariants()

    def _node(self, concept: ConceptId) -> _Node:
        node = self._nodes.get(concept)
        if node is None:
            node = self._nodes[concept] = _Node(self._capacity)
        return node
