"""Successor nodes: where a search goes on once it is blocked, so that it need not try both edges of each node.

A search for one value an axis goes down the edges with operands only. At a node where none fits, or at a leaf, all
further leaves that match lie below

    the don't-care edge of this node, and
    the nodes that are reached by the same path with one or more edges of its last run of operands not caring

(erratum 24; Aguilera et al., the section on optimisations). Of those the ones that another one leads to are left out:
where one replaced edge gives a node, nodes with further edges replaced *behind* it are its own successors. Where a path
beside the run asks for an axis that the run passes over (its don't-care edges are collapsed), the search goes on there.
All are found beforehand, by walking the tree beside the run.
"""

from index.published.decision_tree import Node

__all__ = ["MOST_SUCCESSORS", "annotate"]

MOST_SUCCESSORS = 64
"""Successors of one node; a node with more is given up, and its tree searched along both edges."""


def annotate(root: Node) -> bool:
    """Fill `successors` of every node. False if some node has too many, or an axis of bounds is among them: the tree is
    then searched without."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.bounds is not None:
            return False
        found = _beside(node)
        if len(found) > MOST_SUCCESSORS:
            return False
        node.successors = tuple(found) if node.star is None else (node.star, *found)
        stack.extend(node.children())
    return True


def _beside(node: Node) -> list[Node]:
    """The nodes beside the last run of operands above `node`."""
    run: list[tuple[int, object]] = []
    top = node
    while top.parent is not None and not top.by_star:
        operand = next(value for value, child in top.parent.edges.items() if child is top)
        run.append((top.parent.axis, operand))
        top = top.parent
    run.reverse()
    found: dict[frozenset[int], Node] = {}
    waiting: list[tuple[Node, int, frozenset[int]]] = [(top, 0, frozenset())]
    while waiting and len(found) <= 4 * MOST_SUCCESSORS:
        here, at, replaced = waiting.pop()
        if at == len(run):
            if replaced:
                found[replaced] = here
            continue
        axis, operand = run[at]
        if here.axis > axis:  # a collapsed chain: it does not care about this axis
            waiting.append((here, at + 1, replaced | {at}))
            continue
        if here.axis < axis:  # it asks for an axis that the run, being collapsed, passes over
            found[replaced] = here
            continue
        child = here.edges.get(operand)
        if child is not None:
            waiting.append((child, at + 1, replaced))
        if here.star is not None:
            waiting.append((here.star, at + 1, replaced | {at}))
    return [
        node
        for replaced, node in found.items()
        if not any(other < replaced and min(replaced - other) > max(other) for other in found)
    ]
