"""The inputs of a job: ontologies, declarations and subscriptions, from files or a snapshot.

    --ontology FILE …  --declarations FILE  --subscriptions FILE      what people have
    --inputs DIR                                                       what the command line fetched from a server

A subscriptions file is NDJSON as a server exports it: one `{"id", "expression"}` per line, or `where` with a
tree. A bad line is reported with its number and does not stop the rest.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kindcast.semantic.errors import SemanticError
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.ontology.encoding import decode, encode
from kindcast.semantic.ontology.loader import read_several
from kindcast.semantic.vocabulary.declarations import Declarations
from kindcast.semantic.vocabulary.vocabulary import MEANING
from kindcast.spark_jobs.errors import JobFailed
from kindcast.spark_jobs.snapshot import Refused, Snapshot, write_snapshot

__all__ = ["Inputs"]

DECLARED = frozenset(Declarations().arguments())
"""The members of a file of declarations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where the inputs are."""

    ontologies: tuple[Path, ...] = ()
    relations: tuple[str, ...] = ()
    declarations: Path | None = None
    subscriptions: Path | None = None
    folder: Path | None = None
    shards: int | None = None

    def stamp(self) -> str:
        """Another text whenever a file changed, or what files mean (`MEANING`)."""
        files = [*self.ontologies, self.declarations, self.subscriptions]
        if self.folder is not None:
            files += sorted(self.folder.iterdir())
        told = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path is not None]
        return hashlib.sha256(repr((MEANING, told, self.relations, self.shards)).encode()).hexdigest()[:16]

    def snapshot(self, below: Path) -> Snapshot:
        """The snapshot of these inputs, in a folder of its own in `below`; written if it is not there yet. Raises
        `JobFailed`, `SemanticError`."""
        place = below / f"snapshot-{self.stamp()}"
        if (place / "snapshot.json").exists():
            return Snapshot.read(place)
        below.mkdir(parents=True, exist_ok=True)
        ontologies, declared = self._ontologies(), self._declared()
        bad: list[Refused] = []
        subscriptions = list(self._subscriptions(bad))
        written = write_snapshot(place, ontologies, subscriptions, declarations=declared, shards=self.shards)
        return replace(written, refused=(*bad, *written.refused))

    def copy_to(self, folder: Path) -> None:
        """The same inputs as a folder for `--inputs`."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, ontology in enumerate(self._ontologies()):
            (folder / f"{number:03}.records").write_bytes(encode(ontology))
        (folder / "declarations.json").write_text(json.dumps(self._declared()), encoding="utf-8")

    def _ontologies(self) -> list[Ontology]:
        try:
            if self.folder is not None:
                return [decode(path.read_bytes(), older=True) for path in sorted(self.folder.glob("*.records"))]
            documents = [(path.name, path.read_bytes()) for path in self.ontologies]
            return list(read_several(documents, limits=None, reason="none", relations=self.relations))
        except OSError as error:
            raise JobFailed(f"an ontology cannot be read: {error}") from error

    def _declared(self) -> Mapping[str, Any]:
        path = self.folder / "declarations.json" if self.folder is not None else self.declarations
        if path is None or not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JobFailed(f"{path} is no JSON of declarations: {error}") from error
        if not isinstance(found, dict) or found.keys() - DECLARED:
            raise JobFailed(f"{path} must be an object of {', '.join(sorted(DECLARED))}")
        return found

    def _subscriptions(self, bad: list[Refused]) -> Iterator[tuple[str, Any]]:
        path = self.folder / "subscriptions.ndjson" if self.folder is not None else self.subscriptions
        if path is None or (self.folder is not None and not path.exists()):
            return
        seen: set[str] = set()
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        try:
                            yield _subscription(line, seen)
                        except (ValueError, SemanticError) as error:
                            bad.append(Refused(f"line {number}", str(error)))
        except OSError as error:
            raise JobFailed(f"the subscriptions cannot be read: {error}") from error


def _subscription(line: str, seen: set[str]) -> tuple[str, Any]:
    said = json.loads(line)
    if not isinstance(said, dict) or not isinstance(said.get("id"), str):
        raise ValueError('a line is {"id": text, "expression": text}')
    expression = said.get("expression", said.get("where"))
    if not isinstance(expression, str | dict):
        raise ValueError("expected `expression` or `where`")
    if said["id"] in seen:
        raise ValueError(f"the id {said['id']!r} is used twice")
    seen.add(said["id"])
    return said["id"], expression
