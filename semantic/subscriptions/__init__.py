"""Compilation of expressions to clauses, and the table of a matcher's subscriptions."""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.semantic.subscriptions.bulk_compilation import BulkCompiler, Described, DescribedMany
    from kindcast.semantic.subscriptions.compilation import (
        SeenAttributes,
        advise,
        as_new,
        compile_expression,
        restore_expression,
    )

__all__ = [
    "BulkCompiler",
    "Described",
    "DescribedMany",
    "SeenAttributes",
    "advise",
    "as_new",
    "compile_expression",
    "restore_expression",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.semantic.subscriptions.bulk_compilation": ("BulkCompiler", "Described", "DescribedMany"),
        "kindcast.semantic.subscriptions.compilation": (
            "SeenAttributes",
            "advise",
            "as_new",
            "compile_expression",
            "restore_expression",
        ),
    },
)
