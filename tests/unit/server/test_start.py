"""What starts is what is needed: a command that asks for help, or an empty server, imports no library of another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("arguments", [["--help"], ["publish", "--help"], ["serve", "--help"], ["--version"]])
def test_help_imports_no_library_of_matcher_server_or_client(arguments: list[str]) -> None:
    """`kindcast --help` is what people do first, and completion does at each key."""
    unwanted = SELDOM | SERVER | MATCHER | {"httpx", "httpcore", "asyncio"}
    assert modules(HELP.format(arguments=arguments)) & unwanted == set()


def test_empty_server_imports_no_compiler_and_no_parser_of_ontologies(tmp_path: Path) -> None:
    """The first event, subscription or ontology brings what it needs."""
    found = modules(EMPTY_SERVER.format(folder=str(tmp_path)))
    assert found >= SERVER
    assert found & SELDOM == set()
