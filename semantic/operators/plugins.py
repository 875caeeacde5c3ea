"""Operators that other packages bring: entry points of the group `kindcast.operators`.

    [project.entry-points."kindcast.operators"]
    harbour = "harbour.operators:boats"            an operator, several of them, or a function that gives them

A package that cannot be imported, or brings what is no operator, is told of by name and does not stop the rest.
"""

import importlib.metadata
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.declaration import Operator

__all__ = ["GROUP", "BrokenPlugin", "Plugins", "load_operators", "load_plugins"]

GROUP = "kindcast.operators"
BARE_NAMES = ("index", "semantic", "server", "spark_jobs")
"""How our packages were imported before they were `kindcast` alone."""

log = logging.getLogger("kindcast.operators")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point that brings no operators, and why."""

    name: str
    package: str
    reason: str

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of package {self.package!r}: {self.reason}"


@dataclass(slots=True)
class Plugins:
    """What is installed: operator by name, the package that each comes from, and what is broken."""

    operators: dict[str, Operator] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    broken: list[BrokenPlugin] = field(default_factory=list)


def load_operators() -> dict[str, Operator]:
    """The operators of all installed plug-ins, by name; a broken plug-in is logged and left out."""
    found = load_plugins()
    for each in found.broken:
        log.warning("%s", each)
    return found.operators


def load_plugins(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> Plugins:
    """The same, with what is broken. An operator's name belongs to the entry point that comes first by name."""
    found = Plugins()
    points = importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    for point in sorted(points, key=lambda each: (each.name, each.value)):
        package = point.dist.name if point.dist is not None else point.value.partition(":")[0]
        try:
            brought = _brought(point.load())
            for operator in brought:
                if operator.name in found.operators:
                    reason = f"there is an operator {operator.name!r} already, of {found.packages[operator.name]!r}"
                    raise InvalidDeclaration(reason)
        except (Exception, SystemExit) as error:  # importing a package may raise anything, and may even exit
            reason = str(error) if isinstance(error, InvalidDeclaration) else f"{type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError) and error.name in BARE_NAMES:
                reason += f": import kindcast.{error.name} instead, or its names from kindcast"
            found.broken.append(BrokenPlugin(point.name, package, reason))
            continue
        for operator in brought:
            found.operators[operator.name] = operator
            found.packages[operator.name] = package
    return found


def _brought(loaded: Any) -> list[Operator]:
    if callable(loaded) and not isinstance(loaded, Operator):
        loaded = loaded()
    brought = [loaded] if isinstance(loaded, Operator) else list(loaded)
    strange = [each for each in brought if not isinstance(each, Operator)]
    if strange:
        raise InvalidDeclaration(f"{strange[0]!r} is not an operator: decorate the function with @operator(name)")
    names = [each.name for each in brought]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidDeclaration(f"it brings two operators of the name {twice[0]!r}")
    return brought
