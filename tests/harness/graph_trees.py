"""Trees of graphs in a form that tests compare."""

from typing import Any

from kindcast.semantic.model import Node

__all__ = ["shown"]


def shown(value: Any) -> Any:
    """A tree in a form that tells 1, 1.0 and true apart, and shows what nodes are worth."""
    if isinstance(value, Node):
        return "node", value.value, {name: shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    return type(value).__name__, value
