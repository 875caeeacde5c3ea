"""A canary: a listener on this machine and a file, neither of which a document may reach."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server, socket

__all__ = ["Canary", "canary"]

SECRET = "canaryInTheCoalMine"
"""Stands in the canary file, and nowhere else."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Two doors that must stay shut: a listener on this machine, and a file."""

    listener: socket
    path: Path

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/canary"

    @property
    def file(self) -> str:
        return self.path.as_uri()

    def is_unharmed(self, *shown: object) -> bool:
        """Whether nobody has connected, and nothing of the file stands in what came out."""
        try:
            self.listener.accept()
        except BlockingIOError:
            return all(SECRET not in str(each) for each in shown)
        return False


@contextmanager
def canary(folder: Path) -> Iterator[Canary]:
    """A canary whose file is in this folder. It is read as any syntax that one may ask for."""
    path = folder / "canary.ttl"
    path.write_text(
        f"<http://e/{SECRET}> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/{SECRET}2> .",
        encoding="utf-8",
    )
    with create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Canary(listener, path)
