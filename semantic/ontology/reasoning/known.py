"""What the records of a document say already: the walk upwards, by name, that tells news from what was known."""

from collections import defaultdict
from collections.abc import Iterable

from kindcast.semantic.ontology.subsumption import Pairs

__all__ = ["Known"]

COMPARED = 256
"""Classes of one individual that are compared with each other: the cost grows by their square, and superfluous ones
do no harm."""

STEPS = 50_000_000
"""Steps upwards in all: some tens of seconds. Real hierarchies are some tens deep, so that this is enough for a million
names; in one that is made to be deep, what is left after it counts as news, superfluous as it may be."""


class Known:
    """The reflexive and transitive closure of pairs and equivalences, asked name by name.

    Each walk costs what is above the name, and nothing is kept; all walks together cost `STEPS` at most.
    """

    def __init__(self, edges: Iterable[tuple[str, str]], equivalences: Iterable[tuple[str, str]]) -> None:
        upwards: defaultdict[str, list[str]] = defaultdict(list)
        for low, high in edges:
            upwards[low].append(high)
        for one, other in equivalences:
            upwards[one].append(other)
            upwards[other].append(one)
        self._upwards = dict(upwards)
        self._room = STEPS

    def above(self, *names: str) -> set[str]:
        """All that one of `names` is or is beneath; only `names` once the steps are used up."""
        found = set(names)
        frontier = list(names) if self._room > 0 else []
        while frontier:
            for upper in self._upwards.get(frontier.pop(), ()):
                if upper not in found:
                    found.add(upper)
                    frontier.append(upper)
        self._room -= len(found)
        return found

    def news(self, pairs: Pairs) -> Pairs:
        """Those of `pairs` (narrower, broader) that do not follow from what is known."""
        return {(low, high) for low, highs in _grouped(pairs).items() for high in highs - self.above(low)}

    def memberships(self, stated: Iterable[tuple[str, str]], found: Pairs) -> Pairs:
        """Those of `found` (individual, class) that `stated` ones do not imply, and of them the most specific; all of
        them where there are more than `COMPARED`."""
        classes = _grouped(stated)
        news: Pairs = set()
        for individual, candidates in _grouped(found).items():
            left = candidates - self.above(individual, *classes.get(individual, ()))
            if 1 < len(left) <= COMPARED:
                above = {each: self.above(each) for each in left}
                left = {each for each in left if not _implied(each, left, above)}
            news.update((individual, each) for each in left)
        return news


def _implied(upper: str, candidates: set[str], above: dict[str, set[str]]) -> bool:
    """Whether another candidate is strictly beneath `upper`, or is the same and comes first."""
    return any(
        upper in above[other] and (other not in above[upper] or other < upper) for other in candidates if other != upper
    )


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        groups[one].add(other)
    return dict(sorted(groups.items()))
