"""Which name is beneath which: the stated pairs, and those that follow from class expressions without a reasoner.

Class expressions are blank nodes. Each of these makes one step upwards, and a path of steps from name to name through
blank nodes only is a pair that every reasoner would find too:

    A subClassOf B                      A → B
    A equivalentClass _:x               A → _:x, _:x → A
    x intersectionOf (B C _:y)          x → B, x → C, x → _:y
    x unionOf (B C)                     B → x, C → x
    x oneOf (a b)                       a ⇒ x, b ⇒ x
    a type _:x                          a ⇒ _:x

So `A ≡ B ⊓ (R some C)` puts A beneath B; restrictions themselves lead nowhere. A double arrow is the step of an
individual to its class, which is taken once, at the start. Never a wrong pair; not every right one: that takes
`reason="owl"`.

`Known` walks upwards by name, to tell new pairs from pairs that the records of a document contain already.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.statements import Statements

__all__ = ["Known", "Pairs", "Subsumptions"]


Pairs = set[tuple[str, str]]

DERIVED = 2_000_000
"""Steps through class expressions: real ontologies make one or two a class, but expressions can be shared, and
multiply."""


class Subsumptions:
    """Who is beneath whom in one document, by structure alone: pairs (narrower, broader) of names, without loops.

    `stated` are those that a triple states, `derived` those that follow, `members` the (individual, class) pairs that
    follow. Cost: linear in the statements and in the steps. Raises OntologyError beyond `limits.edges` stated pairs or
    `DERIVED` steps.
    """

    def __init__(self, statements: Statements, limits: Limits) -> None:
        self.stated: Pairs = {
            (low, high) for low, high in statements.broader if _named(low) and _named(high) and low != high
        }
        if len(self.stated) > limits.edges:
            raise OntologyError(f"the hierarchy has more than {limits.edges:,} pairs, the limit")
        lists = _Lists(statements)
        self._upwards = _steps(statements, lists)
        self._expressed = _expressed(statements, lists)
        self._work = 0
        self.derived: Pairs = {
            (name, above) for name in self._upwards if _named(name) for above in self._reached(name, (name,))
        } - self.stated
        self.members: Pairs = {
            (individual, above)
            for individual, expressions in self._expressed.items()
            for above in self._reached(individual, expressions - {individual})
        }

    def expressions(self) -> Iterator[tuple[str, set[str]]]:
        """Each name with the class expressions (blank nodes) that it is beneath, or in as an individual."""
        for name in sorted({*self._upwards, *self._expressed}):
            if _named(name):
                yield name, self.through([name, *(each for each in self._expressed.get(name, ()) if each[:2] == "_:")])

    def through(self, start: Iterable[str]) -> set[str]:
        """The blank nodes in `start`, and those that are reached from it through blank nodes only."""
        frontier = list(start)
        seen = {node for node in frontier if node.startswith("_:")}
        while frontier:
            for above in self._upwards.get(frontier.pop(), ()):
                self._work += 1
                if above.startswith("_:") and above not in seen:
                    seen.add(above)
                    frontier.append(above)
            if self._work > DERIVED:
                raise OntologyError(f"the class expressions lead to more than {DERIVED:,} pairs, the limit")
        return seen

    def named_above(self, expression: str) -> Iterator[str]:
        """The names that a class expression is beneath."""
        return self._reached("", (expression,))

    def _reached(self, name: str, start: Iterable[str]) -> Iterator[str]:
        """The names, other than `name`, that stand in `start` or are reached from it through blank nodes only."""
        seen = {name}
        frontier: list[str] = []
        for node in start:
            if node.startswith("_:") or node == name:
                frontier.append(node)
            elif _named(node):
                seen.add(node)
                yield node
        while frontier:
            for above in self._upwards.get(frontier.pop(), ()):
                self._work += 1
                if above in seen:
                    continue
                seen.add(above)
                if above.startswith("_:"):
                    frontier.append(above)
                elif _named(above):
                    yield above
            if self._work > DERIVED:
                raise OntologyError(f"the class expressions lead to more than {DERIVED:,} pairs, the limit")


def _steps(statements: Statements, lists: "_Lists") -> dict[str, list[str]]:
    """The steps that start or end at a class expression; pairs of two names are left out."""
    upwards: defaultdict[str, list[str]] = defaultdict(list)
    for low, high in statements.broader:
        if low.startswith("_:") or high.startswith("_:"):
            upwards[low].append(high)
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_CLASS and (one.startswith("_:") or other.startswith("_:")):
            upwards[one].append(other)
            upwards[other].append(one)
    for node, heads in statements.conjunctions.items():
        for head in heads:
            upwards[node].extend(lists.members(head))
    for node, heads in statements.disjunctions.items():
        for head in heads:
            for member in lists.members(head):
                upwards[member].append(node)
    return dict(upwards)


def _expressed(statements: Statements, lists: "_Lists") -> dict[str, set[str]]:
    """Individual → the classes and class expressions that it is in, other than by `a type Name`."""
    expressed: defaultdict[str, set[str]] = defaultdict(set)
    for individual, expression in statements.expressed:
        if _named(individual):
            expressed[individual].add(expression)
    for node, heads in statements.enumerations.items():
        for head in heads:
            for member in lists.members(head):
                if _named(member):
                    expressed[member].add(node)
    return expressed


class _Lists:
    """The RDF lists of a document. One that several expressions share is walked for each, so the steps are bounded."""

    def __init__(self, statements: Statements) -> None:
        self._first, self._rest = statements.first, statements.rest
        self._room = len(statements.rest) + DERIVED

    def members(self, head: str) -> Iterator[str]:
        """The items of a list; a list that runs in a circle ends where it began."""
        seen: set[str] = set()
        while head and head != ns.NIL and head not in seen:
            seen.add(head)
            item = self._first.get(head)
            if item:
                yield item
            head = self._rest.get(head, "")
            self._room -= 1
            if self._room < 0:
                raise OntologyError(f"the lists of class expressions lead to more than {DERIVED:,} pairs, the limit")


def _named(node: str) -> bool:
    return bool(node) and not node.startswith("_:") and not ns.is_vocabulary(node)


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
