"""Enumerations with a partial order: which members lie above which.

Le Subscribe, section 2.1: "with a domain of an enumerated type, it is possible to associate a certain partial
ordering". Rule 9: comparisons follow it, and what is incomparable is false.

    [["draft", "review", "published"], ["draft", "withdrawn"]]

        published   withdrawn          draft < review < published, draft < withdrawn;
            │           │              published and withdrawn are incomparable
          review        │
            └── draft ──┘
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kindcast.semantic.errors import InvalidDeclaration

__all__ = ["MOST_MEMBERS", "MOST_ORDERED", "Enumeration", "enumeration"]

MOST_MEMBERS = 1_000
"""Members of an enumeration; a longer list is better a hierarchy of concepts."""
MOST_ORDERED = 256
"""Members of an enumeration with an order: all pairs are kept, so that a comparison is one look-up."""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Texts, and for each those that lie strictly above it. `is_ordered` is False where no order was given at all."""

    members: tuple[str, ...]
    above: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    is_ordered: bool = False

    def satisfying(self, order: str, bound: str) -> frozenset[str]:
        """The members that compare so with `bound`, itself a member: `satisfying(">=", "review")`."""
        return frozenset(member for member in self.members if self.compares(member, order, bound))

    def compares(self, left: str, order: str, right: str) -> bool:
        """Whether `left` compares so with `right`; False for what is no member, or incomparable."""
        if left not in self.members or right not in self.members:
            return False
        match order:
            case "=":
                return left == right
            case "<":
                return right in self.above.get(left, ())
            case "<=":
                return left == right or right in self.above.get(left, ())
            case ">":
                return left in self.above.get(right, ())
            case _:
                return left == right or left in self.above.get(right, ())

    def renamed(self, name: Callable[[str], str]) -> "Enumeration":
        """The same with other words: root words in place of the words of a table of synonyms."""
        words = {member: name(member) for member in self.members}
        above: dict[str, frozenset[str]] = {}
        for low, high in self.above.items():
            above[words[low]] = above.get(words[low], frozenset()) | {words[each] for each in high}
        return Enumeration(tuple(dict.fromkeys(words.values())), above, self.is_ordered)


def enumeration(members: Sequence[str], chains: Sequence[Sequence[str]] | None) -> Enumeration:
    """The enumeration of `members`, ordered by `chains`, each from low to high.

    Raises InvalidDeclaration for a chain with an unknown member, and for a cycle. Cost: members times pairs, at most
    256 of the former where there is an order.
    """
    if chains is None:
        return Enumeration(tuple(members))
    if len(members) > MOST_ORDERED:
        raise InvalidDeclaration(f"an enumeration with an order has at most {MOST_ORDERED} members")
    known = set(members)
    next_above: dict[str, set[str]] = {member: set() for member in members}
    for chain in chains:
        strangers = [each for each in chain if each not in known]
        if strangers:
            raise InvalidDeclaration(f"the order names {strangers[0]!r}, which is no member of the enumeration")
        for low, high in pairwise(chain):
            next_above[low].add(high)
    above = {member: _reached(member, next_above) for member in members}
    circle = next((member for member in members if member in above[member]), None)
    if circle is not None:
        raise InvalidDeclaration(f"the order leads from {circle!r} back to itself")
    return Enumeration(tuple(members), above, True)


def _reached(member: str, next_above: Mapping[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(next_above[member])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend(next_above[each])
    return frozenset(found)
