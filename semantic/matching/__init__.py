"""The matcher: index, verification, operators, results, snapshots."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.index.array_file import read_arrays, write_arrays
    from kindcast.index.compilation import KernelCache, kernel_cache, warm_up, warm_up_beside
    from kindcast.index.jit import load_kernels, use_cache
    from kindcast.semantic.matching.operator_layer import Decision, Link, OperatorLayer, Step
    from kindcast.semantic.matching.saved_matcher import saved_trees
    from kindcast.semantic.matching.verification import (
        NOT_SEARCHED,
        SEARCH_SECONDS,
        CostlyTest,
        Failures,
        MatchTable,
        OpenDecision,
    )

__all__ = [
    "NOT_SEARCHED",
    "SEARCH_SECONDS",
    "CostlyTest",
    "Decision",
    "Failures",
    "KernelCache",
    "Link",
    "MatchTable",
    "OpenDecision",
    "OperatorLayer",
    "Step",
    "kernel_cache",
    "load_kernels",
    "read_arrays",
    "saved_trees",
    "use_cache",
    "warm_up",
    "warm_up_beside",
    "write_arrays",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.index.array_file": ("read_arrays", "write_arrays"),
        "kindcast.index.compilation": ("KernelCache", "kernel_cache", "warm_up", "warm_up_beside"),
        "kindcast.index.jit": ("load_kernels", "use_cache"),
        "kindcast.semantic.matching.operator_layer": ("Decision", "Link", "OperatorLayer", "Step"),
        "kindcast.semantic.matching.saved_matcher": ("saved_trees",),
        "kindcast.semantic.matching.verification": (
            "CostlyTest",
            "Failures",
            "MatchTable",
            "NOT_SEARCHED",
            "OpenDecision",
            "SEARCH_SECONDS",
        ),
    },
)
