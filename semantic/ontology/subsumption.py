"""Which name is beneath which: the stated pairs, and those that follow from class expressions without a reasoner.

Class expressions are blank nodes. Each of these makes one step upwards, and a path of steps from name to name through
blank nodes only is a pair that every reasoner would find too:

    A subClassOf B                      A → B
    A equivalentClass _:x               A → _:x, _:x → A
    x intersectionOf (B C _:y)          x → B, x → C, x → _:y
    x unionOf (B C)                     B → x, C → x

So `A ≡ B ⊓ (R some C)` puts A beneath B; restrictions themselves lead nowhere. Never a wrong pair; not every right one.
"""

from collections import defaultdict
from collections.abc import Iterator

from semantic.errors import OntologyError
from semantic.ontology import namespaces as ns
from semantic.ontology.records import Limits
from semantic.ontology.statements import Statements

__all__ = ["Pairs", "subsumptions"]

Pairs = set[tuple[str, str]]

DERIVED = 2_000_000
"""Steps through class expressions: real ontologies make one or two a class, but expressions can be shared, and
multiply."""


def subsumptions(statements: Statements, limits: Limits) -> tuple[Pairs, Pairs]:
    """(pairs that a triple states, pairs that follow): each (narrower, broader), names only, no loops.

    Raises OntologyError beyond `limits.edges` stated pairs or `DERIVED` steps.
    """
    stated = {(low, high) for low, high in statements.broader if _named(low) and _named(high) and low != high}
    if len(stated) > limits.edges:
        raise OntologyError(f"the hierarchy has more than {limits.edges:,} pairs, the most that are read")
    upwards = _steps(statements)
    derived: Pairs = set()
    work = 0
    for name in [node for node in upwards if _named(node)]:
        seen = {name}
        frontier = [name]
        while frontier:
            for above in upwards.get(frontier.pop(), ()):
                work += 1
                if above in seen:
                    continue
                seen.add(above)
                if above.startswith("_:"):
                    frontier.append(above)
                elif _named(above):
                    derived.add((name, above))
            if work > DERIVED:
                raise OntologyError(
                    f"the class expressions lead to more than {DERIVED:,} pairs, the most that are read"
                )
    return stated, derived - stated


def _steps(statements: Statements) -> dict[str, list[str]]:
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
            upwards[node].extend(_members(statements, head))
    for node, heads in statements.disjunctions.items():
        for head in heads:
            for member in _members(statements, head):
                upwards[member].append(node)
    return upwards


def _members(statements: Statements, head: str) -> Iterator[str]:
    """The items of an RDF list; a list that runs in a circle ends where it began."""
    seen: set[str] = set()
    while head and head != ns.NIL and head not in seen:
        seen.add(head)
        item = statements.first.get(head)
        if item:
            yield item
        head = statements.rest.get(head, "")


def _named(node: str) -> bool:
    return bool(node) and not node.startswith("_:") and not ns.is_vocabulary(node)
