"""What a new version of a vocabulary changes: concepts, and what subscriptions mean."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.changes.difference import difference_between
    from kindcast.semantic.changes.impact import Impact, impact_of_rules, impact_report

__all__ = ["Impact", "difference_between", "impact_of_rules", "impact_report"]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.changes.difference": ("difference_between",),
        "kindcast.semantic.changes.impact": (
            "Impact",
            "impact_of_rules",
            "impact_report",
        ),
    },
)
