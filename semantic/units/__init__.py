"""Quantities, instants, exchange rates and patterns: what constants and values of these kinds mean (rule 15)."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.units.kinds import format_instant, is_date_time, parse_instant
    from kindcast.semantic.units.measure import Measure, Units, read_rate_table
    from kindcast.semantic.units.patterns import SearchBudget, TooCostlyNow, searching_within

__all__ = [
    "Measure",
    "SearchBudget",
    "TooCostlyNow",
    "Units",
    "format_instant",
    "is_date_time",
    "parse_instant",
    "read_rate_table",
    "searching_within",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.units.kinds": ("format_instant", "is_date_time", "parse_instant"),
        "kindcast.semantic.units.measure": ("Measure", "Units", "read_rate_table"),
        "kindcast.semantic.units.patterns": ("SearchBudget", "TooCostlyNow", "searching_within"),
    },
)
