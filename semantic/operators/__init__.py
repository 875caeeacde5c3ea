"""Operators, the functions behind expensive predicates: their declaration, calls, failures and isolation."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.operators.calls import OperatorFailed, Remembered, run, stop
    from kindcast.semantic.operators.declaration import (
        NAME,
        Operator,
        entry_points_at_start,
        load_operators,
        operator,
        operators_by_name,
    )
    from kindcast.semantic.operators.failures import Failure, FailureKind, NotAnswered
    from kindcast.semantic.operators.isolation import START_SECONDS, Cancellation

__all__ = [
    "NAME",
    "START_SECONDS",
    "Cancellation",
    "Failure",
    "FailureKind",
    "NotAnswered",
    "Operator",
    "OperatorFailed",
    "Remembered",
    "entry_points_at_start",
    "load_operators",
    "operator",
    "operators_by_name",
    "run",
    "stop",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.operators.calls": ("OperatorFailed", "Remembered", "run", "stop"),
        "kindcast.semantic.operators.declaration": (
            "NAME",
            "Operator",
            "entry_points_at_start",
            "load_operators",
            "operator",
            "operators_by_name",
        ),
        "kindcast.semantic.operators.failures": ("Failure", "FailureKind", "NotAnswered"),
        "kindcast.semantic.operators.isolation": ("Cancellation", "START_SECONDS"),
    },
)
