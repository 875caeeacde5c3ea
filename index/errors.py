"""The exceptions of the index.

Only errors of the caller and invalid files raise. No engine fails for a well-formed clause or event.

    IndexingError
    ├── UnknownRow       a row that holds no clause
    ├── UnknownEngine    a name that no engine has
    ├── IndexFull        the byte budget has no room for another clause
    └── UnusableIndex    a saved index cannot be opened
        ├── DamagedIndex     it is damaged
        ├── OtherLayout      another version of this program wrote it
        └── OtherGraph       it was made under another concept graph
"""

import copyreg
from pathlib import Path
from typing import Any

__all__ = [
    "CopiedWhole",
    "DamagedIndex",
    "IndexFull",
    "IndexingError",
    "OtherGraph",
    "OtherLayout",
    "UnknownEngine",
    "UnknownRow",
    "UnusableIndex",
]


class CopiedWhole(Exception):
    """An exception whose copies, also those in other processes, keep everything."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Python's own way would pass the text alone to `__init__`."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class IndexingError(CopiedWhole):
    """The index was used wrongly."""


class UnknownRow(IndexingError):
    """No clause is stored at this row."""

    def __init__(self, row: int) -> None:
        super().__init__(f"no clause is stored at row {row}")
        self.row = row


class UnknownEngine(IndexingError):
    """There is no engine of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"there is no engine named {name!r}; choose one of {', '.join(known)}")
        self.name = name
        self.known = known


class IndexFull(IndexingError):
    """The memory budget of an engine has no room for new clauses. None of them was added."""

    def __init__(self, budget: int) -> None:
        super().__init__(f"the index has used all of its {budget:,} bytes: remove clauses, or raise the limit")
        self.budget = budget


class UnusableIndex(IndexingError):
    """A saved index cannot be opened. Nothing was changed. The remedy is to build the index again."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot open {path}: {reason}. Remove the file and build the index from the subscriptions")
        self.path = path
        self.reason = reason


class DamagedIndex(UnusableIndex):
    """The file is damaged, or is not an index file."""


class OtherLayout(UnusableIndex):
    """The file has another content, or was written by a version of this program with another layout of arrays."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__(path, f"it has {found!r}, but {expected!r} is expected")


class OtherGraph(UnusableIndex):
    """The index was made under another concept graph."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "it was made with another concept graph, so its concept numbers are wrong")
