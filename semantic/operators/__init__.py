"""Expensive predicates: what operators are, how their calls are shared, how their bindings join."""

from kindcast.semantic.operators.declaration import Operator, operator

__all__ = ["Operator", "operator"]
