"""Planners, which order the calls of operators, and the statistics that they use."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.planner.learning import Experience, Record, read_priors
    from kindcast.semantic.planner.strategies import PLANNERS, UnknownPlanner

__all__ = ["PLANNERS", "Experience", "Record", "UnknownPlanner", "read_priors"]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.planner.learning": ("Experience", "Record", "read_priors"),
        "kindcast.semantic.planner.strategies": ("PLANNERS", "UnknownPlanner"),
    },
)
