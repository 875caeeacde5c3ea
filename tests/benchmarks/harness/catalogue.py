"""Every experiment by its name: the modules of `tests/benchmarks/experiments/`."""

import importlib
import pkgutil
from typing import cast

from tests.benchmarks import experiments
from tests.benchmarks.harness.experiment import Experiment

__all__ = ["experiment", "names"]


def names() -> list[str]:
    """In the order of the alphabet."""
    return sorted(each.name for each in pkgutil.iter_modules(experiments.__path__))


def experiment(name: str) -> Experiment:
    """Raises `ModuleNotFoundError` for a name that `names` does not have."""
    return cast(Experiment, importlib.import_module(f"tests.benchmarks.experiments.{name}"))
