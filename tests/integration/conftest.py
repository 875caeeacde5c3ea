"""What the tests of the command line share: running one command, and a server with the shop's vocabulary."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kindcast.server.cli import main
from kindcast.server.cli.demo import running_server
from tests.harness.postgresql import PostgreSQL, running_postgresql

__all__ = ["Kindcast", "Ran"]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Kindcast = Callable[..., Ran]


@pytest.fixture
def kindcast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kindcast:
    """Runs one command in this process. None waits for a server that is not there."""
    monkeypatch.setenv("KINDCAST_RETRY_SECONDS", "0")

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Ran(ended.value.code if isinstance(ended.value.code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def shop_server() -> Iterator[str]:
    """A server process with the shop's vocabulary loaded."""
    with running_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KINDCAST_SERVER", address)
        with pytest.raises(SystemExit):
            main(["ontology", "load", "shop.ttl"])
        yield address


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A cluster for all tests; skips where there is none."""
    with running_postgresql() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings that name the database: none for SQLite, or an empty database of PostgreSQL."""
    if request.param == "sqlite":
        return {}
    cluster: PostgreSQL = request.getfixturevalue("postgresql")
    return {"database": cluster.new_database()}
