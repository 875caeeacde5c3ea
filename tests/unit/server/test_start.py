"""What starts is what is needed: a command that asks for help, or an empty server, imports no library of another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kindcast import semantic
from kindcast.index.registry import ENGINES
from kindcast.server.cli import matching

COMPILER = {"numba", "llvmlite", "kindcast.index.machine_code"}
SELDOM = COMPILER | {"jwt", "networkx", "owlready2", "pandas", "pyarrow", "pyld", "pyspark", "rdflib", "scipy"}
SERVER = {"anyio", "fastapi", "prometheus_client", "pydantic", "sqlalchemy", "starlette", "uvicorn"}
MATCHER = {"bitarray", "lark", "numpy", "pint", "pyoxigraph", "re2"}

HELP = """
import json, sys
from kindcast.server.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert end.code == 0
print("\\n" + json.dumps(sorted(sys.modules)))
"""
EMPTY_SERVER = """
import asyncio, json, sys
from pathlib import Path
from kindcast.server.app import create_app
from kindcast.server.settings import Settings

async def ready():
    app = create_app(Settings(data=Path({folder!r})))
    async with app.router.lifespan_context(app):
        return sorted(sys.modules)

print("\\n" + json.dumps(asyncio.run(ready())))
"""


def modules(program: str) -> set[str]:
    """The modules that a new process has when `program` prints them."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["publish", "--help"], ["serve", "--help"]])
def test_help_imports_no_library_of_matcher_server_or_client(arguments: list[str]) -> None:
    """`kindcast --help` is what people do first, and completion does at each key. typer itself reads the options of a
    command with pydantic."""
    unwanted = SELDOM | SERVER | MATCHER | {"httpx", "httpcore"}
    assert modules(HELP.format(arguments=arguments)) & (unwanted - {"pydantic"} if arguments[1:] else unwanted) == set()


def test_empty_server_imports_no_compiler_and_no_parser_of_ontologies(tmp_path: Path) -> None:
    """The first event, subscription or ontology brings what it needs."""
    found = modules(EMPTY_SERVER.format(folder=str(tmp_path)))
    assert found >= SERVER
    assert found & SELDOM == set()


def test_offline_commands_name_the_engines_that_there_are() -> None:
    """They are written down, since importing them takes long."""
    assert sorted(ENGINES) == list(matching.ENGINES)


def test_semantic_has_each_name_that_it_promises_and_no_other() -> None:
    """Each is imported when it is asked for, and is the one of its module; another is an `AttributeError`."""
    for name in semantic.__all__:
        found = getattr(semantic, name)
        assert found.__module__.startswith("kindcast.semantic."), name
        assert getattr(sys.modules[found.__module__], name, None) is found
        assert name in dir(semantic)
    assert not hasattr(semantic, "Nonsense")
