"""Why an event matched a subscription or did not, and why operators were called in their order."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.explanations.explanation import as_json, explain
    from kindcast.semantic.explanations.operator_plans import chains, explain_chains, explain_plan

__all__ = ["as_json", "chains", "explain", "explain_chains", "explain_plan"]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.explanations.explanation": ("as_json", "explain"),
        "kindcast.semantic.explanations.operator_plans": ("chains", "explain_chains", "explain_plan"),
    },
)
