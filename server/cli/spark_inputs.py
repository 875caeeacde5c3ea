"""Input files of Spark jobs, exported from a server: ontology records, declarations and subscriptions.

--server URL   over HTTP, of a server that runs here or elsewhere
--data DIR     from the data folder of one, which may run or not
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from kindcast.server.cli.problems import CommandFailed
from kindcast.server.client import Client, ProblemError
from kindcast.server.client.calls import path_of

__all__ = ["fetch_inputs", "read_inputs"]


def fetch_inputs(client: Client, folder: Path) -> None:
    """Write what is active on the server into `folder`. Raises `ProblemError` and httpx's errors."""
    folder.mkdir(parents=True, exist_ok=True)
    with httpx.Client(base_url=client.server, timeout=60.0) as http:
        names = [each["name"] for each in client.ontologies()["ontologies"] if each["active"]]
        for number, name in enumerate(sorted(names)):
            records = _answered(http, path_of("ontologies", name, "records"))
            _write(folder / f"{number:03}.records", records.content)
        declared = {kind: _bodies(client, kind) for kind in ("attributes", "schemas", "contexts")}
        tables = _bodies(client, "synonyms").values()
        declared["synonyms"] = {word: root for table in tables for word, root in table.items()}
        declared["rates"] = _rates(client)
        _write(folder / "declarations.json", json.dumps(declared).encode())
        _write(folder / "subscriptions.ndjson", _answered(http, path_of("subscriptions", "export")).content)


def read_inputs(data: Path, folder: Path) -> None:
    """Write what is active in a data folder into `folder`. Raises CommandFailed."""
    from sqlalchemy import create_engine  # the libraries of a server: no other command needs them

    from kindcast.semantic.ontology.encoding import is_readable
    from kindcast.server.broker.vocabulary_commands import active_declarations
    from kindcast.server.store import ontologies, subscriptions

    database = data / "kindcast.db"
    if not database.is_file():
        raise CommandFailed(
            f"{data} holds no database of a server (kindcast.db).", "Give the data folder of kindcast serve."
        )
    folder.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///file:{database.absolute()}?mode=ro&uri=true")
    try:
        with engine.connect() as connection:
            for number, row in enumerate(ontologies.active_records(connection)):
                if row.records is None or not is_readable(row.records):
                    raise CommandFailed(
                        f"{data} was written by an older version.",
                        "Start the server with this folder once to upgrade it.",
                    )
                _write(folder / f"{number:03}.records", row.records)
            declared = active_declarations(connection).arguments()
            _write(folder / "declarations.json", json.dumps(declared, default=dict).encode())
            rows = subscriptions.trees(connection, live_only=True)
            _write(folder / "subscriptions.ndjson", b"".join(_lines(rows)))
    finally:
        engine.dispose()


def _lines(rows: Iterable[Any]) -> Iterable[bytes]:
    for row in rows:
        if row.status != "paused":
            yield json.dumps({"id": row.id, "where": row.tree}, ensure_ascii=False).encode() + b"\n"


def _answered(http: httpx.Client, path: str) -> httpx.Response:
    answer = http.get(path)
    if answer.is_error:
        raise CommandFailed(f"{http.base_url}{path} answers {answer.status_code}: {answer.text[:200]}")
    return answer


def _bodies(client: Client, kind: str) -> dict[str, Any]:
    """What is declared of a kind, by name."""
    return {each["name"]: each["declaration"] for each in client.declarations(kind)[kind]}


def _rates(client: Client) -> Any:
    try:
        return client.declaration("rates")["declaration"]
    except ProblemError as error:
        if error.status == 404:
            return {}
        raise


def _write(path: Path, content: bytes) -> None:
    """Only what changed: a stream looks at the times of these files."""
    if path.exists() and path.read_bytes() == content:
        return
    writing = path.with_name(f".{path.name}")
    writing.write_bytes(content)
    writing.replace(path)
