"""Loading of a server's operators at its start: built in with their data, from plug-ins, and stored ones.

<operator_data>/regions.geojson     named regions
<operator_data>/tables/*.csv        tables, by the name of their file
<operator_data>/windows.json        calendar windows: {"office hours": ["mon-fri 09:00-17:00 Europe/Vienna"]}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators import OperatorFailed, load_operators
from kindcast.semantic.planner import Experience, read_priors
from kindcast.server.errors import StoreUnreadable
from kindcast.server.operators.registry import MOST_TABLES, Key, OwnData, Piece, Registration, Registry, read_piece
from kindcast.server.settings import Settings
from kindcast.server.store import operators

__all__ = ["first_expectations", "folder_data", "restore_registry"]

MOST_BYTES = 256 << 20
"""Of one file: it is held in memory."""


def restore_registry(connection: Connection, settings: Settings) -> Registry:
    """All of them, with stand-ins for those that stored subscriptions call but that are no longer provided.

    Raises `StoreUnreadable` for data that cannot be read: an operator over half of it would decide wrongly.
    """
    plugins = load_operators() if settings.plugins else {}
    data = OwnData(folder_data(settings.operator_data), _uploaded(connection))
    registry = Registry.of(data, plugins.values())
    for row in operators.list_operators(connection):
        entry = registry.entries.get(row.name)
        if entry is None:  # one that is installed meanwhile wins over a registration
            registry = registry.with_remote(row.name, _registration(row.body))
    return registry.with_missing(operators.count_uses(connection))


def folder_data(folder: Path | None) -> dict[Key, Piece]:
    """What is in a folder. Raises `StoreUnreadable`, naming the file."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise StoreUnreadable(f"operator_data: there is no folder {folder}")
    files: dict[Key, Path] = {("regions", ""): folder / "regions.geojson", ("windows", ""): folder / "windows.json"}
    files |= {("tables", path.stem): path for path in sorted((folder / "tables").glob("*.csv"))[: MOST_TABLES + 1]}
    if len(files) > MOST_TABLES:
        raise StoreUnreadable(f"operator_data: more than {MOST_TABLES:,} tables")
    found: dict[Key, Piece] = {}
    for (kind, name), path in files.items():
        try:
            if path.exists():
                found[kind, name] = read_piece(kind, name, _bytes(path))
        except (InvalidDeclaration, OperatorFailed, OSError, ValueError) as error:
            raise StoreUnreadable(f"operator_data: {path} cannot be read: {error}") from error
    return found


def _uploaded(connection: Connection) -> dict[Key, Piece]:
    found: dict[Key, Piece] = {}
    for row in operators.list_data(connection):
        try:
            found[row.kind, row.name] = read_piece(row.kind, row.name, row.document)
        except (InvalidDeclaration, OperatorFailed) as error:
            raise StoreUnreadable(f"the uploaded {row.kind} {row.name!r} cannot be read: {error}") from error
    return found


def first_expectations(path: Path | None) -> list[dict[str, Any]]:
    """What an archive taught of operators, from a file. Raises `StoreUnreadable`, naming the file."""
    if path is None:
        return []
    try:
        records = read_priors(path)
        Experience.from_records(records)
    except (OSError, ValueError) as error:
        raise StoreUnreadable(f"operator_priors: {error}") from error
    return records


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"a file has at most {MOST_BYTES:,} bytes")
    return path.read_bytes()


def _registration(body: Mapping[str, Any]) -> Registration:
    return msgspec.convert(body, Registration)
