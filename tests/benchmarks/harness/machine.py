"""What the figures were measured on, without saying whose it is."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

__all__ = ["machine", "today"]


def machine() -> dict[str, Any]:
    """Cores, memory, processor, and the versions that matter."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
    }


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
