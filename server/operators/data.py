"""What the built-in operators know: named regions, tables, calendar windows, from a folder and uploaded.

operator_data (a folder, read at the start) ──┐
                                              ├─▶ OwnData ──▶ the built-in operators over it
uploads (kept in the store)  ─────────────────┘   an upload goes before what the folder has of its name
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import msgspec

from semantic.errors import InvalidDeclaration
from semantic.operators.builtin import Regions, Table, builtin_operators
from semantic.operators.declaration import Operator

__all__ = ["CALLED", "MOST_TABLES", "Key", "Kind", "OwnData", "Piece", "piece_size", "read_piece"]

Kind = Literal["regions", "tables", "windows"]
Key = tuple[Kind, str]
"""A table has a name; of regions and windows there is one document each, named ""."""
Piece = Regions | Table | Mapping[str, list[str]]

MOST_TABLES = 1_000
CALLED: Mapping[Kind, tuple[str, ...]] = {
    "regions": ("inRegion", "distanceFrom"),
    "tables": ("inTable", "lookUp"),
    "windows": ("inWindow",),
}
"""Who reads what."""


def read_piece(kind: Kind, name: str, document: bytes) -> Piece:
    """A document that was checked. Linear. Raises `InvalidDeclaration`, and `FailedForGood` where a library lacks."""
    if kind == "regions":
        return Regions.from_geojson(document)
    if kind == "tables":
        return Table.from_csv(name, document)
    try:
        windows = msgspec.json.decode(document, type=dict[str, list[str]])
    except msgspec.DecodeError as error:
        raise InvalidDeclaration(f"windows are a JSON object, name to list of texts: {error}") from None
    builtin_operators(windows_known=windows)
    return windows


def piece_size(piece: Piece) -> int:
    """Regions, rows, or windows."""
    return len(piece)


@dataclass(frozen=True, slots=True)
class OwnData:
    """Immutable; any thread."""

    folder: Mapping[Key, Piece] = field(default_factory=dict)
    uploaded: Mapping[Key, Piece] = field(default_factory=dict)

    @property
    def pieces(self) -> Mapping[Key, Piece]:
        """What counts."""
        return {**self.folder, **self.uploaded}

    def with_upload(self, key: Key, piece: Piece) -> "OwnData":
        """One more, or another in place of the one of its name. Raises `InvalidDeclaration` for too many tables."""
        changed = replace(self, uploaded={**self.uploaded, key: piece})
        if len(changed.pieces) > MOST_TABLES:
            raise InvalidDeclaration(f"this server takes at most {MOST_TABLES:,} tables")
        return changed

    def without_upload(self, key: Key) -> "OwnData":
        """Less one; what the folder has of its name counts again."""
        return replace(self, uploaded={each: piece for each, piece in self.uploaded.items() if each != key})

    def operators(self) -> list[Operator]:
        """The built-in ones over all of it. Their version tells what they were over."""
        pieces = self.pieces
        windows = cast(Mapping[str, list[str]] | None, pieces.get(("windows", "")))
        regions = cast(Any, pieces.get(("regions", "")))
        tables = [piece for piece in pieces.values() if isinstance(piece, Table)]
        return builtin_operators(regions=regions, tables_known=tables, windows_known=windows)
