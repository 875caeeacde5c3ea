"""What a command loads before it does anything: nothing that takes long."""

import subprocess
import sys

from kindcast import semantic
from kindcast.index.registry import ENGINES
from kindcast.server.cli import offline

HEAVY = ("numba", "numpy", "rdflib", "pyoxigraph", "pint", "lark", "networkx", "pydantic", "fastapi", "sqlalchemy")


def test_commands_start_without_the_libraries_of_the_matcher_and_of_the_server() -> None:
    """All commands are known, with their options, and none of those libraries is loaded."""
    program = f"import sys, kindcast.server.cli.application; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_offline_commands_name_the_engines_that_there_are() -> None:
    """They are written down, since importing them takes long."""
    assert sorted(ENGINES) == list(offline.ENGINES)


def test_semantic_has_each_name_that_it_promises_and_no_other() -> None:
    """Each is imported when it is asked for, and is the one of its module; another is an `AttributeError`."""
    for name in semantic.__all__:
        found = getattr(semantic, name)
        assert found.__module__.startswith("kindcast.semantic."), name
        assert getattr(sys.modules[found.__module__], name, None) is found
        assert name in dir(semantic)
    assert not hasattr(semantic, "Nonsense")
