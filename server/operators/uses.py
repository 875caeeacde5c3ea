"""Which operators a stored subscription calls, seen from its tree: `{"op": ["locIn", "Bronx"]}`, wherever it stands."""

from typing import Any

__all__ = ["operators_of"]


def operators_of(tree: Any) -> set[str]:
    """Their names. Linear in the tree.

    >>> sorted(operators_of({"all": [{"<": ["price", 5]}, {"not": {"op": ["near", "Bronx", "?d"]}}]}))
    ['near']
    """
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            called = node.get("op")
            if isinstance(called, list) and called and isinstance(called[0], str):
                found.add(called[0])
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return found
