"""Predicates of subscriptions: normal form, readings of values, evaluation, and lowering to the index."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.conditions.lowering import is_expensive

__all__ = ["is_expensive"]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.conditions.lowering": ("is_expensive",),
    },
)
