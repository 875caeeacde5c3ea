"""Lazy imports: the public names of a package are imported at their first use, so that they cost no import time."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of `package`. `homes`: module → the names that it provides. After its first use, a name
    is an attribute of the package.

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
