"""Libraries that some built-in operators need and an installation may lack."""

import importlib
from typing import Any

from kindcast.semantic.operators.failures import FailedForGood

__all__ = ["needed"]


def needed(module: str, operator: str) -> Any:
    """The module, imported when an operator first needs it. Raises `FailedForGood` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise FailedForGood(f"{operator} needs {library}: pip install 'kindcast[operators]'") from error
