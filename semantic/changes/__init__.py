"""Changes between two versions of a vocabulary: differences of concepts, and the impact on subscriptions."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.changes.difference import difference_between
    from kindcast.semantic.changes.impact import AttributePart, Impact, footprint, impact_of_rules, impact_report

__all__ = ["AttributePart", "Impact", "difference_between", "footprint", "impact_of_rules", "impact_report"]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.changes.difference": ("difference_between",),
        "kindcast.semantic.changes.impact": (
            "AttributePart",
            "Impact",
            "footprint",
            "impact_of_rules",
            "impact_report",
        ),
    },
)
