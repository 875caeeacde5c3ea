"""The operators of a server at its start: its own over the data of a folder, those of plug-ins, and what is stored.

<operator_data>/regions.geojson     named regions
<operator_data>/tables/*.csv        tables, by the name of their file
<operator_data>/windows.json        calendar windows: {"office hours": ["mon-fri 09:00-17:00 Europe/Vienna"]}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection

from semantic.errors import InvalidDeclaration
from semantic.operators.builtin import Regions, Table, builtin_operators
from semantic.operators.declaration import Operator
from semantic.operators.failures import OperatorFailed
from semantic.operators.plugins import load_operators
from server.errors import StoreUnreadable
from server.operators.registration import Registration
from server.operators.registry import Registry
from server.settings import Settings
from server.store import operators

__all__ = ["own_operators", "restore_registry"]

MOST_TABLES = 1_000
MOST_BYTES = 256 << 20
"""Of one file: it is held in memory."""


def restore_registry(connection: Connection, settings: Settings) -> Registry:
    """All of them, with stand-ins for those that stored subscriptions call and nobody provides any more.

    Raises `StoreUnreadable` for data that cannot be read: an operator over half of it would decide wrongly.
    """
    plugins = load_operators() if settings.plugins else {}
    registry = Registry.of(own_operators(settings.operator_data), plugins.values())
    for row in operators.list_operators(connection):
        entry = registry.entries.get(row.name)
        if entry is None:  # one that is installed meanwhile wins over a registration
            registry = registry.with_remote(row.name, _registration(row.body))
    return registry.with_missing(operators.count_uses(connection))


def own_operators(folder: Path | None) -> list[Operator]:
    """The built-in ones over the data in a folder. Raises `StoreUnreadable`, naming the file."""
    if folder is None:
        return builtin_operators()
    if not folder.is_dir():
        raise StoreUnreadable(f"operator_data: there is no folder {folder}")
    reading = folder
    try:
        reading = folder / "regions.geojson"
        regions = Regions.from_geojson(_bytes(reading)) if reading.exists() else None
        tables = []
        for reading in sorted((folder / "tables").glob("*.csv"))[: MOST_TABLES + 1]:
            tables.append(Table.from_csv(reading.stem, _bytes(reading)))
        if len(tables) > MOST_TABLES:
            raise ValueError(f"more than {MOST_TABLES:,} tables")
        reading = folder / "windows.json"
        windows = msgspec.json.decode(_bytes(reading), type=dict[str, list[str]]) if reading.exists() else None
        return builtin_operators(regions=regions, tables_known=tables, windows_known=windows)
    except (InvalidDeclaration, OperatorFailed, OSError, ValueError) as error:
        raise StoreUnreadable(f"operator_data: {reading} cannot be read: {error}") from error


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"a file has at most {MOST_BYTES:,} bytes")
    return path.read_bytes()


def _registration(body: Mapping[str, Any]) -> Registration:
    return msgspec.convert(body, Registration)
