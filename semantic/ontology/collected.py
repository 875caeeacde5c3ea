"""Labels by node, packed: nearly every node has one or two, and a set for each would cost more than the texts."""

from collections.abc import Iterable, Iterator

from semantic.ontology.records import Label

__all__ = ["CollectedLabels"]

FEW = 8
"""So many labels of a node stand in a tuple, which is searched; more go into a set."""


class CollectedLabels:
    """Node → its distinct labels. Adding costs a look at no more than `FEW` labels."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Label, ...] | set[Label]] = {}

    def add(self, node: str, label: Label) -> None:
        known = self._found.get(node, ())
        if isinstance(known, set):
            known.add(label)
        elif label not in known:
            self._found[node] = (*known, label) if len(known) < FEW else {*known, label}

    def update(self, node: str, labels: Iterable[Label]) -> None:
        for label in labels:
            self.add(node, label)

    def get(self, node: str) -> set[Label]:
        """The labels of `node`; none is an empty set. A copy."""
        return set(self._found.get(node, ()))

    def __iter__(self) -> Iterator[str]:
        """Every node that has a label."""
        return iter(self._found)

    def __contains__(self, node: object) -> bool:
        return node in self._found

    def __len__(self) -> int:
        return len(self._found)
