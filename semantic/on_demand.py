"""Public faces of packages whose names are imported when they are first used, so that a face costs no import time."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: `homes` has the names that each module gives. A name that was used once is an
    attribute of the package from then on.

    >>> on_demand("kindcast.semantic", {"kindcast.semantic.units": ("Units",)})("Units").__name__
    'Units'
    """
    home = {name: module for module, names in homes.items() for name in names}

    def named(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home[name]), name)
        setattr(modules[package], name, found)
        return found

    return named
